"""Stores that RocketMQ wrote read as RocketMQ reads them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from conftest import GOLDEN, contents

import mqstore

#: Written with options that 5.5.1 brought. The queues of `551_rocksdb` are not files.
OPTIONS = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("551_*.tar.xz"))
READ_BY_ROCKETMQ = sorted(path.stem for path in (GOLDEN / "expected").glob("*.jsonl") if (GOLDEN / path.stem).is_dir())


def expected(name: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / "expected" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def our_host(text: str) -> str:
    """RocketMQ writes an IPv6 host without brackets and without shortening it."""
    address, _, port = text.rpartition(":")
    parsed = ip_address(address)
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"


def since_1970(time: datetime) -> int:
    assert time.tzinfo is UTC
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def fields(message: mqstore.Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_size": message.store_size,
        "store_timestamp": since_1970(message.store_time),
        "born_timestamp": since_1970(message.born_time),
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "born_host": message.born_host,
        "msg_id": message.message_id,
        "body_len": len(message.body),
        "body_crc32": zlib.crc32(message.body),
        "properties": message.properties,
    }


def listed(store: mqstore.Store) -> list[dict[str, Any]]:
    """Returns all that a store holds, in the order and form of the expected files."""
    lines: list[dict[str, Any]] = []
    for topic in store.topics.values():
        for queue in topic.queues:
            lines += [fields(message) for message in queue]
            if queue.max_offset:
                name = f"{queue.topic}/{queue.queue_id}"
                lines.append({"queue": name, "min": queue.min_offset, "max": queue.max_offset})
    bounds = {"min_physical_offset": store.min_physical_offset, "max_physical_offset": store.max_physical_offset}
    return [*lines, bounds]


def with_our_hosts(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line | {"born_host": our_host(line["born_host"])} if "born_host" in line else line for line in lines]


def by_queue(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the same lines, topics ascending as Python sorts text."""
    return sorted(lines, key=lambda line: json.dumps(line, sort_keys=True))


@pytest.fixture(params=[*READ_BY_ROCKETMQ, "533_broker"])
def path(request: pytest.FixtureRequest, golden: Path, broker: Path) -> Path:
    """Each store that RocketMQ has read."""
    return broker if request.param == broker.name else golden / str(request.param)


def test_every_field_of_every_message_and_all_bounds_are_rocketmqs(path: Path) -> None:
    with mqstore.open(path) as store:
        assert by_queue(listed(store)) == by_queue(with_our_hosts(expected(path.name)))
        assert (store.recovery.complete, store.recovery.missing) == (True, None)


@pytest.mark.parametrize("name", OPTIONS)
def test_stores_of_newer_options_are_read_as_rocketmq_reads_them(name: str, unpacked: Callable[[str], Path]) -> None:
    wanted = with_our_hosts(expected(name))
    with mqstore.open(unpacked(name)) as store:
        if name == "551_rocksdb":
            rows = store.scan(order="queue").to_arrow().to_pylist()
            found = {(row["topic"], row["queue_id"], row["queue_offset"], row["physical_offset"]) for row in rows}
            columns = ("topic", "queue_id", "queue_offset", "physical_offset")
            assert found == {tuple(line[column] for column in columns) for line in wanted if "topic" in line}
        else:
            assert by_queue(listed(store)) == by_queue(wanted)
        assert (store.recovery.complete, store.recovery.missing) == (True, None)


def test_every_way_to_a_message_leads_to_the_same_one(path: Path) -> None:
    with mqstore.open(path) as store:
        for queue in (queue for topic in store.topics.values() for queue in topic.queues):
            for message in queue:
                assert queue[message.queue_offset] == message
                assert store.message_at(message.physical_offset) == message
                assert store.message(message.message_id) == message
                assert [*store.get(queue.topic, queue.queue_id, message.queue_offset, 1)] == [message]
                if message.unique_key:
                    assert message in store.query(message.topic, message.unique_key, limit=None)
                    assert store.message(message.unique_key).unique_key == message.unique_key
                for key in message.keys:
                    assert message in store.query(message.topic, key, limit=None)


def test_all_events_are_read(events: Path) -> None:
    with mqstore.open(events) as store:
        read = [message for topic in store.topics.values() for queue in topic.queues for message in queue]
        assert len(read) == 7865
        assert len({message.unique_key for message in read}) == 7865
        for message in read[::97]:
            line = json.loads(message.body)
            assert message.topic == line["topic"]
            assert since_1970(message.born_time) == line["time_ms"]


def test_reading_everything_changes_no_byte_and_no_time(copied: Callable[[str], Path]) -> None:
    for name in [*READ_BY_ROCKETMQ, "533_batchcq"]:
        path = copied(name)
        before = contents(path)
        with mqstore.open(path) as store:
            for offset in range(store.min_physical_offset, store.max_physical_offset, 7):
                try:
                    store.message_at(offset)
                except (mqstore.NotFoundError, mqstore.CorruptError):
                    continue
            for topic in store.topics.values():
                store.query(topic.name, "k1")
                if name != "533_batchcq":
                    for queue in topic.queues:
                        queue[:].batches().to_arrow()
        assert contents(path) == before
