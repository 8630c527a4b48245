from __future__ import annotations

import random

import pytest

from mqstore.spark.source import (
    LEAST_PARTITION_BYTES,
    PARTITIONS_PER_CORE,
    TARGET_PARTITION_BYTES,
    QueueRange,
    pack,
    partition_count,
)


def some_queues(seed: int) -> list[QueueRange]:
    chance = random.Random(seed)
    queues = []
    for n in range(chance.randint(1, 40)):
        start, messages = chance.randint(0, 10**9), chance.randint(1, chance.choice([1, 10, 10_000]))
        queues.append(QueueRange(f"t{n}", n % 4, start, start + messages, messages * chance.choice([1, 91, 1000, 4 << 20])))
    return queues


def offsets(ranges: list[QueueRange]) -> list[tuple[str, int, int, int]]:
    """The ranges with neighbours that meet joined again."""
    joined: list[tuple[str, int, int, int]] = []
    for part in ranges:
        if joined and joined[-1][:2] == (part.topic, part.queue_id) and joined[-1][3] == part.start:
            joined[-1] = (part.topic, part.queue_id, joined[-1][2], part.stop)
        else:
            joined.append((part.topic, part.queue_id, part.start, part.stop))
    return joined


@pytest.mark.parametrize("seed", range(50))
def test_packing_loses_repeats_and_reorders_nothing(seed: int) -> None:
    queues = some_queues(seed)
    count = random.Random(seed).randint(1, 50)
    parts = pack(queues, count)
    assert offsets([part for parts_of_one in parts for part in parts_of_one]) == offsets(queues)
    assert len(parts) <= count
    assert all(part.start < part.stop for parts_of_one in parts for part in parts_of_one)
    assert sum(part.size_bytes for parts_of_one in parts for part in parts_of_one) == sum(queue.size_bytes for queue in queues)


@pytest.mark.parametrize("seed", range(50))
def test_no_partition_exceeds_its_share_by_more_than_one_message(seed: int) -> None:
    queues = some_queues(seed)
    count = random.Random(seed).randint(1, 50)
    share = sum(queue.size_bytes for queue in queues) / count
    largest = max(queue.size_bytes / (queue.stop - queue.start) for queue in queues)
    for part in pack(queues, count):
        assert sum(queue.size_bytes for queue in part) <= share + largest + len(part)


def test_a_big_queue_is_split_and_small_ones_share_a_partition() -> None:
    queues = [QueueRange("big", 0, 100, 1100, 1_000_000), *(QueueRange("small", n, 0, 1, 1000) for n in range(500))]
    parts = pack(queues, 3)
    assert [len(part) for part in parts] == [1, 1, 500]
    assert [(part[0].start, part[0].stop) for part in parts[:2]] == [(100, 600), (600, 1100)]


def test_nothing_packs_into_nothing() -> None:
    assert pack([], 0) == []
    assert partition_count(0, None, 8) == 0


def test_a_small_store_keeps_all_cores_busy_without_tiny_partitions() -> None:
    assert partition_count(1, None, 8) == 1
    assert partition_count(2 * LEAST_PARTITION_BYTES, None, 8) == 2
    assert partition_count(100 * LEAST_PARTITION_BYTES, None, 8) == 8


def test_a_large_store_makes_partitions_of_the_default_size_up_to_a_bound_by_cores() -> None:
    assert partition_count(20 * TARGET_PARTITION_BYTES + 1, None, 2) == 21
    assert partition_count(10_000 * TARGET_PARTITION_BYTES, None, 2) == 2 * PARTITIONS_PER_CORE


def test_a_given_size_is_kept_whatever_the_cores() -> None:
    assert partition_count(1_000_001, 1000, 2) == 1001
