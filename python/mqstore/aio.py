"""Appending and reading from asyncio.

>>> import asyncio, tempfile, mqstore.aio
>>> async def main(path):
...     async with mqstore.aio.open(path, "a") as store:
...         async with asyncio.TaskGroup() as group:
...             for number in range(1000):
...                 group.create_task(store.append("orders", b"%d" % number, durable=True))
...     async with mqstore.aio.open(path) as store:
...         last = await store.get("orders", 0, 990)
...         numbers = [int(message.body) async for message in store.topics["orders"].queues[0]]
...         return len(last), sum(numbers)
>>> asyncio.run(main(tempfile.mkdtemp()))
(10, 499500)

Thousands of tasks may append at the same time: they share syncs, and none of them needs a thread. A call that reads files runs
in a thread of the event loop's pool and releases the interpreter, so that other tasks run: the calls of `Store` below, and
`async for` over a topic, a queue, a slice, the answer to a query and `Batches`. A plain `for` over these reads in the event loop.
If the task is cancelled, the thread finishes its current step: one call, at most 64 messages, or one batch.

A task that waits for messages (`async for message in store.follow()`, or over the result of `Queue.tail`) occupies no thread: it
polls every 0.5 ms at first, and up to every 20 ms while no message comes. After a cancellation, the next `async for` over the
same iterator yields the messages that have come since. With `start="latest"`, the default, and with `on_missing="latest"`, the
call of `follow` itself determines the position, and blocks the event loop while it reads what another process has appended since
the store was opened or refreshed: after many appends, `await store.refresh()` first.

A consumer of a group waits without a thread, too: `async with await store.consumer("billing", "orders") as consumer`, then
`await consumer.poll()` or `async for message in consumer`. A poll that is cancelled loses no message: the next one returns it.

A `mqstore.TopicWriter` has no twin here. With `ASYNC_FLUSH` its `append` waits for no sync: a task calls
`store.store.writer("orders").append` directly. With `SYNC_FLUSH` that would block the event loop for a sync: use `append`.

The plain `mqstore.Store` is `store.store`. A read of one message that is in memory, such as `queue[-1]`, takes microseconds and
can be called directly; `asyncio.to_thread` runs any other call, such as `queue.to_polars`.
"""

from __future__ import annotations

import asyncio

# An event loop imports it when it starts its first thread, which fails if no file descriptor is free then.
import concurrent.futures.thread  # noqa: F401
import inspect
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial, wraps
from time import monotonic
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import mqstore
from mqstore._native import _open_after

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

    from mqstore._config import Options
    from mqstore._types import _Properties, _Time  # pyright: ignore[reportMissingModuleSource]

__all__ = ["BrokerState", "Consumer", "Inspect", "Replica", "Store", "Transactions", "Writer", "open", "replicate", "tap"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Function = TypeVar("_Function", bound=Callable[..., object])


def _with_signature_of(call: Callable[..., object]) -> Callable[[_Function], _Function]:
    """Returns a decorator that gives a function the signature of `call`."""

    def shown(function: _Function) -> _Function:
        function.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
        return function

    return shown


class _Twin(Protocol):
    """An object whose methods run those of a plain object in threads."""

    _plain: Any


def _in_a_thread(call: Callable[Concatenate[Any, _P], _T]) -> Callable[Concatenate[_Twin, _P], Coroutine[Any, Any, _T]]:
    """Returns a method that runs the method of the plain object in a thread, with the same arguments, result and exceptions."""

    @wraps(call)
    async def run(self: _Twin, /, *args: _P.args, **options: _P.kwargs) -> _T:
        return await asyncio.to_thread(call, self._plain, *args, **options)

    return run


_Items = TypeVar("_Items", bound=AsyncIterable[Any])


def _once(begin: Callable[[], Coroutine[Any, Any, _Items]], name: str) -> Callable[[], Coroutine[Any, Any, _Items]]:
    """Returns a coroutine function that waits for `begin`, which runs once even if a waiting task is cancelled."""
    begun: asyncio.Task[_Items] | None = None

    async def wait() -> _Items:
        nonlocal begun
        if begun is None:
            begun = asyncio.create_task(begin())
            # After a cancellation the error waits for the next await, which may never come: this marks it as retrieved.
            begun.add_done_callback(lambda begun: begun.cancelled() or begun.exception())
        return await asyncio.shield(begun)

    # The name in Python's warning about a coroutine that was never awaited.
    wait.__qualname__ = name
    return wait


class _Pass(Coroutine[Any, Any, _Items], Generic[_Items, _T]):
    """A coroutine that returns an iterable of messages or batches; `async for` over the coroutine awaits it first.

    It may be awaited several times, also after a waiting task was cancelled.
    """

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, _Items]], name: str) -> None:
        self._wait = _once(begin, name)
        self._coroutine = self._wait()

    def _unfinished(self) -> Coroutine[Any, Any, _Items]:
        """Returns the coroutine, or a new one if it has ended."""
        if inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CLOSED:
            self._coroutine = self._wait()
        return self._coroutine

    def __await__(self) -> Generator[Any, Any, _Items]:
        return self._unfinished().__await__()

    async def __aiter__(self) -> AsyncIterator[_T]:
        async for item in await self:
            yield item

    # `asyncio.create_task` requires a coroutine.
    def send(self, value: Any, /) -> Any:
        return self._unfinished().send(value)

    def throw(self, *exception: Any) -> Any:
        return self._coroutine.throw(*exception)

    def close(self) -> None:
        self._coroutine.close()


