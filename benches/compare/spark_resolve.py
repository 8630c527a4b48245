"""Resolving references of a frame, and fetching their bodies, in rows in a second.

The limit is a function of the same columns that returns as many results of the same type without lookups.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udf
from rounds import LIMIT, OURS, Round, Row, Rust, measure
from spark_session import BODY, QUEUES, TASKS, TOPICS, filled, messages, seconds, session, travels

import mqstore.spark as mq

POSITION = "struct<physical_offset: bigint, store_size: int>"
HITS = "array<struct<queue_id: int, queue_offset: bigint, physical_offset: bigint, store_size: int>>"
# Its type stubs do not include functions of several columns, and types as text.
udf: Any = arrow_udf
#: Odd, and not a divisor of the number of messages: its multiples visit all of them in a scattered order.
STEP = 7919


def position(topic: pa.Array, queue_id: pa.Array, queue_offset: pa.Array) -> pa.Array:
    """Returns results with the columns of resolve_offsets."""
    return pa.StructArray.from_arrays([queue_offset, queue_id], ["physical_offset", "store_size"])


def one_hit(topic: pa.Array, key: pa.Array) -> pa.Array:
    """Returns results with the columns of resolve_keys."""
    numbers = pa.array(np.arange(len(key), dtype=np.int64))
    small = numbers.cast(pa.int32())
    hits = pa.StructArray.from_arrays(
        [small, numbers, numbers, small], ["queue_id", "queue_offset", "physical_offset", "store_size"]
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(len(key) + 1, dtype=np.int32)), hits)


def some_bodies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Returns results with the columns of fetch."""
    bodies = pa.array([bytes(BODY)] * 10_000, pa.binary())
    for batch in batches:
        yield pa.record_batch([bodies.slice(0, batch.num_rows)], ["body"])


def in_order(positions: DataFrame) -> DataFrame:
    """Sorts by offset in the log, in each partition."""
    return positions.sortWithinPartitions("physical_offset")


def rate(make: Callable[[], DataFrame], rows: int, _: Path) -> float:
    """Returns the rows in a second."""
    return rows / seconds(make)


def compare(name: str, target: float, rows: int, frames: dict[str, Callable[[], DataFrame]]) -> None:
    """Measures a row."""
    contenders: dict[str, Round] = {who: partial(rate, make, rows) for who, make in frames.items()}
    measure(Row(name, {}, "rows/s", {"ratio_limit": target}), contenders, None)


def numbers() -> DataFrame:
    """Returns the queue offset of each message, in a scattered order."""
    travels(sys.modules[__name__])
    return session().range(0, messages(), 1, TASKS).selectExpr(f"id * {STEP} % {messages()} as n")


def references() -> DataFrame:
    """Returns references to all messages."""
    return numbers().selectExpr(
        f"concat('topic-', n % {TOPICS}) as topic",
        f"int(n div {TOPICS} % {QUEUES}) as queue_id",
        f"n div {TOPICS * QUEUES} as queue_offset",
    )


def offsets(_: Rust | None) -> None:
    """Measures the row."""
    asked, function = references(), udf(position, POSITION)
    answer = function("topic", "queue_id", "queue_offset").alias("p")
    compare(
        "spark_resolve_offsets",
        0.85,
        messages(),
        {
            OURS: lambda: mq.resolve_offsets(asked, filled()),
            LIMIT: lambda: asked.select("*", answer).select("*", "p.physical_offset", "p.store_size").drop("p"),
        },
    )


def keys(_: Rust | None) -> None:
    """Measures the row; each key is requested once."""
    count = messages() // 4
    some = numbers().limit(count).selectExpr(f"concat('topic-', n % {TOPICS}) as topic", "concat('order-', n) as key")
    asked, function = some.repartition(TASKS).cache(), udf(one_hit, HITS)
    assert asked.distinct().count() == count
    compare(
        "spark_resolve_keys",
        0.5,
        count,
        {
            OURS: lambda: mq.resolve_keys(asked, filled()),
            LIMIT: lambda: asked.select("*", function("topic", "key").alias("hits")),
        },
    )
    asked.unpersist()


def fetch(_: Rust | None) -> None:
    """Measures the row."""
    asked = mq.resolve_offsets(references(), filled()).select("physical_offset").cache()
    assert asked.where("physical_offset is not null").count() == messages()
    compare(
        "spark_fetch",
        0.75,
        messages(),
        {
            OURS: lambda: mq.fetch(asked, filled(), columns=["body"]),
            LIMIT: lambda: asked.mapInArrow(some_bodies, "body binary"),
            "mqstore, sorted before": lambda: mq.fetch(in_order(asked), filled(), columns=["body"]),
        },
    )
    asked.unpersist()
