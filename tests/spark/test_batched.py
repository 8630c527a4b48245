"""`batched`: a function of a store and a batch of rows over the partitions of an RDD or a frame."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

import mqstore
import mqstore.spark as mq

# A server of Spark Connect cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MESSAGES = 50
SCHEMA = "topic string, queue_id int, queue_offset long"

needs_rdd = pytest.mark.skipif("TEST_REMOTE" in os.environ, reason="Spark Connect has no RDDs")


def make(path: Path, body: bytes) -> Path:
    with mqstore.open(path, mode="x") as store:
        store.append_batch([(b"%s %d" % (body, number)) for number in range(MESSAGES)], topic="orders")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make(tmp_path / "store", b"a")


@pytest.fixture
def references(spark: SparkSession) -> DataFrame:
    return spark.range(0, MESSAGES, 1, 2).selectExpr("'orders' as topic", "0 as queue_id", "id as queue_offset")


def bodies(store: mqstore.Store, wanted: pa.RecordBatch) -> mqstore.Batches:
    return store.fetch(store.resolve_offsets(wanted), columns=["queue_offset", "body"])


def rows_at_once(store: mqstore.Store, wanted: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch([pa.array([wanted.num_rows])], names=["rows"])


EXPECTED = {number: b"a %d" % number for number in range(MESSAGES)}


@pytest.mark.matrix
@needs_rdd
def test_an_rdd_of_tuples_takes_a_schema(references: DataFrame, store: Path) -> None:
    tuples = references.rdd.map(tuple)
    for schema in (
        SCHEMA,
        references.schema,
        pa.schema([("topic", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64())]),
    ):
        found = tuples.mapPartitions(mq.batched(bodies, store, 7, schema=schema)).collect()
        assert {row.queue_offset: row.body for row in found} == EXPECTED
    with pytest.raises(Exception, match="the rows are tuples without names: give batched a schema"):
        tuples.mapPartitions(mq.batched(bodies, store)).collect()
    with pytest.raises(Exception, match="a row has 3 values, but the schema 1: topic"):
        tuples.mapPartitions(mq.batched(bodies, store, schema="topic string")).collect()
    with pytest.raises(Exception, match="a row is a Row, a dict or a tuple, not int"):
        tuples.map(len).mapPartitions(mq.batched(bodies, store)).collect()


@needs_rdd
def test_row_values_are_matched_by_name_if_the_names_are_the_schemas(spark: SparkSession, store: Path) -> None:
    rows = spark.sparkContext.parallelize([Row(queue_offset=7, queue_id=0, topic="orders")])
    for schema in (SCHEMA, None):
        assert rows.mapPartitions(mq.batched(bodies, store, schema=schema)).collect() == [Row(queue_offset=7, body=b"a 7")]
    renamed = spark.sparkContext.parallelize([Row(t="orders", q=0, offset=7)])
    assert renamed.mapPartitions(mq.batched(bodies, store, schema=SCHEMA)).collect() == [Row(queue_offset=7, body=b"a 7")]


@needs_rdd
def test_a_row_that_has_a_name_twice_keeps_both_values(spark: SparkSession, store: Path) -> None:
    def values(_: mqstore.Store, batch: pa.RecordBatch) -> Iterator[list[int]]:
        yield [column[0].as_py() for column in batch.columns]

    rows = spark.sparkContext.parallelize([Row("offset", "offset")(7, 8)])
    for schema in ("offset long, offset long", None):
        assert rows.mapPartitions(mq.batched(values, store, schema=schema)).collect() == [[7, 8]]


@needs_rdd
def test_rows_and_dicts_have_their_names(references: DataFrame, store: Path) -> None:
    for rows in (references.rdd, references.rdd.map(Row.asDict)):
        found = rows.mapPartitions(mq.batched(bodies, store)).collect()
        assert {row.queue_offset: row.body for row in found} == EXPECTED


@needs_rdd
def test_any_rows_come_back_from_an_rdd_as_they_are(references: DataFrame, store: Path) -> None:
    def numbers(_: mqstore.Store, wanted: pa.RecordBatch) -> Iterator[int]:
        yield from wanted["queue_offset"].to_pylist()

    assert sorted(references.rdd.mapPartitions(mq.batched(numbers, store)).collect()) == list(range(MESSAGES))
    nothing = references.rdd.mapPartitions(mq.batched(lambda _store, _wanted: None, store))
    assert nothing.collect() == []
    with pytest.raises(PySparkException, match="the function returned int: it returns Arrow data, a pandas DataFrame, or an it"):
        references.rdd.mapPartitions(mq.batched(lambda _store, _wanted: 7, store)).collect()
    empty = references.rdd.filter(lambda row: False).mapPartitions(mq.batched(numbers, store))
    assert empty.collect() == []


@needs_rdd
def test_a_function_gets_as_many_rows_as_it_asks_for(references: DataFrame, store: Path) -> None:
    counted = references.rdd.mapPartitions(mq.batched(rows_at_once, store, 10)).map(lambda row: row.rows)
    assert counted.collect() == [10, 10, 5, 10, 10, 5]
    for rows in (0, -1, "7"):
        with pytest.raises(ValueError, match="rows is a number of rows from 1 on"):
            mq.batched(rows_at_once, store, rows)  # type: ignore[arg-type]


def test_the_batches_of_a_frame_are_cut_and_joined_to_the_same_size(
    spark: SparkSession, references: DataFrame, store: Path
) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 4)
    try:
        for rows, expected in ((10, [10, 10, 5, 10, 10, 5]), (3, [3] * 8 + [1] + [3] * 8 + [1])):
            counted = references.mapInArrow(mq.batched(rows_at_once, store, rows), "rows long")
            assert [row.rows for row in counted.collect()] == expected
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.matrix
def test_a_frame_goes_through_arrow_and_through_pandas(references: DataFrame, store: Path) -> None:
    through_arrow = references.mapInArrow(mq.batched(bodies, store, 7), "queue_offset long, body binary")
    assert {row.queue_offset: bytes(row.body) for row in through_arrow.collect()} == EXPECTED
    through_pandas = references.mapInPandas(mq.batched(bodies, store, 7), "queue_offset long, body binary")
    assert {row.queue_offset: bytes(row.body) for row in through_pandas.collect()} == EXPECTED


def test_a_function_returns_what_speaks_arrow_a_pandas_frame_or_several(references: DataFrame, store: Path) -> None:
    def as_pandas(store: mqstore.Store, wanted: pa.RecordBatch) -> pd.DataFrame:
        return bodies(store, wanted).to_arrow().to_pandas()

    def in_parts(store: mqstore.Store, wanted: pa.RecordBatch) -> Iterator[Any]:
        for at in range(0, wanted.num_rows, 4):
            yield bodies(store, wanted.slice(at, 4)).to_arrow()
            yield None

    for function in (as_pandas, in_parts):
        for run in (references.mapInArrow, references.mapInPandas):
            found = run(mq.batched(function, store), "queue_offset long, body binary").collect()
            assert {row.queue_offset: bytes(row.body) for row in found} == EXPECTED
    wrong = references.mapInArrow(mq.batched(lambda _store, _wanted: [(1, b"")], store), "queue_offset long, body binary")
    with pytest.raises(PySparkException, match="the function returned tuple: here it returns Arrow data"):
        wrong.collect()


@pytest.mark.matrix
def test_several_stores_come_as_stores(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    stores = mq.Stores({"a": store, "b": make(tmp_path / "other", b"b")})

    def of_broker(stores: mq.Stores, wanted: pa.RecordBatch) -> Iterator[pa.Table]:
        for broker in stores.brokers:
            opened = stores.open(broker)
            assert opened is stores.open(broker)
            yield bodies(opened, wanted).to_arrow()

    asked = spark.createDataFrame([("orders", 0, 7)], SCHEMA)
    found = asked.mapInArrow(mq.batched(of_broker, stores), "queue_offset long, body binary").collect()
    assert sorted(bytes(row.body) for row in found) == [b"a 7", b"b 7"]
    unknown = asked.mapInArrow(mq.batched(lambda stores, _: stores.open("c"), stores), "queue_offset long")
    with pytest.raises(PySparkException, match="there is no store of broker 'c'"):
        unknown.collect()


@pytest.mark.parametrize("several", [False, True])
def test_another_store_in_the_place_of_one_fails_the_job(
    references: DataFrame, store: Path, tmp_path: Path, several: bool
) -> None:
    stores = mq.Stores({"a": store, "b": make(tmp_path / "other", b"b")})

    def one(store: Any, wanted: pa.RecordBatch) -> mqstore.Batches:
        return bodies(store.open("a") if several else store, wanted)

    found = references.mapInArrow(mq.batched(one, stores if several else store), "queue_offset long, body binary")
    assert found.count() == MESSAGES
    shutil.rmtree(store)
    make(store, b"another")
    with pytest.raises(PySparkException, match="not the store that the job was planned with"):
        found.collect()


def test_a_schema_of_another_kind_is_refused(store: Path) -> None:
    with pytest.raises(TypeError, match="schema is a StructType, a pyarrow.Schema or a text, not list"):
        mq.batched(bodies, store, schema=["topic"])  # type: ignore[arg-type]
