"""The commands `segments` and `index`."""

from __future__ import annotations

import mqstore
from mqstore._rows import rows_of
from mqstore.cli._main import command
from mqstore.cli._messages import note_elsewhere
from mqstore.cli._output import Output
from mqstore.cli._store import on_store

#: The columns of an index file for people.
INDEX = ("name", "items", "max_items", "load", "longest_chain", "first_store_time", "last_store_time", "whole", "used")


@command(examples="segments /data/store")
@on_store
def segments(store: mqstore.Store, out: Output) -> None:
    """Lists the segments of the log.

    segment is the physical offset at which it starts, and the name of its file in commitlog/. sealed: the log continues in a
    later segment. For the topics in each: mqstore du --by segment,topic.
    """
    out.table(rows_of(store.inspect.segments()), f"{store.path} has no segment")


@command(examples=("index /data/store", "index /data/store --json"))
@on_store
def index(store: mqstore.Store, out: Output) -> None:
    """Lists the index files, with their load.

    The columns explain why a search by key is slow, or reads the log. load: keys per slot. longest_chain: the most keys that a
    search reads. whole: every key can be reached. used: searches use the file, and do not read the log for its messages. It
    reads every index file completely. --json has more fields.
    """
    note_elsewhere(store, out, "keys")
    out.table(rows_of(store.inspect.index_files()), f"{store.path} has no index file: a search by key reads the log", INDEX)
