"""The exceptions of mqstore. Each is also a subclass of the built-in exception that fits it.

An invalid argument raises a plain ValueError or TypeError.
"""

from __future__ import annotations

import errno
import io
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
    "OffsetOutOfRangeError",
    "PoisonedError",
    "PositionMismatchError",
    "ReadOnlyError",
    "Remedy",
    "StoreError",
    "StoreExistsError",
    "StoreFileNotFoundError",
    "StoreIOError",
    "StorePermissionError",
    "TransactionEndedError",
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
        "discard-tail",
    ]
    # Work on the files.
    | Literal[
        "extend-copy",
        "cut-file",
        "put-back",
        "repair",
        "repair-copy",
        "rebuild",
        "copy-whole",
    ]
)
"""Remedies after an error, by stable names.

For a reader:

- "skip": open with `errors="skip"`; calls that take it as an argument skip and count lost and damaged messages, too.
- "skip-or-salvage", "skip-or-put-back": as "skip"; a writer or an operator has another choice, below.
- "salvage-past-end", "salvage-or-put-back": open with `recovery="salvage"`, which also reads the whole messages after the end of
  the log.
- "read-only": open with mode "r", which writes nothing and takes no lock.
- "walk-log": search with `walk=True`, which reads the log itself.
- "start-at-bound": follow or consume with `on_missing="earliest"` or `on_missing="latest"`.

For a writer:

- "skip-or-salvage", "salvage-or-read", "salvage-past-end": open with `recovery="salvage"`, which keeps every whole message. A
  reader with mode "r" reads the store unchanged.
- "read-around-gap": open with mode "r", which reads the messages before and after a gap in the log.

For an operator:

- "skip-or-put-back", "salvage-or-put-back": put back the segment that is missing or cut short; until then the store takes no
  messages.
- "extend-copy": copy the segment again, or extend it to its length in a copy of the store.
- "cut-file": copy the file again, or cut it to its length, if the bytes after that are not its own.
- "put-back": put back the part of the log that is missing; if it is lost, `mqstore.repair` with `into`.
- "repair": `mqstore.repair`, which keeps every whole message.
- "repair-copy": `mqstore.repair` with `into`, which leaves the store as it is.
- "rebuild": copy the file again, or `mqstore.rebuild`, which creates it again from the log.
- "discard-tail": `mqstore.replicate` with `discard_tail=True`, which removes what a writer has appended to a slave.
- "copy-whole": `Store.copy_to` with `errors="skip"`, which copies every whole message to new queue offsets.
"""


class StoreError(Exception):
    """The base class of all exceptions of mqstore."""

    remedy: Remedy | None = None
    """The remedy, where one is known."""
    advice: str | None = None
    """The remedy in words; the text of the exception ends with them."""

    def __str__(self) -> str:
        return self._advising(super().__str__())

    def _advising(self, text: str) -> str:
        return text if self.advice is None else f"{text}; {self.advice}"

    status: str | None = None
    """RocketMQ's PutMessageStatus for an append that failed; None where RocketMQ has none."""
    stored: int = 0
    """The number of rows of `append_batch`, from the first, that were stored before it failed."""


class NotAStoreError(StoreError, FileNotFoundError):
    """The path has no message store: the directory is missing or holds something else. The text says what was expected and found.

    `errno` is ENOENT, `filename` the directory.
    """


class CorruptError(StoreError, ValueError):
    """A file is damaged: its bytes contradict the format, or the device failed to read them."""

    path: str
    """The file."""
    offset: int
    """The byte in that file."""
    reason: str
    """The damage, in words."""
    #: True if a slave has cut the log: then no message after it can be read, and a read that passes over damage must end, too.
    _is_of_a_cut: bool = False

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return self._advising(f"{self.path} at byte {self.offset}: {self.reason}")


class UnsupportedFormatError(StoreError, NotImplementedError):
    """The store has a valid format that this call does not read. The text names the calls that do."""


class NotFoundError(StoreError, LookupError):
    """There is no such message. The text names what was searched for, and the bounds."""


class OffsetOutOfRangeError(StoreError, LookupError):
    """The position of a consumer group lies outside of a queue: messages expired unread, or were lost, or the store is another.

    `on_missing` of `Writer.consumer` and `Consumer.seek` continue at a message that is there.
    """

    topic: str
    """The topic."""
    queue_id: int
    """The queue of the topic."""
    offset: int
    """The position."""
    min_offset: int
    """The first offset of the queue."""
    max_offset: int
    """The offset of the next message of the queue."""

    def __init__(self, text: str, topic: str, queue_id: int, offset: int, min_offset: int, max_offset: int) -> None:
        super().__init__(text, topic, queue_id, offset, min_offset, max_offset)
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.min_offset = min_offset
        self.max_offset = max_offset

    def __str__(self) -> str:
        return self._advising(str(self.args[0]))


