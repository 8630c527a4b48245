"""The prepared writer of one queue: its records and errors are those of `append`."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_fork import in_child

import mqstore

LONG = "a" * 130
KEYS: list[Any] = [None, (), "o-1", ["o-1"], ("o-1", "ключ"), {"o-1": 1}]


@pytest.fixture
def store(mqstore_stores: Callable[..., mqstore.Writer]) -> mqstore.Writer:
    return mqstore_stores(max_message_size=10_000)


@pytest.mark.parametrize("tags", [None, "paid", "bezahlt ✓"])
@pytest.mark.parametrize("topic", ["orders", "Aufträge", LONG])
def test_a_topic_writer_writes_the_records_of_append(
    mqstore_stores: Callable[..., mqstore.Writer], topic: str, tags: str | None
) -> None:
    prepared, plain = mqstore_stores("prepared"), mqstore_stores("plain")
    writer = prepared.writer(topic, 3, tags)
    assert (writer.topic, writer.queue_id) == (topic, 3)
    for keys in KEYS:
        for body in (b"", b"body", bytearray(b"buffer"), memoryview(b"view")):
            done = writer.append(body, keys)
            expected = plain.append(topic, body, queue_id=3, tags=tags, keys=keys)
            assert done == expected
            assert prepared.message_at(done.physical_offset).raw == plain.message_at(expected.physical_offset).raw
    assert writer.append(b"x", iter(["a", "b"])).queue_offset == len(KEYS) * 4
    assert [message.keys for message in prepared.topics[topic].queues[3]][-1] == ["a", "b"]
    assert prepared.message_at(0).tags == tags


def test_a_topic_writer_raises_what_append_raises(store: mqstore.Writer) -> None:
    with pytest.raises(mqstore.IllegalMessageError, match="queues are numbered"):
        store.writer("orders", -1)
    with pytest.raises(mqstore.IllegalMessageError, match="a tag has no control character"):
        store.writer("orders", tags="a\x02")
    with pytest.raises(mqstore.IllegalMessageError, match="has no slash"):
        store.writer("a/b")
    writer = store.writer("orders")
    wrong: list[tuple[Any, Any]] = [
        (b"x" * 10_001, None),
        (b"x", "two words"),
        (b"x", ""),
        (b"x", 5),
        ("text", None),
        (None, None),
    ]
    for body, keys in wrong:
        with pytest.raises((mqstore.IllegalMessageError, TypeError)) as expected:
            store.append("orders", body, keys=keys)
        with pytest.raises((mqstore.IllegalMessageError, TypeError)) as raised:
            writer.append(body, keys)
        assert (raised.type, str(raised.value)) == (expected.type, str(expected.value))
        assert getattr(raised.value, "stored", 0) == 0
    assert store.max_physical_offset == 0


def test_the_settings_of_a_topic_bind_each_append_of_a_topic_writer(store: mqstore.Writer) -> None:
    store.create_topic("orders", queues=4)
    writer = store.writer("orders", 3)
    writer.append(b"x")
    store.create_topic("orders", queues=4, perm=4)
    with pytest.raises(mqstore.IllegalMessageError, match="without the permission to write"):
        writer.append(b"x")
    with pytest.raises(mqstore.IllegalMessageError, match="without the permission to write"):
        store.writer("orders")
    store.create_topic("orders", queues=4, message_type="FIFO")
    with pytest.raises(mqstore.IllegalMessageError, match="takes messages of type FIFO"):
        writer.append(b"x")
    assert len(store.topics["orders"].queues[3]) == 1


def test_a_topic_writer_raises_after_the_close(store: mqstore.Writer) -> None:
    writer = store.writer("orders")
    store.close()
    for call in (lambda: writer.append(b"x"), lambda: store.writer("orders")):
        with pytest.raises(mqstore.ClosedError, match="is closed: open it again") as raised:
            call()
        assert raised.value.status == "SERVICE_NOT_AVAILABLE"
    assert repr(writer) == '<mqstore.TopicWriter "orders", queue_id=0>'


def test_keys_that_close_the_store_let_nothing_be_appended(store: mqstore.Writer) -> None:
    def keys() -> Iterator[str]:
        yield "o-1"
        store.close()

    with pytest.raises(mqstore.ClosedError):
        store.writer("orders").append(b"x", keys())


def test_a_topic_writer_raises_in_a_fork(store: mqstore.Writer) -> None:
    writer = store.writer("orders")

    def appends() -> None:
        for call in (lambda: writer.append(b"x"), lambda: store.writer("orders")):
            with pytest.raises(mqstore.ClosedError, match="in the process that this one was forked from"):
                call()

    in_child(appends)
    children: list[int] = []

    def forks() -> Iterator[str]:
        children.append(os.fork())
        yield "o-1"

    raised: Exception | None = None
    try:
        writer.append(b"x", forks())
    except Exception as error:
        raised = error
    if children == [0]:
        os._exit(0 if isinstance(raised, mqstore.ClosedError) else 1)
    assert raised is None
    assert os.waitpid(children[0], 0)[1] == 0
    assert len(store.topics["orders"].queues[0]) == 1


def test_a_topic_writer_does_not_pickle_and_is_made_by_its_store(store: mqstore.Writer) -> None:
    writer = store.writer("orders")
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a TopicWriter does not pickle"):
            call(writer)
    with pytest.raises(TypeError, match=r"Writer\.writer makes one"):
        mqstore.TopicWriter()
    store.append("orders", b"x")
    with mqstore.open(store.path) as reader:
        assert not hasattr(reader, "writer")


def test_a_topic_writer_keeps_its_store_open(mqstore_stores: Callable[..., mqstore.Writer], tmp_path: Any) -> None:
    writer = mqstore.open(tmp_path / "alone", "x").writer("orders")
    writer.append(b"x")
    with pytest.raises(mqstore.LockedError):
        mqstore.open(tmp_path / "alone", "r+")
    del writer
    with mqstore.open(tmp_path / "alone", "r+") as store:
        assert [message.body for message in store.topics["orders"].queues[0]] == [b"x"]


@pytest.mark.parametrize(
    "options", [{"flush_disk_type": "SYNC_FLUSH"}, {"transient_store_pool_enable": True}], ids=["sync", "pool"]
)
def test_a_topic_writer_waits_as_append_does(mqstore_stores: Callable[..., mqstore.Writer], options: dict[str, Any]) -> None:
    store = mqstore_stores(**options)
    writer = store.writer("orders", tags="paid")
    results = [writer.append(b"%d" % number, f"o-{number}") for number in range(50)]
    assert {done.status for done in results} == {"PUT_OK"}
    if "flush_disk_type" in options:
        assert store.flushed_offset > results[-1].physical_offset
    assert [message.body for message in store.topics["orders"].queues[0]] == [b"%d" % number for number in range(50)]
    assert [message.body for message in store.query("orders", key="o-7")] == [b"7"]
