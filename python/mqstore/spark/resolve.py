"""Bulk resolution: positions by arrow_udf, whole messages by mapInArrow.

An arrow_udf ships only its argument columns to Python, however wide the frame is, but cannot split its output;
so it returns positions, and bodies go through mapInArrow in batches of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udf, col
from pyspark.sql.types import ByteType, CharType, DataType, IntegerType, LongType, ShortType, StringType, VarcharType

from mqstore.spark._schema import message_schema
from mqstore.spark._store import StoreLike, StoreRef

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
    store_size (int), null where there is no such message. `store` is a path, valid on every node, or an open reader.
    """
    arguments = {"topic": _TEXT, "queue_id": _INTEGER, "queue_offset": _INTEGER}
    _require(df, "resolve_offsets", arguments, appended=("physical_offset", "store_size"))
    ref = StoreRef.plan(store)

    @arrow_udf(_POSITION)  # type: ignore[call-overload, untyped-decorator]  # pyspark types only the deprecated form
    def position(topic: pa.Array, queue_id: pa.Array, queue_offset: pa.Array) -> pa.Array:
        wanted = pa.RecordBatch.from_arrays([topic, queue_id, queue_offset], names=list(arguments))
        return pa.array(ref.open().resolve_offsets(wanted))

    resolved = df.select("*", position(*map(col, arguments)).alias(_TEMPORARY))
    return resolved.select("*", f"`{_TEMPORARY}`.physical_offset", f"`{_TEMPORARY}`.store_size").drop(_TEMPORARY)


def resolve_keys(df: DataFrame, store: StoreLike) -> DataFrame:
    """Append the messages that carry each (topic, key), by the store's index.

    `df` has topic and key (string); appended is hits, an array of queue_id, queue_offset, physical_offset and store_size,
    ascending by physical offset, null where no message has the key.
    """
    arguments = {"topic": _TEXT, "key": _TEXT}
    _require(df, "resolve_keys", arguments, appended=("hits",))
    ref = StoreRef.plan(store)

    @arrow_udf(_HITS)  # type: ignore[call-overload, untyped-decorator]
    def hits(topic: pa.Array, key: pa.Array) -> pa.Array:
        wanted = pa.RecordBatch.from_arrays([topic, key], names=list(arguments))
        return pa.record_batch(ref.open().resolve_keys(wanted)).column("hits")

    return df.select("*", hits(*map(col, arguments)).alias("hits"))


def fetch(df: DataFrame, store: StoreLike, columns: Sequence[str] | None = None) -> DataFrame:
    """The messages at these physical offsets: the message schema, or `columns` of it.

    `df` has physical_offset (bigint), as resolve_offsets appends it; its other columns are dropped, and so are its rows where
    it is null. The job fails at an offset where no record starts.
    """
    schema = message_schema(columns)
    _require(df, "fetch", {"physical_offset": (LongType,)})
    ref = StoreRef.plan(store)
    names = schema.names

    def messages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for offsets in batches:
            for batch in ref.open().fetch(offsets, columns=names, max_bytes=BATCH_BYTES):
                yield pa.record_batch(batch)

    return df.select("physical_offset").mapInArrow(messages, schema)


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
