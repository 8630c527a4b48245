"""A disk that stalls for 6 s, in each mode, with the default timeouts of 5 s. The stores of all cases stall at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SECONDS = 6

BEGIN = f"""
import mqstore, os, sys, threading, time
path, what = sys.argv[1:]
file = os.environ[what]
def say(number):
    with open(file + ".new", "w") as new:
        new.write(str(number))
    os.replace(file + ".new", file)
def until(is_true):
    deadline = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.005)
def stalled():
    return os.path.getsize(file + ".count") if os.path.exists(file + ".count") else 0
def bodies(reader):
    return [message.body for message in reader.topics["orders"].queues[0]]
def timed(call):
    # What the call gave or raised, and how long it took.
    begin = time.monotonic()
    try:
        got = call()
    except mqstore.StoreError as error:
        got = error
    return got, time.monotonic() - begin
def at_once(*calls):
    got = [None] * len(calls)
    def run(number, call):
        got[number] = timed(call)
    threads = [threading.Thread(target=run, args=both) for both in enumerate(calls)]
    for thread in threads:
        thread.start()
    return threads, got
store = mqstore.open(path, "x", **options)
stored = [b"first"]
store.append("orders", b"first", durable=True)
# Two segments and the queue's file are made and have their names: what stalls is a sync or a write of the log.
until(lambda: len(os.listdir(path + "/commitlog")) == 2 and os.path.exists(path + "/consumequeue/orders/0/" + "0" * 20))
flushed = store.flushed_offset
before = stalled()
say(1 if what == "WRITES" else 600)
def is_stalled():
    return stalled() > before
try:
    begun = time.monotonic()
    exec(during)
    assert store.flushed_offset == flushed, "a sync has returned"
    time.sleep(max(0, begun + {SECONDS} - time.monotonic()))
finally:
    say(0)
exec(after)
store.wait_durable(timeout=120)
store.wait_dispatched(timeout=120)
found = bodies(store)
assert found[: len(stored)] == stored and sorted(found[len(stored) :]) == sorted(late), (len(found), len(stored))
store.close()
with mqstore.open(path) as reader:
    assert reader.recovery.clean_exit and bodies(reader) == found
"""

#: While the disk stalls, appends return. No caller that waits for the disk learns that a message is durable.
CONTINUES = """
def append(size):
    body = b"%d " % len(stored) + b"x" * size
    assert store.append("orders", body).status == "PUT_OK"
    stored.append(body)
for _ in range(20):
    append(1000)
until(is_stalled)
waits, got = at_once(lambda: store.wait_durable(timeout=5))
while waits[0].is_alive() or time.monotonic() < begun + 6:
    append(100)
    time.sleep(0.01)
error, seconds = got[0]
assert isinstance(error, mqstore.WaitTimeoutError) and seconds >= 5, got
late = []
"""

#: A message without room in the pool is refused after 5 s; a smaller message with room is not.
FILLS_UP = """
piece = b"x" * (1 << 20)
store.append("orders", piece)
stored.append(piece)
until(is_stalled)
got, seconds = timed(lambda: store.append("orders", piece))
while not isinstance(got, mqstore.StoreError):
    assert got.status == "PUT_OK"
    stored.append(piece)
    got, seconds = timed(lambda: store.append("orders", piece))
assert isinstance(got, mqstore.BusyError) and got.status == "OS_PAGE_CACHE_BUSY", got
assert seconds >= 5, seconds
# 20 MiB, less the heads of the records.
assert len(stored) == 1 + 19, len(stored)
assert store.append("orders", b"small").status == "PUT_OK"
stored.append(b"small")
late = [b"again"]
"""

APPENDS_AGAIN = """
assert store.append("orders", piece).status == "PUT_OK"
stored.append(piece)
late = []
"""

#: One thread syncs for all who wait. The others get a status after 5 s that their messages are stored, and not durable.
WAITS = """
leads, led = at_once(lambda: store.append("orders", b"leads", durable=True))
until(is_stalled)
waits, got = at_once(
    lambda: store.append("orders", b"one", durable=True),
    lambda: store.append_batch([b"two", b"three"], "orders", durable=True),
)
for wait in waits:
    wait.join()
