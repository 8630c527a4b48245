"""Backfills a store into Parquet, partitioned by year, and compares its counts by hour with those of the store.

python spark_examples/backfill.py
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter

from pyspark.sql.functions import date_format, year

import mqstore
import mqstore.spark as mq
from _session import WORK, events_store, start_spark

spark = start_spark("backfill")
spark.conf.set("spark.sql.session.timeZone", "UTC")  # the zone of years and hours
store = events_store()

# Only these columns are read. The store of a broker has some days: partition those by date(born_time).
columns = ["topic", "queue_id", "queue_offset", "born_time", "tags", "keys", "body"]
messages = mq.scan(spark, store, columns=columns).withColumn("year", year("born_time"))
with tempfile.TemporaryDirectory(dir=WORK) as folder:
    # One task has all rows of a year, and writes one file.
    messages.repartition("year").write.partitionBy("year").parquet(f"{folder}/messages")
    written = spark.read.parquet(f"{folder}/messages")
    by_hour = written.groupBy(date_format("born_time", "yyyy-MM-dd HH").alias("hour")).count()
    found = {row["hour"]: row["count"] for row in by_hour.collect()}
    written.groupBy("year").count().orderBy("year").show(3)
    by_hour.orderBy("count", "hour", ascending=False).show(3)
spark.stop()

with mqstore.open(store) as opened:
    times = opened.scan(columns=["born_time"]).to_arrow()["born_time"].to_pylist()
expected = Counter(f"{time:%Y-%m-%d %H}" for time in times)
print(f"{sum(found.values()):,} messages of {len(found):,} hours; {len(expected - Counter(found)):,} hours miss messages")
sys.exit(0 if found == expected else 1)
