"""The command `dump`: the bytes of a record, a queue entry or an index chain."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator

import click

import mqstore
from mqstore._rows import rows_of, visible
from mqstore.cli._main import command
from mqstore.cli._messages import expect_queue, expect_topic, place
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store

#: Bytes of a line.
WIDTH = 8


def _offset(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    """Converts a physical offset."""
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    entry = f": for a queue entry give --entry {text}" if "@" in text else ""
    raise click.BadParameter(f"{text!r} is not a physical offset{entry}")


@command(examples=("dump /data/store 1048576", "dump /data/store --entry orders/0@17", "dump /data/store --key orders o-1"))
@on_store
@click.argument("offset", callback=_offset, required=False)
@click.option("--entry", "entry", metavar="TOPIC/QUEUE@OFFSET", help="Dumps a queue entry, and its record.")
@click.option("--key", "key", nargs=2, metavar="TOPIC KEY", help="Dumps the chain of a key in each index file, and its records.")
@click.option("-n", "number", type=click.IntRange(min=1), default=64, show_default=True, metavar="N", help="With --key: N items.")
def dump(
    store: mqstore.Store, out: Output, offset: int | None, entry: str | None, key: tuple[str, str] | None, number: int
) -> None:
    """Shows bytes, field by field, and what is wrong with them.

    It shows the record at OFFSET of the log, whole or damaged, a queue entry, or an index chain. A line has the byte in the
    file, the bytes in hex (the first ones of a long field), the field, its value, and after !! what is wrong.
    """
    if sum(given is not None for given in (offset, entry, key)) != 1:
        raise click.UsageError("give one of OFFSET, --entry and --key")
    if key is not None:
        batch = store.inspect.dump_key(*key, limit=number)
    elif entry is not None:
        topic, queue_id, queue_offset = place(store, entry)
        if queue_id is None or queue_offset is None:
            raise click.BadParameter(f"{entry!r} names no entry: expected TOPIC/QUEUE@OFFSET", param_hint="--entry")
        expect_topic(store, topic)
        expect_queue(store, topic, queue_id)
        batch = store.inspect.dump_entry(topic, queue_id, queue_offset)
    else:
        assert offset is not None
        batch = store.inspect.dump(offset)
    _print(out, (row | {"bytes": b64decode(row["bytes"]).hex(" ")} for row in rows_of(batch)))


def _print(out: Output, rows: Iterator[Row]) -> None:
    file = None
    for row in rows:
        if out.as_json:
            out.object(row)
            continue
        position, digits = f"{row['offset']}", row["bytes"][: 3 * WIDTH - 1]
        if row["field"].endswith(" record"):
            # A record of the log that belongs to the item before it.
            position = ""
        elif row["file"] != file:
            file = row["file"]
            out.line(visible(file))
        if row["length"] > WIDTH:
            digits = f"{digits} .."
        wrong = f"  !! {row['wrong']}" if row["wrong"] else ""
        out.line(visible(f"{position:>10}  {digits:<{3 * WIDTH + 2}}  {row['field']:<27}  {row['value']}{wrong}").rstrip())
