"""Input splits of a batch: stretches of the log, or ranges of queues if queue entries have all wanted columns."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

import mqstore
from mqstore.spark._conditions import ALWAYS, Conditions, Interval, intersection
from mqstore.spark._options import ScanOptions
from mqstore.spark._positions import QueueName, ends_before, positions_of
from mqstore.spark._snapshot import Snapshot
from mqstore.spark._subscription import LIGHT_QUEUE_PREFIX

#: The default of targetPartitionBytes. A small read has smaller partitions, of at least LEAST, to use all cores.
TARGET_PARTITION_BYTES = 256 << 20
LEAST_PARTITION_BYTES = 4 << 20

# Bytes of a queue entry.
_ENTRY_BYTES = 20
# The sample size for the estimate of message sizes: entries of a queue, and of all queues.
_SAMPLES, _ALL_SAMPLES = 16, 32_768


@dataclass(frozen=True)
class QueueRange:
    """A half-open range of queue offsets of one queue, with an estimate of the bytes that a task reads for it."""

    topic: str
    queue_id: int
    start: int
    stop: int
    size_bytes: int = 0


class Stretch(InputPartition):
    """An input split: the records of a store that start in a range of physical offsets."""

    def __init__(self, broker: str | None, physical: Interval) -> None:
        super().__init__(None)
        self.broker = broker
        self.physical = physical


class QueueRanges(InputPartition):
    """An input split: ranges of queue entries of a store."""

    def __init__(self, broker: str | None, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.broker = broker
        self.ranges = tuple(ranges)


@dataclass(frozen=True)
class PlannedStore:
    """A store in a plan: its snapshot and topics."""

    snapshot: Snapshot
    topics: tuple[str, ...] | None
    """The requested topics that have queues; None if only a read of the log shows which topics exist."""
    are_named: bool
    """True if options name topics. Topics without queues are then not searched for in the log."""
    is_local: bool
    """True if the driver sees the files of the store, not only its manifest."""

    @classmethod
    def of(cls, snapshot: Snapshot, wanted: frozenset[str] | None) -> PlannedStore:
        """Plans a store. Its topics are known if this process sees its files."""
        if not os.path.exists(snapshot.path):
            return cls(snapshot, None, wanted is not None, is_local=False)
        store = snapshot.open()
        if not _has_queue_files(store):
            return cls(snapshot, None, wanted is not None, is_local=True)
        is_wanted = (lambda name: not name.startswith(LIGHT_QUEUE_PREFIX)) if wanted is None else wanted.__contains__
        return cls(snapshot, tuple(filter(is_wanted, store.topics)), wanted is not None, is_local=True)

    def queues_lead_to_all(self, conditions: Conditions) -> bool:
        """True if the queues cover all wanted messages. The log may have messages of topics whose queues were removed."""
        if self.topics is None or conditions.topics is None:
            return False
        return self.are_named or conditions.topics.issubset(self.topics)

    def wanted(self, conditions: Conditions) -> tuple[str, ...]:
        """Returns the topics with queues that meet the conditions."""
        return tuple(name for name in self.topics or () if conditions.topics is None or name in conditions.topics)


def expect_topics(stores: Iterable[PlannedStore], wanted: frozenset[str]) -> None:
    """Raises ValueError for a wanted topic that has no queues in any store."""
    missing, some = set(wanted), ""
    for planned in stores:
        if planned.topics is None:
            return
        missing.difference_update(planned.topics)
        names = list(planned.snapshot.open().topics) if missing else []
        some += f"; {planned.snapshot.path} has {len(names)} topics: {', '.join(names[:20])}"
    if missing:
        unknown = ", ".join(sorted(missing))
        raise ValueError(f"there is no topic {unknown}{some}; read all topics to find messages of topics without queues")


def _has_queue_files(store: mqstore.Store) -> bool:
    """True if the queues of the store are files, not a RocksDB database."""
    try:
        store.get("", 0, 0)
    except mqstore.UnsupportedFormatError:
        return False
    return True


def plan_partitions(
    stores: Sequence[PlannedStore], options: ScanOptions, conditions: Conditions, by_entry: bool
) -> list[InputPartition]:
    """Returns input splits that together have each wanted message of each store once."""
    if conditions.match_nothing:
        return []
    shares = [_Share.of(planned, conditions, options, by_entry) for planned in stores]
    total = sum(share.size_bytes for share in shares)
    parts: list[InputPartition] = []
    for share in shares:
        part_of_all = share.size_bytes / total if total else 0
        parts += share.cut(partition_count(share.size_bytes, share.messages, options, part_of_all))
    return parts


@dataclass(frozen=True)
class _Share:
    """The work in one store, to be split into partitions."""

    broker: str | None
    physical: Interval
    size_bytes: int
    """An estimate of the wanted bytes."""
    messages: int
    """An estimate of the wanted messages; 0 if it is not needed."""
    ranges: tuple[QueueRange, ...] | None = None
    """The queue entries of a read of queues alone."""
    weights: tuple[tuple[int, int], ...] = ()
    """A sample of physical offsets, ascending, each with the wanted bytes that it represents; empty for an even distribution."""

    @classmethod
    def of(cls, planned: PlannedStore, conditions: Conditions, options: ScanOptions, by_entry: bool) -> _Share:
        snapshot = planned.snapshot
        physical = intersection((snapshot.start, snapshot.end), conditions.physical)
        if not planned.is_local:
            return cls(snapshot.broker, physical, physical[1] - physical[0], 0)
        store = snapshot.open()
        if conditions.time != ALWAYS:
            physical = _in_time(store, conditions, physical)
        is_narrow = planned.queues_lead_to_all(conditions)
        ranges = None
        if planned.topics is not None and (is_narrow or by_entry or options.max_records is not None):
            ranges = queue_ranges(store, planned.wanted(conditions), conditions)
        if ranges is None:
            return cls(snapshot.broker, physical, physical[1] - physical[0], 0)
        if by_entry:
            ranges = planned_ranges(store, ranges, snapshot.end)
        messages = sum(each.stop - each.start for each in ranges)
        if by_entry:
            return cls(snapshot.broker, physical, messages * _ENTRY_BYTES, messages, tuple(ranges))
        whole = cls(snapshot.broker, physical, physical[1] - physical[0], messages)
        return whole._sampled(store, ranges) if is_narrow else whole

    def _sampled(self, store: mqstore.Store, ranges: Sequence[QueueRange]) -> _Share:
        """Narrows the share to the locations of a sample of the ranges."""
        if not ranges:
            return replace(self, physical=(0, 0), size_bytes=0)
        found = sample(store, ranges)
        weights = tuple(sorted((offset, weight) for offset, weight in found if offset is not None))
        if len(weights) < len(found):
            # The location of a lost or expired message is unknown.
            return self
        physical = intersection(self.physical, (weights[0][0], weights[-1][0] + 1))
        wanted, most = sum(weight for _, weight in weights), physical[1] - physical[0]
        if 2 * wanted >= most:
            return replace(self, physical=physical, size_bytes=most)
        return replace(self, physical=physical, size_bytes=wanted, weights=weights)

    def cut(self, count: int) -> Iterator[InputPartition]:
        """Yields at most `count` non-empty partitions of about equal bytes."""
        if self.ranges is not None:
            yield from _pack_entries(self.broker, self.ranges, count)
            return
        start, stop = self.physical
        evenly = [start + (stop - start) * n // count for n in range(1, count)]
        ends = quantiles(self.weights, count) if self.weights else evenly
        for stretch in itertools.pairwise([start, *ends, stop]):
            if stretch[0] < stretch[1]:
                yield Stretch(self.broker, stretch)


def plan_entries(broker: str | None, ranges: Sequence[QueueRange], options: ScanOptions, total: int) -> Iterator[InputPartition]:
    """Yields the parts of a read of queue entries of one store; all stores together have `total` messages."""
    messages = sum(each.stop - each.start for each in ranges)
    yield from _pack_entries(broker, ranges, partition_count(messages * _ENTRY_BYTES, messages, options, messages / total))


def _pack_entries(broker: str | None, ranges: Sequence[QueueRange], count: int) -> Iterator[InputPartition]:
    """Yields at most `count` parts of about as many entries each."""
    sized = [replace(each, size_bytes=(each.stop - each.start) * _ENTRY_BYTES) for each in ranges]
    yield from (QueueRanges(broker, part) for part in pack(sized, count))


def partition_count(size_bytes: int, messages: int, options: ScanOptions, share: float = 1.0) -> int:
    """Returns the number of partitions for a size in bytes and messages, which is this share of the whole read."""
    count = max(1, -(-size_bytes // (options.target_partition_bytes or TARGET_PARTITION_BYTES)))
    if options.target_partition_bytes is None:
        count = max(count, min(len(os.sched_getaffinity(0)), -(-size_bytes // LEAST_PARTITION_BYTES)))
    if options.max_records is not None:
        count = max(count, -(-messages // options.max_records))
    return max(count, math.ceil(options.min_partitions * share))


def _in_time(store: mqstore.Store, conditions: Conditions, physical: Interval) -> Interval:
    """Narrows a stretch to the segments that have messages of the time interval."""
    asked = store.scan(**Conditions(time=conditions.time, by=conditions.by).scan_arguments(physical, None))
    iter(asked)
    return asked.covers or physical


def queue_ranges(store: mqstore.Store, topics: Sequence[str], conditions: Conditions) -> list[QueueRange] | None:
    """Returns the wanted ranges of the topics' queues; None if queues of a topic are not files of this format."""
    found = []
    for topic in topics:
        named = store.topics.get(topic)
        if named is None:
            continue
        try:
            queue_ids = named.queue_ids
        except mqstore.UnsupportedFormatError:
            return None
        for queue_id in queue_ids:
            if conditions.queue_ids is None or queue_id in conditions.queue_ids:
                queue = named.queues[queue_id]
                start, stop = intersection((queue.min_offset, queue.max_offset), conditions.queue_offsets)
                if start < stop:
                    found.append(QueueRange(topic, queue_id, start, stop))
    return found


