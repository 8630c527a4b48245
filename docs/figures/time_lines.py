"""Figures of durations: the steps of an append, the flush modes, and group commit. Each is measured where it is drawn."""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

from svg import Figure, duration

import mqstore

BODY = bytes(20_000)  # more than the four pages below which a flusher waits longer
ROUNDS = 15


def write_facts(work: Path) -> dict[str, Any]:
    """Measures when an append returns, and when its message is dispatched, in its queue file, and durable."""
    rounds = []
    with mqstore.open(work / "store", "x") as store:
        store.append("orders", BODY, keys=["first"])
    with mqstore.open(work / "store", "a") as store:
        queue = next((work / "store" / "consumequeue").rglob("0" * 20))
        with queue.open("rb") as file:
            for number in range(ROUNDS):
                time.sleep(0.05)
                rounds.append(followed(store, file.fileno(), f"key-{number}"))
    return {"seconds": min(rounds, key=lambda each: each["dispatched"])}


def followed(store: mqstore.Writer, queue_file: int, key: str) -> dict[str, float]:
    """Appends a message and returns after how many seconds each step was done."""
    begin = time.perf_counter()
    result = store.append("orders", BODY, keys=[key])
    seconds = {"returned": time.perf_counter() - begin}
    end = result.physical_offset + result.wrote_bytes
    while len(seconds) < 4:
        now = time.perf_counter() - begin
        entry = os.pread(queue_file, 8, 20 * result.queue_offset)
        if "queue_file" not in seconds and entry == result.physical_offset.to_bytes(8, "big"):
            seconds["queue_file"] = now
        if "dispatched" not in seconds and store.dispatched_offset >= end:
            seconds["dispatched"] = now
        if store.flushed_offset >= end:
            seconds["durable"] = now
    return seconds


def draw_write(facts: dict[str, Any]) -> Figure:
    """Draws who does what for an append, in its order, with the time at which each step is done."""
    figure = Figure("write-sequence", "An append, step by step (ASYNC_FLUSH)")
    lanes = {"caller": 30, "log": 92, "dispatcher": 162, "queue, index": 246, "flusher": 328}
    steps = (
        ("caller", "caller", "checks limits; encodes; CRC of the body", None),
        ("caller", "log", "append lock: queue offset, physical offset, copy", None),
        ("log", "caller", "returns: survives a killed process", "returned"),
        ("log", "dispatcher", "reads the record where it lies", None),
        ("dispatcher", "queue, index", "entry in memory, keys in the index file", "dispatched"),
        ("dispatcher", "queue, index", "entry in the queue file: other processes see it", "queue_file"),
        ("flusher", "log", "syncs the segment, then writes the mark", "durable"),
    )
    bottom = 62 + 44 * len(steps)
    for name, x in lanes.items():
        figure.text(x, 46, name, "small bold middle")
        figure.line([(x, 52), (x, bottom)], "thin")
    for number, (source, target, text, measured) in enumerate(steps):
        y = 70 + 44 * number
        figure.box(10, y - 11, 340, 15, "paper", radius=0)
        figure.text(12, y, f"{number + 1}  {text}", "small")
        if measured:
            figure.text(348, y, duration(facts["seconds"][measured]), "small bold end", measured=True)
        if source == target:
            figure.box(lanes[source] - 3, y + 8, 6, 14, "ink", radius=1)
        else:
            figure.line([(lanes[source], y + 15), (lanes[target], y + 15)], "strong", arrow=True)
    figure.text(12, bottom + 14, f"Times since the call, of the quickest of {ROUNDS} appends of 20 kB, on the", "small soft")
    figure.text(12, bottom + 27, "machine that drew this. The flusher syncs every 500 ms.", "small soft")
    return figure


MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "mapped": ("ASYNC_FLUSH (default)", {}),
    "pool": ("ASYNC_FLUSH with the transient store pool", {"transient_store_pool_enable": True}),
    "sync": ("SYNC_FLUSH", {"flush_disk_type": "SYNC_FLUSH"}),
}


