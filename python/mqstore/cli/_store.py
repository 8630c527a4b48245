"""Opening the store that a command names."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, overload

import click

import mqstore
from mqstore.cli._main import FINDINGS, CannotOpen, text_of
from mqstore.cli._output import Output
from mqstore.cli._words import of_damage

#: Commands whose answer says what an incomplete store lacks.
ANSWERS_WITH_MISSING = ("info", "doctor")


@contextmanager
def printing(as_json: bool, utc: bool) -> Iterator[Output]:
    """Where to print. What the library warns of meanwhile is a line on stderr. An answer that is not whole has an exit code."""
    out = Output(as_json, utc)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: out.note(f"warning: {message}")
            yield out
    finally:
        out.end()
    if not out.is_whole:
        raise click.exceptions.Exit(FINDINGS)


@contextmanager
def opening(path: str) -> Iterator[None]:
    """Ends the command where the store cannot be opened."""
    try:
        yield
    except mqstore.NotAStoreError as error:
        below = os.path.join(path, "store")
        hint = f"; there is a store in {below}" if os.path.isdir(os.path.join(below, "commitlog")) else ""
        raise CannotOpen(f"cannot open the store: {text_of(error, path)}{hint}") from None
    except mqstore.StoreExistsError:
        # The target is there already.
        raise
    except (mqstore.StoreError, OSError) as error:
        raise CannotOpen(f"cannot open the store: {text_of(error, path)}") from None


@overload
def opened(path: str, out: Output, mode: Literal["r"] = "r", **options: Any) -> AbstractContextManager[mqstore.Store]: ...
@overload
def opened(path: str, out: Output, mode: Literal["a"], **options: Any) -> AbstractContextManager[mqstore.Writer]: ...
@contextmanager
def opened(path: str, out: Output, mode: str = "r", **options: Any) -> Iterator[Any]:
    """The store, open. If it lacks messages, that is said."""
    with opening(path), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        store = mqstore.open(path, mode, **options)
    with store:
        if store.recovery.missing is not None:
            missing = store.recovery.missing
            if click.get_current_context().info_name in ANSWERS_WITH_MISSING and store.recovery.missing_at is not None:
                missing = "{} at byte {}".format(*store.recovery.missing_at)
            missing = missing.replace(f"{store.path}/", "")
            out.lack(f"{store.path} is incomplete: {of_damage(missing, store.recovery.remedy, store.path)}")
        yield store


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


def _options_of(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in given]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise click.BadParameter(f"{wrong[0]!r} has no '=': expected NAME=VALUE")
    words: dict[str, Any] = {"true": True, "false": False}
    return {name: words.get(text, int(text) if text.isdecimal() else text) for name, _, text in pairs}


#: Options of `mqstore.open` for what writes: a reader finds the sizes of files out, or needs none.
options = click.option(
    "--option",
    "options",
    multiple=True,
    callback=_options_of,
    metavar="NAME=VALUE",
    help="An option of mqstore.open, such as a size of files; may be repeated.",
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
        with opened(path, out, errors="skip", recovery=recovery) as store:
            function(store=store, out=out, **arguments)

    return call
