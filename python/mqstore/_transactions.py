"""Transactions of brokers: the half messages that are open, and the fate of a message that belongs to a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import mqstore
from mqstore._broker_topics import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, TRANSACTION_GROUP
from mqstore._lost_queues import lost_queues
from mqstore._rows import each_row, rows_of, visible

#: The bits of `sys_flag` with the type of a transaction message, and two of the types.
TYPE, COMMIT, ROLLBACK = 0xC, 0x8, 0xC

#: Registers a read, whose skipped messages the caller reports.
Counting: TypeAlias = Callable[[Any], Any]
if TYPE_CHECKING:  # stubtest does not compare an alias of literals
    _State: TypeAlias = Literal["open", "committed", "rolled_back", "given_up", "ended", "unknown"]


@dataclass(frozen=True)
class Fate:
    """The state of the transaction of a message, and a sentence on it for people."""

    state: _State
    text: str


#: Columns that identify a half message, its transaction and its producer group.
_COLUMNS = ("topic", "queue_offset", "physical_offset", "store_time", "born_time", "unique_key", "tags", "keys", "properties")


def open_halves(store: mqstore.Store, counting: Counting) -> Iterator[dict[str, Any]]:
    """Yields the half messages whose transactions are open, as JSON has them: those of files first, in the order in which they
    were stored.

    Damaged half and op messages are skipped, also in a store that was opened with `errors="raise"`. Each read is passed to
    `counting`.
    """
    yield from _open_in_files(store, counting)
    if ROCKSDB_HALF_TOPIC in store.topics:
        ended, _ = _ended(store, ROCKSDB_HALF_TOPIC, None, counting)
        for batch in counting(store.topics[ROCKSDB_HALF_TOPIC].batches(_COLUMNS, errors="skip")):
            yield from (half for half in each_row(batch) if half["physical_offset"] not in ended)


def _open_in_files(store: mqstore.Store, counting: Counting) -> Iterator[dict[str, Any]]:
    if HALF_TOPIC not in store.topics:
        return
    begins = _progress(store)
    for queue_id in store.topics[HALF_TOPIC].queue_ids:
        queue = store.topics[HALF_TOPIC].queues[queue_id]
        begin = max(begins.get(queue_id, 0), queue.min_offset)
        listed, _ = _ended(store, HALF_TOPIC, queue_id, counting)
        ended = {offset for offset in listed if offset >= begin}
        # At each check the broker stores the half message again. The last copy counts.
        latest: dict[str | int, dict[str, Any]] = {}
        for batch in counting(queue[begin:].batches(_COLUMNS, errors="skip")):
            for half in each_row(batch):
                name = half["unique_key"] or half["queue_offset"]
                latest.pop(name, None)
                latest[name] = half
        yield from (half for half in latest.values() if half["queue_offset"] not in ended)


def fate_of(store: mqstore.Store, message: mqstore.Message, counting: Counting) -> Fate | None:
    """Returns the fate of a message of a transaction, or None for any other message."""
    match message.transaction:
        case "commit":
            return Fate("committed", "the message of a committed transaction: consumers get it")
        case "rollback":
            return Fate("rolled_back", "a rolled-back message: consumers do not get it")
        case "prepared":
            return _fate_of_prepared(store, message, counting)
    match message.topic:
        case topic if topic in _OPS:
            return _fate_of_half(store, message, counting)
        case topic if topic in _OPS.values():
            return _fate_of_op(store, message, counting)
        case topic if topic == GIVEN_UP_TOPIC:
            return Fate("given_up", f"{_GIVEN_UP}: consumers do not get it")
    return None


#: The topics of op messages by those of their half messages.
_OPS = {HALF_TOPIC: OP_TOPIC, ROCKSDB_HALF_TOPIC: ROCKSDB_OP_TOPIC}
_GIVEN_UP = "a half message whose producers never answered the broker, which asks no more"
_LOST = "the committed message, if there was one, is lost"
_UNKNOWN = "a half message, and how its transaction ended is not known"


def _progress(store: mqstore.Store) -> dict[int, int]:
    """Returns by queue id the offset of the first half message that the broker still has to process."""
    # Without the progress, every half message that no op message lists counts as open.
    with suppress(mqstore.NotFoundError, mqstore.UnsupportedFormatError):
        rows = rows_of(store.broker.consumer_offsets())
        return {row["queue_id"]: row["offset"] for row in rows if (row["group"], row["topic"]) == (TRANSACTION_GROUP, HALF_TOPIC)}
    return {}


def _ended(store: mqstore.Store, half_topic: str, queue_id: int | None, counting: Counting) -> tuple[set[int], bool]:
    """Returns the places of ended half messages, which op messages list, and whether all op messages could be read.

    An op message of files has the queue id of its half messages. With None the op messages of all queues are read.
    """
    topic = _OPS[half_topic]
    if topic not in store.topics or (queue_id is not None and queue_id not in store.topics[topic].queue_ids):
        return set(), not lost_queues(store, lambda name: name == topic)
    ops = store.topics[topic] if queue_id is None else store.topics[topic].queues[queue_id]
    batches = counting(ops.batches(["properties" if topic == ROCKSDB_OP_TOPIC else "body"], errors="skip"))
    ended = {place for batch in batches for op in batch for place in _listed(topic, op)}
    return ended, store.recovery.complete and not batches.skipped and not batches.lost_queues


def _listed(topic: str, op: Any) -> Iterator[int]:
    """Yields the places of the half messages that an op message lists: queue offsets in files, one physical offset in RocksDB."""
    text = op.properties.get("TRANS_OFFSET", "").encode() if topic == ROCKSDB_OP_TOPIC else op.body
    return (int(place) for place in text.split(b",") if place.strip().isdigit())


def _fate_of_prepared(store: mqstore.Store, half: mqstore.Message, counting: Counting) -> Fate:
    """Returns the fate of a half message in its own topic. Its commit or rollback names its physical offset."""
    end, is_complete = _end_of(store, half.topic, {half.physical_offset}, counting)
    if end is None and not is_complete:
        return Fate("unknown", f"{_UNKNOWN}: messages after it were lost or are damaged, and one of them may end it")
    if end is None:
        return Fate("open", "a half message whose transaction is open: consumers do not get it")
    if end[0] == ROLLBACK:
        return Fate("rolled_back", "a half message whose transaction was rolled back: consumers do not get it")
    return _committed(end[1])


def _fate_of_half(store: mqstore.Store, half: mqstore.Message, counting: Counting) -> Fate:
    """Returns the fate of a half message of a broker, by its last copy, the op messages and the committed message."""
    copies, commit, is_complete = _commit_of(store, half, counting)
    if commit is not None:
        return _committed(commit)
    last = copies[-1]
    is_in_files = half.topic == HALF_TOPIC
    ended, has_all_ops = _ended(store, half.topic, last.queue_id if is_in_files else None, counting)
    if (last.queue_offset if is_in_files else last.physical_offset) in ended:
        if is_complete:
            return Fate("rolled_back", "a half message whose transaction was rolled back: consumers do not get it")
        return Fate("ended", f"a half message whose transaction has ended: {_LOST}")
    if not has_all_ops:
        ops = _OPS[half.topic]
        return Fate("unknown", f"{_UNKNOWN}: messages of {ops} were lost or are damaged, and one of them may list it")
    begins: dict[int, int] = {}
    with suppress(mqstore.CorruptError):
        # Only half messages in files have this progress.
        begins = _progress(store) if is_in_files else {}
    if last.queue_offset >= begins.get(last.queue_id, 0):
        topic = visible(half.properties.get("REAL_TOPIC", "-"))
        return Fate("open", f"a half message whose transaction is open: consumers of {topic} do not get it until it is committed")
    if half.unique_key and GIVEN_UP_TOPIC in store.topics and counting(store.query(GIVEN_UP_TOPIC, half.unique_key)):
        return Fate("given_up", f"{_GIVEN_UP}: consumers do not get it")
    committed = "no committed message of it is in the log" if is_complete else _LOST
    return Fate("ended", f"a half message that the broker is done with: {committed}")


def _fate_of_op(store: mqstore.Store, op: mqstore.Message, counting: Counting) -> Fate:
    """Returns the fate of the half messages that an op message lists."""
    states: dict[_State, int] = {"committed": 0, "rolled_back": 0, "ended": 0}
    for place in _listed(op.topic, op):
        half = _half_at(store, op, place, counting)
        _, commit, is_complete = ((), None, False) if half is None else _commit_of(store, half, counting)
        states["committed" if commit is not None else "rolled_back" if is_complete else "ended"] += 1
    found: dict[_State, int] = {state: number for state, number in states.items() if number}
    ends = ", ".join(f"{number} {_WORDS[state]}" for state, number in found.items()) or "none"
    text = f"a broker's op message, which lists transactions that have ended: {ends}"
    state: _State = next(iter(found)) if len(found) == 1 else "ended"
    return Fate(state, text)


def _half_at(store: mqstore.Store, op: mqstore.Message, place: int, counting: Counting) -> mqstore.Message | None:
    """Returns the half message at a place that an op message lists, or None if the log does not have it."""
    columns = ["physical_offset"]
    if op.topic == ROCKSDB_OP_TOPIC and place < store.max_physical_offset:
        batches = store.scan(topics=ROCKSDB_HALF_TOPIC, physical=(place, place + 1), columns=columns, errors="skip")
    elif op.topic == OP_TOPIC and HALF_TOPIC in store.topics:
        batches = store.topics[HALF_TOPIC].queues[op.queue_id][place : place + 1].batches(columns, errors="skip")
    else:
        return None
    return next((store.message_at(offset) for batch in counting(batches) for (offset,) in batch), None)


_WORDS = {"committed": "committed", "rolled_back": "rolled back", "ended": "whose half message is not in the log"}


def _committed(place: str) -> Fate:
    return Fate("committed", f"a half message whose transaction was committed: consumers get {place}")


def _commit_of(store: mqstore.Store, half: mqstore.Message, counting: Counting) -> tuple[list[mqstore.Message], str | None, bool]:
    """Returns the copies of a half message, the place of the committed message, and whether the search for it was complete."""
    topic, key = half.properties.get("REAL_TOPIC"), half.unique_key
    copies = [half] if key is None else [*counting(store.query(half.topic, key, limit=None, errors="skip"))] or [half]
    places = {copy.physical_offset for copy in copies}
    if topic is None:
        return copies, None, False
    if key is None or topic not in store.topics:
        end, is_complete = _end_of(store, topic, places, counting)
        return copies, None if end is None else end[1], is_complete
    found = counting(store.query(topic, key, limit=None, errors="skip"))
    commits = [_place(message.to_dict()) for message in found if message.prepared_transaction_offset in places]
    return copies, next(iter(commits), None), found.complete


def _end_of(store: mqstore.Store, topic: str, halves: Iterable[int], counting: Counting) -> tuple[tuple[int, str] | None, bool]:
    """Returns the type and place of the message that ends a transaction, and whether the search for it was complete. It scans the
    log after the half message.
    """
    columns = ["topic", "queue_id", "queue_offset", "sys_flag", "prepared_transaction_offset"]
    places = set(halves)
    after = (min(places), None)
    batches = counting(store.scan(topics=topic, physical=after, transactions="all", columns=columns, errors="skip"))
    for batch in batches:
        for row in each_row(batch):
            kind = row["sys_flag"] & TYPE
            if kind in (COMMIT, ROLLBACK) and row["prepared_transaction_offset"] in places:
                return (kind, _place(row)), True
    return None, store.recovery.complete and not batches.skipped


def _place(row: dict[str, Any]) -> str:
    return visible(f"{row['topic']}/{row['queue_id']}@{row['queue_offset']}")
