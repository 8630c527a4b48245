"""Appending from the tasks of an event loop."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import sync_test
from test_nowait import NEVER, PREPARED

import mqstore
import mqstore.aio

#: What runs with slow syncs.
AIO = (
    PREPARED
    + """
import asyncio, mqstore.aio
NEVER = {"flush_interval_commit_log": 3_600_000, "sync_flush_timeout": 3_600_000}
"""
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def run(path: Path, work: Callable[[mqstore.aio.Writer], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with mqstore.aio.open(path, "a", **NEVER, **options) as store:
            await work(store)

    asyncio.run(main())


def test_the_example_runs() -> None:
    result = doctest.testmod(mqstore.aio)
    assert (result.attempted, result.failed) == (3, 0)


def test_it_takes_what_the_plain_store_takes() -> None:
    takes = inspect.signature(mqstore.Writer.append).parameters
    assert ["self", "topic", "body", *mqstore.aio._Fields.__annotations__] == list(takes)
    for name in ("append_batch", "wait_durable", "flush"):
        plain, own = (inspect.signature(getattr(of, name)).parameters.values() for of in (mqstore.Writer, mqstore.aio.Writer))
        assert [(p.name, p.default) for p in plain] == [(p.name, p.default) for p in own]
    assert inspect.signature(mqstore.aio.open) == inspect.signature(mqstore.open)


def test_thousands_of_tasks_share_few_syncs_and_need_no_thread_each(slow_sync: Path, path: Path) -> None:
    code = """
async def main():
    store = mqstore.aio.Writer(prepared(flush_disk_type="SYNC_FLUSH"))
    say(30)
    before, threads = syncs(), threading.active_count()
    tasks = [asyncio.create_task(store.append("orders", b"%d" % number)) for number in range(5000)]
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in tasks), "the first sync takes half a minute"
    assert threading.active_count() <= threads + 1
    os.unlink(sync)
    loop, woken = asyncio.get_running_loop(), []
    wake = loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda *call: woken.append(wake(*call))
    results = await asyncio.gather(*tasks)
    assert syncs() - before <= 2, "one is for the first messages, and one for all others"
    assert len(woken) <= 4, "the loop is woken for a sync, not for a task"
    assert [store.store.message_at(result.physical_offset).body for result in results] == [b"%d" % n for n in range(5000)]
    assert {result.status for result in results} == {"PUT_OK"}
    store.store.close()
asyncio.run(main())
"""
    sync_test(slow_sync, path, AIO + code)


@pytest.mark.parametrize("durable", [True, False, None])
@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_an_append_returns_when_the_plain_one_would(path: Path, flush_disk_type: str, durable: bool | None) -> None:
    async def work(store: mqstore.aio.Writer) -> None:
        result = await store.append("orders", b"x", keys=["k"], durable=durable)
        is_waited_for = durable or (durable is None and flush_disk_type == "SYNC_FLUSH")
        if is_waited_for:
            assert store.store.flushed_offset > result.physical_offset
        elif flush_disk_type == "ASYNC_FLUSH":
            assert store.store.flushed_offset == 0
        offsets = await store.append_batch([b"y", b"z"], "orders", durable=durable)
        if is_waited_for:
            assert store.store.flushed_offset > offsets[-1]
        await store.wait_durable(result, 20)
        await store.wait_durable(timeout=timedelta(seconds=20))
        assert await store.flush() == store.store.flushed_offset > offsets[-1]
        store.store.wait_dispatched(timeout=20)
        assert [message.body for message in store.store.topics["orders"].queues[0]] == [b"x", b"y", b"z"]

    run(path, work, flush_disk_type=flush_disk_type)


def test_what_is_refused_is_refused_as_by_the_plain_store(path: Path) -> None:
    async def work(store: mqstore.aio.Writer) -> None:
        with pytest.raises(mqstore.IllegalMessageError):
            await store.append("a/b", b"x", durable=True)
        with pytest.raises(ValueError, match="nothing was appended there"):
            await store.wait_durable(5)
        for timeout in (-1, float("nan"), timedelta(days=-1)):
            with pytest.raises(ValueError, match="timeout"):
                await store.wait_durable(None, timeout)
        await store.wait_durable()

    run(path, work)

    async def missing() -> None:
        async with mqstore.aio.open(path / "missing"):
            pass

    with pytest.raises(mqstore.NotAStoreError):
        asyncio.run(missing())


def test_a_task_that_is_cancelled_leaves_its_message_and_the_other_tasks(slow_sync: Path, path: Path) -> None:
    code = """
