"""Timers between whole brokers with real producers and our writer: each side delivers what the other leaves. See README.md."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from broker import Broker
from handover import OPTIONS, put, register, serve, wait_until

import mqstore

TIMERS = "rmq_sys_wheel_timer"
#: Of the whole brokers only this one has timers.
WITH_TIMERS, WITHOUT_TIMERS = "5.3.3", "4.9.7"
#: Seconds in which a broker would have delivered what is overdue, again.
QUIET_S = 4


def append(store: mqstore.Writer, body: str, seconds: float) -> None:
    store.append("orders", body.encode(), deliver_at=timedelta(seconds=seconds))


def put_timer(broker: Broker, body: str, ms: int) -> None:
    """A producer sends a message with a delay."""
    message = {"topic": "orders", "queue": 0, "body": body, "properties": {"TIMER_DELAY_MS": str(ms)}}
    broker.ask("put", json.dumps(message))


def delivered(path: Path) -> dict[str, int]:
    """Counts the copies of each timer, and checks their times."""
    with mqstore.open(path) as store:
        copies = [message for message in store.topics.get("orders", ()) if "TIMER_OUT_MS" in message.properties]
    for copy in copies:
        # The start of the second in which it is due.
        late = copy.store_time.timestamp() * 1000 - int(copy.properties["TIMER_OUT_MS"])
        assert late >= 0, (copy, late)
    return dict(Counter(copy.body.decode() for copy in copies))


def expect_waiting(path: Path, timers: int) -> None:
    """Waits until a writer finds that this many timers wait: those without a copy."""
    with mqstore.open(path, "r+", **OPTIONS) as store:
        wait_until(lambda: store.stats().delayed_waiting == timers)


def test_a_broker_delivers_our_timers_once_and_we_deliver_its_timers_once(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", **OPTIONS) as store:
        store.create_topic("orders", queues=4)
        append(store, "hour", 3600)
        append(store, "ours", 0.3)
        wait_until(lambda: len(store.topics.get("orders", ())) == 1)
        for body in ("soon 0", "soon 1"):
            append(store, body, 12)
        assert store.broker.hand_over() == 3
    with serve(path, WITH_TIMERS) as broker:
        register(broker)
        put_timer(broker, "theirs", 2000)
        put_timer(broker, "left", 3_600_000)
        wait_until(lambda: delivered(path).keys() >= {"soon 0", "soon 1", "theirs"})
        put_timer(broker, "killed", 20_000)
        # The broker puts it on its wheel.
        time.sleep(1)
        broker.kill()
    expected: dict[str, int] = dict.fromkeys(("ours", "soon 0", "soon 1", "theirs"), 1)
    assert delivered(path) == expected
    with mqstore.open(path, "r+", **OPTIONS) as store:
        wait_until(lambda: "killed" in delivered(path))
        wait_until(lambda: store.stats().delayed_waiting == 2)
        append(store, "again", 8)
        assert store.broker.hand_over() == 3
    assert not (path / "timerwheel").exists()
    expected["killed"] = 1
    with serve(path, WITH_TIMERS) as broker:
        wait_until(lambda: "again" in delivered(path))
        time.sleep(QUIET_S)
        broker.close()
    assert delivered(path) == expected | {"again": 1}
    expect_waiting(path, 2)
    assert delivered(path) == expected | {"again": 1}


def test_without_a_hand_over_a_broker_repeats_what_follows_the_first(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", **OPTIONS) as store:
        store.create_topic("orders", queues=4)
        append(store, "before", 0.3)
        wait_until(lambda: len(store.topics.get("orders", ())) == 1)
        append(store, "hour", 3600)
        append(store, "after", 0.3)
        wait_until(lambda: len(store.topics["orders"]) == 2)
    with serve(path, WITH_TIMERS) as broker:
        wait_until(lambda: delivered(path)["after"] == 2)
        time.sleep(QUIET_S)
        broker.close()
    assert delivered(path) == {"before": 1, "after": 2}
    expect_waiting(path, 1)
    assert delivered(path) == {"before": 1, "after": 2}


@pytest.mark.parametrize("is_handed_over", [True, False])
def test_a_broker_without_timers_leaves_them_to_us(is_handed_over: bool, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", **OPTIONS) as store:
        store.create_topic("orders", queues=4)
        append(store, "hour", 3600)
        append(store, "soon", 1)
        if is_handed_over:
            assert store.broker.hand_over() == 2
    with serve(path, WITHOUT_TIMERS) as broker:
        register(broker)
        put(broker, "orders", "plain")
        time.sleep(1)
        broker.close()
    assert delivered(path) == {}
    with mqstore.open(path, "r+", **OPTIONS) as store:
        wait_until(lambda: "soon" in delivered(path))
        wait_until(lambda: store.stats().delayed_waiting == 1)
    assert delivered(path) == {"soon": 1}
