from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import MapType, StringType, StructField, StructType

import mqstore
from mqstore import _files
from mqstore.spark import MESSAGE_SCHEMA, CleanedJobs, append_batch, clean_jobs, sink
from mqstore.spark._job import Manifest, Staged, rows_of, with_job_properties

HERE = Path(__file__).parent
SEGMENT = {"option.mapped_file_size_commit_log": "65536"}
ORDERS = StructType([StructField("topic", StringType()), StructField("body", StringType())])


def orders(spark: SparkSession, rows: int = 10, partitions: int = 3) -> DataFrame:
    return spark.range(0, rows, 1, partitions).selectExpr("'orders' as topic", "concat('o-', id) as body")


def save(frame: DataFrame, path: Path, **options: object) -> None:
    frame.write.format("mqstore").mode("append").options(**SEGMENT, **options).save(str(path))


def messages(path: Path) -> list[dict[str, Any]]:
    with mqstore.open(path) as store:
        rows: list[dict[str, Any]] = store.scan().to_arrow().to_pylist()
        return rows


def bodies(path: Path) -> list[str]:
    return [row["body"].decode() for row in messages(path)]


def staging(path: Path) -> Path:
    return path.with_name(f".{path.name}.mqstore-staging")


def writer(path: Path, schema: StructType = ORDERS, /, **options: str) -> sink.MessageWriter:
    return sink.message_writer({"path": str(path), **SEGMENT, **options}, schema, overwrite=False)


def batches(*parts: Iterable[str]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist([{"topic": "orders", "body": body} for body in part]) for part in parts]


def stage(writer: sink.MessageWriter, *parts: Iterable[str], partition: int = 0, attempt: int = 0) -> sink.CommitMessage:
    return sink.CommitMessage(writer.stage(iter(batches(*parts)), partition, attempt))


def begin(writer: sink.MessageWriter, store: mqstore.Store, staged: list[Staged]) -> pa.Table:
    """Publishes the manifest of a run that is killed before its first append, and returns the rows of the job."""
    job = writer._job
    manifest = Manifest.of(job, staged, end=store.max_physical_offset)
    job.publish(manifest)
    return pa.Table.from_batches(rows for _, rows in rows_of(job, manifest, 0))


def grow_old(folder: Path) -> None:
    """Sets the times of all files back by two days."""
    for each in (folder, *folder.rglob("*")):
        old = each.stat().st_mtime - 2 * 86_400
        os.utime(each, (old, old))


# The frame and its options


def test_a_frame_is_appended_by_partition_and_row(spark: SparkSession, tmp_path: Path) -> None:
    save(orders(spark), tmp_path / "store")
    save(orders(spark, 3).selectExpr("body"), tmp_path / "store", topic="more")
    assert bodies(tmp_path / "store") == [f"o-{n}" for n in (*range(10), *range(3))]
    assert [row["topic"] for row in messages(tmp_path / "store")] == ["orders"] * 10 + ["more"] * 3
    assert not staging(tmp_path / "store").exists()


@pytest.mark.matrix
def test_what_is_read_from_a_store_can_be_written_to_another(spark: SparkSession, events_store: Path, tmp_path: Path) -> None:
    read = spark.read.format("mqstore").option("topics", "store,broker").load(str(events_store))
    save(read, tmp_path / "copy")
    kept = [name for name in MESSAGE_SCHEMA.names if name not in ("physical_offset", "store_time", "message_id", "queue_offset")]
    copy = spark.read.format("mqstore").option("topics", "store,broker").load(str(tmp_path / "copy"))
    assert copy.select(kept).toArrow().to_pylist() == read.select(kept).toArrow().to_pylist()


def test_a_thread_writes_once_it_has_made_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    frame = orders(spark)

    def write() -> None:
        # Spark searches for Python sources in the SparkSession of the thread.
        spark.createDataFrame([(0,)], "n int")
        save(frame, tmp_path / "store")

    with ThreadPoolExecutor() as threads:
        threads.submit(write).result()
    assert bodies(tmp_path / "store") == [f"o-{n}" for n in range(10)]


