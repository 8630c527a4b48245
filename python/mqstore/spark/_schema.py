"""The one schema of a message, as Spark sees it: Arrow and Parquet have the same."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from mqstore._native import _no_messages

#: Every column of a message, in order, all nullable.
MESSAGE_SCHEMA: StructType = from_arrow_schema(pa.schema(_no_messages()))

#: Whose store a message is from, in a read of several stores, and goes into, in a write of several.
BROKER = "broker"
#: The reason for which a message could not be read, in a read with errors="corrupt_record".
CORRUPT_RECORD = "_corrupt_record"


def message_schema(columns: Sequence[str] | None = None) -> StructType:
    """The message schema, or these columns of it in this order. ValueError names a column that does not exist."""
    return select(MESSAGE_SCHEMA, columns)


def read_schema(has_broker: bool, has_corrupt_record: bool) -> StructType:
    """The columns of a read: those of a message, the broker before and the reason after."""
    broker = [StructField(BROKER, StringType())] if has_broker else []
    corrupt_record = [StructField(CORRUPT_RECORD, StringType())] if has_corrupt_record else []
    return StructType([*broker, *MESSAGE_SCHEMA.fields, *corrupt_record])


def select(known: StructType, columns: Sequence[str] | None) -> StructType:
    """These columns of a schema, in this order; all of it by default. ValueError names a column that does not exist."""
    if columns is None:
        return known
    if not isinstance(columns, list | tuple) or not columns:
        raise ValueError(f"columns is a list of at least one column name, not {columns!r}")
    for name in columns:
        if name not in known.names:
            raise ValueError(f"a message has no column {name!r}; its columns are {', '.join(known.names)}")
        if columns.count(name) > 1:
            raise ValueError(f"columns names {name} twice")
    return StructType([known[name] for name in columns])


def known_columns(schema: StructType, known: StructType) -> list[str]:
    """The columns of a schema that the user wrote, in any case, by their own names. ValueError names one that does not fit."""
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
