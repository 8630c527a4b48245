"""Removes one check at a time and expects a test to notice: `make mutants`, or `python tests/mutants/run.py [NAME ...]`.

Each patch beside this file takes one check or ordering out of the sources. Its head says what is gone, and names the tests that
have to fail: filters for `cargo test` on the line "Tests:". The sources are copied once, so that the checkout stays as it is.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TREE = ROOT / "target" / "mutants" / "tree"
BUILD = ROOT / "target" / "mutants" / "build"
# A mutant that hangs is caught, too.
TIMEOUT_S = 600


@dataclass(frozen=True)
class Mutant:
    """One patch."""

    patch: Path
    tests: list[str]

    @property
    def name(self) -> str:
        """What is gone."""
        return self.patch.stem

    @classmethod
    def read(cls, patch: Path) -> Mutant:
        """Reads the head of a patch; a patch without tests is refused."""
        head = patch.read_text().split("\ndiff --git ", 1)[0]
        tests = re.search(r"^Tests: (.+)$", head, re.MULTILINE)
        if tests is None:
            raise SystemExit(f"{patch}: no line 'Tests: FILTER ...' before the first 'diff --git'")
        return cls(patch, tests[1].split())


@dataclass(frozen=True)
class Verdict:
    """How the tests took it."""

    killed_by: str | None
    seed: str
    seconds: float


def main(names: list[str]) -> int:
    """Runs the mutants of these names, or all; the number of survivors decides the exit code."""
    mutants = [Mutant.read(patch) for patch in sorted(HERE.glob("*.patch"))]
    chosen = [mutant for mutant in mutants if not names or mutant.name in names]
    if unknown := set(names) - {mutant.name for mutant in mutants}:
        raise SystemExit(f"no patch of this name: {', '.join(sorted(unknown))}")
    copy_tree()
    print("mutant | killed by | seed | seconds")
    survivors = 0
    for mutant in chosen:
        verdict = run(mutant)
        survivors += verdict.killed_by is None
        print(f"{mutant.name} | {verdict.killed_by or 'SURVIVED'} | {verdict.seed} | {verdict.seconds:.0f}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


def copy_tree() -> None:
    """Copies what a build needs; times of change stay, so that only what a patch touches is built again."""
    shutil.rmtree(TREE, ignore_errors=True)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name)


def run(mutant: Mutant) -> Verdict:
    """Applies one patch, runs its tests, and takes it back."""
    apply(mutant.patch)
    started = time.monotonic()
    try:
        built = cargo("--no-run")
        if built.returncode != 0:
            raise SystemExit(f"{mutant.name} does not compile:\n{built.stderr}")
        return judge(mutant, started)
    finally:
        apply(mutant.patch, "--reverse")


def judge(mutant: Mutant, started: float) -> Verdict:
    try:
        tested = cargo("--", *mutant.tests)
    except subprocess.TimeoutExpired:
        return Verdict(f"no end within {TIMEOUT_S} s", "-", time.monotonic() - started)
    failed = re.search(r"^test (\S+) \.\.\. FAILED$", tested.stdout, re.MULTILINE)
    if tested.returncode == 0:
        if not re.search(r"^test result: ok\. [1-9]", tested.stdout, re.MULTILINE):
            raise SystemExit(f"{mutant.name}: no test matches {' '.join(mutant.tests)}")
        return Verdict(None, "-", time.monotonic() - started)
    seed = re.search(r"\bseed[ =:]+(\w+)", tested.stdout)
    return Verdict(failed[1] if failed else "a crash of the tests", seed[1] if seed else "-", time.monotonic() - started)


def apply(patch: Path, *options: str) -> None:
    subprocess.run(["patch", "--quiet", "-p1", *options, "-i", str(patch)], cwd=TREE, check=True)


def cargo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["cargo", "test", "--target-dir", str(BUILD), "--test", "it", *arguments]
    return subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
