"""Groups, retries and delayed messages that one side leaves to the other in `test_groups.py`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
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


@dataclass
class Group:
    """A push consumer for `take`; `Groups.Group` in Java."""

    name: str
    topics: list[str]
    count: int
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


def rest_of(store: mqstore.Writer, group: str, topics: list[str], count: int) -> list[str]:
    """Consumes what is left for a group, at least `count` messages; their bodies, ascending."""
    found: list[str] = []
    with store.consumer(group, topics) as consumer:
        while messages := consumer.poll(100, timeout=COMES_S if len(found) < count else QUIET_S):
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


def settings(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the settings files, by name. RocketMQ writes numbers as names without quotes."""
    texts = {name: (path / "config" / f"{name}.json").read_text() for name in SETTINGS}
    return {name: json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text)) for name, text in texts.items()}