def _begins(
    call: Callable[Concatenate[mqstore.Store, _P], _Items], _item: type[_T]
) -> Callable[Concatenate[Store, _P], _Pass[_Items, _T]]:
    """Returns a method that runs the method of the plain store in a thread. `async for` also accepts its result directly."""
    begin = _in_a_thread(call)

    @wraps(call)
    def run(self: Store, /, *args: _P.args, **options: _P.kwargs) -> _Pass[_Items, _T]:
        return _Pass(lambda: begin(self, *args, **options), call.__qualname__)

    return run


def _follows(
    call: Callable[Concatenate[mqstore.Store, _P], mqstore.MessageIterator],
) -> Callable[Concatenate[Store, _P], _Pass[mqstore.MessageIterator, mqstore.Message]]:
    """Returns `follow`. It determines a position at the end within the call: a thread would do so only later."""
    begin = _begins(call, mqstore.Message)

    @wraps(call)
    def run(self: Store, /, *args: _P.args, **options: _P.kwargs) -> _Pass[mqstore.MessageIterator, mqstore.Message]:
        is_latest = options.get("start") in (None, "latest") and options.get("since") is None
        if not is_latest and options.get("on_missing") != "latest":
            return begin(self, *args, **options)
        messages = call(self.store, *args, **options)

        async def is_there() -> mqstore.MessageIterator:
            return messages

        return _Pass(is_there, call.__qualname__)

    return run


class _TapOptions(TypedDict, total=False):
    """The keyword arguments of `mqstore.Store.consumer` but for `positions`."""

    tags: str | None
    start: Literal["earliest", "latest"] | Mapping[tuple[str, int], int]
    since: _Time | None
    on_missing: Literal["earliest", "latest"] | None
    consume_timeout: float | timedelta
    timeout: float | timedelta | None


class _ConsumerOptions(_TapOptions, total=False):
    """The keyword arguments of `mqstore.Writer.consumer`."""

    ordered: bool | None
    max_reconsume_times: int | None


class _Fields(TypedDict, total=False):
    """The keyword arguments of `mqstore.Writer.append`."""

    tags: str | None
    keys: str | Iterable[str] | None
    properties: _Properties | None
    queue_id: int | Literal["next"] | None
    sharding_key: str | None
    delay_level: int
    deliver_at: _Time | timedelta | None
    unique_key: str | None
    born_time: _Time | None
    born_host: str | None
    store_host: str | None
    flag: int
    sys_flag: int
    reconsume_times: int
    prepared_transaction_offset: int
    durable: bool | None


class Inspect:
    """The methods of `mqstore.Inspect`, each in a thread; `Store.inspect` returns one."""

    def __init__(self, plain: mqstore.Inspect) -> None:
        self._plain = plain

    segments = _in_a_thread(mqstore.Inspect.segments)
    index_files = _in_a_thread(mqstore.Inspect.index_files)
    kept_elsewhere = _in_a_thread(mqstore.Inspect.kept_elsewhere)
    dump = _in_a_thread(mqstore.Inspect.dump)
    dump_entry = _in_a_thread(mqstore.Inspect.dump_entry)
    dump_key = _in_a_thread(mqstore.Inspect.dump_key)


