"""Messages with a time of delivery: delivered at it, once, and after a kill."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import mqstore
import mqstore.aio

#: The time that a delivery may take on a machine that runs other tests, too.
PATIENCE = 30
TIMERS = "rmq_sys_wheel_timer"


def wait_for(topic: str, count: int, store: mqstore.Store) -> list[mqstore.Message]:
    """Returns the messages of queue 0 once there are this many."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if topic in store.topics and len(queue := store.topics[topic].queues[0]) >= count:
            return list(queue)
        time.sleep(0.02)
    raise AssertionError(f"{topic} has fewer than {count} messages")


def await_waiting(count: int, store: mqstore.Writer) -> None:
    """Waits until the delivery counts this many: it takes up timers and counts its copies in the background."""
    deadline = time.monotonic() + PATIENCE
    while store.stats().delayed_waiting != count and time.monotonic() < deadline:
        time.sleep(0.02)
    assert store.stats().delayed_waiting == count


def expect_in_time(messages: list[mqstore.Message]) -> None:
    for message in messages:
        late = message.store_time.timestamp() - int(message.properties["TIMER_DELIVER_MS"]) / 1000
        # Store times are those of a coarse clock.
        assert -0.02 <= late < PATIENCE


def test_messages_are_delivered_at_their_times(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        now = datetime.now(UTC)
        store.append("orders", b"2", keys=["k"], deliver_at=now + timedelta(seconds=1.3))
        store.append("orders", b"1", deliver_at=timedelta(seconds=0.9))
        store.append("orders", b"0", deliver_at=int(now.timestamp() * 1000) + 400)
        later = store.append("orders", b"later", deliver_at=timedelta(hours=1))
        assert store.message_at(later.physical_offset).topic == TIMERS
        messages = wait_for("orders", 3, store)
        assert [message.body for message in messages] == [b"0", b"1", b"2"]
        assert messages[2].keys == ["k"]
        expect_in_time(messages)
        await_waiting(1, store)
        assert store.stats().delayed_passed_over == 0
    with mqstore.open(tmp_path / "store", "a") as store:
        due = store.stats().delayed_next_due
        assert due is None or due > now + timedelta(minutes=59)
        await_waiting(1, store)


def test_a_time_is_rounded_up_and_a_time_that_has_passed_is_no_delay(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        at = datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
        past = store.append("orders", b"", deliver_at=at)
        message = store.message_at(past.physical_offset)
        assert (message.topic, message.properties["TIMER_DELIVER_MS"]) == ("orders", "1577836800001")
        now = store.message_at(store.append("orders", b"", deliver_at=timedelta(0)).physical_offset)
        assert now.topic == "orders"


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"deliver_at": timedelta(days=3, seconds=1)}, mqstore.IllegalMessageError, "timer_max_delay_sec is 259200"),
        ({"deliver_at": timedelta(1), "delay_level": 1}, mqstore.IllegalMessageError, "deliver_at and the delay level 1"),
        ({"deliver_at": timedelta(seconds=-1)}, ValueError, "deliver_at"),
        ({"deliver_at": datetime(2030, 1, 1)}, ValueError, "no timezone"),
        ({"deliver_at": "soon"}, TypeError, "deliver_at: expected a datetime with a timezone, a timedelta or an int of ms"),
        ({"deliver_at": 1.5}, TypeError, "a timedelta or an int of ms since 1970, got <class 'float'>"),
        ({"properties": {"TIMER_DELAY_SEC": "soon"}}, mqstore.IllegalMessageError, "TIMER_DELAY_SEC is not a number"),
    ],
)
def test_a_time_that_cannot_be_kept_is_refused(tmp_path: Path, fields: dict[str, Any], error: type[Exception], text: str) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        for call in (store.append, store.append_nowait):
            with pytest.raises(error, match=text):
                call("orders", b"", **fields)
        assert store.max_physical_offset == 0


