"""The one schema of a message, as Spark sees it: Arrow and Parquet have the same."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from mqstore._native import _no_messages

#: Every column of a message, in order, all nullable.
MESSAGE_SCHEMA: StructType = from_arrow_schema(pa.schema(_no_messages()))


def message_schema(columns: Sequence[str] | None = None) -> StructType:
    """The message schema, or these columns of it in this order. ValueError names a column that does not exist."""
    if columns is None:
        return MESSAGE_SCHEMA
    if isinstance(columns, str) or not columns:
        raise ValueError(f"columns is a list of at least one column name, not {columns!r}")
    for name in columns:
        if name not in MESSAGE_SCHEMA.names:
            raise ValueError(f"a message has no column {name!r}; its columns are {', '.join(MESSAGE_SCHEMA.names)}")
        if list(columns).count(name) > 1:
            raise ValueError(f"columns names {name} twice")
    return StructType([MESSAGE_SCHEMA[name] for name in columns])


def check_message_schema(schema: StructType) -> None:
    """A schema that the user wrote must be a part of the message schema; ValueError names the column that is not."""
    known = message_schema(schema.names)
    for given, ours in zip(schema.fields, known.fields, strict=True):
        if given.dataType != ours.dataType:
            raise ValueError(
                f"column {given.name} of a message is {ours.dataType.simpleString()}, "
                f"but the schema declares it {given.dataType.simpleString()}"
            )
        if not given.nullable:
            raise ValueError(f"every column of a message is nullable, but the schema declares {given.name} NOT NULL")
