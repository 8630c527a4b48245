"""The findings about a store in one list: those of `verify`, the traces of a crash, and messages that wait."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import mqstore
from mqstore._broker_topics import DEAD, SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_GROUP
from mqstore._delays import delivery_of, undelivered
from mqstore._facts import file_queues
from mqstore._fixes import BEFORE_ANYTHING, WITHOUT_WRITER, Fix, run, words
from mqstore._groups import by_topic, lags_of, progress_of
from mqstore._lost_queues import has_queue
from mqstore._rows import date_order, json_time, rows_of
from mqstore._settings import missing_settings, why_missing
from mqstore._timers import count_timers

#: A finding with the names of `Finding.to_dict`.
Row: TypeAlias = dict[str, Any]

SEVERITIES = ("error", "warning", "note")
#: Fields of findings of `verify` that other findings may leave out.
UNKNOWN: Row = {**dict.fromkeys(("topic", "queue_id", "queue_offset", "physical_offset", "key")), "lost": ()}
#: The fix of all that is wrong where the log has no segment, or only empty ones.
_LOG_GONE = words(
    "put back commitlog/ from a backup: no segment of it is left, and queues and index hold no message; without a backup, all "
    "messages are lost, and a new store begins in an empty directory"
)
#: The words of a next step that must be done before the store is opened for writing again.
BEFORE_START = ", before a broker or another writer starts"
#: The age in seconds of an unconsumed message from which on its group counts as stuck.
_LONG = 86_400
#: The reasons of `NextRemoval`, in words.
_REASONS = {"age": "its age", "log_bytes": "the length of the log", "disk": "the use of the disk"}
#: Findings that a broker may have while it runs.
_OF_RUNNING = ("consumer.past_end", "consumer.expired_unread", "transaction.not_read", "timer.not_read")


def findings_of(store: mqstore.Store, found: mqstore.VerifyReport) -> list[Row]:
    """Returns all findings, the worst first: errors, warnings, notes; of the notes dead letters, open transactions, delayed
    messages, timers, the next removal and lag come last, in this order.
    """
    rows = rows_of_findings(found.findings, store.path)
    if cut := list(_of_crash(store)):
        # The findings after a crash report the same with file and byte.
        rows = [*cut, *(row for row in rows if row["id"] != "log.ends_early")]
    verified = list(rows)
    rows += _of_settings(store)
    consumers = list(_of_consumers(store, verified))
    rows += [row for row in consumers if row["id"] != "consumer.lag"]
    rows += [*_of_dead(store), *_of_transactions(store, verified), *_of_delayed(store, verified), *_of_timers(store, verified)]
    rows += _of_retention(store)
    rows += [row for row in consumers if row["id"] == "consumer.lag"]
    # The findings `*.not_read` explain the damage of a file of settings.
    known = {row["file"] for row in rows if row["id"].endswith(".not_read")}
    rows = [row for row in rows if row["id"] != "config.unreadable" or row["file"] not in known]
    return sorted(_beside_writer(rows, store.path), key=lambda row: SEVERITIES.index(row["severity"]))


def rows_of_findings(findings: Iterable[mqstore.Finding], path: str) -> list[Row]:
    """Returns findings of `verify` as dicts. Those about the index name its file. Without a log no repair is a fix."""
    rows = [finding.to_dict() for finding in findings]
    has_log = any(file.stat().st_size for file in Path(path, "commitlog").glob("[0-9]*") if file.is_file())
    for row in rows:
        if row["id"].startswith("index.") and "index" not in row["message"]:
            row["message"] = f"index file {Path(row['file']).name}: {row['message']}"
        if not has_log and row["severity"] == "error" and row["fix"].changes_store():
            row["fix"] = _LOG_GONE
    return _beside_writer(rows, path)


def _beside_writer(rows: list[Row], path: str) -> list[Row]:
    """Replaces the fixes that a live writer makes impossible: a repair and a rebuild refuse its store."""
    if not any(row["id"] == "store.not_closed" and row["message"] == "a writer has the store open" for row in rows):
        return rows
    for row in rows:
        if row["fix"].condition:
            before = f"{row['fix'].before}stop the writer, and ask again: "
            row["fix"] = words("") if row["severity"] == "note" else run(("doctor", path), before=before, stops_writer=True)
    return rows


def is_ok(findings: Iterable[Mapping[str, Any]]) -> bool:
    """Returns whether nothing is wrong: every finding is a note."""
    return all(row["severity"] == "note" for row in findings)


def do_next(findings: Iterable[Mapping[str, Any]]) -> str | None:
    """Returns the first step of the most urgent fix, or None where nothing has to be done. A command is at its end, and runs as
    it is.
    """
    if (urgent := _urgent(findings)) is None:
        return None
    fix: Fix = urgent["fix"]
    return fix.step()


def next_line(findings: Iterable[Mapping[str, Any]]) -> str | None:
    """Returns the line with the next step, which says if it must be done before a broker, or another writer, starts. Where
    something is wrong and nothing has to be done now, it says why.
    """
    rows = list(findings)
    if (urgent := _urgent(rows)) is None:
        later = next((row["fix"] for row in rows if row["fix"] and row["severity"] != "note"), None)
        return None if later is None else f"nothing has to be done now: {later}"
    fix: Fix = urgent["fix"]
    is_needed = fix.changes_store() or (urgent["severity"] != "note" and urgent["id"] not in _OF_RUNNING)
    is_before_start = is_needed and not fix.stops_writer
    return f"do next{BEFORE_START if is_before_start else ''}: {fix.step()}"


def _urgent(findings: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Returns the first finding that asks for something. Where something is wrong, a note does not count."""
    rows = list(findings)
    wrong = [row for row in rows if row["severity"] != "note"]
    return next((row for row in wrong or rows if row["fix"] and row["fix"].is_now), None)


