from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

import mqstore
from mqstore.spark import MESSAGE_SCHEMA, register
from mqstore.spark._options import ScanOptions
from mqstore.spark.source import MessageDataSource

QueueTables = Callable[..., list[pa.Table]]


def load(spark: SparkSession, store: Path, **options: object) -> DataFrame:
    return spark.read.format("mqstore").options(**options).load(str(store))


def in_log_order(tables: list[pa.Table]) -> list[dict[str, Any]]:
    return sorted(pa.concat_tables(tables).to_pylist(), key=lambda row: row["physical_offset"])


def partitions(frame: DataFrame) -> int:
    return frame.selectExpr("spark_partition_id() as part").distinct().count()


def test_a_scan_returns_the_messages_of_the_queues(spark: SparkSession, golden_store: Path, queue_tables: QueueTables) -> None:
    frame = load(spark, golden_store)
    assert frame.schema == MESSAGE_SCHEMA
    assert frame.toArrow().to_pylist() == in_log_order(queue_tables(golden_store))


def test_packing_changes_nothing_in_a_scan(spark: SparkSession, events_store: Path, queue_tables: QueueTables) -> None:
    expected = in_log_order(queue_tables(events_store))
    planned = []
    for target in (100_000_000, 1_000_000, 300_000):
        frame = load(spark, events_store, targetPartitionBytes=target)
        assert frame.toArrow().to_pylist() == expected
        planned.append(partitions(frame))
    assert planned == pytest.approx([1, 7, 21], rel=0.2)


@pytest.mark.matrix
def test_topics_narrow_the_scan(spark: SparkSession, events_store: Path, queue_tables: QueueTables) -> None:
    found = load(spark, events_store, topics=" store, broker ,store").toArrow().to_pylist()
    assert found == in_log_order(queue_tables(events_store, ["store", "broker"]))


@pytest.mark.matrix
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


def test_a_function_of_a_job_may_have_slices_of_a_reader(spark: SparkSession, golden_store: Path) -> None:
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


@pytest.mark.matrix
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


def test_a_queue_with_an_expired_segment_is_scanned_from_its_first_message(
    spark: SparkSession, tmp_path: Path, golden: Path, queue_tables: QueueTables
) -> None:
    shutil.copytree(golden / "491_multifile", tmp_path / "store")
    (tmp_path / "store" / "commitlog" / f"{0:020}").unlink()
    rows = load(spark, tmp_path / "store").toArrow().to_pylist()
    assert rows == in_log_order(queue_tables(tmp_path / "store"))
    assert 0 < len(rows) < 120
    assert min(row["physical_offset"] for row in rows) >= 16384


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"topic": "docs"},
            "unknown option topic (did you mean topics?); accepted are path, stores, topics, queueIds, subscribe,",
        ),
        ({"targetPartionBytes": "1"}, "unknown option targetPartionBytes (did you mean targetPartitionBytes?); accepted"),
        ({"zoo": "1", "TOPICC": "docs"}, "unknown option TOPICC (did you mean topics?), zoo; accepted"),
        ({"topics": "docs,no such,neither"}, "there is no topic neither, no such; "),
        ({"topics": "docs,no such"}, " has 53 topics: "),
        ({"topics": ""}, "option topics has an empty name: ''; leave the option out for all topics"),
        ({"subscribe": ""}, "option subscribe has an empty name: ''; leave the option out for all topics"),
        ({"queueIds": ""}, "option queueIds has an empty name: ''; leave the option out for all queue ids"),
        ({"topics": "docs,"}, "option topics has an empty name"),
        ({"columns": "body,bodies"}, "a message has no column 'bodies'; its columns are topic, queue_id,"),
        ({"errors": "ignore"}, "option errors is one of raise, skip, corrupt_record, not 'ignore'"),
        ({"mode": "PERMISSIVE"}, "unknown option mode (did you mean errors?); accepted are"),
        ({"kafka.bootstrap.servers": "h:1"}, "unknown option kafka.bootstrap.servers (did you mean path?); accepted are"),
        ({"includeHeaders": "true"}, "unknown option includeHeaders (did you mean columns?); accepted are"),
        ({"columns": "offset,value"}, "a message has no column 'offset' (did you mean queue_offset?); its columns are"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss is one of true, false, not 'no'"),
        ({"targetPartitionBytes": "128m"}, "option targetPartitionBytes is a positive number, not '128m'"),
        ({"minPartitions": "0"}, "option minPartitions is a positive number"),
        ({"queueIds": "a"}, "option queueIds is a list of queue ids, with commas or of JSON, not 'a'"),
        (
            {"startingTimestamp": "2026-11-23"},
            "option startingTimestamp is a number of ms since 1970, or a time with a timezone",
        ),
        ({"startingTimestamp": "1763870400"}, "option startingTimestamp is 1763870400: it counts ms since 1970, and this"),
        ({"endingTimestamp": "1763870400000000"}, "this one looks like microseconds"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "option startingTimestamp is 2, past endingTimestamp, which is 1"),
        ({"properties": "[]"}, "option properties is a JSON object, not '[]'"),
        ({"stores": "{"}, "option stores is not a JSON object"),
        ({"stores": '{"a": "/a"}'}, "both are given"),
        ({"option.recovery": "hope"}, "recovery"),
        ({"option.mode": "a"}, "mode is not an option of Stores"),
        ({"subscrib": "docs"}, "unknown option subscrib (did you mean subscribe?); accepted"),
        ({"zoo": "1"}, "subscribe, subscribePattern, assign,"),
    ],
)
def test_an_option_that_does_not_fit_is_named(events_store: Path, options: dict[str, str], complaint: str) -> None:
    source = MessageDataSource({"path": str(events_store), **options})
    with pytest.raises(ValueError) as error:  # noqa: PT011
        source.reader(source.schema())
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
    source = MessageDataSource({"path": str(events_store)})
    with pytest.raises(ValueError, match=re.escape(complaint)):
        source.reader(spark.createDataFrame([], schema).schema)