def test_an_empty_frame_makes_an_empty_store(spark: SparkSession, tmp_path: Path) -> None:
    save(orders(spark, 0), tmp_path / "store", jobId="nothing")
    assert bodies(tmp_path / "store") == []


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("topic string, body string, price int", {}, '"price" is not a field of a message'),
        ("topic string", {}, 'expected a column "body"'),
        ("topic string, body int", {}, 'column "body" is Int32: cast it to binary first'),
        ("topic string, body string, born_time timestamp_ntz", {}, '"born_time" is a timestamp without a timezone'),
        ("body string", {}, "the topic is a column of the frame or option topic"),
        ("topic string, body string", {"topic": "orders"}, "give one of the two"),
        ("Topic string, body string", {}, "give one of the two; the columns of the frame are Topic, body"),
        ("topic string, body string, properties struct<a: string>", {"jobId": "a"}, "with a jobId it must be map<string,string>"),
        ("topic string, body string, broker string", {}, '"broker" is not a field of a message'),
    ],
)
def test_a_wrong_schema_fails_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, columns: str, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        writer(tmp_path / "store", spark.createDataFrame([], columns).schema, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"jobID": "a", "partitions": "3"}, "unknown option partitions; accepted are path, topic, jobId"),
        ({"path": "s3://bucket/store"}, "s3://bucket/store is not a path of a file system"),
        ({"path": "file://nas/store"}, "file://nas/store is not a path of a file system: mount it on each node"),
        ({"jobId": "a#1"}, "jobId is printable text without #"),
        ({"jobId": ""}, "jobId is printable text without #"),
        ({"jobId": "é" * 34}, "jobId is printable text without #, of 1 to 200 bytes"),
        ({"batchId": "1"}, "batchId needs a jobId"),
        ({"jobId": "a", "batchId": "-1"}, "batchId is a whole number from 0"),
        ({"jobId": "a", "batchId": "1", "stores": "per-task"}, "batchId is for batches that go into one store"),
        ({"stores": "all"}, "option stores is one of one, per-task, not 'all'"),
        ({"option.flush": "1"}, "flush"),
        ({"option.mode": "r"}, "a write chooses the mode of the store: leave option.mode out"),
    ],
)
def test_a_wrong_option_fails_before_anything_is_written(tmp_path: Path, options: dict[str, str], expected: str) -> None:
    with pytest.raises((ValueError, TypeError), match=expected):
        writer(tmp_path / "store", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_store_may_be_named_by_a_uri(tmp_path: Path) -> None:
    job = sink.parse({"path": (tmp_path / "a store").as_uri(), "option.index_tags": "true"}, ORDERS)
    assert (job.target, job.store_options["index_tags"]) == (str(tmp_path / "a store"), True)


def test_each_directory_that_a_job_makes_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(_files, "_sync", lambda *paths: synced.extend(paths))
    writer(tmp_path / "store", jobId="a", stagingPath=str(tmp_path / "b" / "c" / "d"))
    assert {tmp_path, tmp_path / "b", tmp_path / "b" / "c", tmp_path / "b" / "c" / "d"} < set(synced)


def test_nothing_is_staged_inside_the_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stagingPath .* is inside .*: give a directory beside it"):
        writer(tmp_path / "store", stagingPath=str(tmp_path / "store" / "staging"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("store/commitlog", {}),
        ("store/commitlog/copy", {"jobId": "orders"}),
        ("store/copy", {"stores": "per-task"}),
        ("store", {"stores": "per-task"}),
        ("copy", {"stagingPath": "store/staging"}),
    ],
)
def test_nothing_is_written_inside_a_store(tmp_path: Path, path: str, options: dict[str, str]) -> None:
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=65536) as store:
        store.append("orders", b"before")
    before = sorted(tmp_path.rglob("*"))
    options = {name: str(tmp_path / value) if name == "stagingPath" else value for name, value in options.items()}
    with pytest.raises(ValueError, match=f"lies in the store {tmp_path / 'store'}: name a directory beside it"):
        writer(tmp_path / path, **options)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("options", [{}, {"jobId": "orders"}])
