"""Recalls of timers: what is recalled is not delivered, and says so."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from pathlib import Path

import pytest
from test_hand_over import bodies, wait_until

import mqstore
import mqstore.aio
from mqstore.testing import SMALL, Clock

TIMERS = "rmq_sys_wheel_timer"
HOUR = timedelta(hours=1)


def append(store: mqstore.Writer, body: bytes, deliver_at: timedelta = HOUR) -> mqstore.AppendResult:
    return store.append("orders", body, deliver_at=deliver_at, unique_key=mqstore.new_unique_key())


def handle_of(timer: mqstore.Message) -> str:
    """The recall handle that a broker gives to the producer of a timer."""
    time = int(timer.properties["TIMER_OUT_MS"]) + 1
    parts = ("v1", timer.properties["REAL_TOPIC"], "broker-a", str(time), str(timer.unique_key))
    return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()


def ways(store: mqstore.Store, timer: mqstore.Message) -> list[tuple[str, str]]:
    assert timer.unique_key is not None
    return [(record.stage, record.state) for record in store.broker.trace(timer.unique_key).records]


def test_a_record_of_a_broker_that_recalls_a_timer_ends_it(tmp_path: Path) -> None:
    with Clock() as clock, mqstore.open(tmp_path / "store", "x", **SMALL) as store:
        timer = store.message_at(append(store, b"recalled").physical_offset)
        append(store, b"kept")
        wait_until(lambda: store.stats().delayed_waiting == 2)
        time = int(timer.properties["TIMER_OUT_MS"]) + 1
        recall = {"TIMER_DEL_UNIQKEY": f"orders+{timer.unique_key}"}
        store.append("orders", b"0", tags="_RECALL_TAG_", properties=recall, unique_key=timer.unique_key, deliver_at=time)
        wait_until(lambda: store.stats().delayed_waiting == 1)
        clock.advance(3600)
        wait_until(lambda: store.stats().delayed_waiting == 0)
        assert (bodies(store), store.stats().delayed_passed_over) == ([b"kept"], 0)


@pytest.mark.parametrize("form", ["result", "message", "handle"])
def test_recall_takes_what_appends_and_brokers_return(form: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Clock() as clock:
        with mqstore.open(path, "x", **SMALL) as store:
            result = append(store, b"recalled")
            timer = store.message_at(result.physical_offset)
            append(store, b"kept")
            wait_until(lambda: store.stats().delayed_waiting == 2)
            given = {"result": result, "message": timer, "handle": handle_of(timer)}[form]
            recall = store.message_at(store.broker.recall(given).physical_offset)
            assert (recall.topic, recall.tags, recall.body, recall.unique_key) == (TIMERS, "_RECALL_TAG_", b"0", timer.unique_key)
            assert recall.properties["TIMER_OUT_MS"] == timer.properties["TIMER_OUT_MS"]
            wait_until(lambda: store.stats().delayed_waiting == 1)
            assert ways(store, timer) == [("timer", "recalled"), ("recall", "waiting")]
        with mqstore.open(path) as reader:
            assert ways(reader, timer) == [("timer", "recalled"), ("recall", "waiting")]
        with mqstore.open(path, "a", **SMALL) as store:
            clock.advance(3601)
            wait_until(lambda: store.stats().delayed_waiting == 0)
            wait_until(lambda: ways(store, timer) == [("timer", "recalled"), ("recall", "passed")])
            assert bodies(store) == [b"kept"]


def test_recall_after_the_delivery_is_refused_and_stores_nothing(tmp_path: Path) -> None:
    with Clock() as clock, mqstore.open(tmp_path / "store", "x", **SMALL) as store:
        result = append(store, b"a")
        timer = store.message_at(result.physical_offset)
        clock.advance(3601)
        wait_until(lambda: bodies(store) == [b"a"])
        end = store.max_physical_offset
        for given in (result, timer, handle_of(timer)):
            with pytest.raises(mqstore.IllegalMessageError, match="of the timer to recall has passed"):
                store.broker.recall(given)
        assert store.max_physical_offset == end
        assert ways(store, timer) == [("timer", "delivered"), ("delivered", "unconsumed")]


def test_recall_names_what_it_cannot_recall(store: mqstore.Writer) -> None:
    plain = store.append("orders", b"")
    without_key = store.append("orders", b"", deliver_at=HOUR)
    recall = store.broker.recall(append(store, b""))
    for given, words in (
        (plain, "is not a timer that waits in rmq_sys_wheel_timer"),
        (recall, "is not a timer that waits in rmq_sys_wheel_timer"),
        (without_key, "has no unique key to recall it by"),
        ("", "is not a recall handle"),
        ("no handle", "is not a recall handle"),
        ("djI=", "is not a recall handle"),
        (handle_of(store.message_at(append(store, b"").physical_offset))[:20], "is not a recall handle"),
    ):
        with pytest.raises(ValueError, match=words):
            store.broker.recall(given)
    with mqstore.open(store.path) as reader, pytest.raises(TypeError, match="recall needs a store that is open for writing"):
        reader.broker.recall(recall)


def test_recall_in_a_task_ends_a_timer(tmp_path: Path) -> None:
    async def recall() -> int:
        async with mqstore.aio.open(tmp_path / "store", "x", **SMALL) as store:
            timer = await store.append("orders", b"", deliver_at=HOUR, unique_key=mqstore.new_unique_key())
            return (await store.broker.recall(timer, durable=True)).queue_offset

    assert asyncio.run(recall()) == 1
    with mqstore.open(tmp_path / "store", "a", **SMALL) as store:
        timer = store.topics[TIMERS].queues[0][0]
        wait_until(lambda: ways(store, timer) == [("timer", "recalled"), ("recall", "waiting")])


def test_the_result_of_another_store_recalls_nothing(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "one", "x", **SMALL) as one, mqstore.open(tmp_path / "other", "x", **SMALL) as other:
        one.append("orders", b"kept", deliver_at=HOUR, unique_key=mqstore.new_unique_key())
        elsewhere = other.append("payments", b"", deliver_at=HOUR, unique_key=mqstore.new_unique_key())
        with pytest.raises(ValueError, match="is not of this store: another message is at its physical offset"):
            one.broker.recall(elsewhere)
        wait_until(lambda: one.stats().delayed_waiting == 1)
        for given in (None, 5, b"x"):
            with pytest.raises(TypeError, match="expected an AppendResult, a Message or a recall handle"):
                one.broker.recall(given)  # type: ignore[arg-type]
