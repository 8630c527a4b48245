"""What the commands say of the clients of a broker: of a real one, whose clients wrote down what they saw, and of a built one."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore.testing import Broker

SAID = Path(__file__).resolve().parents[2] / "golden" / "expected" / "533_broker.said.jsonl"
READ = SAID.with_name("533_broker.jsonl")


def said(kind: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, SAID.read_text().splitlines()) if line.get(kind)]


def test_lag_is_what_the_clients_of_a_broker_have_left(broker: Path, run: Callable[..., Any]) -> None:
    rows = run("lag", broker, "--json").rows
    ends = {}
    for line in map(json.loads, READ.read_text().splitlines()):
        if "queue" in line:
            ends[line["queue"]] = line["max"]
    for group, topic in [("billing", "orders"), ("audit", "payments"), ("flaky-group", "flaky-topic")]:
        progress = {line["queue"]: line["offset"] for line in said("progress") if line["topic_group"] == f"{topic}@{group}"}
        of_group = {row["queue_id"]: row for row in rows if (row["group"], row["topic"]) == (group, topic)}
        assert {queue: row["offset"] for queue, row in of_group.items()} == progress
        assert {queue: row["lag"] for queue, row in of_group.items()} == {
            queue: ends[f"{topic}/{queue}"] - offset for queue, offset in progress.items()
        }
    assert run("lag", broker, "billing", "--json").rows == [row for row in rows if row["group"] == "billing"]
    assert run("lag", broker, "nobody").code == 1


def test_delayed_lists_what_the_broker_has_not_delivered(broker: Path, run: Callable[..., Any]) -> None:
    sent = {line["unique_key"]: line["level"] for line in said("delayed")}
    with mqstore.open(broker) as store:
        delivered = {
            m.unique_key
            for topic in store.topics.values()
            for q in topic.queues
            for m in q
            if topic.name != "SCHEDULE_TOPIC_XXXX"
        }
    rows = run("delayed", broker, "--json").rows
    waiting = {row["unique_key"]: row["level"] for row in rows if row["unique_key"] in sent}
    # A level above the last one counts as the last.
    assert waiting == {key: min(level, 18) for key, level in sent.items() if key not in delivered}
    assert [row["due_time"] for row in rows] == sorted(row["due_time"] for row in rows)
    assert run("delayed", broker, "-n", 3, "--json").rows == rows[:3]


def test_transactions_lists_those_that_no_client_has_ended(broker: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(broker) as store:
        committed = {m.unique_key for q in store.topics["payments"].queues for m in q}
    unknown = {line["unique_key"] for line in said("transaction") if line["local"] == "unknown"}
    rows = run("transactions", broker, "--json").rows
    assert {row["unique_key"] for row in rows} == unknown - committed
    assert {row["group"] for row in rows} == {"tx-producers"}
    assert all(row["check_times"] > 0 for row in rows)


def test_dead_counts_the_letters_that_the_broker_gave_up(broker: Path, run: Callable[..., Any]) -> None:
    rows = run("dead", broker, "--json").rows
    lines = [
        line for line in map(json.loads, READ.read_text().splitlines()) if line.get("topic", "").startswith(("%DLQ%", "%RETRY%"))
    ]
    counted = Counter((line["topic"], line["properties"]["RETRY_TOPIC"], line["reconsume_times"]) for line in lines)
    assert {(row["topic"], row["from_topic"], row["reconsume_times"]): row["messages"] for row in rows} == counted
    unread = {row["topic"]: row["unread"] for row in rows}
    assert unread == {"%DLQ%flaky-group": 40, "%RETRY%flaky-group": 0}
    assert run("dead", broker, "flaky-group", "--json").rows == rows
    assert run("dead", broker, "billing").code == 1


def test_doctor_finds_nothing_wrong_with_a_broker_and_names_its_dead_letters(broker: Path, run: Callable[..., Any]) -> None:
    [told] = run("doctor", broker, "--json").rows
    assert told["ok"]
    findings = {finding["id"]: finding for finding in told["findings"]}
    assert findings["dead.letters"]["message"].startswith("40 messages were given up")
    assert f"mqstore dead {broker} flaky-group" in findings["dead.letters"]["fix"]
    assert {finding["severity"] for finding in told["findings"]} == {"note"}


@pytest.fixture
def built(mqstore_broker: Broker) -> Broker:
    """A broker with a message of each kind."""
    order = mqstore_broker.send("orders", b"shirt", tags="paid", keys=["o-1"])
    mqstore_broker.send("reminders", b"pay", keys=["o-1"], delay_level=3)
    mqstore_broker.send("reminders", b"pay soon", delay_level=1)
    asked = mqstore_broker.send_half("payments", b"10 EUR", group="tellers", keys=["p-1"])
    mqstore_broker.check_back(asked)
    ended = mqstore_broker.send_half("payments", b"20 EUR", group="tellers", keys=["p-2"])
    mqstore_broker.end_transaction(ended, "rollback")
    mqstore_broker.send_back(order, "billing", delay_level=-1)
    return mqstore_broker


def test_what_is_delayed_is_listed_until_it_is_delivered(built: Broker, run: Callable[..., Any]) -> None:
    built.persist()
    rows = run("delayed", built.path, "--json").rows
    assert [(row["level"], row["topic"], row["store_time"], row["due_time"]) for row in rows] == [
        (1, "reminders", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z"),
        (3, "reminders", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:10.000Z"),
    ]
    [row] = run("delayed", built.path, "--levels", "1h 2h", "-n", 1, "--json").rows
    assert (row["level"], row["due_time"]) == (1, "2026-01-01T01:00:00.000Z")
    built.clock.advance(5)
    built.deliver()
    built.persist()
    assert [row["level"] for row in run("delayed", built.path, "--json").rows] == [3]
    built.clock.advance(5)
    built.deliver()
    built.persist()
    ran = run("delayed", built.path)
    assert (ran.code, ran.out, ran.err) == (1, "", "mqstore: no message waits for its delivery\n")


def test_without_the_progress_of_the_delivery_all_count_as_waiting_and_that_is_said(
    built: Broker, run: Callable[..., Any]
) -> None:
    ran = run("delayed", built.path, "--json")
    assert len(ran.rows) == 2
    assert "all messages of SCHEDULE_TOPIC_XXXX count as waiting" in ran.err


def test_a_transaction_is_open_once_however_often_the_broker_asked(built: Broker, run: Callable[..., Any]) -> None:
    for persisted in (False, True):
        if persisted:
            built.persist()
        [row] = run("transactions", built.path, "--json").rows
        assert (row["group"], row["topic"], row["keys"], row["check_times"]) == ("tellers", "payments", ["p-1"], 1)


def test_a_dead_letter_tells_where_it_came_from(built: Broker, run: Callable[..., Any]) -> None:
    [row] = run("dead", built.path, "--json").rows
    same = {"group": "billing", "topic": "%DLQ%billing", "from_topic": "orders", "reconsume_times": 1, "messages": 1, "unread": 1}
    assert {name: row[name] for name in same} == same


#: What a writer that runs puts into its files a moment later: two looks see two moments.
BEHIND = {"queue.not_dispatched", "index.not_indexed", "index.absent", "checkpoint.missing"}


def test_doctor_and_verify_agree_beside_a_writer(tmp_path: Path, run: Callable[..., Any]) -> None:
    path, ended = tmp_path / "store", threading.Event()

    def write() -> None:
        for number in itertools.takewhile(lambda _: not ended.wait(0.0005), itertools.count()):
            store.append("orders", b"x" * (number % 900), keys=[f"o-{number}"], tags="paid", queue=number % 4)

    with mqstore.open(path, "x", mapped_file_size_commit_log=1 << 16) as store:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(10):
                ran = [run(*words, path, "--json") for words in (("verify",), ("verify", "--quick"), ("doctor",))]
                ids = [{finding["id"] for finding in told["findings"]} - BEHIND for [told] in (each.rows for each in ran)]
                assert ids == [{"store.not_closed"}] * 3
                assert {each.err for each in ran} == {""}
        finally:
            ended.set()
            writer.join()


def test_doctor_says_what_expired_unread_and_what_is_past_the_end(built: Broker, run: Callable[..., Any]) -> None:
    built.commit_offset("billing", "orders", 0, 7)
    built.persist()
    ran = run("doctor", built.path, "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["ok"]) == (1, False)
    findings = {finding["id"]: finding for finding in told["findings"]}
    assert findings["consumer.past_end"]["message"] == "group billing, orders/0: the offset 7 is past the end of the queue, 1"
    assert findings["transaction.open"]["severity"] == "note"
    assert all(list(finding) == list(told["findings"][0]) for finding in told["findings"])
    text = run("doctor", built.path)
    assert text.code == 1
    assert "  group billing, orders/0: the offset 7 is past the end of the queue, 1\n" in text.out
