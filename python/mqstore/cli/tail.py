"""The command `tail`: the last messages, and new ones."""

from __future__ import annotations

import sys
from typing import Any

import click

import mqstore
from mqstore.cli._main import command
from mqstore.cli._messages import (
    body_as,
    chosen_by,
    expect_queue,
    no_message_of,
    place,
    print_message,
    print_messages,
    row_of,
    scanned,
)
from mqstore.cli._output import Output
from mqstore.cli._store import on_store


@command(examples=("tail /data/store orders -n 3", "tail /data/store -f --tag paid --json"))
@on_store
@click.argument("where", metavar="[TOPIC[/QUEUE]]", required=False)
@click.option("-n", "number", type=click.IntRange(min=0), default=10, show_default=True, metavar="N", help="The last N messages.")
@click.option("-f", "--follow", is_flag=True, help="Waits for more, until Ctrl-C.")
@chosen_by("tags")
@body_as
def tail(
    store: mqstore.Store,
    out: Output,
    where: str | None,
    number: int,
    follow: bool,
    body_as: str,
    conditions: dict[str, Any],
) -> None:
    """Prints the last messages, and with -f new ones.

    It prints those of the whole store, of a topic or of a queue. A broker may run. If no topic is named, new topics are
    followed, too.
    """
    if number == 0 and not follow:
        raise click.BadParameter("0 asks for no message: expected N, or -f", param_hint="-n")
    topic, queue_id = None, None
    if where is not None:
        topic, queue_id, offset = place(store, where)
        if offset is not None:
            raise click.BadParameter(f"{where!r} names an offset: expected TOPIC or TOPIC/QUEUE")
        conditions["topics"] = topic
        if queue_id is not None:
            if not follow:
                expect_queue(store, topic, queue_id)
            conditions["queue_ids"] = queue_id
    coming = None
    if follow:
        # Begun before the scan: it refreshes the store, and no message is missed between the last ones and the new ones.
        coming = store.follow(topic, tags=conditions.get("tags"))
    is_absent = follow and topic is not None and topic not in store.topics
    last = scanned(store, out, -number, **conditions) if number and not is_absent else iter(())
    if coming is None:
        return print_messages(out, last, body_as, lambda: no_message_of(store, topic) if topic else "no message is found")
    for row in last:
        print_message(out, row, body_as)
    out.end_progress()
    sys.stdout.flush()
    for message in coming:
        if queue_id is None or message.queue_id == queue_id:
            print_message(out, row_of(message), body_as)
            sys.stdout.flush()