class BrokerState:
    """The methods of `mqstore.BrokerState`, each in a thread; `Store.broker` returns one."""

    def __init__(self, plain: mqstore.BrokerState) -> None:
        self._plain = plain

    consumer_offsets = _in_a_thread(mqstore.BrokerState.consumer_offsets)
    lag = _in_a_thread(mqstore.BrokerState.lag)
    groups = _in_a_thread(mqstore.BrokerState.groups)
    dead_letters = _in_a_thread(mqstore.BrokerState.dead_letters)
    next_removal = _in_a_thread(mqstore.BrokerState.next_removal)
    resend = _in_a_thread(mqstore.BrokerState.resend)
    hand_over = _in_a_thread(mqstore.BrokerState.hand_over)
    recall = _in_a_thread(mqstore.BrokerState.recall)
    trace = _in_a_thread(mqstore.BrokerState.trace)
    reset = _in_a_thread(mqstore.BrokerState.reset)
    delete_group = _in_a_thread(mqstore.BrokerState.delete_group)
    topic_configs = _in_a_thread(mqstore.BrokerState.topic_configs)
    group_configs = _in_a_thread(mqstore.BrokerState.group_configs)
    delay_offsets = _in_a_thread(mqstore.BrokerState.delay_offsets)
    delay_backlog = _in_a_thread(mqstore.BrokerState.delay_backlog)
    transactions = _in_a_thread(mqstore.BrokerState.transactions)


class Transactions:
    """The methods of `mqstore.Transactions`, each in a thread; `Writer.transactions` returns one."""

    def __init__(self, plain: mqstore.Transactions) -> None:
        self._plain = plain

    send_half = _in_a_thread(mqstore.Transactions.send_half)
    end = _in_a_thread(mqstore.Transactions.end)
    open = _in_a_thread(mqstore.Transactions.open)
    #: Calls the callback in a thread of its own.
    check = _in_a_thread(mqstore.Transactions.check)

    @asynccontextmanager
    async def begin(
        self,
        topic: str,
        body: Buffer,
        *,
        group: str = "DEFAULT_PRODUCER",
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: _Properties | None = None,
        queue_id: int | Literal["next"] | None = None,
        sharding_key: str | None = None,
        unique_key: str | None = None,
        born_time: _Time | None = None,
        durable: bool | None = None,
    ) -> AsyncIterator[mqstore.Half]:
        """Begins a transaction for `async with`, as `mqstore.Transactions.begin`: it gives the half message."""
        begin = partial(self._plain.begin, topic, body, group=group, tags=tags, keys=keys, properties=properties)
        rest = {"sharding_key": sharding_key, "unique_key": unique_key, "born_time": born_time, "durable": durable}
        transaction = await asyncio.to_thread(begin, queue_id=queue_id, **rest)
        try:
            yield transaction.half
        except BaseException as error:
            await asyncio.shield(asyncio.to_thread(transaction.__exit__, type(error), error, error.__traceback__))
            raise
        await asyncio.shield(asyncio.to_thread(transaction.__exit__, None, None, None))


class Store:
    """An open store for the tasks of an event loop; `mqstore.aio.open` returns one.

    `Store(store)` wraps an open `mqstore.Store`, which the caller then closes.
    """

    store: mqstore.Store
    """The plain store: its `recovery` report, and reads without asyncio."""

    def __init__(self, store: mqstore.Store) -> None:
        self.store = self._plain = store

    get = _in_a_thread(mqstore.Store.get)
    query = _in_a_thread(mqstore.Store.query)
    message = _in_a_thread(mqstore.Store.message)
    message_at = _in_a_thread(mqstore.Store.message_at)
    resolve_offsets = _in_a_thread(mqstore.Store.resolve_offsets)
    resolve_keys = _in_a_thread(mqstore.Store.resolve_keys)
    resolve_times = _in_a_thread(mqstore.Store.resolve_times)
    resolve_ids = _in_a_thread(mqstore.Store.resolve_ids)
    refresh = _in_a_thread(mqstore.Store.refresh)

    # `async for` over the results of these awaits them first.
    fetch = _begins(mqstore.Store.fetch, mqstore.RecordBatch)
    scan = _begins(mqstore.Store.scan, mqstore.RecordBatch)
    follow = _follows(mqstore.Store.follow)

    # These call their callables in the thread.
    export = _in_a_thread(mqstore.Store.export)
    copy_to = _in_a_thread(mqstore.Store.copy_to)

    usage = _in_a_thread(mqstore.Store.usage)
    verify = _in_a_thread(mqstore.Store.verify)

    async def consumer(
        self,
        topics: str | Iterable[str],
        *,
        positions: str | os.PathLike[str],
        group: str | None = None,
        **options: Unpack[_TapOptions],
    ) -> Consumer:
        """Returns a consumer that keeps its positions in a file, as `mqstore.Store.consumer`."""
        plain = await asyncio.to_thread(self.store.consumer, topics, positions=positions, group=group, **options)
        return Consumer(self.store, plain, options.get("timeout"))

    @property
    def inspect(self) -> Inspect:
        """The files of the store and their bytes, as `mqstore.Store.inspect`."""
        return Inspect(self.store.inspect)

    @property
    def broker(self) -> BrokerState:
        """The settings and offsets that the broker of the store keeps, as `mqstore.Store.broker`."""
        return BrokerState(self.store.broker)

    @property
    def topics(self) -> mqstore.Topics:
        """The topics by name, as `mqstore.Store.topics`. `async for` reads them, their queues, slices and batches."""
        return self.store.topics


