"""The README's Python runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_first_example_runs(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    block = re.search(r"## Python\n+```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (tmp_path / "store").symlink_to(events)
    monkeypatch.chdir(tmp_path)
    exec(compile(block[1], README, "exec"), {})
    printed = capsys.readouterr().out
    assert "rocketmq-broker" in printed
    assert "FOUND" in printed
