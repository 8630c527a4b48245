"""The queues that a read takes, and where it starts in each of them: options with the names of Kafka's source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mqstore
from mqstore.spark._given import Given, expect_ms
from mqstore.spark._positions import QueueName

# A light queue leads to messages of other topics.
LIGHT_QUEUE_PREFIX = "%LMQ%"

#: In place of a queue offset: where the queue ends, and where it starts.
LATEST, EARLIEST = -1, -2


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
            if topic.startswith(LIGHT_QUEUE_PREFIX):
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
        if topic.startswith(LIGHT_QUEUE_PREFIX):
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
