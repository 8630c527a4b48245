"""The progress of a broker's consumers, their lag, and the broker's other settings."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import GOLDEN
from encoder import Encoder

import mqstore

OFFSETS = [("group", pa.string()), ("topic", pa.string()), ("queue_id", pa.int32()), ("offset", pa.int64())]
LAG = [*OFFSETS, ("min_offset", pa.int64()), ("max_offset", pa.int64()), ("lag", pa.int64())]
TOPICS = [
    ("topic", pa.string()),
    ("read_queue_nums", pa.int32()),
    ("write_queue_nums", pa.int32()),
    ("perm", pa.int32()),
    ("topic_filter_type", pa.string()),
    ("topic_sys_flag", pa.int32()),
    ("order", pa.bool_()),
    ("attributes", pa.map_(pa.string(), pa.string())),
]


#: The group with which a broker checks its open transactions.
OWN_GROUP = "CID_RMQ_SYS_TRANS"


@pytest.fixture(autouse=True)
def every_warning_is_an_error() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def rows(batch: mqstore.RecordBatch) -> list[dict[str, object]]:
    return batch.to_arrow().to_pylist()  # type: ignore[no-any-return]


def said() -> list[dict[str, object]]:
    """Returns the progress that the clients of the broker saw, by group, topic and queue. Its own group ran until it stopped."""
    lines = (GOLDEN / "expected" / "533_broker.said.jsonl").read_text().splitlines()
    progress = [line for line in map(json.loads, lines) if line.get("progress")]
    progress = [line for line in progress if not line["topic_group"].endswith(f"@{OWN_GROUP}")]
    seen = []
    for line in progress:
        topic, group = line["topic_group"].split("@")
        seen.append({"group": group, "topic": topic, "queue_id": line["queue"], "offset": line["offset"]})
    return sorted(seen, key=lambda row: (row["group"], row["topic"], row["queue_id"]))


def test_offsets_are_those_that_the_clients_of_a_broker_saw(broker: Path) -> None:
    with mqstore.open(broker) as store:
        offsets = store.broker.consumer_offsets()
        assert offsets.to_arrow().schema.equals(pa.schema(OFFSETS))
        own = [row for row in rows(offsets) if row["group"] == OWN_GROUP]
        assert [row for row in rows(offsets) if row not in own] == said()
        assert (len(said()), len(own)) == (13, 2)


def test_lag_is_what_the_queues_hold_after_what_the_clients_saw(broker: Path) -> None:
    with mqstore.open(broker) as store:
        lag = store.broker.lag()
        assert lag.to_arrow().schema.equals(pa.schema(LAG))
        expected = []
        for row in said():
            queue = store.topics[str(row["topic"])].queues[int(str(row["queue_id"]))]
            left = sum(1 for message in queue if message.queue_offset >= int(str(row["offset"])))
            expected.append(row | {"min_offset": queue.min_offset, "max_offset": queue.max_offset, "lag": left})
        assert [row for row in rows(lag) if row["group"] != OWN_GROUP] == expected
        by_group = {row["group"]: 0 for row in expected}
        for row in expected:
            by_group[row["group"]] += int(str(row["lag"]))
        # One stopped half way, one consumed everything before the delayed messages came, one everything.
        assert by_group == {"audit": 181, "billing": 60, "flaky-group": 0}


def test_a_broker_that_has_delivered_no_delayed_message_has_no_levels(golden: Path) -> None:
    for name in ("498_basic_clean", "498_mixed"):
        with mqstore.open(golden / name) as store:
            assert rows(store.broker.delay_offsets()) == []


def test_topics_and_levels_are_those_of_the_files(broker: Path) -> None:
    with mqstore.open(broker) as store:
        configs = store.broker.topic_configs()
        assert configs.to_arrow().schema.equals(pa.schema(TOPICS))
        table = json.loads((broker / "config" / "topics.json").read_text())["topicConfigTable"]
        expected = [
            {
                "topic": name,
                "read_queue_nums": config["readQueueNums"],
                "write_queue_nums": config["writeQueueNums"],
                "perm": config["perm"],
                "topic_filter_type": config["topicFilterType"],
                "topic_sys_flag": config["topicSysFlag"],
                "order": config["order"],
                "attributes": list(config["attributes"].items()),
            }
            for name, config in sorted(table.items())
        ]
        assert rows(configs) == expected
        levels = store.broker.delay_offsets()
        assert levels.to_arrow().schema.equals(pa.schema([("level", pa.int32()), ("offset", pa.int64())]))
        pairs = [(row["level"], row["offset"]) for row in rows(levels)]
        assert pairs == [(1, 20), (2, 10), (3, 50), (5, 0), (18, 0)]


@pytest.fixture
def store_with(tmp_path: Path) -> Iterator[Callable[..., mqstore.Store]]:
    """Opens a store of topics a (queues 0 and 1, 10 messages each) and a@b (5 messages), with these files in `config`."""
    encoder = Encoder(tmp_path / "store")
    for number in range(20):
        encoder.append("a", b"x", queue_id=number % 2)
    for _ in range(5):
        encoder.append("a@b", b"x")
    encoder.write()
    opened = []

    def write(**files: object) -> mqstore.Store:
        shutil.rmtree(encoder.path / "config", ignore_errors=True)
        (encoder.path / "config").mkdir()
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (encoder.path / "config" / f"{name.replace('_', '.')}").write_text(text)
        opened.append(mqstore.open(encoder.path))
        return opened[-1]

    yield write
    for store in opened:
        store.close()


def lags(store: mqstore.Store) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in ("group", "topic", "queue_id", "offset", "lag")) for row in rows(store.broker.lag())]


def test_a_queue_that_a_group_has_not_begun_is_all_left(store_with: Callable[..., mqstore.Store]) -> None:
    store = store_with(consumerOffset_json='{"offsetTable":{"a@g":{1:4},"gone@g":{0:7},"a@h":{0:-1,1:99,5:3},"a@none":{}}}')
    assert lags(store) == [
        ("g", "a", 0, None, 10),
        ("g", "a", 1, 4, 6),
        ("g", "gone", 0, 7, 0),
        ("h", "a", 0, -1, 10),
        ("h", "a", 1, 99, 0),
        ("h", "a", 5, 3, 0),
    ]


def test_the_topic_of_a_name_with_several_at_signs_is_one_of_the_store(store_with: Callable[..., mqstore.Store]) -> None:
    store = store_with(consumerOffset_json='{"offsetTable":{"a@b@c":{0:1},"x@b@c":{0:2},"a@@":{1:3}}}')
    found = [(row["topic"], row["group"], row["offset"]) for row in rows(store.broker.consumer_offsets())]
    assert found == [("a", "@", 3), ("a", "b@c", 1), ("x", "b@c", 2)]


def test_light_queues_have_a_file_of_their_own(store_with: Callable[..., mqstore.Store]) -> None:
    light = {"offsetTable": {"a@g": {"0": 5}}, "lmqOffsetTable": {"%LMQ%q@%LMQ%g@@@1": 8}}
    rest = [("%LMQ%q", "%LMQ%g@@@1", 8), ("a", "g", 5)]

    def found(store: mqstore.Store) -> list[tuple[object, ...]]:
        return [(row["topic"], row["group"], row["offset"]) for row in rows(store.broker.consumer_offsets())]

    assert found(store_with(lmqConsumerOffset_json=light)) == rest
    both = {"lmqConsumerOffset_json": light}
    assert found(store_with(**both, consumerOffset_json={"offsetTable": {"a@g": {"0": 5}, "a@h": {"0": 1}}})) == [
        *rest,
        ("a", "h", 1),
    ]
    with pytest.warns(RuntimeWarning, match="contradict each other about 1 queues"):
        assert found(store_with(**both, consumerOffset_json={"offsetTable": {"a@g": {"0": 6}}})) == rest


def test_a_broken_file_is_an_error_that_says_where(store_with: Callable[..., mqstore.Store]) -> None:
    store = store_with(consumerOffset_json='{"offsetTable":{"a@g":{0:12,1')
    for ask in (store.broker.consumer_offsets, store.broker.lag):
        with pytest.raises(mqstore.CorruptError, match=r"no previous version \(\.bak\)") as raised:
            ask()
        assert (raised.value.offset, Path(raised.value.path).name) == (28, "consumerOffset.json")
    store = store_with(topics_json="[]", delayOffset_json='{"offsetTable":{1:"a"}}')
    with pytest.raises(mqstore.CorruptError, match="the file is an array, not an object"):
        store.broker.topic_configs()
    with pytest.raises(mqstore.CorruptError, match='offsetTable, 1 is "a", not a 64-bit number'):
        store.broker.delay_offsets()


def test_the_backup_file_is_read_as_a_broker_reads_it_and_reported(store_with: Callable[..., mqstore.Store]) -> None:
    before = '{"offsetTable":{"a@g":{0:3}}}'
    for broken in ("", "{", "\0\0"):
        store = store_with(**{"consumerOffset_json": broken, "consumerOffset_json_bak": before})
        with pytest.warns(RuntimeWarning, match="bak is older"):
            assert rows(store.broker.consumer_offsets())[0]["offset"] == 3
        # With warnings as errors the doubtful answer raises.
        with pytest.raises(RuntimeWarning):
            store.broker.lag()


def test_a_store_without_a_brokers_files_says_so(golden: Path, store_with: Callable[..., mqstore.Store]) -> None:
    with mqstore.open(golden / "491_multifile") as store:
        broker = store.broker
        for ask in (broker.consumer_offsets, broker.lag, broker.topic_configs, broker.delay_offsets):
            with pytest.raises(mqstore.NotFoundError, match="copy the directory config too"):
                ask()
        store.close()
        for ask in (broker.consumer_offsets, broker.lag, broker.topic_configs, broker.delay_offsets):
            with pytest.raises(mqstore.ClosedError):
                ask()
        with pytest.raises(mqstore.ClosedError):
            store.broker  # noqa: B018
    store = store_with()
    database = Path(store.path) / "config" / "topics"
    database.mkdir()
    (database / "CURRENT").write_text("MANIFEST-000004\n")
    with pytest.raises(mqstore.UnsupportedFormatError, match="rocksDBConfigToJson"):
        store.broker.topic_configs()
    (Path(store.path) / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    with pytest.warns(RuntimeWarning, match="RocksDB"):
        assert rows(store.broker.topic_configs()) == []


def test_lag_is_null_where_the_queue_is_no_file_of_this_format(copied: Callable[[str], Path]) -> None:
    path = copied("533_batchcq")
    (path / "config").mkdir()
    (path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"TopicQ@g":{1:2}}}')
    with mqstore.open(path) as store:
        assert lags(store) == [("g", "TopicQ", 1, 2, None)]
        assert [row["max_offset"] for row in rows(store.broker.lag())] == [None]


def test_a_writer_sees_what_is_left_of_its_own_messages(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "a") as store:
        store.append("a", b"x")
        (tmp_path / "store" / "config" / "consumerOffset.json").write_text('{"offsetTable":{"a@g":{0:1}}}')
        assert lags(store) == [("g", "a", 0, 1, 0)]
        for _ in range(3):
            store.append("a", b"x")
        assert lags(store) == [("g", "a", 0, 1, 3)]


def test_others_run_concurrently(broker: Path, lets_others_run: Callable[[Callable[[], object]], bool]) -> None:
    with mqstore.open(broker) as store:
        assert lets_others_run(store.broker.lag)
