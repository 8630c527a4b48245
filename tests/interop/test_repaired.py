"""Damaged stores that mqstore has repaired, opened by RocketMQ. See README.md."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import compare
import embedded
import pytest
from crash import AFTERWARDS
from generator import Generator, Geometry
from proof import Proof
from rocketmq import Dump, RocketMQ

import mqstore

#: Of each store.
MESSAGES = 800
KEY_QUESTIONS, TIME_QUESTIONS, GETS = 200, 200, 400


def flip(path: Path) -> None:
    """Changes a byte of every fourth entry or item that was written."""
    content = bytearray(path.read_bytes())
    for at in range(0, len(content) - 20, 80):
        if any(content[at : at + 20]):
            content[at + at // 80 % 20] ^= 0x81
    path.write_bytes(content)


def lose_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (store / "checkpoint").write_bytes(bytes(4096))


def lose_index(store: Path) -> None:
    shutil.rmtree(store / "index")


def flip_queues_and_index(store: Path) -> None:
    for folder in ("consumequeue", "index"):
        for file in (store / folder).rglob("*"):
            if file.is_file():
                flip(file)


@pytest.fixture(scope="module")
def written(rocketmq: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Geometry, Dump]:
    """A store that RocketMQ wrote and closed, and what it holds."""
    geometry = Geometry(segment=256 << 10, queue=2_000, slots=500, items=1_000)
    generator = Generator(
        f"{rocketmq.version} repaired",
        geometry,
        longest_topic=rocketmq.longest_topic,
        separator_at_end=rocketmq.separator_at_end,
        now_ms=time.time_ns() // 1_000_000,
    )
    store = tmp_path_factory.mktemp("written") / "store"
    # RocketMQ 4 delivers what was delayed as soon as it opens the store.
    plan = [step for step in generator.plan(MESSAGES) if "DELAY" not in dict(step.get("properties", {}))]
    rocketmq.write(store, geometry, plan)
    with mqstore.open(store) as opened:
        return store, geometry, embedded.dump(opened, geometry.segment)


@pytest.mark.parametrize("rocketmq", ["4.9.8", "5.3.3"], indirect=True)
@pytest.mark.parametrize("damage", [lose_queues, lose_index, flip_queues_and_index])
def test_rocketmq_reads_all_of_a_store_that_was_made_anew_and_goes_on(
    rocketmq: RocketMQ, written: tuple[Path, Geometry, Dump], proof: Proof, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    source, geometry, before = written
    proof.way = f"{damage.__name__}, mqstore rebuilds, RocketMQ reads"
    store = Path(shutil.copytree(source, tmp_path / "store"))
    damage(store)
    options = embedded.options(geometry)
    mqstore.rebuild(store, dry_run=False, **options)
    with mqstore.open(store) as ours, mqstore.open(store, access_message_in_memory_max_ratio=0, **options) as cold:
        assert cold.verify().ok
        asker = compare.Asker(before, random.Random(rocketmq.version), rocketmq, geometry)
        questions = asker.questions(KEY_QUESTIONS, TIME_QUESTIONS, GETS)
        theirs, answers = rocketmq.ask(store, geometry, questions)
        proof.differences += compare.dumps(before, embedded.dump(ours, geometry.segment))
        proof.differences += compare.dumps(before, theirs)
        # RocketMQ 4 looks for a time in files by when they were changed.
        proof.differences += [
            line for line in asker.answers(ours, cold, questions, answers) if "time" not in line or rocketmq.api > 4
        ]
    proof.messages["RocketMQ"] += len(before.records)
    rocketmq.write(store, geometry, [AFTERWARDS])
    with mqstore.open(store, **options) as ours:
        assert ours.verify().ok
    assert not proof.differences, proof.differences[:10]


@pytest.mark.parametrize("rocketmq", ["4.9.8", "5.3.3"], indirect=True)
def test_rocketmq_reads_every_other_message_of_a_store_with_a_damaged_record(
    rocketmq: RocketMQ, written: tuple[Path, Geometry, Dump], proof: Proof, tmp_path: Path
) -> None:
    source, geometry, before = written
    proof.way = "a damaged record, mqstore repairs into a new directory, RocketMQ reads"
    store, into = Path(shutil.copytree(source, tmp_path / "store")), tmp_path / "repaired"
    starts = sorted(offset for offset, record in before.records.items() if record["body_len"] > 100)
    damaged = starts[len(starts) // 2]
    segment = store / "commitlog" / f"{damaged // geometry.segment * geometry.segment:020}"
    content = bytearray(segment.read_bytes())
    content[damaged % geometry.segment + 140] ^= 1
    segment.write_bytes(content)
    report = mqstore.repair(store, into=into, dry_run=False)
    assert report.ok
    [(begin, end)] = report.lost
    assert begin <= damaged < end
    theirs, _ = rocketmq.ask(into, geometry, [])
    lost = {offset for offset in before.records if begin <= offset < end}
    assert lost == {damaged}
    expected = {offset: record for offset, record in before.records.items() if offset not in lost}
    assert {offset: record for offset, record in theirs.records.items() if record["topic"]} == expected
    for key, (low, high, entries) in before.queues.items():
        their_low, their_high, their_entries = theirs.queues[key]
        assert (their_low, their_high) == (low, high)
        kept = [theirs for ours, theirs in zip(entries, their_entries, strict=True) if ours[0] not in lost]
        assert [entry[:2] for entry in kept] == [entry[:2] for entry in entries if entry[0] not in lost]
    with mqstore.open(into) as ours:
        for record in expected.values():
            assert embedded.fields(ours.message_at(record["physical_offset"])) == record
    proof.messages["RocketMQ"] += len(expected)
