"""The fate of a message that belongs to a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import mqstore
from mqstore._broker_topics import GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC
from mqstore._rows import each_row, visible

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


def _offset_in_ops(half: mqstore.Message) -> int:
    """Returns the offset by which op messages list a half message: its queue offset in files, its physical offset in RocksDB."""
    return half.queue_offset if half.topic == HALF_TOPIC else half.physical_offset


def _listed_by_ops(store: mqstore.Store, half: mqstore.Message) -> set[int]:
    """Returns the offsets that the op messages list. An op message of files has the queue id of its half messages."""
    topic = _OPS[half.topic]
    if topic not in store.topics:
        return set()
    queues = store.topics[topic]
    if topic == OP_TOPIC and half.queue_id not in queues.queue_ids:
        return set()
    ops = queues.queues[half.queue_id] if topic == OP_TOPIC else queues
    # The search for open transactions has counted what is damaged.
    batches = ops.batches(["properties" if topic == ROCKSDB_OP_TOPIC else "body"], errors="skip")
    return {offset for batch in batches for op in batch for offset in _listed(topic, op)}


def _listed(topic: str, op: Any) -> Iterator[int]:
    """Yields the offsets of half messages that an op message lists: queue offsets in files, one physical offset in RocksDB."""
    text = op.properties.get("TRANS_OFFSET", "").encode() if topic == ROCKSDB_OP_TOPIC else op.body
    return (int(offset) for offset in text.split(b",") if offset.strip().isdigit())


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
    try:
        found = counting(store.broker.transactions())
    except mqstore.CorruptError as error:
        return Fate("unknown", f"{_UNKNOWN}: the progress of the broker cannot be read: {error.reason}")
    if all(half.physical_offset != last.physical_offset for half in found.halves):
        return _fate_of_ended(store, half, last, is_complete, counting)
    ops = _OPS[half.topic]
    if found.lost_ops or ops in found.lost_queues or not store.recovery.complete:
        return Fate("unknown", f"{_UNKNOWN}: messages of {ops} were lost or are damaged, and one of them may list it")
    topic = visible(half.properties.get("REAL_TOPIC", "-"))
    return Fate("open", f"a half message whose transaction is open: consumers of {topic} do not get it until it is committed")


def _fate_of_ended(
    store: mqstore.Store, half: mqstore.Message, last: mqstore.Message, is_complete: bool, counting: Counting
) -> Fate:
    """Returns the fate of a half message that is not open and has no committed message. An op message lists its last copy, or the
    progress of the broker has passed it.
    """
    if _offset_in_ops(last) in _listed_by_ops(store, last):
        if is_complete:
            return Fate("rolled_back", "a half message whose transaction was rolled back: consumers do not get it")
        return Fate("ended", f"a half message whose transaction has ended: {_LOST}")
    if half.unique_key and GIVEN_UP_TOPIC in store.topics and counting(store.query(GIVEN_UP_TOPIC, half.unique_key)):
        return Fate("given_up", f"{_GIVEN_UP}: consumers do not get it")
    committed = "no committed message of it is in the log" if is_complete else _LOST
    return Fate("ended", f"a half message that the broker is done with: {committed}")


def _fate_of_op(store: mqstore.Store, op: mqstore.Message, counting: Counting) -> Fate:
    """Returns the fate of the half messages that an op message lists."""
    states: dict[_State, int] = {"committed": 0, "rolled_back": 0, "ended": 0}
    for offset in _listed(op.topic, op):
        half = _half_at(store, op, offset, counting)
        _, commit, is_complete = ((), None, False) if half is None else _commit_of(store, half, counting)
        states["committed" if commit is not None else "rolled_back" if is_complete else "ended"] += 1
    found: dict[_State, int] = {state: number for state, number in states.items() if number}
    ends = ", ".join(f"{number} {_WORDS[state]}" for state, number in found.items()) or "none"
    text = f"a broker's op message, which lists transactions that have ended: {ends}"
    state: _State = next(iter(found)) if len(found) == 1 else "ended"
    return Fate(state, text)


def _half_at(store: mqstore.Store, op: mqstore.Message, offset: int, counting: Counting) -> mqstore.Message | None:
    """Returns the half message at an offset that an op message lists, or None if the log does not have it."""
    columns = ["physical_offset"]
    if op.topic == ROCKSDB_OP_TOPIC and offset < store.max_physical_offset:
        batches = store.scan(topics=ROCKSDB_HALF_TOPIC, physical=(offset, offset + 1), columns=columns, errors="skip")
    elif op.topic == OP_TOPIC and HALF_TOPIC in store.topics:
        batches = store.topics[HALF_TOPIC].queues[op.queue_id][offset : offset + 1].batches(columns, errors="skip")
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
    offsets = {copy.physical_offset for copy in copies}
    if topic is None:
        return copies, None, False
    if key is None or topic not in store.topics:
        end, is_complete = _end_of(store, topic, offsets, counting)
        return copies, None if end is None else end[1], is_complete
    found = counting(store.query(topic, key, limit=None, errors="skip"))
    commits = [_place(message.to_dict()) for message in found if message.prepared_transaction_offset in offsets]
    return copies, next(iter(commits), None), found.complete


def _end_of(store: mqstore.Store, topic: str, halves: Iterable[int], counting: Counting) -> tuple[tuple[int, str] | None, bool]:
    """Returns the type and place of the message that ends a transaction, and whether the search for it was complete. It scans the
    log after the half message.
    """
    columns = ["topic", "queue_id", "queue_offset", "sys_flag", "prepared_transaction_offset"]
    offsets = set(halves)
    after = (min(offsets), None)
    batches = counting(store.scan(topics=topic, physical=after, transactions="all", columns=columns, errors="skip"))
    for batch in batches:
        for row in each_row(batch):
            kind = row["sys_flag"] & TYPE
            if kind in (COMMIT, ROLLBACK) and row["prepared_transaction_offset"] in offsets:
                return (kind, _place(row)), True
    return None, store.recovery.complete and not batches.skipped


def _place(row: dict[str, Any]) -> str:
    return visible(f"{row['topic']}/{row['queue_id']}@{row['queue_offset']}")
