"""A daemon thread inside a call when the interpreter ends does not abort the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mqstore

PROGRAM = """
import sys, threading, time
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
}
threading.Thread(target=calls[sys.argv[2]], daemon=True).start()
assert inside.wait(30)
sys.ends = Slow()
"""


@pytest.mark.parametrize("call", ["where", "to_arrow", "append_batch", "append", "table"])
def test_a_daemon_thread_inside_a_call_does_not_abort_the_end_of_the_interpreter(tmp_path: Path, call: str) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append_batch([b"x"] * 1000, "orders")
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path / "store", call], timeout=60, capture_output=True, text=True
        )
        assert (ended.returncode, ended.stderr) == (0, ""), call
