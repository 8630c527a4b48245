"""Opening a store for writing, durability, closing, and which process owns it."""

from __future__ import annotations

import errno
import inspect
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import contents
from encoder import Encoder

import mqstore

SMALL = {"mapped_file_size_commit_log": 65_536, "max_hash_slot_num": 200, "max_index_num": 2000}

LetsOthersRun = Callable[[Callable[[], object]], bool]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(path, "x", **SMALL) as store:
        yield store


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that has opened nothing yet."""
    command = [sys.executable, "-c", f"import mqstore, os, sys\n{code}", *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def bodies(store: mqstore.Store, topic: str = "orders") -> list[bytes]:
    return [message.body for queue in store.topics[topic].queues for message in queue]


@pytest.mark.parametrize("mode", ["a", "x"])
def test_a_missing_store_is_made(path: Path, mode: str) -> None:
    with mqstore.open(path, mode) as store:
        assert (store.mode, store.path, store.max_physical_offset) == (mode, str(path), 0)
        assert repr(store) == f'<mqstore.Writer "{path}" mode="{mode}", log 0..0>'
    with mqstore.open(path) as store:
        assert list(store.topics) == []
        assert store.recovery.clean_exit


def test_an_empty_directory_becomes_a_store(path: Path) -> None:
    for mode in ("a", "x"):
        path.mkdir()
        mqstore.open(path, mode).close()
        shutil.rmtree(path)


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_an_existing_store_continues(path: Path, mode: str) -> None:
    with mqstore.open(path, "x") as store:
        store.append("orders", b"first")
    with mqstore.open(path, mode) as store:
        assert store.mode == mode
        assert store.append("orders", b"second").queue_offset == 1
    with mqstore.open(path) as store:
        assert bodies(store) == [b"first", b"second"]


def test_what_must_exist_and_does_not_is_not_made(path: Path) -> None:
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.open(path, "r+")
    assert not path.exists()


def test_what_must_not_exist_and_does_is_left_alone(path: Path) -> None:
    mqstore.open(path, "x").close()
    before = contents(path)
    with pytest.raises(mqstore.StoreExistsError) as raised:
        mqstore.open(path, "x")
    assert isinstance(raised.value, FileExistsError)
    assert (raised.value.errno, raised.value.filename) == (errno.EEXIST, str(path))
    assert contents(path) == before


@pytest.mark.parametrize("mode", ["r+", "a", "x"])
def test_a_directory_that_is_no_store_is_left_alone(path: Path, mode: str) -> None:
    # A lock file among the segments would keep a broker from starting.
    segments = Encoder(path).write() / "commitlog"
    (path / "notes").mkdir()
    (path / "notes" / "todo.txt").touch()
    before = contents(path)
    for directory in (segments, path / "notes"):
        with pytest.raises((mqstore.StoreError, ValueError), match=re.escape(str(directory))):
            mqstore.open(directory, mode)
    assert contents(path) == before


@pytest.mark.parametrize("mode", ["w", "rw", "", "A"])
def test_any_other_mode_is_refused_with_the_ones_there_are(path: Path, mode: str) -> None:
    with pytest.raises(ValueError, match=r'"r\+".*"a".*"x"'):
        mqstore.open(path, mode)
    assert not path.exists()


def test_a_new_store_is_small_or_has_a_brokers_sizes(path: Path) -> None:
    sizes = {}
    for name, options in {"small": {}, "broker": {"geometry": "broker"}}.items():
        with mqstore.open(path.with_name(name), "x", **options) as store:
            store.append("orders", b"x", keys="k")
        with mqstore.open(store.path, "r+") as store:  # as recorded, whatever a new store would get
            store.append("orders", b"x", keys="k")
        files = [file for folder in ("commitlog", "index") for file in (Path(store.path) / folder).iterdir()]
        sizes[name] = [file.stat().st_size for file in files]
    assert sizes["small"] == [64 << 20, 40 + 4 * 125_000 + 20 * 500_000]
    assert sizes["broker"] == [1 << 30, 40 + 4 * 5_000_000 + 20 * 20_000_000]


def test_tags_are_indexed_if_asked(path: Path) -> None:
    hits = {}
    for index_tags in (False, True):
        with mqstore.open(path.with_name(f"{index_tags}"), "x", index_tags=index_tags, **SMALL) as store:
            store.append("orders", b"x", tags="paid", keys="k")
        index = next((Path(store.path) / "index").iterdir()).read_bytes()
        hits[index_tags] = int.from_bytes(index[36:40], "big")  # the index's count of items, which starts at 1
    assert hits == {False: 2, True: 3}


@pytest.mark.parametrize("enabled", [False, True])
def test_records_get_a_checksum_of_the_whole_of_them_if_asked(path: Path, enabled: bool) -> None:
    with mqstore.open(path, "x", enabled_append_prop_crc=enabled, **SMALL) as store:
        store.append("orders", b"x", tags="paid")
        store.append_batch([b"y", b""], "orders")
        store.wait_dispatched()
        messages = store.topics["orders"].queues[0][:]
        assert [message.body for message in messages] == [b"x", b"y", b""]
        for message in messages:
            # Ten decimal digits, the least significant one first.
            crc = f"{zlib.crc32(message.raw[:-20]) & 0x7FFFFFFF:010}"[::-1]
            assert message.raw.endswith(f"__CRC32#\1{crc}\2".encode()) == enabled
            assert message.properties.get("__CRC32#") == (crc if enabled else None)


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_a_second_writer_is_refused_and_readers_are_not(store: mqstore.Store, path: Path, mode: str) -> None:
    store.append("orders", b"x")
    with pytest.raises(mqstore.LockedError, match=r"of this process or another.*close it first.*lsof") as raised:
        mqstore.open(path, mode)
    assert isinstance(raised.value, BlockingIOError)
    assert (raised.value.errno, raised.value.filename) == (errno.EAGAIN, str(path / "lock"))
    other = python("mqstore.open(sys.argv[1], 'a')", path)
    assert other.wait() == 1
    with mqstore.open(path) as reader:
        assert reader.max_physical_offset > 0
    store.close()
    mqstore.open(path, mode).close()


def test_a_reader_has_no_call_of_a_writer(store: mqstore.Writer, path: Path) -> None:
    own = {name for name in vars(mqstore.Writer) if not name.startswith("_")} - set(vars(mqstore.Store))
    assert own >= {"append", "append_batch", "append_nowait", "flush", "flushed_offset", "import_from", "stats", "wait_durable"}
    with mqstore.open(path) as reader:
        assert type(reader) is mqstore.Store
        # So tab completion and mocks work on a reader.
        assert not own & {name for name, _ in inspect.getmembers(reader)}
        for name in own:
            assert not hasattr(reader, name)


@pytest.mark.parametrize("mode", ["r+", "a", "x"])
def test_each_mode_that_writes_gives_a_writer_which_is_a_store(
    tmp_path: Path, path: Path, store: mqstore.Writer, mode: str
) -> None:
    store.close()
    with mqstore.open(tmp_path / "new" if mode == "x" else path, mode) as writer:
        assert type(writer) is mqstore.Writer
        assert isinstance(writer, mqstore.Store)
        assert writer.mode == mode
        assert not hasattr(writer, "apend")


@pytest.mark.parametrize("made", [mqstore.Store, mqstore.Writer, type("Mine", (mqstore.Store,), {})])
def test_only_open_makes_a_store_or_a_writer(made: type, path: Path) -> None:
    for arguments in ((), (path,)):
        with pytest.raises(TypeError, match="is not made by its class: mqstore.open"):
            made(*arguments)


def test_a_closed_writer_refuses_to_write(store: mqstore.Writer) -> None:
    uses: list[Callable[[mqstore.Writer], object]] = [
        lambda store: store.append("orders", b""),
        lambda store: store.append_batch([b""], "orders"),
        lambda store: store.flush(),
    ]
    store.close()
    for use in uses:
        with pytest.raises(mqstore.ClosedError) as closed:
            use(store)
        assert closed.value.status == "SERVICE_NOT_AVAILABLE"


def test_a_writer_reads_what_it_appended(store: mqstore.Store) -> None:
    messages = [store.append("orders", b"%d" % number, keys=f"o-{number}") for number in range(300)]
    assert store.message_at(messages[-1].physical_offset).body == b"299"
    store.wait_dispatched(messages[-1].physical_offset)
    queue = store.topics["orders"].queues[0]
    assert [message.body for message in queue] == [b"%d" % number for number in range(300)]
    assert [message.body for message in store.query("orders", "o-7")] == [b"7"]
    assert store.message(messages[5].message_id).body == b"5"
    assert store.get("orders", 0, 299).messages[0].physical_offset == messages[-1].physical_offset
    assert queue[10:20].batches(["queue_offset"]).to_arrow()["queue_offset"].to_pylist() == list(range(10, 20))
    assert store.max_physical_offset == messages[-1].physical_offset + messages[-1].wrote_bytes
    assert queue.offset_at(messages[0].store_time) == 0


def test_flushing_reports_how_far_the_log_is_durable(path: Path) -> None:
    with mqstore.open(path, "x", flush_interval_commit_log=3_600_000, **SMALL) as store:
        assert (store.flush(), store.flushed_offset, store.dispatched_offset) == (0, 0, 0)
        first = store.append("orders", b"first")
        assert store.flushed_offset == 0
        assert store.flush() == store.flushed_offset == first.wrote_bytes
        second = store.append("orders", b"second")
        store.wait_durable(second.physical_offset)
        assert store.flushed_offset == second.physical_offset + second.wrote_bytes
        store.wait_dispatched(second.physical_offset)
        assert store.dispatched_offset == second.physical_offset + second.wrote_bytes


def test_what_nobody_flushes_is_flushed_every_interval(path: Path) -> None:
    # One message is too little for a flush by pages: it waits for the thorough interval, which is 10 s by default.
    with mqstore.open(path, "x", flush_interval_commit_log=20, flush_commit_log_thorough_interval=500, **SMALL) as store:
        end = store.append("orders", b"x").wrote_bytes
        deadline = time.monotonic() + 20
        while store.flushed_offset < end:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("timeout", "error"), [(-1, ValueError), (float("nan"), ValueError), ("soon", TypeError), (timedelta(days=-1), ValueError)]
)
def test_a_time_that_cannot_be_waited_is_refused(store: mqstore.Store, timeout: object, error: type[Exception]) -> None:
    offset = store.append("orders", b"x").physical_offset
    for wait in (store.wait_dispatched, store.wait_durable):
        with pytest.raises(error, match="timeout"):
            wait(offset, timeout)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [None, 1e9, float("inf"), timedelta.max])
def test_a_wait_may_be_as_long_as_it_likes(store: mqstore.Store, timeout: float | timedelta | None) -> None:
    offset = store.append("orders", b"x").physical_offset
    store.wait_dispatched(offset, timeout)
    store.wait_durable(offset, timeout=timeout)


CALLS = ["append and roll", "append_batch", "flush", "wait_dispatched", "wait_durable", "open and close"]


@pytest.mark.parametrize("call", CALLS)
def test_other_threads_run_while_a_call_writes(
    store: mqstore.Store, path: Path, lets_others_run: LetsOthersRun, call: str
) -> None:
    rows = [b"x" * 1000] * 100

    def flush() -> None:
        store.append("orders", b"x")
        store.flush()

    def wait_durable() -> None:
        store.wait_durable(store.append("orders", b"x").physical_offset)

    def wait_dispatched() -> None:
        store.wait_dispatched(store.append_batch(rows, "orders")[-1])

    calls: dict[str, Callable[[], object]] = {
        "append and roll": lambda: store.append("orders", b"x" * 60_000),
        "append_batch": lambda: store.append_batch(rows, "orders"),
        "flush": flush,
        "wait_durable": wait_durable,
        "wait_dispatched": wait_dispatched,
        "open and close": lambda: mqstore.open(path.with_name("other"), "a", **SMALL).close(),
    }
    assert lets_others_run(calls[call])


def test_a_closed_store_is_whole(store: mqstore.Store, path: Path) -> None:
    assert (path / "abort").exists()
    with store:
        for number in range(500):
            store.append("orders", b"x" * number, queue_id=number % 3)
    assert store.closed
    assert not (path / "abort").exists()
    store.close()
    with mqstore.open(path) as reader:
        assert reader.recovery.clean_exit
        assert reader.recovery.undispatched == 0
        assert sorted(map(len, bodies(reader))) == list(range(500))


def test_a_store_that_nobody_refers_to_is_closed(path: Path) -> None:
    store = mqstore.open(path, "x", **SMALL)
    store.append("orders", b"x")
    topics = store.topics
    del store
    assert (path / "abort").exists()  # what came from a store keeps it open
    del topics
    assert not (path / "abort").exists()


@pytest.mark.parametrize(
    "code",
    [
        "store = mqstore.open(sys.argv[1], 'a'); store.append('orders', b'x')",
        "a = [mqstore.open(sys.argv[1], 'a')]; a.append(a); a[0].append('orders', b'x')",
        "store = mqstore.open(sys.argv[1], 'a'); store.append('orders', b'x'); raise SystemExit(0)",
        "def use(store):\n    store.append('orders', b'x')\nuse(mqstore.open(sys.argv[1], 'a'))",
    ],
    ids=["at the end", "in a cycle", "at an exit", "in a function"],
)
def test_a_program_that_ends_closes_its_store(path: Path, code: str) -> None:
    assert python(code, path).wait() == 0
    with mqstore.open(path, "r+") as store:
        assert bodies(store) == [b"x"]


CANNOT_CLOSE = """
import builtins, resource
store = mqstore.open(sys.argv[1], "a")
store.append("orders", b"x")
match sys.argv[2]:
    case "sys":
        sys.keep = store
        del store
    case "builtins":
        builtins.keep = store
        del store
    case "cycle":
        store = [store]
        store.append(store)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
