"""Streaming queries of Spark read each message once across failures and restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import mqstore

Row = tuple[str, int, int]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[mqstore.Store]:
    """Opens a store for writing. Streams read what it has flushed."""
    with mqstore.open(tmp_path / "store", "a", mapped_file_size_commit_log=1 << 16) as writer:
        yield writer


def append(store: mqstore.Store, topic: str, messages: int) -> None:
    """Appends to three queues in turn, and flushes."""
    for number in range(messages):
        store.append(topic, b"%d" % number, queue_id=number % 3)
    store.flush()


def start(
    spark: SparkSession, path: str, checkpoint: Path, write: Callable[[DataFrame, int], None], **options: str
) -> StreamingQuery:
    frame = spark.readStream.format("mqstore").options(startingOffsets="earliest", **options).load(path)
    writer = frame.select("topic", "queue_id", "queue_offset").writeStream.foreachBatch(write)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


@pytest.mark.matrix
def test_a_restarted_query_continues_after_the_messages_it_has_written(
    spark: SparkSession, store: mqstore.Store, tmp_path: Path
) -> None:
    for _ in range(2):
        append(store, "a", 50)
        frame = spark.readStream.format("mqstore").option("startingOffsets", "earliest").load(store.path)
        writer = frame.select("topic", "queue_id", "queue_offset").writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
        assert query.awaitTermination(120)
    rows = Counter(tuple(row) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert set(rows.values()) == {1}
    assert len(rows) == 100


@pytest.mark.matrix
def test_spark_reports_wrong_options_of_a_stream(spark: SparkSession, store: mqstore.Store, tmp_path: Path) -> None:
    frame = spark.readStream.format("mqstore").option("tags", "a").load(store.path)
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException, match=r"option tags is refused: it is only for batches \(spark.read\)") as told:
        query.awaitTermination(120)
    assert "UnboundLocalError" not in str(told.value)


@pytest.mark.slow
def test_failed_batches_lose_and_repeat_no_message(spark: SparkSession, store: mqstore.Store, tmp_path: Path) -> None:
    if os.environ.get("TEST_REMOTE"):
        pytest.skip("the function of a batch runs in a process of its own over Spark Connect")
    batches: dict[int, list[Row]] = {}
    failures = iter([(0, "after"), (1, "before"), (None, "")])
    fails: tuple[int | None, str] = (None, "")

    def write(frame: DataFrame, batch_id: int) -> None:
        if fails == (batch_id, "before"):
            raise RuntimeError("before")
        batches[batch_id] = [tuple(row) for row in frame.collect()]
        if fails == (batch_id, "after"):
            raise RuntimeError("after")

    for fails in failures:
        append(store, "a", 50)
        query = start(spark, store.path, tmp_path / "checkpoint", write, subscribe="a", maxOffsetsPerTrigger="40")
        if fails[0] is None:
            assert query.awaitTermination(120)
        else:
            with pytest.raises(StreamingQueryException, match=fails[1]):
                query.awaitTermination(120)
    rows = Counter(row for batch in batches.values() for row in batch)
    assert set(rows.values()) == {1}
    assert len(rows) == 150
    assert max(map(len, batches.values())) <= 40


STREAM = """
import sys
from pyspark.sql import SparkSession
path, checkpoint, out = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
stream = builder.getOrCreate().readStream.format("mqstore").options(startingOffsets="earliest", maxOffsetsPerTrigger=100)
writer = stream.load(path).select("topic", "queue_id", "queue_offset").writeStream.format("parquet")
writer.option("checkpointLocation", checkpoint).start(out).awaitTermination()
"""


def kill_when(arguments: Sequence[str], folder: Path, batches: int) -> None:
    """Runs the stream, and kills its Java machine and Python processes when a folder has the files of a number of batches."""
    running = subprocess.Popen([sys.executable, "-c", STREAM, *arguments], start_new_session=True, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 240
        while sum(path.name.split(".")[0].isdigit() for path in folder.glob("*")) < batches:
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


@pytest.mark.slow
def test_a_query_killed_at_several_points_loses_and_repeats_nothing(
    spark: SparkSession, store: mqstore.Store, tmp_path: Path
) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    # Folders with a file for each batch that was planned, written, or finished.
    points = [(checkpoint / "offsets", 2), (out / "_spark_metadata", 5), (checkpoint / "commits", 8)]
    for number, (folder, batches) in enumerate(points):
        append(store, f"topic-{number}", 400)
        kill_when([store.path, str(checkpoint), str(out)], folder, batches)
    frame = spark.readStream.format("mqstore").option("startingOffsets", "earliest").load(store.path)
    writer = frame.select("topic", "queue_id", "queue_offset").writeStream.format("parquet").trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(checkpoint)).start(str(out)).awaitTermination(120)
    rows = Counter(tuple(row) for row in spark.read.parquet(str(out)).collect())
    assert set(rows.values()) == {1}
    assert Counter(topic for topic, _, _ in rows) == {f"topic-{number}": 400 for number in range(3)}
