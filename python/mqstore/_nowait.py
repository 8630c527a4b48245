"""Completes the futures of `Store.append_nowait`, in a thread of each store."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from logging import getLogger
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mqstore._native import AppendResult, _Flushed

_T = TypeVar("_T")

#: A message's physical offset, when it is late, its future, the result, and what makes the result of a message that is late.
_InFlight = tuple[int, float, "Future[Any]", object, Callable[[], object]]


def done(result: AppendResult) -> Future[AppendResult]:
    """A future that is done."""
    future: Future[AppendResult] = Future()
    future.set_result(result)
    return future


class Completer:
    """Completes futures in the order in which they were made, which is the order in which they are late.

    Only the first one in the queue is waited for. A sync is for everything that was appended before it, so the thread then finds
    the next ones durable. The queue may be put to in a collection of garbage, in any thread: it takes no lock for that.
    """

    def __init__(self, flushed: _Flushed, timeout: float) -> None:
        self._flushed = flushed
        self._timeout = timeout
        #: None comes after the close.
        self._in_flight: SimpleQueue[_InFlight | None] = SimpleQueue()
        self._has_ended = False
        # Nothing waits for a daemon thread at the end of the interpreter.
        self._thread = threading.Thread(target=self._run, name="mqstore-futures", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self.end()
            raise

    def append(self, physical_offset: int, result: AppendResult) -> Future[AppendResult]:
        """A future of this result."""
        return self._promise(physical_offset, result, result._late)

    def durable(self, physical_offset: int) -> Future[bool]:
        """Whether the message at this physical offset is durable before it is late."""
        return self._promise(physical_offset, True, lambda: False)

    def _promise(self, physical_offset: int, on_time: _T, late: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()
        # From now on `cancel` is False.
        future.set_running_or_notify_cancel()
        self._in_flight.put((physical_offset, time.monotonic() + self._timeout, future, on_time, late))
        # After the put. The thread looks once more after it has set this, so one of the two finds the future.
        if self._has_ended:
            self._complete_rest()
        return future

    def end(self) -> None:
        """Lets the thread end. The store was closed before."""
        self._in_flight.put(None)

    def join(self) -> None:
        """Waits until the thread has ended, unless this is a callback in it, or the end of the interpreter has stopped it."""
        if threading.get_ident() != self._thread.ident and not sys.is_finalizing():
            self._thread.join()

    def _run(self) -> None:
        while (in_flight := self._in_flight.get()) is not None:
            self._complete(*in_flight)
            # The next one may be long in coming.
            del in_flight
        self._has_ended = True
        self._complete_rest()

    def _complete_rest(self) -> None:
        with suppress(Empty):
            while True:
                if (in_flight := self._in_flight.get_nowait()) is not None:
                    self._complete(*in_flight)

    def _complete(
        self, physical_offset: int, deadline: float, future: Future[Any], on_time: object, late: Callable[[], object]
    ) -> None:
        try:
            flushed = self._flushed.wait(physical_offset, max(0.0, deadline - time.monotonic()))
        except Exception as error:
            # Without its traceback, which leads to this frame and so back to the future.
            _settle(future.set_exception, error.with_traceback(None))
        else:
            _settle(future.set_result, on_time if flushed > physical_offset else late())


def _settle(settle: Callable[[Any], None], outcome: object) -> None:
    """A callback may raise SystemExit, which a future lets through. The other futures are completed all the same."""
    try:
        settle(outcome)
    except BaseException:
        getLogger("concurrent.futures").exception("completing a future of mqstore")
