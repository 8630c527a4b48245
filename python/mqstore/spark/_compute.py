"""The compute functions of pyarrow. pyarrow creates them at its import, so type checkers do not know them."""

from __future__ import annotations

import importlib
from typing import Any

pc: Any = importlib.import_module("pyarrow.compute")
