"""Format "mqstore": scans the queues of a store, packed into Spark partitions of bounded size.

    spark.read.format("mqstore").option("topics", "orders,refunds").load("/data/store")

Options: path (or `load(path)`); topics (comma list; all by default); columns (comma list), or a schema of the wanted columns
by `.schema("queue_id int, body binary")`, because Spark does not tell a Python source which columns a query uses;
targetPartitionBytes (128 MiB); errors ("raise" fails at a message that was lost or is damaged, "skip" passes over it).

A job reads what the store held when the job was planned, or fails: when messages of that have expired since, and when another
store took its place. How many messages `errors=skip` passed over is what the queues span (`len(queue)`) less the rows; each
worker logs its own count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import mqstore
from mqstore._native import _checksums
from mqstore.spark._schema import check_message_schema, message_schema
from mqstore.spark._snapshot import Landmark, expect_landmarks
from mqstore.spark.resolve import BATCH_BYTES, log_skipped
from mqstore.spark.stores import plan

_ACCEPTED = ("path", "topics", "columns", "targetPartitionBytes", "errors")

# Unless targetPartitionBytes is given, a partition holds TARGET bytes, less where cores would idle (not below LEAST), and
# more where a store is so large that the driver would plan more than PARTITIONS_PER_CORE (a task costs some 30 ms).
TARGET_PARTITION_BYTES = 128 << 20
LEAST_PARTITION_BYTES = 4 << 20
PARTITIONS_PER_CORE = 32

_SIZE_SAMPLES = 16


@dataclass(frozen=True)
class ScanOptions:
    """The options of one load, checked."""

    path: str
    topics: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    target_partition_bytes: int | None
    errors: Literal["raise", "skip"]

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ScanOptions:
        """Names in any case, as Spark has them. ValueError says which option is wrong and what is accepted."""
        given = {name.lower(): value for name, value in options.items()}
        if "provider" in given:
            raise ValueError("Spark gives a Python source no options when it reads a table: use CREATE TEMPORARY VIEW")
        unknown = given.keys() - {name.lower() for name in _ACCEPTED}
        if unknown:
            raise ValueError(f"unknown option {', '.join(sorted(unknown))}; accepted are {', '.join(_ACCEPTED)}")
        if not given.get("path"):
            raise ValueError('path is missing: name the store directory by load("/path/of/the/store")')
        return cls(given["path"], _names(given, "topics"), _names(given, "columns"), _target(given), _errors(given))


def _names(given: Mapping[str, str], option: str) -> tuple[str, ...] | None:
    if option not in given:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in given[option].split(",")))
    if "" in names:
        raise ValueError(f"option {option} holds an empty name: {given[option]!r}; leave the option out for all {option}")
    return names


def _target(given: Mapping[str, str]) -> int | None:
    text = given.get("targetpartitionbytes")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError(f"targetPartitionBytes is a positive number of bytes, not {text!r}")
    return int(text)


def _errors(given: Mapping[str, str]) -> Literal["raise", "skip"]:
    match given.get("errors", "raise").lower():
        case "raise":
            return "raise"
        case "skip":
            return "skip"
        case other:
            raise ValueError(f'errors is "raise" or "skip", not {other!r}')


class MessageDataSource(DataSource):
    """What `spark.read.format("mqstore")` makes."""

    @classmethod
    def name(cls) -> str:
        return "mqstore"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._scan = ScanOptions.parse(options)

    def schema(self) -> StructType:
        return message_schema(self._scan.columns)

    def reader(self, schema: StructType) -> MessageReader:
        check_message_schema(schema)
        if self._scan.columns is not None and list(self._scan.columns) != schema.names:
            raise ValueError(
                f"option columns names {', '.join(self._scan.columns)}, but the schema has {', '.join(schema.names)}: "
                "give one of the two"
            )
        return MessageReader(self._scan, schema.names)


@dataclass(frozen=True)
class QueueRange:
    """Queue offsets start..stop of one queue, about how many bytes their records have, and the first and the last record."""

    topic: str
    queue_id: int
    start: int
    stop: int
    size_bytes: int
    landmarks: tuple[Landmark, ...] = ()


class QueueRanges(InputPartition):
    """One Spark partition."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


