"""Damaged stores that verify reports as ok: a broker that starts on them serves every message. See README.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import compare
import embedded
import pytest
from crash import LOSSES, PUTS_BETWEEN_PAUSES, images_of, place
from generator import Generator, Geometry, Step
from proof import Proof
from rocketmq import HERE, RocketMQ, need
from test_repaired import geometry_of

import mqstore

#: Of the store of a killed broker.
MESSAGES = 800
#: So long that the stamps of the checkpoint leave segments behind, also where they keep a margin of three seconds.
PAUSE: Step = {"op": "sleep", "ms": 400}
#: Stores whose messages another version reads, but not this one: it has no such records or queues.
UNKNOWN = {"queue.not_read"}
LOST = "queue.not_recovered_by_broker"
#: Notes about messages that are in no queue: lost in an earlier repair, or of a topic that was deleted.
GONE = {"log.lost_messages", "log.earlier_topic"}
#: The damaged stores that verify reports as ok; those of a golden store are not made from the intact one.
OK_STORES, OF_GOLDEN_STORES = 36, 6
#: A note about all messages before the begin of the log, which are lost.
BEGINS_LATE = "log.begins_late"
#: Findings about keys that a broker does not find.
#: A broker without a checkpoint makes every index file again, and names each by the millisecond: small ones overwrite each other.
OF_KEYS = {"index.absent", "index.not_indexed", "index.not_recovered_by_broker", "checkpoint.missing"}


@dataclass(frozen=True)
class Verified:
    """A store, and what verify says of it."""

    path: Path
    geometry: Geometry
    report: mqstore.VerifyReport
    #: What queue offsets must give a consumer.
    places: set[tuple[str, int, int, int]]
    #: By topic and key, the messages that have the key.
    keys: dict[tuple[str, str], set[int]]
    #: The physical offsets of the messages in the queues before the damage, without those before a log that begins late.
    intact: set[int]

    @property
    def found(self) -> set[str]:
        """The names of the findings."""
        return {finding.id for finding in self.report.findings}

    def is_lost_by(self, version: str) -> bool:
        """True if verify says that the recovery of this version loses messages."""
        return any(finding.id == LOST and version in finding.message for finding in self.report.findings)

    @property
    def gone(self) -> int:
        """The number of messages of the intact store of which verify says that they are in no queue."""
        return sum(finding.count for finding in self.report.findings if finding.id in GONE)

    def questions(self) -> list[dict[str, Any]]:
        """A query for every key."""
        return [compare.Asker.always(*key) for key in self.keys]


def verified(path: Path, geometry: Geometry, intact: set[int] | None = None) -> Verified:
    """The store as mqstore reads it; without an intact one it is intact itself."""
    with mqstore.open(path, errors="skip", **embedded.options(geometry)) as store:
        messages = [message for topic in store.topics.values() for queue in topic.queues for message in queue]
        keys: dict[tuple[str, str], set[int]] = {}
        for message in messages:
            for key in [*message.keys, message.unique_key]:
                if key:
                    keys.setdefault((message.topic, key), set()).add(message.physical_offset)
        places = {place(embedded.fields(message)) for message in messages}
        report = store.verify()
        begin = store.min_physical_offset if any(finding.id == BEGINS_LATE for finding in report.findings) else 0
    known = {at[3] for at in places} if intact is None else intact
    return Verified(path, geometry, report, places, keys, {at for at in known if at >= begin})


@pytest.fixture(scope="session")
def of_the_table(tmp_path_factory: pytest.TempPathFactory) -> list[Verified]:
    """The damaged stores of verify's table, closed and crashed."""
    folder = tmp_path_factory.mktemp("damaged")
    program = "verifying::brokers::puts_each_damaged_store_into_a_directory_closed_and_crashed"
    command = [need("cargo", "cargo"), "test", "--quiet", "--test", "it", "--", "--ignored", "--exact", program]
    subprocess.run(command, cwd=HERE, env=os.environ | {"DAMAGED_STORES": str(folder)}, check=True, capture_output=True)
    intact = verified(folder / "intact", geometry_of(folder / "intact"))
    assert not intact.report.findings
    damaged = [path for path in sorted(folder.iterdir()) if path != intact.path]
    stores = [path for path in damaged if (path / "config" / "mqstore.json").exists()]
    assert len(damaged) - len(stores) == OF_GOLDEN_STORES
    return [verified(path, geometry_of(path), intact.intact) for path in stores]


