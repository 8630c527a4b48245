"""A scan gives what a reader of every record would find, whatever way it takes through the store."""

from __future__ import annotations

import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqstore
from mqstore import CorruptError, Message, Store

GOLDEN = ["491_multifile", "498_mixed", "533_mixed", "551_mixed", "533_crcprop", "491_crash_image", "491_delay_delivered"]
HALF_OR_ROLLED_BACK = (4, 12)


def records(store: Store, segment: int) -> Iterator[Message]:
    """Every record of the log, one by one."""
    offset = store.min_physical_offset
    while offset < store.max_physical_offset:
        try:
            message = store.message_at(offset)
        except mqstore.NotFoundError:  # the BLANK that ends a segment
            offset += segment - offset % segment
            continue
        yield message
        offset += message.store_size


def committed(store: Store, segment: int) -> list[Message]:
    """Returns the messages of consumers, in the order of the log."""
    queued = {m.physical_offset for topic in store.topics.values() for queue in topic.queues for m in queue}
    return [
        m
        for m in records(store, segment)
        if m.physical_offset in queued or (m.topic not in store.topics and m.sys_flag & 12 not in HALF_OR_ROLLED_BACK)
    ]


def offsets(batches: mqstore.Batches) -> list[int]:
    return batches.to_arrow().column("physical_offset").to_pylist()


def by_queue(message: Message) -> tuple[str, int, int]:
    return message.topic, message.queue_id, message.queue_offset


@pytest.mark.parametrize("name", GOLDEN)
def test_a_scan_gives_every_consumer_message_in_the_order_of_the_log(golden: Path, name: str) -> None:
    with mqstore.open(golden / name) as store:
        expected = [m.physical_offset for m in committed(store, 16384)]
        assert expected
        assert offsets(store.scan()) == expected
        assert offsets(store.scan(reverse=True)) == expected[::-1]
        assert offsets(store.scan(limit=7)) == expected[:7]
        assert offsets(store.scan(limit=7, reverse=True)) == expected[:-8:-1]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_scan_of_all_gives_half_and_rolled_back_messages_too(golden: Path, name: str) -> None:
    with mqstore.open(golden / name) as store:
        expected = list(records(store, 16384))
        assert offsets(store.scan(transactions="all")) == [m.physical_offset for m in expected]
        in_order = [m.physical_offset for m in sorted(expected, key=lambda m: (*by_queue(m), m.physical_offset))]
        assert offsets(store.scan(transactions="all", order="queue")) == in_order


@pytest.mark.parametrize("name", GOLDEN)
def test_the_order_of_queues_is_by_topic_queue_and_offset(golden: Path, name: str) -> None:
    with mqstore.open(golden / name) as store:
        expected = [m.physical_offset for m in sorted(committed(store, 16384), key=by_queue)]
        assert offsets(store.scan(order="queue")) == expected
        assert offsets(store.scan(order="queue", reverse=True)) == expected[::-1]
        assert offsets(store.scan(order="queue", limit=5)) == expected[:5]


@pytest.mark.parametrize("name", ["498_mixed", "533_mixed", "551_mixed"])
def test_the_answer_does_not_depend_on_the_way(golden: Path, copied: Callable[[str], Path], name: str) -> None:
    """Scans by queues, by the log beside them, and by the log alone."""
    without_queues = copied(name)
    with mqstore.open(golden / name) as store:
        messages = committed(store, 16384)
        whole = {topic: [m for m in messages if m.topic == topic] for topic in store.topics}
    for path in (golden / name, without_queues):
        if path == without_queues:
            shutil.rmtree(path / "consumequeue")
        with mqstore.open(path) as store:
            for topic, wanted in whole.items():
                for order in ("log", "queue"):
                    key: Callable[[Message], Any] = by_queue if order == "queue" else lambda m: m.physical_offset
                    expected = [m.physical_offset for m in sorted(wanted, key=key)]
                    assert offsets(store.scan(topics=topic, order=order)) == expected, (path, topic, order)
            both = sorted(whole)[:2]
            expected = [m.physical_offset for m in messages if m.topic in both]
            assert offsets(store.scan(topics=both)) == expected


