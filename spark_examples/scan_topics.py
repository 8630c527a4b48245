"""Reads whole topics with spark.read.format("mqstore"), from Python and from SQL, without a registration.

python spark_examples/scan_topics.py
"""

from __future__ import annotations

import mqstore.spark as mq
from _session import events_store, start_spark

spark = start_spark("scan topics")
store = events_store()

# The queues have these columns, so no message is read.
print(f"{mq.scan(spark, store, columns=['topic', 'queue_id']).count():,} messages by the queues")

# The schema names the wanted columns. No body is sent to Spark.
messages = spark.read.format("mqstore").schema("topic string, queue_id int, born_time timestamp").load(str(store))
print(f"{messages.count():,} messages in {messages.select('topic').distinct().count()} topics")
messages.groupBy("topic").count().orderBy("count", ascending=False).show(5)

# A range of queue offsets, as in Spark's Kafka source: the end is exclusive, -1 is the end of a queue.
part = (
    spark.read.format("mqstore")
    .option("assign", '{"store": [0, 1]}')
    .option("startingOffsets", '{"store": {"0": 100, "1": 100}}')
    .option("endingOffsets", '{"store": {"0": 110, "1": -1}}')
    .load(str(store))
)
part.groupBy("queue_id").count().orderBy("queue_id").show()

spark.sql(
    f"CREATE TEMPORARY VIEW fixes USING mqstore OPTIONS (path '{store}', topics 'broker,store', columns 'topic,tags,born_time')"
)
spark.sql(
    """SELECT year(born_time) AS year, count_if(topic = 'broker') AS broker, count_if(topic = 'store') AS store
    FROM fixes WHERE tags = 'fix' GROUP BY 1 ORDER BY 1"""
).show()
spark.stop()
