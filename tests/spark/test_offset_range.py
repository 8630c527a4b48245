"""Batch reads by queue offset, with the options of Kafka's source."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from unpack import unpack

import mqstore
from mqstore.spark import _snapshot, manifest
from mqstore.spark._options import ScanOptions
from mqstore.spark._progress import QueueView
from mqstore.spark._ranges import RangesPart
from mqstore.spark.source import MessageDataSource, MessageReader

Key = tuple[str, int, int]

KEY = "topic,queue_id,queue_offset"
# The number of messages of each queue.
QUEUES = {("a", 0): 10, ("a", 1): 10, ("ab", 0): 6, ("b", 0): 4}
ALL = {(*queue, offset) for queue, messages in QUEUES.items() for offset in range(messages)}


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Creates a store. Also returns the time in ms since 1970 at which the second half of each queue begins."""
    path = tmp_path_factory.mktemp("ranges") / "store"
    with mqstore.open(path, "x") as store:
        for half in (0, 1):
            for (topic, queue_id), messages in QUEUES.items():
                for number in range(messages // 2):
                    store.append(topic, b"%d" % number, queue_id=queue_id, tags=f"tag-{number % 2}")
            if half == 0:
                time.sleep(0.01)
                middle = store.append("middle", b"").store_time
                time.sleep(0.01)
    return path, int(middle.timestamp() * 1000)


@pytest.fixture
def path(halves: tuple[Path, int]) -> Path:
    return halves[0]


def keys(*queues: tuple[str, int, int, int]) -> set[Key]:
    """Returns the messages of half-open ranges of queue offsets."""
    return {(topic, queue_id, offset) for topic, queue_id, start, stop in queues for offset in range(start, stop)}


def planned(path: str | Path | None, **options: str) -> MessageReader:
    source = MessageDataSource({"columns": KEY, **({} if path is None else {"path": str(path)}), **options})
    return source.reader(source.schema())


def rows(reader: MessageReader) -> list[Any]:
    return [tuple(row.values()) for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def refused(message: str) -> AbstractContextManager[Any]:
    return pytest.raises(ValueError, match=message)


@pytest.mark.matrix
@pytest.mark.parametrize("columns", [KEY, f"{KEY},body"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "a,b"}, keys(("a", 0, 0, 10), ("a", 1, 0, 10), ("b", 0, 0, 4))),
        ({"subscribePattern": "a."}, keys(("ab", 0, 0, 6))),
        ({"subscribePattern": "nothing.*"}, set()),
        ({"assign": '{"a": [1], "b": [0]}'}, keys(("a", 1, 0, 10), ("b", 0, 0, 4))),
        ({"topics": "ab", "startingOffsets": '{"ab": {"0": 2}}'}, keys(("ab", 0, 2, 6))),
        (
            {
                "subscribe": "a",
                "startingOffsets": '{"a": {"0": 3, "1": -2}}',
                "endingOffsets": '{"a": {"0": 7, "1": -1}}',
            },
            keys(("a", 0, 3, 7), ("a", 1, 0, 10)),
        ),
        ({"queueIds": "1", "endingOffsets": '{"a": {"1": 4}}'}, keys(("a", 1, 0, 4))),
        ({"assign": '{"a": [0]}', "endingOffsets": '{"a": {"0": 7}}', "tags": "tag-1"}, {("a", 0, n) for n in (1, 3, 6)}),
    ],
)
def test_a_batch_reads_the_queue_offsets_that_the_options_name(
    spark: SparkSession, path: Path, options: dict[str, str], expected: set[Key], columns: str
) -> None:
    found = spark.read.format("mqstore").option("columns", columns).options(**options).load(str(path)).collect()
    assert Counter(tuple(row)[:3] for row in found) == Counter(expected)


def test_the_words_earliest_and_latest_are_the_defaults(path: Path) -> None:
    found = rows(planned(path, subscribePattern="[ab]+", startingOffsets="EARLIEST", endingOffsets="latest"))
    assert Counter(found) == Counter(ALL)


