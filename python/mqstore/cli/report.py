"""The command `report`: an HTML page about a store."""

from __future__ import annotations

from pathlib import Path

import click

import mqstore
from mqstore.cli._main import FINDINGS, Failure, command, from_the_command_line
from mqstore.cli._output import Output
from mqstore.cli._store import broker_conf, on_store


@command(examples="report /data/store -o page.html")
@on_store
@broker_conf
@click.option("-o", "target", required=True, type=click.Path(dir_okay=False, writable=True), metavar="FILE", help="The page.")
@click.option("--quick", is_flag=True, help="Skips the checksums of bodies and the links of the index.")
def report(store: mqstore.Store, out: Output, target: str, quick: bool) -> None:
    """Writes a page about a store, with figures and their numbers.

    The page is one file of HTML that needs no network: findings, the content of each segment, topics by bytes and by hour, lag
    by group, load of the index, and the decisions of recovery. It reads the log twice and changes nothing. Times in the page
    are in UTC. It needs matplotlib: run pip install '.[report]' in a checkout of mqstore.
    """
    from mqstore._native import _expect_outside
    from mqstore.report import report as report_on

    with from_the_command_line():
        _expect_outside(target)
    if not Path(target).parent.is_dir():
        raise Failure(f"there is no such directory: make it first: {Path(target).parent}")
    made = report_on(store, deep=not quick, progress=out.progress)
    written = made.save(target)
    severities = [finding["severity"] for finding in made.findings]
    counts = {"errors": severities.count("error"), "warnings": severities.count("warning")}
    out.document({"path": str(written), "bytes": written.stat().st_size, "ok": made.ok} | counts)
    if not made.ok:
        raise click.exceptions.Exit(FINDINGS)
