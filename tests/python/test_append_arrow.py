"""Tables that `append_batch` takes through Arrow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from test_append_batch import kept, read
from test_golden import READ_BY_ROCKETMQ, since_1970

import mqstore
from mqstore.testing import Clock


def one(store: mqstore.Store, **columns: Any) -> mqstore.Message:
    """The message of a table of one row."""
    table = pa.table({"topic": ["orders"], "body": [b"x"]} | columns)
    (message,) = read(store, store.append_batch(table))
    return message


class OnlyArray:
    """A producer that knows no stream."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.batch.__arrow_c_array__(requested_schema)


FORMS: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow table": lambda table: table,
    "pyarrow batch": lambda table: table.combine_chunks().to_batches()[0],
    "pyarrow reader": lambda table: pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
    "pyarrow struct array": lambda table: table.to_struct_array().combine_chunks(),
    "array only": lambda table: OnlyArray(table.combine_chunks().to_batches()[0]),
    "chunks": lambda table: pa.concat_tables([table.slice(0, 1), table.slice(1, 1), table.slice(2)]),
    "sliced": lambda table: pa.concat_tables([table.slice(2), table, table.slice(0, 1)]).slice(len(table) - 2, len(table)),
    "dictionaries": lambda table: pa.table(
        {
            name: column.dictionary_encode() if column.type in (pa.string(), pa.binary()) else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    ),
    "columns the other way round": lambda table: table.select(table.column_names[::-1]),
    "polars": lambda table: pl.DataFrame(table),
    "pandas": lambda table: table.to_pandas(maps_as_pydicts="strict"),
    "duckdb": duckdb.from_arrow,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_table_of_any_kind_copies_its_messages(store: mqstore.Store, golden: Path, form: str) -> None:
    with mqstore.open(golden / "533_mixed") as source:
        queue = max((queue for topic in source.topics.values() for queue in topic.queues), key=len)
        messages = list(queue)
        assert len(messages) > 10
        copies = read(store, store.append_batch(FORMS[form](queue[:].batches().to_arrow())))
        if form == "pandas":  # the fields of its structs have their own order, the same in each row
            for message, copy in zip(messages, copies, strict=True):
                assert copy.properties == message.properties
                assert {**kept(copy), "properties": None} == {**kept(message), "properties": None}
        else:
            assert [kept(copy) for copy in copies] == [kept(message) for message in messages]


@pytest.mark.parametrize("name", READ_BY_ROCKETMQ)
def test_a_copied_table_is_equal_in_all_but_its_places_and_store_times(store: mqstore.Store, golden: Path, name: str) -> None:
    with mqstore.open(golden / name) as source:
        for queue in (queue for topic in source.topics.values() for queue in topic.queues if len(queue)):
            for rows in (queue[:], queue[:].batches(max_bytes=1000)):
                copies = read(store, store.append_batch(rows))
                assert [kept(copy) for copy in copies] == [kept(message) for message in queue]


def test_columns_that_are_missing_or_null_take_what_is_left_out(store: mqstore.Store, mqstore_clock: Clock) -> None:
    names = ["unique_key", "tags", "keys", "properties", "born_time", "born_host", "store_host", "flag", "sys_flag"]
    numbers = ["reconsume_times", "prepared_transaction_offset", "queue_id"]
    typed = pa.table(
        {
            "topic": pa.nulls(2, pa.utf8()),
            "body": pa.array([b"", b""], pa.binary()),
            "keys": pa.nulls(2, pa.list_(pa.utf8())),
            "properties": pa.nulls(2, pa.map_(pa.utf8(), pa.utf8())),
            "born_time": pa.nulls(2, pa.timestamp("us", "UTC")),
            "queue_id": pa.nulls(2, pa.int16()),
        }
    )
    for table in (
        pa.table({"body": [b"", b""]}),
        pa.table({"body": [b"", b""], **dict.fromkeys([*names, *numbers, "topic"], pa.nulls(2))}),
        typed,
    ):
        for message in read(store, store.append_batch(table, "default", 3)):
            assert (message.topic, message.queue_id, message.body, message.properties) == ("default", 3, b"", {})
            assert (message.flag, message.sys_flag, message.reconsume_times, message.prepared_transaction_offset) == (0, 0, 0, 0)
            assert message.born_host == message.store_host == "127.0.0.1:0"
            assert message.born_time == mqstore_clock.now


def test_a_column_wins_over_the_property_of_its_name(store: mqstore.Store) -> None:
    given = [[("a", "1"), ("TAGS", "old"), ("KEYS", "old"), ("UNIQ_KEY", "old"), ("z", "2")]]
    properties = pa.array(given, pa.map_(pa.utf8(), pa.utf8()))
    message = one(store, properties=properties, tags=["new"], keys=[["k1", "k2"]], unique_key=["U"])
    assert [*message.properties.items()] == [("a", "1"), ("TAGS", "new"), ("KEYS", "k1 k2"), ("UNIQ_KEY", "U"), ("z", "2")]
    message = one(store, properties=properties, tags=pa.nulls(1), keys=[[]])
    assert [*message.properties.items()] == given[0]
    message = one(store, tags=["t"], keys=[["k"]], unique_key=["U"])
    assert [*message.properties.items()] == [("UNIQ_KEY", "U"), ("TAGS", "t"), ("KEYS", "k")]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[("k", "v"), ("none", None), ("a", "b")]], pa.map_(pa.utf8(), pa.utf8())),
        pa.array([[{"key": "k", "value": "v"}, {"key": "a", "value": "b"}]]),
        pa.array(
            [[{"key": "k", "value": "v"}, {"key": "a", "value": "b"}]], pa.large_list(pa.struct({"key": "str", "value": "str"}))
        ),
        pa.array([{"k": "v", "none": None, "a": "b"}]),
        pa.array([[("k", "v"), ("a", "b")]], pa.map_(pa.large_utf8(), pa.dictionary(pa.int8(), pa.utf8()))),
    ],
    ids=["map", "list", "large list", "struct", "dictionary"],
)
def test_properties_are_a_map_a_list_of_pairs_or_a_struct(store: mqstore.Store, array: pa.Array) -> None:
    assert [*one(store, properties=array).properties.items()] == [("k", "v"), ("a", "b")]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.utf8()), pa.large_list(pa.large_utf8()), pa.list_(pa.dictionary(pa.int8(), pa.utf8()))]
)
def test_keys_are_lists_of_text_of_any_encoding(store: mqstore.Store, kind: pa.DataType) -> None:
    table = pa.table({"topic": ["t"] * 4, "body": [b""] * 4, "keys": pa.array([["a", "b"], [], None, ["c"]], kind)})
    assert [message.keys for message in read(store, store.append_batch(table))] == [["a", "b"], [], [], ["c"]]
    assert one(store, keys=["one"]).keys == ["one"]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4), pa.utf8(), pa.large_utf8(), pa.string_view()],
    ids=str,
)
def test_bodies_are_bytes_or_text_of_any_encoding(store: mqstore.Store, kind: pa.DataType) -> None:
    assert one(store, body=pa.array([b"body"]).cast(pa.utf8() if "str" in str(kind) else pa.binary()).cast(kind)).body == b"body"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_born_times_have_any_unit_and_are_kept_to_the_ms(store: mqstore.Store, unit: str, zone: str) -> None:
    per_second = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    for count in (0, 1_767_225_600 * per_second + per_second // 8, -1):
        message = one(store, born_time=pa.array([count], pa.timestamp(unit, zone)))
        assert since_1970(message.born_time) == count * 1000 // per_second
    for kind, ms in ((pa.int64(), 1_767_225_600_123), (pa.int64(), 0), (pa.int32(), -5), (pa.uint8(), 0)):
        assert since_1970(one(store, born_time=pa.array([ms], kind)).born_time) == ms
    with pytest.raises(ValueError, match="born_time.*looks like seconds"):
        one(store, born_time=pa.array([1_767_225_600], pa.int64()))


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()], ids=str)
def test_numbers_have_any_width(store: mqstore.Store, kind: pa.DataType) -> None:
    message = one(store, queue_id=pa.array([7], kind), flag=pa.array([8], kind), prepared_transaction_offset=pa.array([9], kind))
    assert (message.queue_id, message.flag, message.prepared_transaction_offset) == (7, 8, 9)


