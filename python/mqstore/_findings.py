"""The findings about a store in one list: what `verify` finds, what a crash has left, and what waits for consumers."""

from __future__ import annotations

import re
import shlex
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import mqstore
from mqstore._broker_topics import DEAD, SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_GROUP
from mqstore._rows import rows_of
from mqstore._timers import count_timers
from mqstore._transactions import Counting, open_halves

#: A finding with the names of `Finding.to_dict`.
Row: TypeAlias = dict[str, Any]

SEVERITIES = ("error", "warning", "note")
#: Fields of what `verify` finds that other findings may leave out.
UNKNOWN: Row = dict.fromkeys(("topic", "queue_id", "queue_offset", "physical_offset", "key"))
#: A fix that changes the store, with its condition. It fails while a writer runs.
_WITHOUT_WRITER = re.compile(r"(with no writer running|before anything is started on it): mqstore .*")
#: Fixes that ask for nothing now.
_NO_ACTION = ("the next open for writing sets it right", "do first what ")


def findings_of(store: mqstore.Store, found: mqstore.VerifyReport, counting: Counting) -> list[Row]:
    """Returns all findings, the worst first: errors, warnings, notes; of the notes dead letters, open transactions, delayed
    messages, timers and lag come last, in this order.
    """
    rows = rows_of_findings(found.findings, store.path)
    if cut := list(_of_crash(store)):
        # It says the same with its place.
        rows = _beside_writer([*cut, *(row for row in rows if row["id"] != "log.ends_early")], store.path)
    consumers = list(_of_consumers(store))
    rows += [row for row in consumers if row["id"] != "consumer.lag"]
    rows += [*_of_dead(store), *_of_transactions(store, counting), *_of_delayed(store), *_of_timers(store, counting)]
    rows += [row for row in consumers if row["id"] == "consumer.lag"]
    return sorted(rows, key=lambda row: SEVERITIES.index(row["severity"]))


def rows_of_findings(findings: Iterable[mqstore.Finding], path: str) -> list[Row]:
    """Returns findings of `verify` as dicts. Those about the index name its file."""
    rows = [finding.to_dict() for finding in findings]
    for row in rows:
        if row["id"].startswith("index.") and "index" not in row["message"]:
            row["message"] = f"index file {Path(row['file']).name}: {row['message']}"
    return _beside_writer(rows, path)


def _beside_writer(rows: list[Row], path: str) -> list[Row]:
    """Replaces the fixes that a live writer makes impossible: a repair and a rebuild refuse its store."""
    if not any(row["id"] == "store.not_closed" and row["message"] == "a writer has the store open" for row in rows):
        return rows
    ask_again = f"stop the writer, and ask again: mqstore doctor {shlex.quote(path)}"
    for row in rows:
        if condition := _WITHOUT_WRITER.search(row["fix"]):
            row["fix"] = row["fix"][: condition.start()] + ("" if row["severity"] == "note" else ask_again)
    return rows


def is_ok(findings: Iterable[Mapping[str, Any]]) -> bool:
    """Returns whether nothing is wrong: every finding is a note."""
    return all(row["severity"] == "note" for row in findings)


def do_next(findings: Iterable[Mapping[str, Any]]) -> str | None:
    """Returns the first step of the most urgent fix, or None where nothing has to be done."""
    fixes = (row["fix"] for row in findings if row["fix"] and not row["fix"].startswith(_NO_ACTION))
    urgent = next(fixes, None)
    return None if urgent is None else re.split(r"; (?=if |mqstore )", urgent, maxsplit=1)[0]


def _finding(
    id: str, severity: Literal["error", "warning", "note"], message: str, meaning: str, fix: str, **places: object
) -> Row:
    where = {"file": None, "offset": None, "last_offset": None, "count": 1, **UNKNOWN} | places
    return {"id": id, "severity": severity, **where, "message": message, "meaning": meaning, "known_as": "", "fix": fix}


class _Reads:
    """Registers reads, as a `Counting`, and reports what they have skipped as a finding."""

    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self._reads: list[Any] = []

    def __call__(self, read: Any) -> Any:
        self._reads.append(read)
        return self._counting(read)

    def of_skipped(self, id: str, messages: str, counted: str) -> Iterator[Row]:
        """Yields the warning that `messages` were skipped and the number of `counted` may be wrong, if any was."""
        if skipped := sum(read.skipped for read in self._reads):
            yield _finding(
                id,
                "warning",
                f"{skipped} {messages} were lost or are damaged",
                f"the number of {counted} here may be too low or too high",
                "",
            )


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
                f"before anything is started on it: mqstore repair {_named(store)} --into NEW --yes keeps what is "
                "whole on both sides, in a copy",
                file=f"{store.path}/commitlog/{segment:020}",
                offset=begin - segment,
                last_offset=begin - segment,
                physical_offset=begin,
            )


