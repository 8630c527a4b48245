"""The commands `groups`, `consume` and `resend`: consumer groups."""

from __future__ import annotations

import sys
from typing import Any

import click

import mqstore
from mqstore._groups import by_topic, lags_of
from mqstore._lost_queues import empty_lost, lost_in_words
from mqstore._names import there_is
from mqstore._rows import visible
from mqstore.cli._main import Failure, command
from mqstore.cli._messages import NO_GROUP, body_as, chosen_by, expect_topic, print_message, row_of, rows_of_group
from mqstore.cli._output import Output, skipped_in_words
from mqstore.cli._store import opened, opened_to_write, prints, recovery

#: The most messages that are taken, and acknowledged, at a time.
BATCH = 32


@command(examples=("groups /data/store", "groups /data/store --delete billing --yes"))
@click.argument("path", metavar="STORE", type=click.Path())
@click.argument("group", required=False)
@prints
@recovery
@click.option("--delete", "deleted", metavar="GROUP", help="Deletes a group: its progress and its settings.")
@click.option("--yes", is_flag=True, help="Deletes it; without it its lag is shown.")
def groups(path: str, group: str | None, out: Output, recovery: str, deleted: str | None, yes: bool) -> None:
    """Shows the lag and the age of each consumer group, by topic.

    A row is a topic of a group: the number of its queues, the lag (messages that the group has not consumed), and since when
    the oldest of them waits; age is the time since then, in JSON in seconds. The group whose oldest message waits longest
    comes first. The progress is up to 5 s old. lag shows each queue. Retention keeps no message for a deleted group; its
    retries and dead letters stay. --yes writes to STORE: no broker or other writer may have it open.
    """
    if yes and deleted is None:
        raise click.UsageError("--yes goes with --delete")
    if deleted is not None and group not in (None, deleted):
        raise click.UsageError("give GROUP or --delete GROUP, and not both")
    with opened(path, out, errors="skip", recovery=recovery) as store:
        queues = rows_of_group(lags_of(store), deleted or group)
        lost = lost_in_words(store, empty_lost(store, queues, out.progress))
    if not yes:
        out.table(by_topic(queues), NO_GROUP, missing=lost)
    if deleted is not None and yes:
        with opened(path, out, "r+", services=False) as writer:
            writer.broker.delete_group(deleted)
        out.document({"path": path, "group": deleted, "deleted": True, "lag": sum(row["lag"] or 0 for row in queues)})
    elif deleted is not None and not out.as_json:
        out.line("nothing was changed: --yes deletes the group")


@command(examples=("consume /data/store orders --group billing --max 10", "consume /data/store orders --group billing --no-ack"))
@click.argument("path", metavar="STORE", type=click.Path())
@click.argument("topic")
@prints
@click.option("--group", required=True, help="The group, which remembers what it has consumed.")
@click.option("--max", "number", type=click.IntRange(min=1), metavar="N", help="Ends after N messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=0,
    show_default=True,
    metavar="S",
    help="Ends when no message comes for S seconds.",
)
@click.option("--ack/--no-ack", default=True, help="Acknowledges each message once it is printed (default), or none.")
@chosen_by("tags")
@body_as
def consume(
    path: str,
    topic: str,
    out: Output,
    group: str,
    number: int | None,
    timeout: float,
    ack: bool,
    body_as: str,
    conditions: dict[str, Any],
) -> None:
    """Prints the next messages of a group, and acknowledges them.

    They are those after the progress of the group, and its retries. It writes to STORE: no broker or other writer may have it
    open. A group without progress begins at the first message. With --no-ack the group gets the same messages again.
    """
    printed = 0
    with (
        opened_to_write(path, out, lambda store: expect_topic(store, topic)) as store,
        store.consumer(group, topic, tags=conditions.get("tags")) as consumer,
    ):
        while number is None or printed < number:
            messages = consumer.poll(BATCH if number is None else min(BATCH, number - printed), timeout)
            if not messages:
                break
            for message in messages:
                print_message(out, row_of(message), body_as)
            # A message counts as consumed once its line has left this process.
            sys.stdout.flush()
            if ack:
                consumer.ack(messages)
            printed += len(messages)
        if consumer.skipped:
            out.lack(skipped_in_words(consumer.skipped))
    if printed == 0:
        raise Failure(f"group {visible(group)} has consumed all messages of topic {visible(topic)}")


@command(examples="resend /data/store billing")
@click.argument("path", metavar="STORE", type=click.Path())
@click.argument("group")
@prints
def resend(path: str, group: str, out: Output) -> None:
    """Appends the dead letters of a group again to their topics.

    They are those that were not sent again before. Damaged ones are passed over: skipped and expired count the letters that
    were not sent, and the exit code is then 1. It writes to STORE: no broker or other writer may have it open. Each group
    that consumes the topic gets them. dead counts dead letters.
    """
    with opened_to_write(path, out, lambda store: _expect_dead_letters(store, group)) as store:
        resent = store.broker.resend(group)
        counts = {"sent": resent.sent, "skipped": len(resent.skipped), "expired": resent.expired}
        out.document({"path": store.path, "group": group, **counts})
        if resent.skipped:
            offsets = ", ".join(f"{queue_id}/{offset}" for queue_id, offset in resent.skipped)
            out.lack(f"dead letters are lost or damaged, and were not sent (queue/offset): {offsets}")
        if resent.expired:
            out.lack(f"{resent.expired} dead letters expired before they were sent again")


def _expect_dead_letters(store: mqstore.Store, group: str) -> None:
    """Fails if the group has no dead letters."""
    if len(store.broker.dead_letters(group)) == 0:
        there = {name.removeprefix("%DLQ%") for name in store.topics if name.startswith("%DLQ%")}
        raise Failure(f"group {visible(group)} has no dead letters{there_is(group, there - {group})}")
