"""What mqstore raises. Each also subclasses the built-in exception that a Python user expects.

Arguments that cannot be right raise ValueError or TypeError themselves.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "BusyError",
    "ClosedError",
    "CorruptError",
    "DiskFullError",
    "IllegalMessageError",
    "LockedError",
    "NotAStoreError",
    "NotFoundError",
    "PoisonedError",
    "Remedy",
    "StoreError",
    "StoreExistsError",
    "StoreFileNotFoundError",
    "StoreIOError",
    "StorePermissionError",
    "UnsupportedFormatError",
    "WaitTimeoutError",
]


Remedy: TypeAlias = (
    # Options of a call.
    Literal[
        "skip",
        "skip-or-salvage",
        "skip-or-put-back",
        "salvage-or-read",
        "salvage-past-end",
        "salvage-or-put-back",
        "read-around-gap",
        "read-only",
        "walk-log",
        "start-at-bound",
    ]
    # Work on the files.
    | Literal[
        "extend-copy",
        "put-back",
        "repair",
        "repair-copy",
        "rebuild",
        "copy-whole",
    ]
)
"""The stable names of remedies: what helps after an error.

For a reader:

- "skip": read with `errors="skip"`, which passes over messages that were lost or are damaged, and counts them.
- "skip-or-salvage", "skip-or-put-back": the same; below is what a writer or an operator can do.
- "salvage-past-end", "salvage-or-put-back": open with `recovery="salvage"`, which also reads the whole messages after the end of
  the log.
- "read-only": open with mode "r", which writes nothing and takes no lock.
- "walk-log": search with `walk=True`, which reads the log itself.
- "start-at-bound": follow with `on_missing="earliest"` or `on_missing="latest"`.

For a writer:

- "skip-or-salvage", "salvage-or-read", "salvage-past-end": open with `recovery="salvage"`, which keeps every whole message. A
  reader with mode "r" reads the store unchanged.
- "read-around-gap": open with mode "r", which reads the messages before and after a gap in the log.

For an operator:

- "skip-or-put-back", "salvage-or-put-back": put back the segment that is missing or cut short; until then the store takes no
  messages.
- "extend-copy": copy the segment again, or extend it to its length in a copy of the store.
- "put-back": put back the part of the log that is missing; if it is lost, `mqstore.repair` with `into`.
- "repair": `mqstore.repair`, which keeps every whole message.
- "repair-copy": `mqstore.repair` with `into`, which leaves the store as it is.
- "rebuild": copy the file again, or `mqstore.rebuild`, which makes it again from the log.
- "copy-whole": `Store.copy_to` with `errors="skip"`, which takes over what is whole under new queue offsets.
"""


class StoreError(Exception):
    """Base of every exception of mqstore."""

    remedy: Remedy | None = None
    """The remedy, where one is known."""
    advice: str | None = None
    """The remedy in words, with which the text ends."""

    def __str__(self) -> str:
        return self._advising(super().__str__())

    def _advising(self, text: str) -> str:
        return text if self.advice is None else f"{text}; {self.advice}"

    status: str | None = None
    """RocketMQ's PutMessageStatus for a message that was not stored, where it has one."""
    stored: int = 0
    """How many rows of `append_batch`, from the first, were stored before it failed."""


class NotAStoreError(StoreError, FileNotFoundError):
    """No message store is there: no such directory, or one that holds something else; the text says what was expected and found.

    `errno` is ENOENT, `filename` the directory.
    """


class CorruptError(StoreError, ValueError):
    """Bytes on disk contradict the format, or the device failed to deliver them."""

    path: str
    """The file."""
    offset: int
    """Byte position in that file."""
    reason: str
    """The contradiction, in words."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return self._advising(f"{self.path} at byte {self.offset}: {self.reason}")


class UnsupportedFormatError(StoreError, NotImplementedError):
    """A valid store in a form that this call does not read; the text says which calls work on it."""


class NotFoundError(StoreError, LookupError):
    """No such message; the text says what was looked for and within which bounds."""


class ClosedError(StoreError, ValueError):
    """The store was closed before, or the process that this one was forked from opened it for writing or began this pass."""

    status = "SERVICE_NOT_AVAILABLE"


class StoreIOError(StoreError, OSError):
    """The operating system refused; `errno`, `strerror` and `filename` are set.

    As an OSError is, it is a FileNotFoundError (`StoreFileNotFoundError`) or a PermissionError (`StorePermissionError`) where
    `errno` says so.
    """

    def __new__(cls, *args: object) -> Self:
        kinds = {errno.ENOENT: StoreFileNotFoundError, errno.EACCES: StorePermissionError, errno.EPERM: StorePermissionError}
        kind = kinds.get(args[0], cls) if cls is StoreIOError and args and isinstance(args[0], int) else cls
        return super().__new__(cast("type[Self]", kind), *args)


class StoreFileNotFoundError(StoreIOError, FileNotFoundError):
    """A file or directory is missing."""


class StorePermissionError(StoreIOError, PermissionError):
    """The system does not permit it."""


class StoreExistsError(StoreError, FileExistsError):
    """A new store wants a missing or an empty directory: mode "x" of `open`, and `into` of `repair`."""


class LockedError(StoreError, BlockingIOError):
    """Another store or a broker writes here; `errno` is EAGAIN, `filename` the lock file. Reading needs no lock."""


class IllegalMessageError(StoreError, ValueError):
    """A message that no store would take; nothing was stored. `status` is MESSAGE_ILLEGAL or PROPERTIES_SIZE_EXCEEDED."""

    def __init__(self, text: str, status: str = "MESSAGE_ILLEGAL") -> None:
        super().__init__(text)
        self.status = status


class DiskFullError(StoreError, OSError):
    """No room for a file; `errno` is ENOSPC. The store is whole, and what was refused works again when there is room."""

    status = "SERVICE_NOT_AVAILABLE"


class BusyError(StoreError, BlockingIOError):
    """The disk or the machine stalls, and an append would wait for another one; nothing was stored, and a later append may work.

    `errno` is EAGAIN.
    """

    status = "OS_PAGE_CACHE_BUSY"


class PoisonedError(StoreError, OSError):
    """A write or sync failed, now or before, and the store takes no more; `__cause__` says which. Close it and open it again."""

    status = "SERVICE_NOT_AVAILABLE"
    flushed_offset: int
    """Physical offset up to which the log is durable all the same: what starts below it survives."""

    def __init__(self, number: int, text: str, flushed_offset: int = 0) -> None:
        super().__init__(number, text)
        self.flushed_offset = flushed_offset


class WaitTimeoutError(StoreError, TimeoutError):
    """The time was up first."""
