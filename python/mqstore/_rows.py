"""What statistics and text are turned into before people read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from mqstore._native import RecordBatch, _json_lines

#: What would move the cursor of a terminal, change how it writes, or end a line; JSON itself escapes what is before the space.
CONTROLS = {code: f"\\u{code:04x}" for code in chain(range(0x7F, 0xA0), range(0x2028, 0x202F), range(0x2066, 0x206A))}
_CONTROLS_OF_TEXT = CONTROLS | {code: f"\\x{code:02x}" for code in range(0x20)}
_CONTROLS_OF_TEXT |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}


def each_row(batch: RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch as they are in JSON, one after the other."""
    return map(json.loads, _json_lines(batch, "base64").splitlines())


def rows_of(batch: RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as they are in JSON."""
    return list(each_row(batch))


def visible(text: str) -> str:
    """The text without what would do something to a terminal, in one line."""
    return text.translate(_CONTROLS_OF_TEXT)


def json_time(time: datetime) -> str:
    """A time as the core writes it in JSON: `2026-11-20T19:55:54.848Z`."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
