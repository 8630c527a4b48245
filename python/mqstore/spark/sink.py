"""Writing: `df.write.format("mqstore").mode("append")`, and `append_batch` for `foreachBatch` of a streaming query.

    frame.write.format("mqstore").mode("append").option("jobId", "orders of 2024-05-01").save("/data/store")

The columns are those of `Writer.append_batch`; `body` is required. docs/SPARK.md has the options.

Tasks stage their rows as files. The driver appends them by partition, and syncs the store before it reports success. With a
`jobId` each row is stored once, however often the job is killed and run again: a run that finds a manifest ignores its own input
and continues after the last stored row. Without a `jobId` a write is at-least-once.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import MapType, StringType, StructType

import mqstore
from mqstore._native import _expect_outside
from mqstore.spark._job import (
    JOB_PREFIX,
    RUN_PREFIX,
    STREAM_PREFIX,
    Job,
    Staged,
    append_rows,
    stage_rows,
    staging_beside,
)
from mqstore.spark._option_reader import OptionReader, expect_known
from mqstore.spark._schema import BROKER
from mqstore.spark._task_stores import move_stores, stage_stores
from mqstore.spark.stores import local_path

_ACCEPTED = ("path", "topic", "jobId", "batchId", "stagingPath", "stores")
_LONGEST_JOB_ID = 200
_TEXT_PAIRS = MapType(StringType(), StringType())
_PROPERTIES = (_TEXT_PAIRS, MapType(StringType(), StringType(), valueContainsNull=False))
_SCRATCH_BYTES = 1 << 16
_NO_STREAMING_SINK = (
    'writeStream.format("mqstore") is not offered: foreachBatch writes each batch exactly once, '
    'frame.writeStream.foreachBatch(lambda batch, batch_id: mqstore.spark.append_batch(batch, batch_id, "/data/store", '
    'name="orders"))'
)


def append_batch(df: DataFrame, batch_id: int, store: str | os.PathLike[str], *, name: str, **options: Any) -> None:
    """Appends a batch of a streaming query to the store at this path exactly once, for `foreachBatch`.

    `name` identifies the query and belongs to one checkpoint. Name and batch id are the `jobId` of a write with format
    "mqstore", so a repeated batch continues after the last stored row. `df` and `options` are those of that write. Raises what
    the write raises, and ValueError for a batch id below the last one of this name.
    """
    # Checked here, because Spark converts the names to lower case.
    expect_known(options, _ACCEPTED)
    writer = df.write.format("mqstore").mode("append").option("jobId", name).option("batchId", batch_id)
    writer.options(**options).save(os.fspath(store))


@dataclass
class CommitMessage(WriterCommitMessage):
    """The result of a task for the driver."""

    staged: list[Staged]


class MessageWriter(DataSourceArrowWriter):
    """Stages rows in tasks, and commits them in the driver. It is pickled to the tasks."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._is_replay = job.is_written_by(job.manifest())
        if not self._is_replay:
            job.prepare()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        task = TaskContext.get()
        assert task is not None
        return CommitMessage(self.stage(iterator, task.partitionId(), task.taskAttemptId()))

    def stage(self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> list[Staged]:
        """Stages the rows of a partition, unless an earlier run has staged the job."""
        if self._is_replay:
            return []
        self._job.expect_prepared()
        stage = stage_stores if self._job.per_task else stage_rows
        return stage(self._job, batches, partition, attempt)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._is_replay:
            found = self._job.manifest()
            if found is None:
                raise mqstore.StoreError(f"{self._job.folder} was removed while the job ran: run the job again")
            logging.getLogger("mqstore.spark").warning(
                "job %s was begun by an earlier run, and is finished with its %d rows: the frame of this run is not read",
                *(found.key, found.rows),
            )
        staged = [each for message in messages if isinstance(message, CommitMessage) for each in message.staged]
        commit = move_stores if self._job.per_task else append_rows
        commit(self._job, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._job.abandon()


def message_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> MessageWriter:
    """Returns the writer of a frame of this schema. Raises ValueError for wrong options or columns."""
    if overwrite:
        raise ValueError('a store is an append-only log: use mode("append"), and to replace the store remove it first')
    job = parse(options, schema)
    expect_columns(job, schema)
    return MessageWriter(job)


def no_streaming_sink() -> ValueError:
    """Returns the error of `writeStream.format("mqstore")`."""
    return ValueError(_NO_STREAMING_SINK)


def parse(options: Mapping[str, str], schema: StructType) -> Job:
    """Parses the options of a write. Raises ValueError for a wrong option, with what it accepts."""
    given = OptionReader(options, _ACCEPTED)
    path = given.get("path")
    if not path:
        raise ValueError('path is missing: name the store directory by save("/path/of/the/store")')
    target = Path(local_path(path))
    per_task = given.word("stores", {"one": False, "per-task": True}, False)
    _expect_outside(target / "broker" if per_task else target)
    name, batch = _job_id(given.get("jobId")), _batch_id(given, per_task)
    staging = _staging(given.get("stagingPath"), target)
    if name is None:
        key, folder = None, staging
    elif batch is None:
        key, folder = name, staging / f"{JOB_PREFIX}{quote(name, safe='')}"
    else:
        key, folder = f"{name}#{batch}", staging / f"{STREAM_PREFIX}{quote(name, safe='')}"
    # A batch job can wait for a stalled disk.
    of_store = {"wait_time_out": 600_000} | given.open_options()
    if "mode" in of_store:
        raise ValueError("a write chooses the mode of the store: leave option.mode out")
    topic = given.get("topic")
    frame = ", ".join(sorted(f"{field.name} {field.dataType.simpleString()}" for field in schema))
    frame += f" for topic {topic}" if topic else ""
    write = f"{RUN_PREFIX}{uuid.uuid4().hex[:16]}"
    return Job(str(target), per_task, topic, frame, key, batch, folder, write, of_store)


def _job_id(text: str | None) -> str | None:
    if text is None or (text.isprintable() and "#" not in text and 0 < len(quote(text, safe="")) <= _LONGEST_JOB_ID):
        return text
    raise ValueError(
        f"jobId is printable text without #, of 1 to {_LONGEST_JOB_ID} bytes when it is percent-encoded, not {text!r}"
    )


def _batch_id(given: OptionReader, per_task: bool) -> int | None:
    text = given.get("batchId")
    if text is None:
        return None
    if given.get("jobId") is None:
        raise ValueError("batchId needs a jobId: the name of the query whose batches have these ids")
    if per_task:
        raise ValueError("batchId is for batches that go into one store, one after the other: leave stores out")
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"batchId is a whole number from 0, not {text!r}")
    return int(text)


def _staging(given: str | None, target: Path) -> Path:
    # Beside the store, so that renames stay on one file system; not in it, where a broker reads every file.
    staging = Path(local_path(given)) if given else staging_beside(target)
    if staging.is_relative_to(target):
        raise ValueError(f"stagingPath {staging} is inside {target}, which is written to: give a directory beside it")
    _expect_outside(staging / "job")
    return staging


def expect_columns(job: Job, schema: StructType) -> None:
    """Raises ValueError if rows of this schema cannot be appended, by an append without rows to a scratch store."""
    columns = {field.name: field.dataType for field in schema}
    if len(columns) < len(schema):
        raise ValueError(f"two columns of the frame have the same name; they are {', '.join(schema.names)}")
    if ("topic" in columns) == (job.topic is not None):
        raise ValueError(
            "the topic is a column of the frame or option topic, for all rows: give one of the two; the columns of the "
            f"frame are {', '.join(columns)}"
        )
    if job.key is not None and not job.per_task and columns.get("properties", _TEXT_PAIRS) not in _PROPERTIES:
        raise ValueError(
            f"column properties is {columns['properties'].simpleString()}: with a jobId it must be map<string,string>, "
            "because the job adds properties to each row"
        )
    appended = StructType([field for field in schema if not (job.per_task and field.name == BROKER)])
    # An array: a record batch without rows would be passed as a stream without batches, whose types are not checked.
    empty = pa.array([], pa.struct(_arrow_schema(appended)))
    options = job.store_options | {"geometry": None, "mapped_file_size_commit_log": _SCRATCH_BYTES, "services": False}
    with TemporaryDirectory() as scratch, mqstore.open(scratch, "x", **options) as store:
        store.append_batch(empty, job.topic)


def _arrow_schema(schema: StructType) -> pa.Schema:
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        # Before pyspark 4.3 the timezone is always UTC, and not an argument.
        return to_arrow_schema(schema)
