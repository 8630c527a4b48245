"""How a store reaches Spark's worker processes: as a recipe to open it, never as an open handle."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import mqstore
from mqstore._native import _checksums, _landmarks

StoreLike = str | os.PathLike[str] | mqstore.Store

# A worker process serves many jobs, one after the other. Each open store pins its mapped segments,
# deleted ones too, so only the most recently used are kept.
_KEPT_OPEN = 4

_LogIdentity = tuple[int, int, int]

# Physical offset of a record, and a checksum of its bytes.
Landmark = tuple[int, int]


@dataclass(frozen=True)
class StoreRef:
    """What travels to a worker: where the store is, how to open it, and what it held when the job was planned."""

    path: str
    recipe: bytes
    """The reader as it pickles itself: its path and options."""
    start: int
    """The store's smallest physical offset at plan time."""
    end: int
    """The store's largest physical offset at plan time."""
    landmarks: tuple[Landmark, ...]
    """The first and the last record at plan time: another store at the same path has others."""

    @classmethod
    def plan(cls, store: StoreLike) -> StoreRef:
        """A reference to this store, a path or an open reader, as it is now."""
        if isinstance(store, mqstore.Store):
            if store.mode != "r":
                raise ValueError(f'Spark reads a store opened with mode="r", but this one has mode={store.mode!r}')
            bounds = store.min_physical_offset, store.max_physical_offset
            return cls(store.path, pickle.dumps(store), *bounds, tuple(_landmarks(store)))
        if isinstance(store, str | os.PathLike):
            # Absolute, because a worker runs in another directory.
            with mqstore.open(os.path.abspath(store)) as reader:
                return cls.plan(reader)
        raise TypeError(f"store is a path or an open mqstore.Store, not {type(store).__name__}")

    def open(self, *, whole: bool = False) -> mqstore.Store:
        """The store, opened once per process and again when it changed since or ends before this plan does.

        StoreError if it is not the store that was planned with, and, if `whole`, if a part of that has expired. A reader looks
        for its files when it first needs them, so ask again after reading.
        """
        with _lock:
            opened = _opened.pop(self.recipe, None)
            if opened is None or opened.is_stale(self.end):
                # A stale reader is dropped, not closed: another thread may still be inside it.
                opened = _Opened(self)
            opened.expect_planned(self)
            _opened[self.recipe] = opened
            while len(_opened) > _KEPT_OPEN:
                del _opened[next(iter(_opened))]
        if whole and opened.store.min_physical_offset > self.start:
            raise mqstore.StoreError(
                f"{self.path} starts at physical offset {opened.store.min_physical_offset} now, but started at {self.start} "
                "where the job was planned: messages have expired since; start the job again"
            )
        return opened.store


class _Opened:
    """An open store and the state of its log directory just before it was opened."""

    def __init__(self, ref: StoreRef) -> None:
        self._path = ref.path
        self._log = _log_identity(ref.path)
        self._planned: set[StoreRef] = set()
        self.store: mqstore.Store = pickle.loads(ref.recipe)

    def expect_planned(self, ref: StoreRef) -> None:
        """StoreError unless this is the store of that plan."""
        if ref in self._planned:
            return
        if self.store.max_physical_offset < ref.end:
            raise mqstore.StoreError(
                f"{ref.path} ends at physical offset {self.store.max_physical_offset} here, but ended at {ref.end} "
                "where the job was planned: this node holds an older copy, or the store was cut since; "
                "bring the copy up to date or start the job again"
            )
        expect_landmarks(self.store, ref.landmarks)
        self._planned.add(ref)

    def is_stale(self, end: int) -> bool:
        return self.store.closed or self.store.max_physical_offset < end or self._log != _log_identity(self._path)


def expect_landmarks(store: mqstore.Store, landmarks: Iterable[Landmark]) -> None:
    """StoreError unless these records are the store's own; one that has expired is no sign of another store."""
    for offset, checksum in landmarks:
        if _checksums(store, [offset]) != [checksum] and offset >= store.min_physical_offset:
            raise mqstore.StoreError(
                f"{store.path} is not the store that the job was planned with: the record at physical offset {offset} "
                "is another one; start the job again"
            )


def _log_identity(path: str) -> _LogIdentity | None:
    """Changes when a segment comes or goes, and when another store takes this one's place."""
    try:
        log = os.stat(os.path.join(path, "commitlog"))
    except OSError:
        return None
    return log.st_dev, log.st_ino, log.st_mtime_ns


_lock = threading.Lock()
_opened: dict[bytes, _Opened] = {}
