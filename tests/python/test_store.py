"""Opening, closing, and pickling stores."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from encoder import Encoder

import mqstore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    encoder = Encoder(tmp_path / "store")
    for number in range(100):
        encoder.append("orders", b"%d" % number, keys=[f"o-{number}"], unique_key=f"U{number}")
    return encoder.write()


def test_a_store_is_a_context_manager(path: Path) -> None:
    with mqstore.open(path) as store:
        assert not store.closed
        assert (store.mode, store.path) == ("r", str(path))
        assert (store.min_physical_offset, store.max_physical_offset) == (0, store.recovery.log_end)
    assert store.closed
    store.close()


def test_a_path_may_be_text_or_path_and_becomes_absolute(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    for given in ("store", Path("store"), os.fsencode("store").decode()):
        with mqstore.open(given) as store:
            assert store.path == str(path)


def test_a_path_may_hold_any_bytes(path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(path.parent) + b"/odd \xff name"))
    path.rename(odd)
    with mqstore.open(odd) as store:
        assert store.path == str(odd)
        assert len(pickle.loads(pickle.dumps(store)).topics["orders"].queues[0]) == 100


def test_what_is_no_store_says_what_was_expected_and_found(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(mqstore.NotAStoreError, match=r"commitlog.*notes\.txt"):
        mqstore.open(tmp_path)
    for mode in ("r", "r+"):
        with pytest.raises(FileNotFoundError, match="no such directory") as raised:
            mqstore.open(tmp_path / "absent", mode)
        assert type(raised.value) is mqstore.NotAStoreError
        assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, str(tmp_path / "absent"))
        assert pickle.loads(pickle.dumps(raised.value)).args == raised.value.args
    with pytest.raises(mqstore.StoreError):
        mqstore.open(tmp_path / "notes.txt")


def test_the_folder_of_segments_itself_is_pointed_out(path: Path) -> None:
    with pytest.raises(mqstore.NotAStoreError, match="directory above"):
        mqstore.open(path / "commitlog")


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize(
    ("option", "given", "file", "found"),
    [
        ("mapped_file_size_commit_log", 8192, "commitlog", 16_384),
        ("mapped_file_size_consume_queue", 500, "consumequeue", 1000),
        ("max_index_num", 100, "index", 40 + 4 * 200 + 20 * 2000),
    ],
)
def test_a_size_option_that_the_files_contradict_is_a_wrong_value(
    path: Path, mode: Any, option: str, given: int, file: str, found: int
) -> None:
    options: dict[str, Any] = {option: given}
    if option == "max_index_num":
        options["max_hash_slot_num"] = 200
    words = rf"{option}.*{given}.*{file}.*{found}|{file}.*{found}.*{option}.*{given}"
    with pytest.raises(ValueError, match=words) as raised, mqstore.open(path, mode, **options) as store:
        store.query("orders", "o-1")
    assert not isinstance(raised.value, mqstore.CorruptError)


@pytest.mark.parametrize("given", [32_768, 131_072])
def test_a_wrong_size_for_a_store_of_one_segment_is_a_wrong_value(tmp_path: Path, given: int) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=65_536) as store:
        store.append("orders", b"x")
    for mode in ("r", "r+", "a"):
        with pytest.raises(
            ValueError, match=rf"mapped_file_size_commit_log.*{given}.*commitlog.*65536.*state that size"
        ) as raised:
            mqstore.open(path, mode, mapped_file_size_commit_log=given)
        assert not isinstance(raised.value, mqstore.CorruptError)
    with mqstore.open(path, mapped_file_size_commit_log=65_536) as store:
        assert len(store.topics["orders"].queues[0]) == 1


def test_a_segment_of_another_length_is_corrupt_and_named(path: Path) -> None:
    shutil.copy(path / "commitlog" / f"{0:020}", path / "commitlog" / f"{16384:020}")
    with (path / "commitlog" / f"{0:020}").open("ab") as segment:
        segment.write(b"more")
    with pytest.raises(mqstore.CorruptError) as raised:
        mqstore.open(path).message_at(0)
    error = raised.value
    assert isinstance(error, ValueError)
    assert Path(error.path).parent == path / "commitlog"
    assert error.reason in str(error)
    assert pickle.loads(pickle.dumps(error)).args == error.args


def test_a_damaged_message_says_what_can_be_done(path: Path) -> None:
    with mqstore.open(path) as store:
        damaged = store.topics["orders"].queues[0][50].physical_offset
    with (path / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(damaged + 88)  # the body
        segment.write(b"?")
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        for read in (lambda: queue[50], lambda: store.message_at(damaged)):
            with pytest.raises(
                mqstore.CorruptError, match=rf'physical offset {damaged} .*errors="skip".*recovery="salvage"'
            ) as raised:
                read()
            assert raised.value.offset == damaged
        assert queue[51].body == b"51"


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda store: store.get(7, 0, 0), "topic is a str, not int"),
        (lambda store: store.get("t", "0", 0), "queue_id is an int, not str"),
        (lambda store: store.get("t", 0, None), "offset is an int, not NoneType"),
        (lambda store: store.get("t", 0, 0, "1"), "max_messages is an int, not str"),
        (lambda store: store.get("t", 0, 0, tags=7), "tags is a str, not int"),
        (lambda store: store.query(7, "k"), "topic is a str, not int"),
        (lambda store: store.query("t", 7), "key is a str, not int"),
        (lambda store: store.query("t", "k", since="now"), "since: expected a datetime"),
        (lambda store: store.query("t", "k", until="now"), "until: expected a datetime"),
        (lambda store: store.query("t", "k", limit="1"), "limit is an int, not str"),
        (lambda store: store.message(7), "id is a str, not int"),
        (lambda store: store.message_at("7"), "physical_offset is an int, not str"),
        (lambda store: store.topics["orders"].queues[0].offset_at("now"), "time: expected a datetime"),
        (lambda store: store.topics["orders"].queues[0].offset_at(0, 7), "side is a str, not int"),
        (lambda store: store.topics["orders"].queues[0][:].batches(7), "columns is a sequence of names"),
        (lambda store: store.topics["orders"].queues[0][:].batches("tags"), "columns is a sequence of names.*'tags'"),
        (lambda store: store.get("t", 0, 0, bounded=1), "bounded is True or False, not 1"),
        (lambda store: store.get("t", 0, 0, errors=1), 'errors: expected "raise" or "skip", got 1'),
        (lambda store: store.message("id", walk="yes"), "walk is True or False, not 'yes'"),
        (lambda store: store.verify(deep="yes"), "deep is True or False, not 'yes'"),
        (lambda store: store.scan(reverse="yes"), "reverse is True or False, not 'yes'"),
        (lambda store: store.scan(decode_body=0), "decode_body is True or False, not 0"),
        (lambda store: store.copy_to(f"{store.path}-copy", keep_store_time="no"), "keep_store_time is True or False, not 'no'"),
        (lambda store: mqstore.repair(store.path, dry_run="yes"), "dry_run is True or False, not 'yes'"),
        (lambda store: mqstore.rebuild(store.path, dry_run=None), "dry_run is True or False, not None"),
        (lambda store: mqstore.open(store.path, sigbus_guard="yes"), "option sigbus_guard: expected True or False, got yes"),
        (lambda store: store.topics[7], "the name of a topic is a str, not int"),
        (lambda store: store.topics["orders"].queues["0"], "queues are indexed by int or slice, not str"),
        (lambda store: type(store)(store.path), r"mqstore.open\(path\) opens one"),
        (lambda store: store.topics["orders"].queues[0][:].batches(max_bytes="1"), "max_bytes is an int, not str"),
    ],
)
def test_what_has_the_wrong_type_is_named(path: Path, call: Callable[[mqstore.Store], object], argument: str) -> None:
    with mqstore.open(path) as store, pytest.raises(TypeError, match=argument):
        call(store)


def test_what_the_system_refuses_is_an_oserror(path: Path) -> None:
    (path / "checkpoint").unlink()
    (path / "checkpoint").symlink_to("checkpoint")
    with pytest.raises(OSError, match="checkpoint") as raised:
        mqstore.open(path)
    assert isinstance(raised.value, mqstore.StoreIOError)
    assert (raised.value.errno, raised.value.filename) == (errno.ELOOP, str(path / "checkpoint"))
    (path / "checkpoint").unlink()
    (path / "checkpoint").mkdir()
    with pytest.raises(mqstore.StoreIOError, match=r"checkpoint: expected a regular file, found a directory"):
        mqstore.open(path)


def test_options_are_rocketmqs_names(path: Path) -> None:
    options = {
        "mapped_file_size_commit_log": 16_384,
        "mapped_file_size_consume_queue": 1000,
        "max_hash_slot_num": 200,
        "max_index_num": 2000,
        "access_message_in_memory_max_ratio": 40,
        "max_transfer_bytes_on_message_in_memory": 262_144,
        "max_transfer_count_on_message_in_memory": 32,
        "max_transfer_bytes_on_message_in_disk": 65_536,
        "max_transfer_count_on_message_in_disk": 8,
        "max_filter_message_size": 16_000,
        "check_crc_on_recover": True,
        "message_delay_level": "1s 5s",
        "max_message_size": 1000,
        "enabled_append_prop_crc": True,
        "flush_disk_type": "SYNC_FLUSH",
        "sync_flush_timeout": 1000,
        "flush_interval_commit_log": 100,
        "flush_commit_log_least_pages": 0,
        "flush_commit_log_thorough_interval": 1000,
        "flush_commit_log_timed": False,
        "index_tags": True,
        "geometry": "broker",
        "sigbus_guard": True,
    }
    with mqstore.open(path, **options) as store:
        assert [message.unique_key for message in store.query("orders", "o-7")] == ["U7"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"flushes": 1}, TypeError, "flushes"),
        ({"max_index_num": "many"}, TypeError, "max_index_num: expected an int .* got many"),
        ({"max_filter_message_size": -1}, ValueError, "max_filter_message_size: expected an int from 0 .* got -1"),
        ({"sigbus_guard": 7.5}, TypeError, "sigbus_guard: expected True or False, got 7.5"),
        ({"max_index_num": 400}, ValueError, "max_hash_slot_num"),
        ({"mapped_file_size_commit_log": 5000}, ValueError, "4096"),
        ({"message_delay_level": "soon"}, ValueError, "soon"),
        ({"geometry": "small"}, ValueError, "geometry.*broker"),
        ({"geometry": "broker"}, ValueError, "state that size, or make geometry None"),
        ({"max_message_size": "1k"}, TypeError, "max_message_size"),
    ],
)
def test_an_option_that_cannot_be_is_named(path: Path, options: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        mqstore.open(path, **options)


def test_every_default_of_store_config_is_taken(path: Path) -> None:
    with mqstore.open(path, **dataclasses.asdict(mqstore.StoreConfig())) as store:
        assert len(store.topics["orders"].queues[0]) == 100


def test_a_path_may_be_bytes_and_pickles(path: Path) -> None:
    with mqstore.open(os.fsencode(path)) as store:
        assert store.path == str(path)
        assert len(pickle.loads(pickle.dumps(store)).topics) == 1


@pytest.mark.parametrize("mode", ["r", "r+", "a", "x"])
def test_no_path_is_no_store(mode: Any) -> None:
    for nothing in ("", b""):
        with pytest.raises(FileNotFoundError, match="empty path") as raised:
            mqstore.open(nothing, mode)
        assert isinstance(raised.value, mqstore.NotAStoreError)


def test_arguments_of_the_wrong_type_are_named(path: Path) -> None:
    wrong: Any
    for wrong in (None, 5, [path]):
        with pytest.raises(TypeError, match=r"path: expected str, bytes or os\.PathLike"):
            mqstore.open(wrong)
        with pytest.raises(TypeError, match="mode is a str, not "):
            mqstore.open(path, wrong)


def test_what_the_system_refuses_is_the_builtin_exception_of_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        mqstore.open(tmp_path / "missing" / "store", "a")
    assert isinstance(raised.value, mqstore.StoreIOError)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, str(tmp_path / "missing" / "store"))
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), again.errno, again.filename) == (type(raised.value), errno.ENOENT, raised.value.filename)
    # A superuser is refused nothing, so that the numbers are given here.
    for number, builtin in [(errno.EACCES, PermissionError), (errno.EPERM, PermissionError), (errno.EIO, OSError)]:
        error = mqstore.StoreIOError(number, "text", "file")
        assert isinstance(error, builtin)
        assert (error.errno, error.strerror, error.filename) == (number, "text", "file")
        assert type(error).__name__ in mqstore.__all__
    assert type(mqstore.StoreIOError(errno.EIO, "text")) is type(mqstore.StoreIOError("text")) is mqstore.StoreIOError


def test_a_file_is_no_directory_for_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(FileExistsError, match="wants a missing or an empty directory"):
        mqstore.open(tmp_path / "file", "x")


def test_no_row_is_stored_where_nothing_says_so() -> None:
    assert mqstore.StoreError().stored == 0


def test_every_use_after_close_raises_and_messages_stay(path: Path) -> None:
    store = mqstore.open(path)
    topics = store.topics
    topic = topics["orders"]
    queues = topic.queues
    queue = queues[0]
    part = queue[10:20]
    batches = part.batches()
    under_way, batch_under_way = iter(queue), iter(queue[:].batches(max_bytes=1000))
    message = next(under_way)
    next(batch_under_way)
    store.close()
    uses: list[Callable[[], object]] = [
        lambda: store.topics,
        lambda: store.recovery,
        lambda: store.min_physical_offset,
        lambda: store.max_physical_offset,
        lambda: store.get("orders", 0, 0),
        lambda: store.query("orders", "o-1"),
        lambda: store.message("U1"),
        lambda: store.message_at(0),
        lambda: store.resolve_offsets(None),
        lambda: store.resolve_keys(None),
        lambda: store.fetch(None),
        lambda: store.__enter__(),
        lambda: pickle.dumps(store),
        lambda: list(topics),
        lambda: topics["orders"],
        lambda: topic.queues,
        lambda: queue.min_offset,
        lambda: len(queue),
        lambda: queue[0],
        lambda: list(queue),
        lambda: queue.offset_at(0),
        lambda: part[0],
        lambda: list(part),
        lambda: part.batches(),
        lambda: list(batches),
        lambda: batches.to_arrow(),
        lambda: next(under_way),
        lambda: next(batch_under_way),
    ]
    for use in uses:
        with pytest.raises(mqstore.ClosedError, match="closed"):
            use()
    assert isinstance(mqstore.ClosedError("x"), ValueError)
    assert message.body == b"0"
    assert bytes(message.body_view) == b"0"
    assert "closed" in repr(store)
    assert "\n" not in repr(queue)


def test_a_store_pickles_as_path_and_options(path: Path) -> None:
    with mqstore.open(path, access_message_in_memory_max_ratio=0) as store:
        copy = pickle.loads(pickle.dumps(store))
        assert copy.path == store.path
        assert copy.get("orders", 0, 0).suggest_pulling_from_slave
    assert [message.body for message in copy.query("orders", "o-5")] == [b"5"]


def test_a_pickle_opens_in_another_process_and_folder(path: Path, tmp_path: Path) -> None:
    pickled = pickle.dumps(mqstore.open(path))
    code = "import pickle, sys; print(len(pickle.load(sys.stdin.buffer).topics['orders'].queues[0]))"
    printed = subprocess.run([sys.executable, "-c", code], input=pickled, cwd=tmp_path, check=True, capture_output=True)
    assert printed.stdout.split() == [b"100"]


def test_a_reader_reopens_itself_after_a_fork(path: Path) -> None:
    store = mqstore.open(path)
    queue = store.topics["orders"].queues[0]
    message = queue[42]
    # What a fork of the parent's reader would still see, a reopened reader does not.
    path.rename(path.with_name("moved"))
    Encoder(path).write()
    child = os.fork()
    if child == 0:
        reopened = len(queue) == 0 and store.max_physical_offset == 0
        os._exit(0 if reopened and message.body == b"42" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert len(queue) == 100


def test_threads_share_a_store(path: Path) -> None:
    store = mqstore.open(path)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for number in range(100):
                assert store.topics["orders"].queues[0][number].body == b"%d" % number
                assert len(store.query("orders", f"o-{number}")) == 1
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_rocksdb_queues_are_refused_and_the_log_is_read(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")
    (path / "consumequeue").mkdir()
    (path / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")
    with mqstore.open(path) as store:
        assert list(store.topics) == ["orders"]
        for use in (lambda: store.topics["orders"].queues, lambda: store.get("orders", 0, 0)):
            with pytest.raises(mqstore.UnsupportedFormatError, match="RocksDB") as raised:
                use()
            assert isinstance(raised.value, NotImplementedError)
        assert store.message_at(0).unique_key == "U0"
        assert store.message("U7").body == b"7"
        assert [message.body for message in store.query("orders", "o-9")] == [b"9"]
        shutil.rmtree(path / "index")
    with mqstore.open(path) as store:
        assert [message.body for message in store.query("orders", "o-9")] == [b"9"]


def test_batch_queues_are_refused_and_the_log_is_read(golden: Path) -> None:
    with mqstore.open(golden / "533_batchcq") as store:
        (topic,) = store.topics
        with pytest.raises(mqstore.UnsupportedFormatError):
            store.topics[topic].queues  # noqa: B018
        with pytest.raises(mqstore.UnsupportedFormatError):
            store.get(topic, 1, 0)
        message = store.message_at(store.min_physical_offset)
        assert message.topic == topic
        assert store.message(message.message_id) == message
        assert message.unique_key
        assert message in store.query(topic, message.unique_key)


def test_shown_in_one_line_and_as_html(path: Path) -> None:
    with mqstore.open(path) as store:
        assert repr(store) == f'<mqstore.Store "{path}" mode="r", log 0..{store.max_physical_offset}>'
        assert str(path) in store._repr_html_()
        assert repr(store.query("orders", "o-1")).startswith("<mqstore.QueryResult 1 messages, complete=True, covers ")


def test_every_public_name_is_documented() -> None:
    for name in mqstore.__all__:
        item = getattr(mqstore, name)
        assert inspect.getdoc(item), name
        for attribute, value in vars(item).items() if isinstance(item, type) else ():
            if not attribute.startswith("_") and not isinstance(value, str | None):
                assert inspect.getdoc(value), f"{name}.{attribute}"


@pytest.fixture(scope="module")
def without_index(events: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The events, unclean and without an index: whoever asks walks the log."""
    path = shutil.copytree(events, tmp_path_factory.mktemp("walked") / "store", ignore=shutil.ignore_patterns("index"))
    (path / "abort").touch()
    return path


