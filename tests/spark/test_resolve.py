from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import mqstore
from mqstore.spark import MESSAGE_SCHEMA, Stores, fetch, resolve_keys, resolve_offsets

MIB = 1 << 20
EVENTS = Path(__file__).resolve().parent.parent / "data" / "events.jsonl.gz"
REFERENCE = pa.schema([("topic", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64()), ("extra", pa.string())])


def references(store: mqstore.Store) -> pa.Table:
    """Lists all queue offsets from before min to past max, absent queues, and nulls, each twice."""
    rows: list[tuple[Any, ...]] = [
        ("no such topic", 0, 0),
        (None, 0, 0),
        ("one", None, 0),
        ("one", 0, None),
        ("one", 99, 0),
        ("", -1, -1),
    ]
    for topic in store.topics.values():
        for queue in topic.queues:
            rows += [(topic.name, queue.queue_id, n) for n in range(queue.min_offset - 1, queue.max_offset + 2)]
    columns = [list(column) for column in zip(*(rows + rows[::-1]), strict=True)]
    return pa.table([*columns, [f"row {n}" for n in range(2 * len(rows))]], schema=REFERENCE)


def keys_of(store: mqstore.Store) -> pa.Table:
    """Lists all keys and unique keys of all messages, absent keys, and nulls."""
    rows: list[tuple[str | None, str | None]] = [
        ("no such topic", "k"),
        (None, "k"),
        ("one", None),
        ("one", ""),
        ("one", "no such key"),
    ]
    for topic in store.topics.values():
        for queue in topic.queues:
            for batch in queue[:].batches(columns=["topic", "keys", "unique_key"]):
                for row in pa.record_batch(batch).to_pylist():
                    rows += [(row["topic"], key) for key in [*row["keys"], row["unique_key"]]]
    topics, keys = map(list, zip(*rows, strict=True))
    return pa.table([topics, keys], schema=pa.schema([("topic", pa.string()), ("key", pa.string())]))


def test_resolved_offsets_are_the_stores_own(spark: SparkSession, golden_store: Path) -> None:
    with mqstore.open(golden_store) as store:
        asked = references(store)
        expected = pa.Table.from_batches([pa.record_batch(store.resolve_offsets(asked))])
        resolved = resolve_offsets(spark.createDataFrame(asked), store).toArrow()
    assert expected["physical_offset"].null_count < len(expected)
    assert resolved.select(asked.column_names).equals(asked)
    assert resolved.select(["physical_offset", "store_size"]).equals(expected)


def test_resolved_keys_are_the_stores_own(spark: SparkSession, golden_store: Path) -> None:
    with mqstore.open(golden_store) as store:
        asked = keys_of(store)
        expected = pa.record_batch(store.resolve_keys(asked)).column("hits").to_pylist()
        resolved = resolve_keys(spark.createDataFrame(asked), store).toArrow()
    assert resolved.select(asked.column_names).equals(asked)
    assert resolved["hits"].to_pylist() == expected
    assert expected[:5] == [None] * 5


def test_fetched_messages_are_the_stores_own(spark: SparkSession, golden_store: Path) -> None:
    with mqstore.open(golden_store) as store:
        positions = pa.Table.from_batches([pa.record_batch(store.resolve_offsets(references(store)))])
        expected = pa.Table.from_batches(map(pa.record_batch, store.fetch(positions)))
    messages = fetch(spark.createDataFrame(positions), golden_store)
    assert messages.schema == MESSAGE_SCHEMA
    assert messages.toArrow().to_pylist() == expected.to_pylist()
    assert len(expected) == len(positions) - positions["physical_offset"].null_count


@pytest.mark.matrix
def test_every_event_is_resolved_and_fetched_with_its_own_body(spark: SparkSession, events_store: Path) -> None:
    written: Counter[tuple[str, int]] = Counter()
    bodies = {}
    for number, line in enumerate(gzip.decompress(EVENTS.read_bytes()).splitlines()):
        queue = json.loads(line)["topic"], number % 4
        bodies[(*queue, written[queue])] = line
        written[queue] += 1
    asked = spark.createDataFrame(list(bodies), "topic string, queue_id int, queue_offset long")
    columns = ["topic", "queue_id", "queue_offset", "body"]
    rows = fetch(resolve_offsets(asked, events_store), events_store, columns=columns).toArrow().to_pylist()
    assert {(row["topic"], row["queue_id"], row["queue_offset"]): row["body"] for row in rows} == bodies
    assert len(rows) == 7865


