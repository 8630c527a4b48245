"""What a writer leaves in the page cache of its log."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from pathlib import Path

import pytest

import mqstore

MIB = 1 << 20
#: Bytes that are dropped at once.
STEP = 16 * MIB
BODY = os.urandom(64 << 10)
MESSAGES = 1600

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]


def resident(file: Path) -> int:
    """Bytes of a file that are in the page cache."""
    length = file.stat().st_size
    pages = ctypes.create_string_buffer(length // mmap.PAGESIZE)
    with file.open("rb") as opened:
        at = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, opened.fileno(), 0)
    assert libc.mincore(at, length, pages) == 0, ctypes.get_errno()
    libc.munmap(at, length)
    return sum(byte & 1 for byte in pages.raw) * mmap.PAGESIZE


def is_dropped_from_memory(directory: Path) -> bool:
    """Whether this file system has its pages on a disk, too."""
    file = directory / "probe"
    with file.open("wb") as opened:
        opened.write(bytes(MIB))
        opened.flush()
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident(file) == 0


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
    """Waits until no more than so many bytes of the log are in memory: the flusher looks every 500 ms."""
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
