"""A read through the store that is written to sees every append that returned before it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import mqstore


@pytest.fixture
def store() -> Iterator[mqstore.Store]:
    """In memory: a disk that takes 100 ms for one write of a queue file is not waited for."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, mqstore.open(Path(folder) / "store", "x") as store:
        yield store


def offsets_of(batch: mqstore.RecordBatch) -> list[int | None]:
    return pa.record_batch(batch).column("physical_offset").to_pylist()


READS: dict[str, Callable[[mqstore.Store, str], object]] = {
    "len": lambda store, topic: len(store.topics[topic].queues[0]) == 1,
    "topics": lambda store, topic: topic in store.topics and topic in list(store.topics),
    "Topics.get": lambda store, topic: store.topics.get(topic) is not None,
    "queue ids": lambda store, topic: store.topics[topic].queue_ids == [0],
    "index": lambda store, topic: store.topics[topic].queues[0][0].body == b"x",
    "last": lambda store, topic: store.topics[topic].queues[0][-1].body == b"x",
    "iteration": lambda store, topic: [message.body for message in store.topics[topic].queues[0]] == [b"x"],
    "slice": lambda store, topic: [message.body for message in store.topics[topic].queues[0][:]] == [b"x"],
    "get": lambda store, topic: store.get(topic, 0, 0).status == "FOUND",
    "query": lambda store, topic: [message.body for message in store.query(topic, "k")] == [b"x"],
    "offset_at": lambda store, topic: (
        store.topics[topic].queues[0].offset_at(0) == 0 and store.topics[topic].queues[0].offset_at(2**63 - 1) == 1
    ),
    "resolve_offsets": lambda store, topic: (
        offsets_of(store.resolve_offsets(pa.table({"topic": [topic], "queue_id": [0], "queue_offset": [0]}))) != [None]
    ),
    "resolve_keys": lambda store, topic: (
        len(pa.record_batch(store.resolve_keys(pa.table({"topic": [topic], "key": ["k"]}))).column("hits")[0].as_py()) == 1
    ),
    "resolve_times": lambda store, topic: (
        pa.record_batch(store.resolve_times(pa.table({"topic": [topic], "queue_id": [0], "time": [0]}))).column(0)[0].as_py() == 0
    ),
    "resolve_ids": lambda store, topic: offsets_of(store.resolve_ids(pa.table({"id": [f"U-{topic}"]}))) != [None],
    "unique key": lambda store, topic: store.message(f"U-{topic}").topic == topic,
    "arrow": lambda store, topic: pa.table(store.topics[topic].queues[0][:]).num_rows == 1,
}


@pytest.mark.parametrize("read", READS)
def test_the_first_read_after_an_append_to_a_new_topic_sees_it(store: mqstore.Store, read: str) -> None:
    for number in range(200):
        topic = f"t{number}"
        store.append(topic, b"x", keys=["k"], unique_key=f"U-{topic}")
        assert READS[read](store, topic), number


def test_a_queue_that_is_held_grows_with_each_append(store: mqstore.Store) -> None:
    store.append("orders", b"0")
    queue = store.topics["orders"].queues[0]
    for number in range(1, 1000):
        store.append("orders", b"%d" % number)
        assert (len(queue), queue.max_offset, queue[number].body) == (number + 1, number + 1, b"%d" % number)


def test_batches_are_seen_whole(store: mqstore.Store) -> None:
    for number in range(1, 6):
        store.append_batch([b"x"] * 20_000, "orders")
        assert len(store.topics["orders"].queues[0]) == 20_000 * number


def test_a_wait_for_the_dispatcher_lets_other_threads_run(
    store: mqstore.Store, lets_others_run: Callable[[Callable[[], object]], bool]
) -> None:
    rows = [b"x"] * 20_000

    def read() -> None:
        store.append_batch(rows, "orders")
        assert "orders" in store.topics

    assert lets_others_run(read)


