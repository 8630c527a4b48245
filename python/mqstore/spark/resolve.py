"""Bulk resolution of frames: references become positions, positions become whole messages.

Positions are columns of functions, which ship only their arguments to Python. Messages go through mapInArrow, which can split
its output into batches of bounded size.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col
from pyspark.sql.types import (
    ByteType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

import mqstore
from mqstore.spark._compute import pc
from mqstore.spark._schema import message_schema
from mqstore.spark._snapshot import Snapshot
from mqstore.spark.functions import (
    POSITION,
    Snapshots,
    as_column,
    by_broker,
    expect_broker,
    expect_errors,
    hits_lookup,
    lookup_column,
    micros,
    planned_offsets,
    times_lookup,
)
from mqstore.spark.stores import StoreLike, plan

#: Size of an Arrow batch of messages; one message that is larger makes a batch of its own.
BATCH_BYTES = 4 << 20

_TEXT = (StringType, VarcharType, CharType)
_INTEGER = (ByteType, ShortType, IntegerType, LongType)
_TYPES: Mapping[str, tuple[type[DataType], ...]] = {
    "topic": _TEXT,
    "key": _TEXT,
    "queue_id": _INTEGER,
    "queue_offset": _INTEGER,
    "time": (TimestampType,),
    "physical_offset": (LongType,),
}
_KINDS: Mapping[tuple[type[DataType], ...], str] = {
    _TEXT: "string",
    _INTEGER: "integer",
    (TimestampType,): "timestamp",
    (LongType,): "bigint",
}
_TEMPORARY = "mqstore position"


def resolve_offsets(df: DataFrame, store: StoreLike, *, broker: Column | str | None = None) -> DataFrame:
    """Append where each referenced message lies in the commit log.

    `df` has topic (string), queue_id and queue_offset (any integer type); appended are physical_offset (bigint) and
    store_size (int), null where there is no such message and where it was lost. `store` is a path that is valid on every node,
    an open reader, or some `Stores`; with several stores `broker` is the column that names the broker of each row. The job finds
    what the store holds now, and fails where a part of that has expired since, or another store took its place.
    """
    _require(df, "resolve_offsets", ("topic", "queue_id", "queue_offset"), appended=("physical_offset", "store_size"))
    position = lookup_column(
        "resolve_offsets", POSITION, ["topic", "queue_id", "queue_offset"], plan(store, df.sparkSession), broker
    )
    resolved = df.select("*", position.alias(_TEMPORARY))
    return resolved.select("*", f"`{_TEMPORARY}`.physical_offset", f"`{_TEMPORARY}`.store_size").drop(_TEMPORARY)


def resolve_keys(df: DataFrame, store: StoreLike, *, limit: int | None = None, broker: Column | str | None = None) -> DataFrame:
    """Append the messages that carry each (topic, key), by the store's index.

    `df` has topic and key (string); appended is hits, an array of queue_id, queue_offset, physical_offset and store_size,
    ascending by physical offset; null, not an empty array, where no message has the key. `limit` is the most messages of a row,
    the newest; None for all: give one where many messages have the same key, because all hits of a batch of rows are held at
    once. `store`, `broker` and what fails the job are those of resolve_offsets.
    """
    _require(df, "resolve_keys", ("topic", "key"), appended=("hits",))
    hits = lookup_column("resolve_keys", hits_lookup(limit), ["topic", "key"], plan(store, df.sparkSession), broker)
    return df.select("*", hits.alias("hits"))


def resolve_times(
    df: DataFrame, store: StoreLike, *, side: Literal["left", "right"] = "left", broker: Column | str | None = None
) -> DataFrame:
    """Append where each time begins in its queue.

    `df` has topic (string), queue_id (any integer type) and time (timestamp); appended is queue_offset (bigint): that of the
    first message that was stored then or later, or, with side="right", later. It is the queue's end if there is none, and null
    where there is no such queue. `store`, `broker` and what fails the job are those of resolve_offsets.
    """
    _require(df, "resolve_times", ("topic", "queue_id", "time"), appended=("queue_offset",))
    lookup, snapshots = times_lookup(side), plan(store, df.sparkSession)
    offset = lookup_column("resolve_times", lookup, ["topic", "queue_id", micros("time")], snapshots, broker)
    return df.select("*", offset.alias("queue_offset"))


def fetch(
    df: DataFrame,
    store: StoreLike,
    columns: Sequence[str] | None = None,
    errors: Literal["raise", "skip"] = "raise",
    *,
    keep: Sequence[str] = (),
    broker: Column | str | None = None,
    fail_on_data_loss: bool = True,
) -> DataFrame:
    """The messages at these physical offsets: the message schema, or `columns` of it, after the columns of `df` to `keep`.

    `df` has physical_offset (bigint), as resolve_offsets appends it; its rows where that is null are dropped. The job fails at
    an offset where no message starts, and at a damaged one; with errors="skip" it passes over such offsets: how many these were
    is the number of offsets less that of rows, and each worker logs its own. Either way it fails where another store took this
    one's place, and with "skip" where a part of it expired since the job was planned. With fail_on_data_loss=False the messages
    that have expired are passed over and logged, whatever `errors` says of damage.

    `store` and `broker` are those of resolve_offsets. With several stores the first column is broker.
    """
    expect_errors(errors)
    messages_schema = message_schema(columns)
    _require(df, "fetch", ("physical_offset",))
    snapshots = plan(store, df.sparkSession)
    expect_broker("fetch", snapshots, broker)
    names = messages_schema.names
    has_broker = broker is not None
    kept = _kept(df, keep, [*names, "broker"] if has_broker else names)
    beside = [col(f"`{field.name.replace('`', '``')}`") for field in kept]
    if broker is not None:
        kept = [StructField("broker", StringType()), *kept]
        beside = [as_column(broker), *beside]
    names_beside = [field.name for field in kept]

    def messages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            for snapshot, own in _of_each_store(rows, snapshots, has_broker):
                yield from _fetched(snapshot, own, names_beside, names, errors, fail_on_data_loss)

    # By other names, because mapInArrow takes none with a dot.
    frame = df.select(*(column.alias(f"kept{number}") for number, column in enumerate(beside)), "physical_offset")
    return frame.mapInArrow(messages, StructType([*kept, *messages_schema]))


def log_skipped(batches: mqstore.Batches, path: str) -> None:
    """Tell, in the log of a worker, how many messages it skipped."""
    if batches.skipped:
        logging.getLogger("mqstore.spark").warning("%s: skipped %d lost or damaged messages", path, batches.skipped)


def _of_each_store(rows: pa.RecordBatch, snapshots: Snapshots, has_broker: bool) -> Iterator[tuple[Snapshot, pa.RecordBatch]]:
    """The rows that have an offset, store by store; with several stores the first column is the broker."""
    if rows.columns[-1].null_count:
        rows = rows.filter(pc.is_valid(rows.columns[-1]))
    if not has_broker:
        (snapshot,) = snapshots.values()
        yield snapshot, rows
        return
    for snapshot_of_broker, numbers in by_broker(rows.columns[0], snapshots):
        if snapshot_of_broker is not None:
            yield snapshot_of_broker, rows.take(numbers)


def _fetched(
    snapshot: Snapshot,
    rows: pa.RecordBatch,
    names_beside: list[str],
    names: list[str],
    errors: Literal["raise", "skip"],
    fails: bool,
) -> Iterator[pa.RecordBatch]:
    """The messages at the offsets in the last column, each after the other columns of its row, under new names."""
    start = snapshot.open().min_physical_offset
    if not fails:
        rows = _unexpired(snapshot, rows, start)
    if not rows.num_rows:
        return
    offsets, skips, at = rows.columns[-1], errors == "skip", 0
    beside = rows.select(list(range(rows.num_columns - 1)))
    planned = pa.table([planned_offsets(snapshot, offsets, errors)], names=["physical_offset"])
    is_matched = skips and beside.num_columns > 0
    wanted = ["physical_offset", *(name for name in names if name != "physical_offset")] if is_matched else names
    found = snapshot.open(whole=skips and fails).fetch(planned, columns=wanted, max_bytes=BATCH_BYTES, errors=errors)
    try:
        for batch in map(pa.record_batch, found):
            snapshot.open(whole=skips and fails)
            own = beside.slice(at, batch.num_rows)
            if is_matched:
                # The offsets that were passed over are not in the batch, and every other one is.
                is_found = pc.is_in(offsets.slice(at), value_set=batch.column(0))
                places = np.flatnonzero(is_found)[: batch.num_rows] + at
                own, at = beside.take(pa.array(places)), int(places[-1]) + 1
            else:
                at += batch.num_rows
            columns = [*own.columns, *map(batch.column, names)]
            yield pa.RecordBatch.from_arrays(columns, names=[*names_beside, *names])
    except mqstore.NotFoundError:
        if fails or snapshot.open().min_physical_offset == start:
            raise
        yield from _fetched(snapshot, rows.slice(at), names_beside, names, errors, fails)
    log_skipped(found, snapshot.path)


def _unexpired(snapshot: Snapshot, rows: pa.RecordBatch, start: int) -> pa.RecordBatch:
    """The rows whose messages the log still holds."""
    kept = rows.filter(pc.greater_equal(rows.columns[-1], start))
    if gone := rows.num_rows - kept.num_rows:
        logging.getLogger("mqstore.spark").warning("%s: %d messages have expired", snapshot.path, gone)
    return kept


def _kept(df: DataFrame, keep: Sequence[str], others: Sequence[str]) -> list[StructField]:
    """The columns of `df` that stay. ValueError for one that is not there once, or has the name of another one."""
    if isinstance(keep, str):
        raise ValueError(f"keep is a list of column names, such as [{keep!r}], not {keep!r}")
    kept: list[StructField] = []
    for name in keep:
        same = [field for field in df.schema.fields if field.name == name]
        if len(same) != 1:
            raise ValueError(f"keep names {name}, but the frame has {len(same)} columns of that name: {', '.join(df.columns)}")
        if name.lower() in others:
            raise ValueError(f"keep names {name}, but so is a column of the messages: rename it first, or name other columns")
        if any(field.name == name for field in kept):
            raise ValueError(f"keep names {name} twice")
        kept.append(StructField(name, same[0].dataType))
    return kept


def _require(df: DataFrame, caller: str, needed: Sequence[str], appended: tuple[str, ...] = ()) -> None:
    """TypeError unless `df` is a frame; ValueError unless it has each needed column once, of its type, and none appended yet."""
    if not hasattr(df, "schema"):
        raise TypeError(f"{caller} takes a frame, and then the store, but the first argument is of type {type(df).__name__}")
    fields = df.schema.fields
    found = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields) or "no columns"
    for name in needed:
        types = _TYPES[name]
        same = [field for field in fields if field.name == name]
        wanted = _KINDS[types]
        if len(same) != 1:
            have = f"{len(same)} columns of that name" if same else found
            raise ValueError(f"{caller} needs one column {name} ({wanted}), but the frame has {have}")
        if not isinstance(same[0].dataType, types):
            raise ValueError(f"{caller} needs column {name} to be {wanted}, but the frame has {found}")
    # Spark compares names without case by default, so a second spelling would be ambiguous too.
    for field in fields:
        if field.name.lower() in appended:
            raise ValueError(
                f"{caller} appends {', '.join(appended)}, but the frame already has {field.name}: drop or rename it first"
            )
