"""Resolves (topic, key) to arrays of hits, by the hash index of the store.

python spark_examples/resolve_keys.py
"""

from __future__ import annotations

from _session import events_store, start_spark
from mqstore.spark import fetch, resolve_keys

spark = start_spark("resolve keys")
store = events_store()
issues = spark.createDataFrame(
    [("broker", "1568"), ("store", "9254"), ("store", "3708"), ("store", "no such issue")], "topic string, key string"
)
hits = resolve_keys(issues, store)
hits.selectExpr("topic", "key", "coalesce(size(hits), 0) as messages", "hits[0].physical_offset as first_at").show()

positions = hits.selectExpr("inline(hits)")
messages = fetch(positions, store, columns=["topic", "keys", "born_time", "body"])
messages.selectExpr("topic", "keys", "born_time", "get_json_object(string(body), '$.subject') as subject").show(truncate=70)
print(f"{messages.count()} messages carry one of the {issues.count()} keys")
spark.stop()
