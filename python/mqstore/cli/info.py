"""What a store is, in a few lines."""

from __future__ import annotations

from contextlib import suppress

import mqstore
from mqstore.cli._main import command
from mqstore.cli._output import Output, rows_of
from mqstore.cli._store import file_queues, on_store
from mqstore.cli._times import json_time


@command(examples="info /data/store")
@on_store
def info(store: mqstore.Store, out: Output) -> None:
    """Shows what a store holds, and what opening it found.

    The log is what lies in commitlog/, from log_begin to log_end in bytes. queues and messages are those of the consume
    queues. complete is no where the store's own files tell of messages that are not in its log: missing then says which.
    """
    segments = rows_of(store.segments())
    queues = [queue for _, queue in file_queues(store)]
    filled = [queue for queue in queues if len(queue)]
    last = [time for queue in filled if (time := _last_time(queue)) is not None]
    recovery = store.recovery
    out.document(
        {
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
    )


def _last_time(queue: mqstore.Queue) -> str | None:
    """When its last message was stored, if that can be read."""
    with suppress(mqstore.StoreError, OverflowError):
        return json_time(queue[-1].store_time)
    return None
