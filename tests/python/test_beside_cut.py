"""Stores that are open for reading beside a slave that cuts its log: they read the log that they have opened, or say so."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import mqstore
import mqstore.aio

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 16, "max_hash_slot_num": 10, "max_index_num": 20}
COMMON, LOST, NEW = 20, 200, 210
#: All of one size, so that each new message is where a lost one was.
OLD_BODIES = [b"common %03d" % n + bytes(700) for n in range(COMMON)] + [b"lost   %03d" % n + bytes(700) for n in range(LOST)]
NEW_BODIES = OLD_BODIES[:COMMON] + [b"new    %03d" % n + bytes(700) for n in range(NEW)]
#: Every way to read the bodies of all messages.
READS: dict[str, Callable[[mqstore.Store], list[bytes]]] = {
    "iteration": lambda store: [message.body for message in store.topics["orders"].queues[0]],
    "slice": lambda store: [message.body for message in store.topics["orders"].queues[0][0:1000]],
    "index": lambda store: [store.topics["orders"].queues[0][n].body for n in range(COMMON + LOST)],
    "get": lambda store: [m.body for m in store.get("orders", 0, 0, max_messages=1000, bounded=False).messages],
    "scan": lambda store: [row["body"] for batch in store.scan(columns=["body"]) for row in batch.to_pylist()],
    "scan by queue": lambda store: [
        r["body"] for batch in store.scan(columns=["body"], order="queue") for r in batch.to_pylist()
    ],
    "batches": lambda store: [row["body"] for batch in store.topics["orders"].queues[0].batches() for row in batch.to_pylist()],
    "query": lambda store: [message.body for message in store.query("orders", "all")],
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def opened(path: Path, port: int = 0) -> mqstore.Writer:
    return mqstore.open(path, "a", **SMALL, ha_listen_port=port)


def appended(master: mqstore.Writer, bodies: list[bytes]) -> mqstore.AppendResult:
    results = [master.append("orders", body, keys=["all"]) for body in bodies]
    return results[-1]


@pytest.fixture
def cut(tmp_path: Path) -> Callable[[], Any]:
    """Returns a context manager in which a slave, whose store `slave` has the old log, has cut it. It yields the `Replica`."""
    port = free_port()
    with opened(tmp_path / "master") as master:
        appended(master, OLD_BODIES[:COMMON])
    shutil.copytree(tmp_path / "master", tmp_path / "older")
    shutil.copytree(tmp_path / "master", tmp_path / "slave")
    with (
        opened(tmp_path / "master", port) as master,
        mqstore.replicate(f"127.0.0.1:{port}", tmp_path / "slave") as replica,
    ):
        replica.wait(appended(master, OLD_BODIES[COMMON:]), timeout=20)

    @contextmanager
    def has_cut() -> Iterator[mqstore.Replica]:
        with opened(tmp_path / "older", port) as master:
            result = appended(master, NEW_BODIES[COMMON:])
            with mqstore.replicate(f"127.0.0.1:{port}", tmp_path / "slave") as replica:
                replica.wait(result, timeout=20)
                yield replica

    return has_cut


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("errors", ["raise", "skip"])
@pytest.mark.parametrize("has_read", [True, False])
def test_no_read_returns_messages_of_two_logs(
    tmp_path: Path, cut: Callable[[], Any], how: str, errors: Any, has_read: bool
) -> None:
    read = READS[how]
    with mqstore.open(tmp_path / "slave", errors=errors) as store:
        if has_read:
            assert read(store) == OLD_BODIES
        views = [message.body_view for message in store.topics["orders"].queues[0]] if has_read else []
        with cut():
            # A query looks its files up again.
            if has_read and how != "query":
                assert read(store) == OLD_BODIES
            else:
                with pytest.raises(mqstore.CorruptError, match="the log was cut here since the store was opened"):
                    read(store)
            assert [bytes(view) for view in views] == OLD_BODIES[: len(views)]
            with pytest.raises(mqstore.CorruptError, match="open the store again"):
                store.refresh()
            with mqstore.open(tmp_path / "slave", errors=errors) as again:
                assert read_of(again, len(NEW_BODIES)) == NEW_BODIES


def read_of(store: mqstore.Store, count: int) -> list[bytes]:
    queue = store.topics["orders"].queues[0]
    assert len(queue) == count
    return [message.body for message in queue]


def test_an_iterator_that_follows_raises_once_its_messages_are_cut(tmp_path: Path, cut: Callable[[], Any]) -> None:
    with mqstore.open(tmp_path / "slave") as store:
        messages = store.follow("orders", start="earliest", timeout=20)
        assert [next(messages).body for _ in OLD_BODIES] == OLD_BODIES
        half_way = store.follow("orders", start="earliest", timeout=20)
        assert [next(half_way).body for _ in range(50)] == OLD_BODIES[:50]
        with cut():
            with pytest.raises(mqstore.CorruptError, match="the log was cut here") as raised:
                next(messages)
            assert raised.value.path == str(tmp_path / "slave" / "commitlog")
            rest = []
            with pytest.raises(mqstore.CorruptError, match="the log was cut here"):
                rest.extend(message.body for message in half_way)
            assert rest == OLD_BODIES[50 : 50 + len(rest)]


def test_a_follower_of_the_common_part_continues_with_the_new_log(tmp_path: Path) -> None:
    port = free_port()
    with (
        opened(tmp_path / "master", port) as master,
        mqstore.replicate(f"127.0.0.1:{port}", tmp_path / "slave", **SMALL) as replica,
    ):
        replica.wait(appended(master, OLD_BODIES[:COMMON]), timeout=20)
        store = mqstore.open(tmp_path / "slave")
        messages = store.follow("orders", start="earliest", timeout=20)
        assert [next(messages).body for _ in range(COMMON)] == OLD_BODIES[:COMMON]
    shutil.copytree(tmp_path / "slave", tmp_path / "older")
    with (
        opened(tmp_path / "master", port) as master,
        mqstore.replicate(f"127.0.0.1:{port}", tmp_path / "slave") as replica,
    ):
        replica.wait(appended(master, OLD_BODIES[COMMON:]), timeout=20)
    with opened(tmp_path / "older", port) as master:
        result = appended(master, NEW_BODIES[COMMON:])
        with mqstore.replicate(f"127.0.0.1:{port}", tmp_path / "slave") as replica:
            replica.wait(result, timeout=20)
            assert [next(messages).body for _ in range(NEW)] == NEW_BODIES[COMMON:]
    store.close()


def test_the_positions_file_of_a_consumer_does_not_fit_a_cut_log(tmp_path: Path, cut: Callable[[], Any]) -> None:
    with (
        mqstore.open(tmp_path / "slave") as store,
        store.consumer("orders", positions=tmp_path / "positions") as consumer,
    ):
        consumer.ack(consumer.poll(1000))
        consumer.commit()
    with cut(), mqstore.open(tmp_path / "slave") as store, pytest.raises(mqstore.PositionMismatchError):
        store.consumer("orders", positions=tmp_path / "positions").poll()


def test_cuts_says_what_was_cut_where_and_when(tmp_path: Path, cut: Callable[[], Any]) -> None:
    with mqstore.open(tmp_path / "slave") as store:
        end = store.max_physical_offset
        first_lost = store.topics["orders"].queues[0][COMMON].physical_offset
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    with cut() as replica:
        [removed] = replica.cuts
        assert (removed.offset, removed.bytes) == (first_lost, end - first_lost)
        assert before <= removed.time <= datetime.now(UTC)
        assert removed.to_dict() == {"offset": removed.offset, "bytes": removed.bytes, "time": removed.time}
        twin = mqstore.aio.Replica(replica)
        names = {name for name in dir(mqstore.Replica) if not name.startswith("_") and not callable(getattr(replica, name))}
        assert names >= {"cuts", "error", "lag", "master", "offset", "path", "state", "closed"}
        for name in names:
            assert repr(getattr(twin, name)) == repr(getattr(replica, name)), name
