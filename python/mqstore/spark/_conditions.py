"""Predicate pushdown: the conditions of a read, narrowed by filters of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pyspark.sql.datasource as spark_source

#: A half-open interval.
Interval = tuple[int, int]

EVERYWHERE: Interval = (0, (1 << 63) - 1)
ALWAYS: Interval = (-(1 << 63), (1 << 63) - 1)

# The columns that a queue entry has.
QUEUE_COLUMNS = frozenset({"topic", "queue_id", "queue_offset", "physical_offset", "store_size"})

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Not an expression (`||`, `*`, spaces), and not text that was decoded from bytes other than UTF-8 (U+FFFD).
_PLAIN_TAG = re.compile(r"[^|*\s\ufffd]+")


@dataclass(frozen=True)
class Conditions:
    """The predicate of a read, a conjunction. The default accepts every message."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    queue_offsets: Interval = EVERYWHERE
    physical: Interval = EVERYWHERE
    time: Interval = ALWAYS
    """ms since 1970."""
    by: Literal["store", "born"] = "store"
    tags: str | None = None
    keys: tuple[str, ...] | None = None
    properties: tuple[tuple[str, str], ...] = ()
    body_contains: str | None = None
    body_regex: str | None = None

    @property
    def match_nothing(self) -> bool:
        """True if no message can meet the conditions."""
        intervals = (self.queue_offsets, self.physical, self.time)
        has_empty_list = frozenset() in (self.topics, self.queue_ids) or self.keys == ()
        return has_empty_list or any(start >= stop for start, stop in intervals)

    @property
    def fit_queue_entries(self) -> bool:
        """True if a queue entry is enough to evaluate the conditions."""
        return self == Conditions(self.topics, self.queue_ids, self.queue_offsets, self.physical)

    def scan_arguments(self, stretch: Interval, topics: Iterable[str] | None) -> dict[str, Any]:
        """Returns the arguments of `Store.scan`, which has no condition on queue offsets."""
        return {
            "topics": None if topics is None else list(topics),
            "queue_ids": None if self.queue_ids is None else sorted(self.queue_ids),
            "physical": intersection(self.physical, stretch),
            "since": _moment(self.time[0]),
            "until": _moment(self.time[1]),
            "by": self.by,
            "tags": self.tags,
            "keys": None if self.keys is None else list(self.keys),
            "properties": dict(self.properties) or None,
            "body_contains": self.body_contains,
            "body_regex": self.body_regex,
        }


def _moment(ms: int) -> datetime | int | None:
    """Converts a bound to what `Store.scan` accepts. It would take an int near 1970 for seconds."""
    try:
        return None if ms in ALWAYS else _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return ms


def intersection(one: Interval, other: Interval) -> Interval:
    """Returns the intersection, an empty interval if the two are disjoint."""
    start, stop = max(one[0], other[0]), min(one[1], other[1])
    return start, max(start, stop)


def push(conditions: Conditions, filters: Iterable[spark_source.Filter]) -> tuple[Conditions, list[spark_source.Filter]]:
    """Narrows the conditions by filters. Also returns the filters that Spark still has to apply."""
    rest = []
    for each in filters:
        narrowed, is_exact = _narrow(conditions, each)
        conditions = conditions if narrowed is None else narrowed
        if narrowed is None or not is_exact:
            rest.append(each)
    return conditions, rest


def _narrow(conditions: Conditions, each: spark_source.Filter) -> tuple[Conditions | None, bool]:
    """Adds a filter to the conditions: None if they cannot express it, and True if they express it exactly."""
    attribute: Sequence[str] = getattr(each, "attribute", ())
    if len(attribute) != 1:
        return None, False
    column, values = attribute[0].lower(), _values(each)
    match column:
        case "topic" if values is not None and all("\ufffd" not in value for value in values):
            topics = frozenset(values) if conditions.topics is None else conditions.topics & frozenset(values)
            return replace(conditions, topics=topics), True
        case "queue_id" if values is not None:
            queue_ids = frozenset(values) if conditions.queue_ids is None else conditions.queue_ids & frozenset(values)
            return replace(conditions, queue_ids=queue_ids), True
        case "tags" if values and conditions.tags is None and all(map(_PLAIN_TAG.fullmatch, values)):
            return replace(conditions, tags=" || ".join(values)), True
        case "unique_key" if values and conditions.keys is None and "\ufffd" not in "".join(values):
            # A key of another message may be equal to this unique key.
            return replace(conditions, keys=tuple(values)), False
        case "physical_offset" if (interval := _interval(each, values)) is not None:
            return replace(conditions, physical=intersection(conditions.physical, interval)), False
        case "queue_offset" if (interval := _interval(each, values)) is not None:
            return replace(conditions, queue_offsets=intersection(conditions.queue_offsets, interval)), False
        case "store_time" | "born_time" if (interval := _interval(each, values, _ms)) is not None:
            by: Literal["store", "born"] = "store" if column == "store_time" else "born"
            if conditions.time != ALWAYS and conditions.by != by:
                return None, False
            return replace(conditions, time=intersection(conditions.time, interval), by=by), False
    return None, False


def _values(each: spark_source.Filter) -> list[Any] | None:
    """Returns the values of an equality or IN filter, None for any other filter."""
    match each:
        case spark_source.EqualTo() | spark_source.EqualNullSafe():
            return None if each.value is None else [each.value]
        case spark_source.In():
            return [value for value in each.value if value is not None]
    return None


def _interval(each: spark_source.Filter, values: Sequence[Any] | None, number: Any = int) -> Interval | None:
    """Returns the smallest interval that covers the filter, in the unit of `number`, which rounds down."""
    least, most = ALWAYS
    if values is not None:
        return (number(min(values)), number(max(values)) + 1) if values else (0, 0)
    match each:
        case spark_source.GreaterThan() | spark_source.GreaterThanOrEqual():
            return number(each.value), most
        case spark_source.LessThan() | spark_source.LessThanOrEqual():
            return least, number(each.value) + 1
    return None


def _ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)