def test_fetch_keeps_order_and_repetitions_and_drops_rows_without_position(spark: SparkSession, events_store: Path) -> None:
    with mqstore.open(events_store) as store:
        first, second = (store.topics["root"].queues[0][n].physical_offset for n in (0, 1))
    asked = spark.createDataFrame([(second,), (None,), (first,), (second,), (second,), (None,)], "physical_offset long").coalesce(
        1
    )
    rows = fetch(asked, events_store, columns=["physical_offset"]).collect()
    assert [row.physical_offset for row in rows] == [second, first, second, second]


def test_fetch_returns_the_columns_asked_in_the_order_asked(spark: SparkSession, events_store: Path) -> None:
    asked = spark.createDataFrame([(0,)], "physical_offset long")
    messages = fetch(asked, events_store, columns=["body", "queue_id", "topic"])
    assert messages.schema == StructType([MESSAGE_SCHEMA[name] for name in ("body", "queue_id", "topic")])
    assert messages.first()[1:] == (0, "root")


@pytest.mark.matrix
def test_fetch_keeps_columns_of_the_frame_beside_each_message(spark: SparkSession, events_store: Path) -> None:
    with mqstore.open(events_store) as store:
        offsets = [store.topics["root"].queues[0][n].physical_offset for n in range(5)]
    rows = [(offsets[3], 1, "a"), (None, 2, "b"), (offsets[0], 3, "c"), (offsets[3], 4, "d"), (1, 5, "e"), (offsets[4], 6, None)]
    asked = spark.createDataFrame(rows, "physical_offset long, order_id int, `an odd.``name` string").coalesce(1)
    messages = fetch(asked, events_store, columns=["queue_offset"], errors="skip", keep=["an odd.`name", "order_id"])
    assert messages.columns == ["an odd.`name", "order_id", "queue_offset"]
    assert [tuple(row) for row in messages.collect()] == [("a", 1, 3), ("c", 3, 0), ("d", 4, 3), (None, 6, 4)]
    whole = fetch(asked.where("order_id <> 5"), events_store, keep=["order_id"])
    assert [(row.order_id, row.physical_offset) for row in whole.collect()] == [
        (1, offsets[3]),
        (3, offsets[0]),
        (4, offsets[3]),
        (6, offsets[4]),
    ]
    assert whole.columns == ["order_id", *MESSAGE_SCHEMA.names]


def test_fetch_from_several_stores_says_the_broker(spark: SparkSession, events_store: Path, tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "other", mode="x") as store:
        store.append("other", b"x")
    stores = Stores({"a": events_store, "b": tmp_path / "other"})
    asked = spark.createDataFrame(
        [("a", 0, 1), ("b", 0, 2), (None, 0, 3), ("b", None, 4), ("a", 0, 5)], "b string, physical_offset long, n int"
    )
    found = fetch(asked.coalesce(1), stores, columns=["topic"], broker="b", keep=["n"])
    assert found.columns == ["broker", "n", "topic"]
    assert sorted(tuple(row) for row in found.collect()) == [("a", 1, "root"), ("a", 5, "root"), ("b", 2, "other")]


def test_fetch_names_the_column_that_it_cannot_keep(spark: SparkSession, events_store: Path) -> None:
    asked = spark.createDataFrame([(0, "t")], "physical_offset long, topic string")
    with pytest.raises(ValueError, match="keep names topic, which is also a column of the messages: rename it first"):
        fetch(asked, events_store, keep=["topic"])
    assert fetch(asked, events_store, columns=["body"], keep=["topic"]).first().topic == "t"
    with pytest.raises(ValueError, match="keep names order_id, but the frame has 0 columns of that name: physical_offset, topic"):
        fetch(asked, events_store, keep=["order_id"])
    with pytest.raises(ValueError, match="keep is a list of column names"):
        fetch(asked, events_store, keep="topic")
    with pytest.raises(ValueError, match="keep names topic twice"):
        fetch(asked, events_store, columns=["body"], keep=["topic", "topic"])


