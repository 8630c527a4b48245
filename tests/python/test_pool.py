"""Appended messages that wait in the transient store pool until they are written to the log."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_own_writes import READS

import mqstore
import mqstore.aio

KIB = 1024
POOL: dict[str, Any] = {
    "transient_store_pool_enable": True,
    "transient_store_pool_size": 3,
    "transient_store_pool_buffer_size": 64 * KIB,
}
CAPACITY = 3 * 64 * KIB
#: Nothing is committed or flushed that nobody asks for.
NEVER = {
    "commit_interval_commit_log": 3_600_000,
    "commit_commit_log_thorough_interval": 3_600_000,
    "flush_interval_commit_log": 3_600_000,
}


@pytest.fixture
def path() -> Iterator[Path]:
    """In memory: a disk that is slow is not waited for."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder) / "store"


@pytest.fixture
def store(path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(path, "x", **POOL, **NEVER) as store:
        yield store


def read_by_another_process(path: Path) -> list[str]:
    """Returns the bodies of queue 0 of `orders`; a reader that warns, or finds a store with gaps, fails."""
    code = """
import json, mqstore, sys
with mqstore.open(sys.argv[1]) as store:
    assert store.recovery.complete, store.recovery
    orders = store.topics.get("orders")
    print(json.dumps([message.body.decode() for message in orders.queues[0]] if orders else []))
"""
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code, path], stdout=subprocess.PIPE, check=True, timeout=60)
    found: list[str] = json.loads(ended.stdout)
    return found


def bodies(store: mqstore.Store) -> list[bytes]:
    return [message.body for message in store.topics["orders"].queues[0]]


# What a read sees.

FACES: dict[str, Callable[[mqstore.Store, mqstore.AppendResult, str], object]] = {
    name: lambda store, _done, topic, read=read: read(store, topic) for name, read in READS.items()
} | {
    "message at": lambda store, done, topic: store.message_at(done.physical_offset).topic == topic,
    "message id": lambda store, done, topic: store.message(done.message_id).topic == topic,
    "max_physical_offset": lambda store, done, _: store.max_physical_offset == done.physical_offset + done.wrote_bytes,
    "backward": lambda store, _, topic: [message.body for message in reversed(store.topics[topic].queues[0])] == [b"x"],
    "batches": lambda store, _, topic: sum(len(batch) for batch in store.topics[topic].queues[0][:].batches()) == 1,
    "to_arrow": lambda store, _, topic: pa.table(store.topics[topic].queues[0][:].to_arrow()).num_rows == 1,
    "fetch": lambda store, done, _: (
        store.fetch(pa.table({"physical_offset": [done.physical_offset]})).to_arrow().column("body").to_pylist() == [b"x"]
    ),
}


@pytest.mark.parametrize("face", FACES)
def test_the_first_read_after_an_append_sees_what_waits_in_the_pool(store: mqstore.Store, face: str) -> None:
    for number in range(50):
        topic = f"t{number}"
        done = store.append(topic, b"x", keys=["k"], unique_key=f"U-{topic}")
        assert FACES[face](store, done, topic), number


def test_a_queue_that_is_held_grows_with_each_append(store: mqstore.Store) -> None:
    store.append("orders", b"0")
    queue = store.topics["orders"].queues[0]
    for number in range(1, 300):
        store.append("orders", b"%d" % number)
        assert (len(queue), queue.max_offset, queue[number].body) == (number + 1, number + 1, b"%d" % number)


def test_another_process_sees_committed_bytes_and_after_a_flush_everything(path: Path, store: mqstore.Store) -> None:
    store.append_batch([b"1", b"2"], "orders")
    assert read_by_another_process(path) == []
    # A read of this process commits.
    assert len(store.topics["orders"].queues[0]) == 2
    assert store.flushed_offset == 0
    store.append("orders", b"3")
    assert read_by_another_process(path) == ["1", "2"]
    assert store.flush() == store.flushed_offset == store.max_physical_offset
    assert read_by_another_process(path) == ["1", "2", "3"]


