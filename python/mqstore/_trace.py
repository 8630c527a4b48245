"""The trace of a message: its records in the log, and what became of each.

A broker copies a message on its way: a half message at its commit, a delayed one and a timer at its delivery, a failed one to the
topic of retries of the group and in the end to its dead letters. All copies have the unique key of the message, by which the
index finds them in each topic.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import mqstore
from mqstore._broker_topics import (
    DEAD,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    RETRY,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GROUP,
)
from mqstore._delays import Delivery, delivery_of
from mqstore._facts import is_in_queue
from mqstore._groups import progress_of
from mqstore._lost_queues import lost_queues
from mqstore._reports import Trace, TracedRecord
from mqstore._rows import store_time_of
from mqstore._timers import is_recall, timer_fate
from mqstore._transactions import Counting, fate_of

_STAGES = {
    HALF_TOPIC: "half",
    ROCKSDB_HALF_TOPIC: "half",
    SCHEDULE_TOPIC: "delayed",
    TIMER_TOPIC: "timer",
    GIVEN_UP_TOPIC: "given_up",
}
_TRANSACTIONS = {"prepared": "half", "commit": "committed", "rollback": "rolled_back"}
#: Topics without consumer groups.
_WITHOUT_GROUPS = frozenset(_STAGES)


def trace_of(store: mqstore.Store, message_id: str, counting: Counting = lambda read: read) -> Trace:
    """Traces a message by its offset id or unique key. Each read is passed to `counting`.

    Raises `NotFoundError` if no record of the log has the id.
    """
    messages, is_complete = _records(store, message_id, counting)
    tracer = _Tracer(store, messages, is_complete, counting, *_progress(store), delivery_of(store))
    records = tuple(tracer.traced(message) for message in messages)
    return Trace(id=message_id, records=records, complete=is_complete, unknown=tuple(tracer.unknown()))


@dataclass
class _Tracer:
    """The records of one message, ascending by physical offset, and the settings that show what became of them."""

    store: mqstore.Store
    messages: list[mqstore.Message]
    is_complete: bool
    counting: Counting
    #: The offset of the next message of each group in each queue of a topic; None if it is unknown.
    progress: dict[str, dict[str, dict[int, int]]] | None
    why_unknown: str | None
    delivery: Delivery

    def traced(self, message: mqstore.Message) -> TracedRecord:
        """Returns the record with its stage, its state, and the groups."""
        stage = self._stage(message)
        passed_by, awaited_by = self._groups(message, stage)
        return TracedRecord(
            stage=stage,
            state=self._state(message, stage, passed_by, awaited_by),
            topic=message.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
            store_time=store_time_of(message),
            passed_by=passed_by,
            awaited_by=awaited_by,
        )

    def unknown(self) -> Iterator[str]:
        """Yields the reasons why a state is unknown or the groups are missing."""
        topics = {message.topic for message in self.messages}
        if self.why_unknown is not None and topics - _WITHOUT_GROUPS:
            yield self.why_unknown
        if self.delivery.unknown is not None and self.delivery.is_lost and SCHEDULE_TOPIC in topics:
            yield self.delivery.unknown

    def _stage(self, message: mqstore.Message) -> str:
        topic, properties = message.topic, message.properties
        if topic == TIMER_TOPIC and is_recall(message):
            return "recall"
        if topic in _STAGES:
            return _STAGES[topic]
        if topic.startswith(DEAD):
            return "dead"
        if topic.startswith(RETRY):
            return "retry"
        if message.transaction in _TRANSACTIONS:
            return _TRANSACTIONS[message.transaction]
        return "delivered" if properties.get("REAL_TOPIC") == topic else "stored"

    def _state(self, message: mqstore.Message, stage: str, passed_by: tuple[str, ...], awaited_by: tuple[str, ...]) -> str:
        match stage:
            case "half" | "given_up" | "rolled_back":
                fate = fate_of(self.store, message, self.counting)
                return "unknown" if fate is None else fate.state
            case "delayed":
                return self._delivered(message, "DELAY", self._is_waiting(message))
            case "recall":
                time = timer_fate(self.store, message)
                return time if time in ("waiting", "unknown") else "passed"
            case "timer" if any(self._is_rolled(message, later) for later in self._after(message)):
                return "stored_again"
            case "timer":
                return self._timer_state(message)
            case _ if not is_in_queue(self.store, message):
                return "unreachable"
            case "dead":
                return "sent_again" if passed_by else "dead"
            case _ if self.progress is None:
                return "unknown"
            case _:
                return "consumed" if passed_by and not awaited_by else "unconsumed"

    def _timer_state(self, message: mqstore.Message) -> str:
        """Returns the state of a timer. A recall may have come after the delivery."""
        fate = timer_fate(self.store, message)
        state = self._delivered(message, "TIMER_OUT_MS", None if fate == "unknown" else fate == "waiting")
        return "recalled" if fate == "recalled" and state != "delivered" else state

    def _delivered(self, message: mqstore.Message, name: str, is_waiting: bool | None) -> str:
        """Returns the state of a message of which a copy with the same property `name` goes to its real topic when it is due."""
        given = message.properties
        copies = [
            later
            for later in self._after(message)
            if later.topic == given.get("REAL_TOPIC")
            and later.reconsume_times == message.reconsume_times
            and later.properties.get(name) == given.get(name)
        ]
        if copies:
            return "delivered"
        if is_waiting:
            return "waiting"
        return "lost" if is_waiting is False and self.is_complete else "unknown"

    def _is_waiting(self, message: mqstore.Message) -> bool | None:
        """Returns whether a delayed message is after the progress of its delivery; None if that is unknown."""
        if self.delivery.unknown is not None and self.delivery.is_lost:
            return None
        return message.queue_offset >= self.delivery.offsets.get(message.queue_id + 1, 0)

    def _is_rolled(self, message: mqstore.Message, later: mqstore.Message) -> bool:
        """Returns True if `later` is the timer again: a broker stores a timer that is due much later again every two days."""
        return later.topic == message.topic and "TIMER_ROLL_TIMES" in later.properties and not is_recall(later)

    def _after(self, message: mqstore.Message) -> Iterator[mqstore.Message]:
        return (later for later in self.messages if later.physical_offset > message.physical_offset)

    def _groups(self, message: mqstore.Message, stage: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the groups that have passed a message, and those that consume its topic and have not."""
        if message.topic in _WITHOUT_GROUPS or stage in ("half", "rolled_back") or self.progress is None:
            return (), ()
        of_topic = self.progress.get(message.topic, {})
        if message.topic.startswith(RETRY):
            # The group of a retry topic has no progress in it before its first retry.
            of_topic = {message.topic.removeprefix(RETRY): {}, **of_topic}
        passed = {group for group, offsets in of_topic.items() if offsets.get(message.queue_id, 0) > message.queue_offset}
        return tuple(sorted(passed)), tuple(sorted(of_topic.keys() - passed)) if stage != "dead" else ()


