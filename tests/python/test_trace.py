"""The trace of a message: each record of it, and what became of each."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore.testing import Broker


def ways(trace: mqstore.Trace) -> list[tuple[str, str]]:
    return [(record.stage, record.state) for record in trace.records]


def append(store: mqstore.Writer, body: bytes = b"x", **more: Any) -> None:
    store.append("orders", body, properties={"UNIQ_KEY": mqstore.new_unique_key()}, **more)


def key_of(store: mqstore.Store, topic: str, offset: int = 0) -> str:
    key = store.topics[topic].queues[0][offset].unique_key
    assert key is not None
    return key


def test_trace_names_the_groups_that_have_passed_a_message(store: mqstore.Writer) -> None:
    append(store, b"0")
    append(store, b"1")
    for group, number in (("billing", 2), ("shipping", 1)):
        with store.consumer(group, "orders") as consumer:
            consumer.ack(consumer.poll(number))
    first, second = (store.broker.trace(key_of(store, "orders", offset)) for offset in (0, 1))
    assert ways(first) == [("stored", "consumed")]
    assert first.records[0].passed_by == ("billing", "shipping")
    assert ways(second) == [("stored", "unconsumed")]
    assert (second.records[0].passed_by, second.records[0].awaited_by) == (("billing",), ("shipping",))
    assert (first.complete, first.unknown) == (True, ())


def test_trace_follows_a_message_from_its_retries_to_its_second_way(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        follow_retries(store)


def follow_retries(store: mqstore.Writer) -> None:
    append(store)
    key = key_of(store, "orders")
    with store.consumer("billing", "orders", max_reconsume_times=1) as consumer:
        [message] = consumer.poll(timeout=10)
        assert consumer.nack(message, delay_level=1)
        assert ways(store.broker.trace(key))[:2] == [("stored", "consumed"), ("delayed", "waiting")]
        [again] = consumer.poll(timeout=30)
        assert ways(store.broker.trace(key)) == [("stored", "consumed"), ("delayed", "delivered"), ("retry", "unconsumed")]
        consumer.nack(again, delay_level=1)
    expected = [("stored", "consumed"), ("delayed", "delivered"), ("retry", "consumed"), ("dead", "dead")]
    trace = store.broker.trace(key)
    assert ways(trace) == expected
    assert [record.topic for record in trace.records] == ["orders", "SCHEDULE_TOPIC_XXXX", "%RETRY%billing", "%DLQ%billing"]
    assert store.broker.resend("billing").sent == 1
    assert ways(store.broker.trace(key)) == [*expected[:3], ("dead", "sent_again"), ("stored", "unconsumed")]


@pytest.mark.parametrize("how", ["commit", "rollback", None])
def test_trace_has_the_end_of_the_transaction_of_a_message(mqstore_broker: Broker, how: Any) -> None:
    half = mqstore_broker.send_half("payments", b"10 EUR", group="tellers")
    if how is not None:
        mqstore_broker.end_transaction(half, how)
    mqstore_broker.persist()
    with mqstore.open(mqstore_broker.path) as store:
        ended = {"commit": [("half", "committed"), ("committed", "unconsumed")], "rollback": [("half", "rolled_back")]}
        assert half.unique_key is not None
        assert ways(store.broker.trace(half.unique_key)) == ended.get(how, [("half", "open")])


def test_trace_of_an_offset_id_is_that_of_the_message(store: mqstore.Writer) -> None:
    append(store)
    message = store.topics["orders"].queues[0][0]
    assert message.unique_key is not None
    by_key, by_id = (store.broker.trace(name) for name in (message.unique_key, message.message_id))
    assert by_key.records == by_id.records


#: The ways of the messages of `write_ways`.
WAYS = {
    "read": [("stored", "consumed")],
    "failed": [("stored", "consumed"), ("delayed", "waiting")],
    "delayed": [("delayed", "waiting")],
    "timer": [("timer", "waiting")],
    "committed": [("half", "committed"), ("committed", "unconsumed")],
    "open": [("half", "open")],
}
#: The unique key of each message.
KEYS = {way: f"{number:032X}" for number, way in enumerate(WAYS, 1)}


def write_ways(path: Path) -> mqstore.Writer:
    """Appends a message for each way to a new store. The progress of its delivery is on disk, where it comes after 10 s."""
    mqstore.open(path, "x").close()
    (path / "config" / "delayOffset.json").write_text('{"offsetTable":{"18":0}}')
    store = mqstore.open(path, "r+", services=True)
    later: dict[str, dict[str, Any]] = {"delayed": {"delay_level": 18}, "timer": {"deliver_at": timedelta(hours=2)}}
    for way in ("read", "failed", *later):
        store.append("orders", b"x", properties={"UNIQ_KEY": KEYS[way]}, **later.get(way, {}))
    halves = [store.transactions.send_half("payments", b"x", unique_key=KEYS[way]) for way in ("committed", "open")]
    store.transactions.end(halves[0], "commit")
    consumer = store.consumer("billing", "orders")
    read, failed = consumer.poll(2)
    consumer.ack(read)
    consumer.nack(failed, delay_level=18)
    consumer.commit(durable=True)
    return store


def all_ways(store: mqstore.Store) -> dict[str, list[tuple[str, str]]]:
    traces = {way: store.broker.trace(key) for way, key in KEYS.items()}
    assert {way: trace.unknown for way, trace in traces.items() if not trace.complete or trace.unknown} == {}
    return {way: ways(trace) for way, trace in traces.items()}


def test_trace_of_a_live_store_is_the_same_from_a_reader(tmp_path: Path) -> None:
    with write_ways(tmp_path / "store") as store, mqstore.open(tmp_path / "store") as reader:
        assert all_ways(store) == WAYS
        assert all_ways(reader) == WAYS


def test_trace_reads_the_store_of_a_writer_that_was_killed(tmp_path: Path) -> None:
    program = (
        "import sys, os, pathlib, test_trace; kept = test_trace.write_ways(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "store"], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "store" / "abort").exists()
    for mode in ("r", "a"):
        with mqstore.open(tmp_path / "store", mode) as store:
            assert all_ways(store) == WAYS


def test_trace_without_a_unique_key_has_what_was_sent_back(store: mqstore.Writer) -> None:
    store.append_batch([b"0", b"1"], topic="orders")
    first, other = store.topics["orders"].queues[0]
    with store.consumer("billing", "orders") as consumer:
        consumer.nack(consumer.poll(1)[0], delay_level=-1)
    dead = store.broker.dead_letters("billing").queues[0][0]
    for message in (first, dead):
        assert ways(store.broker.trace(message.message_id)) == [("stored", "consumed"), ("dead", "dead")]
    assert ways(store.broker.trace(other.message_id)) == [("stored", "unconsumed")]


def test_trace_of_a_message_in_no_log_raises(store: mqstore.Writer) -> None:
    append(store)
    with pytest.raises(mqstore.NotFoundError, match="no record of the log has the id"):
        store.broker.trace("FD00000000000000000000000000000259285FFD2B276CF4C7CCFFFF")


def test_keys_that_equal_the_id_of_another_message_are_not_traced(store: mqstore.Writer) -> None:
    append(store)
    key = key_of(store, "orders")
    store.append("audit", b"about x", keys=[key])
    assert [record.topic for record in store.broker.trace(key).records] == ["orders"]


def test_message_to_which_no_queue_entry_leads_is_unreachable(copied: Callable[[str], Path]) -> None:
    path = copied("498_mixed")
    with mqstore.open(path) as store:
        message = store.topics["orders"].queues[0][3]
    with next((path / "consumequeue" / "orders" / "0").iterdir()).open("r+b") as entries:
        entries.seek(3 * 20)
        entries.write(bytes(20))
    with mqstore.open(path) as store:
        assert ways(store.broker.trace(message.message_id)) == [("stored", "unreachable")]


def test_trace_finds_a_message_without_an_index(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        append(store)
        key = key_of(store, "orders")
    shutil.rmtree(tmp_path / "store" / "index")
    with mqstore.open(tmp_path / "store") as store:
        assert ways(store.broker.trace(key)) == [("stored", "unconsumed")]


def test_trace_says_that_the_progress_of_groups_cannot_be_read(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        append(store)
        key = key_of(store, "orders")
        with store.consumer("billing", "orders") as consumer:
            consumer.ack(consumer.poll())
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (tmp_path / "store" / "config" / name).write_text("{", encoding="utf-8")
    with mqstore.open(tmp_path / "store") as store:
        trace = store.broker.trace(key)
    assert ways(trace) == [("stored", "unknown")]
    assert len(trace.unknown) == 1
    assert "progress of the consumer groups is unknown" in trace.unknown[0]