def of_a_killed_broker(rocketmq: RocketMQ, folder: Path) -> Iterator[Verified]:
    """The store of a killed broker: as it is, without files, without one of its queues, and with the end of a queue zeroed."""
    geometry = Geometry(segment=16 << 10, queue=20_000, slots=500, items=1_000)
    generator = Generator(
        f"{rocketmq.version} all clear",
        geometry,
        longest_topic=False,
        separator_at_end=rocketmq.separator_at_end,
        now_ms=time.time_ns() // 1_000_000,
    )
    plan: list[Step] = []
    for number, step in enumerate(generator.plan(MESSAGES), 1):
        if "DELAY" not in dict(step.get("properties", {})):
            plan += [step] if number % PUTS_BETWEEN_PAUSES else [step, PAUSE]
    puts = sum(step["op"] != "sleep" for step in plan)
    rocketmq.killed(folder / "left", geometry, plan, after=puts * 9 // 10)
    images = images_of(folder / "left", [], [], LOSSES)
    paths = [image.path for image in images]
    queues = sorted((images[0].path / "consumequeue").glob("*/*"), key=lambda queue: -len(written_entries(queue)))
    for number, queue in enumerate(queues[:3]):
        lost, zeroed = (images[0].copy(f"{kind} {number}") for kind in ("no queue", "no tail"))
        shutil.rmtree(lost / queue.relative_to(images[0].path))
        file = zeroed / max(queue.iterdir()).relative_to(images[0].path)
        entries = written_entries(file.parent)
        kept = len(entries) // 2 if number else len(entries) - 2
        file.write_bytes(b"".join(entries[:kept]).ljust(file.stat().st_size, b"\0"))
        paths += [lost, zeroed]
    intact = verified(images[0].path, geometry).intact
    yield from (verified(path, geometry, intact) for path in paths)


def written_entries(queue: Path) -> list[bytes]:
    """The entries of the last file of a queue."""
    content = max(queue.iterdir()).read_bytes()
    entries = [content[at : at + 20] for at in range(0, len(content), 20)]
    return [entry for entry in entries if any(entry)]


def differences(rocketmq: RocketMQ, stores: list[Verified], folder: Path) -> Iterator[str]:
    """Claims of verify about messages and keys that are wrong once RocketMQ has opened the stores."""
    copies = [Path(shutil.copytree(store.path, folder / str(number))) for number, store in enumerate(stores)]
    answers = rocketmq.survey_each(
        [(copy, store.geometry, store.questions()) for copy, store in zip(copies, stores, strict=True)]
    )
    for store, answer in zip(stores, answers, strict=True):
        name = f"{store.path.name} ({', '.join(sorted(store.found))})"
        if answer is None:
            yield f"{name}: RocketMQ {rocketmq.version} refuses it"
            continue
        survey, found = answer
        lost = store.places - survey.served
        # A queue may lead to the salvage record where a message was lost, which is of no topic.
        gone = store.intact - {at for topic, _, _, at in survey.served if survey.records[at]["topic"] == topic}
        if len(gone) != store.gone and not store.is_lost_by(rocketmq.version):
            yield f"{name}: {len(gone)} messages of the intact store are in no queue, such as {sorted(gone)[:1]}"
        if bool(lost) != store.is_lost_by(rocketmq.version):
            yield f"{name}: {len(lost)} of {len(store.places)} are not served in their places, such as {sorted(lost)[:1]}"
        if not lost and not store.found & OF_KEYS:
            keys = zip(store.keys.items(), found, strict=True)
            yield from (f"{name}: no {key} at {wanted - set(hits)}" for (key, wanted), hits in keys if wanted - set(hits))


@pytest.mark.parametrize("rocketmq", ["4.9.8", "5.3.3", "5.5.1"], indirect=True)
def test_rocketmq_serves_every_message_of_a_damaged_store_verified_as_ok(
    rocketmq: RocketMQ, of_the_table: list[Verified], proof: Proof, tmp_path: Path
) -> None:
    proof.way = "each damaged store, closed and crashed: where verify says ok, RocketMQ serves every message"
    stores = [store for store in of_the_table if store.report.ok and not store.found & UNKNOWN]
    assert len(stores) == OK_STORES
    proof.differences += differences(rocketmq, stores, tmp_path)
    proof.messages["mqstore"] += sum(len(store.places) for store in stores)
    assert not proof.differences, "\n".join(proof.differences)


@pytest.mark.parametrize("rocketmq", ["4.9.8", "5.3.3", "5.5.1"], indirect=True)
def test_rocketmq_loses_messages_of_a_crash_only_where_verify_says_so(rocketmq: RocketMQ, proof: Proof, tmp_path: Path) -> None:
    proof.way = (
        "a killed broker's store without queues or their ends: RocketMQ loses messages where verify says so, and nowhere else"
    )
    errors = {"error", "warning"}
    stores = [
        store
        for store in of_a_killed_broker(rocketmq, tmp_path)
        if {finding.id for finding in store.report.findings if finding.severity in errors} <= {LOST}
    ]
    assert any(store.report.ok for store in stores)
    assert any(LOST in store.found for store in stores)
    proof.differences += differences(rocketmq, stores, tmp_path)
    proof.messages["RocketMQ"] += sum(len(store.places) for store in stores)
    assert not proof.differences, "\n".join(proof.differences)