"""


@pytest.mark.parametrize("held_by", ["the program", "a cycle", "sys", "builtins"])
def test_a_failed_close_at_interpreter_exit_is_reported_without_a_panic(path: Path, held_by: str) -> None:
    command = [sys.executable, "-c", f"import mqstore, sys\n{CANNOT_CLOSE}", str(path), held_by.split()[-1]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert "panick" not in ended.stderr.lower()
    assert "Too many open files" in ended.stderr or held_by in ("sys", "builtins"), ended.stderr
    with mqstore.open(path, "a") as store:
        assert bodies(store) == [b"x"]


KILLED = """
import itertools
store = mqstore.open(sys.argv[1], "a", mapped_file_size_commit_log=65_536)
for number in itertools.count():
    store.append("orders", b"%d" % number, queue_id=number % 4, keys=f"o-{number}")
    print(number, flush=True)
"""


def test_what_a_killed_writer_appended_is_read(path: Path) -> None:
    writer = python(KILLED, path)
    assert writer.stdout is not None
    for line in writer.stdout:
        if int(line) >= 3000:
            break
    writer.kill()
    appended = 3000 + len(writer.stdout.readlines())
    writer.wait()
    with mqstore.open(path) as reader:
        assert not reader.recovery.clean_exit
        read = {int(body) for body in bodies(reader)}
        assert read >= set(range(appended + 1))
        assert read == set(range(len(read)))
        assert [message.body for message in reader.query("orders", f"o-{appended}")] == [b"%d" % appended]
    with mqstore.open(path, "r+") as again:
        assert not again.recovery.clean_exit
        assert "after a crash" in repr(again.recovery)
        assert "\n" not in repr(again.recovery)
        assert {int(body) for body in bodies(again)} == read
        again.append("orders", b"%d" % len(read))
    with mqstore.open(path) as reader:
        assert reader.recovery.clean_exit
        assert reader.recovery.bytes_cut == 0
        assert sorted(int(body) for body in bodies(reader)) == list(range(len(read) + 1))


READER = """
path = sys.argv[1]
for line in sys.stdin:
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        assert [int(message.body) for message in queue] == list(range(len(queue)))
        print(len(queue), int(line), store.recovery.clean_exit, flush=True)