async def main():
    async with mqstore.aio.open(sys.argv[1] + "3", "x", **NEVER) as store:
        await store.append("orders", b"first")
        await store.flush()
        wait_for_files(sys.argv[1] + "3")
        say(30)
        tasks = [asyncio.create_task(store.append("orders", b"%d" % number, durable=True)) for number in range(100)]
        waits = asyncio.create_task(store.wait_durable())
        await asyncio.sleep(0.3)
        for task in [*tasks[::2], waits]:
            assert task.cancel()
        os.unlink(sync)
        results = await asyncio.gather(*tasks, waits, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False] * 50 + [True]
        await store.wait_durable()
        store.store.wait_dispatched(timeout=20)
        assert bodies(store.store) == [b"first", *(b"%d" % number for number in range(100))]
asyncio.run(main())
"""
    sync_test(slow_sync, path, AIO + code)


def test_ctrl_c_ends_the_tasks_that_wait_and_closes_the_store(slow_sync: Path, path: Path) -> None:
    code = """
async def main():
    async with mqstore.aio.open(sys.argv[1] + "3", "x", **NEVER) as store:
        await store.append("orders", b"first")
        await store.flush()
        wait_for_files(sys.argv[1] + "3")
        say(30)
        def interrupt():
            until(lambda: store.store.stats().put_message_times_total == 101)
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(100):
                    group.create_task(store.append("orders", b"x", durable=True))
        except asyncio.CancelledError:
            threading.Timer(0.5, lambda: os.unlink(sync)).start()
            raise
        raise AssertionError("not interrupted")
raises(KeyboardInterrupt, lambda: asyncio.run(main()))
with mqstore.open(sys.argv[1] + "3", "r+") as store:
    assert store.recovery.clean_exit
    assert len(bodies(store)) == 101
"""
    sync_test(slow_sync, path, AIO + code)


def test_a_wait_whose_time_is_up_says_so(slow_sync: Path, path: Path) -> None:
    code = """
async def main():
    store = mqstore.aio.Writer(prepared(sync_flush_timeout=300))
    say(30)
    results = await asyncio.gather(*(store.append("orders", b"x", durable=True) for _ in range(100)))
    assert {result.status for result in results} == {"FLUSH_DISK_TIMEOUT"}
    for offset in (None, results[0].physical_offset):
        for timeout in (0, 0.1, 1):
            begin = time.monotonic()
            try:
                await store.wait_durable(offset, timeout)
                raise AssertionError("durable")
            except mqstore.WaitTimeoutError:
                assert timeout <= time.monotonic() - begin < timeout + 20
    try:
        await store.append_batch([b"y"], "orders", durable=True)
        raise AssertionError("durable")
    except mqstore.WaitTimeoutError as error:
        assert error.stored == 1
    waits = asyncio.create_task(store.wait_durable())
    await asyncio.sleep(0.5)  # longer than sync_flush_timeout
    os.unlink(sync)
    await asyncio.wait_for(waits, 20)
    store.store.close()
asyncio.run(main())
"""
    sync_test(slow_sync, path, AIO + code)


def test_a_sync_that_fails_fails_every_task_that_waits(slow_sync: Path, path: Path) -> None:
    code = """
async def main():
    store = mqstore.aio.Writer(prepared())
    follows = asyncio.create_task(anext(aiter(await store.follow("none"))))
    say(30)
    before = syncs()
    first = asyncio.create_task(store.append("orders", b"first", durable=True))
    while syncs() == before:
        await asyncio.sleep(0.01)
    tasks = [asyncio.create_task(store.append("orders", b"x", durable=True)) for _ in range(100)]
    await asyncio.sleep(0)
    waits = asyncio.create_task(store.wait_durable())
    # The first sync, which is under way, ends, and the next one fails.
    say(-1)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert (await first).status == "PUT_OK"
    assert all(isinstance(error, mqstore.PoisonedError) and error.status == "FLUSH_DISK_TIMEOUT" for error in results)
    for wait in (waits, follows, store.wait_durable(), store.flush(), store.append("orders", b"x")):
        try:
            await wait
            raise AssertionError("not poisoned")
        except mqstore.PoisonedError as error:
            assert error.status == "SERVICE_NOT_AVAILABLE"
    raises(mqstore.PoisonedError, store.store.close)
