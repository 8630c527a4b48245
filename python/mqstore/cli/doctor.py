"""What is wrong with a store, and what to do next."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import click

import mqstore
from mqstore._rows import rows_of
from mqstore._transactions import open_halves
from mqstore.cli._findings import print_findings, rows_of_findings
from mqstore.cli._main import FINDINGS, command
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store
from mqstore.cli.dead import DEAD

SEVERITIES = ("error", "warning", "note")
#: What a finding of `verify` says that those here do not.
UNKNOWN: Row = dict.fromkeys(("topic", "queue_id", "queue_offset", "physical_offset", "key"))


@command(examples=("doctor /data/store", "doctor /data/store --json"))
@on_store
def doctor(store: mqstore.Store, out: Output) -> None:
    """Says what is wrong with a store and what to do next.

    It finds what verify --quick finds, what the next start after a crash would lose, and what waits for somebody: consumers,
    dead letters, transactions. It reads the log, without the checksums of bodies, and changes nothing. Exit code 1 for an
    error or a warning.
    """
    found = rows_of_findings(store.verify(deep=False, progress=out.progress).findings)
    if cut := list(_of_crash(store)):
        # It says the same with its place.
        found = [*cut, *(finding for finding in found if finding["id"] != "log.ends_early")]
    found += [*_of_consumers(store), *_of_dead(store), *_of_transactions(store, out)]
    found.sort(key=lambda finding: SEVERITIES.index(finding["severity"]))
    ok = all(finding["severity"] == "note" for finding in found)
    if out.as_json:
        out.object({"ok": ok, "findings": found})
    else:
        print_findings(out, found)
        out.line("nothing is wrong; verify also compares bodies with their checksums" if ok else "something is wrong")
    if not ok:
        raise click.exceptions.Exit(FINDINGS)


def _finding(
    id: str, severity: Literal["error", "warning", "note"], message: str, meaning: str, fix: str, **places: object
) -> Row:
    """As `Finding.to_dict` of what `verify` finds."""
    where = {"file": None, "offset": None, "last_offset": None, "count": 1, **UNKNOWN} | places
    return {"id": id, "severity": severity, **where, "message": message, "meaning": meaning, "known_as": "", "fix": fix}


def _of_crash(store: mqstore.Store) -> Iterator[Row]:
    """Damage at which the log of a crashed store ends, although whole messages follow: then it is not complete."""
    if store.recovery.clean_exit or store.recovery.complete:
        return
    with warnings.catch_warnings(action="ignore"), mqstore.open(store.path, recovery="salvage") as whole:
        starts = [row["segment"] for row in rows_of(whole.segments())]
        for begin, _ in whole.recovery.lost:
            segment = max((start for start in starts if start <= begin), default=0)
            yield _finding(
                "log.whole_after_end",
                "error",
                f"the log is damaged here, and whole messages follow, up to {whole.recovery.log_end}",
                "the next start of a broker ends the log here and removes them",
                f"before anything is started on it: mqstore repair {shlex.quote(store.path)} --into NEW --yes keeps what is "
                "whole on both sides, in a copy",
                file=f"{store.path}/commitlog/{segment:020}",
                offset=begin - segment,
                last_offset=begin - segment,
                physical_offset=begin,
            )


def _of_consumers(store: mqstore.Store) -> Iterator[Row]:
    file = f"{store.path}/config/consumerOffset.json"
    try:
        rows = rows_of(store.lag())
    except mqstore.NotFoundError:
        return
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError) as error:
        meaning = "nobody can tell here what the groups have consumed"
        message, offset = (error.reason, error.offset) if isinstance(error, mqstore.CorruptError) else (str(error), 0)
        fix = "restore the file from a backup"
        yield _finding("consumer.not_read", "warning", message, meaning, fix, file=file, offset=offset, last_offset=offset)
        return
    for row in rows:
        if row["offset"] is None or row["min_offset"] is None:
            continue
        where = f"group {row['group']}, {row['topic']}/{row['queue_id']}"
        places = {"file": file, "offset": 0, "last_offset": 0, "topic": row["topic"], "queue_id": row["queue_id"]}
        if row["offset"] > row["max_offset"]:
            yield _finding(
                "consumer.past_end",
                "warning",
                f"{where}: the offset {row['offset']} is past the end of the queue, {row['max_offset']}",
                "messages were lost, or config/ is of another store",
                "reset the offset of the group before it consumes again",
                **places,
            )
        elif row["offset"] < row["min_offset"]:
            yield _finding(
                "consumer.expired_unread",
                "warning",
                f"{where}: {row['min_offset'] - row['offset']} messages expired before the group had consumed them",
                "segments are removed by age, and the group is slower than that",
                f"keep segments for longer (fileReservedTime), or find out why it lags: mqstore lag {_named(store)} "
                f"{shlex.quote(row['group'])}",
                **places,
            )


def _of_dead(store: mqstore.Store) -> Iterator[Row]:
    for name in store.topics:
        if not name.startswith(DEAD):
            continue
        try:
            queues = store.topics[name].queues
            waiting = sum(len(queues[queue_id]) for queue_id in store.topics[name].queue_ids)
        except mqstore.UnsupportedFormatError:
            continue
        if waiting:
            group = name.removeprefix(DEAD)
            yield _finding(
                "dead.letters",
                "note",
                f"{waiting} messages were given up, after consumers of group {group} had failed on them",
                "nobody gets them any more",
                f"mqstore dead {_named(store)} {shlex.quote(group)}; mqstore cat {_named(store)} {shlex.quote(name)}",
                topic=name,
            )


def _of_transactions(store: mqstore.Store, out: Output) -> Iterator[Row]:
    number = 0
    # A broker's progress that cannot be read is a finding about consumers.
    with suppress(mqstore.CorruptError, mqstore.UnsupportedFormatError):
        number = sum(1 for _ in open_halves(store, out.counting))
    if number:
        yield _finding(
            "transaction.open",
            "note",
            f"{number} transactions are neither committed nor rolled back",
            "their messages are in no queue; a broker asks their producers while it runs",
            f"mqstore transactions {_named(store)}",
        )


def _named(store: mqstore.Store) -> str:
    """The store as a command line names it."""
    return shlex.quote(store.path)
