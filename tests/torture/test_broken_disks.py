"""A disk that turns read-only or fails under a writer: an error, no later acknowledgement, reads continue, nothing is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import disks
import pytest
from checker import Verdict, check_read_only, check_recovered
from results import Layer, rounds
from rig import Journal, Nursery, tell, wait_until
from writer import MODES, SMALL, message

import mqstore

pytestmark = pytest.mark.slow

Begin = Callable[[str], Layer]

#: Large segments, so that a sync meets the failure, and small ones, so that a roll does.
SEGMENTS = {"in a segment": 8 << 20, "at a roll": 4096}


def mend(system: disks.FileSystem) -> None:
    """Restores the state after a boot: memory is empty, and the file system is repaired."""
    system.umount()
    subprocess.run([disks.program("e2fsck"), "-fy", system.disk.device], capture_output=True, check=False)
    system.mount()


def has_read(journal: Path) -> bool:
    return Journal.read(journal).reads > 0


def told(journal: Journal, verdict: Verdict, must_read: bool) -> Verdict:
    """Returns the verdict, with the error that a writer should have got."""
    verdict.errors += journal.unexpected
    if not journal.ended:
        verdict.errors.append("the writer did not come to its end")
    if not journal.raised:
        verdict.errors.append("nobody was told")
    if must_read and not journal.reads:
        verdict.errors.append("what was appended could not be read any more")
    return verdict


def break_under(
    writers: Nursery, place: Path, store: Path, segment: int, seed: int, harm: Callable[[], object]
) -> tuple[Journal, bool]:
    """Takes the disk away from a writer. Returns its journal, and whether it ended by itself."""
    journal = place / "journal"
    journal.unlink(missing_ok=True)
    options = {"mapped_file_size_commit_log": segment, "flush_interval_commit_log": 20} | MODES[seed % len(MODES)]
    job = {"program": "endless", "path": str(store), "journal": str(journal), "seed": seed, "options": options, "patience": 5}
    writers.start(job)
    wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\nacked") > 3 + seed % 7)
    tell(journal, "cut")
    harm()
    ended = writers.wait()
    return Journal.read(journal), ended.ok


@pytest.mark.parametrize("segments", SEGMENTS)
def test_a_disk_that_becomes_read_only_is_reported_and_all_acks_hold(
    writers: Nursery, place: Path, layer: Begin, is_long: bool, segments: str
) -> None:
    cases = layer(f"read-only disk: {segments}")
    for seed in rounds(0.015):
        for number in range(4):
            with disks.file_system("ext4", 64 << 20, place / "ext4", "errors=remount-ro") as system:
                store = system.path / "store"
                trigger = Path("/sys/fs/ext4") / Path(system.disk.device).name / "trigger_fs_error"
                if not trigger.exists():
                    pytest.skip("this kernel does not let an error of ext4 be made")
                harm = lambda trigger=trigger: trigger.write_text("made by a test")  # noqa: E731
                journal, ok = break_under(writers, place, store, SEGMENTS[segments], seed + number, harm)
                must, may = journal.acked, journal.not_acked
                # Concurrently another process reads everything that was acknowledged.
                meanwhile = check_read_only(store, must, may)
                mend(system)
                verdict = check_recovered(store, must, may, next_number=10_000_000)
                verdict.errors += [f"read-only: {error}" for error in meanwhile.errors] + ([] if ok else ["the writer died"])
                # What waited in a pool when the disk went cannot be read.
                cases.add(told(journal, verdict, must_read=not journal.has_pool), f"{segments}, seed {seed + number}")


def test_a_store_on_a_read_only_disk_is_read_and_not_written(mounts: None, place: Path) -> None:
    with disks.file_system("ext4", 16 << 20, place / "ext4") as system:
        store = system.path / "store"
        with mqstore.open(store, "x", **SMALL) as writer:
            writer.append("orders", b"x")
        system.umount()
        system.options = ("ro",)
        system.mount()
        with mqstore.open(store) as reader:
            assert [message.body for message in reader.topics["orders"].queues[0]] == [b"x"]
        for mode in ("r+", "a"):
            with pytest.raises(mqstore.StoreError) as raised:
                mqstore.open(store, mode)
            assert isinstance(raised.value, OSError)


@pytest.mark.parametrize("segments", SEGMENTS)
def test_a_disk_that_is_pulled_out_is_reported_and_all_acks_hold(
    writers: Nursery, place: Path, layer: Begin, is_long: bool, segments: str
) -> None:
    cases = layer(f"pulled disk: {segments}")
    for seed in rounds(0.015):
        for number in range(3):
            with disks.pluggable(64 << 20, place) as disk:
                store = disk.inner.path / "store"
                journal, ok = break_under(writers, place, store, SEGMENTS[segments], seed + number, disk.pull)
                disk.plug()
                verdict = check_recovered(store, journal.acked, journal.not_acked, next_number=journal.next_number)
                verdict.errors += [] if ok else ["the writer died"]
                # What waited in a pool when the disk went cannot be read.
                cases.add(told(journal, verdict, must_read=not journal.has_pool), f"{segments}, seed {seed + number}")


def test_a_reader_whose_disk_is_pulled_out_reads_or_gets_an_error(writers: Nursery, place: Path, layer: Begin) -> None:
    cases = layer("pulled disk: reader")
    for count in (500, 2000):
        with disks.pluggable(64 << 20, place) as disk:
            store, journal, go = disk.inner.path / "store", place / f"journal{count}", place / f"go{count}"
            with mqstore.open(store, "x", **SMALL) as writer:
                writer.append_batch([message(number, 300, 2) for number in range(count)])
            # So that no page of it is in memory.
            disk.inner.umount()
            disk.inner.mount()
            writers.start(
                {
                    "program": "read_on",
                    "path": str(store),
                    "journal": str(journal),
                    "go": str(go),
                    "size": 300,
                    "first_part": 40,
                }
            )
            wait_until(partial(has_read, journal))
            disk.pull()
            tell(journal, "cut")
            go.touch()
            ended = writers.wait()
            said = Journal.read(journal)
            disk.plug()
            verdict = told(said, check_read_only(store, range(count), []), must_read=True)
            verdict.errors += [] if ended.ok else [f"the reader {ended}"]
            cases.add(verdict, f"reader of {count} messages")