"""


def test_another_process_reads_every_append_while_the_writer_continues(store: mqstore.Store, path: Path) -> None:
    reader = python(READER, path)
    assert reader.stdin is not None
    assert reader.stdout is not None
    number = 0
    for _ in range(10):
        for _ in range(number + 50):
            store.append("orders", b"%d" % number)
            number += 1
        print(number, file=reader.stdin, flush=True)
        found, asked, clean = reader.stdout.readline().split()
        assert int(found) == int(asked) == number
        assert clean == "False"
    reader.stdin.close()
    assert reader.wait() == 0


def test_a_fork_leaves_the_store_to_its_parent(store: mqstore.Store, path: Path) -> None:
    store.append("orders", b"first")
    store.flush()
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (lambda: store.append("orders", b"child"), lambda: store.topics["orders"].queues[0][0], store.flush):
            try:
                use()
            except mqstore.ClosedError as error:
                refused += 'mode="r"' in str(error)
        own = bodies(mqstore.open(path)) == [b"first"]
        store.close()
        os._exit(0 if (refused, own, store.closed) == (3, True, True) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (path / "abort").exists()
    assert store.append("orders", b"second").queue_offset == 1
    store.close()
    with mqstore.open(path, "r+") as again:
        assert bodies(again) == [b"first", b"second"]


def test_a_fork_that_ends_closes_nothing(path: Path) -> None:
    code = """
