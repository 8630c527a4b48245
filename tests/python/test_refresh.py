"""An open reader takes up what another process has changed, and reads no more than what came since."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from encoder import EPOCH_MS, Encoder

import mqstore

SEGMENT = 16_384

#: Opens the store, and then runs the lines that it is sent, each in turn.
WRITER = """
import sys, mqstore
store = mqstore.open(sys.argv[1], "a", mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=2000,
                     max_hash_slot_num=100, max_index_num=400)
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class Writer:
    """A writer in another process."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.answer() == "ready"

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.answer() == "done"

    def append(self, topic: str, *bodies: str, **options: object) -> None:
        self.run(f"store.append_batch({[body.encode() for body in bodies]!r}, {topic!r}, **{options!r})")

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    writer = Writer(path)
    yield writer
    writer.end()


@pytest.fixture
def store(path: Path, writer: Writer) -> Iterator[mqstore.Store]:
    writer.append("orders", "a", "b")
    with mqstore.open(path) as store:
        yield store


def bodies(messages: Any) -> list[str]:
    return [message.body.decode() for message in messages]


def test_a_refresh_shows_new_messages_to_what_came_from_the_store(store: mqstore.Store, writer: Writer) -> None:
    topics, queue = store.topics, store.topics["orders"].queues[0]
    begun, batches, end = iter(queue), queue.batches(["body"]), store.max_physical_offset
    assert store.refresh() == 0
    writer.append("orders", "c")
    writer.append("payments", "p", queue_id=2)
    assert bodies(queue) == ["a", "b"]
    assert list(topics) == ["orders"]
    assert store.refresh() == store.max_physical_offset - end > 0
    assert bodies(queue) == ["a", "b", "c"]
    assert len(queue) == 3
    assert list(topics) == ["orders", "payments"]
    assert bodies(topics["payments"].queues[2]) == ["p"]
    assert bodies(begun) == ["a", "b"]
    assert pa.table(batches)["body"].to_pylist() == [b"a", b"b"]
    assert store.refresh() == 0


def test_a_refresh_follows_the_log_into_new_files_of_each_family(store: mqstore.Store, writer: Writer) -> None:
    queue = store.topics["orders"].queues[0]
    for number in range(20):
        writer.run(f"[store.append('orders', b'x' * 200, keys=['k%d' % n]) for n in range({number} * 50, {number} * 50 + 50)]")
        store.refresh()
        assert len(queue) == 2 + 50 * (number + 1)
        found = store.query("orders", f"k{number * 50 + 7}")
        assert found.complete
        assert [message.queue_offset for message in found] == [2 + number * 50 + 7]
    assert [message.queue_offset for message in queue] == list(range(1002))
    assert len(store.scan(topics="orders").to_arrow()) == 1002


def test_index_files_past_a_refresh_are_used_after_the_next_one(path: Path) -> None:
    sizes = {"mapped_file_size_commit_log": 65536, "max_hash_slot_num": 50, "max_index_num": 100}
    with mqstore.open(path, "x", **sizes) as writer, mqstore.open(path) as store:  # type: ignore[arg-type]

        def append(numbers: range) -> None:
            writer.append_batch([("orders", b"x", None, [f"k{number}"]) for number in numbers])
            writer.wait_dispatched()

        append(range(120))
        store.refresh()
        append(range(120, 450))
        assert not store.query("orders", "k300")
        store.refresh()
        assert len(store.query("orders", "k300")) == 1
        assert pa.table(store.inspect.index_files())["used"].to_pylist() == [True] * 5


def test_a_refresh_of_an_empty_store_shows_its_first_messages(path: Path, writer: Writer) -> None:
    with mqstore.open(path) as store:
        assert store.refresh() == 0
        writer.append("orders", "a")
        assert store.refresh() > 0
        assert bodies(store.topics["orders"].queues[0]) == ["a"]


def test_a_refresh_continues_into_segments_of_the_next_writer(path: Path, store: mqstore.Store, writer: Writer) -> None:
    queue = store.topics["orders"].queues[0]
    for round in range(4):
        writer.end()
        writer.__init__(path)  # type: ignore[misc]
        writer.append("orders", *["x" * 900] * 30)
        store.refresh()
        assert len(queue) == 2 + 30 * (round + 1)
        assert len(bodies(queue)) == len(queue)


def test_a_segment_made_ahead_is_not_expired_when_its_writer_removes_it(path: Path, store: mqstore.Store, writer: Writer) -> None:
    while len(list((path / "commitlog").iterdir())) < 2:
        time.sleep(0.001)
    queue = store.topics["orders"].queues[0]
    store.refresh()
    writer.run("store.close()")
    assert len(list((path / "commitlog").iterdir())) == 1
    store.refresh()
    writer.end()
    writer.__init__(path)  # type: ignore[misc]
    writer.append("orders", *["x" * 900] * 20)
    store.refresh()
    assert len(bodies(queue)) == len(queue) == 22


def test_a_refresh_of_a_store_of_this_process_finds_nothing_to_do(path: Path) -> None:
    with mqstore.open(path, "x") as store:
        store.append("orders", b"a")
        assert store.refresh() == 0
        assert bodies(store.topics["orders"].queues[0]) == ["a"]


def test_a_killed_writer_costs_nothing_and_the_next_one_continues(path: Path, store: mqstore.Store, writer: Writer) -> None:
    writer.append("orders", "c")
    os.kill(writer.process.pid, signal.SIGKILL)
    writer.process.wait()
    store.refresh()
    assert bodies(store.topics["orders"].queues[0]) == ["a", "b", "c"]
    writer.__init__(path)  # type: ignore[misc]
    writer.append("orders", "d")
    store.refresh()
    assert bodies(store.topics["orders"].queues[0]) == ["a", "b", "c", "d"]


def test_messages_that_the_next_writer_cut_are_an_error_and_not_mixed(path: Path, store: mqstore.Store, writer: Writer) -> None:
    writer.append("orders", "c")
    store.refresh()
    last = store.topics["orders"].queues[0][2]
    os.kill(writer.process.pid, signal.SIGKILL)
    writer.process.wait()
    segment = path / "commitlog" / f"{0:020}"
    # What a power cut leaves: the body of the last message is lost.
    with segment.open("r+b") as file:
        file.seek(last.physical_offset + 20)
        file.write(bytes(last.store_size - 20))
    (path / "config" / "mqstore.flushed").unlink()
    shutil.rmtree(path / "consumequeue")
    writer.__init__(path)  # type: ignore[misc]
    writer.append("orders", "other")
    for _ in range(2):
        with pytest.raises(mqstore.CorruptError, match="not there any more") as caught:
            store.refresh()
        assert caught.value.offset == last.physical_offset
    with mqstore.open(path) as again:
        assert bodies(again.topics["orders"].queues[0]) == ["a", "b", "other"]


@pytest.fixture
def encoder(path: Path) -> Encoder:
    encoder = Encoder(path)
    for number in range(300):
        encoder.append("orders", b"x" * 100, keys=[f"k{number}"], store_time=EPOCH_MS + number)
    encoder.append("payments", b"p", store_time=EPOCH_MS + 300)
    encoder.write()
    (path / "abort").touch()
    return encoder


def grow(encoder: Encoder, cut: int = 0) -> bytes:
    """Writes to the log what the encoder has appended since, but for the last bytes, and returns those."""
    name = encoder.path / "commitlog" / f"{len(encoder.log) // SEGMENT * SEGMENT:020}"
    assert name.exists()
    whole = bytes(encoder.log[int(name.name) :])
    with name.open("r+b") as file:
        file.write(whole[: len(whole) - cut])
    return whole[len(whole) - cut :]


@pytest.mark.parametrize("cut", [1, 3, 40, 90, 120])
def test_a_message_that_is_half_written_is_given_once_it_is_whole(encoder: Encoder, cut: int) -> None:
    with mqstore.open(encoder.path) as store:
        queue = store.topics["orders"].queues[0]
        encoder.append("orders", b"y" * 50, keys=["late"], properties={"long": "v" * 60}, store_time=EPOCH_MS + 400)
        before = len(queue)
        grow(encoder, cut)
        assert store.refresh() == 0
        assert len(queue) == before
        grow(encoder)
        assert store.refresh() > 0
        assert len(queue) == before + 1
        assert queue[-1].keys == ["late"]
        assert queue[-1].properties["long"] == "v" * 60


def test_damage_that_whole_messages_follow_is_an_error(encoder: Encoder) -> None:
    with mqstore.open(encoder.path) as store:
        damaged = encoder.append("orders", b"y" * 50, store_time=EPOCH_MS + 400)
        encoder.append("orders", b"z" * 50, store_time=EPOCH_MS + 401)
        encoder.log[damaged + 100] ^= 1
        grow(encoder)
        with pytest.raises(mqstore.CorruptError, match="CRC"):
            store.refresh()


def test_a_refresh_notices_that_a_broker_has_removed_segments(encoder: Encoder) -> None:
    with mqstore.open(encoder.path) as store:
        queue = store.topics["orders"].queues[0]
        assert len(bodies(queue)) == 300
        for start in (0, SEGMENT):
            (encoder.path / "commitlog" / f"{start:020}").unlink()
        assert store.refresh() == 0
        assert store.min_physical_offset == 2 * SEGMENT
        assert queue.min_offset > 0
        assert len(bodies(queue)) == len(queue) == 300 - queue.min_offset


def test_a_refresh_notices_that_a_broker_has_deleted_a_topic(encoder: Encoder) -> None:
    with mqstore.open(encoder.path) as store:
        queue = store.topics["orders"].queues[0]
        begun = iter(queue)
        (encoder.path / "abort").unlink()
        shutil.rmtree(encoder.path / "consumequeue" / "orders")
        assert store.refresh() == 0
        assert list(store.topics) == ["payments"]
        assert len(queue) == 0
        assert len(bodies(begun)) <= 300
        assert bodies(store.topics["payments"].queues[0]) == ["p"]


def test_a_queue_that_begins_again_shows_its_new_messages(encoder: Encoder) -> None:
    with mqstore.open(encoder.path) as store:
        queue = store.topics["payments"].queues[0]
        encoder.queues[("payments", 0)] = []
        encoder.append("payments", b"new", store_time=EPOCH_MS + 500)
        (encoder.path / "abort").unlink()
        file = encoder.path / "consumequeue" / "payments" / "0" / f"{0:020}"
        file.unlink()
        file.write_bytes(b"".join(encoder.queues[("payments", 0)]).ljust(20 * encoder.queue_file_entries, b"\0"))
        grow(encoder)
        assert store.refresh() > 0
        assert bodies(queue) == ["new"]
        assert queue.max_offset == 1


def test_a_refresh_keeps_few_entries_of_a_long_queue_in_memory(path: Path, writer: Writer) -> None:
    writer.append("orders", "a")
    with mqstore.open(path) as store:
        for _round in range(12):
            writer.run("store.append_batch([b'x'] * 1000, 'orders')")
            time.sleep(0.05)
            store.refresh()
        queue = store.topics["orders"].queues[0]
        assert len(queue) == 12_001
        assert [message.queue_offset for message in queue] == list(range(12_001))
        for file in (path / "consumequeue" / "orders" / "0").iterdir():
            with file.open("r+b") as open_file:
                open_file.truncate(0)
        # The files are gone, and only what is in memory is left.
        readable = 0
        for offset in range(12_001):
            with contextlib.suppress(mqstore.StoreError):
                readable += queue[offset] is not None
        assert readable < 6000


def test_what_was_refreshed_pickles_and_is_whole_in_another_process(store: mqstore.Store, writer: Writer) -> None:
    writer.append("orders", "c")
    store.refresh()
    pickled = pickle.dumps(store.topics["orders"].queues[0][1:3])
    program = "import pickle, sys; print([m.body.decode() for m in pickle.load(sys.stdin.buffer)])"
    ran = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True)
    assert ran.stdout.decode().strip() == "['b', 'c']"


def test_a_fork_refreshes_a_reader_of_its_own(store: mqstore.Store, writer: Writer) -> None:
    child = os.fork()
    if child == 0:
        try:
            store.refresh()
            writer.append("orders", "c")
            store.refresh()
            os._exit(0 if bodies(store.topics["orders"].queues[0]) == ["a", "b", "c"] else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(store.topics["orders"].queues[0]) == 2
    store.refresh()
    assert len(store.topics["orders"].queues[0]) == 3
