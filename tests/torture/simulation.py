"""The simulated crashes of the Rust tests, many times over. Only `make torture` names this file: `cargo test` runs a few."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable

from results import MINUTES, Layer
from rig import ROOT

Begin = Callable[[str], Layer]

#: How many times the short form is made in a minute.
PER_MINUTE = 4


def test_simulated_crashes_lose_nothing(layer: Begin) -> None:
    cases = layer("simulated crashes")
    scale = max(1, round(MINUTES * 0.1 * PER_MINUTE))
    command = ["cargo", "test", "--release", "--quiet", "--test", "it", "crashes", "--", "--nocapture"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"MQSTORE_CRASHES": str(scale)}, capture_output=True, text=True)
    # "crash images: 7" and "crash images: 7 inside a recovery, 3 inside the recovery of one of those"
    counts = re.findall(r"(?:crash images|failed calls): (\d+)(?:[^\n]*, (\d+) inside)?", done.stdout)
    cases.row.cases = sum(int(number) for pair in counts for number in pair if number)
    # The tests count nothing lost: one that finds a loss fails.
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert cases.row.cases > 0, done.stdout[-4000:]
