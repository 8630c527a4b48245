"""Cases that a random plan does not reach: expired files, the caps of an answer, files of full size, defaults."""

from __future__ import annotations

import base64
import random
import re
import shutil
import struct
from itertools import product
from pathlib import Path

import compare
import embedded
import pytest
from generator import DELAY_LEVELS, Geometry, Step
from rocketmq import RocketMQ, save_lines

import mqstore

ROOT = Path(__file__).resolve().parents[2]
#: 50 entries fill a queue file, 12 messages a segment.
GEOMETRY = Geometry(segment=16 << 10, queue=1_000, slots=100, items=400)
MESSAGES = 400
QUEUES = 2
#: Where a record holds its store time, and how many bytes that are.
STORE_TIME = slice(56, 64)


def write(path: Path, rocketmq: RocketMQ, geometry: Geometry, bodies: list[bytes], run: int = 1) -> None:
    """A store of messages in two queues in turn, each with the key "hot".

    In each queue, runs of that many messages have the tags "even" and "odd" in turn.
    """
    with mqstore.open(path, mode="x", index_tags=rocketmq.index_tags, **embedded.options(geometry)) as store:
        for number, body in enumerate(bodies):
            tag = "odd" if number // QUEUES // run % 2 else "even"
            store.append("orders", body, queue_id=number % QUEUES, keys=["hot"], tags=tag)


def segments(path: Path) -> list[Path]:
    """Oldest first."""
    return sorted((path / "commitlog").iterdir())


def asker(path: Path, rocketmq: RocketMQ, geometry: Geometry) -> compare.Asker:
    """Asks both sides about a whole store."""
    with mqstore.open(path, **embedded.options(geometry)) as store:
        return compare.Asker(embedded.dump(store, geometry.segment), random.Random(0), rocketmq, geometry)


def compare_gets(asked: compare.Asker, path: Path, offsets: range, most: list[int]) -> set[str]:
    """Asks both sides for messages from each of these offsets on; gives the statuses of the answers. RocketMQ opens a copy."""
    rocketmq, geometry = asked.rocketmq, asked.geometry
    questions = [
        {"op": "get", "topic": "orders", "queue": queue, "offset": offset, "max": count, "memory_ratio": ratio}
        | ({} if tags is None else {"tags": tags})
        for queue, offset, count, ratio, tags in product(range(QUEUES), offsets, most, [40, 0], [None, ["even"], ["no"]])
    ]
    copy = shutil.copytree(path, path.with_name(path.name + ".copy"))
    answers = rocketmq.run(copy, geometry, f"query={save_lines(path.with_name('questions'), questions)}")["query"]
    sizes = embedded.options(geometry)
    with mqstore.open(path, **sizes) as store, mqstore.open(path, access_message_in_memory_max_ratio=0, **sizes) as cold:
        differences = list(asked.answers(store, cold, questions, answers))
    assert not differences, "\n".join([f"{len(differences)} of {len(questions)} differ, the first are", *differences[:10]])
    return {answer["status"] for answer in answers}


