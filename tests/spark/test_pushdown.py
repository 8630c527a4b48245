"""Pushed filters change which messages are read, never the result of a query."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyspark.sql.datasource as spark_source
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

import mqstore
from mqstore.spark._conditions import Conditions, push
from mqstore.spark.source import MessageDataSource, PushingReader

CONF = "spark.sql.python.filterPushdown.enabled"
COLUMNS = "topic,queue_id,queue_offset,physical_offset,store_time,born_time,tags,unique_key"
Row = dict[str, Any]


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(CONF, "true")
    yield spark
    spark.conf.unset(CONF)


@pytest.fixture(scope="session")
def messages(events_store: Path) -> list[Row]:
    with mqstore.open(events_store) as store:
        found: list[Row] = store.scan(columns=COLUMNS.split(",")).to_arrow().to_pylist()
    return found


def some_filter(chance: random.Random, messages: list[Row]) -> spark_source.Filter:
    """Returns a filter that Spark pushes, with a value that a message has or nearly has."""
    column = chance.choice(COLUMNS.split(","))
    value = chance.choice(messages)[column]
    if isinstance(value, int):
        value += chance.randint(-1, 1)
    if isinstance(value, datetime):
        value += timedelta(microseconds=chance.choice([-1000, -1, 0, 1, 1000]))
    kinds = [spark_source.EqualTo, spark_source.EqualNullSafe, spark_source.In]
    if not isinstance(value, str):
        kinds += [
            *(spark_source.GreaterThan, spark_source.GreaterThanOrEqual),
            *(spark_source.LessThan, spark_source.LessThanOrEqual),
        ]
    kind = chance.choice(kinds)
    if kind is spark_source.In:
        others = [chance.choice(messages)[column] for _ in range(3)]
        return spark_source.In((column,), [value, *others])
    return kind((column,), value)  # type: ignore[no-any-return]


def admits(each: spark_source.Filter, row: Row) -> bool:
    value = row[each.attribute[0]]
    if value is None:
        return isinstance(each, spark_source.EqualNullSafe) and each.value is None
    match each:
        case spark_source.EqualTo() | spark_source.EqualNullSafe():
            return bool(value == each.value)
        case spark_source.In():
            return value in each.value
        case spark_source.GreaterThan():
            return bool(value > each.value)
        case spark_source.GreaterThanOrEqual():
            return bool(value >= each.value)
        case spark_source.LessThan():
            return bool(value < each.value)
        case spark_source.LessThanOrEqual():
            return bool(value <= each.value)
    raise AssertionError(each)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("columns", [COLUMNS, "topic,queue_id,queue_offset,physical_offset"])
def test_pushed_filters_change_no_answer(events_store: Path, messages: list[Row], seed: int, columns: str) -> None:
    chance = random.Random(seed)
    filters = [each for each in (some_filter(chance, messages) for _ in range(9)) if each.attribute[0] in columns.split(",")]
    filters = filters[: chance.randint(1, 3)]
    source = MessageDataSource(
        {"path": str(events_store), "columns": columns, "pushdown": "true", "targetPartitionBytes": "1000000"}
    )
    reader = source.reader(source.schema())
    assert isinstance(reader, PushingReader)
    rest = list(reader.pushFilters(filters))
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    answer = [row for row in found if all(admits(each, row) for each in rest)]
    expected = [row for row in messages if all(admits(each, row) for each in filters)]
    wanted = [{name: row[name] for name in columns.split(",")} for row in expected]
    assert sorted(answer, key=lambda row: row["physical_offset"]) == wanted, filters


def test_filters_that_cannot_be_pushed_stay_with_spark() -> None:
    odd = [
        spark_source.IsNotNull(("topic",)),
        spark_source.EqualTo(("tags",), "a || b"),
        spark_source.EqualTo(("tags",), "*"),
        spark_source.EqualTo(("topic",), "\ufffd"),
        spark_source.EqualTo(("topic",), None),
        spark_source.StringStartsWith(("topic",), "a"),
        spark_source.Not(spark_source.EqualTo(("queue_id",), 1)),
        spark_source.EqualTo(("properties", "k"), "v"),
    ]
    assert push(Conditions(), odd) == (Conditions(), odd)
    second_time = spark_source.GreaterThan(("born_time",), datetime(2026, 1, 1, tzinfo=UTC))
    conditions, rest = push(Conditions(), [spark_source.LessThan(("store_time",), datetime(2026, 1, 1, tzinfo=UTC)), second_time])
    assert conditions.by == "store"
    assert len(rest) == 2


def test_a_query_whose_filters_are_pushed_gives_the_same_rows(
    pushing: SparkSession, events_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load = pushing.read.format("mqstore").option("columns", COLUMNS)
    for where in (
        "store_time > timestamp'1970-01-21'",
        "topic = 'docs' and queue_id in (1, 2)",
        "store_time >= '2026-01-01' or topic = 'store'",
        "tags is null",
    ):
        pushed = load.option("pushdown", "true").load(str(events_store)).where(where)
        found = load.option("pushdown", "false").load(str(events_store)).where(where)
        assert sorted(pushed.collect()) == sorted(found.collect()), where
    pushed = load.option("pushdown", "true").load(str(events_store)).where("topic = 'docs' and length(tags) > 3")
    capsys.readouterr()
    pushed.explain()
    (condition,) = re.findall("Filter (.*)", capsys.readouterr().out)
    assert "length(tags" in condition
    assert "docs" not in condition, "what mqstore has taken over is not done again"


def test_spark_keeps_pushed_filters_for_later_queries_of_the_frame(pushing: SparkSession, events_store: Path) -> None:
    # Once this fails, filters can be pushed by default.
    frame = pushing.read.format("mqstore").option("pushdown", "true").load(str(events_store))
    assert frame.where("topic = 'grpc'").count() == 1
    assert frame.count() == 1
    for options in ({}, {"pushdown": "false"}):
        frame = pushing.read.format("mqstore").options(**options).load(str(events_store))
        assert frame.where("topic = 'grpc'").count() == 1
        assert frame.count() == 7865


def test_pushdown_needs_the_setting_of_spark(spark: SparkSession, events_store: Path) -> None:
    with pytest.raises(AnalysisException, match="filterPushdown.enabled"):
        spark.read.format("mqstore").option("pushdown", "true").load(str(events_store)).count()


def test_a_frame_keeps_the_plan_of_its_first_action(spark: SparkSession, tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append("t", b"planned")
        frame = spark.read.format("mqstore").load(str(tmp_path / "s"))
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING mqstore OPTIONS (path '{tmp_path / 's'}')")
        assert frame.count() == spark.table("messages").count() == 1
        store.append("t", b"later")
        assert frame.count() == spark.table("messages").count() == 1
        assert spark.read.format("mqstore").load(str(tmp_path / "s")).count() == 2
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING mqstore OPTIONS (path '{tmp_path / 's'}')")
        assert spark.table("messages").count() == 2


def test_spark_applies_filters_to_corrupt_records_too(events_store: Path) -> None:
    source = MessageDataSource({"path": str(events_store), "errors": "corrupt_record", "pushdown": "true"})
    reader = source.reader(source.schema())
    assert isinstance(reader, PushingReader)
    wanted = [spark_source.EqualTo(("topic",), "docs")]
    assert reader.pushFilters(wanted) == wanted
    assert reader._conditions.topics == {"docs"}


def partitions(path: Path, filters: list[spark_source.Filter], **options: str) -> list[InputPartition]:
    source = MessageDataSource({"path": str(path), "pushdown": "true", **options})
    reader = source.reader(source.schema())
    assert isinstance(reader, PushingReader)
    reader.pushFilters(filters)
    return list(reader.partitions())


def test_a_filter_that_narrows_nothing_is_logged_with_options_that_do(
    events_store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    starts = spark_source.StringStartsWith(("topic",), "doc")
    partitions(events_store, [spark_source.IsNotNull(("topic",)), starts])
    (line,) = caplog.messages
    assert "the filters on topic do not narrow the read, so all " in line
    assert "Options topics, queueIds, startingTimestamp and endingTimestamp narrow the read" in line
    caplog.clear()
    partitions(events_store, [starts, spark_source.EqualTo(("topic",), "docs")])
    partitions(events_store, [starts], topics="docs")
    partitions(events_store, [starts], columns="topic")
    assert caplog.messages == []


def test_a_large_read_that_no_option_narrows_is_logged(events_store: Path, caplog: pytest.LogCaptureFixture) -> None:
    partitions(events_store, [])
    assert caplog.messages == []
    with mock.patch("mqstore.spark.source._LARGE_READ_BYTES", 1 << 20):
        partitions(events_store, [], topics="docs")
        assert caplog.messages == []
        partitions(events_store, [])
    (line,) = caplog.messages
    assert f"{events_store}: no option narrows the read, so all " in line


@pytest.mark.parametrize("columns", ["topic,queue_id,queue_offset", "topic,queue_id,queue_offset,body"])
def test_filters_that_are_pushed_narrow_a_range(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        for number in range(30):
            store.append("ab"[number // 20], b"x", queue_id=number % 2)
    source = MessageDataSource({"path": str(path), "endingOffsets": "latest", "columns": columns, "pushdown": "true"})
    reader = source.reader(source.schema())
    assert isinstance(reader, PushingReader)
    is_a, is_one = spark_source.EqualTo(("topic",), "a"), spark_source.EqualTo(("queue_id",), 1)
    rest = reader.pushFilters([is_a, is_one, spark_source.GreaterThanOrEqual(("queue_offset",), 8)])
    assert [type(each) for each in rest] == [spark_source.GreaterThanOrEqual]
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted((row["topic"], row["queue_id"], row["queue_offset"]) for row in found) == [("a", 1, 8), ("a", 1, 9)]
