"""A store that was not closed, and cannot be closed when it is dropped, reports that in one message and does not panic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mqstore

PROGRAM = """
import resource, sys, threading
import mqstore

path, how = sys.argv[1:]
store = mqstore.open(path, "r+")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # no file can be written any more

class Cycle:
    pass

if how == "dropped":
    del store
elif how == "dropped_on_a_thread":
    held = [store]
    del store
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
elif how == "dropped_under_another_error":
    handed_over = [store]
    del store
    try:
        int(handed_over.pop())
    except TypeError as error:
        print(error)
elif how == "errors_hidden":
    sys.modules["mqstore.errors"] = None
    del store
elif how == "kept_to_the_end":
    pass
elif how == "kept_in_a_cycle":
    cycle = Cycle()
    cycle.itself, cycle.store = cycle, store
    del store, cycle
elif how == "kept_by_sys":
    sys.kept = store
    del store
elif how == "kept_by_an_iterator":
    sys.kept = iter(store.topics["orders"].queues[0])
    del store
print("done")
"""

WHILE_PYTHON_RUNS = ["dropped", "dropped_on_a_thread", "dropped_under_another_error", "errors_hidden"]
AT_THE_END = ["kept_to_the_end", "kept_in_a_cycle", "kept_by_sys", "kept_by_an_iterator"]


def run(path: Path, how: str) -> tuple[str, str]:
    with mqstore.open(path, "x") as store:
        store.append("orders", b"x")
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, how],
        timeout=60,
        capture_output=True,
        text=True,
        env={"RUST_BACKTRACE": "0", "PYTHONPATH": ":".join(sys.path)},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def assert_recovers(path: Path) -> None:
    with mqstore.open(path, "r+") as store:
        assert not store.recovery.clean_exit
        assert [message.body for message in store.topics["orders"].queues[0]] == [b"x"]


@pytest.mark.parametrize("how", WHILE_PYTHON_RUNS)
def test_a_dropped_store_that_cannot_be_closed_calls_the_unraisable_hook(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store"
    printed, told = run(path, how)
    first, *_, last = told.splitlines()
    assert first == f"Exception ignored in: 'closing the store {path}, which was dropped open; the next open recovers it'"
    assert (
        last
        == f"mqstore.errors.StoreIOError: [Errno 27] cannot write: File too large (os error 27): '{path}/config/mqstore.flushed'"
    )
    assert "panic" not in told
    wanted = ["int() argument must be a string, a bytes-like object or a real number, not 'mqstore.Writer'"]
    assert printed.splitlines() == (wanted if "error" in how and how != "errors_hidden" else []) + ["done"]
    assert_recovers(path)


@pytest.mark.parametrize("how", AT_THE_END)
def test_a_failed_close_at_interpreter_exit_prints_one_line(tmp_path: Path, how: str) -> None:
    path = tmp_path / "store"
    printed, told = run(path, how)
    assert told == (
        f"mqstore: closing the store {path}, which was dropped open, failed: cannot write {path}/config/mqstore.flushed: "
        "File too large (os error 27); the next open recovers it\n"
    )
    assert printed == "done\n"
    assert_recovers(path)
