"""Consumer groups in numbers: durable commits of 100 groups at once, and the open of a store with the progress of 10,000.

The limit of the commits is one group that commits. Groups at once share its syncs; what they take longer is the wake-up of 100
threads, one after another under the interpreter lock. "limit of idle threads" is the same without a commit: where one commit
takes less than twice that, the target cannot be met from Python. The form "from Rust" of this row shows the store alone.

The limit of the open is the same store without groups.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rounds import LIMIT, OURS, Row, Rust, measure, size

import mqstore

#: The groups that commit at once, and the longest time of all as a multiple of that of one.
COMMITTERS, MOST_TIMES = 100, 1.5
#: The seconds after which all threads wait for the begin.
ALL_WAIT = 0.02
#: The groups of an open, and the most milliseconds that they may cost.
GROUPS, MOST_MS = 10_000, 50
#: The settings of a group, as a broker of 5.x writes them.
SETTINGS = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


def at_once(works: list[Callable[[], object]]) -> float:
    """Starts a thread for each, and returns the milliseconds until all are done with the work."""
    # One system call wakes all threads. A barrier of Python wakes them one by one. The end of a thread is not measured.
    begin = os.eventfd(0, os.EFD_SEMAPHORE)
    ends: list[float] = []

    def run(work: Callable[[], object]) -> None:
        os.eventfd_read(begin)
        work()
        ends.append(time.perf_counter())

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    time.sleep(ALL_WAIT)
    begun = time.perf_counter()
    os.eventfd_write(begin, len(works))
    for thread in threads:
        thread.join()
    os.close(begin)
    return (max(ends) - begun) * 1e3


def acknowledge_and_commit(consumer: mqstore.Consumer, message: mqstore.Message) -> None:
    """Acknowledges a message, durably."""
    consumer.ack(message)
    consumer.commit(durable=True)


def commits(folder: Path, *, groups: int) -> float:
    """Returns the milliseconds until each group has acknowledged its first message durably."""
    with mqstore.open(folder / "store", "x") as store, ExitStack() as stack:
        store.append("orders", b"first")
        consumers = [stack.enter_context(store.consumer(f"group-{number}", "orders")) for number in range(groups)]
        return at_once([partial(acknowledge_and_commit, consumer, *consumer.poll(1)) for consumer in consumers])


def idle(_folder: Path, *, threads: int) -> float:
    """Returns the milliseconds until as many threads have woken."""
    return at_once([lambda: None] * threads)


def sqlite_commits(folder: Path, *, groups: int) -> float:
    """Returns the milliseconds for a transaction of each group, each with its own connection."""

    def opened() -> sqlite3.Connection:
        connection = sqlite3.connect(folder / "progress", isolation_level=None, timeout=60, check_same_thread=False)
        connection.execute("pragma synchronous = full")
        return connection

    connections = [opened() for _ in range(groups)]
    connections[0].execute("pragma journal_mode = wal")
    connections[0].execute("create table progress(name text primary key, position integer)")
    insert = "insert into progress values (?, 1)"
    took = at_once([partial(each.execute, insert, (f"group-{number}",)) for number, each in enumerate(connections)])
    for connection in connections:
        connection.close()
    return took


def opens(folder: Path, *, groups: int) -> float:
    """Returns the milliseconds to open a store for writing whose groups have progress and settings, and to join one of them."""
    path = folder / "store"
    with mqstore.open(path, "x") as store:
        store.append("orders", b"first")
    names = [f"group-{number}" for number in range(groups)]
    offsets = {f"orders@{name}": {"0": 1} for name in names}
    settings = {name: {"groupName": name, **SETTINGS} for name in names}
    for file, table, content in (
        ("consumerOffset", "offsetTable", offsets),
        ("subscriptionGroup", "subscriptionGroupTable", settings),
    ):
        (path / "config" / f"{file}.json").write_text(json.dumps({"dataVersion": {}, table: content}))
    begun = time.perf_counter()
    store = mqstore.open(path, "a")
    consumer = store.consumer("group-0", "orders")
    took = time.perf_counter() - begun
    assert consumer.lag() == (0 if groups else 1)
    store.close()
    return took * 1e3


def sqlite_opens(folder: Path, *, groups: int) -> float:
    """Returns the milliseconds to open a database with this number of groups, and to read the progress of one."""
    path = folder / "progress"
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table progress(name text primary key, position integer)")
    connection.executemany("insert into progress values (?, 1)", ((f"group-{number}",) for number in range(groups)))
    connection.commit()
    connection.close()
    begun = time.perf_counter()
    connection = sqlite3.connect(path)
    connection.execute("select position from progress where name = 'group-0'").fetchone()
    took = time.perf_counter() - begun
    connection.close()
    return took * 1e3


def run_commits(rust: Rust | None) -> None:
    """Measures commits at once."""
    groups = size(COMMITTERS, 3)
    row = Row("groups_commit", {"groups": groups, "from": "Python"}, "ms", {"ratio_limit": 1 / MOST_TIMES}, waits_for_disk=True)
    contenders = {
        OURS: partial(commits, groups=groups),
        LIMIT: partial(commits, groups=1),
        "limit of idle threads": partial(idle, threads=groups),
        "SQLite": partial(sqlite_commits, groups=groups),
    }
    measure(row, dict(contenders), rust)


def run_open(rust: Rust | None) -> None:
    """Measures the open."""
    groups = size(GROUPS, 10)
    contenders = {
        OURS: partial(opens, groups=groups),
        LIMIT: partial(opens, groups=0),
        "SQLite": partial(sqlite_opens, groups=groups),
    }
    measure(Row("groups_open", {"groups": groups}, "ms", {"over_limit": MOST_MS}), dict(contenders), rust)
