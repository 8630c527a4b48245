"""Shared by the crash tests: time limits, directories of stores, and the table at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import disks
import pytest
import results
import rig
from windows import Window

rows: list[results.Row] = []
measured: list[Window] = []


@pytest.fixture(scope="session")
def is_long() -> bool:
    return results.MINUTES > 0


@pytest.fixture
def layer() -> Iterator[Callable[[str], results.Layer]]:
    """Begins a layer of the table. At the end of its test it fails with the first error."""
    begun: list[results.Layer] = []

    def begin(name: str) -> results.Layer:
        begun.append(results.Layer(results.Row(name, seed=results.SEED)))
        return begun[-1]

    yield begin
    for layer in begun:
        rows.append(layer.done())
    failures = [failure for layer in begun for failure in layer.failures]
    assert not failures, f"{len(failures)} cases failed, with TORTURE_SEED={results.SEED}; the first:\n" + "\n".join(failures[:4])


@pytest.fixture
def windows() -> list[Window]:
    """Returns the losses at the end of a log after failures, of all tests."""
    return measured


@pytest.fixture
def place() -> Iterator[Path]:
    """A temporary directory, on tmpfs if the machine has it."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="mqstore-torture-", dir=memory if os.access(memory, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def mounts() -> None:
    """Gives this process mounts of its own. They end with the process, however it ends."""
    disks.enter_own_mounts()


@pytest.fixture(scope="session")
def shimmed() -> Iterator[rig.Nursery]:
    """Writers whose system calls can be counted and failed."""
    shim = rig.build_shim()
    if shim is None:
        pytest.skip("no C compiler for the shim")
    nursery = rig.Nursery(shim)
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def writers(mounts: None) -> Iterator[rig.Nursery]:
    """Writers that see the mounts of this process."""
    nursery = rig.Nursery(None)
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def shimmed_writers(mounts: None, shimmed: rig.Nursery) -> Iterator[rig.Nursery]:
    """Both."""
    nursery = rig.Nursery(rig.build_shim())
    yield nursery
    nursery.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not rows:
        return
    terminalreporter.section(f"torture, seed {results.SEED}")
    for line in results.table(rows):
        terminalreporter.write_line(line)
    for window in measured:
        terminalreporter.write_line(f"{window.summary()}")
    if results.MINUTES:
        results.append(rows)
        results.add_to_committed(rows, measured)