def test_a_write_that_fails_leaves_no_directory(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "notes").touch()
    with pytest.raises(Exception, match="not a message store"):
        save(orders(spark), tmp_path / "store", **options)
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "store", tmp_path / "store" / "notes"]


@pytest.mark.matrix
def test_other_modes_and_streams_say_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r'use mode\("append"\)'):
        orders(spark).write.format("mqstore").mode("overwrite").save(str(tmp_path / "store"))
    with pytest.raises(Exception, match='use either the "Append"'):
        orders(spark).write.format("mqstore").save(str(tmp_path / "store"))
    stream = spark.readStream.format("rate").load().selectExpr("'orders' as topic", "string(value) as body")
    query = stream.writeStream.format("mqstore").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=r"foreachBatch.*mqstore\.spark\.append_batch"):
        query.start(str(tmp_path / "store")).awaitTermination()
    assert not (tmp_path / "store").exists()


@pytest.mark.matrix
def test_an_illegal_row_fails_before_the_first_append(spark: SparkSession, tmp_path: Path) -> None:
    frame = orders(spark).selectExpr("topic", "if(body = 'o-8', null, body) as body")
    with pytest.raises(Exception, match=r"message 2: body is null[^\0]*its batch begins with row 6 of the frame"):
        save(frame, tmp_path / "store", jobId="orders")
    assert bodies(tmp_path / "store") == []
    save(orders(spark), tmp_path / "store", jobId="orders")
    assert len(bodies(tmp_path / "store")) == 10


# Jobs


def test_each_row_has_its_job_and_number_besides_its_own_properties(spark: SparkSession, tmp_path: Path) -> None:
    frame = orders(spark, 4).selectExpr("*", "map('colour', 'red') as properties", "concat('u-', body) as unique_key")
    save(frame, tmp_path / "store", jobId="orders of May")
    found = messages(tmp_path / "store")
    assert [row["unique_key"] for row in found] == [f"u-o-{n}" for n in range(4)]
    for n, row in enumerate(found):
        properties = dict(row["properties"])
        assert (properties["MQSTORE_JOB"], properties["MQSTORE_ROW"], properties["colour"]) == ("orders of May", str(n), "red")


def test_a_rerun_with_other_columns_is_refused(tmp_path: Path) -> None:
    first = writer(tmp_path / "store", jobId="orders")
    first.commit([stage(first, "abc")])
    swapped = StructType(ORDERS.fields[::-1])
    writer(tmp_path / "store", swapped, jobId="orders").commit([])
    other = StructType([*ORDERS.fields, StructField("tags", StringType())])
    told = "job orders was begun with the columns body string, topic string, not with body string, tags string, topic string: "
    with pytest.raises(ValueError, match=told + "choose another jobId for other rows"):
        writer(tmp_path / "store", other, jobId="orders")
    with pytest.raises(ValueError, match="job orders was begun with .*, not with body string for topic a:"):
        writer(tmp_path / "store", StructType(ORDERS.fields[1:]), jobId="orders", topic="a")
    assert bodies(tmp_path / "store") == list("abc")


def test_a_batch_that_comes_again_with_other_columns_is_done(tmp_path: Path) -> None:
    first = writer(tmp_path / "store", jobId="orders", batchId="3")
    first.commit([stage(first, "abc")])
    other = StructType([*ORDERS.fields, StructField("tags", StringType())])
    writer(tmp_path / "store", other, jobId="orders", batchId="3").commit([])
    assert bodies(tmp_path / "store") == list("abc")


def test_a_run_that_does_not_read_its_frame_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        run = writer(tmp_path / "store", jobId="orders")
        run.commit([stage(run, "abc")])
    told = "job orders was begun by an earlier run, and is finished with its 3 rows: the frame of this run is not read"
    assert [record.message for record in caplog.records] == [told]


