"""The README's programs run, its figures are those of the benchmarks, and each way to install that a page names works."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqstore.cli._main import commands

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


BENCHMARKS = ROOT / "docs" / "BENCHMARK_ROWS.md"
#: A row of the table of speed: the section of the benchmarks, the unit, the figures.
ROW = re.compile(r"^\| \[[^]]*\]\(docs/BENCHMARK_ROWS\.md#(\w+)\)[^|]*\| ([^|]*) \|(.*)\|$", re.MULTILINE)


def section(page: str, heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[1]


def test_the_programs_of_the_readme_run_on_the_store_of_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(commands, ["demo", "store"]).exit_code == 0
    [program] = re.findall(r"```python\n(.*?)```", section(README.read_text(encoding="utf-8"), "Python"), re.DOTALL)
    exec(compile(program, README, "exec"), {})
    printed = capsys.readouterr().out
    assert """['o-7'] b'{"order": 7, "city": "Lima"}'\nFOUND """ in printed
    assert printed.endswith("\n5\n")


def test_the_readme_has_at_most_120_lines() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_each_figure_of_speed_in_the_readme_is_one_of_the_benchmarks() -> None:
    text, benchmarks = README.read_text(encoding="utf-8"), BENCHMARKS.read_text(encoding="utf-8")
    rows = ROW.findall(section(text, "Speed"))
    assert len(rows) == 8
    for name, unit, figures in rows:
        measured = [re.split(r" *\| *| \(", line) for line in section(benchmarks, name).splitlines()]
        wanted = {unit, *figures.replace("|", " ").split()}
        assert any(wanted <= set(cells) for cells in measured), (name, wanted)


def test_pages_and_messages_name_a_way_to_install_that_works() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pages = [README, *(ROOT / "docs" / f"{name}.md" for name in ("CLI", "GETTING_STARTED", "OPERATING", "RECIPES", "SPARK"))]
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
