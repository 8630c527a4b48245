"""docs/TROUBLESHOOTING.md names every exception, status and remedy, and its program prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from mqstore import errors
from mqstore.testing import Broker

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "TROUBLESHOOTING.md"


def first_cells(heading: str) -> str:
    """Returns the first cells of the table below a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE))


def test_the_page_names_every_exception_and_status() -> None:
    named = set(re.findall(r"`(\w+)`", "\n".join(map(first_cells, ("Opening a store", "Reading", "Writing")))))
    classes = {name for name in errors.__all__ if name not in ("Remedy", "StoreError")}
    statuses = set(re.findall(r'"([A-Z_]{8,})"', (ROOT / "src" / "error.rs").read_text(encoding="utf-8")))
    assert len(statuses) >= 6
    assert classes | statuses <= named


def test_the_page_has_each_remedy_once() -> None:
    remedies = [name for names in get_args(errors.Remedy) for name in get_args(names)]
    assert sorted(re.findall(r"`([^`]*)`", first_cells("Remedies"))) == sorted(remedies)


def test_the_program_of_the_page_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Broker("store").close()
    [(program, output)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(program, PAGE, "exec"), {})
    assert capsys.readouterr().out == output
