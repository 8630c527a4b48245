"""Commands on stores that RocketMQ wrote, compared with what RocketMQ itself reads and the Python API returns."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from encoder import Encoder
from expected import Expected

import mqstore

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
#: The types of `sys_flag` of half and of rolled-back messages; the latter has the bits of all types.
PREPARED, ROLLED_BACK = 0x4, 0xC


def ms(time: str) -> int:
    return (datetime.fromisoformat(time) - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def expect_equal(row: dict[str, Any], message: dict[str, Any]) -> None:
    """A row with its body as base64 is the message that RocketMQ reads."""
    same = ("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "sys_flag", "flag", "reconsume_times")
    assert {name: row[name] for name in same} == {name: message[name] for name in same}
    assert (ms(row["store_time"]), ms(row["born_time"])) == (message["store_timestamp"], message["born_timestamp"])
    assert row["message_id"] == message["msg_id"]
    assert row["properties"] == message["properties"]
    if not row["sys_flag"] & 1:
        body = base64.b64decode(row["body"])
        assert (len(body), zlib.crc32(body)) == (message["body_len"], message["body_crc32"])


def test_info_topics_and_queues_report_the_bounds_of_rocketmq(told: tuple[Path, Expected], run: Callable[..., Any]) -> None:
    path, expected = told
    [info] = run("info", path, "--json").rows
    assert (info["log_begin"], info["log_end"]) == tuple(expected.bounds.values())
    assert info["queues"] == len(expected.queues)
    assert info["messages"] == sum(end - begin for begin, end in expected.queues.values())
    queues = run("queues", path, "--json").rows
    assert {f"{row['topic']}/{row['queue_id']}": (row["min_offset"], row["max_offset"]) for row in queues} == expected.queues
    counted: Counter[str] = Counter()
    for row in queues:
        counted[row["topic"]] += row["messages"]
    topics = {row["topic"]: row["messages"] for row in run("topics", path, "--json").rows}
    assert {topic: count for topic, count in topics.items() if count} == {
        topic: count for topic, count in counted.items() if count
    }
    for topic in expected.topics:
        assert [row for row in queues if row["topic"] == topic] == run("queues", path, topic, "--json").rows


def test_cat_prints_every_message_that_rocketmq_reads(told: tuple[Path, Expected], run: Callable[..., Any]) -> None:
    path, expected = told
    for topic in expected.topics:
        messages = expected.of(topic)
        rows = run("cat", path, topic, "--json", "--body-as", "base64").rows
        assert len(rows) == len(messages)
        for row, message in zip(rows, messages, strict=True):
            expect_equal(row, message)
        assert run("cat", path, topic, "-n", 3, "--json", "--body-as", "base64").rows == rows[:3]
        assert run("cat", path, topic, "-n", -3, "--json", "--body-as", "base64").rows == rows[-3:]
        assert run("tail", path, topic, "-n", 3, "--json", "--body-as", "base64").rows == rows[-3:]
        assert len(run("cat", path, topic).out.splitlines()) == len(rows)


def test_cat_begins_at_an_offset_of_a_queue(told: tuple[Path, Expected], run: Callable[..., Any]) -> None:
    path, expected = told
    for queue, (begin, end) in expected.queues.items():
        middle = (begin + end) // 2
        if middle < end:
            offsets = [row["queue_offset"] for row in run("cat", path, f"{queue}@{middle}", "--json").rows]
            assert offsets == list(range(middle, end))
        past = run("cat", path, f"{queue}@{end}")
        assert (past.code, past.out) == (1, "")
        assert f"the queue has the offsets {begin} to {end - 1}" in past.err


def test_cat_from_an_offset_on_counts_a_message_that_it_skips_once(tmp_path: Path, run: Callable[..., Any]) -> None:
    encoder = Encoder(tmp_path / "store")
    starts = [encoder.append("orders", b"body %d" % number) for number in range(6)]
    encoder.append("stock", b"")
    for number in (1, 5):
        encoder.log[starts[number] + 4] ^= 0xFF
    encoder.write()
    one, two = "1 message was skipped", "2 messages were skipped"
    for offset, bodies, skipped in [(0, "0234", two), (1, "234", two), (2, "234", one), (5, "", one)]:
        ran = run("cat", tmp_path / "store", f"orders/0@{offset}")
        assert ("".join(re.findall(r"body (\d)", ran.out)), ran.code) == (bodies, 1)
        assert skipped in ran.err
        assert ("no message of orders/0 from offset 5 on is whole" in ran.err) == (offset == 5)


def test_get_finds_a_message_by_either_offset(told: tuple[Path, Expected], run: Callable[..., Any]) -> None:
    path, expected = told
    for message in expected.messages[::7]:
        [row] = run("get", path, message["physical_offset"], "--json", "--body-as", "base64").rows
        expect_equal(row, message)
        place = f"{message['topic']}/{message['queue_id']}@{message['queue_offset']}"
        assert run("get", path, place, "--json", "--body-as", "base64").rows == [row]
        assert [hit["physical_offset"] for hit in run("find", path, "--id", message["msg_id"], "--json").rows] == [
            message["physical_offset"]
        ]


def found(run: Callable[..., Any], *arguments: object) -> list[int]:
    """The physical offsets of what a search finds."""
    ran = run("find", *arguments, "--json")
    assert ran.code == (0 if ran.out else 1)
    return [json.loads(line)["physical_offset"] for line in ran.out.splitlines()]


def test_find_by_key_tag_and_property_equals_a_full_comparison(told: tuple[Path, Expected], run: Callable[..., Any]) -> None:
    path, expected = told
    topic = max(expected.topics, key=lambda topic: len(expected.of(topic)))
    messages = expected.of(topic)

    def offsets(wanted: Callable[[dict[str, str]], object], of: list[dict[str, Any]] = messages) -> list[int]:
        return sorted(m["physical_offset"] for m in of if wanted(m["properties"]))

    # Half messages are in no queue.
    every = run("find", path, "--since", 10**12, "--all", "--json").rows
    halves = [m for m in every if m["sys_flag"] & ROLLED_BACK == PREPARED]
    keys = sorted({key for m in messages for key in m["properties"].get("KEYS", "").split()})
    for key in keys[:5]:
        for words, of in ((("--topic", topic), messages), ((), expected.messages)):
            half = [m for m in halves if not words or m["topic"] == topic]
            assert found(run, path, *words, "--key", key) == offsets(
                lambda p, key=key: key in p.get("KEYS", "").split(), [*of, *half]
            )
        tag = next(m["properties"].get("TAGS") for m in messages if key in m["properties"].get("KEYS", "").split())
        if tag:
            both = offsets(lambda p, key=key, tag=tag: key in p.get("KEYS", "").split() and p.get("TAGS") == tag)
            assert found(run, path, "--topic", topic, "--key", key, "--tag", tag) == both
    for tag in sorted({m["properties"]["TAGS"] for m in messages if m["properties"].get("TAGS", "").strip()})[:3]:
        assert found(run, path, "--topic", topic, "--tag", tag) == offsets(lambda p, tag=tag: p.get("TAGS") == tag)
    name, value = next((n, v) for m in messages for n, v in m["properties"].items())
    assert found(run, path, "--property", f"{name}={value}", "--topic", topic) == offsets(lambda p: p.get(name) == value)


def test_find_between_two_times_includes_the_first_and_excludes_the_second(
    told: tuple[Path, Expected], run: Callable[..., Any]
) -> None:
    path, expected = told
    times = sorted(m["store_timestamp"] for m in expected.messages)
    since, until = times[len(times) // 3], times[2 * len(times) // 3]
    wanted = sorted(m["physical_offset"] for m in expected.messages if since <= m["store_timestamp"] < until)
    assert found(run, path, "--since", since, "--until", until) == wanted


def test_find_of_all_finds_what_was_rolled_back_by_its_key(tmp_path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"paid", keys=["o-1"])
        store.append("orders", b"not paid", keys=["o-1"], sys_flag=ROLLED_BACK)
    arguments = ("find", tmp_path / "store", "--topic", "orders", "--key", "o-1", "--json")
    assert [row["body"] for row in run(*arguments).rows] == ["paid"]
    assert [row["body"] for row in run(*arguments, "--all").rows] == ["paid", "not paid"]


def test_find_looks_into_bodies(events: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(events) as store:
        queues = store.topics["broker"].queues
        wanted = sorted(m.physical_offset for queue in queues for m in queue if re.search(rb"(?i)topic.?config", m.body))
    assert wanted
    assert found(run, events, "--topic", "broker", "--body", "(?i)topic.?config") == wanted
    assert found(run, events, "--topic", "broker", "--body", "(?i)topic.?config", "-n", -2) == wanted[-2:]


@pytest.mark.parametrize("topic", [(), ("--topic", "broker")], ids=["every topic", "a topic"])
def test_find_by_key_gives_the_first_or_the_last_n(topic: tuple[str, ...], events: Path, run: Callable[..., Any]) -> None:
    every = found(run, events, *topic, "--key", "1568")
    assert len(every) > 4
    assert found(run, events, *topic, "--key", "1568", "-n", 3) == every[:3]
    assert found(run, events, *topic, "--key", "1568", "-n", -3) == every[-3:]


@pytest.mark.parametrize("by", ["topic", "queue,topic", "tag", "hour", "segment,topic"])
def test_du_counts_what_a_look_at_every_record_counts(told: tuple[Path, Expected], by: str, run: Callable[..., Any]) -> None:
    path, _ = told
    columns = {"queue": "queue_id", "tag": "tags"}
    names = [columns.get(name, name) for name in by.split(",")]
    segment = 1 << 20 if path.name == "533_broker" else 16_384
    counted: Counter[tuple[object, ...]] = Counter()
    sizes: Counter[tuple[object, ...]] = Counter()
    for row in run("find", path, "--since", "2000-01-01", "--all", "--json").rows:
        row["hour"] = row["store_time"][:14] + "00:00.000Z"
        row["segment"] = row["physical_offset"] // segment * segment
        group = tuple(row[name] for name in names)
        counted[group] += 1
        sizes[group] += row["store_size"]
    rows = run("du", path, "--by", by, "--json").rows
    assert {tuple(row[name] for name in names): (row["messages"], row["bytes"]) for row in rows} == {
        group: (counted[group], sizes[group]) for group in counted
    }


def test_segments_index_and_manifest_are_what_the_api_gives(told: tuple[Path, Expected], run: Callable[..., Any]) -> None:
    path, _ = told
    with mqstore.open(path) as store:
        bounds = store.min_physical_offset, store.max_physical_offset
        segments, index = store.inspect.segments().to_arrow().to_pylist(), store.inspect.index_files().to_arrow().to_pylist()

    def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: ms(v.isoformat()) if isinstance(v, datetime) else v for k, v in row.items()} for row in rows]

    def in_ms(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{k: ms(v) if k.endswith("_time") and v else v for k, v in row.items()} for row in rows]

    assert in_ms(run("segments", path, "--json").rows) == plain(segments)
    ran = run("index", path, "--json")
    assert in_ms([json.loads(line) for line in ran.out.splitlines()]) == plain(index)
    assert ran.code == (0 if index else 1)
    [manifest] = run("manifest", path).rows
    assert (manifest["min_physical_offset"], manifest["max_physical_offset"]) == bounds


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir() if (path / "commitlog").is_dir()))
def test_every_command_answers_on_every_store(golden: Path, name: str, run: Callable[..., Any]) -> None:
    path = golden / name
    for command in (
        "info",
        "topics",
        "queues",
        "du",
        "segments",
        "index",
        "delayed",
        "transactions",
        "dead",
        "manifest",
        "doctor",
        "verify",
    ):
        for form in ([], ["--json"]):
            ran = run(command, path, *form)
            assert ran.code == (1 if not ran.out else ran.code), (command, ran)
            assert ran.out or ran.err.startswith("mqstore: "), (command, ran)
    assert run("lag", path).code == 1
    assert run("tail", path).code == 0
    assert run("find", path, "--since", 10**12, "--all").code == 0
    assert run("diff", path, path).code in (0, 1)


def test_messages_of_a_topic_whose_queues_are_gone_are_found(copied: Callable[[str], Path], run: Callable[..., Any]) -> None:
    path, expected = copied("498_mixed"), Expected("498_mixed")
    shutil.rmtree(path / "consumequeue" / "orders")
    wanted = [message["physical_offset"] for message in expected.of("orders")]
    for arguments in (["cat", path, "orders"], ["find", path, "--topic", "orders"]):
        ran = run(*arguments, "--json")
        assert [json.loads(line)["physical_offset"] for line in ran.out.splitlines()] == wanted, arguments


def test_what_is_not_there_is_said_with_a_name_that_is_close(golden: Path, run: Callable[..., Any]) -> None:
    ran = run("cat", golden / "498_mixed", "order")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"mqstore: no message of order is found: it is not a topic of {golden / '498_mixed'}; there is orders\n"
    assert run("queues", golden / "498_mixed", "order").code == 1
    assert run("get", golden / "498_mixed", "orders/9@0").err == "mqstore: orders has no queue 9: its ids are 0 to 3\n"
    assert "expected a physical offset or TOPIC/QUEUE@OFFSET" in run("get", golden / "498_mixed", "orders").err
    assert "TOPIC/QUEUE@OFFSET" in run("cat", golden / "498_mixed", "orders/x").err
    assert run("cat", golden / "498_mixed", "orders@0").code == 2
    assert run("cat", golden / "498_mixed", "one@0", "-n", 1, "--json").rows[0]["queue_offset"] == 0


def test_a_queue_that_does_not_exist_differs_from_an_empty_one(events: Path, run: Callable[..., Any]) -> None:
    for command in ("cat", "tail"):
        ran = run(command, events, "broker/9")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err == "mqstore: broker has no queue 9: its ids are 0 to 3\n"


def test_du_takes_the_names_of_the_columns_too(golden: Path, run: Callable[..., Any]) -> None:
    path = golden / "498_mixed"
    assert run("du", path, "--by", "queue_id,tags", "--json").rows == run("du", path, "--by", "queue,tag", "--json").rows
    for wrong in ("colour", "topic,topic", "queue,queue_id"):
        assert run("du", path, "--by", wrong).code == 2


def test_du_counts_the_files_of_each_family_and_the_free_bytes(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = shutil.copytree(broker, tmp_path / "store")
    (path / "commitlog").rename(tmp_path / "elsewhere")
    (path / "commitlog").symlink_to(tmp_path / "elsewhere")
    (path / "left").write_bytes(b"x" * 10_000)

    def taken(*folders: str) -> int:
        files = [file for folder in folders for file in (tmp_path / folder).rglob("*") if file.is_file()]
        return sum(file.stat().st_blocks * 512 for file in files)

    [files] = run("du", path, "--files", "--json").rows
    free = files.pop("free_bytes")
    assert files == {
        "log_bytes": taken("elsewhere"),
        "queue_bytes": taken("store/consumequeue"),
        "index_bytes": taken("store/index"),
        "other_bytes": taken("store") - taken("store/consumequeue", "store/index"),
    }
    assert min(files.values()) > 0
    assert 0 < free <= shutil.disk_usage(path).total
    lines = run("du", path, "-n", 2).out.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["topic", "orders", "payments", "", *files, "free_bytes"]
    assert [line.split()[1] for line in lines[4:8]] == [str(size) for size in files.values()]
    assert len(run("du", path, "-n", 2, "--json").rows) == 2