def _finding(
    id: str, severity: Literal["error", "warning", "note"], message: str, meaning: str, fix: Fix, **located: object
) -> Row:
    where = {"file": None, "offset": None, "last_offset": None, "count": 1, **UNKNOWN} | located
    return {"id": id, "severity": severity, **where, "message": message, "meaning": meaning, "known_as": "", "fix": fix}


class _Reads:
    """Registers reads, as a `Counting`, and reports what they have skipped as a finding."""

    def __init__(self) -> None:
        self._reads: list[Any] = []

    def __call__(self, read: Any) -> Any:
        self._reads.append(read)
        return read

    def of_skipped(self, id: str, messages: str, counted: str, store: mqstore.Store, verified: list[Row]) -> Iterator[Row]:
        """Yields the finding that `messages` were skipped and the number of `counted` may be wrong, if any was. It is a note if
        a salvage has lost them, because nothing brings them back.
        """
        if skipped := sum(read.skipped for read in self._reads):
            is_damaged = _first_error(verified) is not None
            is_salvaged = not is_damaged and any(row["id"] == "log.lost_messages" for row in verified)
            yield _finding(
                id,
                "note" if is_salvaged else "warning",
                f"{skipped} {messages} were lost or are damaged",
                f"the number of {counted} here may be too low or too high",
                words("") if is_damaged or is_salvaged else run(("verify", store.path), before="read the bodies, too: "),
            )


def _of_crash(store: mqstore.Store) -> Iterator[Row]:
    """Damage at which the log of a crashed store ends, although whole messages follow: then it is not complete."""
    if store.recovery.clean_exit or store.recovery.complete:
        return
    with warnings.catch_warnings(action="ignore"), mqstore.open(store.path, recovery="salvage") as whole:
        starts = [row["segment"] for row in rows_of(whole.inspect.segments())]
        for begin, _ in whole.recovery.lost:
            segment = max((start for start in starts if start <= begin), default=0)
            yield _finding(
                "log.whole_after_end",
                "error",
                f"the log is damaged here, and whole messages follow, up to {whole.recovery.log_end}",
                "the next start of a broker ends the log here and removes them",
                run(
                    ("repair", store.path, "--into", "NEW", "--yes"),
                    condition=BEFORE_ANYTHING,
                    more=" keeps what is whole on both sides, in a copy",
                ),
                file=f"{store.path}/commitlog/{segment:020}",
                offset=begin - segment,
                last_offset=begin - segment,
                physical_offset=begin,
            )


def _first_error(verified: Iterable[Row]) -> Row | None:
    """Returns the first error about the log or its queues, whose fix may bring messages back."""
    errors = (row for row in verified if row["severity"] == "error")
    return next((row for row in errors if row["id"].startswith(("log.", "queue.", "checkpoint."))), None)


def _restored(store: mqstore.Store, file: str, verified: Iterable[Row], started: str) -> Fix:
    """Returns the fix of a file of settings that is damaged or missing, with what a broker that starts without it does."""
    is_set_aside = any((row["id"], row["file"]) == ("config.unreadable", file) for row in verified)
    before = "restore the file from a backup; without a backup, "
    if is_set_aside:
        return run(("repair", store.path, "--yes"), before=before, condition=WITHOUT_WRITER)
    return words(f"{before}start the broker: {started}")


def _of_settings(store: mqstore.Store) -> Iterator[Row]:
    """Settings of a broker that are missing, apart from those that other findings are about."""
    for name, why in missing_settings(store).items():
        if name not in ("consumerOffset.json", "delayOffset.json"):
            file = f"{store.path}/config/{name}"
            yield _finding(
                "config.missing",
                "warning",
                why,
                "a broker that starts without topics.json deletes the queues of its topics in time"
                if name == "topics.json"
                else "a broker starts without these settings",
                _restored(store, file, [], "it writes a new one, to which its operator adds these settings again"),
                file=file,
                offset=0,
                last_offset=0,
            )


