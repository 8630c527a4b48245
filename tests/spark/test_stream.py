from __future__ import annotations

import json
import pickle
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

import mqstore
from mqstore.spark import MESSAGE_SCHEMA, _snapshot
from mqstore.spark._options import StreamOptions
from mqstore.spark._positions import QueueName, ends_before
from mqstore.spark._ranges import RangesPart, union
from mqstore.spark.source import MessageDataSource
from mqstore.spark.stream import MessageStreamReader, share

Offsets = dict[str, Any]
Row = tuple[str, int, int]

KEY = "topic,queue_id,queue_offset"


@pytest.fixture(autouse=True)
def _nothing_open() -> None:
    _snapshot._cache.clear()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    """Opens a store for writing. Streams read what it has flushed."""
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=1 << 16) as writer:
        yield writer


def append(store: mqstore.Store, topic: str, messages: int, queues: int = 1) -> None:
    """Appends to the queues in turn, and flushes."""
    for number in range(messages):
        store.append(topic, b"%d" % number, queue_id=number % queues)
    store.flush()


class Query:
    """A streaming query without Spark: it makes the calls of Spark, and counts the rows."""

    def __init__(self, path: str | None, start: Offsets | None = None, /, **options: str) -> None:
        self.path = path
        self._options = {"columns": KEY, **({} if path is None else {"path": path}), **options}
        self.restart()
        self.offsets = start or travelled(self.reader.initialOffset())
        self.rows: Counter[Row] = Counter()

    def restart(self) -> None:
        """Creates a reader without state, as a restart from the checkpoint does."""
        source = MessageDataSource(self._options)
        self.reader: Any = source.streamReader(source.schema())

    def latest(self, limit: ReadLimit | None = None) -> Offsets:
        return travelled(self.reader.latestOffset(self.offsets, limit or self.reader.getDefaultReadLimit()))

    def read(self, end: Offsets) -> list[Row]:
        """Reads the batch with this end."""
        parts = self.reader.partitions(self.offsets, end)
        batches = [batch for part in parts for batch in self.reader.read(part)]
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    def batch(self, limit: ReadLimit | None = None) -> int | None:
        """Reads the next batch. Returns the number of its rows, None without a batch."""
        end = self.latest(limit)
        if end == self.offsets:
            return None
        rows = self.read(end)
        self.rows.update(rows)
        self.offsets = end
        return len(rows)

    def run(self) -> list[int]:
        """Reads batches until there are no more. Returns the numbers of their rows."""
        sizes = []
        while (size := self.batch()) is not None:
            sizes.append(size)
        return sizes

    def read_once(self) -> dict[tuple[str, int], int]:
        """Counts the messages of each queue. Fails for a repeated or missing message."""
        assert set(self.rows.values()) <= {1}
        ends = Counter((topic, queue_id) for topic, queue_id, _ in self.rows)
        assert all((*queue, offset) in self.rows for queue, count in ends.items() for offset in range(count))
        return dict(ends)


def travelled(offsets: Offsets) -> Offsets:
    """Encodes and decodes offsets, as Spark does."""
    back: Offsets = json.loads(json.dumps(offsets))
    return back


def refused(message: str) -> AbstractContextManager[Any]:
    return pytest.raises(ValueError, match=message)


def lost(message: str) -> AbstractContextManager[Any]:
    return pytest.raises(mqstore.StoreError, match=message)


def test_a_stream_reads_each_message_once_over_restarts(store: mqstore.Store) -> None:
    query = Query(store.path, subscribe="a,b", startingOffsets="earliest")
    for _ in range(5):
        append(store, "a", 100, queues=3)
        append(store, "b", 7)
        append(store, "c", 10)
        query.run()
        query.restart()
    assert query.read_once() == {("a", 0): 170, ("a", 1): 165, ("a", 2): 165, ("b", 0): 35}


def test_a_batch_that_was_planned_and_not_done_is_read_again_as_it_was(store: mqstore.Store) -> None:
    append(store, "a", 50, queues=2)
    query = Query(store.path, startingOffsets="earliest")
    end = query.latest()
    first = query.read(end)
    append(store, "a", 50, queues=2)
    query.restart()
    assert query.read(end) == first
    assert len(first) == 50


