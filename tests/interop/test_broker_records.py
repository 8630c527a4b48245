"""The records of retries, dead letters and delivered messages, beside those that a broker's own classes append. See README.md."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from broker import Broker
from generator import SCHEDULE_TOPIC
from handover import COMES_S, LEVELS, OPTIONS, SIZES, VERSIONS

import mqstore

GROUP = "billing"
#: The topics to which retries and dead letters go.
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
#: What producers add, in the order of their properties.
PROPERTIES: list[dict[str, str]] = [
    {},
    {"KEYS": "k-1 k-2", "TAGS": "paid"},
    {"UNIQ_KEY": "7F000001000018B4AAC2A1B2C3D40000", "CLUSTER": "DefaultCluster", "WAIT": "true", "TAGS": "open", "KEYS": "k-3"},
    {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "UNIQ_KEY": "7F000001000018B4AAC2A1B2C3D40001",
        "WAIT": "false",
        "a": "b",
    },
    {f"property {number}": "v" * number for number in range(1, 30)},
]
#: The messages that are sent back and do not become dead letters at once, and those of the second time with them.
FIRST_RETRIES, ALL_RETRIES = 4, 7


class Record(NamedTuple):
    """A record without its size, its place, its store time and, where it is a retry, the host that stored it."""

    head: bytes
    properties: list[bytes]


@pytest.mark.filterwarnings("ignore:.*delivers no delayed messages")
@pytest.mark.parametrize("version", VERSIONS)
def test_retries_dead_letters_and_deliveries_equal_those_of_a_broker(version: str, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write(ours)
    shutil.copytree(ours, theirs)
    send_back_by_a_broker(theirs, version)
    send_back(ours)
    expected, found = records(theirs), records(ours)
    assert found.keys() == expected.keys()
    differ = {key: (found[key], expected[key]) for key in expected if found[key] != expected[key]}
    assert not differ


def write(path: Path) -> None:
    """Writes messages to send back, and delayed ones that wait."""
    options: dict[str, Any] = {**OPTIONS, "services": False}
    with mqstore.open(path, "x", **options) as store:
        store.create_topic("orders", queues=8)
        for number, properties in enumerate(PROPERTIES):
            common = {"properties": properties, "flag": number, "born_host": "10.0.0.1:5000", "store_host": "10.0.0.2:10911"}
            store.append("orders", b"now %d" % number, **common)
            store.append("orders", b"later %d" % number, queue_id=1 + number, delay_level=1 + number % 2, **common)


def first_level(message: mqstore.Message) -> int:
    """Returns the delay level with which a message is sent back: the default, two others, that of a dead letter, one too high."""
    return (0, 1, 2, -1, 99)[message.flag]


def send_back_by_a_broker(path: Path, version: str) -> None:
    """Sends messages back by the classes of a broker, which also deliver the delayed ones."""
    with Broker(path, SIZES, version=version, options={"messageDelayLevel": LEVELS}, program="Offline") as broker:
        with mqstore.open(path) as store:
            for message in first_messages(store):
                broker.ask("back", GROUP, message.topic, message.physical_offset, first_level(message))
        await_messages(path, RETRY, FIRST_RETRIES)
        with mqstore.open(path) as store:
            for message in store.topics[RETRY]:
                broker.ask("back", GROUP, message.topic, message.physical_offset, second_level(message))
        await_messages(path, RETRY, ALL_RETRIES)
        await_messages(path, "orders", 2 * len(PROPERTIES))
        broker.close()


def send_back(path: Path) -> None:
    """Does the same by a consumer of ours."""
    with mqstore.open(path, "r+", **OPTIONS) as store, store.consumer(GROUP, "orders") as consumer:
        retries: list[mqstore.Message] = []
        while len(retries) < FIRST_RETRIES:
            for message in consumer.poll(timeout=COMES_S):
                if message.body.startswith(b"later"):
                    consumer.ack(message)
                elif message.reconsume_times == 0:
                    consumer.nack(message, first_level(message))
                else:
                    retries.append(message)
        for message in sorted(retries, key=lambda message: message.queue_offset):
            consumer.nack(message, second_level(message))
        wait_until(lambda: len(store.topics[RETRY]) == ALL_RETRIES and len(store.topics["orders"]) == 2 * len(PROPERTIES))


def second_level(message: mqstore.Message) -> int:
    """Returns the delay level with which a retry is sent back again."""
    return -1 if message.flag % 2 else 1


def first_messages(store: mqstore.Store) -> list[mqstore.Message]:
    """Returns the messages that were not delayed."""
    return [message for message in store.topics["orders"].queues[0] if message.reconsume_times == 0]


def await_messages(path: Path, topic: str, count: int) -> None:
    """Waits for messages of another process."""

    def are_there() -> bool:
        with mqstore.open(path) as store:
            return len(store.topics.get(topic, ())) >= count

    wait_until(are_there)


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + COMES_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def records(path: Path) -> dict[tuple[str, bytes, int], Record]:
    """Returns the records of a store, by topic, body and number of retries."""
    log = (path / "commitlog" / f"{0:020}").read_bytes()
    with mqstore.open(path) as store:
        topics: Iterable[Any] = (store.topics[topic] for topic in (SCHEDULE_TOPIC, RETRY, DEAD, "orders"))
        messages = [message for topic in topics for message in topic]
    found = {(message.topic, message.body, message.reconsume_times): record(log, message) for message in messages}
    assert len(found) == len(messages)
    return found


def record(log: bytes, message: mqstore.Message) -> Record:
    """Reads the record of a message. docs/FORMAT.md has its layout."""
    raw = bytearray(log[message.physical_offset :][: message.store_size])
    raw[28:36] = bytes(8)
    raw[56:64] = bytes(8)
    if message.reconsume_times > 0:
        raw[64:72] = bytes(8)
    topic_at = 88 + struct.unpack_from(">i", raw, 84)[0]
    properties_at = topic_at + 1 + raw[topic_at]
    # A broker writes the properties in the order of a HashMap, and until 5.2 no separator after the last one.
    return Record(bytes(raw[4:properties_at]), sorted(bytes(raw[properties_at + 2 :]).rstrip(b"\2").split(b"\2")))
