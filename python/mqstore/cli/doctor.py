"""What is wrong with a store, and what to do next."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import click

import mqstore
from mqstore._rows import rows_of, visible
from mqstore.cli._main import FINDINGS, command
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store
from mqstore.cli.dead import DEAD
from mqstore.cli.transactions import open_transactions


@dataclass(frozen=True)
class Finding:
    """Something that an operator should know."""

    id: str
    severity: Literal["error", "warning", "info"]
    message: str
    fix: str
    file: str | None = None
    offset: int | None = None


@command(examples=("doctor /data/store", "doctor /data/store --quick --json"))
@on_store
@click.option("--quick", is_flag=True, help="Does not read the log, nor the index.")
def doctor(store: mqstore.Store, out: Output, quick: bool) -> None:
    """Says what is wrong with a store and what to do next.

    It looks at what opening the store found, at the records of the log, the index, the queues, and the progress of consumers.
    It changes nothing. Exit code 1 for an error or a warning. Bodies are not checked.
    """
    findings = [*_of_recovery(store), *_of_queues(store), *_of_consumers(store), *_of_waiting(store)]
    if not quick:
        findings += [*_of_log(store), *_of_index(store)]
    findings.sort(key=lambda finding: ("error", "warning", "info").index(finding.severity))
    ok = all(finding.severity == "info" for finding in findings)
    if out.as_json:
        out.object({"ok": ok, "findings": [_row(finding) for finding in findings]})
    else:
        for finding in findings:
            place = f"{finding.file} at byte {finding.offset}: " if finding.file else ""
            out.line(f"{finding.severity}: {visible(place + finding.message)} [{finding.id}]")
            out.line(f"  {visible(finding.fix)}")
        if ok:
            out.line("nothing is wrong" + (" so far: the log and the index were not read" if quick else ""))
    if not ok:
        raise click.exceptions.Exit(FINDINGS)


def _named(store: mqstore.Store) -> str:
    """The store as a command line names it."""
    return shlex.quote(store.path)


def _row(finding: Finding) -> Row:
    names = ("id", "severity", "file", "offset", "message", "fix")
    return {name: asdict(finding)[name] for name in names}


def _of_recovery(store: mqstore.Store) -> Iterator[Finding]:
    found = store.recovery
    cut = list(_of_crash(store))
    yield from cut
    if found.missing is not None and not cut:
        yield Finding(
            "log-incomplete",
            "error",
            found.missing,
            "If this is a copy, copy it again: commitlog/ last and all else before it. If not, look for the missing segments; "
            "what is there can be read.",
        )
    if not found.clean_exit:
        yield Finding(
            "not-closed",
            "info",
            f"a broker is running, or was killed: there is a file abort. The log ends at {found.log_end}: {found.stop_reason}",
            "Nothing to do beside a running broker. After a crash the next start recovers the store; copy it first if you doubt "
            "the disk.",
        )
    if found.undispatched:
        yield Finding(
            "undispatched",
            "info",
            f"messages in the log that are not in the queue files yet: {found.undispatched}",
            "Nothing to do: they are read all the same, and the next start of a writer puts them there.",
        )
    if found.refused:
        yield Finding(
            "refused",
            "error",
            f"messages with a topic, queue id or queue offset that no queue can have, as they are damaged there: {found.refused}",
            f"mqstore find {_named(store)} --all reads them; export what you need.",
        )
    if found.queue_entries_ahead:
        yield Finding(
            "queues-ahead",
            "warning",
            f"queue entries that point past the end of the log: {found.queue_entries_ahead}. Messages at its end were lost, in a "
            "crash or because the queues were copied after the log",
            "If this is a copy, copy it again: commitlog/ last. If not, the next start of a writer removes these entries.",
        )


def _of_crash(store: mqstore.Store) -> Iterator[Finding]:
    """Damage at which the log of a crashed store ends, although whole messages follow."""
    if store.recovery.clean_exit:
        return
    with warnings.catch_warnings(action="ignore"), mqstore.open(store.path, recovery="salvage") as whole:
        for begin, _ in whole.recovery.lost:
            yield Finding(
                "log-cut",
                "error",
                f"the log is damaged here, and whole messages follow, up to {whole.recovery.log_end}: the next start of a broker "
                "ends the log here and removes them",
                "Copy the directory before anything is started on it. mqstore.open(path, 'r+', recovery='salvage') keeps what "
                "is whole on both sides.",
                *_place(whole, begin),
            )


def _of_log(store: mqstore.Store) -> Iterator[Finding]:
    for begin, end in store.usage(()).unread:
        yield Finding(
            "log-damaged",
            "error",
            f"messages were lost or are damaged in the next {end - begin} bytes of the log",
            "Look for them in a replica or a backup. Make a store of all others with: "
            f"mqstore copy {_named(store)} TARGET --skip-damaged",
            *_place(store, begin),
        )


def _place(store: mqstore.Store, physical_offset: int) -> tuple[str, int]:
    """The segment, and the byte in it."""
    starts = (row["segment"] for row in rows_of(store.segments()))
    segment = max((start for start in starts if start <= physical_offset), default=0)
    return f"commitlog/{segment:020}", physical_offset - segment


def _of_index(store: mqstore.Store) -> Iterator[Finding]:
    for row in rows_of(store.index_files()):
        if not row["used"]:
            yield Finding(
                "index-not-used",
                "warning",
                "keys cannot be reached from their slots"
                if row["whole"] is False
                else "searches by key do not use this index file",
                "Searches find everything all the same: they read the log there, which is slow. See the file with: "
                f"mqstore index {_named(store)}",
                f"index/{row['name']}",
                0,
            )


def _of_queues(store: mqstore.Store) -> Iterator[Finding]:
    for topic in store.topics.values():
        try:
            waiting = sum(len(topic.queues[queue_id]) for queue_id in topic.queue_ids)
        except mqstore.UnsupportedFormatError as error:
            yield Finding("queues-not-read", "info", str(error), "mqstore find and mqstore cat read the messages from the log.")
            continue
        if topic.name.startswith(DEAD) and waiting:
            group = topic.name.removeprefix(DEAD)
            yield Finding(
                "dead-letters",
                "info",
                f"messages that were given up after consumers of group {group} had failed on them: {waiting}",
                f"Count them with: mqstore dead {_named(store)} {group}. See them with: mqstore cat {_named(store)} {topic.name}",
            )


def _of_consumers(store: mqstore.Store) -> Iterator[Finding]:
    try:
        rows = rows_of(store.lag())
    except mqstore.NotFoundError:
        return
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError) as error:
        yield Finding(
            "consumers-not-read", "warning", str(error), "mqstore lag works once the file is whole: restore it from a backup."
        )
        return
    for row in rows:
        where = f"group {row['group']}, {row['topic']}/{row['queue_id']}"
        if row["offset"] is None or row["min_offset"] is None:
            continue
        if row["offset"] > row["max_offset"]:
            yield Finding(
                "offset-past-end",
                "warning",
                f"{where}: the offset {row['offset']} is past the end of the queue, {row['max_offset']}",
                "Messages were lost, or config/ is of another store. Reset the offset of the group before it consumes again.",
            )
        elif row["offset"] < row["min_offset"]:
            yield Finding(
                "expired-unread",
                "warning",
                f"{where}: messages that expired before the group had consumed them: {row['min_offset'] - row['offset']}",
                "Keep segments for longer (fileReservedTime), or find out why the group lags: "
                f"mqstore lag {_named(store)} {row['group']}",
            )


def _of_waiting(store: mqstore.Store) -> Iterator[Finding]:
    if number := sum(1 for _ in open_transactions(store)):
        yield Finding(
            "open-transactions",
            "info",
            f"transactions that are neither committed nor rolled back: {number}",
            f"List them with: mqstore transactions {_named(store)}. The broker asks their producers while it runs.",
        )