@pytest.mark.matrix
def test_a_job_that_is_done_is_not_written_again(spark: SparkSession, tmp_path: Path) -> None:
    for rows in (10, 12):
        save(orders(spark, rows), tmp_path / "store", jobId="orders")
    assert bodies(tmp_path / "store") == [f"o-{n}" for n in range(10)]
    save(orders(spark, 2), tmp_path / "store", jobId="others")
    assert len(bodies(tmp_path / "store")) == 12
    assert [[path.name for path in job.iterdir()] for job in staging(tmp_path / "store").iterdir()] == [["manifest.json"]] * 2


@pytest.mark.slow
@pytest.mark.parametrize("stores", ["one", "per-task"])
def test_a_kill_at_any_line_of_a_job_loses_and_repeats_nothing(tmp_path: Path, stores: str) -> None:
    # In memory if possible, where a sync costs nothing: the test kills processes, not the machine.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with TemporaryDirectory(dir=memory) as directory:
        # Removes the temporary files of killed processes, too.
        environment = os.environ | {"TMPDIR": directory}
        command = [sys.executable, HERE / "kill_at_each_line.py", f"{directory}/jobs", stores]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    *kills, last = map(json.loads, done.stdout.splitlines())
    for kill in kills:
        # Complete, in order, and staged by one run: from the manifest on, by the first one.
        assert len(kill["rows_of_run"]) == 1, kill
        assert kill["after_rerun"][: len(kill["after_kill"])] == kill["after_kill"], kill
    partial = {len(kill["after_kill"]) for kill in kills}
    assert partial == ({0, 1, 3, 5} if stores == "one" else {0, 3, 5})
    assert [kill["rows_of_run"] for kill in kills] == sorted((kill["rows_of_run"] for kill in kills), reverse=True)
    assert len(last["rows_of_run"]) == 1
    assert last["kills"] > 100


@pytest.mark.parametrize("stored", range(8))
def test_a_rerun_continues_after_any_row_that_was_stored_last(tmp_path: Path, stored: int) -> None:
    first = writer(tmp_path / "store", jobId="orders")
    staged = [*stage(first, "abc", "d", partition=0).staged, *stage(first, "efg", partition=1).staged]
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=65536) as store:
        store.append("orders", b"before")
        store.append_batch(begin(first, store, staged).slice(0, stored))
        store.append("orders", b"of others")
    writer(tmp_path / "store", jobId="orders").commit([])
    found = bodies(tmp_path / "store")
    assert found == ["before", *"abcdefg"[:stored], "of others", *"abcdefg"[stored:]]


@pytest.mark.parametrize("row", [None, "0", "3", "99", "none"])
@pytest.mark.parametrize("stored", [0, 2, 7])
def test_foreign_messages_with_job_properties_cost_no_row(tmp_path: Path, stored: int, row: str | None) -> None:
    first = writer(tmp_path / "store", jobId="orders")
    staged = stage(first, "abc", "defg").staged
    foreign = {"MQSTORE_JOB": "orders", "MQSTORE_RUN": "another"} | ({} if row is None else {"MQSTORE_ROW": row})
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=65536) as store:
        rows = begin(first, store, staged)
        store.append("orders", b"of others", properties=foreign)
        store.append_batch(rows.slice(0, stored))
        store.append("orders", b"of others", properties=foreign)
    writer(tmp_path / "store", jobId="orders").commit([])
    assert bodies(tmp_path / "store") == ["of others", *"abcdefg"[:stored], "of others", *"abcdefg"[stored:]]


