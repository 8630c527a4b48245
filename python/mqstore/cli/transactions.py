"""Transactions that nobody has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import mqstore
from mqstore._rows import json_time, rows_of
from mqstore.cli._main import command
from mqstore.cli._messages import whole_number
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"


@command(examples="transactions /data/store")
@on_store
def transactions(store: mqstore.Store, out: Output) -> None:
    """Lists the half messages whose transactions are open.

    These were neither committed nor rolled back. group is the producers' that the broker asks, topic and queue_id say where
    the message will be once it is committed, queue_offset where it waits: in RMQ_SYS_TRANS_HALF_TOPIC. check_times: how often
    the broker has asked.
    """
    out.table(open_transactions(store, out), "no transaction is open")


def open_transactions(store: mqstore.Store, out: Output) -> Iterator[Row]:
    """The half messages whose transactions are open, in the order in which they were stored."""
    if HALF_TOPIC not in store.topics:
        return
    # The broker is done with what is before its progress. When it asks, it stores the half message again, and that one counts.
    begins: dict[int, int] = {}
    with suppress(mqstore.NotFoundError):
        offsets = rows_of(store.consumer_offsets())
        begins = {row["queue_id"]: row["offset"] for row in offsets if (row["group"], row["topic"]) == (GROUP, HALF_TOPIC)}
    for queue_id in store.topics[HALF_TOPIC].queue_ids:
        queue = store.topics[HALF_TOPIC].queues[queue_id]
        begin = max(begins.get(queue_id, 0), queue.min_offset)
        ended = _ended(store, out, queue_id, begin)
        latest: dict[str | int, mqstore.Message] = {}
        for message in out.counting(iter(queue[begin:])):
            name = message.unique_key or message.queue_offset
            latest.pop(name, None)
            latest[name] = message
        yield from (_row(message) for message in latest.values() if message.queue_offset not in ended)


def _ended(store: mqstore.Store, out: Output, queue_id: int, begin: int) -> set[int]:
    """The queue offsets, from `begin` on, of half messages that have ended: a message of the other topic lists some of them."""
    if OP_TOPIC not in store.topics or queue_id >= len(queues := store.topics[OP_TOPIC].queues):
        return set()
    messages = out.counting(iter(queues[queue_id]))
    listed = (int(text) for message in messages for text in message.body.split(b",") if text.strip().isdigit())
    return {offset for offset in listed if offset >= begin}


def _row(message: mqstore.Message) -> Row:
    given = message.properties
    return {
        "group": given.get("PGROUP"),
        "topic": given.get("REAL_TOPIC"),
        "queue_id": whole_number(given.get("REAL_QID")),
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "born_time": json_time(message.born_time),
        "store_time": json_time(message.store_time),
        "check_times": whole_number(given.get("TRANSACTION_CHECK_TIMES", "0")),
        "tags": message.tags,
        "keys": message.keys,
        "unique_key": message.unique_key,
    }
