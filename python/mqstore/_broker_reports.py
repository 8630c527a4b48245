"""Results about the work of a broker on a store, which `mqstore._reports` has, too: groups, retention, traces, transactions."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, final

from mqstore._replicas import Slave
from mqstore._shown import Shown


def shown_needs(head: str, rows: tuple[tuple[str, str, int, int], ...], slaves: tuple[Slave, ...]) -> str:
    """Returns how many groups and slaves need messages, after this head; an empty text if none does."""
    groups = {row[0] for row in rows}
    counts = (f"{len(needing)} {name}" for needing, name in ((groups, "groups"), (slaves, "slaves")) if needing)
    return f"{head} {' and '.join(counts)}" if groups or slaves else ""


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class NextRemoval(Shown):
    """The segment of the log that retention removes next: the result of `BrokerState.next_removal`.

    Attributes
    ----------
    segment : tuple[int, int] | None
        Its physical offsets (begin, end); None if only one segment is left, which stays.
    time : datetime | None
        The time from which its age lets it go, in one of the hours of `delete_when`; None without
        `file_reserved_time`.
    reason : str | None
        The reason why it goes now: "age", "log_bytes" (`max_log_bytes`) or "disk"
        (`disk_space_clean_forcibly_ratio`). None if it is not to go yet.
    kept_for : tuple[tuple[str, str, int, int], ...]
        What still needs messages of it, as in `TrimReport.kept_for`.
    kept_for_slaves : tuple[Slave, ...]
        The slaves of this writer that have not acknowledged all of it. A store that is only read
        knows of none: the process that writes it does.
    disk_percent : int | None
        The used part of the disk; None without `disk_max_used_space_ratio`.
    """

    segment: tuple[int, int] | None
    time: datetime | None
    reason: str | None
    kept_for: tuple[tuple[str, str, int, int], ...]
    kept_for_slaves: tuple[Slave, ...]
    disk_percent: int | None

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)

    def __repr__(self) -> str:
        if self.segment is None:
            return "<mqstore.NextRemoval nothing: one segment is left>"
        begin, end = self.segment
        when = f", {self.reason}" if self.reason else f", from {self.time.isoformat(timespec='seconds')}" if self.time else ""
        kept = shown_needs(", kept for", self.kept_for, self.kept_for_slaves)
        return f"<mqstore.NextRemoval {begin} to {end}{when}{kept}>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class ResendReport(Shown):
    """The result of `BrokerState.resend`.

    Attributes
    ----------
    sent : int
        Dead letters that were appended again.
    skipped : tuple[tuple[int, int], ...]
        Queue id and queue offset of each dead letter that is lost or damaged, or names no topic
        (`errors="skip"`).
    expired : int
        Dead letters that expired before they were sent again.
    """

    sent: int
    skipped: tuple[tuple[int, int], ...]
    expired: int

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"<mqstore.ResendReport {self.sent} sent, {len(self.skipped)} skipped, {self.expired} expired>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class GroupStats(Shown):
    """The backlog of a consumer group in a topic.

    Attributes
    ----------
    group : str
        The group.
    topic : str
        The topic.
    queues : int
        Queues of the topic.
    lag : int
        Messages that the group has not consumed.
    unconsumed_since : datetime | None
        The store time of the oldest of them; None without a lag, and where it is damaged or lost.
    """

    group: str
    topic: str
    queues: int
    lag: int
    unconsumed_since: datetime | None

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)

    def __repr__(self) -> str:
        since = "" if self.unconsumed_since is None else f" since {self.unconsumed_since.isoformat(timespec='milliseconds')}"
        return f"<mqstore.GroupStats {self.group} of {self.topic}: lag {self.lag}{since}>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class OpenTransaction(Shown):
    """A half message whose transaction is open: one of `OpenTransactions.halves`.

    Attributes
    ----------
    id : str
        Its offset message id, with which `Transactions.end` ends it.
    group : str | None
        The producer group.
    topic : str | None
        The topic that gets the message at the commit.
    queue_id : int | None
        The id of the queue that gets it.
    half_topic : str
        Its own topic: "RMQ_SYS_TRANS_HALF_TOPIC", or "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC" of a
        broker with `transRocksDBEnable`.
    queue_offset : int
        Its queue offset.
    physical_offset : int
        Its physical offset, in bytes.
    born_time : datetime with the timezone UTC, or int
        The time that its producer gave it; an int of ms since 1970 outside the years 1 to 9999.
    store_time : datetime with the timezone UTC, or int
        The time at which it was stored, likewise. A broker stores it again for each question.
    age : timedelta
        The time between `store_time` and the call, never negative.
    checks : int
        The number of questions about it so far; 0 for a broker that counts them in RocksDB.
    tags : str | None
        Its tag.
    keys : tuple[str, ...]
        Its keys.
    unique_key : str | None
        Its unique key; None if a broker stored it without one.
    """

    id: str
    group: str | None
    topic: str | None
    queue_id: int | None
    half_topic: str
    queue_offset: int
    physical_offset: int
    born_time: datetime | int
    store_time: datetime | int
    age: timedelta
    checks: int
    tags: str | None
    keys: tuple[str, ...]
    unique_key: str | None

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"<mqstore.OpenTransaction {self.id} of topic {self.topic!r}, {self.age.total_seconds():.3f} s old>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class OpenTransactions(Shown):
    """The result of `BrokerState.transactions`.

    Attributes
    ----------
    halves : tuple[OpenTransaction, ...]
        The half messages whose transactions are open, the oldest first.
    passed_over : int
        Half messages that are lost or damaged: their transactions may be open.
    lost_ops : int
        Op messages that are lost or damaged: they may have ended transactions that are listed.
    damaged_stretches : int
        Damaged stretches of the log after the first half message that may be open: each may have
        committed a transaction that is listed.
    lost_queues : tuple[str, ...]
        The topics of half and op messages whose queue is lost: `rebuild` restores it.
    complete : bool
        True if these are all open transactions and no other ones. False if something above could
        not be read, or messages of the log are missing (`RecoveryReport.complete`).
    """

    halves: tuple[OpenTransaction, ...]
    passed_over: int
    lost_ops: int
    damaged_stretches: int
    lost_queues: tuple[str, ...]
    complete: bool

    @property
    def skipped(self) -> int:
        """Half and op messages that are lost or damaged."""
        return self.passed_over + self.lost_ops

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict, with each half message as one."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"<mqstore.OpenTransactions {len(self.halves)} open{'' if self.complete else ', incomplete'}>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class TracedRecord(Shown):
    """A record of a message in the log: one of `Trace.records`.

    Attributes
    ----------
    stage : str
        "stored" for the record of a producer; "half" for a half message and "committed" or
        "rolled_back" for the end of its transaction; "delayed" or "timer" for a message that waits
        for its time, "recall" for what ends a timer, and "delivered" for the copy; "retry" and
        "dead" for what a group has failed on; "given_up" for a half message that the broker asks
        for no more.
    state : str
        In a queue that groups consume: "consumed" if each of them has passed it, "unconsumed" if
        not or without groups, "unreachable" if no entry of the queue leads to it. For dead letters
        "dead" or "sent_again". For delayed messages and timers "waiting", "delivered",
        "stored_again" (a timer that was handed over, or is due much later), "recalled", or "lost"
        if the delivery has passed it and no copy is there. For recalls "waiting", or "passed" once
        the time of the timer has come. For half messages "open", "committed", "rolled_back",
        "given_up" or "ended", as of `mqstore find`. "unknown" where settings or messages that say
        it were lost.
    topic : str
        The topic.
    queue_id : int
        The queue of the topic.
    queue_offset : int
        The queue offset.
    physical_offset : int
        The physical offset, in bytes.
    store_time : datetime with the timezone UTC, or int
        The time at which it was stored; an int of ms since 1970 outside the years 1 to 9999.
    passed_by : tuple[str, ...]
        The groups whose progress has passed it. A group also passes what it has sent back.
    awaited_by : tuple[str, ...]
        The groups that consume the topic and have not passed it.
    """

    stage: str
    state: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_time: datetime | int
    passed_by: tuple[str, ...]
    awaited_by: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict."""
        return asdict(self)

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id}@{self.queue_offset}"
        return f"<mqstore.TracedRecord {self.stage} {self.state}, {place}>"


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class Trace(Shown):
    """The result of `BrokerState.trace`.

    Attributes
    ----------
    id : str
        The id that was asked for.
    records : tuple[TracedRecord, ...]
        The records of the message, ascending by physical offset. Those whose segments have expired
        are not there.
    complete : bool
        True if these are all records of the message in the log. False if a message that could be
        one was skipped, because it was lost or is damaged.
    unknown : tuple[str, ...]
        The reasons why states are unknown or groups are missing; empty if nothing is.
    """

    id: str
    records: tuple[TracedRecord, ...]
    complete: bool
    unknown: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict, with each record as one."""
        return asdict(self)

    def __repr__(self) -> str:
        ways = ", ".join(f"{record.stage} {record.state}" for record in self.records)
        return f"<mqstore.Trace {self.id}: {ways}{'' if self.complete else ', incomplete'}>"
