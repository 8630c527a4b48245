"""Groups, retries and delayed messages that one side leaves to the other in `test_groups.py`."""

from __future__ import annotations

import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import embedded
from broker import Ack, Broker
from generator import SCHEDULE_TOPIC, Geometry

import mqstore

#: Of these whole brokers are published, with clients of the same version.
VERSIONS = ["4.9.7", "5.3.3"]
#: A message of the third level is still waiting when the other side has started.
LEVELS = "1s 2s 15s"
SIZES = Geometry(segment=1 << 20, queue=20_000, slots=500, items=2_000)
#: The options of our writers.
OPTIONS: dict[str, Any] = {**embedded.options(SIZES), "message_delay_level": LEVELS, "services": True}
#: The settings files of a store.
SETTINGS = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")
#: Seconds for a message that must come, and for those that must not.
COMES_S, QUIET_S = 60, 1.5
#: The messages of `write_groups`, and the queues of "orders".
ORDERS, PAYMENTS, QUEUES = 200, 50, 4
TOPICS = ["orders", "payments"]


@dataclass
class Group:
    """A push consumer for `take`; `Groups.Group` in Java."""

    name: str
    topics: list[str]
    #: The bodies of the messages that it waits for.
    awaited: list[str]
    failures: dict[str, int] = field(default_factory=dict)
    level: int = 0


def serve(path: Path, version: str) -> Broker:
    """Starts a broker on a store."""
    return Broker(path, SIZES, version=version, options={"messageDelayLevel": LEVELS})


def register(broker: Broker) -> None:
    """Makes a broker register all its topics with the name server."""
    broker.ask("create", "unrelated", 1)


def take(broker: Broker, *groups: Group) -> dict[str, list[Ack]]:
    """Returns what push consumers of the groups get at the same time, in order."""
    got = broker.ask("groups", json.dumps([asdict(group) for group in groups], separators=(",", ":")))
    return {group.name: [ack for ack in got if ack["group"] == group.name] for group in groups}


def put(broker: Broker, topic: str, body: str, queue: int = 0, delay_level: int = 0) -> None:
    """Sends a message."""
    properties = {"DELAY": str(delay_level)} if delay_level else {}
    broker.ask("put", json.dumps({"topic": topic, "queue": queue, "body": body, "properties": properties}))


def bodies(got: list[Ack]) -> list[str]:
    """Returns the bodies, ascending."""
    return sorted(ack["body"] for ack in got)


def rest_of(store: mqstore.Writer, group: str, topics: list[str], awaited: Iterable[str]) -> list[str]:
    """Consumes what is left for a group, with these messages; returns the bodies, ascending."""
    found: list[str] = []
    with store.consumer(group, topics) as consumer:
        while messages := consumer.poll(100, timeout=COMES_S if set(awaited).difference(found) else QUIET_S):
            found += [message.body.decode() for message in messages]
            consumer.ack(messages)
    return sorted(found)


def delivered(path: Path) -> dict[str, int]:
    """Counts, by body, the copies of each delayed message that was no retry."""
    with mqstore.open(path) as store:
        waiting = [message for message in store.topics[SCHEDULE_TOPIC] if message.reconsume_times == 0]
        topics = {message.properties["REAL_TOPIC"] for message in waiting}
        copies = Counter(message.body.decode() for topic in topics for message in copies_in(store, topic))
        return {message.body.decode(): copies[message.body.decode()] for message in waiting}


def copies_in(store: mqstore.Store, topic: str) -> Iterator[mqstore.Message]:
    """Yields the messages of a topic that waited."""
    return (message for message in store.topics.get(topic, ()) if "REAL_TOPIC" in message.properties)


def unsettled(path: Path, group: str, topics: Iterable[str]) -> list[str]:
    """Returns the bodies of the messages of some topics that a group gets next, by its progress on disk."""
    with mqstore.open(path) as store:
        rows = store.broker.lag().to_pylist()
        offsets = {(row["topic"], row["queue_id"]): row["offset"] for row in rows if row["group"] == group}
        queues = [queue for topic in topics if topic in store.topics for queue in store.topics[topic].queues]
        # A group without progress in a queue begins with its first message.
        following = (queue[offsets.get((queue.topic, queue.queue_id)) or 0 :] for queue in queues)
        return [message.body.decode() for messages in following for message in messages]


