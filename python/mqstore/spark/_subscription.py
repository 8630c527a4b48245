"""The options of a streaming read, by Kafka's names: which queues it follows, where it begins, and how much a batch takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader

import mqstore
from mqstore.spark._conditions import Conditions
from mqstore.spark._options import ACCEPTED as ACCEPTED_BY_SCAN
from mqstore.spark._options import Given, ReadOptions, ScanOptions, expect_ms
from mqstore.spark._partitions import _LIGHT_QUEUE_PREFIX
from mqstore.spark._positions import QueueName

ACCEPTED = (
    *("path", "stores", "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "maxOffsetsPerTrigger", "minOffsetsPerTrigger"),
    *("maxTriggerDelay", "columns", "decodeBody", "targetPartitionBytes", "minPartitions", "maxRecordsPerPartition"),
    *("errors", "failOnDataLoss"),
)

_OF_STREAM_ALONE = tuple(option for option in ACCEPTED if option not in ACCEPTED_BY_SCAN)
#: By a read of which nobody knows yet whether it is one of a batch or of a stream.
ACCEPTED_BY_READS = (*ACCEPTED_BY_SCAN, *_OF_STREAM_ALONE)

#: In place of a queue offset: where the queue ends, and where it starts.
LATEST, EARLIEST = -1, -2

_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Subscription:
    """Which queues are followed: those of some topics, of topics whose whole name a pattern matches, or some of them; all if
    nothing is given. Queues and topics that come later are followed, too; light queues, which lead to messages of other
    topics, are not.
    """

    topics: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    queues: frozenset[QueueName] | None = None

    @classmethod
    def parse(cls, given: Given, brokers: Sequence[str | None]) -> Subscription:
        """ValueError says which option is wrong and what is accepted."""
        named = [option for option in ("subscribe", "subscribePattern", "assign") if given.get(option) is not None]
        if len(named) > 1:
            raise ValueError(f"options {' and '.join(named)} say which queues are read: give one of them")
        topics, pattern = given.names("subscribe"), given.get("subscribePattern")
        assigned = None if given.get("assign") is None else frozenset(_assigned(given, brokers))
        if assigned is not None:
            topics = tuple({queue.topic for queue in assigned})
        if topics is not None and not topics:
            raise ValueError(f"option {named[0]} names nothing to follow: leave it out to follow all topics")
        for topic in topics or ():
            if topic.startswith(_LIGHT_QUEUE_PREFIX):
                raise ValueError(f"option {named[0]} names the light queue {topic}: follow the topics of its messages")
        try:
            compiled = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ValueError(f"option subscribePattern is no regular expression of Python: {error}: {pattern!r}") from None
        return cls(None if topics is None else frozenset(topics), compiled, assigned)

    def queues_of(self, broker: str | None, store: mqstore.Store) -> Iterator[tuple[QueueName, mqstore.Queue]]:
        """The queues of a store that are followed. ValueError for a topic whose queues cannot be read."""
        for topic in store.topics:
            if not self._wants(topic):
                continue
            try:
                queues, queue_ids = store.topics[topic].queues, store.topics[topic].queue_ids
            except mqstore.UnsupportedFormatError as error:
                raise ValueError(f"cannot follow topic {topic}: {error}; name others by option subscribe") from None
            for queue_id in queue_ids:
                name = QueueName(broker, topic, queue_id)
                if self.queues is None or name in self.queues:
                    yield name, queues[queue_id]

    def _wants(self, topic: str) -> bool:
        if topic.startswith(_LIGHT_QUEUE_PREFIX):
            return False
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return self.topics is None or topic in self.topics


@dataclass(frozen=True)
class Starting:
    """Where a new query begins: at queue offsets, or with the first message of a time. One value for all queues, or one each."""

    offsets: int | Mapping[QueueName, int] = LATEST
    times: int | Mapping[QueueName, int] | None = None
    """ms since 1970; if given, they decide."""
    is_latest_without_message: bool = False
    """Whether a queue without a message of the time begins at its end; otherwise that is an error."""

    @classmethod
    def parse(cls, given: Given, brokers: Sequence[str | None]) -> Starting:
        """ValueError says which option is wrong and what is accepted."""
        is_latest = given.word("startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, False)
        if given.get("startingTimestamp") is not None:
            return cls(times=given.time("startingTimestamp", 0), is_latest_without_message=is_latest)
        if given.get("startingOffsetsByTimestamp") is not None:
            by_queue = _by_queue(given, "startingOffsetsByTimestamp", brokers)
            times = {name: expect_ms("startingOffsetsByTimestamp", time) for name, time in by_queue}
            return cls(times=times, is_latest_without_message=is_latest)
        words = {"latest": LATEST, "earliest": EARLIEST}
        text = given.get("startingOffsets") or "latest"
        if not text.lstrip().startswith("{"):
            return cls(given.word("startingOffsets", words, LATEST))
        offsets = dict(_by_queue(given, "startingOffsets", brokers))
        for name, offset in offsets.items():
            if offset < EARLIEST:
                raise ValueError(
                    f"option startingOffsets: {name} begins at a queue offset, -1 (latest) or -2 (earliest), not {offset}"
                )
        return cls(offsets)


@dataclass(frozen=True)
class StreamOptions:
    """The options of a streaming read, checked."""

    scan: ScanOptions
    """How the messages of a batch are read."""
    subscription: Subscription
    starting: Starting
    max_offsets: int | None
    min_offsets: int | None
    max_delay: float
    """Seconds that a batch waits for `min_offsets` at most."""

    @property
    def read(self) -> ReadOptions:
        """What batch and stream have in common."""
        return self.scan.read

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """ValueError says which option is wrong and what is accepted."""
        names = {name.lower() for name in options}
        for option in _ENDING:
            if option.lower() in names:
                raise ValueError(
                    f"option {option} is refused: a stream has no end; trigger(availableNow=True) reads what is there"
                )
        given = Given(options, ACCEPTED)
        scan = ScanOptions(
            ReadOptions.parse(given),
            Conditions(),
            given.count("targetPartitionBytes"),
            given.count("minPartitions") or 1,
            given.count("maxRecordsPerPartition"),
            pushes_filters=False,
        )
        most, least = given.count("maxOffsetsPerTrigger"), given.count("minOffsetsPerTrigger")
        _expect_limits(given)
        if most is not None and least is not None and least > most:
            raise ValueError(f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")
        brokers = scan.read.stores.brokers
        return cls(scan, Subscription.parse(given, brokers), Starting.parse(given, brokers), most, least, _delay(given))


def is_of_stream(options: Iterable[str]) -> bool:
    """Whether one of these options is of a streaming read alone."""
    alone = {option.lower() for option in _OF_STREAM_ALONE}
    return not alone.isdisjoint(option.lower() for option in options)


def _expect_limits(given: Given) -> None:
    """Refuses by name what this pyspark cannot do."""
    if hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        return
    for option in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if given.get(option) is not None:
            raise ValueError(f"option {option} needs pyspark 4.2 or later; this is {pyspark.__version__}: leave it out")


def _delay(given: Given) -> float:
    text = given.get("maxTriggerDelay") or "15m"
    parts = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    unit = _SECONDS.get(parts[2] or "ms") if parts else None
    if parts is None or unit is None:
        raise ValueError(f"option maxTriggerDelay is a duration such as 500ms, 30s or 15m, not {text!r}")
    return int(parts[1]) * unit


def _assigned(given: Given, brokers: Sequence[str | None]) -> Iterator[QueueName]:
    """`{"orders": [0, 1]}`, or with the brokers in between."""
    for broker, topic, queue_ids in _by_broker(given, "assign", brokers, list):
        for queue_id in queue_ids:
            yield QueueName(broker, topic, _number("assign", queue_id, least=0))


def _by_queue(given: Given, option: str, brokers: Sequence[str | None]) -> Iterator[tuple[QueueName, int]]:
    """`{"orders": {"0": 23, "1": -1}}`, or with the brokers in between."""
    for broker, topic, values in _by_broker(given, option, brokers, dict):
        for queue_id, value in values.items():
            yield QueueName(broker, topic, _number(option, queue_id, least=0)), _number(option, value)


def _by_broker(
    given: Given, option: str, brokers: Sequence[str | None], leaf: type[Any]
) -> Iterator[tuple[str | None, str, Any]]:
    """Broker, topic and what is said of its queues; without the brokers in between, that holds for each of them."""
    for topic, said in given.json(option, dict).items():
        is_by_broker = isinstance(said, dict) and bool(said) and all(isinstance(value, (dict, list)) for value in said.values())
        for broker, of_queues in said.items() if is_by_broker else [(broker, said) for broker in brokers]:
            if broker not in brokers:
                known = "the store has none: option stores names them" if brokers == (None,) else ", ".join(map(str, brokers))
                raise ValueError(f"option {option} names broker {broker!r} below topic {topic}; brokers: {known}")
            if not isinstance(of_queues, leaf):
                shape = '{"orders": [0, 1]}' if leaf is list else '{"orders": {"0": 23, "1": -1}}'
                raise ValueError(f"option {option} is JSON such as {shape}, not {given.get(option)!r}")
            yield broker, topic, of_queues


def _number(option: str, value: Any, least: int | None = None) -> int:
    """A number, also one that is written as text: names of JSON are texts."""
    try:
        if isinstance(value, (bool, float)) or (least is not None and int(value) < least):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"option {option} holds {value!r} where a whole number is expected") from None
