"""A plot of ratios as SVG: bars on a logarithmic axis, with a line at 1.0 and a tick at each target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

#: In pixels.
WIDTH, NAMES, LINE, TOP = 900, 420, 18, 40
TICKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
REACHED, MISSED, LIMIT = "#3a7d44", "#c25b3f", "#222222"


@dataclass(frozen=True)
class Bar:
    """A name, its ratio, and its target."""

    name: str
    ratio: float
    wanted: float | None = None

    @property
    def is_reached(self) -> bool:
        """Returns true if the ratio reaches its target."""
        return self.ratio >= (self.wanted or 0)


def of_ratios(bars: list[Bar]) -> str:
    """Returns the plot as SVG."""
    ticks = ticks_around([bar.ratio for bar in bars])
    low, high = math.log(ticks[0]), math.log(ticks[-1])

    def x(ratio: float) -> float:
        part = (math.log(max(ratio, ticks[0])) - low) / (high - low)
        return round(NAMES + min(part, 1.0) * (WIDTH - NAMES - 60), 1)

    height = TOP + LINE * len(bars) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{NAMES}" y="14">ratio to the limit = 1.0 (logarithmic; a tick is what is wanted)</text>',
    ]
    for tick in ticks:
        colour, width = (LIMIT, 2) if tick == 1 else ("#dddddd", 1)
        parts.append(
            f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{TOP - 8}" y2="{height - 10}" stroke="{colour}" stroke-width="{width}"/>'
        )
        parts.append(f'<text x="{x(tick)}" y="{TOP - 12}" text-anchor="middle" fill="#555555">{tick:g}</text>')
    for number, bar in enumerate(bars):
        parts += of_bar(bar, TOP + LINE * number, x(ticks[0]), x(bar.ratio), x(bar.wanted) if bar.wanted else None)
    return "\n".join([*parts, "</svg>"]) + "\n"


def of_bar(bar: Bar, y: int, start: float, end: float, wanted: float | None) -> list[str]:
    """Draws the name, the bar, its value and the tick."""
    colour = REACHED if bar.is_reached else MISSED
    parts = [
        f'<text x="{NAMES - 6}" y="{y + 12}" text-anchor="end">{escape(bar.name)}</text>',
        f'<rect x="{start}" y="{y + 3}" width="{round(end - start, 1)}" height="{LINE - 6}" fill="{colour}"/>',
        f'<text x="{end + 4}" y="{y + 12}" fill="#555555">{bar.ratio:.2f}</text>',
    ]
    if wanted is not None:
        parts.append(f'<line x1="{wanted}" x2="{wanted}" y1="{y + 1}" y2="{y + LINE - 1}" stroke="{LIMIT}" stroke-width="2"/>')
    return parts


def ticks_around(ratios: list[float]) -> list[float]:
    """Returns the range of ticks that includes all ratios and 1."""
    least, most = min([*ratios, 0.5]), max([*ratios, 2.0])
    first = max((tick for tick in TICKS if tick <= least), default=TICKS[0])
    last = min((tick for tick in TICKS if tick >= most), default=TICKS[-1])
    return [tick for tick in TICKS if first <= tick <= last]
