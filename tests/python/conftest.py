"""The stores that the tests read, and what several tests ask."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unpack import unpack

import mqstore

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Every file and folder below with its time of change and, of a file, a hash of its bytes."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def store(mqstore_store: mqstore.Store) -> mqstore.Store:
    """An empty small store, open for writing."""
    return mqstore_store


@pytest.fixture(scope="session")
def golden() -> Iterator[Path]:
    """The folder of stores that RocketMQ wrote, to be read where they lie; nothing in it may change."""
    before = contents(GOLDEN)
    yield GOLDEN
    assert contents(GOLDEN) == before, "a test changed a golden store"


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    """Copies the golden store of that name, times of change included, so that a test may damage it."""

    def copy(name: str) -> Path:
        return shutil.copytree(GOLDEN / name, tmp_path / name)

    return copy


@pytest.fixture(scope="session")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of 7,865 real events, unpacked; nothing in it may change."""
    folder = tmp_path_factory.mktemp("events")
    unpack(GOLDEN / "533_events.tar.xz", folder)
    store = folder / "533_events"
    before = contents(store)
    yield store
    assert contents(store) == before, "a test changed the store of events"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a whole broker, unpacked; nothing in it may change."""
    folder = tmp_path_factory.mktemp("broker")
    unpack(GOLDEN / "533_broker.tar.xz", folder)
    store = folder / "533_broker"
    before = contents(store)
    yield store
    assert contents(store) == before, "a test changed the directory of a broker"


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Unpacks a golden store that is an archive, once; nothing in it may change."""
    stores: dict[str, Path] = {}
    before: dict[str, object] = {}

    def store(name: str) -> Path:
        if name not in stores:
            folder = tmp_path_factory.mktemp("unpacked")
            unpack(GOLDEN / f"{name}.tar.xz", folder)
            stores[name] = folder / name
            before[name] = contents(stores[name])
        return stores[name]

    yield store
    assert {name: contents(path) for name, path in stores.items()} == before, "a test changed an unpacked store"


def stamp_as_broker(path: Path) -> Path:
    """The store without the marks of mqstore, as a broker that was the last writer leaves it."""
    checkpoint = path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:32].ljust(4096, b"\0"))
    (path / "config" / "mqstore.flushed").unlink()
    return path


