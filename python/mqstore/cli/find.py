"""The command `find`: messages by key, id, property, body, tag or time."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import click

import mqstore
from mqstore._facts import facts_of, file_queues, is_in_queue
from mqstore._rows import json_time
from mqstore._transactions import ROLLBACK, TYPE, fate_of
from mqstore.cli._main import command, from_the_command_line
from mqstore.cli._messages import body_as, chosen_by, count, expect_none_absent, note_elsewhere, print_messages, row_of, scanned
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store
from mqstore.cli._times import shown_time
from mqstore.cli._words import text_without_advice


@command(examples="find /data/store --topic orders --key o-1 --since -2h --json")
@on_store
@click.option("--key", metavar="KEY", help="With this key or unique key; half messages too. Fast with --topic.")
@click.option("--id", "message_id", metavar="ID", help="With this offset id or unique key; half messages too.")
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
    It reads the log once, unless a key, a topic or a time narrows the search.
    """
    if message_id is not None:
        # A search by id covers all messages: --all changes nothing.
        conditions.pop("transactions", None)
        if key is not None or conditions:
            raise click.UsageError("--id goes without other conditions: an id names one message")
        rows = _by_id(store, out, message_id)
    elif key is not None:
        rows = _by_key(store, out, key, number, conditions)
    elif conditions.keys() - {"transactions"}:
        rows = scanned(store, out, number, **conditions)
    else:
        only_all = "--all is not a condition: " if conditions else ""
        raise click.UsageError(f"{only_all}give a condition, such as --key or --since; cat prints all messages of a topic")
    everything = message_id is not None or key is not None or "transactions" in conditions
    print_messages(out, rows, body_as, lambda: f"no message is found: {_looked_at(store, out, conditions, everything)}")


def _by_id(store: mqstore.Store, out: Output, message_id: str) -> Iterator[Row]:
    """Finds a message by its offset id, by the index, or by a scan of the log."""
    message = None
    with suppress(mqstore.NotFoundError), from_the_command_line():
        message = store.message(message_id)
    if message is not None:
        yield _with_fate(store, out, row_of(message), message)
        return
    yield from _with_fates(store, out, scanned(store, out, keys=message_id, transactions="all"))


def _with_fates(store: mqstore.Store, out: Output, rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        yield _with_fate(store, out, row, store.message_at(row["physical_offset"]))


def _with_fate(store: mqstore.Store, out: Output, row: Row, message: mqstore.Message) -> Row:
    """Returns the row with the state of its transaction, and explains the state on stderr.

    It also reports on stderr that consumers do not get a message that is not in its queue.
    """
    fate, name = None, f"the message at physical offset {message.physical_offset}"
    try:
        fate = fate_of(store, message, out.counting)
    except mqstore.StoreError as error:
        out.lack(f"{name} belongs to a transaction whose state cannot be read: {text_without_advice(error)}")
    if fate is not None:
        out.note(f"{name} is {fate.text}")
    if message.transaction not in ("prepared", "rollback") and not is_in_queue(store, message):
        out.note(f"{name} is in the log, and no entry of its queue leads to it: consumers do not get it")
    return {**row, "transaction": fate and fate.state}


def _looked_at(store: mqstore.Store, out: Output, conditions: dict[str, Any], everything: bool) -> str:
    """Returns the number of messages that a search has examined, and the times of the first and the last one."""
    facts, since, until = facts_of(store), conditions.get("since"), conditions.get("until")
    if facts["first_store_time"] is None:
        return "the log has no message"
    first, last = (shown_time(facts[name], out.utc) for name in ("first_store_time", "last_store_time"))
    with suppress(TypeError, ValueError):
        begin, end = (datetime.fromisoformat(facts[name]) for name in ("first_store_time", "last_store_time"))
        if (since and since > end) or (until and until <= begin) or (since and until and since == until):
            return f"nothing was stored in that time; the log has messages from {first} to {last}"
        first, last = (shown_time(json_time(time), out.utc) for time in (max(begin, since or begin), min(end, until or end)))
    if facts["messages"] is None:
        return f"looked at all messages of the log, stored from {first} on"
    topics = conditions.get("topics") or [None]
    queues = [queue for topic in topics if topic is None or topic in store.topics for _, queue in file_queues(store, topic)]
    number = sum(_offset_at(queue, until, queue.max_offset) - _offset_at(queue, since, queue.min_offset) for queue in queues)
    more = " and all records that are in no queue" if everything else ""
    part = "" if out.covers_all() else "; a part of the log was not covered"
    return f"looked at {number} messages in queues{more}, stored from {first} to {last}{part}"


def _offset_at(queue: mqstore.Queue, time: datetime | None, otherwise: int) -> int:
    return otherwise if time is None else queue.offset_at(time)


def _by_key(store: mqstore.Store, out: Output, key: str, number: int | None, conditions: dict[str, Any]) -> Iterator[Row]:
    """Finds messages by key: by the index if a topic is given. Other conditions need a scan from the first to the last hit.

    Both ways find messages with the key that are in no queue. The index has no keys of rolled-back messages: only --all finds
    these.
    """
    topics, since, until = conditions.get("topics", ()), conditions.get("since"), conditions.get("until")
    wanted = None if "transactions" in conditions else _is_not_rolled_back
    search = functools.partial(scanned, store, out, number, wanted, keys=key, **{**conditions, "transactions": "all"})
    if not topics or "transactions" in conditions:
        yield from _with_fates(store, out, search())
        return
    note_elsewhere(store, out, "keys")
    with from_the_command_line():
        answers = [out.counting(store.query(topic, key, since=since, until=until)) for topic in topics]
    found = sorted((message for answer in answers for message in answer), key=lambda message: message.physical_offset)
    if found and conditions.keys() - {"topics", "since", "until"}:
        between = (found[0].physical_offset, found[-1].physical_offset + 1)
        yield from _with_fates(store, out, search(physical=between))
        return
    for message in found[number:] if number is not None and number < 0 else found[:number]:
        yield _with_fate(store, out, row_of(message), message)
    expect_none_absent(
        store, [topic for topic, answer in zip(topics, answers, strict=True) if not answer and topic not in store.topics]
    )


def _is_not_rolled_back(row: Row) -> bool:
    return bool(row["sys_flag"] & TYPE != ROLLBACK)
