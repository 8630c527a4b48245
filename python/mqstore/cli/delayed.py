"""The command `delayed`: messages that wait for their delivery."""

from __future__ import annotations

import heapq
import re
import shlex
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice

import click

import mqstore
from mqstore._broker_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from mqstore._delays import Delivery, delivery_of, undelivered
from mqstore._lost_queues import lost_in_words, lost_queues
from mqstore._rows import json_time, ms_of, store_time_of, time_of
from mqstore._timers import count_timers
from mqstore.cli._main import command
from mqstore.cli._messages import note_elsewhere, whole_number
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store

LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
#: The key of messages of an unknown level, which sorts after every time.
UNKNOWN = "~"
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@command(examples=("delayed /data/store", "delayed /data/store -n 5 --json"))
@on_store
@click.option("--levels", default=LEVELS, metavar="LIST", help="messageDelayLevel of the broker, if it is not the default.")
@click.option("-n", "number", type=click.IntRange(min=1), metavar="N", help="Prints the N messages that are due first.")
def delayed(store: mqstore.Store, out: Output, levels: str, number: int | None) -> None:
    """Lists the messages that wait for their delivery.

    They are sorted by due_time. topic and queue_id are the target of a message, queue_offset is the one in queue level - 1
    of SCHEDULE_TOPIC_XXXX. The broker writes its progress to config/delayOffset.json (every 10 s); if that is missing or
    damaged, all messages are listed, with exit code 1 in the store of a broker. Messages on which consumers failed wait
    there for %RETRY%, too. Timers of 5.x are counted on stderr. Exit code 1 also if a queue is lost.
    """
    note_elsewhere(store, out, "timers")
    nothing = "no message waits for its delivery"
    if timers := count_timers(store, out.counting).waiting:
        out.note(f"{timers} timers are not listed here: mqstore cat {shlex.quote(store.path)} {TIMER_TOPIC} shows them")
        nothing = "no message waits for the end of a delay level"
    delays = [_delay(text) for text in levels.split()]
    delivery = delivery_of(store)
    lost = lost_queues(store, lambda topic: topic in (SCHEDULE_TOPIC, TIMER_TOPIC), out.progress)
    if delivery.unknown is not None and not delivery.is_lost and SCHEDULE_TOPIC in store.topics:
        out.note(f"all messages of {SCHEDULE_TOPIC} count as waiting: {delivery.unknown}")
    missing = [text for text in (lost_in_words(store, lost), _unknown(store, delivery)) if text is not None]
    by_level = [
        _waiting(out.counting(iter(messages)), level, delays[level - 1] if level <= len(delays) else None)
        for level, messages in undelivered(store, delivery).items()
    ]
    waiting = heapq.merge(*by_level, key=lambda row: row["due_time"] or UNKNOWN)
    out.table(islice(waiting, number), nothing, missing="; ".join(missing) or None)


def _unknown(store: mqstore.Store, delivery: Delivery) -> str | None:
    """Returns the sentence that listed messages may have been delivered already; None if the progress is known."""
    if not delivery.is_lost or SCHEDULE_TOPIC not in store.topics:
        return None
    return (
        f"it is unknown which messages of {SCHEDULE_TOPIC} were delivered, and all count as waiting: {delivery.unknown}; "
        f"a broker that starts like that delivers all of them again; see mqstore doctor {shlex.quote(store.path)}"
    )


def _waiting(messages: Iterable[mqstore.Message], level: int, delay: timedelta | None) -> Iterator[Row]:
    for message in messages:
        given, stored = message.properties, store_time_of(message)
        yield {
            "level": level,
            "topic": given.get("REAL_TOPIC"),
            "queue_id": whole_number(given.get("REAL_QID")),
            "queue_offset": message.queue_offset,
            "physical_offset": message.physical_offset,
            "store_time": json_time(stored),
            "due_time": None if delay is None else json_time(time_of(ms_of(stored) + delay // timedelta(milliseconds=1))),
            "tags": message.tags,
            "keys": message.keys,
            "unique_key": message.unique_key,
        }


def _delay(text: str) -> timedelta:
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a delay: expected such as '1s 5s 1m 2h'", param_hint="--levels")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
