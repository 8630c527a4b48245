"""Writes docs/RELIABILITY.md and docs/RELIABILITY_TABLES.md.

The page is `reliability.md` with the counts of docs/reliability.json. The tables come from `reliability_tables.md`, from those
counts and from the TOML files here.
"""

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
TABLES = ROOT / "docs" / "RELIABILITY_TABLES.md"
TEMPLATE = Path(__file__).with_name("reliability.md")
HEAD_OF_TABLES = Path(__file__).with_name("reliability_tables.md")
MODELS = ROOT / "tests" / "interleavings"
COUNTED = ROOT / "docs" / "reliability.json"
IMAGES = ROOT / "docs" / "reliability" / "rocketmq_images.jsonl"
FAILURES = Path(__file__).with_name("rocketmq_failures.toml")
PROGRAMS = Path(__file__).with_name("other_programs.toml")
FLIPPED = ROOT / "tests" / "it" / "verifying" / "every_bit.rs"

#: A class of failure and the beginnings of the names of its layers.
CLASSES = {
    "killed process": ("kill ", "loss window: process"),
    "simulated machine: power failures, failing calls": ("simulated crashes",),
    "power failure of real file systems": ("power cut", "loss window: power"),
    "failing system call": ("fail ", "one failed sync"),
    "interrupted or short call": ("interrupt ", "short writes"),
    "full disk": ("full disk",),
    "broken or read-only disk": ("pulled disk", "read-only disk"),
    "special file systems": ("reading while writing", "renames that replace nothing"),
}

COUNTS = """## Counts

All runs of `make torture` whose numbers were kept. *Errors* counts unexpected ones."""

WINDOWS = """## Loss windows

What a failure took of the end of a log that was not yet acknowledged as durable. *Lost ms* is the age of the oldest missing
message, *lost bytes* the size of all of them."""

PLANTED = """## Planted faults

`make mutants` removes one part of the store at a time. The table shows the newest run of each: the check or test that failed,
its seed, and after how many simulated power cuts or seconds it failed."""

ROWS = """## Failures of RocketMQ's own store

From its issues and pull requests, with the tests that would notice the same failure in mqstore. A row without an issue comes from
reading RocketMQ's code."""

RECOVERED = """## Recovered from the same crash images

Crash images of RocketMQ: processes killed at random points, in some images with files removed or cut afterwards. RocketMQ of the
same version and mqstore recovered a copy each. The table shows how many acknowledged messages and keys a consumer then finds.
`tests/interop/test_crashes.py` makes the images; the table has one of each kind."""

OTHERS = """## Programs that were run once

Programs outside the test suite searched for what no test covers, for some minutes each. `tests/torture/other_programs.toml` lists
them. Each fixed defect has a test."""

FLIPS = """## Flipped bits that nothing detects

`each_flipped_bit_of_a_small_store_is_found_unless_nothing_covers_it` flips each bit of each file of a small store, and
runs `verify`. A bit of these fields can change without a finding: no checksum of the format covers them, and no other file
repeats them. A wrong store time is found only where it breaks the order of the messages (`log.store_time_falls`,
`log.store_time_wrong`). A record with the property `__CRC32#` (RocketMQ 5.x with `enabledAppendPropCRC`) has a checksum over all
of its fields."""

ISSUE = "https://github.com/apache/rocketmq/issues/"


def undetected() -> str:
    """One row for each family of files, from the list that the test compares."""
    listed = re.search(r"^const UNDETECTED: &\[&str\] = &\[(.*?)^\];", FLIPPED.read_text(), re.MULTILINE | re.DOTALL)
    if not listed:
        raise SystemExit(f"{FLIPPED.name} has no list UNDETECTED")
    fields: dict[str, list[str]] = {}
    for field in re.findall(r'"(.*?)"', listed[1]):
        family, name = field.split(": ")
        fields.setdefault(family, []).append(name)
    return table(["family", "fields"], [[family, ", ".join(names)] for family, names in fields.items()])


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


