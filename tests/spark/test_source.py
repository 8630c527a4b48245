from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import mqstore
from mqstore.spark import MESSAGE_SCHEMA, register
from mqstore.spark.source import ScanOptions, measure, scanned_queues

QueueTables = Callable[..., list[pa.Table]]


def load(spark: SparkSession, store: Path, **options: object) -> DataFrame:
    return spark.read.format("mqstore").options(**options).load(str(store))


def partitions(frame: DataFrame) -> int:
    return frame.selectExpr("spark_partition_id() as part").distinct().count()


def test_a_scan_is_what_the_queues_hold(spark: SparkSession, golden_store: Path, queue_tables: QueueTables) -> None:
    frame = load(spark, golden_store)
    assert frame.schema == MESSAGE_SCHEMA
    assert frame.toArrow().to_pylist() == pa.concat_tables(queue_tables(golden_store)).to_pylist()


def test_packing_changes_nothing_in_a_scan(spark: SparkSession, events_store: Path, queue_tables: QueueTables) -> None:
    expected = pa.concat_tables(queue_tables(events_store)).to_pylist()
    planned = []
    for target in (100_000_000, 1_000_000, 300_000):
        frame = load(spark, events_store, targetPartitionBytes=target)
        assert frame.toArrow().to_pylist() == expected
        planned.append(partitions(frame))
    assert planned == pytest.approx([1, 7, 21], rel=0.2)


def test_the_size_of_a_queue_is_estimated_from_its_entries(events_store: Path) -> None:
    with mqstore.open(events_store) as store:
        ranges = measure(store, scanned_queues(store, None))
        assert sum(queue.stop - queue.start for queue in ranges) == 7865
        assert 0.7 < sum(queue.size_bytes for queue in ranges) / store.max_physical_offset < 1.4
        assert measure(store, []) == []


def test_topics_narrow_the_scan(spark: SparkSession, events_store: Path, queue_tables: QueueTables) -> None:
    found = load(spark, events_store, topics=" store, broker ,store").toArrow().to_pylist()
    assert found == pa.concat_tables(queue_tables(events_store, ["store", "broker"])).to_pylist()


def test_columns_and_a_schema_name_what_is_read(spark: SparkSession, events_store: Path) -> None:
    by_option = load(spark, events_store, topics="docs", columns="queue_offset, body,topic")
    by_schema = (
        spark.read.format("mqstore")
        .schema("queue_offset long, body binary, topic string")
        .option("topics", "docs")
        .load(str(events_store))
    )
    assert by_option.schema == by_schema.schema == StructType([MESSAGE_SCHEMA[n] for n in ("queue_offset", "body", "topic")])
    assert by_option.collect() == by_schema.collect()
    assert by_option.count() == 317


def test_the_schema_that_is_taken_from_arrow_is_the_documented_one() -> None:
    assert MESSAGE_SCHEMA.simpleString() == (
        "struct<topic:string,queue_id:int,queue_offset:bigint,physical_offset:bigint,store_size:int,store_time:timestamp,"
        "born_time:timestamp,message_id:string,unique_key:string,tags:string,keys:array<string>,body:binary,"
        "properties:map<string,string>,sys_flag:int,flag:int,reconsume_times:int,prepared_transaction_offset:bigint,"
        "born_host:string,store_host:string>"
    )
    assert all(field.nullable for field in MESSAGE_SCHEMA)


def test_a_function_of_a_job_may_hold_slices_of_a_reader(spark: SparkSession, golden_store: Path) -> None:
    with mqstore.open(golden_store) as store:
        parts = [queue[:] for topic in store.topics.values() for queue in topic.queues]

        def messages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from parts[number].to_arrow(["physical_offset"]).to_batches()

        found = spark.range(len(parts)).mapInArrow(messages, "physical_offset bigint").collect()
        expected = [message.physical_offset for part in parts for message in part]
    assert sorted(row.physical_offset for row in found) == sorted(expected)


@pytest.mark.parametrize("name", MESSAGE_SCHEMA.names)
def test_each_column_alone_is_accepted_by_spark(spark: SparkSession, events_store: Path, name: str) -> None:
    assert [row.asDict().keys() for row in load(spark, events_store, topics="grpc", columns=name).collect()] == [{name}]


def test_the_format_is_found_without_registering_it(spark: SparkSession, events_store: Path) -> None:
    assert spark.read.format("MqStore").option("topics", "grpc").load(str(events_store)).count() == 1


def test_registering_it_as_well_does_no_harm(spark: SparkSession, events_store: Path) -> None:
    register(spark)
    assert load(spark, events_store, topics="grpc").count() == 1


def test_sql_scans_through_a_temporary_view(spark: SparkSession, events_store: Path) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW docs USING mqstore OPTIONS (path '{events_store}', topics 'docs', columns 'tags')"
    )
    assert spark.sql("SELECT count(*) AS n, count(DISTINCT tags) AS tags FROM docs").collect() == [(317, 3)]


