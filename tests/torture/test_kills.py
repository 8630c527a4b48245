"""A killed writer loses nothing that its append returned for, also if it is killed while it recovers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checker import Verdict, check_recovered
from results import Layer, rounds
from rig import COUNT, FAULTS, KILL_AFTER, KILL_BEFORE, PROGRAMS, Case, Journal, Nursery, crash_image
from writer import MODES

Begin = Callable[[str], Layer]


def judged(case: Case, journal: Journal) -> Verdict:
    """Compares the store with what was appended and what was there before."""
    verdict = check_recovered(case.store, [*case.known, *journal.appended], journal.in_flight, next_number=journal.next_number)
    verdict.errors += journal.unexpected
    return verdict


def kill_at(case: Case, program: str, at: int, fault: int) -> Verdict:
    """Runs a program until its k-th call."""
    ended = case.run(program, at=at, fault=fault)
    journal = case.journal()
    verdict = judged(case, journal)
    if not (ended.killed or (ended.ok and journal.ended)):
        verdict.errors.append(f"the writer {ended}")
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_kill_at_any_system_call_loses_nothing_that_was_appended(
    shimmed: Nursery, place: Path, layer: Begin, is_long: bool, program: str
) -> None:
    cases = layer(f"kill at each call: {program}")
    for _seed in rounds(0.01):
        for at in Case(shimmed, place).calls(program, most=None if is_long else 120):
            for fault in (KILL_BEFORE, KILL_AFTER):
                cases.add(kill_at(Case(shimmed, place), program, at, fault), f"{program}, {FAULTS[fault]} call {at}")


def test_a_kill_at_any_call_of_any_program_loses_nothing_that_was_appended(
    shimmed: Nursery, place: Path, layer: Begin, is_long: bool
) -> None:
    cases = layer("kill at each call: any program")
    for seed in rounds(0.07):
        for at in Case(shimmed, place, seed).calls("anything", most=None if is_long else 60):
            fault = (KILL_BEFORE, KILL_AFTER)[at % 2]
            cases.add(kill_at(Case(shimmed, place, seed), "anything", at, fault), f"seed {seed}, {FAULTS[fault]} call {at}")


def test_a_kill_at_any_moment_loses_nothing_that_was_appended(shimmed: Nursery, place: Path, layer: Begin, is_long: bool) -> None:
    cases = layer("kill at any moment")
    for seed in rounds(0.07):
        chance = random.Random(seed)
        for number in range(60):
            case = Case(shimmed, place, seed + number)
            case.start("endless", at=0, fault=COUNT, options=MODES[number % len(MODES)])
            time.sleep(chance.random() * 0.03)
            shimmed.kill()
            cases.add(judged(case, case.journal()), f"endless, seed {seed + number}")


@pytest.mark.slow
@pytest.mark.parametrize("deep", [2, 3])
def test_a_kill_inside_recovery_loses_nothing_either(
    shimmed: Nursery, place: Path, layer: Begin, is_long: bool, deep: int
) -> None:
    cases = layer(f"kill inside recovery, {deep} deep")
    for seed in rounds(0.06):
        chance = random.Random(seed)
        for number in range(3):
            image = place / "image"
            known = crash_image(shimmed, place, 1000 * seed + number, image)
            calls = Case(shimmed, place, image=image, known=known).count_calls("go_on")
            for at in range(1, calls + 1):
                case = Case(shimmed, place, image=image, known=known)
                for _ in range(deep - 2):
                    case.run("go_on", at=chance.randrange(1, calls + 1), fault=KILL_BEFORE)
                    case.learn()
                fault = (KILL_BEFORE, KILL_AFTER)[at % 2]
                cases.add(
                    kill_at(case, "go_on", at, fault), f"seed {1000 * seed + number}, {FAULTS[fault]} call {at} of recovery"
                )
