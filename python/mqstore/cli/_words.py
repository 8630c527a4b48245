"""The texts of the library in the words of the command line."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mqstore.errors import Remedy

_SKIP = ("skip_damaged", "--skip-damaged leaves out what was lost or is damaged")
_SALVAGE = ("recovery", "--salvage reads what is whole on both sides")
_REPAIR = ("path", "mqstore repair {path} --into NEW --yes keeps what is whole, in a copy")
#: The parameter of the commands with which a remedy helps, and the words. None where no command helps: the text says what to put
#: back, or doctor names the next step.
_WAYS: dict[Remedy, tuple[str, str] | None] = {
    "skip": _SKIP,
    "skip-or-salvage": _SKIP,
    "skip-or-put-back": _SKIP,
    "salvage-or-read": None,
    "salvage-past-end": _SALVAGE,
    "salvage-or-put-back": _SALVAGE,
    "read-around-gap": None,
    "extend-copy": (
        "path",
        "if there is nothing to copy it from, extend it to its length in a copy of the store (truncate -s): what was lost reads "
        "as zeros there",
    ),
    "cut-file": (
        "path",
        "copy the file again, or, if the bytes after that length are not its own: truncate -s {offset} {file}",
    ),
    "put-back": (
        "path",
        "put back the part of the log that is missing; if it is lost, with no writer running: mqstore repair {path} --into NEW "
        "--yes keeps the offsets of all other messages",
    ),
    "repair": _REPAIR,
    "repair-copy": ("path", "mqstore repair {path} --into NEW --yes repairs a copy"),
    "rebuild": (
        "path",
        "if there is nothing to copy it from, mqstore rebuild {path} --yes sets it aside and makes it again from the log",
    ),
    "copy-whole": ("path", "mqstore copy {path} NEW --skip-damaged takes over what is whole; queue offsets are new there"),
    "read-only": None,
    "walk-log": None,
    "start-at-bound": None,
    "discard-tail": ("discard_tail", "--discard-tail removes it"),
}


def text_without_advice(error: Exception) -> str:
    """Returns what is wrong, without what a program can do."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    advice: str | None = getattr(error, "advice", None)
    return str(error) if advice is None else str(error).removesuffix(f"; {advice}")


def ways_of(remedy: Remedy | None, damaged: tuple[str, int] = ("", 0)) -> list[str]:
    """Returns what helps with the store of the command that runs: an option of it, or another command. `damaged` is the file with
    the damage, and the offset in it.
    """
    context = click.get_current_context()
    parameters = {parameter.name for parameter in context.command.params}
    way = None if remedy is None else _WAYS[remedy]
    if way is None or way[0] not in parameters or context.params.get(way[0]) in (True, "salvage"):
        # No command has the option, or it is given already.
        return []
    file, offset = damaged
    return [way[1].format(path=shlex.quote(context.params.get("path", "")), file=shlex.quote(file), offset=offset)]


def of_damage(text: str, remedy: Remedy | None, path: str | None, damaged: tuple[str, int] = ("", 0)) -> str:
    """Returns what is missing or damaged, and what the command that runs, or another one, can do; `damaged` as in `ways_of`."""
    command = click.get_current_context().info_name
    ways = ways_of(remedy, damaged)
    if command == "rebuild":
        # It has verified the store itself, as doctor does.
        ways = ways or ways_of("repair")
    elif path is not None and remedy != "cut-file" and command not in ("doctor", "verify"):
        ways.append(f"see mqstore doctor {shlex.quote(path)}")
    return "; ".join([text, *ways])


def of_argument(text: str) -> str:
    """Returns what is wrong with an argument, which is the first word, under the name of the option that gives it."""
    parameters = click.get_current_context().command.params
    options = {option.name: max(option.opts, key=len) for option in parameters if isinstance(option, click.Option)}
    name = text.partition(" ")[0].rstrip(":,;")
    return f"{options.get(name, name)}{text[len(name) :]}"
