from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

import mqstore
import mqstore.spark as mq


def test_a_scan_gives_what_its_arguments_ask_for(spark: SparkSession, events_store: Path) -> None:
    with mqstore.open(events_store) as store:
        times = store.scan(columns=["store_time"]).to_arrow().column("store_time").to_pylist()
        start, stop = times[2000], times[5000]
        expected = store.scan(since=start, until=stop, topics=["store", "broker"], tags="fix", columns=["body"]).to_arrow()
    assert 0 < len(expected) < 3000
    frame = mq.scan(
        spark, events_store, columns=["body"], topics=["store", "broker"], since=start, until=stop, where={"tags": "fix"}
    )
    assert frame.toArrow().to_pylist() == expected.to_pylist()
    in_ms = int(start.timestamp() * 1000)
    assert mq.scan(spark, events_store, columns=["tags"], since=in_ms).count() == sum(time >= start for time in times)


@pytest.mark.parametrize(
    ("where", "arguments"),
    [
        ({"queue_ids": 2}, {"queue_ids": 2}),
        ({"queue_ids": [0, 3]}, {"queue_ids": [0, 3]}),
        ({"keys": ["7", "1568"]}, {"keys": ["7", "1568"]}),
        ({"properties": {"TAGS": "fix"}}, {"properties": {"TAGS": "fix"}}),
        ({"body_contains": "broker", "body_regex": "[0-9]{4}"}, {"body_contains": "broker", "body_regex": "[0-9]{4}"}),
    ],
)
def test_each_condition_is_that_of_a_scan_of_the_store(
    spark: SparkSession, events_store: Path, where: mq.Where, arguments: dict[str, Any]
) -> None:
    with mqstore.open(events_store) as store:
        expected = store.scan(columns=["tags"], **arguments).to_arrow().num_rows
    assert mq.scan(spark, events_store, columns=["tags"], where=where).count() == expected
    assert 0 < expected < 7865


def test_a_scan_for_no_topic_queue_or_key_gives_nothing(spark: SparkSession, events_store: Path) -> None:
    with mqstore.open(events_store) as store:
        assert [store.scan(**{name: []}).to_arrow().num_rows for name in ("topics", "queue_ids", "keys")] == [0, 0, 0]
    assert mq.scan(spark, events_store, where={"keys": []}).count() == 0
    assert mq.scan(spark, events_store, where={"queue_ids": []}).count() == 0
    assert mq.scan(spark, events_store, topics=[]).count() == 0


def test_a_key_with_a_space_is_refused(spark: SparkSession, events_store: Path) -> None:
    with pytest.raises(ValueError, match="a key is a text without spaces"):
        mq.scan(spark, events_store, where={"keys": ["a b"]})


def test_times_of_the_first_months_of_1970_are_times(spark: SparkSession, events_store: Path) -> None:
    begin = datetime(1970, 1, 21, tzinfo=UTC)
    assert mq.scan(spark, events_store, since=begin).count() == 7865
    assert mq.scan(spark, events_store, until=begin).count() == 0


@pytest.mark.matrix
def test_some_stores_are_scanned_with_their_brokers(spark: SparkSession, golden: Path) -> None:
    stores = mq.Stores({"a": golden / "533_mixed", "b": golden / "551_mixed"})
    with mqstore.open(golden / "533_mixed") as store:
        expected = store.scan().to_arrow().num_rows
    frame = mq.scan(spark, stores, columns=["broker", "queue_id"])
    assert frame.where("broker = 'a'").count() == expected
    with mock.patch("mqstore.spark.stores.os.path.exists", return_value=False):
        far = mq.scan(spark, stores, columns=["broker", "queue_id"])
    assert far.where("broker = 'a'").count() == expected


def test_an_open_reader_is_scanned_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as writer:
        writer.append("t", b"planned")
        with mqstore.open(tmp_path / "s") as reader:
            writer.append("t", b"later")
            assert [row.body for row in mq.scan(spark, reader, columns=["body"]).collect()] == [b"planned"]
            assert mq.scan(spark, reader, columns=["queue_id"]).count() == 1


def test_arguments_that_do_not_fit_are_refused(spark: SparkSession, events_store: Path) -> None:
    with pytest.raises(ValueError, match="since is a datetime with a timezone"):
        mq.scan(spark, events_store, since=datetime(2026, 1, 1))
    with pytest.raises(ValueError, match=r"unknown option minPartition \(did you mean minPartitions\?\); accepted are path"):
        mq.scan(spark, events_store, minPartition=2)
    with pytest.raises(ValueError, match="where has tag; it may have queue_ids, tags, keys"):
        mq.scan(spark, events_store, where={"tag": "a"})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(ValueError, match=r'where is a dict such as \{"tags": "paid"\}, not "tags = .paid.": .*df\.where'):
        mq.scan(spark, events_store, where="tags = 'paid'")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"columns is a list of column names, such as \['body'\], not 'body'"):
        mq.scan(spark, events_store, columns="body")
