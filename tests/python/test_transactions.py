"""Transactions of a writer: ended once, by hand, by a block or by a check."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import mqstore
import mqstore.aio

#: The time that a check may take on a machine that runs other tests, too.
PATIENCE = 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def bodies(store: mqstore.Store, topic: str = "orders") -> list[bytes]:
    return [message.body for message in store.topics[topic].queues[0]] if topic in store.topics else []


def _mistake_after(work: Callable[[], object]) -> KeyError:
    work()
    return KeyError("mine")


def wait_for(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_block_commits_at_its_end_and_rolls_back_on_an_exception(path: Path) -> None:
    with mqstore.open(path, "x") as store:
        with store.transactions.begin("orders", b"a", keys=["k"], tags="paid") as half:
            assert (half.topic, half.queue_id, half.queue_offset, half.checks) == ("orders", 0, 0, 0)
            assert (bodies(store), half.message.body, half.group) == ([], b"a", "DEFAULT_PRODUCER")
            assert abs(datetime.now(UTC) - half.store_time) < timedelta(minutes=1)
        with pytest.raises(KeyError, match="no money"), store.transactions.begin("orders", b"b"):
            raise KeyError("no money")
        assert (bodies(store), store.transactions.open()) == ([b"a"], [])
        [message] = store.query("orders", "k")
        assert (message.prepared_transaction_offset, message.tags) == (half.physical_offset, "paid")
        assert message.unique_key == half.unique_key
    with mqstore.open(path) as reader:
        assert bodies(reader) == [b"a"]


def test_a_half_message_is_ended_once_and_its_id_names_it_in_another_open(path: Path) -> None:
    with mqstore.open(path, "x") as store:
        halves = [store.transactions.send_half("orders", body, durable=True) for body in (b"a", b"b")]
        committed = store.transactions.end(halves[0], "commit", durable=True)
        assert committed is not None
        assert committed.status == "PUT_OK"
        with pytest.raises(mqstore.TransactionEndedError, match="was committed") as raised:
            store.transactions.end(halves[0], "commit")
        assert isinstance(raised.value, ValueError)
        ended = (raised.value.physical_offset, raised.value.outcome, raised.value.committed_offset, raised.value.stored)
        assert ended == (halves[0].physical_offset, "committed", committed.physical_offset, 0)
    with mqstore.open(path, "a") as store:
        [half] = store.transactions.open()
        assert (half.id, half.message.body) == (halves[1].id, b"b")
        assert store.transactions.end(halves[1].id, "rollback") is None
        with pytest.raises(mqstore.TransactionEndedError, match="was rolled back") as raised:
            store.transactions.end(half, "commit")
        assert (raised.value.outcome, raised.value.committed_offset) == ("rolled_back", None)
        with pytest.raises(mqstore.TransactionEndedError) as raised:
            store.transactions.end(halves[0].id, "commit")
        assert raised.value.outcome == "ended"
        assert (bodies(store), store.transactions.open()) == ([b"a"], [])


def test_a_wrong_argument_is_refused(path: Path) -> None:
    with mqstore.open(path, "x") as store:
        half = store.transactions.send_half("orders", b"a")
        with pytest.raises(ValueError, match="how"):
            store.transactions.end(half, "abort")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expected a Half"):
            store.transactions.end(half.physical_offset, "commit")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="callback"):
            store.transactions.check("commit")  # type: ignore[arg-type]
        with pytest.raises(mqstore.IllegalMessageError, match="cannot be delayed"):
            store.transactions.send_half("orders", b"a", properties={"DELAY": "3"})
        plain = store.append("orders", b"plain")
        with pytest.raises(ValueError, match="no half message"):
            store.transactions.end(plain.message_id, "commit")
        assert store.transactions.open() == [half]


def test_a_half_message_of_another_store_is_refused(path: Path, tmp_path: Path) -> None:
    with mqstore.open(path, "a") as store, mqstore.open(tmp_path / "other", "x") as other:
        foreign, own = (each.transactions.send_half("orders", b"1", group="g") for each in (other, store))
        assert foreign.physical_offset == own.physical_offset
        with pytest.raises(ValueError, match="other"):
            store.transactions.end(foreign, "commit")
        assert store.transactions.open() == [own]


def test_a_block_that_ends_its_half_message_leaves_nothing_to_do(path: Path) -> None:
    with mqstore.open(path, "x") as store:
        with store.transactions.begin("orders", b"a") as half:
            store.transactions.end(half, "rollback")
        assert (bodies(store), store.transactions.open()) == ([], [])


def test_a_store_that_is_closed_in_the_block_leaves_the_transaction_open(path: Path) -> None:
    store = mqstore.open(path, "x")
    with pytest.raises(mqstore.ClosedError), store.transactions.begin("orders", b"a"):
        store.close()
    store = mqstore.open(path, "a")
    transaction = store.transactions.begin("orders", b"b")
    with pytest.raises(KeyError) as raised, transaction:
        raise _mistake_after(store.close)
    assert "stays open" in raised.value.__notes__[0]
    with mqstore.open(path, "a") as store:
        assert [half.message.body for half in store.transactions.open()] == [b"a", b"b"]


class Odd:
    """An answer that cannot be compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ArithmeticError


