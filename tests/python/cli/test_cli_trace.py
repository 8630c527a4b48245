"""The command `trace`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one message, which became a dead letter."""
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.append("orders", b"x", properties={"UNIQ_KEY": mqstore.new_unique_key()})
        with store.consumer("billing", "orders") as consumer:
            consumer.nack(consumer.poll()[0], delay_level=-1)
    return path


def key_of(path: Path) -> str:
    with mqstore.open(path) as store:
        return str(store.topics["orders"].queues[0][0].unique_key)


def test_trace_prints_each_record(path: Path, run: Callable[..., Any]) -> None:
    ran = run("trace", path, key_of(path), "--json")
    assert ran.code == 0
    found = [(row["stage"], row["state"], row["topic"], row["passed_by"]) for row in ran.rows]
    assert found == [("stored", "consumed", "orders", ["billing"]), ("dead", "dead", "%DLQ%billing", [])]


def test_trace_of_a_message_in_no_log_fails(path: Path, run: Callable[..., Any]) -> None:
    absent = run("trace", path, "FD00000000000000000000000000000259285FFD2B276CF4C7CCFFFF")
    assert (absent.code, absent.out) == (1, "")
    assert "no record of the log has the id" in absent.err


def test_trace_counts_a_lost_message_once(tmp_path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        _, lost, _ = [store.append(topic, b"body") for topic in ("orders", "payments", "audit")]
    with next((tmp_path / "store" / "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(lost.physical_offset + 4)
        segment.write(bytes(4))
    run("repair", tmp_path / "store", "--into", tmp_path / "repaired", "--yes")
    ran = run("trace", tmp_path / "repaired", "FD00000000000000000000000000000259285FFD2B276CF4C7CCFFFF")
    assert (ran.code, ran.out) == (1, "")
    assert "1 message was skipped: it was lost or damaged" in ran.err
    by_place = run("trace", tmp_path / "repaired", f"7F00000100002A9F{lost.physical_offset:016X}")
    assert by_place.code == 1
    assert f"no message starts at physical offset {lost.physical_offset}: the message here was lost" in by_place.err


def test_trace_without_the_progress_of_groups_names_what_is_unknown(path: Path, run: Callable[..., Any]) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (path / "config" / name).write_text("{", encoding="utf-8")
    ran = run("trace", path, key_of(path), "--json")
    assert ran.code == 1
    assert [json.loads(line)["state"] for line in ran.out.splitlines()] == ["unknown", "dead"]
    assert "progress of the consumer groups is unknown" in ran.err
