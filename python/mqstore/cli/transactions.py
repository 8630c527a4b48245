"""The command `transactions`: open transactions."""

from __future__ import annotations

import mqstore
from mqstore._broker_topics import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC
from mqstore._lost_queues import lost_in_words, lost_queues
from mqstore._transactions import open_halves
from mqstore.cli._main import command
from mqstore.cli._messages import note_elsewhere, whole_number
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store


@command(examples="transactions /data/store")
@on_store
def transactions(store: mqstore.Store, out: Output) -> None:
    """Lists the half messages whose transactions are open.

    These are neither committed nor rolled back. group is the producer group that the broker asks, topic and queue_id are the
    target of the message, and queue_offset is its place in RMQ_SYS_TRANS_HALF_TOPIC. check_times counts the questions of the
    broker. A broker with transRocksDBEnable keeps that, and the transactions that it gives up, in RocksDB, which is not read:
    then every half message of RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC without an end in the log is listed. Exit code 1 if no
    transaction is open, and if a queue of half or op messages is lost.
    """
    is_elsewhere = note_elsewhere(store, out, "transactions")
    if HALF_TOPIC in store.topics:
        note_elsewhere(store, out, "consumer_offsets")
    nothing = "every half message that can be read has an end in the log" if is_elsewhere else "no transaction is open"
    lost = lost_queues(store, lambda topic: topic in (HALF_TOPIC, OP_TOPIC), out.progress)
    out.table(map(_row, open_halves(store, out.counting)), nothing, missing=lost_in_words(store, lost))


def _row(half: Row) -> Row:
    given, is_in_rocksdb = half["properties"], half["topic"] == ROCKSDB_HALF_TOPIC
    return {
        "group": given.get("PGROUP"),
        "topic": given.get("REAL_TOPIC"),
        "queue_id": whole_number(given.get("REAL_QID")),
        "queue_offset": half["queue_offset"],
        "physical_offset": half["physical_offset"],
        "born_time": half["born_time"],
        "store_time": half["store_time"],
        "check_times": None if is_in_rocksdb else whole_number(given.get("TRANSACTION_CHECK_TIMES", "0")),
        "tags": half["tags"],
        "keys": half["keys"],
        "unique_key": half["unique_key"],
    }
