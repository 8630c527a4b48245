"""Following a store: messages as they come, from this process and from others, without spinning."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from encoder import EPOCH_MS, Encoder

import mqstore

#: Appends numbers until a message asks it to end, in the time between two given as an argument.
NUMBERS = """
import sys, threading, time, mqstore
path, pause, options = sys.argv[1], float(sys.argv[2]), eval(sys.argv[3])
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
with mqstore.open(path, "a", **options) as store:
    print("ready", flush=True)
    number = 0
    while not over.wait(pause):
        store.append("numbers", str(number).encode(), tags="even" if number % 2 == 0 else "odd", queue_id=number % 3)
        number += 1
print(number, flush=True)
"""


class Numbers:
    def __init__(self, path: Path, pause: float = 0.001, **options: object) -> None:
        arguments = [sys.executable, "-c", NUMBERS, str(path), str(pause), repr(options)]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def end(self) -> int:
        out, _ = self.process.communicate("")
        return int(out or -1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000) as store:
        for number in range(4):
            store.append("orders", b"%d" % number, tags="paid" if number % 2 else "open", queue_id=number % 2)
    return path


def bodies(messages: Any) -> list[str]:
    return [message.body.decode() for message in messages]


@pytest.fixture(params=["r", "a"])
def two(path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[mqstore.Store, mqstore.Store]]:
    """A writer, and what follows it: a reader, or the writer itself."""
    with mqstore.open(path, "a") as writer:
        if request.param == "a":
            yield writer, writer
        else:
            with mqstore.open(path) as store:
                yield writer, store


def test_follow_gives_new_messages_and_ends_after_its_timeout(
    two: tuple[mqstore.Store, mqstore.Store],
) -> None:
    writer, store = two
    following = store.follow(timeout=0.2)
    assert bodies(following) == []
    writer.append("orders", b"new")
    writer.append("later", b"other", queue_id=7)
    assert bodies(following) == ["new", "other"]
    writer.append("orders", b"last")
    assert bodies(following) == ["last"]


def test_follow_begins_at_its_start_argument(two: tuple[mqstore.Store, mqstore.Store]) -> None:
    writer, store = two
    middle = store.topics["orders"].queues[0][1].store_time
    writer.append("orders", b"4", queue_id=0)
    zero = timedelta(0)
    assert bodies(store.follow(timeout=zero)) == []
    assert bodies(store.follow(start="earliest", timeout=0)) == ["0", "1", "2", "3", "4"]
    assert "4" in bodies(store.follow(since=middle, timeout=0))
    assert "2" in bodies(store.follow(since=middle, timeout=0))
    later = datetime.now(UTC) + timedelta(hours=1)
    assert bodies(store.follow(since=later, timeout=0)) == []
    assert bodies(store.follow(start={("orders", 0): 1}, timeout=0)) == ["2", "4"]
    assert bodies(store.follow(start={("orders", 0): 2, ("orders", 1): 0}, timeout=0)) == ["1", "3", "4"]


def test_follow_gives_topics_and_tags_that_are_wanted(two: tuple[mqstore.Store, mqstore.Store]) -> None:
    writer, store = two
    writer.append("payments", b"p", tags="paid")
    assert bodies(store.follow("payments", start="earliest", timeout=0)) == ["p"]
    assert bodies(store.follow(["orders", "payments"], start="earliest", timeout=0, tags="paid")) == ["1", "3", "p"]
    assert bodies(store.follow(start="earliest", timeout=0, tags="paid || open")) == ["0", "1", "2", "3", "p"]


def test_tail_gives_the_messages_of_a_queue(two: tuple[mqstore.Store, mqstore.Store]) -> None:
    writer, store = two
    queue = store.topics["orders"].queues[1]
    tail = queue.tail(0.2)
    writer.append("orders", b"4", queue_id=0)
    writer.append("orders", b"5", queue_id=1, tags="paid")
    assert bodies(tail) == ["5"]
    assert bodies(queue.tail(0, start="earliest")) == ["1", "3", "5"]
    assert bodies(queue.tail(0, start=1)) == ["3", "5"]
    assert bodies(queue.tail(timeout=0, since=queue[0].store_time))[-1] == "5"
    ahead = queue.tail(0.2, start=3)
    writer.append("orders", b"6", queue_id=1)
    writer.append("orders", b"7", queue_id=1)
    assert bodies(ahead) == ["6", "7"]


def test_a_pass_ends_before_the_first_message_of_its_until(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    for number in range(6):
        encoder.append("orders", b"%d" % number, queue_id=number % 2, store_time=EPOCH_MS + 10 * number)
    with mqstore.open(encoder.write()) as store:
        for until, expected in ((0, []), (30, ["0", "1", "2"]), (31, ["0", "1", "2", "3"]), (10**6, list("012345"))):
            following = store.follow(start="earliest", until=EPOCH_MS + until, timeout=0)
            assert (bodies(following), bodies(following)) == (expected, [])
        # The messages of a ms may have been stored before or after a moment in it.
        between = datetime.fromtimestamp(EPOCH_MS / 1000, UTC) + timedelta(milliseconds=30, microseconds=1)
        assert bodies(store.follow(since=between, until=EPOCH_MS + 50, timeout=0)) == ["3", "4"]
        assert bodies(store.follow(start="earliest", until=between, timeout=0)) == ["0", "1", "2", "3"]
        assert bodies(store.topics["orders"].queues[1].tail(0, since=EPOCH_MS + 10, until=EPOCH_MS + 50)) == ["1", "3"]
        # It does not wait for more once a message of a later time was there.
        assert bodies(store.follow(start="earliest", until=EPOCH_MS + 30)) == ["0", "1", "2"]


def test_since_now_misses_no_message_of_the_same_ms(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        for number in range(100):
            since = datetime.now(UTC)
            place = store.append("orders", b"", keys=["k"]).physical_offset
            for found in (
                store.follow(since=since, timeout=0),
                store.topics["orders"].queues[0].tail(0, since=since),
            ):
                assert place in [message.physical_offset for message in found], number


def test_a_closed_store_ends_the_iteration(two: tuple[mqstore.Store, mqstore.Store]) -> None:
    _, store = two
    following = store.follow()
    threading.Timer(0.3, store.close).start()
    begun = time.monotonic()
    assert list(following) == []
    assert 0.2 < time.monotonic() - begun < 5
    assert list(following) == []


@pytest.mark.parametrize(
    "start",
    ["", "now", b"end", 1.5, [1], datetime(2026, 1, 1, tzinfo=UTC), {"orders": 1}, {("orders", 0): "a"}, {("orders",): 1}],
)
def test_an_invalid_start_is_refused(two: tuple[mqstore.Store, mqstore.Store], start: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        two[1].follow(start=start)


def test_other_arguments_are_checked(two: tuple[mqstore.Store, mqstore.Store]) -> None:
    _, store = two
    queue = store.topics["orders"].queues[0]
    with pytest.raises(ValueError, match="timeout"):
        store.follow(timeout=-1)
    with pytest.raises(TypeError, match="topics"):
        store.follow(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="start"):
        queue.tail(start="middle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timezone"):
        queue.tail(since=datetime(2026, 1, 1))
    with pytest.raises(TypeError, match="start or since"):
        queue.tail(start=0, since=0)
    store.close()
    with pytest.raises(mqstore.ClosedError):
        store.follow()


@pytest.mark.parametrize(
    "options",
    [{}, {"flush_disk_type": "SYNC_FLUSH"}, {"transient_store_pool_enable": True}],
    ids=["mapped", "sync", "pool"],
)
def test_another_process_is_followed_message_by_message(path: Path, options: dict[str, object]) -> None:
    with mqstore.open(path) as store:
        following = store.follow("numbers", timeout=1)
        writer = Numbers(path, **options)
        got = [next(following) for _ in range(200)]
        count = writer.end()
        got += following
        assert bodies(got) == [str(number) for number in range(count)]
        tails = [bodies(queue.tail(0, start="earliest")) for queue in store.topics["numbers"].queues]
        assert tails == [[str(number) for number in range(count) if number % 3 == queue] for queue in range(3)]


def test_the_writing_process_follows_itself_in_each_mode(path: Path) -> None:
    for options in ({}, {"flush_disk_type": "SYNC_FLUSH"}, {"transient_store_pool_enable": True}):
        with mqstore.open(path, "a", **options) as store:  # type: ignore[arg-type]
            following = store.follow("numbers", timeout=10)

            def write(store: mqstore.Store = store) -> None:
                for number in range(50):
                    time.sleep(0.01)
                    store.append("numbers", b"%d" % number)

            thread = threading.Thread(target=write)
            thread.start()
            for number in range(50):
                assert int(next(following).body) == number, options
            thread.join()


@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_second_of_waiting_costs_at_most_50_wakes(path: Path, mode: Any) -> None:
    seconds = 2
    with mqstore.open(path, mode) as store:
        following = store.follow(timeout=seconds)
        assert list(following) == []
        # It has backed off by now, to a look every 20 ms.
        before = resource.getrusage(resource.RUSAGE_THREAD)
        assert list(following) == []
        after = resource.getrusage(resource.RUSAGE_THREAD)
    assert after.ru_nvcsw - before.ru_nvcsw <= seconds / 0.02 + 20


#: Counts the sleeps of the thread that waits since the interrupt.
INTERRUPTED = """
import os, pathlib, re, signal, sys, threading, time, mqstore
def sleeps():
    status = pathlib.Path(f"/proc/self/task/{os.getpid()}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\\s*(\\d+)", status, re.MULTILINE)[1])
