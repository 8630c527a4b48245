"""Commands on stores of newer brokers, which keep parts of them in files of another format."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import pytest

import mqstore
from mqstore.report import report


def test_transactions_lists_open_half_messages_of_a_database(unpacked: Callable[[str], Path], run: Callable[..., Any]) -> None:
    ran = run("transactions", unpacked("551_trans_rocksdb"), "--json")
    assert [(row["topic"], row["keys"][0], row["check_times"]) for row in ran.rows] == [
        ("orders", "k202", None),
        ("orders", "k204", None),
    ]
    assert "rocksdbstore: a RocksDB database holds the open transactions" in ran.err


@pytest.mark.parametrize(
    ("key", "state"),
    [("k200", "committed"), ("k201", "rolled_back"), ("k202", "open"), ("k203", "committed"), ("k204", "open")],
)
def test_find_reports_the_fate_of_half_messages_of_a_database(
    key: str, state: str, unpacked: Callable[[str], Path], run: Callable[..., Any]
) -> None:
    path = unpacked("551_trans_rocksdb")
    half = run("find", path, "--topic", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "--key", key, "--json").rows[0]
    ran = run("find", path, "--id", half["message_id"], "--json")
    assert [row["transaction"] for row in ran.rows] == [state]


def damaged(path: Path, places: Iterable[int], copy: Path) -> Path:
    """A copy of a store with segments of 16 KiB and damaged records."""
    shutil.copytree(path, copy)
    for place in places:
        begin = place - place % 16384
        with (copy / "commitlog" / f"{begin:020}").open("r+b") as segment:
            segment.seek(place - begin + 4)  # the magic code
            segment.write(b"\xff")
    return copy


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_damaged_half_and_op_messages_of_a_database_are_counted(
    errors: Literal["raise", "skip"], unpacked: Callable[[str], Path], tmp_path: Path, run: Callable[..., Any]
) -> None:
    with mqstore.open(unpacked("551_trans_rocksdb")) as store:
        halves = {half.keys[0]: half for half in store.topics["RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"]}
        ops = {int(op.properties["TRANS_OFFSET"]): op for op in store.topics["RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"]}
    op_of = {key: ops.get(half.physical_offset) for key, half in halves.items()}
    lost = [halves["k202"], op_of["k201"], op_of["k200"]]
    path = damaged(unpacked("551_trans_rocksdb"), [each.physical_offset for each in lost if each], tmp_path / "store")
    ran = run("transactions", path, "--json")
    # The log shows that k200 was committed.
    assert (ran.code, [row["keys"][0] for row in ran.objects]) == (1, ["k201", "k204"])
    assert "3 messages were skipped: they were lost or damaged" in ran.err
    with mqstore.open(path, errors=errors) as store:
        findings = {finding["id"]: finding["message"] for finding in report(store).findings}
    expected = "2 transactions are neither committed nor rolled back, the oldest since "
    assert findings["transaction.open"].startswith(expected)
    assert findings["transaction.not_read"] == "3 half or op messages were lost or are damaged"
    states = {key: run("find", path, "--id", halves[key].message_id, "--json") for key in ("k200", "k201", "k203", "k204")}
    assert {key: ran.objects[0]["transaction"] for key, ran in states.items()} == {
        "k200": "committed",
        "k201": "unknown",
        "k203": "committed",
        "k204": "unknown",
    }
    assert "messages of RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC were lost or are damaged" in states["k204"].err


@pytest.mark.parametrize("place", ["half", "commit", "past the end"])
def test_an_op_message_of_a_database_names_no_end_that_is_lost(
    place: str, unpacked: Callable[[str], Path], tmp_path: Path, run: Callable[..., Any]
) -> None:
    with mqstore.open(unpacked("551_trans_rocksdb")) as store:
        [half, *_] = store.topics["RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"]
        [op, *_] = store.topics["RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"]
        [commit, *_] = store.query("orders", half.unique_key or "")
    places = {"half": [half.physical_offset], "commit": [commit.physical_offset], "past the end": []}[place]
    path, asked = damaged(unpacked("551_trans_rocksdb"), places, tmp_path / "store"), op.message_id
    if place == "past the end":
        with mqstore.open(path, "a") as store:
            asked = store.append(op.topic, b"", properties={"TRANS_OFFSET": "9" * 30}).message_id
    ran = run("find", path, "--id", asked, "--json")
    assert (ran.code, ran.objects[0]["transaction"]) == (bool(places), "ended")
    assert ("1 message was skipped: it was lost or damaged" in ran.err) == bool(places)


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_damaged_timers_of_a_database_are_counted(
    errors: Literal["raise", "skip"], unpacked: Callable[[str], Path], tmp_path: Path, run: Callable[..., Any]
) -> None:
    with mqstore.open(unpacked("551_timer_rocksdb")) as store:
        [lost, *_] = store.topics["rmq_sys_wheel_timer"]
        # The damage of another topic does not count.
        other = store.get("orders", 0, 0)[0]
    places = [lost.physical_offset, other.physical_offset]
    path = damaged(unpacked("551_timer_rocksdb"), places, tmp_path / "store")
    ran = run("delayed", path)
    assert (ran.code, ran.out) == (1, "")
    assert "2 timers are not listed here" in ran.err
    assert "1 message was skipped: it was lost or damaged" in ran.err
    with mqstore.open(path, errors=errors) as store:
        findings = {finding["id"]: finding["message"] for finding in report(store).findings}
    assert findings["timer.waiting"] == "2 timer messages wait for their delivery"
    assert findings["timer.not_read"] == "1 timer messages were lost or are damaged"


def test_op_messages_of_a_database_name_the_end_of_their_half(unpacked: Callable[[str], Path], run: Callable[..., Any]) -> None:
    path = unpacked("551_trans_rocksdb")
    ops = run("cat", path, "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "--json").rows
    found = [run("find", path, "--id", op["message_id"], "--json").rows[0]["transaction"] for op in ops]
    assert sorted(found) == ["committed", "committed", "rolled_back"]


def test_delayed_says_that_timers_wait_elsewhere(unpacked: Callable[[str], Path], run: Callable[..., Any]) -> None:
    ran = run("delayed", unpacked("551_timer_rocksdb"))
    assert (ran.code, ran.out) == (1, "")
    assert "rocksdbstore: a RocksDB database holds the timers that wait" in ran.err
    assert "3 timers are not listed here" in ran.err
    assert "no message waits for the end of a delay level" in ran.err


def test_find_by_key_says_that_the_keys_are_in_a_database(unpacked: Callable[[str], Path], run: Callable[..., Any]) -> None:
    ran = run("find", unpacked("551_index_rocksdb"), "--topic", "orders", "--key", "k7", "--json")
    assert [row["queue_offset"] for row in ran.rows] == [3]
    assert "rocksdbstore: a RocksDB database holds keys, and there is no index file: a query by key walks the log" in ran.err


def test_find_without_readable_queues_says_that_it_walked_the_log(
    unpacked: Callable[[str], Path], run: Callable[..., Any]
) -> None:
    ran = run("find", unpacked("551_rocksdb"), "--topic", "orders", "--key", "absent")
    assert ran.code == 1
    assert "looked at all messages of the log" in ran.err


def test_info_counts_no_messages_of_queues_that_it_cannot_read(unpacked: Callable[[str], Path], run: Callable[..., Any]) -> None:
    [told] = run("info", unpacked("551_rocksdb"), "--json").rows
    assert (told["queues"], told["messages"], told["topics"]) == (None, None, 1)
    assert told["kept_elsewhere"] == [
        "queues in consumequeue",
        "consumer_offsets in config/consumerOffsets",
        "topic_configs in config/topics",
        "group_configs in config/subscriptionGroups",
    ]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("551_index_rocksdb", "holds keys"),
        ("551_timer_rocksdb", "holds the timers that wait"),
        ("551_trans_rocksdb", "holds the open transactions"),
        ("551_double_write", "among them those of light queues"),
        ("551_rocksdb", "the consume queues are a RocksDB database"),
        ("551_config_v2", "holds the contents of consumerOffset.json"),
        ("551_compaction", "is compacted"),
    ],
)
def test_doctor_and_report_say_what_is_kept_elsewhere(
    name: str, said: str, unpacked: Callable[[str], Path], run: Callable[..., Any], tmp_path: Path
) -> None:
    [told] = run("doctor", unpacked(name), "--json").rows
    notes = [finding for finding in told["findings"] if finding["id"] in ("store.not_read", "queue.not_read")]
    assert told["ok"]
    assert any(said in note["message"] for note in notes), notes
    page = tmp_path / "page.html"
    assert run("report", unpacked(name), "-o", page).code == 0
    assert said in page.read_text()


def test_doctor_counts_the_open_transactions_of_a_database(unpacked: Callable[[str], Path], run: Callable[..., Any]) -> None:
    [told] = run("doctor", unpacked("551_trans_rocksdb"), "--json").rows
    [found] = (finding for finding in told["findings"] if finding["id"] == "transaction.open")
    assert found["message"].startswith("2 transactions")


def test_cat_reads_light_queues_of_a_database_from_the_log(unpacked: Callable[[str], Path], run: Callable[..., Any]) -> None:
    ran = run("cat", unpacked("551_double_write"), "%LMQ%$chats$room-0", "--json")
    assert [row["body"] for row in ran.rows] == ["chats 0", "chats 3", "chats 6"]
    assert ran.err == ""


def test_a_lite_topic_has_no_finding_about_its_light_queues(unpacked: Callable[[str], Path], run: Callable[..., Any]) -> None:
    assert run("verify", unpacked("551_lite"), "--json").objects[-1]["ok"]
    assert "%LMQ%" not in run("verify", unpacked("551_lite")).out
