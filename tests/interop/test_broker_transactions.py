"""Transactions between brokers and our writer: open half messages, ends, questions and op messages of each. See README.md."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker import Broker
from handover import COMES_S, OPTIONS, SIZES, VERSIONS, Group, bodies, put, register, take
from test_broker_records import Record, record

import mqstore

GROUP = "transactions"
ORDERS, HALVES, OPS = "orders", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK = 8, 12
#: RocketMQ 5 collects ends for this long before it writes the op message that lists them.
BATCH_MS = 1000
#: The age in ms at which a half message is asked about, and the number of questions.
AGE_MS, CHECKS = 1, 15
#: A broker gives up a half message whose file may go.
KEPT = {"fileReservedTime": 72}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version of a whole broker."""
    return str(request.param)


def offline(path: Path, version: str) -> Broker:
    """Starts the classes of a broker, without a network, on a store."""
    return Broker(path, SIZES, version=version, options={**KEPT, "transactionOpBatchInterval": BATCH_MS}, program="Offline")


def test_a_broker_s_service_reads_our_ends_and_commits_as_we_do(version: str, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with mqstore.open(ours, "x", **OPTIONS) as store:
        store.create_topic(ORDERS, queues=4)
        sent = [send_half(store, number) for number in range(6)]
        store.transactions.end(sent[0], "commit")
        store.transactions.end(sent[1], "rollback")
        store.transactions.end(sent[4], "commit")
        still_open = [half.unique_key for half in store.transactions.open()]
    assert still_open == [half.unique_key for half in (sent[2], sent[3], sent[5])]
    shutil.copytree(ours, theirs)
    with offline(theirs, version) as broker:
        broker.ask("end", GROUP, sent[3].queue_offset, sent[3].physical_offset, COMMIT)
        broker.ask("end", GROUP, sent[5].queue_offset, sent[5].physical_offset, ROLLBACK)
        await_ops(theirs, {0, 1, 3, 4, 5})
        asked = broker.ask("check", AGE_MS, CHECKS)
        assert [(half["unique_key"], half["checks"], half["is_given_up"]) for half in asked] == [(sent[2].unique_key, 1, False)]
        broker.close()
    with mqstore.open(ours, "r+", **OPTIONS) as store:
        store.transactions.end(sent[3].id, "commit")
        store.transactions.end(sent[5].id, "rollback")
    assert committed(ours) == committed(theirs)
    assert sorted(committed(ours)) == [b"body 0", b"body 3", b"body 4"]


def test_a_broker_s_service_asks_about_what_we_left_open(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", **OPTIONS) as store:
        store.create_topic(ORDERS, queues=4)
        sent = [send_half(store, number) for number in range(4)]
        store.transactions.end(sent[1], "commit")
    left = [half.unique_key for half in (sent[0], sent[2], sent[3])]
    with offline(path, version) as broker:
        for times in (1, 2):
            asked = broker.ask("check", AGE_MS, CHECKS)
            assert [(half["unique_key"], half["checks"]) for half in asked] == [(key, times) for key in left]
        broker.ask("persist")
        broker.close()
    with mqstore.open(path, "r+", **OPTIONS) as store:
        found = store.transactions.open()
        assert [(half.unique_key, half.checks) for half in found] == [(key, 2) for key in left]
        store.transactions.end(found[0], "rollback")
    with offline(path, version) as broker:
        # The third question is one too many.
        given_up = broker.ask("check", AGE_MS, 2)
        assert [(half["unique_key"], half["is_given_up"]) for half in given_up] == [(key, True) for key in left[1:]]
        broker.close()


@pytest.mark.parametrize("is_persisted", [True, False])
def test_we_read_half_and_op_messages_of_a_broker_s_service(version: str, is_persisted: bool, tmp_path: Path) -> None:
    path = tmp_path / "store"
    keys = [f"7F000001000018B4AAC2A1B2C3D4{number:04X}" for number in range(6)]
    with offline(path, version) as broker:
        halves = [broker.ask("half", GROUP, ORDERS, number % 4, key, f"body-{number}")[0] for number, key in enumerate(keys)]
        for number, end in ((0, COMMIT), (1, ROLLBACK), (4, COMMIT)):
            broker.ask("end", GROUP, halves[number]["queue_offset"], halves[number]["physical_offset"], end)
        ops = await_ops(path, {0, 1, 4})
        asked = broker.ask("check", AGE_MS, CHECKS)
        assert [half["unique_key"] for half in asked] == [keys[2], keys[3], keys[5]]
        if is_persisted:
            broker.ask("persist")
        broker.close()
    # RocketMQ 5 lists several in one message, each before a comma; RocketMQ 4 one in each, without one.
    assert all(body.endswith(b",") for body in ops) if version.startswith("5") else ops == [b"0", b"1", b"4"]
    with mqstore.open(path, "r+", **OPTIONS) as store:
        found = store.transactions.open()
        # The half messages that the broker has stored again count, not those before.
        assert [(half.physical_offset, half.unique_key, half.checks, half.group) for half in found] == [
            (half["physical_offset"], half["unique_key"], 1, GROUP) for half in asked
        ]
        for number in (0, 1, 4):
            expect_ended(store, halves[number]["physical_offset"])
        store.transactions.end(found[0], "commit")
        store.transactions.end(found[1], "rollback")
        assert [half.unique_key for half in store.transactions.open()] == [keys[5]]
    assert sorted(committed(path)) == [b"body-0", b"body-2", b"body-4"]
    with offline(path, version) as broker:
        assert [half["unique_key"] for half in broker.ask("check", AGE_MS, CHECKS)] == [keys[5]]
        broker.close()


def test_each_side_ends_transactions_that_the_other_left_open(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    answers = {"a": "COMMIT_MESSAGE", "b": "ROLLBACK_MESSAGE", "c": None}
    with mqstore.open(path, "x", **OPTIONS) as store:
        store.create_topic(ORDERS, queues=4)
        for body, answer in answers.items():
            more = {"answer": answer} if answer else {}
            store.transactions.send_half(ORDERS, body.encode(), group=GROUP, properties=more)
    # A half message whose op message is not written yet is asked about again, and then RocketMQ commits it twice.
    batch = {"transactionOpBatchInterval": 100}
    options = {"transactionTimeOut": 500, "transactionCheckInterval": 3000, "transactionCheckMax": 1000, **KEPT, **batch}
    with Broker(path, SIZES, version=version, options=options) as broker:
        register(broker)
        for body, end in (("d", "UNKNOW"), ("e", "COMMIT_MESSAGE"), ("f", "ROLLBACK_MESSAGE")):
            broker.ask("put", json.dumps({"topic": ORDERS, "queue": 0, "body": body, "transaction": end}))
        # Its own producer answers for the group, which ours had named.
        wait_until(lambda: b"a" in committed(path))
        put(broker, ORDERS, "plain")
        wait_until(lambda: not {"a", "b"} & set(open_bodies(path)))
        broker.close()
    assert sorted(committed(path)) == [b"a", b"e"]
    with mqstore.open(path, "r+", **OPTIONS) as store:
        found = {half.message.body: half for half in store.transactions.open()}
        assert sorted(found) == [b"c", b"d"]
        assert found[b"c"].checks > 0
        store.transactions.end(found[b"c"], "rollback")
        store.transactions.end(found[b"d"], "commit")
    with Broker(path, SIZES, version=version, options=options) as broker:
        register(broker)
        all_committed = ["a", "d", "e", "plain"]
        assert bodies(take(broker, Group("billing", [ORDERS], all_committed))["billing"]) == all_committed
        broker.close()
    assert sorted(committed(path)) == [b"a", b"d", b"e"]


def send_half(store: mqstore.Writer, number: int) -> mqstore.Half:
    """Sends a half message to a queue of its own, with more properties the higher its number."""
    properties = {f"property {of}": "v" * (of + 1) for of in range(number)}
    more: dict[str, Any] = {"tags": "paid", "keys": ["k-1", "k-2"]} if number % 2 else {}
    body = b"body %d" % number
    return store.transactions.send_half(ORDERS, body, group=GROUP, queue_id=number % 4, properties=properties, **more)


def expect_ended(store: mqstore.Writer, physical_offset: int) -> None:
    """An end of a half message is refused, because it has ended."""
    with pytest.raises(mqstore.TransactionEndedError) as raised:
        store.transactions.end(store.message_at(physical_offset).message_id, "commit")
    assert raised.value.outcome == "ended"


def committed(path: Path) -> dict[bytes, Record]:
    """Returns the records of committed messages, by body, each of which is there once."""
    log = (path / "commitlog" / f"{0:020}").read_bytes()
    with mqstore.open(path) as store:
        messages = [message for message in store.topics.get(ORDERS, ()) if message.transaction == "commit"]
    found = {message.body: record(log, message) for message in messages}
    assert len(found) == len(messages)
    return found


def open_bodies(path: Path) -> list[str]:
    """Returns the bodies of the half messages without an end, as a reader beside the broker sees them."""
    with mqstore.open(path) as store:
        listed = {int(place) for op in store.topics.get(OPS, ()) for place in op.body.split(b",") if place}
        latest = {half.unique_key: half for half in store.topics[HALVES]}
        return [half.body.decode() for half in latest.values() if half.queue_offset not in listed]


def await_ops(path: Path, places: set[int]) -> list[bytes]:
    """Waits until op messages of another process list these half messages, and returns their bodies."""
    found: list[bytes] = []

    def are_there() -> bool:
        with mqstore.open(path) as store:
            found[:] = [op.body for op in store.topics.get(OPS, ())]
        return {int(place) for body in found for place in body.split(b",") if place} >= places

    wait_until(are_there)
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + COMES_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)
