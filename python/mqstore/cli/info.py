"""What a store is, in a few lines."""

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
    """Shows what a store holds, and what opening it found.

    The log is what lies in commitlog/, from log_begin to log_end in bytes. queues and messages are those of the consume
    queues, where a message that an earlier repair could not keep still counts; verify lists it, and du leaves it out. complete
    is no where the store's own files name messages that are not in its log: missing then says which. messages_lost and
    bytes_lost were in a segment that is missing or cut short, or with --salvage where the log is damaged.
    """
    lost = lost_in_words(store, lost_queues(store, lambda _: True, out.progress))
    out.document(facts_of(store))
    if lost is not None:
        out.lack(lost)
