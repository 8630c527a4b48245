"""The commands and programs of docs/GETTING_STARTED.md print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shell import printed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "GETTING_STARTED.md"
BLOCK = re.compile(r"```(?P<language>sh|python)\n(?P<program>(?:(?!```).)*)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)


def shown_tests() -> str:
    """Returns the tests that the page shows."""
    [program] = re.findall(r"```python\n(def test_.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(program)


def test_each_block_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    # The others are the command that installs, and the tests, which test_testing.py runs.
    assert len(blocks) == text.count("```sh") + text.count("```python") - 2 == 5
    for block in blocks:
        if block["language"] == "sh":
            assert printed(block["program"], tmp_path) == block["output"], block["program"]
        else:
            exec(compile(block["program"], PAGE, "exec"), {})
            assert capsys.readouterr().out == block["output"], block["program"]