def test_a_store_of_no_messages_scans_to_no_rows(spark: SparkSession, tmp_path: Path, write_store: Callable[..., None]) -> None:
    write_store(tmp_path, [], segment=8192)
    frame = load(spark, tmp_path)
    assert frame.schema == MESSAGE_SCHEMA
    assert frame.collect() == []


def test_a_queue_whose_first_segment_expired_is_scanned_from_its_first_message(
    spark: SparkSession, tmp_path: Path, golden: Path, queue_tables: QueueTables
) -> None:
    shutil.copytree(golden / "491_multifile", tmp_path / "store")
    (tmp_path / "store" / "commitlog" / f"{0:020}").unlink()
    rows = load(spark, tmp_path / "store").toArrow().to_pylist()
    assert rows == pa.concat_tables(queue_tables(tmp_path / "store")).to_pylist()
    assert 0 < len(rows) < 120
    assert min(row["physical_offset"] for row in rows) >= 16384


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topic": "docs"}, "unknown option topic; accepted are path, topics, columns, targetPartitionBytes, errors"),
        ({"topics": "docs,no such,neither"}, "has no topic neither, no such; it has 53 topics: "),
        ({"topics": ""}, "option topics holds an empty name: ''; leave the option out for all topics"),
        ({"topics": "docs,"}, "option topics holds an empty name"),
        ({"columns": "body,bodies"}, "a message has no column 'bodies'; its columns are topic, queue_id,"),
        ({"errors": "ignore"}, 'errors is "raise" or "skip", not \'ignore\''),
        ({"targetPartitionBytes": "128m"}, "targetPartitionBytes is a positive number of bytes, not '128m'"),
        ({"targetPartitionBytes": "0"}, "targetPartitionBytes is a positive number of bytes"),
    ],
)
def test_an_option_that_does_not_fit_is_named(
    spark: SparkSession, events_store: Path, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(AnalysisException, match="ValueError") as error:
        load(spark, events_store, **options).count()
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("queue_id long", "column queue_id of a message is int, but the schema declares it bigint"),
        ("queue_id int, no_such int", "a message has no column 'no_such'"),
        ("queue_id int NOT NULL", "every column of a message is nullable, but the schema declares queue_id NOT NULL"),
        ("keys array<int>", "column keys of a message is array<string>, but the schema declares it array<int>"),
        ("body string", "column body of a message is binary, but the schema declares it string"),
    ],
)
def test_a_schema_that_does_not_fit_names_its_column(
    spark: SparkSession, events_store: Path, schema: str, complaint: str
) -> None:
    with pytest.raises(AnalysisException, match="ValueError") as error:
        spark.read.format("mqstore").schema(schema).load(str(events_store)).count()
    assert complaint in str(error.value)


def test_a_schema_and_columns_that_disagree_are_refused(spark: SparkSession, events_store: Path) -> None:
    with pytest.raises(AnalysisException, match="option columns names body, but the schema has tags: give one of the two"):
        spark.read.format("mqstore").schema("tags string").option("columns", "body").load(str(events_store)).count()


def test_a_path_is_needed_and_must_hold_a_store(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="path is missing: name the store directory by load"):
        spark.read.format("mqstore").load().count()
    with pytest.raises(AnalysisException, match="NotAStoreError"):
        load(spark, tmp_path).count()


def test_a_table_is_refused_where_it_is_created_with_the_way_to_go(spark: SparkSession, events_store: Path) -> None:
    with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE docs_table USING mqstore OPTIONS (path '{events_store}')")


def test_a_topic_of_batch_queues_is_reported_not_skipped(spark: SparkSession, golden: Path, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="cannot scan topic TopicQ: "):
        load(spark, golden / "533_batchcq").count()
    with pytest.raises(AnalysisException, match="cannot scan topic TopicQ: "):
        load(spark, golden / "533_batchcq", topics="TopicQ").count()
    shutil.copytree(golden / "533_basic_clean", tmp_path / "both")
    shutil.copytree(golden / "533_batchcq" / "batchconsumequeue", tmp_path / "both" / "batchconsumequeue")
    with pytest.raises(AnalysisException, match=r'the others are read with option."topics", "TopicA,TopicB,TopicC"'):
        load(spark, tmp_path / "both").count()
    assert load(spark, tmp_path / "both", topics="TopicA,TopicB,TopicC").count() > 0


def test_option_names_are_taken_in_any_case() -> None:
    parsed = ScanOptions.parse({"PATH": "/s", "Topics": "a,b", "TARGETPARTITIONBYTES": "5", "Errors": "skip"})
    assert parsed == ScanOptions("/s", ("a", "b"), None, 5, "skip")
