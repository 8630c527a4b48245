"""Futures of messages that are appended and not waited for."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest
from conftest import sync_test

import mqstore
from mqstore._nowait import Completer

#: Nothing is flushed that nobody asks for.
NEVER = {"flush_interval_commit_log": 3_600_000}

#: A store whose segments stand, so that each sync from now on is one of the log.
PREPARED = """
def prepared(**options):
    never = {"flush_interval_commit_log": 3_600_000, "sync_flush_timeout": 3_600_000}
    store = mqstore.open(sys.argv[1] + "2", "x", **(never | options))
    store.append("orders", b"first", durable=True)
    wait_for_files(sys.argv[1] + "2")
    return store
def first_sync(append):
    # What `append` gives, when the sync that it asked for is under way.
    before = syncs()
    appended = append()
    until(lambda: syncs() > before)
    return appended
def bodies(store):
    return [message.body for message in store.topics["orders"].queues[0]]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def completers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mqstore-futures"]


def soon(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_it_takes_what_append_takes() -> None:
    assert inspect.signature(mqstore.Writer.append_nowait) == inspect.signature(mqstore.Writer.append)


@pytest.mark.parametrize(
    ("flush_disk_type", "properties", "durable", "is_waited_for"),
    [
        ("SYNC_FLUSH", {}, None, True),
        ("SYNC_FLUSH", {"WAIT": "false"}, None, False),
        ("SYNC_FLUSH", {"WAIT": "false"}, True, True),
        ("SYNC_FLUSH", {}, False, False),
        ("ASYNC_FLUSH", {}, None, False),
        ("ASYNC_FLUSH", {}, True, True),
    ],
)
def test_a_future_is_done_when_append_would_return(
    path: Path, flush_disk_type: str, properties: dict[str, str], durable: bool | None, is_waited_for: bool
) -> None:
    with mqstore.open(path, "x", flush_disk_type=flush_disk_type, **NEVER) as store:
        future = store.append_nowait("orders", b"x", keys="k", properties=properties, durable=durable)
        assert future.done() or is_waited_for
        assert bool(completers()) == is_waited_for
        result = future.result(20)
        assert result.status == "PUT_OK"
        if is_waited_for:
            assert store.flushed_offset >= result.physical_offset + result.wrote_bytes
        store.wait_dispatched(timeout=20)
        message = store.message_at(result.physical_offset)
        assert (message.body, message.keys) == (b"x", ["k"])
    assert completers() == []


def test_thousands_of_futures_of_a_thread_complete_in_order_by_few_syncs(slow_sync: Path, path: Path) -> None:
    code = """
store = prepared(flush_disk_type="SYNC_FLUSH")
say(30)
before = syncs()
done = []
def check(future):
    result = future.result()
    assert store.flushed_offset >= result.physical_offset + result.wrote_bytes
    done.append(result)
futures = [store.append_nowait("orders", b"%d" % number) for number in range(5000)]
assert not any(future.done() for future in futures), "the first sync takes half a minute"
for future in futures:
    future.add_done_callback(check)
os.unlink(sync)
results = [future.result(20) for future in futures]
assert syncs() - before <= 2, "one is for the first messages, and one for all others"
store.close()
assert done == results and {result.status for result in results} == {"PUT_OK"}
offsets = [result.physical_offset for result in results]
assert offsets == sorted(offsets)
with mqstore.open(sys.argv[1] + "2") as reader:
    queue = reader.topics["orders"].queues[0]
    assert [(m.body, m.physical_offset, m.queue_offset) for m in queue[1:]] == [
        (b"%d" % number, result.physical_offset, result.queue_offset) for number, result in enumerate(results)
    ]
"""
    sync_test(slow_sync, path, PREPARED + code)


def test_futures_of_many_threads_are_all_completed(path: Path) -> None:
    futures: list[Future[mqstore.AppendResult]] = []
    with mqstore.open(path, "x", mapped_file_size_commit_log=65_536, **NEVER) as store:

        def produce(producer: int) -> None:
            for number in range(500):
                futures.append(store.append_nowait("orders", b"%d" % number, queue_id=producer, durable=True))

        threads = [threading.Thread(target=produce, args=(producer,)) for producer in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(completers()) == 1
        assert len({future.result(20).physical_offset for future in futures}) == 8 * 500
        for producer in range(8):
            assert [message.body for message in store.topics["orders"].queues[producer]] == [b"%d" % n for n in range(500)]


def test_a_message_that_is_refused_is_refused_by_the_call(path: Path) -> None:
    with mqstore.open(path, "x", **NEVER) as store:
        for durable in (True, False):
            with pytest.raises(mqstore.IllegalMessageError) as raised:
                store.append_nowait("a/b", b"x", durable=durable)
            assert raised.value.status == "MESSAGE_ILLEGAL"
        text: Any = "text"
        with pytest.raises(TypeError, match="encode it"):
            store.append_nowait("orders", text)
        assert store.max_physical_offset == 0
    with pytest.raises(mqstore.ClosedError):
        store.append_nowait("orders", b"x")
    with mqstore.open(path) as reader, pytest.raises(AttributeError):
        reader.append_nowait("orders", b"x")


def test_where_no_thread_can_be_started_nothing_is_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with mqstore.open(path, "x", **NEVER) as store:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError, match="new thread"):
                store.append_nowait("orders", b"x", durable=True)
        assert store.max_physical_offset == 0
        assert store.append_nowait("orders", b"x", durable=True).result(20).queue_offset == 0


def test_a_future_whose_time_is_up_says_so_and_its_message_is_read_later(slow_sync: Path, path: Path) -> None:
    code = """
store = prepared(flush_disk_type="SYNC_FLUSH", sync_flush_timeout=300)
say(30)
begin = time.monotonic()
futures = [store.append_nowait("orders", b"%d" % number) for number in range(100)]
results = [future.result(20) for future in futures]
assert 0.25 < time.monotonic() - begin < 25, "it ended with the sync"
assert {result.status for result in results} == {"FLUSH_DISK_TIMEOUT"}
assert bodies(store) == [b"first"]
time.sleep(0.2)
late = store.append_nowait("orders", b"late")
assert late.result(20).status == "FLUSH_DISK_TIMEOUT"
os.unlink(sync)
store.wait_durable(timeout=20)
# On a busy machine a sync may take longer than 300 ms.
tries = 1
while store.append_nowait("orders", b"last").result(20).status != "PUT_OK":
    tries += 1
    assert tries < 20, "no message is durable in time"
assert bodies(store) == [b"first", *(b"%d" % number for number in range(100)), b"late", *[b"last"] * tries]
assert [m.physical_offset for m in store.topics["orders"].queues[0]][1:101] == [r.physical_offset for r in results]
store.close()
"""
    sync_test(slow_sync, path, PREPARED + code)


def test_a_sync_that_fails_fails_every_future_and_later_calls(slow_sync: Path, path: Path) -> None:
    code = """
store = prepared()
say(30)
first = first_sync(lambda: store.append_nowait("orders", b"first", durable=True))
futures = [store.append_nowait("orders", b"x", durable=True) for _ in range(100)]
# The first sync, which is under way, ends, and the next one fails.
say(-1)
assert first.result(20).status == "PUT_OK"
for future in futures:
    error = future.exception(20)
    assert isinstance(error, mqstore.PoisonedError) and error.errno == errno.EIO, error
    assert error.status == "FLUSH_DISK_TIMEOUT" and "was appended, and whether it survives is not known" in str(error), error
    assert isinstance(error.__cause__, mqstore.StoreIOError) and error.stored == 1
error = raises(mqstore.PoisonedError, lambda: store.append_nowait("orders", b"x", durable=True))
assert error.status == "SERVICE_NOT_AVAILABLE"
raises(mqstore.PoisonedError, store.close)
"""
    sync_test(slow_sync, path, PREPARED + code)


def test_a_close_completes_every_future_before_it_returns(slow_sync: Path, path: Path) -> None:
    code = """
store = prepared()
say(30)
futures = [store.append_nowait("orders", b"x", durable=True) for _ in range(1000)]
assert not futures[-1].done()
threading.Timer(1, lambda: os.unlink(sync)).start()
store.close()
assert all(future.done() and future.result().status == "PUT_OK" for future in futures)
"""
    sync_test(slow_sync, path, PREPARED + code)


def test_a_close_that_fails_completes_every_future_before_it_returns(slow_sync: Path, path: Path) -> None:
    code = """
store = prepared()
say(30)
futures = [first_sync(lambda: store.append_nowait("orders", b"x", durable=True))]
futures += [store.append_nowait("orders", b"x", durable=True) for _ in range(1000)]
assert not futures[0].done()
threading.Timer(1, lambda: say(-1)).start()
raises(mqstore.PoisonedError, store.close)
assert all(future.done() for future in futures)
assert all(isinstance(future.exception(), mqstore.PoisonedError) for future in futures[1:])
"""
    sync_test(slow_sync, path, PREPARED + code)


def test_a_close_in_another_thread_leaves_no_future_pending(path: Path) -> None:
    for round_number in range(20):
        store = mqstore.open(path.with_name(str(round_number)), "x", **NEVER)
        futures: list[Future[mqstore.AppendResult]] = []

        def produce(store: mqstore.Store = store, futures: list[Future[mqstore.AppendResult]] = futures) -> None:
            try:
                while True:
                    futures.append(store.append_nowait("orders", b"x", durable=True))
            except mqstore.ClosedError:
                pass

        threads = [threading.Thread(target=produce) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(futures) < 50:
            time.sleep(0.001)
        store.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert wait(futures, 20).not_done == set()
        with mqstore.open(store.path) as again:
            offsets = [message.physical_offset for message in again.topics["orders"].queues[0]]
        assert sorted(future.result().physical_offset for future in futures) == offsets


def test_a_future_that_is_made_after_the_thread_has_ended_is_completed() -> None:
    class Flushed:
        def wait(self, physical_offset: int, timeout: float) -> int:
            return physical_offset + 1

    flushed: Any = Flushed()
    completer = Completer(flushed, 5.0)
    completer.end()
    completer.join()
    assert completer.durable(0, None).result(20)


def test_a_callback_may_close_the_store(path: Path) -> None:
    store = mqstore.open(path, "x", **NEVER)
    futures = [store.append_nowait("orders", b"x", durable=True) for _ in range(100)]
    returned: list[None] = []
    futures.append(store.append_nowait("orders", b"x", durable=True))
    futures[-1].add_done_callback(lambda _: returned.append(store.close()))
    assert {future.result(20).status for future in futures} == {"PUT_OK"}
    assert soon(lambda: returned == [None] and completers() == [])


def test_a_close_while_the_thread_starts_leaves_no_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = mqstore.open(path, "x", **NEVER)
    start = threading.Thread.start

    def start_and_close(thread: threading.Thread) -> None:
        start(thread)
        store.close()

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_and_close)
        with pytest.raises(mqstore.ClosedError):
            store.append_nowait("orders", b"x", durable=True)
    assert soon(lambda: completers() == [])


def test_a_callback_that_ends_its_thread_ends_no_other_future(slow_sync: Path, path: Path) -> None:
    code = """
store = prepared()
say(30)
futures = [store.append_nowait("orders", b"x", durable=True) for _ in range(10)]
for future in futures[1:]:
    future.add_done_callback(lambda _: sys.exit(1))
import logging
logging.disable()
os.unlink(sync)
assert {future.result(20).status for future in futures} == {"PUT_OK"}
store.close()
"""
    sync_test(slow_sync, path, PREPARED + code)


def test_cancelling_is_refused_and_the_message_stays(path: Path) -> None:
    with mqstore.open(path, "x", **NEVER) as store:
        futures = [store.append_nowait("orders", b"x", durable=durable) for durable in (True, False)]
        assert [future.cancel() for future in futures] == [False, False]
        assert not any(future.cancelled() for future in futures)
        assert [future.result(20).queue_offset for future in futures] == [0, 1]
        assert len(store.topics["orders"].queues[0]) == 2


def test_a_fork_appends_nothing_and_completes_nothing(slow_sync: Path, path: Path) -> None:
    code = """
store = prepared()
say(30)
future = store.append_nowait("orders", b"x", durable=True)
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        store.append_nowait("orders", b"y", durable=True)
    except mqstore.ClosedError:
        os.unlink(sync)
        time.sleep(1.5)
        assert not future.done()
        store.close()
        del store
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert future.result(20).status == "PUT_OK"
assert store.append_nowait("orders", b"z", durable=True).result(20).status == "PUT_OK"
assert bodies(store) == [b"first", b"x", b"z"]
store.close()
"""
    sync_test(slow_sync, path, PREPARED + code)


@pytest.mark.parametrize("how", ["", "sys.kept = store", "sys.kept = store, futures", "del store", "time.sleep(1.2)"])
def test_the_interpreter_ends_with_futures_pending(slow_sync: Path, path: Path, how: str) -> None:
    code = f"""
import subprocess
store.close()
store = prepared()
say(30)
futures = [store.append_nowait("orders", b"x", durable=True) for _ in range(1000)]
futures[0].add_done_callback(lambda _: time.sleep(0.3))
assert not futures[-1].done()
ends_syncs = subprocess.Popen(["sh", "-c", "sleep 1; rm $SYNC"])
{how}
"""
    sync_test(slow_sync, path, PREPARED + code)
    with mqstore.open(f"{path}2") as reader:
        assert len(reader.topics["orders"].queues[0]) == 1001


PENDING = """
import sys, mqstore
store = mqstore.open(sys.argv[1], "x", flush_interval_commit_log=3_600_000)
for _ in range(100):
    store.append_nowait("orders", b"x", durable=True)
"""


def test_the_interpreter_ends_quietly_whenever_it_ends(path: Path) -> None:
    for round_number in range(10):
        store = path.with_name(str(round_number))
        ended = subprocess.run([sys.executable, "-c", PENDING, store], timeout=60, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")
        with mqstore.open(store) as reader:
            assert len(reader.topics["orders"].queues[0]) == 100


def test_a_store_that_is_dropped_completes_its_futures_and_ends_its_thread(path: Path) -> None:
    store = mqstore.open(path, "x", **NEVER)
    futures = [store.append_nowait("orders", b"x", durable=True) for _ in range(100)]
    assert len(completers()) == 1
    del store
    gc.collect()
    assert {future.result(20).status for future in futures} == {"PUT_OK"}
    assert soon(lambda: completers() == [])
    with mqstore.open(path, "r+") as again:
        assert again.recovery.clean_exit


def test_what_is_completed_is_not_kept(path: Path) -> None:
    with mqstore.open(path, "x", **NEVER) as store:
        future = store.append_nowait("orders", b"x", durable=True)
        future.result(20)
        kept = weakref.ref(future)
        del future
        assert soon(lambda: kept() is None)


def test_where_no_future_can_be_made_nothing_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"x")
        end = store.max_physical_offset
        # As late in the end of the interpreter.
        monkeypatch.setitem(sys.modules, "mqstore._nowait", None)
        with pytest.raises(ImportError):
            store.append_nowait("orders", b"x")
        assert store.max_physical_offset == end
