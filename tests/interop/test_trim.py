"""Stores that mqstore has trimmed, beside those that RocketMQ has aged. See README.md."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import compare
import embedded
import pytest
from crash import AFTERWARDS
from generator import Geometry, Step
from rocketmq import Dump, RocketMQ, read_dump, save_lines

import mqstore

#: 12 messages fill a segment, 50 entries a queue file, and 100 keys an index file.
GEOMETRY = Geometry(segment=16 << 10, queue=1_000, slots=50, items=100)
MESSAGES, QUEUES, OLD_SEGMENTS = 400, 2, 9
#: Longer than `fileReservedTime`, 72 h.
AGE_S = 100 * 3600


@pytest.fixture
def store(rocketmq: RocketMQ, tmp_path: Path) -> Path:
    """A store of two queues in turn, and a queue whose messages all lie in the oldest segment."""
    path = tmp_path / "store"
    with mqstore.open(path, "x", index_tags=rocketmq.index_tags, **embedded.options(GEOMETRY)) as store:
        for number in range(MESSAGES):
            store.append("orders", b"x" * 1_000, queue_id=number % QUEUES, keys=[f"k{number}"])
            if number == 0:
                # Not at offset 0: where that has expired, RocketMQ 4 reads the first segment that is left instead.
                store.append("old", b"x")
    return path


def test_a_trim_leaves_what_rocketmq_leaves_of_aged_segments(rocketmq: RocketMQ, store: Path, tmp_path: Path) -> None:
    aged = shutil.copytree(store, tmp_path / "aged")
    with mqstore.open(store, "r+", **embedded.options(GEOMETRY)) as writer:
        writer.trim(before_offset=OLD_SEGMENTS * GEOMETRY.segment)
        left = embedded.dump(writer, GEOMETRY.segment)
    ours, answers = read(rocketmq, store)
    assert ours.bounds == left.bounds
    assert ours.bounds[0] == OLD_SEGMENTS * GEOMETRY.segment
    orders = [("orders", queue) for queue in range(QUEUES)]
    assert [bounds_of(ours)[queue] for queue in orders] == [bounds_of(left)[queue] for queue in orders]
    assert {answer["status"] for answer in answers if isinstance(answer, dict)} >= {"FOUND", "OFFSET_TOO_SMALL"}
    assert {len(answer) for answer in answers if isinstance(answer, list)} == {0, 1}
    if rocketmq.number < (5, 4):  # the harness does not reach the service that cleans the queues of later ones
        for segment in sorted((aged / "commitlog").iterdir())[:OLD_SEGMENTS]:
            old = time.time() - AGE_S
            os.utime(segment, (old, old))
        theirs, their_answers = read(rocketmq, aged, "expire")
        assert (ours.bounds, bounds_of(ours)) == (theirs.bounds, bounds_of(theirs))
        assert ours.records == theirs.records
        assert answers == their_answers


def test_a_trim_of_a_killed_rocketmq_keeps_the_bounds_of_its_queues(rocketmq: RocketMQ, tmp_path: Path) -> None:
    path = tmp_path / "store"
    body = base64.b64encode(b"x" * 1_000).decode()
    puts: list[Step] = [
        AFTERWARDS | {"topic": "orders", "queue": number % QUEUES, "body": body, "properties": {"KEYS": f"k{number}"}}
        for number in range(MESSAGES)
    ]
    # Killed once it holds the store open, after a line for the command and one for each put: all messages are in their queues.
    left = rocketmq.killed(path, GEOMETRY, [*puts, {"op": "sleep", "ms": 2_000}], after=MESSAGES + 1)
    places, _ = compare.places(left)
    assert len(places) == MESSAGES
    assert (path / "abort").exists()
    kept = 5 * GEOMETRY.segment
    command = [sys.executable, "-m", "mqstore", "trim", str(path), "--max-bytes", str(kept), "--yes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (path / "abort").exists()
    begin = min(int(segment.name) for segment in (path / "commitlog").iterdir())
    assert begin > 10 * GEOMETRY.segment
    first = {queue: next(p for p in places[queue::QUEUES] if p["physical_offset"] >= begin) for queue in range(QUEUES)}
    expected = {("orders", queue): (place["queue_offset"], MESSAGES // QUEUES) for queue, place in first.items()}
    with mqstore.open(path) as reader:
        ours = embedded.dump(reader, GEOMETRY.segment)
    assert bounds_of(ours) == expected
    theirs = read_dump(rocketmq.run(path, GEOMETRY, "dump")["dump"])
    assert (theirs.bounds, bounds_of(theirs)) == (ours.bounds, expected)
    assert theirs.records == ours.records


def bounds_of(dump: Dump) -> dict[tuple[str, int], tuple[int, int]]:
    """Returns the minimum and maximum of each queue."""
    return {queue: found[:2] for queue, found in dump.queues.items()}


def read(rocketmq: RocketMQ, path: Path, *commands: str) -> tuple[Dump, list[Any]]:
    """Returns what RocketMQ reads of a store, and its answers to gets and queries by key."""
    gets: list[dict[str, Any]] = [
        {"op": "get", "topic": topic, "queue": queue, "offset": offset, "max": 2, "memory_ratio": 40}
        for topic, queue in (("orders", 0), ("orders", 1), ("old", 0))
        for offset in ((0, 30, 60, 150) if topic == "orders" else (0,))
    ]
    key = {"op": "key", "topic": "orders", "max": 64, "begin": 0, "end": 1 << 62}
    keys = [key | {"key": f"k{number}"} for number in range(0, MESSAGES, 7)]
    questions = save_lines(path.with_name(f"{path.name}.questions"), gets + keys)
    answers = rocketmq.run(path, GEOMETRY, *commands, "dump", f"query={questions}")
    return read_dump(answers["dump"]), answers["query"]
