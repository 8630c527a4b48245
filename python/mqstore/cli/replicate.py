"""The commands `replicate` and `tap`: the slave of a master."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

import mqstore
from mqstore._rows import json_time
from mqstore.cli._main import command, from_the_command_line, text_of
from mqstore.cli._output import Output
from mqstore.cli._store import opening, options, prints

#: The interval in seconds at which the state is looked at.
_INTERVAL = 0.1


@command(examples=("replicate 10.0.0.1:10912 /data/replica", "replicate [::1]:10912 /data/replica --no-sync"))
@click.argument("master", metavar="HOST:PORT")
@click.argument("path", metavar="STORE", type=click.Path())
@prints
@click.option("--broker", metavar="HOST:PORT", help="Port for topics, groups; default: the port below.")
@click.option("--discard-tail", is_flag=True, help="Removes what a writer has appended to STORE and the master does not have.")
@click.option("--sync/--no-sync", default=True, help="Syncs before each acknowledgement (default).")
@options
def replicate(
    master: str, path: str, out: Output, broker: str | None, discard_tail: bool, sync: bool, options: dict[str, Any]
) -> None:
    """Receives the log of a master into STORE.

    It runs until SIGINT or SIGTERM, and prints each change of state and each cut.

    HOST:PORT is where the master listens for slaves: haListenPort of a broker. An absent STORE gets the last segment of the
    master; segments have to be of the master's size (--option geometry=broker).
    Exit code 0 after a signal; 1 if STORE is another log, or a part of it would have to be discarded.
    """
    with opening(path), from_the_command_line():
        replica = mqstore.replicate(master, path, broker=broker, sync=sync, discard_tail=discard_tail, **options)
    _follow(replica, path, out)


@command(examples=("tap 10.0.0.1:10912 /data/live", "tap 10.0.0.1:10912 /data/all --start earliest"))
@click.argument("master", metavar="HOST:PORT")
@click.argument("path", metavar="STORE", type=click.Path())
@prints
@click.option(
    "--start",
    metavar="WHERE",
    default="latest",
    help="earliest, latest (default) or a physical offset; a STORE with a log is continued.",
)
@click.option("--broker", metavar="HOST:PORT", help="Port for its bounds, topics, groups; default: the port below.")
@click.option("--sync/--no-sync", default=True, help="Syncs what it counts as held (default).")
@options
def tap(master: str, path: str, out: Output, start: str, broker: str | None, sync: bool, options: dict[str, Any]) -> None:
    """Follows a broker into STORE, and acknowledges nothing.

    No append of the broker waits for it. It runs until SIGINT or SIGTERM, and prints each change of state and each cut.

    Exit code 0 after a signal; 1 if STORE is another log, or the broker has removed what comes next.
    """
    with opening(path), from_the_command_line():
        begin: Any = int(start) if start.removeprefix("-").isdecimal() else start
        replica = mqstore.tap(master, path, begin, broker=broker, sync=sync, **options)
    out.note(
        "a SYNC_MASTER of RocketMQ 4.9.x without another slave answers FLUSH_SLAVE_TIMEOUT after a wait while this is connected"
    )
    _follow(replica, path, out)


def _follow(replica: mqstore.Replica, path: str, out: Output) -> None:
    """Prints each change of state until a signal, or raises the reason why it has given up."""
    with replica, _ended_by_signals() as over:
        printed: tuple[object, ...] = ()
        cuts = 0
        settings: str | None = None
        while not over.is_set():
            error = replica.error
            state: dict[str, Any] = {
                "state": replica.state,
                "offset": replica.offset,
                "lag": replica.lag,
                "error": None if error is None else text_of(error, path),
                "cuts": [{**cut.to_dict(), "time": json_time(cut.time)} for cut in replica.cuts],
            }
            if (state["state"], state["error"], len(state["cuts"])) != printed:
                printed = (state["state"], state["error"], len(state["cuts"]))
                if out.as_json:
                    out.object(state)
                else:
                    for cut in state["cuts"][cuts:]:
                        out.line(f"cut {cut['bytes']} bytes at physical offset {cut['offset']}: the master has other bytes there")
                    out.line(_line(state))
                cuts = len(state["cuts"])
                sys.stdout.flush()
            if state["state"] == "failed" and error is not None:
                raise error
            if (said := _settings(replica, path)) not in (None, settings):
                settings = said
                out.note(settings)
            over.wait(_INTERVAL)
        out.note(f"stopped at physical offset {replica.offset}")


@contextmanager
def _ended_by_signals() -> Iterator[threading.Event]:
    """Yields an event that SIGINT and SIGTERM set."""
    over = threading.Event()
    before = {number: signal.signal(number, lambda *_: over.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield over
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _settings(replica: mqstore.Replica, path: str) -> str | None:
    """Returns a line about topics, groups and progress; None before the first answer."""
    if (error := replica.settings_error) is not None:
        return f"topics, groups and progress are not taken: {text_of(error, path)}"
    return None if replica.settings_taken_at is None else "topics, groups and progress are taken"


def _line(state: dict[str, Any]) -> str:
    position = "" if state["offset"] is None else f" at physical offset {state['offset']}"
    error = "" if state["error"] is None else f": {state['error']}"
    return f"{state['state']}{position}{error}"
