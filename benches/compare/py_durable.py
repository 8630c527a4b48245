"""Durable messages, compared with a loop in Rust that writes and syncs the same records, into blocks that were written before.

One thread appends W messages and then waits once until all are. P threads append, and tasks of asyncio, each waiting for its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from peers import Peer, installed
from py_append import TOPIC
from rounds import LIMIT, OURS, Round, Row, Rust, measure, size

import mqstore
import mqstore.aio

BODY = 1024
#: The windows, and the target ratio to the limit.
WINDOWS: list[tuple[int, dict[str, float]]] = [(1, {}), (64, {}), (1024, {"ratio_limit": 0.7})]
#: The threads. Each appends its next message when its last one is durable. The limit is one sync for all of them.
THREADS = [1, 8, 64]
#: Tasks of asyncio, likewise.
TASKS = 1024
ROUND_MS = 500


def rate(window: int, append_window: Callable[[], object]) -> float:
    """Returns the messages in a second."""
    count, begun = 0, time.perf_counter()
    until = begun + size(ROUND_MS, 20) / 1000
    while time.perf_counter() < until:
        append_window()
        count += window
    return count / (time.perf_counter() - begun)


def ours(path: Path, *, window: int) -> float:
    """Uses a store whose messages wait in memory until a sync is requested: with `SYNC_FLUSH` each append requests one."""
    body = bytes(BODY)
    with mqstore.open(path / "store", mode="x", transient_store_pool_enable=True) as store:

        def append_window() -> None:
            for _ in range(window):
                store.append(TOPIC, body)
            store.wait_durable()

        append_window()
        return rate(window, append_window)


def ours_by_threads(path: Path, *, threads: int) -> float:
    """Appends from threads, each waiting until its message is durable. Measures until the last thread is done."""
    body, counts = bytes(BODY), [0] * threads
    with mqstore.open(path / "store", mode="x", flush_disk_type="SYNC_FLUSH") as store:
        store.append(TOPIC, body)
        begin = threading.Barrier(threads + 1)

        def produce(number: int) -> None:
            begin.wait()
            until = time.perf_counter() + size(ROUND_MS, 20) / 1000
            while time.perf_counter() < until:
                store.append(TOPIC, body)
                counts[number] += 1

        producers = [threading.Thread(target=produce, args=(number,)) for number in range(threads)]
        for producer in producers:
            producer.start()
        begin.wait()
        begun = time.perf_counter()
        for producer in producers:
            producer.join()
        return sum(counts) / (time.perf_counter() - begun)


def ours_by_tasks(path: Path, *, tasks: int) -> float:
    """Appends from tasks. Each awaits its message, then appends the next one."""

    async def all_tasks() -> float:
        body, count = bytes(BODY), 0
        async with mqstore.aio.open(path / "store", "x", flush_disk_type="SYNC_FLUSH") as store:
            await store.append(TOPIC, body)
            begun = time.perf_counter()
            until = begun + size(ROUND_MS, 20) / 1000

            async def produce() -> None:
                nonlocal count
                while time.perf_counter() < until:
                    await store.append(TOPIC, body)
                    count += 1

            await asyncio.gather(*(produce() for _ in range(tasks)))
            return count / (time.perf_counter() - begun)

    return asyncio.run(all_tasks())


def by_peer(path: Path, *, peer: type[Peer], window: int) -> float:
    """Writes a batch to a peer."""
    store = peer(path, durable=True)
    try:
        return rate(window, partial(store.append_batch, [bytes(BODY)] * window))
    finally:
        store.close()


def run(rust: Rust | None) -> None:
    """Measures each window, each number of threads, and the tasks."""

    def limit(window: int) -> dict[str, Round]:
        return {LIMIT: rust.round(f"durable_limit {BODY} {window}")} if rust else {}

    def row(target: dict[str, float], **params: int) -> Row:
        return Row("py_durable", {"body": BODY, **params}, "messages/s", target, waits_for_disk=True)

    for window, target in WINDOWS:
        peers = {peer.name: partial(by_peer, peer=peer, window=window) for peer in installed() if peer.syncs}
        measure(row(target, window=window), {OURS: partial(ours, window=window)} | limit(window) | peers, rust)
    for threads in THREADS:
        measure(row({}, threads=threads), {OURS: partial(ours_by_threads, threads=threads)} | limit(threads), rust)
    measure(row({}, tasks=TASKS), {OURS: partial(ours_by_tasks, tasks=TASKS)} | limit(TASKS), rust)
