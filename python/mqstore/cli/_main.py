"""The group of commands, and the errors and exit codes of a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

import click

import mqstore
from mqstore._names import there_is
from mqstore._rows import visible
from mqstore.cli import COMMANDS
from mqstore.cli._words import of_argument, of_damage, text_without_advice, ways_of

#: Exit codes: the answer is incomplete or the store has a fault; the command line is wrong; the store cannot be read.
FINDINGS, USAGE, CANNOT_OPEN = 1, 2, 3

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Failure(click.ClickException):
    """Ends the command with one line on stderr."""

    exit_code = FINDINGS

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def show(self, file: Any = None) -> None:
        """Writes the line."""
        print(f"mqstore: {self.message}", file=file or sys.stderr)


class Misuse(Failure):
    """The command line is invalid."""

    exit_code = USAGE


class CannotOpen(Failure):
    """The store cannot be read."""

    exit_code = CANNOT_OPEN


class Command(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *arguments: Any, examples: tuple[str, ...], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.examples = examples

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Returns the option that prints the help. The help does not list it, because its reader knows it."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.hidden = True
        return option

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples."""
        with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
            for example in self.examples:
                formatter.write(f"  mqstore {example}\n")

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command, and reports an error of the library in one line."""
        path = ctx.params.get("path")
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            raise
        except mqstore.StoreIOError as error:
            raise CannotOpen(text_of(error, path)) from None
        except (mqstore.StoreError, OSError, IndexError) as error:
            raise Failure(text_of(error, path)) from None
        except ModuleNotFoundError as error:
            if error.name is not None:
                raise
            raise Misuse(str(error)) from None


class Commands(click.Group):
    """The group of commands. It imports a command at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of that name, or None."""
        if (target := COMMANDS.get(cmd_name)) is None:
            return None
        module, _, name = target.partition(":")
        command: click.Command = getattr(import_module(f"mqstore.cli.{module}"), name)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command of the first argument. An unknown name ends with an error that has the closest ones."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"there is no command {visible(args[0])}{there_is(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. Ctrl-C and a closed pipe end the process by their signal, as with other tools."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _die_of("SIGINT")
        except BrokenPipeError:
            _die_of("SIGPIPE")


@contextmanager
def from_the_command_line() -> Iterator[None]:
    """Turns the refusal of an argument by the library into an error of the command line."""
    try:
        yield
    except (mqstore.StoreError, OSError):
        raise
    except (ValueError, TypeError) as error:
        raise Misuse("; ".join([of_argument(str(error)), *_notes(error)])) from None


def text_of(error: Exception, path: str | None) -> str:
    """Returns what is wrong, where, and what helps."""
    return "; ".join([_reason(error, path), *_notes(error)])


def _notes(error: Exception) -> list[str]:
    # The bindings add a note with the name of the argument. The sentence begins with that name already.
    return [note for note in getattr(error, "__notes__", []) if not note.startswith("while processing ")]


def _reason(error: Exception, path: str | None) -> str:
    why = text_without_advice(error)
    if isinstance(error, mqstore.CorruptError):
        return of_damage(why, error.remedy, path, (error.path, error.offset))
    if isinstance(error, OSError) and error.strerror and error.filename:
        why = f"{why}: {error.filename}"
    return "; ".join([why, *ways_of(getattr(error, "remedy", None))])


def _die_of(name: str) -> NoReturn:
    """Ends the process by a signal, which its parent sees."""
    import signal

    number = signal.Signals[name]
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)


def command(*, examples: tuple[str, ...] | str, name: str | None = None) -> Callable[[Callable[..., None]], Command]:
    """Returns a decorator that turns a function into a command. Its docstring is the help."""
    shown = (examples,) if isinstance(examples, str) else examples
    return click.command(name, cls=Command, context_settings=SETTINGS, examples=shown)


@click.group(cls=Commands, context_settings=SETTINGS)
@click.version_option(mqstore.__version__, prog_name="mqstore", message="%(prog)s %(version)s")
def commands() -> None:
    """Reads RocketMQ-format message stores: live, copied or crashed, with no broker.

    STORE is the directory of a store. If something may be wrong with it, begin with doctor, which names the next command.
    Only consume, resend, handover, import, copy, repair, rebuild, trim, replicate, tap, demo and groups --delete write
    a store.
    Exit codes: 0 the answer is complete; 1 it is not: nothing was found, a name does not exist, messages were skipped, a
    queue is lost, the store is incomplete, or something is wrong with it; 2 usage; 3 the store cannot be read.
    """


def run() -> None:
    """Runs the command of `sys.argv`."""
    for name in ("stdout", "stderr"):
        # The parent process may have closed a stream: Python sets it to None.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (until the process ends)
    for stream in (sys.stdout, sys.stderr):
        # The name of a topic may contain characters that the terminal cannot encode.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    commands(prog_name="mqstore")