def _of_consumers(store: mqstore.Store) -> Iterator[Row]:
    file = f"{store.path}/config/consumerOffset.json"
    unknown = ("the progress of the consumer groups is unknown here", "restore the file from a backup")
    try:
        rows = rows_of(store.lag())
    except mqstore.UnsupportedFormatError:
        # Verify reports offsets that are in a RocksDB database.
        return
    except mqstore.NotFoundError:
        # Without groups there is no file.
        if aside := sorted(Path(store.path).glob("mqstore-backup-*/config/consumerOffset.json")):
            message = f"a repair has set the damaged file aside: {aside[-1]}"
            yield _finding("consumer.not_read", "warning", message, *unknown, file=file)
        return
    except mqstore.CorruptError as error:
        at = error.offset
        yield _finding("consumer.not_read", "warning", error.reason, *unknown, file=file, offset=at, last_offset=at)
        return
    for row in rows:
        if row["offset"] is not None and row["min_offset"] is not None:
            yield from _of_offset(store, row, file)
    lags = Counter[str]()
    for row in rows:
        lags[row["group"]] += row["lag"] or 0
    for group, lag in lags.most_common():
        # The broker's own progress shows as open transactions.
        if lag > 0 and group != TRANSACTION_GROUP:
            yield _finding(
                "consumer.lag",
                "note",
                f"group {group} has {lag} messages to consume",
                "a number that grows means that the group is slower than its producers",
                f"mqstore lag {_named(store)} {shlex.quote(group)}",
            )


def _of_offset(store: mqstore.Store, row: Row, file: str) -> Iterator[Row]:
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
        if name.startswith(DEAD) and (waiting := _length(store, name)):
            group = name.removeprefix(DEAD)
            yield _finding(
                "dead.letters",
                "note",
                f"{waiting} messages were given up, after consumers of group {group} had failed on them",
                "nobody gets them any more",
                f"mqstore dead {_named(store)} {shlex.quote(group)}; mqstore cat {_named(store)} {shlex.quote(name)}",
                topic=name,
            )


def _of_transactions(store: mqstore.Store, counting: Counting) -> Iterator[Row]:
    number, reads = 0, _Reads(counting)
    try:
        number = sum(1 for _ in open_halves(store, reads))
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError) as error:
        # The finding consumer.not_read has the reason and the fix of a damaged file.
        is_damaged = isinstance(error, mqstore.CorruptError)
        what = "the progress of the broker" if is_damaged else "their queues"
        yield _finding(
            "transaction.not_read",
            "warning" if is_damaged else "note",
            f"open transactions were not counted: {what} cannot be read",
            "half messages may wait for their producers",
            "",
        )
    if number:
        yield _finding(
            "transaction.open",
            "note",
            f"{number} transactions are neither committed nor rolled back",
            "their messages are in no queue; a broker asks their producers while it runs",
            f"mqstore transactions {_named(store)}",
        )
    yield from reads.of_skipped("transaction.not_read", "half or op messages", "open transactions")


def _of_delayed(store: mqstore.Store) -> Iterator[Row]:
    delivered: dict[int, int] = {}
    # Without the broker's progress all messages count as waiting. Verify reports a file that cannot be read.
    with suppress(mqstore.NotFoundError, mqstore.CorruptError):
        delivered = {row["level"] - 1: row["offset"] for row in rows_of(store.delay_offsets())}
    if number := _length(store, SCHEDULE_TOPIC, delivered):
        yield _finding(
            "delayed.waiting",
            "note",
            f"{number} messages wait for their delivery",
            "a broker delivers them while it runs, each when its delay is over",
            f"mqstore delayed {_named(store)} -n 10",
            topic=SCHEDULE_TOPIC,
        )


def _of_timers(store: mqstore.Store, counting: Counting) -> Iterator[Row]:
    reads = _Reads(counting)
    number = count_timers(store, reads)
    if number:
        yield _finding(
            "timer.waiting",
            "note",
            f"{number} timer messages are due after the last message of the store",
            "a broker of 5.x delivers them while it runs, each at its time",
            f"mqstore cat {_named(store)} {TIMER_TOPIC} -n 10",
            topic=TIMER_TOPIC,
        )
    yield from reads.of_skipped("timer.not_read", "timer messages", "timers")


def _length(store: mqstore.Store, topic: str, done: dict[int, int] | None = None) -> int:
    """Returns how many messages the queues of a topic have, from an offset on for some queue ids; 0 without readable queues."""
    if topic not in store.topics:
        return 0
    begins = done or {}
    with suppress(mqstore.UnsupportedFormatError):
        queues = store.topics[topic].queues
        each = ((queue_id, queues[queue_id]) for queue_id in store.topics[topic].queue_ids)
        return sum(max(0, queue.max_offset - max(begins.get(queue_id, 0), queue.min_offset)) for queue_id, queue in each)
    return 0


def _named(store: mqstore.Store) -> str:
    """Returns the path of the store as a command line takes it."""
    return shlex.quote(store.path)
