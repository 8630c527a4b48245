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
#: The seconds until our timers are due, within which a broker starts: what is due then it delivers at once, recalled or not.
OURS_S = 60
#: Those until the timers of a producer are due: while the broker runs, and once it is killed.
THEIRS_S, LEFT_S = 10, 75


def append(store: mqstore.Writer, body: str, seconds: float) -> mqstore.AppendResult:
    unique_key = mqstore.new_unique_key()
    return store.append("orders", body.encode(), deliver_at=timedelta(seconds=seconds), unique_key=unique_key)


def put_timer(broker: Broker, body: str, ms: int) -> str:
    """A producer sends a message with a delay. Returns its recall handle."""
    message = {"topic": "orders", "queue": 0, "body": body, "properties": {"TIMER_DELAY_MS": str(ms)}}
    [ack] = broker.ask("put", json.dumps(message))
    return str(ack["recall_handle"])


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


def test_what_one_side_has_recalled_neither_side_delivers(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", **OPTIONS) as store:
        store.create_topic("orders", queues=4)
        append(store, "kept", OURS_S)
        store.broker.recall(append(store, "recalled before the hand-over", OURS_S))
        after = append(store, "recalled after it", OURS_S)
        wait_until(lambda: store.stats().delayed_waiting == 2)
        assert store.broker.hand_over() == 2
        store.broker.recall(after)
    with serve(path, WITH_TIMERS) as broker:
        register(broker)
        broker.ask("recall", "orders", put_timer(broker, "recalled by its client", THEIRS_S * 1000))
        broker.ask("recall", "orders", put_timer(broker, "left recalled", LEFT_S * 1000))
        by_handle = put_timer(broker, "recalled by us", LEFT_S * 1000)
        put_timer(broker, "left", LEFT_S * 1000)
        wait_until(lambda: "kept" in delivered(path))
        time.sleep(QUIET_S)
        broker.kill()
    assert delivered(path) == {"kept": 1}
    with mqstore.open(path, "r+", **OPTIONS) as store:
        store.broker.recall(by_handle)
        wait_until(lambda: "left" in delivered(path))
        wait_until(lambda: store.stats().delayed_waiting == 0)
        time.sleep(QUIET_S)
        assert store.stats().delayed_passed_over == 0
    assert delivered(path) == {"kept": 1, "left": 1}


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
