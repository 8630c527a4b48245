"""The command `handover`, and the timers that `delayed`, `doctor` and `trace` find."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from test_hand_over import bodies, wait_until

import mqstore
from mqstore.testing import SMALL, Broker, Clock


@pytest.fixture
def path(mqstore_clock: Clock, tmp_path: Path) -> Path:
    """A store with a timer that was delivered, and another that waits."""
    with mqstore.open(tmp_path / "store", "x", **SMALL) as store:
        for body, hours in ((b"later", 2), (b"soon", 1)):
            store.append("orders", body, unique_key=f"key-{body.decode()}", deliver_at=timedelta(hours=hours))
        mqstore_clock.advance(3600)
        wait_until(lambda: bodies(store) == [b"soon"])
    return tmp_path / "store"


def states(run: Callable[..., Any], path: Path, key: str) -> list[tuple[str, str]]:
    return [(row["stage"], row["state"]) for row in run("trace", path, key, "--json").rows]


def test_handover_counts_the_timers_and_hands_them_over(path: Path, run: Callable[..., Any]) -> None:
    shown = run("handover", path)
    assert (shown.code, shown.out.splitlines()[-1]) == (0, "nothing was changed: --yes hands them over")
    assert run("handover", path, "--json").rows == [{"path": str(path), "timers": 1, "handed_over": False}]
    assert states(run, path, "key-later") == [("timer", "waiting")]
    assert run("handover", path, "--yes", "--json").rows == [{"path": str(path), "timers": 1, "handed_over": True}]
    assert states(run, path, "key-later") == [("timer", "stored_again"), ("timer", "waiting")]
    assert states(run, path, "key-soon") == [("timer", "delivered"), ("delivered", "unconsumed")]
    assert "1 timers are not listed here" in run("delayed", path).err


def test_a_timer_that_is_overdue_and_not_delivered_still_waits(path: Path, mqstore_clock: Clock, run: Callable[..., Any]) -> None:
    mqstore_clock.advance(7200)
    with mqstore.open(path, "r+", services=False, **SMALL) as store:
        store.append("plain", b"")
    assert run("handover", path, "--json").rows == [{"path": str(path), "timers": 1, "handed_over": False}]
    assert states(run, path, "key-later") == [("timer", "waiting")]


def test_the_timers_of_a_broker_are_not_handed_over(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    mqstore_broker.send("orders", b"x")
    mqstore_broker.close()
    ran = run("handover", mqstore_broker.path, "--yes", "--option", "services=false")
    assert (ran.code, ran.out) == (2, "")
    assert "delivers no timers" in ran.err
