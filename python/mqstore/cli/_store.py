"""Opens the store of a command."""

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

#: Commands whose output names what is missing in an incomplete store.
ANSWERS_WITH_MISSING = ("info", "doctor")


@contextmanager
def printing(as_json: bool, utc: bool) -> Iterator[Output]:
    """Yields the output of a command. Warnings of the library go to stderr; an incomplete answer sets the exit code."""
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
    """Ends the command if the store cannot be opened."""
    try:
        yield
    except mqstore.NotAStoreError as error:
        below = os.path.join(path, "store")
        hint = f"; there is a store in {below}" if os.path.isdir(os.path.join(below, "commitlog")) else ""
        raise CannotOpen(f"cannot open the store: {text_of(error, path)}{hint}") from None
    except mqstore.StoreExistsError:
        # The error is about the target, not about the store.
        raise
    except (mqstore.StoreError, OSError) as error:
        raise CannotOpen(f"cannot open the store: {text_of(error, path)}") from None


@overload
def opened(path: str, out: Output, mode: Literal["r"] = "r", **options: Any) -> AbstractContextManager[mqstore.Store]: ...
@overload
def opened(path: str, out: Output, mode: Literal["a", "r+"], **options: Any) -> AbstractContextManager[mqstore.Writer]: ...
@contextmanager
def opened(path: str, out: Output, mode: str = "r", **options: Any) -> Iterator[Any]:
    """Opens a store, and reports on stderr if messages are missing in it."""
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


@contextmanager
def opened_to_write(path: str, out: Output, expect: Callable[[mqstore.Store], None]) -> Iterator[mqstore.Writer]:
    """Opens a store for writing if it meets an expectation. Otherwise the store stays unchanged: it is not recovered."""
    with opening(path), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        reader = mqstore.open(path)
    with reader:
        # What an incomplete store does not have may be missing in it: the writer refuses it.
        if reader.recovery.complete:
            expect(reader)
    with opened(path, out, "r+", errors="skip") as store:
        expect(store)
        yield store


def _recovery_of(_context: click.Context, _option: click.Parameter, is_salvage: bool) -> str:
    return "salvage" if is_salvage else "heal"


#: The option for the log of a crashed store: up to the end that its next writer would cut it to, or past damage.
recovery = click.option(
    "--salvage",
    "recovery",
    is_flag=True,
    callback=_recovery_of,
    help="After a crash, reads whole messages after damage, too.",
)


def _options_of(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    pairs = [text.partition("=") for text in given]
    if wrong := [name for name, equals, _ in pairs if not equals]:
        raise click.BadParameter(f"{wrong[0]!r} has no '=': expected NAME=VALUE")
    words: dict[str, Any] = {"true": True, "false": False}
    return {name: words.get(text, int(text) if text.isdecimal() else text) for name, _, text in pairs}


#: Options of `mqstore.open` for commands that write. A reader detects the sizes of files.
options = click.option(
    "--option",
    "options",
    multiple=True,
    callback=_options_of,
    metavar="NAME=VALUE",
    help="An option of mqstore.open, such as a file size; may be repeated.",
)


def _config_of(_context: click.Context, _option: click.Parameter, path: str | None) -> mqstore.StoreConfig | None:
    try:
        return None if path is None else mqstore.StoreConfig.from_broker_conf(path)
    except (OSError, ValueError) as error:
        raise click.BadParameter(str(error)) from None


#: The options of the process that writes the store, for a command with `on_store`.
broker_conf = click.option(
    "--broker-conf",
    "config",
    callback=_config_of,
    metavar="FILE",
    help="The broker.conf of the store: names what its retention removes next.",
)


def prints(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of output to a command, which gets `out`."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON object a line: docs/CLI.md lists the fields.")
    @click.option("--utc", is_flag=True, is_eager=True, help="Reads and prints times in UTC, not in local time.")
    @functools.wraps(function)
    def call(*, as_json: bool, utc: bool, **arguments: Any) -> None:
        with printing(as_json, utc) as out:
            function(out=out, **arguments)

    return call


def on_store(function: Callable[..., None]) -> Callable[..., None]:
    """Adds STORE and the options of output to a command, which gets the open store and `out`. Reads skip and count damage."""

    @click.argument("path", metavar="STORE", type=click.Path())
    @prints
    @recovery
    @functools.wraps(function)
    def call(*, path: str, out: Output, recovery: str, config: mqstore.StoreConfig | None = None, **arguments: Any) -> None:
        # The sizes of the files are those of the store.
        of_writer: dict[str, Any] = {} if config is None else {"config": config, "geometry": None}
        with opened(path, out, errors="skip", recovery=recovery, **of_writer) as store:
            function(store=store, out=out, **arguments)

    return call