def append_for_ever(store: mqstore.Store) -> None:
    while True:
        store.append("orders", b"x")
        time.sleep(0.01)


def test_reads_of_a_store_that_failed_answer_at_once_with_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = mqstore.open(path, "x")
    store.append("before", b"x")
    assert "before" in store.topics
    time.sleep(0.05)
    shutil.rmtree(path / "consumequeue")
    (path / "consumequeue").touch()
    lost = store.append("orders", b"x", keys=["k"])
    with pytest.raises(mqstore.PoisonedError):
        append_for_ever(store)
    begin = time.monotonic()
    # The dispatcher may have put all messages into its memory before it failed: then nothing is missing.
    lags = store.dispatched_offset < store.max_physical_offset
    for _ in range(100):
        with warnings.catch_warnings(record=True) as got:
            warnings.simplefilter("always")
            assert len(store.topics["before"].queues[0]) == 1
        texts = [str(warning.message) for warning in got]
        assert bool(texts) == lags, texts
        assert all("may be missing in this answer: wait_dispatched()" in text for text in texts), texts
        assert store.message_at(lost.physical_offset).body == b"x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = store.query("orders", "k")
    # It walked what is in no index, so that nothing is missing from it.
    assert (len(result), result.complete) == (1, True)
    # A read that waits takes 100 ms: all of them together would take 10 s.
    assert time.monotonic() - begin < 8
    with suppress(mqstore.PoisonedError):
        store.close()


def test_a_child_does_not_wait_for_the_dispatcher_of_its_parent(tmp_path: Path) -> None:
    code = """
import mqstore, os, sys, time
store = mqstore.open(sys.argv[1], "x")
for _ in range(20):
    store.append_batch([b"x"] * 2000, "orders")
    child = os.fork()
    if child == 0:
        try:
            len(store.topics["orders"].queues[0])
        except mqstore.ClosedError:
            os._exit(0)
        os._exit(1)
    deadline = time.monotonic() + 10
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.001)
    assert done[1] == 0, done
store.close()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path / "store"], check=True, timeout=120)


@pytest.mark.parametrize("wait", ["wait_durable", "wait_dispatched"])
def test_a_wait_without_an_offset_is_for_everything_appended_so_far(store: mqstore.Store, wait: str) -> None:
    getattr(store, wait)()
    getattr(store, wait)(timeout=0)
    for _ in range(20):
        offsets = store.append_batch([b"x"] * 1000, "orders")
        getattr(store, wait)(timeout=20)
        reached = store.flushed_offset if wait == "wait_durable" else store.dispatched_offset
        assert offsets[-1] < reached == store.max_physical_offset
    getattr(store, wait)(None, 20)


@pytest.mark.parametrize("wait", ["wait_durable", "wait_dispatched"])
def test_a_wait_takes_the_result_of_an_append(store: mqstore.Store, wait: str, tmp_path: Path) -> None:
    for _ in range(20):
        result = store.append("orders", b"x")
        getattr(store, wait)(result, timeout=20)
        reached = store.flushed_offset if wait == "wait_durable" else store.dispatched_offset
        assert result.physical_offset < reached
    with (
        mqstore.open(tmp_path / "empty", "x") as empty,
        pytest.raises(ValueError, match=rf"offset is {result.physical_offset}: "),
    ):
        getattr(empty, wait)(result)
    with pytest.raises(TypeError, match="offset is an int, not str"):
        getattr(store, wait)("0")


@pytest.mark.parametrize("wait", ["wait_durable", "wait_dispatched"])
def test_an_offset_that_was_never_appended_is_refused_at_once(store: mqstore.Store, wait: str) -> None:
    end = store.append("orders", b"x").wrote_bytes
    for offset in (end, end + 1, 2**63 - 1, -1):
        # Without a time: a wait for it would not end.
        with pytest.raises(ValueError, match=rf"offset is {offset}: .* the log ends at {end}"):
            getattr(store, wait)(offset)


def test_a_unique_key_missing_in_the_index_is_found_in_the_log_on_request(store: mqstore.Store) -> None:
    store.append("orders", b"x", unique_key="U-1")
    assert store.message("U-1").body == b"x"
    for typo in ("typo", "0" * 31 + "5"):
        said = f"the {store.max_physical_offset} bytes of the log were not searched; walk=True"
        with pytest.raises(mqstore.NotFoundError, match=said):
            store.message(typo)
        with pytest.raises(mqstore.NotFoundError, match="no message has it as its unique key"):
            store.message(typo, walk=True)
    with pytest.raises(mqstore.NotFoundError, match='"typo" is not an offset id'):
        store.message("typo")


INTERRUPTED = """
import mqstore, os, signal, sys, threading, time
import pyarrow as pa
path, call = sys.argv[1:]
store = mqstore.open(path, "r" if call in READING else "a")
queue = store.topics["orders"].queues[0]
keys = pa.table({"topic": ["orders"] * 50_000, "key": [f"k{n}" for n in range(50_000)]})
ids = pa.table({"id": [f"u{n}" for n in range(50_000)]})
times = pa.table({"topic": ["orders"] * 50_000, "queue_id": [0] * 50_000, "time": [10**12] * 50_000})
places = pa.table({"topic": ["orders"] * 300_000, "queue_id": [0] * 300_000, "queue_offset": [5] * 300_000})
def walk():
    try:
        store.message("typo", walk=True)
    except mqstore.NotFoundError:
        pass
