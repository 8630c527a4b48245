"""Opens, reads and queries Apache RocketMQ-format message stores in-process, with no broker.

    import mqstore

    with mqstore.open("/data/store") as store:
        queue = store.topics["orders"].queues[0]
        for message in queue[100:200]:
            print(message.queue_offset, message.tags, message.body)
        hits = store.query("orders", key="o-1")

Messages go to pyarrow, polars, duckdb and pandas as Arrow record batches; none of these packages is needed otherwise.
Not affiliated with the Apache Software Foundation.
"""

from __future__ import annotations

from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence

from mqstore._native import (
    Batches,
    GetResult,
    Message,
    QueryResult,
    Queue,
    Queues,
    QueueSlice,
    RecordBatch,
    RecoveryReport,
    Store,
    Topic,
    Topics,
    open,
)
from mqstore.errors import (
    ClosedError,
    CorruptError,
    NotAStoreError,
    NotFoundError,
    StoreError,
    StoreIOError,
    UnsupportedFormatError,
)

__all__ = [
    "Batches",
    "ClosedError",
    "CorruptError",
    "GetResult",
    "Message",
    "NotAStoreError",
    "NotFoundError",
    "QueryResult",
    "Queue",
    "QueueSlice",
    "Queues",
    "RecordBatch",
    "RecoveryReport",
    "Store",
    "StoreError",
    "StoreIOError",
    "Topic",
    "Topics",
    "UnsupportedFormatError",
    "open",
]

_Mapping.register(Topics)  # pyright: ignore[reportAttributeAccessIssue]
for _sequence in (Queues, Queue, QueueSlice, GetResult, QueryResult):
    _Sequence.register(_sequence)  # pyright: ignore[reportAttributeAccessIssue]
del _sequence
