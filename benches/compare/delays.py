"""The delivery of delayed messages and timers: how late one comes on an idle store, and how long many that are due at once take.

The limit of the lateness is a thread that sleeps until the message is due. That of many messages is an append of the same
messages without a delay. The peer is a table of SQLite with an index by time, whose rows a thread copies into another table and
deletes.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from rounds import LIMIT, OURS, Round, Row, Rust, measure, size

import mqstore

BODY = 100
#: Delays in ms are whole seconds.
DELAY_MS = 1000
#: In ms.
MOST_LATE = 200
MOST_FOR_ALL = 2000
#: The pause between two messages of the idle store, in ms, and the pause of the peer between two looks.
GAP_MS, LOOK_MS = 37, 1
QUANTILES = (0.5, 0.99)


def quantile(lateness: list[float], part: float) -> float:
    """Returns a quantile."""
    ordered = sorted(lateness)
    return ordered[round((len(ordered) - 1) * part)]


def append_delayed(store: mqstore.Writer) -> float:
    """Appends a delayed message, and returns the time at which it is due, in ms."""
    sent = store.append("orders", bytes(BODY), delay_level=1)
    return sent.store_time.timestamp() * 1e3 + DELAY_MS


def append_timer(store: mqstore.Writer) -> float:
    """Appends a timer message, and returns the time at which it is due, in ms."""
    due = int(time.time() * 1e3) + DELAY_MS
    store.append("orders", bytes(BODY), deliver_at=datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=due))
    return due


def late(folder: Path, *, append: Callable[[mqstore.Writer], float], count: int, part: float) -> float:
    """Returns a quantile of the milliseconds from the time at which a message is due until it is in its queue.

    Store times have whole milliseconds, so a message that is in time counts as half a millisecond late.
    """
    with mqstore.open(folder / "store", "x", message_delay_level="1s") as store:
        due: list[float] = []
        for _ in range(count):
            due.append(append(store))
            time.sleep(GAP_MS / 1e3)
        came: list[float] = []
        with store.consumer("billing", "orders") as consumer:
            while len(came) < count:
                messages = consumer.poll(timeout=60)
                came += [message.store_time.timestamp() * 1e3 for message in messages]
        return max(0.5, quantile([there - asked for there, asked in zip(came, due, strict=True)], part))


def slept(_: Path, *, count: int, part: float) -> float:
    """Returns a quantile of the milliseconds by which a sleep is too long."""
    lateness: list[float] = []
    while len(lateness) < count:
        until = time.monotonic() + GAP_MS / 1e3
        time.sleep(until - time.monotonic())
        lateness.append((time.monotonic() - until) * 1e3)
    return quantile(lateness, part)


def delayed_table(folder: Path) -> sqlite3.Connection:
    """Returns a database with a table of delayed messages and one of delivered ones."""
    connection = sqlite3.connect(folder / "queue", isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = normal")
    connection.execute("create table waiting(number integer primary key, due real, body blob)")
    connection.execute("create index by_due on waiting(due)")
    connection.execute("create table queue(number integer primary key, body blob)")
    return connection


def deliver(connection: sqlite3.Connection) -> int:
    """Moves the rows that are due, and returns their number."""
    now = time.time()
    connection.execute("begin immediate")
    connection.execute("insert into queue(body) select body from waiting where due <= ? order by due, number", (now,))
    moved = connection.execute("delete from waiting where due <= ?", (now,)).rowcount
    connection.execute("commit")
    return moved


def sqlite_late(folder: Path, *, count: int, part: float) -> float:
    """Returns a quantile of the lateness of rows that a loop delivers, which looks for them again and again."""
    connection = delayed_table(folder)
    came: list[float] = []
    waiting: list[float] = []
    for number in range(count):
        due = time.time() + number * GAP_MS / 1e3 / 10
        connection.execute("insert into waiting(due, body) values (?, ?)", (due, bytes(BODY)))
        waiting.append(due)
    while waiting:
        if connection.execute("select 1 from waiting where due <= ? limit 1", (time.time(),)).fetchone():
            moved, now = deliver(connection), time.time()
            came += [(now - due) * 1e3 for due in waiting[:moved]]
            del waiting[:moved]
        time.sleep(LOOK_MS / 1e3)
    connection.close()
    return quantile(came, part)


def all_due(folder: Path, *, count: int) -> float:
    """Returns the whole milliseconds, at least 1, from the time at which the last message is due until it is in its queue.

    The first ones are due in the second before.
    """
    rows = [("orders", bytes(BODY), None, None, {"DELAY": "1"})] * (count // 10)
    with mqstore.open(folder / "store", "x", message_delay_level="3s") as store:
        for _ in range(10):
            store.append_batch(rows)
        last = store.topics["SCHEDULE_TOPIC_XXXX"].queues[0][-1]
        assert (last.store_time - store.topics["SCHEDULE_TOPIC_XXXX"].queues[0][0].store_time).total_seconds() < 1
        while "orders" not in store.topics or len(store.topics["orders"].queues[0]) < count:
            time.sleep(0.005)
        copy = store.topics["orders"].queues[0][-1]
        return max((copy.store_time - last.store_time).total_seconds() * 1e3 - 3 * DELAY_MS, 1)


def appended(folder: Path, *, count: int) -> float:
    """Returns the milliseconds to append the messages without a delay."""
    rows = [("orders", bytes(BODY), None, None, {"NAME": "1"})] * count
    with mqstore.open(folder / "store", "x") as store:
        begun = time.perf_counter()
        store.append_batch(rows)
        return (time.perf_counter() - begun) * 1e3


def sqlite_all_due(folder: Path, *, count: int) -> float:
    """Returns the milliseconds to move as many rows."""
    connection = delayed_table(folder)
    connection.execute("begin")
    connection.executemany("insert into waiting(due, body) values (0, ?)", ((bytes(BODY),) for _ in range(count)))
    connection.execute("commit")
    begun = time.perf_counter()
    assert deliver(connection) == count
    took = time.perf_counter() - begun
    connection.close()
    return took * 1e3


def lateness(rust: Rust | None) -> None:
    """Measures single delayed messages."""
    measure_lateness("delay_lateness", append_delayed, rust)


def timer_lateness(rust: Rust | None) -> None:
    """Measures single timer messages."""
    measure_lateness("timer_lateness", append_timer, rust)


def measure_lateness(row: str, append: Callable[[mqstore.Writer], float], rust: Rust | None) -> None:
    """Measures single messages that a call appends."""
    count = size(200, 3)
    for part in QUANTILES:
        contenders: dict[str, Round] = {
            OURS: partial(late, append=append, count=count, part=part),
            LIMIT: partial(slept, count=count, part=part),
            "SQLite": partial(sqlite_late, count=count, part=part),
        }
        measure(Row(row, {"body": BODY, "quantile": part}, "ms", {"at_most": MOST_LATE}), contenders, rust)


def burst(rust: Rust | None) -> None:
    """Measures many messages that are due within a second."""
    count = size(100_000, 100)
    contenders: dict[str, Round] = {
        OURS: partial(all_due, count=count),
        LIMIT: partial(appended, count=count),
        "SQLite": partial(sqlite_all_due, count=count),
    }
    measure(Row("delay_burst", {"body": BODY, "messages": count}, "ms", {"at_most": MOST_FOR_ALL}), contenders, rust)
