"""How a store reaches Spark's worker processes: as a recipe to open it, never as an open handle."""

from __future__ import annotations

import os
import pickle
import threading
from dataclasses import dataclass

import mqstore

StoreLike = str | os.PathLike[str] | mqstore.Store

# A worker process serves many jobs, one after the other. Each open store pins its mapped segments,
# deleted ones too, so only the most recently used are kept.
_KEPT_OPEN = 4

_LogIdentity = tuple[int, int, int]


@dataclass(frozen=True)
class StoreRef:
    """What travels to a worker: where the store is, how to open it, and how far it reached when the job was planned."""

    path: str
    recipe: bytes
    """The reader as it pickles itself: its path and options."""
    end: int
    """The store's largest physical offset at plan time."""

    @classmethod
    def plan(cls, store: StoreLike) -> StoreRef:
        """A reference to this store, a path or an open reader, as it is now."""
        if isinstance(store, mqstore.Store):
            if store.mode != "r":
                raise ValueError(f'Spark reads a store opened with mode="r", but this one has mode={store.mode!r}')
            return cls(store.path, pickle.dumps(store), store.max_physical_offset)
        if isinstance(store, str | os.PathLike):
            # Absolute, because a worker runs in another directory.
            with mqstore.open(os.path.abspath(store)) as reader:
                return cls.plan(reader)
        raise TypeError(f"store is a path or an open mqstore.Store, not {type(store).__name__}")

    def open(self) -> mqstore.Store:
        """The store, opened once per process and again when it changed since or ends before this plan does."""
        with _lock:
            opened = _opened.pop(self.recipe, None)
            if opened is None or opened.is_stale(self.end):
                # A stale reader is dropped, not closed: another thread may still be inside it.
                opened = _Opened(self)
            _opened[self.recipe] = opened
            while len(_opened) > _KEPT_OPEN:
                del _opened[next(iter(_opened))]
        return opened.store


class _Opened:
    """An open store and the state of its log directory just before it was opened."""

    def __init__(self, ref: StoreRef) -> None:
        self._path = ref.path
        self._log = _log_identity(ref.path)
        self.store: mqstore.Store = pickle.loads(ref.recipe)
        if self.store.max_physical_offset < ref.end:
            raise mqstore.StoreError(
                f"{ref.path} ends at physical offset {self.store.max_physical_offset} here, but ended at {ref.end} "
                "where the job was planned: this node holds an older copy, or the store was cut since; "
                "bring the copy up to date or start the job again"
            )

    def is_stale(self, end: int) -> bool:
        return self.store.closed or self.store.max_physical_offset < end or self._log != _log_identity(self._path)


def _log_identity(path: str) -> _LogIdentity | None:
    """Changes when a segment comes or goes, and when another store takes this one's place."""
    try:
        log = os.stat(os.path.join(path, "commitlog"))
    except OSError:
        return None
    return log.st_dev, log.st_ino, log.st_mtime_ns


_lock = threading.Lock()
_opened: dict[bytes, _Opened] = {}
