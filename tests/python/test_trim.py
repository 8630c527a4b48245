"""`Writer.trim` and `trim`: the oldest segments go, and nothing that somebody still needs."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import mqstore

SEGMENT = 1 << 20


def filled(path: Path, segments: int = 6) -> mqstore.Writer:
    """Returns a store with this many segments of messages of 1 KiB."""
    store = mqstore.open(path, "x", mapped_file_size_commit_log=SEGMENT)
    store.append_batch([b"x" * 1024] * (segments * SEGMENT // 1200), topic="orders")
    return store


def test_trimmed_messages_have_expired_and_offsets_stay(tmp_path: Path) -> None:
    with filled(tmp_path / "store") as store:
        queue = store.topics["orders"].queues[0]
        end = queue.max_offset
        report = store.trim(before_offset=2 * SEGMENT)
        assert report.segments == ((0, SEGMENT), (SEGMENT, 2 * SEGMENT))
        assert (report.bytes, report.refusal, report.unread, report.kept_for) == (2 * SEGMENT, None, (), ())
        queue = store.topics["orders"].queues[0]
        assert 0 < queue.min_offset < queue.max_offset == end
        got = store.get("orders", 0, 0)
        assert (got.status, got.next_begin_offset) == ("OFFSET_TOO_SMALL", queue.min_offset)
    assert sorted(file.name for file in (tmp_path / "store" / "commitlog").iterdir())[0] == f"{2 * SEGMENT:020}"
    with mqstore.open(tmp_path / "store") as store:
        assert store.verify().ok
        assert len(store.topics["orders"].queues[0]) == end - store.topics["orders"].queues[0].min_offset


def test_dry_run_removes_nothing_and_names_the_same_segments(tmp_path: Path) -> None:
    with filled(tmp_path / "store") as store:
        dry = store.trim(max_bytes=3 * SEGMENT, dry_run=True)
        assert dry.dry_run
        assert store.topics["orders"].queues[0].min_offset == 0
        assert store.trim(max_bytes=3 * SEGMENT).segments == dry.segments != ()
        assert "segments would be removed" in repr(dry)


def test_trim_keeps_what_a_group_has_not_consumed_unless_forced(tmp_path: Path) -> None:
    with filled(tmp_path / "store") as store:
        with store.consumer("billing", "orders") as consumer:
            consumer.ack(consumer.poll(100))
        report = store.trim(before_offset=3 * SEGMENT)
        assert report.segments == ()
        ((group, topic, queue_id, messages),) = report.kept_for
        assert (group, topic, queue_id) == ("billing", "orders", 0)
        assert messages == store.topics["orders"].queues[0].max_offset - 100
        forced = store.trim(before_offset=3 * SEGMENT, force=True)
        removed = store.topics["orders"].queues[0].min_offset - 100
        assert (len(forced.segments), forced.unread) == (3, (("billing", "orders", 0, removed),))
        with store.consumer("billing", "orders") as consumer, pytest.raises(mqstore.OffsetOutOfRangeError) as refused:
            consumer.poll()
        assert refused.value.offset == 100


def test_a_group_whose_progress_is_lost_keeps_every_message_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with filled(path) as store, store.consumer("billing", "orders") as consumer:
        consumer.ack(consumer.poll(100))
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (path / "config" / name).unlink(missing_ok=True)
    for dry_run in (True, False):
        with pytest.raises(mqstore.CorruptError, match='"billing" is lost'):
            mqstore.trim(path, before_offset=2 * SEGMENT, dry_run=dry_run)
    with mqstore.open(path, "a", max_log_bytes=SEGMENT) as store:
        with pytest.raises(mqstore.CorruptError, match='"billing" is lost'):
            store.trim(before_offset=2 * SEGMENT)
        assert '"billing" is lost' in str(store.stats().removal_refusal)
        assert store.min_physical_offset == 0
    assert len(mqstore.trim(path, before_offset=2 * SEGMENT, dry_run=False, force=True).segments) == 2


def test_delayed_messages_stay_also_when_forced(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", mapped_file_size_commit_log=SEGMENT) as store:
        store.append("orders", b"later", delay_level=18)
        store.append_batch([b"x" * 1024] * 4000, topic="orders")
        report = store.trim(before_offset=3 * SEGMENT, force=True)
        assert report.segments == ()
        assert report.kept_for == (("delayed messages", "SCHEDULE_TOPIC_XXXX", 17, 1),)


def test_before_is_a_time_or_an_age_and_an_offset_has_its_own_name(tmp_path: Path) -> None:
    with filled(tmp_path / "store") as store:
        assert store.trim(timedelta(hours=1)).segments == ()
        assert store.trim(datetime(2001, 1, 1, tzinfo=UTC)).segments == ()
        assert store.trim(datetime(2099, 1, 1, tzinfo=UTC), dry_run=True).segments != ()
        stored = store.topics["orders"].queues[0][0].store_time
        assert store.trim(int(stored.timestamp() * 1000), dry_run=True).segments == ()
        assert store.trim(int(stored.timestamp() * 1000) + 86_400_000, dry_run=True).segments != ()
        with pytest.raises(TypeError, match="one of before, before_offset and max_bytes"):
            store.trim()
        with pytest.raises(TypeError, match="one of before, before_offset and max_bytes"):
            store.trim(1, max_bytes=2)
        with pytest.raises(ValueError, match="timezone"):
            store.trim(datetime(2099, 1, 1))
    with pytest.raises(mqstore.ClosedError):
        store.trim(1)


def test_options_remove_old_messages_and_stats_say_what_goes_next(tmp_path: Path) -> None:
    filled(tmp_path / "store").close()
    with mqstore.open(tmp_path / "store", "a") as store:
        assert store.stats().segments_removed is None
    with mqstore.open(tmp_path / "store", "a", file_reserved_time=72, max_log_bytes=100 * SEGMENT) as store:
        stats = store.stats()
        assert (stats.segments_removed, stats.next_removal, stats.removal_kept_for) == (0, (0, SEGMENT), ())
        assert stats.next_removal_time is not None
        assert timedelta(hours=71) < stats.next_removal_time - datetime.now(UTC) <= timedelta(hours=72)


def test_the_configuration_of_a_broker_has_its_rules_for_old_messages(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("fileReservedTime=48\ndeleteWhen=04;16\n")
    config = mqstore.StoreConfig.from_broker_conf(tmp_path / "broker.conf")
    assert (config.file_reserved_time, config.delete_when, config.disk_max_used_space_ratio) == (48, "04;16", 75)
    assert config.expire_by_file_time
    assert not config.retain_unconsumed
    with pytest.raises(ValueError, match="delete_when"):
        mqstore.StoreConfig(delete_when="24")
    assert mqstore.StoreConfig().file_reserved_time is None


def test_a_closed_store_is_trimmed_without_an_open(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with filled(path) as store:
        end = store.topics["orders"].queues[0].max_offset
        with pytest.raises(mqstore.LockedError):
            mqstore.trim(path, before_offset=2 * SEGMENT, dry_run=False)
        assert mqstore.trim(path, before_offset=2 * SEGMENT).dry_run
    planned = mqstore.trim(path, before_offset=2 * SEGMENT)
    assert planned.dry_run
    done = mqstore.trim(path, before_offset=2 * SEGMENT, dry_run=False)
    assert done.segments == planned.segments == ((0, SEGMENT), (SEGMENT, 2 * SEGMENT))
    assert done.since is not None
    assert done.until is not None
    assert done.since <= done.until
    with mqstore.open(path, "r+") as store:
        assert store.topics["orders"].queues[0].max_offset == end
        assert store.verify().ok
    with pytest.raises(TypeError, match="give one of before"):
        mqstore.trim(path)


@pytest.fixture
def disk(mounted: Callable[[str], Path]) -> Path:
    """Returns the directory of a file system of 8 MiB."""
    return mounted("8m")


def fill_up(disk: Path) -> None:
    """Leaves not one free page."""
    with (disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
        ballast.writelines([bytes(4096)] * 4096)


def test_a_closed_store_on_a_full_file_system_is_trimmed(disk: Path) -> None:
    with filled(disk / "store", 5) as store:
        end = store.topics["orders"].queues[0].max_offset
    fill_up(disk)
    report = mqstore.trim(disk / "store", max_bytes=2 * SEGMENT, dry_run=False)
    assert (len(report.segments) >= 3, report.refusal) == (True, None)
    with mqstore.open(disk / "store", "r+") as store:
        assert store.topics["orders"].queues[0].max_offset == end
        assert store.append("orders", b"next").queue_offset == end


def test_a_writer_on_a_full_file_system_trims_and_appends_again(disk: Path) -> None:
    # A close writes the queue entries that are still in memory: only messages whose entries are on disk can go.
    filled(disk / "store", 5).close()
    with mqstore.open(disk / "store", "a") as store, store.consumer("billing", "orders") as consumer:
        end = store.topics["orders"].queues[0].max_offset
        consumer.ack(consumer.poll(2000))
        consumer.commit(durable=True)
        consumer.ack(consumer.poll(2000))
        fill_up(disk)
        with pytest.raises(mqstore.DiskFullError):
            consumer.commit(durable=True)
        report = store.trim(before_offset=3 * SEGMENT)
        assert (len(report.segments), report.refusal, report.unread) == (3, None, ())
        consumer.commit(durable=True)
        assert store.append("orders", b"next").queue_offset == end
    with mqstore.open(disk / "store", "a") as store, store.consumer("billing", "orders") as consumer:
        assert store.verify().ok
        assert [message.queue_offset for message in consumer.poll(1)] == [4000]


def test_next_removal_goes_by_the_options_of_the_open(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with filled(path) as store:
        assert store.broker.next_removal() is None
        store.consumer("billing", "orders").close()
    with mqstore.open(path) as store:
        assert store.broker.next_removal() is None
        end = store.topics["orders"].queues[0].max_offset
    with mqstore.open(path, max_log_bytes=SEGMENT) as store:
        removal = store.broker.next_removal()
        assert removal is not None
        assert (removal.segment, removal.reason, removal.time) == ((0, SEGMENT), "log_bytes", None)
        assert removal.kept_for == (("billing", "orders", 0, end),)
        assert repr(removal) == "<mqstore.NextRemoval 0 to 1048576, log_bytes, kept for 1 groups>"
        assert removal.to_dict()["reason"] == "log_bytes"
    with mqstore.open(path, "a", file_reserved_time=72) as store:
        removal, stats = store.broker.next_removal(), store.stats()
        assert removal is not None
        assert (removal.segment, removal.reason) == (stats.next_removal, None)
        assert removal.time is not None
        assert removal.time == stats.next_removal_time
        assert timedelta(hours=71) < removal.time - datetime.now(UTC) < timedelta(hours=96)


def test_held_bytes_are_free_once_the_last_view_of_a_segment_ends(tmp_path: Path) -> None:
    def mapped() -> list[str]:
        maps = Path("/proc/self/maps").read_text().splitlines()
        return [line for line in maps if str(tmp_path) in line and line.endswith(f"commitlog/{0:020} (deleted)")]

    with filled(tmp_path / "store") as store:
        view = store.topics["orders"].queues[0][0].body_view
        report = store.trim(before_offset=2 * SEGMENT)
        assert (len(report.segments), report.held_bytes) == (2, SEGMENT)
        assert mapped()
        assert bytes(view) == b"x" * 1024
        view.release()
        del view
        assert not mapped()