store = mqstore.open(sys.argv[1], "a")
store.append("orders", b"first")
if os.fork() == 0:
    sys.exit()
os.wait()
assert os.path.exists(sys.argv[1] + "/abort")
store.append("orders", b"second")
"""
    assert python(code, path).wait() == 0
    with mqstore.open(path, "r+") as store:
        assert bodies(store) == [b"first", b"second"]


def test_a_fork_that_lives_on_does_not_keep_the_lock(store: mqstore.Store, path: Path) -> None:
    waits, go_on = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go_on)
        os.read(waits, 1)
        os._exit(0)
    os.close(waits)
    try:
        store.close()
        mqstore.open(path, "a").close()
    finally:
        os.close(go_on)
        os.waitpid(child, 0)


def test_a_writer_does_not_pickle_and_its_messages_do(store: mqstore.Store) -> None:
    with pytest.raises(TypeError, match="pickle its path"):
        pickle.dumps(store)
    message = store.message_at(store.append("orders", b"x").physical_offset)
    assert pickle.loads(pickle.dumps(message)) == message


@pytest.fixture
def failing(path: Path) -> Iterator[mqstore.Store]:
    """A store in which nothing can be dispatched any more."""
    store = mqstore.open(path, "x", **SMALL)
    shutil.rmtree(path / "consumequeue")
    (path / "consumequeue").touch()
    yield store
    with suppress(mqstore.PoisonedError):
        store.close()


def wait_until_failed(store: mqstore.Store) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            store.wait_durable(2**62)
        except mqstore.PoisonedError:
            return
        except ValueError:
            time.sleep(0.001)
    raise AssertionError("the store has not failed")


def test_a_store_that_failed_takes_no_more_and_says_why(failing: mqstore.Store, path: Path) -> None:
    first = failing.append("orders", b"x")
    wait_until_failed(failing)
    for use in (lambda: failing.append("orders", b""), lambda: failing.append_batch([b""], "orders")):
        with pytest.raises(mqstore.PoisonedError, match="reopen") as raised:
            use()
        error = raised.value
        assert isinstance(error, OSError)
        assert error.errno == errno.ENOTDIR
        assert error.status == "SERVICE_NOT_AVAILABLE"
        assert isinstance(error.__cause__, mqstore.StoreIOError)
    assert error.stored == 0
    with pytest.raises(mqstore.PoisonedError, match="reopen"):
        failing.flush()
    with pytest.raises(mqstore.PoisonedError) as raised:
        failing.wait_durable(2**62)
    assert raised.value.flushed_offset == failing.flushed_offset
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.errno, str(again), again.flushed_offset) == (error.errno, str(raised.value), failing.flushed_offset)
    assert failing.message_at(first.physical_offset).body == b"x"


def test_a_store_that_failed_is_unclean(failing: mqstore.Store, path: Path) -> None:
    failing.append("orders", b"x")
    wait_until_failed(failing)
    with pytest.raises(mqstore.PoisonedError):
        failing.close()
    assert failing.closed
    failing.close()
    (path / "consumequeue").unlink()
    with mqstore.open(path, "a") as again:
        assert bodies(again) == [b"x"]
    with mqstore.open(path) as reader:
        assert bodies(reader) == [b"x"]


def test_a_failed_segment_allocation_reports_the_number_stored(store: mqstore.Store, path: Path) -> None:
    store.append("orders", b"x")
    # The second segment is made ahead. A directory has the name of the third.
    while len(list((path / "commitlog").iterdir())) < 2:
        time.sleep(0.001)
    in_the_way = path / f"mqstore-new-{2 * 65_536:020}"
    in_the_way.mkdir()
    with pytest.raises(mqstore.StoreIOError) as raised:
        store.append_batch([b"x" * 1000] * 200, "orders")
    assert raised.value.status == "CREATE_MAPPED_FILE_FAILED"
    assert 100 < raised.value.stored < 140
    with pytest.raises(mqstore.StoreIOError) as raised:
        store.append("orders", b"x" * 2000)
    assert raised.value.status == "CREATE_MAPPED_FILE_FAILED"
    in_the_way.rmdir()
    store.append_batch([b"x" * 1000] * 100, "orders")


WITHOUT_DESCRIPTORS = """
import errno, resource, time
path = sys.argv[1]
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

