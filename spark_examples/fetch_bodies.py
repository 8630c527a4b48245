"""Reads whole messages: converts a table of references to a table of messages.

python spark_examples/fetch_bodies.py
"""

from __future__ import annotations

from _session import events_store, start_spark
from mqstore.spark import fetch, resolve_offsets

spark = start_spark("fetch bodies")
store = events_store()
references = spark.range(0, 40).selectExpr("'store' as topic", "int(id % 4) as queue_id", "id div 4 as queue_offset")

messages = fetch(resolve_offsets(references, store), store, columns=["queue_id", "queue_offset", "tags", "born_time", "body"])
messages.selectExpr(
    "queue_id", "queue_offset", "tags", "born_time", "get_json_object(string(body), '$.subject') as subject"
).show(8, truncate=60)

row = messages.selectExpr("count(*) as messages", "sum(length(body)) as bytes").first()
assert row is not None
print(f"{row.messages} messages with {row.bytes:,} bytes of bodies")
spark.stop()
