"""Opens, reads, queries and writes Apache RocketMQ-format message stores in-process, with no broker.

>>> import mqstore, tempfile
>>> path = tempfile.mkdtemp()                           # a directory of yours

Write with mode "a", which creates the store if it is missing. By default a message survives the process once `append` returns.

>>> with mqstore.open(path, mode="a") as store:
...     done = store.append("orders", b"two shirts", tags="paid", keys=["o-1"])
...     offsets = store.append_batch([b"one", b"two"], topic="orders")
...     store.wait_durable()                            # everything survives a power failure now
...     store.topics["orders"].queues[0][-1].body       # a read sees every append
b'two'

Read with mode "r", the default: it changes nothing, and a broker may continue to write. A queue is a sequence by queue offset.

>>> with mqstore.open(path) as store:
...     queue = store.topics["orders"].queues[0]
...     [message.body for message in queue[0:2]], len(queue)
...     [(hit.tags, hit.keys) for hit in store.query("orders", key="o-1")]
...     store.get("orders", 0, 0, tags="paid").next_begin_offset
...     store.recovery.complete, store.recovery.lost    # is anything missing?
([b'two shirts', b'one'], 3)
[('paid', ['o-1'])]
3
(True, ())

Bulk data is exchanged with pyarrow, polars, duckdb and pandas as Arrow: `queue[0:1000].batches()`, `Store.fetch`,
`Store.resolve_keys`, `Writer.append_batch`. None of these packages is needed otherwise. `help(mqstore.StoreConfig)` lists the
options, `help(mqstore.Store)` the calls, `help(mqstore.errors)` the exceptions.

Not affiliated with the Apache Software Foundation.
"""

from __future__ import annotations

from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence
from typing import TYPE_CHECKING

from mqstore._native import (
    AppendResult,
    Batches,
    BrokerState,
    Consumer,
    GetResult,
    Half,
    Inspect,
    Message,
    MessageIterator,
    Offsets,
    QueryResult,
    Queue,
    Queues,
    QueueSlice,
    RecordBatch,
    Replica,
    Store,
    Topic,
    Topics,
    TopicWriter,
    Transaction,
    Transactions,
    Usage,
    Writer,
    __version__,
    new_unique_key,
    open,
    rebuild,
    repair,
    replicate,
    tap,
    trim,
)
from mqstore.errors import (
    BusyError,
    ClosedError,
    CorruptError,
    DiskFullError,
    IllegalMessageError,
    LockedError,
    NotAStoreError,
    NotFoundError,
    OffsetOutOfRangeError,
    PoisonedError,
    PositionMismatchError,
    ReadOnlyError,
    StoreError,
    StoreExistsError,
    StoreFileNotFoundError,
    StoreIOError,
    StorePermissionError,
    TransactionEndedError,
    UnsupportedFormatError,
    WaitTimeoutError,
)

if TYPE_CHECKING:
    from mqstore._config import StoreConfig
    from mqstore._reports import (
        Change,
        Finding,
        GroupStats,
        NextRemoval,
        OpenTransaction,
        OpenTransactions,
        RecoveryReport,
        RefusedSlave,
        RepairReport,
        ReplicaCut,
        Replicas,
        ResendReport,
        Slave,
        StoreStats,
        TopicStats,
        Trace,
        TracedRecord,
        TrimReport,
        VerifyReport,
    )

__all__ = [
    "AppendResult",
    "Batches",
    "BrokerState",
    "BusyError",
    "Change",
    "ClosedError",
    "Consumer",
    "CorruptError",
    "DiskFullError",
    "Finding",
    "GetResult",
    "GroupStats",
    "Half",
    "IllegalMessageError",
    "Inspect",
    "LockedError",
    "Message",
    "MessageIterator",
    "NextRemoval",
    "NotAStoreError",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "Offsets",
    "OpenTransaction",
    "OpenTransactions",
    "PoisonedError",
    "PositionMismatchError",
    "QueryResult",
    "Queue",
    "QueueSlice",
    "Queues",
    "ReadOnlyError",
    "RecordBatch",
    "RecoveryReport",
    "RefusedSlave",
    "RepairReport",
    "Replica",
    "ReplicaCut",
    "Replicas",
    "ResendReport",
    "Slave",
    "Store",
    "StoreConfig",
    "StoreError",
    "StoreExistsError",
    "StoreFileNotFoundError",
    "StoreIOError",
    "StorePermissionError",
    "StoreStats",
    "Topic",
    "TopicStats",
    "TopicWriter",
    "Topics",
    "Trace",
    "TracedRecord",
    "Transaction",
    "TransactionEndedError",
    "Transactions",
    "TrimReport",
    "UnsupportedFormatError",
    "Usage",
    "VerifyReport",
    "WaitTimeoutError",
    "Writer",
    "__version__",
    "new_unique_key",
    "open",
    "rebuild",
    "repair",
    "replicate",
    "tap",
    "trim",
]

_Mapping.register(Topics)  # pyright: ignore[reportAttributeAccessIssue]
# polars takes a Sequence for rows and does not look for Arrow in it. So queues, slices and results are not registered.
for _sequence in (Queues, Offsets):
    _Sequence.register(_sequence)  # pyright: ignore[reportAttributeAccessIssue]
del _sequence

# Type checkers know this condition by its name, not by an alias. If they read `__getattr__`, they would accept every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports `StoreConfig` and the classes of reports at their first use."""
        if name in __all__:
            from mqstore import _config, _reports

            return getattr(_config if name == "StoreConfig" else _reports, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


del TYPE_CHECKING
