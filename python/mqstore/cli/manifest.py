"""The command `manifest`: the bounds of a store, for programs that cannot read its files."""

from __future__ import annotations

import mqstore
from mqstore.cli._main import command
from mqstore.cli._output import Output
from mqstore.cli._store import on_store


@command(examples="manifest /data/store > store.json")
@on_store
def manifest(store: mqstore.Store, out: Output) -> None:
    """Prints the bounds of a store as one JSON object.

    landmarks are physical offset and checksum of the first and the last record, which identify the store. With the manifest a
    program plans reads of a store that only others can read, as Spark's driver does for a store on its workers:
    mqstore.spark.Stores(..., manifests=). The commands segments and queues list the content.
    """
    from mqstore._native import _landmarks

    out.object(
        {
            "path": store.path,
            "mqstore": mqstore.__version__,
            "min_physical_offset": store.min_physical_offset,
            "max_physical_offset": store.max_physical_offset,
            "landmarks": _landmarks(store),
            "complete": store.recovery.complete,
            "missing": store.recovery.missing,
        }
    )
