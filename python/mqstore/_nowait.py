"""Completes the futures of `Writer.append_nowait` and of `mqstore.aio`, in a thread of each store."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from logging import getLogger
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import asyncio

    from mqstore._native import AppendResult, _Flushed

    #: None stands for the threads.
    _Loop: TypeAlias = asyncio.AbstractEventLoop | None
    _AnyFuture: TypeAlias = Future[Any] | asyncio.Future[Any]
    #: A message's physical offset, when it is late, its loop and future, its result, and what makes the result if it is late.
    _InFlight: TypeAlias = tuple[int, float, _Loop, _AnyFuture, object, Callable[[], object]]
    #: Futures with the results or exceptions that they are to have.
    _Outcomes: TypeAlias = list[tuple[_AnyFuture, object]]


def done(result: AppendResult) -> Future[AppendResult]:
    """A future that is done."""
    future: Future[AppendResult] = Future()
    future.set_result(result)
    return future


class Completer:
    """Completes futures in the order in which they were made, which is the order in which they are late.

    Only the first one in the queue is waited for. A sync is for everything that was appended before it, so the thread then finds
    the next ones durable. An event loop is given all of them in one call, because to wake it takes longer than an append.

    The queue may be put to in a collection of garbage, in any thread: it takes no lock for that.
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

    def append(self, physical_offset: int, result: AppendResult, loop: _Loop) -> _AnyFuture:
        """A future of this result."""
        return self._promise(physical_offset, loop, result, result._late)

    def durable(self, physical_offset: int, loop: _Loop) -> _AnyFuture:
        """A future that tells whether the message at this physical offset is durable before it is late."""
        return self._promise(physical_offset, loop, True, lambda: False)

    def _promise(self, physical_offset: int, loop: _Loop, on_time: object, late: Callable[[], object]) -> _AnyFuture:
        future: _AnyFuture
        if loop is None:
            future = Future()
            # From now on `cancel` is False.
            future.set_running_or_notify_cancel()
        else:
            future = loop.create_future()
        self._in_flight.put((physical_offset, time.monotonic() + self._timeout, loop, future, on_time, late))
        # After the put. The thread looks once more after it has set this, so one of the two finds the future.
        if self._has_ended:
            self._complete(self._taken())
        return future

    def end(self) -> None:
        """Lets the thread end. The store was closed before."""
        self._in_flight.put(None)

    def join(self) -> None:
        """Waits until the thread has ended, unless this is a callback in it, or the end of the interpreter has stopped it."""
        if threading.get_ident() != self._thread.ident and not sys.is_finalizing():
            self._thread.join()

    def _run(self) -> None:
        while (first := self._in_flight.get()) is not None and self._complete([first, *self._taken()]):
            # The next one may be long in coming.
            del first
        self._has_ended = True
        self._complete(self._taken())

    def _taken(self) -> list[_InFlight | None]:
        """Takes everything out of the queue."""
        taken = []
        with suppress(Empty):
            while True:
                taken.append(self._in_flight.get_nowait())
        return taken

    def _complete(self, taken: list[_InFlight | None]) -> bool:
        """Completes these futures; False if the thread is to end then."""
        flushed = 0
        outcomes: defaultdict[_Loop, _Outcomes] = defaultdict(list)
        for physical_offset, deadline, loop, future, on_time, late in filter(None, taken):
            outcome: object
            try:
                if flushed <= physical_offset:
                    _hand_over(outcomes)
                    flushed = self._flushed.wait(physical_offset, max(0.0, deadline - time.monotonic()))
                outcome = on_time if flushed > physical_offset else late()
            except Exception as error:
                # Without its traceback, which leads to this frame and so back to the future.
                outcome = error.with_traceback(None)
            outcomes[loop].append((future, outcome))
        _hand_over(outcomes)
        return None not in taken


def _hand_over(outcomes: dict[_Loop, _Outcomes]) -> None:
    """Completes the futures of threads, and lets each loop complete its own."""
    while outcomes:
        loop, each = outcomes.popitem()
        if loop is None:
            _settle(each)
        else:
            # Whatever a loop raises, the other futures are completed all the same.
            try:
                loop.call_soon_threadsafe(_settle, each)
            except Exception:
                # Nobody waits in a loop that is closed.
                if not loop.is_closed():
                    getLogger("concurrent.futures").exception("handing futures of mqstore to %r", loop)


def _settle(outcomes: _Outcomes) -> None:
    for future, outcome in outcomes:
        # One of a loop may be cancelled.
        if future.done():
            continue
        # A callback may raise SystemExit, which a future lets through. The other futures are completed all the same.
        try:
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        except BaseException:
            getLogger("concurrent.futures").exception("completing a future of mqstore")
