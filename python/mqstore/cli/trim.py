"""The command `trim`: removes the oldest messages of a store that no writer has open."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click

import mqstore
from mqstore._rows import json_time, visible
from mqstore.cli._main import FINDINGS, command, from_the_command_line
from mqstore.cli._output import Output
from mqstore.cli._store import opening, options, prints
from mqstore.cli._times import shown_time, time_of

#: The letters of a size, as powers of 1024.
_UNITS = "KMGT"


def _size(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    """Converts a size: bytes, or 500G (K, M, G, T: powers of 1024)."""
    if text is None:
        return None
    if not (size := re.fullmatch(rf"(\d+)([{_UNITS}]?)", text)):
        raise click.BadParameter(f"{text!r} is not a size: expected bytes, or 500G (K, M, G, T)")
    return int(size[1]) << (10 * (_UNITS.index(size[2]) + 1) if size[2] else 0)


@command(examples=("trim /data/store --before 3d", "trim /data/store --max-bytes 500G --yes"))
@click.argument("path", metavar="STORE", type=click.Path())
@prints
@click.option("--before", callback=time_of, metavar="TIME", help="Removes messages older than this: an age, 3d, or a time.")
@click.option("--max-bytes", callback=_size, metavar="SIZE", help="Removes the oldest until the log has this size: 500G.")
@click.option("--force", is_flag=True, help="Also removes messages that groups have not consumed.")
@click.option("--yes", is_flag=True, help="Removes the files; without it they are only counted.")
@options
def trim(
    path: str, out: Output, before: datetime | None, max_bytes: int | None, force: bool, yes: bool, options: dict[str, Any]
) -> None:
    """Removes the oldest messages, such as those of a full disk.

    Whole segments of the log are removed, and the queue and index files that lead only to them. It needs no free space, and
    recovers nothing. The last segment, open transactions, delayed messages and timers stay. No writer may have the store open.
    Exit code 1 if more would go, were it not needed.
    """
    if (before is None) == (max_bytes is None):
        raise click.UsageError("give --before or --max-bytes, and not both")
    with opening(path), from_the_command_line():
        report = mqstore.trim(path, before, max_bytes=max_bytes, dry_run=not yes, force=force, **options)
    if out.as_json:
        out.object({"path": path} | _fields(report))
    else:
        _print(report, out)
    if report.kept_for or report.refusal is not None:
        raise click.exceptions.Exit(FINDINGS)


def _fields(report: mqstore.TrimReport) -> dict[str, Any]:
    names = ("group", "topic", "queue_id", "messages")
    # A store that no writer has open has no slaves.
    facts = {name: value for name, value in report.to_dict().items() if name not in ("kept_for_slaves", "unreplicated")}
    needed = {name: [dict(zip(names, row, strict=True)) for row in getattr(report, name)] for name in ("kept_for", "unread")}
    times = {name: None if (time := getattr(report, name)) is None else json_time(time) for name in ("since", "until")}
    return facts | times | needed


def _print(report: mqstore.TrimReport, out: Output) -> None:
    would = "would " if report.dry_run else ""
    if report.segments:
        since, until = (time and shown_time(json_time(time), out.utc) for time in (report.since, report.until))
        number = len(report.segments)
        segments = "1 segment" if number == 1 else f"{number} segments"
        out.line(f"{would}remove: {segments}, {report.bytes} bytes, stored from {since} to {until}")
    elif report.kept_for or report.refusal is not None:
        out.line("nothing to remove")
    else:
        out.line("nothing to remove: the last segment always stays")
    for needed, messages in _by_group(report.unread):
        out.line(f"{would}lose: {messages} messages of {visible(needed)}")
    for needed, messages in _by_group(report.kept_for):
        out.line(f"keep: {messages} messages of {visible(needed)}")
    if report.refusal is not None:
        out.line(f"keep: {visible(report.refusal)}")
    if any(_is_group(row[0]) for row in report.kept_for):
        out.line("--force also removes what a group has not consumed")
    if report.dry_run and report.segments:
        out.line("nothing was changed: --yes removes them")


def _is_group(needed_by: str) -> bool:
    return needed_by not in ("delayed messages", "timer messages", "open transactions")


def _by_group(rows: Iterable[tuple[str, str, int, int]]) -> list[tuple[str, int]]:
    """Returns the numbers of messages by topic and reason, in words."""
    counts: Counter[str] = Counter()
    for needed_by, topic, _, messages in rows:
        why = f"that {needed_by} has not consumed" if _is_group(needed_by) else f"({needed_by})"
        counts[f"{topic} {why}"] += messages
    return list(counts.items())
