"""The clock of stores under test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mqstore._native import _stop_clock

if TYPE_CHECKING:
    from typing import Self

#: What a clock shows at first.
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """The wall clock of every store of this process, stopped: a context manager, at whose end the clock runs again.

    Store times come from it, born times that are not given, and the names of index files, which are made a moment after their
    first message. Whatever it shows, a store gives no message an earlier store time than the one before. The services of a
    writer deliver delayed messages and timers, and ask about open transactions, within some ms of the change that makes them
    due. What waits otherwise, such as a `timeout`, goes by the time that passes.

    >>> with Clock() as clock:
    ...     clock.advance(90)
    ...     print(clock.now)
    2026-01-01 00:01:30+00:00
    """

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    @property
    def now(self) -> datetime:
        """The time that it shows, to the ms; set it to a datetime with a timezone."""
        return self._now

    @now.setter
    def now(self, now: datetime) -> None:
        _stop_clock(now)
        self._now = now

    def advance(self, by: float | timedelta) -> None:
        """Advances it by that many seconds, or by a timedelta."""
        self.now += by if isinstance(by, timedelta) else timedelta(seconds=by)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        _stop_clock(None)
