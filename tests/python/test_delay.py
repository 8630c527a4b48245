"""Delayed messages of a writer: delivered in time, once, and after a kill."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import mqstore

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
        assert (store.stats().delayed_waiting, store.stats().delayed_passed_over) == (0, 0)
        assert offsets(store) == {1: 1}
    with mqstore.open(tmp_path / "store") as reader:
        assert offsets(reader) == {1: 1}


def test_levels_of_the_option_are_delivered_after_a_reopening(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", message_delay_level="2s 1h") as store:
        store.append("orders", b"late", delay_level=1)
        store.append("orders", b"later", delay_level=2)
    with mqstore.open(tmp_path / "store", "a", message_delay_level="2s 1h") as store:
        assert [message.body for message in wait_for("orders", 1, store)] == [b"late"]
        assert store.stats().delayed_waiting == 1


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