def test_rows_of_another_job_with_the_same_name_are_rows_like_any_other(tmp_path: Path) -> None:
    elsewhere = writer(tmp_path / "elsewhere", jobId="orders")
    elsewhere.commit([stage(elsewhere, "vwxyz")])
    with mqstore.open(tmp_path / "elsewhere") as store:
        copied = store.scan(columns=["topic", "body", "properties"]).to_arrow()
    first = writer(tmp_path / "store", jobId="orders")
    staged = stage(first, "abc").staged
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=65536) as store:
        begin(first, store, staged)
        store.append_batch(copied)
    writer(tmp_path / "store", jobId="orders").commit([])
    assert bodies(tmp_path / "store") == list("vwxyzabc")

    schema = StructType([*ORDERS.fields, StructField("properties", MapType(StringType(), StringType()))])
    again = writer(tmp_path / "store", schema, jobId="copies")
    rows = [pa.RecordBatch.from_struct_array(each) for each in copied.to_struct_array().chunks]
    staged = again.stage(iter(rows), 0, 0)
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=65536) as store:
        store.append_batch(begin(again, store, staged).slice(0, 2))
    writer(tmp_path / "store", schema, jobId="copies").commit([])
    assert bodies(tmp_path / "store") == list("vwxyzabcvwxyz")


def test_a_message_that_a_broker_delivers_again_does_not_turn_a_job_back(tmp_path: Path) -> None:
    first = writer(tmp_path / "store", jobId="orders")
    staged = stage(first, "abcd").staged
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=65536) as store:
        rows = begin(first, store, staged)
        store.append_batch(rows.slice(0, 3))
        store.append_batch(rows.slice(1, 1))
    writer(tmp_path / "store", jobId="orders").commit([])
    assert bodies(tmp_path / "store") == list("abcbd")


def test_a_job_fails_while_another_writer_has_the_store_and_can_be_rerun(spark: SparkSession, tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=65536), pytest.raises(Exception, match="LockedError"):
        save(orders(spark), tmp_path / "store", jobId="orders")
    assert bodies(tmp_path / "store") == []
    save(orders(spark), tmp_path / "store", jobId="orders")
    assert len(bodies(tmp_path / "store")) == 10


def test_a_job_whose_store_was_replaced_is_refused(tmp_path: Path) -> None:
    first = writer(tmp_path / "store", jobId="orders")
    first.commit([stage(first, "abc")])
    (tmp_path / "store").rename(tmp_path / "moved")
    again = writer(tmp_path / "store", jobId="orders")
    with pytest.raises(mqstore.NotAStoreError) as missing:
        again.commit([])
    assert "restore it, or remove " in missing.value.__notes__[0]
    for rows in (2, 50):
        with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=65536) as store:
            store.append_batch([b"another"] * rows, topic="orders")
        with pytest.raises(mqstore.StoreError, match="is not the store that job orders was written to"):
            again.commit([])


def test_a_damaged_or_missing_staged_file_fails_before_the_first_append(tmp_path: Path) -> None:
    for change in (lambda path: path.write_bytes(path.read_bytes()[:-1]), Path.unlink):
        first = writer(tmp_path / "store", jobId="orders")
        told = stage(first, "abc")
        change(next(staging(tmp_path / "store").rglob("*.arrow")))
        with pytest.raises(mqstore.StoreError, match="set stagingPath to a directory that the driver and all tasks share"):
            first.commit([told])
        first.abort([told])
    assert bodies(tmp_path / "store") == []


def test_a_task_that_does_not_see_the_staging_directory_says_so(tmp_path: Path) -> None:
    elsewhere = writer(tmp_path / "store")
    elsewhere.abort([])
    with pytest.raises(mqstore.StoreError, match="set option stagingPath to a directory that the driver and all tasks share"):
        stage(elsewhere, "abc")


def test_an_abort_may_come_twice_and_removes_nothing_that_was_published(tmp_path: Path) -> None:
    gone = writer(tmp_path / "store", jobId="orders")
    told = stage(gone, "abc")
    for _ in range(2):
        gone.abort([told, None])
    assert not list(staging(tmp_path / "store").rglob("*.arrow"))

    kept = writer(tmp_path / "store", jobId="orders")
    staged = stage(kept, "abc").staged
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=65536) as store:
        begin(kept, store, staged)
    kept.abort([told])
    again = writer(tmp_path / "store", jobId="orders")
    again.commit([stage(again, "other rows")])
    again.abort([])
    assert bodies(tmp_path / "store") == list("abc")


