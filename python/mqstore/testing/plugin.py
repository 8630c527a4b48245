"""The fixtures that pytest offers where mqstore is installed.

def test_a_paid_order_is_found(mqstore_store):
    mqstore_store.append("orders", b"...", tags="paid", keys=["o-1"])
    [found] = mqstore_store.query("orders", "o-1")
    assert found.tags == "paid"
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore.testing import SMALL, Broker, Clock


@pytest.fixture
def mqstore_clock() -> Iterator[Clock]:
    """The clock of all stores, stopped at the start of 2026: `mqstore_clock.advance(seconds)`."""
    with Clock() as clock:
        yield clock


@pytest.fixture
def mqstore_stores(tmp_path: Path, mqstore_clock: Clock) -> Iterator[Callable[..., Any]]:
    """Opens small stores by name: `mqstore_stores("left")`, with a mode ("a" by default) and options of `mqstore.open`.

    They lie in `tmp_path`, their clock is `mqstore_clock`, and they are closed after the test.
    """
    with ExitStack() as opened:

        def open_store(name: str = "store", mode: str = "a", **options: Any) -> mqstore.Store:
            return opened.enter_context(mqstore.open(tmp_path / name, mode, **({} if mode == "r" else SMALL) | options))

        yield open_store


@pytest.fixture
def mqstore_store(mqstore_stores: Callable[..., mqstore.Writer]) -> mqstore.Writer:
    """An empty small store that is open for writing: `mqstore_stores()`."""
    return mqstore_stores()


@pytest.fixture
def mqstore_broker(tmp_path: Path, mqstore_clock: Clock) -> Iterator[Broker]:
    """A `mqstore.testing.Broker`, which writes a store with delayed, half and retried messages in `tmp_path / "broker"`."""
    with Broker(tmp_path / "broker", clock=mqstore_clock) as broker:
        yield broker
