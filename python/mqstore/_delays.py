"""Delayed messages, and the progress of their delivery."""

from __future__ import annotations

from typing import NamedTuple

import mqstore
from mqstore._broker_topics import SCHEDULE_TOPIC
from mqstore._rows import rows_of
from mqstore._settings import why_missing


class Delivery(NamedTuple):
    """The progress of the delivery of delayed messages."""

    #: The queue offset of the next message to deliver, by level; empty where the progress is unknown.
    offsets: dict[int, int]
    #: The reason why the progress is unknown; None where it is known.
    unknown: str | None = None
    #: True if `config/delayOffset.json` of a broker is damaged or missing, which then delivers all messages again.
    is_lost: bool = False
    #: The byte at which the file is damaged.
    byte: int = 0


def delivery_of(store: mqstore.Store) -> Delivery:
    """Returns the progress of the delivery of delayed messages. In a store that no broker has written, nothing was delivered."""
    try:
        return Delivery({row["level"]: row["offset"] for row in rows_of(store.broker.delay_offsets())})
    except mqstore.CorruptError as error:
        return Delivery({}, f"delayOffset.json cannot be read: {error.reason}", True, error.offset)
    except mqstore.UnsupportedFormatError as error:
        return Delivery({}, str(error))
    except mqstore.NotFoundError as error:
        why = why_missing(store, "delayOffset.json")
        return Delivery({}, str(error) if why is None else why, why is not None)


def undelivered(store: mqstore.Store, delivery: Delivery) -> dict[int, mqstore.QueueSlice]:
    """Returns by level the messages that wait for their delivery. Where the progress is unknown, these are all messages."""
    if SCHEDULE_TOPIC not in store.topics:
        return {}
    topic = store.topics[SCHEDULE_TOPIC]
    queues = {queue_id + 1: topic.queues[queue_id] for queue_id in topic.queue_ids}
    return {level: queue[max(delivery.offsets.get(level, 0), queue.min_offset) :] for level, queue in queues.items()}