def test_gets_of_a_store_whose_oldest_files_expired_are_rocketmqs(rocketmq: RocketMQ, tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, rocketmq, GEOMETRY, [b"x" * 1_000] * MESSAGES)
    asked = asker(path, rocketmq, GEOMETRY)
    for segment in segments(path)[:10]:
        segment.unlink()
    with mqstore.open(path) as store:
        first = store.topics["orders"].queues[0].min_offset
    assert first > 50
    for queue in range(QUEUES):  # a broker deletes the queue files of which every message expired, too
        (path / "consumequeue" / "orders" / str(queue) / f"{0:020}").unlink()
    statuses = compare_gets(asked, path, range(-1, MESSAGES // QUEUES + 2), [1, 32, 1_000])
    assert statuses == {"FOUND", "NO_MATCHED_MESSAGE", "OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY"}


@pytest.mark.parametrize(
    ("gaps", "run"),
    # In the second and the third case, segment 7 holds the last entry of a queue file, and it is "odd".
    [([3], 1), ([5, 6, 7], 15), ([0, 5, 6, 7, 9, 11, 12, 18, 19, 20, 24], 15), ([2, 3, 4, 5], 20)],
)
def test_gets_of_a_store_with_missing_segments_are_rocketmqs(
    rocketmq: RocketMQ, tmp_path: Path, gaps: list[int], run: int
) -> None:
    path = tmp_path / "store"
    write(path, rocketmq, GEOMETRY, [b"x" * 1_000] * MESSAGES, run)
    asked = asker(path, rocketmq, GEOMETRY)
    whole = segments(path)
    for gap in gaps:
        whole[gap].unlink()
    compare_gets(asked, path, range(-1, MESSAGES // QUEUES + 2), [1, 32, 1_000])


@pytest.mark.parametrize("size", [3_000, 30_000, 300_000])
def test_the_byte_caps_of_a_get_are_rocketmqs(rocketmq: RocketMQ, tmp_path: Path, size: int) -> None:
    geometry = Geometry(segment=1 << 20, queue=1_000, slots=100, items=400)
    path = tmp_path / "store"
    write(path, rocketmq, geometry, [b"x" * (size + number % 7 * 100) for number in range(3_000_000 // size)])
    asked = asker(path, rocketmq, geometry)
    compare_gets(asked, path, range(0, 3_000_000 // size // QUEUES, 5), [1, 8, 9, 32, 33, 1_000])


def test_an_expired_queue_file_moves_our_min_offset_and_not_rocketmqs(rocketmq: RocketMQ, tmp_path: Path) -> None:
    path = tmp_path / "store"
    write(path, rocketmq, GEOMETRY, [b"x" * 1_000] * MESSAGES)
    for segment in segments(path)[:10]:
        segment.unlink()
    with mqstore.open(path) as store:
        ours = store.get("orders", 0, 0)
    question: dict[str, object] = {"op": "get", "topic": "orders", "queue": 0, "offset": 0, "max": 32, "memory_ratio": 40}
    questions = save_lines(tmp_path / "questions", [question])
    [theirs] = rocketmq.run(path, GEOMETRY, f"query={questions}")["query"]
    assert 50 < ours.min_offset < 100
    assert (ours.status, ours.next_begin_offset) == ("OFFSET_TOO_SMALL", ours.min_offset)
    assert theirs["min_offset"] == 0
    assert theirs["status"] != "OFFSET_TOO_SMALL"


def test_a_query_of_64_of_200_hits_is_rocketmqs(rocketmq: RocketMQ, tmp_path: Path) -> None:
    path = tmp_path / "store"
    geometry = Geometry(segment=16 << 10, queue=1_000, slots=10, items=40)
    with mqstore.open(path, mode="x", index_tags=rocketmq.index_tags, **embedded.options(geometry)) as store:
        hits = [store.append("orders", b"x", keys=["hot", f"k{number}"]).physical_offset for number in range(200)]
    assert len(list((path / "index").iterdir())) > 5
    questions = [compare.Asker.always("orders", "hot") | {"max": most} for most in (1, 63, 64, 65, 1_000)]
    answers = rocketmq.run(path, geometry, "batch=64", f"query={save_lines(tmp_path / 'questions', questions)}")["query"]
    with mqstore.open(path, **embedded.options(geometry)) as store:
        for question, theirs in zip(questions, answers, strict=True):
            ours = store.query("orders", "hot", limit=min(question["max"], 64))
            assert [message.physical_offset for message in ours] == theirs == hits[-min(question["max"], 64) :]
        assert [message.physical_offset for message in store.query("orders", "hot", limit=None)] == hits


def test_rocketmq_reads_entry_300_001_in_its_own_second_queue_file(rocketmq: RocketMQ, tmp_path: Path) -> None:
    path = tmp_path / "store"
    geometry = Geometry(segment=64 << 20, queue=6_000_000, slots=100, items=400)
    bodies = [b"%d" % number for number in range(300_002)]
    with mqstore.open(path, mode="x", **embedded.options(geometry)) as store:
        offsets = store.append_batch(bodies, topic="orders")
    queue = path / "consumequeue" / "orders" / "0"
    assert [file.name for file in sorted(queue.iterdir())] == [f"{0:020}", f"{6_000_000:020}"]
    questions = [
        {"op": "get", "topic": "orders", "queue": 0, "offset": offset, "max": 32, "memory_ratio": 40}
        for offset in (0, 299_999, 300_000, 300_001, 300_002)
    ]
    answers = rocketmq.run(path, geometry, f"query={save_lines(tmp_path / 'questions', questions)}")["query"]
    found = [answer["physical_offsets"] for answer in answers]
    assert found == [[*offsets[:32]], [offsets[299_999]], [*offsets[300_000:]], [offsets[300_001]], []]
    assert {answer["max_offset"] for answer in answers} == {300_002}
    with mqstore.open(path) as store:
        assert [message.body for message in store.topics["orders"].queues[0][299_999:]] == bodies[299_999:]


def default_of_rocketmq(default: str, meaning: str) -> str:
    """Returns RocketMQ's default of an option, as RocketMQ prints it: ours, unless the text of the option states it."""
    stated = re.search(r"RocketMQ's default: \W?(\d+)|(\d+) in a new store, RocketMQ's default", meaning)
    text = stated[1] or stated[2] if stated else default.strip('`"')
    return text.lower() if text in ("True", "False") else text


def test_the_defaults_in_our_table_of_options_are_rocketmqs(rocketmq: RocketMQ, tmp_path: Path) -> None:
    lines = (ROOT / "docs" / "CONFIG.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    documented = {name: default_of_rocketmq(default, meaning) for _, name, _, default, _, meaning in rows if name}
    [theirs] = rocketmq.run(tmp_path / "store", GEOMETRY, "defaults")["defaults"]
    ours = {name: default for name, default in documented.items() if name in theirs}
    assert ours == {name: theirs[name] for name in ours}
    # In 4 there are no timers and no checksum of the whole record, the byte limit of an examined stretch of queue is a constant,
    # and the forcible ratio of the disk a property of the system. An append waits for one slave, whose lag has another name.
    only_in_5 = {"maxFilterMessageSize", "diskSpaceCleanForciblyRatio", "timerMaxDelaySec", "enabledAppendPropCRC"}
    only_in_5 |= {"inSyncReplicas", "haMaxGapNotInSync"}
    if rocketmq.number < (4, 9, 3):
        only_in_5.add("slaveTimeout")
    assert documented.keys() - ours.keys() == (set() if rocketmq.api == 5 else only_in_5)
    assert len(ours) > 20


def record(path: Path, offset: int) -> tuple[bytes, set[bytes]]:
    """A record without its size and its store time, and its properties apart: a set, since their order is not ours to choose.

    Until 5.2 the last property ends without the separator that we write, so the sizes of record and properties differ by one.
    """
    log = (path / "commitlog" / f"{0:020}").read_bytes()
    stored = bytearray(log[offset : offset + struct.unpack_from(">i", log, offset)[0]])
    stored[STORE_TIME] = bytes(8)
    body_size = struct.unpack_from(">i", stored, 84)[0]
    topic_at = 88 + body_size
    properties_at = topic_at + 1 + stored[topic_at]
    return bytes(stored[4:properties_at]), set(bytes(stored[properties_at + 2 :]).rstrip(b"\2").split(b"\2"))


def test_delayed_messages_equal_rocketmqs_but_for_property_order(rocketmq: RocketMQ, tmp_path: Path) -> None:
    def put(level: int) -> Step:
        return {
            "op": "put",
            "topic": "orders",
            "queue": 3,
            "body": base64.b64encode(b"later").decode(),
            "flag": 7,
            "sys_flag": 0,
            "born_time": 1_700_000_000_000,
            "born_host": "10.0.0.1:5000",
            "store_host": "10.0.0.2:10911",
            "reconsume_times": 1,
            "prepared_transaction_offset": 0,
            "properties": {"KEYS": "o-1", "TAGS": "paid", "DELAY": str(level)},
        }

    plan = [put(3), put(99)]
    theirs = rocketmq.write(tmp_path / "theirs", GEOMETRY, plan)
    sizes = embedded.options(GEOMETRY)
    with mqstore.open(tmp_path / "ours", mode="x", **sizes) as store:
        ours = [embedded.append(store, step) for step in plan]
    for our, their in zip(ours, theirs, strict=True):
        mine = record(tmp_path / "ours", our["physical_offset"])
        head, properties = record(tmp_path / "theirs", their["physical_offset"])
        if not rocketmq.separator_at_end and their["physical_offset"] > 0:
            # Our second record starts a byte later, and says so.
            assert our["physical_offset"] == their["physical_offset"] + 1
            head = head[:24] + struct.pack(">q", our["physical_offset"]) + head[32:]
        assert mine == (head, properties)
        assert b"REAL_TOPIC\1orders" in properties
    last = len(DELAY_LEVELS.split())
    with mqstore.open(tmp_path / "ours") as store:
        waiting = store.topics["SCHEDULE_TOPIC_XXXX"]
        assert [waiting.queues[level - 1][0].properties["DELAY"] for level in (3, last)] == ["3", str(last)]
