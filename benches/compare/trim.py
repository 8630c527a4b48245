"""The removal of old segments: a trim of 1,000 segments of 1 MiB, and appends beside a trim, a segment at a time.

The segments have all their blocks on disk and one message each, so that they are made in a moment and take as long to remove as
full ones. The limit of the trim removes the same files one by one and syncs their directory. That of the appends has no trim
beside them.
"""

from __future__ import annotations

import os
import shutil
import statistics
import struct
import threading
import time
from functools import partial
from pathlib import Path

from rounds import LIMIT, OURS, Row, Rust, measure, size

import mqstore

SEGMENT = 1 << 20
#: The most milliseconds that a trim takes longer than the removal of its files.
MOST_MS = 100
#: The pause between two segments that go beside appends, in seconds: `delete_commit_log_files_interval`.
PAUSE = 0.1
#: The quantile of the appends, and the least ratio to those without a trim.
QUANTILE, LEAST_RATIO = 0.999, 1 / 1.5
#: Positions in a record, and the magic code of the rest of a segment.
QUEUE_OFFSET_AT, PHYSICAL_OFFSET_AT, BLANK = 20, 28, 0xCBD43194


def filled(path: Path, count: int) -> mqstore.Writer:
    """Returns a store with this number of segments, and a message in each."""
    with mqstore.open(path, "x", mapped_file_size_commit_log=SEGMENT) as store:
        store.append("orders", b"first")
    log = path / "commitlog"
    record = bytearray((log / f"{0:020}").read_bytes())
    [length] = struct.unpack_from(">i", record)
    del record[length:]
    for number in range(count):
        struct.pack_into(">q", record, QUEUE_OFFSET_AT, number)
        struct.pack_into(">q", record, PHYSICAL_OFFSET_AT, number * SEGMENT)
        with (log / f"{number * SEGMENT:020}").open("wb") as segment:
            os.posix_fallocate(segment.fileno(), 0, SEGMENT)
            segment.write(record + struct.pack(">iI", SEGMENT - length, BLANK))
    # The open makes the rest again from the log, as after the loss of these files.
    for name in ("consumequeue", "index", "config"):
        shutil.rmtree(path / name)
    for name in ("checkpoint", "lock"):
        (path / name).unlink()
    store = mqstore.open(path, "a", mapped_file_size_commit_log=SEGMENT)
    last = store.append("orders", b"last")
    assert last.queue_offset == count
    store.wait_dispatched(last.physical_offset)
    os.sync()
    return store


def trims(folder: Path, *, count: int) -> float:
    """Returns the milliseconds of a trim of all segments but the last ones."""
    with filled(folder / "store", count + 1) as store:
        begun = time.perf_counter()
        report = store.trim(before_offset=count * SEGMENT)
        took = time.perf_counter() - begun
        assert len(report.segments) == count
        return took * 1e3


def unlinks(folder: Path, *, count: int) -> float:
    """Returns the milliseconds to remove the same files, which nobody has open, and to sync their directory."""
    filled(folder / "store", count + 1).close()
    log = os.open(folder / "store" / "commitlog", os.O_RDONLY)
    begun = time.perf_counter()
    for number in range(count):
        os.unlink(f"{number * SEGMENT:020}", dir_fd=log)
    os.fsync(log)
    took = time.perf_counter() - begun
    os.close(log)
    return took * 1e3


def appends(folder: Path, *, count: int, segments: int, trimmed: bool) -> float:
    """Returns the microseconds of the slowest append in a thousand, with a thread that trims or without."""
    with filled(folder / "store", segments + 1) as store:
        ended = threading.Event()

        def trim() -> None:
            for number in range(segments):
                if ended.wait(PAUSE):
                    return
                store.trim(before_offset=(number + 1) * SEGMENT)

        trimmer = threading.Thread(target=trim)
        if trimmed:
            trimmer.start()
        body, took = bytes(100), []
        for _ in range(count):
            begun = time.perf_counter_ns()
            store.append("orders", body)
            took.append(time.perf_counter_ns() - begun)
            # Ten thousand appends a second last for many removals.
            while time.perf_counter_ns() - begun < 100_000:
                pass
        ended.set()
        if trimmed:
            trimmer.join()
        return statistics.quantiles(took, n=1000)[int(QUANTILE * 1000) - 1] / 1e3


def run(rust: Rust | None) -> None:
    """Measures the trim."""
    count = size(1000, 5)
    row = Row("trim", {"segments": count}, "ms", {"over_limit": MOST_MS}, waits_for_disk=True)
    measure(row, {OURS: partial(trims, count=count), LIMIT: partial(unlinks, count=count)}, rust)


def beside(rust: Rust | None) -> None:
    """Measures appends beside a trim."""
    work = partial(appends, count=size(50_000, 500), segments=size(50, 5))
    row = Row("trim_beside", {"every_us": 100, "quantile": QUANTILE}, "us", {"ratio_limit": LEAST_RATIO}, waits_for_disk=True)
    measure(row, {OURS: partial(work, trimmed=True), LIMIT: partial(work, trimmed=False)}, rust)
