"""Delayed messages of a writer: delivered in time, once, and after a kill."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path

import pytest

import mqstore
import mqstore.aio

#: The time that a delivery may take on a machine that runs other tests, too.
PATIENCE = 30


def wait_for(topic: str, count: int, store: mqstore.Store) -> list[mqstore.Message]:
    """Returns the messages of queue 0 once there are this many."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if topic in store.topics and len(queue := store.topics[topic].queues[0]) >= count:
            return list(queue)
        time.sleep(0.02)
    raise AssertionError(f"{topic} has fewer than {count} messages")


def await_delivered(store: mqstore.Store, waiting: int) -> None:
    """Waits until the delivery has counted its copies, which readers see a moment before."""
    deadline = time.monotonic() + PATIENCE
    while store.stats().delayed_waiting != waiting and time.monotonic() < deadline:
        time.sleep(0.02)
    assert store.stats().delayed_waiting == waiting


def offsets(store: mqstore.Store) -> dict[int, int]:
    rows = store.broker.delay_offsets().to_arrow().to_pylist()
    return {row["level"]: row["offset"] for row in rows}


def test_a_delayed_message_is_delivered_about_when_it_is_due(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        sent = store.append("orders", b"late", keys=["k"], delay_level=1)
        assert store.stats().delayed_waiting in (0, 1)
        [message] = wait_for("orders", 1, store)
        assert (message.body, message.keys) == (b"late", ["k"])
        late = (message.store_time - sent.store_time).total_seconds() - 1
        assert 0 <= late < PATIENCE
        await_delivered(store, waiting=0)
        assert store.stats().delayed_passed_over == 0
        assert offsets(store) == {1: 1}
    with mqstore.open(tmp_path / "store") as reader:
        assert offsets(reader) == {1: 1}


def test_levels_of_the_option_are_delivered_after_a_reopening(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", message_delay_level="2s 1h") as store:
        store.append("orders", b"late", delay_level=1)
        store.append("orders", b"later", delay_level=2)
    with mqstore.open(tmp_path / "store", "a", message_delay_level="2s 1h") as store:
        assert [message.body for message in wait_for("orders", 1, store)] == [b"late"]
        await_delivered(store, waiting=1)


def expect_dead(store: mqstore.Store, deliveries: list[mqstore.Message]) -> None:
    """Checks two retries, each a second after the delivery before it at the earliest, and the dead letter."""
    assert [message.body for message in deliveries] == [b"poison"] * 3
    assert [message.reconsume_times for message in deliveries] == [0, 1, 2]
    times = [message.store_time for message in deliveries]
    assert all((later - earlier).total_seconds() >= 1 for earlier, later in pairwise(times))
    [letter] = store.broker.dead_letters("billing").queues[0]
    assert (letter.body, letter.keys, letter.reconsume_times) == (b"poison", ["k"], 3)


def test_a_message_that_always_fails_becomes_a_dead_letter(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", message_delay_level="1s 1s 1s 1s") as store:
        store.append("orders", b"poison", keys=["k"])
        store.append("orders", b"fine")
        deliveries = []
        with store.consumer("billing", "orders", max_reconsume_times=2) as consumer:
            while len(deliveries) < 3:
                messages = consumer.poll(timeout=PATIENCE)
                assert messages
                assert all(consumer.nack(message) for message in messages if message.body == b"poison")
                consumer.ack(message for message in messages if message.body == b"fine")
                deliveries += [message for message in messages if message.body == b"poison"]
            assert (consumer.poll(timeout=1.5), consumer.lag()) == ([], 0)
        expect_dead(store, deliveries)
    with mqstore.open(tmp_path / "store", "a") as store:
        assert store.consumer("billing", "orders").poll(timeout=0.1) == []
        assert store.broker.resend("billing").sent == 1
        [again] = store.consumer("billing", "orders").poll(timeout=PATIENCE)
        assert (again.body, again.reconsume_times) == (b"poison", 0)


def test_a_task_gets_retries_until_the_message_is_a_dead_letter(tmp_path: Path) -> None:
    asyncio.run(expect_dead_in_a_task(tmp_path / "store"))


async def expect_dead_in_a_task(path: Path) -> None:
    async with mqstore.aio.open(path, "x", message_delay_level="1s 1s 1s 1s") as store:
        await store.append("orders", b"poison", keys=["k"])
        deliveries: list[mqstore.Message] = []
        async with await store.consumer("billing", "orders", max_reconsume_times=2) as consumer:
            while len(deliveries) < 3:
                [message] = await consumer.poll(timeout=PATIENCE)
                assert await consumer.nack(message)
                deliveries.append(message)
            assert await consumer.poll(timeout=1.5) == []
        expect_dead(store.store, deliveries)


CHILD = """
import os, signal, sys, mqstore
store = mqstore.open(sys.argv[1], "a")
store.append_batch([{"topic": "orders", "body": b"%d" % n, "properties": {"DELAY": "1"}} for n in range(1000)])
while "orders" not in store.topics or len(store.topics["orders"].queues[0]) < 300:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_s_messages_are_delivered_once(tmp_path: Path) -> None:
    for _ in range(2):
        child = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / "store")], check=False)
        assert child.returncode == -9
    with mqstore.open(tmp_path / "store", "a") as store:
        messages = wait_for("orders", 2000, store)
        time.sleep(0.5)
        assert len(store.topics["orders"].queues[0]) == 2000
    bodies = [int(message.body) for message in messages]
    assert bodies == [*range(1000)] * 2


@pytest.mark.slow
def test_a_hundred_thousand_messages_are_delivered_within_seconds(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        rows = [("orders", b"x" * 100, None, (), {"DELAY": "1"}) for _ in range(100_000)]
        store.append_batch(rows)
        messages = wait_for("orders", 100_000, store)
    late = max(message.store_time for message in messages) - min(message.store_time for message in messages)
    assert late.total_seconds() < PATIENCE


def test_a_writer_without_services_warns_once_and_delivers_nothing(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", services=False) as store:
        with pytest.warns(RuntimeWarning, match="delivers no delayed messages"):
            store.append("orders", b"late", delay_level=1)
        with warnings.catch_warnings(action="error"):
            store.append("orders", b"later", delay_level=1)
        time.sleep(1.2)
        assert "orders" not in store.topics
        assert store.stats().delayed_waiting is None
    # The next writer delivers them: mqstore has made the store.
    with mqstore.open(tmp_path / "store", "a") as store:
        assert [message.body for message in wait_for("orders", 2, store)] == [b"late", b"later"]


def test_a_damaged_progress_is_named_and_stops_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.append("orders", b"late", delay_level=1)
    (path / "config" / "delayOffset.json").write_text("{broken")
    (path / "config" / "delayOffset.json.bak").unlink(missing_ok=True)
    with mqstore.open(path, "a", services=True) as store:
        with pytest.warns(RuntimeWarning, match=r"delayOffset\.json"):
            store.append("orders", b"later", delay_level=1)
        store.append("orders", b"now")
        with pytest.raises(mqstore.CorruptError):
            store.broker.delay_offsets()
    assert (path / "config" / "delayOffset.json").read_text() == "{broken"
