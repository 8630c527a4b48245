"""Readers in other processes beside a writer that is stopped and killed, while segments expire and a topic is deleted."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import results
from checker import Verdict

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("beside.py")
READERS = ("follow", "follow", "follow", "tail", "tail", "refresh", "refresh", "refresh")
#: How long it takes at least, in seconds, and its share of the time of `make torture`.
LEAST, SHARE = 60, 0.05
#: Segments that are kept: more than a reader can have left to read.
KEPT = 24


def started(role: str, path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, PROGRAM, role, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def expire(path: Path) -> None:
    segments = sorted((path / "commitlog").iterdir())
    for segment in segments[:-KEPT]:
        segment.unlink()


def disturb(chance: random.Random, path: Path, writer: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Does one thing to the store or its writer; the writer from then on."""
    what = chance.choice(["expire", "stop", "kill", "delete"])
    if what == "expire":
        expire(path)
    elif what == "stop":
        writer.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        writer.send_signal(signal.SIGCONT)
    else:
        writer.kill()
        writer.communicate()
        if what == "delete":
            shutil.rmtree(path / "consumequeue" / "victim", ignore_errors=True)
            time.sleep(0.3)
        return started("write", path)
    return writer


def test_readers_beside_a_writer_see_whole_messages_and_miss_none(place: Path, layer: Callable[[str], results.Layer]) -> None:
    cases, path, chance = layer("readers in other processes beside a writer"), place / "store", random.Random(results.SEED)
    writer = started("write", path)
    while not list((path / "commitlog").glob("0*")):
        time.sleep(0.01)
    readers = [started(role, path) for role in READERS]
    until = time.monotonic() + max(LEAST, SHARE * results.MINUTES * 60)
    while time.monotonic() < until:
        time.sleep(0.2 + chance.random() * 0.3)
        writer = disturb(chance, path, writer)
    # The readers end first: the appends that they wait for continue while they do.
    ends = [reader.communicate("") for reader in readers]
    ended = writer.communicate("")
    for role, reader, (out, err) in zip(READERS, readers, ends, strict=True):
        verdict = Verdict()
        if reader.returncode != 0 or int(out or 0) == 0:
            verdict.errors.append(f"{role} has read {out.strip() or 'nothing'}: {err[-2000:]}")
        cases.add(verdict, role)
    assert writer.returncode == 0, ended
