"""Timers of brokers of 5.x: messages with a time of their own."""

from __future__ import annotations

from datetime import datetime

import mqstore
from mqstore._broker_topics import TIMER_TOPIC
from mqstore._facts import facts_of
from mqstore._transactions import Counting


def count_timers(store: mqstore.Store, counting: Counting) -> int:
    """Returns the number of timers that are due after the last message of the store, which a broker has not delivered.

    Neither the timer wheel nor the RocksDB database of timers is read. Damaged timers are skipped, also in a store that was
    opened with `errors="raise"`. The read is passed to `counting`, which registers it: its `skipped` has their number.
    """
    if TIMER_TOPIC not in store.topics:
        return 0
    last, number = facts_of(store)["last_store_time"], 0
    stored = int(datetime.fromisoformat(last).timestamp() * 1000) if isinstance(last, str) else 0
    for batch in counting(store.scan(topics=TIMER_TOPIC, columns=["properties"], order="queue", errors="skip")):
        for (properties,) in batch:
            due = properties.get("TIMER_OUT_MS", "")
            # A broker stores a timer that is due later again every two days.
            number += due.isdecimal() and int(due) > stored and "TIMER_ROLL_TIMES" not in properties
    return number
