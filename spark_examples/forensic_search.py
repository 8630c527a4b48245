"""Searches the bodies of a whole log, by pattern, by key and by time.

python spark_examples/forensic_search.py
"""

from __future__ import annotations

from datetime import UTC, datetime

import mqstore.spark as mq
from _session import events_store, start_spark

spark = start_spark("forensic search")
store = events_store()

# Workers search the bodies that they read, and only matches become rows. The search skips damaged messages.
suspects = mq.scan(
    spark,
    store,
    columns=["topic", "queue_id", "queue_offset", "born_time", "body"],
    where={"body_regex": r"(?i)\boom\b|out ?of ?memory"},
    errors="skip",
)
found = suspects.selectExpr("*", "get_json_object(string(body), '$.subject') AS subject").orderBy("born_time").collect()
print(f"{len(found)} messages name it, of {mq.scan(spark, store, columns=['queue_id']).count():,}")
for row in found[:3]:
    print(f"{row.born_time:%Y-%m-%d}  {row.topic}/{row.queue_id} at {row.queue_offset}: {row.subject}")

# By keys, and by a time: segments of other times are not read.
by_key = mq.scan(spark, store, columns=["topic", "tags"], where={"keys": ["1568", "7"]})
print(f"{by_key.count()} messages carry one of two keys")
print(f"{mq.scan(spark, store, columns=['tags'], until=datetime(2000, 1, 1, tzinfo=UTC)).count()} messages are from before 2000")
spark.stop()
