"""A power cut loses nothing that was acknowledged, and messages that a recovered store showed stay."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import disks
import pytest
from checker import Verdict, check_recovered
from results import Layer, rounds
from rig import SKIP, Journal, Nursery, tell, wait_until
from writer import MODES, SMALL

pytestmark = pytest.mark.slow

Begin = Callable[[str], Layer]

#: The least size for mkfs.xfs, and for a journal with mkfs.ext4.
SIZES = {"ext4": 64 << 20, "xfs": 320 << 20}


class Machine:
    """A store on a file system that loses its power again and again."""

    def __init__(self, writers: Nursery, system: disks.FileSystem, journal: Path, chance: random.Random) -> None:
        self.writers, self.system, self.journal, self.chance = writers, system, journal, chance
        self.begin_anew()

    def begin_anew(self) -> None:
        """Continues with a store that does not exist yet."""
        self.store = self.system.path / f"store{self.chance.getrandbits(40):010}"
        #: The messages that were there when the store was recovered last.
        self.known: list[int] = []
        self.next = 0
        segment, flushed_every = self.chance.choice([4096, 65_536]), self.chance.choice([5, 3_600_000])
        self.options = SMALL | {"mapped_file_size_commit_log": segment, "max_hash_slot_num": 50, "max_index_num": 500}
        self.options["flush_interval_commit_log"] = flushed_every
        self.options |= self.chance.choice(MODES)

    def cycle(self, seconds: float, *, after_an_ack: bool = False, **more: object) -> Verdict:
        """Writes for a while, loses power, and recovers."""
        self.journal.unlink(missing_ok=True)
        job = {"program": "endless", "path": str(self.store), "journal": str(self.journal), "first": self.next}
        job |= {"seed": self.chance.getrandbits(32), "options": self.options, **more}
        self.writers.start(job)
        if after_an_ack:
            wait_until(lambda: bool(Journal.read(self.journal).acked))
        time.sleep(seconds)
        tell(self.journal, "cut")
        self.system.shut_down(self.chance.choice([disks.LOSE_ALL, disks.KEEP_NAMES]))
        # After the cut it gets an error, not an ack; it may see that error, or not come to it.
        if self.chance.random() < 0.5:
            time.sleep(0.002)
        self.writers.kill()
        self.system.umount()
        self.system.mount()
        return self.check(Journal.read(self.journal))

    def check(self, journal: Journal) -> Verdict:
        must, may = journal.acked, journal.not_acked
        self.next += 1_000_000
        verdict = check_recovered(self.store, [*self.known, *must], may, next_number=self.next, new=self.options)
        verdict.errors += journal.unexpected
        self.known = verdict.present
        self.next += 1
        return verdict


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("stores", ["one store", "a new store each time"])
def test_a_power_cut_loses_nothing_that_was_acknowledged(
    writers: Nursery, place: Path, layer: Begin, is_long: bool, kind: str, stores: str
) -> None:
    cases = layer(f"power cut: {kind}, {stores}")
    for seed in rounds(0.08):
        chance = random.Random(seed)
        with disks.file_system(kind, SIZES[kind], place / kind) as system:
            machine = Machine(writers, system, place / "journal", chance)
            for number in range(12):
                verdict = machine.cycle(chance.random() * 0.04)
                if not cases.add(verdict, f"{kind}, {stores}, seed {seed}, cut {number}"):
                    break
                if stores != "one store":
                    shutil.rmtree(machine.store)
                    machine.begin_anew()


def test_power_cuts_find_a_store_that_does_not_sync(shimmed_writers: Nursery, place: Path) -> None:
    chance = random.Random(1)
    with disks.file_system("ext4", SIZES["ext4"], place / "ext4") as system:
        machine = Machine(shimmed_writers, system, place / "journal", chance)
        lost = 0
        for _number in range(40):
            shim = {"watched": f"{machine.store}/commitlog", "at": 1, "fault": SKIP, "sticky": True}
            lost += machine.cycle(0.03, after_an_ack=True, **shim).lost
            if lost:
                return
            machine.begin_anew()
    pytest.fail("no message was lost, although no sync of the log was made")
