"""Repairs a store from the command line."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shell import printed

import mqstore


@pytest.fixture
def store(golden: Path, tmp_path: Path) -> Path:
    """A store without queues, whose path a shell would divide."""
    path = Path(shutil.copytree(golden / "491_multifile", tmp_path / "my store"))
    shutil.rmtree(path / "consumequeue")
    return path


def test_repair_lists_what_it_would_change_and_changes_it_with_yes(store: Path, run: Callable[..., Any]) -> None:
    listed = run("repair", store)
    assert listed.code == 1
    assert listed.out.splitlines() == [
        f"would rebuild: {store}/consumequeue: queues, index and checkpoint are rebuilt from the log",
        "nothing was changed: --yes makes these changes",
    ]
    assert not (store / "consumequeue").exists()
    done = run("repair", store, "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, f"repaired: {store}")
    again = run("repair", store)
    assert (again.code, again.out) == (0, "nothing has to be repaired\n")
    assert run("verify", store).code == 0


def test_repair_into_another_directory_reports_as_json(store: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    [report] = run("repair", store, "--into", tmp_path / "new", "--yes", "--json").rows
    assert (report["ok"], report["dry_run"], report["path"]) == (True, False, str(tmp_path / "new"))
    assert [change["action"] for change in report["changes"]] == ["copy", "rebuild"]
    assert not (store / "consumequeue").exists()
    assert run("verify", tmp_path / "new").code == 0


def test_what_repair_leaves_is_reported_without_advice_for_programs(
    copied: Callable[[str], Path], run: Callable[..., Any]
) -> None:
    store = copied("491_multifile")
    os.truncate(max((store / "commitlog").iterdir()), 1000)
    for done in (run("repair", store), run("repair", store, "--json")):
        assert (done.code, "is damaged: a record of" in done.out) == (1, True)
        assert not re.search("errors=|recovery=", done.out)


def test_repair_that_loses_messages_ends_with_how_to_read_the_others(
    copied: Callable[[str], Path], tmp_path: Path, run: Callable[..., Any]
) -> None:
    store = copied("491_multifile")
    with mqstore.open(store) as opened:
        message = next(message for topic in opened.topics.values() for queue in topic.queues for message in queue if message.body)
    segment = store / "commitlog" / f"{message.physical_offset // 16384 * 16384:020}"
    content = bytearray(segment.read_bytes())
    content[content.index(message.body, message.physical_offset % 16384)] ^= 1
    segment.write_bytes(content)
    done = run("repair", store, "--yes")
    assert (done.code, done.out.splitlines()[-2:]) == (
        0,
        [
            f"repaired: {store}",
            'messages were lost: to read the others, give export and copy --skip-damaged, and programs errors="skip"',
        ],
    )
    export = ("export", store, tmp_path / "messages.jsonl", "--topic", message.topic)
    assert "--skip-damaged" in run(*export).err
    assert "--skip-damaged" not in run(*export, "--skip-damaged").err


def test_doctor_finds_a_damaged_body_unless_it_is_to_be_quick(copied: Callable[[str], Path], run: Callable[..., Any]) -> None:
    store = copied("491_multifile")
    with mqstore.open(store) as opened:
        message = opened.message_at(0)
    first = min((store / "commitlog").iterdir())
    record = first.read_bytes()
    at = record.index(message.body)
    first.write_bytes(record[:at] + b"?" + record[at + 1 :])
    found = run("doctor", store)
    step = f"mqstore repair {store} --into {store}.repaired --yes"
    assert (found.code, found.out.splitlines()[-1]) == (1, f"do next, before a broker or another writer starts: {step}")
    quick = run("doctor", store, "--quick")
    got = f"nothing is wrong in what was read; bodies are not checked: mqstore verify {store}\n"
    assert (quick.code, quick.out.endswith(got)) == (0, True)


@pytest.mark.parametrize("name", ["my store", "."])
def test_the_last_line_of_a_repair_puts_the_copy_in_place(
    name: str, store: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    monkeypatch.chdir(store.parent if name == "my store" else store)
    new = store.with_name("new store")
    done = run("repair", name, "--into", new, "--yes")
    when, step = re.fullmatch("do next(.*?): (.*)", done.out.splitlines()[-1]).groups()
    assert (done.code, when) == (0, ", before a broker or another writer starts")
    printed(step, Path.cwd())
    assert not new.exists()
    assert run("verify", store).code == 0
    assert run("verify", store.with_name("my store.damaged")).code == 1


def test_a_repair_that_leaves_an_error_ends_with_its_fix(copied: Callable[[str], Path], run: Callable[..., Any]) -> None:
    store = copied("491_multifile")
    os.truncate(sorted((store / "commitlog").iterdir())[1], 1000)
    (store / "commitlog" / "x").touch()
    step = f"put back the part of the log that is missing; if it is lost: mqstore repair {store} --into {store}.repaired --yes"
    done = run("repair", store, "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (1, f"do next, before a broker or another writer starts: {step}")
    assert json.loads(run("repair", store, "--yes", "--json").out)["do_next"] == step


def test_what_verify_names_as_the_fix_is_a_command_that_fixes_it(store: Path, run: Callable[..., Any]) -> None:
    findings = json.loads(run("verify", store, "--json").out)["findings"]
    [fix] = {finding["fix"] for finding in findings}
    words = shlex.split(fix.removeprefix("with no writer running: "))
    assert words == ["mqstore", "rebuild", str(store), "--yes"]
    [rebuilt] = run(*words[1:], "--json").rows
    assert (rebuilt["ok"], rebuilt["dry_run"], rebuilt["left"]) == (True, False, [])
    assert run("verify", store).code == 0


def test_queues_and_index_that_are_all_gone_get_the_sizes_that_are_given(
    copied: Callable[[str], Path], run: Callable[..., Any]
) -> None:
    path = copied("491_multifile")

    def sizes() -> dict[str, set[int]]:
        folders = ("consumequeue", "index")
        return {name: {file.stat().st_size for file in (path / name).rglob("*") if file.is_file()} for name in folders}

    before = sizes()
    assert before == {"consumequeue": {1000}, "index": {8440}}
    for name in before:
        shutil.rmtree(path / name)
    given = ("mapped_file_size_consume_queue=1000", "max_hash_slot_num=100", "max_index_num=400")
    assert run("rebuild", path, "--yes", *(word for each in given for word in ("--option", each))).code == 0
    assert sizes() == before
    for command in ("rebuild", "repair"):
        for wrong in ("no_such_option=1", "max_index_num"):
            assert run(command, path, "--option", wrong).code == 2


def test_what_cannot_be_opened_has_its_own_exit_code(tmp_path: Path, store: Path, run: Callable[..., Any]) -> None:
    for command in ("repair", "rebuild"):
        ran = run(command, tmp_path / "nothing")
        assert (ran.code, ran.out) == (3, "")
    with mqstore.open(store, "r+"):
        ran = run("rebuild", store, "--yes")
        assert (ran.code, ran.out) == (3, "")


@pytest.mark.parametrize("more", [(), ("--yes",)], ids=" ".join)
def test_a_copy_into_a_directory_that_is_not_empty_is_refused(
    more: tuple[str, ...], tmp_path: Path, store: Path, run: Callable[..., Any]
) -> None:
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "file").touch()
    ran = run("repair", store, "--into", tmp_path / "into", *more)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"mqstore: a new store wants a missing or an empty directory: {tmp_path / 'into'}\n"


@pytest.mark.parametrize("command", ["verify", "doctor"])
def test_of_many_findings_with_one_fix_people_see_three_and_json_has_all(
    command: str, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        store.append_batch([{"topic": "orders", "queue_id": number, "body": b"x", "tags": "a"} for number in range(7)])
    for file in (path / "consumequeue" / "orders").glob("*/*"):
        with file.open("r+b") as entries:
            entries.seek(12)  # the tags code
            entries.write(b"\x01")
    [got] = run(command, path, "--json").objects
    [fix] = {finding["fix"] for finding in got["findings"] if finding["id"] == "queue.tags_code"}
    shown = run(command, path).out
    assert [finding["id"] for finding in got["findings"]].count("queue.tags_code") == 7
    assert shown.count("[queue.tags_code]\n  topic ") == 3
    assert shown.count("  and 4 more of this kind (--json lists all)\n") == shown.count(f"  {fix}\n") == 1


@pytest.mark.parametrize(("number", "offsets"), [(3, None), (7, "1 (orders/1@3)")])
def test_repair_reports_queue_offsets_that_new_messages_may_get_again(
    number: int, offsets: str | None, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x") as store:
        places = [store.append("orders", b"x", queue_id=each % 2).physical_offset for each in range(8)]
    with next((path / "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(places[number] + 4)
        segment.write(b"\xff")
    [report] = run("repair", path, "--json").objects
    said = "new messages may get queue offsets of messages lost at the end of the log, which consumers have read"
    found = [change["message"] for change in report["changes"] if change["message"].startswith(said)]
    assert found == ([] if offsets is None else [f"{said}: {offsets}"])


def test_a_repair_into_a_full_disk_names_the_part_of_the_copy(
    store: Path, mounted: Callable[[str], Path], run: Callable[..., Any]
) -> None:
    disk = mounted("64k")
    full = run("repair", store, "--into", disk / "new", "--yes")
    assert (full.code, full.out) == (3, "")
    assert full.err.startswith("mqstore: no space left on the disk for this file: free some and try again: ")
    assert full.err.endswith(f"; {disk / 'new'} is a part of a copy: remove it\n")
    again = run("repair", store, "--into", disk / "new", "--yes")
    assert (again.code, "is a part of a copy" in again.err) == (1, False)
    shutil.rmtree(disk / "new")


@pytest.mark.parametrize(
    "words", [("doctor",), ("verify",), ("info",), ("repair",), ("repair", "--into", "NEW", "--yes"), ("rebuild", "--yes")]
)
def test_a_segment_that_is_too_long_is_cut_by_the_command_that_is_named(
    words: tuple[str, ...], copied: Callable[[str], Path], tmp_path: Path, run: Callable[..., Any]
) -> None:
    store = copied("491_multifile")
    segment = min((store / "commitlog").iterdir())
    length = segment.stat().st_size
    os.truncate(segment, length + 1)
    words = tuple(str(tmp_path / "new") if word == "NEW" else word for word in words)
    ran = run(words[0], store, *words[1:])
    way = f"; copy the file again, or, if the bytes after that length are not its own: truncate -s {length} {segment}\n"
    assert (ran.code, ran.err.endswith(way), ran.err.count("see mqstore doctor")) == (3, True, 0), ran
    subprocess.run(shlex.split(ran.err[ran.err.index("truncate -s") :]), check=True)
    assert segment.stat().st_size == length
    assert run(words[0], store, *words[1:]).code == 0
