"""Maps the partitions of an RDD with a function of batches and the stores of two brokers.

python spark_examples/map_partitions.py
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

import mqstore.spark as mq
from _session import events_store, start_spark

spark = start_spark("map partitions")
# Two brokers would have two stores. `Stores` is pickled to the workers, and each process opens a store once.
stores = mq.Stores({"broker-a": events_store(), "broker-b": events_store()})


def sizes(stores: mq.Stores, wanted: pa.RecordBatch) -> Iterator[Row]:
    """Resolves all rows of a broker in one call."""
    for broker in wanted["broker"].unique().to_pylist():
        own = pa.Table.from_batches([wanted]).filter(pc.field("broker") == broker)
        found = pa.record_batch(stores.open(broker).resolve_offsets(own))
        for topic, size in zip(own["topic"].to_pylist(), found["store_size"].to_pylist(), strict=True):
            yield Row(broker=broker, topic=topic, size=size)


rows = [
    (broker, topic, number % 4, number // 4)
    for broker in stores.brokers
    for topic in ("broker", "store")
    for number in range(10_000)
]
references = spark.sparkContext.parallelize(rows, 4)
found = references.mapPartitions(
    mq.batched(sizes, stores, 5_000, schema="broker string, topic string, queue_id int, queue_offset long")
)
frame = spark.createDataFrame(found, "broker string, topic string, size int")
frame.groupBy("broker", "topic").agg({"size": "sum", "*": "count"}).orderBy("broker", "topic").show()
print(f"{frame.where('size is not null').count():,} of {len(rows):,} references lead to a message")
spark.stop()
