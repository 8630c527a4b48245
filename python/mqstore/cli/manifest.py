"""The bounds of a store, for programs that cannot see its files."""

from __future__ import annotations

import mqstore
from mqstore._facts import file_queues
from mqstore._rows import rows_of
from mqstore.cli._main import command
from mqstore.cli._output import Output
from mqstore.cli._store import on_store


@command(examples="manifest /data/store > store.json")
@on_store
def manifest(store: mqstore.Store, out: Output) -> None:
    """Prints the bounds of a store as one JSON object.

    These are the bounds of its log, its segments and its queues. landmarks are physical offset and checksum of the first and
    the last record: another store has others. With it a program plans the reading of a store that it cannot see, as Spark's
    driver that of a store on its workers: mqstore.spark.Stores(..., manifests=). queues lacks those that are no files of this
    format (RocksDB, batch consume queues).
    """
    from mqstore._native import _landmarks

    queues = [
        {"topic": topic, "queue_id": queue.queue_id, "min_offset": queue.min_offset, "max_offset": queue.max_offset}
        for topic, queue in file_queues(store)
    ]
    out.object(
        {
            "path": store.path,
            "mqstore": mqstore.__version__,
            "min_physical_offset": store.min_physical_offset,
            "max_physical_offset": store.max_physical_offset,
            "landmarks": _landmarks(store),
            "complete": store.recovery.complete,
            "missing": store.recovery.missing,
            "segments": rows_of(store.segments()),
            "queues": queues,
        }
    )
