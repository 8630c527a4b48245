"""Opening the store that a command names."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

import mqstore
from mqstore.cli._main import FINDINGS, CannotOpen, text_of
from mqstore.cli._output import Output


@contextmanager
def printing(as_json: bool, utc: bool) -> Iterator[Output]:
    """Where to print. What the library warns of meanwhile is a line on stderr."""
    out = Output(as_json, utc)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: out.note(f"warning: {message}")
            yield out
    finally:
        out.end_progress()


@contextmanager
def opening() -> Iterator[None]:
    """Ends the command where the store cannot be opened."""
    try:
        yield
    except (mqstore.StoreError, OSError) as error:
        raise CannotOpen(f"cannot open the store: {text_of(error)}") from None


@contextmanager
def opened(path: str, mode: Any = "r", **options: Any) -> Iterator[mqstore.Store]:
    """The store, open."""
    with opening():
        store = mqstore.open(path, mode, **options)
    with store:
        yield store


def end_incomplete(store: mqstore.Store) -> None:
    """Ends the command with exit code 1 if the store lacks messages: a warning has said so when it was opened."""
    if not store.recovery.complete:
        raise SystemExit(FINDINGS)


def _recovery_of(_context: click.Context, _option: click.Parameter, is_salvage: bool) -> str:
    return "salvage" if is_salvage else "heal"


#: How the log of a crashed store is read: as its next writer would cut it, or past damage.
recovery = click.option(
    "--salvage",
    "recovery",
    is_flag=True,
    callback=_recovery_of,
    help="After a crash, also what is whole after damage.",
)


def prints(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of printing, and `out`."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON object a line: docs/CLI.md lists the fields.")
    @click.option("--utc", is_flag=True, is_eager=True, help="Times in UTC, in and out, and not in local time.")
    @functools.wraps(function)
    def call(*, as_json: bool, utc: bool, **arguments: Any) -> None:
        with printing(as_json, utc) as out:
            function(out=out, **arguments)

    return call


def on_store(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command STORE and the options of printing: the open store and `out`. Reading passes over damage, and counts it."""

    @click.argument("path", metavar="STORE", type=click.Path())
    @prints
    @recovery
    @functools.wraps(function)
    def call(*, path: str, out: Output, recovery: str, **arguments: Any) -> None:
        with opened(path, errors="skip", recovery=recovery) as store:
            function(store=store, out=out, **arguments)

    return call