def mode_facts(work: Path, repeats: int = ROUNDS) -> dict[str, Any]:
    """Measures in each mode when an append returns, and when its message is committed, readable and durable."""
    modes = {}
    for name, (_, options) in MODES.items():
        with mqstore.open(work / name, "x", **options) as store:
            store.append("orders", BODY)
            store.flush()
            rounds = []
            for _ in range(repeats):
                time.sleep(0.05)
                rounds.append(one_append(store))
            modes[name] = sorted(rounds, key=lambda each: each["readable"])[repeats // 2]
    return {"seconds": modes}


def one_append(store: mqstore.Writer) -> dict[str, float]:
    """Appends a message and returns after how many seconds each watermark of the store was past it."""
    begin = time.perf_counter()
    result = store.append("orders", BODY)
    seconds = {"returned": time.perf_counter() - begin}
    end = result.physical_offset + result.wrote_bytes
    # The last first: what is readable by now is found to be committed by now.
    watermarks = {"durable": "flushed_offset", "readable": "dispatched_offset", "committed": "committed_offset"}
    now = seconds["returned"]  # what the first look finds was done before the call returned
    while len(seconds) < 4:
        for event, watermark in watermarks.items():
            if event not in seconds and getattr(store, watermark) >= end:
                seconds[event] = now
        now = time.perf_counter() - begin
    return seconds


def draw_modes(facts: dict[str, Any]) -> Figure:
    """Draws the modes on one time line: what a killed process and a power failure lose, and until when."""
    figure = Figure("flush-modes", "Three flush modes: when a message is safe")
    first, last = -5, 1  # powers of ten, in seconds

    def at(seconds: float) -> float:
        return 14 + 332 * (min(max(math.log10(seconds), first), last) - first) / (last - first)

    y = 50
    for name, (title, _) in MODES.items():
        seconds = facts["seconds"][name]
        figure.text(12, y, title, "bold")
        top = y + 8
        figure.box(14, top, 332, 20, "b", radius=2)
        figure.box(14, top, at(seconds["durable"]) - 14, 20, "c", radius=2)
        figure.box(14, top, at(seconds["committed"]) - 14, 20, "d", radius=2)
        events = ("returned", "committed", "readable", "durable")
        for row, event in enumerate(events):
            x = at(seconds[event])
            figure.line([(x, top), (x, top + 30 + 14 * row)], "strong" if event == "returned" else "line")
        for row, event in enumerate(events):
            x = at(seconds[event])
            right = x < 200
            near = max(each for each in map(at, seconds.values()) if each - x < 14)
            text = f"{'append returns' if event == 'returned' else event}, {duration(seconds[event])}"
            anchor = (near + 5, "small halo") if right else (x - 5, "small halo end")
            figure.text(anchor[0], top + 34 + 14 * row, text, anchor[1], measured=True)
        y = top + 106
    y -= 6
    figure.line([(14, y - 14), (346, y - 14)], "thin")
    for power in range(first, last + 1):
        x = at(10.0**power)
        classes = "small soft" + (" end" if power == last else " middle" if power > first else "")
        figure.line([(x, y - 17), (x, y - 11)], "thin")
        figure.text(x, y, duration(10.0**power), classes)
    for kind, text in (("d", "a killed process loses it"), ("c", "a power failure loses it"), ("b", "it survives both")):
        y += 17
        figure.box(12, y - 9, 10, 10, f"{kind} edge", radius=1)
        figure.text(28, y, text, "small")
    return figure


THREADS, APPENDS = 8, 4


def group_facts(work: Path) -> dict[str, Any]:
    """Returns the quickest of some runs: a slow sync would hide all others."""
    runs = [one_run(work / str(number)) for number in range(ROUNDS)]
    return min(runs, key=lambda run: max(call["end"] for call in run["calls"]))


def one_run(path: Path) -> dict[str, Any]:
    """Appends from several threads with SYNC_FLUSH, and measures each call and how many of them shared a sync."""
    with mqstore.open(path, "x", flush_disk_type="SYNC_FLUSH") as store:
        store.append("orders", b"first")
        before = store.stats()
        calls: list[dict[str, float]] = []
        gate = threading.Barrier(THREADS)

        def appends(thread: int) -> None:
            gate.wait()
            for _ in range(APPENDS):
                start = time.perf_counter()
                offset = store.append("orders", bytes(1000)).physical_offset
                calls.append({"thread": thread, "start": start, "end": time.perf_counter(), "offset": offset})

        threads = [threading.Thread(target=appends, args=[number]) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = store.stats()
    begin = min(call["start"] for call in calls)
    for call in calls:
        call["start"], call["end"] = call["start"] - begin, call["end"] - begin
    return {
        "calls": sorted(calls, key=lambda call: (call["thread"], call["start"])),
        "requests": after.group_commit_requests - before.group_commit_requests,
        "syncs": after.group_commits - before.group_commits,
    }


def groups(facts: dict[str, Any]) -> list[list[dict[str, float]]]:
    """Divides the calls by the largest pauses between their ends, in as many groups as there were syncs."""
    calls = sorted(facts["calls"], key=lambda call: call["end"])
    pauses = sorted(range(1, len(calls)), key=lambda at: calls[at - 1]["end"] - calls[at]["end"])
    cuts = [0, *sorted(pauses[: facts["syncs"] - 1]), len(calls)]
    return [calls[start:end] for start, end in itertools.pairwise(cuts)]


def draw_groups(facts: dict[str, Any]) -> Figure:
    """Draws the calls of each thread as bars, in one colour where they ended with the same sync."""
    figure = Figure("group-commit", "Group commit: appends that share a sync")
    longest: float = max(call["end"] for call in facts["calls"])

    def at(seconds: float) -> float:
        return 62 + 284 * seconds / longest

    bottom = 40 + 22 * THREADS
    for number, group in enumerate(groups(facts)):
        x = at(group[-1]["end"])
        for call in group:
            y = 40 + 22 * call["thread"]
            figure.box(
                at(call["start"]),
                y,
                max(at(call["end"]) - at(call["start"]) - 0.8, 0.8),
                16,
                f"{'abce'[number % 4]} edge",
                radius=2,
            )
        figure.line([(x, 36), (x, bottom + 2)], "line")
    for thread in range(THREADS):
        figure.text(12, 52 + 22 * thread, f"thread {thread + 1}", "small")
    figure.text(62, bottom + 16, "0", "small soft middle")
    figure.text(346, bottom + 16, duration(longest), "small soft end", measured=True)
    text = f"{facts['requests']} durable appends shared {facts['syncs']} syncs."
    figure.text(12, bottom + 38, text, "small", measured=True)
    figure.text(12, bottom + 52, "Bars of one colour that end at one line shared a sync: a thread", "small soft")
    figure.text(12, bottom + 65, "syncs for all. Appends that come during a sync wait for the next.", "small soft")
    return figure
