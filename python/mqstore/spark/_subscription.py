"""The queues and queue offsets of a read, by options with the names of Kafka's source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mqstore
from mqstore.spark._option_reader import OptionReader, expect_ms
from mqstore.spark._positions import QueueName

# The prefix of light queues (Lite topics), which point to messages of other topics.
LIGHT_QUEUE_PREFIX = "%LMQ%"

#: Symbolic queue offsets: the end and the start of a queue.
LATEST, EARLIEST = -1, -2


# Options that make a batch read its queues. All others are conditions on the messages of the log.
_OF_RANGES = (
    *("assign", "subscribePattern", "startingOffsets", "startingOffsetsByTimestamp"),
    *("endingOffsets", "endingOffsetsByTimestamp"),
)
# Options that name the queues of a read, mutually exclusive.
_NAMING_QUEUES = ("topics", "subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class Subscription:
    """The queues of a read: of named topics, of topics that match a pattern, or named queues; by default all. A stream follows
    queues and topics that are created later, too. Light queues, which point to messages of other topics, are left out.
    """

    option: str | None = None
    """The option that names the queues."""
    topics: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    queues: frozenset[QueueName] | None = None
    queue_ids: frozenset[int] | None = None

    @classmethod
    def parse(cls, given: OptionReader, brokers: Sequence[str | None]) -> Subscription:
        """Reads the options that name queues. Raises ValueError for a wrong one."""
        named = [option for option in _NAMING_QUEUES if given.get(option) is not None]
        if len(named) > 1:
            raise ValueError(f"options {' and '.join(named)} both name the queues of the read: give one of them")
        assigned, queue_ids = None, given.queue_ids("queueIds")
        if given.get("assign") is not None:
            assigned = frozenset(_assigned(given, brokers))
            if queue_ids is not None:
                raise ValueError("options assign and queueIds both name the queues of the read: give one of them")
        topics = given.names(named[0]) if named in (["topics"], ["subscribe"]) else None
        if assigned is not None:
            topics = tuple({queue.topic for queue in assigned})
        if topics == () and named != ["topics"]:
            raise ValueError(f"option {named[0]} names nothing to read: leave it out to read all topics")
        pattern = given.get("subscribePattern")
        try:
            compiled = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ValueError(f"option subscribePattern is not a Python regular expression: {error}: {pattern!r}") from None
        option = named[0] if named else None
        return cls(option, None if topics is None else frozenset(topics), compiled, assigned, queue_ids)

    def expect_no_light_queue(self) -> None:
        """Raises ValueError for a light queue: its messages have the queue offsets of their own topics."""
        for topic in sorted(self.topics or ()):
            if topic.startswith(LIGHT_QUEUE_PREFIX):
                raise ValueError(f"option {self.option} names the light queue {topic}: read the topics of its messages")

    def queues_of(self, broker: str | None, store: mqstore.Store) -> Iterator[tuple[QueueName, mqstore.Queue]]:
        """Yields the queues of a store. Raises ValueError for a topic whose queues cannot be read."""
        for topic in store.topics:
            if not self._wants(topic):
                continue
            try:
                queues, queue_ids = store.topics[topic].queues, store.topics[topic].queue_ids
            except mqstore.UnsupportedFormatError as error:
                raise ValueError(
                    f"cannot read the queues of topic {topic}: {error}; name other topics by option subscribe"
                ) from None
            for queue_id in queue_ids:
                name = QueueName(broker, topic, queue_id)
                is_named = self.queues is None or not self.queues.isdisjoint((name, name.of_any_broker()))
                if is_named and (self.queue_ids is None or queue_id in self.queue_ids):
                    yield name, queues[queue_id]

    def _wants(self, topic: str) -> bool:
        if topic.startswith(LIGHT_QUEUE_PREFIX):
            return False
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return self.topics is None or topic in self.topics


@dataclass(frozen=True)
class Offsets:
    """A bound of a read: queue offsets or times, one value for all queues or one for each."""

    option: str
    """The option that has the bound."""
    offsets: int | Mapping[QueueName, int]
    times: int | Mapping[QueueName, int] | None = None
    """ms since 1970. If given, they replace `offsets`."""
    is_latest_without_message: bool = False
    """True: a queue without a message from the time on has its end as the bound. False: it is an error."""
    accepted: tuple[int, ...] = (LATEST, EARLIEST)
    """The symbolic queue offsets that the option accepts."""

    @property
    def are_numbers(self) -> bool:
        """True if all are numeric queue offsets, not symbolic ones or times, which depend on the queue."""
        return self.times is None and isinstance(self.offsets, Mapping) and min(self.offsets.values(), default=0) >= 0

    @classmethod
    def of_stream(cls, given: OptionReader, brokers: Sequence[str | None]) -> Offsets:
        """Reads where a new query starts. Raises ValueError for a wrong option."""
        if given.get("startingTimestamp") is not None:
            times = given.time("startingTimestamp", 0)
            return cls("startingTimestamp", LATEST, times, is_latest_without_message=_is_latest(given))
        return cls._parse(given, brokers, "starting", {"latest": LATEST, "earliest": EARLIEST}, _is_latest(given))

    @classmethod
    def starting(cls, given: OptionReader, brokers: Sequence[str | None]) -> Offsets:
        """Reads where a batch starts, by default with the first message. Raises ValueError for a wrong option."""
        if given.get("startingTimestamp") is not None:
            # A condition on each message.
            return cls("startingTimestamp", EARLIEST)
        return cls._parse(given, brokers, "starting", {"earliest": EARLIEST}, _is_latest(given))

    @classmethod
    def ending(cls, given: OptionReader, brokers: Sequence[str | None]) -> Offsets:
        """Reads where a batch ends, exclusive, by default after the last message. Raises ValueError for a wrong option."""
        if given.get("endingTimestamp") is not None:
            return cls("endingTimestamp", LATEST)
        return cls._parse(given, brokers, "ending", {"latest": LATEST}, is_latest=True)

    @classmethod
    def _parse(
        cls, given: OptionReader, brokers: Sequence[str | None], side: str, words: Mapping[str, int], is_latest: bool
    ) -> Offsets:
        """Reads the options of one side. `words` has its symbolic queue offsets; the first is the default."""
        by_time, by_offset = f"{side}OffsetsByTimestamp", f"{side}Offsets"
        default = next(iter(words.values()))
        if given.get(by_time) is not None:
            times = {name: expect_ms(by_time, time) for name, time in _by_queue(given, by_time, brokers)}
            return cls(by_time, default, times, is_latest)
        if not (given.get(by_offset) or "").lstrip().startswith("{"):
            json = ' or JSON such as {"orders": {"0": 23}}'
            return cls(by_offset, given.word(by_offset, words, default, otherwise=json))
        offsets = dict(_by_queue(given, by_offset, brokers))
        for name, offset in offsets.items():
            if offset < 0 and offset not in words.values():
                known = " or ".join(f"{value} ({word})" for word, value in words.items())
                verb = "begins" if side == "starting" else "ends"
                raise ValueError(f"option {by_offset}: {name} {verb} at a queue offset, {known}, not {offset}")
        return cls(by_offset, offsets, accepted=tuple(words.values()))


@dataclass(frozen=True)
class OffsetRange:
    """The queues of a batch read, and the queue offsets at which it starts and ends in each."""

    subscription: Subscription
    starting: Offsets
    ending: Offsets

    @classmethod
    def parse(cls, given: OptionReader, subscription: Subscription, brokers: Sequence[str | None]) -> OffsetRange | None:
        """Reads the options of a range; None if there is none of them. Raises ValueError for a wrong one."""
        starting, ending = Offsets.starting(given, brokers), Offsets.ending(given, brokers)
        if all(given.get(option) is None for option in _OF_RANGES):
            return None
        subscription.expect_no_light_queue()
        return cls(subscription, starting, ending)


def _is_latest(given: OptionReader) -> bool:
    return given.word("startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, False)


def _assigned(given: OptionReader, brokers: Sequence[str | None]) -> Iterator[QueueName]:
    """Yields the queues of option assign: `{"orders": [0, 1]}`, or with brokers below the topics."""
    for broker, topic, queue_ids in _by_broker(given, "assign", brokers, list):
        for queue_id in queue_ids:
            yield QueueName(broker, topic, _number("assign", queue_id, least=0))


def _by_queue(given: OptionReader, option: str, brokers: Sequence[str | None]) -> Iterator[tuple[QueueName, int]]:
    """Yields queues and values of `{"orders": {"0": 23, "1": -1}}`, or with brokers below the topics."""
    for broker, topic, values in _by_broker(given, option, brokers, dict):
        for queue_id, value in values.items():
            yield QueueName(broker, topic, _number(option, queue_id, least=0)), _number(option, value)


def _by_broker(
    given: OptionReader, option: str, brokers: Sequence[str | None], leaf: type[Any]
) -> Iterator[tuple[str | None, str, Any]]:
    """Yields broker, topic and the value for its queues. Without a broker (None) it holds for each store that has the queue."""
    for topic, said in given.json(option, dict).items():
        is_by_broker = isinstance(said, dict) and bool(said) and all(isinstance(value, (dict, list)) for value in said.values())
        for broker, of_queues in said.items() if is_by_broker else [(None, said)]:
            if is_by_broker and broker not in brokers:
                known = "the store has none: option stores names them" if brokers == (None,) else ", ".join(map(str, brokers))
                raise ValueError(f"option {option} names broker {broker!r} below topic {topic}; brokers: {known}")
            if not isinstance(of_queues, leaf):
                shape = '{"orders": [0, 1]}' if leaf is list else '{"orders": {"0": 23, "1": -1}}'
                raise ValueError(f"option {option} is JSON such as {shape}, not {given.get(option)!r}")
            yield broker, topic, of_queues


def _number(option: str, value: Any, least: int | None = None) -> int:
    """Converts a number, also from text, as keys of JSON objects are."""
    try:
        if isinstance(value, (bool, float)) or (least is not None and int(value) < least):
            raise ValueError
        if isinstance(value, str) and str(int(value)) != value:
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"option {option} has {value!r} instead of a whole number") from None
