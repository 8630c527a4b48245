"""The command `verify`: compares the files of a store."""

from __future__ import annotations

import click

import mqstore
from mqstore._findings import do_next, next_line, rows_of_findings
from mqstore._rows import visible
from mqstore.cli._findings import print_findings
from mqstore.cli._main import FINDINGS, command, from_the_command_line
from mqstore.cli._output import Output
from mqstore.cli._store import on_store


@command(examples=("verify /data/store", "verify /data/store --max-mb-per-s 100 --json"))
@on_store
@click.option("--quick", is_flag=True, help="Skips the checksums of bodies and the links of the index.")
@click.option("--max-mb-per-s", type=float, help="Reads no faster than this, in 10**6 bytes.")
def verify(store: mqstore.Store, out: Output, quick: bool, max_mb_per_s: float | None) -> None:
    """Compares the files of a store with each other.

    It compares log, queues, index, checkpoint and settings, reads the log once, and changes nothing. With a running broker it
    covers the log up to its end at the start of the command. The last line is the next step, as in doctor. Exit code 1 for
    an error or a warning.
    """
    with from_the_command_line():
        report = store.verify(deep=not quick, progress=out.progress, max_mb_per_s=max_mb_per_s)
    found = rows_of_findings(report.findings, store.path)
    if out.as_json:
        names = ("ok", "covered", "messages", "queue_entries", "index_items", "seconds")
        out.object({name: getattr(report, name) for name in names} | {"findings": found, "do_next": do_next(found)})
    else:
        print_findings(out, found)
        begin, end = report.covered
        out.line(
            f"{'nothing is wrong' if report.ok else 'something is wrong'}: log {begin} to {end}, messages {report.messages}, "
            f"queue entries {report.queue_entries}, index items {report.index_items}"
        )
        if (line := next_line(found)) is not None:
            out.line(visible(line))
    if not report.ok:
        raise click.exceptions.Exit(FINDINGS)