@pytest.fixture
def lets_others_run() -> Iterator[Callable[[Callable[[], object]], bool]]:
    """Returns true if a call releases the interpreter: another thread runs only when this one does so by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)

    def does(call: Callable[[], object]) -> bool:
        turns, stop = 0, threading.Event()

        def take_turns() -> None:
            nonlocal turns
            while not stop.is_set():
                turns += 1
                time.sleep(0.0001)

        other = threading.Thread(target=take_turns)
        other.start()
        first, deadline = turns, time.monotonic() + 120
        while turns == first and time.monotonic() < deadline:
            call()
        last = turns
        stop.set()
        other.join()
        return last > first

    yield does
    sys.setswitchinterval(before)


#: Syncs take as many seconds as the file named by SYNC says, or fail if it says -1. A sync that takes a while ends well
#: as soon as the file is gone or says something else. A file beside it has a byte for each sync that has looked at it.
SLOW_SYNC = r"""
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int said(void) {
    int seconds = 0;
    FILE *file = fopen(getenv("SYNC"), "r");
    if (file) {
        if (fscanf(file, "%d", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}
int fdatasync(int fd) {
    (void)fd;
    int seconds = said();
    char counted[4096];
    snprintf(counted, sizeof counted, "%s.count", getenv("SYNC"));
    FILE *count = fopen(counted, "a");
    if (count) {
        fputc('.', count);
        fclose(count);
    }
    if (seconds < 0) { errno = EIO; return -1; }
    for (long left = 100L * seconds; left > 0 && said() == seconds; left--) usleep(10000);
    return 0;
}
int msync(void *address, size_t length, int flags) {
    (void)address, (void)length, (void)flags;
    return fdatasync(-1);
}
"""


@pytest.fixture(scope="session")
def slow_sync(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("sync") / "slow_sync.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SLOW_SYNC, text=True, check=True)
    return library


#: A write to a segment of the log waits for as long as the file named by WRITES says 1. If that file says another number, the
#: write fails with it as its errno. A file beside it has a byte for each write that waits or fails.
STALLED_WRITE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int said(void) {
    int number = 0;
    FILE *file = fopen(getenv("WRITES"), "r");
    if (file) {
        if (fscanf(file, "%d", &number) != 1) number = 0;
        fclose(file);
    }
    return number;
}
static int is_of_the_log(int fd) {
    char link[40], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len < 0 ? 0 : len] = 0;
    return strstr(path, "/commitlog/") != NULL;
}
ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset) {
    int number = is_of_the_log(fd) ? said() : 0;
    if (number) {
        char counted[4096];
        snprintf(counted, sizeof counted, "%s.count", getenv("WRITES"));
        int count = open(counted, O_WRONLY | O_CREAT | O_APPEND, 0644);
        syscall(SYS_write, count, ".", 1);
        close(count);
    }
    if (number > 1) { errno = number; return -1; }
    while (number && said() == number) usleep(1000);
    return syscall(SYS_pwrite64, fd, bytes, len, offset);
}
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) { return pwrite64(fd, bytes, len, offset); }
"""


@pytest.fixture(scope="session")
def stalled_write(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("write") / "stalled_write.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=STALLED_WRITE, text=True, check=True)
    return library


#: A store with a pool of two buffers, whose committer writes when somebody asks, or when half a buffer waits.
POOLED = """
import errno, mqstore, os, signal, sys, threading, time, warnings
writes, path = os.environ["WRITES"], sys.argv[1]
def say(number):
    with open(writes + ".new", "w") as file:
        file.write(str(number))
    os.replace(writes + ".new", writes)
def written():
    return os.path.getsize(writes + ".count") if os.path.exists(writes + ".count") else 0
def until(is_true):
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.005)
def raises(error, call):
    try:
        call()
    except error as raised:
        return raised
    raise AssertionError(f"no {error}")
def bodies(store):
    return [message.body for message in store.topics["orders"].queues[0]]
pool = dict(transient_store_pool_enable=True, transient_store_pool_size=2, transient_store_pool_buffer_size=8192)
never = dict(
    commit_interval_commit_log=3_600_000, commit_commit_log_thorough_interval=3_600_000, flush_interval_commit_log=3_600_000
)
def opened(**options):
    store = mqstore.open(path, "x", **(pool | never | options))
    store.append("orders", b"first", durable=True)
    until(lambda: len(os.listdir(path + "/commitlog")) == 2)
    return store
def fill(store):
    # The committer has begun a write, which stalls, and no message of 4,000 bytes finds room. Gives how many were stored.
    say(1)
    for _ in range(12):
        store.append("orders", b"x" * 1000)
    until(written)
    return 12
"""


def pool_test(stalled_write: Path, path: Path, code: str) -> str:
    """Runs code with `POOLED`, and gives what it printed."""
    environment = os.environ | {"LD_PRELOAD": str(stalled_write), "WRITES": str(path.with_name("writes"))}
    # A store that is kept is closed at the end, which waits for the disk.
    code = "".join(f"    {line}\n" for line in code.splitlines())
    code = f"{POOLED}\ntry:\n{code}\nfinally:\n    say(0)\n"
    command = [sys.executable, "-W", "error", "-c", code, path]
    return subprocess.run(command, check=True, env=environment, timeout=300, stdout=subprocess.PIPE, text=True).stdout


SYNC = """
import errno, signal, threading, time
sync = os.environ["SYNC"]
def say(seconds):
    with open(sync + ".new", "w") as file:
        file.write(str(seconds))
    os.replace(sync + ".new", sync)
def raises(error, call):
    begin = time.monotonic()
    try:
        call()
    except error as raised:
        assert time.monotonic() - begin < 25, "it ended with the sync"
        return raised
    raise AssertionError(f"no {error}")
def until(is_true):
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.01)
def syncs():
    return os.path.getsize(sync + ".count")
def wait_for_files(path):
    # Two segments and the queue's file are made and have their names: no sync but one of the log is under way or to come.
    until(lambda: len(os.listdir(path + "/commitlog")) == 2 and os.path.exists(path + "/consumequeue/orders/0/" + "0" * 20))
store = mqstore.open(sys.argv[1], "x", flush_interval_commit_log=3_600_000)
offset = store.append("orders", b"x").physical_offset
wait_for_files(sys.argv[1])
"""


def sync_test(slow_sync: Path, path: Path, code: str) -> None:
    environment = os.environ | {"LD_PRELOAD": str(slow_sync), "SYNC": str(path.with_name("says"))}
    code = f"import mqstore, os, sys\n{SYNC}\n{code}"
    subprocess.run([sys.executable, "-c", code, path], check=True, env=environment, timeout=300)


LED = """
store = mqstore.open(sys.argv[1] + "2", "x", sync_flush_timeout=int(sys.argv[2]), flush_disk_type="SYNC_FLUSH")
got = []
def lead():
    try:
        got.append(store.append("orders", b"leads").status)
    except mqstore.PoisonedError as error:
        got.append(error.status)
store.append("orders", b"first")
wait_for_files(sys.argv[1] + "2")
before = syncs()
say(30)
leader = threading.Thread(target=lead)
leader.start()
until(lambda: syncs() > before)
"""


def led_test(slow_sync: Path, path: Path, timeout: int, code: str) -> None:
    led = LED.replace("sys.argv[2]", str(timeout))
    sync_test(slow_sync, path, led + code)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system in memory of a size such as "8m", and returns its directory."""
    disk = tmp_path / "disk"

    def mount(size: str) -> Path:
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("a mount needs root")
        return disk

    yield mount
    if disk.is_mount():
        subprocess.run(["umount", disk], check=True)
