"""The command `info`: facts about a store."""

from __future__ import annotations

import mqstore
from mqstore._facts import facts_of
from mqstore._lost_queues import lost_in_words, lost_queues
from mqstore.cli._main import command
from mqstore.cli._output import Output
from mqstore.cli._store import on_store


@command(examples="info /data/store")
@on_store
def info(store: mqstore.Store, out: Output) -> None:
    """Shows the content of a store, and the findings of its open.

    The log, in commitlog/, reaches from log_begin to log_end in bytes. queues and messages are those of the consume queues,
    where messages that an earlier repair could not keep still count; verify lists these, and du leaves them out. complete is
    no if messages are missing that no crash explains: missing says where. A crash has lost the last queue_entries_ahead
    messages. messages_lost and bytes_lost were in a segment that is missing or cut short, or with --salvage in a damaged part
    of the log.
    """
    lost = lost_in_words(store, lost_queues(store, lambda _: True, out.progress))
    out.document(facts_of(store))
    if lost is not None:
        out.lack(lost)
