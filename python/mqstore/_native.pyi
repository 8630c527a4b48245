import os

from mqstore._append import AppendResult, Offsets, TopicWriter, Writer, _append_result, _Flushed, _offsets, new_unique_key
from mqstore._consumer import Consumer
from mqstore._inspect import BrokerState, Inspect
from mqstore._message import Message, MessageIterator, _message
from mqstore._open import Recipe, _check_options, _open_after, _reopen, _rocketmq_options, open, rebuild, repair, trim
from mqstore._replicate import Replica, replicate, tap
from mqstore._results import GetResult, QueryResult, _get_result, _query_result
from mqstore._scan import Batches, RecordBatch, Tabular, Usage, _json_lines, _named_json_lines, _no_messages
from mqstore._store import Store, _checksums, _flushed_mark, _landmarks, _lost_queues, _part
from mqstore._topics import Queue, Queues, QueueSlice, Topic, Topics, _topics
from mqstore._transaction import Half, Transaction, Transactions, _Checker
from mqstore._types import _Time

__all__ = [
    "AppendResult",
    "Batches",
    "BrokerState",
    "Consumer",
    "GetResult",
    "Half",
    "Inspect",
    "Message",
    "MessageIterator",
    "Offsets",
    "QueryResult",
    "Queue",
    "QueueSlice",
    "Queues",
    "Recipe",
    "RecordBatch",
    "Replica",
    "Store",
    "Tabular",
    "Topic",
    "TopicWriter",
    "Topics",
    "Transaction",
    "Transactions",
    "Usage",
    "Writer",
    "_Checker",
    "_Flushed",
    "__version__",
    "_append_result",
    "_check_options",
    "_checksums",
    "_expect_outside",
    "_flushed_mark",
    "_get_result",
    "_json_lines",
    "_landmarks",
    "_lost_queues",
    "_message",
    "_named_json_lines",
    "_no_messages",
    "_offsets",
    "_open_after",
    "_part",
    "_query_result",
    "_reopen",
    "_rocketmq_options",
    "_stop_clock",
    "_timers",
    "_topics",
    "new_unique_key",
    "open",
    "rebuild",
    "repair",
    "replicate",
    "tap",
    "trim",
]

__version__: str

def _expect_outside(path: str | os.PathLike[str]) -> None: ...
def _stop_clock(time: _Time | None) -> None: ...
def _timers(broker: BrokerState, queue_offset: int | None = None) -> tuple[int, int, int, str | None]: ...