class MessageReader(DataSourceReader):
    """Plans a scan in Spark's planner process and runs its parts in the executors; between them it is pickled."""

    def __init__(self, scan: ScanOptions, columns: Sequence[str]) -> None:
        self._scan = scan
        self._columns = list(columns)
        (self._ref,) = plan(scan.path).values()

    def partitions(self) -> Sequence[InputPartition]:
        store = self._ref.open()
        ranges = measure(store, scanned_queues(store, self._scan.topics))
        total = sum(queue.size_bytes for queue in ranges)
        parts = pack(ranges, partition_count(total, self._scan.target_partition_bytes, len(os.sched_getaffinity(0))))
        # Spark makes a partition of its own, one that names no ranges, of an empty list.
        return [QueueRanges(part) for part in mark(store, parts)] or [QueueRanges(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueRanges)
        for part in partition.ranges:
            yield from self._messages(part)

    def _messages(self, part: QueueRange) -> Iterator[pa.RecordBatch]:
        """What was planned of one queue; StoreError if the store does not hold all of it any more."""
        store = self._ref.open()
        expect_landmarks(store, part.landmarks)
        messages = store.topics[part.topic].queues[part.queue_id][part.start : part.stop]
        batches = messages.batches(columns=self._columns, max_bytes=BATCH_BYTES, errors=self._scan.errors)
        rows = 0
        for batch in map(pa.record_batch, batches):
            self._ref.open()
            rows += batch.num_rows
            yield batch
        gone = part.stop - part.start - rows - batches.skipped
        if gone:
            raise mqstore.StoreError(
                f"{store.path}: {gone} of the {part.stop - part.start} messages that were planned to be read of "
                f"{part.topic}/{part.queue_id} from queue offset {part.start} on have expired since; start the job again"
            )
        log_skipped(batches, store.path)


def scanned_queues(store: mqstore.Store, wanted: Sequence[str] | None) -> list[mqstore.Queue]:
    """The queues to scan that hold messages. ValueError names a topic that is not there or whose queues cannot be read."""
    names = list(store.topics)
    missing = set(wanted or ()).difference(names)
    if missing:
        some = ", ".join(names[:20])
        raise ValueError(f"{store.path} has no topic {', '.join(sorted(missing))}; it has {len(names)} topics: {some}")
    found: list[mqstore.Queue] = []
    refused: dict[str, str] = {}
    for topic in names if wanted is None else wanted:
        try:
            named = store.topics[topic]
            found += [queue for queue in (named.queues[queue_id] for queue_id in named.queue_ids) if len(queue)]
        except mqstore.UnsupportedFormatError as error:
            refused[topic] = str(error)
    if refused:
        # Not UnsupportedFormatError: it is a NotImplementedError, which Spark takes for a reader without partitions.
        readable = ",".join(dict.fromkeys(queue.topic for queue in found))
        remedy = f'; the others are read with option("topics", "{readable}")' if readable else ""
        raise ValueError(f"cannot scan topic {', '.join(refused)}: {next(iter(refused.values()))}{remedy}")
    return found


def measure(store: mqstore.Store, queues: Sequence[mqstore.Queue]) -> list[QueueRange]:
    """All of these queues, their sizes estimated from a few of their entries."""
    ranges = [QueueRange(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset, 0) for queue in queues]
    samples = [
        (queue.topic, queue.queue_id, queue.start + (queue.stop - queue.start) * n // _SIZE_SAMPLES)
        for queue in ranges
        for n in range(_SIZE_SAMPLES)
    ]
    sizes = _resolve(store, samples, "store_size")
    return [
        replace(queue, size_bytes=_estimate(queue, sizes[n * _SIZE_SAMPLES : (n + 1) * _SIZE_SAMPLES]))
        for n, queue in enumerate(ranges)
    ]


def mark(store: mqstore.Store, parts: Sequence[Sequence[QueueRange]]) -> list[list[QueueRange]]:
    """The same, each range with its first and last record."""
    ranges = [queue for part in parts for queue in part]
    ends = [(queue.topic, queue.queue_id, offset) for queue in ranges for offset in (queue.start, queue.stop - 1)]
    offsets = _resolve(store, ends, "physical_offset")
    checksums = _checksums(store, [-1 if offset is None else offset for offset in offsets])
    found = list(zip(offsets, checksums, strict=True))
    marks = iter([_landmarks_of(found[n : n + 2]) for n in range(0, len(found), 2)])
    return [[replace(queue, landmarks=next(marks)) for queue in part] for part in parts]


def _landmarks_of(found: Sequence[tuple[int | None, int | None]]) -> tuple[Landmark, ...]:
    """Those that can be read."""
    return tuple((offset, checksum) for offset, checksum in found if offset is not None and checksum is not None)


def _resolve(store: mqstore.Store, references: Sequence[tuple[str, int, int]], column: str) -> list[int | None]:
    """One column of the positions of (topic, queue id, queue offset)."""
    if not references:
        return []
    columns = [list(values) for values in zip(*references, strict=True)]
    wanted = pa.RecordBatch.from_arrays(list(map(pa.array, columns)), names=["topic", "queue_id", "queue_offset"])
    found: list[int | None] = pa.record_batch(store.resolve_offsets(wanted)).column(column).to_pylist()
    return found


def _estimate(queue: QueueRange, sizes: Sequence[int | None]) -> int:
    found = [size for size in sizes if size is not None]
    return (queue.stop - queue.start) * max(1, sum(found) // max(1, len(found)))


def partition_count(total_bytes: int, target_bytes: int | None, cores: int) -> int:
    """How many partitions `total_bytes` make."""
    if target_bytes is not None:
        return -(-total_bytes // target_bytes)
    least = min(cores, -(-total_bytes // LEAST_PARTITION_BYTES))
    return max(least, min(-(-total_bytes // TARGET_PARTITION_BYTES), cores * PARTITIONS_PER_CORE))


def pack(ranges: Sequence[QueueRange], count: int) -> list[list[QueueRange]]:
    """Cut the ranges, one after the other, into at most `count` parts of about equal bytes; none is empty, none is lost."""
    total = sum(queue.size_bytes for queue in ranges)
    parts: list[list[QueueRange]] = [[] for _ in range(max(count, 1))]
    before = 0
    for queue in ranges:
        messages = queue.stop - queue.start
        at = 0
        while at < messages:
            # The part in which message `at` begins, and the first message that begins beyond that part.
            part = (before * messages + at * queue.size_bytes) * len(parts) // (total * messages)
            room = total * messages * (part + 1) - before * messages * len(parts)
            end = min(messages, -(-room // (queue.size_bytes * len(parts))))
            size = queue.size_bytes * end // messages - queue.size_bytes * at // messages
            parts[part].append(replace(queue, start=queue.start + at, stop=queue.start + end, size_bytes=size))
            at = end
        before += queue.size_bytes
    return [part for part in parts if part]
