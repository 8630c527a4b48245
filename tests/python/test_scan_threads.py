"""A long scan is read by several threads, and gives what one thread gives."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqstore

MESSAGES = 40_000
SEGMENT = 8 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """36 MiB in five segments: nine sections."""
    path = tmp_path_factory.mktemp("long") / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=SEGMENT) as store:
        for first in range(0, MESSAGES, 1000):
            rows = [
                {
                    "topic": f"t{n % 3}",
                    "queue_id": n % 4,
                    "body": b"%06d" % n * 130,
                    "keys": [f"k{n}"],
                    "tags": ["even", "odd"][n % 2],
                }
                for n in range(first, first + 1000)
            ]
            store.append_batch(rows)
    return path


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda count: monkeypatch.setenv("OMP_NUM_THREADS", str(count))


def running() -> int:
    """Threads that read a scan."""
    names = [task.joinpath("comm").read_text() for task in Path("/proc/self/task").iterdir()]
    return sum(name.startswith("mqstore-scan") for name in names)


def wait_for_running(count: int) -> None:
    """A thread has its name a moment after it was started."""
    until = time.monotonic() + 20
    while running() != count:
        assert time.monotonic() < until, f"{running()} threads read, not {count}"
        time.sleep(0.001)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"columns": ["body"]},
        {"batch_bytes": 1 << 16},
        {"order": "queue"},
        {"transactions": "all", "order": "queue"},
        {"tags": "even"},
        {"topics": ["t0", "t2"]},
        {"body_regex": "0{3}", "decode_body": True},
        {"physical": (3_000_000, 30_000_000)},
        {"reverse": True},
        {"limit": 39_000},
    ],
    ids=str,
)
def test_threads_give_the_rows_of_one_in_the_same_order(
    path: Path, threads: Callable[[int], None], arguments: dict[str, Any]
) -> None:
    with mqstore.open(path) as store:
        told = []
        for count in (1, 3):
            threads(count)
            batches = store.scan(**arguments)
            told.append((batches.to_arrow(), batches.complete, batches.covers, batches.skipped))
            assert pa.RecordBatchReader.from_stream(batches).read_all() == told[0][0]
        assert told[0] == told[1]


def test_threads_run_from_the_first_batch_to_the_end_of_the_pass(path: Path, threads: Callable[[int], None]) -> None:
    threads(3)
    with mqstore.open(path) as store:
        batches = store.scan()
        passing = iter(batches)
        assert (running(), batches.complete) == (0, False)
        assert len(next(passing)) > 0
        wait_for_running(3)
        assert not batches.complete
        assert sum(len(batch) for batch in passing) > MESSAGES / 2
        assert (running(), batches.complete) == (0, True)
        passing = iter(batches)
        next(passing)
        del passing
        assert running() == 0
        threads(1)
        next(iter(batches))
        assert running() == 0
        threads(3)
        next(iter(store.scan(limit=10)))
        assert running() == 0


def test_progress_runs_in_the_callers_thread_and_can_end_the_scan(path: Path, threads: Callable[[int], None]) -> None:
    threads(3)
    told: list[tuple[int, int, int]] = []

    def progress(done: int, whole: int) -> None:
        told.append((done, whole, threading.get_ident()))

    def enough(*_: int) -> None:
        raise RuntimeError("enough")

    with mqstore.open(path) as store:
        rows = store.scan(progress=progress).to_arrow()
        assert len(rows) == MESSAGES
        assert {ident for _, _, ident in told} == {threading.get_ident()}
        assert told == sorted(told)
        assert told[-1][0] == told[-1][1] == told[0][1]
        with pytest.raises(RuntimeError, match="enough"):
            store.scan(progress=enough).to_arrow()
        assert running() == 0


def test_damage_is_reported_after_all_before_it_or_skipped(path: Path, tmp_path: Path, threads: Callable[[int], None]) -> None:
    threads(3)
    damaged = shutil.copytree(path, tmp_path / "damaged")
    with mqstore.open(path) as store:
        offsets = store.scan(columns=["physical_offset"]).to_arrow()["physical_offset"].to_pylist()
    at = offsets[MESSAGES // 2]
    segment = damaged / "commitlog" / f"{at - at % SEGMENT:020}"
    whole = bytearray(segment.read_bytes())
    whole[at % SEGMENT + 100] ^= 1
    segment.write_bytes(whole)
    with mqstore.open(damaged) as store:
        passing = iter(store.scan(columns=["physical_offset"]))
        found: list[int] = []

        def read_on() -> None:
            for batch in passing:
                found.extend(batch.to_arrow()["physical_offset"].to_pylist())

        with pytest.raises(mqstore.CorruptError, match="CRC"):
            read_on()
        assert found == offsets[: MESSAGES // 2]
        read_on()
        assert found == [offset for offset in offsets if offset != at], "it continues after the damaged one"
        batches = store.scan(columns=["physical_offset"], errors="skip")
        assert batches.to_arrow()["physical_offset"].to_pylist() == [offset for offset in offsets if offset != at]
        assert (batches.skipped, batches.complete) == (1, False)


def test_a_close_ends_the_pass(path: Path, threads: Callable[[int], None]) -> None:
    threads(3)
    with mqstore.open(path) as store:
        passing = iter(store.scan())
        next(passing)
    with pytest.raises(mqstore.ClosedError):
        next(passing)
    del passing
    assert running() == 0


def test_a_fork_begins_a_pass_of_its_own_and_leaves_that_of_its_parent(path: Path) -> None:
    code = """
import mqstore, os, sys
with mqstore.open(sys.argv[1]) as store:
    passing = iter(store.scan())
    rows = len(next(passing))
    child = os.fork()
    if child == 0:
        try:
            next(passing)
        except mqstore.ClosedError:
            del passing
            sys.exit(len(store.scan().to_arrow()) != int(sys.argv[2]))
        sys.exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rows + sum(len(batch) for batch in passing) == int(sys.argv[2])
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(path), str(MESSAGES)]
    subprocess.run(command, check=True, timeout=60, env={"OMP_NUM_THREADS": "3", "PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize("count", [1, 3])
def test_a_failure_that_is_not_damage_ends_the_scan_and_skips_no_message(path: Path, count: int) -> None:
    code = """
import mqstore, os, resource, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)
with mqstore.open(sys.argv[1]) as store:
    passing = iter(store.scan(columns=["body"], batch_bytes=1 << 20))
    if sys.argv[2] == "1":
        next(passing)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, most[1]))
    try:
        for batch in passing:
            pass
    except OSError:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        sys.exit(next(passing, None) is not None)
    sys.exit("no segment had to be opened")
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(path), str(count)]
    subprocess.run(command, check=True, timeout=60, env={"OMP_NUM_THREADS": str(count), "PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize("count", [1, 4])
def test_a_scan_that_has_raised_is_incomplete_even_when_read_to_its_end(
    path: Path, tmp_path: Path, threads: Callable[[int], None], count: int
) -> None:
    threads(count)
    copy = shutil.copytree(path, tmp_path / "copy")
    with (copy / "commitlog" / f"{SEGMENT:020}").open("r+b") as segment:
        segment.seek(5_000)
        segment.write(b"!")
    with mqstore.open(copy) as store:
        batches = store.scan()
        iterator = iter(batches)
        with pytest.raises(mqstore.CorruptError):
            list(iterator)
        assert not batches.complete
        list(iterator)
        assert not batches.complete
        assert sum(map(len, store.scan(errors="skip"))) == MESSAGES - 1
