"""The command `trace`: the way of a message through a store."""

from __future__ import annotations

import click

import mqstore
from mqstore._rows import json_time
from mqstore._trace import trace_of
from mqstore.cli._main import Failure, command
from mqstore.cli._output import Output
from mqstore.cli._store import on_store


@command(examples="trace /data/store C00002020EB403DA7DCF8763BB520000")
@on_store
@click.argument("message_id", metavar="ID")
def trace(store: mqstore.Store, out: Output, message_id: str) -> None:
    """Shows each record of a message, and what became of it.

    ID is its unique key, or the offset id of one of its records. A row is a record, in the order of the log: stage is where on
    its way the message was (stored, half, delayed, timer, delivered, committed, rolled_back, retry, dead, given_up), or recall
    for what ends a timer, and state what became of it there. passed_by are the groups that have consumed it or sent it back,
    awaited_by the others that consume its topic. Records whose segments have expired are not shown.

    Exit code 1 if the log has no such message, and if records or the progress of groups cannot be read.
    """
    try:
        found = trace_of(store, message_id, out.counting)
    except mqstore.NotFoundError as error:
        raise Failure(str(error)) from None
    rows = [
        {
            **record.to_dict(),
            "store_time": json_time(record.store_time),
            "passed_by": list(record.passed_by),
            "awaited_by": list(record.awaited_by),
        }
        for record in found.records
    ]
    doubts = list(found.unknown)
    if not found.complete:
        doubts.append("records of it may be missing: messages were lost or are damaged")
    out.table(rows, "", missing="; ".join(doubts) or None)
