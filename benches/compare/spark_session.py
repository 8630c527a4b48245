"""The shared parts of the rows of Spark: a session, a store, and a source of Arrow batches that reads no store.

Both sides of a row run in the same session, with as many tasks, and pass their rows to the sink `noop`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from rounds import RESULTS, size

import mqstore

TOPICS, QUEUES, BODY = 20, 4, 200
TASKS = 4
_APPENDED = 10_000


def messages() -> int:
    """Returns the number of messages of the store."""
    return size(2_000_000, 2000)


@cache
def session() -> SparkSession:
    """Returns the session for all rows."""
    travels(sys.modules[__name__])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for key, value in {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(Given)
    return spark


def travels(module: ModuleType) -> None:
    """Sends the functions of a module to the workers, which do not have this directory on their path."""
    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    register(module)


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Returns a directory for all rows, on the measured disk; it is removed when the process ends."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=RESULTS)


@cache
def filled() -> Path:
    """Creates a store of messages with a key each, in the queues of all topics in turn."""
    path = Path(folder().name) / "store"
    with mqstore.open(path, "x") as store:
        for first in range(0, messages(), _APPENDED):
            numbers = range(first, min(first + _APPENDED, messages()))
            rows = {
                "topic": [f"topic-{number % TOPICS}" for number in numbers],
                "queue_id": pa.array([number // TOPICS % QUEUES for number in numbers], pa.int32()),
                "keys": [[f"order-{number}"] for number in numbers],
                "tags": [f"tag-{number % 7}" for number in numbers],
                "body": [b"%0*d" % (BODY, number) for number in numbers],
            }
            store.append_batch(pa.table(rows))
    return path


def seconds(make: Callable[[], DataFrame]) -> float:
    """Measures from the call that creates a frame until the sink has all of its rows."""
    begin = time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


class Given(DataSource):
    """A data source that repeats the first batch of an Arrow file, until each task has returned its share of `rows`."""

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format`."""
        return "given"

    def schema(self) -> StructType:
        """Returns the schema of the file."""
        return from_arrow_schema(first_batch(self.options["path"]).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns a reader for any schema."""
        return _GivenReader(self.options["path"], int(self.options["rows"]))


class _GivenReader(DataSourceReader):
    def __init__(self, path: str, rows: int) -> None:
        self._path, self._rows = path, rows

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batch, left = first_batch(self._path), self._rows // TASKS
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows


def first_batch(path: str) -> pa.RecordBatch:
    """Returns the first batch of an Arrow file."""
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).get_batch(0)


def keep_first_batch(batches: mqstore.Batches, path: Path) -> None:
    """Writes the first batch as an Arrow file."""
    batch = pa.record_batch(next(iter(batches)))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as out:
        out.write_batch(batch)
