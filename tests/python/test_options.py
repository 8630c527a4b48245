"""`mqstore.StoreConfig` and the options of `open` against docs/CONFIG.md, which a Rust test compares with the table."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import pickle
import re
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mqstore
import mqstore.aio
from mqstore import _config

PAGE = Path(__file__).resolve().parents[2] / "docs" / "CONFIG.md"


class Row(NamedTuple):
    name: str
    rocketmq: str
    unit: str
    default: Any
    accepted: str
    text: str


def rows() -> list[Row]:
    """The options on the page, in order."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert len(cells) > 30
    return [
        Row(name.strip("`"), rocketmq, unit, ast.literal_eval(value.strip("`")), *rest)
        for name, rocketmq, unit, value, *rest in cells
    ]


def options_of(store: mqstore.Store) -> dict[str, Any]:
    """The options with which a pickle of a reader opens it again."""
    _, (recipe,) = store.__reduce__()
    _, (_, options) = recipe.__reduce__()
    return dict(options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with mqstore.open(
        tmp_path / "store", "a", mapped_file_size_commit_log=1 << 16, max_hash_slot_num=10, max_index_num=20
    ) as store:
        store.append("orders", b"one")
    return tmp_path / "store"


def conf(tmp_path: Path, text: str) -> Path:
    (tmp_path / "broker.conf").write_text(text, encoding="latin-1")
    return tmp_path / "broker.conf"


def test_store_config_has_each_option_of_the_page_with_its_default() -> None:
    fields = dataclasses.fields(mqstore.StoreConfig)
    assert [(field.name, field.default) for field in fields] == [(row.name, row.default) for row in rows()]


def test_the_options_of_open_are_the_fields_of_store_config() -> None:
    fields = {field.name: field.type for field in dataclasses.fields(mqstore.StoreConfig)}
    assert _config.Options.__annotations__ == fields
    chosen = {"recovery", "services", "broker_role", "in_sync_replicas", "slave_timeout"}
    chosen |= {"ha_listen_port", "ha_listen_host", "listen_port", "ha_max_gap_not_in_sync"}
    assert _config.RepairOptions.__annotations__ == {name: kind for name, kind in fields.items() if name not in chosen}


def test_help_of_store_config_describes_each_option_as_the_page_does() -> None:
    text = inspect.getdoc(mqstore.StoreConfig) or ""
    assert max(map(len, text.splitlines())) <= 100
    described = re.findall(r"^(\w+) : .+, default (.+)\n((?:    .+\n?)+)", text, re.M)
    assert [(name, ast.literal_eval(default)) for name, default, _ in described] == [(row.name, row.default) for row in rows()]
    for row, (_, _, meaning) in zip(rows(), described, strict=True):
        unit, name = f" In {row.unit}." if row.unit else "", f" RocketMQ: `{row.rocketmq}`." if row.rocketmq else ""
        assert " ".join(meaning.split()) == f"{row.text}{unit}{name}"


def test_open_names_its_first_options_and_store_config() -> None:
    assert str(inspect.signature(mqstore.open)) == "(path, mode='r', config=None, **options)"
    text = inspect.getdoc(mqstore.open) or ""
    for option in ("geometry", "flush_disk_type", "errors", "recovery", "lock_timeout", "StoreConfig"):
        assert option in text
    assert len(text.splitlines()) < 90


def test_an_option_of_the_call_wins_over_that_of_its_config(path: Path) -> None:
    config = mqstore.StoreConfig(errors="skip", index_tags=True, message_delay_level="1s 5s")
    with mqstore.open(path, config=config) as store:
        assert options_of(store) == {"errors": "skip", "index_tags": True, "message_delay_level": "1s 5s"}
    with mqstore.open(path, "r", config, errors="raise") as store:
        assert options_of(store) == {"errors": "raise", "index_tags": True, "message_delay_level": "1s 5s"}

    async def opened() -> dict[str, Any]:
        async with mqstore.aio.open(path, config=config, errors="raise") as store:
            return options_of(store.store)

    assert asyncio.run(opened()) == {"errors": "raise", "index_tags": True, "message_delay_level": "1s 5s"}
    wrong: Any = {"errors": "skip"}
    with pytest.raises(TypeError, match="config is a mqstore.StoreConfig or None, not dict"):
        mqstore.open(path, config=wrong)


def test_a_config_is_a_frozen_value_that_shows_what_was_given() -> None:
    config = mqstore.StoreConfig(wait_time_out=timedelta(seconds=2), recovery="salvage")
    assert repr(config) == "mqstore.StoreConfig(wait_time_out=datetime.timedelta(seconds=2), recovery='salvage')"
    assert pickle.loads(pickle.dumps(config)) == config != mqstore.StoreConfig()
    assert hash(config) == hash(dataclasses.replace(mqstore.StoreConfig(recovery="salvage"), wait_time_out=timedelta(seconds=2)))
    name = "recovery"
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, name, "heal")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"flush_interval_commit_log": 0}, ValueError, "flush_interval_commit_log is 0: expected 1 or more"),
        ({"max_index_num": 400}, ValueError, "max_hash_slot_num"),
        ({"errors": "none"}, ValueError, "option errors.*raise.*skip"),
        ({"sigbus_guard": 7.5}, TypeError, "option sigbus_guard: expected True or False"),
        ({"flushes": 1}, TypeError, "flushes"),
    ],
)
def test_a_config_refuses_what_open_refuses(path: Path, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        mqstore.StoreConfig(**options)
    with pytest.raises(error, match=text):
        mqstore.open(path, **options)


def test_each_duration_is_also_a_timedelta_and_rounds_up_to_its_unit(path: Path) -> None:
    durations = [row for row in rows() if row.unit in ("ms", "seconds")]
    assert len(durations) == 12
    for row in durations:
        options: dict[str, Any] = {row.name: timedelta(microseconds=1)}
        mqstore.StoreConfig(**options)
        with pytest.raises(ValueError, match=row.name):
            mqstore.StoreConfig(**options | {row.name: timedelta(microseconds=-1)})
    with pytest.raises(ValueError, match="flush_interval_commit_log is 0"):
        mqstore.StoreConfig(flush_interval_commit_log=timedelta(0))
    with pytest.raises(TypeError, match="max_message_size"):
        mqstore.open(path, **{"max_message_size": timedelta(1)})


def test_broker_conf_gives_the_options_of_the_store_and_sizes_of_a_broker(tmp_path: Path) -> None:
    text = r"""
# a comment
brokerName = broker-a
  flushDiskType=SYNC_FLUSH
mappedFileSizeCommitLog : 65536
message\
  DelayLevel=1s\u0020\
    5s
! another comment
maxIndexNum 4000
flushCommitLogTimed = False
syncFlushTimeout=1
syncFlushTimeout=3000
"""
    config = mqstore.StoreConfig.from_broker_conf(conf(tmp_path, text))
    assert config == mqstore.StoreConfig(
        geometry="broker",
        flush_disk_type="SYNC_FLUSH",
        mapped_file_size_commit_log=65536,
        message_delay_level="1s 5s",
        max_hash_slot_num=5_000_000,
        max_index_num=4000,
        flush_commit_log_timed=False,
        **_config._RETENTION_OF_BROKER,
        sync_flush_timeout=3000,
    )
    with mqstore.open(tmp_path / "store", "x", config, max_hash_slot_num=1000, flush_disk_type="ASYNC_FLUSH") as store:
        store.append("orders", b"one")
    assert next(file.stat().st_size for file in (tmp_path / "store" / "commitlog").iterdir()) == 65536
    assert mqstore.StoreConfig.from_broker_conf(conf(tmp_path, "")) == mqstore.StoreConfig(
        geometry="broker", **_config._RETENTION_OF_BROKER
    )
    # Java reads a last line that a line without an end continues.
    continued = mqstore.StoreConfig.from_broker_conf(conf(tmp_path, "syncFlushTimeout=3000\\"))
    assert continued.sync_flush_timeout == 3000


@pytest.mark.parametrize(("size", "rounded"), [(6_000_000, 6_000_000), (1000, 1000), (1001, 1020), (1, 20)])
def test_broker_conf_rounds_the_size_of_queue_files_as_a_broker(tmp_path: Path, size: int, rounded: int) -> None:
    config = mqstore.StoreConfig.from_broker_conf(conf(tmp_path, f"mappedFileSizeConsumeQueue = {size}"))
    assert config.mapped_file_size_consume_queue == rounded


def test_bad_value_that_a_later_entry_of_broker_conf_replaces_is_no_error(tmp_path: Path) -> None:
    text = "maxMessageSize = many\nstoreType = defaultRocksDB\nmaxMessageSize = 1000\nstoreType = default\n"
    assert mqstore.StoreConfig.from_broker_conf(conf(tmp_path, text)).max_message_size == 1000


def test_sizes_of_an_index_in_broker_conf_are_judged_together(tmp_path: Path) -> None:
    many_slots = "maxHashSlotNum = 500000000\n"
    path = conf(tmp_path, many_slots)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: max_hash_slot_num 500000000 and max_index_num 20000000"):
        mqstore.StoreConfig.from_broker_conf(path)
    config = mqstore.StoreConfig.from_broker_conf(conf(tmp_path, f"{many_slots}maxIndexNum = 1000\n"))
    assert (config.max_hash_slot_num, config.max_index_num) == (500_000_000, 1000)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("storePathRootDir = /data\nstorePathCommitLog = /data/commitlog/\n", None),
        ("storePathRootDir = /data\nstoreType = default\n", None),
        ("storePathRootDir = /data\nstorePathCommitLog = /ssd/commitlog\n", "storePathCommitLog = /ssd/commitlog"),
        ("\nstorePathCommitLog = /ssd/a,/ssd/b\n", "storePathCommitLog = /ssd/a,/ssd/b"),
    ],
)
def test_a_log_outside_the_store_in_broker_conf_is_a_warning(tmp_path: Path, text: str, key: str | None) -> None:
    path = conf(tmp_path, text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mqstore.StoreConfig.from_broker_conf(path)
    starts = [] if key is None else [f"{path}, line 2: {key}: "]
    assert [str(warning.message)[: len(start)] for warning, start in zip(caught, starts, strict=True)] == starts
    assert all((warning.category, warning.filename) == (RuntimeWarning, __file__) for warning in caught)


def test_a_store_of_other_sizes_than_broker_conf_names_the_differing_key(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=65_536) as store:
        store.append("orders", b"one")
    config = mqstore.StoreConfig.from_broker_conf(conf(tmp_path, ""))
    for mode in ("r", "a"):
        with pytest.raises(ValueError, match=r"mappedFileSizeCommitLog of a broker\) 1073741824 unless .* 65536 in this store"):
            mqstore.open(path, mode, config)
        with mqstore.open(path, mode, config, geometry=None) as store:
            assert len(store.topics["orders"].queues[0]) == 1
    stated = mqstore.StoreConfig.from_broker_conf(conf(tmp_path, "mappedFileSizeCommitLog = 131072"))
    with pytest.raises(ValueError, match=r"mappedFileSizeCommitLog of a broker\) is 131072, .* 65536 bytes"):
        mqstore.open(path, "r", stated)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("storeType = defaultRocksDB", "storeType = defaultRocksDB: mqstore neither reads nor writes queues in RocksDB"),
        ("mappedFileSizeConsumeQueue = 0", "mappedFileSizeConsumeQueue = 0: mapped_file_size_consume_queue is 0"),
        ("flushIntervalCommitLog = fast", "flushIntervalCommitLog = fast: expected a whole number"),
        ("flushIntervalCommitLog = 0", "flushIntervalCommitLog = 0: flush_interval_commit_log is 0: expected 1 or more"),
        ("flushDiskType = SYNC", "flushDiskType = SYNC: option flush_disk_type: .*ASYNC_FLUSH"),
        ("flushCommitLogTimed = yes", "flushCommitLogTimed = yes: expected true or false"),
        ("maxMessageSize = -1", "maxMessageSize = -1: option max_message_size"),
    ],
)
def test_a_bad_value_in_broker_conf_is_refused_with_file_and_line(tmp_path: Path, entry: str, text: str) -> None:
    path = conf(tmp_path, f"brokerName = a\n\n{entry}\n")
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}, line 3: {text}"):
        mqstore.StoreConfig.from_broker_conf(path)
