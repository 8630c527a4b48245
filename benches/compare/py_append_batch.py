"""`Writer.append_batch` of 1,000 messages, from a list and from an Arrow table, compared with the same batch from Rust."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from peers import Peer, installed
from py_append import TOPIC, messages
from rounds import LIMIT, OURS, Row, Rust, measure

import mqstore

BATCH = 1000
#: The size of a body, and the target ratio to Rust's rate.
BODIES = [(100, 1 / 1.3), (1024, 1 / 1.15)]


def each(batches: int, rows: int, call: Callable[[], object]) -> float:
    """Returns the nanoseconds for a row."""
    begun = time.perf_counter_ns()
    for _ in range(batches):
        call()
    return (time.perf_counter_ns() - begun) / (batches * rows)


def ours(path: Path, *, rows: Any, count: int, batches: int) -> float:
    """Appends batches of `count` rows."""
    with mqstore.open(path / "store", mode="x") as store:
        store.append(TOPIC, b"first")
        return each(batches, count, lambda: store.append_batch(rows, TOPIC))


def by_peer(path: Path, *, peer: type[Peer], rows: list[bytes], batches: int) -> float:
    """Writes batches to a peer, without a sync."""
    store = peer(path, durable=False)
    try:
        return each(batches, len(rows), partial(store.append_batch, rows))
    finally:
        store.close()


def run(rust: Rust | None) -> None:
    """Measures each size of body, as a list and as a table."""
    for length, ratio in BODIES:
        batches = max(1, messages(length) // BATCH)
        rows = [bytes(length)] * BATCH
        limit = {LIMIT: rust.round(f"append_batch {length} {batches * BATCH} {BATCH}")} if rust else {}
        with_batches = [peer for peer in installed() if peer.has_batches]
        peers = {peer.name: partial(by_peer, peer=peer, rows=rows, batches=max(1, batches // 10)) for peer in with_batches}
        for form, given in ("list of bytes", rows), ("Arrow table", pa.table({"body": rows})):
            row = Row("py_append_batch", {"body": length, "rows": form}, "ns a message", {"ratio_limit": ratio})
            measure(row, {OURS: partial(ours, rows=given, count=BATCH, batches=batches)} | limit | peers, rust)
