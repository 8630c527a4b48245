"""Timers: messages with a time of their own. The core judges which of them wait."""

from __future__ import annotations

from dataclasses import dataclass

import mqstore
from mqstore._broker_topics import TIMER_TOPIC
from mqstore._native import _timers
from mqstore._transactions import Counting


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


def is_waiting(store: mqstore.Store, timer: mqstore.Message) -> bool | None:
    """Returns whether a timer waits for its delivery; None if a broker may have delivered it."""
    return _timers(store.broker, timer.queue_offset)[3]
