"""Damaged stores that mqstore has repaired, opened by RocketMQ. See README.md."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import compare
import embedded
import pytest
from crash import AFTERWARDS, place
from generator import Generator, Geometry, Record, is_visible
from proof import Proof
from rocketmq import HERE, Dump, RocketMQ, Survey, need

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
def test_rocketmq_reads_and_continues_a_rebuilt_store(
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
def test_rocketmq_reads_every_other_message_around_a_damaged_record(
    rocketmq: RocketMQ, written: tuple[Path, Geometry, Dump], proof: Proof, tmp_path: Path
) -> None:
    source, geometry, before = written
    proof.way = "a damaged record, mqstore repairs into a new directory, RocketMQ reads"
    store, into = Path(shutil.copytree(source, tmp_path / "store")), tmp_path / "repaired"
    starts = sorted(before.records)
    # No queue entry names the next message: only the damaged record's own lengths show where it starts.
    damaged = next(
        offset
        for offset, following in itertools.pairwise(starts)
        if before.records[offset]["body_len"] > 100 and not is_visible(before.records[following]["sys_flag"])
    )
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


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The damaged stores of verify's table, one or more for each finding, as a repair in place leaves those that it changes;
    repaired copies of these, of a closed and of a killed store; and repaired copies of stores with three damages at random;
    `DAMAGE_SEEDS` says how many of these."""
    folder = tmp_path_factory.mktemp("mended")
    programs = [
        "repairing::table::puts_each_store_that_a_repair_has_changed_into_a_directory",
        "repairing::any_damage::puts_repaired_copies_of_any_damage_into_a_directory",
    ]
    command = [need("cargo", "cargo"), "test", "--quiet", "--test", "it", "--", "--ignored", "--exact", *programs]
    environment = {"DAMAGE_SEEDS": "12"} | os.environ | {"REPAIRED_STORES": str(folder)}
    subprocess.run(command, cwd=HERE, env=environment, check=True, capture_output=True)
    return sorted(folder.iterdir())


def geometry_of(store: Path) -> Geometry:
    """Returns what mqstore has recorded of it."""
    sizes = json.loads((store / "config" / "mqstore.json").read_text())
    return Geometry(
        segment=sizes["mapped_file_size_commit_log"],
        queue=sizes["mapped_file_size_consume_queue"],
        slots=sizes["max_hash_slot_num"],
        items=sizes["max_index_num"],
    )


@dataclass(frozen=True)
class Asked:
    """A repaired store as mqstore reads it."""

    path: Path
    #: RocketMQ opens this one.
    copy: Path
    #: Messages by physical offset.
    records: dict[int, Record]
    #: Physical offsets by topic and key.
    of_keys: dict[tuple[str, str], list[int]]

    @classmethod
    def of(cls, path: Path, rocketmq: RocketMQ, folder: Path) -> Asked | None:
        """Reads a store. Returns None if it has records of a form that this version cannot read."""
        with mqstore.open(path, errors="skip") as store:
            messages = [message for topic in store.topics.values() for queue in topic.queues for message in queue]
            keys = sorted({(message.topic, key) for message in messages for key in [*message.keys, message.unique_key] if key})
            of_keys = {key: [message.physical_offset for message in store.query(*key, limit=None)] for key in keys}
        if not rocketmq.longest_topic and any(len(message.topic) > 127 for message in messages):
            return None
        # RocketMQ makes two directories of a name with a comma.
        copy = Path(shutil.copytree(path, folder / str(len(list(folder.iterdir())))))
        return cls(path, copy, {message.physical_offset: embedded.fields(message) for message in messages}, of_keys)

    def questions(self) -> list[dict[str, Any]]:
        return [compare.Asker.always(*key) for key in self.of_keys]

    def differences(self, survey: Survey, answers: list[Any]) -> Iterator[str]:
        places = set(map(place, self.records.values()))
        offsets = {one[:-1] for one in places}
        # Queues lead to no message of a topic that was deleted. Where a queue has a hole, its entry leads to the next message.
        whole = {at: record for at, record in survey.records.items() if record["topic"]}
        served = {one for one in survey.served if one[-1] in self.records and one[:-1] in offsets}
        if self.records != {at: record for at, record in whole.items() if at in self.records} or any(
            place(record)[:-1] not in offsets for at, record in whole.items() if at not in self.records
        ):
            yield "the records of the log"
        if places != served:
            yield "what the queues lead to"
        if [set(answer) for answer in answers] != list(map(set, self.of_keys.values())):
            yield "what has a key"


@pytest.mark.parametrize("rocketmq", ["4.9.8", "5.3.3", "5.5.1"], indirect=True)
def test_rocketmq_agrees_with_us_about_each_repaired_store(
    rocketmq: RocketMQ, mended: list[Path], proof: Proof, tmp_path: Path
) -> None:
    proof.way = "each finding of verify, mqstore repairs, RocketMQ reads"
    assert len(mended) > 150
    ours = [asked for path in mended if (asked := Asked.of(path, rocketmq, tmp_path)) is not None]
    theirs = rocketmq.survey_each([(asked.copy, geometry_of(asked.path), asked.questions()) for asked in ours])
    for asked, answer in zip(ours, theirs, strict=True):
        wrong = asked.differences(*answer) if answer else ["it is refused"]
        proof.differences += [f"{asked.path.name}: {difference}" for difference in wrong]
        proof.messages["mqstore"] += len(asked.records)
        proof.compared["keys"] += len(asked.of_keys)
    assert not proof.differences
