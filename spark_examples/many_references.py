"""Resolves ten million references, fetches the bodies of some, and measures it.

python spark_examples/many_references.py [--references 10000000] [--messages 1000000]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

import mqstore
import mqstore.spark as mq
from _session import WORK, start_spark, step

QUEUES = 16

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--references", type=int, default=10_000_000, help="rows to resolve")
parser.add_argument("--messages", type=int, default=1_000_000, help="messages in the store")
given = parser.parse_args()
each = -(-given.messages // QUEUES)

spark = start_spark("many references")
with tempfile.TemporaryDirectory(dir=WORK) as scratch:
    path = f"{scratch}/store"
    with step(f"writing {each * QUEUES:,} messages"), mqstore.open(path, mode="x") as store:
        for first in range(0, each, 10_000):
            count = min(10_000, each - first)
            for queue in range(QUEUES):
                store.append_batch([b"%0200d" % number for number in range(first, first + count)], topic="orders", queue_id=queue)

    # Spread over all queues, and a tenth of them past the end.
    spread = f"id * 7919 % {each + each // 10}"
    references = spark.range(given.references).selectExpr(
        "'orders' as topic", f"int(id % {QUEUES}) as queue_id", f"{spread} as queue_offset"
    )
    positions = mq.resolve_offsets(references, path)
    begin = time.perf_counter()
    row = positions.selectExpr(
        "count(*) as asked", "count(physical_offset) as found", f"count_if(queue_offset < {each}) as there"
    ).first()
    seconds = time.perf_counter() - begin
    assert row is not None
    some = mq.fetch(positions.where("queue_offset % 100 = 0"), path, columns=["body"], keep=["queue_offset"])
    right = some.where("int(string(body)) = queue_offset").count()
    fetched = some.count()
spark.stop()

print(f"{row.found:,} of {row.asked:,} references lead to a message: {seconds:.1f} s, {row.asked / seconds:,.0f} rows/s")
print(f"{right:,} of {fetched:,} fetched bodies are the right ones")
sys.exit(0 if row.found == row.there and right == fetched else 1)
