from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql.datasource import EqualTo

import mqstore
from mqstore.spark import _snapshot, manifest
from mqstore.spark._options import ScanOptions
from mqstore.spark._partitions import (
    LEAST_PARTITION_BYTES,
    TARGET_PARTITION_BYTES,
    QueueRange,
    QueueRanges,
    Stretch,
    pack,
    partition_count,
    quantiles,
)
from mqstore.spark.source import MessageDataSource, MessageReader, PushingReader


def some_queues(seed: int) -> list[QueueRange]:
    chance = random.Random(seed)
    queues = []
    for n in range(chance.randint(1, 40)):
        start, messages = chance.randint(0, 10**9), chance.randint(1, chance.choice([1, 10, 10_000]))
        queues.append(QueueRange(f"t{n}", n % 4, start, start + messages, messages * chance.choice([1, 91, 1000, 4 << 20])))
    return queues


def offsets(ranges: list[QueueRange]) -> list[tuple[str, int, int, int]]:
    """Joins adjacent ranges."""
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


def count(size_bytes: int, messages: int = 0, *, cores: int = 2, **options: str) -> int:
    with mock.patch("os.sched_getaffinity", return_value=range(cores)):
        return partition_count(size_bytes, messages, ScanOptions.parse({"path": "/s", **options}))


def test_a_small_store_keeps_all_cores_busy_without_tiny_partitions() -> None:
    assert count(1, cores=8) == 1
    assert count(2 * LEAST_PARTITION_BYTES, cores=8) == 2
    assert count(100 * LEAST_PARTITION_BYTES, cores=8) == 8


def test_a_large_store_makes_partitions_of_the_default_size_however_many() -> None:
    assert count(20 * TARGET_PARTITION_BYTES + 1) == 21
    assert count(10 << 40) == 40960


def test_a_given_size_does_not_depend_on_the_cores() -> None:
    assert count(1_000_001, targetPartitionBytes="1000") == 1001


def test_more_partitions_are_made_if_asked_for() -> None:
    assert count(1000, minPartitions="7") == 7
    assert count(1000, 100, maxRecordsPerPartition="30") == 4


def test_quantiles_cut_weights_into_about_equal_parts() -> None:
    chance = random.Random(3)
    weights = sorted((chance.randint(0, 10**6), chance.randint(1, 100)) for _ in range(1000))
    ends = quantiles(weights, 10)
    parts = Counter(sum(offset >= end for end in ends) for offset, weight in weights for _ in range(weight))
    assert len(parts) == 10
    assert max(parts.values()) < 1.1 * min(parts.values())


def planned(path: Path, **options: str) -> tuple[MessageReader, list[Stretch | QueueRanges]]:
    source = MessageDataSource({"path": str(path), **options})
    reader = source.reader(source.schema())
    return reader, list(reader.partitions())  # type: ignore[arg-type]


def rows(reader: MessageReader, parts: list[Stretch | QueueRanges]) -> list[list[dict[str, object]]]:
    return [[row for batch in reader.read(part) for row in batch.to_pylist()] for part in parts]


def test_a_scan_of_all_is_cut_into_stretches_of_the_log(events_store: Path) -> None:
    reader, parts = planned(events_store, targetPartitionBytes="500000", columns="physical_offset,store_size,tags")
    assert len(parts) > 5
    each = rows(reader, parts)
    offsets = [row["physical_offset"] for part in each for row in part]
    assert len(offsets) == 7865
    assert offsets == sorted(offsets)
    assert all(sum(row["store_size"] for row in part) < 520_000 for part in each)