calls = {
    "query that walks": lambda: store.query("orders", tag="none"),
    "message that walks": walk,
    "resolve_keys": lambda: store.resolve_keys(keys),
    "resolve_offsets": lambda: store.resolve_offsets(places),
    "resolve_times": lambda: store.resolve_times(times),
    "resolve_ids": lambda: store.resolve_ids(ids),
    "get": lambda: store.get("orders", 0, 0, 10**9, bounded=False, tags="none || other"),
    "to_arrow": lambda: queue[:].batches().to_arrow(),
}
work = calls[call]
sent = None
def send():
    global sent
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
for delay in (0.1, 0.3):
    timer = threading.Timer(delay, send)
    timer.start()
    try:
        while True:
            work()
    except KeyboardInterrupt:
        late = time.monotonic() - sent
    timer.join()
    assert late < LATE, late
store.close()
"""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose walk takes a while."""
    path = tmp_path_factory.mktemp("long") / "store"
    with mqstore.open(path, "x") as store:
        store.append_batch([("orders", b"x" * 20, "paid", ["k1"])] * 100_000)
    return path


RESOLVES = ["resolve_keys", "resolve_offsets", "resolve_times", "resolve_ids"]


@pytest.mark.parametrize("call", ["query that walks", "message that walks", *RESOLVES, "get", "to_arrow"])
def test_ctrl_c_ends_a_long_read(long: Path, call: str) -> None:
    interrupted(long, call)


INTERRUPTED_BATCH = """
import mqstore, pyarrow as pa, signal, sys, time
path, kind, length, size = sys.argv[1:4] + [int(sys.argv[4])]
store = mqstore.open(path, "x")
def batch():
    rows = [b"x" * 20] * size
    return rows if kind == "rows" else pa.table({"body": rows})
def duration():
    started = time.perf_counter()
    store.append_batch(rows, "orders")
    return time.perf_counter() - started
rows = batch()
# The shortest of three counts: the first batch waits for its segments.
while length == "long" and min(duration() for _ in range(3)) < 0.25:
    size *= 2
    rows = batch()
# The kernel sends the signal: a thread would have to wait for the interpreter.
signal.signal(signal.SIGALRM, signal.default_int_handler)
for _ in range(30):
    after = duration() * 0.4
    store.wait_dispatched()
    before = store.topics["orders"].queues[0].max_offset
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        store.append_batch(rows, "orders")
        time.sleep(60)
    except KeyboardInterrupt as error:
        # A read before the call or after it shows nothing.
        stored, offsets = getattr(error, "stored", None), getattr(error, "offsets", None)
    store.wait_dispatched()
    if stored is not None:
        assert store.topics["orders"].queues[0].max_offset == before + stored == before + len(offsets)
        if (stored < size) == (length == "long"):
            break
else:
    sys.exit("no signal came when it should")
store.close()
"""


