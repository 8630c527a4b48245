"""Ranges of queue offsets: resolves them, splits them into partitions of about equal bytes, and reads these from the log."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import mqstore
from mqstore._lost_queues import lost_queues
from mqstore._native import _checksums
from mqstore.spark._conditions import Conditions, Interval, intersection
from mqstore.spark._options import ReadOptions, ScanOptions
from mqstore.spark._partitions import QueueRange, partition_count, plan_entries, quantiles, sample
from mqstore.spark._positions import QueueName
from mqstore.spark._progress import QueueView
from mqstore.spark._read import Rows, log_lost_queues, read_stretch
from mqstore.spark._schema import MESSAGE_SCHEMA
from mqstore.spark._snapshot import Snapshot
from mqstore.spark._subscription import OffsetRange

_QUEUE_KEY = ("topic", "queue_id", "queue_offset")

_Mask = np.ndarray[Any, np.dtype[np.bool_]]


class RangesPart(InputPartition):
    """An input split: ranges of queues of a store, and the stretches of its log that have their messages."""

    def __init__(self, snapshot: Snapshot, stretches: Sequence[Interval], ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.snapshot = snapshot
        self.stretches = tuple(stretches)
        self.ranges = tuple(ranges)


def resolve_range(snapshots: Mapping[str | None, Snapshot], asked: OffsetRange, fails: bool) -> dict[QueueName, Interval]:
    """Returns the queue offsets that a batch reads of each queue.

    Raises ValueError for an absent queue, and for a range that ends before it starts. If a queue does not have its whole range,
    raises StoreError with `fails`; otherwise logs it and returns the part that exists.
    """
    for snapshot in snapshots.values():
        if not os.path.exists(snapshot.path):
            raise ValueError(
                f"{snapshot.path} does not exist on the driver, which needs the queues to plan ranges of queue offsets"
            )
    view = QueueView.at_plan(snapshots, asked.subscription)
    if absent := view.absent():
        raise ValueError("; ".join(absent))
    starts, stops = view.resolve(asked.starting), view.resolve(asked.ending)
    for snapshot in snapshots.values():
        # Checked after the bounds and times were read: a queue does not show how many messages of the snapshot have expired, so a
        # range that starts at "earliest", or at a time, would silently start later.
        snapshot.open(whole=fails and not asked.starting.are_numbers)
    found, lost = {}, []
    for name, (least, _, most) in view.bounds.items():
        start, stop = starts[name], stops[name]
        if not (least <= start <= most and least <= stop <= most):
            lost.append(f"{name}: offsets {start} to {stop} are to be read, but the snapshot of the job has {least} to {most}")
            start, stop = (min(max(offset, least), most) for offset in (start, stop))
        if start > stop:
            raise ValueError(
                f"the range of {name} starts at queue offset {start} ({asked.starting.option}) and ends before that, at {stop} "
                f"({asked.ending.option})"
            )
        found[name] = start, stop
    if lost and fails:
        more = f"; and {len(lost) - 3} more queues" if len(lost) > 3 else ""
        raise mqstore.StoreError(
            f"messages may be missed: {'; '.join(lost[:3])}{more}. Give other offsets, or set failOnDataLoss=false to read the "
            "messages that exist"
        )
    for each in lost:
        logging.getLogger("mqstore.spark").warning("%s", each)
    for broker, snapshot in snapshots.items():
        topics, queue_ids = {name.topic for name in found if name.broker == broker}, asked.subscription.queue_ids
        missing = lost_queues(snapshot.open(), topics.__contains__)
        log_lost_queues(snapshot.path, (each for each in missing if queue_ids is None or each[1] in queue_ids))
    return found


def plan_range(
    snapshots: Mapping[str | None, Snapshot],
    offsets: Mapping[QueueName, Interval],
    options: ScanOptions,
    conditions: Conditions,
    by_entry: bool,
) -> list[InputPartition]:
    """Returns the input splits of a batch: queue entries if these have all wanted columns, otherwise stretches of the log."""
    ranges: dict[str | None, list[QueueRange]] = {}
    for name, interval in offsets.items():
        is_wanted = conditions.topics is None or name.topic in conditions.topics
        is_wanted = is_wanted and (conditions.queue_ids is None or name.queue_id in conditions.queue_ids)
        start, stop = intersection(interval, conditions.queue_offsets)
        if is_wanted and start < stop and not conditions.match_nothing:
            ranges.setdefault(name.broker, []).append(QueueRange(name.topic, name.queue_id, start, stop))
    total = sum(each.stop - each.start for of_broker in ranges.values() for each in of_broker)
    parts: list[InputPartition] = []
    for broker, of_broker in ranges.items():
        if by_entry:
            parts += plan_entries(broker, of_broker, options, total)
        else:
            parts += plan_ranges(snapshots[broker], of_broker, options, total)
    return parts


def plan_ranges(snapshot: Snapshot, ranges: Sequence[QueueRange], options: ScanOptions, total: int) -> list[RangesPart]:
    """Returns the input splits of one store; all stores together have `total` messages."""
    if not ranges:
        return []
    store = snapshot.open()
    sampled = sample(store, ranges)
    step = len(sampled) // len(ranges)
    spans = []
    for (first, _), (last, _) in zip(sampled[::step], sampled[step - 1 :: step], strict=True):
        # The location of a lost message is unknown.
        spans.append((snapshot.start if first is None else first, snapshot.end if last is None else last + 1))
    stretches = union(spans)
    weights = sorted((offset, weight) for offset, weight in sampled if offset is not None)
    messages = sum(each.stop - each.start for each in ranges)
    count = partition_count(sum(weight for _, weight in weights), messages, options, messages / total)
    planned = _with_landmarks(store, snapshot, stretches[0][0], stretches[-1][1] - 1)
    parts = []
    for part in itertools.pairwise([stretches[0][0], *quantiles(weights, count), stretches[-1][1]]):
        pieces = [piece for stretch in stretches if (piece := intersection(stretch, part))[0] < piece[1]]
        of_part = [each for each, span in zip(ranges, spans, strict=True) if max(span[0], part[0]) < min(span[1], part[1])]
        if pieces:
            parts.append(RangesPart(planned, pieces, of_part))
    return parts


def union(spans: Iterable[Interval]) -> list[Interval]:
    """Returns the spans in ascending order, with those that overlap merged."""
    found: list[Interval] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def _with_landmarks(store: mqstore.Store, snapshot: Snapshot, first: int, last: int) -> Snapshot:
    """Returns a snapshot that ends at `last` and has the checksums of both records, which identify the log for this read."""
    checksums = zip((first, last), _checksums(store, [first, last]), strict=True)
    marks = [(offset, checksum) for offset, checksum in checksums if checksum is not None]
    return replace(snapshot, end=min(snapshot.end, last + 1), landmarks=(*snapshot.landmarks[:1], *marks))


def read_part(part: RangesPart, conditions: Conditions, rows: Rows, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Reads the messages of an input split that meet the conditions. Raises what `read_stretch` raises."""
    missing = [name for name in _QUEUE_KEY if name not in rows.columns]
    schema = StructType([*rows.schema.fields, *(MESSAGE_SCHEMA[name] for name in missing)])
    wide = Rows(schema, (*rows.columns, *missing))
    key = [wide.columns.index(name) for name in _QUEUE_KEY]
    wanted = _Wanted(part.ranges)
    topics = frozenset(each.topic for each in part.ranges)
    conditions = replace(conditions, topics=topics, queue_ids=frozenset(each.queue_id for each in part.ranges))
    for stretch in part.stretches:
        for batch in read_stretch(part.snapshot, conditions.scan_arguments(stretch, sorted(topics)), wide, options):
            is_wanted = wanted.mask(*map(batch.column, key))
            part_of_batch = batch if is_wanted.all() else batch.filter(pa.array(is_wanted))
            yield part_of_batch.select(range(len(rows.columns)))


