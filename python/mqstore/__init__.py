"""Opens, reads, queries and writes Apache RocketMQ-format message stores in-process, with no broker.

    import mqstore

    with mqstore.open("/data/store") as store:
        queue = store.topics["orders"].queues[0]
        for message in queue[100:200]:
            print(message.queue_offset, message.tags, message.body)
        hits = store.query("orders", key="o-1")

    with mqstore.open("/data/own", mode="a") as store:
        store.append("orders", b"body", tags="paid", keys=["o-1"])

Messages go to pyarrow, polars, duckdb and pandas as Arrow record batches; none of these packages is needed otherwise.
Not affiliated with the Apache Software Foundation.
"""

from __future__ import annotations

from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence

from mqstore._native import (
    AppendResult,
    Batches,
    GetResult,
    Message,
    Offsets,
    QueryResult,
    Queue,
    Queues,
    QueueSlice,
    RecordBatch,
    RecoveryReport,
    Store,
    Topic,
    Topics,
    __version__,
    open,
)
from mqstore.errors import (
    ClosedError,
    CorruptError,
    DiskFullError,
    IllegalMessageError,
    LockedError,
    NotAStoreError,
    NotFoundError,
    PoisonedError,
    ReadOnlyError,
    StoreError,
    StoreExistsError,
    StoreFileNotFoundError,
    StoreIOError,
    StorePermissionError,
    UnsupportedFormatError,
    WaitTimeoutError,
)

__all__ = [
    "AppendResult",
    "Batches",
    "ClosedError",
    "CorruptError",
    "DiskFullError",
    "GetResult",
    "IllegalMessageError",
    "LockedError",
    "Message",
    "NotAStoreError",
    "NotFoundError",
    "Offsets",
    "PoisonedError",
    "QueryResult",
    "Queue",
    "QueueSlice",
    "Queues",
    "ReadOnlyError",
    "RecordBatch",
    "RecoveryReport",
    "Store",
    "StoreError",
    "StoreExistsError",
    "StoreFileNotFoundError",
    "StoreIOError",
    "StorePermissionError",
    "Topic",
    "Topics",
    "UnsupportedFormatError",
    "WaitTimeoutError",
    "__version__",
    "open",
]

_Mapping.register(Topics)  # pyright: ignore[reportAttributeAccessIssue]
# polars takes what is a Sequence for rows, and looks for Arrow only in what is none: queues, slices and results stay out.
for _sequence in (Queues, Offsets):
    _Sequence.register(_sequence)  # pyright: ignore[reportAttributeAccessIssue]
del _sequence
