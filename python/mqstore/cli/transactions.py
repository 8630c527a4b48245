"""Transactions that nobody has ended."""

from __future__ import annotations

import mqstore
from mqstore._transactions import open_halves
from mqstore.cli._main import command
from mqstore.cli._messages import whole_number
from mqstore.cli._output import Output, Row
from mqstore.cli._store import on_store


@command(examples="transactions /data/store")
@on_store
def transactions(store: mqstore.Store, out: Output) -> None:
    """Lists the half messages whose transactions are open.

    These were neither committed nor rolled back. group is the producers' that the broker asks, topic and queue_id say where
    the message will be once it is committed, queue_offset where it waits: in RMQ_SYS_TRANS_HALF_TOPIC. check_times: how often
    the broker has asked.
    """
    out.table(map(_row, open_halves(store, out.counting)), "no transaction is open")


def _row(half: Row) -> Row:
    given = half["properties"]
    return {
        "group": given.get("PGROUP"),
        "topic": given.get("REAL_TOPIC"),
        "queue_id": whole_number(given.get("REAL_QID")),
        "queue_offset": half["queue_offset"],
        "physical_offset": half["physical_offset"],
        "born_time": half["born_time"],
        "store_time": half["store_time"],
        "check_times": whole_number(given.get("TRANSACTION_CHECK_TIMES", "0")),
        "tags": half["tags"],
        "keys": half["keys"],
        "unique_key": half["unique_key"],
    }
