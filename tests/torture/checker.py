"""Checks a store after a crash: nothing lost or invented, one order, no gap in a queue, and each key finds its message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from writer import SMALL, message

import mqstore

KEYS = 150

Options = dict[str, Any]


@dataclass
class Verdict:
    """The result of a check."""

    lost: int = 0
    phantom: int = 0
    errors: list[str] = field(default_factory=list)
    #: The numbers of the messages that are there, in the order of the log.
    present: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.phantom or self.errors)

    def __str__(self) -> str:
        return f"lost {self.lost}, phantom {self.phantom}, errors {self.errors}"


def number_of(found: mqstore.Message) -> int | None:
    """The number of the message; `None` if it is not one of ours, or differs from what was appended."""
    try:
        number, size, queues = (int(word) for word in found.body.split(b" ", 3)[:3])
    except ValueError:
        return None
    topic, body, tags, keys, _, queue = message(number, size, queues)
    whole = (found.topic, found.body, found.tags, found.keys, found.queue_id) == (topic, body, tags, keys, queue)
    return number if whole else None


def check_open(store: mqstore.Store, must: Sequence[int], may: Sequence[int]) -> Verdict:
    """Compares an open store with what was appended: all of `must`, then a prefix of `may`, and nothing else."""
    verdict = Verdict()
    found: list[tuple[int, int]] = []
    for topic in store.topics.values():
        for queue in topic.queues:
            if queue.min_offset != 0 or len(queue) != queue.max_offset:
                verdict.errors.append(f"{queue!r} starts at {queue.min_offset}")
            for offset, read in enumerate(queue):
                number = number_of(read)
                if number is None or read.queue_offset != offset:
                    verdict.phantom += 1
                    verdict.errors.append(f"{read!r} at queue offset {offset} is nothing that was appended")
                else:
                    found.append((read.physical_offset, number))
    found.sort()
    verdict.present = [number for _, number in found]
    expected = [*must, *may]
    verdict.lost = len(set(must) - set(verdict.present))
    verdict.phantom += len(verdict.present) - len(set(verdict.present) & set(expected))
    if verdict.present != expected[: len(verdict.present)] and not verdict.lost:
        verdict.errors.append(f"{verdict.present} is not how {expected} begins")
    # In a long log only keys of both ends are checked: at the start the index is whole, at the end it may not be.
    by_key = found if len(found) <= 2 * KEYS else found[:KEYS] + found[-KEYS:]
    verdict.errors += [error for place, number in by_key if (error := keys_miss(store, place, number))]
    return verdict


def keys_miss(store: mqstore.Store, place: int, number: int) -> str:
    """The errors in finding messages by key."""
    topic = f"topic{number % 2}"
    result = store.query(topic, f"key{number}")
    places = [hit.physical_offset for hit in result]
    if places != [place] or not result.complete:
        return f"key{number} leads to {places} (complete: {result.complete}), message {number} is at {place}"
    return ""


def sizes(path: Path, new: Options) -> Options:
    """Returns the options for a store: empty if it has files, which show the sizes."""
    return {} if any((path / "commitlog").glob("*")) or (path / "config" / "mqstore.json").exists() else new


def check_read_only(path: Path, must: Sequence[int], may: Sequence[int], new: Options = SMALL) -> Verdict:
    """The verdict on the store opened for reading."""
    if not path.exists() or not any(path.iterdir()):
        return Verdict(lost=len(must))
    try:
        with mqstore.open(path, **sizes(path, new)) as store:
            return check_open(store, must, may)
    except Exception as error:
        return Verdict(lost=len(must), errors=[f"cannot be read: {type(error).__name__}: {error}"])


def check_recovered(path: Path, must: Sequence[int], may: Sequence[int], next_number: int, new: Options = SMALL) -> Verdict:
    """Opens a crashed store for writing, which recovers it; appends and closes; reads it once more."""
    seen = check_read_only(path, must, may, new)
    try:
        with mqstore.open(path, "a", **sizes(path, new)) as store:
            verdict = check_open(store, must, may)
            if verdict.present != seen.present:
                verdict.errors.append(f"a reader saw {seen.present}, recovery made {verdict.present} of it")
            verdict.errors += [f"before recovery: {error}" for error in seen.errors]
            topic, body, tags, keys, _, queue = message(next_number, 60, 2)
            store.append(topic, body, tags=tags, keys=keys, queue_id=queue)
            verdict.present.append(next_number)
        with mqstore.open(path, **sizes(path, new)) as store:
            again = check_open(store, verdict.present, [])
            if not store.recovery.clean_exit:
                again.errors.append("closed, and not clean")
    except Exception as error:
        return Verdict(lost=len(must), errors=[*seen.errors, f"cannot be opened: {type(error).__name__}: {error}"])
    verdict.lost += again.lost
    verdict.phantom += again.phantom
    verdict.errors += [f"when closed and read again: {error}" for error in again.errors]
    return verdict


def total(verdicts: Iterable[Verdict]) -> Verdict:
    """The sum of many verdicts."""
    together = Verdict()
    for verdict in verdicts:
        together.lost += verdict.lost
        together.phantom += verdict.phantom
        together.errors += verdict.errors
    return together
