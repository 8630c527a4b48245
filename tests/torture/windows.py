"""The loss at the end of a log after a failure, measured beside what docs/DURABILITY.md states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from rig import Journal

KILL, POWER_CUT = "process killed", "power cut"
#: Added to each bound but 0: for the write or sync that is under way, and for threads that wait for a processor. The longest
#: pause of the writer, which waits like the others, is added, too.
SLACK_MS = 2000.0


@dataclass(frozen=True)
class Mode:
    """A way to write, and for how many ms of the end of the log a failure may cost."""

    name: str
    options: dict[str, Any]
    bounds: dict[str, int]
    #: One message of this number is appended with `durable=True`; 0 for none.
    durable_every: int = 0
    #: With which `durable` the others are appended.
    durable: bool | None = None
    size: int = 1000
    #: Seconds from one message to the next.
    pace: float = 0.005


POOL = {"transient_store_pool_enable": True}
SYNC = {"flush_disk_type": "SYNC_FLUSH"}
#: No interval is given: the defaults are measured.
MODES = (
    Mode("ASYNC_FLUSH", {}, {KILL: 0, POWER_CUT: 500}),
    Mode("ASYNC_FLUSH, pool", POOL, {KILL: 200, POWER_CUT: 500}),
    Mode("ASYNC_FLUSH, each 20th durable", {}, {KILL: 0, POWER_CUT: 500}, durable_every=20),
    Mode("ASYNC_FLUSH, pool, each 20th durable", POOL, {KILL: 200, POWER_CUT: 500}, durable_every=20),
    Mode("SYNC_FLUSH", SYNC, {KILL: 0, POWER_CUT: 0}),
    Mode("SYNC_FLUSH, durable=False", SYNC, {KILL: 200, POWER_CUT: 500}, durable=False),
    Mode("SYNC_FLUSH, pool", SYNC | POOL, {KILL: 0, POWER_CUT: 0}),
)
#: So slow that four pages are not full before the flush at the thorough interval.
SLOW_MODES = (
    Mode("ASYNC_FLUSH, slow", {}, {POWER_CUT: 10_000}, size=100, pace=0.2),
    Mode("ASYNC_FLUSH, pool, slow", POOL, {POWER_CUT: 10_000}, size=100, pace=0.2),
)


@dataclass(frozen=True)
class Loss:
    """Of the messages whose append had returned: how long ago that of the first missing one had, and the bytes of all missing."""

    ms: float = 0.0
    size: int = 0


@dataclass
class Window:
    """The loss of the stores of a mode after a failure."""

    mode: Mode
    failure: str
    losses: list[Loss] = field(default_factory=list)

    @property
    def bound(self) -> int:
        return self.mode.bounds[self.failure]

    def add(self, journal: Journal, failed_at: int, present: Iterable[int]) -> list[str]:
        """Counts what is missing of what was appended before the time of the failure. Says so if it is more than it may be."""
        there = set(present)
        before = [append for append in journal.timed if append.at <= failed_at]
        missing = [append for append in before if append.number not in there]
        loss = Loss((failed_at - missing[0].at) / 1e6, sum(append.size for append in missing)) if missing else Loss()
        self.losses.append(loss)
        pause = max((later.at - append.at for append, later in pairwise(before)), default=0) / 1e6
        limit = self.bound + (SLACK_MS + pause if self.bound else 0)
        return [f"{self.failure} took {loss}, which is more than {limit:.0f} ms"] if loss.ms > limit else []

    def summary(self) -> dict[str, Any]:
        """For the report."""
        ages, sizes = [round(loss.ms) for loss in self.losses], [loss.size for loss in self.losses]
        return {
            "mode": self.mode.name,
            "failure": self.failure,
            "cases": len(self.losses),
            "ms": {"median": round(median(ages)), "max": max(ages)},
            "bytes": {"median": round(median(sizes)), "max": max(sizes)},
            "bound_ms": self.bound,
        }


def window(windows: list[Window], mode: Mode, failure: str) -> Window:
    """Returns the window of a mode and a failure, which is added if it is not there."""
    for one in windows:
        if (one.mode, one.failure) == (mode, failure):
            return one
    windows.append(Window(mode, failure))
    return windows[-1]