asyncio.run(main())
"""
    sync_test(slow_sync, path, AIO + code)


def test_the_end_of_the_block_closes_the_store_under_tasks_that_wait(slow_sync: Path, path: Path) -> None:
    code = """
async def main():
    tasks = []
    async with mqstore.aio.open(sys.argv[1] + "3", "x", **NEVER) as store:
        await store.append("orders", b"first")
        await store.flush()
        wait_for_files(sys.argv[1] + "3")
        say(30)
        tasks += [asyncio.create_task(store.append("orders", b"x", durable=True)) for _ in range(1000)]
        tasks += [asyncio.create_task(store.wait_durable()) for _ in range(1000)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in tasks)
        threading.Timer(1, lambda: os.unlink(sync)).start()
    results = await asyncio.wait_for(asyncio.gather(*tasks), 20)
    assert {result.status for result in results[:1000]} == {"PUT_OK"}
    assert results[1000:] == [None] * 1000
    try:
        await store.append("orders", b"x")
        raise AssertionError("not closed")
    except mqstore.ClosedError:
        pass
asyncio.run(main())
"""
    sync_test(slow_sync, path, AIO + code)


def test_a_task_that_is_cancelled_while_its_store_is_closed_waits_for_that(path: Path) -> None:
    async def main() -> None:
        opened: list[mqstore.Store] = []

        async def block() -> None:
            async with mqstore.aio.open(path, "a", **NEVER) as store:
                opened.append(store.store)
                await store.append("orders", b"x")

        task = asyncio.create_task(block())
        while not (opened and opened[0].closed):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        mqstore.open(path, "r+").close()

    asyncio.run(main())


def test_a_store_whose_opening_is_cancelled_does_not_stay_open(path: Path) -> None:
    mqstore.open(path, "x").close()

    async def block() -> None:
        async with mqstore.aio.open(path, "a"):
            await asyncio.sleep(60)

    async def main() -> None:
        for turns in range(20):
            task = asyncio.create_task(block())
            await asyncio.sleep(turns / 1000)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            mqstore.open(path, "r+").close()

    asyncio.run(main())


def test_loops_of_several_threads_may_use_one_store(path: Path) -> None:
    with mqstore.open(path, "x", **NEVER) as plain:
        store, done = mqstore.aio.Writer(plain), []

        async def work() -> None:
            results = await asyncio.gather(*(store.append("orders", b"x", durable=True) for _ in range(500)))
            done.extend(result.queue_offset for result in results)

        threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == list(range(2000))


def test_a_closed_loop_with_waiting_tasks_leaves_those_of_other_loops(slow_sync: Path, path: Path) -> None:
    code = """
store = prepared()
say(30)
async def abandoned():
    waits = asyncio.ensure_future(mqstore.aio.Writer(store).append("orders", b"abandoned", durable=True))
    await asyncio.sleep(0.1)
    assert not waits.done()
    return waits
closed = asyncio.new_event_loop()
waits = closed.run_until_complete(abandoned())
closed.close()
async def main():
    appended = asyncio.create_task(mqstore.aio.Writer(store).append("orders", b"x", durable=True))
    await asyncio.sleep(0.1)
    os.unlink(sync)
    assert (await asyncio.wait_for(appended, 20)).status == "PUT_OK"
asyncio.run(main())
assert not waits.done()
assert bodies(store) == [b"first", b"abandoned", b"x"]
store.close()
import logging
logging.disable()  # asyncio reports the task that was never finished
"""
    sync_test(slow_sync, path, AIO + code)


def test_a_loop_that_cannot_be_woken_keeps_no_other_future_waiting(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise ValueError("cannot be woken")

    async def abandoned(store: mqstore.Store) -> None:
        asyncio.get_running_loop().call_soon_threadsafe = fail  # type: ignore[method-assign]
        waits = asyncio.ensure_future(mqstore.aio.Writer(store).append("orders", b"x", durable=True))
        done, _ = await asyncio.wait([waits], timeout=0.5)
        assert not done

    with mqstore.open(path, "x", **NEVER) as store:
        asyncio.run(abandoned(store))
        assert store.append_nowait("orders", b"y").result(20).status == "PUT_OK"
    assert "cannot be woken" in caplog.text


def test_where_no_loop_runs_nothing_is_stored(path: Path) -> None:
    with mqstore.open(path, "x", **NEVER) as plain:
        waits = mqstore.aio.Writer(plain).append("orders", b"x", durable=True)
        with pytest.raises(RuntimeError, match="no running event loop"):
            waits.send(None)
        assert plain.max_physical_offset == 0
