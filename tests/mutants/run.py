"""Removes one step or check at a time and expects a test to fail: `make mutants`, or `python tests/mutants/run.py [NAME ...]`.

The test `every_step_is_needed` leaves out the steps of `storage::Step` at run time. `mutants.toml` states the changes of sources.
They are made in a copy, so the checkout does not change. `docs/reliability.json` keeps each verdict as soon as it is there, and
`tests/torture/report.py` makes a page of it. `--missing` tries only the mutants that have no verdict, or whose edit, edited item
or tests have changed since. `--check` only tests that each mutant applies.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutation import TARGET, Mutant, Sources, fingerprint, read_mutants

ROOT = Path(__file__).resolve().parent.parent.parent
OUT = ROOT / "target" / "mutants"
TREE = OUT / "tree"
COMMITTED = ROOT / "docs" / "reliability.json"
#: The test that leaves out one step after the other, and prints a line for each; the modules that it uses.
STEPS = Mutant("every_step_is_needed", "A step is left out.", TARGET, ["every_step_is_needed", "crashes::steps::"], [])
#: A build costs more than the tests of a mutant, which are few: it does without optimization and debug information.
QUICK = {"CARGO_PROFILE_TEST_OPT_LEVEL": "0", "CARGO_PROFILE_TEST_DEBUG": "none"}
#: A mutant that hangs is caught, too.
TIMEOUT_S = 300
#: For all tests without a mutant, and for all steps.
LONG_TIMEOUT_S = 1800
#: A run that gathers without end is stopped, too, before the machine has no memory left.
MEMORY = 4 << 30


@dataclass(frozen=True)
class Verdict:
    """The verdict on a store without one step or check."""

    mutant: str
    is_step: bool
    gone: str
    killed_by: str | None
    seed: str
    seconds: float
    #: The digest of the mutant, its item and its tests. If they have another one, the verdict is outdated.
    fingerprint: str
    #: Simulated power cuts that it took, where steps are left out.
    images: int | None = None

    def __str__(self) -> str:
        return f"{self.mutant} | {self.killed_by or 'SURVIVED'} | {self.seed} | {self.seconds:.1f}"


@dataclass
class Run:
    """The outcome of the test binary: tests by outcome in the order of their ends, and all that was printed."""

    passed: list[str]
    failed: str | None
    timed_out: bool
    output: str
    seconds: float

    def seed(self) -> str:
        """Returns the seed of the test that failed, if it drew one."""
        said = self.output.rpartition(f"thread '{self.failed}'")[2]
        seed = re.search(r"\b(?:seed|history)[ =:]+(\d+)", said)
        return seed[1] if seed else "-"


class BuildError(Exception):
    """Sources that do not compile."""


def main(arguments: list[str]) -> int:
    """Tries the mutants of these names, those without a verdict, or all. A survivor makes the exit code 1."""
    mutants = [*read_mutants(), STEPS]
    if arguments == ["--check"]:
        return check(mutants)
    copy_tree()
    sources = Sources(TREE / "src")
    if failures := sources.check(mutants):
        raise SystemExit("\n".join(failures))
    tests = {target: Sources(TREE / "tests" / target) for target in {mutant.target for mutant in mutants}}
    prints = {mutant.name: fingerprint(mutant, sources, tests[mutant.target]) for mutant in mutants}
    chosen = choose(arguments, mutants, prints, keep([], mutants))
    edited = [mutant for mutant in chosen if mutant is not STEPS]
    for target in sorted({mutant.target for mutant in edited}):
        expect_pass(build(target), [mutant for mutant in edited if mutant.target == target])
    print("mutant | killed by | seed | seconds", flush=True)
    failed = []
    for mutant in chosen:
        try:
            verdicts = judge(mutant, sources, prints[mutant.name])
        except BuildError as cause:
            print(f"{mutant.name} does not compile:\n{cause}", flush=True)
            failed.append(mutant.name)
            continue
        print(*verdicts, sep="\n", flush=True)
        keep(verdicts, mutants)
        failed += [verdict.mutant for verdict in verdicts if verdict.killed_by is None]
    print(f"tried {len(chosen)} of {len(mutants)} mutants; not killed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def choose(arguments: list[str], mutants: list[Mutant], prints: dict[str, str], kept: dict[str, Any]) -> list[Mutant]:
    """Returns all mutants, those of the names, or those that no kept verdict shows to be killed as they are now."""
    if arguments == ["--missing"]:
        killed: dict[str, set[str | None]] = defaultdict(set)
        for name, verdict in kept.items():
            killed[STEPS.name if verdict["is_step"] else name].add(verdict["killed_by"] and verdict.get("fingerprint"))
        return [mutant for mutant in mutants if killed[mutant.name] != {prints[mutant.name]}]
    if unknown := set(arguments) - set(prints):
        raise SystemExit(f"no mutant has the name {', '.join(sorted(unknown))}")
    return [mutant for mutant in mutants if not arguments or mutant.name in arguments]


def check(mutants: list[Mutant]) -> int:
    """Prints each mutant that does not apply to the sources, and each filter that selects no test. One makes the exit code 1."""
    failures = Sources(ROOT / "src").check(mutants)
    tests = {target: Sources(ROOT / "tests" / target) for target in {mutant.target for mutant in mutants}}
    unused = ((mutant.name, wanted) for mutant in mutants for wanted in mutant.tests if not tests[mutant.target].select(wanted))
    failures += [f"{name}: no test has the name {wanted}" for name, wanted in unused]
    for failure in failures:
        print(failure)
    return 1 if failures else 0


def copy_tree() -> None:
    """Copies the files that differ from those of the checkout. Their time is now, so cargo builds them again."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in tracked.split("\0") if name and (ROOT / name).is_file()}
    for old in TREE.rglob("*"):
        if old.is_file() and str(old.relative_to(TREE)) not in names:
            old.unlink()
    for name in names:
        source, copy = ROOT / name, TREE / name
        if not copy.is_file() or not filecmp.cmp(source, copy, shallow=False):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)


