"""Writes the events in each write mode, and measures appends and shared syncs."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mqstore
from _session import Event

FlushDiskType = Literal["ASYNC_FLUSH", "SYNC_FLUSH"]


@dataclass(frozen=True)
class Mode:
    """The options of a store, and the number of threads that append."""

    flush_disk_type: FlushDiskType
    has_pool: bool
    threads: int

    @property
    def name(self) -> str:
        return f"{self.flush_disk_type}, pool" if self.has_pool else self.flush_disk_type


MODES = [
    Mode("ASYNC_FLUSH", has_pool=False, threads=1),
    Mode("ASYNC_FLUSH", has_pool=True, threads=1),
    Mode("SYNC_FLUSH", has_pool=False, threads=1),
    Mode("SYNC_FLUSH", has_pool=False, threads=16),
]


@dataclass
class Written:
    """A line of the table: the totals of a mode, and the duration of each append in microseconds."""

    mode: Mode
    rows: int
    bytes: int
    syncs: int
    seconds: float
    taken: list[float]
    is_complete: bool


def write_in_each_mode(events: list[Event], scratch: Path) -> list[Written]:
    """Writes a store in each mode, with an append for each message, and reads it back."""
    return [write(events, scratch / str(number), mode) for number, mode in enumerate(MODES)]


def write(events: list[Event], path: Path, mode: Mode) -> Written:
    """Writes the events to a store, shared by the threads of the mode."""
    threads = mode.threads
    with mqstore.open(path, "x", flush_disk_type=mode.flush_disk_type, transient_store_pool_enable=mode.has_pool) as store:
        begin = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            taken = list(pool.map(lambda part: append_each(store, part), (events[n::threads] for n in range(threads))))
        seconds = time.perf_counter() - begin
        stats = store.stats()
    with mqstore.open(path) as reader:
        found = Counter(message.body for topic in reader.topics.values() for queue in topic.queues for message in queue)
    return Written(
        mode=mode,
        rows=stats.put_message_times_total,
        bytes=stats.put_message_size_total,
        syncs=stats.syncs,
        seconds=seconds,
        taken=[each for part in taken for each in part],
        is_complete=found == Counter(event.body for event in events),
    )


def append_each(store: mqstore.Writer, events: list[Event]) -> list[float]:
    """Appends the events. Returns the duration of each append in microseconds."""
    taken = []
    for event in events:
        begin = time.perf_counter()
        store.append(event.topic, event.body, queue_id=event.queue_id, tags=event.tag, keys=event.issues, born_time=event.time_ms)
        taken.append((time.perf_counter() - begin) * 1e6)
    return taken


def print_modes(modes: list[Written]) -> None:
    """Prints a line for each mode."""
    heads = (
        f"{'threads':>7}  {'rows':>7}  {'bytes':>9}  {'rows/s':>8}  {'syncs':>6}  {'rows/sync':>9}  {'p50 us':>8}  {'p99 us':>8}"
    )
    print(f"\n{'write mode':17}  {heads}")
    for each in modes:
        percentiles = statistics.quantiles(each.taken, n=100)
        rate = f"{each.rows / each.seconds:>8,.0f}"
        shared = f"{each.rows / each.syncs:,.1f}" if each.syncs else ""
        times = f"{percentiles[49]:>8,.1f}  {percentiles[98]:>8,.1f}"
        sizes = f"{each.mode.threads:>7}  {each.rows:>7,}  {each.bytes:>9,}"
        print(f"{each.mode.name:17}  {sizes}  {rate}  {each.syncs:>6,}  {shared:>9}  {times}")
    print(
        "Each row is an append from Python. With SYNC_FLUSH an append returns when its message is on disk, and waiting\n"
        "threads share a sync. With ASYNC_FLUSH it returns when the message survives the process. With a pool it\n"
        "returns when the message is in memory: a thread of the store writes it to the log soon."
    )
