"""Each command ends with the exit codes of docs/CLI.md, and says on stderr why, in the words of the command line."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore.cli import COMMANDS

#: Those that are asked for no store.
WITHOUT_STORE = {"demo", "completion"}
#: Those that follow a master until a signal: they have tests of their own.
ENDLESS = {"replicate", "tap"}
ENDING = [command for command in COMMANDS if command not in ENDLESS]
#: Those that change the store that they are given.
WRITING = {"import", "rebuild", "consume", "resend"}
#: What is asked of a store besides its name.
MORE: dict[str, tuple[object, ...]] = {
    "find": ("--property", "REAL_TOPIC=audit-log"),
    "trace": ("FD00000000000000000000000000000259285FFD2B276CF4C7CC0017",),
    "cat": ("orders",),
    "get": ("orders/0@0",),
    "dump": (0,),
    "delayed": ("-n", 3),
    "consume": ("orders", "--group", "shipping"),
    "resend": ("flaky-group",),
    "rebuild": ("--yes",),
    "trim": ("--max-bytes", "1T"),
    "completion": ("bash",),
}
#: Exit codes where the first message of each queue is damaged. Other commands read none of these, and end with 0.
READING = ["find", "trace", "cat", "get", "tail", "du", "delayed", "transactions", "dead", "export", "copy", "diff", "report"]
OF_DAMAGED = dict.fromkeys([*READING, "consume", "resend", "doctor", "verify", "repair"], 1) | {"rebuild": 3}
# The damaged half and op message are before the progress of the transactions.
OF_DAMAGED["transactions"] = 0
#: What reading says in the words of Python.
PYTHON = re.compile(r'errors=|recovery=|mode "|INCOMPLETE')


def asked(command: str, store: Path, folder: Path) -> list[object]:
    """The command on a store, which it does not change."""
    if command in WITHOUT_STORE:
        return [command, *MORE.get(command, ())]
    if command in WRITING:
        store = shutil.copytree(store, folder / "written")
    messages = folder / "messages.jsonl"
    messages.write_text('{"topic": "orders", "body": "eA=="}\n')
    of_files = {
        "export": [folder / "out.jsonl", "--skip-damaged"],
        "copy": [folder / "copy", "--skip-damaged"],
        "import": [messages],
        "diff": [store],
        "report": ["-o", folder / "page.html", "--quick"],
    }
    return [command, store, *MORE.get(command, ()), *of_files.get(command, [])]


@pytest.fixture(scope="module")
def damaged(broker: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first message of each queue has no magic number any more."""
    path = shutil.copytree(broker, tmp_path_factory.mktemp("damaged") / "store")
    with mqstore.open(path) as store:
        places = [queue[0].physical_offset for topic in store.topics.values() for queue in topic.queues if len(queue)]
    for place in places:
        segment = 1 << 20
        with (path / "commitlog" / f"{place // segment * segment:020}").open("r+b") as file:
            file.seek(place % segment + 4)
            file.write(b"\0\0\0\0")
    return path


