"""Readers beside a writer that removes the oldest segments: no gap is silent, and no error is a surprise."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import mqstore

SEGMENT = 1 << 16
SECONDS = 2.0
#: Reads as `READERS` do, in another process.
PROCESS = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_beside_retention import READERS
READERS[sys.argv[2]](sys.argv[1])
"""


def scanned(path: str) -> tuple[int, int]:
    """Scans until the time is over. Returns the passes, and those that were not complete."""
    passes, incomplete, end = 0, 0, time.monotonic() + SECONDS
    with mqstore.open(path) as store:
        while time.monotonic() < end:
            store.refresh()
            found = store.scan(topics="orders")
            bodies = (pa.record_batch(batch).column("body").to_pylist() for batch in found)
            numbers = [int(body[:10]) for of_batch in bodies for body in of_batch]
            assert numbers == sorted(numbers)
            if numbers and numbers[-1] - numbers[0] + 1 != len(numbers):
                assert not found.complete, "a gap is silent"
            incomplete += not found.complete
            passes += 1
    return passes, incomplete


def got(path: str) -> tuple[int, int]:
    """Gets the oldest messages until the time is over. Returns the calls, and those below the first message."""
    calls, below, offset, end = 0, 0, 0, time.monotonic() + SECONDS
    with mqstore.open(path) as store:
        while time.monotonic() < end:
            store.refresh()
            answer = store.get("orders", 0, offset)
            assert answer.status in ("FOUND", "OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_ONE", "MESSAGE_WAS_REMOVING")
            numbers = [int(message.body[:10]) for message in answer.messages]
            # The body of a message is its queue offset. Those that are missing between have expired during the call.
            missing = sorted({*range(offset, numbers[-1] if numbers else offset)} - {*numbers})
            assert numbers == sorted(numbers)
            if missing:
                store.refresh()
                assert store.get("orders", 0, missing[-1]).status == "OFFSET_TOO_SMALL"
            if answer.status == "OFFSET_TOO_SMALL":
                assert answer.next_begin_offset > offset
                below += 1
            offset = answer.next_begin_offset
            calls += 1
    return calls, below


def resolved(path: str) -> tuple[int, int]:
    """Resolves offsets until the time is over. Returns the passes, and the offsets that have expired."""
    passes, absent, end = 0, 0, time.monotonic() + SECONDS
    with mqstore.open(path) as store:
        while time.monotonic() < end:
            store.refresh()
            last = store.topics["orders"].queues[0].max_offset
            offsets = pa.array(range(0, last, 7), pa.int64())
            of_queue = {"topic": ["orders"] * len(offsets), "queue_id": [0] * len(offsets), "queue_offset": offsets}
            places = pa.record_batch(store.resolve_offsets(pa.table(of_queue))).column("physical_offset")
            known = places.is_valid().to_pylist()
            assert known == sorted(known), "an offset is absent, and an older one is not"
            absent += known.count(False)
            passes += 1
    return passes, absent


def verified(path: str) -> tuple[int, int]:
    """Verifies until the time is over. Returns the passes, and 1, because each found nothing wrong."""
    passes, end = 0, time.monotonic() + SECONDS
    with mqstore.open(path) as store:
        while time.monotonic() < end:
            store.refresh()
            found = [finding for finding in store.verify().findings if finding.severity != "note"]
            assert not found, found
            passes += 1
    return passes, 1


def followed(path: str) -> tuple[int, int]:
    """Follows until the time is over. Returns the messages, and 1, because they came in order."""
    last, messages, end = -1, 0, time.monotonic() + SECONDS
    with mqstore.open(path) as store:
        for message in store.follow("orders", timeout=0.5):
            number = int(message.body[:10])
            assert number > last
            last, messages = number, messages + 1
            if time.monotonic() > end:
                break
    return messages, 1


READERS: dict[str, Callable[[str], tuple[int, int]]] = {
    "scan": scanned,
    "get": got,
    "resolve": resolved,
    "verify": verified,
    "follow": followed,
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_beside_retention_reports_what_expired(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "store")
    over = threading.Event()
    removed: list[tuple[int, int]] = []
    failed: list[BaseException] = []
    with mqstore.open(path, "x", mapped_file_size_commit_log=SEGMENT) as store:
        store.append("orders", b"%010d" % 0 + bytes(500))

        def write() -> None:
            numbers = itertools.count(1)
            while not over.is_set():
                for number in itertools.islice(numbers, 100):
                    store.append("orders", b"%010d" % number + bytes(500))
                removed.extend(store.trim(max_bytes=3 * SEGMENT).segments)
                time.sleep(0.001)

        def read() -> None:
            try:
                counted.append(READERS[name](path))
            except BaseException as error:
                failed.append(error)

        counted: list[tuple[int, int]] = []
        writer = threading.Thread(target=write)
        writer.start()
        while len(removed) < 3:
            time.sleep(0.01)
        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        other = subprocess.run([sys.executable, "-c", PROCESS, path, name], capture_output=True, text=True, timeout=120)
        for reader in readers:
            reader.join()
        over.set()
        writer.join()
    assert not failed, failed
    assert (other.returncode, other.stderr) == (0, "")
    assert len(counted) == 2
    assert all(done > 0 for done, _ in counted)
    # Something expired while each of them read.
    assert len(removed) > 10
    if name in ("get", "resolve"):
        assert all(expired > 0 for _, expired in counted)
