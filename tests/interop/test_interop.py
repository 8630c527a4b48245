"""Stores that RocketMQ's own classes and mqstore write, read and extend in turn. See README.md."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import compare
import embedded
import pytest
from generator import DELAY_LEVELS, Generator, Geometry, Record, Step, count_kinds, is_visible
from proof import Proof
from rocketmq import Dump, RocketMQ

import mqstore

#: Of each plan, and so of each way.
MESSAGES = 10_000
KEY_QUESTIONS, TIME_QUESTIONS, GETS = 2_000, 2_000, 10_000
TURNS = 3
#: Puts that both sides carry out, each on a store of its own.
SCRIPT = 1_000

#: The defaults of a broker.
BROKER = Geometry(segment=1 << 30, queue=6_000_000, slots=5_000_000, items=20_000_000)


def make_plan(
    rocketmq: RocketMQ, geometry: Geometry, seed: str, proof: Proof, messages: int, *, separator_at_end: bool
) -> list[Step]:
    """A plan with every kind in it."""
    generator = Generator(
        f"{rocketmq.version} {seed}",
        geometry,
        longest_topic=rocketmq.longest_topic,
        separator_at_end=separator_at_end,
        now_ms=time.time_ns() // 1_000_000,
    )
    plan = generator.plan(messages)
    kinds = count_kinds(plan, longest_topic=rocketmq.longest_topic)
    missing = [kind for kind, count in kinds.items() if count == 0]
    assert not missing, f"the plan {seed!r} has no message of these kinds: {missing}"
    proof.kinds.update(kinds)
    return plan


@contextmanager
def opened(path: Path, geometry: Geometry) -> Iterator[tuple[mqstore.Store, mqstore.Store]]:
    """Opens the store with the sizes that its files show, and again with nothing counted as cached."""
    sizes = embedded.options(geometry)
    with mqstore.open(path) as store, mqstore.open(path, access_message_in_memory_max_ratio=0, **sizes) as cold:
        yield store, cold


@dataclass(frozen=True)
class Written:
    """A request to write, and the report of one side."""

    writer: str
    plan: list[Step]
    #: Of each message.
    stored: list[Record]
    #: Where the messages of each put are.
    puts: list[list[int]]
    #: Whether the properties of a producer batch itself reach its messages.
    batch_properties: bool = False


def check_closed(path: Path) -> None:
    """The store was closed in order, and every kind of file has successors."""
    assert not (path / "abort").exists()
    for files in (path / "commitlog", path / "index", path / "consumequeue" / "busy" / "0"):
        assert len(list(files.iterdir())) > 2, f"{files} did not roll"


def date_queue_files(path: Path, dump: Dump, geometry: Geometry) -> None:
    """RocketMQ 4 looks for a time in the first queue file that was changed since; so each gets its last message's time."""
    for (topic, queue), (_, _, entries) in dump.queues.items():
        for file in (path / "consumequeue" / topic / str(queue)).iterdir():
            last = min((int(file.name) + geometry.queue) // compare.ENTRY_SIZE, len(entries)) - 1
            at = dump.records[entries[last][0]]["store_time"] * 1_000_000
            os.utime(file, ns=(at, at))


def compare_all(rocketmq: RocketMQ, geometry: Geometry, path: Path, proof: Proof, seed: str, written: list[Written]) -> None:
    """Opens a store on both sides, reads all of it and asks both the same questions."""
    with opened(path, geometry) as (store, cold):
        ours = embedded.dump(store, geometry.segment)
        date_queue_files(path, ours, geometry)
        asker = compare.Asker(ours, random.Random(f"{rocketmq.version} {seed}"), rocketmq, geometry)
        questions = asker.questions(KEY_QUESTIONS, TIME_QUESTIONS, GETS)
        theirs, answers = rocketmq.ask(path, geometry, questions)
        proof.differences += compare.dumps(ours, theirs)
        proof.differences += compare.queues(theirs)
        proof.differences += asker.answers(store, cold, questions, answers)
    proof.differences += compare.rolls(path, geometry, theirs, [put for part in written for put in part.puts])
    for part in written:
        proof.differences += compare.plans(part.plan, part.stored, theirs, batch_properties=part.batch_properties)
    proof.compared["records"] += len(theirs.records)
    proof.compared["key queries"] += KEY_QUESTIONS
    proof.compared["time lookups"] += TIME_QUESTIONS
    proof.compared["gets"] += GETS


def settle(proof: Proof, written: list[Written]) -> None:
    """Counts the messages, and fails on any difference."""
    for part in written:
        proof.messages[part.writer] += len(part.stored)
    assert not proof.differences, "\n".join([f"{len(proof.differences)} differences, the first are", *proof.differences[:10]])


def test_what_rocketmq_writes_we_read(rocketmq: RocketMQ, geometry: Geometry, proof: Proof, tmp_path: Path) -> None:
    proof.way = "a: RocketMQ writes, mqstore reads"
    store = tmp_path / "store"
    plan = make_plan(rocketmq, geometry, "a", proof, MESSAGES, separator_at_end=rocketmq.separator_at_end)
    written = Written("RocketMQ", plan, *compare.places(rocketmq.write(store, geometry, plan)), rocketmq.batch_properties)
    check_closed(store)
    compare_all(rocketmq, geometry, store, proof, "a", [written])
    settle(proof, [written])


@pytest.mark.parametrize("mode", embedded.MODES)
def test_what_we_write_rocketmq_reads(rocketmq: RocketMQ, geometry: Geometry, proof: Proof, tmp_path: Path, mode: str) -> None:
    proof.way = f"b: mqstore writes ({mode}), RocketMQ reads"
    store = tmp_path / "store"
    plan = make_plan(rocketmq, geometry, "b", proof, MESSAGES, separator_at_end=True)
    places = embedded.write(store, "x", geometry, plan, index_tags=rocketmq.index_tags, **embedded.MODES[mode])
    written = Written("mqstore", plan, *places)
    check_closed(store)
    compare_all(rocketmq, geometry, store, proof, "b", [written])
    settle(proof, [written])


@pytest.mark.parametrize("mode", embedded.MODES)
def test_both_extend_what_the_other_wrote(
    rocketmq: RocketMQ, geometry: Geometry, proof: Proof, tmp_path: Path, mode: str
) -> None:
    proof.way = f"c: both append in turn (mqstore: {mode})"
    store = tmp_path / "store"
    size = MESSAGES // TURNS + 1
    written: list[Written] = []
    log = b""
    for turn in range(TURNS):
        plan = make_plan(rocketmq, geometry, f"c{turn} RocketMQ", proof, size, separator_at_end=rocketmq.separator_at_end)
        written.append(
            Written("RocketMQ", plan, *compare.places(rocketmq.write(store, geometry, plan)), rocketmq.batch_properties)
        )
        log = grown(store, geometry, log)
        plan = make_plan(rocketmq, geometry, f"c{turn} mqstore", proof, size, separator_at_end=True)
        places = embedded.write(store, "r+", geometry, plan, index_tags=rocketmq.index_tags, **embedded.MODES[mode])
        written.append(Written("mqstore", plan, *places))
        log = grown(store, geometry, log)
        compare_all(rocketmq, geometry, store, proof, f"c{turn}", written)
    settle(proof, written)


def test_one_script_has_equal_results_and_answers_on_both_sides(
    rocketmq: RocketMQ, geometry: Geometry, proof: Proof, tmp_path: Path
) -> None:
    proof.way = "one script on a store of each"
    generator = Generator(
        rocketmq.version,
        geometry,
        longest_topic=rocketmq.longest_topic,
        separator_at_end=True,
        now_ms=time.time_ns() // 1_000_000,
    )
    script = [step for step in generator.plan(SCRIPT * 3 // 2) if step["op"] == "put"]
    theirs_store, ours_store = tmp_path / "theirs", tmp_path / "ours"
    theirs = rocketmq.write(theirs_store, geometry, script)
    with mqstore.open(ours_store, mode="x", index_tags=rocketmq.index_tags, **embedded.options(geometry)) as store:
        ours = [embedded.said(embedded.put(store, step)) for step in script]
    proof.messages |= Counter({"RocketMQ": len(theirs), "mqstore": len(ours)})
    assert len(ours) >= SCRIPT
    proof.compared["results"] = len(ours)
    proof.differences += compare.results(script, ours, theirs, geometry.segment, separator_at_end=rocketmq.separator_at_end)

    with opened(ours_store, geometry) as (store, cold):
        asker = compare.Asker(embedded.dump(store, geometry.segment), random.Random(rocketmq.version), rocketmq, geometry)
        # Two stores, two clocks: no question may name a time.
        questions = [
            question
            for question in asker.questions(SCRIPT, 0, SCRIPT * 2)
            if question.get("end", compare.FOR_EVER) == compare.FOR_EVER
        ]
        _, answers = rocketmq.ask(theirs_store, geometry, questions)
        same = {their["physical_offset"]: our["physical_offset"] for our, their in zip(ours, theirs, strict=True)}
        proof.differences += asker.answers(store, cold, questions, [moved(answer, same) for answer in answers])
    proof.compared["questions"] = len(questions)
    settle(proof, [])


def moved(answer: Any, same: dict[int, int]) -> Any:
    """An answer with the offsets of the other store, whose records may differ by the last separator of their properties."""
    if isinstance(answer, list):
        return [same[offset] for offset in answer]
    return answer | {"physical_offsets": [same[offset] for offset in answer["physical_offsets"]]}


def test_rocketmq_derives_the_very_files_from_our_log(
    rocketmq: RocketMQ, geometry: Geometry, proof: Proof, tmp_path: Path
) -> None:
    proof.way = "queue and index files, from one log"
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    plan = make_plan(rocketmq, geometry, "files", proof, MESSAGES, separator_at_end=True)
    written = Written("mqstore", plan, *embedded.write(ours, "x", geometry, plan, index_tags=rocketmq.index_tags))
    check_closed(ours)
    shutil.copytree(ours / "commitlog", theirs / "commitlog")
    # With an abort file 4.9.8 would recover before it knows its delay levels, and enter delayed messages under their tags.
    rocketmq.run(theirs, geometry, "recover_files=100000")
    check_closed(theirs)
    proof.compared["files"] = sum(file.is_file() for kind in ("index", "consumequeue") for file in (ours / kind).rglob("*"))
    proof.differences += compare.derived_files(ours, theirs)
    settle(proof, [written])


def test_a_store_has_one_writer_and_is_read_beside_it(rocketmq: RocketMQ, geometry: Geometry, tmp_path: Path) -> None:
    store = tmp_path / "store"
    plan = Generator(rocketmq.version, geometry, longest_topic=False, separator_at_end=rocketmq.separator_at_end, now_ms=0).plan(
        500
    )
    with rocketmq.held(store, geometry, plan) as results:
        stored, _ = compare.places(results)
        with pytest.raises(mqstore.LockedError):
            mqstore.open(store, mode="r+")
        with mqstore.open(store, **embedded.options(geometry)) as beside:
            found = embedded.dump(beside, geometry.segment)
        assert not list(compare.plans(plan, stored, found, batch_properties=rocketmq.batch_properties))
    assert not list(compare.dumps(found, rocketmq.ask(store, geometry, [])[0]))
    with mqstore.open(store, mode="r+"), pytest.raises(RuntimeError, match="Lock failed"):
        rocketmq.ask(store, geometry, [])


def test_rocketmq_reads_and_extends_a_copy_of_its_store(
    rocketmq: RocketMQ, geometry: Geometry, proof: Proof, tmp_path: Path
) -> None:
    proof.way = "a copy that mqstore makes of RocketMQ's store, in files of other sizes"
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    # Where RocketMQ writes no separator at the end, the longest properties leave room for the separator of the copy.
    plan = make_plan(rocketmq, geometry, "copy", proof, MESSAGES, separator_at_end=True)
    rocketmq.write(origin, geometry, plan)
    other = Geometry(2 * geometry.segment, geometry.queue, 2 * geometry.slots + 1, geometry.items)
    sizes = {name: size for name, size in embedded.options(other).items() if name != "message_delay_level"}
    with mqstore.open(origin, index_tags=rocketmq.index_tags, **embedded.options(geometry)) as store:
        told = store.copy_to(copy, geometry=sizes, keep_store_time=True)
        before = [unplaced(record) for _, record in sorted(embedded.dump(store, geometry.segment).records.items())]
    assert (told.complete, told.raised) == (True, 0)
    check_closed(copy)
    compare_all(rocketmq, other, copy, proof, "copy", [])
    theirs, _ = rocketmq.ask(copy, other, [])
    # What no consumer sees is not copied.
    expected = [record for record in before if is_visible(record["sys_flag"])]
    assert [unplaced(record) for _, record in sorted(theirs.records.items())] == expected
    assert len(expected) == told.rows
    proof.messages["copied"] += told.rows
    rocketmq.write(copy, other, plan[:100])
    with mqstore.open(copy) as store:
        proof.differences += compare.dumps(embedded.dump(store, other.segment), rocketmq.ask(copy, other, [])[0])
    settle(proof, [])


def unplaced(record: Record) -> Record:
    """All of a record but its place."""
    placed = {"queue_offset", "physical_offset", "store_size", "message_id"}
    return {name: value for name, value in record.items() if name not in placed}


def test_a_broker_with_default_sizes_extends_our_store(rocketmq: RocketMQ, tmp_path: Path) -> None:
    store = tmp_path / "store"
    generator = Generator(rocketmq.version, BROKER, longest_topic=rocketmq.longest_topic, separator_at_end=True, now_ms=0)
    plans = [[generator.plain() for _ in range(100)] for _ in range(3)]
    with mqstore.open(store, mode="x", geometry="broker", message_delay_level=DELAY_LEVELS) as ours:
        stored = [[embedded.append(ours, step) for step in plans[0]]]
    stored.append(compare.places(rocketmq.write(store, None, plans[1]))[0])
    with mqstore.open(store, mode="a", message_delay_level=DELAY_LEVELS) as ours:
        stored.append([embedded.append(ours, step) for step in plans[2]])
    theirs, _ = rocketmq.ask(store, None, [])
    with mqstore.open(store) as ours:
        assert not list(compare.dumps(embedded.dump(ours, BROKER.segment), theirs))
    for plan, places in zip(plans, stored, strict=True):
        assert not list(compare.plans(plan, places, theirs, batch_properties=False))
    assert len(theirs.records) == sum(len(plan) for plan in plans)


def grown(path: Path, geometry: Geometry, before: bytes) -> bytes:
    """The bytes of the log up to its end; what was there before is still there."""
    with mqstore.open(path, **embedded.options(geometry)) as store:
        end = store.max_physical_offset
    log = b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))[:end]
    assert log.startswith(before), "bytes below the end of the log have changed"
    return log
