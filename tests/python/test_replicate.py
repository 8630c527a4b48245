"""A slave of ours and a master of ours, in one process."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import shutil
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import mqstore
import mqstore.aio

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 16, "max_hash_slot_num": 10, "max_index_num": 20}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def opened(path: Path, **options: Any) -> mqstore.Writer:
    return mqstore.open(path, "a", **SMALL, **{"ha_listen_port": 0, **options})


def address_of(master: mqstore.Writer) -> str:
    assert master.replicas.address is not None
    return master.replicas.address


@pytest.fixture
def master(tmp_path: Path) -> Iterator[mqstore.Writer]:
    with opened(tmp_path / "master") as store:
        yield store


def bodies(path: Path) -> list[bytes]:
    with mqstore.open(path) as store:
        return [message.body for message in store.topics["orders"].queues[0]]


@pytest.mark.parametrize("sync", [True, False])
def test_a_slave_holds_what_a_synchronous_master_has_acknowledged(tmp_path: Path, sync: bool) -> None:
    with opened(tmp_path / "master", broker_role="SYNC_MASTER", slave_timeout=20_000) as master:
        with mqstore.replicate(address_of(master), tmp_path / "slave", sync=sync, **SMALL) as replica:
            wait_until(lambda: len(master.replicas.slaves) == 1)
            for number in range(200):
                assert master.append("orders", b"%d" % number, keys=[f"k{number}"]).status == "PUT_OK"
            last = master.append("orders", b"last")
            assert last.status == "PUT_OK"
            replica.wait(last, timeout=20)
            replica.wait(last.physical_offset, timedelta(seconds=20))
            assert (replica.state, replica.lag, replica.error, replica.closed) == ("following", 0, None, False)
            assert replica.offset == master.committed_offset
            assert replica.path == tmp_path / "slave"
            assert repr(replica) == f'<mqstore.Replica of "{replica.master}": following, offset={replica.offset}>'
            # Beside the running slave.
            wait_until(lambda: bodies(tmp_path / "slave")[-1] == b"last")
            with pytest.raises(mqstore.LockedError):
                mqstore.open(tmp_path / "slave", "r+")
        assert (replica.state, replica.lag, replica.closed) == ("closed", None, True)
        replica.close()
        with pytest.raises(mqstore.ClosedError):
            replica.wait(last.physical_offset + 1000)
    with mqstore.open(tmp_path / "slave") as store:
        assert len(store.query("orders", "k7")) == 1
        assert store.verify().ok


def test_a_promoted_slave_keeps_what_it_appended_until_it_is_discarded(master: mqstore.Writer, tmp_path: Path) -> None:
    slave = tmp_path / "slave"
    result = master.append("orders", b"common")
    with mqstore.replicate(address_of(master), slave, **SMALL) as replica:
        replica.wait(result, timeout=20)
    with mqstore.open(slave, "r+") as promoted:
        promoted.append("orders", b"own")
    result = master.append("orders", b"of the master")
    with mqstore.replicate(address_of(master), slave) as replica:
        with pytest.raises(mqstore.UnsupportedFormatError, match=r"removes \d+ bytes with 1 messages") as raised:
            replica.wait(result, timeout=20)
        assert replica.state == "failed"
        error = replica.error
        assert isinstance(error, mqstore.UnsupportedFormatError)
        assert str(error) == str(raised.value)
        assert str(error).endswith("; discard_tail=True removes it")
        assert error.remedy == "discard-tail"
    assert bodies(slave) == [b"common", b"own"]
    with mqstore.replicate(address_of(master), slave, discard_tail=True) as replica:
        replica.wait(result, timeout=20)
    assert bodies(slave) == [b"common", b"of the master"]


def test_a_tail_that_the_master_has_lost_is_cut(tmp_path: Path) -> None:
    port = free_port()
    with opened(tmp_path / "master") as master:
        master.append("orders", b"common")
    shutil.copytree(tmp_path / "master", tmp_path / "older")
    with (
        opened(tmp_path / "master", ha_listen_port=port) as master,
        mqstore.replicate(f"127.0.0.1:{port}", tmp_path / "slave", **SMALL) as replica,
    ):
        replica.wait(master.append("orders", b"lost"), timeout=20)
    shutil.rmtree(tmp_path / "master")
    with opened(tmp_path / "older", ha_listen_port=port) as master:
        result = master.append("orders", b"new and longer")
        with mqstore.replicate(f"127.0.0.1:{port}", tmp_path / "slave") as replica:
            replica.wait(result, timeout=20)
    assert bodies(tmp_path / "slave") == [b"common", b"new and longer"]


def test_a_master_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    with mqstore.replicate(f"127.0.0.1:{port}", tmp_path / "slave", **SMALL) as replica:
        wait_until(lambda: replica.error is not None)
        assert isinstance(replica.error, mqstore.StoreIOError)
        assert (replica.state, replica.offset, replica.lag) == ("connecting", None, None)
        begun = time.monotonic()
        with pytest.raises(mqstore.WaitTimeoutError, match="physical offset 0 yet"):
            replica.wait(0, timeout=0.2)
        assert time.monotonic() - begun < 5
    assert not (tmp_path / "slave").exists()


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"master": "host"}, "expected HOST:PORT"),
        ({"flush_disk_type": "SYNC_FLUSH"}, "flush_disk_type has no meaning for a slave"),
        ({"ha_listen_port": 0}, "ha_listen_port has no meaning"),
        ({"max_log_bytes": 1 << 30}, "max_log_bytes has no meaning"),
        ({"disk_max_used_space_ratio": 75}, "disk_max_used_space_ratio has no meaning"),
        ({"in_sync_replicas": 2}, "in_sync_replicas has no meaning"),
        ({"slave_timeout": 1}, "slave_timeout has no meaning"),
        ({"services": True}, "services has no meaning"),
    ],
)
def test_arguments_without_a_meaning_are_refused(tmp_path: Path, wrong: dict[str, Any], expected: str) -> None:
    arguments = {"master": "127.0.0.1:1", "path": tmp_path / "slave", **wrong}
    with pytest.raises(ValueError, match=expected):
        mqstore.replicate(**arguments)
    assert not (tmp_path / "slave").exists()


def test_what_is_no_store_or_has_a_writer_is_refused(tmp_path: Path, master: mqstore.Writer) -> None:
    with pytest.raises(mqstore.LockedError):
        mqstore.replicate("127.0.0.1:1", tmp_path / "master")
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.replicate("127.0.0.1:1", tmp_path)
    with pytest.raises(TypeError, match="no option"):
        mqstore.replicate("127.0.0.1:1", tmp_path / "slave", no_such_option=1)  # type: ignore[call-arg]


def test_a_replica_does_not_pickle_and_is_closed_in_a_fork(tmp_path: Path) -> None:
    with mqstore.replicate("127.0.0.1:1", tmp_path / "slave", **SMALL) as replica:
        with pytest.raises(TypeError, match="a Replica does not pickle"):
            pickle.dumps(replica)
        with pytest.raises(TypeError, match="is not made by its class"):
            mqstore.Replica()
        with pytest.raises(TypeError, match="got None"):
            replica.wait(None)  # type: ignore[arg-type]
        child = os.fork()
        if child == 0:
            replica.close()
            try:
                replica.wait(0)
            except mqstore.ClosedError:
                os._exit(0 if replica.closed else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert not replica.closed


def test_a_signal_ends_a_wait(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with mqstore.replicate("127.0.0.1:1", tmp_path / "slave", **SMALL) as replica:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                replica.wait(0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_tasks_wait_for_a_slave_without_a_thread(master: mqstore.Writer, tmp_path: Path) -> None:
    async def main() -> None:
        async with mqstore.aio.replicate(address_of(master), tmp_path / "slave", **SMALL) as replica:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(replica.wait(0, timeout=20)) for _ in range(500)]
                await asyncio.sleep(0.01)
                assert threading.active_count() < 100
                result = master.append("orders", b"x")
            assert all(task.done() for task in tasks)
            await replica.wait(result)
            with pytest.raises(mqstore.WaitTimeoutError):
                await replica.wait(result.physical_offset + 10_000, timedelta(milliseconds=50))
            assert replica.replica.state == "following"
            assert repr(replica).startswith("<mqstore.aio.Replica: <mqstore.Replica of ")
        assert replica.replica.closed
        with pytest.raises(ValueError, match="expected HOST:PORT"):
            async with mqstore.aio.replicate("host", tmp_path / "slave"):
                pass

    asyncio.run(main())


def test_a_promoted_slave_continues_the_groups_of_its_master(tmp_path: Path) -> None:
    with opened(tmp_path / "master", listen_port=0) as master:
        address = master.replicas.broker_address
        assert address is not None
        assert address.startswith("127.0.0.1:")
        with mqstore.replicate(address_of(master), tmp_path / "slave", broker=address, **SMALL) as replica:
            wait_until(lambda: len(master.replicas.slaves) == 1)
            for number in range(6):
                last = master.append("orders", b"%d" % number)
            with master.consumer("billing", "orders") as consumer:
                consumer.ack(consumer.poll(4, timeout=20))
                consumer.commit(durable=True)
            replica.wait(last, timeout=20)
            wait_until(lambda: replica.settings_taken_at is not None)
            first = replica.settings_taken_at
            # The next answer is asked for after the progress was written.
            wait_until(lambda: replica.settings_taken_at != first)
            assert (replica.broker, replica.settings_error) == (address, None)
            assert first is not None
            assert first.tzinfo is not None
    with mqstore.open(tmp_path / "slave", "r+") as promoted, promoted.consumer("billing", "orders") as consumer:
        assert [message.body for message in consumer.poll(10, timeout=20)] == [b"4", b"5"]


def test_a_slave_asks_the_port_below_for_settings_by_default(master: mqstore.Writer, tmp_path: Path) -> None:
    host, port = address_of(master).rsplit(":", 1)
    assert master.replicas.broker_address is None
    with mqstore.replicate(address_of(master), tmp_path / "slave", **SMALL) as replica:
        assert replica.broker == f"{host}:{int(port) - 1}"
        wait_until(lambda: replica.settings_error is not None)
        assert isinstance(replica.settings_error, OSError)
        assert replica.settings_taken_at is None
        wait_until(lambda: replica.state == "following")
        assert replica.error is None
    with mqstore.replicate(address_of(master), tmp_path / "other", broker="", **SMALL) as replica:
        assert (replica.broker, replica.settings_error) == (None, None)
    with pytest.raises(ValueError, match="the broker is 'x': expected HOST:PORT|the broker is \"x\": expected HOST:PORT"):
        mqstore.replicate(address_of(master), tmp_path / "third", broker="x", **SMALL)
    with pytest.raises(ValueError, match="listen_port has no meaning"):
        mqstore.replicate(address_of(master), tmp_path / "third", listen_port=0, **SMALL)


def test_writer_warns_of_progress_past_a_cut_until_its_reset(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as store:
        store.append("orders", b"new")
        store.broker.reset("billing", "orders", to="latest")
    offsets = tmp_path / "store" / "config" / "consumerOffset.json"
    known = json.loads(offsets.read_text())
    offsets.write_text(json.dumps(known | {"mqstore": {"ofCutLog": ["orders@billing"]}}))
    with (
        pytest.warns(RuntimeWarning, match=r"progress of orders@billing .*reset"),
        mqstore.open(tmp_path / "store", "r+") as store,
    ):
        store.broker.reset("billing", "orders", to="earliest")
    with warnings.catch_warnings(action="error"), mqstore.open(tmp_path / "store", "r+"):
        pass