def test_a_schema_and_columns_that_disagree_are_refused(spark: SparkSession, events_store: Path) -> None:
    with pytest.raises(AnalysisException, match="option columns names body, but the schema has tags: give one of the two"):
        spark.read.format("mqstore").schema("tags string").option("columns", "body").load(str(events_store)).count()


@pytest.mark.matrix
def test_a_path_is_needed_and_must_hold_a_store(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="name the store directory by load.*; path is missing"):
        spark.read.format("mqstore").load().count()
    with pytest.raises(AnalysisException, match="NotAStoreError"):
        load(spark, tmp_path).count()


def test_a_table_is_refused_where_it_is_created_with_the_way_to_go(spark: SparkSession, events_store: Path) -> None:
    with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE docs_table USING mqstore OPTIONS (path '{events_store}')")


def test_topics_whose_queues_are_no_files_are_read_from_the_log(spark: SparkSession, golden: Path) -> None:
    with mqstore.open(golden / "533_batchcq") as store:
        expected = store.scan().to_arrow().to_pylist()
    assert expected
    for options in ({}, {"topics": "TopicQ"}, {"columns": "queue_id"}):
        assert load(spark, golden / "533_batchcq", **options).count() == len(expected)


def test_option_names_are_taken_in_any_case() -> None:
    parsed = ScanOptions.parse({"PATH": "/s", "Topics": "a,b", "TARGETPARTITIONBYTES": "5", "Errors": "skip"})
    assert parsed.read.stores.path() == "/s"
    assert (parsed.conditions.topics, parsed.target_partition_bytes, parsed.read.errors) == ({"a", "b"}, 5, "skip")


def test_a_store_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    for options in ({"paths": json.dumps([str(tmp_path / "one"), str(tmp_path / "link")])}, {"path": str(tmp_path / "*")}):
        with pytest.raises(ValueError, match=r"/(link|one) and .*/(link|one) are the same store, which would be read twice"):
            ScanOptions.parse(options)
    with pytest.raises(ValueError, match="option stores is not a JSON object: it names a twice"):
        ScanOptions.parse({"stores": f'{{"a": "{tmp_path}/one", "a": "{tmp_path}/other"}}'})


def test_a_schema_may_be_spelled_in_any_case(spark: SparkSession, events_store: Path) -> None:
    frame = spark.read.format("mqstore").schema("QUEUE_ID int, Tags string").load(str(events_store))
    assert frame.columns == ["QUEUE_ID", "Tags"]
    assert frame.where("queue_id = 1").count() == frame.where("QUEUE_ID = 1").count() > 1000