@pytest.mark.parametrize("call", ["open", "query", "resolve_keys", "iteration", "batches", "fetch", "stream"])
def test_other_threads_run_while_a_call_reads(
    without_index: Path, lets_others_run: Callable[[Callable[[], object]], bool], call: str
) -> None:
    store = mqstore.open(without_index)
    topics = list(store.topics.values())
    queue = max((queue for topic in topics for queue in topic.queues), key=len)
    positions = queue[:].batches(["physical_offset"]).to_arrow()
    keys = pa.table({"topic": [queue.topic], "key": ["no such key"]})
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: mqstore.open(without_index),
        "query": lambda: store.query(queue.topic, "no such key"),
        "resolve_keys": lambda: store.resolve_keys(keys),
        "iteration": lambda: sum(1 for _ in queue),
        "batches": lambda: queue[:].batches().to_arrow(),
        "fetch": lambda: list(store.fetch(positions)),
        "stream": lambda: pa.table(queue[:]),
    }
    assert lets_others_run(calls[call])


def test_a_file_that_shrinks_under_a_reader_is_corruption_and_no_signal(path: Path) -> None:
    encoder = Encoder(path.with_name("shrinking"))
    for _ in range(40):
        encoder.append("orders", b"x" * 1000)
    store = mqstore.open(encoder.write())
    queue = store.topics["orders"].queues[0]
    message, view = queue[3], queue[3].body_view
    os.truncate(encoder.path / "commitlog" / f"{0:020}", 0)
    for use in (lambda: message.body, lambda: message.topic, lambda: repr(message), lambda: pickle.dumps(message)):
        with pytest.raises(mqstore.CorruptError, match=f"{0:020}"):
            use()
    assert bytes(view) in (b"x" * 1000, bytes(1000))
    for use in (lambda: queue[5], lambda: list(queue[4:7]), lambda: queue[4:7].batches().to_arrow()):
        with pytest.raises(mqstore.CorruptError, match=f"{0:020}"):
            use()
    assert queue[-1].body == b"x" * 1000


