"""The commands `replicate` and `tap`, in processes of their own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mqstore

SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 16, "max_hash_slot_num": 10, "max_index_num": 20}
SIZES = [f"--option={name}={value}" for name, value in SMALL.items()]
PAGE = (Path(__file__).parents[3] / "docs" / "CLI.md").read_text(encoding="utf-8")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[mqstore.Writer]:
    with mqstore.open(tmp_path / "master", "a", ha_listen_port=0, **SMALL) as store:
        store.append("orders", b"x")
        yield store


def started(master: mqstore.Writer, *more: object) -> subprocess.Popen[str]:
    assert master.replicas.address is not None
    command = [sys.executable, "-m", "mqstore", "replicate", master.replicas.address, *map(str, more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_until(process: subprocess.Popen[str], state: str) -> list[str]:
    """The lines up to the first that begins with this state, or is an object with it."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(state) or f'"state":"{state}"' in line:
            return lines
    raise AssertionError(lines)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_a_signal_and_prints_each_change(master: mqstore.Writer, tmp_path: Path, number: int) -> None:
    process = started(master, tmp_path / "slave", "--broker", "", *SIZES)
    lines = lines_until(process, "following")
    end = master.committed_offset
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert err == f"mqstore: stopped at physical offset {end}\n"
    assert len(lines) == len(set(lines))
    with mqstore.open(tmp_path / "slave") as store:
        assert [message.body for message in store.topics["orders"].queues[0]] == [b"x"]


def test_it_says_whether_topics_and_groups_are_taken(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "master", "a", ha_listen_port=0, listen_port=0, **SMALL) as master:
        master.append("orders", b"x")
        for broker, said in (
            (master.replicas.broker_address, "topics, groups and progress are taken"),
            ("127.0.0.1:1", "topics, groups and progress are not taken: "),
        ):
            process = started(master, tmp_path / "slave", "--broker", broker, *SIZES)
            assert process.stderr is not None
            assert process.stderr.readline().startswith(f"mqstore: {said}")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            assert process.returncode == 0


def test_the_fields_of_json_are_those_of_the_page(master: mqstore.Writer, tmp_path: Path) -> None:
    process = started(master, tmp_path / "slave", "--json", "--no-sync", *SIZES)
    rows = [json.loads(line) for line in lines_until(process, "following")]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0
    fields = re.search(r"\| `replicate` \| (.*?);", PAGE)
    assert fields is not None
    assert list(rows[-1]) == fields[1].split(", ")
    assert rows[-1]["error"] is None


def test_a_tail_that_would_be_discarded_ends_it(master: mqstore.Writer, tmp_path: Path, run: Callable[..., Any]) -> None:
    slave = tmp_path / "slave"
    process = started(master, slave, *SIZES)
    lines_until(process, "following")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    with mqstore.open(slave, "r+") as store:
        store.append("orders", b"own")
    master.append("orders", b"y")
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    ran = run("replicate", master.replicas.address, slave)
    assert ran.code == 1
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert "with 1 messages" in ran.err
    assert ran.err.endswith("; --discard-tail removes it\n")
    process = started(master, slave, "--discard-tail")
    lines_until(process, "following")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    with mqstore.open(slave) as store:
        assert [message.body for message in store.topics["orders"].queues[0]] == [b"x", b"y"]


def test_a_cut_is_printed_with_its_place(master: mqstore.Writer, tmp_path: Path) -> None:
    slave = tmp_path / "slave"
    process = started(master, slave, *SIZES)
    lines_until(process, "following")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    at = master.committed_offset
    with mqstore.open(slave, "r+") as store:
        store.append("orders", b"own")
        count = store.committed_offset - at
    master.append("orders", b"y")
    for more, expected in [
        ((), f"cut {count} bytes at physical offset {at}: the master has other bytes there\n"),
        (("--json",), None),
    ]:
        with mqstore.open(slave, "r+") as store:
            if expected is None:
                store.append("orders", b"own")
                master.append("orders", b"z" * 100)
        process = started(master, slave, "--discard-tail", *more)
        lines = lines_until(process, "following")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        if expected is None:
            [cut] = json.loads(lines[-1])["cuts"]
            assert cut.keys() == {"offset", "bytes", "time"}
        else:
            assert expected in lines


def test_what_cannot_be_followed_is_refused(tmp_path: Path, run: Callable[..., Any]) -> None:
    ran = run("replicate", "host", tmp_path / "slave")
    assert (ran.code, ran.out) == (2, "")
    assert "expected HOST:PORT" in ran.err
    (tmp_path / "slave").mkdir()
    (tmp_path / "slave" / "file").touch()
    assert run("replicate", "127.0.0.1:1", tmp_path / "slave").code == 3


def test_a_tap_says_what_it_costs_and_runs_until_a_signal(master: mqstore.Writer, tmp_path: Path) -> None:
    assert master.replicas.address is not None
    words = ["tap", master.replicas.address, str(tmp_path / "live"), "--start", "earliest", "--broker", "", "--json", *SIZES]
    with subprocess.Popen(
        [sys.executable, "-m", "mqstore", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        rows = [json.loads(line) for line in lines_until(process, "following")]
        wait_for_message(tmp_path / "live")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "answers FLUSH_SLAVE_TIMEOUT" in err
    fields = re.search(r"\| `tap` \| (.*?);", PAGE)
    assert fields is not None
    assert list(rows[-1]) == fields[1].split(", ")
    assert master.replicas.replicated_offset == 0


def wait_for_message(path: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        with mqstore.open(path) as store:
            if [message.body for topic in store.topics.values() for message in topic.queues[0]] == [b"x"]:
                return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_tap_begins_at_no_other_word(tmp_path: Path, run: Callable[..., Any]) -> None:
    ran = run("tap", "127.0.0.1:1", tmp_path / "live", "--start", "first")
    assert (ran.code, ran.out) == (2, "")
    assert 'start is "first"' in ran.err