def test_a_job_belongs_to_one_store(tmp_path: Path) -> None:
    shared = {"jobId": "orders", "stagingPath": str(tmp_path / "staging")}
    first = writer(tmp_path / "store", **shared)
    first.commit([stage(first, "abc")])
    with pytest.raises(ValueError, match="job orders was written to .*store, not to .*other: choose another jobId"):
        writer(tmp_path / "other", **shared)


def test_only_the_attempt_that_spark_commits_is_stored(tmp_path: Path) -> None:
    first = writer(tmp_path / "store")
    stage(first, "ab", attempt=0)
    first.commit([stage(first, "cd", partition=1, attempt=1), stage(first, "ab", attempt=2)])
    assert bodies(tmp_path / "store") == list("abcd")


def test_a_stamp_changes_no_other_property() -> None:
    pairs = [None, [("MQSTORE_JOB", "of before"), ("a", "1"), ("MQSTORE_ROW", "7")], [], [("b", None)]]
    batch = pa.record_batch(
        {"body": list("wxyz"), "properties": pa.array(pairs, pa.map_(pa.string(), pa.string())), "tags": list("stuv")}
    )
    ours = [[("MQSTORE_JOB", "job"), ("MQSTORE_RUN", "run"), ("MQSTORE_ROW", str(row))] for row in range(10, 14)]
    own = [[], [("a", "1")], [], [("b", None)]]
    expected = [pair + more for pair, more in zip(own, ours, strict=True)]
    rows = with_job_properties(batch, "job", "run", 10)
    assert rows.column("properties").to_pylist() == expected
    assert rows.schema.names == batch.schema.names
    assert with_job_properties(batch.slice(1, 2), "job", "run", 11).column("properties").to_pylist() == expected[1:3]
    assert with_job_properties(batch.select(["body"]), "job", "run", 10).column("properties").to_pylist() == ours


# A store for each task


@pytest.mark.matrix
def test_each_broker_gets_a_store_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    frame = orders(spark).selectExpr("*", "concat('broker-', substring(body, 3) % 3) as broker").repartition(2, "broker")
    for _ in range(2):
        save(frame, tmp_path / "stores", stores="per-task", jobId="orders")
    found = {path.name: sorted(bodies(path)) for path in (tmp_path / "stores").iterdir()}
    assert found == {f"broker-{n}": [f"o-{row}" for row in range(10) if row % 3 == n] for n in range(3)}


def test_without_a_broker_each_partition_gets_a_store_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    save(orders(spark), tmp_path / "stores", stores="per-task")
    found = {path.name: bodies(path) for path in sorted((tmp_path / "stores").iterdir())}
    assert list(found) == ["part-00000", "part-00001", "part-00002"]
    assert [body for part in found.values() for body in part] == [f"o-{n}" for n in range(10)]
    assert not staging(tmp_path / "stores").exists()
    with pytest.raises(Exception, match="a write of a store for each broker creates new stores"):
        save(orders(spark), tmp_path / "stores", stores="per-task")


def test_a_broker_in_two_partitions_is_refused_and_no_store_is_left(spark: SparkSession, tmp_path: Path) -> None:
    frame = orders(spark).selectExpr("*", "'broker-a' as broker")
    with pytest.raises(Exception, match=r'rows of broker broker-a are in 3 partitions.*df\.repartition\("broker"\)'):
        save(frame, tmp_path / "stores", stores="per-task")
    assert not (tmp_path / "stores").exists()
    assert not staging(tmp_path / "stores").exists()


# Failures of Spark


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Starts a process in a process group of its own, which can be killed as a whole."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, start_new_session=True)


