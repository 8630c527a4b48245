"""Writes docs/RELIABILITY.md from what was counted (docs/reliability.json) and rocketmq_failures.toml beside this file."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
REPORT = ROOT / "docs" / "RELIABILITY.md"
COUNTED = ROOT / "docs" / "reliability.json"
IMAGES = ROOT / "docs" / "reliability" / "rocketmq_images.jsonl"
FAILURES = Path(__file__).with_name("rocketmq_failures.toml")

HEAD = """# Reliability

What was tried against the store, and what came of it. `tests/torture/report.py` writes this page; the counts are of all runs of
`make torture` whose numbers were kept. What is promised, and which step keeps it, is in [DURABILITY.md](DURABILITY.md).

*Lost* is a message that was acknowledged (or, where only the process died, appended) and was not there afterwards; *phantom* is
one that was there and that nobody had appended so; *errors* are the unexpected ones: where a failure is injected, being told is
what is wanted."""

PLANTED = """## Planted faults

`make mutants` takes one ordering step (left out at run time) or one check (removed by a patch in `tests/mutants`) out of the
store at a time, and some test has to fail. Of the newest run of each: what found it, from which seed, and after how many
simulated power cuts or seconds of testing."""

ROWS = """## What went wrong in RocketMQ's own store

From its issues and pull requests, with the test of ours that would notice the same here. Rows
without an issue were found by reading its code."""

RECOVERED = """## Who recovered what

RocketMQ's own crash images (processes killed at random points, some with files lost or cut afterwards), given to RocketMQ of
the same version and to mqstore: what a consumer finds afterwards, of what had been acknowledged. Made by
`tests/interop/test_crashes.py`; one image of each kind."""


def test_names() -> set[str]:
    """The names of all tests, Rust and Python."""
    names: set[str] = set()
    for pattern, path in (("*.rs", "tests/it"), ("test_*.py", "tests")):
        for file in (ROOT / path).rglob(pattern):
            names.update(re.findall(r"^ *(?:fn|def) (\w+)\(", file.read_text(), re.MULTILINE))
    return names


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|-" * len(head) + "|", *lines[1:]])


def counted(layers: dict[str, Any]) -> str:
    """A row a layer."""
    columns = ("cases", "lost", "phantom", "errors", "seconds")
    rows = [[name, *(f"{layer[column]:,}" for column in columns)] for name, layer in sorted(layers.items())]
    totals = [f"{sum(layer[column] for layer in layers.values()):,}" for column in columns[:-1]]
    return table(["layer", *columns], [*rows, ["**all**", *totals, ""]])


def after(fault: dict[str, Any]) -> str:
    """How soon a fault was found."""
    if fault["images"] is not None:
        # Those that a scene makes by itself are not counted.
        return f"{fault['images']:,} power cuts" if fault["images"] else "those of a scene made for it"
    return f"{fault['seconds']} s" if fault["seconds"] else "under 0.1 s"


def planted(faults: dict[str, Any]) -> str:
    """A row a fault, ordering steps first."""
    rows = []
    for name, fault in sorted(faults.items(), key=lambda item: (not item[1]["is_step"], item[0])):
        found = fault["killed_by"] or "**nothing**"
        by = f"`{found.rpartition('::')[2]}`" if "::" in found else found
        rows.append([f"the step {name} is left out" if fault["is_step"] else fault["gone"], by, fault["seed"], after(fault)])
    return table(["planted", "found by", "seed", "after"], rows)


def failures(rows: dict[str, Any], known: set[str]) -> Iterator[list[str]]:
    """A row a failure; one that names a test that does not exist, or has neither tests nor a reason, is refused."""
    for number, row in rows.items():
        names, because = row.get("tests", []), row.get("because", "")
        missing = [name for name in names if name not in known]
        if missing or not (names or because):
            raise SystemExit(f"{FAILURES.name}: {number} has no test {missing}")
        answer = "<br>".join([*(f"`{name}`" for name in names), *([because] if because else [])])
        yield [number, " ".join(row["issues"]) or "none", row["symptom"], answer]


def recovered(images: list[dict[str, Any]]) -> str:
    """A row an image."""
    columns = ("version", "image", "rocketmq", "mqstore", "of")
    return table(["version", "image", "RocketMQ", "mqstore", "of"], [[f"{image[name]}" for name in columns] for image in images])


def render() -> str:
    """The page."""
    data = json.loads(COUNTED.read_text())
    rows = tomllib.loads(FAILURES.read_text())
    parts = [HEAD, "## Counts", counted(data["tried"])]
    parts += [RECOVERED, recovered([json.loads(line) for line in IMAGES.read_text().splitlines()])]
    parts += [PLANTED, planted(data.get("planted", {}))]
    parts += [ROWS, table(["row", "issue", "what happened", "held up by"], list(failures(rows, test_names())))]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    REPORT.write_text(render())
    sys.stdout.write(f"wrote {REPORT.relative_to(ROOT)}\n")
