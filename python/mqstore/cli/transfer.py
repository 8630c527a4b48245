"""The commands `export`, `import` and `copy`."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

import mqstore
from mqstore._lost_queues import lost_in_scan, lost_in_words
from mqstore.cli._main import Failure, command, from_the_command_line, text_of
from mqstore.cli._messages import chosen_by, expect_none_absent, no_message_of
from mqstore.cli._output import Output, Row, skipped_in_words
from mqstore.cli._store import opened, options, prints, recovery
from mqstore.files import Copied, Exported

skip_damaged = click.option("--skip-damaged", is_flag=True, help="Leaves out and counts lost and damaged messages.")
body_as = click.option(
    "--body-as",
    type=click.Choice(["base64", "text", "json"]),
    default="base64",
    metavar="FORM",
    help="Bodies in text files: base64 (default), text or json.",
)
source = click.argument("path", metavar="STORE", type=click.Path())
target = click.argument("target", type=click.Path())


def file_format(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the option for the format of files to a command."""
    words = f"{', '.join(names)}; default: by name, or parquet."
    return click.option("--format", type=click.Choice(names), metavar="FORM", help=words)


@command(examples="export /data/store dead.jsonl --topic %DLQ%billing --decode-body")
@source
@target
@prints
@file_format("parquet", "arrow", "jsonl", "csv")
@click.option("--partition-by", metavar="LIST", help="By topic, hour or topic,hour; TARGET becomes a directory.")
@body_as
@click.option("--decode-body", is_flag=True, help="Decompresses bodies, and clears the flag in sys_flag.")
@click.option("--spreadsheet", is_flag=True, help="Puts a ' before cells of csv that begin like a formula.")
@chosen_by("topics", "tags", "properties", "body_regex", "since", "until", "everything")
@skip_damaged
@recovery
def export(
    path: str,
    target: str,
    out: Output,
    format: Any,
    partition_by: str | None,
    body_as: Any,
    decode_body: bool,
    spreadsheet: bool,
    conditions: dict[str, Any],
    skip_damaged: bool,
    recovery: str,
) -> None:
    """Writes messages to Parquet, Arrow IPC, JSON Lines or CSV."""
    partitions: Any = partition_by.split(",") if partition_by else ()
    with opened(path, out, errors=_errors(skip_damaged), recovery=recovery) as store, from_the_command_line():
        _expect_a_topic(store, out, conditions.get("topics", ()))
        how: dict[str, Any] = {"format": format, "partition_by": partitions, "progress": out.progress}
        how |= {"body_as": body_as, "decode_body": decode_body, "spreadsheet": spreadsheet}
        with _without_warning_of_lost():
            done = store.export(target, **how, **conditions)
        out.document(_facts(done, {"files": len(done.files)}))
        _expect_whole(store, done, _lost(store, done, conditions, out))


@command(name="import", examples="import /data/store orders.parquet")
@source
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True))
@prints
@file_format("parquet", "arrow", "jsonl")
@click.option("--topic", help="The topic of rows without one.")
@body_as
@options
def import_from(
    path: str, files: tuple[str, ...], out: Output, format: Any, topic: str | None, body_as: Any, options: dict[str, Any]
) -> None:
    """Appends the messages of files that export wrote, except CSV.

    It writes to STORE, and creates it if it is missing: no broker may have the store open. Offsets and store times are new;
    copy keeps store times.
    """
    with from_the_command_line(), opened(path, out, "a", **options | {"services": False}) as store:
        try:
            done = store.import_from(files, format=format, topic=topic, body_as=body_as, progress=out.progress)
        except Exception as error:
            if not getattr(error, "stored", 0):
                raise
            raise Failure(f"the import is partial: {text_of(error, store.path)}") from None
    out.document({"path": store.path, "files": len(done.files), "rows": done.rows})


@command(
    examples=("copy /data/store /data/trimmed --since -24h", "copy /data/store /data/orders --topic orders --rename orders=old")
)
@source
@target
@prints
@chosen_by("topics", "tags", "properties", "body_regex", "since", "until")
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Renames a topic; may be repeated.")
@click.option("--new-store-times", is_flag=True, help="Store times are new, not those of STORE.")
@skip_damaged
@recovery
def copy(
    path: str,
    target: str,
    out: Output,
    conditions: dict[str, Any],
    rename: tuple[str, ...],
    new_store_times: bool,
    skip_damaged: bool,
    recovery: str,
) -> None:
    """Copies messages into a new store.
    A broker can open TARGET. Queue offsets begin at 0. Half and deleted messages, and the settings of a broker, are not copied.
    """
    pairs = [text.partition("=") for text in rename]
    if wrong := [text for text, (_, _, new) in zip(rename, pairs, strict=True) if not new]:
        raise click.BadParameter(f"{wrong[0]!r}: expected OLD=NEW", param_hint="--rename")
    names = {old: new for old, _, new in pairs}
    with opened(path, out, errors=_errors(skip_damaged), recovery=recovery) as store, from_the_command_line():
        for topics in (conditions.get("topics", ()), *([old] for old in names)):
            _expect_a_topic(store, out, topics)
        how: dict[str, Any] = {"rename": names, "keep_store_time": not new_store_times, "progress": out.progress}
        with _without_warning_of_lost():
            done = store.copy_to(target, **how, **conditions)
        left_out = sum(done.left_out.values())
        out.document(_facts(done, {"topics": len(done.topics), "left_out": left_out, "raised": done.raised}))
        _expect_whole(store, done, _lost(store, done, conditions, out))


def _expect_a_topic(store: mqstore.Store, out: Output, topics: Sequence[str]) -> None:
    """Fails before anything is written if no named topic exists. The log may still have messages of a deleted topic."""
    if topics and not any(topic in store.topics for topic in topics):
        batches = store.scan(topics=topics, columns=["topic"], limit=1, progress=out.progress)
        if not list(batches):
            expect_none_absent(store, batches.absent_topics)


@contextmanager
def _without_warning_of_lost() -> Iterator[None]:
    """Ignores the warning of lost queues, which the last line of the command repeats."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is partial: the files of queues are lost", RuntimeWarning)
        yield


def _lost(store: mqstore.Store, done: Exported | Copied, conditions: dict[str, Any], out: Output) -> str | None:
    lost = lost_in_scan(store, conditions, out.progress, done.lost_queues) if done.lost_queues else Counter[tuple[str, int]]()
    return lost_in_words(store, lost)


def _expect_whole(store: mqstore.Store, done: Exported | Copied, lost: str | None) -> None:
    """Fails with the reason if messages are missing in the output."""
    reasons = [skipped_in_words(done.skipped)] if done.skipped else []
    if store.recovery.missing is not None:
        reasons.append("the store is incomplete")
    if not reasons and lost is None and not done.complete:
        reasons.append("messages expired while they were read")
    reasons += [] if lost is None else [lost]
    reasons += [no_message_of(store, topic) for topic in done.absent_topics]
    if reasons:
        # The result comes before the error, also if stdout and stderr are the same file.
        sys.stdout.flush()
        raise Failure(f"{done.path} is partial: {'; '.join(reasons)}")


def _errors(skip_damaged: bool) -> str:
    return "skip" if skip_damaged else "raise"


def _facts(done: Any, more: Row) -> Row:
    """Returns the result of an export or copy for the output."""
    facts = {"path": str(done.path), "rows": done.rows, "bytes": done.bytes, "skipped": done.skipped, "complete": done.complete}
    return facts | dict(more)