def test_a_sync_flush_store_with_a_pool_shows_nothing_before_it_is_durable(path: Path) -> None:
    with mqstore.open(path, "x", flush_disk_type="SYNC_FLUSH", **POOL, **NEVER) as store:
        for number in range(20):
            done = store.append("orders", b"%d" % number)
            assert done.status == "PUT_OK"
            assert store.flushed_offset >= done.physical_offset + done.wrote_bytes
            assert len(store.topics["orders"].queues[0]) == number + 1
        offsets = store.append_batch([b"x"] * 300, "orders")
        assert store.flushed_offset > offsets[-1]
        offset = store.append("orders", b"later", durable=False).physical_offset
        store.wait_durable(offset, timeout=20)
        assert store.flushed_offset > offset


# What is durable.

DURABLY: dict[str, Callable[[mqstore.Store], object]] = {
    "append": lambda store: store.append("orders", b"x", durable=True),
    "append_nowait": lambda store: store.append_nowait("orders", b"x", durable=True).result(20),
    "append_batch": lambda store: store.append_batch([b"x"] * 3, "orders", durable=True),
    "a batch in one segment": lambda store: store.append_batch([b"x"] * 3, "orders", one_segment=True, durable=True),
    "a table": lambda store: store.append_batch(pa.table({"body": [b"x"]}), "orders", durable=True),
    "flush": lambda store: (store.append("orders", b"x"), store.flush()),
    "wait_durable": lambda store: store.wait_durable(store.append("orders", b"x").physical_offset, timeout=20),
}


@pytest.mark.parametrize("how", DURABLY)
def test_what_is_asked_to_be_durable_is_on_disk_when_the_call_returns(store: mqstore.Store, how: str) -> None:
    store.append("orders", b"before")
    for _ in range(5):
        DURABLY[how](store)
        flushed = store.flushed_offset
        assert flushed == store.max_physical_offset


def test_an_append_that_nobody_waits_for_is_stored_and_not_durable(path: Path, store: mqstore.Store) -> None:
    done = store.append_nowait("orders", b"x").result(20)
    assert (done.status, store.flushed_offset) == ("PUT_OK", 0)
    assert read_by_another_process(path) == []
    assert bodies(store) == [b"x"]


def test_tasks_append_durably_to_a_pool(path: Path) -> None:
    async def main() -> None:
        async with mqstore.aio.open(path, "x", **POOL, **NEVER) as store:
            done = await asyncio.gather(*(store.append("orders", b"%d" % n, durable=True) for n in range(200)))
            ends = [each.physical_offset + each.wrote_bytes for each in done]
            assert store.store.flushed_offset >= max(ends)
            waits = await store.append("orders", b"last")
            assert store.store.flushed_offset < waits.physical_offset + waits.wrote_bytes
            await store.wait_durable(waits.physical_offset)

    asyncio.run(main())
    with mqstore.open(path) as store:
        assert sorted(bodies(store)) == sorted([*(b"%d" % n for n in range(200)), b"last"])


def test_stats_have_a_pool_only_if_there_is_one(path: Path, store: mqstore.Store) -> None:
    stats = store.stats()
    assert (stats.available_buffer_nums, stats.is_transient_store_pool_low, stats.buffer_waits) == (3, False, 0)
    store.append("orders", b"x" * 20 * KIB)
    assert store.stats().available_buffer_nums == 2
    store.flush()
    assert store.stats().available_buffer_nums == 3
    with mqstore.open(path.with_name("other"), "x") as other:
        stats = other.stats()
        assert (stats.available_buffer_nums, stats.is_transient_store_pool_low) == (None, None)
        assert (stats.is_transient_store_pool_locked, stats.buffer_waits) == (None, None)


# Sizes.


@pytest.mark.parametrize(("count", "size"), [(1, 4096), (2, 4096), (7, 12_288), (1, 8 << 20)])
def test_every_message_is_as_it_was_appended_whatever_the_size_of_the_pool(path: Path, count: int, size: int) -> None:
    chance = random.Random(count * size)
    lengths = [0, 1, 4000, 4096, 5000, 12_288, 70_000, 4 << 20]
    sent = [chance.randbytes(chance.choice(lengths) if number % 9 else 4 << 20) for number in range(30)]
    pool = POOL | {"transient_store_pool_size": count, "transient_store_pool_buffer_size": size}
    with mqstore.open(path, "x", mapped_file_size_commit_log=16 << 20, **pool) as store:
        for body in sent:
            done = store.append("orders", body)
            if len(body) % 3 == 0:
                assert store.message_at(done.physical_offset).body == body
        store.append_batch(sent[:12], "orders")
        assert bodies(store) == sent + sent[:12]
    with mqstore.open(path) as store:
        assert store.recovery.clean_exit
        assert bodies(store) == sent + sent[:12]


