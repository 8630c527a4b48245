"""Reading a whole store as Arrow batches, with all columns and with the body only, compared with the same messages as objects.

The limit compares the CRC of each body, with a thread for each core.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from peers import Peer, installed
from rounds import LIMIT, OURS, RESULTS, Row, Rust, measure, size

import mqstore

BODY = 1024
BATCH = 1000
#: The columns, and the largest time for a message in ns.
COLUMNS: list[tuple[str, list[str] | None, float]] = [("all", None, 700), ("body", ["body"], 150)]


def each(count: int, read: Callable[[], object]) -> float:
    """Returns the nanoseconds for a message."""
    begun = time.perf_counter_ns()
    read()
    return (time.perf_counter_ns() - begun) / count


def as_batches(_: Path, *, path: Path, columns: list[str] | None, count: int) -> float:
    """Reads batches, and drops each before the next one."""
    with mqstore.open(path) as store:
        return each(count, lambda: deque(store.scan(columns=columns), maxlen=0))


def as_table(_: Path, *, path: Path, columns: list[str] | None, count: int) -> float:
    """Reads all batches into memory."""
    with mqstore.open(path) as store:
        return each(count, lambda: store.scan(columns=columns).to_arrow())


def as_objects(_: Path, *, path: Path, count: int) -> float:
    """Reads message by message, with its body."""
    with mqstore.open(path) as store:
        return each(count, lambda: deque((message.body for message in store.topics["orders"].queues[0]), maxlen=0))


def by_peer(_: Path, *, store: Peer, count: int) -> float:
    """Reads body by body."""
    return each(count, lambda: deque(store.bodies(), maxlen=0))


def run(rust: Rust | None) -> None:
    """Measures each choice of columns."""
    count = size(200_000, 1000)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        path, bodies = Path(folder) / "store", [bytes(BODY)] * BATCH
        with mqstore.open(path, "x") as store:
            for _ in range(count // BATCH):
                store.append_batch(bodies, "orders")
        limit = {LIMIT: rust.round(f"scan_limit {path}")} if rust else {}
        others = [made(kind, Path(folder) / kind.name, bodies, count) for kind in installed() if kind.has_bodies]
        for name, columns, most in COLUMNS:
            row = Row("py_read_batch", {"body": BODY, "columns": name}, "ns a message", {"at_most": most})
            ours = {
                OURS: partial(as_batches, path=path, columns=columns, count=count),
                "mqstore, one table": partial(as_table, path=path, columns=columns, count=count),
                "mqstore, objects": partial(as_objects, path=path, count=count),
            }
            peers = {peer.name: partial(by_peer, store=peer, count=count) for peer in others}
            measure(row, ours | limit | peers, rust)
        for peer in others:
            peer.close()


def made(peer: type[Peer], folder: Path, bodies: list[bytes], count: int) -> Peer:
    """Creates a store with this number of messages."""
    folder.mkdir()
    store = peer(folder, durable=False)
    for _ in range(count // BATCH):
        store.append_batch(bodies)
    return store
