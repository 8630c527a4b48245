"""Consumer groups, retries and delayed messages between whole brokers with real clients and our writer. See README.md."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from broker import Broker
from handover import COMES_S, OPTIONS, VERSIONS, Group, bodies, delivered, put, register, rest_of, serve, settings, take

import mqstore

Settings: TypeAlias = dict[str, dict[str, Any]]

ORDERS, PAYMENTS, QUEUES = 200, 50, 4
TOPICS = ["orders", "payments"]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version of a whole broker."""
    return str(request.param)


def test_clients_of_a_broker_continue_our_groups_and_we_continue_theirs(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    left = write_groups(path)
    before = settings(path)
    with serve(path, version) as broker:
        register(broker)
        failed = next(body for body in left["billing"] if body.startswith("order"))
        got = take(
            broker,
            Group("billing", ["orders"], len(left["billing"]) + 1, {failed: 1}, level=2),
            Group("shipping", TOPICS, len(left["shipping"]), {"payment 40": 1}, level=-1),
        )
        # Each once, those that were not settled too, and what the client itself sent back once more.
        assert bodies(got["billing"]) == sorted([*left["billing"], failed])
        assert bodies(got["shipping"]) == sorted(left["shipping"])
        retried = {(ack["body"], ack["reconsume_times"], ack["topic"]) for ack in got["billing"] if ack["is_retry"]}
        assert retried == {(body, 1, "orders") for body in (*left["retried"], failed)}
        expect_dead(broker, left["dead"][0])
        for number in range(3):
            put(broker, "orders", f"left {number}", number, delay_level=3)
            put(broker, "orders", f"new {number}", number)
        broker.close()
    theirs = settings(path)
    with mqstore.open(path, "r+", **OPTIONS) as store:
        more = [f"{kind} {number}" for kind in ("left", "new") for number in range(3)]
        assert rest_of(store, "billing", ["orders"], len(more)) == sorted(more)
        assert rest_of(store, "shipping", TOPICS, len(more)) == sorted(more)
        letters = {group: [letter.body for letter in store.broker.dead_letters(group)] for group in ("billing", "shipping")}
        assert letters == {"billing": [left["dead"][0].encode()], "shipping": [b"payment 40"]}
        store.create_topic("ours", queues=2)
    assert set(delivered(path).values()) == {1}
    expect_kept(known_to(theirs, before), theirs)
    expect_kept(theirs, settings(path))
    assert "ours" in settings(path)["topics"]["topicConfigTable"]


def write_groups(path: Path) -> dict[str, list[str]]:
    """Writes a store with two groups; by group, the bodies that clients must still get, and those that were sent back."""
    with mqstore.open(path, "x", **OPTIONS) as store:
        for topic, queues, count in (("orders", QUEUES, ORDERS), ("payments", 1, PAYMENTS)):
            store.create_topic(topic, queues=queues)
            for number in range(count):
                store.append(topic, f"{topic[:-1]} {number}".encode(), queue_id=number % queues)
        orders, payments = ({message.body.decode() for message in store.topics[topic]} for topic in TOPICS)
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


def expect_kept(before: Settings, after: Settings) -> None:
    """Every entry of the settings is still there, with its values. Of progress none falls."""
    for table, name in (("topicConfigTable", "topics"), ("subscriptionGroupTable", "subscriptionGroup")):
        for entry, fields in before[name][table].items():
            now = after[name][table][entry]
            assert {field: now[field] for field in fields} == fields, (name, entry)
    for key, queues in before["consumerOffset"]["offsetTable"].items():
        assert all(after["consumerOffset"]["offsetTable"][key][queue] >= offset for queue, offset in queues.items()), key
    for level, offset in before["delayOffset"]["offsetTable"].items():
        assert after["delayOffset"]["offsetTable"][level] >= offset


def known_to(broker: Settings, ours: Settings) -> Settings:
    """Returns our settings without the fields that a broker does not know, and so does not keep."""
    known = dict(ours)
    for table, name in (("topicConfigTable", "topics"), ("subscriptionGroupTable", "subscriptionGroup")):
        fields = {field for entry in broker[name][table].values() for field in entry}
        entries = ours[name][table].items()
        kept = {entry: {field: value for field, value in values.items() if field in fields} for entry, values in entries}
        known[name] = {table: kept}
    return known
