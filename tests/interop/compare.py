"""Two sides of one store, compared. A difference is a line of text; no lines, no differences."""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate, pairwise, zip_longest
from pathlib import Path
from typing import Any

from generator import (
    BLANK,
    COLLIDING,
    TAGS,
    UNLUCKY_KEY,
    UNLUCKY_TOPIC,
    Geometry,
    Record,
    Step,
    asked,
    index_hash,
    index_keys,
    is_visible,
    tags_code,
)
from rocketmq import Dump, RocketMQ

import mqstore

Question = dict[str, Any]

BLANK_MAGIC = 0xCBD43194
#: A queue entry.
ENTRY_SIZE = 20
#: The index keeps times in seconds.
INDEX_STEP_MS = 1000
#: In ms.
FOR_EVER = 1 << 45


def dumps(one: Dump, other: Dump) -> Iterator[str]:
    """Every field of every record, every queue's bounds and entries, the log's bounds."""
    if one.bounds != other.bounds:
        yield f"the log: {one.bounds} and {other.bounds}"
    for offset in sorted(one.records.keys() | other.records.keys()):
        mine, theirs = one.records.get(offset), other.records.get(offset)
        if mine is None or theirs is None:
            yield f"only one side has a record at {offset}: {mine or theirs}"
        elif mine != theirs:
            names = [name for name in mine | theirs if mine.get(name) != theirs.get(name)]
            yield f"record at {offset}: " + ", ".join(f"{name}: {mine.get(name)!r} and {theirs.get(name)!r}" for name in names)
    for key in sorted(one.queues.keys() | other.queues.keys()):
        places = [without_tags(dump, key) for dump in (one, other)]
        if places[0] != places[1]:
            yield f"queue {key}: {places[0]!s:.300} and {places[1]!s:.300}"


def without_tags(dump: Dump, key: tuple[str, int]) -> object:
    """A queue's bounds and where its messages are."""
    low, high, entries = dump.queues.get(key, (0, 0, []))
    return low, high, [entry[:2] for entry in entries]


def plans(plan: list[Step], stored: list[Record], dump: Dump, *, batch_properties: bool) -> Iterator[str]:
    """Every message asked for, where its put said that it is, with what was asked."""
    wanted = [record for step in plan if step["op"] != "sleep" for record in asked(step, batch_properties=batch_properties)]
    if len(wanted) != len(stored):
        yield f"{len(wanted)} messages were asked for, {len(stored)} stored"
    for record, place in zip(wanted, stored, strict=False):
        found = dump.records.get(place["physical_offset"])
        body = record.pop("body")
        record |= place | {"body_len": len(body), "body_crc32": zlib.crc32(body)}
        if found is None:
            yield f"no record where its put said: {record}"
        else:
            wrong = {name: found[name] for name in record if found[name] != record[name]}
            if wrong:
                yield f"record at {place['physical_offset']}: {wrong} instead of { {name: record[name] for name in wrong} }"


def places(results: list[Record]) -> tuple[list[Record], list[list[int]]]:
    """Returns the place of each message, and the places of each put, from the harness's report of puts: a line for a batch."""
    stored, puts = [], []
    for result in results:
        if result["status"] != "PUT_OK":
            raise AssertionError(f"RocketMQ refused a put: {result}")
        message_ids = result["message_id"].split(",")
        puts.append([int(message_id[-16:], 16) for message_id in message_ids])
        for number, message_id in enumerate(message_ids):
            stored.append(
                {
                    "physical_offset": puts[-1][number],
                    "queue_offset": result["queue_offset"] + number,
                    "store_time": result["store_time"],
                    "message_id": message_id,
                }
            )
    return stored, puts


