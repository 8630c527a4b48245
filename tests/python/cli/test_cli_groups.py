"""Commands about consumer groups: `groups`, `consume` and `resend`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqstore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.append_batch([("orders", b"%d" % number, "paid" if number % 2 else "new") for number in range(40)])
    return path


def bodies(ran: Any) -> list[str]:
    return [row["body"] for row in ran.rows]


def test_consume_continues_where_the_group_was(path: Path, run: Callable[..., Any]) -> None:
    consume = ("consume", path, "orders", "--group", "billing", "--json")
    assert bodies(run(*consume, "--max", 3, "--no-ack")) == ["0", "1", "2"]
    assert bodies(run(*consume, "--max", 3)) == ["0", "1", "2"]
    assert bodies(run(*consume)) == [str(number) for number in range(3, 40)]
    nothing = run(*consume)
    assert (nothing.code, nothing.out) == (1, "")
    assert "has consumed all messages of topic orders" in nothing.err
    assert bodies(run("consume", path, "orders", "--group", "other", "--tag", "paid", "--max", 2, "--json")) == ["1", "3"]


def test_consume_prints_as_cat_does(path: Path, run: Callable[..., Any]) -> None:
    assert run("consume", path, "orders", "--group", "billing").out == run("cat", path, "orders").out


def test_consume_and_resend_refuse_a_store_that_a_writer_has(path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(path, "a") as store, store.consumer("billing", "orders") as consumer:
        consumer.nack(consumer.poll(1)[0], delay_level=-1)
    with mqstore.open(path, "a"):
        for arguments in (("consume", path, "orders", "--group", "billing"), ("resend", path, "billing")):
            refused = run(*arguments)
            assert (refused.code, refused.out) == (3, "")
            assert "cannot open the store" in refused.err


def test_consume_names_what_does_not_exist_and_makes_no_store(path: Path, run: Callable[..., Any]) -> None:
    absent = run("consume", path, "order", "--group", "billing")
    assert (absent.code, absent.out) == (1, "")
    assert "orders" in absent.err
    assert run("consume", path.parent / "none", "orders", "--group", "billing").code == 3
    assert not (path.parent / "none").exists()


def test_groups_shows_lag_and_age_of_each_topic(path: Path, run: Callable[..., Any]) -> None:
    nothing = run("groups", path)
    assert (nothing.code, nothing.out) == (1, "")
    run("consume", path, "orders", "--group", "billing", "--max", 10)
    run("consume", path, "orders", "--group", "shipping")
    run("consume", path, "orders", "--group", "audit")
    billing, audit, shipping = run("groups", path, "--json").rows
    assert [row["unconsumed_since"] for row in run("lag", path, "--json").rows] == [billing["unconsumed_since"], None, None]
    assert audit["lag"] == 0
    assert (billing["group"], billing["topic"], billing["queues"], billing["lag"]) == ("billing", "orders", 1, 30)
    assert billing["unconsumed_since"] is not None
    assert billing["age"] >= 0
    assert (shipping["group"], shipping["lag"], shipping["unconsumed_since"], shipping["age"]) == ("shipping", 0, None, None)


def test_groups_deletes_a_group_only_with_yes(path: Path, run: Callable[..., Any]) -> None:
    run("consume", path, "orders", "--group", "billing", "--max", 10)
    run("consume", path, "orders", "--group", "audit")
    asked = run("groups", path, "--delete", "billing")
    assert asked.code == 0
    assert "billing" in asked.out
    assert "audit" not in asked.out
    assert asked.out.endswith("nothing was changed: --yes deletes the group\n")
    assert [row["group"] for row in run("groups", path, "--json").rows] == ["billing", "audit"]
    with mqstore.open(path, "a"):
        refused = run("groups", path, "--delete", "billing", "--yes")
        assert (refused.code, refused.out) == (3, "")
    deleted = run("groups", path, "--delete", "billing", "--yes", "--json")
    assert (deleted.code, deleted.rows) == (0, [{"path": str(path), "group": "billing", "deleted": True, "lag": 30}])
    assert [row["group"] for row in run("groups", path, "--json").rows] == ["audit"]
    with mqstore.open(path) as store:
        assert pa.record_batch(store.broker.group_configs()).column("group").to_pylist() == ["audit"]
    absent = run("groups", path, "--delete", "billing", "--yes")
    assert (absent.code, absent.out) == (1, "")
    assert "no group billing has consumed from this store" in absent.err
    assert run("groups", path, "--yes").code == 2


def test_resend_sends_each_dead_letter_once(path: Path, run: Callable[..., Any]) -> None:
    nothing = run("resend", path, "billing")
    assert (nothing.code, nothing.out) == (1, "")
    assert "has no dead letters" in nothing.err
    with mqstore.open(path, "a") as store, store.consumer("billing", "orders") as consumer:
        for message in consumer.poll(2):
            consumer.nack(message, delay_level=-1)
    sent = {"path": str(path), "group": "billing", "skipped": 0, "expired": 0}
    assert run("resend", path, "billing", "--json").rows == [sent | {"sent": 2}]
    assert run("resend", path, "billing", "--json").rows == [sent | {"sent": 0}]
    assert bodies(run("cat", path, "orders", "-n", -2, "--json")) == ["0", "1"]


def test_doctor_counts_no_dead_letter_that_was_sent_again(path: Path, run: Callable[..., Any]) -> None:
    def messages() -> list[str]:
        findings = run("doctor", path, "--json").objects[0]["findings"]
        return [finding["message"] for finding in findings if finding["id"] == "dead.letters"]

    with mqstore.open(path, "a") as store, store.consumer("billing", "orders") as consumer:
        for message in consumer.poll(2):
            consumer.nack(message, delay_level=-1)
    assert messages() == ["2 messages were given up, after consumers of group billing had failed on them"]
    run("resend", path, "billing")
    assert messages() == []
    with mqstore.open(path, "a") as store, store.consumer("billing", "orders") as consumer:
        consumer.nack(consumer.poll(1)[0], delay_level=-1)
    assert messages() == ["1 messages were given up, after consumers of group billing had failed on them"]


def test_dead_counts_no_unread_message_without_the_progress(path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(path, "a") as store, store.consumer("billing", "orders") as consumer:
        consumer.nack(consumer.poll(1)[0], delay_level=-1)
    assert [row["unread"] for row in run("dead", path, "--json").rows] == [1]
    settings = [path / "config" / name for name in ("consumerOffset.json", "consumerOffset.json.bak")]
    for change in (lambda file: file.write_text("{"), lambda file: file.unlink()):
        for file in settings:
            change(file)
        ran = run("dead", path, "--json")
        assert (ran.code, [row["unread"] for row in ran.objects]) == (1, [None])
        assert "the progress of the consumer groups is unknown: " in ran.err
        found = run("doctor", path)
        assert "consumerOffset.json" in found.out
        assert "None" not in found.out


def test_times_of_lag_are_local_unless_utc_is_asked_for(
    path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("consume", path, "orders", "--group", "billing", "--max", 10)
    [row] = run("lag", path, "--json").rows
    stored = datetime.fromisoformat(row["unconsumed_since"])
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        for command in ("lag", "groups"):
            for zone, more in ((timedelta(hours=9), ()), (timedelta(0), ("--utc",))):
                shown = f"{(stored + zone).replace(tzinfo=None).isoformat(' ', 'milliseconds')}"
                assert shown in run(command, path, *more).out, (command, more)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_groups_shows_one_group_and_its_age_in_words(path: Path, run: Callable[..., Any]) -> None:
    run("consume", path, "orders", "--group", "billing", "--max", 10)
    run("consume", path, "orders", "--group", "audit")
    assert [row["group"] for row in run("groups", path, "audit", "--json").rows] == ["audit"]
    assert re.search(r"^billing +orders +1 +30 .* \d s$", run("groups", path, "billing").out, re.MULTILINE)
    absent = run("groups", path, "bil")
    assert (absent.code, absent.out) == (1, "")
    assert "no group bil has consumed from this store; there is billing" in absent.err


def test_an_absent_group_or_topic_leaves_a_crashed_store_as_it_is(path: Path, run: Callable[..., Any]) -> None:
    (path / "abort").touch()
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for arguments in (("resend", path, "billin"), ("consume", path, "order", "--group", "billing")):
        assert run(*arguments).code == 1
        assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before, arguments
