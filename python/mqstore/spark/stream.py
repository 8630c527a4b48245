"""`spark.readStream.format("mqstore")`: follows the queues of stores, a batch at a time. docs/SPARK.md has the options.

The checkpoint says up to which message each queue was read, and by which log. A query that cannot go on from there fails
(`failOnDataLoss`): where messages have expired unread, topics were deleted, and offsets were given again.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

import mqstore
from mqstore._names import there_is
from mqstore._native import _checksums, _flushed_mark
from mqstore.spark._conditions import Conditions, Interval, intersection
from mqstore.spark._options import ReadOptions, ScanOptions, StreamOptions
from mqstore.spark._partitions import QueueRange, partition_count, quantiles, sample
from mqstore.spark._positions import QueueName
from mqstore.spark._progress import Look, Progress
from mqstore.spark._read import Rows, read_stretch
from mqstore.spark._schema import MESSAGE_SCHEMA
from mqstore.spark._snapshot import Snapshot
from mqstore.spark.stores import plan

# Whether `latestOffset` is told where the batch starts, and how much it may hold.
_TELLS_START = hasattr(DataSourceStreamReader, "getDefaultReadLimit")

if TYPE_CHECKING or _TELLS_START:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:  # pyspark 4.0 and 4.1, which take all that is there as one batch
    SupportsTriggerAvailableNow = object

_QUEUE_KEY = ("topic", "queue_id", "queue_offset")

_Offsets = dict[str, Any]
_Mask = np.ndarray[Any, np.dtype[np.bool_]]


class BatchPart(InputPartition):
    """What a task reads: ranges of queues of a store, and the stretches of its log in which their messages lie."""

    def __init__(self, snapshot: Snapshot, stretches: Sequence[Interval], ranges: Sequence[QueueRange]) -> None:
        super().__init__(None)
        self.snapshot = snapshot
        self.stretches = tuple(stretches)
        self.ranges = tuple(ranges)


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a query, in a process of its own that keeps its stores open. What tasks read is read by copies of it
    that have planned nothing.
    """

    def __init__(self, options: StreamOptions, rows: Rows) -> None:
        self._options = options
        self._rows = rows
        self._looked: Look | None = None
        # Where each queue ended when it was last there.
        self._ends: dict[QueueName, int] = {}
        # Where each queue ends for a query that stops there.
        self._until: dict[QueueName, int] | None = None
        self._reached: _Offsets | None = None
        self._batch_at = -math.inf
        # What was lost last. Spark asks several times about one batch.
        self._told: frozenset[str] = frozenset()

    def initialOffset(self) -> _Offsets:
        look = self._look()
        for topic in sorted((self._options.subscription.topics or frozenset()).difference(name.topic for name in look.bounds)):
            near = there_is(topic, (name for snapshot in look.snapshots.values() for name in snapshot.open().topics))
            logging.getLogger("mqstore.spark").warning("no store has topic %s, which is read once it is there%s", topic, near)
        nexts = look.starting(self._options.starting)
        for name, offset in nexts.items():
            least, most, _ = look.bounds[name]
            if not least <= offset <= most:
                self._lose([f"{name} is to begin at queue offset {offset}, but holds those from {least} to {most}"])
                nexts[name] = min(max(offset, least), most)
        return look.progress(nexts, {}).to_json()

    def latestOffset(self, start: _Offsets | None = None, limit: ReadLimit | None = None) -> _Offsets:
        # pyspark 4.0 and 4.1 do not say where the batch starts.
        start = self._reached if start is None else start
        begun = Progress({}, {}) if start is None else Progress.from_json(start)
        look = self._look()
        begins, lost = look.resume(begun)
        self._lose([*self._gone(look, begun), *_in_words(lost)])
        ends = {name: self._end(name, begins[name], bounds.end) for name, bounds in look.bounds.items()}
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            ends = self._limited(begins, ends)
        # A queue of which nothing was read is a new one later, too.
        ends = {name: end for name, end in ends.items() if start is None or name in begun.queues or end > begins[name]}
        known = {name: position for name, position in begun.queues.items() if name not in lost}
        reached = look.progress(ends, known)
        self._reached = start if start is not None and reached.queues == begun.queues else reached.to_json()
        return self._reached

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        return ReadAllAvailable() if self._options.min_offsets is None else ReadMinRows(self._options.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = {name: bounds.end for name, bounds in self._look().bounds.items()}

    def reportLatestOffset(self) -> _Offsets | None:
        return None if self._looked is None else self._looked.latest().to_json()

    def partitions(self, start: _Offsets, end: _Offsets) -> Sequence[InputPartition]:
        begun, reached = Progress.from_json(start), Progress.from_json(end)
        self._reached = end
        look = self._look()
        begins, lost_at_start = look.resume(begun)
        # Also the end: Spark plans a batch again that was not done when the query stopped.
        _, lost_at_end = look.resume(reached)
        gone = self._gone(look, reached if _TELLS_START else begun)
        self._lose([*gone, *_in_words(lost_at_start | lost_at_end)])
        stops = {
            name: min(reached.queues[name].next, most) for name, (_, most, _) in look.bounds.items() if name in reached.queues
        }
        total = sum(max(0, stop - begins[name]) for name, stop in stops.items())
        parts: list[InputPartition] = []
        for broker, snapshot in look.snapshots.items():
            of_broker = [name for name, stop in stops.items() if name.broker == broker and begins[name] < stop]
            ranges = [QueueRange(name.topic, name.queue_id, begins[name], stops[name]) for name in of_broker]
            parts += plan_batch(snapshot, ranges, self._options.scan, total)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BatchPart)
        return read_part(partition, self._rows, self._options.scan.read)

    def _look(self) -> Look:
        """The stores as they are now."""
        snapshots = plan(self._options.scan.read.stores)
        marks = {broker: _flushed_mark(snapshot.open()) for broker, snapshot in snapshots.items()}
        if self._looked is None or (self._looked.snapshots, self._looked.marks) != (snapshots, marks):
            self._looked = Look(snapshots, marks, self._options.subscription)
            self._ends |= {name: bounds.max for name, bounds in self._looked.bounds.items()}
        return self._looked

    def _end(self, name: QueueName, begin: int, end: int) -> int:
        """Up to where a queue may be read."""
        if self._until is not None:
            end = min(end, self._until.get(name, begin))
        return max(begin, end)

    def _limited(self, begins: Mapping[QueueName, int], ends: Mapping[QueueName, int]) -> dict[QueueName, int]:
        """Where a batch ends that takes no more than `maxOffsetsPerTrigger`: where it begins as long as it waits for more."""
        waiting = {name: end - begins[name] for name, end in ends.items()}
        total, least, most = sum(waiting.values()), self._options.min_offsets or 0, self._options.max_offsets
        is_early = time.monotonic() - self._batch_at < self._options.max_delay
        if total < least and is_early and self._until is None:
            return dict(begins)
        self._batch_at = time.monotonic()
        return {name: begins[name] + taken for name, taken in share(waiting, total if most is None else most).items()}

    def _gone(self, look: Look, progress: Progress) -> list[str]:
        """The queues that are not there any more, but for those that were read to their end when they were last there."""
        gone = [(name, position.next) for name, position in progress.queues.items() if name not in look.bounds]
        return [
            f"{name}, which was read up to queue offset {read}, is not there any more: it was deleted, or is not subscribed to"
            for name, read in gone
            if self._ends.get(name) != read
        ]

    def _lose(self, lost: Sequence[str]) -> None:
        """StoreError says what a query may miss; with failOnDataLoss=false a log entry does, once."""
        if lost and self._options.scan.read.fail_on_data_loss:
            more = f"; and {len(lost) - 3} more queues" if len(lost) > 3 else ""
            raise mqstore.StoreError(
                f"messages may be missed: {'; '.join(lost[:3])}{more}. Start a query with a new checkpoint, or set "
                "failOnDataLoss=false: it goes on with what is there"
            )
        for each in lost:
            if each not in self._told:
                logging.getLogger("mqstore.spark").warning("%s", each)
        if lost:
            self._told = frozenset(lost)


