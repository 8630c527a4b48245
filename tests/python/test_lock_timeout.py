"""Waiting for the lock of another writer: `lock_timeout`."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
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


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.mark.parametrize("timeout", [60, 60.0, timedelta(minutes=1), None, float("inf")])
def test_a_writing_open_waits_until_another_process_closes(path: Path, timeout: Any) -> None:
    with another_process_writes(path) as close:
        begun = time.monotonic()
        threading.Timer(0.3, close).start()
        with mqstore.open(path, "r+", lock_timeout=timeout) as store:
            assert 0.25 < time.monotonic() - begun < 30
            assert [message.body for message in store.topics["orders"].queues[0]] == [b"of the other"]
            assert store.recovery.clean_exit


@pytest.mark.parametrize("mode", ["r+", "a"])
def test_after_the_timeout_the_error_says_how_long_the_open_waited(path: Path, mode: Any) -> None:
    with another_process_writes(path):
        begun = time.monotonic()
        with pytest.raises(mqstore.LockedError, match=r"waited 0\.2\d s.*close it first") as raised:
            mqstore.open(path, mode, lock_timeout=0.2)
        assert 0.2 <= time.monotonic() - begun < 5
        assert raised.value.filename == str(path / "lock")


@pytest.mark.parametrize("options", [{}, {"lock_timeout": 0}, {"lock_timeout": timedelta(0)}])
def test_without_a_timeout_a_writing_open_fails_at_once(path: Path, options: dict[str, Any]) -> None:
    with mqstore.open(path, "a"):
        begun = time.monotonic()
        with pytest.raises(mqstore.LockedError) as raised:
            mqstore.open(path, "r+", **options)
        assert time.monotonic() - begun < 0.2
        assert "waited" not in str(raised.value)


def test_a_signal_whose_handler_raises_ends_the_wait_soon(path: Path) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    with mqstore.open(path, "a") as store:
        begun = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                mqstore.open(path, "r+", lock_timeout=60)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert time.monotonic() - begun < 5
        store.append("orders", b"x")


def test_other_threads_run_during_the_wait_which_takes_no_processor(path: Path) -> None:
    store = mqstore.open(path, "a")
    opened: list[mqstore.Store] = []
    waiting = threading.Thread(target=lambda: opened.append(mqstore.open(path, "a", lock_timeout=60)))
    begun = time.process_time()
    waiting.start()
    time.sleep(0.5)
    assert time.process_time() - begun < 0.2, "a loop that never sleeps would use half a second"
    store.append("orders", b"x")
    assert not opened
    store.close()
    waiting.join(30)
    assert len(opened[0].topics["orders"]) == 1
    opened[0].close()


def test_reading_needs_no_lock_and_never_waits(path: Path) -> None:
    with mqstore.open(path, "a") as store:
        store.append("orders", b"x")
        begun = time.monotonic()
        with mqstore.open(path, lock_timeout=60) as reader:
            assert reader.max_physical_offset > 0
        assert time.monotonic() - begun < 5


def test_what_needs_no_lock_is_refused_without_a_wait(path: Path) -> None:
    with mqstore.open(path, "a"):
        begun = time.monotonic()
        with pytest.raises(mqstore.StoreExistsError):
            mqstore.open(path, "x", lock_timeout=60)
        with pytest.raises(mqstore.NotAStoreError):
            mqstore.open(path.parent / "absent", "r+", lock_timeout=60)
        assert time.monotonic() - begun < 5


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


@pytest.mark.parametrize("call", [mqstore.rebuild, mqstore.repair])
def test_repair_and_rebuild_wait_as_an_open_does(path: Path, call: Callable[..., mqstore.RepairReport]) -> None:
    mqstore.open(path, "a").close()
    with another_process_writes(path) as close:
        (path / "checkpoint").unlink(missing_ok=True)
        with pytest.raises(mqstore.LockedError, match=r"waited 0\.1\d s"):
            call(path, dry_run=False, lock_timeout=0.1)
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
