"""The schema of a message in Spark, equal to that in Arrow and Parquet."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from mqstore._native import _no_messages

#: All columns of a message, in order, all nullable.
MESSAGE_SCHEMA: StructType = from_arrow_schema(pa.schema(_no_messages()))

#: The column with the broker, in reads of several stores and in writes of a store for each broker.
BROKER = "broker"
#: The column with the error of an unreadable message, in reads with errors="corrupt_record".
CORRUPT_RECORD = "_corrupt_record"
#: The columns of Spark's Kafka source, by the columns that a message has instead.
_OF_KAFKA = {
    "key": "keys",
    "value": "body",
    "partition": "queue_id",
    "offset": "queue_offset",
    "timestamp": "store_time",
    "headers": "properties",
}


def message_schema(columns: Sequence[str] | None = None) -> StructType:
    """Returns the message schema, or a projection of it. Raises ValueError for an unknown column."""
    return select(MESSAGE_SCHEMA, columns)


def read_schema(has_broker: bool, has_corrupt_record: bool) -> StructType:
    """Returns the schema of a read: the broker, the columns of a message, the error."""
    broker = [StructField(BROKER, StringType())] if has_broker else []
    corrupt_record = [StructField(CORRUPT_RECORD, StringType())] if has_corrupt_record else []
    return StructType([*broker, *MESSAGE_SCHEMA.fields, *corrupt_record])


def select(known: StructType, columns: Sequence[str] | None) -> StructType:
    """Returns a projection of a schema, by default all of it. Raises ValueError for an unknown column."""
    if columns is None:
        return known
    if not isinstance(columns, list | tuple) or not columns:
        raise ValueError(f"columns is a list of at least one column name, not {columns!r}")
    for name in columns:
        if name not in known.names:
            instead = f" (did you mean {_OF_KAFKA[name]}?)" if name in _OF_KAFKA else ""
            raise ValueError(f"a message has no column {name!r}{instead}; its columns are {', '.join(known.names)}")
        if columns.count(name) > 1:
            raise ValueError(f"columns names {name} twice")
    return StructType([known[name] for name in columns])


def known_columns(schema: StructType, known: StructType) -> list[str]:
    """Returns the columns of a user's schema, in any case, by mqstore's names. Raises ValueError for a wrong column."""
    spelled = {name.lower(): name for name in known.names}
    names = [spelled.get(name.lower(), name) for name in schema.names]
    for given, ours in zip(schema.fields, select(known, names).fields, strict=True):
        if given.dataType != ours.dataType:
            raise ValueError(
                f"column {given.name} of a message is {ours.dataType.simpleString()}, "
                f"but the schema declares it {given.dataType.simpleString()}"
            )
        if not given.nullable:
            raise ValueError(f"every column of a message is nullable, but the schema declares {given.name} NOT NULL")
    return names
