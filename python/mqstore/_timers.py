"""Timers: messages with a time of their own. The core judges which of them wait."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass

import mqstore
from mqstore._broker_topics import TIMER_TOPIC
from mqstore._native import _timers
from mqstore._transactions import Counting

#: The property of a recall: the topic and the unique key of the timer that it ends.
RECALLS = "TIMER_DEL_UNIQKEY"


@dataclass(frozen=True, slots=True)
class Timers:
    """The timers of a store in numbers."""

    #: Those that wait for their delivery.
    waiting: int = 0
    #: Those that were due before the last message of the store, and that a broker may have delivered.
    unknown: int = 0
    #: Those that are lost or damaged.
    skipped: int = 0


def count_timers(store: mqstore.Store, counting: Counting) -> Timers:
    """Counts the timers that wait. The answer is passed to `counting`, which registers what was skipped.

    Of a broker's timers those wait that are due after the last message of the store: neither the timer wheel nor the RocksDB
    database of timers is read.
    """
    if TIMER_TOPIC not in store.topics:
        return Timers()
    waiting, unknown, damaged, _ = _timers(store.broker)
    timers: Timers = counting(Timers(waiting, unknown, damaged))
    return timers


def timer_fate(store: mqstore.Store, record: mqstore.Message) -> str:
    """Returns the fate of a record of the timer topic: "waiting" until its time, "recalled", "done", or "unknown" if a broker may
    have delivered it."""
    return _timers(store.broker, record.queue_offset)[3] or "unknown"


def is_recall(record: mqstore.Message) -> bool:
    """Returns True for a record of the timer topic that ends another one."""
    return RECALLS in record.properties


def recall(
    store: mqstore.Writer, timer: mqstore.AppendResult | mqstore.Message | str, durable: bool | None
) -> mqstore.AppendResult:
    """Appends the recall of a timer: a message with its topic, its unique key, and a time in the same second."""
    if isinstance(timer, str):
        topic, unique_key, deliver_at = _of_handle(timer)
    else:
        topic, unique_key, deliver_at = _of_message(_waiting(store, timer))
    recalled = {RECALLS: f"{topic}+{unique_key}"}
    tags, body = "_RECALL_TAG_", b"0"
    return store.append(
        topic, body, tags=tags, properties=recalled, unique_key=unique_key, deliver_at=deliver_at, durable=durable
    )


def _waiting(store: mqstore.Writer, timer: mqstore.AppendResult | mqstore.Message) -> mqstore.Message:
    """Returns the message of a timer, also of the result of its append."""
    if isinstance(timer, mqstore.Message):
        return timer
    if not isinstance(timer, mqstore.AppendResult):
        raise TypeError(f"timer: expected an AppendResult, a Message or a recall handle, got {timer!r}")
    found = store.message_at(timer.physical_offset)
    if (found.queue_offset, found.store_size, found.store_time) != (timer.queue_offset, timer.wrote_bytes, timer.store_time):
        raise ValueError(f"{timer} is not of this store: another message is at its physical offset")
    return found


def _of_message(timer: mqstore.Message) -> tuple[str, str, int]:
    """Returns topic, unique key and time of a timer that waits."""
    given = timer.properties
    if timer.topic != TIMER_TOPIC or not {"REAL_TOPIC", "TIMER_OUT_MS"} <= given.keys() or is_recall(timer):
        raise ValueError(f"{timer} is not a timer that waits in {TIMER_TOPIC}: append(deliver_at=...) makes one")
    if timer.unique_key is None:
        raise ValueError(f"{timer} has no unique key to recall it by: append(deliver_at=..., unique_key=...) stores one")
    out = int(given["TIMER_OUT_MS"])
    asked = int(given.get("TIMER_DELIVER_MS", "0"))
    # A broker compares whole seconds. With a delay instead of a time, the end of the second stands for the time.
    return given["REAL_TOPIC"], timer.unique_key, asked if out < asked <= out + 1000 else out + 1000


def _of_handle(handle: str) -> tuple[str, str, int]:
    """Returns topic, unique key and time of a recall handle: base64 of "v1 TOPIC BROKER TIME UNIQUE_KEY"."""
    with suppress(ValueError):
        padded = handle + "=" * (-len(handle) % 4)
        version, topic, _, time, unique_key, *_ = base64.urlsafe_b64decode(padded).decode().split(" ")
        if version == "v1":
            return topic, unique_key, int(time)
    raise ValueError(f"{handle!r} is not a recall handle, such as RocketMQ's SendResult.getRecallHandle() returns")
