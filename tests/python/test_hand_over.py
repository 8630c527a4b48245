"""Timers that a writer hands over to a broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import mqstore
import mqstore.aio
from mqstore.testing import SMALL, Clock

TIMERS = "rmq_sys_wheel_timer"
PATIENCE_S = 60


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def bodies(store: mqstore.Store) -> list[bytes]:
    return [message.body for message in store.topics["orders"]] if "orders" in store.topics else []


def test_handed_over_timers_are_delivered_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with Clock() as clock:
        with mqstore.open(path, "x", **SMALL) as store:
            store.append("orders", b"later", deliver_at=timedelta(hours=2))
            store.append("orders", b"soon", deliver_at=timedelta(hours=1))
            assert (store.broker.hand_over(), store.broker.hand_over()) == (2, 0)
            assert [(m.body, m.properties.get("TIMER_ROLL_TIMES")) for m in store.topics[TIMERS]] == [
                (b"later", None),
                (b"soon", None),
                (b"soon", "1"),
                (b"later", "1"),
            ]
            clock.advance(3600)
            store.append("orders", b"last", deliver_at=timedelta(hours=1))
            wait_until(lambda: store.stats().delayed_waiting == 3)
            assert bodies(store) == []
        with mqstore.open(path, "r+", **SMALL) as store:
            wait_until(lambda: bodies(store) == [b"soon"])
            clock.advance(3600)
            wait_until(lambda: bodies(store) == [b"soon", b"later", b"last"])


def test_a_hand_over_needs_a_writer_that_delivers_timers(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", services=False, **SMALL) as store, pytest.raises(ValueError, match="delivers no timers"):
        store.broker.hand_over()
    with mqstore.open(path) as reader, pytest.raises(TypeError, match="hand_over needs a store that is open for writing"):
        reader.broker.hand_over()


def test_a_hand_over_in_a_task_counts_the_timers(tmp_path: Path) -> None:
    async def hand_over() -> int:
        async with mqstore.aio.open(tmp_path / "store", "x", **SMALL) as store:
            await store.append("orders", b"x", deliver_at=timedelta(hours=1))
            handed_over: int = await store.broker.hand_over()
            return handed_over

    assert asyncio.run(hand_over()) == 1


def test_a_hand_over_warns_of_timers_that_nobody_can_deliver(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", **SMALL) as store:
        store.append(TIMERS, b"x", properties={"REAL_TOPIC": "orders"})
        store.append("orders", b"x", deliver_at=timedelta(hours=1))
        with pytest.warns(RuntimeWarning, match="1 timers were not handed over"):
            assert store.broker.hand_over() == 1
