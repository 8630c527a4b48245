"""Special file systems: overlayfs, as in containers, btrfs, and several paths to one store."""

from __future__ import annotations

import errno
import fcntl
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import disks
import pytest
from checker import Verdict, check_open, check_read_only, check_recovered
from results import Layer, rounds
from rig import COUNT, FAULTS, KILL_AFTER, KILL_BEFORE, Case, Journal, Nursery, crash_image, wait_until
from writer import MODES, SMALL, message

import mqstore

pytestmark = pytest.mark.slow

Begin = Callable[[str], Layer]

KINDS = ("overlay", "btrfs", "overlay on btrfs")
#: The least size that mkfs.xfs accepts.
DISK = 320 << 20
FS_IOC_GETFLAGS = 0x80086601
FS_NOCOW_FL = 0x00800000


@contextmanager
def ground(kind: str, place: Path) -> Iterator[Path]:
    """Returns the directory in which directories of that kind can be made."""
    if "btrfs" in kind:
        with disks.file_system("btrfs", DISK, place / "btrfs") as system:
            yield system.path
    else:
        yield place


@contextmanager
def laid(kind: str, root: Path, image: Path) -> Iterator[Path]:
    """A copy of the store `image`; on overlayfs it is the lower layer, which must stay as it is."""
    lower = root / "lower"
    shutil.rmtree(lower, ignore_errors=True)
    shutil.copytree(image, lower / "store")
    if "overlay" not in kind:
        yield lower / "store"
        return
    with disks.overlay(lower, root) as merged:
        yield merged / "store"
    assert contents(lower / "store") == contents(image)


def contents(path: Path) -> dict[Path, bytes]:
    """Every file below a directory."""
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def goes_on(
    writers: Nursery, place: Path, store: Path, known: list[int], at: int, fault: int, options: dict[str, Any]
) -> tuple[Journal, Verdict]:
    """A writer that continues a store until its k-th call, and what it leaves."""
    journal = place / "journal"
    journal.unlink(missing_ok=True)
    job = {"program": "continue_and_read", "path": str(store), "watched": str(store.parent), "journal": str(journal)}
    ended = writers.run(job | {"options": options, "at": at, "fault": fault, "first": max(known, default=-1) + 1})
    said = Journal.read(journal)
    verdict = check_recovered(store, [*known, *said.appended], said.in_flight, next_number=said.next_number)
    verdict.errors += said.unexpected
    if not (ended.killed or (ended.ok and said.ended)):
        verdict.errors.append(f"the writer {ended}")
    return said, verdict


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_any_call_on_such_a_file_system_loses_no_message(
    shimmed_writers: Nursery, place: Path, layer: Begin, is_long: bool, kind: str
) -> None:
    cases = layer(f"kill at each call: {kind}")
    image = place / "image"
    with ground(kind, place) as root:
        for seed in rounds(0.03):
            known = crash_image(shimmed_writers, place, 1000 * seed, image)
            with laid(kind, root, image) as store:
                said, verdict = goes_on(shimmed_writers, place, store, known, 0, COUNT, {})
                cases.add(verdict, f"{kind}, seed {seed}, no kill")
            for number, at in enumerate(range(1, len(said.calls) + 1, 1 if is_long else 12)):
                fault = (KILL_BEFORE, KILL_AFTER)[at % 2]
                with laid(kind, root, image) as store:
                    _, verdict = goes_on(shimmed_writers, place, store, known, at, fault, MODES[number % len(MODES)])
                cases.add(verdict, f"{kind}, seed {seed}, {FAULTS[fault]} call {at}")


