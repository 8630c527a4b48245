"""Writes docs/RELIABILITY.md from the counts in docs/reliability.json and from the TOML files of this directory."""

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
PROGRAMS = Path(__file__).with_name("other_programs.toml")
FLIPPED = ROOT / "tests" / "it" / "verifying" / "every_bit.rs"

HEAD = """# Reliability

What was tried against the store, and what came of it. [DURABILITY.md](DURABILITY.md) says what is promised.

In short:

1. The crash tests kill processes, cut power, fill disks, fail system calls and remove devices, real and simulated.
2. After each case the store is opened again and every message is compared with what was appended.
3. {cases:,} cases have lost {lost:,} acknowledged messages and shown {phantom:,} messages that nobody appended: see *Counts*.
4. RocketMQ's own crash images are given to RocketMQ and to mqstore. mqstore finds at least as many messages and keys.
5. On images of 5.5.1, and on segments that were cut short, RocketMQ finds fewer: see *Recovered from the same crash images*.
6. Each ordering step and many checks are removed from the code, one at a time. A test must fail for each: see *Planted faults*.
7. Each known failure of RocketMQ's store has a row that names the tests for it: see *Failures of RocketMQ's own store*.
8. Not tried yet, because not built yet: deletion of old files, replication.
9. Every interleaving of a few threads that wait, sync, ask for a segment or share the pool is run: see *Interleavings*.
10. The tests assume a disk that keeps what it synced. A disk that lies about its cache can lose acknowledged messages.
11. How much of what was not acknowledged a failure takes is measured in each mode: see *Loss windows*.
12. `make torture` and `make mutants` count, and `tests/torture/report.py` makes this page of the counts: do not edit it."""

COUNTS = """## Counts

All runs of `make torture` whose numbers were kept. A *lost* message was acknowledged (or, if only the process died, appended) and
was not found afterwards. A *phantom* message was found, but was not appended with that content. *Errors* counts unexpected errors
only: where the test injects a failure, an error is the right answer."""

WINDOWS = """## Loss windows

What a failure took of the end of a log, in the newest run of `tests/torture/test_loss_windows.py`. A process appends a message of
1,000 bytes every 5 ms, a *slow* one a message of 100 bytes every 200 ms, with the default intervals. Then it is killed, or its
disk (ext4, xfs) is shut down, and the store is recovered. *Lost ms* is how long before the failure the first missing message had
been appended, *lost bytes* is what is missing. Nothing that was acknowledged as durable may be missing. The bounds are those of
[DURABILITY.md](DURABILITY.md#what-a-call-promises). Where the bound is not *nothing*, the test adds 2 s and the longest pause of
the writer to it, because threads of a busy machine wait for a processor."""

PLANTED = """## Planted faults

`make mutants` removes one part of the store at a time: an ordering step, left out at run time, or a check, removed by an edit of
the sources that `tests/mutants/mutants.toml` states. A test must then fail. The table shows the newest run of each: the check or
test that failed, its seed, and after how many simulated power cuts or seconds it failed."""

INTERLEAVINGS = """## Interleavings

`tests/interleavings` compiles the sources of the watermark, of the wait of the dispatcher, of the allocator of segments,
and of the transient store pool with its commits, with the atomics, locks and parking of [loom](https://docs.rs/loom). Each
test is a model of two to four threads. loom runs it in every order of their steps, also with the old values that weaker
atomics may read, and finds each deadlock. To end in time, most models limit how often a thread is stopped that could go on,
to 1, 2 or 3 times. `make interleavings` adds one to that limit, and prints how many orders it tried.

The models show that no wake-up is lost; that a poison reaches every thread that waits, and what was reached before it counts
as reached; that threads lead one after the other until nobody waits, also if the one that is asked gives up at that moment;
that the thread that completes a group leads, and that a group which does not become complete is led all the same; that
group commit acknowledges every append, with at most one sync for each; that a message is dispatched while the dispatcher
polls and when it is parked; that every request for a segment is answered or ends with the store; that no byte of the pool is
written over before it is committed, that what is committed is what was appended, and that every append that waits for room
gets it or fails with the reason. Mutants in `tests/mutants` show that the models can fail, also for the memory order of each
atomic that a wake-up rests on.

Not covered: the rest of the log and the services, for which the models take the same steps; more than four threads; real time,
for which a deadline comes at any moment or never."""

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

`each_bit_of_a_small_store_flipped_is_found_unless_nothing_tells_of_its_field` flips each bit of each file of a small store, and
runs `verify`. A bit of these fields can change without a finding: no checksum of the format covers them, and no other file
repeats them. A record with the property `__CRC32#` (RocketMQ 5.x with `enabledAppendPropCRC`) has a checksum over all of its
fields."""


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


def failures(rows: dict[str, Any], known: set[str]) -> Iterator[list[str]]:
    """One row for each failure. A failure that names a missing test, or has neither tests nor a reason, is refused."""
    for number, row in rows.items():
        names, because = row.get("tests", []), row.get("because", "")
        missing = [name for name in names if name not in known]
        if missing or not (names or because):
            raise SystemExit(f"{FAILURES.name}: {number} has no test {missing}")
        answer = "<br>".join([*(f"`{name}`" for name in names), *([because] if because else [])])
        yield [number, " ".join(row["issues"]) or "none", row["symptom"], answer]


def recovered(images: list[dict[str, Any]]) -> str:
    """One row for each image."""
    columns = ("version", "image", "rocketmq", "mqstore", "of")
    return table(["version", "image", "RocketMQ", "mqstore", "of"], [[f"{image[name]}" for name in columns] for image in images])


def render() -> str:
    """The page."""
    data = json.loads(COUNTED.read_text())
    rows = tomllib.loads(FAILURES.read_text())
    totals = {column: sum(layer[column] for layer in data["tried"].values()) for column in ("cases", "lost", "phantom")}
    parts = [HEAD.format(**totals), COUNTS, counted(data["tried"])]
    parts += [WINDOWS, windows(data.get("windows", {}))]
    parts += [RECOVERED, recovered([json.loads(line) for line in IMAGES.read_text().splitlines()])]
    parts += [PLANTED, planted(data.get("planted", {}))]
    parts += [INTERLEAVINGS, FLIPS, undetected()]
    programs = tomllib.loads(PROGRAMS.read_text())["program"]
    parts += [OTHERS, table(["program", "cases", "result"], [[one["what"], one["cases"], one["result"]] for one in programs])]
    parts += [ROWS, table(["row", "issue", "what happened", "tests"], list(failures(rows, test_names())))]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    REPORT.write_text(render())
    sys.stdout.write(f"wrote {REPORT.relative_to(ROOT)}\n")
