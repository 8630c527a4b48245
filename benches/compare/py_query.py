"""Queries for bodies by key, in random order: one key in a call, and many in one call. `py_resolve_keys`: the
offset only, from a column of keys to a column of offsets, where the peers store an offset of eight bytes for each message.

The peers look up numbers, which is less work than a key that several messages may have.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
from peers import Peer, installed
from py_read_batch import BATCH, each, made
from rounds import OURS, RESULTS, Round, Row, Rust, measure, size

import mqstore

BODY = 1024
#: Bytes of an offset in the log.
PLACE = 8


def by_query(_: Path, *, path: Path, wanted: list[int]) -> float:
    """Makes one call for each key."""
    with mqstore.open(path) as store:

        def read() -> None:
            for number in wanted:
                [message] = store.query("orders", f"order-{number}")
                assert len(message.body) == BODY

        return each(len(wanted), read)


def in_bulk(_: Path, *, path: Path, wanted: list[int]) -> float:
    """Makes one call for all offsets, and one for all bodies."""
    with mqstore.open(path) as store:

        def read() -> None:
            hits = pa.record_batch(store.resolve_keys(keys_of(wanted)))["hits"].flatten()
            offsets = pa.record_batch({"physical_offset": hits.field("physical_offset")})
            bodies = store.fetch(offsets, columns=["body"]).to_arrow()
            assert len(bodies) == len(wanted)

        return each(len(wanted), read)


def keys_of(wanted: list[int]) -> pa.RecordBatch:
    """Returns the requested column."""
    return pa.record_batch({"topic": ["orders"] * len(wanted), "key": [f"order-{number}" for number in wanted]})


def as_column(_: Path, *, path: Path, wanted: list[int]) -> float:
    """Makes one call for all."""
    keys = keys_of(wanted)
    with mqstore.open(path) as store:
        return each(len(wanted), lambda: pa.record_batch(store.resolve_keys(keys)))


def as_column_of_peer(_: Path, *, peer: Peer, wanted: list[int]) -> float:
    """Makes one call for each number, and a column of the results."""
    return each(len(wanted), lambda: pa.array([peer.body(number) for number in wanted], pa.binary(PLACE)))


def by_peer(_: Path, *, peer: Peer, wanted: list[int]) -> float:
    """Makes one call for each number."""

    def read() -> None:
        for number in wanted:
            assert len(peer.body(number)) == BODY

    return each(len(wanted), read)


def bodies(rust: Rust | None) -> None:
    """Measures the row of bodies."""
    with stores(BODY) as (path, others, wanted):
        ours: dict[str, Round] = {
            OURS: partial(by_query, path=path, wanted=wanted),
            "mqstore, in bulk": partial(in_bulk, path=path, wanted=wanted),
        }
        peers: dict[str, Round] = {peer.name: partial(by_peer, peer=peer, wanted=wanted) for peer in others}
        measure(Row("py_query", {"body": BODY}, "ns a message"), ours | peers, rust)


def places(rust: Rust | None) -> None:
    """Measures the row of offsets."""
    with stores(PLACE) as (path, others, wanted):
        ours: dict[str, Round] = {OURS: partial(as_column, path=path, wanted=wanted)}
        peers: dict[str, Round] = {peer.name: partial(as_column_of_peer, peer=peer, wanted=wanted) for peer in others}
        measure(Row("py_resolve_keys", {"body": BODY}, "ns a key", {"ratio_peers": 10}), ours | peers, rust)


@contextmanager
def stores(bytes_of_peers: int) -> Iterator[tuple[Path, list[Peer], list[int]]]:
    """Creates our store with a key for each message, each peer with as many values of this size, and the requested numbers."""
    count = size(200_000, 1000)
    wanted = random.Random(1).sample(range(count), count // 4)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        path, body = Path(folder) / "store", bytes(BODY)
        with mqstore.open(path, "x") as store:
            for first in range(0, count, BATCH):
                store.append_batch([("orders", body, None, [f"order-{number}"]) for number in range(first, first + BATCH)])
        values = [bytes(bytes_of_peers)] * BATCH
        peers = [made(kind, Path(folder) / kind.name, values, count) for kind in installed() if kind.has_bodies]
        yield path, peers, wanted
        for peer in peers:
            peer.close()
