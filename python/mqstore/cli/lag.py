"""The command `lag`: the progress of consumer groups."""

from __future__ import annotations

import click

import mqstore
from mqstore._groups import lags_of
from mqstore._lost_queues import empty_lost, lost_in_words
from mqstore.cli._main import command
from mqstore.cli._messages import NO_GROUP, rows_of_group
from mqstore.cli._output import Output
from mqstore.cli._store import on_store


@command(examples=("lag /data/store", "lag /data/store billing --json"))
@on_store
@click.argument("group", required=False)
def lag(store: mqstore.Store, out: Output, group: str | None) -> None:
    """Shows the lag of each consumer group, by queue.

    A row is a queue of a group: of all groups, or of GROUP. offset is the next message of the group, as the broker wrote it
    to config/consumerOffset.json (every 5 s). Below min_offset, messages expired before they were read. Above max_offset, the
    file is of another store, or messages were lost. unconsumed_since is the store time of the oldest message that the group
    has not consumed; the row whose message waits longest comes first. Without bounds and lag the queue is lost, and the exit
    code is 1. groups has the sum of each topic, and the age.
    """
    rows = [{name: value for name, value in row.items() if name != "age"} for row in lags_of(store)]
    rows = rows_of_group(rows, group)
    out.table(rows, NO_GROUP, missing=lost_in_words(store, empty_lost(store, rows, out.progress)))
