"""One interpreter of a process has mqstore."""

from __future__ import annotations

import subprocess
import sys

import pytest

IN_ANOTHER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def run(code):
    made = interpreters.create()
    interpreters.run_string(made, code)
    interpreters.destroy(made)
"""

REFUSED = """
try:
    import mqstore
except ImportError as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize(
    ("first", "then"),
    [("import mqstore", f"run({REFUSED!r})"), ("run('import mqstore')", REFUSED)],
    ids=["main first", "subinterpreter first"],
)
def test_second_interpreter_of_a_process_cannot_import_mqstore(first: str, then: str) -> None:
    command = [sys.executable, "-c", f"{IN_ANOTHER}\n{first}\n{then}\nprint('ended', flush=True)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    *refused, last = done.stdout.splitlines()
    assert last == "ended"
    assert len(refused) == 1
    # CPython 3.12 and later may refuse it before the module is asked.
    assert "subinterpreter" in refused[0]
