"""Ranges of queue offsets: planned as parts of about equal bytes, each read by a task from the log."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import mqstore
from mqstore._native import _checksums
from mqstore.spark._conditions import Conditions, Interval, intersection
from mqstore.spark._options import ReadOptions, ScanOptions
from mqstore.spark._partitions import QueueRange, partition_count, quantiles, sample
from mqstore.spark._read import Rows, read_stretch
from mqstore.spark._schema import MESSAGE_SCHEMA
from mqstore.spark._snapshot import Snapshot

_QUEUE_KEY = ("topic", "queue_id", "queue_offset")

_Mask = np.ndarray[Any, np.dtype[np.bool_]]


class RangesPart(InputPartition):
    """The part of a task: ranges of queues of a store, and the stretches of its log in which their messages lie."""

    def __init__(self, snapshot: Snapshot, stretches: Sequence[Interval], ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.snapshot = snapshot
        self.stretches = tuple(stretches)
        self.ranges = tuple(ranges)


def plan_ranges(snapshot: Snapshot, ranges: Sequence[QueueRange], options: ScanOptions, total: int) -> list[RangesPart]:
    """Returns the parts of one store; all stores together have `total` messages."""
    if not ranges:
        return []
    store = snapshot.open()
    sampled = sample(store, ranges)
    step = len(sampled) // len(ranges)
    spans = []
    for (first, _), (last, _) in zip(sampled[::step], sampled[step - 1 :: step], strict=True):
        # The place of a lost message is unknown.
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
    """Returns the snapshot for a read between these two records: the log may end there, and their checksums identify it."""
    checksums = zip((first, last), _checksums(store, [first, last]), strict=True)
    marks = [(offset, checksum) for offset, checksum in checksums if checksum is not None]
    return replace(snapshot, end=min(snapshot.end, last + 1), landmarks=(*snapshot.landmarks[:1], *marks))


def read_part(part: RangesPart, rows: Rows, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Reads the messages of a part. Raises what `read_stretch` raises."""
    missing = [name for name in _QUEUE_KEY if name not in rows.columns]
    schema = StructType([*rows.schema.fields, *(MESSAGE_SCHEMA[name] for name in missing)])
    wide = Rows(schema, (*rows.columns, *missing))
    key = [wide.columns.index(name) for name in _QUEUE_KEY]
    wanted = _Wanted(part.ranges)
    topics = frozenset(each.topic for each in part.ranges)
    conditions = Conditions(topics=topics, queues=frozenset(each.queue_id for each in part.ranges))
    for stretch in part.stretches:
        for batch in read_stretch(part.snapshot, conditions.of_scan(stretch, sorted(topics)), wide, options):
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