def test_conditions_select_what_a_scan_of_the_store_selects(spark: SparkSession, events_store: Path) -> None:
    with mqstore.open(events_store) as store:
        times = [row["store_time"] for row in store.scan(columns=["store_time"]).to_arrow().to_pylist()]
        middle = times[len(times) // 2]
        for options, arguments in (
            ({"tags": "fix || docs"}, {"tags": "fix || docs"}),
            ({"queueIds": "1,3", "topics": '["store"]'}, {"queue_ids": [1, 3], "topics": "store"}),
            ({"keys": "1568 7"}, {"keys": ["1568", "7"]}),
            ({"startingTimestamp": middle.isoformat()}, {"since": middle}),
            ({"endingTimestamp": str(int(middle.timestamp() * 1000))}, {"until": middle}),
            ({"bodyContains": "broker", "by": "born"}, {"body_contains": "broker"}),
            ({"bodyRegex": "[Nn]ame[Ss]erver"}, {"body_regex": "[Nn]ame[Ss]erver"}),
            ({"properties": '{"TAGS": "fix"}'}, {"properties": {"TAGS": "fix"}}),
        ):
            expected = store.scan(columns=["physical_offset"], **arguments).to_arrow().to_pylist()
            frame = load(spark, events_store, columns="physical_offset", targetPartitionBytes=400_000, **options)
            found = sorted(row.physical_offset for row in frame.collect())
            assert found == [row["physical_offset"] for row in expected], options
            assert 0 < len(expected) < 7865


def test_bodies_are_decoded_if_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append("t", zlib.compress(b"hay"), sys_flag=1)
    stored, decoded = (load(spark, tmp_path / "s", columns="body,sys_flag", decodeBody=so).first() for so in ("false", "true"))
    assert tuple(stored) == (zlib.compress(b"hay"), 1)
    assert tuple(decoded) == (b"hay", 0)


@pytest.mark.matrix
def test_several_stores_are_read_together_with_their_brokers(
    spark: SparkSession, golden: Path, queue_tables: QueueTables
) -> None:
    paths = {"a": golden / "533_mixed", "b": golden / "551_mixed", "c": golden / "533_mixed"}
    named = json.dumps({broker: str(path) for broker, path in paths.items()})
    frame = spark.read.format("mqstore").option("stores", named).load()
    assert frame.schema == StructType([StructField("broker", StringType()), *MESSAGE_SCHEMA])
    found = frame.toArrow().to_pylist()
    for broker, path in paths.items():
        rows = [{name: row[name] for name in MESSAGE_SCHEMA.names} for row in found if row["broker"] == broker]
        assert rows == in_log_order(queue_tables(path))
    counts = spark.read.format("mqstore").option("stores", named).schema("broker string").load().groupBy("broker").count()
    assert {row.broker: row["count"] for row in counts.collect()} == {
        broker: sum(map(len, queue_tables(path))) for broker, path in paths.items()
    }


def test_paths_may_be_several_uris_and_patterns(spark: SparkSession, golden: Path, queue_tables: QueueTables) -> None:
    one, other = golden / "533_mixed", golden / "551_mixed"
    load = spark.read.format("mqstore").option("columns", "broker,queue_id")
    expected = Counter({str(path): sum(map(len, queue_tables(path))) for path in (one, other)})
    assert Counter(row.broker for row in load.load([str(one), str(other)]).collect()) == expected
    assert Counter(row.broker for row in load.load(str(golden / "5[35][13]_mixed")).collect()) == expected
    assert spark.read.format("mqstore").load(one.as_uri()).count() == expected[str(one)]
    with pytest.raises(AnalysisException, match="no directory matches"):
        load.load(str(golden / "no*such")).count()


def test_a_path_that_exists_literally_is_not_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    for name, messages in (("part[1]", 2), ("part1", 1)):
        with mqstore.open(tmp_path / name, mode="x") as store:
            store.append_batch([b"x"] * messages, topic="t")
    assert load(spark, tmp_path / "part[1]").count() == 2
    assert load(spark, tmp_path / "part?").count() == 1


def test_options_reach_the_open_of_the_store(spark: SparkSession, events_store: Path) -> None:
    with pytest.raises(AnalysisException, match="mapped_file_size_commit_log"):
        load(spark, events_store, **{"option.mapped_file_size_commit_log": 4096}).count()
    assert load(spark, events_store, **{"option.recovery": "salvage", "option.sigbus_guard": "true"}, topics="grpc").count() == 1


def test_a_worker_with_little_address_space_reads_a_large_store(tmp_path: Path) -> None:
    # The limit that `spark.executor.pyspark.memory=512m` sets in a worker.
    with mqstore.open(tmp_path / "s", mode="x", geometry="broker") as store:
        store.append_batch([bytes(1000)] * 100, topic="t")
    code = f"""
import resource
from mqstore.spark.source import MessageDataSource
source = MessageDataSource({{"path": {str(tmp_path / "s")!r}}})
resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
reader = source.reader(source.schema())
print(sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "100\n", done.stderr
