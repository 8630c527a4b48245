"""Topics that a writer creates: their settings, and appends that follow them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import mqstore
import mqstore.aio


def java_hash(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (value * 31 + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def queue_of(key: str, queues: int) -> int:
    """The queue that `SelectMessageQueueByHash` of RocketMQ's client chooses."""
    # The remainder of Java has the sign of the hash.
    return abs(java_hash(key)) % queues


def written(store: mqstore.Store, topic: str) -> dict[str, object]:
    """The entry of a topic in the file."""
    settings = json.loads(Path(store.path, "config", "topics.json").read_text())
    entry: dict[str, object] = settings["topicConfigTable"][topic]
    return entry


def test_a_created_topic_is_listed_and_binds_appends(store: mqstore.Writer) -> None:
    store.create_topic("orders", queues=2, message_type="FIFO")
    (row,) = store.broker.topic_configs()
    assert (row.topic, row.read_queue_nums, row.write_queue_nums, row.perm) == ("orders", 2, 2, 6)
    assert dict(row.attributes) == {"message.type": "FIFO"}
    store.append("orders", b"x", sharding_key="k")
    with pytest.raises(
        mqstore.IllegalMessageError, match="takes messages of type FIFO, and this one is of type NORMAL"
    ) as raised:
        store.append("orders", b"x")
    assert (raised.value.status, raised.value.stored) == ("MESSAGE_ILLEGAL", 0)
    with pytest.raises(mqstore.IllegalMessageError, match='queue_id is 2: topic "orders" has 2 queues'):
        store.append_nowait("orders", b"x", queue_id=2, properties={"__SHARDINGKEY": "k"})
    with pytest.raises(mqstore.IllegalMessageError, match="message 1: queue_id is 2"):
        store.append_batch([("orders", b"x", None, None, {"__SHARDINGKEY": "k"}, at) for at in (1, 2)])
    store.create_topic("orders", queues=2, perm=4)
    with pytest.raises(mqstore.IllegalMessageError, match="without the permission to write"):
        store.append("orders", b"x", sharding_key="k")
    assert len(store.topics["orders"]) == 1


def test_settings_that_no_broker_takes_are_refused(store: mqstore.Writer) -> None:
    for wrong, error in (
        ({"queues": 0}, "queues is 0: expected 1 to 65536"),
        ({"perm": 1}, "perm is 1"),
        ({"message_type": "fifo"}, 'message_type is "fifo": expected one of UNSPECIFIED, NORMAL'),
    ):
        with pytest.raises(ValueError, match=error):
            store.create_topic("orders", **wrong)
    with pytest.raises(TypeError, match="order is True or False, not 1"):
        store.create_topic("orders", order=1)  # type: ignore[arg-type]
    for name in ("", "a b", "TBW102"):
        with pytest.raises(ValueError, match="topic"):
            store.create_topic(name)
    store.close()
    with pytest.raises(mqstore.ClosedError):
        store.create_topic("orders")


def test_a_sharding_key_chooses_the_queue_in_every_way_to_append(store: mqstore.Writer) -> None:
    store.create_topic("orders", queues=5)
    keys = [f"order-{number}" for number in range(20)] + ["é", "日本", "polygenelubricants"]
    for key in keys:
        store.append("orders", key.encode(), sharding_key=key)
        store.append_nowait("orders", key.encode(), sharding_key=key).result()
    store.append_batch([{"topic": "orders", "body": key.encode(), "sharding_key": key} for key in keys])
    table = pa.table({"body": [key.encode() for key in keys], "sharding_key": keys})
    store.append_batch(table, "orders")
    store.append_batch(table.append_column("delay_level", pa.array([0] * len(keys))), "orders", queue_id="next")

    async def in_a_loop() -> None:
        tasks = mqstore.aio.Writer(store)
        for key in keys:
            await tasks.append("orders", key.encode(), sharding_key=key)

    asyncio.run(in_a_loop())
    found: Counter[tuple[str, int]] = Counter()
    for message in store.topics["orders"]:
        key = bytes(message.body).decode()
        assert message.properties == {"__SHARDINGKEY": key}
        found[key, message.queue_id] += 1
    assert found == {(key, queue_of(key, 5)): 6 for key in keys}


