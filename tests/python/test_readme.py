"""The README's Python runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def python_of(section: str) -> list[str]:
    text = re.search(rf"^## {section}\n(.*?)^## ", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert text is not None
    return re.findall(r"```python\n(.*?)```", text[1], re.DOTALL)


def test_the_examples_run(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = python_of("Python")
    (tmp_path / "store").symlink_to(events)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(reading, README, "exec"), names)
    printed = capsys.readouterr().out
    assert "rocketmq-broker" in printed
    assert "FOUND" in printed
    exec(compile(writing, README, "exec"), names)
    assert re.fullmatch(r"[0-9A-F]{32} b'two'\n", capsys.readouterr().out)