def _of_consumers(store: mqstore.Store, verified: list[Row]) -> Iterator[Row]:
    file = f"{store.path}/config/consumerOffset.json"
    started = "it writes a new one, and each group begins where its clients say (consumeFromWhere)"
    unknown = ("the progress of the consumer groups is unknown here", _restored(store, file, verified, started))
    try:
        rows = lags_of(store)
    except mqstore.UnsupportedFormatError:
        # Verify reports offsets that are in a RocksDB database.
        return
    except mqstore.NotFoundError:
        # Without groups there is no file.
        if why := why_missing(store, "consumerOffset.json"):
            yield _finding("consumer.not_read", "warning", why, *unknown, file=file)
        return
    except mqstore.CorruptError as error:
        at = error.offset
        yield _finding("consumer.not_read", "warning", error.reason, *unknown, file=file, offset=at, last_offset=at)
        return
    # Verify reports the queues that are lost.
    topics = {row["topic"] for row in verified if row["id"].startswith("queue.") and row["severity"] == "error"}
    for row in rows:
        is_lost = row["topic"] in topics and not has_queue(store, row["topic"], row["queue_id"])
        if row["offset"] is not None and row["min_offset"] is not None and not is_lost:
            yield from _of_offset(store, row, file, verified)
    by_group: dict[str, list[Row]] = {}
    for row in by_topic(rows):
        by_group.setdefault(row["group"], []).append(row)
    # The broker's own progress shows as open transactions.
    by_group.pop(TRANSACTION_GROUP, None)
    for group, queues in by_group.items():
        lag = sum(row["lag"] for row in queues)
        oldest = next((row for row in queues if row["age"] is not None), None)
        if lag > 0:
            since = f", the oldest since {oldest['unconsumed_since']}" if oldest else ""
            is_stuck = oldest is not None and oldest["age"] >= _LONG
            yield _finding(
                "consumer.lag",
                "note",
                f"group {group} has {lag} messages to consume{since}",
                "its oldest message has waited for a day or longer: its consumers have stopped, or fail, or are too slow"
                if is_stuck
                else "a number that grows means that the group is slower than its producers",
                run(("lag", store.path, group)),
            )


def _of_offset(store: mqstore.Store, row: Row, file: str, verified: list[Row]) -> Iterator[Row]:
    where = f"group {row['group']}, {row['topic']}/{row['queue_id']}"
    located = {"file": file, "offset": 0, "last_offset": 0, "topic": row["topic"], "queue_id": row["queue_id"]}
    if row["offset"] > row["max_offset"]:
        first = _first_error(verified)
        yield _finding(
            "consumer.past_end",
            "warning",
            f"{where}: the offset {row['offset']} is past the end of the queue, {row['max_offset']}",
            "messages were lost, or config/ is of another store",
            words("reset the offset of the group before it consumes again")
            if first is None
            else words(f"do first what {first['id']} asks for", is_now=False),
            **located,
        )
    elif row["offset"] < row["min_offset"]:
        yield _finding(
            "consumer.expired_unread",
            "warning",
            f"{where}: {row['min_offset'] - row['offset']} messages expired before the group had consumed them",
            "segments are removed by age, and the group is slower than that",
            run(
                ("lag", store.path, row["group"]),
                before="keep segments for longer (fileReservedTime), or find out why it lags: ",
            ),
            **located,
        )


def _of_dead(store: mqstore.Store) -> Iterator[Row]:
    for name in store.topics:
        if not name.startswith(DEAD):
            continue
        group = name.removeprefix(DEAD)
        if waiting := _after(store, name, group):
            yield _finding(
                "dead.letters",
                "note",
                f"{waiting} messages were given up, after consumers of group {group} had failed on them",
                "nobody gets them any more",
                run(("dead", store.path, group), more=f"; {WITHOUT_WRITER}: {run(('resend', store.path, group))}"),
                topic=name,
            )