def test_sixty_four_callers_start_no_thread_of_the_store(golden: Path) -> None:
    with mqstore.open(golden / "491_multifile") as store:
        # A thread of an earlier test may be ending just now. So threads are counted by their ids.
        before = set(os.listdir("/proc/self/task"))
        ready, done = threading.Barrier(65), threading.Barrier(65)

        def call() -> None:
            ready.wait()
            store.get("TopicF", 0, 0)
            list(store.query("TopicF", key="U00000007"))
            done.wait()

        callers = [threading.Thread(target=call) for _ in range(64)]
        for caller in callers:
            caller.start()
        ready.wait()
        assert set(os.listdir("/proc/self/task")) - before <= {str(caller.native_id) for caller in callers}
        done.wait()
        for caller in callers:
            caller.join()
        # A thread that was joined may take a moment until the system has forgotten it.
        deadline = time.monotonic() + 60
        while not set(os.listdir("/proc/self/task")) <= before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert set(os.listdir("/proc/self/task")) <= before


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder where thousands of segments are made in a moment, if there is one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def test_a_fork_opens_stores_whatever_its_parent_was_doing(path: Path, in_memory: Path) -> None:
    """Opens more files than stay mapped: the parent's thread maps and releases them all the time."""
    with mqstore.open(in_memory / "many", "x", mapped_file_size_commit_log=4096) as many:
        offsets = list(many.append_batch([b"x" * 3500] * 4000, "orders"))
    reader, over = mqstore.open(in_memory / "many"), threading.Event()

    def read() -> None:
        while not over.is_set():
            for offset in offsets:
                reader.message_at(offset)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(50):
            child = os.fork()
            if child == 0:
                signal.alarm(60)  # only a hang lasts this long
                with mqstore.open(path) as store:
                    os._exit(0 if len(list(store.topics["orders"].queues[0])) == 100 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("unit", [1, 1_000_000, 1_000_000_000], ids=["s", "us", "ns"])
def test_a_time_in_other_units_than_ms_is_refused_and_says_which(tmp_path: Path, unit: int) -> None:
    time = 1_767_225_600 * unit
    expected = "looks like " + ("seconds" if unit == 1 else "microseconds or nanoseconds")
    with mqstore.open(tmp_path / "new", "x") as store:
        store.append("orders", b"x", keys=["k"])
        for call in (
            lambda: store.append("orders", b"x", born_time=time),
            lambda: store.append_batch([{"topic": "orders", "body": b"x", "born_time": time}]),
            lambda: store.query("orders", "k", since=time),
            lambda: store.query("orders", "k", until=time),
            lambda: store.topics["orders"].queues[0].offset_at(time),
        ):
            with pytest.raises(ValueError, match=expected):
                call()
        assert len(store.query("orders", "k", since=0, until=2**63 - 1)) == 1
        assert len(store.query("orders", "k", since=-1, until=datetime(2300, 1, 1, tzinfo=UTC))) == 1
        assert store.topics["orders"].queues[0].offset_at(datetime(1971, 1, 1, tzinfo=UTC)) == 0
        assert len(store.topics["orders"].queues[0]) == 1


def test_how_many_messages_a_get_gives(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "new", "x") as store:
        store.append_batch([b"x"] * 100, "orders")
        assert [len(store.get("orders", 0, 0, most)) for most in (0, 1, 2, 32, 33, 1000)] == [1, 1, 2, 32, 32, 32]
        assert [len(store.get("orders", 0, 0, most, bounded=False)) for most in (0, 33, 1000)] == [1, 33, 100]
        with pytest.raises(ValueError, match="max_messages is -1: expected an int from 0"):
            store.get("orders", 0, 0, -1)


def test_a_closed_store_still_shows_what_it_was(path: Path) -> None:
    with mqstore.open(path) as store:
        assert "log ends" in store._repr_html_()  # type: ignore[attr-defined]
    table = store._repr_html_()  # type: ignore[attr-defined]
    assert table.startswith("<table>")
    assert str(path) in table
    assert "closed" in table


@pytest.mark.parametrize("tags", ["a\x01b", "a\x02b", "\n", "\x7f", "\x85"])
def test_a_tag_has_no_control_character(tmp_path: Path, tags: str) -> None:
    with mqstore.open(tmp_path / "new", "x") as store:
        for call in (
            lambda: store.append("orders", b"x", tags=tags),
            lambda: store.append_batch([("orders", b"x", tags)]),
            lambda: store.append_batch([{"topic": "orders", "body": b"x", "tags": tags}]),
        ):
            with pytest.raises(mqstore.IllegalMessageError, match="a tag has no control character"):
                call()
        assert store.max_physical_offset == 0


def test_ipython_completes_the_names_of_topics(path: Path) -> None:
    with mqstore.open(path) as store:
        assert store.topics._ipython_key_completions_() == list(store.topics)  # type: ignore[attr-defined]
