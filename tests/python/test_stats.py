"""The counters of a store, the warnings of slow appends, and appends that are refused while another one stalls."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mqstore


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for a store of some hundred MB, in memory where there is such a file system."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory) / "store"


def test_puts_and_bytes_are_counted_by_topic_from_the_open_on(tmp_path: Path) -> None:
    path = tmp_path / "store"
    topics = ["orders", "payments", "returns"]
    sizes = dict.fromkeys(topics, 0)
    with mqstore.open(path, "x") as store:
        assert store.stats().to_dict()["topics"] == {}
        for n in range(1000):
            topic = topics[n % 3]
            sizes[topic] += store.append(topic, b"x" * n).wrote_bytes
        stats = store.stats()
        puts = {topic: of_topic.put_message_times_total for topic, of_topic in stats.topics.items()}
        assert puts == {"orders": 334, "payments": 333, "returns": 333}
        assert {topic: of_topic.put_message_size_total for topic, of_topic in stats.topics.items()} == sizes
        assert (stats.put_message_times_total, stats.put_message_size_total) == (1000, sum(sizes.values()))
        assert stats.topics["orders"] == store.stats().topics["orders"]
        assert stats.topics["orders"] != stats.topics["returns"]
        assert stats.topics["orders"].to_dict() == {
            "put_message_times_total": 334,
            "put_message_size_total": sizes["orders"],
        }
        assert repr(stats.topics["orders"]) == f"<mqstore.TopicStats 334 puts, {sizes['orders']} bytes>"
        store.append_batch([b"one", b"two"], "orders")
        # What was counted before stays as it was.
        assert stats.topics["orders"].put_message_times_total == 334
        assert store.stats().topics["orders"].put_message_times_total == 336
        assert stats != store.stats()
    with mqstore.open(path, "r+") as store:
        assert (store.stats().put_message_times_total, store.stats().topics) == (0, {})


def test_stats_are_a_frozen_value_that_says_all_in_a_line_and_as_a_dict(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        done = store.append("orders", b"x", durable=True)
        store.wait_dispatched()
        stats = store.stats()
        with pytest.raises(AttributeError):
            stats.slow_puts = 1  # type: ignore[misc]
    counts = stats.to_dict()
    lock_time = counts.pop("in_lock_time_max_ms")
    assert counts == {
        "put_message_times_total": 1,
        "put_message_size_total": done.wrote_bytes,
        "topics": {"orders": {"put_message_times_total": 1, "put_message_size_total": done.wrote_bytes}},
        "slow_puts": 0,
        "syncs": 1,
        "group_commits": 1,
        "group_commit_requests": 1,
        "segments_begun": 1,
        "segments_made_ahead": 0,
        "segments_locked": 0,
        "segment_waits": 1,
        "dispatch_behind_bytes": 0,
        "mapping_faults": 0,
        "delayed_waiting": 0,
        "delayed_passed_over": 0,
        "delayed_overdue": 0,
        "groups": (),
    }
    assert all(getattr(stats, name) == count for name, count in counts.items() if name != "topics")
    assert repr(stats) == (
        f"<mqstore.StoreStats 1 puts, {done.wrote_bytes} bytes, 1 topics; in_lock_time_max_ms={lock_time} slow_puts=0 syncs=1 "
        "group_commits=1 group_commit_requests=1 segments_begun=1 segments_made_ahead=0 segments_locked=0 "
        "segment_waits=1 dispatch_behind_bytes=0 mapping_faults=0>"
    )
    assert len({stats, stats}) == 1


def test_a_store_that_is_not_open_for_writing_counts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.append("orders", b"x")
    with pytest.raises(mqstore.ClosedError):
        store.stats()
    with mqstore.open(path) as reader, pytest.raises(AttributeError):
        reader.stats()


SLOW = """
import logging, mqstore, sys

records = []

class Keep(logging.Handler):
    def emit(self, record):
        records.append(record)

def unraisable(args):
    unraised.append(repr(args.exc_value))

def refuse(record):
    raise ValueError("no record of ours")

unraised = []
sys.unraisablehook = unraisable
logger = logging.getLogger("mqstore")
logger.addHandler(Keep())
logger.propagate = False
if sys.argv[2] == "refuse":
    logger.addFilter(refuse)
rows = [bytes(4_000_000)] * 15
with mqstore.open(sys.argv[1], "x") as store:
    print("begun", flush=True)
    appended = 0
    while store.stats().slow_puts == 0:
        appended += len(store.append_batch(rows, "orders", one_segment=True))
    assert len(store.topics["orders"].queues[0]) == appended
    assert store.stats().in_lock_time_max_ms > 500
    store.append("orders", b"no warning comes twice")
    # The process may have been stopped in this append, too.
    slow = store.stats().slow_puts
    said = len(unraised) if sys.argv[2] == "refuse" else len(records)
    assert slow == said and slow in (1, 2), (slow, records, unraised)
for record in records:
    assert record.levelname == "WARNING" and record.name == "mqstore", record
    text = record.getMessage()
    assert text.startswith(sys.argv[1] + ": an append held the lock of the log for "), text
print("done", flush=True)
"""


@pytest.mark.parametrize("handler", ["keep", "refuse"])
def test_a_slow_put_is_counted_and_logged_once_and_reported_as_stored(place: Path, handler: str) -> None:
    # A process that is stopped while it copies its rows under the lock holds the lock as if the disk stalled.
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(place), handler], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        while child.poll() is None:
            child.send_signal(signal.SIGSTOP)
            time.sleep(0.6)
            child.send_signal(signal.SIGCONT)
            time.sleep(0.02)
        output, errors = child.communicate()
        assert (child.returncode, output) == (0, "done\n"), errors
    finally:
        child.kill()
        child.wait()


def test_an_append_is_refused_while_the_lock_is_held_for_too_long(place: Path) -> None:
    with mqstore.open(place, "x", os_page_cache_busy_time_out_mills=0) as store:
        over = threading.Event()

        def hold_the_lock() -> None:
            rows = [bytes(4_000_000)] * 15
            while not over.is_set():
                store.append_batch(rows, "large", one_segment=True)

        holding = threading.Thread(target=hold_the_lock)
        holding.start()
        refused, appended, deadline = None, 0, time.monotonic() + 20
        while refused is None and time.monotonic() < deadline:
            time.sleep(0.005)
            try:
                store.append("small", b"x")
                appended += 1
            except mqstore.BusyError as error:
                refused = error
        over.set()
        holding.join()
        assert refused is not None
        assert isinstance(refused, BlockingIOError)
        assert refused.errno == errno.EAGAIN
        assert (refused.status, refused.stored) == ("OS_PAGE_CACHE_BUSY", 0)
        assert "os_page_cache_busy_time_out_mills (0)" in str(refused)
        store.append("small", b"x")
        assert len(store.topics["small"].queues[0]) == appended + 1


LOCKED = """
import mqstore, sys
def locked():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmLck:"))
before = locked()
options = {"mapped_file_size_commit_log": 1 << 20, "warm_mapped_file_enable": True}
with mqstore.open(sys.argv[1], "x", **options) as store:
    for number in range(30):
        store.append("orders", bytes(100_000))
    store.flush()
    stats = store.stats()
    assert stats.segments_locked == stats.segments_begun == 3, stats
    # The current segment, and the segment that is made ahead, or is about to be.
    assert locked() - before in (1 << 10, 2 << 10), (before, locked())
assert locked() == before
"""


def test_warmed_segments_are_locked_in_memory_until_full_and_synced(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LOCKED, tmp_path / "store"], check=True, timeout=60)
