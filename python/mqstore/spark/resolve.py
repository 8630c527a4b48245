"""Bulk resolution of frames: from references to positions, and from positions to messages.

Positions are columns of functions, which send only their arguments to Python. Messages go through mapInArrow, which splits its
output into batches of bounded size.
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

#: The size of an Arrow batch of messages. A larger message is a batch of its own.
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
    """Appends the position of each referenced message in the commit log.

    `df` has topic (string), queue_id and queue_offset (any integer type). The new columns are physical_offset (bigint) and
    store_size (int), null for an absent or lost message. `store` is a path that is valid on each node, an open reader, or
    `Stores`; with several stores `broker` is the column with the broker of each row. The job reads a snapshot of the store as of
    this call, and fails if a part of it has expired since, or if another store is at the path.
    """
    _require(df, "resolve_offsets", ("topic", "queue_id", "queue_offset"), appended=("physical_offset", "store_size"))
    position = lookup_column(
        "resolve_offsets", POSITION, ["topic", "queue_id", "queue_offset"], plan(store, df.sparkSession), broker
    )
    resolved = df.select("*", position.alias(_TEMPORARY))
    return resolved.select("*", f"`{_TEMPORARY}`.physical_offset", f"`{_TEMPORARY}`.store_size").drop(_TEMPORARY)


def resolve_keys(df: DataFrame, store: StoreLike, *, limit: int | None = None, broker: Column | str | None = None) -> DataFrame:
    """Appends the positions of the messages with each (topic, key), by the index of the store.

    `df` has topic and key (string). The new column is hits, an array of queue_id, queue_offset, physical_offset and store_size,
    ascending by physical offset; null, not an empty array, if no message has the key. `limit` is the number of newest messages to
    return for a row; None for all. Give a limit if many messages have the same key, because all hits of a batch of rows are in
    memory at once. `store`, `broker` and the errors are those of resolve_offsets.
    """
    _require(df, "resolve_keys", ("topic", "key"), appended=("hits",))
    hits = lookup_column("resolve_keys", hits_lookup(limit), ["topic", "key"], plan(store, df.sparkSession), broker)
    return df.select("*", hits.alias("hits"))


def resolve_times(
    df: DataFrame, store: StoreLike, *, side: Literal["left", "right"] = "left", broker: Column | str | None = None
) -> DataFrame:
    """Appends the queue offset of each time in its queue.

    `df` has topic (string), queue_id (any integer type) and time (timestamp). The new column is queue_offset (bigint): that of
    the first message that was stored at the time or later, with side="right" later than it. It is the end of the queue if no
    message is, and null if the queue does not exist. `store`, `broker` and the errors are those of resolve_offsets.
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
    """Reads the messages at physical offsets: all columns of a message, or `columns`, after the columns of `df` to `keep`.

    `df` has physical_offset (bigint), as resolve_offsets appends it; rows with null are dropped. The job fails at an offset
    where no message starts, and at a damaged message. With errors="skip" it skips these, and each worker logs their number. It
    always fails if another store is at the path, and with "skip" if a part of the snapshot has expired. With
    fail_on_data_loss=False expired messages are skipped and logged, whatever `errors` is.

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

    # With other names, because mapInArrow refuses names with a dot.
    frame = df.select(*(column.alias(f"kept{number}") for number, column in enumerate(beside)), "physical_offset")
    return frame.mapInArrow(messages, StructType([*kept, *messages_schema]))


def log_skipped(batches: mqstore.Batches, path: str) -> None:
    """Logs how many messages were skipped."""
    if batches.skipped:
        logging.getLogger("mqstore.spark").warning("%s: skipped %d lost or damaged messages", path, batches.skipped)


def _of_each_store(rows: pa.RecordBatch, snapshots: Snapshots, has_broker: bool) -> Iterator[tuple[Snapshot, pa.RecordBatch]]:
    """Yields the rows with an offset by store. With several stores the first column is the broker."""
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
    """Reads the messages at the offsets in the last column, each after the other columns of its row, with new names."""
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
                # Skipped offsets are not in the batch.
                is_found = pc.is_in(offsets.slice(at), value_set=batch.column(0))
                numbers = np.flatnonzero(is_found)[: batch.num_rows] + at
                own, at = beside.take(pa.array(numbers)), int(numbers[-1]) + 1
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
    """Drops rows whose messages have expired, and logs their number."""
    kept = rows.filter(pc.greater_equal(rows.columns[-1], start))
    if gone := rows.num_rows - kept.num_rows:
        logging.getLogger("mqstore.spark").warning("%s: %d messages have expired", snapshot.path, gone)
    return kept


def _kept(df: DataFrame, keep: Sequence[str], others: Sequence[str]) -> list[StructField]:
    """Returns the columns of `df` to keep. Raises ValueError for an absent or duplicate name, and for a column of messages."""
    if isinstance(keep, str):
        raise ValueError(f"keep is a list of column names, such as [{keep!r}], not {keep!r}")
    kept: list[StructField] = []
    for name in keep:
        same = [field for field in df.schema.fields if field.name == name]
        if len(same) != 1:
            raise ValueError(f"keep names {name}, but the frame has {len(same)} columns of that name: {', '.join(df.columns)}")
        if name.lower() in others:
            raise ValueError(f"keep names {name}, which is also a column of the messages: rename it first, or read other columns")
        if any(field.name == name for field in kept):
            raise ValueError(f"keep names {name} twice")
        kept.append(StructField(name, same[0].dataType))
    return kept


def _require(df: DataFrame, caller: str, needed: Sequence[str], appended: tuple[str, ...] = ()) -> None:
    """Checks the type of `df`, and that it has each needed column once, with its type, and none of the new columns."""
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
    # Spark compares names case-insensitively by default, so another case would be ambiguous, too.
    for field in fields:
        if field.name.lower() in appended:
            raise ValueError(
                f"{caller} appends {', '.join(appended)}, but the frame already has {field.name}: drop or rename it first"
            )