class PositionMismatchError(StoreError, LookupError):
    """The record before a stored position is another one in this store: the store was replaced, or its log was cut.

    Raised by `Store.consumer` and its `Consumer`; `on_missing` of `Store.consumer` continues at a message that is there.
    """

    path: str
    """The positions file."""
    topic: str
    """The topic."""
    queue_id: int
    """The queue of the topic."""
    offset: int
    """The position."""
    reason: str
    """The difference, in words."""

    def __init__(self, text: str, path: str, topic: str, queue_id: int, offset: int, reason: str) -> None:
        super().__init__(text, path, topic, queue_id, offset, reason)
        self.path = path
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return self._advising(str(self.args[0]))


class ReadOnlyError(StoreError, io.UnsupportedOperation):
    """The call would write to a store that is open for reading (mode "r")."""


class ClosedError(StoreError, ValueError):
    """The store is closed; or this process is a fork, and its parent opened the store for writing or began the iteration."""

    status = "SERVICE_NOT_AVAILABLE"


class StoreIOError(StoreError, OSError):
    """A system call failed; `errno`, `strerror` and `filename` are set.

    As with OSError, `errno` selects the subclass: `StoreFileNotFoundError`, a FileNotFoundError, or `StorePermissionError`, a
    PermissionError.
    """

    def __new__(cls, *args: object) -> Self:
        kinds = {errno.ENOENT: StoreFileNotFoundError, errno.EACCES: StorePermissionError, errno.EPERM: StorePermissionError}
        kind = kinds.get(args[0], cls) if cls is StoreIOError and args and isinstance(args[0], int) else cls
        return super().__new__(cast("type[Self]", kind), *args)


class StoreFileNotFoundError(StoreIOError, FileNotFoundError):
    """A file or directory is missing."""


class StorePermissionError(StoreIOError, PermissionError):
    """The process does not have the permission."""


class StoreExistsError(StoreError, FileExistsError):
    """The directory of a new store is not empty: mode "x" of `open`, or `into` of `repair`."""


class LockedError(StoreError, BlockingIOError):
    """Another writer, or a broker, has the store; `errno` is EAGAIN, `filename` the lock file. A reader needs no lock."""


class IllegalMessageError(StoreError, ValueError):
    """The message is invalid, and nothing was stored. `status` is MESSAGE_ILLEGAL or PROPERTIES_SIZE_EXCEEDED."""

    def __init__(self, text: str, status: str = "MESSAGE_ILLEGAL") -> None:
        super().__init__(text)
        self.status = status


class TransactionEndedError(StoreError, ValueError):
    """The transaction of this half message has ended, and ends only once; nothing was stored.

    Raised by `Transactions.end`.
    """

    physical_offset: int
    """The physical offset of the half message: `Half.physical_offset`."""
    outcome: Literal["committed", "rolled_back", "given_up", "stored_again", "ended"]
    """The end that it had: "given_up" after the last question, "stored_again" where a broker has asked and the later half
    message counts. "ended" is a commit or a rollback before the store was opened: `store.broker.trace` of its id finds which.
    """
    committed_offset: int | None
    """The physical offset of the message that consumers get; None where the outcome is not "committed"."""

    def __init__(
        self,
        text: str,
        physical_offset: int,
        outcome: Literal["committed", "rolled_back", "given_up", "stored_again", "ended"],
        committed_offset: int | None = None,
    ) -> None:
        super().__init__(text, physical_offset, outcome, committed_offset)
        self.physical_offset = physical_offset
        self.outcome = outcome
        self.committed_offset = committed_offset

    def __str__(self) -> str:
        return self._advising(str(self.args[0]))


class DiskFullError(StoreError, OSError):
    """The disk is full; `errno` is ENOSPC. The store is intact, and the call can be repeated when there is space."""

    status = "SERVICE_NOT_AVAILABLE"


class BusyError(StoreError, BlockingIOError):
    """The disk or the machine stalls: another append holds the append lock for too long. Nothing was stored; try again later.

    `errno` is EAGAIN.
    """

    status = "OS_PAGE_CACHE_BUSY"


class PoisonedError(StoreError, OSError):
    """A write or sync has failed, and the store refuses further writes. `__cause__` is the failure. Close it, then reopen it."""

    status = "SERVICE_NOT_AVAILABLE"
    flushed_offset: int
    """The physical offset up to which the log is durable: messages that start below it survive."""

    def __init__(self, number: int, text: str, flushed_offset: int = 0) -> None:
        super().__init__(number, text)
        self.flushed_offset = flushed_offset


class WaitTimeoutError(StoreError, TimeoutError):
    """The timeout of a wait has passed."""
