"""Batches as a RocketMQ producer sends them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

import mqstore
from mqstore.testing import Clock

#: As RocketMQ's `MessageDecoder.encodeMessages` makes it of two messages: flag 3, body "b0"; flag 7, body "b1", with properties.
BY_ROCKETMQ = bytes.fromhex(
    "0000002a000000000000000000000003000000026230001257414954017472756502"
    "544147530154300200000020000000000000000000000007000000026231000854414753015431"
    "02"
)


def unit(body: bytes, properties: Mapping[str, str] | None = None, flag: int = 0) -> bytes:
    encoded = "".join(f"{name}\1{value}\2" for name, value in (properties or {}).items()).encode()
    size = 22 + len(body) + len(encoded)
    return struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + struct.pack(">h", len(encoded)) + encoded


@pytest.fixture
def store(mqstore_stores: Callable[..., mqstore.Store]) -> mqstore.Store:
    return mqstore_stores(mapped_file_size_commit_log=65_536, max_message_size=20_000)


def test_each_message_of_a_batch_is_a_record_with_the_batchs_properties(store: mqstore.Store) -> None:
    born = datetime(2026, 1, 2, tzinfo=UTC)
    for given in (BY_ROCKETMQ, bytearray(BY_ROCKETMQ), memoryview(BY_ROCKETMQ)):
        offsets = store.append_producer_batch(
            "orders",
            given,
            queue_id=2,
            properties={"CLUSTER": "c1"},
            born_time=born,
            born_host="10.0.0.1:5000",
            store_host="[2001:db8::1]:10911",
            sys_flag=1 << 8,
        )
        assert isinstance(offsets, mqstore.Offsets)
        first, second = (store.message_at(offset) for offset in offsets)
        assert (first.flag, first.body, first.tags) == (3, b"b0", "T0")
        assert (second.flag, second.body, second.tags) == (7, b"b1", "T1")
        assert list(first.properties.items()) == [("WAIT", "true"), ("TAGS", "T0"), ("CLUSTER", "c1")]
        assert list(second.properties.items()) == [("TAGS", "T1"), ("CLUSTER", "c1")]
        assert second.physical_offset == first.physical_offset + first.store_size
        assert second.queue_offset == first.queue_offset + 1
        for message in (first, second):
            assert (message.topic, message.queue_id, message.born_time) == ("orders", 2, born)
            assert (message.born_host, message.store_host) == ("10.0.0.1:5000", "[2001:db8::1]:10911")
            assert message.sys_flag & 1 << 8
    assert len(store.topics["orders"].queues[2]) == 6


def test_without_properties_of_the_batch_each_message_has_its_own_alone(store: mqstore.Store, mqstore_clock: Clock) -> None:
    [offset] = store.append_producer_batch("orders", unit(b"x", {"KEYS": "o-1", "UNIQ_KEY": "U1"}))
    message = store.message_at(offset)
    assert message.properties == {"KEYS": "o-1", "UNIQ_KEY": "U1"}
    assert (message.queue_id, message.born_host, message.store_host) == (0, "127.0.0.1:0", "127.0.0.1:0")
    assert message.born_time == mqstore_clock.now
    assert [hit.physical_offset for hit in store.query("orders", "o-1")] == [offset]


def test_a_batch_goes_into_one_segment(store: mqstore.Store) -> None:
    store.append("orders", bytes(19_000))
    store.append("orders", bytes(19_000))
    store.append("orders", bytes(19_000))
    offsets = store.append_producer_batch("orders", unit(bytes(5000)) + unit(bytes(5000)))
    assert offsets[0] == 65_536
    assert len(store.topics["orders"].queues[0]) == 5


@pytest.mark.parametrize(
    ("body", "named", "text"),
    [
        (b"", {}, "the batch holds no message"),
        (b"rubbish", {}, "the body is not a producer batch: .*at byte 0"),
        (unit(b"whole") + unit(b"cut off")[:-1], {}, "the body is not a producer batch: .*at byte 27"),
        (unit(b"one") + unit(b"two", {"DELAY": "3"}), {}, "message 1: a message of a batch cannot be delayed"),
        (unit(b"one"), {"properties": {"DELAY": "3"}}, "message 0: a message of a batch cannot be delayed"),
        (unit(b"one"), {"sys_flag": 4}, "a batch cannot be part of a transaction"),
        (unit(bytes(10_000)) * 2, {}, "max_message_size is 20000"),
        (unit(b"one"), {"queue_id": -1}, "queue_id is -1"),
        (unit(b"one"), {"properties": {"": "x"}}, "empty name"),
    ],
)
def test_of_a_batch_that_is_refused_nothing_is_stored(
    store: mqstore.Store, body: bytes, named: dict[str, Any], text: str
) -> None:
    with pytest.raises(mqstore.IllegalMessageError, match=text) as raised:
        store.append_producer_batch("orders", body, **named)
    assert raised.value.status == "MESSAGE_ILLEGAL"
    assert store.max_physical_offset == 0
    assert "orders" not in store.topics


def test_a_batch_of_a_wrong_type_or_for_an_unwritable_store_is_refused(store: mqstore.Store) -> None:
    wrong: Any = "text"
    with pytest.raises(TypeError, match="a body is bytes or a buffer of bytes, not str"):
        store.append_producer_batch("orders", wrong)
    with mqstore.open(store.path) as reader, pytest.raises(AttributeError):
        reader.append_producer_batch("orders", unit(b"x"))
    store.close()
    with pytest.raises(mqstore.ClosedError):
        store.append_producer_batch("orders", unit(b"x"))