def conditions(rng: random.Random, messages: list[Message]) -> tuple[dict[str, Any], Callable[[Message], bool]]:
    """Some conditions of a scan, and the same in Python."""
    some = rng.choice(messages)
    all_of: list[tuple[dict[str, Any], Callable[[Message], bool]]] = [
        ({"topics": [some.topic]}, lambda m: m.topic == some.topic),
        ({"queue_ids": some.queue_id}, lambda m: m.queue_id == some.queue_id),
        ({"since": some.store_time}, lambda m: m.store_time >= some.store_time),
        ({"until": some.store_time}, lambda m: m.store_time < some.store_time),
        ({"until": some.born_time, "by": "born"}, lambda m: m.born_time < some.born_time),
        ({"physical": (some.physical_offset, None)}, lambda m: m.physical_offset >= some.physical_offset),
        ({"physical": (17, some.physical_offset - 3)}, lambda m: 17 <= m.physical_offset < some.physical_offset - 3),
        ({"tags": some.tags or "none"}, lambda m: m.tags == (some.tags or "none")),
        (
            {"keys": some.keys or ["none"]},
            lambda m: bool(set(some.keys or ["none"]) & {*m.keys, m.unique_key}),
        ),
        (
            {"properties": dict(list(some.properties.items())[:2])},
            lambda m: all(m.properties.get(k) == v for k, v in list(some.properties.items())[:2]),
        ),
        ({"body_contains": some.decoded_body[2:6]}, lambda m: some.decoded_body[2:6] in m.decoded_body),
        ({"body_regex": r"[a-f]\d+x?"}, lambda m: re.search(rb"[a-f]\d+x?", m.decoded_body) is not None),
    ]
    chosen = rng.sample(all_of, rng.choice([1, 1, 2, 3]))
    arguments = {name: value for arguments, _ in chosen for name, value in arguments.items()}
    admitted = [admits for arguments, admits in chosen]
    if sum(len(arguments) for arguments, _ in chosen) > len(arguments) or {"since", "by"} <= arguments.keys():
        return conditions(rng, messages)  # two of them set the same argument, or mean another time by it
    return arguments, lambda m: all(admits(m) for admits in admitted)


@pytest.mark.parametrize("name", ["533_mixed", "551_mixed", "events"])
def test_conditions_select_what_python_would(golden: Path, events: Path, name: str) -> None:
    rng = random.Random(name)
    path, segment = (events, 1 << 20) if name == "events" else (golden / name, 16384)
    with mqstore.open(path) as store:
        messages = committed(store, segment)
        found = 0
        for _ in range(60):
            arguments, admits = conditions(rng, messages)
            order = rng.choice(["log", "queue"])
            key: Callable[[Message], Any] = by_queue if order == "queue" else lambda m: m.physical_offset
            expected = [m.physical_offset for m in sorted(filter(admits, messages), key=key)]
            assert offsets(store.scan(**arguments, order=order)) == expected, (arguments, order)
            found += len(expected)
        assert found > 500


@pytest.mark.parametrize("name", ["topics", "queue_ids", "keys"])
def test_one_of_none_is_no_message(events: Path, name: str) -> None:
    with mqstore.open(events) as store:
        assert store.scan(**{name: []}).to_arrow().num_rows == 0


def test_the_columns_are_those_of_the_messages(events: Path) -> None:
    with mqstore.open(events) as store:
        topic = next(iter(store.topics))
        scanned = store.scan(topics=topic, order="queue").to_arrow()
        assert scanned.equals(store.topics[topic].to_arrow())
        some = store.scan(topics=topic, order="queue", columns=["tags", "body"], batch_bytes=1000)
        assert some.to_arrow().equals(scanned.select(["tags", "body"]))
        assert len(list(some)) > 5


