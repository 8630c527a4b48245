"""What the library says, in the words of the command line."""

from __future__ import annotations

import re
import shlex

import click

import mqstore

#: What the library advises a program to do, up to the end of the clause.
_ADVICE = re.compile(
    r"(?:; |, or )(?:to go on writing, [^;]*|(?:to read the other messages, use )?(?:open (?:it |the store )?with )?"
    r'(?:errors="skip"|recovery="salvage"|mode "r")[^;]*)'
)
_SALVAGE = ("recovery", "--salvage reads what is whole on both sides")
#: Words of such advice, the parameter of a command that does the same, and what it does.
_OPTIONS = {
    'errors="skip"': ("skip_damaged", "--skip-damaged leaves out what was lost or is damaged"),
    'recovery="salvage" to read': _SALVAGE,
    '(with mode "r" too': _SALVAGE,
}


def without_advice(text: str) -> str:
    """The text without what is for programs."""
    return _ADVICE.sub("", text)


def missing_of(store: mqstore.Store) -> str | None:
    """What the store lacks, if it is not complete."""
    missing = store.recovery.missing
    return None if missing is None else without_advice(missing)


def of_damage(text: str, path: str | None, only_place: bool = False) -> str:
    """Returns what is missing or damaged, or only the place, and what the command that runs, or another one, can do."""
    context = click.get_current_context()
    parameters = {parameter.name for parameter in context.command.params}
    ways = [what for words, (parameter, what) in _OPTIONS.items() if words in text and parameter in parameters]
    if path is not None and context.info_name == "rebuild":
        # It has verified the store, and doctor may advise a rebuild: it does not read the bodies.
        ways.append(f"mqstore repair {shlex.quote(path)} --into NEW --yes keeps what is whole, in a copy")
    elif path is not None and context.info_name not in ("doctor", "verify"):
        ways.append(f"see mqstore doctor {shlex.quote(path)}")
    # The sentence begins with the file and the byte.
    return "; ".join([text.partition(": ")[0] if only_place else without_advice(text), *ways])


def of_argument(text: str) -> str:
    """What is wrong with an argument, which is the first word, under the name of the option that gives it."""
    parameters = click.get_current_context().command.params
    options = {option.name: max(option.opts, key=len) for option in parameters if isinstance(option, click.Option)}
    return re.sub(r"^\w+", lambda name: options.get(name[0], name[0]), text)
