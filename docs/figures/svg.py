"""A figure as SVG: text stays text, and the colours follow light and dark."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

#: As wide as the text of a page on a phone, in its pixels.
WIDTH = 360
STYLE = Path(__file__).with_name("style.css")


class Figure:
    """A drawing that grows downwards, of boxes, lines and texts."""

    def __init__(self, name: str, title: str) -> None:
        self.name = name
        self.title = title
        self._parts: list[str] = []
        self.height = 0.0
        self.text(12, 22, title, "title")

    def _grow(self, y: float) -> None:
        self.height = max(self.height, y)

    def text(self, x: float, y: float, text: str, classes: str = "", *, measured: bool = False) -> None:
        """Writes a line of text with its baseline at `y`. A measured text differs from one run to the next."""
        attributes = f' class="{classes}"' if classes else ""
        attributes += ' data-measured=""' if measured else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{attributes}>{escape(text, quote=False)}</text>')
        self._grow(y + 4)

    def box(self, x: float, y: float, width: float, height: float, classes: str, *, radius: float = 3) -> None:
        """Draws a rectangle."""
        self._parts.append(
            f'<rect x="{x:.5g}" y="{y:.5g}" width="{width:.5g}" height="{height:.5g}" rx="{radius:g}" class="{classes}"/>'
        )
        self._grow(y + height)

    def line(self, points: Sequence[tuple[float, float]], classes: str = "line", *, arrow: bool = False) -> None:
        """Draws a line through points, with the head of an arrow at the last one."""
        self._parts.append(f'<path class="{classes}" d="M{" L".join(f"{x:.5g} {y:.5g}" for x, y in points)}"/>')
        if arrow:
            self._head(points[-2], points[-1], classes)
        for _, y in points:
            self._grow(y)

    def arc(self, start: tuple[float, float], end: tuple[float, float], depth: float, classes: str = "line") -> None:
        """Draws an arrow that hangs below its two ends."""
        (x1, y1), (x2, y2) = start, end
        low = max(y1, y2) + depth
        self._parts.append(
            f'<path class="{classes}" d="M{x1:.5g} {y1:.5g} C{x1:.5g} {low:.5g} {x2:.5g} {low:.5g} {x2:.5g} {y2:.5g}"/>'
        )
        self._head((x2, low), end, classes)
        self._grow(low)

    def _head(self, start: tuple[float, float], end: tuple[float, float], classes: str) -> None:
        angle = math.atan2(end[1] - start[1], end[0] - start[0])
        wings = [(end[0] - 7 * math.cos(angle + turn), end[1] - 7 * math.sin(angle + turn)) for turn in (0.42, -0.42)]
        points = " ".join(f"{x:.5g},{y:.5g}" for x, y in (end, *wings))
        self._parts.append(f'<polygon points="{points}" class="head {classes}"/>')

    def svg(self, facts: dict[str, Any]) -> str:
        """Returns the file. It keeps the facts from which it was drawn."""
        height = math.ceil(self.height + 10)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" id="{self.name}" class="mqstore-figure" role="img" '
            f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH * 1.5:g}" height="{height * 1.5:g}">'
        )
        return "\n".join(
            [
                head,
                f"<title>{escape(self.title)}</title>",
                f"<metadata>{escape(json.dumps(facts), quote=False)}</metadata>",
                f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>",
                f'<rect width="{WIDTH}" height="{height}" rx="6" class="paper edge"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def duration(seconds: float) -> str:
    """Returns a duration with its unit."""
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"
