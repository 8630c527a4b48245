"""The programs and commands of docs/EMBEDDED_QUEUE.md and docs/REPLICATION.md print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shell import printed
from test_getting_started import BLOCK

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(("name", "least"), [("EMBEDDED_QUEUE.md", 6), ("REPLICATION.md", 1)])
def test_each_block_of_the_page_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, least: int
) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / name
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == len(re.findall("```(?:sh|python)\n", text)) >= least
    for block in blocks:
        if block["language"] == "sh":
            assert printed(block["program"], tmp_path) == block["output"], block["program"]
        else:
            exec(compile(block["program"], page, "exec"), {})
            assert capsys.readouterr().out == block["output"], block["program"]