def classes(layers: dict[str, Any]) -> str:
    """One row for each class of failure. A layer without a class, or with two, is refused."""
    columns = ("cases", "lost", "phantom", "errors")
    sums = {name: dict.fromkeys(columns, 0) for name in CLASSES}
    for layer, counts in layers.items():
        of = [name for name, beginnings in CLASSES.items() if layer.startswith(beginnings)]
        if len(of) != 1:
            raise SystemExit(f"the layer {layer!r} has the classes {of}: CLASSES must give it one")
        for column in columns:
            sums[of[0]][column] += counts[column]
    rows = [[name, *(f"{counts[column]:,}" for column in columns)] for name, counts in sums.items()]
    totals = [f"{sum(counts[column] for counts in sums.values()):,}" for column in columns]
    return table(["class of failure", *columns], [*rows, ["**all**", *totals]])


def counted(layers: dict[str, Any]) -> str:
    """One row for each layer."""
    columns = ("cases", "lost", "phantom", "errors", "seconds")
    rows = [[name, *(f"{layer[column]:,}" for column in columns)] for name, layer in sorted(layers.items())]
    totals = [f"{sum(layer[column] for layer in layers.values()):,}" for column in columns[:-1]]
    return table(["layer", *columns], [*rows, ["**all**", *totals, ""]])


def windows(measured: dict[str, Any]) -> str:
    """One row for each mode and failure."""
    under_way = {"process killed": "write", "power cut": "sync"}
    rows = []
    for one in sorted(measured.values(), key=lambda one: (one["failure"], one["mode"])):
        numbers = [f"{one[unit][of]:,}" for unit in ("ms", "bytes") for of in ("median", "max")]
        bound = f"{one['bound_ms']:,} ms and one {under_way[one['failure']]}" if one["bound_ms"] else "nothing"
        rows.append([one["mode"], one["failure"], f"{one['cases']:,}", *numbers, bound])
    return table(["mode", "failure", "cases", "lost ms: median", "max", "lost bytes: median", "max", "stated bound"], rows)


def after(fault: dict[str, Any]) -> str:
    """After how many power cuts or seconds a fault was found."""
    if fault["images"] is not None:
        # The power cuts inside a scene are not counted.
        return f"{fault['images']:,} power cuts" if fault["images"] else "a scene made for it"
    return f"{fault['seconds']} s" if fault["seconds"] else "under 0.1 s"


def planted(faults: dict[str, Any]) -> str:
    """One row for each fault, ordering steps first."""
    rows = []
    for name, fault in sorted(faults.items(), key=lambda item: (not item[1]["is_step"], item[0])):
        found = fault["killed_by"] or "**nothing**"
        by = f"`{found.rpartition('::')[2]}`" if "::" in found else found
        rows.append([f"the step {name} is left out" if fault["is_step"] else fault["gone"], by, fault["seed"], after(fault)])
    return table(["removed or broken", "found by", "seed", "after"], rows)


def linked(number: str, row: dict[str, Any]) -> str:
    """The first issue of a failure as a link; the number of its row without an issue."""
    return f"[{row['issues'][0]}]({ISSUE}{row['issues'][0][1:]})" if row["issues"] else f"row {number}"


def failures(rows: dict[str, Any], known: set[str]) -> Iterator[list[str]]:
    """One row for each failure. A failure that names a missing test, or has neither tests nor a reason, is refused."""
    for number, row in rows.items():
        names, because = row.get("tests", []), row.get("because", "")
        missing = [name for name in names if name not in known]
        if missing or not (names or because):
            raise SystemExit(f"{FAILURES.name}: {number} has no test {missing}")
        answer = "<br>".join([*(f"`{name}`" for name in names), *([because] if because else [])])
        issues = " ".join(f"[{issue}]({ISSUE}{issue[1:]})" for issue in row["issues"])
        yield [number, issues or "none", row["symptom"], answer]


def recovered(images: list[dict[str, Any]]) -> str:
    """One row for each image."""
    columns = ("version", "image", "rocketmq", "mqstore", "of")
    return table(["version", "image", "RocketMQ", "mqstore", "of"], [[f"{image[name]}" for name in columns] for image in images])


