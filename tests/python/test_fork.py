"""A forked child keeps no lock of its parent, waits for none, and continues nothing that its parent began."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqstore

READS = 2000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.append_batch([b"%d" % number for number in range(READS)], "orders")
    return path


@pytest.fixture
def reader(path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(path) as reader:
        yield reader


def in_child(work: Callable[[], object]) -> None:
    """Runs `work` in a fork; only a hang lasts a minute."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


WRITER = """
import ctypes, os, sys, time, mqstore
store = mqstore.open(sys.argv[1], "a")
store.append("orders", b"more")
store.flush()
runs, says = os.pipe()
child = ctypes.CDLL(None).fork() if sys.argv[2] == "c" else os.fork()
if child == 0:
    os.write(says, b"1")
    time.sleep(60)
    os._exit(0)
os.read(runs, 1)  # until the child runs, it has closed nothing
print(child, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("by", ["python", "c"])
def test_a_fork_that_outlives_a_killed_writer_does_not_keep_the_lock(path: Path, by: str) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path, by], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    child = int(writer.stdout.readline())
    try:
        with pytest.raises(mqstore.LockedError):
            mqstore.open(path, "r+")
        writer.kill()
        writer.wait()
        os.kill(child, 0)
        with mqstore.open(path, "r+") as store:
            assert store.topics["orders"].queues[0][-1].body == b"more"
    finally:
        os.kill(child, signal.SIGKILL)
        writer.kill()
        writer.wait()
        writer.stdout.close()


def test_the_parent_keeps_its_lock_whatever_its_forks_do(path: Path) -> None:
    with mqstore.open(path, "a") as store:

        def close() -> None:
            store.close()
            with pytest.raises(mqstore.LockedError):
                mqstore.open(path, "a")

        in_child(close)
        with pytest.raises(mqstore.LockedError):
            mqstore.open(path, "a")
        store.append("orders", b"more")


OPENER = """
import os, sys, threading, time, mqstore
stores = []

def opens():
    for number in range(40):
        stores.append(mqstore.open(f"{sys.argv[1]}/{number}", "a", mapped_file_size_commit_log=4096))

