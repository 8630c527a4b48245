"""The simulated crashes of the Rust tests, many times over. Only `make torture` names this file: `cargo test` runs a few."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable

from checker import Verdict
from results import MINUTES, Layer
from rig import ROOT

Begin = Callable[[str], Layer]

#: The share of the time, like those of the other layers.
SHARE = 0.1
CAMPAIGNS = (
    "every_power_cut_keeps_what_was_acked",
    "crashes_inside_nested_recoveries_recover_to_the_same_store",
    "a_failing_call_is_reported_and_costs_no_acknowledged_message",
    "groups_get_every_message_and_repeat_none_that_is_settled",
)
COMMAND = ("cargo", "test", "--release", "--quiet", "--test", "it")


def campaigns(scale: int) -> subprocess.CompletedProcess[str]:
    """Multipliers for the campaigns of `cargo test`; they draw their histories from seed 0 on."""
    environment = os.environ | {"MQSTORE_CRASHES": str(scale)}
    command = [*COMMAND, "--", "--nocapture", *CAMPAIGNS]
    return subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_simulated_crashes_lose_nothing(layer: Begin) -> None:
    subprocess.run([*COMMAND, "--no-run"], cwd=ROOT, check=True)
    cases = layer("simulated crashes")
    cases.row.seed = 0
    began = time.monotonic()
    done = campaigns(1)
    once = time.monotonic() - began
    # What is left of the time, in one run: a second one would draw the same histories.
    scale = int((SHARE * MINUTES * 60 - once) / once)
    if done.returncode == 0 and scale > 1:
        done = campaigns(scale)
    # "crash images: 7", "failed calls: 7", "crash images: 7 inside a recovery, 3 inside the recovery of one of those"
    counts = re.findall(r"(?:crash images|failed calls): (\d+)(?:[^\n]*, (\d+) inside)?", done.stdout)
    # A campaign ends at the first image with a lost or invented message, and does not count those.
    failed = re.findall(r"panicked at [^\n]*\n((?:seed|history) [^\n]*)", done.stdout)
    if done.returncode != 0:
        cases.add(Verdict(errors=failed or [f"exit code {done.returncode}"]), done.stdout[-4000:])
    cases.row.cases += sum(int(number) for pair in counts for number in pair if number)
    assert cases.row.cases > 0, done.stdout[-4000:]
