"""Commands about the clients of a broker: of a real one, whose clients wrote down what they saw, and of a built one."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import stamp_as_broker

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


def test_doctor_finds_nothing_wrong_with_a_broker_and_names_dead_letters(broker: Path, run: Callable[..., Any]) -> None:
    [got] = run("doctor", broker, "--json").rows
    assert got["ok"]
    findings = {finding["id"]: finding for finding in got["findings"]}
    assert findings["dead.letters"]["message"].startswith("40 messages were given up")
    assert f"mqstore dead {broker} flaky-group" in findings["dead.letters"]["fix"]
    assert {finding["severity"] for finding in got["findings"]} == {"note"}


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


def test_without_delivery_progress_all_count_as_waiting_with_a_note(built: Broker, run: Callable[..., Any]) -> None:
    ran = run("delayed", built.path, "--json")
    assert len(ran.rows) == 2
    assert "all messages of SCHEDULE_TOPIC_XXXX count as waiting" in ran.err


def test_a_transaction_is_open_once_however_often_the_broker_asked(built: Broker, run: Callable[..., Any]) -> None:
    for persisted in (False, True):
        if persisted:
            built.persist()
        [row] = run("transactions", built.path, "--json").rows
        assert (row["group"], row["topic"], row["keys"], row["check_times"]) == ("tellers", "payments", ["p-1"], 1)


def test_a_dead_letter_names_its_origin(built: Broker, run: Callable[..., Any]) -> None:
    [row] = run("dead", built.path, "--json").rows
    same = {"group": "billing", "topic": "%DLQ%billing", "from_topic": "orders", "reconsume_times": 1, "messages": 1, "unread": 1}
    assert {name: row[name] for name in same} == same


#: What a writer that runs puts into its files a moment later: two looks see two moments.
BEHIND = {"queue.not_dispatched", "index.not_indexed", "index.absent", "checkpoint.missing"}


def test_doctor_and_verify_agree_beside_a_writer(tmp_path: Path, run: Callable[..., Any]) -> None:
    path, ended = tmp_path / "store", threading.Event()

    def write() -> None:
        for number in itertools.takewhile(lambda _: not ended.wait(0.0005), itertools.count()):
            store.append("orders", b"x" * (number % 900), keys=[f"o-{number}"], tags="paid", queue_id=number % 4)

    with mqstore.open(path, "x", mapped_file_size_commit_log=1 << 16) as store:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(10):
                ran = [run(*words, path, "--json") for words in (("verify",), ("verify", "--quick"), ("doctor",))]
                ids = [{finding["id"] for finding in got["findings"]} - BEHIND for [got] in (each.rows for each in ran)]
                assert ids == [{"store.not_closed"}] * 3
                assert {each.err for each in ran} == {""}
        finally:
            ended.set()
            writer.join()


def test_doctor_says_what_expired_unread_and_what_is_past_the_end(built: Broker, run: Callable[..., Any]) -> None:
    built.commit_offset("billing", "orders", 0, 7)
    built.persist()
    ran = run("doctor", built.path, "--json")
    got = json.loads(ran.out)
    assert (ran.code, got["ok"]) == (1, False)
    findings = {finding["id"]: finding for finding in got["findings"]}
    assert findings["consumer.past_end"]["message"] == "group billing, orders/0: the offset 7 is past the end of the queue, 1"
    assert findings["transaction.open"]["severity"] == "note"
    assert all(list(finding) == list(got["findings"][0]) for finding in got["findings"])
    text = run("doctor", built.path)
    assert text.code == 1
    assert "  group billing, orders/0: the offset 7 is past the end of the queue, 1\n" in text.out


@pytest.mark.parametrize(
    ("words", "topic", "number"),
    [
        (("dead",), "%DLQ%flaky-group", 40),
        (("dead", "flaky-group"), "%DLQ%flaky-group", 40),
        (("lag", "billing"), "orders", 1060),
        (("topics",), "orders", 1060),
        (("queues",), "orders", 1060),
        (("queues", "orders"), "orders", 1060),
        (("delayed",), "SCHEDULE_TOPIC_XXXX", 110),
        (("transactions",), "RMQ_SYS_TRANS_OP_HALF_TOPIC", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_an_answer_without_a_lost_queue_ends_with_1_and_its_remedy(
    words: tuple[str, ...], topic: str, number: int, broker: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    shutil.rmtree(path / "consumequeue" / topic)
    ran = run(words[0], path, *words[1:])
    last = ran.err.splitlines()[-1]
    assert (ran.code, f" {number} messages are not in this answer: their queues are lost, " in last) == (1, True), ran
    find, rebuild = (shlex.split(command) for command in re.findall(r"mqstore ((?:find|rebuild) .*?)(?: shows them|$)", last))
    assert len(run(*find, "--json").rows) == number
    assert run(*rebuild).code == 0
    again, whole = (run(words[0], store, *words[1:], "--json") for store in (path, broker))
    assert (again.code, again.err, without_age(again.rows)) == (whole.code, whole.err, without_age(whole.rows))


def without_age(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "age"} for row in rows]


def test_lag_in_a_lost_queue_is_null_and_not_0(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    shutil.rmtree(path / "consumequeue" / "orders" / "1")
    ran = run("lag", path, "billing", "--json")
    assert [(row["queue_id"], row["lag"], row["max_offset"]) for row in sorted(ran.objects, key=lambda row: row["queue_id"])] == [
        (0, 15, 270),
        (1, None, None),
        (2, 15, 265),
        (3, 15, 260),
    ]
    assert "(265 of orders)" in ran.err


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (("info",), 265),
        (("get", "orders/1@5"), 265),
        (("cat", "orders"), 265),
        (("cat", "orders/1"), 265),
        (("tail", "orders/1"), 265),
        (("find", "--since", "2026-11-22T03:46:22Z"), 200),
        (("export", "all.jsonl"), 265),
        (("copy", "copy", "--topic", "orders"), 265),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_messages_of_one_lost_queue_of_a_topic_are_reported(
    words: tuple[str, ...], number: int, broker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    shutil.rmtree(path / "consumequeue" / "orders" / "1")
    ran = run(words[0], path, *words[1:])
    assert (ran.code, f" {number} messages are not in this answer: their queues are lost, " in ran.err) == (1, True), ran
    assert run("rebuild", path, "--yes").code == 0
    for name in ("all.jsonl", "copy"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        (tmp_path / name).unlink(missing_ok=True)
    again = run(words[0], path, *words[1:])
    assert (again.code, again.err) == (0, "")


@pytest.mark.parametrize("topic", [(), ("--topic", "orders")], ids=lambda words: " ".join(words) or "any")
def test_a_message_of_a_lost_queue_is_found_by_its_key(
    topic: tuple[str, ...], broker: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    with mqstore.open(path) as store:
        wanted = next(message for message in store.topics["orders"].queues[1] if message.keys)
    shutil.rmtree(path / "consumequeue" / "orders" / "1")
    for words in ([*topic, "--key", wanted.keys[0]], ["--id", wanted.message_id]):
        ran = run("find", path, *words, "--json")
        assert wanted.physical_offset in [row["physical_offset"] for row in ran.rows]
        assert f"{wanted.physical_offset} is in the log, and no entry of its queue leads to it" in ran.err


def test_a_find_with_all_needs_no_queue(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    shutil.rmtree(path / "consumequeue" / "orders" / "1")
    ran = run("find", path, "--topic", "orders", "--all", "--since", "2026-11-22T00:00Z", "--json")
    assert (len(ran.rows), ran.err) == (1060, "")


def test_a_deleted_topic_is_no_lost_queue(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    shutil.rmtree(path / "consumequeue" / "%DLQ%flaky-group")
    settings = path / "config" / "topics.json"
    settings.write_text(settings.read_text().replace('"%DLQ%flaky-group":{', '"other":{'))
    ran = run("dead", path, "--json")
    assert ([row["topic"] for row in ran.rows], ran.err) == (["%RETRY%flaky-group"], "")


def test_timers_in_a_lost_queue_are_not_left_out_silently(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    due = str(int(mqstore_broker.clock.now.timestamp() * 1000) + 1000)
    mqstore_broker.send("reminders", b"pay", delay_level=3)
    mqstore_broker.store.append("rmq_sys_wheel_timer", b"x", properties={"TIMER_OUT_MS": due})
    mqstore_broker.create_topic("rmq_sys_wheel_timer", queues=1)
    mqstore_broker.send("orders", b"x")
    mqstore_broker.close()
    path = stamp_as_broker(Path(mqstore_broker.path))
    shutil.rmtree(path / "consumequeue" / "rmq_sys_wheel_timer")
    (path / "timerlog").mkdir()
    (path / "timerlog" / f"{0:020}").write_bytes(bytes(52))
    ran = run("delayed", path, "--json")
    assert ([row["level"] for row in ran.objects], ran.code) == ([3], 1)
    assert "(1 of rmq_sys_wheel_timer)" in ran.err.splitlines()[-1]


def test_a_half_messages_state_is_unknown_without_the_op_queue(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    # The progress in op messages shows that there was one.
    first, _, ended = (mqstore_broker.send_half("payments", b"x", group="tellers") for _ in range(3))
    mqstore_broker.end_transaction(first, "rollback")
    mqstore_broker.end_transaction(ended, "rollback")
    mqstore_broker.send("orders", b"x")
    mqstore_broker.close()
    path = stamp_as_broker(Path(mqstore_broker.path))
    assert run("find", path, "--id", ended.unique_key, "--json").rows[0]["transaction"] == "rolled_back"
    shutil.rmtree(path / "consumequeue" / "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    assert run("find", path, "--id", ended.unique_key, "--json").objects[0]["transaction"] == "unknown"


@pytest.mark.parametrize(
    ("command", "topic"),
    [("dead", "%DLQ%billing"), ("delayed", "SCHEDULE_TOPIC_XXXX"), ("transactions", "RMQ_SYS_TRANS_HALF_TOPIC")],
)
def test_damaged_messages_are_not_reported_as_absent(
    command: str, topic: str, mqstore_broker: Broker, run: Callable[..., Any]
) -> None:
    order = mqstore_broker.send("orders", b"x")
    mqstore_broker.send("reminders", b"pay", delay_level=3)
    mqstore_broker.send_half("payments", b"10 EUR", group="tellers")
    mqstore_broker.send_back(order, "billing", delay_level=-1)
    mqstore_broker.send("orders", b"x")
    place = mqstore_broker.store.topics[topic].queues[-1][0].physical_offset
    mqstore_broker.close()
    with next(Path(mqstore_broker.path, "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(place + 4)  # the magic code
        segment.write(b"\xff")
    ran = run(command, mqstore_broker.path)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[-2:] == [
        "mqstore: 1 message was skipped: it was lost or damaged",
        f"mqstore: in the messages that can be read, {NOTHING[command]}",
    ]


NOTHING = {
    "dead": "no message was given up, and none was sent back",
    "delayed": "no message waits for its delivery",
    "transactions": "no transaction is open",
}


@pytest.mark.parametrize("text", ["", '{"offsetTable":{1:2', '{"offsetTable":{"x":1}}', None])
def test_delayed_messages_count_as_unknown_without_delivery_progress(
    text: str | None, broker: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    file = path / "config" / "delayOffset.json"
    whole = file.read_text()
    file.with_name("delayOffset.json.bak").unlink()
    file.unlink() if text is None else file.write_text(text)
    ran = run("delayed", path, "--json")
    assert (ran.code, len(ran.objects)) == (1, 110)
    assert "it is unknown which messages of SCHEDULE_TOPIC_XXXX were delivered" in ran.err.splitlines()[-1]
    ran = run("doctor", path, "--json")
    findings = {
        finding["id"]: finding for finding in ran.objects[0]["findings"] if finding["id"].startswith(("delayed", "config"))
    }
    assert (ran.code, list(findings)) == (1, ["delayed.not_read"])
    said = findings["delayed.not_read"]
    assert said["message"].startswith("it is unknown how many of 110 delayed messages wait: delayOffset.json ")
    assert said["meaning"].startswith("a broker that starts without this file delivers each delay level from its begin: ")
    assert said["fix"].startswith("restore the file from a backup; without a backup, ")
    file.write_text(whole)
    assert (run("delayed", path, "--json"), run("doctor", path).code) == (run("delayed", broker, "--json"), 0)
