"""A master and slaves that the tests play: what an append waits for, and what `Writer.replicas` says."""

from __future__ import annotations

import asyncio
import ctypes
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import mqstore
import mqstore.aio
from mqstore._findings import findings_of
from mqstore.report import report as report_of

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 16, "max_hash_slot_num": 10, "max_index_num": 20}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Slave(threading.Thread):
    """Takes the log of a master and acknowledges it, until the master closes the connection."""

    def __init__(self, address: str, asked: int) -> None:
        super().__init__(daemon=True)
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.start_at, self.log = asked, b""
        self.acknowledges = True
        self.socket.sendall(struct.pack(">q", asked))
        self.start()

    def run(self) -> None:
        stream = self.socket.makefile("rb")
        while len(head := stream.read(12)) == 12:
            offset, size = struct.unpack(">qi", head)
            assert offset == self.start_at + len(self.log)
            self.log += stream.read(size)
            if self.acknowledges:
                # The master may have closed the connection after its last frame.
                with suppress(OSError):
                    self.socket.sendall(struct.pack(">q", offset + size))
        self.socket.close()


@contextmanager
def slave_of(store: mqstore.Writer, asked: int | None = None) -> Iterator[Slave]:
    """A slave from the end of the log on."""
    assert store.replicas.address is not None
    slave = Slave(store.replicas.address, store.committed_offset if asked is None else asked)
    wait_until(lambda: len(store.replicas.slaves) == 1)
    yield slave
    slave.socket.shutdown(socket.SHUT_RDWR)
    slave.join()
    wait_until(lambda: not store.replicas.slaves)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[mqstore.Writer]:
    with mqstore.open(tmp_path / "store", "x", broker_role="SYNC_MASTER", ha_listen_port=0, **SMALL) as store:
        yield store


def test_an_append_says_whether_slaves_have_the_message(master: mqstore.Writer) -> None:
    assert master.append("orders", b"x").status == "SLAVE_NOT_AVAILABLE"
    with slave_of(master) as slave:
        result = master.append("orders", b"y")
        assert result.status == "PUT_OK"
        assert result == pickle.loads(pickle.dumps(result))
        end = result.physical_offset + result.wrote_bytes
        assert master.replicas.replicated_offset == end
        assert slave.start_at + len(slave.log) == end
        assert master.append("orders", b"z", durable=False).status == "PUT_OK"
        assert master.append("orders", b"z", durable=True).status == "PUT_OK"
        assert master.append("orders", b"z", properties={"WAIT": "false"}).status == "PUT_OK"


def test_a_silent_slave_is_waited_for_until_slave_timeout(tmp_path: Path) -> None:
    options: dict[str, Any] = {"broker_role": "SYNC_MASTER", "ha_listen_port": 0, "slave_timeout": timedelta(milliseconds=100)}
    with mqstore.open(tmp_path / "store", "x", **options, **SMALL) as store, slave_of(store) as slave:
        slave.acknowledges = False
        result = store.append("orders", b"x")
        assert result.status == "FLUSH_SLAVE_TIMEOUT"
        assert pickle.loads(pickle.dumps(result)) == result
        with pytest.raises(mqstore.WaitTimeoutError, match="too few slaves had them when slave_timeout was over") as raised:
            store.append_batch([b"a", b"b"], "orders")
        assert (raised.value.status, raised.value.stored) == ("FLUSH_SLAVE_TIMEOUT", 2)
        assert store.append_nowait("orders", b"x").result(timeout=30).status == "FLUSH_SLAVE_TIMEOUT"
        assert store.get("orders", 0, 0).max_offset == 4


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_futures_are_done_when_slaves_have_the_message(tmp_path: Path, flush: Any) -> None:
    options: dict[str, Any] = {"broker_role": "SYNC_MASTER", "ha_listen_port": 0, "flush_disk_type": flush}
    with mqstore.open(tmp_path / "store", "x", **options, **SMALL) as store:
        assert store.append_nowait("orders", b"x").result(timeout=30).status == "SLAVE_NOT_AVAILABLE"
        with slave_of(store):
            futures = [store.append_nowait("orders", b"%d" % n) for n in range(100)]
            assert {future.result(timeout=30).status for future in futures} == {"PUT_OK"}
            last = futures[-1].result()
            assert store.replicas.replicated_offset >= last.physical_offset + last.wrote_bytes
            if flush == "SYNC_FLUSH":
                assert store.flushed_offset > last.physical_offset


def test_tasks_wait_for_slaves(tmp_path: Path) -> None:
    async def appended() -> set[str]:
        async with mqstore.aio.open(tmp_path / "store", "x", broker_role="SYNC_MASTER", ha_listen_port=0, **SMALL) as store:
            with slave_of(store.store):
                results = await asyncio.gather(*(store.append("orders", b"%d" % n) for n in range(50)))
                return {result.status for result in results}

    assert asyncio.run(appended()) == {"PUT_OK"}


def test_replicas_says_who_is_connected_how_far_and_who_was_refused(master: mqstore.Writer) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    end = master.append("orders", b"x").wrote_bytes
    with slave_of(master, asked=0):
        [slave] = master.replicas.slaves
        wait_until(lambda: master.replicas.slaves[0].acknowledged_offset == end)
        assert slave.from_offset == 0
        assert before < slave.connected_at < datetime.now(UTC)
        assert slave.address.startswith("127.0.0.1:")
    assert master.replicas.address is not None
    ahead = Slave(master.replicas.address, end + 100)
    ahead.join(timeout=30)
    wait_until(lambda: master.replicas.refused != ())
    [refused] = master.replicas.refused
    assert refused.reason == f"it holds the log up to {end + 100}, and is ahead: the log of this master ends at {end}"
    assert pickle.loads(pickle.dumps(master.replicas)).refused == (refused,)
    assert master.replicas.to_dict()["refused"][0]["reason"] == refused.reason


