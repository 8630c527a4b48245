"""Rows that `append_batch` takes, and the offsets it gives."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from test_golden import READ_BY_ROCKETMQ

import mqstore

#: What a copy of a message has in common with it.
KEPT = [
    "topic",
    "queue_id",
    "born_time",
    "unique_key",
    "tags",
    "keys",
    "body",
    "decoded_body",
    "properties",
    "sys_flag",
    "flag",
    "reconsume_times",
    "prepared_transaction_offset",
    "born_host",
    "store_host",
]


def kept(message: mqstore.Message) -> dict[str, Any]:
    """Without the checksum of the whole record, which covers its place and its store time."""
    fields = {name: getattr(message, name) for name in KEPT}
    fields["properties"] = [(name, "" if name == "__CRC32#" else value) for name, value in message.properties.items()]
    return fields


def read(store: mqstore.Store, offsets: Sequence[int]) -> list[mqstore.Message]:
    return [store.message_at(offset) for offset in offsets]


def of(message: mqstore.Message) -> tuple[object, ...]:
    return (message.topic, message.body, message.tags, message.keys, message.properties, message.queue_id)


def test_bytes_go_to_the_topic_and_queue_that_are_given(store: mqstore.Store) -> None:
    rows = [b"%d" % number for number in range(100)]
    for given in (rows, tuple(rows), iter(rows), (row for row in rows), dict.fromkeys(rows)):
        messages = read(store, store.append_batch(given, "orders", 3))
        assert [message.body for message in messages] == rows
        assert {(message.topic, message.queue_id) for message in messages} == {("orders", 3)}
    assert [message.queue_offset for message in messages] == list(range(400, 500))


class Row(NamedTuple):
    topic: str
    body: bytes
    tags: str


def test_a_tuple_says_what_it_has_and_leaves_out_the_rest(store: mqstore.Store) -> None:
    rows = [
        ("t", b"0"),
        ("t", bytearray(b"1"), "paid"),
        ("t", memoryview(b"2"), None, ["k1", "k2"]),
        ("t", b"3", "paid", "k1", {"a": "b"}),
        ("t", b"4", None, (), {}, 7),
        (None, b"5", None, None, None, None),
        Row("t", b"6", "named"),
    ]
    assert [of(message) for message in read(store, store.append_batch(rows, topic="default", queue_id=2))] == [
        ("t", b"0", None, [], {}, 2),
        ("t", b"1", "paid", [], {"TAGS": "paid"}, 2),
        ("t", b"2", None, ["k1", "k2"], {"KEYS": "k1 k2"}, 2),
        ("t", b"3", "paid", ["k1"], {"a": "b", "TAGS": "paid", "KEYS": "k1"}, 2),
        ("t", b"4", None, [], {}, 7),
        ("default", b"5", None, [], {}, 2),
        ("t", b"6", "named", [], {"TAGS": "named"}, 2),
    ]


@pytest.mark.parametrize("name", READ_BY_ROCKETMQ)
def test_a_copied_message_is_equal_in_all_but_its_place_and_store_time(store: mqstore.Store, golden: Path, name: str) -> None:
    with mqstore.open(golden / name) as source:
        messages = [message for topic in source.topics.values() for queue in topic.queues for message in queue]
        copies = read(store, store.append_batch(messages))
        assert [kept(copy) for copy in copies] == [kept(message) for message in messages]
        assert [copy.store_time for copy in copies] == sorted(copy.store_time for copy in copies)


def test_messages_may_outlive_their_store_and_be_the_stores_own(store: mqstore.Store, golden: Path) -> None:
    with mqstore.open(golden / "533_mixed") as source:
        messages = list(source.topics["TopicA"].queues[0]) if "TopicA" in source.topics else []
        messages = messages or [message for topic in source.topics.values() for queue in topic.queues for message in queue]
    first = read(store, store.append_batch(messages))
    second = read(store, store.append_batch(first))
    assert [of(message) for message in second] == [of(message) for message in messages]


def test_rows_of_all_kinds_mix(store: mqstore.Store) -> None:
    message = store.message_at(store.append("orders", b"message", flag=5).physical_offset)
    offsets = store.append_batch([b"bytes", ("t", b"tuple"), message], "orders")
    assert [(message.topic, message.body, message.flag) for message in read(store, offsets)] == [
        ("orders", b"bytes", 0),
        ("t", b"tuple", 0),
        ("orders", b"message", 5),
    ]


def test_a_message_is_not_copied_to_another_topic_silently(store: mqstore.Store) -> None:
    message = store.message_at(store.append("orders", b"x", queue_id=1).physical_offset)
    before = store.max_physical_offset
    for arguments in ({"topic": "copy"}, {"queue_id": 0}):
        with pytest.raises(ValueError, match="message 1: (topic|queue_id) is .*leave one of the two out"):
            store.append_batch([b"x" if "topic" in arguments else ("orders", b"x"), message], **arguments)
    assert store.max_physical_offset == before
    assert len(store.append_batch([b"x", message], "orders", 1)) == 2


def test_offsets_are_a_sequence_a_buffer_and_an_arrow_array(store: mqstore.Store) -> None:
    store.append("orders", b"x")
    offsets = store.append_batch([b"x"] * 5, "orders")
    size = store.message_at(0).store_size
    expected = [size * number for number in range(1, 6)]
    assert isinstance(offsets, Sequence)
    assert list(offsets) == [offsets[at] for at in range(5)] == expected
    assert (len(offsets), offsets[-1], offsets[1:3].tolist(), list(reversed(offsets))) == (
        5,
        expected[-1],
        expected[1:3],
        expected[::-1],
    )
    assert (expected[2] in offsets, 7 in offsets, "x" in offsets) == (True, False, False)
    assert (offsets.index(expected[2]), offsets.count(expected[2]), offsets.count(7)) == (2, 1, 0)
    for use, error in ((lambda: offsets[5], IndexError), (lambda: offsets.index(7), ValueError)):
        with pytest.raises(error):
            use()
    with memoryview(offsets) as view:
        assert (view.format, view.itemsize, view.shape, view.readonly, view.tolist()) == ("q", 8, (5,), True, expected)
    assert bytes(offsets) == b"".join(offset.to_bytes(8, "little") for offset in expected)
    array = np.asarray(offsets)
    assert (array.dtype, array.flags.writeable, array.tolist()) == (np.dtype("int64"), False, expected)
    arrow = pa.array(offsets)
    assert (arrow.type, arrow.to_pylist()) == (pa.int64(), expected)
    assert repr(offsets) == f"<mqstore.Offsets of 5 messages, {expected[0]} to {expected[-1]}>"


def test_a_buffer_of_offsets_outlives_them(store: mqstore.Store) -> None:
    offsets = store.append_batch([b"x"] * 1000, "orders")
    expected = list(offsets)
    array, view = np.asarray(offsets), memoryview(offsets)
    del offsets
    store.append_batch([b"x"] * 1000, "orders")
    assert array.tolist() == view.tolist() == expected


def test_offsets_lead_to_the_messages(store: mqstore.Store) -> None:
    offsets = store.append_batch([b"%d" % number for number in range(50)], "orders")
    found = store.fetch(pa.table({"physical_offset": pa.array(offsets)}), columns=["body"]).to_arrow()
    assert found["body"].to_pylist() == [b"%d" % number for number in range(50)]


def test_no_rows_are_no_messages(store: mqstore.Store) -> None:
    for rows in ([], iter(()), pa.table({"topic": pa.array([], pa.utf8()), "body": pa.array([], pa.binary())})):
        offsets = store.append_batch(rows)
        assert (len(offsets), list(offsets), np.asarray(offsets).tolist(), memoryview(offsets).tolist()) == (0, [], [], [])
        assert repr(offsets) == "<mqstore.Offsets of 0 messages>"
    assert store.max_physical_offset == 0


def test_a_large_batch_rolls_through_segments_in_order(store: mqstore.Store) -> None:
    rows = [b"%06d" % number + b"x" * 500 for number in range(10_000)]
    offsets = store.append_batch(rows, "orders")
    assert len(list((Path(store.path) / "commitlog").iterdir())) > 5
    store.wait_dispatched(offsets[-1])
    queue = store.topics["orders"].queues[0]
    assert [message.body for message in queue] == rows
    assert queue[:].batches(["physical_offset"]).to_arrow()["physical_offset"].to_pylist() == list(offsets)


GOOD = ("orders", b"good")
BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "no topic": (b"x", mqstore.IllegalMessageError, "topic"),
    "an empty topic": (("", b"x"), mqstore.IllegalMessageError, "topic"),
    "a slash": (("a/b", b"x"), mqstore.IllegalMessageError, "topic"),
    "a large body": (("t", b"x" * 5_000_000), mqstore.IllegalMessageError, "max_message_size"),
    "a key with a space": (("t", b"x", None, ["a b"]), mqstore.IllegalMessageError, "key"),
    "an empty property": (("t", b"x", None, None, {"k": ""}), mqstore.IllegalMessageError, "property"),
    "large properties": (("t", b"x", None, None, {"k": "x" * 40_000}), mqstore.IllegalMessageError, "32767"),
    "a negative queue": (("t", b"x", None, None, None, -1), mqstore.IllegalMessageError, "queue"),
    "text as body": (("t", "x"), TypeError, "body"),
    "a number as topic": ((7, b"x"), TypeError, "topic"),
    "a number as tags": (("t", b"x", 7), TypeError, "tags"),
    "a number as keys": (("t", b"x", None, 7), TypeError, "keys"),
    "text as queue": (("t", b"x", None, None, None, "0"), TypeError, "queue_id is an int, not str"),
    "half a surrogate pair": (("t", b"x", "\ud800"), mqstore.IllegalMessageError, "tags.*ud800"),
    "too few values": (("t",), TypeError, "1 values"),
    "too many values": (("t", b"x", None, None, None, 0, 0), TypeError, "7 values"),
    "a list": (["t", b"x"], TypeError, "list"),
    "None": (None, TypeError, "NoneType"),
    "text": ("x", TypeError, "str"),
    "a number": (7, TypeError, "int"),
    "a huge queue": (("t", b"x", None, None, None, 1 << 40), ValueError, "queue_id is 1099511627776"),
}


@pytest.mark.parametrize("why", BAD)
@pytest.mark.parametrize("at", [0, 3])
def test_one_row_that_is_refused_is_named_and_no_row_is_stored(store: mqstore.Store, why: str, at: int) -> None:
    row, error, text = BAD[why]
    rows: list[Any] = [GOOD] * 5
    rows[at] = row
    with pytest.raises(error, match=f"message {at}: .*{text}") as raised:
        store.append_batch(rows)
    assert store.max_physical_offset == 0
    if isinstance(raised.value, mqstore.IllegalMessageError):
        assert raised.value.status == ("PROPERTIES_SIZE_EXCEEDED" if why == "large properties" else "MESSAGE_ILLEGAL")


def test_what_a_generator_of_rows_raises_is_raised(store: mqstore.Store) -> None:
    def rows() -> Iterator[bytes]:
        yield b"x"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.append_batch(rows(), "orders")
    assert store.max_physical_offset == 0


@pytest.mark.parametrize("rows", [7, None, b"bytes", bytearray(b"bytes"), memoryview(b"bytes"), "text", print], ids=repr)
def test_what_is_no_batch_is_refused(store: mqstore.Store, rows: Any) -> None:
    with pytest.raises(TypeError, match=r"^rows is a single .*list|^rows is an iterable"):
        store.append_batch(rows, "orders")
    assert store.max_physical_offset == 0


@pytest.mark.parametrize("argument", ["topic", "queue_id"])
def test_a_default_of_the_wrong_type_is_named(store: mqstore.Store, argument: str) -> None:
    arguments: dict[str, Any] = {argument: b"x"}
    with pytest.raises(TypeError, match=argument):
        store.append_batch([b"x"], **arguments)


def test_a_row_is_any_buffer_of_bytes(store: mqstore.Store) -> None:
    offsets = store.append_batch([b"a", bytearray(b"b"), memoryview(b"c"), array("B", b"d")], "orders")
    assert [message.body for message in read(store, offsets)] == [b"a", b"b", b"c", b"d"]
    with pytest.raises(TypeError, match="message 0: a row is a body"):
        store.append_batch([array("i", [1])], "orders")  # type: ignore[list-item]


def test_offsets_are_a_value(store: mqstore.Store) -> None:
    offsets, other = store.append_batch([b"a", b"b"], "orders"), store.append_batch([], "orders")
    again: mqstore.Offsets = pickle.loads(pickle.dumps(offsets))
    assert again == offsets == list(offsets)
    assert list(offsets) == offsets
    assert memoryview(again)[:].tolist() == list(offsets)
    assert other == []
    assert offsets != other
    assert offsets != tuple(offsets)
    assert offsets != [*offsets, 0]


def test_rows_may_change_while_they_are_appended(store: mqstore.Store) -> None:
    body = bytearray(b"x" * 100_000)
    before: Callable[[], list[Any]] = lambda: [("orders", body)] * 100  # noqa: E731
    offsets = store.append_batch(before())
    body[:] = b"y" * 100_000
    assert {bytes(message.body[:1]) for message in read(store, offsets)} == {b"x"}


def test_a_dict_of_fields_is_a_row(store: mqstore.Store, golden: Path) -> None:
    with mqstore.open(golden / READ_BY_ROCKETMQ[0]) as source:
        messages = [message for topic in source.topics.values() for queue in topic.queues for message in queue]
    copies = read(store, store.append_batch([message.to_dict() for message in messages]))
    assert [kept(copy) for copy in copies] == [kept(message) for message in messages]
    least = {"body": bytearray(b"b"), "tags": "x", "keys": "k", "properties": {"p": "v"}, "delay_level": None}
    (offset,) = store.append_batch([least], topic="orders", queue_id=3)
    assert of(store.message_at(offset)) == ("orders", b"b", "x", ["k"], {"p": "v", "TAGS": "x", "KEYS": "k"}, 3)
    (offset,) = store.append_batch([{**least, "topic": "orders", "delay_level": 2}])
    assert (store.message_at(offset).topic, store.message_at(offset).queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)


@pytest.mark.parametrize(
    ("row", "error", "text"),
    [
        ({"topic": "t"}, mqstore.IllegalMessageError, "message 1: body is null"),
        ({"topic": "t", "body": b"", "tag": "x"}, ValueError, 'message 1: "tag" is not a field.*tags'),
        ({"topic": "t", "body": "text"}, TypeError, "message 1: .*encode it"),
        ({"topic": "t", "body": b"", 7: 7}, TypeError, "message 1: the name of a field is a str"),
        ({"topic": "u", "body": b""}, ValueError, 'message 1: topic is "t", but'),
    ],
)
def test_a_dict_that_is_refused_says_why_and_nothing_is_stored(
    store: mqstore.Store, row: dict[Any, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        store.append_batch([{"body": b""}, row], topic="t")
    assert store.max_physical_offset == 0


ROWS: dict[str, Any] = {
    "tuples": [("orders", b"a", "t"), ("stock", b"b"), ("orders", b"c", None, "k")],
    "dicts": [{"topic": "orders", "body": b"a"}, {"topic": "stock", "body": b"b"}, {"topic": "orders", "body": b"c"}],
    "table": pa.table({"topic": ["orders", "stock", "orders"], "body": [b"a", b"b", b"c"]}),
}


@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_one_segment_are_adjacent_in_it(store: mqstore.Store, rows: str) -> None:
    size = 1 << 20
    store.append("orders", b"x" * (size - 300))
    first, *_ = offsets = store.append_batch(ROWS[rows], one_segment=True)
    messages = read(store, offsets)
    assert first == size
    assert [message.body for message in messages] == [b"a", b"b", b"c"]
    assert len({message.store_time for message in messages}) == 1
    for message, following in pairwise(messages):
        assert following.physical_offset == message.physical_offset + message.store_size


def test_rows_that_need_more_than_a_segment_are_refused_and_none_is_stored(store: mqstore.Store) -> None:
    before = store.max_physical_offset
    rows = [b"x" * 300_000] * 4
    with pytest.raises(ValueError, match=r"the batch takes \d+ bytes, at most 1048568 fit into a segment") as raised:
        store.append_batch(rows, "orders", one_segment=True)
    assert raised.value.stored == 0  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="message 1: "):
        store.append_batch([("orders", b"good"), ("/", b"bad")], one_segment=True)
    assert store.max_physical_offset == before
    assert list(store.append_batch([], "orders", one_segment=True)) == []
    assert len(store.append_batch(rows, "orders")) == 4
    with pytest.raises(TypeError):
        store.append_batch(rows, "orders", None, True)  # type: ignore[misc]


def test_fetch_leads_from_the_offsets_of_a_batch_to_its_queue_offsets(store: mqstore.Store) -> None:
    offsets = store.append_batch(ROWS["table"], queue_id=3)
    places = store.fetch(pa.table({"physical_offset": offsets}), columns=["topic", "queue_id", "queue_offset"]).to_arrow()
    assert [tuple(row.values()) for row in places.to_pylist()] == [("orders", 3, 0), ("stock", 3, 0), ("orders", 3, 1)]
