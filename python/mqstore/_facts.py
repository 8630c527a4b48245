"""What a store is, in a few facts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import mqstore
from mqstore._rows import json_time, rows_of


def facts_of(store: mqstore.Store) -> dict[str, Any]:
    """What the store holds, and what opening it found, as JSON has it."""
    segments = rows_of(store.segments())
    queues = [queue for _, queue in file_queues(store)]
    filled = [queue for queue in queues if len(queue)]
    last = [time for queue in filled if (time := _last_time(queue)) is not None]
    recovery = store.recovery
    return {
        "path": store.path,
        "log_begin": store.min_physical_offset,
        "log_end": store.max_physical_offset,
        "segments": len(segments),
        "bytes": sum(row["bytes"] for row in segments),
        "first_store_time": next((row["first_store_time"] for row in segments if row["first_store_time"]), None),
        "last_store_time": max(last, default=None),
        "topics": len(store.topics),
        "queues": len(queues),
        "messages": sum(map(len, filled)),
        "clean_exit": recovery.clean_exit,
        "complete": recovery.complete,
        "missing": recovery.missing,
        "undispatched": recovery.undispatched,
        "queue_entries_ahead": recovery.queue_entries_ahead,
        "refused": recovery.refused,
        "bytes_lost": recovery.bytes_lost,
        "log_ends_because": recovery.stop_reason,
    }


def file_queues(store: mqstore.Store, only: str | None = None) -> Iterator[tuple[str, mqstore.Queue]]:
    """Every queue that is a file of this format, with its topic; or those of a topic."""
    for topic in store.topics.values() if only is None else [store.topics[only]]:
        with suppress(mqstore.UnsupportedFormatError):
            queues = topic.queues
            yield from ((topic.name, queues[queue_id]) for queue_id in topic.queue_ids)


def _last_time(queue: mqstore.Queue) -> str | None:
    """When its last message was stored, if that can be read."""
    with suppress(mqstore.StoreError, OverflowError):
        return json_time(queue[-1].store_time)
    return None
