"""A failure takes what was acknowledged from nobody, and of the rest no more than docs/DURABILITY.md states."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import disks
import pytest
from checker import check_recovered
from results import Layer, rounds
from rig import Journal, Nursery, tell, wait_until
from windows import KILL, MODES, POWER_CUT, SLOW_MODES, Mode, Window, window

Begin = Callable[[str], Layer]

#: Of the disk that all stores lie on.
SIZES = {"ext4": 256 << 20, "xfs": 320 << 20}
#: Small files, so that many stores fit. The interval is the default, which the programs of `writer.py` do without.
STORE: dict[str, Any] = {
    "flush_interval_commit_log": 500,
    "mapped_file_size_commit_log": 4 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1000,
    "max_index_num": 10_000,
}


class Stores:
    """Stores that are written at the same time, each by a process of its own, at a pace."""

    def __init__(self, nurseries: Sequence[Nursery], modes: Sequence[Mode], root: Path, place: Path, seed: int) -> None:
        self.modes, self.seed = modes, seed
        self.written = list(zip(nurseries, modes, strict=True))
        self.stores = [root / f"store{number}" for number in range(len(modes))]
        self.journals = [place / f"journal{number}" for number in range(len(modes))]
        for path in (*self.stores, *self.journals):
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)

    def start(self, number: int) -> None:
        nursery, mode = self.written[number]
        job = {"program": "paced", "path": str(self.stores[number]), "journal": str(self.journals[number]), "timeout": 110}
        job |= {
            "size": mode.size,
            "pace": mode.pace,
            "durable_every": mode.durable_every,
            "durable": mode.durable,
            "options": STORE | mode.options,
        }
        nursery.start(job)

    def start_all(self) -> None:
        for number in range(len(self.modes)):
            self.start(number)
        wait_until(lambda: all(Journal.read(journal).returned > 0 for journal in self.journals))

    def kill(self, number: int) -> None:
        assert self.written[number][0].kill().killed

    def check(self, number: int, failure: str, failed_at: int, cases: Layer, windows: list[Window]) -> None:
        mode, journal = self.modes[number], Journal.read(self.journals[number])
        is_kill = failure == KILL
        must = journal.appended if is_kill else journal.acked
        may = journal.in_flight if is_kill else journal.not_acked
        verdict = check_recovered(self.stores[number], must, may, next_number=journal.next_number, new=STORE)
        verdict.errors += journal.unexpected
        if verdict.ok:
            verdict.errors += window(windows, mode, failure).add(journal, failed_at, verdict.present)
        cases.add(verdict, f"{mode.name}, seed {self.seed}")


@contextmanager
def nurseries(count: int) -> Iterator[list[Nursery]]:
    """The number of processes that can write at the same time."""
    made = [Nursery(None) for _ in range(count)]
    try:
        yield made
    finally:
        for nursery in made:
            nursery.close()


def cut(system: disks.FileSystem, stores: Stores, chance: random.Random, cases: Layer, windows: list[Window]) -> None:
    """Shuts the disk of all stores down, and looks at what is left of each."""
    failed_at = time.monotonic_ns()
    for journal in stores.journals:
        tell(journal, "cut")
    system.shut_down(chance.choice([disks.LOSE_ALL, disks.KEEP_NAMES]))
    for nursery, _ in stores.written:
        nursery.kill()
    system.umount()
    system.mount()
    for number in range(len(stores.modes)):
        stores.check(number, POWER_CUT, failed_at, cases, windows)


def test_a_kill_takes_no_more_than_is_stated(place: Path, layer: Begin, windows: list[Window]) -> None:
    cases = layer("loss window: process killed")
    with nurseries(len(MODES)) as made:
        for seed in rounds(0.02):
            chance = random.Random(seed)
            stores = Stores(made, MODES, place, place, seed)
            stores.start_all()
            time.sleep(0.3)
            failed_at = []
            for number in range(len(MODES)):
                time.sleep(chance.random() * 0.3)
                failed_at.append(time.monotonic_ns())
                stores.kill(number)
            for number, at in enumerate(failed_at):
                stores.check(number, KILL, at, cases, windows)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_cut_takes_no_more_than_is_stated(
    mounts: None, place: Path, layer: Begin, windows: list[Window], kind: str
) -> None:
    cases = layer(f"loss window: power cut, {kind}")
    with nurseries(len(MODES)) as made:
        for seed in rounds(0.03):
            chance = random.Random(seed)
            with disks.file_system(kind, SIZES[kind], place / kind) as system:
                stores = Stores(made, MODES, system.path, place, seed)
                stores.start_all()
                time.sleep(0.7 + 1.3 * chance.random())
                cut(system, stores, chance, cases, windows)


def test_a_power_cut_takes_no_more_of_a_slow_writer_than_is_stated(
    mounts: None, place: Path, layer: Begin, windows: list[Window], is_long: bool
) -> None:
    if not is_long:
        pytest.skip("takes 15 s: `make torture` runs it")
    cases = layer("loss window: power cut, slow writers")
    modes = SLOW_MODES * 4
    with nurseries(len(modes)) as made:
        for seed in rounds(0.04):
            chance = random.Random(seed)
            with disks.file_system("ext4", SIZES["ext4"], place / "ext4") as system:
                stores = Stores(made, modes, system.path, place, seed)
                # So that each store is at another moment of its intervals when the power goes.
                for number in range(len(modes)):
                    stores.start(number)
                    time.sleep(chance.random() * 1.5)
                time.sleep(8 + 4 * chance.random())
                cut(system, stores, chance, cases, windows)