TABLES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no body": ({"topic": ["t"]}, ValueError, '"body".*topic'),
    "a null body": ({"topic": ["t", "t"], "body": [b"", None]}, mqstore.IllegalMessageError, "message 1: body is null"),
    "a negative delay level": (
        {"topic": ["t"], "body": [b""], "delay_level": [-1]},
        mqstore.IllegalMessageError,
        "message 0: delay_level is -1",
    ),
    "no column": ({}, ValueError, '"body"'),
    "an unknown column": ({"body": [b""], "tag": ["t"]}, ValueError, '"tag".*tags'),
    "text as number": ({"body": [b""], "queue_id": ["0"]}, ValueError, '"queue_id".*cast it to int64'),
    "number as text": ({"body": [b""], "tags": [7]}, ValueError, '"tags".*cast it to utf8'),
    "number as body": ({"body": [7]}, ValueError, '"body".*cast it to binary'),
    "number as keys": ({"body": [b""], "keys": [[7]]}, ValueError, '"keys"'),
    "text as properties": ({"body": [b""], "properties": ["k=v"]}, ValueError, '"properties".*map'),
    "triples as properties": ({"body": [b""], "properties": [[{"a": "", "b": "", "c": ""}]]}, ValueError, '"properties".*map'),
    "a time without a zone": ({"body": [b""], "born_time": [datetime(2026, 1, 1)]}, ValueError, '"born_time".*timezone'),
    "no topic": ({"topic": ["t", None], "body": [b"", b""]}, mqstore.IllegalMessageError, "message 1: .*topic"),
    "an illegal topic": ({"topic": ["t", "a/b"], "body": [b"", b""]}, mqstore.IllegalMessageError, "message 1: .*topic"),
    "a key with a space": ({"topic": ["t"], "body": [b""], "keys": [["a b"]]}, mqstore.IllegalMessageError, "message 0: key"),
    "a null key": ({"topic": ["t"], "body": [b""], "keys": [["a", None]]}, ValueError, "message 0: .*null"),
    "a wide queue": ({"topic": ["t"], "body": [b""], "queue_id": [1 << 31]}, mqstore.IllegalMessageError, "message 0: queue_id"),
    "a wide number": (
        {"topic": ["t"], "body": [b""], "prepared_transaction_offset": pa.array([1 << 63], pa.uint64())},
        ValueError,
        "message 0: .*int64",
    ),
    "no host": ({"topic": ["t"], "body": [b""], "born_host": ["here"]}, mqstore.IllegalMessageError, "message 0: .*here"),
    "an empty property": (
        {"topic": ["t"], "body": [b""], "properties": pa.array([[("k", "")]], pa.map_(pa.utf8(), pa.utf8()))},
        mqstore.IllegalMessageError,
        'message 0: .*"k"',
    ),
}


