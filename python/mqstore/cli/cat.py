"""The command `cat`: the messages of a topic or queue."""

from __future__ import annotations

from typing import Any

import click

import mqstore
from mqstore._rows import visible
from mqstore.cli._main import Failure, command
from mqstore.cli._messages import (
    body_as,
    chosen_by,
    count,
    expect_queue,
    expect_topic,
    no_message_of,
    place,
    print_messages,
    scanned,
)
from mqstore.cli._output import Output
from mqstore.cli._store import on_store


@command(examples=("cat /data/store orders -n -10", "cat /data/store orders/0@1200 -n 5 --json --body-as json"))
@on_store
@click.argument("where", metavar="TOPIC[/QUEUE][@OFFSET]")
@chosen_by("tags", "since", "until")
@count
@body_as
def cat(store: mqstore.Store, out: Output, where: str, number: int | None, body_as: str, conditions: dict[str, Any]) -> None:
    """Prints the messages of a topic, or of one queue.

    They are in the order of the log, from OFFSET of the queue on. A line has store time, TOPIC/QUEUE@OFFSET, tag, keys and
    body; with --json every field. In a topic with several queues, name the queue of the OFFSET.
    """
    topic, queue_id, offset = place(store, where)
    conditions["topics"] = topic
    if queue_id is not None:
        expect_queue(store, topic, queue_id)
        conditions["queue_ids"] = queue_id
    if queue_id is not None and offset is not None:
        expect_topic(store, topic)
        queue = store.topics[topic].queues[queue_id]
        if offset >= queue.max_offset:
            raise Failure(f"{where} is past the end: the queue has the offsets {queue.min_offset} to {queue.max_offset - 1}")
        first = next(iter(queue[offset:]), None)
        begin = queue.max_offset if first is None else first.queue_offset
        # This counts the skipped messages before the first whole one; the scan counts those after it.
        list(out.counting(iter(queue[offset:begin])))
        if first is None:
            raise Failure(f"no message of {visible(topic)}/{queue_id} from offset {offset} on is whole")
        if begin != offset:
            out.note(f"begins at offset {begin}: what is before has expired, or cannot be read")
        conditions["physical"] = (first.physical_offset, None)
    print_messages(out, scanned(store, out, number, **conditions), body_as, lambda: no_message_of(store, topic))