def recovered_sums(images: list[dict[str, Any]]) -> str:
    """One row for each version, for messages and for keys."""
    sums: dict[tuple[str, str], list[int]] = {}
    for image in images:
        row = sums.setdefault((image["version"], image["image"].rpartition(": ")[2]), [0, 0, 0, 0])
        for at, number in enumerate((1, image["rocketmq"], image["mqstore"], image["of"])):
            row[at] += number
    rows = [[version, what, *(f"{number:,}" for number in numbers)] for (version, what), numbers in sums.items()]
    return table(["RocketMQ", "found", "images", "by RocketMQ", "by mqstore", "of"], rows)


def models() -> int:
    """The number of models of threads."""
    return sum(len(re.findall(r"^ *explore\(\d", file.read_text(), re.MULTILINE)) for file in MODELS.glob("*.rs"))


#: Sizes that the page repeats: the place of a number in a Rust test.
SIZES = {
    "group_histories": ("crashes/groups.rs", r"seeds\(3_000_000, (\d+)\)"),
    "group_operations": ("crashes/groups.rs", r"longest: (\d+)"),
    "group_image_one_in": ("crashes/groups.rs", r"longest: \d+,\s*one_in: (\d+)"),
    "group_images": ("crashes/groups.rs", r"images >= at_least\(([\d_]+)\)"),
    "group_given": ("crashes/groups.rs", r"given >= at_least\(([\d_]+)\)"),
    "group_delivered": ("crashes/groups.rs", r"delivered >= at_least\(([\d_]+)\)"),
    "operations": ("broker/histories.rs", r"const OPERATIONS: usize = (\d+)"),
    "image_one_in": ("broker/histories.rs", r"const IMAGE_ONE_IN: u64 = (\d+)"),
    "delay_histories": ("broker/delay_histories.rs", r"const HISTORIES: u64 = (\d+)"),
    "transaction_histories": ("broker/transaction_histories.rs", r"const HISTORIES: u64 = (\d+)"),
    "trims": ("crashes/scenes.rs", r"for seed in 0\.\.(\d+) \{\s*cut_while_it_trims\(None"),
    "removals": ("broker/cleaning.rs", r"no_hole\(\) \{\s*for seed in 0\.\.(\d+)"),
    "positions": ("broker/positions.rs", r"never_half_a_file\(\) \{\s*for seed in 0\.\.(\d+)"),
}


def sizes() -> dict[str, int]:
    """The numbers of `SIZES`."""
    found: dict[str, int] = {}
    for name, (file, pattern) in SIZES.items():
        match = re.search(pattern, (ROOT / "tests" / "it" / file).read_text())
        if not match:
            raise SystemExit(f"{file} has no {pattern}")
        found[name] = int(match[1])
    return found


def render() -> dict[Path, str]:
    """The pages."""
    data = json.loads(COUNTED.read_text())
    rows = tomllib.loads(FAILURES.read_text())
    programs = tomllib.loads(PROGRAMS.read_text())["program"]
    images = [json.loads(line) for line in IMAGES.read_text().splitlines()]
    faults = data.get("planted", {})
    steps = sum(fault["is_step"] for fault in faults.values())
    page = TEMPLATE.read_text().format(
        **{column: sum(layer[column] for layer in data["tried"].values()) for column in ("cases", "lost", "phantom")},
        **{number.replace("-", "_"): linked(number, row) for number, row in rows.items()},
        **sizes(),
        steps=steps,
        checks=len(faults) - steps,
        planted=len(faults),
        survivors=sum(not fault["killed_by"] for fault in faults.values()) or "none",
        rows=len(rows),
        programs=len(programs),
        models=models(),
        classes=classes(data["tried"]),
        recovered=recovered_sums(images),
    )
    parts = [HEAD_OF_TABLES.read_text().format(**sizes()).strip(), COUNTS, counted(data["tried"]), RECOVERED, recovered(images)]
    parts += [WINDOWS, windows(data.get("windows", {}))]
    parts += [PLANTED, planted(faults), FLIPS, undetected()]
    parts += [OTHERS, table(["program", "cases", "result"], [[one["what"], one["cases"], one["result"]] for one in programs])]
    parts += [ROWS, table(["row", "issue", "what happened", "tests"], list(failures(rows, test_names())))]
    return {REPORT: page, TABLES: "\n\n".join(parts) + "\n"}


if __name__ == "__main__":
    for path, text in render().items():
        path.write_text(text)
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
