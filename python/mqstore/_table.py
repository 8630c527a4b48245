"""The `repr` of a `RecordBatch`: a text table of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mqstore._native import RecordBatch
from mqstore._rows import first_rows, json_time, visible

#: Most rows, most characters of a row, and most characters of a cell.
ROWS, WIDTH, CELL = 10, 120, 40
_BETWEEN = "  "


def shown(head: str, batch: RecordBatch) -> str:
    """Returns the line `head`, the first rows as aligned columns, and the counts of the rows and columns that are left out."""
    names, rows = batch.column_names, first_rows(batch, ROWS)
    if not rows or not names:
        return head
    columns = [_column(name, [row[at] for row in rows]) for at, name in enumerate(names)]
    fitting = _fitting(columns)
    lines = [_BETWEEN.join(cells).rstrip() for cells in zip(*columns[:fitting], strict=True)]
    left_out = [(len(batch) - len(rows), "rows"), (len(columns) - fitting, "columns")]
    if more := " and ".join(f"{count} more {what}" for count, what in left_out if count):
        lines.append(f"... {more}")
    return "\n".join([head, *lines])


def _column(name: str, values: Sequence[object]) -> list[str]:
    """Returns the name and the cells of a column, all of one width. Numbers are aligned to the right."""
    cells = [_cut(visible(name)), *map(_cell, values)]
    width = max(map(len, cells))
    is_number = all(value is None or type(value) in (int, float) for value in values)
    return [cell.rjust(width) if is_number else cell.ljust(width) for cell in cells]


def _fitting(columns: Sequence[Sequence[str]]) -> int:
    """Returns the number of columns that fit into a row, at least 1."""
    width = -len(_BETWEEN)
    for at, column in enumerate(columns):
        width += len(_BETWEEN) + len(column[0])
        if width > WIDTH:
            return max(at, 1)
    return len(columns)


def _cell(value: object) -> str:
    match value:
        case datetime():
            return str(json_time(value))
        case str():
            return _cut(visible(value[: CELL + 1]))
        case bytes():
            return _cut(repr(value[: CELL + 1]))
        case list():
            return _cut(visible(repr(value[: CELL + 1])))
        case _:
            return _cut(visible(str(value)))


def _cut(text: str, most: int = CELL) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