def results(plan: list[Step], ours: list[Record], theirs: list[Record], segment: int, *, separator_at_end: bool) -> Iterator[str]:
    """Compares both reports of the same single puts into empty stores, the time aside: each has its own clock.

    Until 5.2 RocketMQ puts no separator after the last property: its record is one byte shorter than ours.
    """
    sizes = [result["wrote_bytes"] for result in theirs]
    if [result["physical_offset"] for result in theirs] != list(placed(sizes, segment)):
        yield "the records of RocketMQ do not follow each other"
    if not separator_at_end:
        sizes = [size + bool(step["properties"]) for step, size in zip(plan, sizes, strict=True)]
    for step, our, their, size, at in zip(plan, ours, theirs, sizes, placed(sizes, segment), strict=True):
        same = {"wrote_bytes": size, "physical_offset": at, "message_id": f"{their['message_id'][:-16]}{at:016X}"}
        expected = {name: value for name, value in (their | same).items() if name not in ("store_time", "messages")}
        if any(our[name] != value for name, value in expected.items()) or their["messages"] != 1:
            yield f"put of {step!s:.300}: {our} and {their}, with our sizes {expected}"


def placed(sizes: list[int], segment: int) -> Iterator[int]:
    """The offsets of records of these sizes: each follows the previous one, or starts the next segment if it does not fit."""
    end = 0
    for size in sizes:
        room = segment - end % segment
        if size + BLANK > room:
            end += room
        yield end
        end += size


def derived_files(one: Path, other: Path) -> Iterator[str]:
    """Queue files and index files, byte for byte; an index file is named by when it was made, so only their order counts."""
    for mine, theirs in zip_longest(sorted((one / "index").iterdir()), sorted((other / "index").iterdir())):
        if mine is None or theirs is None or mine.read_bytes() != theirs.read_bytes():
            yield f"index files {mine} and {theirs}"
    paths = [{file.relative_to(root) for file in root.glob("consumequeue/*/*/*")} for root in (one, other)]
    for path in sorted(paths[0] | paths[1]):
        if path not in paths[0] & paths[1] or (one / path).read_bytes() != (other / path).read_bytes():
            yield f"queue file {path}"


def queues(dump: Dump) -> Iterator[str]:
    """Within RocketMQ's dump: each queue holds its topic's visible messages, in order, under the right numbers and tags codes."""
    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for offset, record in sorted(dump.records.items()):
        if is_visible(record["sys_flag"]):
            entries = expected[record["topic"], record["queue_id"]]
            if record["queue_offset"] != len(entries):
                yield f"record at {offset} is number {record['queue_offset']} of its queue instead of {len(entries)}"
            entries.append((offset, record["store_size"], tags_code(record)))
        elif record["queue_offset"] != 0:
            yield f"record at {offset} is in no queue and has number {record['queue_offset']}"
    found = {key: entries for key, (_, _, entries) in dump.queues.items()}
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            yield f"queue {key}: {found.get(key)!s:.300} instead of {expected.get(key)!s:.300}"
    times = [record["store_time"] for _, record in sorted(dump.records.items())]
    yield from (f"the store time falls from {before} to {after}" for before, after in pairwise(times) if after < before)


def rolls(path: Path, geometry: Geometry, dump: Dump, puts: list[list[int]]) -> Iterator[str]:
    """Each put follows the previous one, or starts the next segment if it does not fit. A segment ends only so, with a BLANK."""
    end = 0
    for offsets in sorted(puts):
        room = geometry.segment - end % geometry.segment
        sizes = [dump.records[offset]["store_size"] for offset in offsets]
        start = end if sum(sizes) + BLANK <= room else end + room
        expected = list(accumulate(sizes, initial=start))
        if offsets != expected[:-1]:
            yield f"a put of {sum(sizes)} bytes with {room} left is at {offsets} instead of {expected[:-1]}"
        elif start > end:
            segment = path / "commitlog" / f"{start - geometry.segment:020}"
            if segment.read_bytes()[-room:] != struct.pack(">iI", room, BLANK_MAGIC) + bytes(room - BLANK):
                yield f"the last {room} bytes of {segment.name} are not what ends a segment"
        end = expected[-1]


