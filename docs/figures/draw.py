"""Draws the figures of the pages from stores that it makes: `python docs/figures/draw.py [NAME ...]`.

A figure is a pair of functions: one makes a store and reads the facts from it, the other draws them. The facts are also in
the file, as JSON, where `tests/python/test_figures.py` compares them with a store.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import architecture
import on_disk
import page_cache
import recovery
import time_lines
from svg import Figure

HERE = Path(__file__).parent

FIGURES: dict[str, tuple[Callable[[Path], dict[str, Any]], Callable[[dict[str, Any]], Figure]]] = {
    "architecture": (architecture.facts, architecture.draw),
    "store-layout": (on_disk.layout_facts, on_disk.draw_layout),
    "record": (on_disk.record_facts, on_disk.draw_record),
    "queue-and-index": (on_disk.index_facts, on_disk.draw_index),
    "checkpoint": (on_disk.checkpoint_facts, on_disk.draw_checkpoint),
    "write-sequence": (time_lines.write_facts, time_lines.draw_write),
    "flush-modes": (time_lines.mode_facts, time_lines.draw_modes),
    "group-commit": (time_lines.group_facts, time_lines.draw_groups),
    "recovery-decision": (recovery.facts, recovery.draw),
    "page-cache": (page_cache.facts, page_cache.draw),
}


def drawn(name: str) -> str:
    """Returns a figure as SVG, from a store that is made for it."""
    facts, draw = FIGURES[name]
    with tempfile.TemporaryDirectory(dir=HERE) as work:
        found = facts(Path(work))
    return draw(found).svg(found)


def main() -> None:
    """Draws the figures that the command line names, or all of them."""
    for name in sys.argv[1:] or FIGURES:
        (HERE / f"{name}.svg").write_text(drawn(name), encoding="utf-8")
        print(f"wrote docs/figures/{name}.svg")


if __name__ == "__main__":
    main()
