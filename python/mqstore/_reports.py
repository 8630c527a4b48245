"""Results that are plain data: frozen dataclasses, which the native module creates (`src/bindings/reports.rs`).

The module is imported when a call first returns one, because `dataclasses` takes as long to import as the rest of the package.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, NoReturn, final

from mqstore._broker_reports import (
    GroupStats,
    NextRemoval,
    OpenTransaction,
    OpenTransactions,
    ResendReport,
    Trace,
    TracedRecord,
    shown_needs,
)
from mqstore._replicas import RefusedSlave, ReplicaCut, Replicas, Slave
from mqstore._shown import Shown
from mqstore.errors import Remedy

__all__ = [
    "Change",
    "Finding",
    "GroupStats",
    "NextRemoval",
    "OpenTransaction",
    "OpenTransactions",
    "RecoveryReport",
    "RefusedSlave",
    "RepairReport",
    "ReplicaCut",
    "Replicas",
    "ResendReport",
    "Slave",
    "StoreStats",
    "TopicStats",
    "Trace",
    "TracedRecord",
    "TrimReport",
    "VerifyReport",
]


class _ReadOnlyDict(dict[str, Any]):
    """A dict that refuses changes. A copy or pickle of it is a plain dict."""

    def _refuse(self, *_arguments: object, **_options: object) -> NoReturn:
        raise TypeError("the dict of a report is read-only: change a copy, dict(...)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = _refuse
    setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


def _displayed(path: str) -> str:
    """Returns a path as text that can be encoded: bytes that are not UTF-8 become replacement characters."""
    return os.fsencode(path).decode("utf-8", "replace")


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class TopicStats(Shown):
    """Appends to one topic since the store was opened for writing.

    Attributes
    ----------
    put_message_times_total : int
        Messages that were appended.
    put_message_size_total : int
        Bytes of their records.
    """

    put_message_times_total: int
    put_message_size_total: int

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"<mqstore.TopicStats {self.put_message_times_total} puts, {self.put_message_size_total} bytes>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class TrimReport(Shown):
    """The result of `trim` and `Writer.trim`.

    Attributes
    ----------
    dry_run : bool
        True if nothing was removed: the other fields say what would be.
    segments : tuple[tuple[int, int], ...]
        The physical offsets (begin, end) of each removed segment, oldest first.
    since : datetime | None
        The store time of the first removed message; None if no segment was removed.
    until : datetime | None
        The store time of the first message that stays; None in the same case.
    bytes : int
        Bytes of the removed segments.
    held_bytes : int
        Bytes of them that this process still reads: the system frees them when the last view of
        them ends.
    queue_files : int
        Removed queue files, whose messages were all removed.
    index_files : int
        Removed index files, in the same way.
    refusal : str | None
        The reason why the next file could not be removed. A later trim tries it again.
    kept_for : tuple[tuple[str, str, int, int], ...]
        What kept further segments: group (or "delayed messages", "timer messages", "open
        transactions"), topic, queue id, and number of messages that it has not consumed.
    unread : tuple[tuple[str, str, int, int], ...]
        The same for groups whose unread messages were removed (`force`).
    kept_for_slaves : tuple[Slave, ...]
        The connected slaves that kept further segments: they have not acknowledged all of them.
    unreplicated : tuple[Slave, ...]
        The connected slaves that had not acknowledged all that was removed (`force`). What they
        were not sent is lost for them.
    """

    dry_run: bool
    segments: tuple[tuple[int, int], ...]
    since: datetime | None
    until: datetime | None
    bytes: int
    held_bytes: int
    queue_files: int
    index_files: int
    refusal: str | None
    kept_for: tuple[tuple[str, str, int, int], ...]
    unread: tuple[tuple[str, str, int, int], ...]
    kept_for_slaves: tuple[Slave, ...]
    unreplicated: tuple[Slave, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)

    def __repr__(self) -> str:
        what = "would be removed" if self.dry_run else "removed"
        kept = shown_needs(", more kept for", self.kept_for, self.kept_for_slaves)
        return f"<mqstore.TrimReport {len(self.segments)} segments {what}, {self.bytes} bytes{kept}>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class StoreStats(Shown):
    """Counters of a store since it was opened for writing, at the time of the call; `Writer.stats`
    returns them. Names are those of RocketMQ's `StoreStatsService` where it counts the same.

    Attributes
    ----------
    put_message_times_total : int
        Messages that were appended.
    put_message_size_total : int
        Bytes of their records in the log.
    topics : Mapping[str, TopicStats]
        Appends to each topic. A delayed message counts in the topic in which it waits:
        `SCHEDULE_TOPIC_XXXX`.
    in_lock_time_max_ms : int
        The longest time for which an append has held the lock of the log, in ms. The
        clock ticks every few ms.
    slow_puts : int
        Appends that held the lock of the log for more than 500 ms. The logger "mqstore"
        warns of each.
    syncs : int
        Syncs of the log.
    group_commits : int
        Syncs by an append that waited for durability, on behalf of all appends that
        waited.
    group_commit_requests : int
        Appends that waited until they were durable; an `append_batch` is one. Divided
        by `group_commits`, this is the number of appends that shared a sync.
    segments_begun : int
        Segments of the log that were started.
    segments_made_ahead : int
        Segments of `segments_begun` that were ready before an append needed them.
    segments_locked : int
        Segments of `segments_begun` whose pages are locked in memory
        (`warm_mapped_file_enable`) until they are full and synced. A small
        `RLIMIT_MEMLOCK` reduces this number.
    segment_waits : int
        Appends that had to wait for a segment. The first append to a new store is one.
    dispatch_behind_bytes : int
        Bytes at the end of the log that are not dispatched to queues and index yet.
    mapping_faults : int
        Pages of mapped files, of any store of this process, that could not be read or
        written since the open: a file was cut short, or the device failed. A read of
        such a page raises `CorruptError`. With `sigbus_guard=False` such a page ends
        the process.
    delayed_waiting : int | None
        Delayed messages and timers that wait for their delivery; None if this writer delivers none
        (`services`).
    delayed_passed_over : int | None
        Delayed messages and timers that could not be delivered since the open: lost, damaged, or
        without a topic. None if this writer delivers none.
    delayed_overdue : int | None
        Messages of `delayed_waiting` that were due before now.
    delayed_next_due : datetime | None
        The time at which the next of them is due; None if none waits.
    groups : tuple[GroupStats, ...]
        What each consumer group has not consumed, by topic, the worst first: the one whose oldest
        message waits longest.
    segments_removed : int | None
        Segments of the log that the options for old messages (`file_reserved_time`,
        `max_log_bytes`, `disk_max_used_space_ratio`) have removed; None, as in the fields after
        this one, without such an option, and where `services` do not run.
    bytes_removed : int | None
        Bytes of them.
    bytes_held : int | None
        Bytes of them that this process still read when they were removed.
    unread_removed : int | None
        Messages in them that some group had not consumed, counted for each group.
    next_removal : tuple[int, int] | None
        The physical offsets (begin, end) of the segment that goes next; None if only one is left.
    next_removal_time : datetime | None
        The time from which its age lets it go; None without `file_reserved_time`.
    removal_kept_for : tuple[tuple[str, str, int, int], ...] | None
        What still needs messages of it, as in `TrimReport.kept_for`.
    removal_kept_for_slaves : tuple[Slave, ...] | None
        The connected slaves that have not acknowledged all of it.
    removal_refusal : str | None
        The reason why the last attempt has failed. The next one is some seconds later.
    available_buffer_nums : int | None
        Empty buffers of the transient store pool; None without a pool. A store with
        `SYNC_FLUSH` always has one.
    is_transient_store_pool_low : bool | None
        True if less than 0.4 of the buffers of the transient store pool are empty: the
        disk is slower than the appends. None without a pool.
    is_transient_store_pool_locked : bool | None
        True if the transient store pool is locked in memory, as
        `transient_store_pool_enable` asks; None without a pool.
    buffer_waits : int | None
        Appends that had to wait for a buffer of the transient store pool; None without
        a pool.
    """

    put_message_times_total: int
    put_message_size_total: int
    topics: Mapping[str, TopicStats] = field(hash=False)
    in_lock_time_max_ms: int
    slow_puts: int
    syncs: int
    group_commits: int
    group_commit_requests: int
    segments_begun: int
    segments_made_ahead: int
    segments_locked: int
    segment_waits: int
    dispatch_behind_bytes: int
    mapping_faults: int
    delayed_waiting: int | None
    delayed_passed_over: int | None
    delayed_overdue: int | None
    delayed_next_due: datetime | None
    groups: tuple[GroupStats, ...]
    segments_removed: int | None
    bytes_removed: int | None
    bytes_held: int | None
    unread_removed: int | None
    next_removal: tuple[int, int] | None
    next_removal_time: datetime | None
    removal_kept_for: tuple[tuple[str, str, int, int], ...] | None
    removal_kept_for_slaves: tuple[Slave, ...] | None
    removal_refusal: str | None
    available_buffer_nums: int | None
    is_transient_store_pool_low: bool | None
    is_transient_store_pool_locked: bool | None
    buffer_waits: int | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", _ReadOnlyDict(self.topics))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a pickle or copy, in which `topics` is a plain dict."""
        StoreStats.__init__(self, **state)

    def to_dict(self) -> dict[str, Any]:
        """Returns a dict of the fields that have a value, with a dict for each topic in `topics`. The
        counters of the transient store pool are in it if the store has one.
        """
        facts = asdict(self) | {"topics": {name: topic.to_dict() for name, topic in self.topics.items()}}
        return {name: value for name, value in facts.items() if value is not None}

    def __repr__(self) -> str:
        counts = " ".join(f"{name}={getattr(self, name)}" for name in _COUNTS)
        puts, size = self.put_message_times_total, self.put_message_size_total
        return f"<mqstore.StoreStats {puts} puts, {size} bytes, {len(self.topics)} topics; {counts}>"


#: The counters in the line of a `StoreStats`.
_COUNTS = (
    *("in_lock_time_max_ms", "slow_puts", "syncs", "group_commits", "group_commit_requests", "segments_begun"),
    *("segments_made_ahead", "segments_locked", "segment_waits", "dispatch_behind_bytes", "mapping_faults"),
)


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class RecoveryReport(Shown):
    """The findings of an open: the end of the log with its reason, and disagreements of queues and
    log. A read-only store corrects them in memory and changes no file; a writer corrects them
    on disk.

    Attributes
    ----------
    clean_exit : bool
        True if the last writer closed the store: it has no `abort` file. A reader finds
        one beside a live writer, too.
    scan_start : int
        Physical offset from which the log was read to find its end.
    log_end : int
        Physical offset at which the log ends.
    stop_reason : str
        The reason why it ends there, in words.
    undispatched : int
        Messages in the log that are not in the queue files; they are read all the same.
    lost_by_brokers : int
        Messages of `undispatched` that the recovery of RocketMQ 4.9.8, 5.3.3 or 5.5.1
        does not put into their queues, or puts at another queue offset:
        `mqstore.rebuild` before a broker starts. 0 beside a live writer and for a store
        opened for writing.
    keys_lost_by_brokers : int
        Keys in the index that the recovery of one of these versions drops; 0 as in
        `lost_by_brokers`.
    refused : int
        Messages with a topic, queue id or queue offset that no queue can have, because
        the record is damaged there: they are in no queue, and are read by physical
        offset, id and key alone.
    queue_entries_ahead : int
        Queue entries that point at or past the end of the log; they are left out.
    bytes_cut : int
        Bytes past the end of the log that a writer removed; 0 for a read-only store.
    messages_cut : int
        Whole messages in these bytes: damage ended the log before them, and nothing proves
        that they were on disk before the crash. `recovery="salvage"` keeps such messages.
    cut : tuple[tuple[str, int, int, int], ...]
        Their topic, queue id, first queue offset and the one after the last. The
        first 1,000 ranges.
    lost : tuple[tuple[int, int], ...]
        Damaged stretches inside the log that `recovery="salvage"` passed over in this
        open, as pairs of physical offsets: the first byte, and the byte after the last.
        Losses of an earlier open are not among them: reads raise there, or count them
        (`errors="skip"`).
    missing : str | None
        The missing messages and the evidence for them, in words; None if `complete`.
    missing_at : tuple[str, int] | None
        The file, and the byte in it, with which `missing` begins; None if it begins with
        what this open passed over.
    remedy : Remedy | None
        What helps to read or keep more messages (`mqstore.errors.Remedy`), where that is
        known.
    """

    clean_exit: bool
    scan_start: int
    log_end: int
    stop_reason: str
    undispatched: int
    lost_by_brokers: int
    keys_lost_by_brokers: int
    refused: int
    queue_entries_ahead: int
    bytes_cut: int
    messages_cut: int
    cut: tuple[tuple[str, int, int, int], ...]
    lost: tuple[tuple[int, int], ...]
    missing: str | None
    missing_at: tuple[str, int] | None
    remedy: Remedy | None

    @property
    def bytes_lost(self) -> int:
        """Bytes in the stretches of `lost`."""
        return sum(end - begin for begin, end in self.lost)

    @property
    def complete(self) -> bool:
        """False if this open lost or cut messages (`lost`, `cut`), if files of the store show that messages are
        missing in its log (a part of it is missing or damaged), or if the last file of a queue is
        cut short. After a crash queues and times may run ahead of the log, but not past its last
        segment. Beside a live writer only a missing segment between others makes it False, and a
        log that ends before the last message that mqstore's own checkpoint says was on disk.
        """
        return self.missing is None

    def __repr__(self) -> str:
        incomplete = "" if self.missing is None else f"INCOMPLETE ({self.missing}) "
        found = "after a clean exit" if self.clean_exit else "after a crash, or beside a live writer"
        names = ("undispatched", "refused", "queue_entries_ahead", "bytes_cut", "messages_cut", "bytes_lost")
        counts = ", ".join(f"{name}={getattr(self, name)}" for name in names)
        return (
            f"<mqstore.RecoveryReport {incomplete}{found}; log read from {self.scan_start} to its end at {self.log_end} "
            f"({self.stop_reason}); {counts}>"
        )


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Finding(Shown):
    """An error, warning or note of `Store.verify` about a file, at one byte or at several consecutive
    ones.

    Attributes
    ----------
    id : str
        The kind of finding, such as `queue.entry_missing`. These names are stable.
    severity : Literal['error', 'warning', 'note']
        "error": messages are lost or not found, or a broker would destroy data.
        "warning": it costs time, the next open corrects it, or a broker may refuse the
        store. "note": nothing has to be done.
    file : str
        The file, or the directory if the file is missing.
    offset : int
        The byte in the file.
    last_offset : int
        The last byte offset, if there are several.
    count : int
        The number of byte offsets.
    topic : str | None
        The topic of the message at the first offset; None if it is not known.
    queue_id : int | None
        The id of its queue; None if it is not known.
    queue_offset : int | None
        Its queue offset; None if it is not known.
    physical_offset : int | None
        The start of its record in the log; None if it is not known.
    key : str | None
        Its unique key, or the key that the finding is about; None if it is not known.
    lost : tuple[tuple[str, int, int, int], ...]
        The messages of a damaged stretch of the log to which queue entries lead: topic,
        queue id, first queue offset and the one after the last. The first 1,000 ranges;
        `message` lists 20.
    message : str
        The finding at the first offset, in a sentence.
    meaning : str
        The meaning of findings of this kind.
    known_as : str
        Issues of RocketMQ in which a broker left such a store, as "#405, #7355"; "" if
        none is known.
    fix : str
        The fix: a command, or words; "" if nothing has to be done.
    """

    id: str
    severity: Literal["error", "warning", "note"]
    file: str
    offset: int
    last_offset: int
    count: int
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    physical_offset: int | None
    key: str | None
    lost: tuple[tuple[str, int, int, int], ...]
    message: str
    meaning: str
    known_as: str
    fix: str

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)

    def __repr__(self) -> str:
        more = "" if self.count == 1 else f", {self.count} times up to {self.last_offset}"
        where = f"{_displayed(self.file)} at byte {self.offset}{more}"
        return f"<mqstore.Finding {self.severity} {self.id}: {where}: {self.message}>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class VerifyReport(Shown):
    """The result of `Store.verify`: the findings, and the extent of the comparison.

    Attributes
    ----------
    findings : tuple[Finding, ...]
        The findings, the worst first.
    covered : tuple[int, int]
        The physical offsets of the log that were compared: the first byte, and the byte
        after the last.
    messages : int
        Messages that were compared.
    queue_entries : int
        Messages of `messages` that have, or should have, a queue entry that was
        compared.
    index_items : int
        Items of the index that were compared.
    seconds : float
        The duration of the call in seconds.
    """

    findings: tuple[Finding, ...]
    covered: tuple[int, int]
    messages: int
    queue_entries: int
    index_items: int
    seconds: float

    @property
    def ok(self) -> bool:
        """True if nothing is wrong: every finding is a note."""
        return all(finding.severity == "note" for finding in self.findings)

    def __repr__(self) -> str:
        severities = [finding.severity for finding in self.findings]
        return (
            f"<mqstore.VerifyReport {'ok' if self.ok else 'NOT OK'}: errors={severities.count('error')}, "
            f"warnings={severities.count('warning')}, notes={severities.count('note')}, "
            f"covered {self.covered[0]}..{self.covered[1]}, messages={self.messages}, seconds={self.seconds:.3f}>"
        )


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Change(Shown):
    """One change that a repair has made, or would make.

    Attributes
    ----------
    action : Literal['copy', 'set_aside', 'back_up', 'correct', 'fill', 'salvage', 'rebuild']
        `"copy"`: all files are copied, and the copy is repaired. `"set_aside"`: the
        file is moved into the backup. `"back_up"`: the segment is copied into the
        backup, because it is changed. `"correct"`: a record gets its right topic, queue
        id and queue offset. `"fill"`: the copy gets a segment that is missing or cut
        short. `"salvage"`: a salvage record is put over a stretch of the log that holds
        no whole record, or over a record whose place in the queues nothing proves.
        `"rebuild"`: queues, index and checkpoint are rebuilt from the log.
    file : str
        The file or directory.
    message : str
        The change in a sentence.
    """

    action: Literal["copy", "set_aside", "back_up", "correct", "fill", "salvage", "rebuild"]
    file: str
    message: str

    def __repr__(self) -> str:
        return f"<mqstore.Change {self.action} {_displayed(self.file)}: {self.message}>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class RepairReport(Shown):
    """The result of `repair` or `rebuild`: the changes, made or proposed.

    Attributes
    ----------
    dry_run : bool
        True if nothing was changed.
    path : str
        The store that was repaired, or its repaired copy.
    found : VerifyReport
        The result of `Store.verify` before the repair.
    changes : tuple[Change, ...]
        The changes, in order; empty if nothing has to be done.
    refusal : str | None
        The reason why log, queues and index stay as they are although something is
        wrong with them; None otherwise.
    remedy : Remedy | None
        What helps after the refusal (`mqstore.errors.Remedy`), where that is known. Without a
        refusal: what helps to read a store with `lost` messages (`"skip"`), None if none are
        lost.
    backup : str | None
        The directory in the store with the files that were set aside, under the same
        names; None without such files, and in a dry run.
    lost : tuple[tuple[int, int], ...]
        Stretches of the log whose messages are lost, as pairs of physical offsets: the
        first byte, and the byte after the last.
    left : tuple[Finding, ...]
        The errors and warnings that remain after the changes.
    """

    dry_run: bool
    path: str
    found: VerifyReport
    changes: tuple[Change, ...]
    refusal: str | None
    remedy: Remedy | None
    backup: str | None
    lost: tuple[tuple[int, int], ...]
    left: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True if nothing is wrong after the changes: `left` is empty."""
        return not self.left

    def __repr__(self) -> str:
        to_read = ' (read with errors="skip")' if self.remedy == "skip" else ""
        return (
            f"<mqstore.RepairReport {'dry run, ' if self.dry_run else ''}{'ok' if self.ok else 'NOT OK'}: "
            f"changes={len(self.changes)}, lost={len(self.lost)}{to_read}, left={len(self.left)}, path={_displayed(self.path)}>"
        )
