"""Runs stubtest. The stubs by topic are no modules at run time: each gets one here, with its names of the native module.

Without these modules stubtest compares none of the names that `_native.pyi` imports from them.
"""

from __future__ import annotations

import ast
import sys
from importlib.util import find_spec
from types import ModuleType

from mypy import stubtest
from stub_docs import STUBS

import mqstore._native as native

for stub in STUBS:
    name = f"mqstore.{stub.stem}"
    if find_spec(name) is None:
        module = ModuleType(name)
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and hasattr(native, node.name):
                setattr(module, node.name, getattr(native, node.name))
        sys.modules[name] = module

sys.exit(stubtest.main())
