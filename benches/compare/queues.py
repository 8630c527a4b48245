"""Queues that a Python program could use instead of a consumer group, each with one way to get messages and to acknowledge them.

After an acknowledgement that is not durable, a crash of the process loses nothing in these queues. A consumer group gets the
messages of up to 5 s again.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class QueuePeer(ABC):
    """A queue in a directory, created for one round."""

    #: As results name it.
    name: str
    #: The module that it needs, if it needs one.
    module: str | None = None
    #: The choices: True for acknowledgements that survive a power failure.
    durability: tuple[bool, ...]

    @abstractmethod
    def __init__(self, folder: Path, *, durable: bool) -> None:
        """Creates the queue."""

    @abstractmethod
    def fill(self, bodies: Sequence[bytes]) -> None:
        """Adds messages."""

    @abstractmethod
    def get_and_ack(self, count: int) -> None:
        """Takes this number of messages, and acknowledges them."""

    @abstractmethod
    def close(self) -> None:
        """Closes the queue."""


class SqliteQueue(QueuePeer):
    """A table in WAL mode: a select of the first rows, and their delete as acknowledgement."""

    name = "SQLite"
    durability = (False, True)

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._connection = sqlite3.connect(folder / "queue", isolation_level=None)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
        self._connection.execute("create table queue(number integer primary key, body blob)")

    def fill(self, bodies: Sequence[bytes]) -> None:
        self._connection.execute("begin")
        self._connection.executemany("insert into queue(body) values (?)", ((body,) for body in bodies))
        self._connection.execute("commit")

    def get_and_ack(self, count: int) -> None:
        rows = self._connection.execute("select number, body from queue order by number limit ?", (count,)).fetchall()
        self._connection.execute("delete from queue where number <= ?", (rows[-1][0],))

    def close(self) -> None:
        self._connection.close()


class SqliteAckQueue(QueuePeer):
    """A queue of persist-queue in SQLite, which commits each get and each acknowledgement with the synchronous mode `full`."""

    name = "persist-queue SQLiteAckQueue"
    module = "persistqueue"
    durability = (True,)

    def __init__(self, folder: Path, *, durable: bool) -> None:
        import persistqueue

        self._queue: Any = persistqueue.SQLiteAckQueue(str(folder / "queue"))

    def fill(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._queue.put(body)

    def get_and_ack(self, count: int) -> None:
        for _ in range(count):
            self._queue.ack(id=self._queue.get(raw=True)["pqid"])

    def close(self) -> None:
        self._queue.close()


class FileQueue(QueuePeer):
    """A queue of persist-queue in files, whose `task_done` writes the position."""

    name = "persist-queue Queue"
    module = "persistqueue"
    durability = (False,)

    def __init__(self, folder: Path, *, durable: bool) -> None:
        import persistqueue

        self._queue: Any = persistqueue.Queue(str(folder / "queue"))

    def fill(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._queue.put(body)

    def get_and_ack(self, count: int) -> None:
        for _ in range(count):
            self._queue.get()
        self._queue.task_done()

    def close(self) -> None:
        del self._queue


_ALL: list[type[QueuePeer]] = [SqliteQueue, SqliteAckQueue, FileQueue]
#: The peers whose module is installed.
QUEUES = [peer for peer in _ALL if peer.module is None or find_spec(peer.module)]