thread = threading.Thread(target=opens)
thread.start()
forks = 0
while thread.is_alive():
    if os.fork() == 0:
        os.read(0, 1)  # until the test ends
        os._exit(0)
    forks += 1
    # A slow disk makes the thread slow, and a thousand children take much memory.
    time.sleep(0.002 * (1 + forks // 50))
print(len(stores), forks, flush=True)
os.read(0, 1)
"""


def test_a_fork_while_another_thread_opens_a_store_does_not_keep_its_lock(tmp_path: Path) -> None:
    """It may come between the opening of the lock file and the lock."""
    command = [sys.executable, "-c", OPENER, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as opener:
        assert opener.stdout is not None
        try:
            stores, forks = map(int, opener.stdout.readline().split())
            opener.kill()
            opener.wait()
            for number in range(40):
                mqstore.open(tmp_path / str(number), "r+").close()
            assert stores == 40
            assert forks > 0
        finally:
            opener.kill()


def passes(reader: mqstore.Store) -> dict[str, Callable[[], Callable[[], object]]]:
    """Ways to iterate over messages, each begun and ready to continue."""
    queue = reader.topics["orders"].queues[0]
    everything = queue[:]

    def nexts(iterator: Iterator[Any]) -> Callable[[], object]:
        return lambda: next(iterator)

    def streams() -> Callable[[], object]:
        stream = pa.RecordBatchReader.from_stream(everything.batches(max_bytes=1000))
        return stream.read_next_batch

    return {
        "queue": lambda: nexts(iter(queue)),
        "backward": lambda: nexts(reversed(queue)),
        "slice": lambda: nexts(iter(everything)),
        "batches": lambda: nexts(iter(everything.batches(max_bytes=1000))),
        "stream": streams,
    }


@pytest.mark.parametrize("kind", ["queue", "backward", "slice", "batches", "stream"])
def test_a_scan_of_the_parent_does_not_continue_in_a_fork(reader: mqstore.Store, kind: str) -> None:
    begin = passes(reader)[kind]
    goes_on = begin()
    first = goes_on()
    assert first is not None

    def in_fork() -> None:
        # A stream's consumer raises an error of its own.
        refusal: Any = (pa.ArrowException, OSError) if kind == "stream" else mqstore.ClosedError
        with pytest.raises(refusal, match="process that this one was forked from"):
            goes_on()
        assert begin()() is not None

    in_child(in_fork)
    assert goes_on() is not None


@pytest.mark.parametrize("kind", ["queue", "batches"])
def test_a_fork_waits_for_no_thread_of_its_parent_inside_a_pass(reader: mqstore.Store, kind: str) -> None:
    begin = passes(reader)[kind]
    goes_on, over = [begin()], threading.Event()

    def reads() -> None:
        while not over.is_set():
            try:
                goes_on[0]()
            except StopIteration:
                goes_on[0] = begin()

    thread = threading.Thread(target=reads)
    thread.start()

    def refused() -> None:
        with pytest.raises(mqstore.ClosedError):
            goes_on[0]()
        assert reader.topics["orders"].queues[0][-1].body == b"%d" % (READS - 1)

    try:
        for _ in range(20):
            in_child(refused)
    finally:
        over.set()
        thread.join()


def test_a_fork_reads_whatever_thread_of_its_parent_appends(path: Path) -> None:
    with mqstore.open(path.parent / "busy", "x") as busy:
        over = threading.Event()

        def appends() -> None:
            while not over.is_set():
                busy.append_batch([b"x"] * 50, "orders")
                over.wait(0.001)  # so that the disk keeps up

        threads = [threading.Thread(target=appends) for _ in range(2)]
        for thread in threads:
            thread.start()

        def reads() -> None:
            with pytest.raises(mqstore.ClosedError):
                busy.append("orders", b"x")
            busy.close()
            with mqstore.open(path) as own:
                assert own.topics["orders"].queues[0][-1].body == b"%d" % (READS - 1)

        try:
            for _ in range(20):
                in_child(reads)
        finally:
            over.set()
            for thread in threads:
                thread.join()


SHARED: list[mqstore.Store] = []


def body_at(offset: int) -> bytes:
    return SHARED[0].topics["orders"].queues[0][offset].body


def test_forked_workers_share_a_reader_of_their_parent(reader: mqstore.Store) -> None:
    SHARED[:] = [reader]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map(body_at, range(100)) == [b"%d" % number for number in range(100)]
    SHARED.clear()


class Forks:
    """Forks at its first call; the child continues what the call is part of."""

    def __init__(self) -> None:
        self.child: int | None = None

    def __call__(self, *_: object) -> bool:
        if self.child is None:
            self.child = os.fork()
            if self.child == 0:
                signal.alarm(60)
        return True

    def rows(self) -> Iterator[bytes]:
        yield b"one"
        self()
        yield b"two"

    def properties(self) -> Mapping[str, str]:
        class Properties(dict[str, str]):
            items = self.items  # type: ignore[assignment]

        return Properties()

    def items(self) -> list[tuple[str, str]]:
        self()
        return [("a", "b")]

    def time(self) -> datetime:
        class Zone(tzinfo):
            def utcoffset(_, __: datetime | None) -> timedelta:
                self()
                return timedelta(0)

        return datetime(2026, 1, 1, tzinfo=Zone())

    def table(self, columns: dict[str, list[Any]]) -> pa.RecordBatchReader:
        whole = pa.record_batch(columns)

        def batches() -> Iterator[pa.RecordBatch]:
            self()
            yield whole

        return pa.RecordBatchReader.from_batches(whole.schema, batches())

    def refused_in_child(self, call: Callable[[], object]) -> object:
        """Runs `call`, which forks. The child must get the error that the store is its parent's; returns what the parent gets."""
        done: object = None
        try:
            done = call()
        except mqstore.ClosedError as error:
            if self.child == 0:
                os._exit(0 if "process that this one was forked from" in str(error) else 2)
            raise
        finally:
            if self.child == 0:
                os._exit(1)
        assert self.child is not None
        assert os.waitpid(self.child, 0)[1] == 0
        return done


@pytest.mark.parametrize("by", ["rows", "table", "properties", "born_time"])
def test_an_append_whose_input_forks_stores_once(tmp_path: Path, by: str) -> None:
    """In the child the log is the parent's: what it wrote there, the parent's next message would replace."""
    forks = Forks()
    with mqstore.open(tmp_path / "new", "x") as store:
        calls: dict[str, Callable[[], object]] = {
            "rows": lambda: store.append_batch(forks.rows(), "t"),
            "table": lambda: store.append_batch(forks.table({"body": [b"one", b"two"]}), "t"),
            "properties": lambda: store.append("t", b"one", properties=forks.properties()),
            "born_time": lambda: store.append("t", b"one", born_time=forks.time()),
        }
        forks.refused_in_child(calls[by])
        store.append("t", b"more")
    with mqstore.open(tmp_path / "new") as reader:
        stored = [message.body for message in reader.topics["t"].queues[0]]
        assert stored == ([b"one", b"two", b"more"] if by in ("rows", "table") else [b"one", b"more"])


def test_a_get_whose_callable_forks_does_not_continue_in_the_child(reader: mqstore.Store) -> None:
    forks = Forks()
    got = forks.refused_in_child(lambda: reader.get("orders", 0, 0, where=forks))
    assert isinstance(got, mqstore.GetResult)
    assert got.status == "FOUND"


@pytest.mark.parametrize("call", ["resolve_offsets", "resolve_keys", "resolve_times", "resolve_ids"])
def test_a_table_that_forks_is_resolved_in_both_processes(reader: mqstore.Store, call: str) -> None:
    """The child opens the store for itself."""
    forks = Forks()
    columns: dict[str, list[Any]] = {
        "topic": ["orders"],
        "key": ["none"],
        "queue_id": [0],
        "queue_offset": [1],
        "time": [1],
        "id": ["none"],
    }
    table = forks.table(columns)
    over = threading.Event()

    def reads() -> None:
        while not over.is_set():
            reader.topics["orders"].queues[0][0]

    thread = threading.Thread(target=reads)
    thread.start()
    try:
        resolved = getattr(reader, call)(table)
        if forks.child == 0:
            os._exit(0 if len(resolved) == 1 else 1)
        assert forks.child is not None
        assert os.waitpid(forks.child, 0)[1] == 0
        assert len(resolved) == 1
    finally:
        if forks.child == 0:
            os._exit(2)
        over.set()
        thread.join()


@pytest.mark.parametrize("call", ["wait_durable", "wait_dispatched"])
def test_a_wait_whose_timeout_forks_does_not_continue_in_the_child(path: Path, call: str) -> None:
    forks = Forks()

    class Timeout:
        def __float__(self) -> float:
            forks()
            return 5.0

    timeout: Any = Timeout()
    with mqstore.open(path, "a") as store:
        store.append("orders", b"x")
        forks.refused_in_child(lambda: getattr(store, call)(timeout=timeout))


def long_to_open(path: Path) -> mqstore.Store:
    """A reader of a crashed store that takes at least 0.3 s of this machine to open."""
    while True:
        with mqstore.open(path, "a") as store:
            store.append_batch([b"x"] * 100_000, "orders")
        (path / "checkpoint").unlink()
        (path / "abort").touch()
        began = time.process_time()
        reader = mqstore.open(path)
        if time.process_time() - began > 0.3:
            return reader
        reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["open", "reopen"])
def test_a_signal_whose_handler_raises_ends_the_opening_of_a_reader(tmp_path: Path, how: str) -> None:
    told: list[int] = []

    def handle(number: int, _: object) -> None:
        told.append(number)
        # One signal may be handled after a call that did not ask for any.
        if len(told) == 3:
            raise KeyboardInterrupt

    with long_to_open(tmp_path / "store") as reader:
        end = reader.max_physical_offset

        def opens() -> None:
            try:
                if how == "open":
                    mqstore.open(reader.path)
                else:
                    _ = reader.max_physical_offset
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)

        def interrupted() -> None:
            signal.signal(signal.SIGPROF, handle)
            signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
            with pytest.raises(KeyboardInterrupt):
                opens()
            assert reader.max_physical_offset == end

        in_child(interrupted)


@pytest.mark.parametrize("call", ["export('new.jsonl', ", "copy_to('new', "])
def test_a_fork_that_ends_normally_leaves_the_files_that_its_parent_writes(path: Path, call: str) -> None:
    code = f"""
import os, sys, mqstore
forks = []
def fork(done, of):
    if not forks:
        forks.append(os.fork())
        if forks == [0]:
            sys.exit()
        os.waitpid(forks[0], 0)
with mqstore.open({str(path)!r}) as store:
    assert store.{call}progress=fork).rows == {READS}
"""
    subprocess.run([sys.executable, "-c", code], cwd=path.parent, timeout=60, check=True)
    assert [name for name in os.listdir(path.parent) if name.startswith(".mqstore-")] == []
