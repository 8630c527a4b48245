"""Reading from the tasks of an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

import mqstore
import mqstore.aio

_T = TypeVar("_T")

#: What begins a pass: a coroutine that `async for` takes, too.
PASSES = {"fetch", "follow", "scan"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with mqstore.open(tmp_path / "store", "x", mapped_file_size_commit_log=65_536) as store:
        store.append_batch([("orders", b"%d" % number, "paid", f"o-{number}") for number in range(1000)])
        store.append("stock", b"x" * 40_000)
    return tmp_path / "store"


def run(path: Path, work: Callable[[mqstore.aio.Store], Awaitable[_T]]) -> _T:
    async def main() -> _T:
        async with mqstore.aio.open(path) as store:
            return await asyncio.wait_for(work(store), 60)

    return asyncio.run(main())


async def each(items: AsyncIterable[_T]) -> list[_T]:
    return [item async for item in items]


@pytest.mark.parametrize(
    ("plain_class", "twin_class", "without_twin"),
    [
        (mqstore.Store, mqstore.aio.Store, {"close"} | PASSES),
        (mqstore.Writer, mqstore.aio.Writer, {"append_nowait", "stats", "writer"}),
        (mqstore.Inspect, mqstore.aio.Inspect, set()),
        (mqstore.BrokerState, mqstore.aio.BrokerState, set()),
        (mqstore.Transactions, mqstore.aio.Transactions, {"begin"}),
        (mqstore.Consumer, mqstore.aio.Consumer, set()),
    ],
)
def test_every_call_of_the_plain_store_has_a_twin_with_the_same_arguments(
    plain_class: type, twin_class: type, without_twin: set[str]
) -> None:
    plain = {name for name, call in vars(plain_class).items() if not name.startswith("_") and callable(call)}
    assert len(plain) > 3
    twins = {name for name in plain if inspect.iscoroutinefunction(vars(twin_class).get(name))}
    assert plain - twins == without_twin
    for name in plain - without_twin - {"append", "consumer"} | plain & PASSES:
        of_plain, of_twin = (inspect.signature(getattr(of, name)).parameters.values() for of in (plain_class, twin_class))
        assert [(p.name, p.default) for p in of_plain] == [(p.name, p.default) for p in of_twin], name


def test_a_store_of_aio_appends_only_if_it_is_open_for_writing(path: Path) -> None:
    async def main() -> tuple[list[type], list[bool]]:
        kinds, appends = [], []
        for mode in ("r", "r+"):
            async with mqstore.aio.open(path, mode) as store:
                kinds.append(type(store))
                appends.append(hasattr(store, "append"))
        return kinds, appends

    assert asyncio.run(main()) == ([mqstore.aio.Store, mqstore.aio.Writer], [False, True])


def test_a_call_gives_what_the_plain_one_gives(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        plain = store.store
        last = plain.topics["orders"].queues[0][-1]
        result = await store.get("orders", 0, 990, tags="paid")
        assert list(result) == list(plain.get("orders", 0, 990))
        assert list(await store.query("orders", "o-17")) == list(plain.query("orders", "o-17"))
        assert await store.message(last.message_id) == last == await store.message_at(last.physical_offset)
        batch = next(iter(plain.topics["orders"].queues[0][5:8].batches(["topic", "queue_id", "queue_offset"])))
        resolved = await store.resolve_offsets(batch)
        fetched = await each(await store.fetch(resolved, columns=["body"]))
        assert [batch.to_polars()["body"].to_list() for batch in fetched] == [[b"5", b"6", b"7"]]
        assert sum(map(len, await each(await store.scan(topics="orders", tags="paid")))) == 1000
        with pytest.raises(mqstore.NotFoundError):
            await store.message_at(1)
        assert store.topics["orders"].queues[0] == plain.topics["orders"].queues[0]

    run(path, work)


def test_a_queue_a_slice_and_batches_give_what_iterating_them_gives(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        for queue in (store.topics["orders"].queues[0], store.topics["stock"].queues[0]):
            for messages in (queue, queue[3:900], queue[0:0]):
                assert await each(messages) == list(messages)
            batches = queue.batches(["body"], 1000)
            got = [batch.to_polars()["body"].to_list() async for batch in batches]
            assert got == [batch.to_polars()["body"].to_list() for batch in batches]

    run(path, work)


def test_what_comes_before_damage_is_given_first(path: Path) -> None:
    with mqstore.open(path) as plain:
        damaged = plain.topics["orders"].queues[0][100]
        at = damaged.physical_offset + damaged.raw.index(b"100", 80)
    with (path / "commitlog" / f"{at // 65_536 * 65_536:020}").open("r+b") as segment:
        segment.seek(at % 65_536)
        segment.write(b"1x0")

    got = []

    async def work(store: mqstore.aio.Store) -> None:
        async for message in store.topics["orders"].queues[0]:
            got.append(message.body)

    with pytest.raises(mqstore.CorruptError):
        run(path, work)
    assert got == [b"%d" % number for number in range(100)]


def test_other_tasks_run_while_a_call_reads(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        told = threading.Event()
        reads = asyncio.create_task(store.get("orders", 0, 0, 1, where=lambda _: told.wait(30)))
        await asyncio.sleep(0.05)
        assert not reads.done()
        told.set()
        assert len(await reads) == 1

    run(path, work)


def test_other_tasks_run_while_a_pass_reads() -> None:
    told = threading.Event()

    def slow() -> Iterator[int]:
        yield 1
        assert told.wait(30)
        yield 2

    async def main() -> None:
        reads = asyncio.create_task(each(mqstore.aio._each(slow())))
        await asyncio.sleep(0.05)
        assert not reads.done()
        told.set()
        assert await reads == [1, 2]

    asyncio.run(main())


def test_a_cancelled_read_ends_at_once_and_leaves_the_store_to_the_others(path: Path) -> None:
    told = threading.Event()

    async def work(store: mqstore.aio.Store) -> None:
        reads = asyncio.create_task(store.get("orders", 0, 0, 1, where=lambda _: told.wait(30)))
        await asyncio.sleep(0.05)
        assert reads.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reads
        assert len(await each(store.topics["orders"].queues[0])) == 1000
        # The block ends, and closes the store, under the thread that still reads.
        asyncio.get_running_loop().call_later(0.2, told.set)

    run(path, work)
    assert told.is_set()


def test_a_pass_that_is_left_or_cancelled_reads_no_further(path: Path) -> None:
    taken: list[int] = []

    def numbers() -> Iterable[int]:
        for number in range(1_000_000):
            taken.append(number)
            yield number

    async def work(store: mqstore.aio.Store) -> None:
        async for number in mqstore.aio._each(numbers()):
            if number == 3:
                break
        assert len(taken) <= 5
        async for message in store.topics["orders"].queues[0]:
            assert message.body == b"0"
            break

        async def waits() -> None:
            async for _ in store.topics["orders"].queues[0]:
                await asyncio.sleep(60)

        task = asyncio.create_task(waits())
        await asyncio.sleep(0.05)
        assert task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(path, work)


def test_a_closed_store_says_so(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> tuple[mqstore.aio.Store, mqstore.Queue]:
        return store, store.topics["orders"].queues[0]

    store, queue = run(path, work)

    async def main() -> None:
        with pytest.raises(mqstore.ClosedError):
            await store.get("orders", 0, 0)
        with pytest.raises(mqstore.ClosedError):
            await each(queue)

    asyncio.run(main())


def test_many_tasks_read_the_same(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        queue = store.topics["orders"].queues[0]
        expected = list(queue)
        passes = await asyncio.gather(*(each(queue) for _ in range(20)))
        assert all(got == expected for got in passes)
        hits = await asyncio.gather(*(store.query("orders", f"o-{number}") for number in range(200)))
        assert [[message.body for message in hit] for hit in hits] == [[b"%d" % number] for number in range(200)]

    run(path, work)


def test_a_writer_reads_what_its_tasks_appended(tmp_path: Path) -> None:
    async def main() -> None:
        async with mqstore.aio.open(tmp_path / "new", "a") as store:
            for number in range(100):
                await store.append("orders", b"%d" % number, keys=f"k-{number}")
                assert (await store.get("orders", 0, number)).status == "FOUND"
                assert len(await store.query("orders", f"k-{number}")) == 1
            assert [message.body async for message in store.topics["orders"].queues[0]] == [b"%d" % n for n in range(100)]

    asyncio.run(main())


def test_a_task_follows_a_store_while_others_append(tmp_path: Path) -> None:
    async def take(messages: AsyncIterable[mqstore.Message], count: int) -> list[bytes]:
        bodies = []
        async for message in messages:
            bodies.append(message.body)
            if len(bodies) == count:
                break
        return bodies

    async def run() -> list[bytes]:
        async with mqstore.aio.open(tmp_path / "s", "x") as store:
            following = asyncio.create_task(take(await store.follow(timeout=30), 100))
            for number in range(100):
                await store.append("t", b"%d" % number)
            return await following

    assert asyncio.run(run()) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_async_for_follows_a_store_without_a_second_await(path: Path, mode: Literal["r", "r+"]) -> None:
    async def main() -> list[bytes]:
        async with mqstore.aio.open(path, "r+") as writer, mqstore.aio.open(path) as reader:
            came: list[bytes] = []
            begun = asyncio.Event()

            async def take() -> None:
                following = (reader if mode == "r" else writer).follow("orders", start={("orders", 0): 998}, timeout=30)
                async for message in following:
                    came.append(message.body)
                    begun.set()
                    if len(came) == 12:
                        break

            task = asyncio.create_task(take())
            await begun.wait()
            for number in range(10):
                await writer.append("orders", b"new %d" % number)
            await asyncio.wait_for(task, 30)
            return came

    assert asyncio.run(main()) == [b"998", b"999", *(b"new %d" % number for number in range(10))]


def test_async_for_reads_a_scan_and_a_fetch_without_a_second_await(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        assert sum(map(len, await each(store.scan(topics="orders", tags="paid")))) == 1000
        batch = next(iter(store.store.topics["orders"].queues[0][5:8].batches(["physical_offset"])))
        assert [row.body for rows in await each(store.fetch(batch)) for row in rows] == [b"5", b"6", b"7"]
        with pytest.raises(TypeError, match="topics is a str or several"):
            await each(store.scan(topics=7))  # type: ignore[arg-type]

    run(path, work)


def test_a_pass_is_also_a_coroutine_for_tasks_and_time_limits(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        batches = await asyncio.create_task(store.scan(columns=["body"]))
        assert isinstance(batches, mqstore.Batches)
        following = await asyncio.wait_for(store.follow("orders", start="earliest", timeout=0), 30)
        assert isinstance(following, mqstore.MessageIterator)
        assert len(await each(following)) == 1000
        first, second = await asyncio.gather(store.scan(), store.follow(timeout=0))
        assert (isinstance(first, mqstore.Batches), await each(second)) == (True, [])

    run(path, work)


def test_a_second_async_for_over_the_same_pass_continues_it(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        following = store.follow("orders", start="earliest", timeout=0.05)
        async for message in following:
            assert message.body == b"0"
            break
        assert [message.body for message in await each(following)] == [b"%d" % number for number in range(1, 1000)]
        assert await each(following) == []

    run(path, work)


@pytest.mark.parametrize("awaits", ["for", "await", "task"])
def test_a_pass_whose_await_was_cancelled_is_read_whole_by_the_next_one(path: Path, awaits: str) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        # A topic is taken from the iterator once only, and a second pass would have none.
        for begun in (store.scan(topics=iter(["orders"])), store.follow(iter(["orders"]), start="earliest", timeout=0)):
            waiting = asyncio.create_task(begun)  # type: ignore[var-annotated]
            await asyncio.sleep(0)
            assert waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            if awaits != "for":
                items = await (begun if awaits == "await" else asyncio.create_task(begun))
                assert items is await begun
            got = await each(begun)
            assert sum(len(item) if isinstance(item, mqstore.RecordBatch) else 1 for item in got) == 1000

    run(path, work)


def test_a_pass_that_cannot_begin_raises_at_each_await_and_after_a_cancel(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        begun = store.scan(topics=7)  # type: ignore[arg-type]
        for _ in range(2):
            with pytest.raises(TypeError, match="topics is a str or several"):
                await begun
        cancelled = store.scan(topics=7)  # type: ignore[arg-type]
        waiting = asyncio.create_task(cancelled)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(TypeError, match="topics is a str or several"):
            await each(cancelled)

    run(path, work)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("options", [{}, {"start": "latest"}, {"start": {("orders", 0): 5000}, "on_missing": "latest"}])
def test_follow_takes_the_latest_position_in_the_call(path: Path, mode: Literal["r", "r+"], options: dict[str, Any]) -> None:
    async def main() -> list[bytes]:
        async with mqstore.aio.open(path, "r+") as writer, mqstore.aio.open(path) as reader:
            await writer.append("orders", b"before")
            following = (reader if mode == "r" else writer).follow("orders", timeout=0, **options)
            await writer.append("orders", b"after")
            await writer.wait_dispatched()
            return [message.body for message in await each(following)]

    assert asyncio.run(main()) == [b"after"]


def test_a_pass_that_is_never_awaited_is_warned_of_by_its_name(path: Path) -> None:
    async def work(store: mqstore.aio.Store) -> None:
        with pytest.warns(RuntimeWarning, match="'Store.follow' was never awaited"):
            store.follow()

    run(path, work)


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_wait_for_messages_that_is_cancelled_takes_none_along(path: Path, mode: Literal["r", "r+"]) -> None:
    async def main() -> None:
        async with mqstore.aio.open(path, "r+") as writer, mqstore.aio.open(path) as reader:
            following = await (reader if mode == "r" else writer).follow("orders")
            came: list[bytes] = []

            async def take(count: int) -> None:
                async for message in following:
                    came.append(message.body)
                    if len(came) == count:
                        break

            for number in range(20):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(take(21), 0.01)
                await writer.append("orders", b"%d" % number)
            await asyncio.wait_for(take(20), 30)
            assert came == [b"%d" % number for number in range(20)]

    asyncio.run(main())


def test_tasks_that_wait_for_messages_leave_the_threads_to_the_others(path: Path) -> None:
    async def main() -> list[bytes]:
        async with mqstore.aio.open(path, "r+") as store:
            left = [asyncio.create_task(each(await store.follow("orders"))) for _ in range(100)]
            waiting = [asyncio.create_task(anext(aiter(await store.follow("orders")))) for _ in range(100)]
            await asyncio.sleep(0.05)
            for task in left:
                task.cancel()
            assert len(await asyncio.wait_for(store.query("orders", "o-7"), 30)) == 1
            await store.append("orders", b"new")
            return [message.body for message in await asyncio.wait_for(asyncio.gather(*waiting), 30)]

    assert asyncio.run(main()) == [b"new"] * 100


def test_a_following_task_ends_after_its_timeout_or_with_the_store(path: Path) -> None:
    async def main() -> None:
        async with mqstore.aio.open(path, "r+") as store:
            following = await store.follow("orders", timeout=0.1)
            assert await each(following) == []
            await store.append("orders", b"new")
            assert [message.body for message in await each(following)] == [b"new"]
            waiting = asyncio.create_task(each(await store.follow("orders")))
            await asyncio.sleep(0.05)
        assert await asyncio.wait_for(waiting, 30) == []

    asyncio.run(main())
