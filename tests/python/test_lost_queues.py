"""Queues of a broker whose files are lost: each pass over their topic says that their messages are missing."""

from __future__ import annotations

import asyncio
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import stamp_as_broker

import mqstore
import mqstore.aio

LOST = [("orders", 1)]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The closed store of a broker: 30 messages in each of 3 queues of a topic, and 300 of another topic."""
    path = tmp_path / "whole"
    with mqstore.open(path, "x") as store:
        store.create_topic("orders", queues=3)
        for number in range(90):
            store.append("orders", b"%d" % number, queue_id=number % 3)
        store.append_batch([b"bill"] * 300, topic="bills")
    return stamp_as_broker(path)


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    """A store without the files of a queue."""
    path = Path(shutil.copytree(whole, tmp_path / "store"))
    shutil.rmtree(path / "consumequeue" / "orders" / "1")
    return path


def test_batches_of_a_topic_name_a_lost_queue(path: Path, whole: Path) -> None:
    with mqstore.open(path) as store:
        for name, number, lost in (("orders", 60, LOST), ("bills", 300, [])):
            batches = store.topics[name].batches()
            assert (batches.to_arrow().num_rows, batches.complete, batches.lost_queues) == (number, not lost, lost)
        one = store.topics["orders"].queues[0].batches()
        assert (one.to_arrow().num_rows, one.complete, one.lost_queues) == (30, True, [])
    with mqstore.open(whole) as store:
        batches = store.topics["orders"].batches()
        assert (batches.to_arrow().num_rows, batches.complete, batches.lost_queues) == (90, True, [])


#: Passes over the messages of a store.
PASSES: dict[str, Callable[[mqstore.Store], mqstore.MessageIterator]] = {
    "iter(topic)": lambda store: iter(store.topics["orders"]),
    "follow(topic)": lambda store: store.follow("orders", start="earliest", timeout=0),
    "follow()": lambda store: store.follow(start="earliest", timeout=0),
}


@pytest.mark.parametrize("begin", PASSES.values(), ids=PASSES)
def test_a_pass_warns_once_of_a_lost_queue_and_names_it(
    begin: Callable[[mqstore.Store], mqstore.MessageIterator], path: Path, whole: Path
) -> None:
    with mqstore.open(path) as store, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        messages = begin(store)
        assert sum(message.topic == "orders" for message in messages) == 60
        assert list(messages) == []
        assert messages.lost_queues == LOST
    [warning] = told
    assert str(warning.message) == (
        f"messages of {path} are missing in this pass: the files of queues are lost, and only the log has their messages: "
        f"orders/1; with no writer running, mqstore.rebuild({str(path)!r}, dry_run=False) restores the queues"
    )
    assert (warning.category, warning.filename) == (RuntimeWarning, __file__)
    with mqstore.open(whole) as store:
        messages = begin(store)
        assert (sum(message.topic == "orders" for message in messages), messages.lost_queues) == (90, [])


def test_a_follower_of_other_queues_is_not_warned(path: Path) -> None:
    with mqstore.open(path) as store:
        of_others = [
            store.follow("bills", start="earliest", timeout=0),
            store.follow(start={("orders", 0): 0, ("orders", 2): 0}, timeout=0),
            store.follow("orders", timeout=0),
            store.topics["orders"].queues[0].tail(start="earliest", timeout=0),
        ]
        assert [(len(list(messages)), messages.lost_queues) for messages in of_others] == [(300, []), (60, []), (0, []), (30, [])]


def test_a_warning_as_an_error_ends_a_follower_before_it_skips_a_message(path: Path) -> None:
    with mqstore.open(path) as store, warnings.catch_warnings(action="error", category=RuntimeWarning):
        messages = store.follow("orders", start="earliest", timeout=0)
        with pytest.raises(RuntimeWarning, match="orders/1"):
            list(messages)
        with pytest.raises(RuntimeWarning, match="orders/1"):
            iter(store.topics["orders"])


def test_a_consumer_with_positions_warns_of_a_lost_queue(path: Path, whole: Path, tmp_path: Path) -> None:
    def consume(path: Path, topic: str) -> int:
        with mqstore.open(path) as store:
            file = tmp_path / f"{path.name}-{topic}"
            with store.consumer(topic, positions=file, timeout=0) as consumer:
                return len(list(consumer))

    with pytest.warns(RuntimeWarning, match="are missing in this pass: .*: orders/1; ") as told:
        assert consume(path, "orders") == 60
    assert len(told) == 1
    assert (consume(path, "bills"), consume(whole, "orders")) == (300, 90)


def test_a_task_that_follows_is_warned_of_a_lost_queue(path: Path) -> None:
    async def follow() -> int:
        async with mqstore.aio.open(path) as store:
            return len([message async for message in store.follow("orders", start="earliest", timeout=0)])

    with pytest.warns(RuntimeWarning, match="orders/1"):
        assert asyncio.run(follow()) == 60


def test_the_highest_queue_is_missed_without_the_settings_of_a_broker(whole: Path) -> None:
    shutil.rmtree(whole / "consumequeue" / "orders" / "2")
    for file in (whole / "config").glob("topics.json*"):
        file.unlink()
    with mqstore.open(whole) as store:
        batches = store.topics["orders"].batches()
        assert (batches.to_arrow().num_rows, batches.complete, batches.lost_queues) == (60, False, [("orders", 2)])
