"""Rows of tables as JSON and named tuples, and text that is safe in a terminal."""

from __future__ import annotations

import json
import re
from collections import namedtuple
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any, cast

from mqstore._native import Message, RecordBatch, _json_lines
from mqstore.errors import StoreError

_EPOCH = datetime.fromtimestamp(0, UTC)

#: Characters that would move the cursor, change the direction of text or end a line. JSON itself escapes those below U+0020.
CONTROLS = {code: f"\\u{code:04x}" for code in chain(range(0x7F, 0xA0), range(0x2028, 0x202F), range(0x2066, 0x206A))}
_CONTROLS_OF_TEXT = CONTROLS | {code: f"\\x{code:02x}" for code in range(0x20)}
_CONTROLS_OF_TEXT |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


#: The classes of rows by the names of their columns.
_CLASSES: dict[tuple[str, ...], type[tuple[Any, ...]]] = {}


def row_class(names: tuple[str, ...]) -> type[tuple[Any, ...]]:
    """Returns the class of the rows of a `RecordBatch` with these columns: a named tuple that pickles."""
    if names not in _CLASSES:
        plain = cast(Any, namedtuple)("Row", names, rename=True, module="mqstore")  # mypy takes a list of names alone

        def __reduce__(self: tuple[Any, ...]) -> tuple[Any, ...]:
            return _row, (names, tuple(self))

        _CLASSES[names] = type("Row", (plain,), {"__slots__": (), "__module__": "mqstore", "__reduce__": __reduce__})
    return _CLASSES[names]


def _row(names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Restores a pickled row."""
    return row_class(names)(*values)


def first_rows(batch: RecordBatch, most: int) -> list[Sequence[object]]:
    """Returns the first rows, at most `most`."""
    return list(islice(batch, most))


def each_row(batch: RecordBatch) -> Iterator[dict[str, Any]]:
    """Returns an iterator over the rows of a batch, with the values of JSON."""
    return map(json.loads, _json_lines(batch, "base64").splitlines())


def rows_of(batch: RecordBatch) -> list[dict[str, Any]]:
    """Returns the rows of a batch, with the values of JSON."""
    return list(each_row(batch))


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def members(line: str) -> Iterator[tuple[str, str]]:
    """Yields the names and the source text of the values of a valid JSON object: as a Python number a value could lose digits."""

    def past_space(at: int) -> int:
        return _SPACE.match(line, at).end()  # type: ignore[union-attr]

    at = past_space(past_space(0) + len("{"))
    while line[at] != "}":
        name, at = _DECODER.raw_decode(line, at)
        begin = past_space(past_space(at) + len(":"))
        _, end = _DECODER.raw_decode(line, begin)
        yield name, line[begin:end]
        at = past_space(end)
        if line[at] == ",":
            at = past_space(at + len(","))


def visible(text: str) -> str:
    """Returns the text in one line, with control characters escaped."""
    return text.translate(_CONTROLS_OF_TEXT)


def json_time(time: datetime | int) -> str | int:
    """Returns a time as the core writes it in JSON: `2026-11-20T19:55:54.848Z`, or a number outside the years 1 to 9999."""
    if isinstance(time, int):
        return time
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def store_time_of(message: Message) -> datetime | int:
    """Returns the store time of a message, or the number of ms outside the years 1 to 9999."""
    try:
        return message.store_time
    except StoreError:
        time: datetime | int = message.to_dict()["store_time"]
        return time


def ms_of(time: datetime | int) -> int:
    """Returns the ms since 1970 of a time, which may be such a number."""
    return time if isinstance(time, int) else (time - _EPOCH) // timedelta(milliseconds=1)


def time_of(ms: int) -> datetime | int:
    """Returns the time of a number of ms since 1970, or the number if that is outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return ms


def date_order(time: str | int | None) -> str:
    """Returns a text by which times of JSON sort. A number outside the years 1 to 9999 comes last, as None does."""
    return time if isinstance(time, str) else "~"


def moment_of(time: str | int | None) -> datetime | None:
    """Returns the time that JSON states; None if it is a number outside the years 1 to 9999, and without a time."""
    return datetime.fromisoformat(time) if isinstance(time, str) else None