@pytest.mark.parametrize("why", TABLES)
def test_a_table_that_is_refused_says_why_and_nothing_is_stored(store: mqstore.Store, why: str) -> None:
    columns, error, text = TABLES[why]
    with pytest.raises(error, match=text):
        store.append_batch(pa.table(columns))
    assert store.max_physical_offset == 0


def test_a_column_that_comes_twice_is_refused(store: mqstore.Store) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array([b""])], ["topic", "topic", "body"])
    with pytest.raises(ValueError, match='two columns "topic"'):
        store.append_batch(table)


def test_a_row_that_is_null_as_a_whole_is_refused(store: mqstore.Store) -> None:
    rows = pa.array([{"topic": "t", "body": b""}, None])
    with pytest.raises(mqstore.IllegalMessageError, match="message 1: the row is null"):
        store.append_batch(rows)
    assert store.max_physical_offset == 0


@pytest.mark.parametrize("rows", [pa.array([b"a"]), pa.chunked_array([[b"a"]]), pl.Series([b"a"])], ids=type)
def test_one_column_alone_is_no_table(store: mqstore.Store, rows: Any) -> None:
    with pytest.raises(TypeError, match="named columns"):
        store.append_batch(rows, "orders")


def test_an_error_of_a_producer_is_reported(store: mqstore.Store) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"topic": ["t"], "body": [b""]})
        raise ZeroDivisionError("while producing")

    schema = pa.schema({"topic": pa.utf8(), "body": pa.binary()})
    with pytest.raises(ValueError, match="while producing"):
        store.append_batch(pa.RecordBatchReader.from_batches(schema, batches()))
    assert store.max_physical_offset == 0


