"""The results of `Store.export`, `Writer.import_from` and `Store.copy_to`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Copied", "Exported", "Imported"]


@dataclass(frozen=True)
class Exported:
    """What `Store.export` wrote."""

    path: Path
    """The file, or the directory of the files."""
    files: tuple[Path, ...]
    """The files, in the order in which they were begun."""
    rows: int
    """Rows in them: messages, unless `rewrite` dropped or added some."""
    bytes: int
    """Bytes of the files."""
    skipped: int
    """Messages that were left out because they were lost or are damaged: always 0 with `errors="raise"`."""
    complete: bool
    """Whether these are all messages that were asked for, as `Batches.complete` has it."""
    covers: tuple[int, int] | None
    """The physical offsets that were looked at, from the first up to the second."""
    absent_topics: tuple[str, ...]
    """Topics that were asked for by name and are not there, as `Batches.absent_topics` has it."""


@dataclass(frozen=True)
class Imported:
    """The result of `Writer.import_from`."""

    files: tuple[Path, ...]
    """The files, in the order in which they were read."""
    rows: int
    """Messages that were appended."""


@dataclass(frozen=True)
class Copied:
    """What `Store.copy_to` copied."""

    path: Path
    """The new store."""
    rows: int
    """Messages in it."""
    bytes: int
    """Bytes of their records."""
    topics: Mapping[str, int]
    """Messages by topic, as the copy calls it."""
    left_out: Mapping[str, int]
    """Messages of a broker's own topics of transactions, which are not copied."""
    raised: int
    """Messages with a later store time than they had, because times in a log do not fall; 0 with `keep_store_time=False`."""
    skipped: int
    """Messages that were left out because they were lost or are damaged: always 0 with `errors="raise"`."""
    complete: bool
    """Whether these are all messages that were asked for, as `Batches.complete` has it."""
    covers: tuple[int, int] | None
    """The physical offsets that were looked at, from the first up to the second."""
    absent_topics: tuple[str, ...]
    """Topics that were asked for by name and are not there, as `Batches.absent_topics` has it."""
