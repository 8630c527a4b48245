"""A job reads the snapshot of its plan, or fails."""

from __future__ import annotations

import json
import pickle
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

import mqstore
import mqstore.spark
from mqstore.spark import _read, _snapshot, fetch, resolve_keys, resolve_offsets
from mqstore.spark._partitions import QueueRange, Stretch
from mqstore.spark.resolve import _fetched
from mqstore.spark.source import MessageDataSource, MessageReader
from mqstore.spark.stores import plan as snapshots

SEGMENT = 8192
MESSAGES = 400
# The size of a queue entry, and the offset of the field queue offset in a record.
ENTRY, QUEUE_OFFSET = 20, 20


@pytest.fixture(autouse=True)
def _nothing_open() -> None:
    _snapshot._cache.clear()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Creates a store of 400 messages in two queues and in several segments."""
    return make(tmp_path / "store", b"planned")


def make(path: Path, body: bytes) -> Path:
    with mqstore.open(path, mode="x", mapped_file_size_commit_log=SEGMENT) as store:
        for number in range(MESSAGES):
            store.append("orders", b"%s %d" % (body, number), queue_id=number % 2, keys=[f"k{number}"])
    return path


def expire_half(path: Path) -> None:
    """Removes the oldest segments, as a broker's retention does."""
    segments = sorted((path / "commitlog").iterdir())
    for segment in segments[: len(segments) // 2]:
        segment.unlink()


def replace(path: Path) -> None:
    shutil.rmtree(path)
    make(path, b"another")


def plan(path: Path, **options: str) -> tuple[MessageReader, list[Stretch]]:
    source = MessageDataSource({"path": str(path), "targetPartitionBytes": "4096", **options})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    assert len(parts) > (2 if "queue_offset" not in options.get("columns", "") else 0)
    return pickle.loads(pickle.dumps((reader, parts)))  # type: ignore[no-any-return]


def rows(reader: MessageReader, parts: list[Stretch]) -> list[bytes]:
    return [body.as_py() for part in parts for batch in reader.read(part) for body in batch.column("body")]


def test_a_plan_reads_all_that_it_planned(store: Path) -> None:
    reader, parts = plan(store)
    assert sorted(rows(reader, parts)) == sorted(b"planned %d" % number for number in range(MESSAGES))


@pytest.mark.parametrize("opened_before", [True, False])
@pytest.mark.parametrize("errors", ["raise", "skip", "corrupt_record"])
def test_a_scan_fails_when_planned_messages_expire(store: Path, opened_before: bool, errors: str) -> None:
    reader, parts = plan(store, errors=errors)
    if not opened_before:
        _snapshot._cache.clear()
    expire_half(store)
    with pytest.raises(mqstore.StoreError, match="planned"):
        rows(reader, parts)
    # The rest of the plan is read.
    assert len(rows(reader, parts[-1:])) > 0


def test_a_scan_fails_when_planned_messages_expire_while_a_task_reads(store: Path) -> None:
    reader, parts = plan(store)
    whole = Stretch(None, (parts[0].physical[0], parts[-1].physical[1]))
    _snapshot._cache.clear()
    task = reader.read(whole)
    next(task)
    expire_half(store)
    with pytest.raises(mqstore.StoreError, match="expired since|planned"):
        list(task)


@pytest.mark.parametrize("columns", ["body", "queue_offset"])
def test_expired_messages_are_skipped_and_logged_if_the_job_accepts_it(
    store: Path, caplog: pytest.LogCaptureFixture, columns: str
) -> None:
    reader, parts = plan(store, failOnDataLoss="false", columns=columns)
    expire_half(store)
    left = sum(batch.num_rows for part in parts for batch in reader.read(part))
    assert 100 < left < 300
    assert "have expired" in caplog.text
    with mqstore.open(store) as after:
        assert left == sum(len(queue) for queue in after.topics["orders"].queues)
    reader, parts = plan(make(store.with_name("other"), b"planned"), columns=columns)
    expire_half(store.with_name("other"))
    with pytest.raises(mqstore.StoreError, match="expired after the job was planned"):
        [list(reader.read(part)) for part in parts]


def test_a_scan_of_a_topic_does_not_miss_what_expired_of_others(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x", mapped_file_size_commit_log=SEGMENT) as store:
        for number in range(MESSAGES):
            store.append("late" if number > 300 else "early", b"planned %d" % number)
    reader, parts = plan(tmp_path / "s", topics="late", columns="body", targetPartitionBytes="2000")
    expire_half(tmp_path / "s")
    assert len(rows(reader, parts)) == 99


@pytest.fixture
def replica(tmp_path: Path) -> tuple[Path, Callable[[], None], Callable[[], None]]:
    """Creates a store of a slave, and what receives messages after its 400, and what cuts these again for other ones."""
    slave = make(tmp_path / "master", b"planned").with_name("slave")
    for copy in ("older", "slave"):
        shutil.copytree(tmp_path / "master", tmp_path / copy)

    def follow(master: str, body: bytes) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
        with mqstore.open(tmp_path / master, "a", ha_listen_port=port) as writer:
            for number in range(MESSAGES):
                result = writer.append("orders", b"%s %d" % (body, number), queue_id=number % 2)
            with mqstore.replicate(f"127.0.0.1:{port}", slave) as replica:
                replica.wait(result, timeout=20)

    return slave, lambda: follow("master", b"lost"), lambda: follow("older", b"other")


@pytest.mark.parametrize("errors", ["raise", "skip", "corrupt_record"])
def test_a_task_fails_when_a_slave_cuts_the_log_that_it_reads(
    replica: tuple[Path, Callable[[], None], Callable[[], None]], errors: str
) -> None:
    path, grow, cut = replica
    reader, parts = plan(path, errors=errors)
    grow()
    _snapshot._cache.clear()
    check, cuts = _read._ExpiryCheck.check, [cut]

    def checked(self: _read._ExpiryCheck) -> None:
        # The task has opened its store, and has read nothing yet.
        while cuts:
            cuts.pop()()
        check(self)

    with mock.patch.object(_read._ExpiryCheck, "check", checked):
        with pytest.raises(mqstore.CorruptError, match="the log was cut here"):
            rows(reader, parts[:1])
        # Spark tries the task again.
        assert sorted(rows(reader, parts)) == sorted(b"planned %d" % number for number in range(MESSAGES))


@pytest.mark.parametrize("errors", ["raise", "skip", "corrupt_record"])
def test_a_missing_entry_of_a_log_that_was_cut_fails_the_task(
    replica: tuple[Path, Callable[[], None], Callable[[], None]], errors: str
) -> None:
    path, grow, cut = replica
    reader, _ = plan(path, errors=errors)
    grow()
    snapshot, entries = reader._stores[None].snapshot, QueueRange("orders", 0, 0, 200)
    _snapshot._cache.clear()
    store = snapshot.open()
    cut()
    with pytest.raises(mqstore.CorruptError, match="the log was cut here"):
        list(_read._missing(snapshot, store, entries, [150], reader._scan.read))


def test_a_scan_fails_when_a_longer_store_takes_the_place(store: Path) -> None:
    for columns in ("body", "queue_offset"):
        reader, parts = plan(store, columns=columns)
        shutil.rmtree(store)
        make(store, b"another, longer one")
        with pytest.raises(mqstore.StoreError, match="not the store that the job was planned with"):
            [list(reader.read(part)) for part in parts]


@pytest.mark.parametrize("opened_before", [True, False])
def test_a_scan_fails_when_another_store_takes_the_place(store: Path, opened_before: bool) -> None:
    reader, parts = plan(store)
    if not opened_before:
        _snapshot._cache.clear()
    replace(store)
    for part in parts:
        with pytest.raises(mqstore.StoreError, match="not the store that the job was planned with"):
            rows(reader, [part])


def test_a_scan_fails_if_another_store_replaces_its_store_during_a_task(store: Path) -> None:
    reader, parts = plan(store)
    task: Iterator[pa.RecordBatch] = reader.read(Stretch(None, (0, parts[-1].physical[1])))
    next(task)
    replace(store)
    with pytest.raises(mqstore.StoreError, match="not the store that the job was planned with"):
        list(task)


def test_a_scan_of_queues_fails_if_a_topic_was_created_again(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader, parts = plan(store, columns="queue_offset")
    passing, _ = plan(store, columns="queue_offset", failOnDataLoss="false")
    with mqstore.open(store, "r+") as writer:
        offsets = [writer.append("orders", b"anew", queue_id=number % 2).physical_offset for number in range(MESSAGES)]
    for number, offset in enumerate(offsets):
        with (store / "commitlog" / f"{offset - offset % SEGMENT:020}").open("r+b") as log:
            log.seek(offset % SEGMENT + QUEUE_OFFSET)
            log.write(struct.pack(">q", number // 2))
    for queue in (store / "consumequeue" / "orders").iterdir():
        entries = (queue / f"{0:020}").read_bytes()
        (queue / f"{0:020}").write_bytes(entries[MESSAGES // 2 * ENTRY :] + bytes(MESSAGES // 2 * ENTRY))
    _snapshot._cache.clear()
    with pytest.raises(mqstore.StoreError, match="orders/0 has, at queue offsets of the plan, messages that came after it"):
        [list(reader.read(part)) for part in parts]
    assert sum(batch.num_rows for part in parts for batch in passing.read(part)) == 0
    assert caplog.text.count("the topic was deleted and created again") == 2


def test_a_plan_of_queues_by_an_older_manifest_has_none_of_what_came_since(store: Path) -> None:
    manifest = json.dumps({"": mqstore.spark.manifest(store)})
    with mqstore.open(store, "r+") as writer:
        writer.append("orders", b"later", queue_id=1)
        writer.append("orders", b"later", queue_id=2)
    reader, parts = plan(store, columns="queue_offset", manifests=manifest)
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == MESSAGES


def test_a_store_that_grew_since_is_read_as_planned(store: Path) -> None:
    reader, parts = plan(store)
    with mqstore.open(store, mode="a") as writer:
        for number in range(200):
            writer.append("orders", b"later %d" % number, queue_id=number % 2)
    assert sorted(rows(reader, parts)) == sorted(b"planned %d" % number for number in range(MESSAGES))


@pytest.mark.parametrize("change", [expire_half, replace])
def test_a_snapshot_refuses_a_store_that_lost_something_or_is_another(store: Path, change: Callable[[Path], None]) -> None:
    snapshot = snapshots(store)[None]
    snapshot.open(whole=True)
    change(store)
    with pytest.raises(mqstore.StoreError, match="planned"):
        snapshot.open(whole=True)
    _snapshot._cache.clear()
    with pytest.raises(mqstore.StoreError, match="planned"):
        snapshot.open(whole=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "complaint"), [(expire_half, "expired|NotFoundError"), (replace, "not the store that the job was planned with")]
)
def test_resolving_and_fetching_fail_when_the_store_changed_since(
    spark: SparkSession, store: Path, change: Callable[[Path], None], complaint: str
) -> None:
    references = spark.createDataFrame([("orders", 0, 3)], "topic string, queue_id int, queue_offset long")
    keys = spark.createDataFrame([("orders", "k3")], "topic string, key string")
    offsets = spark.createDataFrame([(0,)], "physical_offset long")
    frames = [
        resolve_offsets(references, store),
        resolve_keys(keys, store),
        fetch(offsets, store),
        fetch(offsets, store, errors="skip"),
        spark.read.format("mqstore").load(str(store)),
    ]
    change(store)
    for frame in frames[:4]:
        with pytest.raises(PythonException, match=complaint):
            frame.collect()
    # Another load takes a new snapshot.
    assert frames[4].count() > 0


@pytest.mark.parametrize("errors", ["raise", "skip"])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_fetch_passes_over_what_expired_if_that_does_not_fail_the_job(
    store: Path, caplog: pytest.LogCaptureFixture, errors: Literal["raise", "skip"], keeps: bool
) -> None:
    with mqstore.open(store, mode="a") as writer:
        # More batches than the read-ahead fetches.
        writer.append_batch([b"planned %d" % number for number in range(MESSAGES, 5000)], topic="orders")
    with mqstore.open(store) as reader:
        offsets = reader.scan(columns=["physical_offset"]).to_arrow().column(0).combine_chunks()
    asked = pa.record_batch([pa.array(range(5000)), offsets] if keeps else [offsets], ["kept0", "physical_offset"][not keeps :])

    def fetched(fails: bool) -> Iterator[pa.RecordBatch]:
        beside = ["number"] if keeps else []
        return _fetched(planned, asked, beside, ["body", "physical_offset"], errors, fails)

    (planned,) = snapshots(store).values()
    assert sum(batch.num_rows for batch in fetched(fails=True)) == 5000
    # Segments that are open stay readable.
    _snapshot._cache.clear()
    with mock.patch("mqstore.spark.resolve.BATCH_BYTES", 2000):
        task = fetched(fails=False)
        before = next(task)
        expire_half(store)
        after = list(task)
    assert ("have expired" if errors == "raise" else "skipped") in caplog.text
    rows = [row for batch in [before, *after] for row in batch.to_pylist()]
    with mqstore.open(store) as reader:
        left = [offset for offset in offsets.to_pylist() if offset >= reader.min_physical_offset]
    assert [row["physical_offset"] for row in rows][-len(left) :] == left
    assert before.num_rows + len(left) <= len(rows) < 4000
    if keeps:
        assert all(row["body"] == b"planned %d" % row["number"] for row in rows)
    with pytest.raises(mqstore.StoreError, match="expired|no message starts"):
        list(fetched(fails=True))


def damage(path: Path) -> None:
    """Flips a bit in the body of message 7."""
    first = min((path / "commitlog").iterdir())
    content = bytearray(first.read_bytes())
    content[content.index(b"planned 7")] ^= 1
    first.write_bytes(content)


def test_a_scan_and_a_fetch_skip_damage_on_request(spark: SparkSession, store: Path) -> None:
    with mqstore.open(store) as reader:
        physical_offset = reader.query("orders", "k7")[0].physical_offset
    damage(store)
    for fails in ({}, {"errors": "raise"}):
        with pytest.raises(PythonException, match="CorruptError"):
            spark.read.format("mqstore").options(**fails).load(str(store)).collect()
    assert spark.read.format("mqstore").option("errors", "Skip").load(str(store)).count() == MESSAGES - 1
    offsets = spark.createDataFrame([(0,), (physical_offset,)], "physical_offset long")
    with pytest.raises(PythonException, match="errors="):
        fetch(offsets, store).collect()
    assert fetch(offsets, store, errors="skip").count() == 1
    with pytest.raises(ValueError, match="errors"):
        fetch(offsets, store, errors="ignore")  # type: ignore[arg-type]


def test_a_salvaged_store_is_read_but_for_what_was_lost(spark: SparkSession, store: Path) -> None:
    damage(store)
    assert mqstore.repair(store, dry_run=False).lost
    for columns in ("body", "queue_offset"):
        read = spark.read.format("mqstore").option("columns", columns)
        with pytest.raises(PythonException, match='CorruptError: .*; option errors: "skip" skips'):
            read.load(str(store)).collect()
        assert read.option("errors", "skip").load(str(store)).count() == MESSAGES - 1
    offsets = spark.range(MESSAGES // 2).selectExpr("'orders' as topic", "1 as queue_id", "id as queue_offset")
    lost = resolve_offsets(offsets, store).where("physical_offset is null").collect()
    assert [row.queue_offset for row in lost] == [3]


def test_a_damaged_message_becomes_a_row_with_its_error(spark: SparkSession, store: Path) -> None:
    with mqstore.open(store) as reader:
        physical_offset = reader.query("orders", "k7")[0].physical_offset
    damage(store)
    load = spark.read.format("mqstore").option("errors", "corrupt_record")
    frame = load.load(str(store))
    assert frame.columns[-1] == "_corrupt_record"
    (corrupt,) = frame.where("_corrupt_record is not null").collect()
    assert corrupt.physical_offset == physical_offset
    assert "CRC" in corrupt._corrupt_record
    assert "errors" not in corrupt._corrupt_record
    assert [name for name, value in corrupt.asDict().items() if value is not None] == ["physical_offset", "_corrupt_record"]
    assert frame.where("_corrupt_record is null").count() == MESSAGES - 1
    without = load.schema("body binary, queue_id int").load(str(store)).collect()
    assert len(without) == MESSAGES
    assert sum(row.body is None for row in without) == 1