class Asker:
    """Random questions to a store, and how the answers of both sides must relate."""

    def __init__(self, dump: Dump, random: Any, rocketmq: RocketMQ, geometry: Geometry) -> None:
        self.dump, self.random, self.rocketmq, self.geometry = dump, random, rocketmq, geometry
        self.queues = sorted(dump.queues)
        #: Where the messages of a key are, by topic and key, and once more with those of other keys with its hash.
        self.exact: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.by_hash: dict[tuple[str, int], list[int]] = defaultdict(list)
        for offset, record in sorted(dump.records.items()):
            for key in index_keys(record, tags=rocketmq.index_tags):
                self.by_hash[record["topic"], index_hash(record["topic"], key)].append(offset)
            for key in set(index_keys(record, tags=rocketmq.index_tags)):
                self.exact[record["topic"], key].append(offset)
        self.keys = list(self.exact)
        self.times = {
            key: [dump.records[entry[0]]["store_time"] for entry in entries] for key, (_, _, entries) in dump.queues.items()
        }
        every = [record["store_time"] for _, record in sorted(dump.records.items()) if index_keys(record, tags=False)]
        self.begin, self.end = every[0], every[-1]
        # The first item of a file counts its time from the end of the file before, and so is late by the time between.
        self.gap = INDEX_STEP_MS + max(after - before for before, after in pairwise(every))

    def questions(self, keys: int, times: int, gets: int) -> list[Question]:
        """Draws this many of each kind; every key that shares a hash or has no hash of its own is among them."""
        special = [(topic, key) for topic in sorted({topic for topic, _ in self.queues}) for key in COLLIDING]
        special.append((UNLUCKY_TOPIC, UNLUCKY_KEY))
        asked = [self.always(topic, key) for topic, key in special]
        asked += [self.key() for _ in range(keys - len(asked))]
        return asked + [self.time() for _ in range(times)] + [self.get() for _ in range(gets)]

    @staticmethod
    def always(topic: str, key: str) -> Question:
        """Asks by a key, whenever it was stored."""
        return {"op": "key", "topic": topic, "key": key, "max": 1_000_000, "begin": 0, "end": FOR_EVER}

    def key(self) -> Question:
        """Asks by a key that is there, or one of another topic, or of nobody; half of them between two times."""
        topic, key = self.random.choice(self.keys)
        chance = self.random.random()
        if chance < 0.1:
            topic = self.random.choice(self.queues)[0]
        elif chance < 0.2:
            key = self.random.choice(["nobody", "Aa", "BB", "BBBB", key + " "])
        elif chance < 0.25:
            key = "T#" + self.random.choice(TAGS)
        question = self.always(topic, key)
        if self.random.random() < 0.5:
            question["begin"], question["end"] = sorted(self.random.randint(self.begin - 2000, self.end + 2000) for _ in range(2))
        return question

    def time(self) -> Question:
        """Asks by a time around those in the queue."""
        topic, queue = self.random.choice(self.queues)
        times = self.times[topic, queue]
        time = self.random.choice([self.random.choice(times), self.random.randint(times[0] - 20, times[-1] + 20)])
        time += self.random.choice([0, 0, -1, 1])
        return {"op": "time", "topic": topic, "queue": queue, "time": time, "side": self.random.choice(["LOWER", "UPPER"])}

    def get(self) -> Question:
        """Asks by a queue offset in, before or past the queue, with or without tags, from memory or from disk."""
        pick = self.random.choice
        topic, queue = pick([*self.queues, ("absent", 0)])
        _, high, _ = self.dump.queues.get((topic, queue), (0, 0, []))
        offset = self.random.randint(0, high) if self.random.random() < 0.9 else pick([-1, high, high + 1, high + 1000])
        # A broker compares hashes and leaves the rest to its clients, so tags of one hash are asked for together.
        tags = pick(
            [None, None, None, ["paid"], ["refund", "标签"], ["Aa", "BB"], ["AaAa", "AaBB", "BBBB"], ["long", "full"], ["no"]]
        )
        most = pick([1, 2, 5, 31, 32, 33, 64, 1000])
        if topic == "SCHEDULE_TOPIC_XXXX":
            tags = None  # its entries hold times instead of hashes
        question = {
            "op": "get",
            "topic": topic,
            "queue": queue,
            "offset": offset,
            "max": most,
            "memory_ratio": pick([40, 40, 40, 0]),
        }
        return question | ({} if tags is None else {"tags": tags})

    def answers(self, store: mqstore.Store, cold: mqstore.Store, questions: list[Question], theirs: list[Any]) -> Iterator[str]:
        """Asks the other side the same; `cold` takes nothing for cached."""
        if len(questions) != len(theirs):
            yield f"{len(questions)} questions, {len(theirs)} answers"
        for question, answer in zip(questions, theirs, strict=False):
            if question["op"] == "key":
                wrong = self.compare_key(store, question, answer)
            elif question["op"] == "time":
                wrong = self.compare_time(store, question, answer)
            else:
                wrong = self.compare_get(cold if question["memory_ratio"] == 0 else store, question, answer)
            if wrong:
                yield f"{question}: {wrong}"

    def compare_key(self, store: mqstore.Store, question: Question, theirs: list[int]) -> str | None:
        """Ours is exact. RocketMQ gives those of other keys with the hash, too, and is a second or a gap off in time."""
        topic, key, begin, end = question["topic"], question["key"], question["begin"], question["end"]
        stored = self.exact.get((topic, key), [])
        time = {offset: self.dump.records[offset]["store_time"] for offset in stored}
        expected = [] if key.startswith("T#") else [offset for offset in stored if begin <= time[offset] <= end]
        ours = store.query(topic, key, since=begin, until=end + 1)
        offsets = [message.physical_offset for message in ours]
        if offsets != expected or not ours.complete:
            return f"{offsets} (complete: {ours.complete}) instead of {expected}"
        if end == FOR_EVER:
            of_hash = self.by_hash.get((topic, index_hash(topic, key)), [])
            return None if theirs == of_hash else f"{theirs} in RocketMQ's index instead of {of_hash}"
        of_key = set(theirs) & set(stored)
        surely = {offset for offset in stored if begin + INDEX_STEP_MS <= time[offset] <= end - self.gap}
        perhaps = {offset for offset in stored if begin - self.gap <= time[offset] <= end + INDEX_STEP_MS}
        if not surely <= of_key <= perhaps:
            return f"{sorted(of_key)} in RocketMQ's index instead of {expected}"
        return None

    def compare_time(self, store: mqstore.Store, question: Question, theirs: int) -> str | None:
        """LOWER is our left; UPPER gives the last message that is not later. RocketMQ 4 gives the nearest one."""
        queue = store.topics[question["topic"]].queues[question["queue"]]
        time = question["time"]
        left, right = queue.offset_at(time, side="left"), queue.offset_at(time, side="right")
        times = self.times[question["topic"], question["queue"]]
        if (left, right) != (bisect_left(times, time), bisect_right(times, time)):
            return f"ours are {left} and {right}"
        if self.rocketmq.api == 4:
            permitted = range(left, right) if left < right else self.nearest(times, time, left)
        elif question["side"] == "LOWER":
            permitted = [left]
        else:
            permitted = [max(right - 1, 0)]
        return None if theirs in permitted else f"{theirs} instead of {permitted}; ours are {left} and {right}"

    def nearest(self, times: list[int], time: int, left: int) -> list[int]:
        """The nearer neighbour of a time that no message has, among those in the file that RocketMQ 4 looks into."""
        in_file = self.geometry.queue // ENTRY_SIZE
        if left == len(times) or left % in_file == 0:
            # After the last message, or between two files: the second file is searched.
            return [min(left, len(times) - 1)]
        return [left - 1 if time - times[left - 1] <= times[left] - time else left]

    def compare_get(self, store: mqstore.Store, question: Question, theirs: dict[str, Any]) -> str | None:
        """The answers must be equal."""
        tags = question.get("tags")
        got = store.get(
            question["topic"],
            question["queue"],
            question["offset"],
            question["max"],
            tags=None if tags is None else " || ".join(tags),
        )
        ours = {
            "status": got.status,
            "next_begin_offset": got.next_begin_offset,
            "min_offset": got.min_offset,
            "max_offset": got.max_offset,
            "suggest_pulling_from_slave": got.suggest_pulling_from_slave,
            "physical_offsets": [message.physical_offset for message in got],
        }
        if self.rocketmq.number < (4, 9, 4) and ours["status"] == "OFFSET_OVERFLOW_BADLY" and ours["min_offset"] == 0:
            ours["next_begin_offset"] = 0  # until 4.9.4 a reader far past the end was sent to the start
        return None if ours == theirs else f"{ours} and {theirs}"
