"""Functions of columns and of SQL, which look up messages in the snapshots of a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as spark_functions

import mqstore
import mqstore.spark as mq
from mqstore.spark import functions

REFERENCE = "broker string, topic string, queue_id int, queue_offset long, key string"
# pyspark 4.0 loses the time zone of a timestamp in SQL.
TIME = "unix_micros(time)" if pyspark.__version__.startswith("4.0.") else "time"


def make(path: Path, name: str, messages: int = 40) -> Path:
    """Creates a store of messages "a 0", "a 1", ... in two queues, each with the key k<number % 5>."""
    with mqstore.open(path, mode="a") as store:
        for number in range(messages):
            store.append("orders", b"%s %d" % (name.encode(), number), queue_id=number % 2, keys=[f"k{number % 5}"])
    return path


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    return {"a": make(tmp_path / "a", "a"), "b": make(tmp_path / "b", "b", 10)}


@pytest.fixture
def references(spark: SparkSession) -> DataFrame:
    """Returns references: two to messages in both stores, one to a message in store a, and others to absent messages."""
    rows = [
        ("a", "orders", 0, 3, "k1"),
        ("b", "orders", 0, 3, "k1"),
        ("b", "orders", 1, 12, "none"),
        ("a", "orders", 1, 12, "k4"),
        (None, "orders", 0, 3, "k1"),
        ("a", None, 0, 3, None),
        ("b", "none", 0, 3, "k1"),
    ]
    return spark.createDataFrame(rows, REFERENCE).coalesce(1)


def column(frame: DataFrame, name: str) -> list[Any]:
    return [row[name] for row in frame.collect()]


def texts(bodies: list[Any]) -> list[str | None]:
    return [None if body is None else bytes(body).decode() for body in bodies]


@pytest.mark.matrix
def test_each_row_is_answered_by_the_store_of_its_broker(references: DataFrame, paths: dict[str, Path]) -> None:
    stores = mq.Stores(paths)
    located = references.withColumn("p", mq.message_position("topic", "queue_id", "queue_offset", store=stores, broker="broker"))
    bodies = located.withColumn("body", mq.message_body("p.physical_offset", store=stores, broker="broker"))
    assert texts(column(bodies, "body")) == ["a 6", "b 6", None, "a 25", None, None, None]
    hits = references.withColumn("hits", mq.key_hits("topic", "key", store=stores, broker="broker"))
    assert [found and len(found) for found in column(hits, "hits")] == [8, 2, None, 8, None, None, None]


def test_one_store_needs_no_broker(references: DataFrame, paths: dict[str, Path]) -> None:
    located = references.withColumn("p", mq.message_position("topic", "queue_id", "queue_offset", store=paths["a"]))
    bodies = located.withColumn("body", mq.message_body("p.physical_offset", store=str(paths["a"])))
    assert texts(column(bodies, "body")) == ["a 6", "a 6", "a 25", "a 25", "a 6", None, None]


def test_the_newest_hits_come_with_a_limit(references: DataFrame, paths: dict[str, Path]) -> None:
    with mqstore.open(paths["a"]) as store:
        all_hits = [message.physical_offset for message in store.query("orders", "k1")]
        found = references.limit(1).withColumn("hits", mq.key_hits("topic", "key", store=store, limit=3)).collect()
    assert [hit.physical_offset for hit in found[0].hits] == all_hits[-3:]
    for limit in (0, -1, "3"):
        with pytest.raises(ValueError, match="limit is a number of messages from 1 on"):
            mq.key_hits("topic", "key", store=paths["a"], limit=limit)  # type: ignore[arg-type]


@pytest.mark.matrix
def test_times_resolve_to_the_offsets_of_the_queue(spark: SparkSession, paths: dict[str, Path]) -> None:
    with mqstore.open(paths["a"]) as store:
        queue = store.topics["orders"].queues[1]
        stored = sorted({message.store_time for message in queue})
        asked = [stored[0] - timedelta(days=1), stored[len(stored) // 2], stored[-1], datetime(2100, 1, 1, tzinfo=UTC)]
        left, right = ([queue.offset_at(time, side) for time in asked] for side in ("left", "right"))
    times = spark.createDataFrame([(time,) for time in asked], "time timestamp").coalesce(1)
    rows = times.selectExpr("'orders' as topic", "1 as queue_id", "time")
    assert column(mq.resolve_times(rows, paths["a"]), "queue_offset") == left
    assert column(mq.resolve_times(rows, paths["a"], side="right"), "queue_offset") == right
    answered = rows.select(mq.queue_offset_at("topic", "queue_id", "time", store=paths["a"]).alias("queue_offset"))
    assert column(answered, "queue_offset") == left
    absent = rows.selectExpr("topic", "99 as queue_id", "time")
    assert column(mq.resolve_times(absent, paths["a"]), "queue_offset") == [None] * 4
    with pytest.raises(ValueError, match='side is "left" or "right"'):
        mq.resolve_times(rows, paths["a"], side="middle")  # type: ignore[arg-type]


@pytest.mark.matrix
def test_a_session_in_another_time_zone_finds_the_same_offsets(spark: SparkSession, paths: dict[str, Path]) -> None:
    with mqstore.open(paths["a"]) as store:
        begin = int(store.topics["orders"].queues[0][-1].store_time.timestamp() * 1000)
        expected = store.topics["orders"].queues[0].offset_at(begin)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = spark.sql(f"SELECT 'orders' AS topic, 0 AS queue_id, timestamp_millis({begin}) AS time")
        assert column(mq.resolve_times(rows, paths["a"]), "queue_offset") == [expected]
        mq.register_functions(spark, paths["a"])
        rows.createOrReplaceTempView("times")
        assert column(spark.sql(f"SELECT queue_offset_at(topic, queue_id, {TIME}) AS at FROM times"), "at") == [expected]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture
def sql(spark: SparkSession, references: DataFrame) -> Iterator[SparkSession]:
    references.createOrReplaceTempView("refs")
    yield spark
    spark.catalog.dropTempView("refs")


@pytest.mark.matrix
def test_sql_has_the_functions(sql: SparkSession, paths: dict[str, Path]) -> None:
    mq.register_functions(sql, paths["a"], limit=2)
    located = "SELECT *, message_position(topic, queue_id, queue_offset) AS p FROM refs"
    rows = sql.sql(f"SELECT message_body(p.physical_offset) AS body, size(key_hits(topic, key)) AS hits FROM ({located})")
    assert texts(column(rows, "body")) == ["a 6", "a 6", "a 25", "a 25", "a 6", None, None]
    assert [hits for hits in column(rows, "hits") if hits and hits > 0] == [2, 2, 2, 2]


@pytest.mark.matrix
def test_sql_takes_the_broker_last(sql: SparkSession, paths: dict[str, Path]) -> None:
    mq.register_functions(sql, mq.Stores(paths))
    rows = sql.sql(
        "SELECT message_body(message_position(topic, queue_id, queue_offset, broker).physical_offset, broker) AS body FROM refs"
    )
    assert texts(column(rows, "body")) == ["a 6", "b 6", None, "a 25", None, None, None]
    with pytest.raises(
        PySparkException, match="message_position takes topic, queue_id, queue_offset, broker, but was called with 3"
    ):
        sql.sql("SELECT message_position(topic, queue_id, queue_offset) FROM refs").collect()


def test_several_stores_need_the_broker_and_one_path_has_none(references: DataFrame, paths: dict[str, Path]) -> None:
    stores = mq.Stores(paths)
    calls: list[Any] = [
        lambda store, **broker: mq.message_position("topic", "queue_id", "queue_offset", store=store, **broker),
        lambda store, **broker: mq.key_hits("topic", "key", store=store, **broker),
        lambda store, **broker: mq.queue_offset_at("topic", "queue_id", "queue_offset", store=store, **broker),
        lambda store, **broker: mq.message_body("queue_offset", store=store, **broker),
        lambda store, **broker: mq.resolve_offsets(references, store, **broker),
        lambda store, **broker: mq.resolve_keys(references, store, **broker),
        lambda store, **broker: mq.fetch(references.selectExpr("*", "queue_offset as physical_offset"), store, **broker),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="needs broker=, the column with the broker of each row: there are stores of a, b"):
            call(stores)
        with pytest.raises(ValueError, match="the store has no broker"):
            call(paths["a"], broker="broker")


def test_a_broker_without_a_store_is_named(references: DataFrame, paths: dict[str, Path]) -> None:
    only = mq.Stores({"a": paths["a"]})
    located = references.select(mq.message_position("topic", "queue_id", "queue_offset", store=only, broker="broker"))
    with pytest.raises(PySparkException, match="there is no store of broker 'b'; the brokers are a"):
        located.collect()


@pytest.mark.matrix
def test_what_comes_after_the_plan_is_not_found(spark: SparkSession, paths: dict[str, Path]) -> None:
    path = paths["a"]
    asked = spark.sql(
        """SELECT 'orders' AS topic, 0 AS queue_id, id AS queue_offset, 'k1' AS key,
        current_timestamp() + interval 1 day AS time FROM range(18, 22)"""
    ).coalesce(1)
    positions = mq.resolve_offsets(asked, path)
    hits = mq.resolve_keys(asked, path, limit=1)
    times = mq.resolve_times(asked.drop("queue_offset"), path)
    bodies = asked.select(mq.message_body("queue_offset", store=path).alias("body"))
    with mqstore.open(path) as store:
        end, newest = store.max_physical_offset, store.query("orders", "k1")[-1].physical_offset
    make(path, "later")
    assert [offset is not None for offset in column(positions, "physical_offset")] == [True, True, False, False]
    assert {found[0].physical_offset for found in column(hits, "hits")} == {newest}
    assert set(column(times, "queue_offset")) == {20}
    with pytest.raises(PySparkException, match="no message starts at physical offset"):
        bodies.collect()
    later = spark.range(1).selectExpr(f"{end}L as physical_offset")
    assert mq.fetch(later, path).count() == 1, "a new plan finds it"
    # A queue that began later is absent.
    with mqstore.open(path, mode="a") as store:
        store.append("orders", b"x", queue_id=7)
    absent = mq.resolve_times(asked.drop("queue_offset").selectExpr("topic", "7 as queue_id", "time"), path)
    assert set(column(absent, "queue_offset")) == {1}


def test_a_queue_that_began_after_the_plan_is_absent(spark: SparkSession, paths: dict[str, Path]) -> None:
    asked = spark.sql("SELECT 'orders' AS topic, 7 AS queue_id, timestamp '2000-01-01 00:00:00' AS time")
    times = mq.resolve_times(asked, paths["a"])
    with mqstore.open(paths["a"], mode="a") as store:
        store.append("orders", b"x", queue_id=7)
    assert column(times, "queue_offset") == [None]


def test_bodies_that_are_too_large_for_a_batch_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mqstore.open(tmp_path / "store", mode="x") as store:
        offsets = [store.append("t", b"x" * (1 << 20)).physical_offset for _ in range(3)]
    monkeypatch.setattr(functions, "_MOST_BODY_BYTES", 2 << 20)
    question = functions.body_lookup("raise")
    (snapshot,) = functions.plan_now(tmp_path / "store").values()
    for asked in (offsets, [offsets[0]] * 3):
        batch = functions.pa.record_batch([functions.pa.array(asked)], names=["physical_offset"])
        with pytest.raises(mqstore.StoreError, match="the bodies of a batch of 3 rows take more than 2 MiB: use fetch"):
            question.answer(snapshot, batch)


def test_an_absent_body_fails_the_job_or_is_null(spark: SparkSession, paths: dict[str, Path]) -> None:
    asked = spark.createDataFrame([(0,), (None,), (1,), (10**12,), (0,)], "physical_offset long").coalesce(1)
    with pytest.raises(PySparkException, match="no message starts at physical offset|NotFoundError|CorruptError"):
        asked.select(mq.message_body("physical_offset", store=paths["a"])).collect()
    bodies = asked.select(mq.message_body("physical_offset", store=paths["a"], errors="skip").alias("body"))
    assert texts(column(bodies, "body")) == ["a 0", None, None, None, "a 0"]
    (snapshot,) = functions.plan_now(paths["a"]).values()
    with pytest.raises(ValueError, match="message_body takes physical_offset as bigint, but the column is string: cast it first"):
        functions.body_lookup("raise").answer(snapshot, functions.pa.record_batch([["0"]], names=["physical_offset"]))
    with pytest.raises(ValueError, match='errors is "raise" or "skip"'):
        mq.message_body("physical_offset", store=paths["a"], errors="ignore")  # type: ignore[arg-type]


def test_a_function_takes_columns_as_well_as_names(references: DataFrame, paths: dict[str, Path]) -> None:
    by_columns: Column = mq.message_position(
        references.topic, references.queue_id + 0, references.queue_offset, store=mq.Stores(paths), broker=references.broker
    )
    found = references.withColumn("p", by_columns).where("p.physical_offset is not null")
    assert found.count() == 3


def test_a_bad_argument_of_a_function_fails_before_a_job_starts(tmp_path: Path) -> None:
    with pytest.raises(mqstore.NotAStoreError, match=str(tmp_path)):
        mq.message_position("topic", "queue_id", "queue_offset", store=tmp_path)
    with pytest.raises(TypeError, match="store is a path"):
        mq.key_hits("topic", "key", store=7)  # type: ignore[arg-type]


def test_no_name_shadows_a_function_of_pyspark() -> None:
    assert set(mq.__all__).isdisjoint(dir(spark_functions))
