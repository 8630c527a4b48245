"""A disk that is full, at every 4 KiB across a roll: a typed error, nothing lost, and appends work again when there is room."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import disks
import pytest
from checker import Verdict, check_open, check_read_only
from results import Layer, rounds
from rig import Journal, Nursery, wait_until
from writer import MODES, SMALL

import mqstore

Begin = Callable[[str], Layer]

BLOCK = 4096
#: A roll takes 16 blocks for the segment; queues, index, directories and their own blocks come on top.
SIZES: dict[str, Any] = SMALL | {
    "mapped_file_size_commit_log": 16 * BLOCK,
    "mapped_file_size_consume_queue": 4000,
    "max_index_num": 400,
}
#: Free blocks that are enough for everything: two rolls and all that comes with them.
ENOUGH = 64


@contextmanager
def small(kind: str, path: Path) -> Iterator[Callable[[], int]]:
    """A file system of that kind at `path`, and how much of it is free."""

    def free() -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    if kind == "tmpfs":
        with disks.tmpfs(path, 8 << 20):
            yield free
    else:
        with disks.file_system(kind, 16 << 20, path):
            yield free


def leave_free(path: Path, free: Callable[[], int], blocks: int) -> None:
    """A ballast file that leaves this many blocks. It gets its name when it has its full size."""
    made = path.with_suffix(".made")
    with made.open("wb") as file:
        size, most = 0, free() // BLOCK
        while (rest := min(free() // BLOCK - blocks, most)) > 0:
            try:
                os.posix_fallocate(file.fileno(), size, rest * BLOCK)
                size += rest * BLOCK
            except OSError as error:
                # ext4 may refuse the last of the blocks that it counts as free.
                if error.errno != errno.ENOSPC:
                    raise
                most = rest // 2
    made.rename(path)


def filled(writers: Nursery, place: Path, root: Path, free: Callable[[], int], blocks: int) -> Verdict:
    """A store that rolls twice, on a disk with room for less, exactly enough, or more."""
    store, journal, ballast = root / f"store{blocks}", place / "journal", root / "ballast"
    journal.unlink(missing_ok=True)
    job = {"program": "fill", "path": str(store), "journal": str(journal), "ballast": str(ballast)}
    options = SIZES | MODES[blocks % len(MODES)]
    writers.start(job | {"options": options, "size": 4000, "most": 36, "more": 20})
    # The store is opened while there is room, so that the roll meets the full disk.
    wait_until(lambda: Journal.read(journal).opened > 0)
    leave_free(ballast, free, blocks)
    ended = writers.wait()
    said = Journal.read(journal)
    verdict = check_read_only(store, said.intended, [])
    with mqstore.open(store, **SIZES) as reader:
        if not reader.recovery.clean_exit:
            verdict.errors.append("closed, and not clean")
    if not (ended.ok and said.ended and said.closed):
        verdict.errors.append(f"the writer {ended}, closed {said.closed} times")
    verdict.errors += said.untyped
    # One append is refused, and what was appended is read; nothing is raised once there is room.
    wrong = [raised for raised in said.raised if raised[:2] != ("append", "DiskFullError")]
    verdict.errors += [f"raised {raised}" for raised in wrong]
    if len(said.raised) > 1:
        verdict.errors.append(f"raised more than once: {said.raised}")
    return verdict


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_a_disk_that_is_full_anywhere_in_a_roll_loses_nothing_and_heals(
    writers: Nursery, place: Path, layer: Begin, is_long: bool, kind: str
) -> None:
    cases = layer(f"full disk: {kind}")
    refused = 0
    for _seed in rounds(0.015):
        for blocks in range(0, ENOUGH, 1 if is_long else 5):
            with small(kind, place / kind) as free:
                cases.add(filled(writers, place, place / kind, free, blocks), f"{kind}, {blocks} blocks free")
                refused += bool(Journal.read(place / "journal").raised)
    assert refused > 5


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_a_store_without_room_to_open_says_so_and_opens_later(
    mounts: None, place: Path, layer: Begin, is_long: bool, kind: str
) -> None:
    cases = layer(f"full disk at open: {kind}")
    refused = 0
    with small(kind, place / kind) as free:
        for blocks in range(0, 24, 1 if is_long else 3):
            store, ballast, verdict = place / kind / f"store{blocks}", place / kind / "ballast", Verdict()
            leave_free(ballast, free, blocks)
            try:
                with mqstore.open(store, "a", **SIZES) as opened:
                    opened.append("orders", b"x")
            except mqstore.StoreError as error:
                refused += 1
                if not isinstance(error, OSError) or "no space" not in str(error).lower():
                    verdict.errors.append(f"{type(error).__name__}: {error}")
            ballast.unlink()
            with mqstore.open(store, "a", **SIZES) as opened:
                verdict.errors += check_open(opened, [], []).errors if not opened.topics else []
                opened.append("orders", b"y")
            cases.add(verdict, f"{kind}, {blocks} blocks free")
    assert refused > 2
