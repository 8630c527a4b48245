"""The programs of docs/RECIPES.md print what the page shows, and the examples of docstrings run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mqstore

PAGE = Path(__file__).resolve().parents[2] / "docs" / "RECIPES.md"
RECIPE = re.compile(r"```python\n(?P<program>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)


def test_every_recipe_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-m", "mqstore", "demo", "store"], check=True, stdout=subprocess.DEVNULL)
    recipes = list(RECIPE.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(recipes) == PAGE.read_text(encoding="utf-8").count("```python")
    for recipe in recipes:
        exec(compile(recipe["program"], PAGE, "exec"), {})
        assert capsys.readouterr().out == recipe["output"], recipe["program"]
    for library in ("polars", "duckdb", "pandas", "pyarrow", "pyiceberg", "deltalake", "asyncio"):
        assert any(re.search(rf"\b(from |import |to_){library}\b", recipe["program"]) for recipe in recipes)


def examples() -> dict[str, doctest.DocTest]:
    """Every example in a docstring of the package, by what it is about."""
    modules = [mqstore, *(importlib.import_module(found.name) for found in pkgutil.walk_packages(mqstore.__path__, "mqstore."))]
    found = [test for module in modules for test in doctest.DocTestFinder().find(module, module.__name__)]
    native = {name: inspect.getdoc(thing) or "" for name, thing in of_native()}
    found += [doctest.DocTestParser().get_doctest(text, {}, name, None, None) for name, text in native.items()]
    return {test.name: test for test in found if test.examples}


def of_native() -> list[tuple[str, object]]:
    """The public classes and functions of the native module, and what the classes have."""
    owners = [(name, getattr(mqstore._native, name)) for name in mqstore._native.__all__]
    members = [
        (f"{name}.{member}", thing) for name, owner in owners if isinstance(owner, type) for member, thing in vars(owner).items()
    ]
    return owners + members


def test_every_example_of_a_docstring_runs() -> None:
    found = examples()
    assert found.keys() >= {"mqstore", "mqstore.aio", "mqstore.testing", "mqstore.testing._clock.Clock"}
    for test in found.values():
        assert doctest.DocTestRunner().run(test).failed == 0, test.name
