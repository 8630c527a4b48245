"""Resolves (topic, queue_id, queue_offset) to positions in the commit log.

python spark_examples/resolve_offsets.py
"""

from __future__ import annotations

from _session import events_store, start_spark
from mqstore.spark import resolve_offsets

spark = start_spark("resolve offsets")
references = spark.createDataFrame(
    [("reader 1", "broker", 0, 0), ("reader 1", "broker", 1, 100), ("reader 2", "store", 3, 7), ("reader 2", "store", 3, 9999)],
    "consumer string, topic string, queue_id int, queue_offset long",
)
positions = resolve_offsets(references, events_store())
positions.show()

found = positions.where("physical_offset is not null").count()
print(f"{found} of {references.count()} references lead to a message")
spark.stop()
