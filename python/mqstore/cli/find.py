"""Messages by what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import click

import mqstore
from mqstore.cli._main import command, from_the_command_line
from mqstore.cli._messages import body_as, chosen_by, count, expect_none_absent, print_messages, row_of, scanned
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store

ONE_MS = timedelta(milliseconds=1)


@command(examples="find /data/store --topic orders --key o-1 --since -2h --json")
@on_store
@click.option("--key", metavar="KEY", help="With this key or unique key; fast with --topic.")
@click.option("--id", "message_id", metavar="ID", help="The message with this offset id or unique key.")
@chosen_by("topics", "tags", "properties", "body_regex", "since", "until", "everything")
@count
@body_as
def find(
    store: mqstore.Store,
    out: Output,
    key: str | None,
    message_id: str | None,
    number: int | None,
    body_as: str,
    conditions: dict[str, Any],
) -> None:
    """Finds messages by key, id, property, body, tag or time.
    The log is read in one pass, unless a key, a topic or a time helps.
    """
    if message_id is not None:
        if key is not None or conditions:
            raise click.UsageError("--id goes without other conditions: an id names one message")
        rows = _by_id(store, out, message_id)
    elif key is not None:
        rows = _by_key(store, out, key, number, conditions)
    elif conditions:
        rows = scanned(store, out, number, **conditions)
    else:
        raise click.UsageError("give a condition, such as --key or --since; cat prints all messages of a topic")
    print_messages(out, rows, body_as, "no message is found")


def _by_id(store: mqstore.Store, out: Output, message_id: str) -> Iterator[Row]:
    """By an offset id or the index, and else by reading the log."""
    try:
        with from_the_command_line():
            message = store.message(message_id)
        yield row_of(message)
    except mqstore.NotFoundError:
        yield from scanned(store, out, keys=message_id, transactions="all")


def _by_key(store: mqstore.Store, out: Output, key: str, number: int | None, conditions: dict[str, Any]) -> Iterator[Row]:
    """By the index where a topic is given. Further conditions are for what is between the first and the last such message."""
    topics = conditions.get("topics", ())
    since, until = conditions.get("time", (None, None))
    last = until and until - ONE_MS
    # The index has no keys of rolled-back messages, and a query takes no stretch of time in which nothing can lie.
    if not topics or "transactions" in conditions or (since and last and last < since):
        yield from scanned(store, out, number, keys=key, **conditions)
        return
    with from_the_command_line():
        answers = [out.counting(store.query(topic, key, since, last, None)) for topic in topics]
    found = sorted((message for answer in answers for message in answer), key=lambda message: message.physical_offset)
    if found and conditions.keys() - {"topics", "time"}:
        between = (found[0].physical_offset, found[-1].physical_offset + 1)
        yield from scanned(store, out, number, keys=key, physical=between, **conditions)
        return
    chosen = found[number:] if number is not None and number < 0 else found[:number]
    yield from map(row_of, chosen)
    expect_none_absent(
        store, [topic for topic, answer in zip(topics, answers, strict=True) if not answer and topic not in store.topics]
    )
