"""What mqstore raises. Each also subclasses the built-in exception that a Python user expects.

Arguments that cannot be right raise ValueError or TypeError themselves.
"""

from __future__ import annotations

__all__ = [
    "ClosedError",
    "CorruptError",
    "NotAStoreError",
    "NotFoundError",
    "StoreError",
    "StoreIOError",
    "UnsupportedFormatError",
]


class StoreError(Exception):
    """Base of every exception of mqstore."""


class NotAStoreError(StoreError, FileNotFoundError):
    """The directory holds no message store; the text says what was expected and what was found."""


class CorruptError(StoreError, ValueError):
    """Bytes on disk contradict the format, or the device failed to deliver them."""

    path: str
    """The file."""
    offset: int
    """Byte position in that file."""
    reason: str
    """What is wrong, and what to do."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.reason}"


class UnsupportedFormatError(StoreError, NotImplementedError):
    """A valid store in a form that this call does not read; the text says which calls work on it."""


class NotFoundError(StoreError, LookupError):
    """No such message; the text says what was looked for and within which bounds."""


class ClosedError(StoreError, ValueError):
    """The store was closed before."""


class StoreIOError(StoreError, OSError):
    """The operating system refused; `errno`, `strerror` and `filename` are set."""
