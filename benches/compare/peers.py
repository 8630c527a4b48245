"""Embedded stores that a Python program could use instead, each with the same three ways to write."""

from __future__ import annotations

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class Peer(ABC):
    """A store in a directory, created for one round."""

    #: As results name it.
    name: str
    #: The module that it needs, if it needs one.
    module: str | None = None
    #: What can be asked of it.
    has_batches, syncs, has_bodies = True, True, True
    #: Single messages of a round, so that it takes no longer than others.
    messages = 5_000

    @abstractmethod
    def __init__(self, folder: Path, *, durable: bool) -> None:
        """Creates the store. With `durable` each write is on the disk when it returns."""

    @abstractmethod
    def append(self, body: bytes) -> None:
        """Writes one message."""

    @abstractmethod
    def append_batch(self, bodies: Sequence[bytes]) -> None:
        """Writes several messages at once, durable together."""

    def bodies(self) -> Iterator[bytes]:
        """Reads all messages in order."""
        raise NotImplementedError(self.name)

    def body(self, number: int) -> bytes:
        """Reads the message with this number, from 0 on."""
        raise NotImplementedError(self.name)

    @abstractmethod
    def close(self) -> None:
        """Closes the store."""


class PlainFile(Peer):
    """A growing file: not a store, and no message can be found again."""

    name = "plain file"
    has_bodies = False

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._file = (folder / "log").open("ab", buffering=1 << 20)
        self._durable = durable

    def append(self, body: bytes) -> None:
        self._file.write(body)
        self._end_write()

    def append_batch(self, bodies: Sequence[bytes]) -> None:
        self._file.write(b"".join(bodies))
        self._end_write()

    def _end_write(self) -> None:
        if self._durable:
            self._file.flush()
            os.fdatasync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class Sqlite(Peer):
    """A table with an integer key, in WAL mode."""

    name = "SQLite"
    _INSERT = "insert into log(body) values (?)"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._connection = sqlite3.connect(folder / "log", isolation_level=None)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute(f"pragma synchronous = {'full' if durable else 'off'}")
        self._connection.execute("create table log(number integer primary key, body blob)")

    def append(self, body: bytes) -> None:
        self._connection.execute(self._INSERT, (body,))

    def append_batch(self, bodies: Sequence[bytes]) -> None:
        self._connection.execute("begin")
        self._connection.executemany(self._INSERT, ((body,) for body in bodies))
        self._connection.execute("commit")

    def bodies(self) -> Iterator[bytes]:
        return (body for (body,) in self._connection.execute("select body from log order by number"))

    def body(self, number: int) -> bytes:
        return bytes(self._connection.execute("select body from log where number = ?", (number + 1,)).fetchone()[0])

    def close(self) -> None:
        self._connection.close()


class Numbered(Peer):
    """A peer with consecutive keys of eight bytes."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._next = 0

    def _keyed(self, bodies: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        first, self._next = self._next, self._next + len(bodies)
        return [(number.to_bytes(8, "big"), body) for number, body in enumerate(bodies, first)]


class Lmdb(Numbered):
    """A memory-mapped tree."""

    name = "LMDB"
    module = "lmdb"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        import lmdb

        super().__init__(folder, durable=durable)
        self._environment: Any = lmdb.open(str(folder / "log"), map_size=8 << 30, writemap=True, sync=durable, metasync=durable)

    def append(self, body: bytes) -> None:
        [(key, body)] = self._keyed([body])
        with self._environment.begin(write=True) as transaction:
            transaction.put(key, body, append=True)

    def append_batch(self, bodies: Sequence[bytes]) -> None:
        with self._environment.begin(write=True) as transaction, closing(transaction.cursor()) as cursor:
            cursor.putmulti(self._keyed(bodies), append=True)

    def bodies(self) -> Iterator[bytes]:
        with self._environment.begin() as transaction, closing(transaction.cursor()) as cursor:
            yield from cursor.iternext(keys=False)

    def body(self, number: int) -> bytes:
        with self._environment.begin() as transaction:
            return bytes(transaction.get(number.to_bytes(8, "big")))

    def close(self) -> None:
        self._environment.close()


class RocksDb(Numbered):
    """A log-structured tree."""

    name = "RocksDB"
    module = "rocksdict"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        import rocksdict

        super().__init__(folder, durable=durable)
        self._rocksdict: Any = rocksdict
        self._db = rocksdict.Rdict(str(folder / "log"), options=rocksdict.Options(raw_mode=True))
        options = rocksdict.WriteOptions()
        options.sync = durable
        self._db.set_write_options(options)

    def append(self, body: bytes) -> None:
        [(key, body)] = self._keyed([body])
        self._db[key] = body

    def append_batch(self, bodies: Sequence[bytes]) -> None:
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        for key, body in self._keyed(bodies):
            batch.put(key, body)
        self._db.write(batch)

    def bodies(self) -> Iterator[bytes]:
        return iter(self._db.values())

    def body(self, number: int) -> bytes:
        return bytes(self._db[number.to_bytes(8, "big")])

    def close(self) -> None:
        self._db.close()


class PersistQueue(Peer):
    """A queue in files, which pickles and never syncs its data."""

    name = "persist-queue"
    module = "persistqueue"
    has_batches, syncs, has_bodies = False, False, False
    messages = 200

    def __init__(self, folder: Path, *, durable: bool) -> None:
        import persistqueue

        self._queue: Any = persistqueue.Queue(str(folder / "log"))

    def append(self, body: bytes) -> None:
        self._queue.put(body)

    def append_batch(self, bodies: Sequence[bytes]) -> None:
        raise NotImplementedError(self.name)

    def close(self) -> None:
        pass


PEERS: list[type[Peer]] = [PlainFile, Sqlite, Lmdb, RocksDb, PersistQueue]


def installed() -> list[type[Peer]]:
    """Returns the peers whose module is installed."""
    return [peer for peer in PEERS if peer.module is None or find_spec(peer.module)]
