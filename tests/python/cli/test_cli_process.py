"""The command as a process: how it ends, what a terminal gets, what it needs."""

from __future__ import annotations

import errno
import io
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore
from mqstore.cli import _progress

COMMAND = [sys.executable, "-m", "mqstore"]
PLAIN = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS", "FORCE_COLOR")}


def process(*arguments: object, command: list[str] = COMMAND, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


def on_a_terminal(*arguments: object, command: list[str] = COMMAND, **environment: str) -> tuple[str, str]:
    """Returns what a command writes to a terminal of 100 columns, and to a stderr that is not a terminal."""
    terminal, its_end = pty.openpty()
    variables = PLAIN | {"TERM": "xterm", "COLUMNS": "100"} | environment
    running = subprocess.Popen(
        [*command, *map(str, arguments)], stdout=its_end, stderr=subprocess.PIPE, env=variables, stdin=subprocess.DEVNULL
    )
    os.close(its_end)
    written = b""
    while True:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # The other end is closed.
            break
        written += part
    os.close(terminal)
    return written.decode(), running.communicate()[1].decode()


def test_it_ends_with_the_exit_codes_of_the_page(golden: Path, tmp_path: Path) -> None:
    assert process("info", golden / "498_mixed").returncode == 0
    nothing = process("find", golden / "498_mixed", "--key", "none")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    looked_at = "looked at 158 messages in queues and all records that are in no queue"
    assert nothing.stderr.startswith(f"mqstore: no message is found: {looked_at}, stored from 2026-11-21 ")
    assert process("info").returncode == 2
    assert process("find", golden / "498_mixed").returncode == 2
    assert process("find", golden / "498_mixed", "--body", "(").returncode == 2
    assert process("nonsense").returncode == 2
    missing = process("info", tmp_path / "none")
    assert missing.returncode == 3
    assert missing.stderr == f"mqstore: cannot open the store: no such directory: {tmp_path / 'none'}\n"
    assert process("import", tmp_path / "none", tmp_path / "none.jsonl").returncode == 2
    assert not (tmp_path / "none").exists()


def test_a_file_that_cannot_be_read_ends_it_as_an_unopenable_store(
    golden: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    def fails(_: mqstore.Store) -> None:
        raise mqstore.StoreIOError(errno.EIO, "Input/output error", "commitlog/0")

    monkeypatch.setattr("mqstore.cli.info.facts_of", fails)
    ran = run("info", golden / "498_mixed")
    assert (ran.code, ran.out, ran.err) == (3, "", "mqstore: Input/output error: commitlog/0\n")


def test_a_mistake_of_ours_is_not_taken_for_one_of_the_command_line(
    golden: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    monkeypatch.setattr("mqstore.cli.info.facts_of", lambda _: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        run("info", golden / "498_mixed")
    assert run("find", golden / "498_mixed", "--body", "(").code == 2
    assert run("verify", golden / "498_mixed", "--max-mb-per-s", -1).code == 2


def test_a_closed_pipe_ends_it_as_it_ends_other_tools(events: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "cat", events, "broker", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        json.loads(running.stdout.readline())
        running.stdout.close()
        assert running.wait(60) == -signal.SIGPIPE
        assert running.stderr.read() == b""


def test_without_a_stdout_it_does_its_work_and_prints_nothing(golden: Path) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m mqstore info {shlex.quote(str(golden / '498_mixed'))} >&-"
    ran = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_without_a_stderr_no_error_is_taken_for_an_answer(tmp_path: Path) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m mqstore info {shlex.quote(str(tmp_path))} 2>&-"
    ran = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (3, "")


def test_ctrl_c_ends_it_as_it_ends_other_tools(events: Path) -> None:
    command = [*COMMAND, "tail", events, "broker", "-f", "-n", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == -signal.SIGINT
        assert running.stderr.read() == b""


@pytest.mark.parametrize("where", ["orders", "orders/1", None])
def test_tail_prints_what_another_process_appends(tmp_path: Path, where: str | None) -> None:
    with mqstore.open(tmp_path / "store", "a") as store:
        for number in range(5):
            store.append("orders", b"%d" % number, queue_id=1)
        command = [*COMMAND, "tail", tmp_path / "store", *([where] if where else []), "-f", "-n", "2", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            bodies = [json.loads(running.stdout.readline())["body"] for _ in range(2)]
            store.append("orders", b"elsewhere", queue_id=0)
            store.append("orders", b"new", queue_id=1)
            expected = ["3", "4", "new"] if where == "orders/1" else ["3", "4", "elsewhere", "new"]
            while len(bodies) < len(expected):
                bodies.append(json.loads(running.stdout.readline())["body"])
            running.send_signal(signal.SIGINT)
    assert bodies == expected


def test_tail_says_that_a_topic_is_not_there_and_waits_for_it(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "a") as store:
        store.append("orders", b"old")
        command = [*COMMAND, "tail", tmp_path / "store", "order", "-f", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            absent = (
                f'{tmp_path / "store"} has no topic "order"; there is orders: it is followed once its first message is stored'
            )
            assert running.stderr.readline() == f"mqstore: warning: {absent}\n"
            store.append("order", b"new")
            assert json.loads(running.stdout.readline())["body"] == "new"
            running.send_signal(signal.SIGINT)


def test_a_terminal_gets_a_table_and_a_pipe_gets_columns(broker: Path) -> None:
    drawn, piped = on_a_terminal("lag", broker, "billing")[0], process("lag", broker, "billing").stdout
    assert "\x1b[1m" in drawn
    assert "\x1b" not in piped
    rows = [line.split() for line in piped.splitlines()]
    assert rows[0] == ["group", "topic", "queue_id", "offset", "min_offset", "max_offset", "lag", "unconsumed_since"]
    assert rows[1][:4] == ["billing", "orders", "0", "255"]
    plain = on_a_terminal("lag", broker, "billing", NO_COLOR="1")[0]
    assert [line.split() for line in plain.splitlines()] == rows


def test_no_color_is_heeded(broker: Path) -> None:
    for arguments in (["lag", broker], ["cat", broker, "orders", "-n", "3"]):
        assert "\x1b" in on_a_terminal(*arguments)[0]
        assert "\x1b" not in on_a_terminal(*arguments, NO_COLOR="1")[0]


def test_what_a_message_says_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    harm = ["\x1b[2J", "\x07", "\x9b31m", "\u202e", "\u2028"]
    with mqstore.open(tmp_path / "store", "a") as store:
        store.append("[red]orders", "".join(harm).encode())
        store.append("orders", b"\xff".join(text.encode() for text in harm))
    for arguments in (["find", "--since", "-1h"], ["find", "--since", "-1h", "--json"], ["get", "0"], ["topics"]):
        command, *more = arguments
        written, _ = on_a_terminal(command, tmp_path / "store", *more, NO_COLOR="1")
        assert "[red]orders" in written
        assert not any(text in written for text in (*harm, "\x1b"))


def test_a_line_of_a_message_fits_the_terminal(events: Path) -> None:
    lines = on_a_terminal("cat", events, "broker", "-n", "5", NO_COLOR="1")[0].splitlines()
    assert len(lines) == 5
    assert all(len(line) <= 100 for line in lines)


def test_progress_is_not_shown_where_stderr_is_no_terminal(events: Path) -> None:
    assert process("du", events).stderr == ""


WITHOUT = "import sys; sys.modules[{!r}] = None; from mqstore.cli import main; main()"


def test_without_the_extra_it_says_how_to_get_it(golden: Path) -> None:
    for package, arguments in (("click", ["--help"]), ("rich", ["topics", golden / "498_mixed"])):
        written, said = on_a_terminal(*arguments, command=[sys.executable, "-c", WITHOUT.format(package)])
        assert (written, said) == (
            "",
            f"mqstore: the command line needs {package}: run pip install '.[cli]' in a checkout of mqstore\n",
        )
    ran = process("--help", command=[sys.executable, "-c", WITHOUT.format("click")])
    assert (ran.returncode, ran.stdout) == (2, "")


FIND = """
import sys
import time
before = set(sys.modules)
from mqstore.cli._main import commands
commands(["find", sys.argv[1], "--topic", "orders", "--key", sys.argv[2], "--json"], standalone_mode=False)
print(*(set(sys.modules) - before))
"""


def test_a_command_imports_no_other_command_and_no_package_but_click(broker: Path) -> None:
    with mqstore.open(broker) as store:
        key = next(message.keys[0] for message in store.topics["orders"].queues[1] if message.keys)
    printed = process(broker, key, command=[sys.executable, "-c", FIND]).stdout
    modules = printed.splitlines()[-1].split()
    own = {name for name in modules if name.startswith("mqstore.cli.") and not name.startswith("mqstore.cli._")}
    assert own == {"mqstore.cli.find"}
    assert {name.partition(".")[0] for name in modules} - sys.stdlib_module_names == {"mqstore", "click"}
    assert "pathlib" not in modules


def test_importing_the_package_imports_nothing_more() -> None:
    code = "import sys, mqstore; before = set(sys.modules); import mqstore.cli; print(*sorted(set(sys.modules) - before))"
    assert process(command=[sys.executable, "-c", code]).stdout == "gc mqstore.cli\n"


def test_completion_knows_commands_and_options() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_MQSTORE_COMPLETE" in process("completion", shell).stdout

    def completed(words: str, number: int) -> str:
        words_of_shell = {"COMP_WORDS": words, "COMP_CWORD": str(number), "_MQSTORE_COMPLETE": "bash_complete"}
        return process(env=os.environ | words_of_shell).stdout

    assert completed("mqstore de", 1).split() == ["plain,delayed", "plain,dead", "plain,demo"]
    assert completed("mqstore du store --b", 3).split() == ["plain,--by"]


def test_progress_is_shown_after_a_while_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    monkeypatch.setattr(_progress, "FIRST", 0.01)
    monkeypatch.setattr(_progress, "NEXT", 0.01)
    progress = _progress.Progress()
    progress(1, 4)
    deadline = time.monotonic() + 60
    while "reading ... 25 %" not in written.getvalue():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    progress.end()
    assert written.getvalue().endswith("\r\x1b[K")
