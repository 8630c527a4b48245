"""The texts of an editor and of `help` about the package."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stub_docs import STUBS, Documented, public, words

import mqstore
from mqstore import _reports


def entries_of_stubs() -> list[tuple[str, Documented, str | None]]:
    return [entry for stub in STUBS for entry in public(ast.parse(stub.read_text(encoding="utf-8")))]


def test_the_stubs_have_the_docstrings_of_the_native_module() -> None:
    entries = entries_of_stubs()
    assert len(entries) > 100
    assert [name for name, _, text in entries if not text] == []
    wrong = [name for name, node, text in entries if words(ast.get_docstring(node)) != words(text)]
    assert wrong == [], "run tests/python/stub_docs.py"


def test_the_stub_of_a_status_has_the_words_of_the_core() -> None:
    source = Path(__file__).resolve().parents[2] / "src" / "store" / "append_result.rs"
    words_of_core = re.findall(r'Self::\w+ => "([A-Z_]+)"', source.read_text(encoding="utf-8"))
    [status] = [node for name, node, _ in entries_of_stubs() if name == "AppendResult.status"]
    assert isinstance(status, ast.FunctionDef)
    assert status.returns is not None
    words_of_stub = ast.literal_eval(status.returns.slice) if isinstance(status.returns, ast.Subscript) else ()
    assert len(words_of_core) == 4
    assert list(words_of_stub) == words_of_core


def parameters_of(node: ast.FunctionDef) -> set[str]:
    """The names of the parameters of a call, without `self`."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    return {argument.arg for argument in arguments if argument} - {"self", "cls"}


def described_parameters(node: ast.FunctionDef) -> set[str]:
    """The names in the section `Parameters` of a docstring in numpy's style."""
    section = re.search(r"^Parameters\n-{10}\n(.*?)(?=\n\n|\Z)", ast.get_docstring(node) or "", re.M | re.S)
    heads = re.findall(r"^[^ ].*", section[1], re.M) if section else []
    return {name.lstrip("*") for head in heads for name in head.partition(" : ")[0].split(", ")}


def test_every_call_with_several_parameters_describes_each_in_a_section() -> None:
    calls = {name: node for name, node, _ in entries_of_stubs() if isinstance(node, ast.FunctionDef)}
    several = {name: node for name, node in calls.items() if len(parameters_of(node)) > 1}
    assert len(several) > 40
    assert [name for name, node in several.items() if not described_parameters(node)] == []
    left_out = {name: parameters_of(node) - described_parameters(node) for name, node in several.items()}
    assert {name: names for name, names in left_out.items() if names} == {}
    # A call that takes options by name may describe those that matter most.
    closed = {name: node for name, node in several.items() if not node.args.kwarg}
    unknown = {name: described_parameters(node) - parameters_of(node) for name, node in closed.items()}
    assert {name: names for name, names in unknown.items() if names} == {}


def test_help_has_a_text_for_every_member_of_a_report_that_fits_a_terminal() -> None:
    fields = 0
    for owner in (getattr(mqstore, name) for name in _reports.__all__):
        text = inspect.getdoc(owner) or ""
        assert max(map(len, text.splitlines())) <= 96
        described = re.findall(r"^(\w+) : .+\n    \S", text, re.M)
        assert described == [field.name for field in dataclasses.fields(owner)], owner
        fields += len(described)
        members = [getattr(owner, name) for name in vars(owner) if not name.startswith("_") and name not in described]
        assert all(inspect.getdoc(member) for member in members), owner
        assert f"{described[0]} : " in pydoc.plaintext.document(owner)
    assert fields > 60


def test_no_class_has_more_names_of_its_own_than_a_user_keeps_in_mind() -> None:
    classes = {name: item for name in mqstore.__all__ if isinstance(item := getattr(mqstore, name), type)}
    own = {name: sum(not attribute.startswith("_") for attribute in vars(item)) for name, item in classes.items()}
    # A report or config has a field a fact, and a message those of RocketMQ.
    plain = {name for name, item in classes.items() if dataclasses.is_dataclass(item)} | {"Message"}
    assert own["Store"] > 20
    # A Writer shares `consumer` with the Store: the one keeps progress in the store, the other in a file.
    most = {"Store": 27}
    assert {name: count for name, count in own.items() if count > most.get(name, 26) and name not in plain} == {}


def test_the_help_of_every_public_name_fits_a_terminal() -> None:
    assert [name for name, _, text in entries_of_stubs() if max(map(len, (text or "").splitlines()), default=0) > 100] == []


def test_every_public_name_of_the_package_has_a_docstring() -> None:
    assert [name for name in mqstore.__all__ if name != "__version__" and not inspect.getdoc(getattr(mqstore, name))] == []


def test_the_help_of_the_package_begins_with_a_session_that_runs() -> None:
    head = (mqstore.__doc__ or "").splitlines()[:30]
    for call in ("mqstore.open(", ".append(", ".topics[", ".query(", ".recovery"):
        assert any(call in line for line in head), call
    result = doctest.testmod(mqstore)
    assert (result.attempted, result.failed) == (4, 0)


#: Each line after the first has one name that the package does not have.
MISSPELLED = """import mqstore
from mqstore import Nope
mqstore.opne("store")
reveal_type(mqstore.nothing)
"""


@pytest.mark.parametrize("checker", [["mypy", "--strict", "--config-file=", "--follow-imports=silent"], ["basedpyright"]])
def test_type_checkers_report_each_name_that_the_package_does_not_have(tmp_path: Path, checker: list[str]) -> None:
    source, packages = tmp_path / "misspelled.py", str(Path(mqstore.__file__).parents[1])
    source.write_text(MISSPELLED)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [packages]}))
    run = subprocess.run(
        [sys.executable, "-m", *checker, source.name],
        env=os.environ | {"MYPYPATH": packages},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    errors = [line for line in run.stdout.splitlines() if "error:" in line]
    unreported = [line for line in (2, 3, 4) if not any(f"py:{line}:" in error for error in errors)]
    assert unreported == [], run.stdout + run.stderr


def test_the_package_lists_no_helper_of_its_own() -> None:
    listed = {name for name in dir(mqstore) if not name.startswith("_") and not inspect.ismodule(getattr(mqstore, name))}
    assert listed - {"annotations"} == {name for name in mqstore.__all__ if not name.startswith("_")}
