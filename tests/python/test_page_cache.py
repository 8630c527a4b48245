"""The page cache of the log after a writer and after a scan."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path
from typing import Any

import pytest

import mqstore

MIB = 1 << 20
#: Bytes that are dropped at once.
STEP = 16 * MIB
BODY = os.urandom(64 << 10)
MESSAGES = 1600
SMALL_MESSAGES = 32_000

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def resident_pages(file: Path) -> set[int]:
    """Pages of a file that are in the page cache."""
    length = file.stat().st_size
    pages = ctypes.create_string_buffer(length // mmap.PAGESIZE)
    with file.open("rb") as opened:
        at = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, opened.fileno(), 0)
    assert libc.mincore(at, length, pages) == 0, ctypes.get_errno()
    libc.munmap(at, length)
    return {page for page, byte in enumerate(pages.raw) if byte & 1}


def resident(file: Path) -> int:
    """Bytes of a file that are in the page cache."""
    return len(resident_pages(file)) * mmap.PAGESIZE


def is_dropped_from_memory(directory: Path) -> bool:
    """Returns true if this file system has its pages on a disk, too."""
    file = directory / "probe"
    file.write_bytes(bytes(MIB))
    drop(file)
    return resident(file) == 0


def drop(file: Path) -> None:
    """Drops what is in the page cache of a file that nobody has mapped."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fill(store: mqstore.Store) -> None:
    """Appends 100 MiB, and makes them durable and dispatched."""
    for n in range(MESSAGES):
        last = store.append("orders", BODY, keys=[str(n)])
    store.wait_durable(last.physical_offset, timeout=60)
    store.wait_dispatched(last.physical_offset, timeout=60)


def cached(log: Path) -> int:
    """Bytes of the log that are in memory."""
    return sum(resident(file) for file in log.iterdir())


def is_dropped(log: Path, most: int) -> bool:
    """Waits until at most this many bytes of the log are in memory: the flusher looks every 500 ms."""
    deadline = time.monotonic() + 60
    while cached(log) > most:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize(
    "options",
    [{}, {"transient_store_pool_enable": True}, {"flush_disk_type": "SYNC_FLUSH"}],
    ids=["mapped", "pool", "sync"],
)
def test_what_is_flushed_leaves_the_page_cache_past_the_ratio_of_memory(tmp_path: Path, options: dict[str, object]) -> None:
    if not is_dropped_from_memory(tmp_path):
        pytest.skip("the file system of the temporary directory is in memory alone")
    options |= {"mapped_file_size_commit_log": 64 * MIB}
    for ratio in (0, 40):
        path = tmp_path / f"ratio {ratio}"
        with mqstore.open(path, "x", access_message_in_memory_max_ratio=ratio, **options) as store:
            fill(store)
            if ratio == 0:
                assert is_dropped(path / "commitlog", STEP + 20 * MIB)
            else:
                # Two looks of the flusher later.
                time.sleep(1.2)
                assert MESSAGES * len(BODY) <= cached(path / "commitlog") <= 192 * MIB
            queue = store.topics["orders"].queues[0]
            assert len(queue) == MESSAGES
            assert all(message.body == BODY for message in queue)
            assert store.query("orders", key="7")[0].queue_offset == 7


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 100 MiB in seven segments; every fourth message is of a topic of its own."""
    directory = tmp_path_factory.mktemp("cold")
    if not is_dropped_from_memory(directory):
        pytest.skip("the file system of the temporary directory is in memory alone")
    with mqstore.open(directory / "store", "x", mapped_file_size_commit_log=16 * MIB) as store:
        for _ in range(SMALL_MESSAGES // 1000):
            store.append_batch([("few" if n % 4 == 0 else "orders", BODY[:3000]) for n in range(1000)])
    return directory / "store"


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("arguments", [{}, {"reverse": True}, {"topics": "few"}], ids=str)
def test_a_scan_of_what_is_not_cached_leaves_the_page_cache_as_it_was(
    closed: Path, monkeypatch: pytest.MonkeyPatch, threads: str, arguments: dict[str, Any]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    # The system takes pages from the cache when it likes. A scan that does so does it each time.
    tries = [taken_and_brought(closed, arguments) for _ in range(3)]
    assert any(taken == 0 and brought < 16 * MIB for taken, brought in tries), tries


def taken_and_brought(store: Path, arguments: dict[str, Any]) -> tuple[int, int]:
    """Bytes of the log that are not in the page cache after a scan and were before, and those that were not and are."""
    segments = sorted((store / "commitlog").iterdir())
    for segment in segments:
        drop(segment)
    with segments[2].open("rb") as opened:
        opened.seek(5 * MIB)
        opened.read(3 * MIB)
    before = [resident_pages(segment) for segment in segments]
    with mqstore.open(store) as reader:
        rows = reader.scan(columns=["body"], **arguments).to_arrow()
    assert len(rows) == SMALL_MESSAGES // (4 if "topics" in arguments else 1)
    pairs = list(zip(before, map(resident_pages, segments), strict=True))
    taken = sum(len(was - now) for was, now in pairs)
    brought = sum(len(now - was) for was, now in pairs)
    return taken * mmap.PAGESIZE, brought * mmap.PAGESIZE
