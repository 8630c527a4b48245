"""Following a store whose writers come and go: followers that outlive several writers, closed and killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mqstore
import mqstore.aio

#: Appends a stretch of numbers, waits for a word, and closes the store or dies with it open.
WRITER = """
import os, signal, sys, mqstore
path, first, count, end, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], eval(sys.argv[5])
with mqstore.open(path, "a", **options) as store:
    for number in range(first, first + count):
        store.append("numbers", b"%d" % number + b"." * 900, queue_id=number % 2)
    store.flush()
    print("done", flush=True)
    sys.stdin.readline()
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
"""

MODES: dict[str, dict[str, object]] = {
    "mapped": {},
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "pool": {"transient_store_pool_enable": True},
}
#: Messages of each writer: a part of a segment, several segments, one message, and nearly nothing again.
COUNTS = [10, 60, 1, 40, 2, 3, 70, 5]
TOTAL = sum(COUNTS)
SEGMENT = 16384


def number_of(message: mqstore.Message) -> int:
    return int(bytes(message.body).partition(b".")[0])


def stored(store: mqstore.Store) -> list[int]:
    return sorted(number_of(message) for queue in store.topics["numbers"].queues for message in queue)


def follow_log(store: mqstore.Store) -> Iterator[int]:
    return map(number_of, store.follow("numbers", start="earliest", timeout=60))


def follow_queue(queue: int) -> Callable[[mqstore.Store], Iterator[int]]:
    return lambda store: map(number_of, store.topics["numbers"].queues[queue].tail(60, start="earliest"))


class Follower(threading.Thread):
    """A reader in a thread, which collects the numbers that it is given until it has `wanted` of them."""

    def __init__(self, path: Path, numbers: Callable[[mqstore.Store], Iterator[int]], wanted: list[int]) -> None:
        super().__init__(daemon=True)
        self.store = mqstore.open(path)
        self.numbers = numbers(self.store)
        self.wanted = wanted
        self.got: list[int] = []
        self.failed: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            for number in self.numbers:
                self.got.append(number)
                if len(self.got) >= len(self.wanted):
                    return
        except BaseException as error:
            self.failed = error

    def finish(self) -> None:
        self.join(60)
        assert self.failed is None, f"after {self.got[-3:]}: {self.failed!r}"
        assert not self.is_alive(), f"waits after {self.got[-3:]}"
        assert self.got == self.wanted
        self.store.close()


class AsyncFollower(Follower):
    """A reader in a task of an event loop."""

    def __init__(self, path: Path, wanted: list[int]) -> None:
        self.path = path
        super().__init__(path, lambda _: iter(()), wanted)

    def run(self) -> None:
        async def follow() -> None:
            async with mqstore.aio.open(self.path) as store:
                async for message in await store.follow("numbers", start="earliest", timeout=60):
                    self.got.append(number_of(message))
                    if len(self.got) >= len(self.wanted):
                        return

        try:
            asyncio.run(follow())
        except BaseException as error:
            self.failed = error


def write(path: Path, first: int, count: int, end: str, options: dict[str, object]) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(path), str(first), str(count), end, repr(options)]
    writer = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "done\n"
    return writer


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("mode", MODES)
def test_followers_that_outlive_their_writers_see_each_message_once(tmp_path: Path, mode: str, end: str) -> None:
    path, options = tmp_path / "store", MODES[mode]
    with mqstore.open(path, "x", mapped_file_size_commit_log=SEGMENT, mapped_file_size_consume_queue=400) as store:
        for queue in range(2):
            store.append("numbers", b"%d." % queue, queue_id=queue)
    all_numbers = list(range(TOTAL + 2))
    followers: list[Follower] = []

    def add_followers() -> None:
        followers.append(Follower(path, follow_log, all_numbers))
        followers.extend(Follower(path, follow_queue(queue), all_numbers[queue::2]) for queue in range(2))
        followers.append(AsyncFollower(path, all_numbers))

    add_followers()
    first = 2
    for turn, count in enumerate(COUNTS):
        writer = write(path, first, count, end, options)
        first += count
        if turn % 3 == 0:
            # While the segment that is made ahead is there.
            add_followers()
        writer.communicate("end\n", timeout=60)
    for follower in followers:
        follower.finish()
    with mqstore.open(path) as store:
        assert stored(store) == all_numbers


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("mode", MODES)
def test_a_refresh_finds_a_segment_made_again_by_the_next_writer(tmp_path: Path, mode: str, end: str) -> None:
    path, options = tmp_path / "store", MODES[mode]
    with mqstore.open(path, "x", mapped_file_size_commit_log=SEGMENT) as store:
        store.append("numbers", b"0.", queue_id=0)
        store.append("numbers", b"1.", queue_id=1)
    written = 2
    writer = write(path, written, 3, end, options)
    written += 3
    with mqstore.open(path) as reader:
        for count in COUNTS:
            writer.communicate("end\n", timeout=60)
            reader.refresh()
            writer = write(path, written, count, end, options)
            written += count
            reader.refresh()
            assert stored(reader) == list(range(written))
            assert reader.min_physical_offset == 0
        writer.communicate("end\n", timeout=60)
