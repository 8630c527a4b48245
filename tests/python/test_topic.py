"""A topic as a collection of its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest
from encoder import Encoder

import mqstore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    encoder = Encoder(tmp_path / "store")
    for number in range(200):
        encoder.append("orders", b"body %d" % number, queue_id=(0, 3, 5)[number % 3])
        encoder.append("other", b"other %d" % number)
    return encoder.write()


def test_its_length_is_the_sum_over_its_queues(path: Path) -> None:
    with mqstore.open(path) as store:
        topic = store.topics["orders"]
        assert len(topic) == sum(map(len, topic.queues)) == 200
        assert isinstance(topic, Collection)


def test_iterating_it_gives_its_messages_queue_by_queue(path: Path) -> None:
    with mqstore.open(path) as store:
        topic = store.topics["orders"]
        expected = [message for queue in topic.queues for message in queue]
        assert list(topic) == list(topic) == expected
        assert isinstance(iter(topic), mqstore.MessageIterator)
        first, second = iter(topic), iter(topic)
        assert next(first) == next(second) == expected[0]


def test_it_contains_its_own_messages_alone(path: Path) -> None:
    with mqstore.open(path) as store:
        orders, other = store.topics["orders"], store.topics["other"]
        message = orders.queues[3][7]
        assert message in orders
        assert message not in other
        assert b"body 7" not in orders


def test_tasks_iterate_it_with_async_for(path: Path) -> None:
    async def bodies(topic: mqstore.Topic) -> list[bytes]:
        return [message.body async for message in topic]

    with mqstore.open(path) as store:
        topic = store.topics["orders"]
        assert asyncio.run(bodies(topic)) == [message.body for message in topic]


def test_it_is_false_without_a_message_and_grows_with_its_store(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        for number in range(3):
            topic_before = store.topics.get("orders")
            assert (topic_before is None) == (number == 0)
            store.append("orders", b"x", queue_id=number)
            assert len(store.topics["orders"]) == number + 1 == len(list(store.topics["orders"]))


def test_damage_is_raised_or_skipped_and_counted_over_all_queues(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    for number in range(9):
        at = encoder.append("orders", b"body %d" % number, queue_id=number % 3)
        if number in (4, 5):
            encoder.log[encoder.log.index(b"body", at)] ^= 1
    with mqstore.open(encoder.write(), check_crc_on_recover=False) as store:
        messages = iter(store.topics["orders"])
        assert [next(messages).queue_id for _ in range(4)] == [0, 0, 0, 1]
        with pytest.raises(mqstore.CorruptError):
            next(messages)
        assert next(messages).body == b"body 7"
    with mqstore.open(tmp_path / "store", check_crc_on_recover=False, errors="skip") as store:
        messages = iter(store.topics["orders"])
        assert (len(list(messages)), messages.skipped) == (7, 2)
        assert len(store.topics["orders"]) == 9


def test_without_queues_of_this_format_it_says_so_and_a_closed_store_does(golden: Path, path: Path) -> None:
    with mqstore.open(golden / "533_batchcq") as store:
        topic = store.topics["TopicQ"]
        for use in (len, iter, list):
            with pytest.raises(mqstore.UnsupportedFormatError):
                use(topic)
    with mqstore.open(path) as store:
        topic = store.topics["orders"]
    for use in (len, iter):
        with pytest.raises(mqstore.ClosedError):
            use(topic)
