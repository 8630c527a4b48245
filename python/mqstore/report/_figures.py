"""The figures of a report, as SVG inside a page, with the colours of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

#: A figure is as wide as the text of the page, in its pixels.
WIDTH = 960
#: Variables of the page's style. A plotting library takes no variable, so each is drawn as a colour that stands for it.
COLORS = ("ink", "soft", "bad", "rest", "c0", "c1", "c2", "c3", "c4", "c5")
_STANDS_FOR = {name: f"#{0x0A0B00 + number:06x}" for number, name in enumerate(COLORS)}
#: Those of the groups that a figure names.
NAMED = COLORS[4:]

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mqstore",
    "text.parse_math": False,  # the name of a topic may have dollars
    "font.size": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 13,
    "grid.linewidth": 0.8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "hatch.linewidth": 0.8,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _STANDS_FOR["ink"]),
    **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), _STANDS_FOR["soft"]),
}


def size(number: float, _: object = None) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if number >= 100 or number == int(number) else f"{number:.1f} {unit}"


def amount(number: float, _: object = None) -> str:
    """A count for people."""
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def bars(names: Sequence[str], values: Sequence[int], shown: Callable[[float], str], last_is_rest: bool) -> str:
    """A bar a name, with its value and share at its end."""
    total = sum(values) or 1

    def draw(axes: Axes) -> None:
        colors = [_STANDS_FOR["c0"]] * len(values)
        if last_is_rest:
            colors[-1] = _STANDS_FOR["rest"]
        axes.barh(range(len(values)), values, color=colors, height=0.68)
        for row, value in enumerate(values):
            axes.annotate(
                f"{shown(value)}, {100 * value / total:.1f} %", (value, row), (6, 0), textcoords="offset points", va="center"
            )
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, max(values) * 1.22 or 1)
        axes.set_xticks([])
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)

    return _drawn(draw, 26 * len(names) + 20, left=250, bottom=8)


def stacks(
    names: Sequence[str], groups: Mapping[str, Sequence[int]], below: str = "", marked: tuple[int, str] | None = None
) -> str:
    """A stack of bytes for each name, in the colours of `groups` by their order; `marked` draws a line before a stack."""

    def draw(axes: Axes) -> None:
        base = [0] * len(names)
        for color, values in groups.items():
            hatch = "////" if color == "bad" else None
            axes.bar(range(len(names)), values, 0.82, base, color=_STANDS_FOR[color], hatch=hatch, linewidth=0)
            base = [low + value for low, value in zip(base, values, strict=True)]
        step = -(-len(names) // 10)
        axes.set_xticks(range(0, len(names), step), names[::step])
        axes.set_xlim(-0.6, max(len(names), 8) - 0.4)
        axes.set_ylim(0, max(base, default=0) * 1.12 or 1)
        axes.yaxis.set_major_formatter(FuncFormatter(size))
        axes.yaxis.set_major_locator(MultipleLocator(_step(max(base, default=0))))
        axes.grid(visible=False, axis="x")
        axes.set_xlabel(below, loc="left")
        if marked is not None:
            at, text = marked
            axes.axvline(at - 0.5, color=_STANDS_FOR["ink"], linewidth=1.4, linestyle=(0, (4, 3)))
            is_left = at < max(len(names), 8) / 2
            axes.annotate(
                text,
                (at - 0.5, 1),
                (6 if is_left else -6, -4),
                xycoords=axes.get_xaxis_transform(),
                textcoords="offset points",
                ha="left" if is_left else "right",
                va="top",
            )

    return _drawn(draw, 300, left=80, bottom=58)


def chains(names: Sequence[str], load: Sequence[float], mean: Sequence[float], longest: Sequence[float]) -> str:
    """Load, mean and longest chain of each index file, on a logarithmic axis."""

    def draw(axes: Axes) -> None:
        positions = range(len(names))
        for values, color, marker, points in ((load, "c0", "s", 12), (mean, "c2", "o", 7), (longest, "c1", "D", 8)):
            axes.plot(positions, values, linestyle="none", marker=marker, markersize=points, color=_STANDS_FOR[color])
        for position, low, high in zip(positions, mean, longest, strict=True):
            axes.plot([position, position], [low, high], color=_STANDS_FOR["c1"], linewidth=1.2)
        axes.set_yscale("log")
        known = [value for value in (*load, *mean, *longest) if value > 0]
        axes.set_ylim(min([*known, 1]) / 2, max([*known, 10]) * 2)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
        step = -(-len(names) // 6)
        axes.set_xticks(range(0, len(names), step), names[::step])
        axes.set_xlim(-0.6, max(len(names), 4) - 0.4)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("items (logarithmic)")

    return _drawn(draw, 260, left=80, bottom=34)


def strip(begin: int, scanned: int, end: int, lost: Sequence[tuple[int, int]]) -> str:
    """The log from its begin to its end, with what recovery read and what it lost."""

    def draw(axes: Axes) -> None:
        axes.barh(0, end - begin, left=begin, color=_STANDS_FOR["rest"], height=0.7)
        axes.barh(0, end - scanned, left=scanned, color=_STANDS_FOR["c0"], height=0.7)
        for first, last in lost:
            # A stretch of a few bytes is to be seen, too.
            axes.barh(0, max(last - first, (end - begin) / 300), left=first, color=_STANDS_FOR["bad"], hatch="////", height=0.7)
        axes.set_xlim(begin, max(end, begin + 1))
        axes.set_ylim(-0.5, 0.5)
        axes.set_yticks([])
        axes.set_xticks([begin, end], [amount(begin), amount(end)])
        for label, side in zip(axes.get_xticklabels(), ("left", "right"), strict=True):
            label.set(horizontalalignment=side)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)

    return _drawn(draw, 70, left=10, bottom=30)


def _step(most: float) -> float:
    """Bytes between two lines of a grid that reaches as far: a round number of KiB, MiB or so."""
    unit = 1.0
    while most >= 5 * 1024 * unit:
        unit *= 1024
    return next((unit * factor for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if most <= 6 * unit * factor), most or 1)


def _drawn(draw: Callable[[Axes], None], height: int, left: int, bottom: int) -> str:
    """Draws into axes, in a figure of that many pixels. The paddings leave room for their labels."""
    settings: dict[Any, Any] = _STYLE
    # The browser has glyphs that the library's font does not have.
    with mpl.rc_context(settings), warnings.catch_warnings(action="ignore", category=UserWarning):
        figure = Figure((WIDTH / 72, height / 72))
        axes = figure.add_axes((left / WIDTH, bottom / height, (WIDTH - left - 14) / WIDTH, (height - bottom - 12) / height))
        axes.patch.set_visible(False)
        figure.patch.set_visible(False)
        draw(axes)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _in_page(written.getvalue())


def _in_page(svg: str) -> str:
    """Without what a file of its own needs, and in the colours of the page."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' (?:xmlns(?::\w+)?|version|width|height)="[^"]*"', "", svg.partition(">")[0]) + ">" + svg.partition(">")[2]
    svg = svg.replace("xlink:href", "href").replace("<svg", '<svg aria-hidden="true"', 1)
    for name, color in _STANDS_FOR.items():
        svg = svg.replace(color, f"var(--{name})")
    return svg
