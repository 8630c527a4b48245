"""Round trips of messages through pandas, polars, pyarrow and duckdb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from test_append_batch import kept, read

import mqstore

FORMS: dict[str, Callable[[mqstore.Queue], Any]] = {
    "queue": lambda queue: queue,
    "slice": lambda queue: queue[:],
    "pyarrow": lambda queue: queue.to_arrow(),
    "rows of pyarrow": lambda queue: queue.to_arrow().to_pylist(),
    "polars": lambda queue: queue.to_polars(),
    "polars of dicts": lambda queue: pl.DataFrame([message.to_dict() for message in queue]),
    "rows of polars": lambda queue: queue.to_polars().to_dicts(),
    "pandas": lambda queue: queue.to_pandas(),
    "pandas from Arrow": pd.DataFrame.from_arrow,
    "pandas with Arrow types": lambda queue: queue.to_arrow().to_pandas(types_mapper=pd.ArrowDtype),
    "pandas with other labels": lambda queue: queue.to_pandas().set_index(pd.Index([f"row {at}" for at in range(len(queue))])),
    "pandas filtered": lambda queue: queue.to_pandas().query("queue_id == 0"),
    "pandas of dicts": lambda queue: pd.DataFrame([message.to_dict() for message in queue]),
    "pandas through polars": lambda queue: queue.to_polars().to_pandas(),
    "polars through pandas": lambda queue: pl.from_pandas(queue.to_pandas()),
    "rows of pandas": lambda queue: queue.to_pandas().to_dict("records"),
    "duckdb": lambda queue: duckdb.sql("select * from queue"),
    "polars through duckdb": lambda queue: duckdb.sql("select * from queue").pl(),
    "pandas through duckdb": lambda queue: duckdb.sql("select * from queue").df(),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path_factory.mktemp("round_trip") / "store", "x") as store:
        for number in range(12):
            store.append(
                "orders",
                b"\xff%d" % number,
                tags=("paid", None)[number % 2],
                keys=["k1", "k2"][: number % 3],
                unique_key=(f"U{number}", None)[number % 2],
                properties={f"p{number}": "wärde"} if number % 4 else None,
                flag=number,
            )
        store.append("bare", b"nothing else")
        store.wait_dispatched(store.append("bare", b"").physical_offset)
        yield store


@pytest.mark.parametrize("topic", ["orders", "bare"])
@pytest.mark.parametrize("form", FORMS)
def test_what_it_gives_goes_in_again(source: mqstore.Store, store: mqstore.Store, form: str, topic: str) -> None:
    queue = source.topics[topic].queues[0]
    copies = read(store, store.append_batch(FORMS[form](queue)))
    assert [kept(copy) | {"properties": copy.properties} for copy in copies] == [
        kept(message) | {"properties": message.properties} for message in queue
    ]


PAIRS = [[("a", "1"), ("b", "2")], [], [("c", "ü")]]
_STRUCT = pa.struct([("key", pa.string()), ("value", pa.string())])
MAPS: dict[str, pa.Array] = {
    "map": pa.array(PAIRS, pa.map_(pa.string(), pa.string())),
    "list of structs": pa.array([[{"key": k, "value": v} for k, v in row] for row in PAIRS], pa.list_(_STRUCT)),
    "list view of structs": pa.array([[{"key": k, "value": v} for k, v in row] for row in PAIRS], pa.list_view(_STRUCT)),
    "list of lists": pa.array(PAIRS, pa.list_(pa.list_(pa.string()))),
    "list of lists of two": pa.array(PAIRS, pa.list_(pa.list_(pa.string(), 2))),
    "large list of large lists": pa.array(PAIRS, pa.large_list(pa.large_list(pa.large_string()))),
    "list view of list views": pa.array(PAIRS, pa.list_view(pa.large_list_view(pa.string_view()))),
}


@pytest.mark.parametrize("form", MAPS)
def test_properties_are_a_map_in_any_form(store: mqstore.Store, form: str) -> None:
    table = pa.table({"body": [b""] * 5, "properties": pa.chunked_array([MAPS[form], MAPS[form][1:]])})
    found = [message.properties for message in read(store, store.append_batch(table, "orders"))]
    assert found == [dict(row) for row in [*PAIRS, *PAIRS[1:]]]


@pytest.mark.parametrize("keys", [pa.list_view(pa.string()), pa.list_(pa.string(), 2), pa.large_list_view(pa.large_string())])
def test_keys_are_a_list_in_any_form(store: mqstore.Store, keys: pa.DataType) -> None:
    table = pa.table({"body": [b"", b""], "keys": pa.array([["a", "b"], None], keys)})
    assert [message.keys for message in read(store, store.append_batch(table, "orders"))] == [["a", "b"], []]


BODIES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2), pa.string(), pa.large_string(), pa.string_view()]


@pytest.mark.parametrize("body", BODIES, ids=str)
def test_a_body_is_of_any_type_of_bytes(store: mqstore.Store, body: pa.DataType) -> None:
    table = pa.table({"body": pa.array(["ab", "cd"]).cast(pa.binary()).cast(body)})
    assert [message.body for message in read(store, store.append_batch(table, "orders"))] == [b"ab", b"cd"]


@pytest.mark.parametrize(
    "type_", [pa.null(), pa.float64(), pa.int8(), pa.bool_(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_a_column_of_nulls_is_of_any_type(store: mqstore.Store, type_: pa.DataType) -> None:
    names = ["tags", "keys", "properties", "unique_key", "queue_id", "born_time", "born_host", "flag", "topic"]
    table = pa.table({"body": [b"x"]} | {name: pa.nulls(1, type_) for name in names})
    (message,) = read(store, store.append_batch(table, "orders"))
    assert (message.tags, message.keys, message.properties, message.queue_id) == (None, [], {}, 0)


def test_a_null_in_a_column_of_the_wrong_type_does_not_hide_a_value(store: mqstore.Store) -> None:
    table = pa.table({"body": [b"x", b"y"], "tags": pa.array([None, 1.5])})
    with pytest.raises(ValueError, match=r'"tags" is Float64'):
        store.append_batch(table, "orders")


def test_a_malformed_pair_is_refused_with_column_and_row(store: mqstore.Store) -> None:
    properties = pa.array([[["a", "b"]], [["a", "b", "c"]]], pa.list_(pa.list_(pa.string())))
    with pytest.raises(ValueError, match=r'message 1: column "properties" holds a list of 3: expected a name and a value'):
        store.append_batch(pa.table({"body": [b"", b""], "properties": properties}), "orders")
    for wrong in (["ab"], [("a", 1)], [("a",)], 7, "ab"):
        with pytest.raises(TypeError, match="message 0: properties"):
            store.append_batch([{"body": b"", "properties": wrong}], "orders")


def test_only_the_labels_that_pandas_adds_itself_are_passed_over(store: mqstore.Store) -> None:
    frame = pd.DataFrame({"body": [b"x"]}, index=["label"])
    assert "__index_level_0__" in pa.Table.from_pandas(frame).column_names
    assert len(store.append_batch(frame, "orders")) == 1
    with pytest.raises(ValueError, match='"labels" is not a field'):
        store.append_batch(frame.rename_axis("labels"), "orders")


def test_rows_take_properties_as_pairs_and_nan_as_null(store: mqstore.Store) -> None:
    row = {"body": b"x", "properties": [("a", "1"), ["b", "2"]], "tags": float("nan"), "keys": None}
    rows = [row, ("orders", b"y", None, None, [("c", "3")])]
    found = [message.properties for message in read(store, store.append_batch(rows, "orders"))]
    assert found == [{"a": "1", "b": "2"}, {"c": "3"}]
