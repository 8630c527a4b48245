"""The command `get`: one message with every field."""

from __future__ import annotations

import sys

import click

import mqstore
from mqstore._lost_queues import has_queue, lost_in_words, lost_queues
from mqstore.cli._main import Failure, command
from mqstore.cli._messages import body_as, expect_topic, json_body, place, row_of, shown_body
from mqstore.cli._output import Output
from mqstore.cli._store import on_store


@command(examples=("get /data/store orders/0@17", "get /data/store 1048576 --body-only > body"))
@on_store
@click.argument("where", metavar="OFFSET|TOPIC/QUEUE@OFFSET")
@click.option("--body-only", is_flag=True, help="Prints only the bytes of the body.")
@body_as
def get(store: mqstore.Store, out: Output, where: str, body_only: bool, body_as: str) -> None:
    """Prints the message at an offset, with every field.

    OFFSET is a physical offset, a byte in the log. A compressed body is decompressed.
    """
    message = store.message_at(int(where)) if where.isdigit() else _in_queue(store, out, where)
    if body_only:
        sys.stdout.buffer.write(message.decoded_body)
        return
    row = dict(row_of(message))
    row["body"] = json_body(row["body"], body_as) if out.as_json else shown_body(row["body"])
    out.document(row)


def _in_queue(store: mqstore.Store, out: Output, where: str) -> mqstore.Message:
    topic, queue_id, offset = place(store, where)
    if queue_id is None or offset is None:
        raise click.BadParameter(f"{where!r} names no message: expected a physical offset or TOPIC/QUEUE@OFFSET")
    if not has_queue(store, topic, queue_id):
        lost = lost_queues(store, lambda name: name == topic, out.progress)
        if (topic, queue_id) in lost and (missing := lost_in_words(store, lost)) is not None:
            raise Failure(missing)
    expect_topic(store, topic)
    queue = store.topics[topic].queues[queue_id]
    if not queue.min_offset <= offset < queue.max_offset:
        raise Failure(f"{where} is not there: the queue has the offsets {queue.min_offset} to {queue.max_offset - 1}")
    return queue[offset]
