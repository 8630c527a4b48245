"""Rounds, statistics and results of the rows measured from Python; `benches/harness` does the same for those of Rust."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(os.environ.get("BENCH_RESULTS", ROOT / "target" / "bench"))
#: The rounds of each row, after a warm-up round that is dropped.
ROUNDS = 7
#: The largest variation of the sync latency between rounds. A row that waits for the disk is refused if it is exceeded.
MOST_SPREAD = 1.5
OURS, LIMIT = "ours", "limit"
#: In a round beside the figures.
WEATHER = ("sync_us", "wake_us")


def is_smoke() -> bool:
    """Returns true if each row runs once with tiny sizes."""
    return os.environ.get("BENCH_SMOKE", "0") not in ("", "0")


def size(whole: int, smoke: int) -> int:
    """Returns the first size, or the second one in a smoke run."""
    return smoke if is_smoke() else whole


@dataclass(frozen=True)
class Row:
    """A measurement and its target. A unit that ends in "/s" is a rate: higher is better."""

    name: str
    params: dict[str, Any]
    unit: str
    target: dict[str, float] = field(default_factory=dict)
    waits_for_disk: bool = False

    @property
    def is_rate(self) -> bool:
        """Returns true if higher is better."""
        return self.unit.endswith("/s")


#: A round of a participant, which gets an empty directory and returns its figure.
Round = Callable[[Path], float]


class Rust:
    """The bench binary, which answers one question after another, and measures the machine."""

    def __init__(self) -> None:
        command = ["cargo", "bench", "--quiet", "--bench", "rows", "--", "--serve"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question: str) -> list[float]:
        """Asks a question, and returns the numbers of the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return [float(number) for number in self._process.stdout.readline().split()]

    def round(self, question: str) -> Round:
        """Returns a round whose figure is the answer."""
        return lambda _: self.ask(question)[0]

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(row: Row, contenders: dict[str, Round], rust: Rust | None) -> None:
    """Runs the rounds of a row, in which all participants take turns. Drops the first. Prints and records the row."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    count = int(os.environ.get("BENCH_ROUNDS", ROUNDS))
    rounds = []
    for number in range(1 if is_smoke() else count + 1):
        print(f"\r{row.name} {json.dumps(row.params)}: round {number} of {count} ", end="", file=sys.stderr, flush=True)
        weather = dict(zip(WEATHER, rust.ask("machine"), strict=True)) if rust else {}
        rounds.append({name: one_round(run) for name, run in contenders.items()} | weather)
    print("\r\x1b[K", end="", file=sys.stderr)
    result = result_of(row, rounds if is_smoke() else rounds[1:])
    show(row, result)
    with (RESULTS / ("smoke.jsonl" if is_smoke() else "results.jsonl")).open("a") as results:
        print(json.dumps(result), file=results)


def one_round(run: Round) -> float:
    """Returns the figure of a round on the measured disk."""
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        return run(Path(folder))


def result_of(row: Row, rounds: list[dict[str, float]]) -> dict[str, Any]:
    """Returns the object for the results. A refused row has no ratios."""
    names = [name for name in rounds[0] if name not in WEATHER]
    medians = {name: statistics.median(each[name] for each in rounds) for name in names}

    def ratio(name: str) -> float | None:
        if refusal(row, rounds) is not None or OURS not in medians or name not in medians:
            return None
        return statistics.median(each[OURS] / each[name] if row.is_rate else each[name] / each[OURS] for each in rounds)

    peers = [name for name in names if name not in (OURS, LIMIT)]
    return {
        "row": row.name,
        "params": row.params,
        "ours": medians.get(OURS),
        "limit": medians.get(LIMIT),
        "peers": {name: medians[name] for name in peers},
        "unit": row.unit,
        "ratio_limit": ratio(LIMIT),
        "ratio_peers": {name: ratio(name) for name in peers},
        "target": row.target,
        "rounds": rounds,
        "commit": commit(),
    }


def refusal(row: Row, rounds: list[dict[str, float]]) -> float | None:
    """Returns the variation of the sync latency, if it is too large for this row."""
    syncs = [each["sync_us"] for each in rounds if "sync_us" in each]
    spread = max(syncs) / min(syncs) if syncs else 1.0
    return spread if row.waits_for_disk and spread > MOST_SPREAD else None


def show(row: Row, result: dict[str, Any]) -> None:
    """Prints median, best figure and speedup for each participant."""
    print(row.name, " ".join(f"{name}={value}" for name, value in row.params.items()), f" ({row.unit})")
    rounds = result["rounds"]
    for name, median in {OURS: result["ours"], LIMIT: result["limit"], **result["peers"]}.items():
        if median is None:
            continue
        best = (max if row.is_rate else min)(each[name] for each in rounds)
        ratio = result["ratio_limit"] if name == LIMIT else result["ratio_peers"].get(name)
        digits = 3 if best < 100 else 0
        print(f"  {name:<24} median {median:14.{digits}f}   best {best:14.{digits}f}", f"  ratio {ratio:.2f}" if ratio else "")
    spread = refusal(row, rounds)
    if spread is not None:
        print(f"  refused: the latency of a sync varied {spread:.1f}-fold between the rounds")


def commit() -> str:
    """Returns the measured commit, with "-dirty" if the checkout differs from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