def interrupt():
    global before
    time.sleep(0.7)
    before = sleeps()
    os.kill(os.getpid(), signal.SIGINT)
store = mqstore.open(sys.argv[1], sys.argv[2])
following = store.follow(start="earliest")
for _ in range(4): next(following)
threading.Thread(target=interrupt).start()
try:
    next(following)
except KeyboardInterrupt:
    print(sleeps() - before)
"""


@pytest.mark.parametrize("mode", ["r", "a"])
def test_an_interrupt_ends_the_wait_after_a_few_looks(path: Path, mode: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, path, mode], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) <= 15


def test_other_threads_run_while_one_waits(path: Path) -> None:
    with mqstore.open(path) as store:
        turns = 0
        ended = threading.Event()
        thread = threading.Thread(target=lambda: (list(store.follow(timeout=0.5)), ended.set()))
        thread.start()
        while not ended.is_set():
            turns += 1
            time.sleep(0.001)
        thread.join()
        assert turns > 50


def test_a_fork_cannot_continue_its_parents_iteration_and_begins_its_own(path: Path) -> None:
    with mqstore.open(path) as store:
        following = store.follow(start="earliest", timeout=0)
        next(following)
        child = os.fork()
        if child == 0:
            try:
                with pytest.raises(mqstore.ClosedError):
                    next(following)
                os._exit(0 if bodies(store.follow(start="earliest", timeout=0)) == ["0", "1", "2", "3"] else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert bodies(following) == ["1", "2", "3"]


@pytest.mark.parametrize("by_queue", [False, True])
def test_a_follower_continues_when_its_last_message_has_expired(tmp_path: Path, by_queue: bool) -> None:
    path = tmp_path / "small"
    with mqstore.open(path, "a", mapped_file_size_commit_log=4096) as writer:
        for number in range(5):
            writer.append("orders", b"%d" % number)
        writer.wait_dispatched()
        with mqstore.open(path) as reader:
            queue = reader.topics["orders"].queues[0]
            messages = queue.tail(0.5, start="earliest") if by_queue else reader.follow("orders", start="earliest", timeout=0.5)
            read = [next(messages).queue_offset for _ in range(5)]
            for number in range(5, 80):
                writer.append("orders", b"%d" % number + b"." * 300)
            writer.flush()
            # As a broker's retention does.
            (path / "commitlog" / f"{0:020}").unlink()
            read += [message.queue_offset for message in messages]
    assert read[:5] == [0, 1, 2, 3, 4]
    assert read[5:] == list(range(read[5], 80))
    assert read[5] < 30


def test_a_pass_over_a_queue_warns_once_that_its_topic_was_deleted(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "broker")
    for topic in ("orders", "payments"):
        encoder.append(topic, b"1")
    encoder.write()
    with mqstore.open(encoder.path) as store:
        tail = store.topics["orders"].queues[0].tail(timeout=2)
        shutil.rmtree(encoder.path / "consumequeue" / "orders")
        with pytest.warns(RuntimeWarning, match="orders/0; their topic was deleted") as told:
            assert list(tail) == []
        assert len(told) == 1
