"""Task-side reads: check that the store is the one of the plan, read an input split, and convert it to Spark's columns."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

import mqstore
from mqstore._native import _no_messages
from mqstore.spark._compute import pc
from mqstore.spark._conditions import Conditions, Interval, intersection
from mqstore.spark._options import ReadOptions
from mqstore.spark._partitions import QueueRange
from mqstore.spark._remedies import advise_of_option
from mqstore.spark._schema import BROKER, CORRUPT_RECORD
from mqstore.spark._snapshot import Snapshot
from mqstore.spark.resolve import BATCH_BYTES, log_skipped

# Queue entries of one read.
_ENTRIES = 1 << 16


@dataclass(frozen=True)
class Rows:
    """The result columns: the schema of Spark, and mqstore's names of its columns."""

    schema: StructType
    columns: tuple[str, ...]
    of_message: tuple[str, ...] = field(init=False)
    """The columns that come from a message."""

    def __post_init__(self) -> None:
        names = tuple(name for name in self.columns if name not in (BROKER, CORRUPT_RECORD))
        object.__setattr__(self, "of_message", names or ("queue_id",))

    def arrow_schema(self) -> pa.Schema:
        """Returns the schema with which Spark compares each batch."""
        kinds = {BROKER: pa.string(), CORRUPT_RECORD: pa.string()} | {each.name: each.type for each in pa.schema(_no_messages())}
        return pa.schema([(given, kinds[name]) for given, name in zip(self.schema.names, self.columns, strict=True)])

    def batch(self, schema: pa.Schema, found: pa.RecordBatch, broker: str | None) -> pa.RecordBatch:
        """Adds the columns that are not columns of a message."""
        if found.schema.equals(schema):
            return found
        rows = found.num_rows
        others = {
            BROKER: lambda: pa.repeat(pa.scalar(broker, pa.string()), rows),
            CORRUPT_RECORD: lambda: pa.nulls(rows, pa.string()),
        }
        arrays = [others[name]() if name in others else found.column(name) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def corrupt(
        self, schema: pa.Schema, error: mqstore.StoreError, physical_offset: int | None, broker: str | None
    ) -> pa.RecordBatch:
        """Returns the row of an unreadable message. Its error has no remedy: the option that returns the row is the remedy."""
        error.advice = None
        known = {BROKER: broker, CORRUPT_RECORD: str(error), "physical_offset": physical_offset}
        arrays = [pa.array([known.get(name)], kind) for name, kind in zip(self.columns, schema.types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_stretch(snapshot: Snapshot, asked: dict[str, Any], rows: Rows, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Reads a stretch of the log. Raises StoreError if a part of it has expired, unless `fail_on_data_loss` is off."""
    schema, physical = rows.arrow_schema(), asked["physical"]
    store = snapshot.open()
    expiry = _ExpiryCheck(snapshot, physical[0], options.fail_on_data_loss)
    expiry.check()
    batches = store.scan(
        **asked,
        columns=rows.of_message,
        decode_body=options.decode_body,
        batch_bytes=BATCH_BYTES,
        errors="skip" if options.errors == "skip" else "raise",
    )
    each = iter(batches)
    while True:
        try:
            found = next(each)
        except StopIteration:
            break
        except mqstore.CorruptError as error:
            expiry.check()
            if options.errors != "corrupt_record" or is_of_a_cut(error):
                advise_of_option(error)
                raise
            yield rows.corrupt(schema, error, _physical_offset(store, error), snapshot.broker)
            continue
        expiry.check()
        yield rows.batch(schema, pa.record_batch(found), snapshot.broker)
    expiry.check()
    expiry.log(physical[1])
    log_skipped(batches, store.path)
    log_lost_queues(store.path, batches.lost_queues)


def is_of_a_cut(error: Exception) -> bool:
    """Returns True if a slave has cut the log: the rest of the store cannot be read, and a retry of the task opens it again."""
    return isinstance(error, mqstore.CorruptError) and error._is_of_a_cut


def log_lost_queues(path: str, queues: Iterable[tuple[str, int]]) -> None:
    """Logs the queues whose files are lost, and whose messages a read does not return."""
    if names := ", ".join(f"{topic}/{queue_id}" for topic, queue_id in sorted(queues)):
        logging.getLogger("mqstore.spark").warning(
            "%s: the files of queues are lost, and their messages, which the log has, are not read: %s; with no writer running, "
            "mqstore rebuild %s --yes restores the queues",
            *(path, names, shlex.quote(path)),
        )


class _ExpiryCheck:
    """A detector of expiry during a read. A reader opens files lazily, so the check runs after each batch."""

    def __init__(self, snapshot: Snapshot, start: int, fails: bool) -> None:
        self._snapshot = snapshot
        self._start = start
        self._fails = fails
        self._gone = start

    def check(self) -> None:
        """Raises StoreError for another store, and if expiry fails the job, for an expired start of the stretch."""
        self._gone = max(self._gone, self._snapshot.open().min_physical_offset)
        if self._fails and self._gone > self._start:
            raise expired(self._snapshot, f"the log from physical offset {self._start} to {self._gone}")

    def log(self, stop: int) -> None:
        """Logs the stretch that was skipped because it has expired."""
        if self._gone > self._start:
            stretch = f"{self._start} to {min(self._gone, stop)}"
            logging.getLogger("mqstore.spark").warning("%s: physical offsets %s have expired", self._snapshot.path, stretch)


def expired(snapshot: Snapshot, what: str) -> mqstore.StoreError:
    """Returns the error of a job that misses expired messages."""
    return mqstore.StoreError(
        f"{snapshot.path}: {what} expired after the job was planned; start the job again, or read the rest with "
        "failOnDataLoss=false"
    )


def _physical_offset(store: mqstore.Store, error: mqstore.CorruptError) -> int | None:
    """Returns the physical offset of damage in the log, None for another file. A segment's name is its first offset."""
    folder, name = os.path.split(error.path)
    return int(name) + error.offset if os.path.basename(folder) == "commitlog" and name.isdigit() else None


def read_queues(
    snapshot: Snapshot, part: QueueRange, conditions: Conditions, rows: Rows, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Reads the columns that queue entries have, without a read of the messages."""
    schema = rows.arrow_schema()
    physical = intersection(conditions.physical, (snapshot.start, snapshot.end))
    topic = pa.repeat(pa.scalar(part.topic, pa.string()), _ENTRIES)
    queue_id = pa.repeat(pa.scalar(part.queue_id, pa.int32()), _ENTRIES)
    for start in range(part.start, part.stop, _ENTRIES):
        offsets = pa.array(np.arange(start, min(start + _ENTRIES, part.stop), dtype=np.int64))
        same = [topic.slice(0, len(offsets)), queue_id.slice(0, len(offsets)), offsets]
        entries = pa.RecordBatch.from_arrays(same, ["topic", "queue_id", "queue_offset"])
        found = pa.record_batch(snapshot.open().resolve_offsets(entries))
        store = snapshot.open()
        for name in ("physical_offset", "store_size"):
            entries = entries.append_column(name, found.column(name))
        lead_past = pc.greater_equal(found.column("physical_offset"), snapshot.end)
        if pc.any(lead_past).as_py():
            _report_loss(snapshot, part, options)
        missing = entries.filter(pc.is_null(found.column("physical_offset")))
        if missing.num_rows:
            for error in _missing(snapshot, store, part, missing.column("queue_offset").to_pylist(), options):
                yield rows.corrupt(schema, error, None, snapshot.broker)
        yield rows.batch(schema, _within(entries, physical), snapshot.broker)


def _report_loss(snapshot: Snapshot, part: QueueRange, options: ReadOptions) -> None:
    """Raises StoreError, or logs, that a queue assigned its offsets again."""
    lost = (
        f"{snapshot.path}: {part.topic}/{part.queue_id} has, at queue offsets of the plan, messages that came after it: the "
        "topic was deleted and created again"
    )
    if options.fail_on_data_loss:
        raise mqstore.StoreError(f"{lost}; start the job again")
    logging.getLogger("mqstore.spark").warning("%s", lost)


def _within(entries: pa.RecordBatch, physical: Interval) -> pa.RecordBatch:
    """Keeps the entries whose messages are in a stretch of the log."""
    offsets = entries.column("physical_offset")
    is_in = pc.and_(pc.greater_equal(offsets, physical[0]), pc.less(offsets, physical[1]))
    return entries if offsets.null_count == 0 and pc.all(is_in).as_py() else entries.filter(is_in)


def _missing(
    snapshot: Snapshot, store: mqstore.Store, part: QueueRange, offsets: list[int], options: ReadOptions
) -> Iterator[mqstore.StoreError]:
    """Yields an error for each entry without a message, with errors="corrupt_record". Raises the first one by default."""
    topic = store.topics.get(part.topic)
    queue = None if topic is None else topic.queues[part.queue_id]
    least = part.stop if queue is None else queue.min_offset
    gone = sum(offset < least for offset in offsets)
    if gone and options.fail_on_data_loss:
        raise expired(snapshot, f"{gone} messages of {part.topic}/{part.queue_id} from queue offset {offsets[0]} on")
    if gone:
        logging.getLogger("mqstore.spark").warning("%s: %d messages of %s have expired", snapshot.path, gone, part.topic)
    for offset in offsets[gone:]:
        try:
            assert queue is not None
            queue[offset]
            error: mqstore.StoreError = mqstore.NotFoundError(
                f"{part.topic}/{part.queue_id} has no message at queue offset {offset}"
            )
        except (mqstore.CorruptError, mqstore.NotFoundError, IndexError) as found:
            if is_of_a_cut(found):
                raise
            error = found if isinstance(found, mqstore.StoreError) else mqstore.NotFoundError(str(found))
        if options.errors == "raise":
            advise_of_option(error)
            raise error
        if options.errors == "corrupt_record":
            yield error
