"""`spark.readStream.format("mqstore")`: micro-batches that follow the queues of stores. docs/SPARK.md has the options.

The checkpoint has the position of each queue and identifies its log. A query that cannot continue from there fails
(`failOnDataLoss`): if messages expired unread, a topic was deleted, or queue offsets were assigned again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

import mqstore
from mqstore._native import _flushed_mark
from mqstore.spark._options import StreamOptions
from mqstore.spark._partitions import QueueRange
from mqstore.spark._positions import QueueName
from mqstore.spark._progress import Progress, QueueView
from mqstore.spark._ranges import RangesPart, plan_ranges, read_part
from mqstore.spark._read import Rows
from mqstore.spark.stores import plan

# True if Spark passes the start of the batch and its limit to `latestOffset`.
_GIVES_START = hasattr(DataSourceStreamReader, "getDefaultReadLimit")

if TYPE_CHECKING or _GIVES_START:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:  # pyspark 4.0 and 4.1, which read all messages in one batch
    SupportsTriggerAvailableNow = object

_Offsets = dict[str, Any]


class MessageStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a query, in a process of its own that keeps its stores open. Tasks read with pickled copies of it."""

    def __init__(self, options: StreamOptions, rows: Rows) -> None:
        self._options = options
        self._rows = rows
        self._view: QueueView | None = None
        # The last known end of each queue.
        self._ends: dict[QueueName, int] = {}
        # The ends of the queues for trigger(availableNow=True).
        self._until: dict[QueueName, int] | None = None
        self._reached: _Offsets | None = None
        self._batch_at = -math.inf
        # The losses that were logged last. Spark plans a batch several times.
        self._reported: frozenset[str] = frozenset()

    def initialOffset(self) -> _Offsets:
        view = self._now()
        for absent in view.absent():
            logging.getLogger("mqstore.spark").warning("%s; it is read once it exists", absent)
        nexts = view.resolve(self._options.starting)
        for name, offset in nexts.items():
            least, most, _ = view.bounds[name]
            if not least <= offset <= most:
                self._report_loss([f"{name} is to begin at queue offset {offset}, but has those from {least} to {most}"])
                nexts[name] = min(max(offset, least), most)
        return view.progress(nexts, {}).to_json()

    def latestOffset(self, start: _Offsets | None = None, limit: ReadLimit | None = None) -> _Offsets:
        # pyspark 4.0 and 4.1 do not pass the start of the batch.
        start = self._reached if start is None else start
        begun = Progress({}, {}) if start is None else Progress.from_json(start)
        view = self._now()
        begins, lost = view.resume(begun)
        self._report_loss([*self._gone(view, begun), *_messages(lost)])
        ends = {name: self._end(name, begins[name], bounds.end) for name, bounds in view.bounds.items()}
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            ends = self._limited(begins, ends)
        # A queue that was not read yet counts as new in the next batch, too.
        ends = {name: end for name, end in ends.items() if start is None or name in begun.queues or end > begins[name]}
        known = {name: position for name, position in begun.queues.items() if name not in lost}
        reached = view.progress(ends, known)
        self._reached = start if start is not None and reached.queues == begun.queues else reached.to_json()
        return self._reached

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        return ReadAllAvailable() if self._options.min_offsets is None else ReadMinRows(self._options.min_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = {name: bounds.end for name, bounds in self._now().bounds.items()}

    def reportLatestOffset(self) -> _Offsets | None:
        return None if self._view is None else self._view.latest().to_json()

    def partitions(self, start: _Offsets, end: _Offsets) -> Sequence[InputPartition]:
        begun, reached = Progress.from_json(start), Progress.from_json(end)
        self._reached = end
        view = self._now()
        begins, lost_at_start = view.resume(begun)
        # The end, too: Spark plans a batch again that was not finished when the query stopped.
        _, lost_at_end = view.resume(reached)
        gone = self._gone(view, reached if _GIVES_START else begun)
        self._report_loss([*gone, *_messages(lost_at_start | lost_at_end)])
        stops = {
            name: min(reached.queues[name].next, most) for name, (_, most, _) in view.bounds.items() if name in reached.queues
        }
        total = sum(max(0, stop - begins[name]) for name, stop in stops.items())
        parts: list[InputPartition] = []
        for broker, snapshot in view.snapshots.items():
            of_broker = [name for name, stop in stops.items() if name.broker == broker and begins[name] < stop]
            ranges = [QueueRange(name.topic, name.queue_id, begins[name], stops[name]) for name in of_broker]
            parts += plan_ranges(snapshot, ranges, self._options.scan, total)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPart)
        return read_part(partition, self._options.scan.conditions, self._rows, self._options.scan.read)

    def _now(self) -> QueueView:
        """Returns the queues of the stores as of now."""
        snapshots = plan(self._options.scan.read.stores)
        marks = {broker: _flushed_mark(snapshot.open()) for broker, snapshot in snapshots.items()}
        if self._view is None or (self._view.snapshots, self._view.marks) != (snapshots, marks):
            self._view = QueueView(snapshots, marks, self._options.subscription)
            self._ends |= {name: bounds.max for name, bounds in self._view.bounds.items()}
        return self._view

    def _end(self, name: QueueName, begin: int, end: int) -> int:
        """Returns the end of a queue for this batch."""
        if self._until is not None:
            end = min(end, self._until.get(name, begin))
        return max(begin, end)

    def _limited(self, begins: Mapping[QueueName, int], ends: Mapping[QueueName, int]) -> dict[QueueName, int]:
        """Returns the ends of a batch of at most `maxOffsetsPerTrigger` messages, or its begin while it waits for more."""
        waiting = {name: end - begins[name] for name, end in ends.items()}
        total, least, most = sum(waiting.values()), self._options.min_offsets or 0, self._options.max_offsets
        is_early = time.monotonic() - self._batch_at < self._options.max_delay
        if total < least and is_early and self._until is None:
            return dict(begins)
        self._batch_at = time.monotonic()
        return {name: begins[name] + taken for name, taken in share(waiting, total if most is None else most).items()}

    def _gone(self, view: QueueView, progress: Progress) -> list[str]:
        """Describes the queues that no longer exist, except those that were read to their last known end."""
        gone = [(name, position.next) for name, position in progress.queues.items() if name not in view.bounds]
        return [
            f"{name}, which was read up to queue offset {read}, no longer exists: it was deleted, or is not subscribed to"
            for name, read in gone
            if self._ends.get(name) != read
        ]

    def _report_loss(self, lost: Sequence[str]) -> None:
        """Raises StoreError for losses. With failOnDataLoss=false logs each loss once."""
        if lost and self._options.scan.read.fail_on_data_loss:
            more = f"; and {len(lost) - 3} more queues" if len(lost) > 3 else ""
            raise mqstore.StoreError(
                f"messages may be missed: {'; '.join(lost[:3])}{more}. Start a query with a new checkpoint, or set "
                "failOnDataLoss=false to continue with the messages that exist"
            )
        for each in lost:
            if each not in self._reported:
                logging.getLogger("mqstore.spark").warning("%s", each)
        if lost:
            self._reported = frozenset(lost)


class RefusedStream(DataSourceStreamReader):
    """A stream that fails at its first offset: for an error of `streamReader` itself Spark reports an UnboundLocalError."""

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


def _messages(lost: Mapping[QueueName, str]) -> Iterator[str]:
    return (f"{name}: {why}" for name, why in lost.items())


def share(waiting: Mapping[QueueName, int], most: int) -> dict[QueueName, int]:
    """Shares a limit of `most` messages among queues: one for each queue if the limit allows, and the rest in proportion to their
    backlogs.
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