def test_queues_take_turns_on_request(store: mqstore.Writer) -> None:
    store.create_topic("orders", queues=3)
    for _ in range(4):
        store.append("orders", b"x", queue_id="next")
    store.append_batch([b"x"] * 5, "orders", queue_id="next")
    store.append_batch([("orders", b"own", None, None, None, 2), ("orders", b"x")], queue_id="next")
    assert [len(queue) for queue in store.topics["orders"].queues] == [4, 3, 4]
    store.append("orders", b"x")
    assert len(store.topics["orders"].queues[0]) == 5, "queue 0 without a request"


def test_a_choice_without_queues_or_with_two_choices_is_refused(store: mqstore.Writer) -> None:
    store.append("grown", b"x", queue_id=3)
    for append in (store.append, store.append_nowait):
        for choice in ({"sharding_key": "k"}, {"queue_id": "next"}):
            with pytest.raises(mqstore.IllegalMessageError, match="create the topic first") as raised:
                append("grown", b"x", **choice)  # type: ignore[arg-type]
            assert raised.value.stored == 0
    with pytest.raises(ValueError, match="both choose the queue"):
        store.append("grown", b"x", queue_id=0, sharding_key="k")
    with pytest.raises(TypeError, match="queue_id is an int, not str"):
        store.append("grown", b"x", queue_id="last")  # type: ignore[arg-type]
    store.create_topic("orders")
    for row in ({"body": b"x", "queue_id": 1, "sharding_key": "k"}, {"body": b"x", "sharding_key": "k"}):
        with pytest.raises(ValueError, match="both choose the queue"):
            store.append_batch([row], "orders", queue_id=1)
    with pytest.raises(mqstore.IllegalMessageError, match="message 1: .*create the topic first"):
        store.append_batch(pa.table({"topic": ["orders", "grown"], "body": [b"x"] * 2, "sharding_key": ["k"] * 2}))
    with pytest.raises(mqstore.IllegalMessageError, match="__SHARDINGKEY"):
        store.append("orders", b"x", sharding_key="")
    assert len(store.topics) == 1


