"""The files in `config` as a broker writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(path: Path, value: dict[str, Any]) -> None:
    """Writes a file and, as a broker that wrote it twice, its `.bak`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for file in (path, path.with_name(f"{path.name}.bak")):
        file.write_text(fastjson(value), encoding="utf-8")


def fastjson(value: object, indent: str = "") -> str:
    """JSON as fastjson prints it for a broker: with tabs, and without quotes around numbers that are names of a map."""
    match value:
        case dict() if value and all(isinstance(key, int) for key in value):
            return "{" + ",".join(f"{key}:{item}" for key, item in value.items()) + f"\n{indent}}}"
        case dict() if value:
            deeper = indent + "\t"
            lines = (f"\n{deeper}{json.dumps(key, ensure_ascii=False)}:{fastjson(item, deeper)}" for key, item in value.items())
            return "{" + ",".join(lines) + f"\n{indent}}}"
        case _:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
