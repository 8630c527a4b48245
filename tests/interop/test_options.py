"""Stores of 5.5.1 with newer options, which mqstore has written to: RocketMQ reads every message again. See README.md."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import golden
import pytest
from rocketmq import RocketMQ, save_lines
from unpack import unpack

import mqstore

#: A writer refuses queues that are in RocksDB alone.
NAMES = [name for name in golden.STORES if name != "551_rocksdb"]
#: Their light queues.
LITE = {"551_lite", "551_double_write"}
OURS = 5


#: The index in RocksDB is asked for a week at most.
HOUR_MS = 3_600_000


def by_key(key: str, time_ms: int, least: int) -> dict[str, object]:
    times = {"begin": time_ms - HOUR_MS, "end": time_ms + HOUR_MS}
    return {"op": "key", "topic": "orders", "key": key, "max": 64, "least": least, **times}


def light(room: int) -> dict[str, object]:
    return {"op": "get", "topic": f"%LMQ%$chats$room-{room}", "queue": 0, "offset": 0, "max": 32, "memory_ratio": 100}


def ask(name: str, path: Path, folder: Path, *, has_keys: bool = True) -> dict[str, list[Any]]:
    """Returns the records, queues, hits of two keys and messages of light queues that RocketMQ reads."""
    written = next(line["store_timestamp"] for line in before(name) if "topic" in line)
    least = (OURS, 1) if has_keys else (0, 0)
    keys = [by_key("ours", time.time_ns() // 1_000_000, least[0]), by_key("k7", written, least[1])]
    rooms = [light(room) for room in range(3)] if name in LITE else []
    questions = save_lines(folder / "questions", [*keys, *rooms])
    return RocketMQ(golden.VERSION).run(path, golden.GEOMETRY, *golden.options_of(name), "dump", f"query={questions}")


def before(name: str) -> list[dict[str, Any]]:
    """Returns the lines that RocketMQ read of a golden store when it was written."""
    return [json.loads(line) for line in (golden.GOLDEN / "expected" / f"{name}.jsonl").read_text().splitlines()]


def written_to(name: str, folder: Path, *, is_killed: bool = False) -> tuple[Path, list[int]]:
    """A golden store with messages of ours, and their physical offsets."""
    unpack(golden.GOLDEN / f"{name}.tar.xz", folder)
    path = folder / name
    mqstore.rebuild(path, dry_run=False)
    with mqstore.open(path, "a") as store:
        added = [
            store.append("orders", b"ours", queue_id=0, keys="ours", unique_key=f"{n:032X}").physical_offset for n in range(OURS)
        ]
        if is_killed:
            # A segment that is being made is left out: it has no name in the log yet.
            path = shutil.copytree(path, folder / "killed", ignore=shutil.ignore_patterns("mqstore-new-*"))
    return path, added


def check(name: str, added: list[int], answers: dict[str, list[Any]], *, has_keys: bool = True) -> None:
    records = {line["physical_offset"] for line in answers["dump"] if "topic" in line}
    assert records == {line["physical_offset"] for line in before(name) if "topic" in line} | set(added)
    bounds = [
        {line["queue"]: (line["min"], line["max"]) for line in part if "queue" in line}
        for part in (before(name), answers["dump"])
    ]
    first, last = bounds[0]["orders/0"]
    assert bounds[1] == bounds[0] | {"orders/0": (first, last + OURS)}
    ours, other, *light_queues = answers["query"]
    assert [len(answer["physical_offsets"]) for answer in light_queues] == [3] * len(light_queues)
    if has_keys:
        # A recovery of RocketMQ may put a key into the index twice.
        assert (set(ours), len(set(other))) == (set(added), 1)


@pytest.mark.parametrize("name", NAMES)
def test_rocketmq_reads_what_mqstore_adds_to_stores_of_newer_options(name: str, tmp_path: Path) -> None:
    path, added = written_to(name, tmp_path)
    check(name, added, ask(name, path, tmp_path))


@pytest.mark.parametrize("name", [name for name in NAMES if "accelerated" not in name])
def test_rocketmq_recovers_stores_of_newer_options_from_a_crash_of_ours(name: str, tmp_path: Path) -> None:
    path, added = written_to(name, tmp_path, is_killed=True)
    # A recovery of RocketMQ removes index files and does not make them again.
    has_keys = name == "551_index_rocksdb"
    check(name, added, ask(name, path, tmp_path, has_keys=has_keys), has_keys=has_keys)


def test_mqstore_opens_a_crashed_store_that_accelerated_recovery_refuses(tmp_path: Path) -> None:
    name = "551_accelerated"
    path, added = written_to(name, tmp_path, is_killed=True)
    # RocketMQ refuses the checkpoint that its own clean exit left, too, once a process that opened it is killed.
    (path / "checkpoint").write_bytes((tmp_path / name / "checkpoint").read_bytes()[:8].ljust(4096, b"\0"))
    with pytest.raises(RuntimeError, match="does not load"):
        ask(name, path, tmp_path)
    mqstore.open(path, "a").close()
    check(name, added, ask(name, path, tmp_path))
