"""The backlog of consumer groups, by queue and by topic, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import mqstore
from mqstore._reports import GroupStats
from mqstore._rows import date_order, moment_of, rows_of
from mqstore._settings import why_missing

#: The state of a group in a queue, without what only the writing process knows.
_FIELDS = ("group", "topic", "queue_id", "offset", "min_offset", "max_offset", "lag", "unconsumed_since")


def lags_of(store: mqstore.Store) -> list[dict[str, Any]]:
    """Returns a row for each queue of each group, the worst first. Reads a message of each queue with a lag."""
    rows = [{name: row[name] for name in _FIELDS} for row in rows_of(store.broker.groups())]
    return _with_age(rows)


def progress_of(store: mqstore.Store) -> tuple[dict[tuple[str, str, int], int], str | None]:
    """Returns the offset of the next message of each group, by group, topic and queue id; and why it is unknown, if it is."""
    why: str | None
    try:
        rows = rows_of(store.broker.consumer_offsets())
    except (mqstore.CorruptError, mqstore.UnsupportedFormatError) as error:
        why = str(error)
    except mqstore.NotFoundError:
        # Without groups there is no file.
        why = why_missing(store, "consumerOffset.json")
    else:
        return {(row["group"], row["topic"], row["queue_id"]): row["offset"] for row in rows}, None
    return {}, why and f"the progress of the consumer groups is unknown: {why}"


def by_topic(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each topic of each group, of the rows for its queues, the worst first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        names = {"group": row["group"], "topic": row["topic"]}
        counted = found.setdefault(tuple(names.values()), names | {"queues": 0, "lag": 0, "unconsumed_since": None})
        counted["queues"] += 1
        counted["lag"] += row["lag"] or 0
        times = [time for time in (counted["unconsumed_since"], row["unconsumed_since"]) if time is not None]
        counted["unconsumed_since"] = min(times, default=None, key=date_order)
    return _with_age(found.values())


def stats_of(groups: mqstore.RecordBatch) -> tuple[GroupStats, ...]:
    """Returns the statistics of the groups in a batch of `BrokerState.groups`."""
    return tuple(
        GroupStats(group=row["group"], topic=row["topic"], queues=row["queues"], lag=row["lag"], unconsumed_since=_time(row))
        for row in by_topic(rows_of(groups))
    )


def in_words(seconds: float) -> str:
    """Returns a duration in its largest unit."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def _with_age(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds the seconds since `unconsumed_since`, and sorts: the longest wait comes first, and rows without a lag last."""
    now = datetime.now(UTC)
    aged = []
    for row in rows:
        since = _time(row)
        aged.append(row | {"age": None if since is None else round((now - since).total_seconds(), 3)})
    columns = ("group", "topic", "queue_id")
    return sorted(
        aged,
        key=lambda row: (
            row["lag"] == 0,
            date_order(row["unconsumed_since"]),
            -(row["lag"] or 0),
            *(row[name] for name in columns if name in row),
        ),
    )


def _time(row: Mapping[str, Any]) -> datetime | None:
    return moment_of(row["unconsumed_since"])