@pytest.fixture(scope="module")
def incomplete(broker: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last segment is missing."""
    path = shutil.copytree(broker, tmp_path_factory.mktemp("incomplete") / "store")
    (path / "commitlog" / f"{1 << 20:020}").unlink()
    return path


@pytest.mark.parametrize("command", ENDING)
def test_a_whole_answer_ends_with_0(command: str, broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    ran = run(*asked(command, broker, tmp_path))
    assert ran.code == 0, ran


@pytest.mark.parametrize("command", ENDING)
def test_an_answer_without_messages_that_are_damaged_ends_with_1(
    command: str, damaged: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    ran = run(*asked(command, damaged, tmp_path))
    assert ran.code == OF_DAMAGED.get(command, 0), ran
    assert PYTHON.search(ran.out + ran.err) is None
    if ran.code and command not in ("doctor", "verify", "repair", "report"):
        assert re.search(r"skipped|not counted|damaged|is not that of a record", ran.err), ran


@pytest.mark.parametrize("command", ENDING)
def test_an_answer_from_a_store_with_missing_messages_ends_with_1(
    command: str, incomplete: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    ran = run(*asked(command, incomplete, tmp_path))
    assert PYTHON.search(ran.out + ran.err) is None
    if command in WITHOUT_STORE:
        assert ran.code == 0
    elif command in WRITING:
        assert ran.code == 3
    elif command == "repair":
        assert ran.code == 1
    elif command == "trim":
        # Its answer is what it removes, and missing segments are not among the oldest.
        assert ran.code == 0
    else:
        assert ran.code == 1
        assert f"mqstore: {incomplete} is incomplete: commitlog/" in ran.err
        assert ("; see mqstore doctor" in ran.err) == (command not in ("doctor", "verify"))


@pytest.mark.parametrize("command", [command for command in ENDING if command not in {*WITHOUT_STORE, "import"}])
def test_what_is_no_store_ends_with_3(command: str, tmp_path: Path, run: Callable[..., Any]) -> None:
    ran = run(
        *(
            [command, tmp_path / "none", *MORE.get(command, ())]
            if command in WRITING
            else asked(command, tmp_path / "none", tmp_path)
        )
    )
    assert (ran.code, ran.out) == (3, ""), ran
    assert ran.err == f"mqstore: cannot open the store: no such directory: {tmp_path / 'none'}\n"


def test_a_store_without_a_name_is_refused_in_a_sentence(run: Callable[..., Any]) -> None:
    ran = run("info", "")
    assert (ran.code, ran.err.split("; ")) == (3, [ran.err]), ran


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_command_line_ends_with_2(command: str, broker: Path, run: Callable[..., Any]) -> None:
    assert run(command, *([] if command in WITHOUT_STORE else [broker]), "--no-such-option").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("queues", "order"),
        ("find", "--topic", "order"),
        ("find", "--topic", "order", "--key", "k"),
        ("find", "--topic", "order", "--key", "k", "--tag", "t"),
        ("cat", "order"),
        ("cat", "order/0@3"),
        ("get", "order/0@3"),
        ("tail", "order"),
        ("lag", "billin"),
        ("dead", "flaky"),
        ("export", "out.jsonl", "--topic", "order"),
        ("copy", "out", "--topic", "order"),
        ("copy", "out", "--rename", "order=old"),
        ("dump", "--entry", "order/0@3"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_not_there_ends_with_1_and_the_nearest_one(
    words: tuple[str, ...], broker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(words[0], broker, *words[1:])
    assert (ran.code, ran.out) == (1, ""), ran
    assert re.search("there is (orders|billing|flaky-group)", ran.err), ran
    assert list(tmp_path.iterdir()) == []


def test_the_home_of_a_broker_names_its_store(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    (tmp_path / "store").symlink_to(broker)
    ran = run("info", tmp_path)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.endswith(f": {tmp_path}; there is a store in {tmp_path / 'store'}\n")


def test_info_counts_what_a_missing_segment_has_taken(events: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = shutil.copytree(events, tmp_path / "store")
    whole = run("info", path, "--json").rows[0]
    assert (whole["messages"], whole["messages_lost"], whole["bytes_lost"]) == (7865, 0, 0)
    with mqstore.open(path) as store:
        rows = store.usage("segment").to_arrow().to_pylist()
        [lost] = [row["messages"] for row in rows if row["segment"] == 1 << 20]
    (path / "commitlog" / f"{1 << 20:020}").unlink()
    [got] = run("info", path, "--json").objects
    assert (got["messages"], got["messages_lost"], got["bytes_lost"]) == (7865 - lost, lost, 1 << 20)
    assert got["missing"].endswith("this segment is missing, and later ones are there: put it back")


def test_info_counts_the_missing_bytes_of_a_shortened_segment(events: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path, half = shutil.copytree(events, tmp_path / "store"), 1 << 19
    segment = path / "commitlog" / f"{1 << 20:020}"
    os.truncate(segment, half)
    [covered] = run("verify", path, "--json").objects
    [got] = run("info", path, "--json").objects
    assert (got["messages"], got["messages_lost"]) == (covered["messages"], 7865 - covered["messages"])
    [record] = [finding["offset"] for finding in covered["findings"] if finding["id"] == "log.damaged_record"]
    assert got["bytes_lost"] == (1 << 20) - record
    assert [row["bytes"] for row in run("segments", path, "--json").objects][1] == record


def test_a_damaged_log_is_refused_in_the_words_of_the_command_line(
    damaged: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    ran = run("export", damaged, tmp_path / "all.jsonl")
    assert ran.code == 1
    assert ran.err.endswith(f"; --skip-damaged leaves out what was lost or is damaged; see mqstore doctor {damaged}\n")
    assert "--skip-damaged" not in run("get", damaged, "orders/0@0").err


def test_a_refused_rebuild_names_the_repair_that_is_not_refused(damaged: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    ran = run("rebuild", damaged, "--yes")
    assert ran.code == 3
    assert "see mqstore doctor" not in ran.err
    assert ran.err.endswith(f"; mqstore repair {damaged} --into NEW --yes keeps what is whole, in a copy\n")
    assert run("repair", damaged, "--into", tmp_path / "new", "--yes").code == 0


def test_salvage_is_named_where_it_reads_more(copied: Callable[[str], Path], run: Callable[..., Any]) -> None:
    path = copied("491_crash_image")
    with (path / "commitlog" / f"{81_920:020}").open("r+b") as file:
        file.seek(4096)
        file.write(bytes(512))
    said = run("info", path)
    assert f"; --salvage reads what is whole on both sides; see mqstore doctor {path}\n" in said.err
    [got] = run("info", path, "--salvage", "--json").objects
    assert (got["messages"], got["messages_lost"], got["bytes_lost"]) == (119, 1, 815)


@pytest.mark.parametrize("is_cut_short", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_salvage_is_named_whatever_other_damage_a_crashed_store_has(
    number: int, is_cut_short: bool, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path, size = tmp_path / "store", 1 << 14
    with mqstore.open(path, "x", mapped_file_size_commit_log=size) as store:
        places = [store.append("orders", bytes(200), keys=[f"k{n}"]).physical_offset for n in range(200)]
    (path / "checkpoint").unlink()
    (path / "abort").touch()
    for place in places[10:70:20][:number]:
        with (path / "commitlog" / f"{place // size * size:020}").open("r+b") as file:
            file.seek(place % size + 100)
            file.write(b"x")
    if is_cut_short:
        os.truncate(path / "commitlog" / f"{2 * size:020}", size // 2)
    salvaged = run("info", path, "--salvage", "--json").objects[0]
    follow = f"whole messages follow in {salvaged['log_end'] - places[11]} bytes, the first at {places[11]}: they are not read"
    for words in (
        ("find", path, "--topic", "orders", "--key", "k199"),
        ("export", path, tmp_path / "all.jsonl", "--skip-damaged"),
        ("copy", path, tmp_path / "copy", "--skip-damaged"),
    ):
        ran = run(*words)
        assert (ran.code, follow in ran.err) == (1, True), ran
        assert f"; --salvage reads what is whole on both sides; see mqstore doctor {path}\n" in ran.err
    assert f"; --salvage reads what is whole on both sides; see mqstore doctor {path}\n" in run("info", path).err
    assert "k199" in run("find", path, "--topic", "orders", "--key", "k199", "--salvage").out


@pytest.mark.parametrize("more", [(), ("--topic", "orders"), ("--topic", "orders", "--key", "k"), ("--key", "k")], ids=" ".join)
def test_empty_time_range_finds_nothing_and_inverted_range_is_rejected(
    more: tuple[str, ...], broker: Path, run: Callable[..., Any]
) -> None:
    for until in ("2026-11-20T10:00Z", "2026-11-20T10:00:00.0005Z"):
        ran = run("find", broker, *more, "--since", "2026-11-20T10:00Z", "--until", until)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("mqstore: no message is found: nothing was stored in that time; the log has messages from ")
    ran = run("find", broker, *more, "--since", "2026-11-20T10:00Z", "--until", "2026-11-20T09:59Z")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("Invalid value for --until: it is before --since\n")


@pytest.mark.parametrize("words", [("find", "--since", "-1h"), ("cat", "orders"), ("tail",)], ids=" ".join)
def test_a_command_that_is_asked_for_no_message_says_so(words: tuple[str, ...], broker: Path, run: Callable[..., Any]) -> None:
    ran = run(words[0], broker, *words[1:], "-n", 0)
    assert (ran.code, ran.out) == (2, "")
    assert "0 asks for no message: expected N" in ran.err


def test_doctor_names_the_place_of_offsets_that_it_cannot_read_once(
    broker: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path = shutil.copytree(broker, tmp_path / "store")
    file = path / "config" / "consumerOffset.json"
    file.write_text('{"offsetTable": x')
    file.with_name("consumerOffset.json.bak").unlink()
    [got] = run("doctor", path, "--json").objects
    [finding] = (finding for finding in got["findings"] if finding["id"] == "consumer.not_read")
    assert (finding["file"], finding["offset"]) == (str(file), 16)
    assert str(file) not in finding["message"]


def test_doctor_reports_offsets_that_a_repair_has_set_aside(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = shutil.copytree(broker, tmp_path / "store")
    file = path / "config" / "consumerOffset.json"
    whole = file.read_bytes()
    file.write_bytes(b"")
    file.with_name("consumerOffset.json.bak").unlink()
    run("repair", path, "--yes")
    assert not file.exists()
    [got] = run("doctor", path, "--json").objects
    [finding] = (finding for finding in got["findings"] if finding["id"] == "consumer.not_read")
    assert finding["severity"] == "warning"
    assert finding["fix"].startswith("restore the file from a backup; without a backup, start the broker: ")
    file.write_bytes(whole)
    [got] = run("doctor", path, "--json").objects
    assert "consumer.not_read" not in {finding["id"] for finding in got["findings"]}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("find", "--body", "["), "--body is not a regular expression"),
        (("find", "--tag", "a && b"), '--tag is "a && b": a message has one tag'),
        (("du", "--by", "topic,topic"), '--by names "topic" twice: expected some of topic, queue_id, tags, hour, segment\n'),
        (("export", "out", "--format", "jsonl", "--partition-by", "day"), "--partition-by is ['day']: expected"),
        (("export", "out.jsonl", "--spreadsheet"), "--spreadsheet is for the format 'csv', and this one is 'jsonl'"),
        (("verify", "--max-mb-per-s", 0), "--max-mb-per-s is 0: expected more than 0"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_the_library_refuses_of_an_argument_names_its_option(
    words: tuple[object, ...], says: str, broker: Path, run: Callable[..., Any]
) -> None:
    ran = run(words[0], broker, *words[1:])
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"mqstore: {says}")