def test_a_store_opens_with_and_without_a_pool_in_turn(path: Path) -> None:
    expected = []
    for number in range(12):
        options = POOL | {"transient_store_pool_buffer_size": 4096 << number % 3} if number % 2 else {}
        with mqstore.open(path, "a", **options) as store:
            for _ in range(20):
                expected.append(b"%d " % len(expected) * 300)
                store.append("orders", expected[-1])
            assert bodies(store) == expected


WRONG: list[tuple[str, object, type[Exception], str]] = [
    ("transient_store_pool_enable", 1, TypeError, "expected True or False, got 1"),
    ("transient_store_pool_size", "5", TypeError, "expected an int .* got 5"),
    ("transient_store_pool_size", -1, ValueError, "expected an int from 0 .* got -1"),
    ("transient_store_pool_size", 0, ValueError, "1 to 1024"),
    ("transient_store_pool_size", 1025, ValueError, "1 to 1024"),
    ("transient_store_pool_buffer_size", 4096.0, TypeError, "expected an int"),
    ("transient_store_pool_buffer_size", 0, ValueError, "multiple of 4096"),
    ("transient_store_pool_buffer_size", 5000, ValueError, "5000.*multiple of 4096|multiple of 4096.*5000"),
    ("transient_store_pool_buffer_size", 2**64, ValueError, r"expected an int from 0 to 2\*\*64 - 1"),
    ("commit_interval_commit_log", 0, ValueError, "1 or more"),
    ("commit_interval_commit_log", None, TypeError, "expected an int"),
    ("commit_commit_log_least_pages", 1.5, TypeError, "expected an int"),
    ("commit_commit_log_thorough_interval", "soon", TypeError, "expected an int"),
    ("wait_time_out", -5, ValueError, "expected an int from 0"),
]


@pytest.mark.parametrize(("option", "value", "error", "text"), WRONG)
def test_a_value_that_an_option_cannot_have_is_named_and_nothing_is_made(
    path: Path, option: str, value: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as raised:
        mqstore.open(path, "x", **({"transient_store_pool_enable": True} | {option: value}))
    assert option in str(raised.value)
    assert not path.exists()


def test_a_pool_larger_than_memory_is_refused_and_nothing_is_made(path: Path) -> None:
    too_large = {"transient_store_pool_size": 1, "transient_store_pool_buffer_size": 1 << 62}
    with pytest.raises(mqstore.StoreIOError, match="transient store pool"):
        mqstore.open(path, "x", transient_store_pool_enable=True, **too_large)
    with mqstore.open(path, "x") as store:
        store.append("orders", b"x")


# Memory.

LOCKED = """
import gc, mqstore, sys
def locked():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmLck"))
path = sys.argv[1]
pool = dict(transient_store_pool_enable=True, transient_store_pool_size=3, transient_store_pool_buffer_size=65536)
before = locked()
def rise():
    return locked() - before
store = mqstore.open(path, "x", **pool)
assert store.stats().is_transient_store_pool_locked
assert rise() == 3 * 64, rise()
try:
    mqstore.open(path, "r+", **pool)
except mqstore.LockedError:
    pass
assert rise() == 3 * 64, rise()
store.append("orders", b"x" * 1_000_000)
store.close()
assert rise() == 0, rise()
store = mqstore.open(path, "a", **pool)
queue = store.topics["orders"].queues[0]
assert rise() == 3 * 64, rise()
del store, queue
gc.collect()
assert rise() == 0, rise()
with mqstore.open(path, **pool) as reader:
    assert rise() == 0, "a reader needs no pool"
"""


def is_lockable(size: int) -> bool:
    return os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] >= size


@pytest.mark.skipif(not is_lockable(CAPACITY), reason="this user may not lock the memory of a pool")
def test_the_pool_is_locked_in_memory_from_the_open_to_the_close(path: Path) -> None:
    subprocess.run([sys.executable, "-c", LOCKED, path], check=True, timeout=60)


