"""Joins a table with messages by key: each row gets the newest messages with its key.

python spark_examples/join_by_key.py
"""

from __future__ import annotations

from pyspark.sql.functions import explode

import mqstore.spark as mq
from _session import events_store, start_spark

spark = start_spark("join by key")
store = events_store()
issues = spark.createDataFrame(
    [("Ann", "broker", "1568"), ("Ben", "store", "9254"), ("Cem", "store", "3708"), ("Dan", "store", "no such issue")],
    "owner string, topic string, key string",
)

# A limit bounds the memory for a key with very many messages.
hits = mq.resolve_keys(issues, store, limit=2).withColumn("hit", explode("hits")).select("owner", "key", "hit.physical_offset")
joined = mq.fetch(hits, store, columns=["topic", "born_time", "body"], keep=["owner", "key"])
joined.selectExpr(
    "owner", "key", "topic", "date(born_time) as born", "get_json_object(string(body), '$.subject') as subject"
).show(truncate=60)
print(f"{joined.count()} messages for {joined.select('owner').distinct().count()} of {issues.count()} owners")
spark.stop()
