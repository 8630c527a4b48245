"""mqstore for PySpark: resolves references in bulk, fetches messages, scans topics, streams and writes.

    from mqstore.spark import fetch, resolve_keys, resolve_offsets

    positions = resolve_offsets(references, "/data/store")    # + physical_offset, store_size
    messages = fetch(positions, "/data/store")                # a row for each message
    orders = spark.read.format("mqstore").option("topics", "orders").load("/data/store")
    orders.write.format("mqstore").mode("append").option("jobId", "copy of 2024-05-01").save("/data/copy")

It uses the DataFrame API alone, so it works over Spark Connect. The path must be valid on each node that reads it. docs/SPARK.md
has all options, what a job reads, and what fails it.
"""

from __future__ import annotations

try:
    import pandas as _pandas  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
    from pyspark.sql.datasource import DataSourceArrowWriter as _DataSourceArrowWriter  # noqa: F401  (new in 4.0)
except ImportError as _missing:
    raise ImportError(
        "mqstore.spark needs pyspark 4.0 or later, pyarrow and pandas: run pip install '.[spark]' in a checkout of mqstore"
    ) from _missing

from pyspark.sql import SparkSession

from mqstore.spark._schema import MESSAGE_SCHEMA
from mqstore.spark.batched import batched
from mqstore.spark.functions import key_hits, message_body, message_position, queue_offset_at, register_functions
from mqstore.spark.jobs import CleanedJobs, clean_jobs
from mqstore.spark.resolve import fetch, resolve_keys, resolve_offsets, resolve_times
from mqstore.spark.scan import Where, scan
from mqstore.spark.sink import append_batch
from mqstore.spark.source import MessageDataSource
from mqstore.spark.stores import Stores, manifest

__all__ = [
    "MESSAGE_SCHEMA",
    "CleanedJobs",
    "Stores",
    "Where",
    "append_batch",
    "batched",
    "clean_jobs",
    "fetch",
    "key_hits",
    "manifest",
    "message_body",
    "message_position",
    "queue_offset_at",
    "register",
    "register_functions",
    "resolve_keys",
    "resolve_offsets",
    "resolve_times",
    "scan",
]


def register(spark: SparkSession) -> None:
    """Registers format "mqstore" in this session. Spark finds it without this where `pyspark_mqstore` is installed."""
    spark.dataSource.register(MessageDataSource)
