"""What takes the room."""

from __future__ import annotations

from typing import Any

import click

import mqstore
from mqstore._facts import disk_of
from mqstore._rows import rows_of
from mqstore.cli._main import command, from_the_command_line
from mqstore.cli._output import Output
from mqstore.cli._store import on_store

#: What to count by, as operators call it, and the column of `Store.usage`.
BY: dict[str, Any] = {"topic": "topic", "queue": "queue_id", "tag": "tags", "hour": "hour", "segment": "segment"}
BY |= {column: column for column in BY.values()}


@command(examples=("du /data/store", "du /data/store --by topic,hour --json", "du /data/store --files --json"))
@on_store
@click.option("--by", default="topic", show_default=True, metavar="LIST", help="Some of topic,queue,tag,hour,segment.")
@click.option("-n", "number", type=click.IntRange(min=1), metavar="N", help="The N largest.")
@click.option("--files", "only_files", is_flag=True, help="Only what the files take on disk, and what is free there.")
def du(store: mqstore.Store, out: Output, by: str, number: int | None, only_files: bool) -> None:
    """Counts messages and bytes by topic, queue, tag or hour.

    One pass over the log: every message counts, also one that is in no queue. bytes are those of its record. The largest come
    first; with hour or segment they are in the order of time. After the table, without --json: what log, queue, index and
    other files take on disk, and what is free there.
    """
    if only_files:
        return out.document(disk_of(store.path))
    if unknown := [name for name in by.split(",") if name not in BY]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(BY)}", param_hint="--by")
    with from_the_command_line():
        usage = store.usage([BY[name] for name in by.split(",")])
    rows = rows_of(usage)
    if number is not None or not {"hour", "segment"} & set(by.split(",")):
        rows.sort(key=lambda row: -row["bytes"])
    out.table(rows[:number], f"{store.path} has no message")
    if not out.as_json:
        out.line("")
        out.document(disk_of(store.path))
    if usage.unread:
        size = sum(end - begin for begin, end in usage.unread)
        out.lack(f"{size} bytes of the log were not counted: messages were lost or are damaged there")
