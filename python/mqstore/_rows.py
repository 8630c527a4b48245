"""Rows of tables, and text, in the forms of people and of text files."""

from __future__ import annotations

import json
import re
from collections import namedtuple
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, cast

from mqstore._native import RecordBatch, _json_lines

#: What would move the cursor of a terminal, change how it writes, or end a line; JSON itself escapes what is before the space.
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
    """Makes a row that was pickled."""
    return row_class(names)(*values)


def first_rows(batch: RecordBatch, most: int) -> list[Sequence[object]]:
    """Returns the first rows, at most `most`. If one holds a time that no datetime can hold, all are as in JSON."""
    try:
        return list(islice(batch, most))
    except OverflowError:
        return [tuple(row.values()) for row in islice(each_row(batch), most)]


def each_row(batch: RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch as they are in JSON, one after the other."""
    return map(json.loads, _json_lines(batch, "base64").splitlines())


def rows_of(batch: RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as they are in JSON."""
    return list(each_row(batch))


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def members(line: str) -> Iterator[tuple[str, str]]:
    """Yields the names of a valid JSON object, with their values as they are written: a number of Python has fewer digits."""

    def past_space(place: int) -> int:
        return _SPACE.match(line, place).end()  # type: ignore[union-attr]

    place = past_space(past_space(0) + len("{"))
    while line[place] != "}":
        name, place = _DECODER.raw_decode(line, place)
        begin = past_space(past_space(place) + len(":"))
        _, end = _DECODER.raw_decode(line, begin)
        yield name, line[begin:end]
        place = past_space(end)
        if line[place] == ",":
            place = past_space(place + len(","))


def visible(text: str) -> str:
    """The text without what would do something to a terminal, in one line."""
    return text.translate(_CONTROLS_OF_TEXT)


def json_time(time: datetime) -> str:
    """A time as the core writes it in JSON: `2026-11-20T19:55:54.848Z`."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
