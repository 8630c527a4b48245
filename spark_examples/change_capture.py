"""Captures changes of a broker without a consumer group: a tap follows it into a local store, and Spark's stream reads that.

python spark_examples/change_capture.py

A writer of mqstore is the broker here. With one of RocketMQ the tap is mqstore.tap("10.0.0.1:10912", path, geometry="broker").
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

import mqstore
from _session import WORK, Event, load_events, start_spark

spark = start_spark("change capture")
events = load_events()
# Spark repeats a batch that was interrupted, so the counts are kept by batch id.
counted: dict[int, Counter[str]] = {}


def append(broker: mqstore.Writer, part: Sequence[Event]) -> mqstore.AppendResult:
    sent = [
        broker.append(event.topic, event.body, queue_id=event.queue_id, tags=event.tag, born_time=event.time_ms) for event in part
    ]
    return sent[-1]


def count(batch: DataFrame, batch_id: int) -> None:
    counted[batch_id] = Counter({row.tags: row["count"] for row in batch.groupBy("tags").count().collect()})


def capture(path: str, checkpoint: Path) -> int:
    """Counts what came since the last call, and returns the number of all messages."""
    changes = spark.readStream.format("mqstore").option("startingOffsets", "earliest").option("columns", "tags").load(path)
    query = changes.writeStream.foreachBatch(count).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query.start().awaitTermination()
    return sum(sum(counts.values()) for counts in counted.values())


with tempfile.TemporaryDirectory(dir=WORK) as folder:
    live, checkpoint = str(Path(folder) / "live"), Path(folder) / "checkpoint"
    with mqstore.open(Path(folder) / "broker", "x", broker_role="ASYNC_MASTER", ha_listen_port=0) as broker:
        address = str(broker.replicas.address)
        for part in (events[:3000], events[3000:]):
            last = append(broker, part)
            # The second tap continues where the first one ended.
            with mqstore.tap(address, live, "earliest", broker="") as tap:
                tap.wait(last, timeout=60)
                print(f"captured while the tap runs: {capture(live, checkpoint):,} messages")
        acknowledged = broker.replicas.replicated_offset
    print(f"acknowledged to the broker: {acknowledged} bytes")

wanted = Counter(event.tag for event in events)
print("Each message came once." if sum(counted.values(), Counter()) == wanted else f"WRONG: {wanted} were written")
spark.stop()
