"""Adapts a function of a store and a batch of rows to the partitions of a job."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import mqstore
from mqstore.spark.functions import Snapshots, plan_now
from mqstore.spark.stores import StoreLike, Stores, as_stores


def batched(
    fn: Callable[[Any, pa.RecordBatch], Any],
    store: StoreLike,
    rows: int = 10_000,
    *,
    schema: StructType | pa.Schema | str | None = None,
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Adapts `fn(store, batch)` to `rdd.mapPartitions`, `df.mapInArrow` and `df.mapInPandas`. It is called with batches of
    `rows` rows, fewer at the end of a partition, and returns the rows of the result.

        rdd.mapPartitions(batched(find, "/data/store", schema="topic string, key string"))
        df.mapInArrow(batched(find, "/data/store"), "key string, body binary")

    fn gets the open mqstore.Store, or with several stores the `Stores`, whose `open(broker)` returns each. A process opens a
    store once. Do not close it. It may have messages that came after the job was planned. The batch is a pyarrow.RecordBatch.

    For mapPartitions, `schema` has the names and types of the rows: a StructType, a pyarrow.Schema or text such as "topic
    string, key string". Values of a tuple are in the order of the schema. Values of a Row are matched by name if the names are
    equal, and by order otherwise. Without a schema the rows must be Row or dict, and each batch has its own schema. The other
    two use the schema of the frame.

    fn returns Arrow data (`store.resolve_keys(batch)`, `store.fetch(...)`, a table of pyarrow or polars), a pandas DataFrame, or
    an iterable of these. For mapPartitions Arrow data and DataFrames become Row, and the items of any other iterable are
    returned unchanged. None means no rows.

    Raises ValueError for `rows` that is not positive. The job fails if another store has replaced one of these.
    """
    if not (isinstance(rows, int) and rows > 0):
        raise ValueError(f"rows is a number of rows from 1 on, not {rows!r}")
    stores, snapshots = as_stores(store), plan_now(store)
    opened = _Planned(stores, snapshots)
    given = _arrow_schema(schema)

    def run(items: Iterable[Any]) -> Iterator[Any]:
        items = iter(items)
        first = list(itertools.islice(items, 1))
        items = itertools.chain(first, items)
        match first:
            case []:
                return
            case [pa.RecordBatch()]:
                batches, to_rows = _cut(items, rows), _to_arrow
            case [pd.DataFrame()]:
                batches, to_rows = _cut(map(_from_pandas, items), rows), _to_pandas
            case _:
                batches, to_rows = _of_rows(items, rows, given), _to_items
        for batch in batches:
            yield from to_rows(fn(opened.for_call(), batch))

    return run


class _Planned(Stores):
    """The stores of a job, each checked against its snapshot when it is opened."""

    def __init__(self, stores: Stores, snapshots: Snapshots) -> None:
        vars(self).update(vars(stores))
        self._snapshots = snapshots

    def open(self, broker: str | None = None) -> mqstore.Store:
        self.path(broker)
        return self._snapshots[broker].open()

    def for_call(self) -> mqstore.Store | Stores:
        """Returns the only store, or all of them."""
        return self.open(self.brokers[0]) if len(self.brokers) == 1 else self


def _arrow_schema(schema: StructType | pa.Schema | str | None) -> pa.Schema | None:
    if schema is None or isinstance(schema, pa.Schema):
        return schema
    parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if isinstance(parsed, StructType):
        # Without a timezone pyspark 4.0 uses UTC, and later versions refuse timestamps.
        zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
        return to_arrow_schema(parsed, **zone)
    raise TypeError(f"schema is a StructType, a pyarrow.Schema or a text, not {type(schema).__name__}")


def _cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Slices batches again, into batches of `rows` rows and a smaller last one."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(part.num_rows for part in waiting) >= rows:
            *full, last = pa.Table.from_batches(waiting).combine_chunks().to_batches(max_chunksize=rows)
            yield from full
            waiting = [last]
    yield from pa.Table.from_batches(waiting).combine_chunks().to_batches(max_chunksize=rows)


def _from_pandas(frame: pd.DataFrame) -> pa.RecordBatch:
    return pa.RecordBatch.from_pandas(frame, preserve_index=False)


def _of_rows(items: Iterable[Any], rows: int, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    items = iter(items)
    while taken := list(itertools.islice(items, rows)):
        yield _record_batch(taken, schema)


def _record_batch(rows: Sequence[Any], schema: pa.Schema | None) -> pa.RecordBatch:
    """Converts rows of an RDD to a batch. Raises TypeError for rows without names if there is no schema."""
    first = rows[0]
    if isinstance(first, dict):
        return pa.RecordBatch.from_pylist(list(rows), schema=schema)
    if not isinstance(first, tuple | list):
        raise TypeError(f"a row is a Row, a dict or a tuple, not {type(first).__name__}")
    given = getattr(first, "__fields__", None)
    names = given if schema is None else schema.names
    if names is None:
        raise TypeError("the rows are tuples without names: give batched a schema")
    columns = list(zip(*rows, strict=True))
    if len(columns) != len(names):
        raise ValueError(f"a row has {len(columns)} values, but the schema {len(names)}: {', '.join(names)}")
    by_name = dict(zip(given or (), columns, strict=False))
    # Names may be duplicate, as after a join.
    if len(by_name) == len(columns) and by_name.keys() == set(names):
        columns = [by_name[name] for name in names]
    types = schema.types if schema is not None else [None] * len(names)
    return pa.RecordBatch.from_arrays([pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names)


def _to_arrow(result: Any) -> Iterator[pa.RecordBatch]:
    """Converts the result of a function to batches."""
    if result is None:
        return
    if isinstance(result, pd.DataFrame):
        yield _from_pandas(result)
    elif hasattr(result, "__arrow_c_array__"):
        yield pa.record_batch(result)
    elif hasattr(result, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(result)
    elif isinstance(result, Iterable) and not isinstance(result, dict | tuple | str | bytes):
        for part in result:
            yield from _to_arrow(part)
    else:
        raise TypeError(
            f"the function returned {type(result).__name__}: "
            "here it returns Arrow data, a pandas DataFrame, or an iterable of these"
        )


def _to_pandas(result: Any) -> Iterator[pd.DataFrame]:
    for batch in _to_arrow(result):
        yield batch.to_pandas()


def _to_items(result: Any) -> Iterator[Any]:
    is_frame = isinstance(result, pd.DataFrame)
    if is_frame or hasattr(result, "__arrow_c_array__") or hasattr(result, "__arrow_c_stream__"):
        for batch in _to_arrow(result):
            yield from map(Row(*batch.schema.names), *(column.to_pylist() for column in batch.columns))
    elif isinstance(result, Iterable):
        yield from result
    elif result is not None:
        raise TypeError(
            f"the function returned {type(result).__name__}: it returns Arrow data, a pandas DataFrame, or an iterable of rows"
        )
