"""What a job knows of a store: how a worker opens it, and what it held when the job was planned. Never an open handle."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mqstore
from mqstore._native import _checksums, _landmarks

# A worker process serves many jobs, one after the other. Each open store pins its mapped segments, deleted ones too, so only
# the most recently used are kept: so many, or as many as the `Stores` of a job.
_KEPT_OPEN = 32

_LogIdentity = tuple[int, int, int]

# Options of `mqstore.open`, by name.
Options = tuple[tuple[str, Any], ...]

# Physical offset of a record, and a checksum of its bytes.
Landmark = tuple[int, int]


@dataclass(frozen=True)
class Snapshot:
    """A store as it was when a job was planned: it travels to the workers, which open the store and see nothing else of it."""

    broker: str | None
    """Whose store it is; None in a job with one store."""
    path: str
    options: Options
    start: int
    """The smallest physical offset."""
    end: int
    """The largest physical offset: a message at or past it came later, and is no part of the job."""
    landmarks: tuple[Landmark, ...]
    """The first and the last record: another store at the same path has others."""

    @classmethod
    def of(cls, store: mqstore.Store, broker: str | None, options: Options) -> Snapshot:
        """What this reader shows."""
        bounds = store.min_physical_offset, store.max_physical_offset
        return cls(broker, store.path, options, *bounds, tuple(_landmarks(store)))

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any], broker: str | None, path: str, options: Options) -> Snapshot:
        """What `manifest` or the command of that name wrote down. ValueError if it is none."""
        try:
            start, end = int(manifest["min_physical_offset"]), int(manifest["max_physical_offset"])
            landmarks = tuple((int(offset), int(checksum)) for offset, checksum in manifest["landmarks"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: its manifest is none that mqstore.spark.manifest or the command made: {error!r}") from None
        return cls(broker, path, options, start, end, landmarks)

    def manifest(self) -> dict[str, Any]:
        """The bounds as JSON has them."""
        bounds = {"min_physical_offset": self.start, "max_physical_offset": self.end}
        return {"path": self.path, **bounds, "landmarks": [list(mark) for mark in self.landmarks]}

    def open(self, *, whole: bool = False) -> mqstore.Store:
        """The store, cached once per process, and again when its segments have changed since.

        StoreError if it is not the store that was planned with, and, if `whole`, if a part of that has expired. A reader looks
        for its files when it first needs them, so ask again after reading.
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
                "where the job was planned: messages have expired since; start the job again"
            )
        return cached.store


def take_snapshot(path: str, broker: str | None, options: Options) -> Snapshot:
    """A snapshot of a store that this process sees, as it is now."""
    with _lock:
        cached = _take(path, options).refreshed()
        snapshot = Snapshot.of(cached.store, broker, options)
        _put(cached)
    return snapshot


class _CachedStore:
    """An open store and the state of its log directory just before it was cached."""

    def __init__(self, path: str, options: Options, user: str = "") -> None:
        self.key = path, options, user
        self._log = _log_identity(path)
        self.store = mqstore.open(path, "r", **dict(options))
        self._landmarks = _landmarks(self.store)

    def is_current(self) -> bool:
        if self.store.closed or self._log != _log_identity(self.key[0]):
            return False
        # Files that were written over in place are another store, of which this one has the bounds of the old one.
        return next(_differing(self.store, self._landmarks), None) is None

    def refreshed(self) -> _CachedStore:
        """The same with what was appended since, or the store cached anew where that cannot be told."""
        try:
            self.store.refresh()
        except mqstore.StoreError:
            return _CachedStore(*self.key)
        return self

    def expect_planned(self, planned: Snapshot) -> None:
        """StoreError unless this is the store of that snapshot, also if its files were written over in place."""
        if self.store.max_physical_offset < planned.end:
            raise mqstore.StoreError(
                f"{planned.path} ends at physical offset {self.store.max_physical_offset} here, but ended at {planned.end} "
                "where the job was planned: this node holds an older copy, or the store was cut since; "
                "bring the copy up to date or start the job again"
            )
        for offset in _differing(self.store, planned.landmarks):
            raise mqstore.StoreError(
                f"{planned.path} is not the store that the job was planned with: the record at physical offset {offset} "
                "is another one; start the job again"
            )


def pinned(path: str, options: Options, user: str, stores: int) -> mqstore.Store:
    """The store as it was when this process first cached it for this user, who has so many."""
    with _lock:
        cached = _cache.pop((path, options, user), None)
        if cached is None or cached.store.closed:
            cached = _CachedStore(path, options, user)
        _put(cached, max(_KEPT_OPEN, stores))
    return cached.store


def _take(path: str, options: Options) -> _CachedStore:
    """The open store of this process, or a new one. A stale one is dropped, not closed: another thread may still be inside it."""
    cached = _cache.pop((path, options, ""), None)
    return cached if cached is not None and cached.is_current() else _CachedStore(path, options)


def _put(cached: _CachedStore, most: int = _KEPT_OPEN) -> None:
    _cache[cached.key] = cached
    while len(_cache) > most:
        del _cache[next(iter(_cache))]


def _differing(store: mqstore.Store, landmarks: Iterable[Landmark]) -> Iterator[int]:
    """Where a store does not have these records; one that has expired is no sign of another store."""
    for offset, checksum in landmarks:
        if _checksums(store, [offset]) != [checksum] and offset >= store.min_physical_offset:
            yield offset


def _log_identity(path: str) -> _LogIdentity | None:
    """Changes when a segment comes or goes, and when another store takes this one's place."""
    try:
        log = os.stat(os.path.join(path, "commitlog"))
    except OSError:
        return None
    return log.st_dev, log.st_ino, log.st_mtime_ns


_lock = threading.Lock()
# By path, options, and the user for whom the store stays as it was; "" for those who want it as it is.
_cache: dict[tuple[str, Options, str], _CachedStore] = {}
