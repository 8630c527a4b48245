"""The command `du`: messages and bytes by topic, queue, tag, hour or segment."""

from __future__ import annotations

from typing import Any

import click

import mqstore
from mqstore._facts import disk_of
from mqstore._rows import rows_of
from mqstore.cli._main import command, from_the_command_line
from mqstore.cli._output import Output
from mqstore.cli._store import on_store

#: The columns of `Store.usage` by the words of the option.
BY: dict[str, Any] = {"topic": "topic", "queue": "queue_id", "tag": "tags", "hour": "hour", "segment": "segment"}
BY |= {column: column for column in BY.values()}


@command(examples=("du /data/store", "du /data/store --by topic,hour --json", "du /data/store --files --json"))
@on_store
@click.option("--by", default="topic", show_default=True, metavar="LIST", help="Some of topic,queue,tag,hour,segment.")
@click.option("-n", "number", type=click.IntRange(min=1), metavar="N", help="Prints the N largest.")
@click.option("--files", "only_files", is_flag=True, help="Prints only the sizes of files on disk and the free space.")
def du(store: mqstore.Store, out: Output, by: str, number: int | None, only_files: bool) -> None:
    """Counts messages and bytes by topic, queue, tag or hour.

    It reads the log once and counts every message, also a message in no queue. bytes are those of the records. The largest
    rows come first; with hour or segment, rows are in the order of time. Without --json it then prints the sizes of log,
    queue, index and other files on disk, and the free space.
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
