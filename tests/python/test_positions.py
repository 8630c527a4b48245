"""Consumers of a store that another process writes, with a positions file, and the positions of `follow` and `tail`."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import GOLDEN

import mqstore

#: A writer of another process: it appends a number of messages to queue orders/0, says so, and waits for its end.
WRITER = """
import sys, mqstore
store = mqstore.open(sys.argv[1], "a", flush_disk_type=sys.argv[4])
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    store.append("orders", b"%d" % number)
print("there", flush=True)
sys.stdin.read()
store.close()
"""


class Writing:
    """A process that has appended messages, and keeps the store open."""

    def __init__(self, path: Path, numbers: range, mode: str = "ASYNC_FLUSH") -> None:
        command = [sys.executable, "-c", WRITER, str(path), str(numbers.start), str(numbers.stop), mode]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"there\n"

    def close(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def positions(tmp_path: Path) -> Path:
    return tmp_path / "positions"


def written(path: Path, *bodies: bytes) -> None:
    with mqstore.open(path, "a") as store:
        for body in bodies:
            store.append("orders", body)


def consume(path: Path, positions: Path, **options: Any) -> list[bytes]:
    """Consumes what is there, and acknowledges it."""
    with mqstore.open(path) as store, store.consumer("orders", positions=positions, **options) as consumer:
        messages = consumer.poll(1000, timeout=0)
        consumer.ack(messages)
        return [message.body for message in messages]


def test_each_message_is_consumed_once_while_writers_come_and_die(path: Path, positions: Path) -> None:
    ends: list[Callable[[Writing], None]] = [Writing.close, Writing.kill, Writing.kill, Writing.close]
    for number, end in enumerate(ends):
        numbers = range(number * 50, number * 50 + 50)
        writer = Writing(path, numbers, "SYNC_FLUSH" if number % 2 else "ASYNC_FLUSH")
        assert consume(path, positions) == [b"%d" % number for number in numbers]
        end(writer)
        assert consume(path, positions) == []


def test_messages_come_while_a_poll_waits(path: Path, positions: Path) -> None:
    written(path, b"first")
    with mqstore.open(path) as store, store.consumer("orders", positions=positions, start="latest") as consumer:
        timer = threading.Timer(0.1, written, (path, b"late"))
        timer.start()
        assert [message.body for message in consumer.poll(timeout=60)] == [b"late"]
        timer.join()
        assert consumer.lag() == 1


def test_what_was_not_acknowledged_comes_again(path: Path, positions: Path) -> None:
    written(path, b"a", b"b", b"c")
    with mqstore.open(path) as store:
        with store.consumer("orders", positions=positions, timeout=0) as consumer:
            for message in consumer:
                if message.body != b"b":
                    consumer.ack(message)
            assert consumer.committed() == {("orders", 0): 1}
        with store.consumer("orders", positions=positions, consume_timeout=0.01) as consumer:
            assert [message.body for message in consumer.poll(timeout=0)] == [b"b", b"c"]
            time.sleep(0.02)
            assert [message.body for message in consumer.poll(timeout=60)] == [b"b", b"c"]


def test_replaced_store_is_named(path: Path, positions: Path) -> None:
    written(path, b"a", b"b")
    assert consume(path, positions) == [b"a", b"b"]
    shutil.rmtree(path)
    written(path, b"x", b"y", b"z")
    with pytest.raises(mqstore.PositionMismatchError, match=r"orders/0.*CRC-32") as raised:
        consume(path, positions)
    error = raised.value
    assert (error.topic, error.queue_id, error.offset, error.remedy) == ("orders", 0, 2, "start-at-bound")
    assert Path(error.path) == positions
    assert isinstance(error, LookupError)
    assert consume(path, positions, on_missing="earliest") == [b"x", b"y", b"z"]
    assert consume(path, positions) == []


def test_shortened_store_is_named_with_its_bounds(path: Path, positions: Path) -> None:
    written(path, b"a", b"b")
    assert consume(path, positions) == [b"a", b"b"]
    shutil.rmtree(path)
    written(path, b"a")
    with pytest.raises(mqstore.OffsetOutOfRangeError) as raised:
        consume(path, positions)
    assert (raised.value.offset, raised.value.min_offset, raised.value.max_offset) == (2, 0, 1)
    assert consume(path, positions, on_missing="latest") == []
    written(path, b"b")
    assert consume(path, positions) == [b"b"]


def test_log_cut_while_it_is_consumed_is_never_committed(path: Path, positions: Path) -> None:
    writer = Writing(path, range(3))
    with mqstore.open(path) as store:
        consumer = store.consumer("orders", positions=positions)
        messages = consumer.poll(2, timeout=0)
        consumer.ack(messages)
        consumer.commit(durable=True)
        before = positions.read_bytes()
        last = consumer.poll(timeout=0)
        consumer.ack(last)
        writer.kill()
        # A power cut took the last message.
        segment = path / "commitlog" / f"{0:020}"
        with segment.open("r+b") as log:
            log.seek(last[0].physical_offset)
            log.write(bytes(last[0].store_size))
        written(path, b"another one, in its place")
        with pytest.raises(mqstore.CorruptError):
            consumer.poll(timeout=60)
        with pytest.raises(mqstore.CorruptError):
            consumer.commit(durable=True)
        with pytest.raises(mqstore.CorruptError):
            consumer.close()
        assert positions.read_bytes() == before
    assert consume(path, positions) == [b"another one, in its place"]


def test_second_consumer_of_the_file_is_refused(path: Path, positions: Path) -> None:
    written(path, b"a")
    with mqstore.open(path) as store:
        with store.consumer("orders", positions=positions):
            with pytest.raises(mqstore.LockedError, match="another consumer") as raised:
                store.consumer("orders", positions=positions)
            assert raised.value.filename == f"{positions}.lock"
        store.consumer("orders", positions=positions).close()


def test_reader_sends_nothing_back_and_writes_nothing_into_the_store(path: Path, positions: Path) -> None:
    written(path, b"a")
    before = sorted((str(file), file.stat().st_mtime_ns) for file in path.rglob("*"))
    with mqstore.open(path) as store, store.consumer("orders", positions=positions, group="billing") as consumer:
        assert (consumer.group, consumer.topics) == ("billing", ["orders"])
        [message] = consumer.poll(timeout=0)
        with pytest.raises(mqstore.ReadOnlyError, match="only read") as raised:
            consumer.nack(message)
        assert isinstance(raised.value, io.UnsupportedOperation)
        consumer.ack(message)
    assert sorted((str(file), file.stat().st_mtime_ns) for file in path.rglob("*")) == before
    with mqstore.open(path) as store, pytest.raises(ValueError, match="in the store"):
        store.consumer("orders", positions=path / "config" / "positions")


def test_store_that_is_open_for_writing_has_groups_instead(path: Path, positions: Path) -> None:
    with mqstore.open(path, "a") as store, pytest.raises(TypeError, match=r"Writer\.consumer"):
        mqstore.Store.consumer(store, "orders", positions=positions)


def test_file_survives_a_change_of_directory_and_a_close_of_the_store(
    path: Path, positions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, b"a", b"b")
    monkeypatch.chdir(positions.parent)
    store = mqstore.open(path)
    consumer = store.consumer("orders", positions=positions.name)
    consumer.ack(consumer.poll(1, timeout=0))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.close()
    with pytest.raises(mqstore.ClosedError):
        consumer.poll(timeout=0)
    consumer.close()
    assert consume(path, positions) == [b"b"]


@pytest.mark.parametrize("damaged", [b"", b"{}\n", b"\0" * 512])
def test_damaged_file_is_named_and_kept(path: Path, positions: Path, damaged: bytes) -> None:
    written(path, b"a")
    positions.write_bytes(damaged)
    with pytest.raises(mqstore.CorruptError) as raised:
        consume(path, positions)
    assert Path(raised.value.path) == positions
    assert positions.read_bytes() == damaged


def test_fork_and_pickle_are_refused(path: Path, positions: Path) -> None:
    written(path, b"a")
    with mqstore.open(path) as store, store.consumer("orders", positions=positions) as consumer:
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(consumer)
        child = os.fork()
        if child == 0:
            try:
                consumer.poll(timeout=0)
            except mqstore.ClosedError:
                os._exit(3)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert len(consumer.poll(timeout=0)) == 1


def test_store_of_a_broker_is_consumed_whole(tmp_path: Path, positions: Path) -> None:
    store = tmp_path / "broker"
    shutil.copytree(GOLDEN / "533_mixed", store)
    with mqstore.open(store) as reader:
        for topic in reader.topics:
            expected = [message.physical_offset for queue in reader.topics[topic].queues for message in queue]
            got: list[int] = []
            with reader.consumer(topic, positions=positions) as consumer:
                while messages := consumer.poll(7, timeout=0):
                    got += [message.physical_offset for message in messages]
                    consumer.ack(messages)
            assert sorted(got) == sorted(expected)
            with reader.consumer(topic, positions=positions) as consumer:
                assert consumer.poll(timeout=0) == []


def bodies(messages: Any) -> list[bytes]:
    return [message.body for message in messages]


def test_positions_of_a_follow_continue_it_and_a_consumer(path: Path, positions: Path) -> None:
    with mqstore.open(path, "a") as writer:
        for number in range(6):
            writer.append("orders", b"%d" % number, queue_id=number % 2)
        writer.append("payments", b"p")
    with mqstore.open(path) as store:
        following = store.follow("orders", start="earliest", timeout=0)
        assert following.positions == {("orders", 0): 0, ("orders", 1): 0}
        assert bodies([next(following), next(following), next(following)]) == [b"0", b"1", b"2"]
        assert following.positions == {("orders", 0): 2, ("orders", 1): 1}
        again = store.follow(start=following.positions, timeout=0)
        assert bodies(again) == [b"3", b"4", b"5"]
        assert again.positions == {("orders", 0): 3, ("orders", 1): 3}
        with store.consumer("orders", positions=positions, start=following.positions) as consumer:
            assert sorted(bodies(consumer.poll(timeout=0))) == [b"3", b"4", b"5"]
            assert consumer.position() == again.positions


@pytest.mark.parametrize("mode", ["r", "a"])
def test_positions_of_latest_begin_with_what_comes(path: Path, mode: Any) -> None:
    written(path, b"a", b"b")
    with mqstore.open(path, mode) as store:
        following = store.follow(timeout=0)
        tailing = store.topics["orders"].queues[0].tail(0)
        if mode == "r":
            written(path, b"c")
        else:
            store.append("orders", b"c")  # type: ignore[attr-defined]
        assert following.positions == tailing.positions == {("orders", 0): 2}
        assert bodies(following) == bodies(tailing) == [b"c"]
        assert following.positions == tailing.positions == {("orders", 0): 3}


def test_positions_of_a_tail_continue_it(path: Path) -> None:
    written(path, b"a", b"b", b"c")
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        tailing = queue.tail(0, start="earliest")
        next(tailing)
        assert tailing.positions == {("orders", 0): 1}
        assert bodies(queue.tail(0, start=tailing.positions)) == [b"b", b"c"]
        assert bodies(store.follow(start=tailing.positions, timeout=0)) == [b"b", b"c"]
        with pytest.raises(ValueError, match="orders/0"):
            queue.tail(0, start={("orders", 1): 0})
        with pytest.raises(TypeError, match="follow"):
            iter(queue).positions  # noqa: B018