def _records(store: mqstore.Store, message_id: str, counting: Counting) -> tuple[list[mqstore.Message], bool]:
    """Returns the records of a message, ascending by physical offset, and whether these are all of the log."""
    given: list[mqstore.Message] = []
    with suppress(mqstore.NotFoundError):
        given = [store.message(message_id)]
    key = given[0].unique_key if given else message_id
    if key is None:
        return _sent_back(store, given[0], counting)
    lost = lost_queues(store, lambda topic: True)
    # Each answer may skip the same lost message: the scan, which follows then, counts it once.
    answers = [store.query(topic, key, errors="skip") for topic in store.topics]
    found = [message for answer in answers for message in answer if message.unique_key == key]
    is_complete = all(answer.complete for answer in answers)
    if not found or not is_complete or lost:
        batches = counting(store.scan(keys=key, transactions="all", columns=["physical_offset"], errors="skip"))
        found += [store.message_at(offset) for batch in batches for (offset,) in batch]
        is_complete = store.recovery.complete and not batches.skipped
    by_offset = {message.physical_offset: message for message in [*given, *found] if message.unique_key == key}
    if not by_offset:
        raise mqstore.NotFoundError(f"no record of the log has the id {message_id!r}{_at_offset_of(store, message_id)}")
    return [by_offset[offset] for offset in sorted(by_offset)], is_complete


def _at_offset_of(store: mqstore.Store, message_id: str) -> str:
    """Returns what the log has at the physical offset in an offset id, in words; an empty string for other ids."""
    if re.fullmatch("(?:[0-9A-Fa-f]{8}|[0-9A-Fa-f]{32})[0-9A-Fa-f]{24}", message_id) is None:
        return ""
    offset = int(message_id[-16:], 16)
    if not store.min_physical_offset <= offset < store.max_physical_offset:
        return ""
    try:
        store.message_at(offset)
    except mqstore.NotFoundError as error:
        return f": {error}"
    return ""


def _sent_back(store: mqstore.Store, message: mqstore.Message, counting: Counting) -> tuple[list[mqstore.Message], bool]:
    """Returns a message without a unique key, and what groups have sent back of it, which names its offset id."""
    origin = message.properties.get("ORIGIN_MESSAGE_ID", message.message_id)
    records = {message.physical_offset: message}
    with suppress(mqstore.NotFoundError, mqstore.CorruptError):
        first = store.message(origin)
        records[first.physical_offset] = first
    wanted: dict[str, Any] = {"properties": {"ORIGIN_MESSAGE_ID": origin}, "physical": (min(records), None)}
    batches = counting(store.scan(transactions="all", columns=["physical_offset"], errors="skip", **wanted))
    for batch in batches:
        records.update((offset, store.message_at(offset)) for (offset,) in batch)
    return [records[offset] for offset in sorted(records)], store.recovery.complete and not batches.skipped


def _progress(store: mqstore.Store) -> tuple[dict[str, dict[str, dict[int, int]]] | None, str | None]:
    """Returns the offset of the next message of each group, by topic, group and queue id; or why it is unknown."""
    offsets, why = progress_of(store)
    if why is not None:
        return None, why
    progress: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for (group, topic, queue_id), offset in offsets.items():
        if group != TRANSACTION_GROUP:
            progress[topic][group][queue_id] = offset
    return progress, None
