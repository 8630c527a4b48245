"""The command `transactions`: open transactions."""

from __future__ import annotations

import mqstore
from mqstore._broker_topics import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC
from mqstore._lost_queues import lost_in_words, lost_queues
from mqstore._rows import json_time
from mqstore.cli._main import command
from mqstore.cli._messages import note_elsewhere
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store


@command(examples="transactions /data/store")
@on_store
def transactions(store: mqstore.Store, out: Output) -> None:
    """Lists the open transactions, the oldest first.

    Each is a half message that is neither committed nor rolled back. group is the producer group that the broker asks,
    topic and queue_id are the target of the message, and queue_offset is that of its half message. age is the
    time since store_time in seconds. check_times counts the questions of the broker. A broker with transRocksDBEnable keeps
    that, and the transactions that it gives up, in RocksDB, which is not read: then every half message of
    RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC without an end in the log is listed. Exit code 1 if no transaction is open, and if
    something that may be a half message or the end of one cannot be read.
    """
    is_elsewhere = note_elsewhere(store, out, "transactions")
    if HALF_TOPIC in store.topics:
        note_elsewhere(store, out, "consumer_offsets")
    nothing = "every half message that can be read has an end in the log" if is_elsewhere else "no transaction is open"
    lost = lost_queues(store, lambda topic: topic in (HALF_TOPIC, OP_TOPIC), out.progress)
    found = out.counting(store.broker.transactions())
    if found.halves and found.damaged_stretches:
        out.lack(f"{found.damaged_stretches} damaged stretches of the log may have committed transactions that are listed")
    out.table(map(_row, found.halves), nothing, missing=lost_in_words(store, lost))


def _row(half: mqstore.OpenTransaction) -> Row:
    return {
        "group": half.group,
        "topic": half.topic,
        "queue_id": half.queue_id,
        "queue_offset": half.queue_offset,
        "physical_offset": half.physical_offset,
        "born_time": json_time(half.born_time),
        "store_time": json_time(half.store_time),
        "age": round(half.age.total_seconds(), 3),
        "check_times": None if half.half_topic == ROCKSDB_HALF_TOPIC else half.checks,
        "tags": half.tags,
        "keys": list(half.keys),
        "unique_key": half.unique_key,
    }