NOT_LOCKED = """
import mqstore, os, resource, sys, warnings
resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    store = mqstore.open(sys.argv[1], "x", transient_store_pool_enable=True, transient_store_pool_buffer_size=65536)
[warning] = warned
assert warning.category is RuntimeWarning and "RLIMIT_MEMLOCK" in str(warning.message), warning
assert warning.filename == "<string>", warning.filename
with store:
    assert store.stats().is_transient_store_pool_locked is False
    store.append_batch([b"x" * 1000] * 1000, "orders")
    assert len(store.topics["orders"].queues[0]) == 1000
    assert all(message.body == b"x" * 1000 for message in store.topics["orders"].queues[0])
warnings.simplefilter("error")
with mqstore.open(sys.argv[1], "r+") as store:
    assert store.stats().is_transient_store_pool_locked is None
try:
    mqstore.open(sys.argv[1], "r+", transient_store_pool_enable=True)
except RuntimeWarning:
    pass
# The store that could not be handed over is closed.
mqstore.open(sys.argv[1], "r+").close()
"""


def test_a_pool_that_may_not_be_locked_is_warned_of_and_works(path: Path) -> None:
    if os.geteuid() == 0:
        path.parent.chmod(0o755)
        os.chown(path.parent, 65534, 65534)
    subprocess.run([sys.executable, "-c", NOT_LOCKED, path], check=True, timeout=60)


# Forks: a child does not have the buffers.


def in_child(work: Callable[[], object]) -> None:
    """Runs `work` in a fork. The child ends as Python ends it, with the store referred to, and all is collected before."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            work()
            gc.collect()
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_fork_reads_what_was_committed_writes_nothing_and_harms_nobody(path: Path) -> None:
    store = mqstore.open(path, "x", **POOL, **NEVER)
    store.append("orders", b"committed")
    store.flush()
    store.append("orders", b"waits")

    def reads_and_closes() -> None:
        for refused in (
            lambda: store.append("orders", b"x"),
            lambda: store.append_batch([b"x" * 1000] * 1000, "orders"),
            lambda: store.append_nowait("orders", b"x"),
            store.flush,
            store.stats,
        ):
            with pytest.raises(mqstore.ClosedError, match="forked"):
                refused()
        with mqstore.open(path) as reader:
            assert bodies(reader) == [b"committed"]
        store.close()

    in_child(reads_and_closes)
    in_child(lambda: None)
    assert bodies(store) == [b"committed", b"waits"]
    # What the parent puts into the buffers from now on is its own.
    store.append_batch([b"after"] * 1000, "orders")

    def drops() -> None:
        nonlocal store
        del store

    in_child(drops)
    assert bodies(store)[2:] == [b"after"] * 1000
    store.close()
    with mqstore.open(path) as reader:
        assert reader.recovery.clean_exit
        assert len(bodies(reader)) == 1002


FORKS = """
import mqstore, os, sys
store = mqstore.open(sys.argv[1], "x", transient_store_pool_enable=True, transient_store_pool_buffer_size=65536)
store.append("orders", b"x" * 1000)
if os.fork() == 0:
    sys.exit()  # the child ends as any interpreter does: everything is collected
_, status = os.wait()
assert status == 0, status
store.append("orders", b"y")
store.close()
assert [message.body[:1] for message in mqstore.open(sys.argv[1]).topics["orders"].queues[0]] == [b"x", b"y"]
"""


def test_a_fork_that_ends_as_an_interpreter_does_harms_nobody(path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", FORKS, path], timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_forks_while_four_threads_append_harm_nobody(path: Path) -> None:
    with mqstore.open(path, "x", **POOL) as store:
        over, counts = threading.Event(), [0] * 4

        def appends(thread: int) -> None:
            while not over.is_set():
                store.append("orders", b"%d %d" % (thread, counts[thread]), queue_id=thread)
                counts[thread] += 1
                over.wait(0.0005)

        def reads() -> None:
            with pytest.raises(mqstore.ClosedError):
                store.append("orders", b"x")
            with mqstore.open(path) as reader:
                assert reader.recovery.complete
                for queue in (reader.topics["orders"].queues[thread] for thread in reader.topics["orders"].queue_ids):
                    assert [message.body for message in queue] == [b"%d %d" % (queue.queue_id, n) for n in range(len(queue))]
            store.close()

        threads = [threading.Thread(target=appends, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        while not min(counts):
            time.sleep(0.001)
        store.flush()
        try:
            for _ in range(15):
                in_child(reads)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert [len(store.topics["orders"].queues[thread]) for thread in range(4)] == counts


# Deaths.

KILLED = """
import mqstore, os, random, sys, time
path, seed, pause, number = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)
store = mqstore.open(
    path,
    "a",
    mapped_file_size_commit_log=262_144,
    flush_interval_commit_log=3_600_000,
    transient_store_pool_enable=True,
    transient_store_pool_size=3,
    transient_store_pool_buffer_size=65536,
)
def say(kind, end):
    os.write(1, f"{kind} {end} {time.monotonic()}\\n".encode())