def test_a_scan_of_a_topic_is_cut_where_its_messages_lie(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        for number in range(3000):
            # The wanted messages are in the second half.
            store.append("wanted" if number > 1500 and number % 5 == 0 else "other", bytes(1000), queue_id=number % 3)
    reader, parts = planned(tmp_path / "s", targetPartitionBytes="40000", columns="body", topics="wanted")
    sizes = [len(part) for part in rows(reader, parts)]
    assert sum(sizes) == 300 - 1
    assert len(sizes) == pytest.approx(299 * 1100 / 40000, rel=0.3)
    assert max(sizes) < 2 * 40000 / 1000


def test_columns_that_queues_know_are_read_from_the_queues(events_store: Path) -> None:
    columns = ["topic", "queue_id", "queue_offset", "physical_offset", "store_size"]
    reader, parts = planned(events_store, columns=",".join(columns))
    assert all(isinstance(part, QueueRanges) for part in parts)
    by_log, stretches = planned(events_store, columns=",".join([*columns, "tags"]))
    assert all(isinstance(part, Stretch) for part in stretches)
    expected = [{name: row[name] for name in columns} for part in rows(by_log, stretches) for row in part]
    found = [row for part in rows(reader, parts) for row in part]
    assert sorted(found, key=lambda row: row["physical_offset"]) == expected


def test_a_store_that_only_executors_see_is_planned_by_its_manifest(events_store: Path) -> None:
    options = {"manifests": json.dumps({"": manifest(events_store)}), "columns": "queue_id", "targetPartitionBytes": "1000000"}
    with mock.patch("os.path.exists", return_value=False):
        reader, parts = planned(events_store, **options)
    assert all(isinstance(part, Stretch) for part in parts)
    assert len(parts) > 3
    assert sum(map(len, rows(reader, parts))) == 7865


def test_the_manifests_of_several_paths_bound_what_is_read(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        with mqstore.open(path, "a", mapped_file_size_commit_log=65536) as store:
            store.append("t", b"planned")
    known = {path: manifest(path) for path in paths}
    with mqstore.open(paths[0], "a") as store:
        store.append("t", b"later")
    source = MessageDataSource({"paths": json.dumps(paths), "manifests": json.dumps(known), "columns": "body"})
    reader = source.reader(source.schema())
    found: list[Stretch | QueueRanges] = list(reader.partitions())  # type: ignore[arg-type]
    assert rows(reader, found) == [[{"body": b"planned"}]] * 2
    with pytest.raises(ValueError, match='option manifests names .*, but one store without a broker has the name ""'):
        planned(tmp_path / "a", manifests=json.dumps(known))


def test_a_read_of_all_topics_equals_a_store_scan_without_queues(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", "a", mapped_file_size_commit_log=65536) as store:
        store.append_batch([(topic, b"x" * 400, None, None, None, n % 2) for n in range(200) for topic in ("deleted", "kept")])
    # As a broker deletes a topic. The stamp of mqstore in the checkpoint would restore the queues.
    shutil.rmtree(tmp_path / "s" / "consumequeue" / "deleted")
    with (tmp_path / "s" / "checkpoint").open("r+b") as checkpoint:
        checkpoint.truncate(24)
        checkpoint.truncate(4096)
    with mqstore.open(tmp_path / "s") as store:
        assert list(store.topics) == ["kept"]
        scanned = [store.scan(queue_ids=queues, columns=["body"]).to_arrow().num_rows for queues in (None, 1)]
    assert scanned == [400, 200]
    asked: list[tuple[dict[str, str], int]] = [
        ({}, 400),
        ({"maxRecordsPerPartition": "7"}, 400),
        ({"queueIds": "1"}, 200),
        ({"topics": "kept"}, 200),
    ]
    for options, expected in asked:
        reader, parts = planned(tmp_path / "s", columns="body,topic", **options)
        assert sum(map(len, rows(reader, parts))) == expected
    source = MessageDataSource({"path": str(tmp_path / "s"), "pushdown": "true", "columns": "topic,body"})
    for topic in ("deleted", "kept"):
        pushing = source.reader(source.schema())
        assert isinstance(pushing, PushingReader)
        assert list(pushing.pushFilters([EqualTo(("topic",), topic)])) == []
        pushed: list[Stretch | QueueRanges] = list(pushing.partitions())  # type: ignore[arg-type]
        assert sum(map(len, rows(pushing, pushed))) == 200
    with pytest.raises(ValueError, match="there is no topic deleted; .*: kept; read all topics to find"):
        planned(tmp_path / "s", topics="deleted")


def test_each_message_of_many_queues_is_planned_once(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "s", mode="x") as store:
        store.append_batch([(f"t{n % 10}", b"x", None, None, None, n // 10 % 20) for n in range(1000)])
    for options in ({"columns": "body"}, {"columns": "queue_id"}, {"topics": ",".join(f"t{n}" for n in range(10))}):
        reader, parts = planned(tmp_path / "s", **options)
        assert sum(map(len, rows(reader, parts))) == 1000


def test_a_process_opens_a_store_once_to_plan_and_read_it(events_store: Path) -> None:
    with mock.patch("mqstore.spark._snapshot.mqstore.open", side_effect=mqstore.open) as opened:
        _snapshot._cache.clear()
        reader, parts = planned(events_store, topics="docs", targetPartitionBytes="100000")
        rows(reader, parts)
    assert opened.call_count == 1


def read_calls() -> dict[str, int]:
    """Returns the counters of read calls and bytes of this process, without reads through mappings."""
    return {name: int(number) for name, number in (line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())}


def resident_bytes(folder: Path) -> int:
    """Returns the resident bytes of mapped files below a path."""
    found, is_inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_inside = f" {folder}/" in line
        elif is_inside and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


def test_a_plan_reads_each_queue_twice_and_hardly_any_of_the_log(tmp_path: Path) -> None:
    path, queues = tmp_path / "s", 2000
    with mqstore.open(path, mode="x", mapped_file_size_consume_queue=4000) as store:
        for topic in range(queues // 8):
            store.append_batch([(f"t{topic}", bytes(5000), None, None, None, queue) for queue in range(8)])
    half = ",".join(f"t{topic}" for topic in range(queues // 16))
    for options in ({"columns": "body"}, {"columns": "queue_id"}, {"topics": half}, {"maxRecordsPerPartition": "100"}):
        _snapshot._cache.clear()
        before = read_calls()
        planned(path, **options)
        after = read_calls()
        assert after["syscr"] - before["syscr"] < 2.05 * queues, options
        assert after["rchar"] - before["rchar"] < 4096 * queues, options
        # The log has 10 MiB.
        assert resident_bytes(path / "commitlog") < 1 << 20, options