def test_open_warns_of_half_messages_that_are_damaged(path: Path) -> None:
    with mqstore.open(path, "x") as store:
        places = [store.transactions.send_half("orders", body).physical_offset for body in (b"a", b"b")]
        store.flush()
        # A read waits for the dispatcher, which otherwise may meet the damage first.
        assert len(store.topics["RMQ_SYS_TRANS_HALF_TOPIC"].queues[0]) == 2
        with next((path / "commitlog").iterdir()).open("r+b") as segment:
            segment.seek(places[0] + 4)  # the magic code
            segment.write(b"\xff")
        with pytest.warns(RuntimeWarning, match="1 half messages are lost or damaged"):
            assert [half.message.body for half in store.transactions.open()] == [b"b"]


def test_a_check_ends_transactions_as_the_callback_says(path: Path) -> None:
    asked: list[bytes] = []

    def callback(half: mqstore.Half) -> object:
        asked.append(half.message.body)
        match half.message.body:
            case b"odd":
                return Odd()
            case b"raises":
                raise KeyError("unknown")
            case b"unknown":
                return None
            case b"self":
                store.transactions.end(half, "commit")
                return "rollback"
            case answer:
                return answer.decode()

    with mqstore.open(path, "x") as store:
        for body in (b"odd", b"commit", b"rollback", b"raises", b"unknown", b"self"):
            store.transactions.send_half("orders", body)
        store.transactions.check(callback, timeout=0.01, interval=1000)
        wait_for(lambda: len(asked) == 6 and len(store.transactions.open()) == 3)
        assert bodies(store) == [b"commit", b"self"]
        still_open = [(half.message.body, half.checks) for half in store.transactions.open()]
        assert still_open == [(b"odd", 1), (b"raises", 1), (b"unknown", 1)]
        store.transactions.check(None)


def test_a_half_message_that_nobody_answers_is_given_up(path: Path) -> None:
    asked: list[int] = []

    def callback(half: mqstore.Half) -> None:
        asked.append(half.checks)

    with mqstore.open(path, "x") as store:
        half = store.transactions.send_half("orders", b"a")
        store.transactions.check(callback, timeout=0.01, interval=0.02, max_checks=3)
        wait_for(lambda: not store.transactions.open())
        assert asked == [1, 2, 3]
        assert bodies(store, "TRANS_CHECK_MAX_TIME_TOPIC") == [b"a"]
        with pytest.raises(mqstore.TransactionEndedError, match="given up"):
            store.transactions.end(half, "commit")


def test_a_close_does_not_wait_for_a_callback(path: Path) -> None:
    blocked, release = threading.Event(), threading.Event()

    def block(_half: mqstore.Half) -> str:
        blocked.set()
        release.wait(PATIENCE)
        return "commit"

    with mqstore.open(path, "x") as store:
        store.transactions.send_half("orders", b"a")
        store.transactions.check(block, timeout=0.01)
        assert blocked.wait(PATIENCE)
    release.set()
    closer = mqstore.open(path, "a")
    assert bodies(closer) == []
    closer.transactions.check(lambda _half: closer.close(), timeout=0.01)
    wait_for(lambda: closer.closed)
    with mqstore.open(path, "a", lock_timeout=PATIENCE) as store:
        assert len(store.transactions.open()) == 1


def test_transactions_raise_in_a_fork_and_leave_the_parent_alone(path: Path) -> None:
    with mqstore.open(path, "x") as store:
        half = store.transactions.send_half("orders", b"a")
        child = os.fork()
        if child == 0:
            calls: list[Callable[[], object]] = [
                store.transactions.open,
                lambda: store.transactions.end(half, "commit"),
                lambda: store.transactions.send_half("orders", b"b"),
                lambda: store.transactions.check(print),
            ]
            refused = 0
            for call in calls:
                try:
                    call()
                except mqstore.ClosedError:
                    refused += 1
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        store.transactions.end(half, "commit")
        assert bodies(store) == [b"a"]


def test_tasks_of_an_event_loop_have_the_same_calls(path: Path) -> None:
    async def main() -> None:
        async with mqstore.aio.open(path, "x") as store:
            assert isinstance(store, mqstore.aio.Writer)
            transactions = store.transactions
            async with transactions.begin("orders", b"a") as half:
                assert half in await transactions.open()
            with pytest.raises(KeyError):
                async with transactions.begin("orders", b"b"):
                    raise KeyError("mine")
            half = await transactions.send_half("orders", b"c")
            assert await transactions.end(half, "commit") is not None
            assert await transactions.open() == []

    asyncio.run(main())
    with mqstore.open(path) as reader:
        assert bodies(reader) == [b"a", b"c"]