while True:
    durable = chance.random() < 0.02
    done = store.append("orders", b"%d " % number + b"x" * chance.randrange(400), durable=durable)
    say("durable" if durable else "appended", done.physical_offset + done.wrote_bytes)
    number += 1
    if chance.random() < 0.01:
        say("flushed", store.flush())
    if pause:
        time.sleep(pause)
"""

#: After how many seconds a message is in the log. The committer looks every `commit_interval_commit_log`, and writes less than
#: `commit_commit_log_least_pages` at the first look after `commit_commit_log_thorough_interval`. A busy machine may run it later.
COMMITTED_AFTER = 0.2 + 1.5


@pytest.mark.parametrize(("pause", "kills", "most"), [(0.0, 6, 0.4), (0.005, 4, 0.5), (0.005, 1, 3.0)])
def test_a_kill_loses_only_the_end_that_waited_in_the_pool(path: Path, pause: float, kills: int, most: float) -> None:
    """Asserts that the messages found are the first of those that were appended, in their order. All that `durable=True` or
    `flush` acknowledged is there. What is missing fits into the pool, and was appended within the last moments."""
    chance, journal = random.Random(int(most * 10 + pause * 1000)), path.with_name("journal")
    mqstore.open(path, "x", mapped_file_size_commit_log=262_144).close()
    kept = 0
    for seed in range(kills):
        with journal.open("wb") as file:
            writer = subprocess.Popen([sys.executable, "-c", KILLED, path, str(seed), str(pause), str(kept)], stdout=file)
        while journal.stat().st_size == 0:
            assert writer.poll() is None
            time.sleep(0.001)
        time.sleep(most if kills == 1 else chance.random() * most)
        killed_at = time.monotonic()
        writer.kill()
        assert writer.wait() == -signal.SIGKILL
        lines = [line.split() for line in journal.read_text().splitlines(keepends=True) if line.endswith("\n")]
        appended = [(int(end), float(when)) for kind, end, when in lines if kind != "flushed"]
        flushed = max((int(end) for kind, end, _ in lines if kind != "appended"), default=0)
        with mqstore.open(path, "r+") as store:
            assert not store.recovery.clean_exit
            end = store.recovery.log_end
            found = [int(body.split()[0]) for body in bodies(store)]
        assert found == list(range(len(found)))
        assert end >= flushed
        missing = [(last, when) for last, when in appended if last > end]
        # One append may have been under way.
        assert len(found) in (kept + len(appended) - len(missing), kept + len(appended) + 1)
        if missing:
            assert missing[-1][0] - end <= CAPACITY
            assert killed_at - missing[0][1] < COMMITTED_AFTER
        kept = len(found)


ENDS = """
import mqstore, sys, threading, time
path, how = sys.argv[1:]
store = mqstore.open(
    path,
    "x",
    transient_store_pool_enable=True,
    commit_interval_commit_log=3_600_000,
    commit_commit_log_thorough_interval=3_600_000,
    flush_interval_commit_log=3_600_000,
)
store.append_batch([b"x"] * 1000, "orders")
if how == "sys.exit":
    sys.exit()
if how == "an exception":
    raise SystemError("as expected")
if how == "dropped":
    del store
if how == "kept by sys":
    sys.kept = store
if how == "kept by a cycle":
    class Cycle:
        pass
    cycle = Cycle()
    cycle.itself, cycle.store = cycle, store
    del store, cycle
if how == "kept by an iterator":
    store.append_batch([b"x"] * 1000, "orders")
    sys.kept = iter(store.topics["orders"].queues[0])
    del store
