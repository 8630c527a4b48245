"""A job in two executors, whose Python workers have less address space than the files of the store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import mqstore

HERE = Path(__file__).parent

# A process has one cluster of Spark, so this test needs a process of its own.
JOB = f"""
import json, resource, os, sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent / "data")!r}]
import pyarrow as pa
from conftest import SETTINGS
from pyspark.sql import SparkSession
import mqstore.spark as mq

path, copy = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.executor.memory", "512m")
for key, value in (SETTINGS | {{"spark.executor.pyspark.memory": "512m"}}).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()

def who(batches):
    # The parent of a worker is the daemon of its executor.
    for _ in batches:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        yield pa.record_batch([pa.array([os.getppid()]), pa.array([limit])], ["parent", "limit"])

# Without this the first executor may run all of the small tasks.
parents = set()
while len(parents) < 2:
    workers = spark.range(0, 100, 1, 10).mapInArrow(who, "parent long, limit long").collect()
    parents.update(row.parent for row in workers)

messages = mq.scan(spark, path, minPartitions=4)
references = messages.select("topic", "queue_id", "queue_offset")
bodies = mq.fetch(mq.resolve_offsets(references, path), path, columns=["body"])
keys = spark.range(0, 1000, 1, 4).selectExpr("'orders' as topic", "concat('k', id) as key")
found = {{
    "limits": sorted({{row.limit for row in workers}}),
    "tasks": messages.rdd.getNumPartitions(),
    "scanned": messages.count(),
    "fetched": bodies.where("length(body) = 1000").count(),
    "found by key": mq.resolve_keys(keys, path).where("size(hits) = 1").count(),
}}
messages.write.format("mqstore").mode("append").option("jobId", "copy").save(copy)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_two_executors_with_little_memory_process_a_store_of_broker_size(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", mode="x", geometry="broker") as store:
        store.append_batch([("orders", bytes(1000), None, [f"k{number}"], None, number % 2) for number in range(1000)])
    command = [sys.executable, "-c", JOB, tmp_path / "store", tmp_path / "copy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "limits": [512 << 20],
        "tasks": 4,
        "scanned": 1000,
        "fetched": 1000,
        "found by key": 1000,
    }
    with mqstore.open(tmp_path / "copy") as store:
        keys = store.scan(columns=["keys"]).to_arrow()["keys"].to_pylist()
    assert sorted(keys) == sorted([f"k{number}"] for number in range(1000))
