"""Stores that a killed RocketMQ left, some with files removed, and what each side recovers from the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import compare
import embedded
from generator import BUSY_TOPIC, Geometry, Record, Step, asked, index_keys, is_visible
from proof import Recovered
from rocketmq import Dump, RocketMQ, Survey

import mqstore

#: The files that are removed, by the name of the image.
LOSSES: dict[str, list[str]] = {
    "killed": [],
    "queues lost": ["consumequeue"],
    "index lost": ["index"],
    "checkpoint lost": ["checkpoint"],
    "queues, index and checkpoint lost": ["consumequeue", "index", "checkpoint"],
}
#: How the log is cut inside its last known record.
ZEROED, SHORTENED = "zeros from inside the last record on", "file shortened inside the last record"
#: The writer pauses now and then, so that it flushes and writes checkpoints before it is killed.
PUTS_BETWEEN_PAUSES, PAUSE = 50, {"op": "sleep", "ms": 100}
#: The number of keys that are queried.
KEYS = 300
#: Appended to the recovered store.
AFTERWARDS: Step = {
    "op": "put",
    "topic": BUSY_TOPIC,
    "queue": 0,
    "flag": 0,
    "sys_flag": 0,
    "born_time": 0,
    "born_host": "127.0.0.1:0",
    "store_host": "127.0.0.1:0",
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "body": "",
    "properties": {"KEYS": "afterwards", "TAGS": "paid"},
}


@dataclass(frozen=True)
class Image:
    """A store that was not closed."""

    kind: str
    path: Path
    #: The messages that RocketMQ was asked to put, in the order of the log. The last ones may be missing in it.
    wanted: list[Record]
    #: The first of them, which are known to be in the log, with their offsets.
    kept: list[Record]

    def copy(self, name: str) -> Path:
        """Returns a copy of the same bytes."""
        return Path(shutil.copytree(self.path, self.path.with_name(f"{self.path.name}-{name}")))


def crash(rocketmq: RocketMQ, geometry: Geometry, plan: list[Step], folder: Path, drawn: random.Random) -> list[Image]:
    """Kills a writer somewhere in its plan, and makes every image of its store."""
    paused: list[Step] = []
    for number, step in enumerate(plan, 1):
        paused += [step] if number % PUTS_BETWEEN_PAUSES else [step, PAUSE]
    puts = sum(step["op"] != "sleep" for step in plan)
    left = folder / "left"
    stored, _ = compare.places(rocketmq.killed(left, geometry, paused, after=drawn.randrange(1, puts)))
    images = images_of(left, wanted(plan, rocketmq), stored, LOSSES)
    for kind in (ZEROED, SHORTENED):
        image = Image(kind, left.with_name(f"image{len(images)}"), images[0].wanted, images[0].kept[:-1])
        shutil.copytree(left, image.path)
        cut(image, geometry, stored[-1]["physical_offset"], drawn)
        images.append(image)
    return images


def wanted(plan: list[Step], rocketmq: RocketMQ) -> list[Record]:
    """Returns the expected content of the messages of a plan."""
    steps = (step for step in plan if step["op"] != "sleep")
    records = [record for step in steps for record in asked(step, batch_properties=rocketmq.batch_properties)]
    for record in records:
        body = record.pop("body")
        record |= {"body_len": len(body), "body_crc32": zlib.crc32(body)}
    return records


def images_of(left: Path, wanted: list[Record], stored: list[Record], losses: dict[str, list[str]]) -> list[Image]:
    """A copy of a store for each set of what is lost."""
    kept = [record | place for record, place in zip(wanted, stored, strict=False)]
    images: list[Image] = []
    for kind, lost in losses.items():
        image = Image(kind, left.with_name(f"image{len(images)}"), wanted, kept)
        shutil.copytree(left, image.path, ignore=shutil.ignore_patterns(*lost))
        images.append(image)
    return images


def cut(image: Image, geometry: Geometry, offset: int, drawn: random.Random) -> None:
    """Ends the log somewhere inside the record at an offset."""
    folder = image.path / "commitlog"
    last = folder / f"{offset // geometry.segment * geometry.segment:020}"
    with last.open("r+b") as log:
        log.seek(offset % geometry.segment)
        (size,) = struct.unpack(">i", log.read(4))
        log.truncate(offset % geometry.segment + drawn.randrange(1, size))
    later = [file for file in folder.iterdir() if file.name > last.name]
    if image.kind == SHORTENED:
        for file in later:
            file.unlink()
        return
    for file in later:
        os.truncate(file, 0)
    for file in (last, *later):
        os.truncate(file, geometry.segment)  # the missing bytes are zeros


class Examiner:
    """Recovers an image on both sides, and compares the results."""

    def __init__(self, rocketmq: RocketMQ, geometry: Geometry, image: Image, drawn: random.Random) -> None:
        self.rocketmq, self.geometry, self.image = rocketmq, geometry, image
        exact: dict[tuple[str, str], list[int]] = defaultdict(list)
        for record in image.kept:
            for key in dict.fromkeys(index_keys(record, tags=False)):
                exact[record["topic"], key].append(record["physical_offset"])
        #: Some keys, and where the messages are that have them.
        self.keys = {key: exact[key] for key in drawn.sample(sorted(exact), min(KEYS, len(exact)))}
        self.in_queues = [record for record in image.kept if is_visible(record["sys_flag"])]
        self.differences: list[str] = []
        self.rows: list[Recovered] = []

    def examine(self) -> None:
        """Recovers it on each side, in memory and on disk on ours, then has RocketMQ open what we made of it and appended to."""
        questions = [compare.Asker.always(*key) for key in self.keys]
        survey, answers = self.rocketmq.survey(self.image.copy("rocketmq"), self.geometry, questions)
        with mqstore.open(self.image.path, **embedded.options(self.geometry)) as store:
            dump, found = self.dump(store)
        self.count("messages", self.led_to(survey), self.led_to(as_survey(dump)), len(self.in_queues))
        self.count("keys", self.found(answers), self.found(found), sum(map(len, self.keys.values())))
        differences = [*lost(survey, dump, self.image.wanted), *invented(dump, self.image.wanted, survey)]
        ours = self.image.copy("mqstore")
        if self.image.kind == SHORTENED:
            differences += self.refused(ours)
        else:
            differences += self.gone_on(ours, dump, found, questions)
        self.differences += [f"{self.image.kind}: {difference}" for difference in differences]

    def dump(self, store: mqstore.Store) -> tuple[Dump, list[list[int]]]:
        """Returns everything in a store, and the places of the keys."""
        found = [[message.physical_offset for message in store.query(*key, limit=None)] for key in self.keys]
        return embedded.dump(store, self.geometry.segment), found

    def gone_on(self, path: Path, dump: Dump, found: list[list[int]], questions: list[compare.Question]) -> Iterator[str]:
        """Recovers on disk and appends. Returns the differences from recovery in memory, and from what RocketMQ then reads."""
        options = embedded.options(self.geometry)
        with mqstore.open(path, mode="a", index_tags=self.rocketmq.index_tags, **options) as store:
            on_disk, found_on_disk = self.dump(store)
            store.wait_dispatched(embedded.append(store, AFTERWARDS)["physical_offset"])
            longer = embedded.dump(store, self.geometry.segment)
        read, indexed = self.rocketmq.ask(path, self.geometry, questions)
        yield from compare.dumps(dump, on_disk)
        yield from compare.dumps(longer, read)
        yield from compare.queues(read)
        if found_on_disk != found:
            yield "a key leads elsewhere after recovery on disk"
        if self.found(indexed) != self.found(found):
            yield f"RocketMQ finds {self.found(indexed)} of {self.found(found)} keys in our index"

    def refused(self, path: Path) -> Iterator[str]:
        """No crash shortens a segment, but an interrupted copy does. Such a store is read, and refused for writing."""
        before = (path / "commitlog").stat().st_mtime_ns
        try:
            mqstore.open(path, mode="a", **embedded.options(self.geometry)).close()
        except mqstore.CorruptError:
            if (path / "commitlog").stat().st_mtime_ns != before:
                yield "refused, but changed"
        else:
            yield "a shortened segment was written to"

    def count(self, what: str, rocketmq: int, ours: int, of: int) -> None:
        """Records how many of something came back. On our side all must."""
        self.rows.append(Recovered(self.rocketmq.version, f"{self.image.kind}: {what}", rocketmq, ours, of))
        if ours != of:
            self.differences.append(f"{self.image.kind}: mqstore brings back {ours} of {of} {what}")

    def led_to(self, survey: Survey) -> int:
        """Counts the messages in queues to which their own queue offset leads."""
        return sum(place(record) in survey.served for record in self.in_queues)

    def found(self, answers: list[list[int]]) -> int:
        """Counts the messages with the keys among the answers."""
        return sum(len({*answer} & {*offsets}) for answer, offsets in zip(answers, self.keys.values(), strict=True))


def place(record: Record) -> tuple[str, int, int, int]:
    """A place of a queue that must lead to a message, and that message's place."""
    return record["topic"], record["queue_id"], record["queue_offset"], record["physical_offset"]