(one, seconds), (batch, batch_seconds) = got
assert one.status == "FLUSH_DISK_TIMEOUT" and seconds >= 5, got
assert isinstance(batch, mqstore.WaitTimeoutError) and batch_seconds >= 5, got
assert (batch.status, batch.stored, len(batch.offsets)) == ("FLUSH_DISK_TIMEOUT", 2, 2), vars(batch)
assert leads[0].is_alive(), led
seen = bodies(store)
assert (seen == [b"first"]) if hidden else (sorted(seen) == sorted([b"first", b"leads", b"one", b"two", b"three"])), seen
stored.append(b"leads")
late = [b"one", b"two", b"three"]
"""

IS_LED = """
leads[0].join()
assert led[0][0].status == "PUT_OK", led
"""

POOL = {"transient_store_pool_enable": True}
SYNC = {"flush_disk_type": "SYNC_FLUSH"}
#: So that the thread that appends is the one that syncs.
NOBODY_ELSE = {"flush_interval_commit_log": 3_600_000}


@dataclass
class Case:
    """A mode, what stalls, and what is done and asserted while it does and afterwards."""

    options: dict[str, object]
    stalls: str
    during: str
    after: str = ""
    #: Whether readers see a message only when it is durable.
    hidden: bool = False


CASES = {
    "ASYNC_FLUSH, a sync stalls: appends continue": Case({}, "SYNC", CONTINUES),
    "pool, a sync stalls: appends continue": Case(POOL, "SYNC", CONTINUES),
    "pool, a write stalls: appends continue while there is room": Case(POOL, "WRITES", CONTINUES),
    "pool, a write stalls: a full pool refuses": Case(POOL, "WRITES", FILLS_UP, APPENDS_AGAIN),
    "SYNC_FLUSH, a sync stalls: FLUSH_DISK_TIMEOUT": Case(SYNC | NOBODY_ELSE, "SYNC", WAITS, IS_LED, hidden=True),
    "SYNC_FLUSH with a pool, a sync stalls: FLUSH_DISK_TIMEOUT": Case(
        SYNC | POOL | NOBODY_ELSE, "SYNC", WAITS, IS_LED, hidden=True
    ),
    "SYNC_FLUSH with a pool, a write stalls: FLUSH_DISK_TIMEOUT": Case(
        SYNC | POOL | NOBODY_ELSE, "WRITES", WAITS, IS_LED, hidden=True
    ),
    "durable=True, a sync stalls: FLUSH_DISK_TIMEOUT": Case(NOBODY_ELSE, "SYNC", WAITS, IS_LED),
    "durable=True with a pool, a sync stalls: FLUSH_DISK_TIMEOUT": Case(POOL | NOBODY_ELSE, "SYNC", WAITS, IS_LED),
}


@pytest.fixture(scope="module")
def ended(
    tmp_path_factory: pytest.TempPathFactory, slow_sync: Path, stalled_write: Path
) -> Iterator[Callable[[str], tuple[int, str]]]:
    """Starts a process for each case, all at once. Gives how that of one case has ended, and what it printed."""
    processes = {}
    for name, case in CASES.items():
        place = tmp_path_factory.mktemp("stalled")
        preload = {"LD_PRELOAD": f"{slow_sync}:{stalled_write}", "SYNC": str(place / "sync"), "WRITES": str(place / "writes")}
        code = f"options, hidden, during, after = {(case.options, case.hidden, case.during, case.after)!r}\n{BEGIN}"
        command = [sys.executable, "-c", code, place / "store", case.stalls]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        processes[name] = subprocess.Popen(command, env=os.environ | preload, **output)

    def wait(name: str) -> tuple[int, str]:
        said, _ = processes[name].communicate(timeout=300)
        return processes[name].returncode, said

    yield wait
    for process in processes.values():
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", CASES)
def test_a_disk_that_stalls_for_six_seconds_loses_and_delays_no_message(
    ended: Callable[[str], tuple[int, str]], name: str
) -> None:
    code, said = ended(name)
    assert code == 0, said
