"""A report as one page that needs nothing but itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from html import escape
from pathlib import Path

from mqstore._rows import visible
from mqstore.report._sections import Section, Table

#: Most characters of a cell.
TEXT = 1000

STYLE = """
:root { color-scheme: light dark;
  --paper: #fff; --ink: #1d2126; --quiet: #5b646e; --soft: #d9dee3; --card: #f5f7f9; --rest: #a3abb4;
  --good: #1a7f37; --warn: #9a6700; --bad: #c62828; --c0: #1f6fb4; --c1: #d9662b; --c2: #2a9d76; --c3: #b04a8f; --c4: #d4a017;
  --c5: #5fb0e0; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e9ec; --quiet: #9aa4ae; --soft: #363d44;
  --card: #1d2226; --rest: #6b747d; --good: #4cc36b; --warn: #e0b341; --bad: #ff6b64; --c0: #4b9fe3; --c1: #f08a55; --c2: #3fc397;
  --c3: #d97cbc; --c4: #e8bf4d; --c5: #93d0f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1024px; padding: 28px 32px 48px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 26px; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 19px; margin: 0 0 4px; }
p { margin: 0 0 12px; max-width: 78ch; }
.quiet { color: var(--quiet); overflow-wrap: anywhere; }
.verdict { display: inline-block; margin: 14px 0 18px; padding: 4px 12px; border-radius: 6px; border: 1.5px solid;
  font-weight: 600; }
.good { color: var(--good); } .warning { color: var(--warn); } .error { color: var(--bad); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(145px, 1fr)); gap: 10px; margin: 0 0 8px; }
dl div { background: var(--card); border-radius: 8px; padding: 10px 14px; }
dt { color: var(--quiet); font-size: 13px; }
dd { margin: 0; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
section { margin-top: 34px; border-top: 1px solid var(--soft); padding-top: 20px; }
figure { margin: 0 0 10px; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: inherit !important; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 0 0 6px; padding: 0; list-style: none; font-size: 13px; }
.legend i { display: inline-block; width: 12px; height: 12px; margin-right: 6px; border-radius: 2px; vertical-align: -1px;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
summary { cursor: pointer; color: var(--quiet); font-size: 14px; }
.table { overflow-x: auto; margin-top: 8px; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 16px 3px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--soft); }
th { color: var(--quiet); font-weight: 600; white-space: nowrap; }
.text { overflow-wrap: anywhere; min-width: 150px; } .word, .number { white-space: nowrap; } .number { text-align: right; }
@media print { body { max-width: none; padding: 0; font-size: 11px; } section { break-inside: avoid-page; }
  summary { list-style: none; } details:not([open])::details-content { content-visibility: visible; block-size: auto; } }
"""


def page(path: str, made: str, verdict: tuple[str, str], tiles: Sequence[tuple[str, str]], sections: Sequence[Section]) -> str:
    """The page as HTML. `verdict` is how bad it is, and the words for it."""
    title = Path(path).resolve().name
    kind, words = verdict
    shown = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in tiles)
    parts = "\n".join(map(_section, sections))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(title)}: report on a message store</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{_text(title)}</h1>
<div class="quiet">{_text(path)}<br>{_text(made)}</div>
<div class="verdict {kind}">{_text(words)}</div>
<dl>{shown}</dl>
</header>
<main>
{parts}
</main>
</body>
</html>
"""


def _section(section: Section) -> str:
    parts = [f"<h2>{_text(section.title)}</h2>", f"<p>{_text(section.text, 2000)}</p>"]
    if section.figure is not None:
        keys = "".join(f'<li><i style="background: var(--{color})"></i>{_text(name)}</li>' for color, name in section.legend)
        legend = f'<ul class="legend">{keys}</ul>' if keys else ""
        # Ids of two figures are the same unless each has something of its own before them.
        drawn = re.sub(r'((?: id="|href="#|url\(#))', rf"\g<1>{section.name}-", section.figure)
        parts.append(f'<figure role="img" aria-label="{_text(section.title)}">{legend}{drawn}</figure>')
    if section.table is not None:
        parts.append(_details(section.table, section.is_open))
    return f'<section id="{section.name}">\n{"".join(parts)}\n</section>'


def _details(table: Table, is_open: bool) -> str:
    kinds = [_kind([row[at] for row in table.rows]) for at in range(len(table.heads))]
    heads = _line("th", kinds, table.heads)
    rows = "".join(_line("td", kinds, row) for row in table.rows)
    more = f'<p class="quiet">and {table.left_out} more</p>' if table.left_out else ""
    inner = f'<div class="table"><table><thead>{heads}</thead><tbody>{rows}</tbody></table></div>{more}'
    return inner if is_open else f"<details><summary>The numbers</summary>{inner}</details>"


def _line(tag: str, kinds: Sequence[str], cells: Sequence[object]) -> str:
    shown = (
        f'<{tag} class="{kind}{f" {cell}" if cell in ("error", "warning") else ""}">{_cell(cell)}</{tag}>'
        for kind, cell in zip(kinds, cells, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"


def _kind(cells: Sequence[object]) -> str:
    """The layout of a column."""
    known = [cell for cell in cells if cell is not None]
    if known and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known):
        return "number"
    # A name, an id or a time is not broken; a sentence is.
    return "text" if any(" " in str(cell) or len(str(cell)) > 40 for cell in known) else "word"


def _cell(value: object) -> str:
    match value:
        case None | "" | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.2f}"
        case list() if all(isinstance(part, str) for part in value):
            return _text(", ".join(value))
        case list():
            return _text(", ".join(f"{begin} to {end}" for begin, end in value))
        case _:
            return _text(_time(value) or str(value))


def _time(value: object) -> str | None:
    """A time of JSON for people; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value):
        return f"{datetime.fromisoformat(value):%Y-%m-%d %H:%M:%S}"
    return None


def _text(value: str, most: int = TEXT) -> str:
    text = visible(value)
    return escape(text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}")