def test_a_slave_keeps_segments_and_a_forced_trim_names_it(tmp_path: Path) -> None:
    options = SMALL | {"ha_listen_port": 0, "max_log_bytes": 1 << 16}
    with mqstore.open(tmp_path / "store", "x", **options) as store, slave_of(store, asked=0) as slave:
        slave.acknowledges = False
        store.append_batch([b"x" * 1024] * 200, "orders")
        store.wait_dispatched()
        [connected] = store.replicas.slaves
        for dry_run in (True, False):
            report = store.trim(before_offset=2 << 16, dry_run=dry_run)
            assert (report.segments, report.kept_for, report.kept_for_slaves) == ((), (), (connected,))
        assert repr(report) == "<mqstore.TrimReport 0 segments removed, 0 bytes, more kept for 1 slaves>"
        removal, stats = store.broker.next_removal(), store.stats()
        assert removal is not None
        assert (removal.segment, removal.reason, removal.kept_for_slaves) == ((0, 1 << 16), "log_bytes", (connected,))
        assert (stats.next_removal, stats.removal_kept_for_slaves) == (removal.segment, (connected,))
        [note] = [row for row in findings_of(store, store.verify()) if row["id"] == "retention.next"]
        named = f"slave {connected.address}, which has acknowledged the log up to 0"
        assert named in note["meaning"]
        assert named in report_of(store).html
        forced = store.trim(before_offset=2 << 16, force=True)
        assert (forced.segments, forced.kept_for_slaves) == (((0, 1 << 16), (1 << 16, 2 << 16)), ())
        assert (forced.unread, forced.unreplicated) == ((), (connected,))


def test_slaves_get_the_rest_before_a_close_returns(tmp_path: Path) -> None:
    store = mqstore.open(tmp_path / "store", "x", ha_listen_port=0, flush_disk_type="SYNC_FLUSH", **SMALL)
    assert store.replicas.address is not None
    slave = Slave(store.replicas.address, 0)
    wait_until(lambda: len(store.replicas.slaves) == 1)
    for n in range(200):
        result = store.append("orders", os.urandom(1000) + b"%d" % n, durable=False)
    store.close()
    slave.join(timeout=30)
    end = result.physical_offset + result.wrote_bytes
    files = sorted((tmp_path / "store" / "commitlog").iterdir())
    assert slave.log == b"".join(file.read_bytes() for file in files)[:end]


def test_a_store_without_a_port_does_not_listen(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", **SMALL) as store:
        assert store.replicas == mqstore.Replicas(address=None, broker_address=None, replicated_offset=0, slaves=(), refused=())


def test_a_port_that_is_taken_leaves_the_store_unlocked(master: mqstore.Writer, tmp_path: Path) -> None:
    assert master.replicas.address is not None
    port = int(master.replicas.address.rpartition(":")[2])
    for wrong, error in ((port, mqstore.StoreIOError), (-1, ValueError), (65_536, ValueError)):
        with pytest.raises(error):
            mqstore.open(tmp_path / "other", "a", ha_listen_port=wrong, **SMALL)
    with pytest.raises(ValueError, match='ha_listen_host is "nowhere": expected an IP address'):
        mqstore.open(tmp_path / "other", "a", ha_listen_port=0, ha_listen_host="nowhere", **SMALL)
    with mqstore.open(tmp_path / "other", "a", ha_listen_port=0, **SMALL) as store:
        assert store.append("orders", b"x").status == "PUT_OK"


def test_a_fork_neither_feeds_slaves_nor_lists_them(master: mqstore.Writer) -> None:
    with slave_of(master):
        child = os.fork()
        if child == 0:
            try:
                _ = master.replicas
            except mqstore.ClosedError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert master.append("orders", b"x").status == "PUT_OK"


def test_a_signal_or_a_stop_does_not_disconnect_slaves(master: mqstore.Writer) -> None:
    # A socket with a timeout is interrupted by a signal, also by one whose handler says that calls are restarted, and by SIGCONT.
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with slave_of(master):
            for task in Path("/proc/self/task").iterdir():
                if (task / "comm").read_text().startswith("mqstore-ha"):
                    assert ctypes.CDLL(None).tgkill(os.getpid(), int(task.name), signal.SIGUSR1) == 0
            time.sleep(0.1)
            assert master.append("orders", b"x").status == "PUT_OK"
            assert len(master.replicas.slaves) == 1
    finally:
        signal.signal(signal.SIGUSR1, before)


#: Closes a store while no file can be opened.
CLOSE_WITHOUT_FILES = """
import contextlib, os, resource, sys, threading, mqstore

store = mqstore.open(sys.argv[1], "x", ha_listen_port=0, mapped_file_size_commit_log=1 << 16)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
full = threading.Event()

def fill():
    while True:
        try:
            os.open("/dev/null", os.O_RDONLY)
        except OSError:
            full.set()

threading.Thread(target=fill, daemon=True).start()
full.wait()
with contextlib.suppress(mqstore.StoreError):
    store.close()
print("closed", flush=True)
os._exit(0)
"""


def test_a_close_ends_where_no_file_can_be_opened(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLOSE_WITHOUT_FILES, str(tmp_path / "store")]
    ended = subprocess.run(command, timeout=60, capture_output=True, text=True, check=True)
    assert ended.stdout == "closed\n"
