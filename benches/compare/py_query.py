"""The body of each message that has a key, asked for in no order: one key a call, and many in one call.

The peers find bodies by number, which is less to look for than a key that several messages may have.
"""

from __future__ import annotations

import random
import tempfile
from functools import partial
from pathlib import Path

import pyarrow as pa
from peers import Peer, installed
from py_read_batch import BATCH, each, made
from rounds import OURS, RESULTS, Round, Row, Rust, measure, size

import mqstore

BODY = 1024


def by_query(_: Path, *, path: Path, wanted: list[int]) -> float:
    """One call a key."""
    with mqstore.open(path) as store:

        def read() -> None:
            for number in wanted:
                [message] = store.query("orders", f"order-{number}")
                assert len(message.body) == BODY

        return each(len(wanted), read)


def in_bulk(_: Path, *, path: Path, wanted: list[int]) -> float:
    """One call for all places, and one for all bodies."""
    with mqstore.open(path) as store:

        def read() -> None:
            keys = pa.record_batch({"topic": ["orders"] * len(wanted), "key": [f"order-{number}" for number in wanted]})
            hits = pa.record_batch(store.resolve_keys(keys))["hits"].flatten()
            offsets = pa.record_batch({"physical_offset": hits.field("physical_offset")})
            bodies = store.fetch(offsets, columns=["body"]).to_arrow()
            assert len(bodies) == len(wanted)

        return each(len(wanted), read)


def by_peer(_: Path, *, peer: Peer, wanted: list[int]) -> float:
    """One call a number."""

    def read() -> None:
        for number in wanted:
            assert len(peer.body(number)) == BODY

    return each(len(wanted), read)


def run(rust: Rust | None) -> None:
    """The row."""
    count = size(200_000, 1000)
    wanted = random.Random(1).sample(range(count), count // 4)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        path, body = Path(folder) / "store", bytes(BODY)
        with mqstore.open(path, "x") as store:
            for first in range(0, count, BATCH):
                store.append_batch([("orders", body, None, [f"order-{number}"]) for number in range(first, first + BATCH)])
        others = [made(kind, Path(folder) / kind.name, [body] * BATCH, count) for kind in installed() if kind.has_bodies]
        ours: dict[str, Round] = {
            OURS: partial(by_query, path=path, wanted=wanted),
            "mqstore, in bulk": partial(in_bulk, path=path, wanted=wanted),
        }
        peers: dict[str, Round] = {peer.name: partial(by_peer, peer=peer, wanted=wanted) for peer in others}
        measure(Row("py_query", {"body": BODY}, "ns a message", {}), ours | peers, rust)
        for peer in others:
            peer.close()
