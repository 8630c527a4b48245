"""The sections of a report: what each says, in a figure and in numbers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import mqstore
from mqstore._facts import facts_of
from mqstore._findings import next_line, removal_in_words, slave_in_words
from mqstore._groups import in_words, lags_of
from mqstore._lost_queues import empty_lost
from mqstore._rows import date_order, each_row, rows_of, visible
from mqstore.report import _figures
from mqstore.report._figures import NAMED, amount, size

#: Rows of a table, bars of a figure, and positions on an axis.
ROWS, BARS, POSITIONS = 50, 12, 64
#: Topics times segments beyond which the messages of a segment are not counted by topic: it takes memory for each pair.
MOST_PAIRS = 200_000
NOTHING = "The log has no message."


@dataclass(frozen=True)
class Table:
    """Rows under their names, and how many more there are."""

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    left_out: int = 0


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    title: str
    text: str
    figure: str | None = None
    legend: Sequence[tuple[str, str]] = ()
    """Colours of the figure, and what each stands for."""
    table: Table | None = None
    is_open: bool = False
    """True if the table is open at first."""


@dataclass(frozen=True)
class Used:
    """The content of the log, counted in one pass."""

    topics: Mapping[str, Counter[str]]
    """Messages and bytes by topic."""
    times: Mapping[str, tuple[str, str]]
    """First and last store time by topic."""
    cells: mqstore.Usage
    """Usage by topic, hour and, unless there are too many, segment."""
    by_segment: bool

    @property
    def total(self) -> Counter[str]:
        """Messages and bytes of all topics."""
        return sum(self.topics.values(), Counter[str]())

    @property
    def largest(self) -> list[str]:
        """The topics, the one with the most bytes first."""
        return sorted(self.topics, key=lambda topic: (-self.topics[topic]["bytes"], topic))

    @property
    def colors(self) -> dict[str, str]:
        """The topics that have a colour of their own, the largest first."""
        return dict(zip(self.largest, NAMED, strict=False))


def used_of(store: mqstore.Store) -> Used:
    """Reads the log once."""
    by_segment = len(store.topics) * len(store.inspect.segments()) <= MOST_PAIRS
    cells = store.usage(("topic", "hour", "segment") if by_segment else ("topic", "hour"), errors="skip")
    topics: dict[str, Counter[str]] = defaultdict(Counter)
    times: dict[str, tuple[str, str]] = {}
    for row in each_row(cells):
        topic = row["topic"]
        topics[topic].update({name: row[name] for name in ("messages", "bytes")})
        first, last = str(row["first_store_time"]), str(row["last_store_time"])
        before = times.get(topic, (first, last))
        times[topic] = min(first, before[0]), max(last, before[1])
    return Used(topics, times, cells, by_segment)


def store_section(store: mqstore.Store) -> Section:
    """Returns the section on the store itself."""
    facts = facts_of(store)
    text = (
        "The log is what lies in commitlog/, from log_begin to log_end in bytes. queues and messages are those of the consume "
        "queues; the log may hold more: half messages, and those of deleted topics."
    )
    return Section("store", "The store", text, table=Table(("fact", "value"), list(facts.items())), is_open=True)


def findings_section(
    store: mqstore.Store, report: mqstore.VerifyReport, findings: Sequence[Mapping[str, Any]], deep: bool
) -> Section:
    """Returns the section of the findings, with the next step."""
    begin, end = report.covered
    looked = (
        f"mqstore verify compared the log from {amount(begin)} to {amount(end)} with queues, index, checkpoint and settings: "
        f"{amount(report.messages)} messages, {amount(report.queue_entries)} queue entries, {amount(report.index_items)} index "
        f"items. {'' if deep else 'Checksums of bodies and links of the index were left out. '}"
    )
    if not findings:
        return Section("findings", "What is wrong", f"{looked}It found nothing.")
    text = (
        f"{looked}An error means that messages are lost or not found, or that a broker will do harm. A warning costs time, or is "
        "set right by the next open. A note needs nothing."
    )
    if (line := next_line(findings)) is not None:
        text += f" {line[0].upper()}{line[1:]}"
    rows = [
        [
            finding["severity"],
            finding["id"],
            None if finding["file"] is None else _where(finding, store.path),
            f"{finding['message']}; {finding['meaning']}",
            finding["fix"],
        ]
        for finding in findings[:ROWS]
    ]
    table = Table(("severity", "id", "where", "what", "what to do"), rows, len(findings) - len(rows))
    return Section("findings", "What is wrong", text, table=table, is_open=True)


def _where(finding: Mapping[str, Any], path: str) -> str:
    where = f"{finding['file'].removeprefix(f'{path}/')} at byte {finding['offset']}"
    return where if finding["count"] == 1 else f"{where}, {finding['count']} times up to byte {finding['last_offset']}"


def segments_section(store: mqstore.Store, used: Used, needs: Sequence[tuple[int, str]]) -> Section:
    """Returns the section on topics by segment, and on what groups still read."""
    title = "Segments, and what they hold"
    if not used.topics:
        return Section("segments", title, NOTHING)
    segments = rows_of(store.inspect.segments())
    starts = [row["segment"] for row in segments]
    every = max(1, -(-len(starts) // POSITIONS))
    bar_of = {start: number // every for number, start in enumerate(starts)}
    colors = used.colors
    stacks: dict[str, list[int]] = defaultdict(lambda: [0] * -(-len(starts) // every))
    messages: Counter[int] = Counter()
    tops: dict[int, Counter[str]] = defaultdict(Counter)
    for row in each_row(used.cells) if used.by_segment else ():
        topic, segment = row["topic"], row["segment"]
        color = colors.get(topic, "rest") if topic in store.topics else "bad"
        stacks[color][bar_of.get(segment, 0)] += row["bytes"]
        messages[segment] += row["messages"]
        if segment in starts[-ROWS:]:
            tops[segment][topic] += row["bytes"]
    if not used.by_segment:
        for row in segments:
            stacks["rest"][bar_of[row["segment"]]] += row["bytes"]
    needed = [(max((start for start in starts if start <= offset), default=0), group) for offset, group in needs]
    rows = [
        [
            row["segment"],
            row["bytes"],
            messages[row["segment"]] if used.by_segment else None,
            row["sealed"],
            row["first_store_time"],
            ", ".join(topic for topic, _ in tops[row["segment"]].most_common(3)),
            ", ".join(group for start, group in needed if start == row["segment"]),
        ]
        for row in segments[-ROWS:]
    ]
    marked = (bar_of.get(needed[0][0], 0), f"oldest unread message, of group {_short(needed[0][1])}") if needed else None
    text = (
        "A bar is a segment of the log, the oldest on the left"
        + (f" (here {every} segments to a bar)" if every > 1 else "")
        + ", in the colours of the largest topics. A broker removes whole segments, the oldest first. "
        + ("No group has anything to read before the dashed line. " if marked else "")
        + "Topics without a queue were deleted, or their queues are lost."
    )
    names = [_offset(start) for start in starts[::every]]
    figure = _figures.stacks(names, _ordered(stacks), "physical offset at which the segment starts", marked)
    heads = ("segment", "bytes", "messages", "sealed", "first_store_time", "largest topics", "next unread of group")
    table = Table(heads, rows, len(segments) - len(rows))
    return Section("segments", title, text, figure, _legend(stacks, colors), table)


def topics_section(used: Used) -> Section:
    """Returns the section on disk usage by topic."""
    if not used.topics:
        return Section("topics", "Topics by bytes", NOTHING)
    names, total = used.largest, used.total
    bars = [(visible(_short(name)), used.topics[name]["bytes"]) for name in names[:BARS]]
    if len(names) > BARS:
        rest = sum(used.topics[name]["bytes"] for name in names[BARS:])
        bars.append((f"{len(names) - BARS} other topics", rest))
    text = (
        f"The bytes of a topic's records in the log, and their share of all {size(total['bytes'])}. Topics that begin with "
        "RMQ_SYS_ and rmq_sys_, and SCHEDULE_TOPIC_XXXX, are the broker's own; %RETRY% and %DLQ% hold what consumers failed on."
    )
    if used.cells.unread:
        unread = sum(end - begin for begin, end in used.cells.unread)
        text += f" {amount(unread)} bytes of the log were not counted: messages were lost or are damaged there."
    figure = _figures.bars([name for name, _ in bars], [value for _, value in bars], size, len(names) > BARS)
    rows = [[name, *used.topics[name].values(), *used.times[name]] for name in names[:ROWS]]
    table = Table(("topic", "messages", "bytes", "first_store_time", "last_store_time"), rows, len(names) - len(rows))
    return Section("topics", "Topics by bytes", text, figure, table=table)


def hours_section(used: Used) -> Section:
    """Since when the log grows, and by what."""
    if not used.topics:
        return Section("hours", "Bytes by hour", NOTHING)
    colors = used.colors
    hours = {row["hour"] for row in each_row(used.cells) if isinstance(row["hour"], str)}
    # By hour, day, month or year: as much of the text as leaves few enough bars.
    length = next((length for length in (13, 10, 7) if len({hour[:length] for hour in hours}) <= POSITIONS), 4)
    spans = sorted({hour[:length] for hour in hours})[-POSITIONS:]
    number_of = {span: number for number, span in enumerate(spans)}
    stacks: dict[str, list[int]] = defaultdict(lambda: [0] * len(spans))
    counts = [Counter[str]() for _ in spans]
    tops = [Counter[str]() for _ in spans]
    for row in each_row(used.cells):
        if isinstance(row["hour"], str) and (number := number_of.get(row["hour"][:length])) is not None:
            stacks[colors.get(row["topic"], "rest")][number] += row["bytes"]
            counts[number].update({name: row[name] for name in ("messages", "bytes")})
            tops[number][row["topic"]] += row["bytes"]
    unit = {13: "hour", 10: "day", 7: "month", 4: "year"}[length]
    text = (
        f"A bar is the bytes that were stored in {'an' if unit == 'hour' else 'a'} {unit} (UTC), in the colours of the largest "
        f"topics. Where no message was stored there is no bar. A colour that grows shows since when a topic fills the disk."
    )
    rows = [
        [span.replace("T", " "), count["messages"], count["bytes"], ", ".join(topic for topic, _ in top.most_common(3))]
        for span, count, top in zip(spans, counts, tops, strict=True)
    ]
    names = [f"{where.replace('T', ' ')}:00" if length == 13 else where for where in spans]
    figure = _figures.stacks([name[5:] if length > 7 else name for name in names], _ordered(stacks))
    table = Table((unit, "messages", "bytes", "largest topics"), rows[-ROWS:], max(0, len(rows) - ROWS))
    return Section("hours", f"Bytes by {unit}", text, figure, _legend(stacks, colors), table)


def index_section(store: mqstore.Store) -> Section:
    """Returns the section on the index."""
    title = "The index: load and chains"
    files = rows_of(store.inspect.index_files())
    if not files:
        return Section("index", title, "There is no index file: a search by key reads the log.")
    drawn = [row for row in files if row["load"] is not None and row["longest_chain"] is not None][-POSITIONS:]
    text = (
        "A search by key reads one chain of an index file. The load (items a slot) is what chains would have on average if keys "
        "were even; a longest chain far above it means a key that many messages have in common. Where used is no, searches read "
        "the log instead."
    )
    figure = None
    if drawn:
        columns = [[row[name] for row in drawn] for name in ("name", "load", "mean_chain", "longest_chain")]
        figure = _figures.chains(*columns)
    legend = [("c0", "load"), ("c2", "mean chain"), ("c1", "longest chain")] if figure else ()
    heads = [name for name in files[0] if name not in ("slots", "used_slots", "first_physical_offset", "last_physical_offset")]
    rows = [[row[name] for name in heads] for row in files[-ROWS:]]
    return Section("index", title, text, figure, legend, Table(heads, rows, len(files) - len(rows)))


def lag_section(rows: Sequence[Mapping[str, Any]] | str) -> Section:
    """Returns the section on lag; a text gives the reason if it is not known."""
    title = "Lag by group"
    if isinstance(rows, str):
        return Section("lag", title, rows)
    groups: Counter[str] = Counter()
    for row in rows:
        groups[row["group"]] += row["lag"] or 0
    if not groups:
        return Section("lag", title, "No group has consumed from this store.")
    listed = groups.most_common()
    bars = [(visible(_short(group)), lag) for group, lag in listed[:BARS]]
    if len(listed) > BARS:
        bars.append((f"{len(listed) - BARS} other groups", sum(lag for _, lag in listed[BARS:])))
    text = (
        "Messages that each group has not consumed, in all queues of its topics, as the broker wrote it to "
        "config/consumerOffset.json (every 5 s). unconsumed_since is the store time of the oldest of them, and the row whose "
        "message waits longest comes first. An offset below min_offset: messages expired unread. One above max_offset: it comes "
        "from another store, or messages were lost."
    )
    if oldest := next((row for row in rows if row["age"] is not None), None):
        text += (
            f" Longest waits group {visible(oldest['group'])}: its oldest message of topic {visible(oldest['topic'])} is "
            f"{in_words(oldest['age'])} old."
        )
    figure = _figures.bars([name for name, _ in bars], [lag for _, lag in bars], amount, len(listed) > BARS)
    heads = ("group", "topic", "queue_id", "offset", "min_offset", "max_offset", "lag", "unconsumed_since")
    shown = [[row[name] for name in heads] for row in rows[:ROWS]]
    return Section("lag", title, text, figure, table=Table(heads, shown, len(rows) - len(shown)))


def delayed_section(store: mqstore.Store) -> Section:
    """Returns the section on delayed messages."""
    title = "Delayed messages"
    try:
        rows = [row for row in rows_of(store.broker.delay_backlog()) if row["waiting"]]
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError) as error:
        return Section("delayed", title, str(error))
    if not rows:
        return Section("delayed", title, "No message waits for its delivery.")
    rows.sort(key=lambda row: (-row["overdue"], date_order(row["next_due"])))
    waiting, overdue = (sum(row[name] for row in rows) for name in ("waiting", "overdue"))
    oldest = min((row["next_due"] for row in rows if row["next_due"]), default=None, key=date_order)
    text = (
        f"{amount(waiting)} messages wait for the end of their delay, {amount(overdue)} of which were due before this page "
        "was made"
        + (f"; the first is due at {oldest}" if oldest else "")
        + ". A broker, or a writer of mqstore with services, delivers them while it runs. Messages on which consumers failed "
        "wait here, too."
    )
    heads = ("level", "waiting", "overdue", "next_due", "offset")
    return Section("delayed", title, text, table=Table(heads, [[row[name] for name in heads] for row in rows]))


def retention_section(store: mqstore.Store) -> Section:
    """Returns the section on the segment that retention removes next."""
    title = "Next removal"
    try:
        removal = store.broker.next_removal()
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError) as error:
        return Section("retention", title, str(error))
    if removal is None:
        text = (
            "The options with which the store was read keep all messages; those of the process that writes it are not known here."
        )
        return Section("retention", title, text)
    if removal.segment is None:
        return Section("retention", title, "Only one segment is left, which stays.")
    begin, end = removal.segment
    text = f"The segment from {begin} to {end} goes next{removal_in_words(removal)}."
    if not (removal.kept_for or removal.kept_for_slaves):
        return Section("retention", title, f"{text} Nothing needs its messages any more.")
    heads = ("needed_by", "topic", "queue_id", "messages")
    needed = [[visible(row[0]), visible(row[1]), *row[2:]] for row in removal.kept_for]
    needed += [[slave_in_words(slave), None, None, None] for slave in removal.kept_for_slaves]
    return Section("retention", title, f"{text} Messages of it are still needed:", table=Table(heads, needed))


def recovery_section(store: mqstore.Store) -> Section:
    """Returns the section on the recovery by the open."""
    found = store.recovery
    begin = store.min_physical_offset
    decision = (
        "The last writer closed the store. "
        if found.clean_exit
        else "There is a file abort: a broker is running, or was killed. "
    )
    if found.missing is not None:
        decision += f"Messages are missing: {found.missing}. "
    elif found.lost:
        decision += "Damaged stretches were passed over. "
    else:
        decision += "No sign of missing messages was found. "
    text = (
        f"{decision}The bar is the log. Its coloured part is what opening the store read to find the end of the log, "
        f"{amount(found.log_end)}: {found.stop_reason}."
    )
    figure = _figures.strip(begin, max(begin, min(found.scan_start, found.log_end)), found.log_end, found.lost)
    legend = [("rest", "trusted"), ("c0", "read by recovery"), *([("bad", "lost")] if found.lost else [])]
    names = (
        *("clean_exit", "complete", "missing", "scan_start", "log_end", "stop_reason", "undispatched", "refused"),
        *("queue_entries_ahead", "bytes_cut", "messages_cut", "bytes_lost", "lost"),
    )
    rows = [(name, getattr(found, name)) for name in names]
    return Section("recovery", "What recovery decided", text, figure, legend, Table(("fact", "value"), rows))


def lag_of(store: mqstore.Store) -> list[dict[str, Any]] | str:
    """Returns the lag of each group by queue, the worst first, or the reason why it cannot be read."""
    try:
        rows = lags_of(store)
    except mqstore.NotFoundError:
        return "The store has no progress of consumers: config/consumerOffset.json is missing."
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError) as error:
        return str(error)
    empty_lost(store, rows)
    return rows


def needs_of(store: mqstore.Store, lag: Iterable[Mapping[str, Any]]) -> list[tuple[int, str]]:
    """The physical offset of the oldest message that each group has left, ascending, and the group."""
    oldest: dict[str, int] = {}
    for row in lag:
        if row["lag"]:
            with suppress(mqstore.StoreError, IndexError):
                queue = store.topics[row["topic"]].queues[row["queue_id"]]
                offset = queue[max(row["offset"] or 0, queue.min_offset)].physical_offset
                oldest[row["group"]] = min(offset, oldest.setdefault(row["group"], offset))
    return sorted((offset, group) for group, offset in oldest.items())


def _ordered(stacks: Mapping[str, list[int]]) -> dict[str, Sequence[int]]:
    """From the bottom up: the largest topics, the others, and those without a queue."""
    return {color: stacks[color] for color in (*NAMED, "rest", "bad") if color in stacks}


def _legend(stacks: Mapping[str, list[int]], colors: Mapping[str, str]) -> list[tuple[str, str]]:
    names = {color: visible(_short(topic)) for topic, color in colors.items()}
    names |= {"rest": "other topics", "bad": "topics without a queue"}
    return [(color, names[color]) for color in _ordered(stacks)]


def _offset(start: int) -> str:
    return size(start) if start >= 1024 else str(start)


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:17]}\N{HORIZONTAL ELLIPSIS}{name[-10:]}"