def _of_transactions(store: mqstore.Store, verified: list[Row]) -> Iterator[Row]:
    reads, found = _Reads(), None
    try:
        found = reads(store.broker.transactions())
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError) as error:
        # The finding consumer.not_read has the reason and the fix of a damaged file.
        is_damaged = isinstance(error, mqstore.CorruptError)
        what = "the progress of the broker" if is_damaged else "their queues"
        yield _finding(
            "transaction.not_read",
            "warning" if is_damaged else "note",
            f"open transactions were not counted: {what} cannot be read",
            "half messages may wait for their producers",
            words(""),
        )
    if found is not None and found.halves:
        oldest = json_time(max(found.halves, key=lambda half: half.age).store_time)
        doubt = f"; {found.damaged_stretches} damaged stretches of the log may have ended some" if found.damaged_stretches else ""
        yield _finding(
            "transaction.open",
            "note",
            f"{len(found.halves)} transactions are neither committed nor rolled back, the oldest since {oldest}{doubt}",
            "their messages are in no queue; a broker asks their producers while it runs",
            run(("transactions", store.path)),
        )
    yield from reads.of_skipped("transaction.not_read", "half or op messages", "open transactions", store, verified)


def _of_delayed(store: mqstore.Store, verified: list[Row]) -> Iterator[Row]:
    delivery, number, reads = delivery_of(store), 0, _Reads()
    with suppress(mqstore.UnsupportedFormatError):
        for messages in undelivered(store, delivery).values():
            number += sum(map(len, reads(messages.batches(["queue_offset"], errors="skip"))))
    if number and delivery.is_lost:
        file = f"{store.path}/config/delayOffset.json"
        yield _finding(
            "delayed.not_read",
            "warning",
            f"it is unknown how many of {number} delayed messages wait: {delivery.unknown}",
            "a broker that starts without this file delivers each delay level from its begin: consumers get messages again",
            _restored(store, file, verified, "it writes a new one, and delivers them all"),
            file=file,
            offset=delivery.byte,
            last_offset=delivery.byte,
            topic=SCHEDULE_TOPIC,
        )
    elif number:
        yield _finding(
            "delayed.waiting",
            "note",
            f"{number} messages wait for their delivery{_overdue(store)}",
            "a broker, or a writer of mqstore with services, delivers them while it runs, each when its delay is over",
            run(("delayed", store.path, "-n", "10")),
            topic=SCHEDULE_TOPIC,
        )
    yield from reads.of_skipped("delayed.not_read", "delayed messages", "delayed messages", store, verified)


def _overdue(store: mqstore.Store) -> str:
    """Returns the words for delayed messages that were due before now, or an empty string."""
    try:
        levels = rows_of(store.broker.delay_backlog())
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError):
        # Without the progress nobody knows which of them were delivered.
        return ""
    overdue = sum(level["overdue"] for level in levels)
    oldest = min((row["next_due"] for row in levels if row["next_due"]), default="an unknown time", key=date_order)
    return f", {overdue} of them overdue, the first since {oldest}" if overdue else ""


def _of_timers(store: mqstore.Store, verified: list[Row]) -> Iterator[Row]:
    reads = _Reads()
    number = count_timers(store, reads).waiting
    if number:
        yield _finding(
            "timer.waiting",
            "note",
            f"{number} timer messages wait for their delivery",
            "a broker of 5.x, or a writer of mqstore with services, delivers them while it runs, each at its time",
            run(("cat", store.path, TIMER_TOPIC, "-n", "10")),
            topic=TIMER_TOPIC,
        )
    yield from reads.of_skipped("timer.not_read", "timer messages", "timers", store, verified)


def _of_retention(store: mqstore.Store) -> Iterator[Row]:
    """The segment that goes next, by the options of the open. A store that keeps all has none."""
    try:
        removal = store.broker.next_removal()
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError):
        # Another finding reports the progress that cannot be read.
        return
    if removal is not None and removal.segment is not None:
        begin, end = removal.segment
        needed = ", ".join([*sorted({row[0] for row in removal.kept_for}), *map(slave_in_words, removal.kept_for_slaves)])
        yield _finding(
            "retention.next",
            "note",
            f"the segment from {begin} to {end} goes next{removal_in_words(removal)}",
            f"messages of it are still needed: {needed}" if needed else "nothing needs its messages any more",
            words(""),
            physical_offset=begin,
        )


def slave_in_words(slave: mqstore.Slave) -> str:
    """Returns the address of a slave, and how far it is."""
    return f"slave {slave.address}, which has acknowledged the log up to {slave.acknowledged_offset}"


def removal_in_words(removal: mqstore.NextRemoval) -> str:
    """Returns the reason of a removal, or its time."""
    if removal.reason is not None:
        return f", now, by {_REASONS[removal.reason]}"
    return "" if removal.time is None else f", from {removal.time:%Y-%m-%d %H:%M:%S} UTC on"


def _after(store: mqstore.Store, topic: str, group: str) -> int:
    """Returns the number of messages of a topic after the progress of a group; 0 without readable queues."""
    # The finding consumer.not_read is about progress that cannot be read.
    progress, _ = progress_of(store)
    return sum(
        max(0, queue.max_offset - max(queue.min_offset, progress.get((group, topic, queue.queue_id), 0)))
        for _, queue in file_queues(store, topic)
    )