@pytest.mark.matrix
def test_times_of_queues_become_queue_offsets(spark: SparkSession, halves: tuple[Path, int]) -> None:
    path, middle = halves

    def read(option: str, times: dict[str, int]) -> set[Any]:
        load = spark.read.format("mqstore").options(columns=KEY, subscribe="a")
        return {tuple(row) for row in load.option(option, json.dumps({"a": times})).load(str(path)).collect()}

    assert read("startingOffsetsByTimestamp", {"0": middle, "1": 0}) == keys(("a", 0, 5, 10), ("a", 1, 0, 10))
    late = middle + 3_600_000
    assert read("endingOffsetsByTimestamp", {"0": middle, "1": late}) == keys(("a", 0, 0, 5), ("a", 1, 0, 10))


def test_a_start_time_after_the_last_message_fails_unless_it_means_latest(halves: tuple[Path, int]) -> None:
    path, middle = halves
    late = {"subscribe": "b", "startingOffsetsByTimestamp": json.dumps({"b": {"0": middle + 3_600_000}})}
    with refused("b/0 has no message that was stored at .* startingOffsetsByTimestampStrategy=latest"):
        planned(path, **late)
    assert rows(planned(path, startingOffsetsByTimestampStrategy="latest", **late)) == []


def test_a_timestamp_goes_before_times_of_queues_and_these_before_offsets(halves: tuple[Path, int]) -> None:
    path, middle = halves
    options = {"subscribe": "b", "startingOffsets": '{"b": {"0": 3}}', "endingOffsets": '{"b": {"0": 1}}'}
    by_queue = json.dumps({"b": {"0": middle}})
    options |= {"startingOffsetsByTimestamp": by_queue, "endingOffsetsByTimestamp": json.dumps({"b": {"0": middle + 3_600_000}})}
    assert rows(planned(path, **options)) == [("b", 0, 2), ("b", 0, 3)]
    options |= {"startingTimestamp": "0"}
    assert len(rows(planned(path, **options))) == 4
    options |= {"endingTimestamp": str(middle)}
    assert rows(planned(path, **options)) == [("b", 0, 0), ("b", 0, 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": "a", "subscribe": "a"}, "options topics and subscribe both name the queues of the read: give one of them"),
        ({"subscribe": "a", "assign": "{}"}, "options subscribe and assign both name the queues of the read: give one of them"),
        (
            {"assign": '{"a": [0]}', "queueIds": "1"},
            "options assign and queueIds both name the queues of the read: give one of them",
        ),
        ({"subscribe": "[]"}, "option subscribe names nothing to read: leave it out to read all topics"),
        ({"subscribe": "%LMQ%a", "endingOffsets": "latest"}, "option subscribe names the light queue %LMQ%a: read the topics"),
        ({"startingOffsets": "latest"}, "option startingOffsets is one of earliest or JSON such as .*, not 'latest'"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, r"startingOffsets: a/0 begins at a queue offset, -2 \(earliest\), not -1"),
        ({"endingOffsets": "earliest"}, "option endingOffsets is one of latest or JSON such as .*, not 'earliest'"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, r"endingOffsets: a/0 ends at a queue offset, -1 \(latest\), not -2"),
        ({"endingOffsets": '{"a": 7}'}, "option endingOffsets is JSON such as"),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 1763870400}}'}, "this one looks like seconds"),
        ({"maxOffsetsPerTrigger": "5"}, r"option maxOffsetsPerTrigger is only for streams \(spark.readStream\)"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay is a duration"),
    ],
)
def test_options_that_contradict_a_batch_are_refused_by_name(path: Path, options: dict[str, str], message: str) -> None:
    with refused(message):
        MessageDataSource({"path": str(path), **options}).schema() and ScanOptions.parse({"path": str(path), **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": '{"a": {"0": 1}}'}, "option endingOffsets does not name a/1, which the query reads: -1 is its end$"),
        ({"startingOffsets": '{"a": {"0": 1}}'}, "does not name a/1, which the query reads: -2 is its start$"),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 1}}'}, "does not name a/1, which the query reads: give a time for it$"),
        ({"endingOffsets": '{"a": {"0": 1, "1": 1}, "b": {"0": 1}}'}, "option endingOffsets names b/0, which is not read"),
        ({"subscribe": "a,c", "endingOffsets": "latest"}, "there is no topic c; the topics are a, ab, b, middle"),
        ({"subscribe": "a,c"}, "there is no topic c; "),
        ({"subscribe": "a,aq", "endingOffsets": "latest"}, "there is no topic aq; there is a$"),
        ({"assign": '{"a": [0, 7]}'}, "there is no queue a/7: topic a has the queue ids 0, 1$"),
        ({"assign": '{"c": [0]}'}, "there is no topic c; the topics are a, ab, b, middle"),
        ({"queueIds": "7,8", "endingOffsets": "latest"}, "there is no queue a/7, a/8: topic a has the queue ids 0, 1$"),
        (
            {"startingOffsets": '{"a": {"0": 7, "1": 0}}', "endingOffsets": '{"a": {"0": 3, "1": 1}}'},
            r"the range of a/0 starts at queue offset 7 \(startingOffsets\) and ends before that, at 3 \(endingOffsets\)",
        ),
    ],
)
def test_ranges_that_do_not_fit_the_queues_are_refused(path: Path, options: dict[str, str], message: str) -> None:
    with refused(message):
        planned(path, **({"subscribe": "a"} if "assign" not in options else {}) | options)