def test_a_new_query_begins_at_the_end_by_default(store: mqstore.Store) -> None:
    append(store, "a", 5)
    queries = {
        start: Query(store.path, startingOffsets=start) for start in ("latest", "earliest", '{"a": {"0": 3}}', '{"a": {"0": -1}}')
    }
    by_default = Query(store.path)
    append(store, "a", 2)
    assert [sum(query.run()) for query in queries.values()] == [2, 7, 4, 2]
    assert by_default.run() == [2]


def test_a_new_query_begins_with_the_first_message_of_a_time(store: mqstore.Store) -> None:
    append(store, "a", 5)
    time.sleep(0.01)
    late = store.append("a", b"late").store_time
    store.flush()
    ms = str(int(late.timestamp() * 1000))
    assert Query(store.path, startingTimestamp=ms).run() == [1]
    assert Query(store.path, startingTimestamp=late.isoformat()).run() == [1]
    assert Query(store.path, startingOffsetsByTimestamp=json.dumps({"a": {"0": int(ms)}}), startingOffsets="earliest").run() == [
        1
    ]
    after = {"startingTimestamp": str(int(ms) + 1)}
    with refused("a/0 has no message that was stored at .* startingOffsetsByTimestampStrategy=latest"):
        Query(store.path, **after)
    assert Query(store.path, startingOffsetsByTimestampStrategy="latest", **after).run() == []


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({"subscribe": "orders"}, {"orders"}),
        ({"topics": "orders"}, {"orders"}),
        ({"topics": "orders,refunds", "queueIds": "7"}, set()),
        ({"subscribePattern": "order.*"}, {"orders", "orders-eu"}),
        ({"subscribePattern": "order"}, set()),
        ({"assign": '{"orders": [0], "refunds": [7]}'}, {"orders"}),
        ({}, {"orders", "orders-eu", "refunds"}),
    ],
)
def test_the_queues_are_those_that_kafkas_options_name(store: mqstore.Store, options: dict[str, str], read: set[str]) -> None:
    query = Query(store.path, startingOffsets="earliest", **options)
    for topic in ("orders", "orders-eu", "refunds"):
        append(store, topic, 3)
    query.run()
    assert {topic for topic, _ in query.read_once()} == read


def test_new_queues_and_topics_are_read_from_their_start(store: mqstore.Store) -> None:
    append(store, "a", 3)
    query = Query(store.path)
    append(store, "a", 4, queues=2)
    append(store, "b", 5)
    query.run()
    assert Counter(topic for topic, _, _ in query.rows) == {"a": 4, "b": 5}


def test_an_absent_topic_is_logged_and_read_once_it_exists(store: mqstore.Store, caplog: pytest.LogCaptureFixture) -> None:
    append(store, "a", 3)
    query = Query(store.path, subscribe="a,later")
    assert caplog.messages == ["there is no topic later; the topics are a; it is read once it exists"]
    append(store, "later", 2)
    assert query.run() == [2]


def test_an_absent_queue_id_of_a_topic_is_logged_with_those_that_exist(
    store: mqstore.Store, caplog: pytest.LogCaptureFixture
) -> None:
    append(store, "a", 3)
    query = Query(store.path, assign='{"a": [0, 1]}')
    assert caplog.messages == ["there is no queue a/1: topic a has the queue ids 0; it is read once it exists"]
    append(store, "a", 2, queues=2)
    assert query.run() == [2]


def test_a_new_queue_whose_first_messages_expired_unread_fails_the_query(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=1 << 20) as store:
        append(store, "old", 1)
    query = Query(str(path))
    with mqstore.open(path, "a") as store:
        store.append_batch([("new", bytes(100_000)) for _ in range(40)])
    for segment in sorted((path / "commitlog").iterdir())[:2]:
        segment.unlink()
    with lost("new/0: it is new, and its messages before queue offset [0-9]+ have expired unread"):
        query.run()