def test_a_frame_of_no_rows_resolves_to_no_rows(spark: SparkSession, events_store: Path) -> None:
    nothing = spark.createDataFrame([], "topic string, queue_id int, queue_offset long, key string")
    assert resolve_offsets(nothing, events_store).collect() == []
    assert resolve_keys(nothing, events_store).collect() == []
    assert fetch(resolve_offsets(nothing, events_store), events_store).collect() == []


@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "bigint"])
def test_any_integer_type_serves_as_queue_id_and_offset(spark: SparkSession, events_store: Path, kind: str) -> None:
    asked = spark.createDataFrame([("root", 1, 2)], f"topic string, queue_id {kind}, queue_offset {kind}")
    assert resolve_offsets(asked, events_store).first().physical_offset is not None


def test_a_path_and_an_open_store_answer_the_same(spark: SparkSession, events_store: Path) -> None:
    asked = spark.createDataFrame([("root", 0, 3)], "topic string, queue_id int, queue_offset long")
    with mqstore.open(events_store) as store:
        answers = [resolve_offsets(asked, given).collect() for given in (store, events_store, str(events_store))]
    assert answers[0] == answers[1] == answers[2]


class BatchesOf:
    """A fake frame, to see the batches that fetch makes of one batch of offsets."""

    sparkSession = None

    def __init__(self, offsets: list[int]) -> None:
        self.schema = StructType([MESSAGE_SCHEMA["physical_offset"]])
        self.offsets = pa.record_batch([pa.array(offsets, pa.int64())], names=["physical_offset"])

    def select(self, name: str) -> BatchesOf:
        return self

    def mapInArrow(self, messages: Callable[..., Iterator[pa.RecordBatch]], schema: StructType) -> Iterator[pa.RecordBatch]:
        return messages(iter([self.offsets]))


def test_big_bodies_are_fetched_in_batches_of_bounded_size(
    spark: SparkSession, tmp_path: Path, write_store: Callable[..., None]
) -> None:
    sizes = [100, 3 * MIB, 3 * MIB, 12 * MIB, 100, 100, *[MIB] * 20, *[2000] * 5000]
    write_store(tmp_path, [("big", 0, bytes([n % 251]) * size) for n, size in enumerate(sizes)])
    with mqstore.open(tmp_path) as store:
        offsets = [message.physical_offset for message in store.topics["big"].queues[0]]
    batches = list(fetch(BatchesOf(offsets), tmp_path))  # type: ignore[arg-type]
    assert sum(batch.num_rows for batch in batches) == len(sizes)
    assert all(batch.nbytes <= 8 * MIB or batch.num_rows == 1 for batch in batches)
    assert len(batches) < 30, "nor is the work cut into crumbs"

    frame = spark.createDataFrame([(offset,) for offset in offsets], "physical_offset long")
    found = fetch(frame, tmp_path).selectExpr("count(*) as messages", "sum(length(body)) as bytes").first()
    assert (found.messages, found.bytes) == (len(sizes), sum(sizes))


