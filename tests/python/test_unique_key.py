"""New unique keys."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import mqstore

KEYS = 2000


def make() -> list[str]:
    return [mqstore.new_unique_key() for _ in range(KEYS)]


def in_forks(count: int) -> list[str]:
    """The number of children that run at the same time."""
    pipes = []
    for _ in range(count):
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            with open(writes, "w") as pipe:
                pipe.write("\n".join(make()))
            os._exit(0)
        os.close(writes)
        pipes.append((child, reads))
    keys = []
    for child, reads in pipes:
        with open(reads) as pipe:
            keys += pipe.read().split()
        assert os.waitpid(child, 0)[1] == 0
    return keys


def test_no_two_keys_of_threads_forks_and_processes_are_equal() -> None:
    keys = make()
    with ThreadPoolExecutor(4) as threads:
        keys += [key for made in threads.map(lambda _: make(), range(8)) for key in made]
    keys += in_forks(8) + make()
    program = f"import mqstore\nfor _ in range({KEYS}): print(mqstore.new_unique_key())"
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:
        keys += process.communicate()[0].split()
    assert len(set(keys)) == len(keys) == KEYS * (1 + 8 + 8 + 1 + 2)


def test_forks_of_a_fork_draw_other_numbers_than_their_parents() -> None:
    """Process ids come again, and a child begins with the memory of its parent."""
    own = mqstore.new_unique_key()
    drawn = {key[-20:-12] for key in [own, *in_forks(4)]}
    assert len(drawn) == 5


def test_a_key_holds_address_process_and_time() -> None:
    before = datetime.now()
    key = mqstore.new_unique_key()
    after = datetime.now()
    assert len(key) in (32, 56)
    assert key == key.upper()
    raw = bytes.fromhex(key)
    address, rest = raw[:-12], raw[-12:]
    assert not ip_address(address).is_unspecified
    assert int.from_bytes(rest[:2], "big") == os.getpid() & 0xFFFF
    month = before.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    made = month + timedelta(milliseconds=int.from_bytes(rest[6:10], "big"))
    assert before - timedelta(milliseconds=1) <= made <= after or after.month != before.month


def test_a_message_is_found_by_its_new_key(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        keys = [mqstore.new_unique_key() for _ in range(3)]
        store.append("orders", b"0", unique_key=keys[0])
        store.append_batch([{"body": b"%d" % number, "unique_key": keys[number]} for number in (1, 2)], "orders")
        assert [store.message(key).body for key in keys] == [b"0", b"1", b"2"]
        assert [store.message(key).unique_key for key in keys] == keys
