"""Stores of newer brokers, which keep parts of them in files of another format."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore

#: The parts that each golden store keeps elsewhere, and the directories.
KEPT: dict[str, dict[str, str]] = {
    "551_index_rocksdb": {"keys": "rocksdbstore"},
    "551_timer_rocksdb": {"timers": "rocksdbstore"},
    "551_trans_rocksdb": {"transactions": "rocksdbstore"},
    "551_double_write": {"queues": "consumequeue"},
    "551_rocksdb": {
        "queues": "consumequeue",
        "consumer_offsets": "config/consumerOffsets",
        "topic_configs": "config/topics",
        "group_configs": "config/subscriptionGroups",
    },
    "551_config_v2": {"consumer_offsets": "config/rdb", "topic_configs": "config/rdb", "group_configs": "config/rdb"},
    "551_compaction": {"compacted_topics": "compaction/compactionLog/prices"},
    "551_lite": {},
    "551_without_mmap": {},
    "551_without_mmap_killed": {},
    "551_accelerated": {},
    "551_accelerated_killed": {},
}


@pytest.mark.parametrize("name", KEPT)
def test_a_store_names_the_parts_that_are_in_other_formats(name: str, unpacked: Callable[[str], Path]) -> None:
    with mqstore.open(unpacked(name)) as store:
        rows = store.inspect.kept_elsewhere().to_arrow().to_pylist()
    assert {row["part"]: str(Path(row["path"]).relative_to(store.path)) for row in rows} == KEPT[name]
    assert [row["topic"] for row in rows] == ["prices" if name == "551_compaction" else None] * len(rows)


@pytest.mark.parametrize("name", KEPT)
def test_verify_notes_what_it_does_not_read_and_finds_nothing_wrong(name: str, unpacked: Callable[[str], Path]) -> None:
    with mqstore.open(unpacked(name)) as store:
        report = store.verify()
    found = {finding.id for finding in report.findings}
    not_read = {"queue.not_read" if part == "queues" else "store.not_read" for part in KEPT[name]}
    closed = {"store.not_closed"} if name.endswith("_killed") else set()
    assert (found, report.ok) == (not_read | closed, True), report.findings


def test_an_empty_broker_database_keeps_nothing_elsewhere(golden: Path) -> None:
    assert (golden / "551_mixed" / "rocksdbstore" / "CURRENT").exists()
    with mqstore.open(golden / "551_mixed") as store:
        assert len(store.inspect.kept_elsewhere()) == 0


def test_a_log_ahead_of_a_database_may_hold_records_of_any_part(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    path = shutil.copytree(unpacked("551_without_mmap_killed"), tmp_path / "store")
    [log] = (path / "rocksdbstore").glob("*.log")
    log.write_bytes(b"record")
    with mqstore.open(path) as store:
        assert [row["part"] for row in store.inspect.kept_elsewhere().to_arrow().to_pylist()] == [
            "keys",
            "transactions",
            "timers",
        ]


def test_light_queues_in_a_database_are_not_absent(unpacked: Callable[[str], Path]) -> None:
    with mqstore.open(unpacked("551_double_write")) as store:
        assert store.topics.keys() == {"chats", "orders"}
        with pytest.raises(mqstore.UnsupportedFormatError, match="light queues"):
            store.get("%LMQ%$chats$room-0", 0, 0)
        assert len(store.get("orders", 0, 0)) == 32


def test_a_writer_refuses_queues_that_are_in_a_database_alone(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    path = shutil.copytree(unpacked("551_rocksdb"), tmp_path / "store")
    for change in (lambda: mqstore.open(path, "a"), lambda: mqstore.rebuild(path, dry_run=False)):
        with pytest.raises(mqstore.UnsupportedFormatError, match="the consume queues are a RocksDB database"):
            change()


@pytest.mark.parametrize("is_crashed", [True, False])
def test_light_queues_get_the_entries_that_a_crash_left_out(
    is_crashed: bool, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    path = shutil.copytree(unpacked("551_lite"), tmp_path / "store")
    names = [f"%LMQ%$chats$room-{room}" for room in range(3)]
    files = {name: path / "consumequeue" / name / "0" / f"{0:020}" for name in names}
    whole = {name: file.read_bytes() for name, file in files.items()}
    for file in files.values():
        with file.open("r+b") as changed:
            changed.seek(40)
            changed.write(bytes(20))
    with (path / "consumequeue" / "chats" / "1" / f"{0:020}").open("r+b") as changed:
        changed.seek(60)
        changed.write(bytes(20))
    if is_crashed:
        (path / "abort").touch()
        with mqstore.open(path) as store:
            assert [store.topics[name].queues[0].max_offset for name in names] == [3, 3, 3]
        mqstore.open(path, "a").close()
    else:
        mqstore.rebuild(path, dry_run=False)
    assert {name: file.read_bytes() for name, file in files.items()} == whole


WRITABLE = [name for name in KEPT if name != "551_rocksdb"]


@pytest.mark.parametrize("name", WRITABLE)
def test_a_writer_changes_nothing_that_it_does_not_read(name: str, unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    path = shutil.copytree(unpacked(name), tmp_path / "store")

    def elsewhere() -> dict[str, bytes]:
        files = (file for file in path.rglob("*") if file.is_file())
        ours = ("commitlog", "index", "checkpoint", "abort", "lock", "mqstore")
        named = {str(file.relative_to(path)): file for file in files}
        is_queue = [name for name, file in named.items() if name.startswith("consumequeue/") and file.parent.name.isdigit()]
        return {
            name: file.read_bytes()
            for name, file in named.items()
            if not name.removeprefix("config/").startswith(ours) and name not in is_queue
        }

    before = elsewhere()
    with mqstore.open(path, "a") as store:
        store.append("orders", b"ours", queue_id=0, keys="ours")
    mqstore.rebuild(path, dry_run=False)
    assert elsewhere() == before