def test_a_range_past_the_end_of_its_queue_fails_with_the_bounds(
    spark: SparkSession, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    beyond = {"columns": KEY, "subscribe": "b", "endingOffsets": '{"b": {"0": 9}}'}
    complaint = "b/0: offsets 0 to 9 are to be read, but the snapshot of the job has 0 to 4"
    with pytest.raises(PySparkException, match=f"messages may be missed: {complaint}.*failOnDataLoss=false"):
        spark.read.format("mqstore").options(**beyond).load(str(path)).count()
    found = spark.read.format("mqstore").options(**beyond, failOnDataLoss="false").load(str(path)).collect()
    assert {tuple(row) for row in found} == keys(("b", 0, 0, 4))
    assert len(rows(planned(path, **beyond, failOnDataLoss="false"))) == 4
    assert caplog.messages == [complaint]
    ahead = {"subscribe": "b", "startingOffsets": '{"b": {"0": 9}}'}
    with pytest.raises(mqstore.StoreError, match="offsets 9 to 4 are to be read, but the snapshot of the job has 0 to 4"):
        planned(path, **ahead)
    assert rows(planned(path, **ahead, failOnDataLoss="false")) == []


def expired(golden: Path, path: Path) -> tuple[str, int, int, int]:
    """Creates a store whose first segment has expired. Returns a topic, one of its queues, and the bounds of the queue."""
    shutil.copytree(golden / "491_multifile", path)
    (path / "commitlog" / f"{0:020}").unlink()
    with mqstore.open(path) as store:
        for name, topic in store.topics.items():
            for queue in topic.queues:
                if queue.min_offset > 0:
                    return name, queue.queue_id, queue.min_offset, queue.max_offset
    raise AssertionError("no queue has lost its first messages")


def test_a_range_whose_first_messages_have_expired_fails_with_the_bounds(golden: Path, tmp_path: Path) -> None:
    topic, queue_id, least, most = expired(golden, tmp_path / "store")
    options = {"assign": json.dumps({topic: [queue_id]}), "startingOffsets": json.dumps({topic: {queue_id: 0}})}
    message = f"{topic}/{queue_id}: offsets 0 to {most} are to be read, but the snapshot of the job has {least} to {most}"
    with pytest.raises(mqstore.StoreError, match=message):
        planned(tmp_path / "store", **options)
    found = rows(planned(tmp_path / "store", **options, failOnDataLoss="false"))
    assert found == [(topic, queue_id, offset) for offset in range(least, most)]


def test_messages_expired_since_a_manifest_fail_a_range_that_needs_them(golden: Path, tmp_path: Path) -> None:
    written = json.dumps({"": manifest(golden / "491_multifile")})
    topic, queue_id, least, most = expired(golden, tmp_path / "store")
    options = {"assign": json.dumps({topic: [queue_id]}), "manifests": written}
    for start in ("earliest", json.dumps({topic: {queue_id: -2}})):
        with pytest.raises(mqstore.StoreError, match="messages have expired since"):
            planned(tmp_path / "store", **options, startingOffsets=start)
    with pytest.raises(mqstore.StoreError, match="messages have expired since"):
        planned(tmp_path / "store", **options, startingOffsetsByTimestamp=json.dumps({topic: {queue_id: 0}}))
    for start in ({"startingOffsets": json.dumps({topic: {queue_id: least}})}, {"failOnDataLoss": "false"}):
        assert len(rows(planned(tmp_path / "store", **options, **start))) == most - least


@pytest.mark.parametrize("columns", [KEY, f"{KEY},body"])
def test_messages_of_a_range_that_expire_after_the_plan_fail_the_job(golden: Path, tmp_path: Path, columns: str) -> None:
    path = tmp_path / "store"
    shutil.copytree(golden / "491_multifile", path)
    reader = planned(path, startingOffsets="earliest", columns=columns)
    parts = list(reader.partitions())
    _snapshot._cache.clear()
    (path / "commitlog" / f"{0:020}").unlink()
    with pytest.raises(mqstore.StoreError, match="expired after the job was planned"):
        [list(reader.read(part)) for part in parts]


def test_a_range_ends_where_the_store_ended_when_the_job_was_planned(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.append_batch([b"planned"] * 5, topic="t")
        store.flush()
        written = json.dumps({"": manifest(path)})
        reader = planned(path, startingOffsets="earliest", columns="body")
        store.append_batch([b"later"] * 5, topic="t")
        store.flush()
        for each in (reader, planned(path, startingOffsets="earliest", columns="body", manifests=written)):
            assert rows(each) == [(b"planned",)] * 5
    shutil.move(path, tmp_path / "elsewhere")
    with refused("does not exist on the driver, which needs the queues to plan ranges of queue offsets"):
        planned(path, startingOffsets="earliest", manifests=written)


def test_queues_that_began_after_the_snapshot_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.append_batch([b"planned"] * 5, topic="t")
        written = json.dumps({"": manifest(path)})
        store.append_batch([b"later"] * 5, topic="t")
        store.append("t", b"later", queue_id=1)
        store.append("u", b"later")
    bounds = {"startingOffsets": '{"t": {"0": 1}}', "endingOffsets": '{"t": {"0": 4}}', "manifests": written}
    assert rows(planned(path, **bounds)) == [("t", 0, offset) for offset in range(1, 4)]
    with refused("there is no queue t/1: topic t has the queue ids 0$"):
        planned(path, assign='{"t": [1]}', startingOffsets="earliest", manifests=written)
    with refused("there is no topic u; the topics are t$"):
        planned(path, subscribe="u", startingOffsets="earliest", manifests=written)
    past_the_end = bounds | {"endingOffsets": '{"t": {"0": 7}}'}
    with pytest.raises(mqstore.StoreError, match="t/0: offsets 1 to 7 are to be read, but the snapshot of the job has 0 to 5"):
        planned(path, **past_the_end)


def test_messages_that_expire_while_a_range_is_planned_fail_it(golden: Path, tmp_path: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(golden / "491_multifile", path)

    at_plan = QueueView.at_plan

    def expire(*arguments: Any) -> QueueView:
        """Reads the bounds of the queues, from which the first messages have just expired."""
        _snapshot._cache.clear()
        (path / "commitlog" / f"{0:020}").unlink(missing_ok=True)
        return at_plan(*arguments)

    with mock.patch.object(QueueView, "at_plan", expire), pytest.raises(mqstore.StoreError, match="messages have expired since"):
        planned(path, startingOffsets="earliest")


@pytest.mark.parametrize("columns", [KEY, f"{KEY},body"])
def test_the_splits_of_a_range_have_each_message_once(path: Path, columns: str) -> None:
    for options in ({"minPartitions": "7"}, {"maxRecordsPerPartition": "3"}, {"targetPartitionBytes": "300"}):
        reader = planned(path, subscribe="a,b", startingOffsets="earliest", columns=columns, **options)
        assert len(reader.partitions()) > 1
        assert Counter(row[:3] for row in rows(reader)) == Counter(key for key in ALL if key[0] != "ab"), options


def test_offsets_name_the_broker_below_the_topic(path: Path) -> None:
    options = {"stores": json.dumps({"one": str(path), "two": str(path)}), "columns": f"broker,{KEY}", "subscribe": "b"}
    found = rows(planned(None, **options, startingOffsets='{"b": {"one": {"0": 1}, "two": {"0": 3}}}'))
    assert sorted(found) == [("one", "b", 0, 1), ("one", "b", 0, 2), ("one", "b", 0, 3), ("two", "b", 0, 3)]


def test_offsets_without_a_broker_apply_to_each_store_that_has_the_queue(path: Path, tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "other", "x") as store:
        store.append_batch([b"x"] * 5, topic="b")
    options = {"stores": json.dumps({"one": str(path), "two": str(tmp_path / "other")}), "columns": f"broker,{KEY}"}
    of_a = [("one", "a", queue_id, 9) for queue_id in (0, 1)]
    found = rows(planned(None, **options, subscribe="a,b", startingOffsets='{"a": {"0": 9, "1": 9}, "b": {"0": 3}}'))
    assert sorted(found) == [*of_a, ("one", "b", 0, 3), ("two", "b", 0, 3), ("two", "b", 0, 4)]
    found = rows(planned(None, **options, assign='{"a": [0, 1]}', startingOffsets='{"a": {"0": 9, "1": 9}}'))
    assert sorted(found) == of_a
    with refused("option startingOffsets names a/2, which is not read"):
        planned(None, **options, subscribe="a", startingOffsets='{"a": {"0": 9, "1": 9, "2": 0}}')
    with refused("broker two has no topic a; the topics are b$"):
        planned(None, **options, assign='{"a": {"one": [0], "two": [0]}}')


def test_a_range_reads_only_the_stretch_of_its_messages(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        for number in range(1000):
            store.append("t", bytes(100), queue_id=0 if number < 500 else 1)
    reader = planned(tmp_path / "store", assign='{"t": [0]}', endingOffsets='{"t": {"0": 10}}', columns="body")
    (part,) = reader.partitions()
    assert isinstance(part, RangesPart)
    ((start, stop),) = part.stretches
    assert stop - start < 10_000
    assert len(rows(reader)) == 10


def test_ranges_log_the_queues_whose_files_are_lost(tmp_path: Path, golden: Path, caplog: pytest.LogCaptureFixture) -> None:
    unpack(golden / "533_broker.tar.xz", tmp_path)
    path = tmp_path / "533_broker"
    shutil.rmtree(path / "consumequeue" / "orders" / "1")
    planned(path, subscribe="orders", startingOffsets="earliest")
    [logged] = caplog.messages
    assert "are not read: orders/1; " in logged
    caplog.clear()
    planned(path, subscribe="orders", startingOffsets="earliest", queueIds="0,2")
    assert caplog.messages == []