def as_survey(dump: Dump) -> Survey:
    """Returns the places to which the queues of a dump lead."""
    served = {(*queue, at, entry[0]) for queue, (low, _, entries) in dump.queues.items() for at, entry in enumerate(entries, low)}
    return Survey(dump.records, served)


def lost(survey: Survey, dump: Dump, wanted: list[Record]) -> Iterator[str]:
    """Returns what RocketMQ recovers and we do not: every field, and the place in the queue.

    RocketMQ's check covers the body alone: a record whose properties were cut off passes, and is served though it was never put.
    """
    ours = as_survey(dump).served
    led_to = {offset for *_, offset in survey.served}
    for (offset, record), expected in zip(sorted(survey.records.items()), wanted, strict=False):
        if altered(record, expected):
            continue
        if dump.records.get(offset) != record:
            yield f"RocketMQ has {record!s:.300}, mqstore {dump.records.get(offset)!s:.300}"
        elif offset in led_to and place(record) not in ours:
            yield f"a queue of RocketMQ leads to {record!s:.300}, none of ours"


def invented(dump: Dump, wanted: list[Record], survey: Survey) -> Iterator[str]:
    """Returns what we recover and nobody put: the log must hold a prefix of the puts, in their order.

    The last record of a broker may have lost the end of its properties. Nothing shows that, so we keep it as RocketMQ does.
    """
    found = [record for _, record in sorted(dump.records.items())]
    if len(found) > len(wanted):
        yield f"{len(found)} records, though only {len(wanted)} were put"
    for record, expected in zip(found, wanted, strict=False):
        is_kept_by_both = record is found[-1] and survey.records.get(record["physical_offset"]) == record
        if (wrong := altered(record, expected)) and not is_kept_by_both:
            yield f"record at {record['physical_offset']}: {wrong}"


def altered(record: Record, expected: Record) -> Record:
    """The fields that are not what was put."""
    return {name: record[name] for name, value in expected.items() if record[name] != value}
