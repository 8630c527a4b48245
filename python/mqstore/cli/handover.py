"""The command `handover`: timers for a broker."""

from __future__ import annotations

import warnings
from typing import Any

import click

from mqstore._timers import count_timers
from mqstore.cli._main import command, from_the_command_line
from mqstore.cli._output import Output
from mqstore.cli._store import opened, options, prints


@command(examples=("handover /data/store", "handover /data/store --yes"))
@click.argument("path", metavar="STORE", type=click.Path())
@prints
@click.option("--yes", is_flag=True, help="Hands them over; without it they are only counted.")
@options
def handover(path: str, out: Output, yes: bool, options: dict[str, Any]) -> None:
    """Hands the timers that wait over to a broker.

    Run it before a broker of 5.x starts on a store whose timers mqstore has delivered: the broker delivers each once. Each is
    appended again at the end of rmq_sys_wheel_timer, and config/timercheck names the first. It writes to STORE: no broker or
    other writer may have it open. Delayed messages and transactions need no hand-over. Exit code 1 if timers are lost or
    damaged; 2 with --yes if a broker has written the store: then the timers are the broker's.
    """
    with opened(path, out, errors="skip") as store:
        timers = count_timers(store, out.counting)
    if not yes:
        out.document({"path": path, "timers": timers.waiting, "handed_over": False})
        if not out.as_json:
            out.line("nothing was changed: --yes hands them over")
        return
    with (
        opened(path, out, "r+", errors="skip", **options) as writer,
        warnings.catch_warnings(action="ignore"),
        from_the_command_line(),
    ):
        # The timers that are lost were counted.
        number = writer.broker.hand_over()
    out.document({"path": path, "timers": number, "handed_over": True})
