"""Format "mqstore": the data source of Spark. docs/SPARK.md has the options.

    spark.read.format("mqstore").option("topics", "orders,refunds").load("/data/store")

A batch reads the snapshot of its plan, or fails: if messages of the snapshot have expired (`failOnDataLoss`), if one is damaged
(`errors`), or if another store is at the path.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from mqstore.spark._conditions import QUEUE_COLUMNS, Conditions, push
from mqstore.spark._options import ReadOptions, ScanOptions, StreamOptions, parse_read
from mqstore.spark._partitions import PlannedStore, QueueRanges, Stretch, expect_topics, plan_partitions
from mqstore.spark._ranges import RangesPart, plan_range, read_part, resolve_range
from mqstore.spark._read import Rows, read_queues, read_stretch
from mqstore.spark._schema import known_columns, read_schema, select
from mqstore.spark.sink import MessageWriter, message_writer, no_streaming_sink
from mqstore.spark.stores import plan
from mqstore.spark.stream import MessageStreamReader, RefusedStream

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # since 4.1

# A read of at least this size without a narrowing option is logged.
_LARGE_READ_BYTES = 1 << 30


class MessageDataSource(DataSource):
    """The data source of `spark.read.format("mqstore")`, `readStream` and `write`."""

    @classmethod
    def name(cls) -> str:
        return "mqstore"

    @cached_property
    def _read(self) -> ReadOptions:
        # Lazily, because a write has other options. At this point Spark may read a batch or a stream.
        return parse_read(self.options)

    def schema(self) -> StructType:
        known = read_schema(self._read.stores.brokers != (None,), self._read.errors == "corrupt_record")
        return select(known, self._read.columns)

    def reader(self, schema: StructType) -> MessageReader:
        scan = ScanOptions.parse(self.options)
        return (PushingReader if scan.pushes_filters else MessageReader)(scan, self._rows(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            return MessageStreamReader(StreamOptions.parse(self.options), self._rows(schema))
        except Exception as error:
            return RefusedStream(error)

    def _rows(self, schema: StructType) -> Rows:
        columns = known_columns(schema, read_schema(self._read.stores.brokers != (None,), has_corrupt_record=True))
        named = self._read.columns
        if named is not None and list(named) != columns:
            raise ValueError(
                f"option columns names {', '.join(named)}, but the schema has {', '.join(schema.names)}: give one of the two"
            )
        return Rows(schema, tuple(columns))

    def writer(self, schema: StructType, overwrite: bool) -> MessageWriter:
        return message_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise no_streaming_sink()


class MessageReader(DataSourceReader):
    """Plans a batch in Spark's planner process, and reads its input splits in executors, to which it is pickled."""

    def __init__(self, scan: ScanOptions, rows: Rows) -> None:
        self._scan = scan
        self._rows = rows
        self._conditions = scan.conditions
        # The columns of pushed filters.
        self._filtered: tuple[str, ...] = ()
        # Planned here, because Spark pickles the reader before it asks for the partitions.
        snapshots = plan(scan.read.stores)
        self._ranges = None if scan.range is None else resolve_range(snapshots, scan.range, scan.read.fail_on_data_loss)
        self._stores = {broker: PlannedStore.of(snapshot, scan.conditions.topics) for broker, snapshot in snapshots.items()}
        if scan.conditions.topics is not None and scan.range is None:
            expect_topics(self._stores.values(), scan.conditions.topics)

    def partitions(self) -> Sequence[InputPartition]:
        reads_entries = (
            QUEUE_COLUMNS.issuperset(self._rows.of_message)
            and self._conditions.fit_queue_entries
            and all(planned.topics is not None and planned.is_local for planned in self._stores.values())
        )
        parts: Sequence[InputPartition]
        if self._ranges is not None:
            snapshots = {broker: planned.snapshot for broker, planned in self._stores.items()}
            parts = plan_range(snapshots, self._ranges, self._scan, self._conditions, reads_entries)
        else:
            if self._conditions == Conditions() and not reads_entries:
                self._log_whole_read()
            parts = plan_partitions(list(self._stores.values()), self._scan, self._conditions, reads_entries)
        # For an empty list Spark would create a partition None.
        return parts or [QueueRanges(None, ())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueRanges | Stretch | RangesPart)
        if isinstance(partition, RangesPart):
            yield from read_part(partition, self._conditions, self._rows, self._scan.read)
            return
        if isinstance(partition, QueueRanges):
            for part in partition.ranges:
                snapshot = self._stores[partition.broker].snapshot
                yield from read_queues(snapshot, part, self._conditions, self._rows, self._scan.read)
            return
        planned = self._stores[partition.broker]
        topics = self._conditions.topics
        asked = self._conditions.scan_arguments(partition.physical, None if topics is None else sorted(topics))
        yield from read_stretch(planned.snapshot, asked, self._rows, self._scan.read)

    def _log_whole_read(self) -> None:
        """Logs a read of a whole log, with the options that narrow a read."""
        size = sum(planned.snapshot.end - planned.snapshot.start for planned in self._stores.values())
        if size < _LARGE_READ_BYTES and not self._filtered:
            return
        why = f"the filters on {', '.join(self._filtered)} do not narrow" if self._filtered else "no option narrows"
        logging.getLogger("mqstore.spark").warning(
            "%s: %s the read, so all %d bytes of the log are read, and Spark filters the rows. Options topics, queueIds, "
            "startingTimestamp and endingTimestamp narrow the read",
            *(", ".join(planned.snapshot.path for planned in self._stores.values()), why, size),
        )


class PushingReader(MessageReader):
    """A reader with predicate pushdown. It is opt-in, because Spark reads later queries of the same frame by the plan that has
    the filters of an earlier query.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._conditions, rest = push(self._scan.conditions, filters)
        columns = (getattr(each, "attribute", ()) for each in filters)
        self._filtered = tuple(dict.fromkeys(".".join(column) for column in columns if column))
        # Spark must evaluate all filters on the rows of damaged messages, which are null.
        return filters if self._scan.read.errors == "corrupt_record" else rest
