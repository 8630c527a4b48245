"""The open transactions of a store: readers and the writer find the same ones, and say what may be wrong with the answer."""

from __future__ import annotations

import asyncio
import pickle
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import stamp_as_broker

import mqstore
import mqstore.aio
from mqstore.report import report

COMMIT = 0x8
HALVES, OPS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with three half messages: one open, one rolled back, and one committed whose op message a crash has prevented."""
    with mqstore.open(tmp_path / "store", "x", mapped_file_size_commit_log=16_384) as store:
        halves = [store.transactions.send_half("orders", b"%d" % number, group="tellers", keys=["k"]) for number in range(3)]
        store.transactions.end(halves[1], "rollback")
        store.append(
            "orders",
            b"2",
            sys_flag=COMMIT,
            prepared_transaction_offset=halves[2].physical_offset,
            unique_key=halves[2].unique_key,
        )
        for _ in range(20):
            store.append("other", bytes(1000))
    # A killed writer has written no mark.
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text("{}")
    return tmp_path / "store"


def keys(found: mqstore.OpenTransactions) -> list[int]:
    return [half.queue_offset for half in found.halves]


def damage(path: Path, place: int) -> None:
    with (path / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(place + 4)  # the magic code
        segment.write(b"\xff")


def test_a_reader_finds_what_the_writer_does(path: Path) -> None:
    with mqstore.open(path) as reader:
        found = reader.broker.transactions()
        assert (keys(found), found.complete, found.skipped) == ([0], True, 0)
        [half] = found.halves
        assert (half.group, half.topic, half.queue_id, half.half_topic, half.checks) == ("tellers", "orders", 0, HALVES, 0)
        assert (half.keys, half.physical_offset, half.tags) == (("k",), 0, None)
        assert timedelta(0) <= half.age < timedelta(hours=1)
        message = reader.message(half.id)
        assert (half.born_time, half.store_time) == (message.born_time, message.store_time)
        assert pickle.loads(pickle.dumps(found)) == found
    with mqstore.open(path, "a") as store:
        assert [each.id for each in store.transactions.open()] == [half.id]
        assert [each.id for each in store.broker.transactions().halves] == [half.id]
        with pytest.raises(mqstore.TransactionEndedError, match="was committed"):
            store.transactions.end(store.topics[HALVES].queues[0][2].message_id, "commit")
        assert store.transactions.end(half.id, "commit") is not None
        assert store.broker.transactions().halves == ()


def test_a_time_that_no_date_can_show_is_a_number(path: Path, run: Callable[..., Any]) -> None:
    with (path / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(40)  # the born time of the first message, the half message that is open
        segment.write((2**60).to_bytes(8, "big"))
    with mqstore.open(path) as reader:
        [half] = reader.broker.transactions().halves
        assert half.born_time == 2**60
        assert reader.broker.trace(half.id).records[0].store_time == half.store_time
    [row] = run("transactions", path, "--json").rows
    assert row["born_time"] == 2**60


def test_commands_and_findings_have_the_same_answer(path: Path, run: Callable[..., Any]) -> None:
    [row] = run("transactions", path, "--json").rows
    assert (row["queue_offset"], row["keys"], row["check_times"]) == (0, ["k"], 0)
    assert 0 <= row["age"] < 3600
    with mqstore.open(path) as store:
        messages = [finding["message"] for finding in report(store).findings if finding["id"] == "transaction.open"]
        assert [message.partition(",")[0] for message in messages] == ["1 transactions are neither committed nor rolled back"]
        halves = store.topics[HALVES].queues[0]
        states = [store.broker.trace(half.unique_key or "").records[0].state for half in halves]
    assert states == ["open", "rolled_back", "committed"]


def test_the_oldest_open_transaction_is_the_first(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        sent = [store.transactions.send_half("orders", b"%d" % number) for number in range(3)]
        time.sleep(0.05)
        ages = [half.age for half in store.transactions.open()]
        assert store.transactions.open() == sent
        assert ages == sorted(ages, reverse=True)
        assert ages[-1] >= timedelta(milliseconds=40)
        assert [half.id for half in store.broker.transactions().halves] == [half.id for half in sent]


@pytest.mark.parametrize(
    ("topic", "number", "listed", "counts"),
    [(HALVES, 0, [], (1, 0)), (OPS, 0, [0, 1], (0, 1)), ("orders", 0, [0, 2], (0, 0))],
)
def test_damage_makes_the_answer_incomplete(
    topic: str, number: int, listed: list[int], counts: tuple[int, int], path: Path, run: Callable[..., Any]
) -> None:
    with mqstore.open(path) as store:
        place = store.topics[topic].queues[0][number].physical_offset
    damage(path, place)
    with mqstore.open(path) as store:
        found = store.broker.transactions()
    assert (keys(found), (found.passed_over, found.lost_ops), found.complete) == (listed, counts, False)
    assert found.damaged_stretches == 1
    ran = run("transactions", path, "--json")
    assert (ran.code, [row["queue_offset"] for row in ran.objects]) == (1, listed)
    assert ran.err


def test_a_lost_queue_makes_the_answer_incomplete(path: Path) -> None:
    with mqstore.open(path, "a") as store:
        store.transactions.end(store.transactions.open()[0], "rollback")
        store.transactions.send_half("orders", b"3")
        for _ in range(20):
            store.append("other", bytes(1000))
    for topic in (HALVES, OPS):
        copy = path.with_name(topic)
        # An open makes the queues again that our own stamp counts.
        stamp_as_broker(shutil.copytree(path, copy))
        shutil.rmtree(copy / "consumequeue" / topic)
        with mqstore.open(copy) as store:
            found = store.broker.transactions()
        assert (found.lost_queues, found.complete) == ((topic,), False)


def test_a_store_without_transactions_has_none(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"1")
        assert store.broker.transactions().halves == ()
    with mqstore.open(tmp_path / "store") as reader:
        assert repr(reader.broker.transactions()) == "<mqstore.OpenTransactions 0 open>"


def test_a_task_gets_the_open_transactions(path: Path) -> None:
    async def found() -> mqstore.OpenTransactions:
        async with mqstore.aio.open(path) as store:
            return await store.broker.transactions()

    assert keys(asyncio.run(found())) == [0]