def test_messages_of_a_deleted_topic_are_found_in_the_log(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append_batch([f"{n}".encode() for n in range(100)], topic="kept")
        store.append_batch([f"{n}".encode() for n in range(50)], topic="deleted")
        store.append_batch([f"{n}".encode() for n in range(100)], topic="kept")
    with mqstore.open(tmp_path / "s", mode="a") as store:
        shutil.rmtree(tmp_path / "s" / "consumequeue" / "deleted")
    with mqstore.open(tmp_path / "s") as store:
        assert store.scan(topics="deleted").to_arrow().column("body").to_pylist() == [f"{n}".encode() for n in range(50)]
        assert store.scan(topics=["deleted", "kept"], order="queue").to_arrow().num_rows == 250


def test_a_scan_and_what_it_writes_name_the_topics_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.append("orders", b"a")
        store.append("deleted", b"b")
    shutil.rmtree(path / "consumequeue" / "deleted")
    topics = ["order", "orders", "deleted", "billing"]
    with mqstore.open(path) as store:
        scan = store.scan(topics=topics)
        assert scan.absent_topics == []
        assert (scan.to_arrow().num_rows, scan.absent_topics) == (2, ["billing", "order"])
        assert store.export(tmp_path / "all.jsonl", topics=topics).absent_topics == ("billing", "order")
        assert store.copy_to(tmp_path / "copy", topics=topics).absent_topics == ("billing", "order")


def test_tags_are_joined_by_or_only(events: Path) -> None:
    with mqstore.open(events) as store:
        for call in (store.scan, store.follow):
            with pytest.raises(ValueError, match=r'joined by "\|\|" only'):
                call(tags="a && b")
        with pytest.raises(ValueError, match="tags is"):
            store.get("events", 0, 0, tags="a && b")


def test_a_recreated_topic_shows_its_earlier_messages_only_among_all(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        old = [r.physical_offset for r in [store.append("t", b"old") for _ in range(10)]]
        new = [r.physical_offset for r in [store.append("t", b"new") for _ in range(10)]]
    # As after a deletion the broker numbers the new messages from 0 on.
    segment = next((tmp_path / "s" / "commitlog").iterdir())
    with segment.open("r+b") as log:
        for number, offset in enumerate(new):
            log.seek(offset + 20)
            log.write(number.to_bytes(8, "big"))
    entries = next((tmp_path / "s" / "consumequeue" / "t" / "0").iterdir())
    data = entries.read_bytes()
    entries.write_bytes(data[200:400] + bytes(200) + data[400:])
    with mqstore.open(tmp_path / "s") as store:
        everything = offsets(store.scan(transactions="all"))
        assert everything[:10] == old
        assert everything[10:] == new
        assert offsets(store.scan()) == new
        assert offsets(store.scan(topics="t", order="queue")) == new


def test_a_scan_of_a_writing_store_sees_what_was_appended(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        assert offsets(store.scan()) == []
        scan = store.scan(topics="t")
        results = [store.append("t", b"x", queue_id=n % 3) for n in range(200)]
        assert offsets(scan) == [r.physical_offset for r in results]
        assert offsets(store.scan()) == [r.physical_offset for r in results]


def test_damage_ends_a_scan_or_is_skipped_and_counted(copied: Callable[[str], Path]) -> None:
    path = copied("533_mixed")
    with mqstore.open(path) as store:
        messages = committed(store, 16384)
        victim = next(m for m in messages[20:] if len(m.body) > 20)
        topic = victim.topic
    segment = path / "commitlog" / f"{victim.physical_offset // 16384 * 16384:020}"
    data = bytearray(segment.read_bytes())
    at = bytes(data).index(victim.body, victim.physical_offset % 16384)
    data[at + 5] ^= 1
    segment.write_bytes(data)
    with mqstore.open(path) as store:
        for arguments in ({}, {"topics": topic}, {"topics": topic, "order": "queue"}):
            with pytest.raises(CorruptError, match=segment.name):
                store.scan(**arguments).to_arrow()
            skipping = store.scan(**arguments, errors="skip")
            found = offsets(skipping)
            assert victim.physical_offset not in found
            assert skipping.skipped == 1
            assert not skipping.complete
            wanted = [m.physical_offset for m in messages if not arguments or m.topic == topic]
            assert sorted(found) == [offset for offset in wanted if offset != victim.physical_offset]
        # What is not wanted is not missed.
        assert offsets(store.scan(tags="no such tag")) == []


def test_stretches_that_meet_give_together_what_a_scan_of_all_gives(golden: Path) -> None:
    chance = random.Random(7)
    for name in GOLDEN:
        with mqstore.open(golden / name) as store:
            bounds = store.min_physical_offset, store.max_physical_offset
            cuts = [bounds[0], *sorted(chance.randint(*bounds) for _ in range(12)), bounds[1]]
            for topics in (None, *([topic] for topic in store.topics)):
                together = [o for each in pairwise(cuts) for o in offsets(store.scan(topics=topics, physical=each))]
                assert together == offsets(store.scan(topics=topics)), (name, topics, cuts)


def test_a_record_in_a_body_is_not_taken_for_the_start_of_a_stretch(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        for number in range(200):
            store.append("t", b"%d" % number * 100)
        last = store.topics["t"].queues[0][-1]
        at = last.physical_offset + last.store_size
        # Deep inside the body of another message a whole record, which names the place at which it comes to lie.
        imitated = at + last.raw.index(last.body) + 100_000
        imitation = bytearray(last.raw)
        struct.pack_into(">q", imitation, 28, imitated)
        assert store.append("t", bytes(100_000) + imitation).physical_offset == at
        after = store.append("t", b"after").physical_offset
        assert store.message_at(imitated).body == last.body, "it looks like a record"
        assert offsets(store.scan(physical=(imitated, None))) == [after]


def test_a_scan_continues_past_damage_when_it_is_asked_again(copied: Callable[[str], Path]) -> None:
    path = copied("533_mixed")
    with mqstore.open(path) as store:
        messages = committed(store, 16384)
    segments = {}
    victims = [m for m in messages if len(m.body) > 20][3:30:9]
    for victim in victims:
        segment = path / "commitlog" / f"{victim.physical_offset // 16384 * 16384:020}"
        data = segments.setdefault(segment, bytearray(segment.read_bytes()))
        data[bytes(data).index(victim.body, victim.physical_offset % 16384) + 5] ^= 1
    for segment, data in segments.items():
        segment.write_bytes(data)
    with mqstore.open(path) as store:
        found, damage = [], []
        each = iter(store.scan())
        while True:
            try:
                found += next(each).to_arrow().column("physical_offset").to_pylist()
            except CorruptError as error:
                damage.append(error.offset)
            except StopIteration:
                break
        assert found == [m.physical_offset for m in messages if m not in victims]
        assert len(damage) == len(victims) == 3
        assert next(each, None) is None


def test_after_a_damaged_length_the_scan_continues_at_the_next_record(copied: Callable[[str], Path]) -> None:
    path = copied("533_mixed")
    with mqstore.open(path) as store:
        messages = committed(store, 16384)
    victim = messages[40]
    segment = path / "commitlog" / f"{victim.physical_offset // 16384 * 16384:020}"
    data = bytearray(segment.read_bytes())
    data[victim.physical_offset % 16384] = 0x7F
    segment.write_bytes(data)
    with mqstore.open(path) as store:
        with pytest.raises(CorruptError):
            store.scan().to_arrow()
        scan = store.scan(errors="skip")
        assert offsets(scan) == [m.physical_offset for m in messages if m is not victim]
        assert scan.skipped == 1


def test_bodies_are_searched_and_given_decompressed(tmp_path: Path) -> None:
    text = b"a needle in the hay" * 50
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append("t", zlib.compress(text), sys_flag=1)
        store.append("t", text)
        store.append("t", b"only hay")
        store.append("t", b"no zlib stream", sys_flag=1)
        assert store.scan(body_contains="needle", limit=2).to_arrow().column("body").to_pylist() == [zlib.compress(text), text]
        assert (
            store.scan(body_contains=b"needle", decode_body=True, errors="skip").to_arrow().column("body").to_pylist()
            == [text] * 2
        )
        with pytest.raises(CorruptError, match="decompress"):
            store.scan(decode_body=True).to_arrow()


def test_a_scan_says_what_it_covers_and_whether_that_is_all(copied: Callable[[str], Path]) -> None:
    path = copied("491_multifile")
    with mqstore.open(path) as store:
        scan = store.scan(physical=(None, 30_000))
        assert (scan.complete, scan.covers) == (False, None)
        scan.to_arrow()
        assert (scan.complete, scan.covers) == (True, (store.min_physical_offset, 30_000))
        limited = store.scan(limit=3)
        limited.to_arrow()
        assert (limited.complete, limited.covers) == (False, (store.min_physical_offset, store.max_physical_offset))
        one = iter(store.scan(batch_bytes=1))
        next(one)
        (path / "commitlog" / f"{0:020}").unlink()
    (path / "commitlog" / f"{16384:020}").unlink(missing_ok=True)
    (path / "commitlog" / f"{0:020}").write_bytes(bytes(16384))
    with pytest.warns(RuntimeWarning, match="INCOMPLETE"):
        store = mqstore.open(path)
    with store:
        scan = store.scan(errors="skip")
        scan.to_arrow()
        assert not scan.complete
        assert scan.skipped > 0


def test_a_scan_reads_nothing_before_it_is_asked(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        scan = store.scan()
        store.append("t", b"later")
        assert scan.to_arrow().num_rows == 1
        store.append("t", b"later still")
        assert scan.to_arrow().num_rows == 2


def test_progress_is_reported_and_can_stop_the_scan(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append_batch([bytes(1000)] * 5000, topic="t")
        told: list[tuple[int, int]] = []
        store.scan(columns=["body"], tags="none", progress=lambda done, of: told.append((done, of))).to_arrow()
        assert len(told) >= 4
        assert told == sorted(told)
        assert told[-1][0] == told[-1][1] > 5_000_000

        def stop(done: int, of: int) -> None:
            raise InterruptedError(f"at {done} of {of}")

        with pytest.raises(InterruptedError, match="at "):
            store.scan(progress=stop).to_arrow()


def test_a_scan_reads_no_faster_than_it_may(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append_batch([bytes(10_000)] * 400, topic="t")
        begun = time.monotonic()
        store.scan(max_mb_per_s=10).to_arrow()
        assert time.monotonic() - begun >= 0.3


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"topics": 3}, TypeError, "topics"),
        ({"topics": [3]}, TypeError, "one of topics"),
        ({"queue_ids": ["a"]}, TypeError, "one of queue_ids"),
        ({"since": "now"}, TypeError, "since: expected a datetime"),
        ({"since": datetime(2026, 1, 1)}, ValueError, "timezone"),
        ({"since": datetime.now(UTC), "until": datetime.now(UTC) - timedelta(days=1)}, ValueError, "after until"),
        ({"physical": 5}, TypeError, "physical is a pair"),
        ({"by": "stored"}, ValueError, "by is"),
        ({"order": "time"}, ValueError, "order is"),
        ({"transactions": "none"}, ValueError, "transactions is"),
        ({"properties": [1]}, TypeError, "properties"),
        ({"properties": {"a": 1}}, TypeError, "value of property"),
        ({"body_regex": "("}, ValueError, "body_regex"),
        ({"body_contains": 5}, TypeError, "body_contains"),
        ({"columns": ["nothing"]}, ValueError, "nothing"),
        ({"batch_bytes": 0}, ValueError, "batch_bytes"),
        ({"limit": -1}, ValueError, "limit"),
        ({"progress": 5}, TypeError, "progress"),
        ({"max_mb_per_s": 0}, ValueError, "max_mb_per_s"),
    ],
)
def test_wrong_arguments_are_refused_by_name(golden: Path, arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    with mqstore.open(golden / "533_mixed") as store, pytest.raises(error, match=match):
        store.scan(**arguments)


def test_a_time_is_looked_for_in_every_segment_that_may_hold_it(tmp_path: Path) -> None:
    """Beside a segment that was made ahead, and one whose first record is damaged."""
    path = tmp_path / "s"
    expected: list[int] = []
    ways: list[dict[str, Any]] = [{}, {"topics": "t"}, {"order": "queue"}]
    with mqstore.open(path, mode="x", mapped_file_size_commit_log=16384) as store:
        since = store.append("u", b"first").store_time
        for segments in (2, 4):
            expected += [store.append("t", bytes(1000)).physical_offset for _ in range(5 * segments)]
            deadline = time.monotonic() + 10
            while len(list((path / "commitlog").iterdir())) < segments:
                assert time.monotonic() < deadline, "no segment was made ahead"
                time.sleep(0.01)
            for way in ways:
                for reader in (store, mqstore.open(path)):
                    scan = reader.scan(since=since, body_contains=bytes(1000), **way)
                    assert (offsets(scan), scan.complete) == (expected, True)
    second = path / "commitlog" / f"{16384:020}"
    data = bytearray(second.read_bytes())
    data[:100] = bytes(100)
    second.write_bytes(data)
    with mqstore.open(path) as store:
        scan = store.scan(since=since, body_contains=bytes(1000), errors="skip")
        assert offsets(scan) == [offset for offset in expected if offset != 16384]
        assert not scan.complete


@pytest.mark.parametrize("arguments", [{}, {"order": "queue"}])
def test_scans_beside_appends_miss_nothing_of_what_they_cover(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Each scan continues where the one before ended."""
    with mqstore.open(tmp_path / "s", mode="x") as store:
        appended: list[int] = []
        is_over = threading.Event()

        def append() -> None:
            number = 0
            while not is_over.is_set():
                appended.extend(store.append_batch([b"x" * 50] * 20, topic=f"t{number % 7}", queue_id=number % 5))
                number += 1

        threads = [threading.Thread(target=append) for _ in range(2)]
        for thread in threads:
            thread.start()
        end, found = 0, []
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            scan = store.scan(physical=(end, None), columns=["physical_offset"], **arguments)
            found += offsets(scan)
            assert scan.complete
            assert scan.covers is not None
            end = scan.covers[1]
        is_over.set()
        for thread in threads:
            thread.join()
        assert sorted(found) == sorted(offset for offset in appended if offset < end)


#: To all messages of topic "t", and perhaps others.
WAYS: list[dict[str, Any]] = [{}, {"reverse": True}, {"topics": "t"}, {"order": "queue"}, {"topics": "t", "order": "queue"}]


@pytest.mark.parametrize("damage", ["another message's", "inside a record", "past the log"])
def test_an_entry_to_no_message_of_its_queue_is_damage_on_each_path(tmp_path: Path, damage: str) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        for number in range(100):
            store.append("t", b"%d" % number)
            store.append("u", bytes(2000))
    entries = next((tmp_path / "s" / "consumequeue" / "t" / "0").iterdir())
    data = bytearray(entries.read_bytes())
    match damage:
        case "another message's":
            data[1000:1008] = data[1200:1208]
        case "inside a record":
            data[1007] ^= 1
        case _:
            data[1001] ^= 1
    entries.write_bytes(data)
    with mqstore.open(tmp_path / "s") as store:
        for arguments in WAYS:
            with pytest.raises(CorruptError, match=entries.name):
                store.scan(**arguments).to_arrow()
            scan = store.scan(**arguments, errors="skip", columns=["topic"])
            assert scan.to_arrow().column("topic").to_pylist().count("t") == 99
            assert (scan.skipped, scan.complete) == (1, False), arguments


def with_a_light_queue(path: Path) -> list[int]:
    """A store in which every other message is in a light queue, too; gives their physical offsets."""
    with mqstore.open(path, mode="x") as store:
        light = []
        for number in range(50):
            properties = {"INNER_MULTI_DISPATCH": "%LMQ%other,%LMQ%g", "INNER_MULTI_QUEUE_OFFSET": f"7,{number // 2}"}
            result = store.append("t", b"%d" % number, queue_id=3, properties=properties if number % 2 else {})
            if number % 2:
                light.append(result)
        store.append_batch([bytes(1000)] * 50, topic="u")
    folder = path / "consumequeue" / "%LMQ%g" / "0"
    folder.mkdir(parents=True)
    entries = b"".join(struct.pack(">qiq", result.physical_offset, result.wrote_bytes, 0) for result in light)
    (folder / f"{0:020}").write_bytes(entries.ljust(6_000_000, b"\0"))
    return [result.physical_offset for result in light]


@pytest.mark.parametrize("order", ["log", "queue"])
@pytest.mark.parametrize("transactions", ["committed", "all"])
def test_a_light_queue_is_scanned_whatever_else_is_named(tmp_path: Path, order: str, transactions: str) -> None:
    light = with_a_light_queue(tmp_path / "s")
    for is_lost in (False, True):
        if is_lost:
            shutil.rmtree(tmp_path / "s" / "consumequeue" / "%LMQ%g")
        with mqstore.open(tmp_path / "s") as store:
            for topics in (["%LMQ%g"], ["%LMQ%g", "gone"]):
                scan = store.scan(topics=topics, order=order, transactions=transactions)
                assert (offsets(scan), scan.complete) == (light, True), topics
                none = store.scan(topics=topics, queue_ids=3, order=order, transactions=transactions)
                assert offsets(none) == []


@pytest.mark.parametrize("order", ["log", "queue"])
@pytest.mark.parametrize("transactions", ["committed", "all"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_message_of_several_queues_that_are_named_is_given_once(
    tmp_path: Path, order: str, transactions: str, reverse: bool
) -> None:
    light = with_a_light_queue(tmp_path / "s")
    ways: dict[str, Any] = {"order": order, "transactions": transactions, "reverse": reverse}
    for gone in (None, "t", "%LMQ%g"):
        if gone is not None:
            shutil.rmtree(tmp_path / "s" / "consumequeue" / gone)
        with mqstore.open(tmp_path / "s") as store:
            both = offsets(store.scan(topics="t", transactions="all"))
            assert len(both) == 50
            for topics in (["t", "%LMQ%g"], ["%LMQ%g", "%LMQ%other", "t"]):
                assert sorted(offsets(store.scan(topics=topics, **ways))) == both, (topics, gone)
            for topics in (["%LMQ%g", "%LMQ%other"], ["%LMQ%other", "%LMQ%a", "%LMQ%g"]):
                assert sorted(offsets(store.scan(topics=topics, **ways))) == light, (topics, gone)
            # The queue of the topic has another id.
            assert sorted(offsets(store.scan(topics=["t", "%LMQ%g"], queue_ids=0, **ways))) == light, gone


@pytest.mark.parametrize(("field", "at", "form"), [("queue id", 12, ">i"), ("queue offset", 20, ">q")])
@pytest.mark.parametrize("value", [1, 7, 1 << 30])
def test_a_record_with_another_place_than_its_queues_is_always_damage(
    tmp_path: Path, field: str, at: int, form: str, value: int
) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        places = [store.append("t", b"%d" % number, queue_id=number % 3).physical_offset for number in range(100)]
        store.append_batch([bytes(100)] * 100, topic="u")
    [segment] = (tmp_path / "s" / "commitlog").iterdir()
    with segment.open("r+b") as file:
        file.seek(places[51] + at)
        file.write(struct.pack(form, value))
    with mqstore.open(tmp_path / "s") as store:
        for arguments in WAYS:
            with pytest.raises(CorruptError, match="points here"):
                store.scan(**arguments).to_arrow()
            scan = store.scan(**arguments, errors="skip", columns=["topic"])
            assert scan.to_arrow().column("topic").to_pylist().count("t") == 99
            assert (scan.skipped, scan.complete) == (1, False), arguments


@contextmanager
def rings_after(seconds: float) -> Iterator[None]:
    """Sends a signal after a delay, whose handler raises; the call that it interrupts ends soon."""

    def ring(signum: int, frame: object) -> None:
        raise TimeoutError("rung")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    begun = time.monotonic()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begun < 5


def test_a_signal_ends_the_wait_for_a_batch(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append_batch([bytes(10_000)] * 400, topic="t")
        for tags in (None, "none"):
            with rings_after(0.2), pytest.raises(TimeoutError, match="rung"):
                next(iter(store.scan(max_mb_per_s=0.1, tags=tags, batch_bytes=1 << 30)))


def test_a_signal_ends_the_wait_of_a_consumer_of_the_stream(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append_batch([bytes(10_000)] * 400, topic="t")
        reader = pa.RecordBatchReader.from_stream(store.scan(max_mb_per_s=0.1, batch_bytes=1 << 30))
        with rings_after(0.2), pytest.raises(Exception, match="rung"):
            reader.read_next_batch()


def test_progress_cannot_read_its_own_scan(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append_batch([bytes(1000)] * 5000, topic="t")
        batches: Iterator[mqstore.RecordBatch]
        batches = iter(store.scan(tags="none", progress=lambda done, of: next(batches)))
        with pytest.raises(ValueError, match="this pass is being read"):
            next(batches)


def test_a_thread_that_progress_waits_for_cannot_read_the_pass(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append_batch([bytes(1000)] * 5000, topic="t")
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                next(batches)
            except ValueError as error:
                failed.append(error)

        def progress(done: int, of: int) -> None:
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()

        batches = iter(store.scan(progress=progress))
        assert sum(len(batch) for batch in batches) == 5000
        assert failed
        assert all("this pass is being read" in str(error) for error in failed)


def test_progress_that_forks_leaves_the_pass_to_the_parent(tmp_path: Path) -> None:
    code = """
import mqstore, os, sys
with mqstore.open(sys.argv[1], "x") as store:
    store.append_batch([bytes(1000)] * 5000, topic="t")
child = None
def progress(done, of):
    global child
    if child is None:
        child = os.fork()
with mqstore.open(sys.argv[1]) as store:
    try:
        rows = sum(len(batch) for batch in store.scan(progress=progress, tags="none"))
    except ValueError as error:
        os._exit(7 if "forked" in str(error) and child == 0 else 8)
assert child and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path / "s"], check=True, timeout=60)


def test_a_scan_along_the_log_names_a_queue_whose_files_are_lost(broker: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    with mqstore.open(path) as store:
        whole = store.scan(columns=["topic"])
        assert (whole.to_arrow().num_rows > 1060, whole.complete, whole.lost_queues) == (True, True, [])
    shutil.rmtree(path / "consumequeue" / "orders" / "1")
    with mqstore.open(path) as store:
        for order in ("log", "queue"):
            scan = store.scan(columns=["topic"], order=order)
            scan.to_arrow()
            assert (scan.complete, scan.lost_queues) == (False, [("orders", 1)]), order
        others = store.scan(columns=["topic"], queue_ids=[0, 2, 3])
        others.to_arrow()
        assert (others.complete, others.lost_queues) == (True, [])