def take_all():
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        assert error.errno == errno.EMFILE

def give_back():
    while taken:
        os.close(taken.pop())

def refused(call):
    try:
        call()
    except mqstore.StoreIOError as error:
        assert isinstance(error, OSError) and error.errno == errno.EMFILE, error
        return error
    raise AssertionError("not refused")

taken, tries = [], 10
with mqstore.open(path, "x", mapped_file_size_commit_log=65_536) as store:
    store.wait_dispatched(store.append("orders", b"first").physical_offset)
    while len(os.listdir(path + "/commitlog")) < 2:
        time.sleep(0.001)
    take_all()
    for number in range(100):
        last = store.append(f"topic{number % 10}", b"x", keys="k")
    time.sleep(0.5)
    assert store.flush() > last.physical_offset
    while True:
        try:
            store.append("orders", b"x" * 60_000)  # into the segment that was made ahead
            break
        except mqstore.StoreIOError as error:
            # The descriptors went while the segment was made.
            assert error.errno == errno.EMFILE and tries > 0, error
            tries -= 1
            give_back()
            time.sleep(0.5)
            take_all()
    for _ in range(2):
        assert refused(lambda: store.append("orders", b"x" * 60_000)).status == "CREATE_MAPPED_FILE_FAILED"
    give_back()
    store.wait_dispatched(store.append("orders", b"x" * 60_000).physical_offset, timeout=20)
    assert [len(store.topics[f"topic{number}"].queues[0]) for number in range(10)] == [10] * 10
    take_all()
    store.append("new", b"x")
    time.sleep(0.2)
    give_back()
