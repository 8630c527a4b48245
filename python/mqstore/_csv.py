"""CSV files as RFC 4180 defines them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mqstore._native import _named_json_lines
from mqstore._rows import members

#: First characters of a cell that a spreadsheet may run as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class CsvFile:
    """A CSV file that is open for writing. A cell has the value that JSON Lines has."""

    def __init__(self, path: Path, body_as: str, spreadsheet: bool) -> None:
        self._file = path.open("x", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\r\n")
        self._body_as = body_as
        self._spreadsheet = spreadsheet
        self._names: list[str] | None = None

    def write(self, rows: Any) -> int:
        """Writes rows of any Arrow object, after the header if they are the first ones, and returns their number."""
        names, text = _named_json_lines(rows, self._body_as)
        if self._names is None:
            self._names = names
            self._write_row(names)
        if names != self._names:
            raise ValueError(f"rewrite gave the columns {names} after {self._names}: expected always the same")
        lines = text.splitlines()
        for line in lines:
            values = json.loads(line, parse_int=str, parse_float=str)
            if self._body_as == "json" and "body" in values:
                values["body"] = dict(members(line.decode()))["body"]
            self._write_row(_cell(values[name]) for name in names)
        return len(lines)

    def _write_row(self, cells: Iterable[str]) -> None:
        self._writer.writerow(map(_inert, cells) if self._spreadsheet else cells)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _cell(value: Any) -> str:
    """Returns text and numbers as they are, an empty cell for null, and JSON text for other values."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _inert(cell: str) -> str:
    """Returns a cell that no spreadsheet runs as a formula: a `'` comes before a first character of `FORMULA`."""
    return f"'{cell}" if cell.startswith(FORMULA) else cell
