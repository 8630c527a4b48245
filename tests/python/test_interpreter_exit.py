"""A daemon thread inside a call when the interpreter ends does not abort the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mqstore

PROGRAM = """
import datetime, sys, threading, time
import mqstore

class Slow:
    # What goes with the module `sys` goes last.
    def __del__(self, sleep=time.sleep):
        sleep(0.7)  # the interpreter is ending, and lets other threads run

store = mqstore.open(sys.argv[1])
writer = mqstore.open(sys.argv[1] + "-2", "a")
queue = store.topics["orders"].queues[0]
inside = threading.Event()

def slow(*given):
    inside.set()
    time.sleep(0.4)
    return True

def rows():
    while True:
        slow()
        yield b"x"

class Keys(dict):
    def items(self):
        slow()
        return [("a", "b")]

class Table:
    def __arrow_c_stream__(self, requested_schema=None):
        slow()
        return queue[:].batches().__arrow_c_stream__()

class Number:
    def __index__(self):
        slow()
        return 0

    def __float__(self):
        slow()
        return 0.0

    def __eq__(self, other):
        return slow()

    def __fspath__(self):
        slow()
        return sys.argv[1]

class Columns(list):
    def __getattr__(self, name):
        return slow() and super().__getattribute__(name)

class Zone(datetime.tzinfo):
    def utcoffset(self, when):
        slow()
        return datetime.timedelta(0)

class Body:
    def __buffer__(self, flags):  # from Python 3.12 on
        slow()
        return memoryview(b"x")

moment = datetime.datetime(2026, 1, 1, tzinfo=Zone())

def arrow():
    while True:
        queue[:5].batches().to_arrow()
        inside.set()

calls = {
    "where": lambda: store.get("orders", 0, 0, where=slow),
    "to_arrow": arrow,
    "append_batch": lambda: writer.append_batch(rows(), "orders"),
    "append": lambda: writer.append("orders", b"x", properties=Keys()),
    "table": lambda: store.fetch(Table()),
    "time": lambda: store.query("orders", "k", since=moment),
    "born_time": lambda: writer.append("orders", b"x", born_time=moment),
    "number": lambda: store.get("orders", Number(), 0),
    "index": lambda: queue[Number()],
    "slice": lambda: queue[Number():],
    "timeout": lambda: writer.wait_durable(None, Number()),
    "path": lambda: mqstore.open(Number()),
    "option": lambda: mqstore.open(sys.argv[1], max_message_size=Number()),
    "attribute": lambda: writer.append_batch(Columns([b"x"]), "orders"),
    "equal": lambda: Number() in store.get("orders", 0, 0),
    "buffer": lambda: writer.append("orders", Body()) if sys.version_info >= (3, 12) else slow(),
}

def keep_appending():
    while True:
        try:
            calls[sys.argv[2]]()
        except mqstore.WaitTimeoutError:
            pass

threading.Thread(target=keep_appending, daemon=True).start()
assert inside.wait(30)
sys.ends = Slow()
"""


CALLS = ["where", "to_arrow", "append_batch", "append", "table", "time", "born_time", "number", "index", "slice", "timeout"]
CALLS += ["path", "option", "attribute", "equal", "buffer"]


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_a_daemon_thread_inside_a_call_does_not_abort_interpreter_exit(tmp_path: Path, call: str) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append_batch([b"x"] * 1000, "orders")
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "store", call], timeout=60, capture_output=True, text=True
        )
        assert (ended.returncode, ended.stderr) == (0, ""), call


ENDS = """
import ctypes, os, sys, threading, time
import mqstore

store = mqstore.open(sys.argv[1])

def ends():
    store.get("orders", 0, 0)
    ctypes.CDLL(None).pthread_exit(None)

threading.Thread(target=ends, daemon=True).start()
until = time.monotonic() + 20
while len(os.listdir("/proc/self/task")) > 1:
    assert time.monotonic() < until, "the thread did not end"
    time.sleep(0.01)
os._exit(0)
"""


def test_a_thread_that_ends_itself_after_a_call_ends(tmp_path: Path) -> None:
    mqstore.open(tmp_path / "store", "x").close()
    ended = subprocess.run([sys.executable, "-c", ENDS, tmp_path / "store"], timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