def test_a_limit_is_shared_in_proportion_and_starves_no_queue(store: mqstore.Store) -> None:
    append(store, "large", 300)
    append(store, "small", 3)
    query = Query(store.path, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(100)
    assert query.run() == [100, 100, 100, 3]
    assert query.read_once() == {("large", 0): 300, ("small", 0): 3}
    assert Query(store.path, startingOffsets="earliest", maxOffsetsPerTrigger="100").batch(ReadAllAvailable()) == 303


@pytest.mark.parametrize("most", [1, 2, 3, 10, 110, 111, 500])
def test_a_share_is_exact(most: int) -> None:
    waiting = {QueueName(None, "a", number): count for number, count in enumerate((100, 0, 1, 10))}
    taken = share(waiting, most)
    assert sum(taken.values()) == min(most, 111)
    assert all(0 <= taken[name] <= count for name, count in waiting.items())
    assert most < 3 or all(taken[name] for name, count in waiting.items() if count)


def test_a_batch_waits_for_the_least_number_of_messages_but_not_for_ever(store: mqstore.Store) -> None:
    query = Query(store.path, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    assert query.reader.getDefaultReadLimit() == ReadMinRows(10)
    append(store, "a", 1)
    with mock.patch("time.monotonic", side_effect=lambda: clock):
        clock = 0.0
        assert query.run() == [1]
        append(store, "a", 9)
        assert query.run() == []
        append(store, "a", 1)
        assert query.run() == [10]
        append(store, "a", 2)
        assert query.run() == []
        clock = 3601.0
        assert query.run() == [2]


def test_a_query_of_the_available_messages_ends_after_them(store: mqstore.Store) -> None:
    append(store, "a", 10)
    query = Query(store.path, startingOffsets="earliest", maxOffsetsPerTrigger="4", minOffsetsPerTrigger="3")
    query.reader.prepareForTriggerAvailableNow()
    append(store, "a", 10)
    append(store, "b", 10)
    assert query.run() == [4, 4, 2]


def test_a_batch_ends_where_a_power_cut_takes_nothing_away(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a", flush_interval_commit_log=3_600_000, flush_commit_log_least_pages=1 << 20) as store:
        append(store, "a", 10, queues=2)
        query = Query(store.path, startingOffsets="earliest")
        for number in range(10):
            store.append("a", b"", queue_id=number % 3)
        assert query.run() == [10]
        query.restart()
        assert query.run() == []
        store.flush()
        assert query.run() == [10]
        store.append("a", b"")
        assert query.run() == []
    assert query.run() == [1]


def test_what_is_flushed_of_a_queue_is_found_by_halving(store: mqstore.Store) -> None:
    append(store, "a", 20, queues=2)
    names = {QueueName(None, "a", queue_id): (0, 10) for queue_id in (0, 1)} | {QueueName(None, "a", 7): (0, 0)}
    with mqstore.open(store.path) as reader:
        ends = [message.physical_offset + message.store_size for message in reader.topics["a"].queues[0]]
        for count, end in enumerate(ends, 1):
            assert ends_before(reader, names, end) == {
                QueueName(None, "a", 0): count,
                QueueName(None, "a", 1): count - 1,
                QueueName(None, "a", 7): 0,
            }
        assert set(ends_before(reader, names, 0).values()) == {0}


def test_messages_expired_unread_fail_the_query_unless_it_may_lose_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a", mapped_file_size_commit_log=1 << 14) as store:
        append(store, "a", 400)
    query = Query(str(path), startingOffsets="earliest", maxOffsetsPerTrigger="10")
    query.batch()
    segments = sorted((path / "commitlog").iterdir())
    segments[0].unlink()
    left = mqstore.open(path).topics["a"].queues[0]
    first = next(iter(left)).queue_offset
    query.restart()
    with lost("a/0: its messages from queue offset 10 to .* have expired unread.*failOnDataLoss=false"):
        query.latest()
    going_on = Query(str(path), query.offsets, failOnDataLoss="false")
    going_on.run()
    assert sorted(offset for _, _, offset in going_on.rows) == list(range(first, 400))
    assert caplog.messages.count(f"a/0: its messages from queue offset 10 to {left.min_offset} have expired unread") == 1


def test_a_query_that_may_lose_data_logs_each_loss_once(store: mqstore.Store, caplog: pytest.LogCaptureFixture) -> None:
    reader = Query(store.path, failOnDataLoss="false").reader
    for lost_of_batch in (["a", "b"], [], ["b"], ["c"], ["c"]):
        reader._report_loss(lost_of_batch)
    assert caplog.messages == ["a", "b", "c"]
    assert reader._reported == {"c"}


def test_messages_that_expire_after_they_were_read_fail_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a", mapped_file_size_commit_log=1 << 14) as store:
        append(store, "a", 400)
        query = Query(str(path), startingOffsets="earliest")
        query.run()
        append(store, "a", 10)
    sorted((path / "commitlog").iterdir())[0].unlink()
    query.restart()
    assert query.run() == [10]


def written(path: Path, bodies: Sequence[bytes], topic: str = "a") -> Path:
    """Writes a store of these messages, which replaces an existing one."""
    shutil.rmtree(path, ignore_errors=True)
    with mqstore.open(path, "x") as store:
        for body in bodies:
            store.append(topic, body)
    return path


def test_a_replaced_store_fails_the_query_also_if_it_is_longer(tmp_path: Path) -> None:
    path = written(tmp_path / "store", [b"old"] * 5)
    query = Query(str(path), startingOffsets="earliest")
    query.run()
    written(path, [b"new"] * 9)
    for _ in range(2):
        with lost("a/0: another store is at the path"):
            query.latest()
        query.restart()
    assert Query(str(path), query.offsets, failOnDataLoss="false").run() == [9]


def test_queue_offsets_that_were_assigned_again_fail_the_query(tmp_path: Path) -> None:
    """Replaces the messages after the third one, as after a power failure."""
    path = written(tmp_path / "store", [b"1", b"2", b"3"])
    shutil.copytree(path, tmp_path / "cut")
    with mqstore.open(path, "a") as store:
        append(store, "a", 2)
    query = Query(str(path), startingOffsets="earliest")
    query.run()
    shutil.rmtree(path)
    (tmp_path / "cut").rename(path)
    with lost("a/0: its queue offsets before 5 were assigned again, or messages were cut from it"):
        query.latest()
    with mqstore.open(path, "a") as store:
        append(store, "a", 7)
    query.restart()
    with lost("a/0: its queue offsets before 5 were assigned again"):
        query.latest()
    assert Query(str(path), query.offsets, failOnDataLoss="false").run() == [10]


def test_a_copy_of_the_store_can_take_its_place(tmp_path: Path) -> None:
    path = written(tmp_path / "store", [b"1", b"2", b"3"])
    query = Query(str(path), startingOffsets="earliest")
    query.run()
    shutil.copytree(path, tmp_path / "copy")
    shutil.rmtree(path)
    (tmp_path / "copy").rename(path)
    with mqstore.open(path, "a") as store:
        append(store, "a", 2)
    assert query.run() == [2]


def planned(query: Query) -> tuple[MessageStreamReader, list[RangesPart]]:
    """Plans the next batch, and unpickles it as a worker does."""
    parts = query.reader.partitions(query.offsets, query.latest())
    source = MessageDataSource({"path": query.path or "", "columns": KEY})
    travelling = pickle.dumps((source.streamReader(source.schema()), parts))
    _snapshot._cache.clear()
    return pickle.loads(travelling)  # type: ignore[no-any-return]


def test_a_batch_fails_if_messages_expire_before_its_tasks_read_them(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a", mapped_file_size_commit_log=1 << 14) as store:
        append(store, "a", 400)
    reader, (part,) = planned(Query(str(path), startingOffsets="earliest"))
    sorted((path / "commitlog").iterdir())[0].unlink()
    with lost("expired after the job was planned"):
        list(reader.read(part))


def test_a_batch_fails_if_another_store_is_at_the_path_of_its_tasks(tmp_path: Path) -> None:
    path = written(tmp_path / "store", [b"old"] * 5)
    reader, (part,) = planned(Query(str(path), startingOffsets="earliest"))
    written(path, [b"new"] * 9)
    with lost("is not the store that the job was planned with"):
        list(reader.read(part))


@pytest.mark.parametrize(("errors", "read"), [("raise", None), ("skip", 4), ("corrupt_record", 5)])
def test_errors_decides_on_a_damaged_message_of_a_stream(tmp_path: Path, errors: str, read: int | None) -> None:
    path = written(tmp_path / "store", [b"body"] * 5)
    with mqstore.open(path) as reader:
        physical_offset = reader.topics["a"].queues[0][2].physical_offset
    with (path / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(physical_offset)
        record = log.read(200)
        log.seek(physical_offset + record.index(b"body"))
        log.write(b"BODY")
    columns = f"{KEY},body" + (",_corrupt_record" if errors == "corrupt_record" else "")
    query = Query(str(path), startingOffsets="earliest", errors=errors, columns=columns)
    if read is None:
        with pytest.raises(mqstore.CorruptError):
            query.batch()
    else:
        assert query.batch() == read
        assert sum(row[0] is None for row in query.rows) == read - 4


def test_a_deleted_topic_fails_the_query_unless_it_was_read_to_its_end(tmp_path: Path, golden: Path) -> None:
    path = tmp_path / "store"
    shutil.copytree(golden / "491_delay_delivered", path)
    query = Query(str(path), startingOffsets="earliest")
    start = query.offsets
    assert query.run() == [3]
    end = query.offsets
    shutil.rmtree(path / "consumequeue" / "SCHEDULE_TOPIC_XXXX")
    with mqstore.open(path, "a") as store:
        append(store, "TopicA", 1)
    for offsets, read in ((start, 0), (end, 1)):
        with lost(f"SCHEDULE_TOPIC_XXXX/[0-9]*, which was read up to queue offset {read}, no longer exists"):
            Query(str(path), offsets).latest()
    assert query.run() == [1]
    query.restart()
    assert query.run() == []


def test_a_topic_that_is_no_longer_subscribed_to_fails_the_query(store: mqstore.Store) -> None:
    append(store, "a", 3)
    append(store, "b", 3)
    query = Query(store.path, startingOffsets="earliest")
    query.run()
    with lost("a/0, which was read up to queue offset 3, no longer exists: it was deleted, or is not subscribed to"):
        Query(store.path, query.offsets, subscribe="b").latest()
    assert Query(store.path, query.offsets, subscribe="b", failOnDataLoss="false").run() == [0]


def test_the_checkpoint_says_how_far_each_queue_of_each_broker_was_read(tmp_path: Path) -> None:
    stores = {"one": str(written(tmp_path / "1", [b""] * 3)), "two": str(written(tmp_path / "2", [b""] * 4, "b"))}
    query = Query(
        None,
        stores=json.dumps(stores),
        columns=f"broker,{KEY}",
        startingOffsets='{"a": {"one": {"0": 1}}, "b": {"two": {"0": -2}}}',
    )
    assert query.batch() == 6
    assert {row[0] for row in query.rows} == {"one", "two"}
    shape = {broker: {topic: [*queues] for topic, queues in of["topics"].items()} for broker, of in query.offsets.items()}
    assert shape == {"one": {"a": ["0"]}, "two": {"b": ["0"]}}
    assert [query.offsets[broker]["topics"][topic]["0"][0] for broker, topic in (("one", "a"), ("two", "b"))] == [3, 4]
    with mqstore.open(stores["two"], "a") as store:
        append(store, "a", 2)
    query.restart()
    assert query.run() == [2]


def test_the_splits_of_a_batch_have_each_message_once(store: mqstore.Store) -> None:
    for number in range(600):
        store.append(f"topic-{number % 3}", bytes(100), queue_id=number % 5)
    store.flush()
    query = Query(
        store.path, startingOffsets="earliest", assign='{"topic-0": [0, 3], "topic-2": [1]}', targetPartitionBytes="2000"
    )
    end = query.latest()
    parts = query.reader.partitions(query.offsets, end)
    assert len(parts) > 5
    assert query.batch() == 120
    query.read_once()
    by_count = Query(store.path, startingOffsets="earliest", minPartitions="7", maxRecordsPerPartition="100")
    assert len(by_count.reader.partitions(by_count.offsets, by_count.latest())) >= 7


def test_a_part_reads_only_the_stretches_in_which_its_messages_lie(store: mqstore.Store) -> None:
    append(store, "behind", 10)
    append(store, "other", 500)
    append(store, "ahead", 10)
    query = Query(store.path, subscribe="behind,ahead", startingOffsets="earliest")
    (part,) = query.reader.partitions(query.offsets, query.latest())
    assert isinstance(part, RangesPart)
    assert len(part.stretches) == 2
    assert query.batch() == 20


def test_overlapping_spans_make_one() -> None:
    assert union([(5, 9), (0, 2), (2, 4), (6, 7)]) == [(0, 4), (5, 9)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a", "assign": "{}"}, "options subscribe and assign both name the queues of the read: give one of them"),
        ({"subscribe": "%LMQ%a"}, "option subscribe names the light queue %LMQ%a: read the topics of its messages"),
        ({"subscribe": "[]"}, "option subscribe names nothing to read"),
        ({"assign": "{}"}, "option assign names nothing to read"),
        ({"subscribePattern": "("}, "option subscribePattern is not a Python regular expression"),
        ({"assign": "[]"}, "option assign is a JSON object"),
        ({"assign": '{"a": 1}'}, r"option assign is JSON such as .*orders.*\[0, 1\]"),
        ({"assign": '{"a": ["x"]}'}, "option assign has 'x' instead of a whole number"),
        ({"startingOffsets": '{"a": {"00": 7}}'}, "option startingOffsets has '00' instead of a whole number"),
        ({"startingOffsets": '{"a": {"1_0": 7}}'}, "option startingOffsets has '1_0' instead of a whole number"),
        (
            {"assign": '{"a": {"broker-a": [0]}}'},
            "option assign names broker 'broker-a' below topic a; brokers: the store has none: option stores names",
        ),
        ({"startingOffsets": "first"}, "option startingOffsets is one of latest, earliest or JSON such as .*, not 'first'"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, r"startingOffsets: a/0 begins at a queue offset, -1 \(latest\) or -2"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 1763870400}}'}, "this one looks like seconds"),
        ({"startingOffsetsByTimestampStrategy": "skip"}, "startingOffsetsByTimestampStrategy is one of error, latest"),
        (
            {"endingOffsets": "latest"},
            r"option endingOffsets is refused: a stream has no end; trigger\(availableNow=True\)",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is a positive number"),
        (
            {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            r"minOffsetsPerTrigger \(6\) is more than maxOffsetsPerTrigger",
        ),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay is a duration such as 500ms, 30s or 15m, not 'soon'"),
        ({"topics": "a", "subscribe": "a"}, "options topics and subscribe both name the queues of the read: give one of them"),
        ({"topics": "%LMQ%a"}, "option topics names the light queue %LMQ%a: read the topics of its messages"),
        ({"tags": "a"}, r"option tags is refused: it is only for batches \(spark.read\)"),
        ({"topik": "a"}, r"unknown option topik \(did you mean topics\?\); accepted are .* subscribe, "),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(options: dict[str, str], message: str) -> None:
    with refused(message):
        StreamOptions.parse({"path": "/store", **options})


def test_a_wrong_stream_fails_at_its_first_offset(store: mqstore.Store) -> None:
    append(store, "a", 4)
    begun = Query(store.path, startingOffsets="earliest").offsets
    # For an error of streamReader itself Spark 4.3 reports an UnboundLocalError.
    reader = MessageDataSource({"path": store.path, "topik": "a"}).streamReader(MESSAGE_SCHEMA)
    for ask in (reader.initialOffset, lambda: reader.latestOffset(begun, None), lambda: reader.partitions(begun, begun)):
        with refused("unknown option topik .* accepted are .* subscribe, "):
            ask()


def test_starting_offsets_name_every_queue_and_no_other(store: mqstore.Store) -> None:
    append(store, "a", 4, queues=2)
    with refused("option startingOffsets does not name a/1, which the query reads: -1 is its end and -2 is its start"):
        Query(store.path, startingOffsets='{"a": {"0": 1}}')
    with refused("option startingOffsets names b/0, which is not read"):
        Query(store.path, startingOffsets='{"a": {"0": 1, "1": 1}, "b": {"0": 1}}')
    beyond = '{"a": {"0": 1, "1": 30}}'
    with lost("a/1 is to begin at queue offset 30, but has those from 0 to 2"):
        Query(store.path, startingOffsets=beyond)
    assert Query(store.path, startingOffsets=beyond, failOnDataLoss="false").run() == [1]


def test_what_an_older_pyspark_cannot_do_is_refused_by_name() -> None:
    with mock.patch("mqstore.spark._options.DataSourceStreamReader", object):
        for option in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            with refused(f"option {option} needs pyspark 4.2 or later; this is "):
                StreamOptions.parse({"path": "/store", option: "5"})


def test_a_stream_of_an_older_pyspark_reads_each_message_once(store: mqstore.Store) -> None:
    append(store, "a", 5)
    query = Query(store.path, startingOffsets="earliest")
    with mock.patch("mqstore.spark.stream._GIVES_START", new=False):
        for _ in range(3):
            append(store, "a", 5)
            end = travelled(query.reader.latestOffset())
            query.rows.update(query.read(end))
            query.offsets = end
            assert query.reader.latestOffset() == end
            query.restart()
        assert query.read_once() == {("a", 0): 20}
