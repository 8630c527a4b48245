"""Follows two topics of a store while it is written, and continues after a restart.

python spark_examples/tail_topics.py
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import mqstore
from _session import WORK, Event, load_events, start_spark

# The second topic has no message at first.
TOPICS = ["root", "broker"]

spark = start_spark("tail topics")
events = load_events()
# Spark repeats a batch that was interrupted, so the counts are kept by batch id.
counted: dict[int, Counter[str]] = {}


def append(store: mqstore.Writer, part: Sequence[Event]) -> None:
    """Appends and flushes. A stream reads only durable messages."""
    for event in part:
        store.append(event.topic, event.body, queue_id=event.queue_id, tags=event.tag, born_time=event.time_ms)
    store.flush()


def count(batch: DataFrame, batch_id: int) -> None:
    counted[batch_id] = Counter({row.topic: row["count"] for row in batch.groupBy("topic").count().collect()})


def follow(path: str, checkpoint: Path, **trigger: bool | str) -> StreamingQuery:
    messages = (
        spark.readStream.format("mqstore")
        .option("subscribe", ",".join(TOPICS))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1000)
        .option("columns", "topic")
        .load(path)
    )
    return messages.writeStream.foreachBatch(count).option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()  # type: ignore[arg-type]


def show(what: str) -> None:
    """Prints the number of messages so far."""
    total = sum(counted.values(), Counter())
    print(f"{what:29}" + "".join(f"  {topic} {total[topic]:>5,}" for topic in TOPICS))


with tempfile.TemporaryDirectory(dir=WORK) as folder, mqstore.open(Path(folder) / "store", "x") as store:
    query = follow(store.path, Path(folder) / "checkpoint", processingTime="100 milliseconds")
    for number, part in enumerate((events[:2000], events[2000:5000]), 1):
        append(store, part)
        query.processAllAvailable()
        show(f"while it is written, part {number}")
    query.stop()

    append(store, events[5000:])
    follow(store.path, Path(folder) / "checkpoint", availableNow=True).awaitTermination()
    show("after a restart")

wanted = Counter(event.topic for event in events if event.topic in TOPICS)
print("Each message came once." if sum(counted.values(), Counter()) == wanted else f"WRONG: {wanted} were written")
spark.stop()