def planned_ranges(store: mqstore.Store, ranges: Sequence[QueueRange], end: int) -> list[QueueRange]:
    """Cuts the ranges at the end of the snapshot."""
    if store.max_physical_offset == end:
        return list(ranges)
    names = {QueueName(None, each.topic, each.queue_id): (each.start, each.stop) for each in ranges}
    stops = zip(ranges, ends_before(store, names, end).values(), strict=True)
    return [replace(each, stop=stop) for each, stop in stops if each.start < stop]


def sample(store: mqstore.Store, ranges: Sequence[QueueRange]) -> list[tuple[int | None, int]]:
    """Samples messages of the ranges, with the first and the last of each. Returns physical offsets, None for missing messages,
    each with the bytes that the message represents.
    """
    count = max(2, min(_SAMPLES, _ALL_SAMPLES // max(1, len(ranges))))
    asked = [
        (each.topic, each.queue_id, each.start + (each.stop - 1 - each.start) * n // (count - 1))
        for each in ranges
        for n in range(count)
    ]
    lengths = [each.stop - each.start for each in ranges for _ in range(count)]
    found = zip(positions_of(store, asked), lengths, strict=True)
    return [(offset, -(-(size or 0) * length // count)) for (offset, size), length in found]


def quantiles(weights: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Returns the physical offsets that split the sample into `count` parts of about equal weight."""
    total, before = sum(weight for _, weight in weights), 0
    ends: list[int] = []
    for offset, weight in weights:
        while len(ends) + 1 < count and before * count >= total * (len(ends) + 1):
            ends.append(offset)
        before += weight
    return ends


def pack(ranges: Sequence[QueueRange], count: int) -> list[list[QueueRange]]:
    """Splits the ranges, in order, into at most `count` non-empty parts of about equal bytes."""
    total = sum(queue.size_bytes for queue in ranges)
    parts: list[list[QueueRange]] = [[] for _ in range(max(count, 1))]
    before = 0
    for queue in ranges:
        messages = queue.stop - queue.start
        at = 0
        while at < messages:
            # The part in which message `at` begins, and the first message that begins past that part.
            part = (before * messages + at * queue.size_bytes) * len(parts) // (total * messages)
            room = total * messages * (part + 1) - before * messages * len(parts)
            end = min(messages, -(-room // (queue.size_bytes * len(parts))))
            size = queue.size_bytes * end // messages - queue.size_bytes * at // messages
            parts[part].append(replace(queue, start=queue.start + at, stop=queue.start + end, size_bytes=size))
            at = end
        before += queue.size_bytes
    return [part for part in parts if part]
