"""A page on a store, to read and to mail: `mqstore.report.report("store").save("page.html")`, or `mqstore report`.

It needs the extra `report`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import mqstore
from mqstore._findings import findings_of, is_ok
from mqstore._native import _expect_outside

__all__ = ["Report", "report"]


@dataclass(frozen=True, repr=False)
class Report:
    """A page on a store. A notebook shows it."""

    path: str
    """The store."""
    html: str
    """The page. It refers to nothing outside of itself."""
    findings: list[dict[str, Any]]
    """The findings that `mqstore doctor` prints, the worst first: dicts as of `Finding.to_dict`."""

    @property
    def ok(self) -> bool:
        """True where nothing is wrong: every finding is a note."""
        return is_ok(self.findings)

    def save(self, target: str | os.PathLike[str]) -> Path:
        """Writes the page to a file, and replaces an existing one. `OSError` if it cannot be written, `ValueError` in a store."""
        written = Path(target)
        _expect_outside(written)
        written.write_text(self.html, encoding="utf-8", errors="backslashreplace")
        return written

    def __repr__(self) -> str:
        return f"<mqstore.report.Report of {self.path!r}: {len(self.html)} characters>"

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 80vh; border: 0"
        return f'<iframe srcdoc="{escape(self.html)}" style="{style}"></iframe>'


def report(
    store: mqstore.Store | str | os.PathLike[str],
    *,
    deep: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Looks at a store, open or named by its path, and makes a page of what it finds: what it holds, what lies in its segments,
    topics by bytes and by hour, the index, what groups of consumers have left, delayed messages, what opening it found, and what
    `verify` found. Each figure has its numbers in a table beneath it. Times are in UTC.

    It reads the log twice, once to count (`Store.usage`) and once to compare (`Store.verify`, which `deep` and `progress` are
    for), passes over damage, and changes nothing. Tables and figures have the largest or the latest; memory is taken for each
    topic, hour and segment, not for each message. Raises `ModuleNotFoundError` without matplotlib (extra `report`), what `open`
    raises for a path, and what `progress` raises.
    """
    try:
        from mqstore.report import _sections
        from mqstore.report._figures import amount, size
        from mqstore.report._page import page
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"a report needs {error.name}: run pip install '.[report]' in a checkout of mqstore") from None

    if not isinstance(store, mqstore.Store):
        # The page shows what the warnings say.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning), mqstore.open(store, errors="skip") as opened:
            return report(opened, deep=deep, progress=progress)
    verified = store.verify(deep=deep, progress=progress)
    found = findings_of(store, verified)
    used = _sections.used_of(store)
    lag = _sections.lag_of(store)
    rows = [] if isinstance(lag, str) else lag
    sections = [
        _sections.findings_section(store, verified, found, deep),
        _sections.segments_section(store, used, _sections.needs_of(store, rows)),
        _sections.topics_section(used),
        _sections.hours_section(used),
        _sections.lag_section(lag),
        _sections.delayed_section(store),
        _sections.retention_section(store),
        _sections.index_section(store),
        _sections.recovery_section(store),
        _sections.store_section(store),
    ]
    tiles = [
        ("messages in the log", amount(used.total["messages"])),
        ("their bytes", size(used.total["bytes"])),
        ("topics", amount(len(used.topics))),
        ("groups", "-" if isinstance(lag, str) else amount(len({row["group"] for row in rows}))),
        ("not consumed yet", "-" if isinstance(lag, str) else amount(sum(row["lag"] or 0 for row in rows))),
    ]
    made = f"read at {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by mqstore {mqstore.__version__}; all times are UTC"
    return Report(store.path, page(store.path, made, _verdict(found), tiles, sections), found)


def _verdict(found: list[dict[str, Any]]) -> tuple[str, str]:
    """Returns the severity and its words."""
    kinds = [finding["severity"] for finding in found]
    worst = [kind for kind in ("error", "warning") if kind in kinds]
    if not worst:
        return "good", "nothing is wrong"
    counts = {kind: kinds.count(kind) for kind in worst}
    return worst[0], ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items())
