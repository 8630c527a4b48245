"""Verifying a store from Python. What can be found is in tests/it/verifying."""

from __future__ import annotations

import asyncio
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
import mqstore.aio
from mqstore import _fixes


@pytest.fixture
def path(copied: Callable[[str], Path]) -> Path:
    return copied("491_multifile")


def test_a_whole_store_is_ok_and_the_report_says_what_was_compared(path: Path) -> None:
    with mqstore.open(path) as store:
        report = store.verify()
        assert report.ok
        assert report.findings == ()
        assert report.covered == (store.min_physical_offset, store.max_physical_offset)
        assert report.messages == store.usage(()).to_arrow()["messages"][0].as_py()
        assert report.queue_entries > 0
        assert report.index_items > 0
        assert report.seconds > 0
    assert repr(report).startswith("<mqstore.VerifyReport ok: errors=0, warnings=0, notes=0, covered 0..")


def test_a_damaged_body_is_a_finding_with_its_message_and_its_fix(path: Path) -> None:
    with mqstore.open(path) as store:
        queues = (queue for topic in store.topics.values() for queue in topic.queues)
        message = next(message for queue in queues for message in queue if len(message.body) > 8)
        wanted = (message.topic, message.queue_id, message.queue_offset, message.physical_offset, message.unique_key)
        body, at = bytes(message.body), message.physical_offset
    segment = path / "commitlog" / f"{at // 16384 * 16384:020}"
    content = bytearray(segment.read_bytes())
    content[content.index(body, at % 16384)] ^= 1
    segment.write_bytes(content)
    with mqstore.open(path) as store:
        report = store.verify()
        assert store.verify(deep=False).ok
    assert not report.ok
    [finding] = report.findings
    assert (finding.id, finding.severity, finding.count) == ("log.damaged_record", "error", 1)
    assert (finding.topic, finding.queue_id, finding.queue_offset, finding.physical_offset, finding.key) == wanted
    assert (finding.file, finding.offset, finding.last_offset) == (str(segment), at % 16384, at % 16384)
    assert "CRC" in finding.message
    assert finding.meaning
    assert finding.known_as == ""
    assert finding.fix == f"with no writer running: mqstore repair {path} --into NEW --yes"
    assert repr(finding).startswith("<mqstore.Finding error log.damaged_record: ")
    # The words have their parts as data, and keep them.
    fixes: list[Any] = [finding.fix, finding.to_dict()["fix"], pickle.loads(pickle.dumps(finding)).fix]
    for fix in fixes:
        assert (fix, fix.command) == (finding.fix, ("mqstore", "repair", str(path), "--into", "NEW", "--yes"))
        assert fix.step() == f"mqstore repair {path} --into {path}.repaired --yes"


def test_findings_list_the_lost_messages_before_and_after_a_repair(tmp_path: Path) -> None:
    path, repaired = tmp_path / "store", tmp_path / "repaired"
    with mqstore.open(path, "x") as store:
        places = [store.append("orders", b"x", queue_id=number % 2).physical_offset for number in range(12)]
    with next((path / "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(places[3] + 4)
        segment.write(bytes(places[7] - places[3]))
    mqstore.repair(path, dry_run=False, into=repaired)
    for each, id in ((path, "log.damaged_record"), (repaired, "log.lost_messages")):
        with mqstore.open(each) as store:
            [finding] = (finding for finding in store.verify().findings if finding.id == id)
        assert finding.lost == (("orders", 0, 2, 4), ("orders", 1, 1, 4))
        assert finding.message.endswith("; messages lost from queues: 5 (orders/0@2-3, orders/1@1-3)")
        # All entries of lost messages lead to the salvage record.
        first = (1, 1, places[3]) if each == path else (0, 2, places[3])
        assert (finding.queue_id, finding.queue_offset, finding.physical_offset) == first


def test_an_entry_of_a_message_that_became_a_half_message_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        at = [store.append("orders", b"%d" % number) for number in range(10)][3].physical_offset
    segment = path / "commitlog" / f"{0:020}"
    content = bytearray(segment.read_bytes())
    content[at + 39] ^= 4  # the last byte of the system flag
    segment.write_bytes(content)
    with mqstore.open(path) as store:
        [finding] = store.verify().findings
    assert (finding.id, finding.topic, finding.queue_id, finding.queue_offset) == ("queue.entry_wrong", "orders", 0, 3)
    assert "a half or rolled-back message" in finding.message


def test_a_finding_names_the_issues_in_which_brokers_leave_it(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")
    with mqstore.open(path) as store:
        report = store.verify()
    ids = {finding.id for finding in report.findings}
    assert ids == {"queue.entry_missing"}
    assert all("#405" in finding.known_as for finding in report.findings)
    assert report.findings[0].fix == f"with no writer running: mqstore rebuild {path} --yes"
    assert max(finding.count for finding in report.findings) > 1


@pytest.mark.parametrize("name", ["491_multifile", "498_mixed", "533_mixed", "551_mixed"])
def test_removed_derived_files_are_made_again_by_the_next_writer(copied: Callable[[str], Path], name: str) -> None:
    path = copied(name)
    with mqstore.open(path) as store:
        before = store.verify()
    for derived in ("consumequeue", "index", "checkpoint"):
        (path / derived).rename(path.parent / derived)
    with mqstore.open(path, "r+"):
        pass
    with mqstore.open(path) as store:
        after = store.verify()
    assert after.ok, after.findings
    assert (after.messages, after.queue_entries) == (before.messages, before.queue_entries)
    assert 0 < after.index_items <= before.index_items, "some brokers index tags, too"


def test_progress_is_reported_and_ends_with_all_of_the_log(path: Path) -> None:
    told: list[tuple[int, int]] = []
    with mqstore.open(path) as store:
        store.verify(progress=lambda done, whole: told.append((done, whole)))
        size = store.max_physical_offset - store.min_physical_offset
    assert told[-1] == (size, size)


def test_what_progress_raises_ends_the_call(path: Path) -> None:
    def stop(done: int, whole: int) -> None:
        raise KeyError(done, whole)

    with mqstore.open(path) as store, pytest.raises(KeyError):
        store.verify(progress=stop)


def test_an_argument_of_another_type_is_refused(path: Path) -> None:
    with mqstore.open(path) as store:
        with pytest.raises(TypeError, match="progress"):
            store.verify(progress=1)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="max_mb_per_s"):
            store.verify(max_mb_per_s=0)


def test_a_store_that_is_being_written_to_is_ok(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as writer:
        writer.append_batch([("orders", b"%d" % number, "paid", f"o-{number}") for number in range(1000)])
        with mqstore.open(tmp_path / "store") as reader:
            reports = [writer.verify(), reader.verify()]
        for report in reports:
            assert report.ok
            assert report.messages == 1000
            assert "store.not_closed" in {finding.id for finding in report.findings}


def test_verify_can_be_awaited(path: Path) -> None:
    async def work() -> mqstore.VerifyReport:
        async with mqstore.aio.open(path) as store:
            return await store.verify(deep=False)

    assert asyncio.run(work()).ok


def test_a_repaired_copy_of_the_working_directory_is_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (".", "./"):
        assert f"--into {tmp_path}.repaired " in _fixes.of_verify("salvage", path, "").step()
    assert "--into store.repaired " in _fixes.of_verify("salvage", "store", "").step()
