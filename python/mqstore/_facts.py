"""Facts about a store: sizes, bounds, counts and the outcome of recovery."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import mqstore
from mqstore._rows import json_time, rows_of


def facts_of(store: mqstore.Store) -> dict[str, Any]:
    """Returns the content of a store and the findings of its open, as values of JSON."""
    segments = rows_of(store.inspect.segments())
    queues = [queue for _, queue in file_queues(store)]
    filled = [queue for queue in queues if len(queue)]
    last = [time for queue in filled if (time := _last_time(queue)) is not None]
    recovery = store.recovery
    # The stretches that recovery skipped, and the gaps where a segment before others is missing or cut short.
    ends = [row["segment"] + row["bytes"] for row in segments]
    gaps = [(end, row["segment"]) for end, row in zip(ends, segments[1:], strict=False) if end < row["segment"]]
    lost = [*recovery.lost, *gaps]
    messages_lost = sum(_led_to(store, *stretch) for stretch in lost)
    # Queues in RocksDB are not counted. The store may have other queues in files.
    is_uncounted = not queues and bool(parts_elsewhere(store, "queues"))
    return {
        "path": store.path,
        "log_begin": store.min_physical_offset,
        "log_end": store.max_physical_offset,
        "segments": len(segments),
        "bytes": sum(row["bytes"] for row in segments),
        "first_store_time": next((row["first_store_time"] for row in segments if row["first_store_time"]), None),
        "last_store_time": max(last, default=None),
        "topics": len(store.topics),
        "queues": None if is_uncounted else len(queues),
        "messages": None if is_uncounted else sum(map(len, filled)) - messages_lost,
        "clean_exit": recovery.clean_exit,
        "complete": recovery.complete,
        "missing": recovery.missing,
        "undispatched": recovery.undispatched,
        "lost_by_brokers": recovery.lost_by_brokers,
        "keys_lost_by_brokers": recovery.keys_lost_by_brokers,
        "queue_entries_ahead": recovery.queue_entries_ahead,
        "refused": recovery.refused,
        "messages_lost": messages_lost,
        "bytes_lost": sum(end - begin for begin, end in lost),
        "log_ends_because": recovery.stop_reason,
        "kept_elsewhere": kept_elsewhere(store),
    }


def kept_elsewhere(store: mqstore.Store) -> list[str]:
    """Returns the parts that the broker keeps in files of another format, each with its directory below the store."""
    return [f"{row['part']} in {os.path.relpath(row['path'], store.path)}" for row in rows_of(store.inspect.kept_elsewhere())]


def parts_elsewhere(store: mqstore.Store, part: str) -> list[str]:
    """Returns a sentence for each directory with files of another format that belong to this part."""
    return [f"{row['path']}: {row['message']}" for row in rows_of(store.inspect.kept_elsewhere()) if row["part"] == part]


#: Directories of a store by the field that counts their files; the rest counts as `other_bytes`.
_FIELDS = {
    "commitlog": "log_bytes",
    **dict.fromkeys(("consumequeue", "batchconsumequeue", "consumequeue_ext", "consumequeue_rocksdb"), "queue_bytes"),
    "index": "index_bytes",
}


def disk_of(path: str) -> dict[str, int]:
    """Returns the bytes that the files of a store take on disk, by family, and the free bytes of the log's file system.

    A sparse file takes less than its length.
    """
    sizes: dict[str, int] = dict.fromkeys(("log_bytes", "queue_bytes", "index_bytes", "other_bytes"), 0)
    for name in os.listdir(path):
        top = os.path.realpath(os.path.join(path, name))
        files = [top] if os.path.isfile(top) else [os.path.join(at, file) for at, _, files in os.walk(top) for file in files]
        for file in files:
            # A broker removes files while it runs.
            with suppress(FileNotFoundError):
                sizes[_FIELDS.get(name, "other_bytes")] += os.lstat(file).st_blocks * 512
    log = os.path.join(path, "commitlog")
    system = os.statvfs(log if os.path.exists(log) else path)
    return sizes | {"free_bytes": system.f_bavail * system.f_frsize}


def file_queues(store: mqstore.Store, only: str | None = None) -> Iterator[tuple[str, mqstore.Queue]]:
    """Yields the queues that are files of this format, each with the name of its topic: all, or those of one topic."""
    for topic in store.topics.values() if only is None else [store.topics[only]]:
        with suppress(mqstore.UnsupportedFormatError):
            queues = topic.queues
            yield from ((topic.name, queues[queue_id]) for queue_id in topic.queue_ids)


def _led_to(store: mqstore.Store, begin: int, end: int) -> int:
    """Returns the number of messages to which queue entries lead in a lost stretch of the log."""
    batches = store.scan(physical=(begin, end), order="queue", columns=["queue_offset"], errors="skip")
    for _ in batches:
        pass
    return batches.skipped


def _last_time(queue: mqstore.Queue) -> str | int | None:
    """Returns the store time of the last message, or None if it cannot be read or is not a date."""
    with suppress(mqstore.StoreError):
        return json_time(queue[-1].store_time)
    return None


def is_in_queue(store: mqstore.Store, message: mqstore.Message) -> bool:
    """Returns True if the queue entry at the offset of a message leads to it, or if the queues are in another format."""
    if message.topic not in store.topics:
        return False
    # A lost queue has no offsets.
    with suppress(mqstore.NotFoundError, mqstore.CorruptError, IndexError):
        try:
            found = store.topics[message.topic].queues[message.queue_id][message.queue_offset]
        except mqstore.UnsupportedFormatError:
            return True
        return found.physical_offset == message.physical_offset
    return False