class Consumer(AsyncIterator[mqstore.Message]):
    """A consumer of a group for the tasks of an event loop; `Writer.consumer` returns one. An async context manager.

    The methods are those of `mqstore.Consumer`. `async for` yields the messages as they come, and takes up to 32 of them at a
    time; what it has taken and not yielded is returned by the next poll, or given to the other consumers at `close`.
    """

    consumer: mqstore.Consumer
    """The plain consumer."""

    def __init__(self, store: mqstore.Store, consumer: mqstore.Consumer, timeout: Any) -> None:
        self.consumer = self._plain = consumer
        self._writer = store if isinstance(store, mqstore.Writer) else None
        self._timeout = timeout
        #: Taken by polls that were cancelled, and by iterations that ended.
        self._kept: list[mqstore.Message] = []

    ack = _in_a_thread(mqstore.Consumer.ack)
    nack = _in_a_thread(mqstore.Consumer.nack)
    commit = _in_a_thread(mqstore.Consumer.commit)
    position = _in_a_thread(mqstore.Consumer.position)
    committed = _in_a_thread(mqstore.Consumer.committed)
    lag = _in_a_thread(mqstore.Consumer.lag)
    pause = _in_a_thread(mqstore.Consumer.pause)
    resume = _in_a_thread(mqstore.Consumer.resume)
    close = _in_a_thread(mqstore.Consumer.close)

    @property
    def group(self) -> str | None:
        """Name of the group; None for a consumer that reads every message for itself."""
        return self.consumer.group

    @property
    def topics(self) -> list[str]:
        """The topics, ascending."""
        return self.consumer.topics

    @property
    def skipped(self) -> int:
        """Number of lost or damaged messages that the group has skipped, with errors="skip"."""
        return self.consumer.skipped

    async def poll(self, max_messages: int = 32, timeout: float | timedelta | None = None) -> list[mqstore.Message]:
        """Returns up to `max_messages` messages as soon as one is there, as `mqstore.Consumer.poll`.

        The task itself waits: no thread is occupied. After a cancellation the next poll returns what this one has taken.
        """
        seconds = _seconds(timeout)
        begun = monotonic()
        while True:
            seen = self._queued()
            if messages := await self._take(max_messages):
                return messages
            looked = monotonic()
            # Only a look of the consumer itself sees what another process appends.
            longest = _LONGEST if self._writer is None else _REBALANCE
            while self._queued() == seen and (waited := monotonic() - looked) < longest:
                if seconds is not None and monotonic() - begun >= seconds:
                    return []
                await asyncio.sleep(min(max(waited / _PATIENCE, _SHORTEST), _LONGEST))

    def _queued(self) -> int:
        """Returns the end of what this process has put into queues; of a store that another process writes to, always 0."""
        return 0 if self._writer is None else self._writer.dispatched_offset

    async def _take(self, most: int) -> list[mqstore.Message]:
        """Returns what is there now."""
        if not self._kept or most < 1:
            taking = asyncio.ensure_future(asyncio.to_thread(self._plain.poll, most, 0))
            try:
                return await asyncio.shield(taking)
            except asyncio.CancelledError:
                taking.add_done_callback(self._keep)
                raise
        messages, self._kept = self._kept[:most], self._kept[most:]
        return messages

    def _keep(self, taking: asyncio.Future[list[mqstore.Message]]) -> None:
        """Keeps the messages of a poll that was cancelled. An error comes again in the next poll."""
        if not taking.cancelled() and taking.exception() is None:
            self._kept.extend(taking.result())

    async def seek(self, queue_id: int, offset: int, topic: str | None = None) -> None:
        """Continues at a queue offset of a queue, as `mqstore.Consumer.seek`."""
        await asyncio.to_thread(self.consumer.seek, queue_id, offset, topic)
        name = topic or self.topics[0]
        self._kept = [kept for kept in self._kept if (kept.topic, kept.queue_id) != (name, queue_id) or kept.reconsume_times > 0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        closing = asyncio.ensure_future(self.close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> mqstore.Message:
        if not self._kept:
            polled = await self.poll(timeout=self._timeout)
            self._kept.extend(polled)
        if not self._kept:
            raise StopAsyncIteration
        return self._kept.pop(0)


class Writer(Store):
    """A store that is open for writing, for the tasks of an event loop.

    `Writer(store)` wraps an open `mqstore.Writer`, which the caller then closes.
    """

    store: mqstore.Writer  # pyright: ignore[reportIncompatibleVariableOverride]
    """The plain store: its offsets and `recovery` report, and appends and reads without asyncio."""

    def __init__(self, store: mqstore.Writer) -> None:
        super().__init__(store)
        self._in_loops = store._in_loops(asyncio.get_running_loop)

    @property
    def transactions(self) -> Transactions:
        """The transactions of the store, as `mqstore.Writer.transactions`."""
        return Transactions(self.store.transactions)

    async def append(self, topic: str, body: Buffer, **fields: Unpack[_Fields]) -> mqstore.AppendResult:
        """Appends one message and returns its `AppendResult`, as `mqstore.Writer.append` does, without blocking the event loop.

        The message is stored before the first wait, so that messages are stored in the order in which the tasks run. Without a
        wait no other task runs in between. If the task is cancelled during the wait, the message remains stored.

        The call blocks the event loop for at most `wait_time_out` in two cases: the segment is full and the next one is not
        ready, or the transient store pool is full.
        """
        appended = self._in_loops.append_nowait(topic, body, **fields)
        return appended if isinstance(appended, mqstore.AppendResult) else await appended

    async def wait_durable(
        self, offset: mqstore.AppendResult | int | None = None, timeout: float | timedelta | None = None
    ) -> None:
        """Waits until the message at a physical offset is durable, by default until everything appended so far is.

        Arguments and exceptions are those of `mqstore.Writer.wait_durable`.
        """
        seconds = _seconds(timeout)
        offset, future = self._in_loops._durable(offset)
        try:
            async with asyncio.timeout(seconds):
                while not await future:
                    offset, future = self._in_loops._durable(offset)
        except (TimeoutError, mqstore.StoreError):
            # The plain store raises the error: a timeout, or the reason why the message cannot become durable.
            self.store.wait_durable(offset, 0)

    # If the task is cancelled, a running thread continues, and its rows are stored.
    append_batch = _in_a_thread(mqstore.Writer.append_batch)
    create_topic = _in_a_thread(mqstore.Writer.create_topic)
    append_producer_batch = _in_a_thread(mqstore.Writer.append_producer_batch)
    commit = _in_a_thread(mqstore.Writer.commit)
    flush = _in_a_thread(mqstore.Writer.flush)
    wait_dispatched = _in_a_thread(mqstore.Writer.wait_dispatched)
    trim = _in_a_thread(mqstore.Writer.trim)
    import_from = _in_a_thread(mqstore.Writer.import_from)

    async def consumer(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self, group: str | None, topics: str | Iterable[str], **options: Unpack[_ConsumerOptions]
    ) -> Consumer:
        """Returns a consumer of a group, as `mqstore.Writer.consumer`."""
        plain = await asyncio.to_thread(self.store.consumer, group, topics, **options)
        return Consumer(self.store, plain, options.get("timeout"))


def _seconds(timeout: float | timedelta | None) -> float | None:
    """Returns a timeout in seconds."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is not None and not seconds >= 0:
        raise ValueError(f"timeout is {timeout}: expected 0 or more seconds")
    return seconds


#: The most bytes that a thread reads before it hands over messages, and the least that a message counts as.
_BLOCK, _LEAST = 1 << 20, 1 << 14


async def _each(items: Iterable[_T]) -> AsyncIterator[_T]:
    """Yields the items of an iterable, which a thread reads in blocks: `__aiter__` of a queue, a slice and `Batches`."""
    iterator = iter(items)
    error = None
    while error is None:
        block, error = await asyncio.to_thread(_read_block, iterator)
        if not block:
            break
        for item in block:
            yield item
    if error is not None:
        raise error


#: The shortest and the longest interval between two polls, in seconds. An interval is the time without a message divided by the
#: third value, within these bounds.
_SHORTEST, _LONGEST, _PATIENCE = 0.0005, 0.02, 128
#: The longest interval in seconds between two polls of a consumer, which may get the queues of another one or a message again.
_REBALANCE = 0.1


async def _as_they_come(messages: mqstore.MessageIterator) -> AsyncIterator[mqstore.Message]:
    """Yields the messages of an iterator that waits for more: `__aiter__` of the results of `follow` and `tail`.

    The task itself waits and takes the messages. A waiting thread would occupy the pool, and would lose a message if the task
    was cancelled.
    """
    begun = monotonic()
    while True:
        waited = monotonic() - begun
        if messages._is_due(timedelta(seconds=waited)):
            is_there = await asyncio.to_thread(messages._look, timedelta(seconds=waited))
            if is_there is None:
                return
            while (message := messages._take()) is not None:
                yield message
                begun = monotonic()
            if is_there:
                continue
        await asyncio.sleep(min(max(waited / _PATIENCE, _SHORTEST), _LONGEST))


def _read_block(items: Iterator[_T]) -> tuple[list[_T], Exception | None]:
    """Reads a block of items; returns them, none at the end, and the exception that was raised after them."""
    block: list[_T] = []
    size = 0
    try:
        for item in items:
            block.append(item)
            size += max(item.store_size, _LEAST) if isinstance(item, mqstore.Message) else _BLOCK
            if size >= _BLOCK:
                break
    except Exception as error:
        return block, error
    return block, None


class _Closes(Protocol):
    def close(self) -> None: ...


_Opened = TypeVar("_Opened", bound=_Closes | None)
_Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]


@overload
def open(
    path: _Path, mode: Literal["r"] = "r", config: mqstore.StoreConfig | None = None, **options: Unpack[Options]
) -> AbstractAsyncContextManager[Store]: ...
@overload
def open(
    path: _Path, mode: Literal["r+", "a", "x"], config: mqstore.StoreConfig | None = None, **options: Unpack[Options]
) -> AbstractAsyncContextManager[Writer]: ...
@overload
def open(
    path: _Path, mode: str, config: mqstore.StoreConfig | None = None, **options: Unpack[Options]
) -> AbstractAsyncContextManager[Store]: ...
@_with_signature_of(mqstore.open)
@asynccontextmanager
async def open(*args: Any, **options: Any) -> AsyncIterator[Any]:
    """Opens a message store for `async with`, in a thread, with the arguments and exceptions of `mqstore.open`.

    At the end of the block a thread closes the store: every appended message is durable then, and every `append` has returned. A
    task that waits for the lock of another writer (`lock_timeout`) occupies no thread, and ends at once if it is cancelled. A
    task that is cancelled while its store is being opened or closed waits until the store is closed.
    """

    def attempt(waited: float) -> asyncio.Task[mqstore.Store | None]:
        return asyncio.create_task(asyncio.to_thread(_open_after, timedelta(seconds=waited), *args, **options))

    begun = monotonic()
    opening = attempt(0)
    try:
        # A waiting thread would occupy the pool, which the other writer may need for its close.
        while (store := await asyncio.shield(opening)) is None:
            await asyncio.sleep(_LONGEST)
            opening = attempt(monotonic() - begun)
        yield Writer(store) if isinstance(store, mqstore.Writer) else Store(store)
    finally:
        await _close(opening)


class Replica:
    """A running slave of `replicate` or `tap`; a task that waits occupies no thread. `mqstore.Replica` is `replica.replica`."""

    def __init__(self, replica: mqstore.Replica) -> None:
        self.replica = replica

    @property
    def master(self) -> str:
        """The address of the master, as `mqstore.Replica.master`."""
        return self.replica.master

    @property
    def path(self) -> Path:
        """The directory of its store, as `mqstore.Replica.path`."""
        return self.replica.path

    @property
    def broker(self) -> str | None:
        """The address that it asks for topics, groups and progress, as `mqstore.Replica.broker`."""
        return self.replica.broker

    @property
    def state(self) -> Literal["connecting", "comparing", "following", "failed", "closed"]:
        """The state, as `mqstore.Replica.state`."""
        return self.replica.state

    @property
    def offset(self) -> int | None:
        """The physical offset up to which it holds the log of the master, as `mqstore.Replica.offset`."""
        return self.replica.offset

    @property
    def lag(self) -> int | None:
        """The bytes that have come and are not held yet, as `mqstore.Replica.lag`."""
        return self.replica.lag

    @property
    def cuts(self) -> tuple[mqstore.ReplicaCut, ...]:
        """The cuts of its log since the start, as `mqstore.Replica.cuts`."""
        return self.replica.cuts

    @property
    def error(self) -> Exception | None:
        """The reason why it does not follow, as `mqstore.Replica.error`."""
        return self.replica.error

    @property
    def settings_taken_at(self) -> datetime | None:
        """The time of the last answer that was taken, as `mqstore.Replica.settings_taken_at`."""
        return self.replica.settings_taken_at

    @property
    def settings_error(self) -> Exception | None:
        """The reason why the last answer was not taken, as `mqstore.Replica.settings_error`."""
        return self.replica.settings_error

    @property
    def closed(self) -> bool:
        """True once it is closed, as `mqstore.Replica.closed`."""
        return self.replica.closed

    async def wait(self, offset: int | mqstore.AppendResult, timeout: float | timedelta | None = None) -> None:
        """Waits until it holds the message at a physical offset, as `mqstore.Replica.wait` does."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        begun = monotonic()
        while True:
            waited = monotonic() - begun
            try:
                # It returns at once. A waiting thread would occupy the pool.
                return self.replica.wait(offset, 0 if seconds is None else min(seconds, 0))
            except mqstore.WaitTimeoutError:
                if seconds is not None and waited >= seconds:
                    raise
            await asyncio.sleep(min(max(waited / _PATIENCE, _SHORTEST), _LONGEST))

    def __repr__(self) -> str:
        return f"<mqstore.aio.Replica: {self.replica!r}>"


@_with_signature_of(mqstore.replicate)
def replicate(
    master: str,
    path: _Path,
    *,
    broker: str | None = None,
    sync: bool = True,
    discard_tail: bool = False,
    **options: Unpack[Options],
) -> AbstractAsyncContextManager[Replica]:
    """Follows a master for `async with`, as `mqstore.replicate` does. At the end of the block a thread closes the store."""
    return _started(partial(mqstore.replicate, master, path, broker=broker, sync=sync, discard_tail=discard_tail, **options))


@_with_signature_of(mqstore.tap)
def tap(
    master: str,
    path: _Path,
    start: Literal["latest", "earliest"] | int = "latest",
    *,
    broker: str | None = None,
    sync: bool = True,
    **options: Unpack[Options],
) -> AbstractAsyncContextManager[Replica]:
    """Follows a broker for `async with`, as `mqstore.tap` does. At the end of the block a thread closes the store."""
    return _started(partial(mqstore.tap, master, path, start, broker=broker, sync=sync, **options))


@asynccontextmanager
async def _started(call: Callable[[], mqstore.Replica]) -> AsyncIterator[Replica]:
    """Starts a slave in a thread, and closes it at the end of the block."""
    starting = asyncio.create_task(asyncio.to_thread(call))
    try:
        yield Replica(await asyncio.shield(starting))
    finally:
        await _close(starting)


async def _close(opening: asyncio.Future[_Opened]) -> None:
    """Closes what a thread opens, and returns once it is closed, also to a task that is cancelled."""
    closing = asyncio.ensure_future(_close_opened(opening))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await asyncio.wait([closing])
        raise


async def _close_opened(opening: asyncio.Future[_Opened]) -> None:
    """Closes it once the thread that opens it has ended: a running thread cannot be cancelled."""
    await asyncio.wait([opening])
    if not opening.cancelled() and opening.exception() is None and (opened := opening.result()) is not None:
        await asyncio.to_thread(opened.close)