def test_a_frame_of_pandas_needs_no_care(store: mqstore.Store) -> None:
    frame = pd.DataFrame({"topic": ["a", "b"], "body": [b"1", b"2"], "keys": [["k"], []], "queue_id": [0, 1]})
    frame["born_time"] = pd.Timestamp("2026-01-01", tz="UTC")
    frame["properties"] = [{"p": "1"}, {"q": "2"}]
    messages = read(store, store.append_batch(frame[frame.queue_id >= 0]))
    assert [(message.topic, message.body, message.queue_id) for message in messages] == [("a", b"1", 0), ("b", b"2", 1)]
    assert [message.properties for message in messages] == [{"p": "1", "KEYS": "k"}, {"q": "2"}]
    assert {message.born_time for message in messages} == {datetime(2026, 1, 1, tzinfo=UTC)}


def test_a_million_rows_are_one_call(tmp_path: Path) -> None:
    count = 1_000_000
    table = pl.DataFrame({"queue_id": np.arange(count) % 8, "body": [b"x" * 10] * count})
    with mqstore.open(tmp_path / "store", "x") as store:
        offsets = np.asarray(store.append_batch(table, "orders"))
        assert len(offsets) == count
        assert (np.diff(offsets) > 0).all()
        store.wait_dispatched(int(offsets[-1]), timeout=60)
        assert [len(queue) for queue in store.topics["orders"].queues] == [count // 8] * 8


def test_bodies_may_change_while_they_are_appended(store: mqstore.Store) -> None:
    size, count = 16_000, 500
    memory, over = bytearray(b"a" * size * count), threading.Event()
    ends = pa.array(np.arange(count + 1, dtype=np.int32) * size).buffers()[1]
    bodies = pa.Array.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(memory)])

    def change() -> None:
        number = 0
        while not over.is_set():
            number = (number + 1) % 256
            memoryview(memory)[::4096] = bytes([number]) * -(-len(memory) // 4096)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        offsets = store.append_batch(pa.table({"body": bodies}), "orders")
    finally:
        over.set()
        thread.join()
    assert [len(message.body) for message in read(store, offsets)] == [size] * count


def test_topics_may_change_while_they_are_appended(store: mqstore.Store) -> None:
    size, count = 100, 2000
    memory, over = bytearray(b"a" * size * count), threading.Event()
    ends = pa.array(np.arange(count + 1, dtype=np.int32) * size).buffers()[1]
    topics = pa.Array.from_buffers(pa.utf8(), count, [None, ends, pa.py_buffer(memory)])
    table = pa.table({"topic": topics, "body": [b"body"] * count})

    def change() -> None:
        while not over.is_set():
            memory[-1:] = b"/"
            memory[-1:] = b"b"

    thread = threading.Thread(target=change)
    thread.start()
    stored: set[str] = set()
    try:
        for _ in range(50):
            with suppress(mqstore.IllegalMessageError):
                stored |= {message.topic for message in read(store, store.append_batch(table)[-1:])}
    finally:
        over.set()
        thread.join()
    assert not {topic for topic in stored if "/" in topic}


def test_a_delay_level_in_a_column_delays_as_the_argument_does(store: mqstore.Store) -> None:
    store.append("orders", b"body", delay_level=3, queue_id=2)
    store.append_batch(
        pa.table({"topic": ["orders"] * 3, "body": [b"body"] * 3, "queue_id": [2] * 3, "delay_level": [3, 0, None]})
    )
    delayed, copied, *immediate = [store.message_at(offset) for offset in offsets_of(store)]
    assert (copied.topic, copied.queue_id, copied.properties) == (delayed.topic, delayed.queue_id, delayed.properties)
    assert (delayed.topic, delayed.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert [(message.topic, message.queue_id, message.properties) for message in immediate] == [("orders", 2, {})] * 2


def offsets_of(store: mqstore.Store) -> list[int]:
    offset, offsets = store.min_physical_offset, []
    while offset < store.max_physical_offset:
        offsets.append(offset)
        offset += store.message_at(offset).store_size
    return offsets


def test_an_argument_that_a_column_contradicts_is_refused(store: mqstore.Store) -> None:
    table = pa.table({"topic": ["a", "b"], "body": [b"", b""], "queue_id": [1, 1]})
    with pytest.raises(ValueError, match='message 1: topic is "a", but the row\'s topic is "b"'):
        store.append_batch(table, topic="a")
    with pytest.raises(ValueError, match="message 0: queue_id is 2, but the row's queue_id is 1"):
        store.append_batch(table, queue_id=2)
    assert store.max_physical_offset == 0
    store.append_batch(table, queue_id=1)
