"""docs/CLI.md, the help and the README say what the commands do."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore.cli import COMMANDS
from mqstore.testing import Broker

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "CLI.md").read_text(encoding="utf-8")
#: Those that print no JSON.
WITHOUT_FIELDS = {"demo", "completion"}


def fields_of_page() -> dict[str, list[str]]:
    """The names that the page lists, by command."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    message = re.search(r"^A \*message\* has the columns of every table of messages: (.*?)\.$", PAGE, re.MULTILINE | re.DOTALL)
    assert message is not None
    named = {command: re.sub(r"^one object[^:]*: |;.*|\(.*?\)", "", text) for command, text in rows}
    return {
        command: message[1].replace("\n", " ").split(", ") if text == "a message" else [name.strip() for name in text.split(",")]
        for command, text in named.items()
    }


@pytest.fixture
def store(mqstore_broker: Broker) -> Path:
    """A store with something for each command."""
    order = mqstore_broker.send("orders", b'{"order": 1}', tags="paid", keys=["o-1"])
    mqstore_broker.send("reminders", b"pay", delay_level=3)
    mqstore_broker.send_half("payments", b"10 EUR", group="tellers")
    mqstore_broker.send_back(order, "billing", delay_level=-1)
    mqstore_broker.commit_offset("billing", "orders", 0, 7)
    mqstore_broker.persist()
    return Path(mqstore_broker.path)


def arguments_of(command: str, store: Path, folder: Path) -> list[object]:
    more: dict[str, list[object]] = {
        "find": ["--tag", "paid"],
        "cat": ["orders"],
        "get": [0],
        "dump": [0],
        "du": ["--by", "topic,queue,tag,hour,segment"],
        "consume": ["orders", "--group", "shipping"],
        "resend": ["billing"],
        "export": [folder / "all.jsonl"],
        "copy": [folder / "copy", "--topic", "orders"],
        "import": [folder / "all.jsonl"],
        "diff": [folder / "copy"],
        "trim": ["--before", "3d"],
        "report": ["-o", folder / "page.html"],
    }
    if command == "trace":
        with mqstore.open(store) as reader:
            more[command] = [reader.topics["orders"].queues[0][0].message_id]
    written = {"import": folder / "new", "rebuild": folder / "copy"}
    if command in ("consume", "resend"):
        # The broker of the test has the store open.
        written[command] = shutil.copytree(store, folder / command)
    return [written.get(command, store), *more.get(command, []), "--json"]


def test_the_fields_of_json_are_those_of_the_page(store: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    page = fields_of_page()
    assert list(page) == [command for command in COMMANDS if command not in WITHOUT_FIELDS]
    for command, names in page.items():
        if command in ("replicate", "tap"):
            # It ends with a signal: test_cli_replicate compares its fields.
            continue
        ran = run(command, *arguments_of(command, store, tmp_path))
        assert ran.out, (command, ran)
        row = json.loads(ran.out.splitlines()[0])
        if command == "du":
            names = ["topic", "queue_id", "tags", "hour", "segment", *names[1:]]
        assert list(row) == names, command
        if "findings" in names:
            fields = re.search(r"; a finding has (.*?) \|", PAGE)
            assert fields is not None
            assert list(row["findings"][0]) == fields[1].split(", ")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits_a_screen_and_has_an_example(command: str, run: Callable[..., Any]) -> None:
    lines = run(command, "--help").out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(f"  mqstore {command}") for line in lines)
    assert run(command, "-h").out.splitlines() == lines


def test_the_help_names_every_command_in_one_line(run: Callable[..., Any]) -> None:
    lines = run("--help").out.splitlines()
    for command in COMMANDS:
        [line] = [line for line in lines if line.startswith(f"  {command} ")]
        assert line.endswith(".")
        assert not line.endswith("...")


def test_an_unknown_command_is_answered_with_the_closest_one(run: Callable[..., Any]) -> None:
    ran = run("topic", "store")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("there is no command topic; there is topics\n")
    assert run("xyz").err.endswith("there is no command xyz\n")


