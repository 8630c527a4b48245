"""A refresh of a store with a broker's files of 1 GiB after each append, in microseconds: the median call.

It is compared with a reader without `refresh`, which opens the store again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rounds import OURS, Row, Rust, measure, size

import mqstore

#: In microseconds.
MOST = 1000.0
BATCH = [b"x" * 1000] * 1000


def refreshed(folder: Path, *, batches: int, count: int, again: bool) -> float:
    """Returns the median time until a new message is visible. With `again` each check is a new open."""
    path, times = folder / "store", []
    with mqstore.open(path, "x", geometry="broker") as writer:
        for _ in range(batches):
            writer.append_batch(BATCH, "orders")
        with mqstore.open(path) as reader:
            for number in range(batches * len(BATCH), batches * len(BATCH) + count):
                writer.append("orders", b"y")
                look = partial(opened, path) if again else partial(seen, reader)
                times.append(timed(look, number))
    return statistics.median(times)


def seen(reader: mqstore.Store) -> int:
    """Returns the offset after the last message, after a refresh."""
    reader.refresh()
    return reader.topics["orders"].queues[0].max_offset


def opened(path: Path) -> int:
    """Returns the offset after the last message, after an open."""
    with mqstore.open(path) as reader:
        return reader.topics["orders"].queues[0].max_offset


def timed(look: Callable[[], int], number: int) -> float:
    """Returns the microseconds of one check, which must find the message with this number."""
    begun = time.perf_counter_ns()
    end = look()
    took = (time.perf_counter_ns() - begun) / 1e3
    assert end == number + 1
    return took


def run(_: Rust | None) -> None:
    """Measures one row."""
    batches, count = size(400, 2), size(50, 3)
    rounds = {
        OURS: partial(refreshed, batches=batches, count=count, again=False),
        "mqstore, opened again": partial(refreshed, batches=batches, count=count, again=True),
    }
    measure(Row("refresh", {"body": 1000, "messages": batches * len(BATCH)}, "us", {"at_most": MOST}), dict(rounds), None)
