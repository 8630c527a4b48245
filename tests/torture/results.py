"""Counts of the cases, one row for each layer: as a table, as JSON lines, and summed up in `docs/reliability.json`."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from checker import Verdict
from rig import OUT, ROOT
from windows import Window

COMMITTED = ROOT / "docs" / "reliability.json"
COLUMNS = ("layer", "cases", "lost", "phantom", "errors", "seconds", "seed")
T = TypeVar("T")

#: Unset in `make test` and `make slowtest`: one round of each test, with few cases.
MINUTES = float(os.environ.get("TORTURE_MINUTES", "0"))
SEED = int(os.environ.get("TORTURE_SEED", "0")) or (time.time_ns() // 1000 % 1_000_000_000 if MINUTES else 1)


def rounds(share: float) -> Iterator[int]:
    """Seeds: one in `make slowtest`; in `make torture` as many as this share of the time allows, but at least one."""
    ends = time.monotonic() + share * MINUTES * 60
    for seed in range(SEED, SEED + 1_000_000):
        yield seed
        if time.monotonic() >= ends:
            return


def in_time(share: float, cases: Sequence[T], seed: int) -> Iterator[T]:
    """All cases in `make slowtest`; in `make torture` those that this share of the time allows, in an order by seed."""
    ends = time.monotonic() + share * MINUTES * 60
    for case in random.Random(seed).sample(cases, len(cases)) if MINUTES else cases:
        yield case
        if MINUTES and time.monotonic() >= ends:
            return


@dataclass
class Row:
    """The counts of one layer. `errors` are the unexpected ones: after an injected failure an error is right."""

    layer: str
    cases: int = 0
    lost: int = 0
    phantom: int = 0
    errors: int = 0
    seconds: float = 0.0
    seed: int = 0


@dataclass
class Layer:
    """The cases of one layer, while they run."""

    row: Row
    began: float = field(default_factory=time.monotonic)
    failures: list[str] = field(default_factory=list)

    def add(self, verdict: Verdict, case: object) -> bool:
        """Counts a case. Returns whether it passed."""
        self.row.cases += 1
        self.row.lost += verdict.lost
        self.row.phantom += verdict.phantom
        self.row.errors += len(verdict.errors)
        if not verdict.ok:
            self.failures.append(f"{case}: {verdict}")
        return verdict.ok

    def done(self) -> Row:
        self.row.seconds = round(time.monotonic() - self.began, 1)
        return self.row


def table(rows: Iterable[Row]) -> list[str]:
    """The rows under their heads, in columns."""
    lines = [[str(value) for value in asdict(row).values()] for row in rows]
    widths = [max(len(line[column]) for line in [list(COLUMNS), *lines]) for column in range(len(COLUMNS))]
    return [" | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in [list(COLUMNS), *lines]]


def append(rows: Iterable[Row], path: Path = OUT / "results.jsonl") -> None:
    """Adds the rows to the log of this machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for row in rows:
            file.write(json.dumps(asdict(row)) + "\n")


def add_to_committed(rows: Iterable[Row], windows: Iterable[Window], path: Path = COMMITTED) -> None:
    """Adds the counts to those of earlier runs. The newest windows replace earlier ones."""
    counts = json.loads(path.read_text()) if path.exists() else {}
    layers = counts.setdefault("tried", {})
    for row in rows:
        sums = layers.setdefault(row.layer, {"cases": 0, "lost": 0, "phantom": 0, "errors": 0, "seconds": 0})
        for name in sums:
            sums[name] = round(sums[name] + getattr(row, name), 1)
    measured = counts.setdefault("windows", {})
    for window in windows:
        measured[f"{window.mode.name}: {window.failure}"] = window.summary()
    path.write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n")