def test_the_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("demo", "store").code == 0
    section = re.search(
        r"^## Command line\n.*?```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert section is not None
    lines = [shlex.split(line, comments=True) for line in section[1].splitlines()]
    assert len(lines) >= 8
    for words in lines:
        assert words[0] == "mqstore"
        ran = run(*(word for word in words[1:] if word != "-f"))
        assert (ran.code, bool(ran.out)) == (0, True), words


def test_demo_makes_a_store_and_names_three_commands_that_run(tmp_path: Path, run: Callable[..., Any]) -> None:
    made = run("demo", tmp_path / "kept")
    assert (made.code, made.err) == (0, "")
    lines = [shlex.split(line) for line in made.out.splitlines() if line.startswith("mqstore ")]
    assert len(lines) == 3
    for words in lines:
        ran = run(*words[1:])
        assert (ran.code, bool(ran.out), ran.err) == (0, True, ""), words
    assert run("cat", tmp_path / "kept", "orders", "--json").rows[0]["body"] == '{"order": 1, "city": "Lima"}'


def test_demo_refuses_a_directory_that_is_not_empty(tmp_path: Path, run: Callable[..., Any]) -> None:
    (tmp_path / "note").touch()
    refused = run("demo", tmp_path)
    assert (refused.code, refused.out, refused.err.endswith(f": {tmp_path}\n")) == (1, "", True)
    assert [file.name for file in tmp_path.iterdir()] == ["note"]
    assert run("demo", tmp_path / "kept").code == 0
    inside = run("demo", tmp_path / "kept" / "commitlog" / "more")
    assert (inside.code, inside.out) == (2, "")
    assert inside.err.endswith(f"lies in the store {tmp_path / 'kept'}: name a directory beside it\n")


def test_demo_without_a_directory_shows_what_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    walk = run("demo")
    assert (walk.code, walk.err, walk.out.count("\n$ mqstore ")) == (0, "", 11)
    assert list(tmp_path.iterdir()) == []


TIMES = [
    (["2026-11-20 10:00", "--utc"], datetime(2026, 11, 20, 10, tzinfo=UTC)),
    (["2026-11-20T10:00Z"], datetime(2026, 11, 20, 10, tzinfo=UTC)),
    (["2026-11-20 10:00:00.500+02:00"], datetime(2026, 11, 20, 8, 0, 0, 500_000, tzinfo=UTC)),
    (["1795000000000"], datetime.fromtimestamp(1_795_000_000, UTC)),
]


@pytest.mark.parametrize(("given", "meant"), TIMES)
def test_a_time_is_taken_in_each_form(tmp_path: Path, given: list[str], meant: datetime, run: Callable[..., Any]) -> None:
    with Broker(tmp_path / "store") as broker:
        for shift in (-1, 0):
            broker.clock.now = meant + timedelta(milliseconds=shift)
            broker.send("orders", b"%d" % shift)
    assert [row["body"] for row in run("cat", tmp_path / "store", "orders", "--since", *given, "--json").rows] == ["0"]
    assert [row["body"] for row in run("cat", tmp_path / "store", "orders", "--until", *given, "--json").rows] == ["-1"]


def test_a_time_is_counted_back_from_now(tmp_path: Path, run: Callable[..., Any]) -> None:
    with Broker(tmp_path / "store") as broker:
        for hours in (3, 1):
            broker.clock.now = datetime.now(UTC) - timedelta(hours=hours)
            broker.send("orders", b"%d" % hours)
    for ago in ("-2h", "2h"):
        assert [row["body"] for row in run("cat", tmp_path / "store", "orders", "--since", ago, "--json").rows] == ["1"]
    seconds = run("cat", tmp_path / "store", "orders", "--since", "1795000000")
    assert seconds.code == 2
    assert "'1795000000' is too small for ms since 1970: for seconds write 1795000000000" in seconds.err
    wrong = run("cat", tmp_path / "store", "orders", "--since", "yesterday")
    assert wrong.code == 2
    assert "'yesterday' is not a time: expected 2026-11-20 10:00, -2h (s, m, h, d, w) or ms since 1970" in wrong.err


def test_times_are_local_or_utc(store: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        local, utc = run("cat", store, "orders"), run("cat", store, "orders", "--utc")
        assert local.out.startswith("2026-01-01 09:00:00.000  orders/0@0  paid  o-1  ")
        assert utc.out.startswith("2026-01-01 00:00:00.000  ")
        assert run("cat", store, "orders", "--json").rows[0]["store_time"] == "2026-01-01T00:00:00.000Z"
        assert run("find", store, "--since", "2026-01-01 09:00", "--until", "2026-01-01 09:01").code == 0
        assert run("find", store, "--since", "2026-01-01 09:00", "--utc").code == 1
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_body_is_text_json_or_base64(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    for body in (b'{"a": [1, null]}', b"text", b"\xff\x00", b"NaN"):
        mqstore_broker.send("orders", body, queue_id=0)

    def bodies(*how: str) -> list[object]:
        return [row["body"] for row in run("cat", mqstore_broker.path, "orders", "--json", *how).rows]

    assert bodies() == bodies("--body-as", "text") == ['{"a": [1, null]}', "text", "\ufffd\0", "NaN"]
    assert bodies("--body-as", "json") == [{"a": [1, None]}, "text", "\ufffd\0", "NaN"]
    assert bodies("--body-as", "base64") == ["eyJhIjogWzEsIG51bGxdfQ==", "dGV4dA==", "/wA=", "TmFO"]
    lines = run("cat", mqstore_broker.path, "orders").out.splitlines()
    assert [line.rpartition("  ")[2] for line in lines] == ['{"a": [1, null]}', "text", r"b'\xff\x00'", "NaN"]


def test_every_export_of_dead_letters_decompresses_their_bodies(run: Callable[..., Any]) -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))]
    texts += [" ".join(run(command, "--help").out.split()) for command in ("dead", "export")]
    exports = [found for text in texts for found in re.findall(r"mqstore export \S+ \S+ --topic %DLQ%[^`\n]*", text)]
    assert len(exports) >= 3
    assert [found for found in exports if "--decode-body" not in found] == []
