"""`mqstore find`: the fate of a message that is found by its id, and what a search that finds nothing has looked at."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore.testing import Broker

SAID = Path(__file__).resolve().parents[2] / "golden" / "expected" / "533_broker.said.jsonl"
PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC


def state(run: Callable[..., Any], path: object, message: str) -> tuple[str | None, str]:
    """The state of the transaction of the message with an id, and what stderr says."""
    ran = run("find", path, "--id", message, "--json")
    [row] = ran.rows
    return row["transaction"], ran.err


def test_find_by_id_reports_how_each_transaction_of_a_broker_ended(broker: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(broker) as store:
        committed = {message.unique_key for queue in store.topics["payments"].queues for message in queue}
    sent = [json.loads(line) for line in SAID.read_text().splitlines()]
    sent = [line for line in sent if line.get("transaction")][::7]
    ends = {"committed": 0, "open": 0, "rolled_back": 0}
    for line in sent:
        key = line["unique_key"]
        expected = "committed" if key in committed else "open" if line["local"] == "unknown" else "rolled_back"
        answer, err = state(run, broker, key)
        assert (answer, "a half message whose transaction" in err) == (expected, True), line
        ends[expected] += 1
    assert min(ends.values()) > 0


def test_find_by_id_follows_a_half_message_that_the_broker_stored_again(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    halves = [mqstore_broker.send_half("payments", b"%d" % number, group="tellers") for number in range(4)]
    asked = [mqstore_broker.check_back(half) for half in halves]
    mqstore_broker.end_transaction(asked[0], "commit")
    mqstore_broker.end_transaction(asked[1], "rollback")
    for persisted in (False, True):
        if persisted:
            mqstore_broker.persist()
        for number, (expected, words) in enumerate(
            [("committed", "consumers get payments/"), ("rolled_back", "do not get it"), ("open", "until it is committed")]
        ):
            for half in (halves[number], asked[number]):
                answer, err = state(run, mqstore_broker.path, half.message_id)
                assert (answer, words in err) == (expected, True), err


def test_find_by_id_reports_half_and_rolled_back_messages_of_any_topic(tmp_path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        # A message that ends no transaction names the place 0, too.
        store.append("orders", b"first")
        places = [store.append("orders", b"x", sys_flag=PREPARED) for _ in range(3)]
        for kind, place in ((COMMIT, places[1]), (ROLLBACK, places[2])):
            places.append(store.append("orders", b"x", sys_flag=kind, prepared_transaction_offset=place.physical_offset))
        places.append(store.append("orders", b"x"))
        key = "AC110002000000000000000000000001"
        store.append("orders", b"x", properties={"UNIQ_KEY": key}, sys_flag=ROLLBACK)
    path = tmp_path / "store"
    states = [state(run, path, place.message_id) for place in places]
    assert [answer for answer, _ in states] == ["open", "committed", "rolled_back", "committed", "rolled_back", None]
    assert ["do not get it" in err for _, err in states] == [True, False, True, False, True, False]
    assert states[-1][1] == ""
    # The index has no rolled-back message.
    answer, err = state(run, path, key)
    assert (answer, "a rolled-back message: consumers do not get it" in err) == ("rolled_back", True)
    text = run("find", path, "--id", places[0].message_id)
    assert (text.code, len(text.out.splitlines()), "is a half message" in text.err) == (0, 1, True)


def test_find_by_id_counts_the_transactions_that_an_op_message_ends(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    for how in ("commit", "rollback"):
        half = mqstore_broker.send_half("payments", b"x", group="tellers")
        mqstore_broker.end_transaction(half, how)  # type: ignore[arg-type]
    with mqstore.open(mqstore_broker.path) as store:
        ops = [*store.topics["RMQ_SYS_TRANS_OP_HALF_TOPIC"].queues[0]]
    mqstore_broker.store.append(ops[0].topic, b"0,1,9,", tags="d")
    with mqstore.open(mqstore_broker.path) as store:
        ids = [message.message_id for message in store.topics[ops[0].topic].queues[0]]
    answer = [state(run, mqstore_broker.path, each) for each in ids]
    assert [each for each, _ in answer] == ["committed", "rolled_back", "ended"]
    assert "1 committed, 1 rolled back, 1 whose half message is not in the log" in answer[2][1]


def test_find_by_id_reports_a_half_message_that_the_broker_gave_up(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    half = mqstore_broker.send_half("payments", b"x", group="tellers")
    place = mqstore_broker.store.append("TRANS_CHECK_MAX_TIME_TOPIC", b"x", properties=half.properties)
    mqstore_broker.persist()
    offsets = Path(mqstore_broker.path, "config", "consumerOffset.json")
    offsets.write_text(offsets.read_text().replace("{0:0", "{0:1"))
    for message in (half.message_id, place.message_id):
        answer, err = state(run, mqstore_broker.path, message)
        assert (answer, "consumers do not get it" in err) == ("given_up", True), err


def damaged(path: str | Path, place: int, copy: Path) -> Path:
    """A copy of a store of one segment with a damaged record."""
    shutil.copytree(path, copy)
    with next((copy / "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(place + 4)  # the magic code
        segment.write(b"\xff")
    return copy


def test_find_by_id_does_not_call_a_transaction_open_if_its_end_is_damaged(tmp_path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        half = store.append("orders", b"x", sys_flag=PREPARED)
        end = store.append("orders", b"x", sys_flag=COMMIT, prepared_transaction_offset=half.physical_offset)
        store.append("orders", b"x")
    path = damaged(tmp_path / "store", end.physical_offset, tmp_path / "damaged")
    ran = run("find", path, "--id", half.message_id, "--json")
    assert (ran.code, ran.objects[0]["transaction"]) == (1, "unknown")
    assert "messages after it were lost or are damaged, and one of them may end it" in ran.err


@pytest.mark.parametrize("with_key", [True, False])
def test_find_by_id_names_no_end_that_a_damaged_message_may_contradict(
    with_key: bool, mqstore_broker: Broker, tmp_path: Path, run: Callable[..., Any]
) -> None:
    halves = [mqstore_broker.send_half("payments", b"x", group="tellers") for _ in range(2)]
    if not with_key:
        given = halves[0].properties
        del given["UNIQ_KEY"]
        for number in range(2):
            place = mqstore_broker.store.append(halves[0].topic, b"x", properties=given)
            halves[number] = mqstore_broker.store.message_at(place.physical_offset)
    commit = mqstore_broker.store.append(
        "payments",
        b"x",
        sys_flag=COMMIT,
        prepared_transaction_offset=halves[0].physical_offset,
        unique_key=halves[0].unique_key,
    )
    op = mqstore_broker.store.append("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"%d," % halves[0].queue_offset, tags="d")
    mqstore_broker.send("orders", b"x")
    mqstore_broker.close()

    def states_of(path: str | Path) -> list[str]:
        return [run("find", path, "--id", half.message_id, "--json").objects[0]["transaction"] for half in halves]

    assert states_of(mqstore_broker.path) == ["committed", "open"]
    assert states_of(damaged(mqstore_broker.path, commit.physical_offset, tmp_path / "commit")) == ["ended", "open"]
    assert states_of(damaged(mqstore_broker.path, op.physical_offset, tmp_path / "op")) == ["committed", "unknown"]


def test_find_by_id_prints_a_message_whose_transaction_cannot_be_read(
    broker: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path = shutil.copytree(broker, tmp_path / "store")
    shutil.rmtree(path / "consumequeue")
    (path / "consumequeue").mkdir()
    # Queues in RocksDB, which are not read.
    (path / "consumequeue" / "CURRENT").touch()
    ran = run("find", path, "--id", "FD00000000000000000000000000000259285FFD2B276CF4CF540853", "--json")
    [row] = ran.objects
    assert (ran.code, row["topic"], row["transaction"]) == (1, "RMQ_SYS_TRANS_HALF_TOPIC", None)
    assert "belongs to a transaction whose state cannot be read: " in ran.err


def test_find_takes_all_with_an_id_and_refuses_it_alone(tmp_path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        message = store.append("orders", b"\x00\x01", sys_flag=ROLLBACK).message_id
    found = run("find", tmp_path / "store", "--id", message, "--all")
    assert (found.code, found.out) == (0, run("find", tmp_path / "store", "--id", message).out)
    alone = run("find", tmp_path / "store", "--all")
    assert (alone.code, alone.out) == (2, "")
    assert "--all is not a condition: give a condition, such as --key or --since" in alone.err
    assert run("find", tmp_path / "store", "--id", message, "--all", "--tag", "t").code == 2


RANGE = "stored from 2026-11-22 03:46:21.131 to 2026-11-22 03:47:01.999"


@pytest.mark.parametrize(
    ("words", "looked_at"),
    [
        (("--id", "0A"), f"looked at 2612 messages in queues and all records that are in no queue, {RANGE}"),
        (("--key", "no"), f"looked at 2612 messages in queues and all records that are in no queue, {RANGE}"),
        (
            ("--key", "no", "--topic", "orders", "--topic", "bulk"),
            f"looked at 1460 messages in queues and all records that are in no queue, {RANGE}",
        ),
        (
            ("--tag", "no", "--since", "2026-11-22 03:46:30", "--until", "2026-11-22 03:46:58"),
            "looked at 271 messages in queues, stored from 2026-11-22 03:46:30.000 to 2026-11-22 03:46:58.000",
        ),
        (("--since", "2026-11-23"), f"nothing was stored in that time; the log has messages {RANGE.removeprefix('stored ')}"),
        (("--until", "2026-11-22"), f"nothing was stored in that time; the log has messages {RANGE.removeprefix('stored ')}"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_find_without_a_hit_says_what_it_looked_at(
    words: tuple[str, ...], looked_at: str, broker: Path, run: Callable[..., Any]
) -> None:
    ran = run("find", broker, *words, "--utc")
    assert (ran.code, ran.out, ran.err) == (1, "", f"mqstore: no message is found: {looked_at}\n")


def test_find_without_a_hit_says_that_a_part_was_not_covered(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = shutil.copytree(broker, tmp_path / "store")
    (path / "commitlog" / f"{1 << 20:020}").unlink()
    for words in (("--id", "0A"), ("--topic", "orders", "--key", "no")):
        ran = run("find", path, *words)
        assert ran.code == 1
        assert ran.err.endswith("; a part of the log was not covered\n")
    mqstore.open(tmp_path / "empty", "x").close()
    assert run("find", tmp_path / "empty", "--id", "0A").err == "mqstore: no message is found: the log has no message\n"


def found(run: Callable[..., Any], *words: object) -> tuple[list[tuple[int, str | None]], str]:
    """The physical offset and the state of the transaction of each message that is found, and what stderr says."""
    ran = run("find", *words, "--json")
    return [(row["physical_offset"], row["transaction"]) for row in ran.rows], ran.err


@pytest.mark.parametrize("words", [(), ("--tag", "t"), ("-n", "5"), ("-n", "-5")], ids=" ".join)
def test_find_by_key_finds_half_messages_with_and_without_their_topic(
    words: tuple[str, ...], tmp_path: Path, run: Callable[..., Any]
) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("other", b"x", keys=["o-2"])
        half, rolled_back, sent = (
            store.append("orders", b"x", keys=["o-1"], tags="t", sys_flag=kind).physical_offset
            for kind in (PREPARED, ROLLBACK, 0)
        )
    for topic in ((), ("--topic", "orders")):
        rows, err = found(run, tmp_path / "store", *topic, "--key", "o-1", *words)
        assert rows == [(half, "open"), (sent, None)]
        assert err.count("do not get it") == err.count("is a half message whose transaction is open") == 1
        rows, err = found(run, tmp_path / "store", *topic, "--key", "o-1", *words, "--all")
        assert rows == [(half, "open"), (rolled_back, "rolled_back"), (sent, None)]


@pytest.mark.parametrize("entry", [bytes(20), b"\0\0\0\0\0\7\7\7"], ids=["zeros", "another place"])
def test_find_reports_that_no_queue_entry_leads_to_a_message(
    entry: bytes, copied: Callable[[str], Path], run: Callable[..., Any]
) -> None:
    path = copied("498_mixed")
    with mqstore.open(path) as store:
        message = store.topics["orders"].queues[0][3]
    with next((path / "consumequeue" / "orders" / "0").iterdir()).open("r+b") as entries:
        entries.seek(3 * 20)
        entries.write(entry)
    by_key = ("--key", message.keys[0])
    for words in (by_key, ("--topic", "orders", *by_key), (*by_key, "--all"), ("--id", message.message_id)):
        rows, err = found(run, path, *words)
        assert rows == [(message.physical_offset, None)]
        said = "is in the log, and no entry of its queue leads to it: consumers do not get it"
        assert err == f"mqstore: the message at physical offset {message.physical_offset} {said}\n"
