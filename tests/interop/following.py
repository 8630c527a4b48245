"""Logs that one side follows: their ends, their bytes, and the load of their master."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import mqstore

#: Messages that a master stores while a slave follows, each of about 1.1 KB: three times, 66 MiB in all.
MESSAGES = 20_000
#: How much of them a kill waits for.
MIDDLE = 4 << 20


def wait_until(holds: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def end_of(path: Path) -> int:
    with mqstore.open(path) as reader:
        return reader.max_physical_offset


def settled_end(path: Path, least: int) -> int:
    """The end of a log once it is at this offset or later, and nothing more comes."""
    ends = [end_of(path)]
    while len(ends) < 2 or ends[-1] < least or ends[-1] != ends[-2]:
        time.sleep(1)
        ends.append(end_of(path))
        assert len(ends) < 100
    return ends[-1]


def log_of(path: Path, end: int) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))[:end]
