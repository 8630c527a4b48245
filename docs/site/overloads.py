"""A Griffe extension: a stub's function that has overloads only is a member of its module or class, too."""

from __future__ import annotations

import ast
from typing import Any

import griffe


class StubOverloads(griffe.Extension):
    """Adds functions that a stub declares by overloads alone, which Griffe takes for no members."""

    def on_members(self, *, node: ast.AST | griffe.ObjectNode, obj: griffe.Object, **_: Any) -> None:
        """Adds for each name the overload with a docstring, which has the others beside it."""
        if not isinstance(obj, griffe.Module | griffe.Class):
            return
        for name, overloads in obj.overloads.items():
            if name not in obj.members and overloads:
                shown = next((overload for overload in overloads if overload.docstring), overloads[0])
                shown.overloads = list(overloads)
                obj.set_member(name, shown)
