"""The latency from an append in one process until a follower in another process has the message, in microseconds.

The limit is a process that polls a number in a mapped file every 0.5 ms, as a follower does while messages come.
"""

from __future__ import annotations

import mmap
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rounds import LIMIT, OURS, Row, Rust, measure, size

import mqstore

#: The pause between two appends, in ms: for a stream of messages, and for rare ones.
PAUSES = (2, 100)
#: In microseconds.
MOST = 1000.0
LOOK = 0.0005


def in_child(work: Callable[[], None]) -> int:
    """Runs it in a fork that has not inherited an open store."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child


def median(child: int, stamps: Iterator[int], count: int) -> float:
    """Returns the median time since each stamp, in microseconds. The child stamps until it is killed; a reader may miss one."""
    times = [(time.perf_counter_ns() - stamp) / 1e3 for stamp, _ in zip(stamps, range(count), strict=False)]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return statistics.median(times)


def ours(folder: Path, *, pause: int, count: int) -> float:
    """Measures `Store.follow`."""
    path = folder / "store"
    with mqstore.open(path, "x") as store:
        store.append("orders", b"first")

    def write() -> None:
        with mqstore.open(path, "a") as store:
            while True:
                time.sleep(pause / 1000)
                store.append("orders", str(time.perf_counter_ns()).encode())

    child = in_child(write)
    with mqstore.open(path) as reader:
        stamps = (int(message.body) for message in reader.follow())
        return median(child, stamps, count)


def limit(folder: Path, *, pause: int, count: int) -> float:
    """Measures polling."""
    file = folder / "number"
    file.write_bytes(bytes(8))
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 8) as shared:

        def write() -> None:
            while True:
                time.sleep(pause / 1000)
                shared[:8] = time.perf_counter_ns().to_bytes(8, "little")

        def looked() -> Iterator[int]:
            last = bytes(8)
            while True:
                while shared[:8] == last:
                    time.sleep(LOOK)
                last = shared[:8]
                yield int.from_bytes(last, "little")

        return median(in_child(write), looked(), count)


def run(_: Rust | None) -> None:
    """Measures each pause."""
    for pause in PAUSES:
        count = size(2000 // pause, 5)
        row = Row("follow_latency", {"ms between": pause, "quantile": 0.5}, "us", {"at_most": MOST})
        both = {OURS: partial(ours, pause=pause, count=count), LIMIT: partial(limit, pause=pause, count=count)}
        measure(row, dict(both), None)
