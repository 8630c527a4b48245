"""A store whose writer was killed reads as if it had been closed."""

from __future__ import annotations

import asyncio
import shutil
import struct
import subprocess
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from encoder import Encoder
from test_golden import by_queue, expected, listed, with_our_hosts

import mqstore
import mqstore.aio
from mqstore._native import _stop_clock

IMAGE = "491_crash_image"

#: A segment that is being made gets another name at any time.
UNFINISHED = shutil.ignore_patterns("mqstore-new-*")


def assert_lists_what_rocketmq_recovers(path: Path) -> None:
    with mqstore.open(path) as store:
        assert by_queue(listed(store)) == by_queue(with_our_hosts(expected(IMAGE)))


def queue_file_bytes(path: Path) -> tuple[list[Path], bytearray]:
    files = sorted((path / "consumequeue" / "TopicF" / "0").iterdir())
    return files, bytearray(b"".join(file.read_bytes() for file in files))


@pytest.mark.parametrize("lost", [1, 20, 70])
def test_entries_that_were_not_written_come_back_from_the_log(copied: Callable[[str], Path], lost: int) -> None:
    path = copied(IMAGE)
    files, content = queue_file_bytes(path)
    used = 120 * 20
    content[used - 20 * lost : used] = bytes(20 * lost)
    for number, file in enumerate(files):
        file.write_bytes(content[number * 1000 : (number + 1) * 1000])
    assert_lists_what_rocketmq_recovers(path)
    with mqstore.open(path) as store:
        assert store.recovery.undispatched == lost
        assert not store.recovery.clean_exit


def test_queue_files_that_are_gone_come_back_from_the_log(copied: Callable[[str], Path]) -> None:
    path = copied(IMAGE)
    shutil.rmtree(path / "consumequeue" / "TopicF")
    assert_lists_what_rocketmq_recovers(path)
    shutil.rmtree(path / "consumequeue")
    assert_lists_what_rocketmq_recovers(path)


def test_an_index_that_is_gone_costs_no_answer(copied: Callable[[str], Path]) -> None:
    path = copied(IMAGE)
    with mqstore.open(path) as store:
        message = store.topics["TopicF"].queues[0][60]
    key = message.unique_key
    assert key
    shutil.rmtree(path / "index")
    with mqstore.open(path) as store:
        result = store.query("TopicF", key, limit=None)
        assert message in result
        assert result.complete