def test_the_longest_delay_is_an_option(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", timer_max_delay_sec=60) as store:
        with pytest.raises(mqstore.IllegalMessageError, match="timer_max_delay_sec is 60"):
            store.append("orders", b"", deliver_at=timedelta(seconds=62))
        store.append("orders", b"", deliver_at=timedelta(seconds=60))


def test_a_message_of_a_transaction_has_no_time_of_delivery(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        with pytest.raises(TypeError):
            store.transactions.send_half("orders", b"", deliver_at=timedelta(1))  # type: ignore[call-arg]
        with pytest.raises(mqstore.IllegalMessageError, match="cannot be delayed"):
            store.transactions.send_half("orders", b"", properties={"TIMER_DELAY_SEC": "1"})


def test_rows_and_columns_wait_as_the_argument_does(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    at = datetime.now(UTC).replace(microsecond=5000) + timedelta(hours=1)
    times = pa.array([at, None], pa.timestamp("us", "UTC"))
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"body", deliver_at=at)
        store.append_batch([{"topic": "orders", "body": b"body", "deliver_at": at}, {"topic": "orders", "body": b"body"}])
        store.append_batch(pa.table({"topic": ["orders"] * 2, "body": [b"body"] * 2, "deliver_at": times}))
        waiting = list(store.topics[TIMERS].queues[0])
        assert [message.properties["TIMER_DELIVER_MS"] for message in waiting] == [str(int(at.timestamp() * 1000))] * 3
        assert all(message.properties == waiting[0].properties for message in waiting)
        assert [message.properties for message in store.topics["orders"].queues[0]] == [{}, {}]
        with pytest.raises(mqstore.IllegalMessageError, match="message 0: deliver_at and the delay level 2"):
            store.append_batch([{"topic": "t", "body": b"", "deliver_at": at, "delay_level": 2}])
        # A message of a store is copied as it is.
        store.append_batch([waiting[0]])
        assert len(store.topics[TIMERS].queues[0]) == 4


def test_a_writer_without_services_warns_once_and_delivers_nothing(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", services=False) as store:
        with pytest.warns(RuntimeWarning, match="delivers no delayed messages"):
            store.append("orders", b"late", deliver_at=timedelta(seconds=0.1))
        with warnings.catch_warnings(action="error"):
            store.append("orders", b"later", deliver_at=timedelta(seconds=0.2))
        time.sleep(0.5)
        assert "orders" not in store.topics
    # The next writer delivers them: mqstore has made the store.
    with mqstore.open(tmp_path / "store", "a") as store:
        assert [message.body for message in wait_for("orders", 2, store)] == [b"late", b"later"]


CHILD = """
import os, signal, sys, time, mqstore
store = mqstore.open(sys.argv[1], "a")
at = int(time.time() * 1000) + 300
store.append_batch([{"topic": "orders", "body": b"%d" % n, "deliver_at": at + n // 10} for n in range(1000)])
while "orders" not in store.topics or len(store.topics["orders"].queues[0]) < 300:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_s_messages_are_delivered_once(tmp_path: Path) -> None:
    path = tmp_path / "store"
    for _ in range(2):
        child = subprocess.run([sys.executable, "-c", CHILD, str(path)], check=False)
        assert child.returncode == -9
    with mqstore.open(path, "a") as store:
        messages = wait_for("orders", 2000, store)
        time.sleep(0.2)
        assert len(store.topics["orders"].queues[0]) == 2000
        assert sorted(int(message.body) for message in messages) == sorted([*range(1000)] * 2)
        expect_in_time(messages)
    with mqstore.open(path, "a") as store:
        assert len(store.topics["orders"].queues[0]) == 2000


def test_a_trim_keeps_messages_that_wait(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=65_536) as store:
        store.append("orders", b"later", deliver_at=timedelta(hours=1))
        store.append_batch([bytes(1000)] * 300, "other")
        report = store.trim(max_bytes=65_536, force=True)
        assert (report.segments, report.kept_for) == ((), (("timer messages", TIMERS, 0, 1),))
    report = mqstore.trim(path, max_bytes=65_536, force=True)
    assert (report.segments, report.kept_for) == ((), (("timer messages", TIMERS, 0, 1),))


def test_a_task_appends_with_a_time_and_gets_the_message(tmp_path: Path) -> None:
    asyncio.run(expect_in_a_task(tmp_path / "store"))


async def expect_in_a_task(path: Path) -> None:
    async with mqstore.aio.open(path, "x") as store:
        await store.append("orders", b"late", deliver_at=timedelta(seconds=0.3))
        await store.append_batch([{"topic": "orders", "body": b"later", "deliver_at": timedelta(seconds=0.6)}])
        async with await store.consumer("billing", "orders") as consumer:
            got: list[mqstore.Message] = []
            while len(got) < 2:
                got += await consumer.poll(timeout=PATIENCE)
            assert [message.body for message in got] == [b"late", b"later"]
            assert await consumer.ack(got) == 2
        expect_in_time(got)
