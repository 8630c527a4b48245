"""The figure of the recovery decision: what opens of damaged copies of a store do, tried one by one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from svg import Figure

import mqstore

WAYS: tuple[Literal["read"], Literal["heal"], Literal["salvage"]] = ("read", "heal", "salvage")
OPTIONS: dict[str, Any] = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 2000}
#: Adds messages to a store, makes all but the last one durable, and dies.
_DIES = """
import os, sys, time, mqstore
store = mqstore.open(sys.argv[1], "a")
for number in range(12):
    store.append("orders", bytes(900), keys=[f"key-{number}"])
store.flush()
store.append("orders", bytes(900), keys=["last"])
store.wait_dispatched()
queue = os.path.join(sys.argv[1], "consumequeue", "orders", "0", "0" * 20)
with open(queue, "rb") as file:
    while not any(os.pread(file.fileno(), 20, 20 * 15)):  # entries are written a moment after they are dispatched
        time.sleep(0.01)
os._exit(1)
"""


def facts(work: Path) -> dict[str, Any]:
    """Damages copies of a crashed store, and opens each for reading, with `heal` and with `salvage`."""
    crashed = work / "crashed"
    with mqstore.open(crashed, "x", **OPTIONS) as store:
        for number in range(3):
            store.append("orders", bytes(900), keys=[f"first-{number}"])
    subprocess.run([sys.executable, "-c", _DIES, str(crashed)], check=False)
    with mqstore.open(crashed) as store:
        offsets = [store.topics["orders"].queues[0][number].physical_offset for number in range(16)]
    cases: list[dict[str, Any]] = []
    for question, damage in CASES:
        outcomes: dict[str, Any] = {"question": question}
        for way in WAYS:
            copy = work / f"{len(cases)}-{way}"
            shutil.copytree(crashed, copy)
            damage(copy, offsets)
            outcomes[way] = opened(copy, way)
        cases.append(outcomes)
    return {"cases": cases}


def opened(path: Path, way: Literal["read", "heal", "salvage"]) -> dict[str, Any]:
    """Opens a store in one of three ways and returns what came of it."""
    try:
        store = mqstore.open(path) if way == "read" else mqstore.open(path, "a", recovery=way)
    except mqstore.StoreError as error:
        return {"refused": type(error).__name__}
    with store:
        report = store.recovery
        messages = sum(len(batch) for batch in store.scan(errors="skip"))
    return {
        "messages": messages,
        "complete": report.complete,
        "undispatched": report.undispatched,
        "ahead": report.queue_entries_ahead,
        "cut": report.bytes_cut,
        "lost": report.bytes_lost,
    }


def overwrite(path: Path, physical_offset: int, length: int) -> None:
    """Overwrites bytes of the log."""
    with (path / "commitlog" / f"{physical_offset // 4096 * 4096:020}").open("r+b") as file:
        file.seek(physical_offset % 4096)
        file.write(b"\xee" * length)


def without_middle(path: Path, _: list[int]) -> None:
    """Removes a segment between others."""
    (path / "commitlog" / f"{8192:020}").unlink()


def without_end(path: Path, _: list[int]) -> None:
    """Removes all segments but the first."""
    for segment in sorted((path / "commitlog").iterdir())[1:]:
        segment.unlink()


def damaged_below_the_mark(path: Path, offsets: list[int]) -> None:
    """Damages a message that was synced after the last stamp."""
    overwrite(path, offsets[10] + 200, 8)


def torn(path: Path, offsets: list[int]) -> None:
    """Damages the last message, which was not synced."""
    overwrite(path, offsets[15] + 200, 8)


def without_queues(path: Path, _: list[int]) -> None:
    """Removes the queues."""
    shutil.rmtree(path / "consumequeue")


def untouched(_path: Path, _offsets: list[int]) -> None:
    """Leaves a store as the killed process left it."""


CASES: list[tuple[str, Callable[[Path, list[int]], None]]] = [
    ("A segment is missing between others?", without_middle),
    ("Is the end of the log missing?", without_end),
    ("Damage below the mark of what was flushed?", damaged_below_the_mark),
    ("A torn end: the last record is not whole?", torn),
    ("Are messages of the log missing in queues?", without_queues),
    ("All agree", untouched),
]


def words(outcome: dict[str, Any]) -> str:
    """Returns an outcome in words."""
    if "refused" in outcome:
        return f"refused ({outcome['refused']}): no byte is changed"
    parts = [f"{outcome['messages']} messages"]
    for name, text in (("cut", "bytes cut"), ("lost", "bytes lost"), ("undispatched", "queue entries added")):
        if outcome[name]:
            parts.append(f"{outcome[name]} {text}")
    if not outcome["complete"]:
        parts.append("incomplete")
    return ", ".join(parts)


def draw(facts: dict[str, Any]) -> Figure:
    """Draws the questions in the order in which they are asked, and the outcome of each kind of open."""
    figure = Figure("recovery-decision", "Opening after a crash: what is decided")
    figure.text(12, 42, "16 messages of a killed writer. Each case is a damaged copy.", "small soft")
    y = 54
    for number, case in enumerate(facts["cases"]):
        last = number == len(facts["cases"]) - 1
        figure.box(12, y, 336, 24, ("b" if last else "a") + " edge")
        figure.text(20, y + 16, case["question"], "bold")
        if not last:
            figure.text(340, y + 16, "yes", "small end soft")
        for row, way in enumerate(WAYS):
            low = y + 39 + 15 * row
            figure.box(36, low - 9, 9, 9, ("d" if "refused" in case[way] else "b") + " edge", radius=1)
            figure.text(51, low, {"read": "reader"}.get(way, way), "small bold")
            figure.text(100, low, words(case[way]), "small")
        if not last:
            figure.line([(22, y + 24), (22, y + 88)], arrow=True)
            figure.text(30, y + 84, "no", "small soft")
        y += 90
    return figure
