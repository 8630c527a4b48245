from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NoReturn, final

import polars
from typing_extensions import CapsuleType, disjoint_base

from mqstore._types import _PandasDataFrame, _PyArrowRecordBatch, _PyArrowTable, _Table

class Tabular:
    """Messages that turn into a table, with the columns of a message. `batches` reads them in batches of bounded size; polars,
    duckdb and pyarrow take the object as it is (`polars.DataFrame(queue[:])`), in such batches.

    `pandas.DataFrame(...)` does not look for Arrow: `to_pandas` makes a frame, and so does `pandas.DataFrame.from_arrow`.
    """

    def to_arrow(self, columns: Sequence[str] | None = None) -> _PyArrowTable:
        """Returns all messages as a pyarrow.Table.

        `columns` names the columns wanted, in order, all by default. Raises `ImportError` without pyarrow, `ValueError` for
        a column that a message does not have, and what reading the messages raises.
        """

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """Returns all messages as a polars.DataFrame.

        `columns` as in `to_arrow`. Raises `ImportError` without polars, and what `to_arrow` raises.
        """

    def to_pandas(self, columns: Sequence[str] | None = None) -> _PandasDataFrame:
        """Returns all messages as a pandas.DataFrame.

        `columns` as in `to_arrow`. Raises `ImportError` without pandas or pyarrow, and what `to_arrow` raises.
        """

    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType: ...
    def __array__(self, *_arguments: object, **_keywords: object) -> NoReturn:
        """Raises TypeError: NumPy, and pandas.DataFrame through it, would make one column of objects."""

@disjoint_base
class RecordBatch:
    """One Arrow record batch. Hand it to pyarrow, polars, duckdb or pandas as it is, or call one of the `to_` methods.

    No other package is needed to read its rows. Iteration yields a named tuple for each, with a field for each column
    (`row.topic`, `row[0]`, `row._asdict()`); `to_pylist` returns dicts; `repr` shows the first rows as a table. A null
    reads as None, a time as a datetime in UTC, a list as a list, and a struct or a map as a dict. A time outside the years
    1 to 9999, such as that of a damaged record, reads as an int of ms since 1970; beyond 292,000 years it is null.
    """
    @property
    def column_names(self) -> list[str]:
        """The names of its columns, a list of str."""
    def to_arrow(self) -> _PyArrowRecordBatch:
        """Returns a pyarrow.RecordBatch with the same memory.

        Raises `ImportError` without pyarrow.
        """
    def to_polars(self) -> polars.DataFrame:
        """Returns the rows as a polars.DataFrame.

        Raises `ImportError` without polars.
        """
    def to_pandas(self) -> _PandasDataFrame:
        """Returns the rows as a pandas.DataFrame.

        Raises `ImportError` without pandas or pyarrow.
        """
    def to_pylist(self) -> list[dict[str, Any]]:
        """Returns the rows as a list of dicts by column name."""
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[CapsuleType, CapsuleType]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType: ...

@final
class Usage(RecordBatch):
    """The counts of `Store.usage`, a `RecordBatch`, and the parts of the log that could not be counted."""
    @property
    def complete(self) -> bool:
        """True if every message of the log was counted: `unread` is empty."""
    @property
    def covers(self) -> tuple[int, int]:
        """The physical offsets that were read: the first byte, and the byte after the last."""
    @property
    def unread(self) -> list[tuple[int, int]]:
        """The stretches of the log in which messages were lost, are damaged, or are gone with their segment, as pairs of
        physical offsets: the first byte, and the byte after the last. Their messages are not counted.
        """

@final
class Batches:
    """Messages as Arrow record batches, read when they are asked for; it can be read any number of times, from the start each
    time.

    Iterating yields `RecordBatch` objects of about `max_bytes` at most (a larger message has one for itself). Hand it to
    pyarrow, polars or duckdb as it is, or call one of the `to_` methods. Raises `ClosedError` once the store is closed, and
    from a batch what reading its messages raises (through `__arrow_c_stream__` the consumer raises its own error with the
    same text). An iterator that has raised `CorruptError` or `NotFoundError` gives the messages after that one when it is
    asked again.
    """
    @property
    def absent_topics(self) -> list[str]:
        """Topics that were asked for by name and have neither a queue nor a message in the latest pass so far: a new list of
        str. The store does not know them, or they were deleted and their messages have expired.
        """
    @property
    def complete(self) -> bool:
        """True if the latest pass has returned all messages: it came to its end before a `limit`, no message was skipped or
        raised an error, none expired during the pass, none is of `lost_queues`, and the open found no sign of messages that
        are missing. False before the first pass.
        """
    @property
    def covers(self) -> tuple[int, int] | None:
        """The physical offsets that the latest pass looks at, from the first up to the second; None before the first pass, and
        for messages that are held in memory.
        """
    @property
    def lost_queues(self) -> list[tuple[str, int]]:
        """Topic and queue id of each queue that had wanted messages in the part of the log that the latest pass has read, and
        whose files are lost: a new list. The pass does not return these messages. A pass for named topics may read only
        queues: it finds such a queue if the ids of the topic's queues or the broker's settings of the topic show that one
        is missing.
        """
    @property
    def skipped(self) -> int:
        """The number of messages that the latest pass has skipped so far, because they were lost or are damaged: always 0 with
        `errors="raise"`. A pass along the log counts a missing or damaged stretch as the messages to which the queues lead
        there, and as one if none does. Messages that the log no longer holds, and that a queue still counts, are not among
        them.
        """
    def to_arrow(self) -> _PyArrowTable:
        """Returns all messages as a pyarrow.Table.

        Raises `ImportError` without pyarrow, and what reading the messages raises.
        """
    def to_polars(self) -> polars.DataFrame:
        """Returns all messages as a polars.DataFrame.

        Raises `ImportError` without polars, and what reading the messages raises.
        """
    def to_pandas(self) -> _PandasDataFrame:
        """Returns all messages as a pandas.DataFrame.

        Raises `ImportError` without pandas or pyarrow, and what reading the messages raises.
        """
    def __iter__(self) -> Iterator[RecordBatch]: ...
    def __aiter__(self) -> AsyncIterator[RecordBatch]: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType: ...

def _json_lines(rows: _Table, body_as: str) -> bytes: ...
def _named_json_lines(rows: _Table, body_as: str) -> tuple[list[str], bytes]: ...
def _no_messages(columns: Sequence[str] | None = None) -> RecordBatch: ...
