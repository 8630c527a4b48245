"""Every system call fails once, or from then on: a typed error, no false ack, no sync tried again, nothing lost."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checker import Verdict, check_recovered
from results import Layer, in_time, rounds
from rig import FAIL, OLD, PROGRAMS, SHORT, SYNCS, Call, Case, Ended, Journal, Nursery, crash_image

pytestmark = pytest.mark.slow

Begin = Callable[[str], Layer]

NAMES = ("EIO", "ENOSPC", "EDQUOT", "EFBIG", "EROFS", "ENOMEM", "EMFILE", "ENFILE")
FULL = ("ENOSPC", "EDQUOT", "EFBIG")
#: No memory or no descriptor is left.
SHORT_OF = ("ENOMEM", "EMFILE", "ENFILE")
#: The calls that make a segment before its name is synced. A sync of the log maps what it syncs, or else syncs the whole file.
MAKES = ("create", "fallocate", "pwrite", "pwrite-zeros", "fdatasync", "fsync", "mmap", "msync", "rename", "link")
#: The calls that need a descriptor or a mapping.
OPENS = ("open", "opendir", "create", "mmap")


def is_best_effort(call: Call) -> bool:
    """Returns true if the call may fail: it removes a file that an earlier process left, or writes the mark of what was
    flushed."""
    if call.name == "pwrite":
        return call.path == "store/config/mqstore.flushed"
    return call.name == "unlink" and ("mqstore-new-" in call.path or call.path.endswith(".new"))


def is_derived(call: Call) -> bool:
    return "/consumequeue" in call.path or "/index" in call.path


def is_ahead_of_need(call: Call) -> bool:
    """Returns true if the call makes a segment of the log. An append that needs it makes it again, and reports a failure then."""
    return re.search(r"/(mqstore-new-|commitlog/)\d{20}$", call.path) is not None and call.name in MAKES


def is_commit(journal: Journal) -> bool:
    """Returns true if the fault is in a write of pool bytes to the log."""
    fault = journal.fault
    return journal.was_pooled and fault is not None and fault.name == "pwrite" and fault.path.startswith("store/commitlog/")


def is_of_the_log(call: Call) -> bool:
    """A sync that acks rest on: of a segment under its own name, or of the directory that has its name."""
    return call.name in SYNCS and call.path.startswith("store/commitlog")


def judged(journal: Journal, verdict: Verdict, error: str, sticky: bool) -> Verdict:
    """The verdict, with errors that the writer missed and errors that it should not have got."""
    fault = journal.fault
    verdict.errors += [f"untyped: {untyped}" for untyped in journal.untyped]
    if fault is None:
        verdict.errors += [f"raised {raised} without a fault" for raised in journal.raised]
        return verdict
    # Derived files are written again when there is room, and read from the log where they cannot be read.
    is_waited_out = is_derived(fault) and (error in FULL + SHORT_OF or fault.name == "mmap")
    # The dispatcher maps the log for reading.
    healed = not sticky and (is_waited_out or (error in FULL + SHORT_OF and fault.name in ("mmap", "opendir")))
    if is_commit(journal):
        # It is tried again.
        healed |= error in FULL + SHORT_OF and not sticky
        verdict.errors += commit_misjudged(journal, error, sticky)
    else:
        healed |= is_ahead_of_need(fault) and not is_of_the_log(fault)
    if (
        error in SHORT_OF
        and fault.name in OPENS
        and not sticky
        and any(kind == "PoisonedError" for _, kind, *_ in journal.raised)
    ):
        verdict.errors.append(f"poisoned by a shortage: {journal.raised}")
    if not journal.raised and not is_best_effort(fault) and not healed:
        verdict.errors.append(f"no call reported {fault}")
    if not journal.raised and not journal.closed:
        verdict.errors.append("not closed, and nothing raised")
    if is_of_the_log(fault):
        # A directory is synced for a segment that holds no message yet, while another thread syncs messages.
        is_of_messages = fault.path != "store/commitlog"
        if is_of_messages and journal.acks_before is not None and journal.acks_after > journal.acks_before:
            verdict.errors.append(f"{journal.acks_after} acknowledged after a failed sync at {journal.acks_before}")
        again = [call for call in journal.calls_after if call.name in SYNCS and call.path == fault.path]
        if again:
            verdict.errors.append(f"the sync was tried again: {again}")
        # A close removes the segment that was made and not used, and syncs the directory then. No message rests on that.
        ending = ("open", "close") if fault.path == "store/commitlog" else ("open",)
        if not any(kind == "PoisonedError" or call in ending for call, kind, *_ in journal.raised):
            verdict.errors.append(f"not poisoned: {journal.raised}")
    verdict.errors += appended_when_poisoned(journal)
    return verdict


def commit_misjudged(journal: Journal, error: str, sticky: bool) -> Iterator[str]:
    """A failed commit poisons the store, unless there was a shortage. Then nothing is acknowledged or written to the log."""
    is_poisoned = any(kind == "PoisonedError" for _, kind, *_ in journal.raised)
    if error in FULL + SHORT_OF:
        # From then on syncs fail, too.
        if is_poisoned and not sticky:
            yield f"poisoned by a shortage at a commit: {journal.raised}"
        return
    if not is_poisoned:
        yield f"not poisoned by a failed commit: {journal.raised}"
    if journal.acks_before is not None and journal.acks_after > journal.acks_before:
        yield f"{journal.acks_after} acknowledged after a failed commit at {journal.acks_before}"
    again = [call for call in journal.calls_after if call.name.startswith("pwrite") and call.path.startswith("store/commitlog/")]
    if again:
        yield f"the log was written to after a failed commit: {again}"


def appended_when_poisoned(journal: Journal) -> Iterator[str]:
    """Messages that a store accepted after it was poisoned."""
    poisoned = False
    for line in journal.after:
        poisoned |= "PoisonedError" in line
        if poisoned and line.startswith("appended"):
            yield f"{line}, when poisoned"


def fail_at(case: Case, program: str, at: int, error: str, sticky: bool) -> Verdict:
    """Runs a program whose k-th call fails, and compares its errors and the store with what it did."""
    patience = 0.2 if error in FULL + SHORT_OF else 20.0
    ended = case.run(program, at=at, fault=FAIL, errno=getattr(errno, error), sticky=sticky, patience=patience)
    journal = case.journal()
    if journal.fault is None and patience < 1:
        # This run has made fewer calls. A machine that does not run the dispatcher for that long lets a wait end.
        journal.raised = [raised for raised in journal.raised if raised[1] not in ("WaitTimeoutError", "BusyError")]
    # What was appended and not taken back is there; of what waited in a pool, the first of it.
    verdict = check_recovered(case.store, [*case.known, *journal.appended], journal.in_flight, next_number=journal.next_number)
    if not (ended.ok and journal.ended):
        verdict.errors.append(f"the writer {ended}")
    return judged(journal, verdict, error, sticky)


EVERY = [(name, sticky) for name in NAMES for sticky in (False, True)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_failing_system_call_is_reported_without_loss(
    shimmed: Nursery, place: Path, layer: Begin, is_long: bool, program: str
) -> None:
    cases = layer(f"fail each call: {program}")
    for seed in rounds(0.015):
        chance = random.Random(seed)
        # Each commit of the pool fails in a test of its own.
        most = 60 if program == "pool" else 120
        every = [(at, fault) for at in Case(shimmed, place).calls(program, None if is_long else most) for fault in EVERY]
        few = [(at, fault) for at, _ in every[:: len(EVERY)] for fault in (("EIO", False), chance.choice(EVERY))]
        for at, (name, sticky) in in_time(0.015, every if is_long else few, seed):
            verdict = fail_at(Case(shimmed, place), program, at, name, sticky)
            cases.add(verdict, f"{program}, call {at} fails with {name}{' from then on' if sticky else ''}")


def test_a_failing_system_call_inside_recovery_is_reported_without_loss(
    shimmed: Nursery, place: Path, layer: Begin, is_long: bool
) -> None:
    cases = layer("fail each call of recovery")
    for seed in rounds(0.04):
        chance = random.Random(seed)
        for number in range(3):
            image = place / "image"
            known = crash_image(shimmed, place, 1000 * seed + number, image)
            for at in Case(shimmed, place, image=image, known=known).calls("go_on"):
                name, sticky = chance.choice(EVERY)
                verdict = fail_at(Case(shimmed, place, image=image, known=known), "go_on", at, name, sticky)
                cases.add(verdict, f"seed {1000 * seed + number}, call {at} of recovery fails with {name}, {sticky=}")


def unaffected(case: Case, ended: Ended) -> Verdict:
    """The verdict on a fault that must have no effect."""
    journal = case.journal()
    verdict = check_recovered(case.store, journal.intended, [], next_number=journal.next_number)
    if not (ended.ok and journal.ended and journal.closed):
        verdict.errors.append(f"the writer {ended}, closed {journal.closed} times")
    verdict.errors += journal.unexpected
    return verdict


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupted_call_is_made_again_and_nobody_notices(
    shimmed: Nursery, place: Path, layer: Begin, is_long: bool, program: str
) -> None:
    cases = layer(f"interrupt each call: {program}")
    for seed in rounds(0.004):
        for at in Case(shimmed, place).calls(program, most=None if is_long else 60):
            case = Case(shimmed, place, seed)
            ended = case.run(program, at=at, fault=FAIL, errno=errno.EINTR)
            cases.add(unaffected(case, ended), f"{program}, call {at} is interrupted")


def test_a_file_system_that_cannot_refuse_to_replace_a_file_gets_a_link(shimmed: Nursery, place: Path, layer: Begin) -> None:
    cases = layer("renames that replace nothing, unknown")
    case = Case(shimmed, place)
    ended = case.run("roll", fault=OLD)
    cases.add(unaffected(case, ended), "roll")
    names = {(call.name, call.path.startswith("store/commitlog/")) for call in case.journal().calls}
    assert ("link", True) in names
    assert ("rename", True) not in names


@pytest.mark.parametrize("keep", [1, -1, 7])
def test_a_short_write_is_continued_and_nobody_notices(
    shimmed: Nursery, place: Path, layer: Begin, is_long: bool, keep: int
) -> None:
    cases = layer(f"short writes: {keep} bytes" if keep > 0 else f"short writes: all but {-keep} bytes")
    for seed in rounds(0.004):
        for program in ("roll", "pool", "each_mode", "index_roll", "close_and_reopen"):
            for at in Case(shimmed, place).calls(program, most=None if is_long else 60):
                case = Case(shimmed, place, seed)
                ended = case.run(program, at=at, fault=SHORT, keep=keep, sticky=keep == 7)
                cases.add(unaffected(case, ended), f"{program}, call {at} writes short")


def test_a_sync_that_failed_once_is_never_tried_again(shimmed: Nursery, place: Path, layer: Begin) -> None:
    cases = layer("one failed sync")
    case = Case(shimmed, place)
    case.run("roll")
    syncs = [at for at, call in enumerate(case.journal().calls, 1) if is_of_the_log(call)]
    assert len(syncs) > 5
    for at in syncs:
        cases.add(fail_at(Case(shimmed, place), "roll", at, "EIO", sticky=False), f"roll, sync {at} fails once")


def test_every_way_that_a_commit_can_fail_is_retried_or_poisons(shimmed: Nursery, place: Path, layer: Begin) -> None:
    cases = layer("fail each commit")
    case = Case(shimmed, place)
    case.run("pool")
    journal = case.journal()
    commits = [
        at for at, call in enumerate(journal.calls, 1) if call.name == "pwrite" and call.path.startswith("store/commitlog/")
    ]
    assert len(commits) > 5
    for at in commits:
        for name in NAMES:
            verdict = fail_at(Case(shimmed, place), "pool", at, name, sticky=False)
            cases.add(verdict, f"pool, commit {at} fails with {name}")


@pytest.mark.parametrize("sticky", [False, True])
def test_zeros_after_a_commit_that_cannot_be_written_are_missed_by_nobody(
    shimmed: Nursery, place: Path, layer: Begin, sticky: bool
) -> None:
    cases = layer(f"fail the zeros after a commit{', from then on' if sticky else ''}")
    case = Case(shimmed, place)
    case.run("each_mode")
    calls = enumerate(case.journal().calls, 1)
    zeros = [at for at, call in calls if call.name == "pwrite-zeros" and call.path.startswith("store/commitlog/")]
    assert zeros
    for at in zeros:
        for name in ("EIO", "EROFS", "ENOSPC"):
            verdict = fail_at(Case(shimmed, place), "each_mode", at, name, sticky)
            cases.add(verdict, f"each_mode, zeros {at} fail with {name}, {sticky=}")


def test_the_shim_sees_every_kind_of_call_that_a_store_makes(shimmed: Nursery, place: Path) -> None:
    case = Case(shimmed, place)
    case.run("roll")
    seen = {call.name for call in case.journal().calls}
    assert seen == {
        "create",
        "open",
        "pwrite",
        "pwrite-zeros",
        "fallocate",
        "fsync",
        "fdatasync",
        "msync",
        "syncfs",
        "rename",
        "unlink",
        "mkdir",
        "mmap",
        "opendir",
    }
