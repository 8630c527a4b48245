"""A user function over batches of references, compared with one call for each; and the cost of a batch of a stream.

The limit of the first is a function without lookups, and that of a batch of a stream is a stream reader that has a row for
each batch and reads nothing.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row as SparkRow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from rounds import LIMIT, OURS, Round, Row, Rust, measure, size
from spark_session import BODY, QUEUES, TASKS, TOPICS, filled, folder, messages, session, travels

import mqstore
import mqstore.spark as mq

SCHEMA = "topic string, queue_id int, queue_offset long"
#: The target speedup over single calls.
TIMES = 10.0
BATCHES = size(20, 3)
PER_BATCH = 100


def sizes(store: mqstore.Store, wanted: pa.RecordBatch) -> pa.RecordBatch:
    """Makes one call for all."""
    return pa.record_batch(store.resolve_offsets(wanted)).select(["store_size"])


def no_sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Returns as many results of the same type, without lookups."""
    for batch in batches:
        yield batch.select(["queue_id"]).rename_columns(["store_size"])


def single_gets(rows: Iterable[SparkRow], *, path: str) -> Iterator[int]:
    """Makes one call for each."""
    with mqstore.open(path) as store:
        for row in rows:
            yield store.get(row.topic, row.queue_id, row.queue_offset, max_messages=1).messages[0].store_size


def batched(_: Rust | None) -> None:
    """Measures the row."""
    travels(sys.modules[__name__])
    spark, path, rows = session(), filled(), messages()
    n = f"(id * 7919 % {messages()})"
    references = spark.range(0, rows, 1, TASKS).selectExpr(
        f"concat('topic-', {n} % {TOPICS}) as topic",
        f"int({n} div {TOPICS} % {QUEUES}) as queue_id",
        f"{n} div {TOPICS * QUEUES} as queue_offset",
    )

    def through_arrow(function: Any, _: Path) -> float:
        begin = time.perf_counter()
        found = references.mapInArrow(function, "store_size int")
        assert found.selectExpr("count(store_size)").first() == (rows,)
        return rows / (time.perf_counter() - begin)

    def through_rdd(_: Path) -> float:
        begin = time.perf_counter()
        assert references.rdd.mapPartitions(mq.batched(sizes, path, schema=SCHEMA)).count() == rows
        return rows / (time.perf_counter() - begin)

    def one_by_one(_: Path) -> float:
        begin = time.perf_counter()
        assert references.rdd.mapPartitions(partial(single_gets, path=str(path))).count() == rows
        return rows / (time.perf_counter() - begin)

    contenders: dict[str, Round] = {
        OURS: partial(through_arrow, mq.batched(sizes, path)),
        LIMIT: partial(through_arrow, no_sizes),
        "mqstore, batches of an RDD": through_rdd,
        "single gets of an RDD": one_by_one,
    }
    measure(Row("spark_batched", {}, "rows/s", {"ratio_peers": TIMES}), contenders, None)


class Nothing(DataSource):
    """A data source that streams one row for each batch."""

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format`."""
        return "nothing"

    def schema(self) -> str:
        """Returns the schema of our source."""
        return "body binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns a reader for any schema."""
        return _NothingReader()


class _NothingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(PER_BATCH)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"batch": min(start["batch"] + 1, BATCHES)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield pa.record_batch([pa.array([bytes(BODY)])], ["body"])


def batch_ms(stream: Any, checkpoint: Path) -> float:
    """Returns the median of the batches except the first."""
    query = (
        stream.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(600)
    times = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
    assert len(times) == BATCHES
    return float(statistics.median(times[1:]))


def batch_cost(_: Rust | None) -> None:
    """Measures the row."""
    travels(sys.modules[__name__])
    path = Path(folder().name) / "stream"
    with mqstore.open(path, "x") as store:
        store.append_batch([bytes(BODY)] * (BATCHES * PER_BATCH), topic="orders")
    session().dataSource.register(Nothing)
    read = session().readStream
    ours = {"path": str(path), "columns": "body", "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(PER_BATCH)}
    contenders: dict[str, Round] = {
        OURS: partial(batch_ms, read.format("mqstore").options(**ours)),
        LIMIT: partial(batch_ms, session().readStream.format("nothing")),
    }
    measure(Row("spark_batch_cost", {}, "ms a batch", {"ratio_limit": 1 / 1.2}), contenders, None)
