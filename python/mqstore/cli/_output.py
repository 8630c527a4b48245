"""The output of commands: tables for people, columns in a pipe, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from mqstore._groups import in_words
from mqstore._rows import CONTROLS, visible
from mqstore.cli._main import Failure
from mqstore.cli._times import shown_time

if TYPE_CHECKING:
    from mqstore.cli._progress import Progress

#: Values of JSON by name.
Row: TypeAlias = Mapping[str, Any]

#: The number of rows whose columns are aligned together.
ROWS = 1000


class Counts(Protocol):
    """A read that can skip messages."""

    @property
    def skipped(self) -> int:
        """The number of messages that were lost or are damaged."""
        ...


Reads = TypeVar("Reads", bound=Counts)


class Output:
    """The output of a command, in the form that its options ask for."""

    def __init__(self, as_json: bool, utc: bool) -> None:
        self.as_json = as_json
        self.utc = utc
        self.is_terminal = sys.stdout.isatty()
        self.in_color = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        #: False once a part of the answer is missing.
        self.is_whole = True
        self._reads: list[Counts] = []
        self.progress: Progress | None = None
        if sys.stderr.isatty():
            from mqstore.cli._progress import Progress

            self.progress = Progress()

    def end_progress(self) -> None:
        """Stops to show progress."""
        if self.progress is not None:
            self.progress.end()
            self.progress = None

    def line(self, text: str) -> None:
        """Prints a line."""
        if self.progress is not None:
            self.progress.clear()
        print(text)

    def object(self, row: Row) -> None:
        """Prints a JSON object."""
        self.line(json.dumps(row, ensure_ascii=False, separators=(",", ":")).translate(CONTROLS))

    def note(self, text: str) -> None:
        """Prints a line on stderr."""
        if self.progress is not None:
            self.progress.clear()
        print(f"mqstore: {' '.join(text.split())}", file=sys.stderr)

    def lack(self, text: str) -> None:
        """Names on stderr a part that is missing in the answer."""
        self.is_whole = False
        self.note(text)

    def counting(self, read: Reads) -> Reads:
        """Registers a read and returns it. The end of the command reports the number of its skipped messages."""
        self._reads.append(read)
        return read

    def covers_all(self) -> bool:
        """Returns True if every registered read was complete."""
        return all(getattr(read, "complete", True) for read in self._reads)

    def end(self) -> None:
        """Ends the output: reports the number of skipped messages, if any."""
        self.end_progress()
        if skipped := sum(read.skipped for read in self._reads):
            self.lack(skipped_in_words(skipped))

    def document(self, row: Row) -> None:
        """Prints one object; for people each name on its own line."""
        if self.as_json:
            return self.object(row)
        width = max(map(len, row))
        for name, value in row.items():
            self.line(f"{name:<{width}}  {self.shown(name, value)}")

    def table(
        self, rows: Iterable[Row], nothing: str, columns: Sequence[str] | None = None, *, missing: str | None = None
    ) -> None:
        """Prints rows, all with the same names; for people only `columns`. At the end it names what is missing.
        Without rows the command fails, with `missing` as its reason, or else `nothing`.
        """
        left = iter(rows)
        is_first = True
        while part := list(islice(left, ROWS)):
            if self.as_json:
                for row in part:
                    self.object(row)
            else:
                self._print_part(part, columns or list(part[0]), is_first)
            is_first = False
        if is_first:
            skipped = sum(read.skipped for read in self._reads)
            raise Failure(missing or (f"in the messages that can be read, {nothing}" if skipped else nothing))
        if missing is not None:
            self.lack(missing)

    def _print_part(self, rows: Sequence[Row], names: Sequence[str], with_names: bool) -> None:
        cells = [[self.shown(name, row[name]) for name in names] for row in rows]
        right = [all(isinstance(row[name], int | float | None) for row in rows) for name in names]
        if self.progress is not None:
            self.progress.clear()
        if self.is_terminal:
            _print_drawn(names if with_names else None, cells, right, "bold" if self.in_color else "")
        else:
            _print_plain([names, *cells] if with_names else cells, right)

    def shown(self, name: str, value: Any) -> str:
        """Returns a value as text for people."""
        match value:
            case None:
                return "-"
            case bool():
                return "yes" if value else "no"
            case _ if name in ("hour", "unconsumed_since") or name.endswith("_time"):
                return shown_time(value, self.utc)
            case float() if name == "age":
                return in_words(value)
            case float():
                return f"{value:.2f}"
            case list():
                return visible(",".join(map(str, value))) or "-"
            case dict():
                return visible(" ".join(f"{key}={text}" for key, text in value.items())) or "-"
            case _:
                return visible(str(value))


def skipped_in_words(number: int) -> str:
    """Returns the sentence for a number of messages that a read has skipped."""
    subject = "1 message was skipped: it was" if number == 1 else f"{number} messages were skipped: they were"
    return f"{subject} lost or damaged"


def _print_plain(cells: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        columns = zip(row, widths, right, strict=True)
        print("  ".join(f"{cell:>{width}}" if is_right else f"{cell:<{width}}" for cell, width, is_right in columns).rstrip())


def _print_drawn(names: Sequence[str] | None, cells: Sequence[Sequence[str]], right: Sequence[bool], style: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style=style, pad_edge=False, show_header=names is not None)
    for name, is_right in zip(names or [""] * len(right), right, strict=True):
        table.add_column(name, justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    Console(markup=False, emoji=False, highlight=False).print(table)
