"""Python's faulthandler replaces every handler of SIGBUS: the guard comes back, and each serves its own faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mqstore

PAGE = 4096

#: Opens the store, does the steps, and then meets a fault under the guard and one of somebody else's mapping.
PROGRAM = """
import faulthandler, mmap, os, resource, sys
import mqstore

path, *steps = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
segments = sorted(os.listdir(f"{path}/commitlog"))
unread = iter(range(0, 3 * len(segments), 3))
for step in steps:
    match step:
        case "enable":
            faulthandler.enable()
        case "disable":
            faulthandler.disable()
        case "open":
            store = mqstore.open(path)
        case "map":
            last = next(unread)
            assert store.topics["orders"].queues[0][last].body == b"x" * 1000
lost = f"{path}/commitlog/{segments[last // 3]}"
os.truncate(lost, 0)
try:
    store.topics["orders"].queues[0][last]
except mqstore.CorruptError as error:
    print("got:", lost in str(error))
with open(f"{path}/foreign", "w+b") as file:
    file.truncate(4096)
    foreign = mmap.mmap(file.fileno(), 4096)
    os.truncate(file.fileno(), 0)
    print("next:", flush=True)
    foreign[0]
print("survived")
"""


def faults(path: Path, steps: str) -> subprocess.CompletedProcess[str]:
    """A process of its own that does the steps; it must not hang."""
    command = [sys.executable, "-c", PROGRAM, str(path), *steps.split()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of many segments, three messages in each."""
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=PAGE) as store:
        for _number in range(24):
            store.append("orders", b"x" * 1000)
    return path


@pytest.mark.parametrize(
    ("steps", "traces"),
    [
        ("open map", 0),
        ("enable open map", 1),
        ("open map enable map", 1),
        ("open enable map enable map", 1),
        ("open map enable map disable map", 0),
        ("open enable map disable enable map", 1),
        ("enable open map disable map", 0),
        ("enable open map disable map enable map", 1),
        ("open enable disable enable map disable map", 0),
        ("enable open disable map enable map disable enable map", 1),
    ],
)
def test_the_guard_and_faulthandler_each_serve_their_own_faults(path: Path, steps: str, traces: int) -> None:
    done = faults(path, steps)
    assert done.stdout.splitlines() == ["got: True", "next:"], done
    assert done.returncode == -signal.SIGBUS, done
    assert done.stderr.count("Fatal Python error: Bus error") == traces, done


def test_a_writer_counts_the_faults_since_its_open(path: Path) -> None:
    for _ in range(2):
        with mqstore.open(path, "r+") as store:
            assert store.stats().mapping_faults == 0
            segments = sorted((path / "commitlog").iterdir())
            queue = store.topics["orders"].queues[0]
            for lost, first in ((segments[1], 3), (segments[2], 6)):
                whole = lost.read_bytes()
                assert queue[first].body == b"x" * 1000
                os.truncate(lost, 0)
                for number in (first, first + 1):
                    with pytest.raises(mqstore.CorruptError, match=lost.name):
                        queue[number]
                lost.write_bytes(whole)
            stats = store.stats()
            assert stats.mapping_faults == stats.to_dict()["mapping_faults"] == 2
            assert "mapping_faults=2" in repr(stats)
