"""The commands `topics` and `queues`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import click

import mqstore
from mqstore._facts import file_queues
from mqstore._lost_queues import lost_in_words, lost_queues
from mqstore._rows import rows_of
from mqstore.cli._main import command
from mqstore.cli._messages import expect_topic, note_elsewhere
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store


@command(examples="topics /data/store")
@on_store
def topics(store: mqstore.Store, out: Output) -> None:
    """Lists the topics, with their queues and messages.

    If the store has config/topics.json, it also lists topics without a message, the numbers of queues that clients read and
    write, and the permission (4 read, 2 write). messages counts queue offsets, also those of lost messages, which verify
    lists. queues and messages are empty if the queues are in another format (RocksDB, batch consume queues); stderr names
    what is in another format.
    """
    for part in ("queues", "topic_configs", "compacted_topics"):
        note_elsewhere(store, out, part)
    lost = lost_queues(store, lambda _: True, out.progress)
    out.table(_topics(store), f"{store.path} has no topic", missing=lost_in_words(store, lost))


def _topics(store: mqstore.Store) -> Iterator[Row]:
    configs: dict[str, Row] = {}
    with suppress(mqstore.NotFoundError, mqstore.UnsupportedFormatError):
        configs = {row["topic"]: row for row in rows_of(store.broker.topic_configs())}
    for name in sorted({*store.topics, *configs}):
        lengths = _lengths(store, name)
        yield {
            "topic": name,
            "queues": None if lengths is None else len(lengths),
            "messages": None if lengths is None else sum(lengths),
            **{field: configs.get(name, {}).get(field) for field in ("read_queue_nums", "write_queue_nums", "perm")},
        }


def _lengths(store: mqstore.Store, name: str) -> list[int] | None:
    topic = store.topics.get(name)
    if topic is None:
        return []
    try:
        return [len(topic.queues[queue_id]) for queue_id in topic.queue_ids]
    except mqstore.UnsupportedFormatError:
        return None


@command(examples=("queues /data/store", "queues /data/store orders --json"))
@on_store
@click.argument("topic", required=False)
def queues(store: mqstore.Store, out: Output, topic: str | None) -> None:
    """Lists the queues of TOPIC, or of all, with their bounds.

    max_offset is the queue offset of the next message. messages counts the offsets from min_offset on, also those of lost
    messages, which verify lists. Batch consume queues, and queues in RocksDB, are not listed: stderr names them.
    """
    note_elsewhere(store, out, "queues")
    lost = lost_queues(store, lambda name: topic in (None, name), out.progress)
    if topic is not None and not lost:
        expect_topic(store, topic)
    rows = _bounds(store, topic) if topic is None or topic in store.topics else ()
    nothing = f"{store.path} has no queue that is a file of this format"
    out.table(rows, nothing, missing=lost_in_words(store, lost))


def _bounds(store: mqstore.Store, only: str | None) -> Iterator[Row]:
    for topic, queue in file_queues(store, only):
        yield {
            "topic": topic,
            "queue_id": queue.queue_id,
            "min_offset": queue.min_offset,
            "max_offset": queue.max_offset,
            "messages": len(queue),
        }
