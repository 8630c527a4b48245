"""Bulk resolution: positions by arrow_udf, whole messages by mapInArrow.

An arrow_udf ships only its argument columns to Python, however wide the frame is, but cannot split its output;
so it returns positions, and bodies go through mapInArrow in batches of bounded size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udf, col
from pyspark.sql.types import ByteType, CharType, DataType, IntegerType, LongType, ShortType, StringType, VarcharType

import mqstore
from mqstore.spark._schema import message_schema
from mqstore.spark._snapshot import Snapshot
from mqstore.spark.stores import StoreLike, plan

#: Size of an Arrow batch of messages; one message that is larger makes a batch of its own.
BATCH_BYTES = 4 << 20

_TEXT = (StringType, VarcharType, CharType)
_INTEGER = (ByteType, ShortType, IntegerType, LongType)
_POSITION = "struct<physical_offset: bigint, store_size: int>"
_HITS = "array<struct<queue_id: int, queue_offset: bigint, physical_offset: bigint, store_size: int>>"
_TEMPORARY = "mqstore position"


def resolve_offsets(df: DataFrame, store: StoreLike) -> DataFrame:
    """Append where each referenced message lies in the commit log.

    `df` has topic (string), queue_id and queue_offset (any integer type); appended are physical_offset (bigint) and
    store_size (int), null where there is no such message and where it was lost. `store` is a path, valid on every node, or an
    open reader. The job fails where a part of the store expired since it was planned, or another store took its place.
    """
    arguments = {"topic": _TEXT, "queue_id": _INTEGER, "queue_offset": _INTEGER}
    _require(df, "resolve_offsets", arguments, appended=("physical_offset", "store_size"))
    (snapshot,) = plan(store, df.sparkSession).values()

    @arrow_udf(_POSITION)  # type: ignore[call-overload, untyped-decorator]  # pyspark types only the deprecated form
    def position(topic: pa.Array, queue_id: pa.Array, queue_offset: pa.Array) -> pa.Array:
        wanted = pa.RecordBatch.from_arrays([topic, queue_id, queue_offset], names=list(arguments))
        return pa.array(_resolve(snapshot, lambda reader: reader.resolve_offsets(wanted)))

    resolved = df.select("*", position(*map(col, arguments)).alias(_TEMPORARY))
    return resolved.select("*", f"`{_TEMPORARY}`.physical_offset", f"`{_TEMPORARY}`.store_size").drop(_TEMPORARY)


def resolve_keys(df: DataFrame, store: StoreLike) -> DataFrame:
    """Append the messages that carry each (topic, key), by the store's index.

    `df` has topic and key (string); appended is hits, an array of queue_id, queue_offset, physical_offset and store_size,
    ascending by physical offset, null where no message has the key. The job fails as that of resolve_offsets.
    """
    arguments = {"topic": _TEXT, "key": _TEXT}
    _require(df, "resolve_keys", arguments, appended=("hits",))
    (snapshot,) = plan(store, df.sparkSession).values()

    @arrow_udf(_HITS)  # type: ignore[call-overload, untyped-decorator]
    def hits(topic: pa.Array, key: pa.Array) -> pa.Array:
        wanted = pa.RecordBatch.from_arrays([topic, key], names=list(arguments))
        return pa.record_batch(_resolve(snapshot, lambda reader: reader.resolve_keys(wanted))).column("hits")

    return df.select("*", hits(*map(col, arguments)).alias("hits"))


def _resolve(snapshot: Snapshot, resolve: Callable[[mqstore.Store], mqstore.RecordBatch]) -> mqstore.RecordBatch:
    """What `resolve` finds in a store that holds all that was planned, before and after: what expires is not found."""
    found = resolve(snapshot.open(whole=True))
    snapshot.open(whole=True)
    return found


def fetch(
    df: DataFrame, store: StoreLike, columns: Sequence[str] | None = None, errors: Literal["raise", "skip"] = "raise"
) -> DataFrame:
    """The messages at these physical offsets: the message schema, or `columns` of it.

    `df` has physical_offset (bigint), as resolve_offsets appends it; its other columns are dropped, and so are its rows where
    it is null. The job fails at an offset where no message starts, and at a damaged one; with errors="skip" it passes over such
    offsets: how many these were is the number of offsets less that of rows, and each worker logs its own. Either way it fails
    where another store took this one's place, and with "skip" where a part of it expired since the job was planned.
    """
    if errors not in ("raise", "skip"):
        raise ValueError(f'errors is "raise" or "skip", not {errors!r}')
    schema = message_schema(columns)
    _require(df, "fetch", {"physical_offset": (LongType,)})
    (snapshot,) = plan(store, df.sparkSession).values()
    names, skips = schema.names, errors == "skip"

    def messages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for offsets in batches:
            found = snapshot.open(whole=skips).fetch(offsets, columns=names, max_bytes=BATCH_BYTES, errors=errors)
            for batch in found:
                snapshot.open(whole=skips)
                yield pa.record_batch(batch)
            log_skipped(found, snapshot.path)

    return df.select("physical_offset").mapInArrow(messages, schema)


def log_skipped(batches: mqstore.Batches, path: str) -> None:
    """Tell, in the log of a worker, how many messages it skipped."""
    if batches.skipped:
        logging.getLogger("mqstore.spark").warning("%s: skipped %d lost or damaged messages", path, batches.skipped)


def _require(
    df: DataFrame, caller: str, needed: Mapping[str, tuple[type[DataType], ...]], appended: tuple[str, ...] = ()
) -> None:
    """ValueError unless `df` has each needed column once, of a fitting type, and none of the appended ones."""
    fields = df.schema.fields
    found = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields) or "no columns"
    for name, types in needed.items():
        same = [field for field in fields if field.name == name]
        wanted = "string" if types is _TEXT else "bigint" if types == (LongType,) else "integer"
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
