"""The stores that the tests read, and what several tests ask."""

from __future__ import annotations

import hashlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unpack import unpack

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


@pytest.fixture
def lets_others_run() -> Iterator[Callable[[Callable[[], object]], bool]]:
    """Whether a call lets go of the interpreter: another thread runs only when this one does so by itself."""
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
        first, deadline = turns, time.monotonic() + 20
        while turns == first and time.monotonic() < deadline:
            call()
        last = turns
        stop.set()
        other.join()
        return last > first

    yield does
    sys.setswitchinterval(before)