def test_a_record_cut_short_ends_the_log_before_it(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    for number in range(3):
        last = encoder.append("orders", b"x" * 100, unique_key=f"U{number}")
    end = len(encoder.log)
    for cut in (last + 1, last + 40, end - 50, end - 1):
        shutil.rmtree(encoder.path, ignore_errors=True)
        path = encoder.write(clean=False)
        # Every record is mqstore's: a broker's could end in NUL.
        (path / "lock").write_bytes(struct.pack(">Iq", zlib.crc32(bytes(8)) | 1 << 31, 0))
        segment = path / "commitlog" / f"{0:020}"
        whole = segment.read_bytes()
        segment.write_bytes(whole[:cut].ljust(len(whole), b"\0"))
        with mqstore.open(path) as store:
            assert store.max_physical_offset == last
            assert [message.unique_key for message in store.topics["orders"].queues[0]] == ["U0", "U1"]
            assert store.recovery.queue_entries_ahead == 1


def test_queue_entries_ahead_of_the_log_are_left_out(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    for _ in range(3):
        last = encoder.append("orders", b"x")
    encoder.log[last:] = bytes(len(encoder.log) - last)
    with mqstore.open(encoder.write(clean=False)) as store:
        assert store.topics["orders"].queues[0].max_offset == 2
        assert store.recovery.queue_entries_ahead == 1
        assert store.max_physical_offset == last


def test_the_report_says_where_and_why_the_log_ends(golden: Path) -> None:
    with mqstore.open(golden / IMAGE) as store:
        report = store.recovery
        assert (report.clean_exit, report.undispatched, report.queue_entries_ahead) == (False, 0, 0)
        assert report.log_end == store.max_physical_offset
        assert store.min_physical_offset <= report.scan_start <= report.log_end
        assert report.stop_reason
        # A reader cannot know which.
        assert "after a crash, or beside a live writer" in repr(report)
        assert "\n" not in repr(report)


def test_a_reader_warns_if_a_crashed_store_is_behind_its_own_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        offsets = list(store.append_batch([b"body %d" % number for number in range(100)], "orders"))
    (path / "abort").touch()
    with warnings.catch_warnings(action="error"), mqstore.open(path) as store:
        assert (store.recovery.complete, store.recovery.refused) == (True, 0)
    # With the mark of what was flushed, the reader would report that instead.
    (path / "config" / "mqstore.flushed").unlink()
    with (path / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(offsets[99] + 88)
        segment.write(b"?")
    with pytest.warns(RuntimeWarning, match=f"store is INCOMPLETE: .* 1 queue entries .*message at {offsets[99]} was"):
        store = mqstore.open(path)
    with store:
        report = store.recovery
        assert not report.complete
        assert report.stop_reason in (report.missing or "")
        assert repr(report).startswith("<mqstore.RecoveryReport INCOMPLETE (")
        assert (report.log_end, report.queue_entries_ahead) == (offsets[99], 1)


def test_a_crashed_store_damaged_below_its_mark_is_refused_and_read_warned(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        offsets = [store.append("orders", b"body %d" % number).physical_offset for number in range(100)]
        end = store.flush()
        # As the death of the process leaves it: the checkpoint covers nothing.
        shutil.copytree(path, tmp_path / "killed", ignore=UNFINISHED)
    path = tmp_path / "killed"
    with (path / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(offsets[70] + 88)
        segment.write(b"?")
    sign = f"mqstore.flushed says that it was on disk up to {end}"
    with pytest.warns(RuntimeWarning, match=f"killed is INCOMPLETE: .*{sign}"):
        store = mqstore.open(path)
    with store:
        assert not store.recovery.complete
        assert store.recovery.log_end == offsets[70]
    with pytest.raises(mqstore.CorruptError, match=sign) as refused:
        mqstore.open(path, "a")
    assert (refused.value.offset, 'recovery="salvage"' in str(refused.value)) == (offsets[70], True)
    with mqstore.open(path, "a", recovery="salvage") as store:
        assert [store.message_at(offset).body for offset in (offsets[69], offsets[71])] == [b"body 69", b"body 71"]
    # Above the mark the same damage is a torn end.
    with mqstore.open(tmp_path / "other", "x", flush_interval_commit_log=100_000) as store:
        offsets = [store.append("orders", b"body").physical_offset for _ in range(2)]
        assert store.flushed_offset == 0
        shutil.copytree(tmp_path / "other", tmp_path / "torn", ignore=UNFINISHED)
    path = tmp_path / "torn"
    with (path / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(offsets[1] + 88)
        segment.write(b"?")
    with mqstore.open(path, "a") as store:
        assert store.recovery.log_end == offsets[1]


def test_a_writer_warns_of_the_whole_messages_that_it_cuts(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", flush_interval_commit_log=100_000) as store:
        offsets = [store.append("orders", b"body %d" % number).physical_offset for number in range(10)]
        shutil.copytree(tmp_path / "store", tmp_path / "crashed", ignore=UNFINISHED)
    path = tmp_path / "crashed"
    with (path / "commitlog" / f"{0:020}").open("r+b") as segment:
        segment.seek(offsets[4] + 88)
        segment.write(b"?")
    shutil.copytree(path, tmp_path / "other")
    fate = rf"the first at {offsets[5]}: this open removes them: 5 \(orders/0@5-9\)"
    with pytest.warns(RuntimeWarning, match=f"crashed is INCOMPLETE: .*{fate}"):
        store = mqstore.open(path, "a")
    with store:
        report = store.recovery
        assert (report.complete, report.log_end, report.remedy) == (False, offsets[4], None)
        assert (report.messages_cut, report.cut) == (5, (("orders", 0, 5, 10),))
        assert "messages_cut=5" in repr(report)
    with pytest.warns(RuntimeWarning, match="other is INCOMPLETE"):
        asyncio.run(_open_and_close(tmp_path / "other"))


async def _open_and_close(path: Path) -> None:
    async with mqstore.aio.open(path, "a"):
        pass


AFTER_A_FUTURE_MESSAGE = """
import os, sys
import mqstore

store = mqstore.open(sys.argv[1], "a")
for number in range(10, 20):
    store.append("orders", b"%04d" % number, durable=True)
os._exit(0)
"""


def test_a_salvage_keeps_messages_after_a_message_from_the_future(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=1 << 20) as store:
        for number in range(9):
            store.append("orders", b"%04d" % number)
        _stop_clock(time.time_ns() // 1_000_000 + 2 * 86_400_000)
        try:
            store.append("orders", b"0009")
        finally:
            _stop_clock(None)
    subprocess.run([sys.executable, "-c", AFTER_A_FUTURE_MESSAGE, path], check=True)
    [segment] = [each for each in (path / "commitlog").iterdir() if b"0010" in each.read_bytes()]
    segment.write_bytes(segment.read_bytes().replace(b"0010", b"0x10"))
    with warnings.catch_warnings(action="ignore"), mqstore.open(path, "a", recovery="salvage", errors="skip") as store:
        bodies = [message.body for message in store.topics["orders"].queues[0]]
    assert bodies == [b"%04d" % number for number in range(20) if number != 10]


def test_messages_that_no_queue_can_have_are_counted_as_refused(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    for number in range(3):
        encoder.append("orders", b"%d" % number, keys=["k"])
    struct.pack_into(">i", encoder.log, encoder.append("orders", b"3", keys=["k"]) + 12, -5)
    encoder.queues.clear()
    with mqstore.open(encoder.write(clean=False)) as store:
        assert store.recovery.refused == 1
        assert "refused=1" in repr(store.recovery)
        assert len(store.topics["orders"].queues[0]) == 3
        assert [message.body for message in store.query("orders", "k")] == [b"0", b"1", b"2", b"3"]


def test_a_message_appended_after_a_clock_reading_is_found_from_that_time(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        for number in range(300):
            before = time.time_ns() // 1_000_000
            result = store.append("orders", b"", keys=[f"k{number}"])
            assert result.store_time.timestamp() * 1000 >= before - 0.001
            store.wait_dispatched(result.physical_offset)
            assert len(store.query("orders", f"k{number}", since=before)) == 1


def test_a_reader_warns_of_a_closed_store_without_the_end_of_its_log(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store", segment_size=4096)
    offsets = [encoder.append("orders", b"x" * 100, keys=["all"]) for _ in range(100)]
    path = encoder.write()
    with warnings.catch_warnings(action="error"), mqstore.open(path) as store:
        assert (store.recovery.complete, store.recovery.missing) == (True, None)
        assert "INCOMPLETE" not in repr(store.recovery)
    last = max((path / "commitlog").iterdir())
    last.unlink()
    lost = sum(offset >= int(last.name) for offset in offsets)
    with pytest.warns(RuntimeWarning, match=f"store is INCOMPLETE: .*{lost} queue entries"):
        store = mqstore.open(path)
    assert not store.recovery.complete
    assert f"{lost} queue entries" in (store.recovery.missing or "")
    assert repr(store.recovery).startswith("<mqstore.RecoveryReport INCOMPLETE (")
    assert len(store.topics["orders"].queues[0]) == 100 - lost
    store.close()
    (path / "abort").touch()
    with pytest.warns(RuntimeWarning, match=f"store is INCOMPLETE: .*{lost} queue entries"):
        mqstore.open(path).close()
    # A live writer may have made the next segment, and its entries, after the log was listed.
    with locked(path / "lock"), warnings.catch_warnings(action="error"), mqstore.open(path) as store:
        assert store.recovery.complete


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds the lock of a writer."""
    path.touch()
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.stdin.close()


def test_a_copy_of_a_store_in_use_is_whole_if_its_log_was_copied_last(tmp_path: Path) -> None:
    path, copy = tmp_path / "store", tmp_path / "copy"
    copy.mkdir()

    def append(store: mqstore.Store) -> None:
        store.append_batch([("orders", b"x" * 1000, "tag", [f"k{number}"]) for number in range(500)])
        store.flush()
        store.wait_dispatched()

    with mqstore.open(path, "x", mapped_file_size_commit_log=1 << 18, checkpoint_interval=1 << 16) as store:
        append(store)
        names = sorted((entry.name for entry in path.iterdir()), key=lambda name: name == "commitlog")
        for name in names:
            if (path / name).is_dir():
                shutil.copytree(path / name, copy / name)
            else:
                shutil.copy(path / name, copy / name)
            append(store)
    assert "abort" in names
    with mqstore.open(copy, "r+") as store:
        assert store.recovery.complete
        assert len(store.topics["orders"].queues[0]) == 500 * len(names)
        assert len(store.query("orders", "k499", limit=None)) == len(names)
