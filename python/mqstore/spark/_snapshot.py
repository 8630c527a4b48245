"""Snapshots of stores, which are pickled to workers, and the cache of open stores in each worker process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mqstore
from mqstore._native import _checksums, _landmarks

# The size of the LRU cache of open stores in a worker process, which serves many jobs. An open store pins its mapped segments,
# deleted ones too. The cache grows to the number of stores of a job.
_KEPT_OPEN = 32

_LogIdentity = tuple[int, int, int]

# Names and values of options of `mqstore.open`.
Options = tuple[tuple[str, Any], ...]

# The physical offset and the checksum of a record.
Landmark = tuple[int, int]


@dataclass(frozen=True)
class Snapshot:
    """The state of a store when a job was planned: bounds and checksums, no open handle."""

    broker: str | None
    """The broker of the store; None in a job with one store."""
    path: str
    options: Options
    start: int
    """The smallest physical offset."""
    end: int
    """The largest physical offset: messages at or past it came later, and the job does not read them."""
    landmarks: tuple[Landmark, ...]
    """The first and the last record, which identify the store."""

    @classmethod
    def of(cls, store: mqstore.Store, broker: str | None, options: Options) -> Snapshot:
        """Takes a snapshot of a reader."""
        bounds = store.min_physical_offset, store.max_physical_offset
        return cls(broker, store.path, options, *bounds, tuple(_landmarks(store)))

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any], broker: str | None, path: str, options: Options) -> Snapshot:
        """Decodes what `manifest` or the command `mqstore manifest` wrote. Raises ValueError for anything else."""
        try:
            start, end = int(manifest["min_physical_offset"]), int(manifest["max_physical_offset"])
            landmarks = tuple((int(offset), int(checksum)) for offset, checksum in manifest["landmarks"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: its manifest was not written by mqstore.spark.manifest or `mqstore manifest`: {error!r}"
            ) from None
        return cls(broker, path, options, start, end, landmarks)

    def manifest(self) -> dict[str, Any]:
        """Encodes the snapshot for JSON."""
        bounds = {"min_physical_offset": self.start, "max_physical_offset": self.end}
        return {"path": self.path, **bounds, "landmarks": [list(mark) for mark in self.landmarks]}

    def open(self, *, whole: bool = False) -> mqstore.Store:
        """Returns the store. A process opens it once, and again when its segments have changed.

        Raises StoreError if it is not the store of the snapshot, and with `whole`, if a part of the snapshot has expired. A
        reader opens files lazily, so call this again after a read.
        """
        with _lock:
            cached = _take(self.path, self.options)
            if cached.store.max_physical_offset < self.end:
                cached = cached.refreshed()
            cached.expect_planned(self)
            _put(cached)
        if whole and cached.store.min_physical_offset > self.start:
            raise mqstore.StoreError(
                f"{self.path} starts at physical offset {cached.store.min_physical_offset} now, but started at {self.start} "
                "when the job was planned: messages have expired since; start the job again"
            )
        return cached.store


def take_snapshot(path: str, broker: str | None, options: Options) -> Snapshot:
    """Takes a snapshot of a store that this process sees."""
    with _lock:
        cached = _take(path, options).refreshed()
        snapshot = Snapshot.of(cached.store, broker, options)
        _put(cached)
    return snapshot


class _CachedStore:
    """An open store, with the identity of its log directory before the open."""

    def __init__(self, path: str, options: Options, user: str = "") -> None:
        self.key = path, options, user
        self._log = _log_identity(path)
        self.store = mqstore.open(path, "r", **dict(options))
        self._landmarks = _landmarks(self.store)

    def is_current(self) -> bool:
        if self.store.closed or self._log != _log_identity(self.key[0]):
            return False
        # Files that were overwritten in place are another store, and this reader has the bounds of the old one.
        return next(_differing(self.store, self._landmarks), None) is None

    def refreshed(self) -> _CachedStore:
        """Refreshes the reader, or opens the store again if a refresh is not possible."""
        try:
            self.store.refresh()
        except mqstore.StoreError:
            return _CachedStore(*self.key)
        return self

    def expect_planned(self, planned: Snapshot) -> None:
        """Raises StoreError if this is not the store of the snapshot, also if its files were overwritten in place."""
        if self.store.max_physical_offset < planned.end:
            raise mqstore.StoreError(
                f"{planned.path} ends at physical offset {self.store.max_physical_offset} here, but ended at {planned.end} "
                "when the job was planned: this node has an older copy, or a recovery has cut the log since; "
                "update the copy or start the job again"
            )
        for offset in _differing(self.store, planned.landmarks):
            raise mqstore.StoreError(
                f"{planned.path} is not the store that the job was planned with: the record at physical offset {offset} "
                "differs; start the job again"
            )


def pinned(path: str, options: Options, user: str, stores: int) -> mqstore.Store:
    """Returns the store as of the first call for this user in this process. `stores` is how many the user has."""
    with _lock:
        cached = _cache.pop((path, options, user), None)
        if cached is None or cached.store.closed:
            cached = _CachedStore(path, options, user)
        _put(cached, max(_KEPT_OPEN, stores))
    return cached.store


def _take(path: str, options: Options) -> _CachedStore:
    """Takes the store out of the cache, or opens it. A stale one is dropped, not closed: another thread may use it."""
    cached = _cache.pop((path, options, ""), None)
    return cached if cached is not None and cached.is_current() else _CachedStore(path, options)


def _put(cached: _CachedStore, most: int = _KEPT_OPEN) -> None:
    _cache[cached.key] = cached
    while len(_cache) > most:
        del _cache[next(iter(_cache))]


def _differing(store: mqstore.Store, landmarks: Iterable[Landmark]) -> Iterator[int]:
    """Yields the landmarks that a store does not have. Expired records do not count."""
    for offset, checksum in landmarks:
        if _checksums(store, [offset]) != [checksum] and offset >= store.min_physical_offset:
            yield offset


def _log_identity(path: str) -> _LogIdentity | None:
    """Identifies the log directory: changes when a segment is created or removed, and for another store at the path."""
    try:
        log = os.stat(os.path.join(path, "commitlog"))
    except OSError:
        return None
    return log.st_dev, log.st_ino, log.st_mtime_ns


_lock = threading.Lock()
# By path, options, and the user of a pinned store; "" for a store that is kept current.
_cache: dict[tuple[str, Options, str], _CachedStore] = {}
