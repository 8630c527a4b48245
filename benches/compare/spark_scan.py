"""Reading a whole store into a frame, in rows in a second; counting it; and the number of reads of each byte of a cold log.

The limit of a scan is a source that returns as many rows of the same columns from memory. The limit of a count is the read whose
options state the whole request.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from rounds import LIMIT, OURS, Round, Row, Rust, measure, size
from spark_session import TASKS, TOPICS, filled, folder, keep_first_batch, messages, seconds, session

import mqstore
import mqstore.spark as mq

#: The columns of a scan, and its target ratio to the limit.
COLUMNS = {
    "of queues": (["topic", "queue_id", "queue_offset", "physical_offset", "store_size"], 0.8),
    "of the log": (["queue_id", "queue_offset", "store_time", "born_time", "tags"], 0.6),
    "with body": (["queue_id", "queue_offset", "body"], 0.7),
}
#: A count takes at most 1.5 times as long as the limit.
COUNT_TARGET = {"ratio_limit": 1 / 1.5}

_COLD = """
import os, sys
from mqstore.spark.source import MessageDataSource
source = MessageDataSource({"path": sys.argv[1], "columns": "body", "targetPartitionBytes": sys.argv[2]})
reader = source.reader(source.schema())

def bytes_read():
    with open("/proc/self/io") as counts:
        return int(next(line for line in counts if line.startswith("read_bytes")).split()[1])

before = bytes_read()
rows = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
print(rows, bytes_read() - before)
"""


def rate(make: Callable[[], DataFrame], _: Path) -> float:
    """Returns the rows in a second."""
    return messages() / seconds(make)


def scan(_: Rust | None) -> None:
    """Measures a row for each set of columns."""
    for name, (columns, target) in COLUMNS.items():
        given = Path(folder().name) / f"{name}.arrow"
        with mqstore.open(filled()) as store:
            keep_first_batch(store.scan(columns=columns), given)
        contenders: dict[str, Round] = {
            OURS: partial(rate, partial(mq.scan, session(), filled(), columns=columns, minPartitions=TASKS)),
            LIMIT: partial(rate, partial(session().read.format("given").option("rows", messages()).load, str(given))),
        }
        measure(Row("spark_scan", {"columns": name}, "rows/s", {"ratio_limit": target}), contenders, None)


def counted(make: Callable[[], DataFrame], expected: int, _: Path) -> float:
    """Returns the seconds of a count."""
    begin = time.perf_counter()
    assert make().count() == expected
    return time.perf_counter() - begin


def count(_: Rust | None) -> None:
    """Measures counts of all messages, and of those of a topic."""
    path, of_topic = filled(), messages() // TOPICS

    def load(**options: str) -> DataFrame:
        return session().read.format("mqstore").options(**options).load(str(path))

    contenders: dict[str, Round] = {
        OURS: partial(counted, lambda: mq.scan(session(), path, columns=["queue_id"]), messages()),
        LIMIT: partial(counted, lambda: load(columns="queue_id"), messages()),
        "mqstore, load().count()": partial(counted, load, messages()),
    }
    measure(Row("spark_count", {"of": "all"}, "s", COUNT_TARGET), contenders, None)
    contenders = {
        OURS: partial(counted, lambda: load(pushdown="true").where("topic = 'topic-7'"), of_topic),
        LIMIT: partial(counted, lambda: load(topics="topic-7"), of_topic),
        "mqstore, without push-down": partial(counted, lambda: load().where("topic = 'topic-7'"), of_topic),
    }
    measure(Row("spark_count", {"of": "a topic"}, "s", COUNT_TARGET), contenders, None)


def cold_reads(path: Path, _: Path) -> float:
    """Returns the bytes read from the disk for each byte of the log, in a process that reads task by task, as a worker does."""
    log = [segment for segment in (path / "commitlog").iterdir() if segment.is_file()]
    for segment in log:
        with segment.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    command = [sys.executable, "-c", _COLD, str(path), str(size(16 << 20, 64 << 10))]
    rows, found = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert rows == messages()
    with mqstore.open(path) as store:
        return found / (store.max_physical_offset - store.min_physical_offset)


def cold(_: Rust | None) -> None:
    """Measures the row."""
    contenders: dict[str, Round] = {OURS: partial(cold_reads, filled())}
    measure(Row("spark_cold", {}, "bytes a byte", {"at_most": 1.1}), contenders, None)