def test_eight_threads_keep_each_sharding_key_in_one_queue_in_order(store: mqstore.Writer) -> None:
    store.create_topic("orders", queues=8)
    ready = threading.Barrier(8)

    def appends(thread: int) -> None:
        ready.wait()
        for turn in range(3):
            for number in range(1000):
                key = f"{thread}-{number}"
                store.append("orders", f"{key} {turn}".encode(), sharding_key=key)

    threads = [threading.Thread(target=appends, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    turns: dict[str, list[tuple[int, str]]] = {}
    for queue in store.topics["orders"].queues:
        for message in queue:
            key, turn = bytes(message.body).decode().split()
            turns.setdefault(key, []).append((message.queue_id, turn))
    assert len(turns) == 8000
    for key, seen in turns.items():
        assert seen == [(queue_of(key, 8), turn) for turn in "012"], key


def test_a_close_writes_the_topics_of_a_plain_writer(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", mapped_file_size_commit_log=1 << 16) as store:
        store.append("orders", b"x", queue_id=3)
        store.append("payments", b"x", delay_level=2)
        with pytest.raises(mqstore.NotFoundError):
            store.broker.topic_configs()
    with mqstore.open(tmp_path) as reader:
        queues = {row.topic: row.read_queue_nums for row in reader.broker.topic_configs()}
        assert queues == {"SCHEDULE_TOPIC_XXXX": 18, "orders": 4}
        assert written(reader, "orders")["mqstoreGrows"] is True
    with mqstore.open(tmp_path, "r+") as store:
        store.append("orders", b"x", queue_id=9)
        store.create_topic("orders", queues=4)
        store.append("orders", b"x", queue_id=9)
        with pytest.raises(mqstore.IllegalMessageError):
            store.append("orders", b"x", queue_id=10)
        assert "mqstoreGrows" not in written(store, "orders")
        assert (written(store, "orders")["readQueueNums"], written(store, "orders")["writeQueueNums"]) == (10, 4)


def test_a_damaged_file_of_topics_stops_no_append_and_stays(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", mapped_file_size_commit_log=1 << 16) as store:
        store.append("orders", b"x")
    file = tmp_path / "config" / "topics.json"
    file.write_text("{")
    with mqstore.open(tmp_path, "a") as store:
        store.append("payments", b"x", queue_id=1)
        with pytest.raises(mqstore.CorruptError, match="topics.json"):
            store.create_topic("orders")
    assert file.read_text() == "{"


def test_groups_are_listed(tmp_path: Path) -> None:
    with mqstore.open(tmp_path, "a", mapped_file_size_commit_log=1 << 16) as store:
        store.append("orders", b"x")
        with pytest.raises(mqstore.NotFoundError, match="subscriptionGroup.json does not exist"):
            store.broker.group_configs()
    settings = {"subscriptionGroupTable": {"g": {"groupName": "g", "retryMaxTimes": 3, "consumeEnable": True}}}
    (tmp_path / "config" / "subscriptionGroup.json").write_text(json.dumps(settings))
    with mqstore.open(tmp_path) as reader:
        (group,) = reader.broker.group_configs()
        assert (group.group, group.retry_max_times, group.consume_enable, group.retry_queue_nums) == ("g", 3, True, None)

        async def in_a_loop() -> int:
            return len(await mqstore.aio.Store(reader).broker.group_configs())

        assert asyncio.run(in_a_loop()) == 1


def test_settings_of_a_group_bind_its_consumers(tmp_path: Path) -> None:
    fields = {"twice": {"retryMaxTimes": 2, "retryQueueNums": 2}, "off": {"consumeEnable": False}, "none": {"retryQueueNums": 0}}
    with mqstore.open(tmp_path, "a") as store:
        for times in range(4):
            store.append("orders", b"%d" % times, reconsume_times=times)
    (tmp_path / "config" / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": fields}))
    with mqstore.open(tmp_path, "a") as store:
        for group, reason in (("off", "consumeEnable is false"), ("none", "retryQueueNums is 0")):
            with pytest.raises(ValueError, match=f"{reason}: change that in config/subscriptionGroup.json"):
                store.consumer(group, "orders")
        for stated, dead in ((None, [b"2", b"3"]), (3, [b"2", b"3", b"3"])):
            with store.consumer("twice", "orders", max_reconsume_times=stated) as consumer:
                for message in consumer.poll(timeout=10):
                    consumer.nack(message, delay_level=18)
            assert [letter.body for letter in store.broker.dead_letters("twice")] == dead
            store.broker.reset("twice", "orders", "earliest")
        waiting = [message.properties["REAL_QID"] for message in store.topics["SCHEDULE_TOPIC_XXXX"].queues[17]]
        assert waiting == ["0", "1", "0", "1", "0"]


def test_consumer_of_an_ordered_topic_waits_for_a_failed_message(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.create_topic("steps", queues=1, order=True)
        for body in (b"a", b"b"):
            store.append("steps", body)
        with store.consumer("billing", "steps") as consumer:
            first, _ = consumer.poll()
            assert consumer.nack(first)
            assert consumer.poll(timeout=0) == []
            assert [message.body for message in consumer.poll(timeout=10)] == [b"a", b"b"]
        with store.consumer("shipping", "steps", ordered=False) as consumer:
            assert consumer.nack(consumer.poll(1)[0])
            assert [message.body for message in consumer.poll(timeout=0)] == [b"b"]
