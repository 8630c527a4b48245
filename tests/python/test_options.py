"""The signature of `open` and the stub against docs/CONFIG.md, which the Rust tests compare with the table of options."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from stub_docs import STUB

import mqstore

PAGE = Path(__file__).resolve().parents[2] / "docs" / "CONFIG.md"


def documented() -> dict[str, object]:
    """The default of each option on the page, in order."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return {row[0].strip("|` "): ast.literal_eval(row[3].strip("`")) for row in rows}


def test_the_signature_of_open_has_each_option_with_its_default() -> None:
    parameters = inspect.signature(mqstore.open).parameters.values()
    given = {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    assert len(given) > 30
    assert given == documented()


def test_the_stub_of_open_has_each_option_with_its_default() -> None:
    functions = [node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    arguments = next(node.args for node in functions if node.name == "open")
    defaults = [ast.literal_eval(default) for default in arguments.kw_defaults if default is not None]
    assert dict(zip([argument.arg for argument in arguments.kwonlyargs], defaults, strict=True)) == documented()
