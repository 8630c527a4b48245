"""Looks up positions, keys, times and bodies in columns and in SQL.

python spark_examples/column_functions.py
"""

from __future__ import annotations

import mqstore.spark as mq
from _session import events_store, start_spark

spark = start_spark("column functions")
store = events_store()
references = spark.range(0, 6).selectExpr("'store' as topic", "int(id % 4) as queue_id", "id * 20 as queue_offset")

# Spark sends only the arguments of a function to Python.
located = references.withColumn("p", mq.message_position("topic", "queue_id", "queue_offset", store=store))
bodies = located.withColumn("body", mq.message_body("p.physical_offset", store=store))
bodies.selectExpr("queue_id", "queue_offset", "p.physical_offset", "get_json_object(string(body), '$.subject') as subject").show(
    truncate=60
)

issues = spark.createDataFrame([("broker", "1568"), ("store", "9254"), ("store", "no such issue")], "topic string, key string")
newest = issues.withColumn("hits", mq.key_hits("topic", "key", store=store, limit=1))
newest.selectExpr("topic", "key", "hits[0].physical_offset as newest_at").show()

begins = references.selectExpr("topic", "queue_id", "timestamp '2020-01-01 00:00:00' as time").distinct()
begins.withColumn("first", mq.queue_offset_at("topic", "queue_id", "time", store=store)).orderBy("queue_id").show()

# The same in SQL.
mq.register_functions(spark, store, limit=1)
references.createOrReplaceTempView("refs")
spark.sql(
    """WITH located AS (SELECT *, message_position(topic, queue_id, queue_offset) AS p FROM refs)
    SELECT count(p.physical_offset) AS found, count(*) AS asked, sum(length(message_body(p.physical_offset))) AS bytes
    FROM located"""
).show()
found = located.where("p.physical_offset is not null").count()
print(f"{found} of {references.count()} references lead to a message")
spark.stop()
