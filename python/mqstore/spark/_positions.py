"""Locations of queue offsets in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

import mqstore


class QueueName(NamedTuple):
    """The name of a queue. Without a broker: a queue of the only store, or in an option, of each store that has it."""

    broker: str | None
    topic: str
    queue_id: int

    def of_any_broker(self) -> QueueName:
        """Returns the name by which an option without brokers names this queue."""
        return self._replace(broker=None)

    def __str__(self) -> str:
        return "/".join(str(part) for part in self if part is not None)


def positions_of(store: mqstore.Store, messages: Iterable[tuple[str, int, int]]) -> list[tuple[int | None, int | None]]:
    """Returns physical offset and size of messages, given by topic, queue id and queue offset; None for absent messages."""
    columns = list(zip(*messages, strict=True)) or [(), (), ()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, (pa.string(), pa.int32(), pa.int64()), strict=True)]
    found = pa.record_batch(store.resolve_offsets(pa.RecordBatch.from_arrays(arrays, ["topic", "queue_id", "queue_offset"])))
    return list(zip(found.column("physical_offset").to_pylist(), found.column("store_size").to_pylist(), strict=True))


def ends_before(store: mqstore.Store, queues: Mapping[QueueName, tuple[int, int]], end: int) -> dict[QueueName, int]:
    """Returns the first queue offset of each queue whose record does not end before `end`, by a binary search in all queues."""
    ends = {name: most for name, (_, most) in queues.items()}
    last = _are_before(store, {name: most - 1 for name, (least, most) in queues.items() if least < most}, end)
    spans = {name: (queues[name][0], queues[name][1] - 1) for name, is_before in last.items() if not is_before}
    while spans:
        ends |= {name: low for name, (low, high) in spans.items() if low == high}
        middles = {name: (low + high) // 2 for name, (low, high) in spans.items() if low < high}
        found = _are_before(store, middles, end)
        spans = {
            name: (middle + 1, spans[name][1]) if found[name] else (spans[name][0], middle) for name, middle in middles.items()
        }
    return ends


def _are_before(store: mqstore.Store, messages: Mapping[QueueName, int], end: int) -> dict[QueueName, bool]:
    """Compares the ends of records with a physical offset. A lost message counts as before it."""
    positions = positions_of(store, [(name.topic, name.queue_id, offset) for name, offset in messages.items()])
    return {name: at is None or at + (size or 0) <= end for name, (at, size) in zip(messages, positions, strict=True)}
