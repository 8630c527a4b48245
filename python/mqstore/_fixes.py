"""Fixes of findings: a sentence, with the command and its condition as data."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

WITHOUT_WRITER = "with no writer running"
BEFORE_ANYTHING = "before anything is started on it"
#: Commands that change a store, or make another one in its place.
_CHANGING = ("repair", "rebuild", "copy")


class Fix(str):
    """The fix of a finding: a sentence and its parts; empty if nothing has to be done."""

    before: str = ""
    """The words before the condition and the command."""
    condition: str = ""
    """The condition of the command: `WITHOUT_WRITER`, `BEFORE_ANYTHING` or none."""
    command: tuple[str, ...] = ()
    """The words of the command; NEW stands for a directory that does not exist."""
    is_now: bool = True
    """False if nothing has to be done now."""
    stops_writer: bool = False
    """True if it asks to stop the writer."""

    def changes_store(self) -> bool:
        """Returns whether the command changes the store, or makes another one in its place."""
        return self.command[1:2] != () and self.command[1] in _CHANGING

    def step(self) -> str:
        """Returns the words up to the end of the command, which runs as it is and is at the end; without a command, all words."""
        if not self.command:
            return str(self)
        command = shlex.join(_with_target(self.command))
        if not self.condition:
            return self.before + command
        before = self.before.removesuffix(", ")
        return f"{before}: {command}" if before else command


def words(text: str, *, is_now: bool = True) -> Fix:
    """Returns a fix without a command."""
    fix = Fix(text)
    fix.is_now = is_now
    return fix


def run(command: Iterable[str], *, before: str = "", condition: str = "", more: str = "", stops_writer: bool = False) -> Fix:
    """Returns the fix with a command of mqstore, with words before it and after it."""
    command = ("mqstore", *command)
    fix = Fix(f"{before}{condition}{': ' if condition else ''}{shlex.join(command)}{more}")
    fix.before, fix.condition, fix.command, fix.stops_writer = before, condition, command, stops_writer
    return fix


def _with_target(command: tuple[str, ...]) -> list[str]:
    """Returns the command with a directory that does not exist beside the store instead of NEW."""
    if "NEW" not in command[3:]:
        return list(command)
    target = _unused(_named(command[2]), "repaired")
    return [*command[:3], *(target if word == "NEW" else word for word in command[3:])]


def _named(store: str) -> str:
    """Returns the path with a name of its own at the end, which "." has not."""
    store = store.rstrip("/")
    return str(Path(store).resolve()) if Path(store).name in ("", "..") else store


def _unused(path: str, end: str) -> str:
    """Returns a path beside `path` that does not exist."""
    beside = (f"{path}.{end}{number or ''}" for number in count())
    return next(path for path in beside if not Path(path).exists())


def swap(store: str, copy: str) -> str:
    """Returns the command that verifies a copy of a store, renames the store, and puts the copy in its place."""
    store = _named(store)
    commands = (("mqstore", "verify", copy), ("mv", "-T", store, _unused(store, "damaged")), ("mv", "-T", _named(copy), store))
    return " && ".join(map(shlex.join, commands))


@dataclass(frozen=True)
class _Finding:
    """The values in the words for a fix of `verify`."""

    path: str
    """The store."""
    detail: str
    """The finding that comes first, the work of an operator, or what to try before the fix."""


_PUT_BACK = "put back the part of the log that is missing; if "


def _rebuild(finding: _Finding) -> Fix:
    before = f"{_PUT_BACK}none is, " if finding.detail == "put-back" else ""
    return run(("rebuild", finding.path, "--yes"), before=before, condition=WITHOUT_WRITER)


#: The words for each fix of the findings of `verify`, by its name in the core.
_OF_VERIFY: dict[str, Callable[[_Finding], Fix]] = {
    "rebuild": _rebuild,
    "salvage": lambda finding: run(("repair", finding.path, "--into", "NEW", "--yes"), condition=WITHOUT_WRITER),
    "set-aside": lambda finding: run(("repair", finding.path, "--yes"), condition=WITHOUT_WRITER),
    "correct": lambda finding: run(("repair", finding.path, "--yes"), condition=WITHOUT_WRITER),
    "copy-whole": lambda finding: run(
        ("copy", finding.path, "NEW", "--skip-damaged"), more=" takes over what is whole; queue offsets are new there"
    ),
    "open": lambda _: words("the next open for writing sets it right", is_now=False),
    "put-back": lambda finding: run(
        ("repair", finding.path, "--into", "NEW", "--yes"),
        before=f"{_PUT_BACK}it is lost, ",
        condition=WITHOUT_WRITER,
        more=" keeps the offsets of all other messages",
    ),
    "after": lambda finding: words(f"do first what {finding.detail} asks for, and verify again", is_now=False),
    "by-hand": lambda finding: words(finding.detail),
    "nothing": lambda _: words(""),
}


def of_verify(name: str, path: str, detail: str) -> Fix:
    """Returns the words for a fix of the core in the store `path`."""
    return _OF_VERIFY[name](_Finding(path, detail))
