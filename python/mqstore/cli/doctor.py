"""The command `doctor`: the findings about a store, and the next step."""

from __future__ import annotations

import shlex

import click

import mqstore
from mqstore._findings import do_next, findings_of, is_ok, next_line
from mqstore._rows import visible
from mqstore.cli._findings import print_findings
from mqstore.cli._main import FINDINGS, command
from mqstore.cli._output import Output
from mqstore.cli._store import broker_conf, on_store


@command(examples=("doctor /data/store", "doctor /data/store --json"))
@on_store
@broker_conf
@click.option("--quick", is_flag=True, help="Skips the checksums of bodies and the links of the index.")
def doctor(store: mqstore.Store, out: Output, quick: bool) -> None:
    """Says what is wrong with a store and what to do next.

    It reports the findings of verify, what the next start after a crash would lose, and what waits: messages for consumers,
    dead letters, transactions, delayed messages, and with --broker-conf the next removal. The last line is
    the next step, a command to run as it is, and says if it must come before the start of a broker. Repeat until the exit
    code is 0 or the step names what is lost. It reads the log once and changes nothing. Exit code 1 for an error or a
    warning.
    """
    verified = store.verify(deep=not quick, progress=out.progress)
    found = findings_of(store, verified)
    ok = is_ok(found)
    if out.as_json:
        out.object({"ok": ok, "findings": found, "do_next": do_next(found)})
    else:
        print_findings(out, found)
        unread = f"bodies are not checked: mqstore verify {visible(shlex.quote(store.path))}"
        right = f"nothing is wrong in what was read; {unread}" if quick else "nothing is wrong"
        out.line(right if ok else "something is wrong")
        if (line := next_line(found)) is not None:
            out.line(visible(line))
    if not ok:
        raise click.exceptions.Exit(FINDINGS)
