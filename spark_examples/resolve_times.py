"""Counts the messages of each queue in each second by its offsets at the begin of each second, without reads of messages.

python spark_examples/resolve_times.py
"""

from __future__ import annotations

from datetime import timedelta

import mqstore
import mqstore.spark as mq
from _session import events_store, start_spark

spark = start_spark("resolve times")
store = events_store()
with mqstore.open(store) as opened:
    queue = opened.topics["store"].queues[0]
    first, last = queue[0].store_time.replace(microsecond=0), queue[-1].store_time
seconds = [(first + timedelta(seconds=n),) for n in range(int((last - first).total_seconds()) + 2)]
times = spark.createDataFrame(seconds, "time timestamp").crossJoin(
    spark.range(4).selectExpr("'store' as topic", "int(id) as queue_id")
)

offsets = mq.resolve_times(times, store)
gained = offsets.selectExpr(
    "topic", "queue_id", "time", "lead(queue_offset) over (partition by queue_id order by time) - queue_offset as messages"
).where("messages is not null")
gained.groupBy("time").sum("messages").withColumnRenamed("sum(messages)", "messages").orderBy("time").show()
total = gained.selectExpr("sum(messages) as messages").first()
assert total is not None
print(f"{total.messages:,} messages of topic store in 4 queues")
spark.stop()
