"""A reader that opens while another process opens, appends to and closes the store finds it whole."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import mqstore

#: Opens, appends and closes until its input ends.
WRITER = """
import sys, threading, mqstore
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
cycles = 0
while not over.is_set():
    with mqstore.open(sys.argv[1], "a", mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=400,
                      max_hash_slot_num=20, max_index_num=80) as store:
        for n in range(cycles % 5):
            store.append("orders", b"x" * 300, keys=[f"k{cycles}-{n}"])
    cycles += 1
    if cycles == 1:
        print("ready", flush=True)
print(cycles, flush=True)
"""


@pytest.mark.parametrize("is_verified", [False, True])
def test_store_is_complete_while_a_writer_opens_and_closes_it(tmp_path: Path, is_verified: bool) -> None:
    path = tmp_path / "store"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    opens, end = 0, time.monotonic() + 4
    while time.monotonic() < end:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with mqstore.open(path) as store:
                assert store.recovery.complete, store.recovery.missing
                if is_verified:
                    found = [finding for finding in store.verify().findings if finding.severity == "error"]
                    assert found == []
        opens += 1
    cycles, _ = writer.communicate("")
    assert writer.returncode == 0
    assert opens > 5
    assert int(cycles) > 5