def explained(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    frame.explain()
    return capsys.readouterr().out


def test_only_the_columns_needed_are_shipped_to_python(
    spark: SparkSession, events_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = spark.range(3).selectExpr("string(id) as topic", "int(id) as queue_id", "id as queue_offset", "string(id) as other")
    resolved = resolve_offsets(wide, events_store)
    (shipped,) = re.findall(r"ArrowEvalPython \[resolve_offsets\((.*)\)#", explained(resolved, capsys))
    assert re.sub(r"#\d+L?", "", shipped) == "topic, queue_id, queue_offset"
    fetched = explained(fetch(resolved, events_store), capsys)
    assert re.search(r"MapInArrow messages\(physical_offset#\d+L\)", fetched)
    assert "other" not in fetched


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (
            "queue_id int, queue_offset long",
            "needs one column topic (string), but the frame has queue_id int, queue_offset bigint",
        ),
        (
            "topic string, queue_id string, queue_offset long",
            "needs column queue_id to be integer, but the frame has topic string, q",
        ),
        ("topic string, queue_id int, queue_offset double", "needs column queue_offset to be integer"),
        ("topic int, queue_id int, queue_offset long", "needs column topic to be string"),
        (
            "topic string, queue_id int, queue_offset long, store_size int",
            "the frame already has store_size: drop or rename it first",
        ),
        ("topic string, queue_id int, queue_offset long, Physical_Offset long", "the frame already has Physical_Offset"),
    ],
)
def test_resolve_offsets_names_the_column_that_does_not_fit(
    spark: SparkSession, events_store: Path, columns: str, complaint: str
) -> None:
    with pytest.raises(ValueError, match="resolve_offsets") as error:
        resolve_offsets(spark.createDataFrame([], columns), events_store)
    assert complaint in str(error.value)


def test_resolve_keys_and_fetch_name_the_column_that_does_not_fit(spark: SparkSession, events_store: Path) -> None:
    with pytest.raises(ValueError, match=r"resolve_keys needs one column key \(string\), but the frame has topic string"):
        resolve_keys(spark.createDataFrame([], "topic string"), events_store)
    with pytest.raises(ValueError, match="resolve_keys appends hits, but the frame already has hits"):
        resolve_keys(spark.createDataFrame([], "topic string, key string, hits int"), events_store)
    with pytest.raises(
        ValueError, match="fetch needs column physical_offset to be bigint, but the frame has physical_offset int"
    ):
        fetch(spark.createDataFrame([], "physical_offset int"), events_store)


@pytest.mark.parametrize("function", [resolve_offsets, resolve_keys, fetch])
def test_a_store_in_the_place_of_the_frame_is_named(
    spark: SparkSession, events_store: Path, function: Callable[..., DataFrame]
) -> None:
    with pytest.raises(
        TypeError, match=f"{function.__name__} takes a frame, and then the store, but the first argument is of type"
    ):
        function(events_store, spark.range(1))


def test_a_duplicate_column_is_refused(spark: SparkSession, events_store: Path) -> None:
    twice = spark.createDataFrame([], "topic string, key string").selectExpr("*", "key")
    with pytest.raises(ValueError, match=r"resolve_keys needs one column key .* 2 columns of that name"):
        resolve_keys(twice, events_store)


def test_fetch_names_a_column_that_a_message_does_not_have(spark: SparkSession, events_store: Path) -> None:
    asked = spark.createDataFrame([(0,)], "physical_offset long")
    with pytest.raises(ValueError, match="a message has no column 'bodies'; its columns are topic, queue_id,"):
        fetch(asked, events_store, columns=["bodies"])
    with pytest.raises(ValueError, match="columns is a list of at least one column name"):
        fetch(asked, events_store, columns="body")
    with pytest.raises(ValueError, match="columns is a list of at least one column name"):
        fetch(asked, events_store, columns=[])
    with pytest.raises(ValueError, match="columns is a list of at least one column name, not <generator"):
        fetch(asked, events_store, columns=(name for name in ["body"]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="columns names body twice"):
        fetch(asked, events_store, columns=["body", "topic", "body"])


@pytest.mark.parametrize(
    ("offset", "error"), [(10**12, "NotFoundError"), (-1, "NotFoundError"), (1, "NotFoundError|CorruptError")]
)
def test_fetch_fails_where_no_record_starts(spark: SparkSession, events_store: Path, offset: int, error: str) -> None:
    with pytest.raises(PythonException, match=error):
        fetch(spark.createDataFrame([(offset,)], "physical_offset long"), events_store).collect()


def test_an_absent_store_is_reported_before_a_job_starts(spark: SparkSession, tmp_path: Path) -> None:
    asked = spark.createDataFrame([], "topic string, key string")
    with pytest.raises(mqstore.NotAStoreError, match=str(tmp_path)):
        resolve_keys(asked, tmp_path)
