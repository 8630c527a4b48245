"""Followers of a topic that is deleted and made again between two looks at the store."""

from __future__ import annotations

import asyncio
import shutil
import warnings
from pathlib import Path

import pytest
from encoder import EPOCH_MS, Encoder

import mqstore
import mqstore.aio


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    encoder = Encoder(tmp_path / "store")
    for number in range(50):
        encoder.append("orders", b"old", store_time=EPOCH_MS + number)
    encoder.write(clean=False)
    return encoder


def make_again(encoder: Encoder, count: int) -> None:
    """Deletes the topic, and makes it again with `count` messages."""
    shutil.rmtree(encoder.path / "consumequeue" / "orders")
    encoder.queues[("orders", 0)] = []
    for number in range(count):
        encoder.append("orders", b"new", store_time=EPOCH_MS + 100 + number)
    encoder.write(clean=False)


def begun(store: mqstore.Store) -> list[mqstore.MessageIterator]:
    """Passes that wait at the end of the queue."""
    at = {("orders", 0): 50}
    queue = store.topics["orders"].queues[0]
    return [store.follow(start=at, timeout=1), queue.tail(1, start=50), queue.tail(1)]


WARNED = r"queues of .* begin again at smaller queue offsets: orders/0"


@pytest.mark.parametrize("count", [3, 50, 80])
def test_a_pass_returns_each_message_of_a_remade_topic_with_one_warning(encoder: Encoder, count: int) -> None:
    with mqstore.open(encoder.path) as store:
        passes = begun(store)
        make_again(encoder, count)
        for messages in passes:
            with pytest.warns(RuntimeWarning, match=WARNED) as told:
                got = [(message.queue_offset, bytes(message.body)) for message in messages]
            assert got == [(offset, b"new") for offset in range(count)]
            assert len(told) == 1
            assert messages.positions == {("orders", 0): count}


def test_a_warning_that_is_an_error_loses_no_message(encoder: Encoder) -> None:
    with mqstore.open(encoder.path) as store, warnings.catch_warnings(action="error"):
        for messages in begun(store):
            make_again(encoder, 60)
            with pytest.raises(RuntimeWarning, match=WARNED):
                next(messages)
            assert [message.queue_offset for message in messages] == list(range(60))


def test_tasks_are_given_each_message_of_a_remade_topic(encoder: Encoder) -> None:
    async def follow() -> list[list[int]]:
        async with mqstore.aio.open(encoder.path) as store:
            queue = store.topics["orders"].queues[0]
            passes = [await store.follow(start={("orders", 0): 50}, timeout=1), queue.tail(1, start=50)]
            make_again(encoder, 60)
            return [[message.queue_offset async for message in messages] for messages in passes]

    with pytest.warns(RuntimeWarning, match=WARNED):
        assert asyncio.run(follow()) == [list(range(60))] * 2