SESSION = f"""
import os, signal, sys, threading
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
sys.path.insert(0, {str(HERE.parent / "data")!r})
from conftest import SETTINGS
from pyspark.sql import SparkSession
import mqstore.spark as mq

def session(master):
    builder = SparkSession.builder.master(master)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
"""


@pytest.mark.slow
def test_a_task_that_fails_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    code = (
        SESSION
        + """
store, marks = map(Path, sys.argv[1:])
marks.mkdir()
def once(batches):
    for batch in batches:
        yield batch
        mark = marks / str(batch.column("body")[0].as_py())
        if not mark.exists():
            mark.touch()
            raise RuntimeError("the first attempt fails")
frame = session("local[2,3]").range(0, 10, 1, 3).selectExpr("'orders' as topic", "concat('o-', id) as body")
frame.mapInArrow(once, frame.schema).write.format("mqstore").mode("append").save(str(store))
"""
    )
    done = python(code, tmp_path / "store", tmp_path / "marks")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "marks").iterdir())) == 3
    assert bodies(tmp_path / "store") == [f"o-{n}" for n in range(10)]
    assert not staging(tmp_path / "store").exists()


STREAM = (
    SESSION
    + """
source, store, checkpoint, kill, batch = sys.argv[1:]
manifest = Path(store).with_name(f".{Path(store).name}.mqstore-staging") / "stream-lines" / "manifest.json"

def die():
    os.killpg(0, signal.SIGKILL)

def die_while_it_is_appended():
    while True:
        if manifest.exists():
            text = manifest.read_text()
            if f'"batch": {batch},' in text and '"is_done": false' in text:
                die()

def append(frame, batch_id):
    mq.append_batch(frame, batch_id, store, name="lines", topic="lines")
    if (kill, batch) == ("after", str(batch_id)):
        die()

if kill == "while":
    threading.Thread(target=die_while_it_is_appended, daemon=True).start()
lines = session("local[2]").readStream.format("text").option("maxFilesPerTrigger", 1).load(source)
query = lines.withColumnRenamed("value", "body").writeStream.foreachBatch(append)
query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
"""
)