with mqstore.open(path) as reader:
    assert reader.recovery.clean_exit
    take_all()
    for _ in range(2):
        refused(lambda: reader.topics["orders"].queues[0][0])
        refused(lambda: reader.message_at(0))
        refused(lambda: list(reader.query("topic1", "k")))
        refused(lambda: mqstore.open(path))
    give_back()
    assert reader.topics["orders"].queues[0][0].body == b"first"
    assert len(list(reader.query("topic1", "k"))) == 10
    assert mqstore.open(path).topics["new"].queues[0][0].body == b"x"
"""


def test_a_process_without_descriptors_gets_an_error_and_recovers(path: Path) -> None:
    assert python(WITHOUT_DESCRIPTORS, path).wait() == 0


FULL = """
import errno, subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", sys.argv[1]], check=True)
small = {"mapped_file_size_commit_log": 262_144, "max_hash_slot_num": 200, "max_index_num": 2000}
with mqstore.open(sys.argv[1] + "/store", "x", **small) as store:
    stored = 0
    try:
        while True:
            stored += len(store.append_batch([b"x" * 1000] * 100, "orders"))
    except mqstore.DiskFullError as error:
        assert (error.errno, error.status) == (errno.ENOSPC, "CREATE_MAPPED_FILE_FAILED"), error
        stored += error.stored
    try:
        while True:
            store.append("orders", b"y")
            stored += 1
    except mqstore.DiskFullError as error:
        assert isinstance(error, OSError), error
    subprocess.run(["mount", "-o", "remount,size=4m", sys.argv[1]], check=True)
    store.append("orders", b"z")
    last = store.append("orders", b"z")
    store.wait_dispatched(last.physical_offset)
    assert len(store.topics["orders"].queues[0]) == stored + 2, stored
with mqstore.open(sys.argv[1] + "/store", "r+") as store:
    assert len(store.topics["orders"].queues[0]) == stored + 2
"""


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0, reason="may not mount a small file system"
)
def test_a_full_disk_is_reported_and_appending_continues_with_new_room(tmp_path: Path) -> None:
    code = f"import mqstore, sys\n{FULL}"
    subprocess.run(["unshare", "-rm", sys.executable, "-c", code, tmp_path], check=True)


def test_errors_survive_pickling(store: mqstore.Store, path: Path) -> None:
    raised: list[mqstore.StoreError] = []
    for use in (
        lambda: store.append("orders", b"", properties={"k": "x" * 40_000}),
        lambda: mqstore.open(path, "a"),
        lambda: mqstore.open(path, "x"),
        lambda: store.append_batch([("", b"")]),
    ):
        with pytest.raises(mqstore.StoreError) as error:
            use()
        raised.append(error.value)
    for error in raised:
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (str(copy), copy.args, copy.status) == (str(error), error.args, error.status)
    assert raised[0].status == "PROPERTIES_SIZE_EXCEEDED"
