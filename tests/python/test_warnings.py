"""Warnings name the line of the caller, so that Python shows each once for it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import mqstore


@pytest.fixture
def incomplete(tmp_path: Path) -> Path:
    """A store with a message in a queue that is missing in the log."""
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=4096) as store:
        for _ in range(20):
            store.append("orders", b"x" * 500)
    *_, last = sorted((path / "commitlog").iterdir())
    last.unlink()
    return path


PROGRAM = """
import sys, mqstore
for _ in range(3):
    store = mqstore.open(sys.argv[1])
    store.refresh()
    for message in store.follow("none", start="earliest", timeout=0):
        pass
    store.close()
"""


def test_a_loop_of_opens_and_refreshes_shows_each_text_once(incomplete: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, program, incomplete], capture_output=True, text=True, check=True)
    shown = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    assert [line.partition(": ")[0] for line in shown] == [f"{program}:4", f"{program}:6"], done.stderr
    assert "is INCOMPLETE" in shown[0]
    assert "has no topic" in shown[1]


def test_a_warning_in_a_call_that_is_written_in_python_names_the_caller(incomplete: Path) -> None:
    of_the_package = {"__name__": "mqstore.code", "open": mqstore.open}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(f"open({str(incomplete)!r}).close()", of_the_package)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_filter_for_the_module_of_the_caller_finds_the_warning(incomplete: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=RuntimeWarning, module=__name__.replace(".", r"\."))
        with pytest.raises(RuntimeWarning, match="INCOMPLETE"):
            mqstore.open(incomplete)
