"""Appending from asyncio.

>>> import asyncio, tempfile, mqstore.aio
>>> async def main(path):
...     async with mqstore.aio.open(path, "a") as store:
...         async with asyncio.TaskGroup() as group:
...             for number in range(1000):
...                 group.create_task(store.append("orders", b"%d" % number, durable=True))
...         return len(store.store.topics["orders"].queues[0])
>>> asyncio.run(main(tempfile.mkdtemp()))
1000

Thousands of tasks may wait at the same time: one sync is for all that were there, and there is no thread for each. The plain
`mqstore.Store` is `store.store`. It reads, and a read of one message or of few takes microseconds; run longer ones by
`asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack

import mqstore

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from mqstore._native import _Properties, _Row, _Table, _Time

__all__ = ["Store", "open"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _with_options_of(call: Callable[_P, object]) -> Callable[[Callable[..., _T]], Callable[_P, _T]]:
    """The function takes what this one takes, and says so."""

    def typed(function: Callable[..., _T]) -> Callable[_P, _T]:
        function.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
        return function

    return typed


class _Fields(TypedDict, total=False):
    """What `mqstore.Store.append` takes by name."""

    tags: str | None
    keys: str | Iterable[str] | None
    properties: _Properties | None
    queue: int
    delay_level: int
    unique_key: str | None
    born_time: _Time | None
    born_host: str | None
    store_host: str | None
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    durable: bool | None


class Store:
    """A store that is open for writing, for the tasks of an event loop; `mqstore.aio.open` makes one.

    It may also be made of an open `mqstore.Store`, which the caller then closes.
    """

    store: mqstore.Store
    """The plain store: it reads, says what is flushed, and appends without asyncio."""

    def __init__(self, store: mqstore.Store) -> None:
        self.store = store
        self._in_loops = store._in_loops(asyncio.get_running_loop)

    async def append(self, topic: str, body: Buffer, **fields: Unpack[_Fields]) -> mqstore.AppendResult:
        """Append a message; gives where it went. Takes and raises what `mqstore.Store.append` does, and returns when that would.

        The message is stored before the first wait: messages are stored in the order in which the tasks run. Where nothing is
        waited for, no other task gets a turn. If the task is cancelled in the wait, the message stays.

        At the end of a segment the call blocks the event loop until the disk has made the next one, and where the transient
        store pool is full until it has room: at most `wait_time_out`.
        """
        appended = self._in_loops.append_nowait(topic, body, **fields)
        return appended if isinstance(appended, mqstore.AppendResult) else await appended

    async def append_batch(
        self,
        rows: Iterable[_Row] | _Table,
        topic: str | None = None,
        queue: int | None = None,
        *,
        one_segment: bool = False,
        durable: bool | None = None,
    ) -> mqstore.Offsets:
        """Append messages in order, in a thread; takes, gives and raises what `mqstore.Store.append_batch` does.

        If the task is cancelled, a thread that has begun goes on.
        """
        append = self.store.append_batch
        return await asyncio.to_thread(append, rows, topic, queue, one_segment=one_segment, durable=durable)

    async def wait_durable(self, offset: int | None = None, timeout: float | timedelta | None = None) -> None:
        """Wait until the message at this physical offset is durable, by default until everything appended so far is.

        Takes, does and raises what `mqstore.Store.wait_durable` does.
        """
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if seconds is not None and not seconds >= 0:
            raise ValueError(f"timeout is {timeout}: expected 0 or more seconds")
        offset, future = self._in_loops._durable(offset)
        try:
            async with asyncio.timeout(seconds):
                while not await future:
                    offset, future = self._in_loops._durable(offset)
        except (TimeoutError, mqstore.StoreError):
            # As the plain store has it: the time is up, or why the message cannot become durable.
            self.store.wait_durable(offset, 0)

    async def flush(self) -> int:
        """Make everything appended so far durable, in a thread; gives and raises what `mqstore.Store.flush` does."""
        return await asyncio.to_thread(self.store.flush)


@_with_options_of(mqstore.open)
@asynccontextmanager
async def open(*args: Any, **options: Any) -> AsyncIterator[Store]:
    """Open a message store for `async with`, in a thread; takes and raises what `mqstore.open` does.

    At the end of the block the store is closed, in a thread: what was appended is then durable, and no `append` waits any more. A
    task that is cancelled meanwhile waits until the store is closed.
    """
    # A store that is opened for a task that was cancelled meanwhile is closed as it is dropped.
    store = await asyncio.to_thread(mqstore.open, *args, **options)
    try:
        yield Store(store)
    finally:
        closing = asyncio.ensure_future(asyncio.to_thread(store.close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])
            raise