def delivered_again(path: Path) -> list[str]:
    """Returns the bodies of the delayed messages that have a copy which the progress on disk does not count."""
    with mqstore.open(path) as store:
        try:
            offsets = {row["level"]: row["offset"] for row in store.broker.delay_offsets().to_pylist()}
        except mqstore.NotFoundError:
            offsets = {}
        copied = {message.body for topic in ("orders", "%RETRY%billing") for message in copies_in(store, topic)}
        waiting = [
            message for queue in store.topics[SCHEDULE_TOPIC].queues for message in queue[offsets.get(queue.queue_id + 1, 0) :]
        ]
        return [message.body.decode() for message in waiting if message.body in copied]


def settings(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the settings files, by name. RocketMQ writes numbers as names without quotes."""
    texts = {name: (path / "config" / f"{name}.json").read_text() for name in SETTINGS}
    return {name: json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text)) for name, text in texts.items()}


def write_groups(store: mqstore.Writer) -> dict[str, list[str]]:
    """Writes for two groups; by group, the bodies that clients must still get, and those that were sent back."""
    orders, payments = {f"order {number}" for number in range(ORDERS)}, {f"payment {number}" for number in range(PAYMENTS)}
    for topic, queues, count in (("orders", QUEUES, ORDERS), ("payments", 1, PAYMENTS)):
        store.create_topic(topic, queues=queues)
        for number in range(count):
            store.append(topic, f"{topic[:-1]} {number}".encode(), queue_id=number % queues)
    with store.consumer("billing", "orders") as billing:
        again_now, again_later, dead, *others = poll(billing, ORDERS // 2)
        billing.nack(again_now, delay_level=1)
        billing.nack(again_later, delay_level=3)
        billing.nack(dead, delay_level=-1)
        billing.ack(others)
    with store.consumer("shipping", TOPICS) as shipping:
        settled = [messages[: len(messages) // 2] for messages in by_queue(poll(shipping, 60))]
        for messages in settled:
            shipping.ack(messages)
    for number in range(3):
        store.append("orders", b"soon %d" % number, queue_id=number, delay_level=1)
        store.append("orders", b"late %d" % number, queue_id=number, delay_level=3)
    wait_until(lambda: len(store.topics.get("%RETRY%billing", ())) > 0)
    delayed = {f"{kind} {number}" for kind in ("soon", "late") for number in range(3)}
    consumed = {message.body.decode() for message in [dead, *others]}
    shipped = {message.body.decode() for messages in settled for message in messages}
    assert shipped
    return {
        "billing": sorted(orders - consumed | delayed),
        "shipping": sorted((orders | payments) - shipped | delayed),
        "retried": [again_now.body.decode(), again_later.body.decode()],
        "dead": [dead.body.decode()],
    }


def expect_dead(broker: Broker, body: str) -> None:
    """A client reads this dead letter of "billing", and no other."""
    dead = broker.ask("consume", "%DLQ%billing", "*")
    assert [(ack["body_crc32"], ack["properties"]["RETRY_TOPIC"]) for ack in dead] == [(zlib.crc32(body.encode()), "orders")]


def poll(consumer: mqstore.Consumer, count: int) -> list[mqstore.Message]:
    """Returns as many messages."""
    found: list[mqstore.Message] = []
    while len(found) < count:
        messages = consumer.poll(count - len(found), timeout=COMES_S)
        assert messages
        found += messages
    return found


def by_queue(messages: list[mqstore.Message]) -> list[list[mqstore.Message]]:
    """Returns the messages of each queue, in order."""
    queues: dict[tuple[str, int], list[mqstore.Message]] = {}
    for message in messages:
        queues.setdefault((message.topic, message.queue_id), []).append(message)
    return list(queues.values())


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + COMES_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)
