"""Commands on the store of a broker that lost the files of a queue which no group has consumed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import stamp_as_broker

import mqstore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The closed store of a broker: a topic of 3 queues with 30 messages each, one of them lost."""
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.create_topic("orders", queues=3)
        for number in range(90):
            store.append("orders", b"%d" % number, queue_id=number % 3)
        store.append_batch([b"bill"] * 300, topic="bills")
    shutil.rmtree(path / "consumequeue" / "orders" / "1")
    return stamp_as_broker(path)


#: Commands on the topic, and on the whole store.
WORDS = [
    ("cat", "orders"),
    ("cat", "orders", "-n", "3"),
    ("find", "--topic", "orders", "--since", "2020-01-01"),
    ("find", "--since", "2020-01-01", "-n", "1"),
    ("tail", "orders"),
    ("tail",),
    ("topics",),
    ("queues",),
    ("queues", "orders"),
    ("info",),
    ("get", "orders/1@5"),
    ("export", "out.jsonl", "--topic", "orders"),
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_an_answer_without_a_lost_queue_counts_what_is_missing(
    words: tuple[str, ...], path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(words[0], path, *words[1:])
    assert (ran.code, " 30 messages are not in this answer: their queues are lost, " in f" {ran.err}") == (1, True), ran
    assert ran.err.count("not in this answer") == 1
    assert run("rebuild", path, "--yes").code == 0
    (tmp_path / "out.jsonl").unlink(missing_ok=True)
    again = run(words[0], path, *words[1:])
    assert (again.code, again.err) == (0, "")


def test_commands_on_another_topic_miss_nothing(path: Path, run: Callable[..., Any]) -> None:
    for words in (
        ("cat", "bills"),
        ("tail", "bills"),
        ("queues", "bills"),
        ("find", "--topic", "bills", "--since", "2020-01-01"),
    ):
        ran = run(words[0], path, *words[1:])
        assert (ran.code, ran.err) == (0, ""), words


def test_du_counts_the_messages_of_a_lost_queue(path: Path, run: Callable[..., Any]) -> None:
    ran = run("du", path, "--by", "topic,queue", "--json")
    assert ran.code == 0
    assert [row["messages"] for row in ran.rows if row["topic"] == "orders"] == [30, 30, 30]
