"""The README's Python runs unchanged, and each way to install that a page or a message names works."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


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


def test_pages_and_messages_name_a_way_to_install_that_works() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pages = [README, *(ROOT / "docs" / f"{name}.md" for name in ("CLI", "OPERATING", "RECIPES", "SPARK"))]
    sources = [*(ROOT / "python").rglob("*.py"), *(ROOT / "src").rglob("*.rs"), *(ROOT / "spark_examples").rglob("*.py")]
    of_checkout = re.compile(r"(?:\.|PATH-OF-THE-WHEEL)(?:\[([a-z,]+)\])?")
    wrong = []
    for path in [*pages, *sources]:
        named = re.findall(r"pip\s+install\s+('[^']*'|[\w.]+)", path.read_text(encoding="utf-8"))
        assert named or path not in pages, path
        for what in named:
            found = of_checkout.fullmatch(what.strip("'"))
            # The package index has no mqstore.
            if "mqstore" in what or (found and found[1] and not set(found[1].split(",")) <= extras.keys()):
                wrong.append(f"{path.relative_to(ROOT)}: pip install {what}")
    assert wrong == []
