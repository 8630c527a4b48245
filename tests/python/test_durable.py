"""Appends that wait until their messages are durable."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import mqstore

#: Nothing is flushed that nobody asks for.
NEVER = {"flush_interval_commit_log": 3_600_000}


@pytest.mark.parametrize(
    ("flush_disk_type", "properties", "durable", "is_waited_for"),
    [
        ("SYNC_FLUSH", {}, None, True),
        ("SYNC_FLUSH", {"WAIT": "true"}, None, True),
        ("SYNC_FLUSH", {"WAIT": "false"}, None, False),
        ("SYNC_FLUSH", {"WAIT": "false"}, True, True),
        ("SYNC_FLUSH", {}, False, False),
        ("ASYNC_FLUSH", {}, None, False),
        ("ASYNC_FLUSH", {}, True, True),
        ("ASYNC_FLUSH", {}, False, False),
    ],
)
def test_option_message_and_call_say_whether_an_append_waits(
    tmp_path: Path, flush_disk_type: str, properties: dict[str, str], durable: bool | None, is_waited_for: bool
) -> None:
    with mqstore.open(tmp_path / "store", "x", flush_disk_type=flush_disk_type, **NEVER) as store:

        def is_durable() -> bool:
            return store.flushed_offset == store.max_physical_offset

        appends = [
            lambda: store.append("orders", b"x", properties=properties, durable=durable),
            lambda: store.append_batch([("orders", b"x", None, None, properties)], durable=durable),
            lambda: store.append_batch([("orders", b"x", None, None, properties)], one_segment=True, durable=durable),
            lambda: (
                store.append_batch(
                    pa.table({"body": [b"x"], "properties": [list(properties.items())]}), "orders", durable=durable
                )
                if properties
                else store.append_batch(pa.table({"body": [b"x"]}), "orders", durable=durable)
            ),
        ]
        for append in appends:
            append()
            # With SYNC_FLUSH the flusher is asked at once, where nobody waits.
            if is_waited_for or flush_disk_type == "ASYNC_FLUSH":
                assert is_durable() == is_waited_for
        done = store.append("orders", b"x", durable=durable)
        assert done.status == "PUT_OK"
        assert pickle.loads(pickle.dumps(done)) == done
        store.wait_dispatched(timeout=20)
        assert len(store.topics["orders"].queues[0]) == 5


def test_what_nobody_waited_for_is_durable_soon_with_sync_flush(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", flush_disk_type="SYNC_FLUSH", **NEVER) as store:
        offset = store.append("orders", b"x", durable=False).physical_offset
        store.wait_dispatched(offset, timeout=20)
        store.wait_durable(offset, timeout=20)
        assert store.flushed_offset > offset
        assert store.message_at(offset).body == b"x"


def test_many_threads_append_durably_and_every_message_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=65_536) as store:

        def produce(producer: int) -> None:
            for n in range(50):
                done = store.append("orders", f"{producer} {n}".encode(), queue_id=producer)
                assert done.status == "PUT_OK"
                assert store.flushed_offset >= done.physical_offset + done.wrote_bytes
                assert store.message_at(done.physical_offset).body == f"{producer} {n}".encode()

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(produce, range(16)))
    with mqstore.open(path) as store:
        for producer in range(16):
            bodies = [message.body.decode() for message in store.topics["orders"].queues[producer]]
            assert bodies == [f"{producer} {n}" for n in range(50)]


def test_a_store_of_either_kind_opens_as_the_other(tmp_path: Path) -> None:
    path = tmp_path / "store"
    for n, kind in enumerate(["ASYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH", "SYNC_FLUSH"]):
        with mqstore.open(path, "a", flush_disk_type=kind) as store:
            store.append("orders", kind.encode())
            assert len(store.topics["orders"].queues[0]) == n + 1


def test_wrong_values_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"option flush_disk_type: .*'SYNC'"):
        mqstore.open(tmp_path / "store", "x", flush_disk_type="SYNC")
    with pytest.raises(TypeError, match="durable"), mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"x", durable="yes")  # type: ignore[arg-type]


def test_a_close_in_another_thread_leaves_no_append_waiting(tmp_path: Path) -> None:
    for round_number in range(10):
        store = mqstore.open(tmp_path / str(round_number), "x", flush_disk_type="SYNC_FLUSH")
        stored: list[int] = []

        def produce(store: mqstore.Store = store, stored: list[int] = stored) -> None:
            try:
                while True:
                    stored.append(store.append("orders", b"x").physical_offset)
            except mqstore.ClosedError:
                pass

        threads = [threading.Thread(target=produce) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(stored) < 20:
            pass
        store.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        with mqstore.open(tmp_path / str(round_number)) as again:
            offsets = [message.physical_offset for message in again.topics["orders"].queues[0]]
            assert sorted(stored) == offsets


SHORTAGE = """
import resource, sys
import mqstore

store = mqstore.open(sys.argv[1], "x", flush_disk_type="SYNC_FLUSH")
first = store.append("orders", b"first")
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (first.wrote_bytes, most))  # the next record cannot be written to its file
try:
    store.append("orders", b"second")
except mqstore.StoreIOError as error:
    raised = error
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
assert raised.stored == 1 and raised.status == "FLUSH_DISK_TIMEOUT" and raised.errno == 27, raised
assert "was appended" in str(raised) and "do not append it again" in str(raised), raised
store.wait_durable(timeout=60)
assert [m.body for m in store.topics["orders"].queues[0]] == [b"first", b"second"]
store.close()
"""


def test_an_append_that_runs_short_after_storing_its_message_says_so(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SHORTAGE, tmp_path / "store"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
