"""Which messages of a time name something, who sent them, and what stands in them: a search through the bodies of a whole log.

python spark_examples/forensic_search.py
"""

from __future__ import annotations

from datetime import UTC, datetime

import mqstore.spark as mq
from _session import events_store, start_spark

spark = start_spark("forensic search")
store = events_store()

# Bodies are searched where they are read; only those that match become rows. DROPMALFORMED: a damaged message ends no search.
suspects = mq.scan(
    spark,
    store,
    columns=["topic", "queue_id", "queue_offset", "born_time", "born_host", "body"],
    where={"body_regex": "(?i)out ?of ?memory|oom"},
    mode="DROPMALFORMED",
)
found = (
    suspects.orderBy("born_time").selectExpr("topic", "queue_id", "queue_offset", "born_time", "string(body) AS text").collect()
)
print(f"{len(found)} messages name it, of {mq.scan(spark, store, columns=['queue_id']).count():,}")
for row in found[:3]:
    print(f"{row.born_time:%Y-%m-%d}  {row.topic}/{row.queue_id} at {row.queue_offset}: {row.text[:80]}")

# The same for one of some keys, and for a time: segments that were written at another time are not read.
by_key = mq.scan(spark, store, columns=["topic", "tags"], where={"keys": ["1568", "7"]})
print(f"{by_key.count()} messages carry one of two keys")
print(f"{mq.scan(spark, store, columns=['tags'], ending=datetime(2000, 1, 1, tzinfo=UTC)).count()} messages are from before 2000")
spark.stop()
