"""The figure of the architecture: the modules that `src/lib.rs` declares, and which of them import which."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from svg import Figure

SOURCE = Path(__file__).resolve().parents[2] / "src"

#: A few words on each module. A test compares the names with src/lib.rs.
WORDS = {
    "bindings": "Python classes",
    "arrow": "batches of messages",
    "ha": "replication to slaves",
    "broker": "groups, delays, retention",
    "check": "verify, repair, rebuild",
    "store": "the writing process",
    "read": "read, query, scan",
    "pipeline": "parts in threads",
    "services": "dispatch, flush, stamps",
    "recovery": "end of the log",
    "log": "log, queues, index files",
    "storage": "files, mappings, guard",
    "interrupt": "cancels long calls",
    "watermark": "waits for an offset",
    "sync": "locks and atomics",
    "config": "options",
    "error": "errors",
    "remedy": "what helps",
    "format": "bytes alone",
}


def facts(_: Path) -> dict[str, Any]:
    """Reads the modules in the order of their declaration, and the imports of each."""
    declared = re.findall(
        r"^(?:pub(?:\([a-z]+\))? )?mod ([a-z_]+);", (SOURCE / "lib.rs").read_text(encoding="utf-8"), re.MULTILINE
    )
    imports = {}
    for module in declared:
        files = [SOURCE / f"{module}.rs"] if (SOURCE / f"{module}.rs").exists() else sorted((SOURCE / module).rglob("*.rs"))
        text = "\n".join(re.sub(r"//.*", "", file.read_text(encoding="utf-8")) for file in files)
        named = set(re.findall(r"\bcrate::([a-z_]+)", text))
        for group in re.findall(r"\bcrate::\{(.*?)\};", text, re.DOTALL):
            named |= set(re.findall(r"(?:^|,)\s*([a-z_]+)", re.sub(r"\{[^{}]*\}", "", group)))
        imports[module] = [other for other in declared if other in named and other != module]
    return {"modules": declared, "imports": imports}


def draw(facts: dict[str, Any]) -> Figure:
    """Draws the modules from the highest to the lowest, with a dot for each module below that one imports."""
    figure = Figure("architecture", "The modules, from the highest to the lowest")
    order = list(reversed(facts["modules"]))
    top, step, left = 132, 21, 216
    pitch = (346 - left) / len(order)
    for number, module in enumerate(order):
        y = top + step * number
        figure.box(12, y - 14, left - 20, step - 3, f"{kind(module)} edge")
        figure.text(18, y - 1, module, "small bold")
        figure.text(left - 13, y - 1, WORDS[module], "small end")
        figure.line([(left, y - 5), (left + pitch * (number + 0.5), y - 5)], "thin")
        x = left + pitch * (number + 0.5)
        figure.line([(x, y - 5), (x, top + step * len(order) - 16)], "thin")
        for below in facts["imports"][module]:
            figure.box(left + pitch * (order.index(below) + 0.5) - 2.5, y - 7.5, 5, 5, "ink", radius=2.5)
    figure.text(12, 44, "A dot: the module of this row imports that of this column. Columns", "small soft")
    figure.text(12, 57, "are in the order of the rows; a line leads from a row to its column.", "small soft")
    figure.text(12, 70, "No dot is left of the lines: imports point down.", "small soft")
    for number, (name, text) in enumerate((("e", "faces"), ("a", "stores"), ("b", "files"), ("f", "foundations"))):
        figure.box(12 + 80 * number, 88, 10, 10, f"{name} edge", radius=1)
        figure.text(27 + 80 * number, 97, text, "small")
    return figure


def kind(module: str) -> str:
    """Returns the colour of a module."""
    for color, modules in (
        ("e", ("bindings", "arrow")),
        ("a", ("ha", "broker", "check", "store", "read", "pipeline", "services", "recovery")),
    ):
        if module in modules:
            return color
    return "b" if module in ("log", "storage") else "f"
