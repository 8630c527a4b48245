"""The commands `repair` and `rebuild`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import mqstore
from mqstore._findings import BEFORE_START, do_next, next_line, rows_of_findings
from mqstore._fixes import swap
from mqstore._rows import visible
from mqstore.cli._findings import print_findings
from mqstore.cli._main import FINDINGS, CannotOpen, command, from_the_command_line, text_of
from mqstore.cli._output import Output, Row
from mqstore.cli._store import opening, options, prints
from mqstore.cli._words import ways_of

store_path = click.argument("path", metavar="STORE", type=click.Path())


@command(examples=("repair /data/store", "repair /data/store --yes", "repair /data/store --into /data/repaired --yes"))
@store_path
@prints
@click.option("--into", metavar="NEW", type=click.Path(), help="Repairs a copy in this directory; STORE is not changed.")
@click.option("--yes", is_flag=True, help="Makes the changes; without it they are only listed.")
@options
def repair(path: str, out: Output, into: str | None, yes: bool, options: dict[str, Any]) -> None:
    """Repairs what verify finds, or lists the changes.

    Queues, index and checkpoint are rebuilt from the log. Foreign files are moved into a backup in STORE. Damaged records are
    lost; all other messages keep their offsets. No writer may have the store open. The last line is the next step, as that of
    doctor: with --into the command that replaces STORE by the copy. Exit code 1 if something is still wrong.
    """
    with opening(path), from_the_command_line(), _copying(into):
        report = mqstore.repair(path, dry_run=not yes, into=into, progress=out.progress, **options)
    _tell(report, out, path)


@command(examples="rebuild /data/store --yes")
@store_path
@prints
@click.option("--yes", is_flag=True, help="Makes the changes; without it they are only listed.")
@options
def rebuild(path: str, out: Output, yes: bool, options: dict[str, Any]) -> None:
    """Rebuilds queues, index and checkpoint from the log.

    Queues keep their offsets. A damaged log is refused: use repair. So is a log of which a part is missing, because queue
    offsets would be assigned twice. No writer may have the store open. If all queues or index files are missing, --option
    sets the sizes of the new ones; the default is a broker's. Exit code 1 if something is still wrong.
    """
    with opening(path), from_the_command_line():
        report = mqstore.rebuild(path, dry_run=not yes, progress=out.progress, **options)
    _tell(report, out, path)


@contextmanager
def _copying(into: str | None) -> Iterator[None]:
    """Adds to an error that a part of the copy is there, if this command has begun one."""
    had_files = into is None or _has_files(into)
    try:
        yield
    except (mqstore.StoreError, OSError) as error:
        if into is None or had_files or not _has_files(into):
            raise
        raise CannotOpen(f"{text_of(error, None)}; {into} is a part of a copy: remove it") from None


def _has_files(directory: str) -> bool:
    return any(files for _, _, files in os.walk(directory))


def _tell(report: mqstore.RepairReport, out: Output, path: str) -> None:
    if out.as_json:
        names = ("ok", "dry_run", "path", "backup", "lost")
        changes = [{"action": change.action, "file": change.file, "message": change.message} for change in report.changes]
        more = {"refusal": _refusal(report), "changes": changes, "left": _left(report), "do_next": _do_next(report, path)}
        out.object({name: getattr(report, name) for name in names} | more)
    else:
        _print(report, out)
        is_proposal = report.dry_run and report.changes
        if not is_proposal and (line := _next_line(report, path)) is not None:
            out.line(visible(line))
    if not report.ok or (report.dry_run and report.changes):
        raise click.exceptions.Exit(FINDINGS)


def _print(report: mqstore.RepairReport, out: Output) -> None:
    for change in report.changes:
        out.line(f"{'would ' if report.dry_run else ''}{change.action}: {visible(change.file)}: {visible(change.message)}")
    print_findings(out, _findings(report))
    if report.backup is not None:
        out.line(f"what was set aside is in {visible(report.backup)}")
    if (refusal := _refusal(report)) is not None:
        out.line(f"left as it is: {visible(refusal)}")
    if not report.changes:
        out.line("nothing can be repaired" if report.left else "nothing has to be repaired")
    elif report.dry_run:
        out.line("nothing was changed: --yes makes these changes")
    else:
        out.line(f"{'repaired' if report.ok else 'repaired, but something is wrong still'}: {visible(report.path)}")
        if report.remedy == "skip":
            out.line('messages were lost: to read the others, give export and copy --skip-damaged, and programs errors="skip"')


def _swap(report: mqstore.RepairReport, path: str) -> str | None:
    """Returns the command that replaces the store by a copy without errors and warnings; None if none was made."""
    is_copy = not report.dry_run and not Path(report.path).samefile(path)
    return swap(path, report.path) if report.ok and is_copy else None


def _do_next(report: mqstore.RepairReport, path: str) -> str | None:
    return _swap(report, path) or do_next(_findings(report))


def _next_line(report: mqstore.RepairReport, path: str) -> str | None:
    swapping = _swap(report, path)
    return next_line(_findings(report)) if swapping is None else f"do next{BEFORE_START}: {swapping}"


def _refusal(report: mqstore.RepairReport) -> str | None:
    return None if report.refusal is None else "; ".join([report.refusal, *ways_of(report.remedy)])


def _left(report: mqstore.RepairReport) -> list[Row]:
    names = ("id", "severity", "file", "offset", "message", "fix")
    return [{name: row[name] for name in names} for row in _findings(report)]


def _findings(report: mqstore.RepairReport) -> Iterable[Row]:
    return rows_of_findings(report.left, report.path)
