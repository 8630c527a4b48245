"""A killed process with transactions, delays, timers and groups: each message is there once, and each transaction ends once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from checker import Verdict
from results import Layer, rounds
from rig import HERE
from services import GROUP, TOPIC
from writer import SYNC

import mqstore

Begin = Callable[[str], Layer]

#: A segment holds some hundred messages.
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 65_536,
    "mapped_file_size_consume_queue": 4000,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
#: The ways to write.
MODES: dict[str, dict[str, Any]] = {
    "async": {},
    "pool": {"transient_store_pool_enable": True, "transient_store_pool_size": 2, "transient_store_pool_buffer_size": 65_536},
    "sync": SYNC,
}
#: Kills of a process on one store, before that is examined: in the short form and in the long one.
KILLS, LONG_KILLS = 7, 20
#: The time that the delivery of what waits may take.
PATIENCE = 60
_OUTCOMES = {"committed": "commit", "rolled_back": "rollback"}


class Journal:
    """The calls of the killed processes on a store."""

    def __init__(self, lines: Iterable[str], *, is_pooled: bool) -> None:
        #: Numbers of messages and half messages whose append has begun.
        self.begun: set[int] = set()
        self.halves: set[int] = set()
        #: Those that a killed process cannot lose: of a pool only what was flushed.
        self.kept: set[int] = set()
        #: The ends that calls have asked for, and those that returned and that a killed process cannot lose.
        self.asked: dict[int, set[str]] = {}
        self.ended: dict[int, str] = {}
        self.given = Counter[int]()
        self.sent_back: set[int] = set()
        #: Timers that may be recalled, and those that a killed process has recalled for certain.
        self.to_recall: set[int] = set()
        self.recalled: set[int] = set()
        self.errors: list[str] = []
        waiting: list[tuple[str, int, str]] = []
        for line in lines:
            match json.loads(line):
                case ["begun"]:
                    waiting.clear()
                case ["append", number]:
                    self.begun.add(number)
                case ["send", number]:
                    self.begun.add(number)
                    self.halves.add(number)
                case ["end", number, how]:
                    self.asked.setdefault(number, set()).add(how)
                case ["recall", number]:
                    self.to_recall.add(number)
                case [("appended" | "sent" | "sent back" | "recalled") as what, number]:
                    waiting.append((what, number, ""))
                case ["ended", number, how]:
                    waiting.append(("ended", number, how))
                case ["refused", number, outcome]:
                    # An earlier process may have ended it without a line.
                    if outcome != "ended" and _OUTCOMES.get(outcome) not in self.asked.get(number, ()):
                        self.errors.append(f"the end of {number} was refused as {outcome}, and none was asked for")
                case ["twice", number]:
                    self.errors.append(f"the transaction of {number} has ended twice")
                case ["given", numbers]:
                    self.given.update(numbers)
                case ["flushed"]:
                    self._keep(waiting)
            if not is_pooled:
                self._keep(waiting)

    def _keep(self, waiting: list[tuple[str, int, str]]) -> None:
        for what, number, how in waiting:
            if what == "ended":
                self.ended[number] = how
            elif what == "sent back":
                self.sent_back.add(number)
            elif what == "recalled":
                self.recalled.add(number)
            else:
                self.kept.add(number)
        waiting.clear()


def live_and_be_killed(store: Path, journal: Path, seed: int, options: dict[str, Any], chance: random.Random) -> str:
    """Starts a process on the store, and kills it. Returns its last words, if it ended by itself."""
    program = [sys.executable, str(HERE / "services.py"), str(store), str(journal), str(seed), json.dumps(options)]
    child = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # Some are killed while they recover.
    if chance.random() < 0.8 and child.stdout is not None:
        child.stdout.readline()
    time.sleep(chance.random() * 0.3)
    child.kill()
    _, words = child.communicate()
    return "" if child.returncode == -9 else f"exit code {child.returncode}: {words[-2000:]}"


def judged(path: Path, journal: Journal, options: dict[str, Any]) -> Verdict:
    """Opens the store, waits for what is delayed, consumes all, and compares everything with the journal."""
    verdict = Verdict(errors=journal.errors)
    with mqstore.open(path) as reader:
        open_for_reader = {half.unique_key for half in reader.broker.transactions().halves}
    with mqstore.open(path, "a", **options) as store:
        halves = store.transactions.open()
        if {half.unique_key for half in halves} != open_for_reader:
            verdict.errors.append(f"a reader finds {len(open_for_reader)} open transactions, the writer {len(halves)}")
        deadline = time.monotonic() + PATIENCE
        while store.stats().delayed_waiting and time.monotonic() < deadline:
            time.sleep(0.02)
        messages = [message for queue in store.topics[TOPIC].queues for message in queue] if TOPIC in store.topics else []
        found = Counter(int(message.body) for message in messages)
        compare(verdict, journal, found, {int(half.message.body) for half in halves})
        for message in messages:
            due = int(message.properties.get("TIMER_DELIVER_MS", "0")) / 1000
            if message.store_time.timestamp() < due - 0.02:
                verdict.errors.append(f"{int(message.body)} was delivered too early")
        consume_all(store, verdict, journal, found)
    return verdict


def compare(verdict: Verdict, journal: Journal, found: Counter[int], still_open: set[int]) -> None:
    """Compares the messages that consumers get, and the open transactions, with what the processes did."""
    for number in journal.begun | found.keys() | still_open:
        count, asked, end = found[number], journal.asked.get(number, set()), journal.ended.get(number)
        is_half, is_kept = number in journal.halves, number in journal.kept
        most = number in journal.begun and (
            end != "rollback" and "commit" in asked if is_half else number not in journal.recalled
        )
        least = end == "commit" if is_half else is_kept and number not in journal.to_recall
        verdict.lost += count < least
        verdict.phantom += max(0, count - most)
        if not least <= count <= most:
            is_recalled = number in journal.recalled
            verdict.errors.append(f"{number} is there {count} times: {is_half=} {is_kept=} {asked=} {end=} {is_recalled=}")
        must_be_open = is_half and is_kept and not asked
        may_be_open = is_half and end is None and not count
        is_open = number in still_open
        if is_open < must_be_open or is_open > may_be_open:
            verdict.errors.append(f"{number}: {is_open=} {count=} {is_kept=} {asked=} {end=}")


def consume_all(store: mqstore.Writer, verdict: Verdict, journal: Journal, found: Counter[int]) -> None:
    """Consumes what the group has not, also the retries, which wait for their delay."""
    deadline = time.monotonic() + PATIENCE
    with store.consumer(GROUP, TOPIC) as consumer:
        while time.monotonic() < deadline:
            messages = consumer.poll(1000, timeout=0.2)
            journal.given.update(int(message.body) for message in messages)
            consumer.ack(messages)
            if not messages and not store.stats().delayed_waiting:
                break
    lag = sum(row.lag for row in store.broker.lag() if row.group == GROUP)
    if lag:
        verdict.errors.append(f"the group has consumed all, and its lag is {lag}")
    missed = found.keys() - journal.given.keys()
    again = {number for number in journal.sent_back if journal.given[number] < 2}
    verdict.lost += len(missed) + len(again)
    if missed or again:
        verdict.errors.append(f"the group never got {sorted(missed)}, and {sorted(again)} not again")


_LIFE: list[list[object]] = [
    ["begun"],
    ["append", 1],
    ["appended", 1],
    ["send", 2],
    ["sent", 2],
    ["send", 3],
    ["sent", 3],
    ["flushed"],
]
_ENDED: list[list[object]] = [["end", 2, "commit"], ["ended", 2, "commit"], ["end", 3, "rollback"], ["ended", 3, "rollback"]]


@pytest.mark.parametrize(
    ("lines", "found", "still_open", "expected"),
    [
        ([*_LIFE, *_ENDED], {1: 1, 2: 1}, set(), (0, 0, 0)),
        (_LIFE, {1: 1}, {2, 3}, (0, 0, 0)),
        ([*_LIFE, ["recall", 1]], {}, {2, 3}, (0, 0, 0)),
        ([*_LIFE, ["recall", 1], ["recalled", 1]], {}, {2, 3}, (0, 0, 0)),
        ([*_LIFE, ["recall", 1], ["recalled", 1]], {1: 1}, {2, 3}, (0, 1, 1)),
        ([*_LIFE, *_ENDED], {2: 1}, set(), (1, 0, 1)),
        ([*_LIFE, *_ENDED], {1: 2, 2: 2}, set(), (0, 2, 2)),
        ([*_LIFE, *_ENDED], {1: 1, 2: 1, 3: 1}, set(), (0, 1, 1)),
        ([*_LIFE, *_ENDED], {1: 1}, {2}, (1, 0, 2)),
        (_LIFE, {1: 1}, {2}, (0, 0, 1)),
        ([*_LIFE, ["twice", 2]], {1: 1}, {2, 3}, (0, 0, 1)),
        ([*_LIFE, ["refused", 2, "committed"]], {1: 1}, {2, 3}, (0, 0, 1)),
    ],
)
def test_the_judge_of_services_counts_what_is_wrong(
    lines: list[list[object]], found: dict[int, int], still_open: set[int], expected: tuple[int, int, int]
) -> None:
    journal = Journal(map(json.dumps, lines), is_pooled=False)
    verdict = Verdict(errors=journal.errors)
    compare(verdict, journal, Counter(found), still_open)
    assert (verdict.lost, verdict.phantom, len(verdict.errors)) == expected, verdict


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_process_with_services_ends_and_delivers_once(place: Path, layer: Begin, is_long: bool, mode: str) -> None:
    cases = layer(f"kill a process with services: {mode}")
    for seed in rounds(0.03):
        chance = random.Random(seed)
        store, journal = place / f"store{seed}", place / f"journal{seed}"
        mqstore.open(store, "x", **SIZES).close()
        kills = LONG_KILLS if is_long else KILLS
        words = [live_and_be_killed(store, journal, number, MODES[mode], chance) for number in range(kills)]
        verdict = judged(store, Journal(journal.read_text().splitlines(), is_pooled=mode == "pool"), MODES[mode])
        verdict.errors += filter(None, words)
        cases.add(verdict, f"{mode}, seed {seed}")
        # The other kills of this store.
        cases.row.cases += kills - 1