class _Wanted:
    """A filter that keeps the messages of some ranges of queue offsets."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        self._topics = {topic: number for number, topic in enumerate(sorted({each.topic for each in ranges}))}
        rows = sorted((self._topics[each.topic] << 32 | each.queue_id, each.start, each.stop) for each in ranges)
        self._queues, self._starts, self._stops = np.array(rows, np.int64).T

    def mask(self, topic: pa.Array, queue_id: pa.Array, queue_offset: pa.Array) -> _Mask:
        """Returns which rows are in a range. A row of nulls, which reports damage, is kept."""
        encoded = topic.dictionary_encode()
        # The index of a null is -1: the last number.
        topics = np.array([*(self._topics.get(name, -1) for name in encoded.dictionary.to_pylist()), -1], np.int64)
        number = topics[encoded.indices.fill_null(-1).to_numpy()]
        queue, offset = (column.fill_null(-1).to_numpy().astype(np.int64) for column in (queue_id, queue_offset))
        name = number << 32 | queue
        at = np.searchsorted(self._queues, name).clip(max=len(self._queues) - 1)
        is_corrupt: _Mask = topic.is_null().to_numpy(zero_copy_only=False)
        is_wanted: _Mask = (self._queues[at] == name) & (self._starts[at] <= offset) & (offset < self._stops[at])
        return is_wanted | is_corrupt
