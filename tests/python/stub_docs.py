"""The docstrings of the stubs, which editors show: those of the native module. Run it to write them into the stubs."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import mqstore
import mqstore._native as native

#: `_native.pyi` lists the names of the native module; the others declare them, by topic.
STUBS = sorted(Path(mqstore.__file__).parent.glob("*.pyi"))
WIDTH = 124

Documented = ast.FunctionDef | ast.ClassDef


def public(tree: ast.Module) -> Iterator[tuple[str, Documented, str | None]]:
    """Yields each public class, function, method and property of a stub: name, node, and the text of the native module."""
    owners = set()
    for owner in tree.body:
        # Of several overloads the first one has the text.
        if not isinstance(owner, Documented) or owner.name.startswith("_") or owner.name in owners:
            continue
        owners.add(owner.name)
        of_runtime = getattr(native, owner.name)
        yield owner.name, owner, inspect.getdoc(of_runtime)
        seen = set()
        for node in owner.body if isinstance(owner, ast.ClassDef) else []:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in seen:
                seen.add(node.name)
                yield f"{owner.name}.{node.name}", node, inspect.getdoc(getattr(of_runtime, node.name))


def words(text: str | None) -> str:
    return " ".join((text or "").split())


def filled(part: str, width: int) -> str:
    """A paragraph in lines of the width. A section of numpy's style keeps its lines."""
    if re.search(r"^(-{3}| )", part, re.M):
        return part
    return textwrap.fill(words(part), width, break_long_words=False, break_on_hyphens=False)


def written(text: str, indent: str) -> str:
    paragraphs = [filled(part, WIDTH - len(indent)) for part in text.split("\n\n")]
    lines = "\n\n".join(paragraphs).splitlines()
    body = "\n".join(f"{indent}{line}".rstrip() for line in lines)
    end = f"\n{indent}" if len(lines) > 1 else ""
    return f'{indent}"""{body.removeprefix(indent)}{end}"""\n'


def write(stub: Path) -> None:
    """Writes the texts of the native module into a stub."""
    source = stub.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for _, node, text in sorted(public(ast.parse(source)), key=lambda entry: -entry[1].lineno):
        first = node.body[0]
        docstring = written(text or "", " " * (node.col_offset + 4))
        is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        if not is_text:
            decorators = getattr(first, "decorator_list", [])
            lines.insert(min([first.lineno, *(decorator.lineno for decorator in decorators)]) - 1, docstring)
        elif first.lineno == node.lineno or lines[first.lineno - 1].strip() != "...":
            head = lines[first.lineno - 1][: first.col_offset].rstrip()
            lines[first.lineno - 1 : first.end_lineno] = [f"{head}\n" if head else "", docstring]
        else:
            lines[first.lineno - 1] = docstring
    stub.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    for each in STUBS:
        write(each)
