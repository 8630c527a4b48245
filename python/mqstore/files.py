"""The results of `Store.export`, `Writer.import_from` and `Store.copy_to`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Copied", "Exported", "Imported"]


@dataclass(frozen=True)
class Exported:
    """The result of `Store.export`."""

    path: Path
    """The file, or the directory of the files."""
    files: tuple[Path, ...]
    """The files, in the order in which they were created."""
    rows: int
    """Rows in them: messages, unless `rewrite` dropped or added some."""
    bytes: int
    """Bytes of the files."""
    skipped: int
    """Messages that were left out because they were lost or are damaged: always 0 with `errors="raise"`."""
    complete: bool
    """True if all messages that were asked for are there, as in `Batches.complete`."""
    covers: tuple[int, int] | None
    """The range of physical offsets that was read, end exclusive."""
    absent_topics: tuple[str, ...]
    """Topics that were asked for by name and do not exist, as in `Batches.absent_topics`."""
    lost_queues: tuple[tuple[str, int], ...]
    """Topic and queue id of each queue whose files are lost, and whose messages are therefore left out."""


@dataclass(frozen=True)
class Imported:
    """The result of `Writer.import_from`."""

    files: tuple[Path, ...]
    """The files, in the order in which they were read."""
    rows: int
    """Messages that were appended."""


@dataclass(frozen=True)
class Copied:
    """The result of `Store.copy_to`."""

    path: Path
    """The new store."""
    rows: int
    """Messages in it."""
    bytes: int
    """Bytes of their records."""
    topics: Mapping[str, int]
    """The number of messages by topic, under its name in the copy."""
    left_out: Mapping[str, int]
    """The number of messages by topic in a broker's own topics of transactions, which are not copied."""
    raised: int
    """Messages whose store time was raised, because store times of a log do not fall; 0 with `keep_store_time=False`."""
    skipped: int
    """Messages that were left out because they were lost or are damaged: always 0 with `errors="raise"`."""
    complete: bool
    """True if all messages that were asked for are there, as in `Batches.complete`."""
    covers: tuple[int, int] | None
    """The range of physical offsets that was read, end exclusive."""
    absent_topics: tuple[str, ...]
    """Topics that were asked for by name and do not exist, as in `Batches.absent_topics`."""
    lost_queues: tuple[tuple[str, int], ...]
    """Topic and queue id of each queue whose files are lost, and whose messages are therefore left out."""
