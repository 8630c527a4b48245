"""What each task of a scan reads: a stretch of the log, or ranges of queues where their entries tell all that is wanted."""

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

#: Bytes that a partition reads, unless targetPartitionBytes says otherwise. Less where cores would idle, not below LEAST.
TARGET_PARTITION_BYTES = 256 << 20
LEAST_PARTITION_BYTES = 4 << 20

# Bytes of a queue entry.
_ENTRY_BYTES = 20
# Entries of a queue that are looked at to estimate sizes, and of all queues together.
_SAMPLES, _ALL_SAMPLES = 16, 32_768


@dataclass(frozen=True)
class QueueRange:
    """Queue offsets start..stop of one queue, and about how many bytes a task reads for them."""

    topic: str
    queue_id: int
    start: int
    stop: int
    size_bytes: int = 0


class Stretch(InputPartition):
    """The records of a store that start at these physical offsets."""

    def __init__(self, broker: str | None, physical: Interval) -> None:
        super().__init__(None)
        self.broker = broker
        self.physical = physical


class QueueRanges(InputPartition):
    """Entries of queues of a store."""

    def __init__(self, broker: str | None, ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.broker = broker
        self.ranges = tuple(ranges)


@dataclass(frozen=True)
class PlannedStore:
    """A store as a plan sees it: a snapshot, and what it has besides."""

    snapshot: Snapshot
    topics: tuple[str, ...] | None
    """The topics that have queues, of those that options name; None if only reading the log tells which there are."""
    are_named: bool
    """Whether options name topics: then those without queues are not looked for."""
    is_local: bool
    """Whether the driver sees the store, and not only its manifest."""

    @classmethod
    def of(cls, snapshot: Snapshot, wanted: frozenset[str] | None) -> PlannedStore:
        """Looks for the topics, if the store can be seen from here."""
        if not os.path.exists(snapshot.path):
            return cls(snapshot, None, wanted is not None, is_local=False)
        store = snapshot.open()
        if not _has_queue_files(store):
            return cls(snapshot, None, wanted is not None, is_local=True)
        is_wanted = (lambda name: not name.startswith(LIGHT_QUEUE_PREFIX)) if wanted is None else wanted.__contains__
        return cls(snapshot, tuple(filter(is_wanted, store.topics)), wanted is not None, is_local=True)

    def queues_lead_to_all(self, conditions: Conditions) -> bool:
        """Whether queues lead to all messages that are read. The log may have messages of other topics, whose queues are gone."""
        if self.topics is None or conditions.topics is None:
            return False
        return self.are_named or conditions.topics.issubset(self.topics)

    def wanted(self, conditions: Conditions) -> tuple[str, ...]:
        """The topics with queues that are left under these conditions."""
        return tuple(name for name in self.topics or () if conditions.topics is None or name in conditions.topics)


def expect_topics(stores: Iterable[PlannedStore], wanted: frozenset[str]) -> None:
    """ValueError names a wanted topic that has queues in no store."""
    missing, some = set(wanted), ""
    for planned in stores:
        if planned.topics is None:
            return
        missing.difference_update(planned.topics)
        names = list(planned.snapshot.open().topics) if missing else []
        some += f"; {planned.snapshot.path} has {len(names)} topics: {', '.join(names[:20])}"
    if missing:
        unknown = ", ".join(sorted(missing))
        raise ValueError(
            f"there is no topic {unknown}{some}; what the log holds of topics without queues, a read of all topics gives"
        )


def _has_queue_files(store: mqstore.Store) -> bool:
    """Whether the store's queues are files, and not a database."""
    try:
        store.get("", 0, 0)
    except mqstore.UnsupportedFormatError:
        return False
    return True


def plan_partitions(
    stores: Sequence[PlannedStore], options: ScanOptions, conditions: Conditions, by_entry: bool
) -> list[InputPartition]:
    """What all tasks read together: each wanted message of each store once."""
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
    """What is read of one store."""

    broker: str | None
    physical: Interval
    size_bytes: int
    """About the bytes that are wanted."""
    messages: int
    """About how many these are; 0 if nobody asks."""
    ranges: tuple[QueueRange, ...] | None = None
    """What is read of queues alone."""
    weights: tuple[tuple[int, int], ...] = ()
    """Physical offsets of some messages, ascending, and how many wanted bytes each stands for; none if they lie evenly."""

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
        """The same, narrowed to where the messages of these ranges lie."""
        if not ranges:
            return replace(self, physical=(0, 0), size_bytes=0)
        found = sample(store, ranges)
        weights = tuple(sorted((offset, weight) for offset, weight in found if offset is not None))
        if len(weights) < len(found):
            # What was lost or has expired since does not tell where it lay.
            return self
        physical = intersection(self.physical, (weights[0][0], weights[-1][0] + 1))
        wanted, most = sum(weight for _, weight in weights), physical[1] - physical[0]
        if 2 * wanted >= most:
            return replace(self, physical=physical, size_bytes=most)
        return replace(self, physical=physical, size_bytes=wanted, weights=weights)

    def cut(self, count: int) -> Iterator[InputPartition]:
        """At most so many parts of about equal bytes; none is empty."""
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
    """How many partitions so many bytes and messages make, which are this share of all."""
    count = max(1, -(-size_bytes // (options.target_partition_bytes or TARGET_PARTITION_BYTES)))
    if options.target_partition_bytes is None:
        count = max(count, min(len(os.sched_getaffinity(0)), -(-size_bytes // LEAST_PARTITION_BYTES)))
    if options.max_records is not None:
        count = max(count, -(-messages // options.max_records))
    return max(count, math.ceil(options.min_partitions * share))


def _in_time(store: mqstore.Store, conditions: Conditions, physical: Interval) -> Interval:
    """The stretch in which messages of that time lie."""
    asked = store.scan(**Conditions(time=conditions.time, by=conditions.by).scan_arguments(physical, None))
    iter(asked)
    return asked.covers or physical


def queue_ranges(store: mqstore.Store, topics: Sequence[str], conditions: Conditions) -> list[QueueRange] | None:
    """What is wanted of the queues of these topics; None if one of them has queues that are no files of this format."""
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
    """The same without the messages that came when the snapshot had its end."""
    if store.max_physical_offset == end:
        return list(ranges)
    names = {QueueName(None, each.topic, each.queue_id): (each.start, each.stop) for each in ranges}
    stops = zip(ranges, ends_before(store, names, end).values(), strict=True)
    return [replace(each, stop=stop) for each, stop in stops if each.start < stop]


def sample(store: mqstore.Store, ranges: Sequence[QueueRange]) -> list[tuple[int | None, int]]:
    """Physical offsets of some messages of these ranges, among them the first and the last of each, and how many bytes each
    stands for; None for one that is not there.
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
    """Physical offsets that cut what these stand for into `count` parts of about equal weight."""
    total, before = sum(weight for _, weight in weights), 0
    ends: list[int] = []
    for offset, weight in weights:
        while len(ends) + 1 < count and before * count >= total * (len(ends) + 1):
            ends.append(offset)
        before += weight
    return ends


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