def build(target: str, profile: dict[str, str] = QUICK) -> Path:
    """Builds the tests of a target, and returns their binary."""
    command = [
        "cargo",
        "test",
        "--target-dir",
        str(OUT / "build"),
        "--test",
        target,
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]
    built = subprocess.run(command, cwd=TREE, env=os.environ | profile, capture_output=True, text=True)
    if built.returncode != 0:
        raise BuildError(built.stderr)
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    return next(Path(message["executable"]) for message in messages if message.get("executable"))


def expect_pass(binary: Path, mutants: list[Mutant]) -> None:
    """Raises for a test that fails anyway or does not exist: it would kill nothing."""
    filters = sorted({test for mutant in mutants for test in mutant.tests})
    tested = run(binary, filters, LONG_TIMEOUT_S)
    if tested.failed or tested.timed_out:
        raise SystemExit(f"{tested.failed or filters} fails without a mutant:\n{tested.output[-4000:]}")
    for mutant in mutants:
        if missing := [test for test in mutant.tests if not any(test in passed for passed in tested.passed)]:
            raise SystemExit(f"{mutant.name}: no test matches {' '.join(missing)}")
    print(f"without a mutant {len(tested.passed)} tests pass in {tested.seconds:.1f} s", flush=True)


def leave_steps_out(binary: Path, now: str) -> list[Verdict]:
    """Returns a verdict for each step, from the lines that the test prints."""
    tested = run(binary, ["--ignored", STEPS.name], LONG_TIMEOUT_S)
    told = re.finditer(
        r"^without (?P<step>\w+)[^:\n]*: (?:seed (?P<seed>\d+), (?P<images>\d+) images, (?P<by>[^:\n]+).*|nothing breaks.*)$",
        tested.output,
        re.MULTILINE,
    )
    verdicts = [
        Verdict(one["step"], True, f"{one['step']} is left out", one["by"], one["seed"] or "-", tested.seconds, now, images(one))
        for one in told
    ]
    if not verdicts or (tested.passed != [f"crashes::{STEPS.name}"]) == all(verdict.killed_by for verdict in verdicts):
        raise SystemExit(f"{STEPS.name} does not report its steps:\n{tested.output[-4000:]}")
    return verdicts


def images(told: re.Match[str]) -> int | None:
    return int(told["images"]) if told["images"] else None


def judge(mutant: Mutant, sources: Sources, now: str) -> list[Verdict]:
    """Changes the copied sources, runs the tests of the mutant, and restores the sources. Steps need no change."""
    if mutant is STEPS:
        return leave_steps_out(build(TARGET, profile={}), now)
    changed = sources.apply(mutant)
    for path, text in changed.items():
        path.write_text(text)
    try:
        tested = run(build(mutant.target), mutant.tests)
    finally:
        for path in changed:
            path.write_text(sources.texts[path])
    killed_by = tested.failed or (f"no end within {TIMEOUT_S} s" if tested.timed_out else None)
    seed = tested.seed() if tested.failed else "-"
    return [Verdict(mutant.name, False, mutant.gone, killed_by, seed, tested.seconds, now)]


def run(binary: Path, filters: list[str], timeout: float = TIMEOUT_S) -> Run:
    """Runs the tests that match, until the first one fails; what they started ends with them."""
    # With more than one thread each test has a line of its own, when it ends.
    environment = os.environ | {"RUST_TEST_THREADS": str(max(2, os.cpu_count() or 1)), "RUST_BACKTRACE": "0"}
    began = time.monotonic()
    process = subprocess.Popen(
        [binary, "--nocapture", *filters],
        cwd=TREE,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    late = threading.Event()

    def hangs() -> None:
        late.set()
        end(process)

    timer = threading.Timer(timeout, hangs)
    timer.start()
    passed: list[str] = []
    failed = None
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        ended = re.search(r"\btest (\S+)(?: - should panic)? \.\.\. (ok|FAILED)$", line)
        if ended and ended[2] == "FAILED":
            failed = ended[1]
            break
        if ended:
            passed.append(ended[1])
    timer.cancel()
    if failed is None and not late.is_set() and process.wait() != 0:
        failed = "a crash of " + " or ".join(filters)
    end(process)
    return Run(passed, failed, late.is_set(), "".join(lines), time.monotonic() - began)


def end(process: subprocess.Popen[str]) -> None:
    """Kills the process and all that it started; its number is its own until it is waited for."""
    if process.poll() is None:
        # The timer may have ended it just now.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def keep(verdicts: list[Verdict], mutants: list[Mutant]) -> dict[str, Any]:
    """Adds the verdicts to the committed ones, and drops those of mutants and steps that no longer exist. Returns all."""
    counts: dict[str, Any] = json.loads(COMMITTED.read_text())
    gone = {mutant.name: mutant.gone for mutant in mutants}
    has_steps = any(verdict.is_step for verdict in verdicts)
    planted = {
        name: old if old["is_step"] else old | {"gone": gone[name]}
        for name, old in counts["planted"].items()
        if (not has_steps if old["is_step"] else name in gone)
    }
    planted |= {verdict.mutant: asdict(verdict) | {"seconds": round(verdict.seconds, 1)} for verdict in verdicts}
    COMMITTED.write_text(json.dumps(counts | {"planted": planted}, indent=2, sort_keys=True) + "\n")
    return planted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
