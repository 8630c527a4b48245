"""The stores of `mqstore.testing`, compared with the directory of a real broker."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from test_getting_started import shown_tests

import mqstore
from mqstore.testing import SMALL, Broker, Clock
from mqstore.testing._config import fastjson

#: Less than the longest wait by a wall clock that runs.
AT_ONCE_S = 5


def config(folder: Path, name: str) -> Any:
    """Reads a file of `config`. Names of a map that are numbers have no quotes, as fastjson writes them."""
    return json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', (folder / "config" / name).read_text()))


def forms(folder: Path) -> dict[str, set[tuple[int, bool, tuple[str, ...]]]]:
    """Returns the kinds of records by topic: sysFlag, whether they name a half message, and the names of their properties."""
    with mqstore.open(folder) as store:
        return {
            name: {
                (message.sys_flag, message.prepared_transaction_offset > 0, tuple(message.properties))
                for queue in topic.queues
                for message in queue
            }
            for name, topic in store.topics.items()
        }


def story(broker: Broker) -> None:
    """Repeats the actions of the golden broker's clients, a few messages of each kind."""
    for number in range(4):
        broker.send("orders", b"%d" % number, tags="paid", keys=[f"o-{number}"], properties={"region": "eu"})
    for level in (1, 3, 25):
        broker.send("audit-log", b"late", tags="delayed", keys=["d-0"], delay_level=level)
    failed = broker.send("flaky-topic", b"hot", tags="x", keys="f-0")
    halves = [broker.send_half("payments", b"%d" % n, group="tx-producers", tags="tx", keys=f"tx-{n}") for n in range(4)]
    broker.end_transaction(halves[0], "commit")
    broker.end_transaction(halves[1], "rollback")
    broker.end_transaction(broker.check_back(halves[2]), "commit")
    broker.check_back(broker.check_back(halves[3]))
    broker.send_back(failed, "flaky-group")
    broker.clock.advance(10)
    retried = broker.deliver()[-1]
    broker.send_back(retried, "flaky-group", max_reconsume_times=1)
    broker.commit_offset("billing", "orders", 0, 1)
    broker.commit_offset("flaky-group", "%RETRY%flaky-group", 0, 1)


@pytest.fixture
def written(mqstore_broker: Broker) -> Path:
    story(mqstore_broker)
    mqstore_broker.close()
    return Path(mqstore_broker.path)


def test_records_have_the_flags_and_the_properties_of_a_real_brokers(written: Path, broker: Path) -> None:
    ours, theirs = forms(written), forms(broker)
    # A broker of RocketMQ notes many ends of transactions in one record, and appends other producers' messages to `payments`.
    assert ours.keys() == theirs.keys() - {"bulk"}
    for topic, kinds in ours.items():
        assert kinds <= theirs[topic], topic
        if topic not in ("orders", "payments"):
            assert kinds == theirs[topic], topic


def test_the_files_of_config_have_the_form_of_a_real_brokers(written: Path, broker: Path) -> None:
    for name in ("topics.json", "consumerOffset.json", "delayOffset.json"):
        text = (broker / "config" / name).read_text()
        assert fastjson(numbered(config(broker, name))) == text
        assert (written / "config" / name).read_text() == (written / "config" / f"{name}.bak").read_text()
        assert config(written, name).keys() == config(broker, name).keys()
    ours, theirs = (config(folder, "topics.json")["topicConfigTable"] for folder in (written, broker))
    for topic, settings in ours.items():
        assert settings == theirs[topic], topic


