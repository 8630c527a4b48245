"""Repairing and rebuilding a store from Python. The repairs themselves are in tests/it/repairing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore


@pytest.fixture
def path(copied: Callable[[str], Path]) -> Path:
    return copied("491_multifile")


def contents(root: Path) -> dict[str, bytes]:
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def messages(path: Path) -> list[tuple[str, int, int, int]]:
    with mqstore.open(path, errors="skip") as store:
        queues = [queue for topic in store.topics.values() for queue in topic.queues]
        return [(m.topic, m.queue_id, m.queue_offset, m.physical_offset) for queue in queues for m in queue]


def damage_a_body(path: Path) -> tuple[str, int, int, int]:
    with mqstore.open(path) as store:
        queues = (queue for topic in store.topics.values() for queue in topic.queues)
        message = next(message for queue in queues for message in queue if len(message.body) > 8)
        body, place = bytes(message.body), (message.topic, message.queue_id, message.queue_offset, message.physical_offset)
    segment = path / "commitlog" / f"{place[3] // 16384 * 16384:020}"
    content = bytearray(segment.read_bytes())
    content[content.index(body, place[3] % 16384)] ^= 1
    segment.write_bytes(content)
    return place


def test_a_rebuild_makes_queues_index_and_checkpoint_again(path: Path) -> None:
    before = messages(path)
    for gone in ("consumequeue", "index"):
        shutil.rmtree(path / gone)
    (path / "checkpoint").unlink()
    assert mqstore.rebuild(path).dry_run
    assert not (path / "consumequeue").exists()
    told: list[tuple[int, int]] = []
    report = mqstore.rebuild(path, dry_run=False, progress=lambda done, of: told.append((done, of)))
    assert (report.ok, report.dry_run, [change.action for change in report.changes]) == (True, False, ["rebuild"])
    assert {of for _, of in told} == {told[0][1]}
    assert messages(path) == before
    with mqstore.open(path) as store:
        assert store.verify().findings == ()


@pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "-r", "true"], capture_output=True).returncode != 0,
    reason="may not give files away, or have users of its own",
)
def test_a_copy_stays_its_makers_where_the_owner_of_the_store_is_unknown(path: Path, tmp_path: Path) -> None:
    for file in (path, *path.rglob("*")):
        os.chown(file, 1000, 1000)
    code = "import sys, mqstore; assert mqstore.repair(sys.argv[1], into=sys.argv[2], dry_run=False).ok"
    subprocess.run(["unshare", "-r", sys.executable, "-c", code, path, tmp_path / "into"], check=True)
    assert {file.stat().st_uid for file in (tmp_path / "into").rglob("*")} == {0}


def test_a_rebuild_refuses_a_damaged_log_and_says_what_to_do(path: Path) -> None:
    damage_a_body(path)
    before = contents(path)
    with pytest.raises(mqstore.CorruptError, match=r"mqstore\.repair"):
        mqstore.rebuild(path, dry_run=False)
    assert contents(path) == before


def test_a_repair_is_a_dry_run_by_default(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")
    before = contents(path)
    report = mqstore.repair(path)
    assert contents(path) == before
    assert (report.ok, report.dry_run, report.path, report.backup, report.lost, report.left) == (
        True,
        True,
        str(path),
        None,
        (),
        (),
    )
    assert {finding.id for finding in report.found.findings} == {"queue.entry_missing"}
    assert [change.action for change in report.changes] == ["rebuild"]
    assert repr(report).startswith("<mqstore.RepairReport dry run, ok: changes=1, lost=0, left=0, ")
    assert repr(report.changes[0]).startswith(f"<mqstore.Change rebuild {path}/consumequeue: ")


def test_a_repair_of_a_whole_store_changes_nothing(path: Path) -> None:
    before = contents(path)
    report = mqstore.repair(path, dry_run=False)
    assert (report.ok, report.changes) == (True, ())
    assert contents(path) == before


def test_a_repair_in_place_keeps_what_it_changes_in_a_backup(path: Path) -> None:
    before = messages(path)
    place = damage_a_body(path)
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "topics.json").write_bytes(bytes(40))
    damaged = contents(path)
    told: list[tuple[int, int]] = []
    report = mqstore.repair(path, dry_run=False, progress=lambda done, of: told.append((done, of)))
    assert report.ok
    assert [change.action for change in report.changes] == ["set_aside", *["back_up"] * 2, "salvage", "rebuild"]
    [(begin, end)] = report.lost
    assert begin <= place[3] < end
    assert report.remedy == "skip"
    assert ', lost=1 (read with errors="skip"), ' in repr(report)
    assert report.backup is not None
    kept = contents(Path(report.backup))
    assert kept == {name: damaged[name] for name in kept}
    assert "config/topics.json" in kept
    assert len(kept) == 3
    assert messages(path) == [each for each in before if each != place]
    assert told[-1][0] == told[-1][1]


def test_a_repair_that_makes_no_copy_names_none(path: Path, tmp_path: Path) -> None:
    for segment in (path / "commitlog").iterdir():
        segment.unlink()
    report = mqstore.repair(path, into=tmp_path / "copy", dry_run=False)
    assert (report.ok, report.changes, report.path) == (False, (), str(path))
    assert [finding.fix for finding in report.left if str(tmp_path / "copy") in finding.fix] == []
    assert not (tmp_path / "copy").exists()


def test_a_repaired_copy_with_a_missing_segment_keeps_every_other_offset(path: Path, tmp_path: Path) -> None:
    sorted((path / "commitlog").iterdir())[1].unlink()
    with mqstore.open(path, errors="skip") as store:
        before = {
            (m.topic, m.queue_id, m.queue_offset): m.body for topic in store.topics.values() for q in topic.queues for m in q
        }
    assert before
    report = mqstore.repair(path, into=tmp_path / "copy", dry_run=False)
    assert report.ok
    assert "fill" in {change.action for change in report.changes}
    with mqstore.open(tmp_path / "copy", errors="skip") as store:
        after = {
            (m.topic, m.queue_id, m.queue_offset): m.body for topic in store.topics.values() for q in topic.queues for m in q
        }
    assert after == before


def test_a_repair_into_another_directory_leaves_the_store_as_it_is(path: Path, tmp_path: Path) -> None:
    before = messages(path)
    place = damage_a_body(path)
    damaged = contents(path)
    into = tmp_path / "repaired"
    report = mqstore.repair(path, into=into, dry_run=False)
    assert contents(path) == damaged
    assert (report.ok, report.path, report.backup) == (True, str(into), None)
    assert messages(into) == [each for each in before if each != place]
    with pytest.raises(mqstore.StoreExistsError):
        mqstore.repair(path, into=into, dry_run=False)


def test_what_cannot_be_repaired_is_left_and_reported(path: Path) -> None:
    (path / "commitlog" / f"{16384:020}").unlink()
    before = contents(path)
    report = mqstore.repair(path, dry_run=False)
    assert not report.ok
    assert "log.missing_segment" in {finding.id for finding in report.left}
    assert report.changes == ()
    assert (report.refusal is not None, report.remedy) == (True, "put-back")
    assert contents(path) == before
    with pytest.raises(mqstore.CorruptError, match="put back the part of the log that is missing"):
        mqstore.rebuild(path)


def test_a_store_that_is_written_to_is_left_alone(path: Path, tmp_path: Path) -> None:
    shutil.rmtree(path / "index")
    with mqstore.open(path, "r+"):
        for call in (
            lambda: mqstore.rebuild(path, dry_run=False),
            lambda: mqstore.repair(path, dry_run=False, into=tmp_path / "into"),
        ):
            with pytest.raises(mqstore.LockedError):
                call()
    with pytest.raises(mqstore.NotAStoreError):
        mqstore.repair(tmp_path / "nothing")


@pytest.mark.parametrize("call", [mqstore.repair, mqstore.rebuild])
def test_how_a_store_is_recovered_is_not_asked(path: Path, call: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="recovery is no option here"):
        call(path, recovery="heal")