@pytest.mark.slow
def test_a_killed_and_restarted_streaming_query_writes_each_row_once(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for file in range(5):
        (source / f"{file}.txt").write_text("".join(f"{file}/{line}\n" for line in range(1000)))
        os.utime(source / f"{file}.txt", (file, file))
    runs = [
        python(STREAM, source, tmp_path / "store", tmp_path / "checkpoint", *kill)
        for kill in (("after", 1), ("while", 2), ("never", 0))
    ]
    assert runs[0].returncode == -9, runs[0].stderr
    assert runs[-1].returncode == 0, runs[-1].stderr
    assert bodies(tmp_path / "store") == [f"{file}/{line}" for file in range(5) for line in range(1000)]


def test_an_earlier_batch_of_a_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for batch in (3, 4, 4):
        append_batch(orders(spark, 2), batch, tmp_path / "store", name="orders", **SEGMENT)
    with pytest.raises(Exception, match="batch orders#3 was requested after orders#4.*a name belongs to one query"):
        append_batch(orders(spark, 2), 3, tmp_path / "store", name="orders", **SEGMENT)
    with pytest.raises(ValueError, match=r"unknown option Topics \(did you mean topic\?\); accepted are path, topic, jobId"):
        append_batch(orders(spark, 2), 5, tmp_path / "store", name="orders", Topics="orders")
    save(orders(spark, 1), tmp_path / "store", jobId="orders")
    assert bodies(tmp_path / "store") == ["o-0", "o-1"] * 2 + ["o-0"]


# Cleaning


DAY = timedelta(days=1)


def test_cleaning_removes_old_manifests_of_finished_jobs_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    for job in ("old", "new"):
        first = writer(path, jobId=job)
        first.commit([stage(first, "ab")])
        if job == "old":
            grow_old(staging(path))
    assert clean_jobs(path, older_than=DAY).removed == ("old",)
    assert [each.name for each in staging(path).iterdir()] == ["job-new"]
    again = writer(path, jobId="new")
    again.commit([stage(again, "cd")])
    assert bodies(path) == [*"abab"], "a manifest that stays is still known"
    again = writer(path, jobId="old")
    again.commit([stage(again, "cd")])
    assert bodies(path) == [*"ababcd"]


def test_cleaning_skips_a_malformed_manifest_and_names_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    for job in "abcdefg":
        each = writer(path, jobId=job)
        each.commit([stage(each, "x")])
    nameless = json.loads((staging(path) / "job-f" / "manifest.json").read_text())
    nameless["staged"] = [{"partition": 0, "name": "", "rows": 1, "checksum": 0}]
    wrong = {
        "a": '{"key": "a"',
        "b": '["b"]',
        "c": '{"key": "c", "staged": [1], "landmarks": []}',
        "f": json.dumps(nameless),
        "g": "[" * 100_000,
    }
    for job, text in wrong.items():
        (staging(path) / f"job-{job}" / "manifest.json").write_text(text)
    grow_old(staging(path))
    cleaned = clean_jobs(path, older_than=DAY)
    assert cleaned.removed == ("d", "e")
    assert [skipped.split(" is not ")[0] for skipped in cleaned.skipped] == [
        str(staging(path) / f"job-{job}" / "manifest.json") for job in wrong
    ]
    assert caplog.messages == list(cleaned.skipped)
    assert sorted(each.name for each in staging(path).iterdir()) == ["job-a", "job-b", "job-c", "job-f", "job-g"]
    with pytest.raises(
        mqstore.StoreError, match="job-a/manifest.json is not the manifest of a write job.*remove .*/job-a to write"
    ):
        writer(path, jobId="a")


def test_cleaning_keeps_what_an_unfinished_job_needs(tmp_path: Path) -> None:
    path = tmp_path / "store"
    first = writer(path, jobId="orders")
    with mqstore.open(path, "a", mapped_file_size_commit_log=65536) as store:
        begin(first, store, stage(first, "abc").staged)
    writer(path, jobId="orders")
    later = writer(path, jobId="later")
    stage(later, "x")
    grow_old(staging(path))
    assert clean_jobs(path, older_than=DAY) == CleanedJobs((), ())
    assert [each.name for each in staging(path).iterdir()] == ["job-orders"]
    writer(path, jobId="orders").commit([])
    assert bodies(path) == [*"abc"]


def test_cleaning_removes_what_abandoned_runs_have_staged(tmp_path: Path) -> None:
    path = tmp_path / "store"
    stage(writer(path), "a")
    stage(writer(path, jobId="orders"), "b")
    assert clean_jobs(path, older_than=DAY) == CleanedJobs((), ())
    assert len(list(staging(path).rglob("*.arrow"))) == 2, "they may still run"
    grow_old(staging(path))
    assert clean_jobs(path, older_than=DAY) == CleanedJobs((), ())
    assert not staging(path).exists()


def test_cleaning_keeps_the_manifests_of_streams_and_of_other_stores(tmp_path: Path) -> None:
    shared = tmp_path / "staging"
    for options in ({"jobId": "orders", "batchId": "3"}, {"jobId": "a"}, {"jobId": "b"}):
        each = writer(tmp_path / f"store-{options['jobId']}", stagingPath=str(shared), **options)
        each.commit([stage(each, "x")])
    grow_old(shared)
    assert clean_jobs(tmp_path / "store-orders", older_than=DAY, staging_path=shared) == CleanedJobs((), ())
    assert clean_jobs(tmp_path / "store-a", older_than=DAY, staging_path=shared) == CleanedJobs(("a",), ())
    assert sorted(each.name for each in shared.iterdir()) == ["job-b", "stream-orders"]
    with pytest.raises(ValueError, match="older_than is a duration of at least 0"):
        clean_jobs(tmp_path / "store-b", older_than=-DAY)
