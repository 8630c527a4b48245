"""The checkpoint of a streaming query, and the queues that the stores have now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from mqstore._names import there_is
from mqstore._native import _checksums
from mqstore.spark._positions import QueueName, ends_before, positions_of
from mqstore.spark._snapshot import Landmark, Snapshot
from mqstore.spark._subscription import EARLIEST, LATEST, Offsets, Subscription

#: The physical offset up to which the log of each broker is known to be durable; None if unknown.
Marks = Mapping[str | None, int | None]

_Json = dict[str, Any]


class Position(NamedTuple):
    """The position of a query in a queue."""

    next: int
    """The queue offset of the next message."""
    checksum: int | None
    """The checksum of the record before it, which differs if the queue offset was assigned again. None without such a record."""


class Bounds(NamedTuple):
    """The queue offsets of a queue."""

    min: int
    max: int
    end: int
    """The end for a read: `max`, or the first message that is not durable, or is past the snapshot."""


@dataclass(frozen=True)
class Progress:
    """The offsets that Spark keeps in the checkpoint."""

    logs: Mapping[str | None, Landmark | None]
    """The first record of each log, which identifies it."""
    queues: Mapping[QueueName, Position]

    @classmethod
    def from_json(cls, offsets: _Json) -> Progress:
        """Decodes what `to_json` encodes."""
        logs: dict[str | None, Landmark | None] = {}
        queues: dict[QueueName, Position] = {}
        for key, of_broker in offsets.items():
            broker = key or None
            logs[broker] = tuple(of_broker["log"]) if of_broker["log"] else None
            for topic, positions in of_broker["topics"].items():
                for queue_id, position in positions.items():
                    queues[QueueName(broker, topic, int(queue_id))] = Position(*position)
        return cls(logs, queues)

    def to_json(self) -> _Json:
        """Encodes `{broker: {"log": [offset, checksum], "topics": {topic: {queue: [next, checksum]}}}}`, with "" for the store
        without a broker. The order is fixed, because Spark compares the text.
        """
        offsets: _Json = {broker or "": {"log": mark and list(mark), "topics": {}} for broker, mark in self.logs.items()}
        for name, position in sorted(self.queues.items()):
            topics = offsets[name.broker or ""]["topics"]
            topics.setdefault(name.topic, {})[str(name.queue_id)] = list(position)
        return offsets


class QueueView:
    """The queues of a read, as the stores have them now."""

    def __init__(self, snapshots: Mapping[str | None, Snapshot], marks: Marks, subscription: Subscription) -> None:
        self.snapshots = snapshots
        self.marks = marks
        self._subscription = subscription
        self.bounds: dict[QueueName, Bounds] = {}
        for broker, snapshot in snapshots.items():
            store, mark = snapshot.open(), marks[broker]
            found = {name: (queue.min_offset, queue.max_offset) for name, queue in subscription.queues_of(broker, store)}
            ends = {} if mark is None or mark >= store.max_physical_offset else ends_before(store, found, mark)
            self.bounds |= {name: Bounds(least, most, ends.get(name, most)) for name, (least, most) in found.items()}

    @classmethod
    def at_plan(cls, snapshots: Mapping[str | None, Snapshot], subscription: Subscription) -> QueueView:
        """Returns the queues within the snapshots. Queues whose first message is past its snapshot are left out."""
        view = cls(snapshots, {broker: snapshot.end for broker, snapshot in snapshots.items()}, subscription)
        view.bounds = {name: bounds for name, bounds in view.bounds.items() if bounds.end > 0 or bounds.max == 0}
        return view

    def absent(self) -> list[str]:
        """Describes each topic and queue that an option names and no store has, with what there is instead."""
        asked = self._subscription
        there = {each for name in self.bounds for each in (name, name.of_any_broker())}
        missing: dict[tuple[str | None, str], list[int]] = {}
        for broker, topic, queue_id in sorted((asked.queues or frozenset()) - there, key=str):
            missing.setdefault((broker, topic), []).append(queue_id)
        if asked.queues is None:
            absent = (asked.topics or frozenset()).difference(name.topic for name in there)
            missing = {(None, topic): sorted(asked.queue_ids or ()) for topic in sorted(absent)}
        return [self._describe_absent(*names, queue_ids) for names, queue_ids in missing.items()]

    def _describe_absent(self, broker: str | None, topic: str, queue_ids: Sequence[int]) -> str:
        # A store may have grown since its snapshot, and then shows a queue that is reported as absent.
        has_no = "there is no" if broker is None else f"broker {broker} has no"
        topics = [snapshot.open().topics for name, snapshot in self.snapshots.items() if broker in (None, name)]
        found = {queue_id for of_store in topics if topic in of_store for queue_id in of_store[topic].queue_ids}
        known = sorted(found.difference(queue_ids)) if queue_ids else []
        if known:
            names = ", ".join(f"{topic}/{queue_id}" for queue_id in queue_ids)
            return f"{has_no} queue {names}: topic {topic} has the queue ids {', '.join(map(str, known))}"
        others = sorted({name for of_store in topics for name in of_store if name != topic})
        return f"{has_no} topic {topic}" + (there_is(topic, others) or f"; the topics are {', '.join(others[:20])}")

    def is_same_log(self, broker: str | None, known: Landmark | None) -> bool:
        """True if the log of a broker has this record, or may have had it before it expired."""
        store = self.snapshots[broker].open()
        if known is None or known[0] < store.min_physical_offset:
            return True
        (found,) = _checksums(store, [known[0]])
        return known[0] < store.max_physical_offset and _may_be(found, known[1])

    def checksums(self, nexts: Mapping[QueueName, int]) -> dict[QueueName, int | None]:
        """Returns the checksum of the record before each of these queue offsets; None if it is missing or damaged."""
        found: dict[QueueName, int | None] = {}
        for broker, snapshot in self.snapshots.items():
            names = [name for name in nexts if name.broker == broker]
            store = snapshot.open()
            last = [(name.topic, name.queue_id, nexts[name] - 1) for name in names]
            offsets = [offset for offset, _ in positions_of(store, last)]
            found |= zip(names, _checksums(store, [-1 if offset is None else offset for offset in offsets]), strict=True)
        return found

    def progress(self, nexts: Mapping[QueueName, int], known: Mapping[QueueName, Position]) -> Progress:
        """Returns the checkpoint of a query that has read up to these queue offsets. `known` has valid positions."""
        new = {name: offset for name, offset in nexts.items() if name not in known or known[name].next != offset}
        checksums = self.checksums(new)
        positions = {name: Position(nexts[name], checksums[name]) if name in new else known[name] for name in nexts}
        logs = {broker: next(iter(snapshot.landmarks), None) for broker, snapshot in self.snapshots.items()}
        return Progress(logs, positions)

    def latest(self) -> Progress:
        """Returns the ends of the queues."""
        return Progress(dict.fromkeys(self.snapshots), {name: Position(bounds.end, None) for name, bounds in self.bounds.items()})

    def resume(self, progress: Progress) -> tuple[dict[QueueName, int], dict[QueueName, str]]:
        """Returns the queue offset at which each queue continues, and the problems of queues that cannot continue there.
        Those start at their first message, as new queues do.
        """
        begins = {name: bounds.min for name, bounds in self.bounds.items()}
        wrong: dict[QueueName, str] = {}
        others = {broker for broker in self.snapshots if not self.is_same_log(broker, progress.logs.get(broker))}
        there = {name: position for name, position in progress.queues.items() if name in begins}
        checksums = self.checksums({name: position.next for name, position in there.items()})
        for name in self.bounds.keys() - progress.queues.keys():
            if name.broker in progress.logs and (least := self.bounds[name].min) > 0:
                wrong[name] = f"it is new, and its messages before queue offset {least} have expired unread"
        for name, position in there.items():
            least, most, _ = self.bounds[name]
            if name.broker in others:
                wrong[name] = "another store is at the path"
            elif position.next > most or not _may_be(checksums[name], position.checksum):
                wrong[name] = f"its queue offsets before {position.next} were assigned again, or messages were cut from it"
            elif position.next < least:
                wrong[name] = f"its messages from queue offset {position.next} to {least} have expired unread"
            else:
                begins[name] = position.next
        return begins, wrong

    def resolve(self, asked: Offsets) -> dict[QueueName, int]:
        """Returns the queue offset of each queue. Raises ValueError unless the option names every queue of the read."""
        if asked.times is not None:
            return self._at_times(_each(asked.times, self.bounds, asked), asked)
        words = {LATEST: lambda bounds: bounds.end, EARLIEST: lambda bounds: bounds.min}
        given = _each(asked.offsets, self.bounds, asked)
        return {name: words[offset](self.bounds[name]) if offset in words else offset for name, offset in given.items()}

    def _at_times(self, times: Mapping[QueueName, int], asked: Offsets) -> dict[QueueName, int]:
        found_at = {}
        for broker, snapshot in self.snapshots.items():
            names = [name for name in times if name.broker == broker]
            columns = [[name.topic for name in names], [name.queue_id for name in names], [times[name] for name in names]]
            kinds = (pa.string(), pa.int32(), pa.timestamp("ms", tz="UTC"))
            rows = pa.RecordBatch.from_arrays(
                [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)],
                ["topic", "queue_id", "time"],
            )
            found = pa.record_batch(snapshot.open().resolve_times(rows)).column("queue_offset").to_pylist()
            for name, offset in zip(names, found, strict=True):
                bounds = self.bounds[name]
                if (offset is None or offset >= bounds.end) and not asked.is_latest_without_message:
                    raise ValueError(
                        f"{name} has no message that was stored at {times[name]} ms since 1970 or later: give an earlier "
                        "time, or startingOffsetsByTimestampStrategy=latest to begin such a queue at its end"
                    )
                found_at[name] = bounds.end if offset is None else min(offset, bounds.end)
        return found_at


def _may_be(found: int | None, known: int | None) -> bool:
    """Compares checksums. None, the checksum of a damaged record, equals any other."""
    return found == known or found is None or known is None


def _each(given: int | Mapping[QueueName, int], queues: Iterable[QueueName], asked: Offsets) -> Mapping[QueueName, int]:
    """Returns the value of each queue. Raises ValueError unless the option names every queue and no other, as Kafka's does."""
    if isinstance(given, int):
        return dict.fromkeys(queues, given)
    any_broker = {name: name.of_any_broker() for name in queues}
    if absent := given.keys() - any_broker.keys() - set(any_broker.values()):
        raise ValueError(f"option {asked.option} names {', '.join(sorted(map(str, absent)))}, which is not read")
    found = {name: given[key] for name, any_of in any_broker.items() if (key := name if name in given else any_of) in given}
    if unnamed := any_broker.keys() - found.keys():
        meanings = {LATEST: "its end", EARLIEST: "its start"}
        words = " and ".join(f"{value} is {meanings[value]}" for value in asked.accepted)
        rest = "give a time for it" if asked.times is not None else words
        names = ", ".join(map(str, sorted(unnamed)))
        raise ValueError(f"option {asked.option} does not name {names}, which the query reads: {rest}")
    return found