def numbered(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {int(name) if name.isdigit() else name: numbered(item) for name, item in value.items()}


def test_config_says_what_was_consumed_and_delivered(written: Path) -> None:
    consumed = config(written, "consumerOffset.json")
    assert consumed["offsetTable"] == {
        "orders@billing": {"0": 1},
        "%RETRY%flaky-group@flaky-group": {"0": 1},
        "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 6},
        "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 3},
    }
    assert consumed["groupTopicMap"]["billing"] == ["orders"]
    # The message of level 18 waits for two hours.
    assert config(written, "delayOffset.json")["offsetTable"] == {"1": 1, "3": 2, "18": 0}


def test_a_reader_finds_the_progress_and_the_topics_in_config(written: Path) -> None:
    with mqstore.open(written) as store:
        progress = store.broker.consumer_offsets().to_polars().select("group", "topic", "queue_id", "offset").rows()
        assert ("billing", "orders", 0, 1) in progress
        assert len(progress) == 4
        assert set(store.broker.topic_configs().to_polars()["topic"]) == set(store.topics)
        assert store.broker.delay_offsets().to_polars()["level"].to_list() == [1, 3, 18]


def test_the_same_calls_write_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for name in ("one", "two"):
        with Broker(tmp_path / name) as broker:
            story(broker)
        files = sorted(
            path for path in (tmp_path / name).rglob("*") if path.is_file() and path.name not in ("lock", "mqstore.flushed")
        )
        written.append(
            [(str(path.relative_to(tmp_path / name)), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
        )
    assert written[0] == written[1]
    assert len(written[0]) > 20


def test_a_delayed_message_comes_when_its_time_has_come(mqstore_broker: Broker, mqstore_clock: Clock) -> None:
    sent = [mqstore_broker.send("orders", b"%d" % level, keys=[f"k-{level}"], delay_level=level) for level in (3, 1, 2, 99)]
    assert [(message.topic, message.queue_id) for message in sent] == [("SCHEDULE_TOPIC_XXXX", level) for level in (2, 0, 1, 17)]
    assert mqstore_broker.deliver() == []
    mqstore_clock.advance(0.999)
    assert mqstore_broker.deliver() == []
    mqstore_clock.advance(timedelta(milliseconds=1))
    assert [message.body for message in mqstore_broker.deliver()] == [b"1"]
    mqstore_clock.advance(3_600)
    assert [message.body for message in mqstore_broker.deliver()] == [b"2", b"3"]
    mqstore_clock.advance(3_600)
    [last] = mqstore_broker.deliver()
    assert (last.topic, last.body, last.delay_level, last.born_time) == ("orders", b"99", 18, sent[3].born_time)
    assert last.store_time == mqstore_clock.now
    assert mqstore_broker.deliver() == []
    assert [hit.topic for hit in mqstore_broker.store.query("orders", "k-99")] == ["orders"]


def test_a_transaction_ends_once(mqstore_broker: Broker) -> None:
    half = mqstore_broker.send_half("payments", b"10 EUR", group="tellers", queue_id=3)
    assert (half.topic, half.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    with pytest.raises(ValueError, match="expected"):
        mqstore_broker.end_transaction(half, "abandon")  # type: ignore[arg-type]
    again = mqstore_broker.check_back(half)
    with pytest.raises(ValueError, match="not an open half message"):
        mqstore_broker.end_transaction(half, "commit")
    paid = mqstore_broker.end_transaction(again, "commit")
    assert paid is not None
    assert (paid.topic, paid.queue_id, paid.body, paid.transaction) == ("payments", 3, b"10 EUR", "commit")
    assert paid.prepared_transaction_offset == again.physical_offset
    for message in (again, paid):
        with pytest.raises(ValueError, match="not an open half message"):
            mqstore_broker.end_transaction(message, "rollback")
    assert mqstore_broker.end_transaction(mqstore_broker.send_half("payments", b"x", group="g"), "rollback") is None
    assert [message.body for message in mqstore_broker.store.topics["RMQ_SYS_TRANS_OP_HALF_TOPIC"].queues[0]] == [b"1,", b"2,"]
    assert list(map(len, mqstore_broker.store.topics["payments"].queues)) == [0, 0, 0, 1]


def test_a_failing_message_waits_longer_each_time_then_is_a_dead_letter(mqstore_broker: Broker) -> None:
    message, waits = mqstore_broker.send("orders", b"x", keys=["k"]), []
    first = message
    for _ in range(3):
        waiting = mqstore_broker.send_back(message, "billing", max_reconsume_times=3)
        waits.append(waiting.delay_level)
        mqstore_broker.clock.advance(timedelta(hours=2))
        [message] = mqstore_broker.deliver()
        assert message.topic == "%RETRY%billing"
    assert waits == [3, 4, 5]
    dead = mqstore_broker.send_back(message, "billing", max_reconsume_times=3)
    assert (dead.topic, dead.reconsume_times, dead.unique_key) == ("%DLQ%billing", 4, first.unique_key)
    assert dead.properties["ORIGIN_MESSAGE_ID"] == first.message_id
    assert mqstore_broker.send_back(first, "billing", delay_level=-1).topic == "%DLQ%billing"


def test_queues_are_taken_in_turn_unless_one_is_named(mqstore_broker: Broker) -> None:
    assert [mqstore_broker.send("orders", b"x").queue_id for _ in range(6)] == [0, 1, 2, 3, 0, 1]
    mqstore_broker.create_topic("narrow", queues=1)
    assert [mqstore_broker.send("narrow", b"x").queue_id for _ in range(3)] == [0, 0, 0]
    assert mqstore_broker.send("orders", b"x", queue_id=9).queue_id == 9
    assert mqstore_broker.topics == {"orders": 10, "narrow": 1}


def test_unique_keys_differ_and_find_their_messages(mqstore_broker: Broker) -> None:
    sent = [mqstore_broker.send("orders", b"%d" % number) for number in range(100)]
    assert len({message.unique_key for message in sent}) == 100
    for message in sent:
        assert message.unique_key is not None
        assert mqstore_broker.store.message(message.unique_key) == message


def test_a_broker_that_cannot_be_opened_leaves_the_clock_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(mqstore.StoreExistsError):
        Broker(tmp_path / "full")
    assert_clock_runs(tmp_path)


def assert_clock_runs(folder: Path) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=20)  # the store's clock ticks every few ms
    with mqstore.open(folder / "now", "a", **SMALL) as store:
        message = store.message_at(store.append("orders", b"x").physical_offset)
    assert before <= message.born_time <= message.store_time <= datetime.now(UTC)


def test_a_clock_stops_every_store_until_the_end_of_its_block(tmp_path: Path) -> None:
    with Clock(datetime(2020, 2, 29, 12, tzinfo=UTC)) as clock, mqstore.open(tmp_path / "store", "x", **SMALL) as store:
        for _ in range(3):
            message = store.message_at(store.append("orders", b"x", keys=["k"]).physical_offset)
            assert message.store_time == message.born_time == clock.now
            store.wait_dispatched()
            clock.advance(86_400)
        assert clock.now == datetime(2020, 3, 3, 12, tzinfo=UTC)
        clock.now = datetime(2019, 1, 1, tzinfo=UTC)
        message = store.message_at(store.append("orders", b"x").physical_offset)
        assert (message.born_time, message.store_time) == (clock.now, datetime(2020, 3, 2, 12, tzinfo=UTC))
        with pytest.raises(ValueError, match="timezone"):
            clock.now = datetime(2019, 1, 1)
        assert clock.now.tzinfo is not None
        assert store.topics["orders"].queues[0].offset_at(datetime(2020, 3, 1, 12, tzinfo=UTC)) == 1
    assert [path.name[:8] for path in (tmp_path / "store" / "index").iterdir()] == ["20200229"]
    assert_clock_runs(tmp_path)


def test_index_files_that_are_made_in_the_same_ms_have_names_of_their_own(mqstore_stores: Callable[..., mqstore.Store]) -> None:
    store = mqstore_stores(max_index_num=50)
    store.append_batch([("orders", b"x", None, [f"k-{number}"]) for number in range(200)])
    store.wait_dispatched()
    assert len(list(Path(store.path, "index").iterdir())) == 5
    assert all(len(store.query("orders", f"k-{number}")) == 1 for number in range(200))


def test_several_stores_have_names_and_options(mqstore_stores: Callable[..., mqstore.Store], tmp_path: Path) -> None:
    left, right = mqstore_stores("left"), mqstore_stores("right", "x", mapped_file_size_commit_log=4_096)
    assert (left.path, right.path) == (str(tmp_path / "left"), str(tmp_path / "right"))
    left.append("orders", b"x")
    right.append("orders", b"x")
    left.flush()
    assert len(mqstore_stores("left", "r").topics["orders"].queues[0]) == 1
    assert {path.stat().st_size for path in (tmp_path / "right" / "commitlog").iterdir()} == {4_096}


#: A package of somebody else, and its tests.
USER = """
import mqstore

kept = []

def test_a_paid_order_is_found(mqstore_store, mqstore_clock):
    done = mqstore_store.append("orders", b"x", keys=["o-1"])
    assert done.store_time == mqstore_clock.now
    assert [hit.physical_offset for hit in mqstore_store.query("orders", "o-1")] == [0]
    kept.append(mqstore_store)

def test_the_store_of_the_test_before_is_closed(mqstore_store):
    assert kept[0].closed
    assert len(mqstore_store.topics) == 0

def test_a_broker_writes_what_a_reader_finds(mqstore_broker):
    mqstore_broker.send("orders", b"x", delay_level=1)
    mqstore_broker.clock.advance(1)
    mqstore_broker.deliver()
    mqstore_broker.close()
    with mqstore.open(mqstore_broker.path) as store:
        assert list(store.topics) == ["SCHEDULE_TOPIC_XXXX", "orders"]
"""


@pytest.mark.parametrize("load", [["-p", "mqstore.testing.plugin"], []], ids=["told", "found"])
def test_the_fixtures_serve_tests_of_somebody_else(tmp_path: Path, load: list[str]) -> None:
    (tmp_path / "test_user.py").write_text(USER)
    (tmp_path / "test_page.py").write_text(shown_tests())
    (tmp_path / "pytest.ini").write_text("[pytest]")
    command = [sys.executable, "-m", "pytest", "-q", *load, "-W", "error", tmp_path]
    printed = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path).stdout
    assert "6 passed" in printed, printed


def test_neither_the_package_nor_its_stores_for_tests_import_pytest() -> None:
    code = (
        "import sys, mqstore; assert 'mqstore.testing' not in sys.modules; import mqstore.testing; print('pytest' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"


def test_a_clock_that_moves_wakes_the_deliveries_and_the_check_at_once(tmp_path: Path) -> None:
    asked = threading.Event()

    def answer(_half: mqstore.Half) -> None:
        asked.set()

    with Clock() as clock, mqstore.open(tmp_path / "store", "x", **SMALL) as store:
        store.append("orders", b"delayed", delay_level=18)
        store.append("orders", b"timer", deliver_at=timedelta(hours=1))
        store.transactions.send_half("orders", b"half", group="tellers")
        store.transactions.check(answer, timeout=3600, interval=3600)
        time.sleep(0.5)
        assert "orders" not in store.topics
        assert not asked.is_set()
        clock.advance(3600)
        expect_at_once(store, [b"timer"])
        assert asked.wait(AT_ONCE_S)
        clock.advance(3600)
        expect_at_once(store, [b"timer", b"delayed"])


def expect_at_once(store: mqstore.Store, bodies: list[bytes]) -> None:
    until = time.monotonic() + AT_ONCE_S
    while [message.body for message in store.topics.get("orders", ())] != bodies:
        assert time.monotonic() < until
        time.sleep(0.01)
