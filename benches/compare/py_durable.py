"""One thread that appends W messages and then waits once until all are durable, beside Rust with the same bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from peers import Peer, installed
from py_append import TOPIC
from rounds import LIMIT, OURS, Row, Rust, measure, size

import mqstore

BODY = 1024
#: Windows, and the part of the limit that is asked for.
WINDOWS: list[tuple[int, dict[str, float]]] = [(1, {}), (64, {}), (1024, {"ratio_limit": 0.7})]
ROUND_MS = 500


def rate(window: int, append_window: Callable[[], object]) -> float:
    """Messages a second."""
    count, begun = 0, time.perf_counter()
    until = begun + size(ROUND_MS, 20) / 1000
    while time.perf_counter() < until:
        append_window()
        count += window
    return count / (time.perf_counter() - begun)


def ours(path: Path, *, window: int) -> float:
    """In a store that syncs, as `flush_disk_type` says."""
    body = bytes(BODY)
    with mqstore.open(path / "store", mode="x", flush_disk_type="SYNC_FLUSH") as store:

        def append_window() -> None:
            for _ in range(window):
                store.append(TOPIC, body, durable=False)
            store.wait_durable()

        append_window()
        return rate(window, append_window)


def by_peer(path: Path, *, peer: type[Peer], window: int) -> float:
    """A batch of its own."""
    store = peer(path, durable=True)
    try:
        return rate(window, partial(store.append_batch, [bytes(BODY)] * window))
    finally:
        store.close()


def run(rust: Rust | None) -> None:
    """Each window."""
    for window, target in WINDOWS:
        limit = {LIMIT: rust.round(f"durable_limit {BODY} {window}")} if rust else {}
        peers = {peer.name: partial(by_peer, peer=peer, window=window) for peer in installed() if peer.syncs}
        row = Row("py_durable", {"body": BODY, "window": window}, "messages/s", target, waits_for_disk=True)
        measure(row, {OURS: partial(ours, window=window)} | limit | peers, rust)
