"""Appends a frame to a store with df.write, each row once, however often the job runs.

python spark_examples/append_frame.py
"""

from __future__ import annotations

import tempfile

import mqstore
from _session import WORK, events_store, start_spark

spark = start_spark("append a frame")
fixes = spark.read.format("mqstore").option("topics", "broker,store").load(str(events_store())).where("tags = 'fix'")
fixes = fixes.selectExpr("'fixes' as topic", "queue_id", "keys", "born_time", "body")

with tempfile.TemporaryDirectory(dir=WORK) as directory:
    path = f"{directory}/store"
    for run in (1, 2):
        fixes.write.format("mqstore").mode("append").option("jobId", "fixes").save(path)
        with mqstore.open(path) as store:
            print(f"after run {run}: {sum(map(len, store.topics['fixes'].queues)):,} messages")
            last = store.scan(limit=1, reverse=True, columns=["properties"]).to_arrow()["properties"][0].as_py()
            print(f"the last one is row {dict(last)['MQSTORE_ROW']} of job {dict(last)['MQSTORE_JOB']}")
spark.stop()