"""

HOW = ["sys.exit", "an exception", "dropped", "kept by sys", "kept by a cycle", "kept by an iterator"]


@pytest.mark.parametrize("how", HOW)
def test_an_interpreter_that_ends_without_a_close_loses_nothing(path: Path, how: str) -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS, path, how], timeout=120, capture_output=True, text=True)
    assert ended.returncode == int(how == "an exception"), ended.stderr
    assert not ended.stderr or how == "an exception", ended.stderr
    with mqstore.open(path) as store:
        count = len(store.topics["orders"].queues[0])
        assert store.recovery.clean_exit
    assert count == (2000 if how == "kept by an iterator" else 1000)


DAEMON = """
import mqstore, sys, threading, time
store = mqstore.open(
    sys.argv[1],
    "x",
    transient_store_pool_enable=True,
    transient_store_pool_size=3,
    transient_store_pool_buffer_size=65536,
)
ends = [0]
def appends():
    while True:
        done = store.append("orders", b"%d" % len(ends))
        ends.append(done.physical_offset + done.wrote_bytes)
threading.Thread(target=appends, daemon=True).start()
while len(ends) < 5000:
    time.sleep(0.001)
flushed = store.flush()
print(flushed, ends[-1])
"""


def test_an_exit_during_a_daemon_threads_append_keeps_what_a_kill_keeps(path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", DAEMON, path], timeout=120, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    flushed, last = map(int, ended.stdout.split())
    with mqstore.open(path, "r+") as store:
        found = [int(body) for body in bodies(store)]
        assert found == list(range(1, len(found) + 1))
        assert store.recovery.log_end >= max(flushed, last - CAPACITY)


def test_other_processes_see_whole_messages_of_a_log_during_commits(path: Path) -> None:
    chance, over = random.Random(1), threading.Event()
    filler = chance.randbytes(20_000)
    pool = POOL | {"transient_store_pool_buffer_size": 4096, "commit_interval_commit_log": 1}
    counts = [0]

    def body(number: int) -> bytes:
        size = number * 7919 % 6000
        return b"%d " % number + filler[number % 1000 :][:size]

    def appends(store: mqstore.Store) -> None:
        while not over.is_set():
            n = counts[0]
            store.append("orders", body(n), keys=[f"k{n}"], properties={"n": str(n), "pad": "p" * (1 + n % 300)})
            counts[0] += 1

    with mqstore.open(path, "x", mapped_file_size_commit_log=65_536, **pool) as store:
        thread = threading.Thread(target=appends, args=(store,))
        thread.start()
        seen, ends, opened = 0, time.monotonic() + 3, 0
        try:
            while time.monotonic() < ends:
                with warnings.catch_warnings(action="error"), mqstore.open(path) as reader:
                    opened += 1
                    assert reader.recovery.complete
                    orders = reader.topics.get("orders")
                    if orders is None:
                        continue
                    queue = orders.queues[0]
                    count = len(queue)
                    assert count >= seen
                    for message in queue[max(0, count - 30) :]:
                        n = message.queue_offset
                        assert message.body == body(n)
                        assert (message.keys, message.properties["n"], message.properties["pad"]) == (
                            [f"k{n}"],
                            str(n),
                            "p" * (1 + n % 300),
                        )
                    if count:
                        result = reader.query("orders", f"k{count - 1}")
                        assert [message.queue_offset for message in result] == [count - 1]
                        assert result.complete
                    seen = count
        finally:
            over.set()
            thread.join()
        assert opened > 20
        assert 0 < seen <= counts[0]


# A disk that stalls or fails.


FORKED_IN_A_HANDLER = """
import mqstore, os, signal, sys
options = dict(transient_store_pool_enable=True, transient_store_pool_size=4, transient_store_pool_buffer_size=8 << 20)
store = mqstore.open(sys.argv[1], "x", **options)
child, held = None, []
def handler(*_):
    global child
    store.close()
    child = os.fork()
    if child == 0:
        # Where the parent has its pool the child has nothing, and may put its own.
        held.extend(bytearray(b"1" * (7 << 20)) for _ in range(8))
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
while child is None:
    try:
        store.append("orders", b"x" * 100)
    except mqstore.ClosedError:
        assert child is not None
if child == 0:
    # The last reference to the store went with the call that was interrupted.
    os._exit(sum(sum(piece[::4096]) for piece in held) != 8 * 1792 * ord("1"))
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 0, status
"""


def test_a_child_forked_inside_an_append_keeps_its_parents_pool_mapped(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKED_IN_A_HANDLER, tmp_path / "store"], check=True, timeout=120)
