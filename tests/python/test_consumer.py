"""A group of consumers in the writing process: what each consumer gets, and what the group remembers."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

import mqstore
import mqstore.aio

_T = TypeVar("_T")


def numbers(messages: list[mqstore.Message]) -> list[int]:
    return [int(message.body) for message in messages]


def fill(store: mqstore.Writer, count: int, queues: int = 1) -> None:
    store.append_batch([("orders", b"%d" % number, None, None, None, number % queues) for number in range(count)])


def test_poll_returns_messages_in_order_and_ack_moves_the_progress(store: mqstore.Writer) -> None:
    fill(store, 10)
    with store.consumer("billing", "orders") as consumer:
        first = consumer.poll(4)
        assert numbers(first) == [0, 1, 2, 3]
        assert consumer.ack(first[0]) == 1
        assert (consumer.position(), consumer.committed()) == ({("orders", 0): 4}, {("orders", 0): 1})
        assert consumer.ack(first) == 3
        assert consumer.ack(iter(first)) == 0
        assert consumer.lag() == 6
        assert (consumer.group, consumer.topics, consumer.skipped) == ("billing", ["orders"], 0)


def test_group_continues_at_the_first_unacknowledged_message(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "a") as store:
        fill(store, 5)
        with store.consumer("billing", "orders") as consumer:
            zero, _, two = consumer.poll(3)
            consumer.ack([zero, two])
    with mqstore.open(tmp_path / "store", "a") as store:
        assert numbers(store.consumer("billing", "orders").poll()) == [1, 2, 3, 4]
        assert numbers(store.consumer("shipping", "orders").poll()) == [0, 1, 2, 3, 4]


def test_iteration_ends_when_no_message_comes_for_the_timeout(store: mqstore.Writer) -> None:
    fill(store, 3)
    consumer = store.consumer("billing", "orders", timeout=0.05)
    assert numbers(list(consumer)) == [0, 1, 2]
    store.append("orders", b"3")
    assert numbers(list(consumer)) == [3]


def test_append_wakes_a_poll_that_waits(store: mqstore.Writer) -> None:
    consumer = store.consumer("billing", "orders")
    appending = threading.Timer(0.1, store.append, ("orders", b"7"))
    appending.start()
    assert numbers(consumer.poll(timeout=60)) == [7]
    appending.join()
    assert consumer.poll(timeout=0) == []


def test_tags_and_start_choose_the_messages(store: mqstore.Writer) -> None:
    store.append("orders", b"0", tags="paid")
    store.append("orders", b"1", tags="new")
    assert numbers(store.consumer("paid", "orders", tags="paid || refund").poll(timeout=0)) == [0]
    assert numbers(store.consumer("at", "orders", start={("orders", 0): 1}).poll(timeout=0)) == [1]
    latest = store.consumer("latest", "orders", start="latest")
    assert latest.poll(timeout=0) == []
    store.append("orders", b"2")
    assert numbers(latest.poll()) == [2]


def test_consumers_of_a_group_divide_the_queues_and_two_groups_do_not(store: mqstore.Writer) -> None:
    fill(store, 200, queues=4)
    consumers = [store.consumer("billing", "orders", timeout=0.2) for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda consumer: {(m.queue_id, int(m.body)) for m in consumer}, consumers))
    assert [{queue for queue, _ in of_one} for of_one in both] == [{0, 1}, {2, 3}]
    assert sorted(number for of_one in both for _, number in of_one) == list(range(200))
    assert len(store.consumer("shipping", "orders").poll(500)) == 200


def test_eight_threads_share_one_consumer_and_get_each_message_once(store: mqstore.Writer) -> None:
    fill(store, 4000, queues=3)
    consumer = store.consumer("billing", "orders")
    seen: Counter[int] = Counter()
    guard = threading.Lock()

    def consume(_: int) -> None:
        while messages := consumer.poll(7, timeout=0.1):
            assert consumer.ack(messages) == len(messages)
            with guard:
                seen.update(numbers(messages))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(consume, range(8)))
    assert seen == Counter(range(4000))
    assert consumer.lag() == 0


def test_nack_stores_a_retry_that_names_the_first_topic(store: mqstore.Writer) -> None:
    store.append("orders", b"0", keys="k", tags="paid")
    consumer = store.consumer("billing", "orders", tags="paid")
    [message] = consumer.poll()
    assert consumer.nack(message, delay_level=3)
    assert not consumer.nack(message)
    assert consumer.lag() == 0
    [retry] = list(store.topics["SCHEDULE_TOPIC_XXXX"].queues[2])
    assert retry.body == b"0"
    assert retry.reconsume_times == 1
    assert (retry.properties["REAL_TOPIC"], retry.properties["RETRY_TOPIC"]) == ("%RETRY%billing", "orders")
    store.append("%RETRY%billing", b"1", properties={"RETRY_TOPIC": "orders"}, tags="other", reconsume_times=1)
    [again] = consumer.poll()
    assert (again.topic, again.body, again.reconsume_times) == ("orders", b"1", 1)
    assert consumer.ack(again) == 1


def test_nack_with_a_negative_level_makes_a_dead_letter(store: mqstore.Writer) -> None:
    fill(store, 1)
    consumer = store.consumer("billing", "orders")
    assert consumer.nack(consumer.poll()[0], delay_level=-1)
    [letter] = list(store.topics["%DLQ%billing"].queues[0])
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"0", "orders")


def test_broadcast_consumer_keeps_no_progress_and_has_no_retry(store: mqstore.Writer) -> None:
    fill(store, 2)
    for _ in range(2):
        with store.consumer(None, "orders") as consumer:
            messages = consumer.poll()
            assert numbers(messages) == [0, 1]
            assert consumer.ack(messages) == 2
            with pytest.raises(TypeError, match="without a group"):
                consumer.nack(messages[0])


def test_message_that_a_closed_consumer_held_goes_to_another(store: mqstore.Writer) -> None:
    fill(store, 2)
    first, second = (store.consumer("billing", "orders") for _ in range(2))
    assert numbers(first.poll()) == [0, 1]
    first.close()
    first.close()
    assert numbers(second.poll(timeout=10)) == [0, 1]
    with pytest.raises(mqstore.ClosedError, match="has left its group"):
        first.poll()


def test_pause_seek_and_resume(store: mqstore.Writer) -> None:
    fill(store, 4, queues=2)
    consumer = store.consumer("billing", "orders")
    consumer.pause([("orders", 0)])
    assert numbers(consumer.poll(timeout=0)) == [1, 3]
    consumer.resume()
    assert numbers(consumer.poll(timeout=0)) == [0, 2]
    consumer.seek(1, 1)
    assert numbers(consumer.poll(timeout=0)) == [3]
    with pytest.raises(mqstore.OffsetOutOfRangeError):
        consumer.seek(1, 3)


def test_progress_outside_the_queue_raises_or_moves_by_on_missing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "a") as store:
        fill(store, 3)
    (path / "config").mkdir(exist_ok=True)
    progress = {f"orders@{group}": {"0": 900} for group in ("refuse", "earliest", "latest")}
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": progress}))
    with mqstore.open(path, "a") as store:
        with pytest.raises(mqstore.OffsetOutOfRangeError) as raised:
            store.consumer("refuse", "orders").poll(timeout=0)
        error = raised.value
        assert (error.topic, error.queue_id, error.offset, error.min_offset, error.max_offset) == ("orders", 0, 900, 0, 3)
        assert (error.remedy, pickle.loads(pickle.dumps(error)).offset) == ("start-at-bound", 900)
        assert numbers(store.consumer("earliest", "orders", on_missing="earliest").poll(timeout=0)) == [0, 1, 2]
        latest = store.consumer("latest", "orders", on_missing="latest")
        assert latest.poll(timeout=0) == []
        store.append("orders", b"3")
        assert numbers(latest.poll()) == [3]


def test_wrong_arguments_are_refused_before_anything_is_done(store: mqstore.Writer) -> None:
    fill(store, 1)
    consumer = store.consumer("billing", "orders")
    with pytest.raises(ValueError, match="another subscription"):
        store.consumer("billing", "orders", tags="paid")
    for group in ("", "a b", "x" * 121):
        with pytest.raises(ValueError, match="group"):
            store.consumer(group, "orders")
    with pytest.raises(ValueError, match="no topic"):
        store.consumer("other", [])
    with pytest.raises(ValueError, match="max_messages"):
        consumer.poll(0)
    with pytest.raises(TypeError):
        consumer.ack([b"x"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="does not pickle"):
        pickle.dumps(consumer)
    with pytest.raises(TypeError):
        mqstore.Consumer()


def test_signal_ends_a_poll_that_waits(store: mqstore.Writer) -> None:
    consumer = store.consumer("billing", "orders")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(timeout=60)
    finally:
        signal.signal(signal.SIGALRM, before)
    store.append("orders", b"1")
    assert numbers(consumer.poll()) == [1]


def test_close_of_the_store_ends_a_poll_that_waits(store: mqstore.Writer) -> None:
    consumer = store.consumer("billing", "orders")
    closing = threading.Timer(0.1, store.close)
    closing.start()
    with pytest.raises(mqstore.ClosedError):
        consumer.poll(timeout=60)
    closing.join()
    with pytest.raises(mqstore.ClosedError):
        consumer.lag()
    consumer.close()


def test_consumer_raises_in_a_fork_and_leaves_its_parent_alone(store: mqstore.Writer) -> None:
    fill(store, 1)
    consumer = store.consumer("billing", "orders")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            consumer.poll(timeout=0)
        except mqstore.ClosedError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert numbers(consumer.poll()) == [0]


def rows(batch: mqstore.RecordBatch) -> list[dict[str, object]]:
    return [row._asdict() for row in batch]


def test_state_of_groups_is_live_in_the_process_that_writes(store: mqstore.Writer) -> None:
    fill(store, 3)
    with pytest.raises(mqstore.NotFoundError):
        store.broker.groups()
    consumer = store.consumer("billing", "orders")
    first, second = consumer.poll(2)
    consumer.ack(first)
    [row] = rows(store.broker.groups())
    place = {"group": "billing", "topic": "orders", "queue_id": 0, "offset": 1}
    lag = place | {"min_offset": 0, "max_offset": 3, "lag": 2}
    assert row == lag | {"unconsumed_since": second.store_time, "consumers": 1, "in_flight": 1}
    assert rows(store.broker.lag()) == [lag]
    [stats] = store.stats().groups
    assert (stats.group, stats.topic, stats.lag, stats.unconsumed_since) == ("billing", "orders", 2, second.store_time)
    assert rows(store.broker.consumer_offsets()) == [place]
    consumer.commit(durable=True)
    with mqstore.open(store.path) as reader:
        assert rows(reader.broker.groups()) == [row | {"consumers": None, "in_flight": None}]


def test_dead_letters_are_sent_again_to_their_topic_once(store: mqstore.Writer) -> None:
    assert list(store.broker.dead_letters("billing")) == []
    store.append("orders", b"0", keys="k", tags="paid", properties={"colour": "red"})
    consumer = store.consumer("billing", "orders")
    assert consumer.nack(consumer.poll()[0], delay_level=-1)
    [letter] = store.broker.dead_letters("billing")
    assert (letter.topic, letter.reconsume_times) == ("%DLQ%billing", 1)
    assert [store.broker.resend("billing").sent for _ in range(2)] == [1, 0]
    [again] = consumer.poll()
    assert (again.body, again.keys, again.reconsume_times) == (b"0", ["k"], 0)
    assert again.properties == {"KEYS": "k", "TAGS": "paid", "colour": "red"}
    consumer.ack(again)
    assert [store.broker.resend("billing", letters).sent for letters in (letter, [letter, letter])] == [1, 2]
    assert len(consumer.poll()) == 3
    with pytest.raises(ValueError, match="not a dead letter of group"):
        store.broker.resend("billing", again)


def test_a_damaged_dead_letter_is_named_and_the_others_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "letters"
    with mqstore.open(path, "x") as store:
        fill(store, 3)
        consumer = store.consumer("billing", "orders")
        for message in consumer.poll():
            consumer.nack(message, delay_level=-1)
        damaged = store.broker.dead_letters("billing").queues[0][1]
    segment = path / "commitlog" / f"{0:020}"
    with segment.open("r+b") as file:
        file.seek(damaged.physical_offset + 88)
        file.write(bytes([damaged.body[0] ^ 1]))
    with mqstore.open(path, "a") as store:
        for _ in range(2):
            with pytest.raises(mqstore.CorruptError):
                store.broker.resend("billing")
        assert store.broker.resend("billing", errors="skip").to_dict() == {"sent": 1, "skipped": ((0, 1),), "expired": 0}
        assert len(store.topics["orders"]) == 3 + 2


def test_reset_moves_a_group_and_its_consumers(store: mqstore.Writer) -> None:
    fill(store, 4, queues=2)
    consumer = store.consumer("billing", "orders")
    consumer.ack(consumer.poll())
    assert store.broker.reset("billing", "orders", "earliest") == {0: 0, 1: 0}
    assert sorted(numbers(consumer.poll())) == [0, 1, 2, 3]
    first = store.topics["orders"].queues[0][0]
    assert store.broker.reset("other", "orders", to=first.store_time) == {0: 0, 1: 0}
    assert store.broker.reset("other", "orders", "latest") == {0: 2, 1: 2}
    assert store.consumer("other", "orders").poll(timeout=0) == []
    with pytest.raises(mqstore.NotFoundError):
        store.broker.reset("billing", "absent", "latest")
    with pytest.raises(ValueError, match="newest"):
        store.broker.reset("billing", "orders", "newest")  # type: ignore[arg-type]
    with mqstore.open(store.path) as reader:
        for call in (lambda: reader.broker.reset("billing", "orders", "latest"), lambda: reader.broker.resend("billing")):
            with pytest.raises(TypeError, match="open for writing"):
                call()


def in_loop(store: mqstore.Writer, work: Callable[[mqstore.aio.Writer], Awaitable[_T]]) -> _T:
    async def main() -> _T:
        return await asyncio.wait_for(work(mqstore.aio.Writer(store)), 60)

    return asyncio.run(main())


def test_aio_consumer_polls_acknowledges_and_iterates(store: mqstore.Writer) -> None:
    fill(store, 40)

    async def work(tasks: mqstore.aio.Writer) -> list[int]:
        async with await tasks.consumer("billing", "orders", timeout=0.1) as consumer:
            first = await consumer.poll(2)
            assert (await consumer.ack(first), await consumer.lag()) == (2, 38)
            seen = []
            async for message in consumer:
                seen.append(int(message.body))
                await consumer.ack(message)
            await consumer.commit(durable=True)
            assert (consumer.group, consumer.topics, await consumer.committed()) == ("billing", ["orders"], {("orders", 0): 40})
        with pytest.raises(mqstore.ClosedError):
            await consumer.poll()
        return seen

    assert in_loop(store, work) == list(range(2, 40))


def test_aio_polls_that_wait_occupy_no_thread(store: mqstore.Writer) -> None:
    async def work(tasks: mqstore.aio.Writer) -> list[list[int]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        consumers = [await tasks.consumer(f"group-{number}", "orders") for number in range(20)]
        polls = [asyncio.create_task(consumer.poll(timeout=30)) for consumer in consumers]
        await asyncio.sleep(0.1)
        await tasks.append("orders", b"5")
        return [numbers(messages) for messages in await asyncio.gather(*polls)]

    assert in_loop(store, work) == [[5]] * 20


def test_cancelled_aio_poll_loses_no_message(store: mqstore.Writer) -> None:
    count = 60

    async def work(tasks: mqstore.aio.Writer) -> list[int]:
        consumer, seen = await tasks.consumer("billing", "orders"), []
        for number in range(count):
            await tasks.append("orders", b"%d" % number)
            poll = asyncio.create_task(consumer.poll(1))
            await asyncio.sleep(number % 4 * 0.0002)
            poll.cancel()
            with suppress(asyncio.CancelledError):
                seen += numbers(await poll)
        # A message that was taken and lost would come again only after consume_timeout.
        while len(seen) < count and (messages := await consumer.poll(timeout=1)):
            seen += numbers(messages)
        return sorted(seen)

    assert in_loop(store, work) == list(range(count))


def test_aio_poll_ends_at_its_timeout_and_at_the_close_of_the_store(store: mqstore.Writer) -> None:
    async def work(tasks: mqstore.aio.Writer) -> float:
        consumer = await tasks.consumer("billing", "orders")
        begun = time.monotonic()
        assert await consumer.poll(timeout=0.05) == []
        waited = time.monotonic() - begun
        with pytest.raises(ValueError, match="timeout"):
            await consumer.poll(timeout=-1)
        poll = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0.05)
        store.close()
        with pytest.raises(mqstore.ClosedError):
            await poll
        return waited

    assert 0.05 <= in_loop(store, work) < 5


def test_aio_seek_forgets_what_was_taken_from_the_queue(store: mqstore.Writer) -> None:
    fill(store, 5)

    async def work(tasks: mqstore.aio.Writer) -> list[int]:
        consumer = await tasks.consumer("billing", "orders")
        async for message in consumer:
            assert message.body == b"0"
            break
        await consumer.seek(0, 3)
        return numbers(await consumer.poll())

    assert in_loop(store, work) == [3, 4]


def test_a_deleted_group_keeps_no_message_and_begins_again(store: mqstore.Writer) -> None:
    store.append("orders", b"one")
    with store.consumer("billing", "orders") as consumer:
        consumer.ack(consumer.poll())
        with pytest.raises(ValueError, match="1 open consumers"):
            store.broker.delete_group("billing")
    store.broker.delete_group("billing")
    assert len(store.broker.groups()) == 0
    with pytest.raises(mqstore.NotFoundError, match="billing"):
        store.broker.delete_group("billing")
    with store.consumer("billing", "orders") as consumer:
        assert [message.body for message in consumer.poll()] == [b"one"]