@pytest.mark.parametrize("kind", ["rows", "table"])
@pytest.mark.parametrize(("length", "size"), [pytest.param("long", 100_000, marks=pytest.mark.slow), ("short", 5_000)])
def test_ctrl_c_ends_a_batch_and_says_how_many_rows_are_stored(tmp_path: Path, kind: str, length: str, size: int) -> None:
    """A long batch stops. A short one is over before the core asks for signals (every 50 ms): all its rows are stored."""
    command = [sys.executable, "-c", INTERRUPTED_BATCH, tmp_path / "store", kind, length, str(size)]
    subprocess.run(command, check=True, timeout=120)


def interrupted(path: Path, call: str) -> None:
    # The core asks every 50 ms; an interpreter and a module without optimization on a busy machine take longer.
    code = INTERRUPTED.replace("LATE", "2.0").replace(
        "READING", repr("query that walks, message that walks, resolve_keys, resolve_ids, get, to_arrow")
    )
    subprocess.run([sys.executable, "-c", code, path, call], check=True, timeout=120)


REENTERED = """
import signal, sys
import mqstore
store = mqstore.open(sys.argv[1], errors="skip")
def handle(*_):
    global is_between
    try:
        next(messages)
        is_between = True  # the signal came before the iteration was under way, or after it
    except StopIteration:
        is_between = True
    except ValueError as error:
        got.append(str(error))
signal.signal(signal.SIGALRM, handle)
for _ in range(10):
    messages, got, is_between = iter(store.topics["orders"].queues[0]), [], False
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    try:
        first = next(messages)
    except StopIteration:
        is_between = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    if got and not is_between:
        break
else:
    sys.exit("no signal came while the iteration was under way")
assert first.queue_offset == int(sys.argv[2]), first
assert "is reading already" in got[0], got
assert messages.skipped == int(sys.argv[2]), messages.skipped
"""


def test_a_handler_that_continues_the_iteration_it_interrupts_is_refused(tmp_path: Path) -> None:
    body = b"twenty bytes of body"
    # The iteration passes over damaged bodies. A fast machine needs more of them before it looks for a signal.
    for count in (100_000, 400_000, 1_600_000):
        path = tmp_path / str(count)
        with mqstore.open(path, "x") as store:
            store.append_batch([body] * count, "orders")
        (segment,) = (path / "commitlog").iterdir()
        segment.write_bytes(segment.read_bytes().replace(body, body[::-1], count - 1))
        command = [sys.executable, "-c", REENTERED, path, str(count - 1)]
        child = subprocess.run(command, check=False, timeout=60, stderr=subprocess.PIPE, text=True)
        if "no signal came" not in child.stderr:
            break
    assert child.returncode == 0, child.stderr


def test_a_table_of_a_store_that_another_thread_closes_raises_closed_error(long: Path) -> None:
    for read in ("to_arrow", "iteration"):
        store = mqstore.open(long)
        batches = store.topics["orders"].queues[0].batches(max_bytes=1000)
        closing = threading.Timer(0.01, store.close)
        closing.start()
        with pytest.raises(mqstore.ClosedError, match="is closed"):
            read_for_ever(batches.to_arrow if read == "to_arrow" else lambda batches=batches: list(batches))
        closing.join()


def read_for_ever(read: Callable[[], object]) -> None:
    while True:
        read()
