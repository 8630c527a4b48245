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

    #: None for futures that threads wait for.
    _Loop: TypeAlias = asyncio.AbstractEventLoop | None
    _AnyFuture: TypeAlias = Future[Any] | asyncio.Future[Any]
    #: A message's physical offset, deadline, loop, future and result, a function for the result after the deadline, and a wait
    #: for slaves that takes the rest of the time and returns the result; None without one.
    _InFlight: TypeAlias = tuple[int, float, _Loop, _AnyFuture, object, Callable[[], object], Callable[[float], object] | None]
    #: Futures with their results or exceptions.
    _Outcomes: TypeAlias = list[tuple[_AnyFuture, object]]


def done(result: AppendResult) -> Future[AppendResult]:
    """Returns a completed future."""
    future: Future[AppendResult] = Future()
    future.set_result(result)
    return future


class Completer:
    """A thread that completes futures in the order of their creation, which is the order of their deadlines.

    The thread waits for the first future in the queue only. A sync covers everything that was appended before it, so the next
    messages are usually durable, too. An event loop gets all of its futures in one call, because waking it takes longer than
    an append.

    A put into the queue takes no lock, because the garbage collector may run one in any thread.
    """

    def __init__(self, flushed: _Flushed, timeout: float) -> None:
        self._flushed = flushed
        self._timeout = timeout
        #: None marks the close.
        self._in_flight: SimpleQueue[_InFlight | None] = SimpleQueue()
        self._has_ended = False
        # A daemon thread does not delay the exit of the interpreter.
        self._thread = threading.Thread(target=self._run, name="mqstore-futures", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self.end()
            raise

    def append(self, physical_offset: int, result: AppendResult, loop: _Loop, disk: bool, slaves: bool) -> _AnyFuture:
        """Returns a future of this result, for the time when the message is durable (`disk`), and slaves have it (`slaves`)."""
        wait = (lambda left: self._flushed.copied(result, left, disk)) if slaves else None
        return self._promise(physical_offset, loop, result, result._late, wait)

    def durable(self, physical_offset: int, loop: _Loop) -> _AnyFuture:
        """Returns a future of True if the message at this physical offset is durable before its deadline, else of False."""
        return self._promise(physical_offset, loop, True, lambda: False, None)

    def _promise(
        self,
        physical_offset: int,
        loop: _Loop,
        on_time: object,
        late: Callable[[], object],
        for_slaves: Callable[[float], object] | None,
    ) -> _AnyFuture:
        future: _AnyFuture
        if loop is None:
            future = Future()
            # From here on `cancel` returns False.
            future.set_running_or_notify_cancel()
        else:
            future = loop.create_future()
        self._in_flight.put((physical_offset, time.monotonic() + self._timeout, loop, future, on_time, late, for_slaves))
        # Checked after the put: the thread empties the queue again after it has set this, so one of the two finds the future.
        if self._has_ended:
            self._complete(self._taken())
        return future

    def end(self) -> None:
        """Makes the thread end. The store is already closed."""
        self._in_flight.put(None)

    def join(self) -> None:
        """Waits until the thread has ended, except in a callback on that thread and at the exit of the interpreter."""
        if threading.get_ident() != self._thread.ident and not sys.is_finalizing():
            self._thread.join()

    def _run(self) -> None:
        while (first := self._in_flight.get()) is not None and self._complete([first, *self._taken()]):
            # The next future may come much later, and this one would stay alive until then.
            del first
        self._has_ended = True
        self._complete(self._taken())

    def _taken(self) -> list[_InFlight | None]:
        """Empties the queue and returns its items."""
        taken = []
        with suppress(Empty):
            while True:
                taken.append(self._in_flight.get_nowait())
        return taken

    def _complete(self, taken: list[_InFlight | None]) -> bool:
        """Completes these futures, and returns False if the thread must end."""
        flushed = 0
        outcomes: defaultdict[_Loop, _Outcomes] = defaultdict(list)
        for physical_offset, deadline, loop, future, on_time, late, for_slaves in filter(None, taken):
            outcome: object
            try:
                left = max(0.0, deadline - time.monotonic())
                if for_slaves is not None:
                    _hand_over(outcomes)
                    outcome = for_slaves(left)
                else:
                    if flushed <= physical_offset:
                        _hand_over(outcomes)
                        flushed = self._flushed.wait(physical_offset, left)
                    outcome = on_time if flushed > physical_offset else late()
            except Exception as error:
                # Its traceback refers to this frame, and so to the future: a reference cycle.
                outcome = error.with_traceback(None)
            outcomes[loop].append((future, outcome))
        _hand_over(outcomes)
        return None not in taken


def _hand_over(outcomes: dict[_Loop, _Outcomes]) -> None:
    """Completes the futures of threads, and schedules the others in their event loops."""
    while outcomes:
        loop, each = outcomes.popitem()
        if loop is None:
            _settle(each)
        else:
            # An error of one loop must not keep other futures incomplete.
            try:
                loop.call_soon_threadsafe(_settle, each)
            except Exception:
                # A closed loop has no tasks that wait.
                if not loop.is_closed():
                    getLogger("concurrent.futures").exception("handing futures of mqstore to %r", loop)


def _settle(outcomes: _Outcomes) -> None:
    for future, outcome in outcomes:
        # A task may have cancelled the future of an event loop.
        if future.done():
            continue
        # A callback may raise SystemExit, which a future does not catch. It must not keep other futures incomplete.
        try:
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        except BaseException:
            getLogger("concurrent.futures").exception("completing a future of mqstore")
