"""The command `dead`: dead letters and retries."""

from __future__ import annotations

from typing import Any

import click

import mqstore
from mqstore._broker_topics import DEAD, RETRY
from mqstore._groups import progress_of
from mqstore._lost_queues import lost_in_words, lost_queues
from mqstore._names import there_is
from mqstore._rows import rows_of, visible
from mqstore.cli._main import command
from mqstore.cli._messages import note_elsewhere
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store

COLUMNS = ["topic", "queue_id", "queue_offset", "store_time", "properties", "reconsume_times"]


@command(examples=("dead /data/store", "dead /data/store billing --json"))
@on_store
@click.argument("group", required=False)
def dead(store: mqstore.Store, out: Output, group: str | None) -> None:
    """Counts the dead letters and retries of each group.

    A row counts the messages of from_topic on which consumers of the group failed reconsume_times times. Messages in %DLQ%
    were given up: the limit of the group was reached, or a consumer asked for it. Messages in %RETRY% are delivered again;
    unread ones were not yet. To see the messages: mqstore cat STORE %DLQ%billing. To send them again while no broker runs:
    mqstore resend STORE billing. To write them to a file: mqstore export STORE dead.jsonl --topic %DLQ%billing --decode-body

    Exit code 1 if nothing is found, if such a queue is lost, and if the progress of groups cannot be read.
    """
    topics = [name for name in store.topics if name.startswith((DEAD, RETRY))]
    nothing = "no message was given up, and none was sent back"
    if group is not None:
        nothing = f"{nothing} by group {visible(group)}{there_is(group, map(_group, topics))}"
        topics = [name for name in topics if _group(name) == group]
    lost = lost_queues(store, lambda name: name.startswith((DEAD, RETRY)) and group in (None, _group(name)), out.progress)
    out.table(_counts(store, out, topics), nothing, missing=lost_in_words(store, lost))


def _counts(store: mqstore.Store, out: Output, topics: list[str]) -> list[Row]:
    if not topics:
        return []
    is_elsewhere = note_elsewhere(store, out, "consumer_offsets")
    consumed, why = progress_of(store)
    unread = None if (is_elsewhere or why) and not consumed else 0
    if why is not None and not is_elsewhere:
        out.lack(why)
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for batch in out.counting(store.scan(topics=topics, columns=COLUMNS, progress=out.progress)):
        for row in rows_of(batch):
            topic, time = row["topic"], row["store_time"]
            group = _group(topic)
            key = (group, topic, row["properties"].get("RETRY_TOPIC"), row["reconsume_times"])
            names = ("group", "topic", "from_topic", "reconsume_times")
            count = groups.setdefault(
                key, dict(zip(names, key, strict=True)) | {"messages": 0, "unread": unread, "first_store_time": time}
            )
            count["messages"] += 1
            if count["unread"] is not None:
                count["unread"] += row["queue_offset"] >= consumed.get((group, topic, row["queue_id"]), 0)
            count["last_store_time"] = time
    return sorted(groups.values(), key=lambda row: (row["group"], row["topic"], row["from_topic"] or "", row["reconsume_times"]))


def _group(topic: str) -> str:
    return topic.removeprefix(DEAD).removeprefix(RETRY)