class RefusedStream(DataSourceStreamReader):
    """Raises what is wrong with a read where Spark first asks for an offset: if `streamReader` raises it, Spark reports an
    UnboundLocalError of its own instead.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        raise self._error

    def latestOffset(self, start: _Offsets | None = None, limit: ReadLimit | None = None) -> NoReturn:
        raise self._error

    def partitions(self, start: _Offsets, end: _Offsets) -> NoReturn:
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        raise self._error


def _in_words(lost: Mapping[QueueName, str]) -> Iterator[str]:
    return (f"{name}: {why}" for name, why in lost.items())


def share(waiting: Mapping[QueueName, int], most: int) -> dict[QueueName, int]:
    """How many messages of each queue are taken, `most` in all: one of each queue if there is room for that, and of the rest as
    much in proportion as wait.
    """
    queues = sum(count > 0 for count in waiting.values())
    least = 1 if most >= queues else 0
    rest = {name: max(0, count - least) for name, count in waiting.items()}
    total, room = sum(rest.values()), most - least * queues
    if total <= room:
        return dict(waiting)
    taken, before = {}, 0
    for name, count in rest.items():
        after = before + count
        taken[name] = min(waiting[name], least) + after * room // total - before * room // total
        before = after
    return taken


def plan_batch(snapshot: Snapshot, ranges: Sequence[QueueRange], options: ScanOptions, total: int) -> list[BatchPart]:
    """What the tasks of a batch read of one store, if all of it has `total` messages."""
    if not ranges:
        return []
    store = snapshot.open()
    sampled = sample(store, ranges)
    step = len(sampled) // len(ranges)
    spans = []
    for (first, _), (last, _) in zip(sampled[::step], sampled[step - 1 :: step], strict=True):
        # A message that was lost does not tell where it lay.
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
            parts.append(BatchPart(planned, pieces, of_part))
    return parts


def union(spans: Iterable[Interval]) -> list[Interval]:
    """The same, ascending, those that overlap put together."""
    found: list[Interval] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def _with_landmarks(store: mqstore.Store, snapshot: Snapshot, first: int, last: int) -> Snapshot:
    """The snapshot of a batch between these two records: the log may end there, and is known by them."""
    checksums = zip((first, last), _checksums(store, [first, last]), strict=True)
    marks = [(offset, checksum) for offset, checksum in checksums if checksum is not None]
    return replace(snapshot, end=min(snapshot.end, last + 1), landmarks=(*snapshot.landmarks[:1], *marks))


def read_part(part: BatchPart, rows: Rows, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """The messages of a part of a batch. StoreError as `read_stretch` says."""
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
    """Tells the messages of some ranges from others of the same stretch of the log."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        self._topics = {topic: number for number, topic in enumerate(sorted({each.topic for each in ranges}))}
        rows = sorted((self._topics[each.topic] << 32 | each.queue_id, each.start, each.stop) for each in ranges)
        self._queues, self._starts, self._stops = np.array(rows, np.int64).T

    def mask(self, topic: pa.Array, queue_id: pa.Array, queue_offset: pa.Array) -> _Mask:
        """Whether each row is wanted; one that only tells of damage is."""
        encoded = topic.dictionary_encode()
        # One that is null is the last.
        topics = np.array([*(self._topics.get(name, -1) for name in encoded.dictionary.to_pylist()), -1], np.int64)
        number = topics[encoded.indices.fill_null(-1).to_numpy()]
        queue, offset = (column.fill_null(-1).to_numpy().astype(np.int64) for column in (queue_id, queue_offset))
        name = number << 32 | queue
        at = np.searchsorted(self._queues, name).clip(max=len(self._queues) - 1)
        is_of_damage: _Mask = topic.is_null().to_numpy(zero_copy_only=False)
        is_wanted: _Mask = (self._queues[at] == name) & (self._starts[at] <= offset) & (offset < self._stops[at])
        return is_wanted | is_of_damage