@pytest.mark.parametrize("was_closed", [True, False], ids=["closed", "crashed"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_on_such_a_file_system_is_read_as_it_is_written(
    writers: Nursery, place: Path, layer: Begin, kind: str, was_closed: bool
) -> None:
    cases = layer(f"reading while writing: {kind}")
    case = Case(writers, place)
    job = {"path": str(case.store), "journal": str(case.journal_path), "seed": 1, "count": 8}
    writers.run(job | {"program": "append_and_flush" if was_closed else "die"})
    with ground(kind, place) as root, laid(kind, root, case.store) as store:
        known = list(case.journal().appended)
        with mqstore.open(store, "a") as opened:
            for number in range(8, 40):
                topic, body, tags, keys, _, queue = message(number, 60, 2)
                done = opened.append(topic, body, tags=tags, keys=keys, queue_id=queue)
                known.append(number)
                assert opened.message_at(done.physical_offset).body == body
                if number % 8 == 0:
                    opened.wait_dispatched(done.physical_offset, timeout=120)
                    cases.add(check_open(opened, known, []), f"{kind}, {number} messages")
        cases.add(check_read_only(store, known, []), f"{kind}, closed")


def is_overwritten_in_place(path: Path) -> bool:
    """Returns true if btrfs overwrites the blocks of a file."""
    flags = bytearray(8)
    with path.open("rb") as file:
        fcntl.ioctl(file, FS_IOC_GETFLAGS, flags)
    return bool(struct.unpack("=q", flags)[0] & FS_NOCOW_FL)


def fill_up(writers: Nursery, place: Path, store: Path, ballast: Path, harm: Callable[[], object], **more: object) -> Journal:
    """A store with one message, whose writer continues while the disk is full, until it gets an error or has appended that many.

    Each message is flushed, so that the page in which it ends is written to the disk, and then again. A full btrfs takes a second
    or two for a sync, so its writer has five minutes.
    """
    options: dict[str, Any] = SMALL | {"mapped_file_size_commit_log": 32 << 20, "max_index_num": 6000}
    with mqstore.open(store, "x", **options) as writer:
        topic, body, tags, keys, _, queue = message(0, 60, 2)
        writer.append(topic, body, tags=tags, keys=keys, queue_id=queue)
    journal = place / "journal"
    journal.unlink(missing_ok=True)
    job = {"program": "fill", "path": str(store), "journal": str(journal), "ballast": str(ballast), "options": options}
    writers.start(job | {"flushes": True, "patience": 1, "first": 1, "timeout": 300} | more)
    wait_until(lambda: Journal.read(journal).opened > 0)
    harm()
    disks.fill(ballast)
    ended, said = writers.wait(), Journal.read(journal)
    assert ended.ok, ended
    assert said.ended
    assert not said.untyped, said.untyped
    return said


@pytest.mark.parametrize("kind", ["btrfs", "overlay on btrfs"])
def test_a_full_btrfs_loses_nothing_and_heals(writers: Nursery, place: Path, layer: Begin, kind: str) -> None:
    cases = layer(f"full disk: {kind}")
    image = place / "image"
    (image / "nothing").mkdir(parents=True)
    for seed in rounds(0.01):
        with ground(kind, place) as root, laid(kind, root, image) as beside:
            store = beside.parent / "new"
            said = fill_up(writers, place, store, root / "ballast", lambda: None, size=1000 + seed % 7, most=20, more=20)
            verdict = check_read_only(store, [0, *said.intended], [])
            verdict.errors += said.unexpected
            if not (said.closed and said.reads):
                verdict.errors.append("it was not closed, or not read")
            files = [*(store / "commitlog").iterdir(), *(store / "index").iterdir()]
            verdict.errors += [f"{file} is copied on write" for file in files if not is_overwritten_in_place(file)]
            cases.add(verdict, f"{kind}, seed {seed}")


@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
def test_a_full_disk_under_a_reflinked_segment_is_reported_and_acks_hold(
    writers: Nursery, place: Path, layer: Begin, kind: str
) -> None:
    cases = layer(f"full disk under shared blocks: {kind}")
    for seed in rounds(0.01):
        with disks.file_system(kind, DISK, place / kind) as system:
            root, copy = system.path / "root", system.path / "copy"
            if kind == "btrfs":
                subprocess.run([disks.program("btrfs"), "-q", "subvolume", "create", root], check=True)
                share = [disks.program("btrfs"), "-q", "subvolume", "snapshot", str(root), str(copy)]
            else:
                root.mkdir()
                share = ["cp", "--reflink=always", str(root / "store" / "commitlog" / f"{0:020}"), str(copy)]
            more = {"size": 4000 + seed % 7, "most": 4000, "more": 1}
            harm = partial(subprocess.run, share, check=True)
            said = fill_up(writers, place, root / "store", system.path / "ballast", harm, **more)
            verdict = check_recovered(root / "store", [0, *said.acked], said.not_acked, next_number=said.next_number)
            if "PoisonedError" not in {raised[1] for raised in said.raised}:
                verdict.errors.append(f"raised {said.raised}")
            cases.add(verdict, f"{kind}, seed {seed}")


def test_a_store_is_one_store_whichever_path_leads_to_it(mounts: None, place: Path) -> None:
    store, link = place / "store", place / "link"
    link.symlink_to(store)
    with mqstore.open(store, "x", **SMALL) as writer:
        writer.append("orders", b"0")
    with disks.mounted("none", place / "bound", store, "bind") as bound:
        for number, path in enumerate((store, link, bound), start=1):
            with mqstore.open(path, "r+") as writer:
                writer.append("orders", str(number).encode())
                for other in (store, link, bound):
                    with pytest.raises(mqstore.LockedError):
                        mqstore.open(other, "r+")
            for other in (store, link, bound):
                with mqstore.open(other) as reader:
                    found = [read.body for read in reader.topics["orders"].queues[0]]
                assert found == [str(body).encode() for body in range(number + 1)]


@contextmanager
def read_only(kind: str, place: Path, store: Path) -> Iterator[Path]:
    """The directory of the store, where nothing can be written."""
    if kind == "bind":
        with disks.mounted("none", place / "seen", store.parent, "bind") as path:
            subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
            yield path / store.name
    else:
        (place / "none").mkdir()
        with disks.mounted("overlay", place / "seen", "none", f"lowerdir={store.parent}:{place / 'none'}") as path:
            yield path / store.name


@pytest.mark.parametrize("was_closed", [True, False], ids=["closed", "crashed"])
@pytest.mark.parametrize("kind", ["bind", "overlay without an upper layer"])
def test_a_store_that_cannot_be_written_is_readable_and_names_the_cause(
    writers: Nursery, place: Path, kind: str, was_closed: bool
) -> None:
    case = Case(writers, place)
    job = {"path": str(case.store), "journal": str(case.journal_path), "seed": 1, "count": 8}
    writers.run(job | {"program": "append_and_flush" if was_closed else "die"})
    with read_only(kind, place, case.store) as store:
        assert check_read_only(store, case.journal().appended, []).ok
        for mode in ("r+", "a"):
            with pytest.raises(mqstore.StoreError, match='Read-only file system.*mode "r" reads the store') as raised:
                mqstore.open(store, mode)
            assert isinstance(raised.value, OSError)
            assert raised.value.errno == errno.EROFS
