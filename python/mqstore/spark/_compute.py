"""pyarrow's compute functions. pyarrow makes them when it is imported, so no type checker knows them."""

from __future__ import annotations

import importlib
from typing import Any

pc: Any = importlib.import_module("pyarrow.compute")
