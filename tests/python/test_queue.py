"""Topics and queues are mappings and sequences."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from encoder import EPOCH_MS, Encoder

import mqstore


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    return Encoder(tmp_path / "store")


@pytest.fixture
def store(encoder: Encoder) -> mqstore.Store:
    """Topic orders: queue 0 empty, queue 1 with queue offsets 0 to 199, queue 2 with one; topic other: one queue."""
    for number in range(200):
        encoder.append("orders", b"%d" % number, queue_id=1, store_time=EPOCH_MS + 10 * (number // 4))
    encoder.append("orders", queue_id=2)
    encoder.append("other")
    return mqstore.open(encoder.write())


@pytest.fixture
def queue(store: mqstore.Store) -> mqstore.Queue:
    return store.topics["orders"].queues[1]


def numbers(messages: Collection[mqstore.Message]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_topics_are_a_mapping(store: mqstore.Store) -> None:
    topics = store.topics
    assert isinstance(topics, Mapping)
    assert list(topics) == list(topics.keys()) == ["orders", "other"]
    assert len(topics) == 2
    assert "orders" in topics
    assert "nothing" not in topics
    assert 7 not in topics
    assert [topic.name for topic in topics.values()] == ["orders", "other"]
    assert [(name, topic.name) for name, topic in topics.items()] == [("orders", "orders"), ("other", "other")]
    assert topics.get("nothing") is None
    assert topics.get("nothing", 7) == 7
    assert topics.get("other").name == "other"
    with pytest.raises(KeyError, match="nothing"):
        topics["nothing"]


def test_queues_go_by_id_and_an_absent_id_is_an_empty_queue(store: mqstore.Store) -> None:
    queues = store.topics["orders"].queues
    assert isinstance(queues, Sequence)
    assert len(queues) == 3
    assert [len(queue) for queue in queues] == [0, 200, 1]
    assert [queue.queue_id for queue in reversed(queues)] == [2, 1, 0]
    assert (queues[0].min_offset, queues[0].max_offset, list(queues[0])) == (0, 0, [])
    assert queues[-1].queue_id == 2
    assert [queue.queue_id for queue in queues[::2]] == [0, 2]
    assert queues[1] in queues
    assert queues[1] not in store.topics["other"].queues
    assert queues.index(queues[2]) == 2
    assert queues.count(queues[2]) == 1
    for outside in (3, -4, 10**6):
        with pytest.raises(IndexError):
            queues[outside]


def test_a_queue_is_indexed_by_queue_offset(queue: mqstore.Queue) -> None:
    assert isinstance(queue, Collection)
    assert (queue.topic, queue.queue_id, queue.min_offset, queue.max_offset, len(queue)) == ("orders", 1, 0, 200, 200)
    assert queue[100].body == b"100"
    assert queue[-1].body == b"199"
    assert queue[-200].body == b"0"
    for outside in (200, -201, 10**9, -(10**9), 10**30, -(2**63)):
        with pytest.raises(IndexError):
            queue[outside]
    with pytest.raises(TypeError):
        queue["7"]
    with pytest.raises(TypeError):
        queue[1.0]


def test_a_queue_that_starts_late_counts_negative_from_its_end(encoder: Encoder) -> None:
    for _ in range(10):
        encoder.append("orders", b"x" * 3000)
    path = encoder.write()
    (path / "commitlog" / f"{0:020}").unlink()
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        assert (queue.min_offset, queue.max_offset, len(queue)) == (5, 10, 5)
        assert numbers(queue) == [5, 6, 7, 8, 9]
        assert numbers(list(reversed(queue))) == [9, 8, 7, 6, 5]
        assert queue[-5].queue_offset == 5
        assert numbers(queue[0:7]) == [5, 6]
        for outside in (0, 4, -6):
            with pytest.raises(IndexError, match="5 to 10"):
                queue[outside]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, range(200)),
        (100, 110, range(100, 110)),
        (-5, None, range(195, 200)),
        (None, -195, range(5)),
        (-(10**30), 3, range(3)),
        (198, 10**30, range(198, 200)),
        (50, 20, range(0)),
        (500, 600, range(0)),
        (-500, -300, range(0)),
    ],
)
def test_a_slice_is_clipped_as_a_lists(queue: mqstore.Queue, start: int | None, stop: int | None, expected: range) -> None:
    assert numbers(queue[start:stop]) == list(expected) == list(range(200))[start:stop]
    assert len(queue[start:stop]) == len(expected)


def test_a_slice_is_a_sequence_of_its_own(queue: mqstore.Queue) -> None:
    part = queue[100:150]
    assert isinstance(part, Collection)
    assert (part.start, part.stop, len(part)) == (100, 150, 50)
    assert part[0].queue_offset == 100
    assert part[-1].queue_offset == 149
    assert numbers(part[10:12]) == [110, 111]
    assert (part[10:].start, part[:-10].stop, part[45:99].stop) == (110, 140, 150)
    assert numbers(list(reversed(part)))[:2] == [149, 148]
    assert queue[120] in part
    assert queue[150] not in part
    assert part.index(queue[120]) == 20
    assert part.count(queue[150]) == 0
    for outside in (50, -51, 10**30):
        with pytest.raises(IndexError):
            part[outside]


def test_a_message_is_found_in_its_queue_only(store: mqstore.Store, queue: mqstore.Queue) -> None:
    assert queue[7] in queue
    assert queue.index(queue[7]) == 7
    assert queue[7] not in store.topics["orders"].queues[2]
    assert store.topics["other"].queues[0][0] not in queue
    assert None not in queue
    with pytest.raises(ValueError, match="not here"):
        queue.index(store.topics["other"].queues[0][0])
    with pytest.raises(ValueError, match="not here"):
        queue.index(queue[7], 8)


@pytest.mark.parametrize("step", [2, -1, 0])
def test_another_step_than_1_is_refused(queue: mqstore.Queue, step: int) -> None:
    with pytest.raises(ValueError, match="step"):
        queue[::step]
    with pytest.raises(ValueError, match="step"):
        queue[:10][::step]
    assert len(queue[::1]) == 200


def test_a_missing_segment_is_an_error_and_not_a_gap(encoder: Encoder) -> None:
    for _ in range(15):
        encoder.append("orders", b"x" * 3000)
    path = encoder.write()
    (path / "commitlog" / f"{16384:020}").unlink()
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        assert len(queue) == 15
        assert numbers(queue[:5]) == [0, 1, 2, 3, 4]
        assert numbers(queue[10:]) == [10, 11, 12, 13, 14]
        for offset in range(5, 10):
            with pytest.raises(mqstore.CorruptError, match="segment is missing"):
                queue[offset]
        with pytest.raises(mqstore.CorruptError):
            list(queue)
        messages = iter(queue)
        assert numbers([next(messages) for _ in range(5)]) == [0, 1, 2, 3, 4]
        for _ in range(5):
            with pytest.raises(mqstore.CorruptError):
                next(messages)
        assert numbers(messages) == [10, 11, 12, 13, 14]


def test_messages_of_expired_segments_are_not_found(encoder: Encoder) -> None:
    for _ in range(15):
        encoder.append("orders", b"x" * 3000)
    path = encoder.write()
    (path / "commitlog" / f"{0:020}").unlink()
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        assert (queue.min_offset, queue.max_offset) == (5, 15)
        assert numbers(queue) == list(range(5, 15))
        with pytest.raises(LookupError):
            queue[4]


def test_queues_are_equal_within_one_open_store(store: mqstore.Store, encoder: Encoder) -> None:
    queue = store.topics["orders"].queues[1]
    assert queue == store.topics["orders"].queues[1]
    assert len({queue, store.topics["orders"].queues[1]}) == 1
    assert queue != store.topics["orders"].queues[2]
    with mqstore.open(encoder.path) as again:
        assert queue != again.topics["orders"].queues[1]


def test_offset_at_is_bisection_by_store_time(queue: mqstore.Queue) -> None:
    times = [EPOCH_MS + 10 * (number // 4) for number in range(200)]
    for ms in range(EPOCH_MS - 5, EPOCH_MS + 510):
        assert queue.offset_at(ms) == sum(time < ms for time in times)
        assert queue.offset_at(ms, side="right") == sum(time <= ms for time in times)
    assert queue.offset_at(0) == 0
    assert queue.offset_at(-1) == 0
    assert queue.offset_at(2**63 - 1) == 200


def test_offset_at_takes_any_timezone_and_rounds_to_no_wrong_ms(queue: mqstore.Queue) -> None:
    exact = datetime.fromtimestamp(EPOCH_MS / 1000, UTC) + timedelta(milliseconds=10)
    for zone in (UTC, timezone(timedelta(hours=-7, minutes=-30))):
        assert queue.offset_at(exact.astimezone(zone)) == 4
        assert queue.offset_at(exact.astimezone(zone), "right") == 8
    after = timedelta(microseconds=1)
    assert (queue.offset_at(exact + after), queue.offset_at(exact + after, "right")) == (8, 8)
    assert (queue.offset_at(exact - after), queue.offset_at(exact - after, "right")) == (4, 4)


def test_offset_at_refuses_what_is_no_time(queue: mqstore.Queue) -> None:
    with pytest.raises(ValueError, match="timezone"):
        queue.offset_at(datetime(2026, 1, 1))
    with pytest.raises(TypeError, match="datetime"):
        queue.offset_at("2026-01-01")
    with pytest.raises(TypeError):
        queue.offset_at(1.5)
    with pytest.raises(ValueError, match="side"):
        queue.offset_at(0, side="middle")


def test_iterating_from_several_threads_gives_every_message_once(queue: mqstore.Queue) -> None:
    shared = iter(queue)
    seen: list[list[int]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda own=own: own.extend(message.queue_offset for message in shared)) for own in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(itertools.chain(*seen)) == list(range(200))


def test_reprs_say_what_it_is_in_one_line(store: mqstore.Store, queue: mqstore.Queue) -> None:
    shown = [repr(store.topics), repr(store.topics["orders"]), repr(store.topics["orders"].queues), repr(queue), repr(queue[3:5])]
    assert shown == [
        "<mqstore.Topics 2: orders, other>",
        '<mqstore.Topic "orders">',
        '<mqstore.Queues of "orders": 3>',
        "<mqstore.Queue orders/1 0..200>",
        "<mqstore.QueueSlice orders/1[3:5]>",
    ]


def test_queue_ids_are_those_that_are_there(encoder: Encoder) -> None:
    for queue in (7, 0, 3):
        encoder.append("orders", b"x", queue_id=queue)
    with mqstore.open(encoder.write()) as store:
        orders = store.topics["orders"]
        assert orders.queue_ids == [0, 3, 7]
        assert len(orders.queues) == 8
