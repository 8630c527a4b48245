"""Waiting for the lock of another writer: `lock_timeout`."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import mqstore
import mqstore.aio

HOLDER = """
import sys, mqstore
with mqstore.open(sys.argv[1], "a") as store:
    store.append("orders", b"of the other")
    print("locked", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another_process_writes(path: Path) -> Iterator[Callable[[], None]]:
    """Another process has the store until the function is called, which waits for nothing."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"locked\n"
        yield process.stdin.close
        process.stdin.close()


def waited(error: mqstore.LockedError) -> float:
    """The seconds that the error says the open has waited."""
    found = re.search(r"\(waited (\d+\.\d\d) s\)", str(error))
    assert found is not None, error
    return float(found[1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("timeout", [60, 60.0, timedelta(minutes=1), None, float("inf")])
def test_a_writing_open_waits_until_another_process_closes(path: Path, timeout: Any) -> None:
    closed = threading.Event()
    with another_process_writes(path) as close:
        threading.Timer(0.3, lambda: (closed.set(), close())).start()
        with mqstore.open(path, "r+", lock_timeout=timeout) as store:
            assert closed.is_set()
            assert [message.body for message in store.topics["orders"].queues[0]] == [b"of the other"]
            assert store.recovery.clean_exit


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_after_the_timeout_the_error_says_how_long_the_open_waited(path: Path, mode: Any) -> None:
    with another_process_writes(path):
        begun = time.monotonic()
        with pytest.raises(mqstore.LockedError, match=r"waited .* s.*close it first") as raised:
            mqstore.open(path, mode, lock_timeout=0.2)
        assert 0.2 <= waited(raised.value) <= time.monotonic() - begun + 0.005
        assert raised.value.filename == str(path / "lock")


@pytest.mark.parametrize("options", [{}, {"lock_timeout": 0}, {"lock_timeout": timedelta(0)}])
def test_without_a_timeout_a_writing_open_fails_at_once(path: Path, options: dict[str, Any]) -> None:
    with mqstore.open(path, "a"):
        with pytest.raises(mqstore.LockedError) as raised:
            mqstore.open(path, "r+", **options)
        assert "(waited" not in str(raised.value)


def test_a_signal_whose_handler_raises_ends_the_wait_before_the_timeout(path: Path) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    with mqstore.open(path, "a") as store:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                mqstore.open(path, "r+", lock_timeout=60)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        store.append("orders", b"x")


def is_asleep(thread: threading.Thread) -> bool:
    """Returns whether this thread of the process sleeps."""
    status = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "S"


def test_other_threads_run_during_the_wait_which_takes_no_processor(path: Path) -> None:
    store = mqstore.open(path, "a")
    opened: list[mqstore.Store] = []
    waiting = threading.Thread(target=lambda: opened.append(mqstore.open(path, "a", lock_timeout=60)))
    waiting.start()
    # A loop that never sleeps would run, or wait for a processor, at each look.
    looks = [is_asleep(waiting) for _ in range(100) if not time.sleep(0.005)]
    assert sum(looks) > 10, looks
    store.append("orders", b"x")
    assert not opened
    store.close()
    waiting.join(30)
    assert len(opened[0].topics["orders"]) == 1
    opened[0].close()


def test_reading_needs_no_lock_and_never_waits(path: Path) -> None:
    with mqstore.open(path, "a") as store:
        store.append("orders", b"x")
        # While the lock is held, an open that waited for it would end with an error.
        with mqstore.open(path, lock_timeout=60) as reader:
            assert reader.max_physical_offset > 0


def test_what_needs_no_lock_is_refused_without_a_wait(path: Path) -> None:
    with ThreadPoolExecutor() as pool, mqstore.open(path, "a"):
        exists = pool.submit(mqstore.open, path, "x", lock_timeout=None)
        absent = pool.submit(mqstore.open, path.parent / "absent", "r+", lock_timeout=None)
        # While the lock is held, an open that waited for it would not end.
        with pytest.raises(mqstore.StoreExistsError):
            exists.result(60)
        with pytest.raises(mqstore.NotAStoreError):
            absent.result(60)


def test_tasks_run_while_one_of_them_waits_for_the_lock(path: Path) -> None:
    async def main() -> int:
        async with mqstore.aio.open(path, "a") as first:
            await first.append("orders", b"x")

            async def second() -> int:
                async with mqstore.aio.open(path, "r+", lock_timeout=timedelta(seconds=60)) as store:
                    return len(store.topics["orders"])

            waiting = asyncio.create_task(second())
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await first.append("orders", b"y")
        return await waiting

    assert asyncio.run(main()) == 2


def test_a_task_cancelled_in_its_wait_for_the_lock_ends_before_the_lock(path: Path) -> None:
    async def main() -> None:
        async with mqstore.aio.open(path, "a") as first:
            begun: list[mqstore.aio.Store] = []

            async def second() -> None:
                async with mqstore.aio.open(path, "r+", lock_timeout=None) as store:
                    begun.append(store)

            for wait in (0, 0.01, 0.1):
                waiting = asyncio.create_task(second())
                await asyncio.sleep(wait)
                waiting.cancel()
                # The first store is open until the end of the block: a task that waited for it would not end.
                done, _ = await asyncio.wait([waiting], timeout=60)
                assert (done, waiting.cancelled(), begun) == ({waiting}, True, [])
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(second(), wait)
            await first.append("orders", b"x")

    asyncio.run(main())
    # No task that was cancelled has the store.
    mqstore.open(path, "r+").close()


def test_an_open_that_is_cancelled_while_a_thread_opens_closes_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begins, goes_on = threading.Event(), threading.Event()
    opened: list[mqstore.Store] = []
    plain = mqstore.aio._open_after

    def slow(*args: Any, **options: Any) -> mqstore.Store | None:
        store = plain(*args, **options)
        assert store is not None
        opened.append(store)
        begins.set()
        goes_on.wait(60)
        return store

    monkeypatch.setattr("mqstore.aio._open_after", slow)

    async def main() -> None:
        async def opens() -> None:
            async with mqstore.aio.open(path, "a"):
                pass

        opening = asyncio.create_task(opens())
        await asyncio.to_thread(begins.wait, 60)
        opening.cancel()
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
        with pytest.raises(asyncio.CancelledError):
            await opening
        with pytest.raises(mqstore.ClosedError):
            opened[0].append("orders", b"x")

    asyncio.run(main())
    mqstore.open(path, "r+").close()


def test_an_interrupt_ends_a_task_that_waits_for_the_lock(path: Path) -> None:
    program = """
import asyncio, sys, mqstore.aio
async def main():
    print("begun", flush=True)
    async with mqstore.aio.open(sys.argv[1], "r+", lock_timeout=None):
        print("open", flush=True)
asyncio.run(main())
"""
    with (
        mqstore.open(path, "a"),
        subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert (out, err.rstrip().endswith(b"KeyboardInterrupt")) == (b"", True), err


def test_tasks_that_wait_for_the_lock_take_no_thread_from_the_others(path: Path) -> None:
    async def main() -> list[int]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

        async def opens() -> int:
            async with mqstore.aio.open(path, "r+", lock_timeout=60) as store:
                await store.append("orders", b"y")
                return len(await store.get("orders", 0, 0))

        async with mqstore.aio.open(path, "a") as first:
            await first.append("orders", b"x")
            waiting = [asyncio.create_task(opens()) for _ in range(3)]
            await asyncio.sleep(0.1)
            assert len(await first.get("orders", 0, 0)) == 1
        return sorted(await asyncio.gather(*waiting))

    assert asyncio.run(main()) == [2, 3, 4]


def test_a_task_that_has_waited_for_the_lock_in_vain_says_how_long(path: Path) -> None:
    async def opens(timeout: Any) -> None:
        async with mqstore.aio.open(path, "r+", lock_timeout=timeout):
            raise AssertionError

    with mqstore.open(path, "a"):
        with pytest.raises(mqstore.LockedError) as raised:
            asyncio.run(opens(timedelta(seconds=0.2)))
        assert waited(raised.value) >= 0.2
        with pytest.raises(mqstore.LockedError) as raised:
            asyncio.run(opens(0))
        assert "(waited" not in str(raised.value)
        with pytest.raises(ValueError, match="lock_timeout is -1"):
            asyncio.run(opens(-1))


@pytest.mark.parametrize("call", [mqstore.rebuild, mqstore.repair])
def test_repair_and_rebuild_wait_as_an_open_does(path: Path, call: Callable[..., mqstore.RepairReport]) -> None:
    mqstore.open(path, "a").close()
    with another_process_writes(path) as close:
        (path / "checkpoint").unlink(missing_ok=True)
        with pytest.raises(mqstore.LockedError) as raised:
            call(path, dry_run=False, lock_timeout=0.1)
        assert waited(raised.value) >= 0.1
        threading.Timer(0.2, close).start()
        assert call(path, dry_run=False, lock_timeout=60).ok


@pytest.mark.parametrize(
    ("timeout", "error", "text"),
    [
        (-1, ValueError, "lock_timeout is -1: expected 0 or more seconds"),
        (float("nan"), ValueError, "lock_timeout is nan"),
        (timedelta(seconds=-1), ValueError, "lock_timeout is -1 day"),
        ("1", TypeError, "expected seconds, a timedelta or None as lock_timeout, got <class 'str'>"),
    ],
)
def test_a_timeout_that_cannot_be_is_refused_by_its_name(path: Path, timeout: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        mqstore.open(path, "a", lock_timeout=timeout)
    assert not path.exists()
