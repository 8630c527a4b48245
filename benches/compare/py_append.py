"""`Writer.append` with one message in a call, compared with the same append from Rust and with embedded stores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from peers import Peer, installed
from rounds import LIMIT, OURS, Round, Row, Rust, measure, size

import mqstore

TOPIC = "orders"
BODIES = [100, 1024, 16 * 1024]
ROUND_BYTES, MOST_MESSAGES = 64 << 20, 100_000
#: The largest additional cost of a call from Python over one from Rust, in ns.
MOST_OVER_RUST = 110
#: 3.5 million messages a second.
MOST_AT_100 = 1e3 / 3.5
#: The same for a `TopicWriter`, in ns.
MOST_PREPARED_AT_100 = 215


def messages(body: int) -> int:
    """Returns the number of messages of a round."""
    return size(min(ROUND_BYTES // body, MOST_MESSAGES), 50)


def ours(path: Path, *, body: bytes, count: int) -> float:
    """Returns the nanoseconds for a message with positional arguments, without keys and properties."""
    with mqstore.open(path / "store", mode="x") as store:
        append = store.append
        append(TOPIC, body)
        begun = time.perf_counter_ns()
        for _ in range(count):
            append(TOPIC, body)
        return (time.perf_counter_ns() - begun) / count


def ours_with_key(path: Path, *, body: bytes, count: int) -> float:
    """Returns the nanoseconds for a message with a key and a tag by keyword."""
    with mqstore.open(path / "store", mode="x") as store:
        append = store.append
        append(TOPIC, body)
        begun = time.perf_counter_ns()
        for _ in range(count):
            append(TOPIC, body, keys="order-1", tags="paid")
        return (time.perf_counter_ns() - begun) / count


def prepared(path: Path, *, body: bytes, count: int) -> float:
    """Returns the nanoseconds for a message of a `TopicWriter`, without keys and properties."""
    with mqstore.open(path / "store", mode="x") as store:
        append = store.writer(TOPIC).append
        append(body)
        begun = time.perf_counter_ns()
        for _ in range(count):
            append(body)
        return (time.perf_counter_ns() - begun) / count


def by_peer(path: Path, *, peer: type[Peer], body: bytes, count: int) -> float:
    """Writes one message in a call, without a sync."""
    store = peer(path, durable=False)
    try:
        append = store.append
        begun = time.perf_counter_ns()
        for _ in range(count):
            append(body)
        return (time.perf_counter_ns() - begun) / count
    finally:
        store.close()


def rounds_of_peers(body: bytes, count: int) -> Iterator[tuple[str, Round]]:
    """Measures each installed peer."""
    for peer in installed():
        yield peer.name, partial(by_peer, peer=peer, body=body, count=min(count, peer.messages))


def run(rust: Rust | None) -> None:
    """Measures each size of body, without a key, with one, and by a prepared writer."""
    for length in BODIES:
        body, count = bytes(length), messages(length)
        limit = {LIMIT: rust.round(f"append {length} {count}")} if rust else {}
        target: dict[str, float] = {"over_limit": MOST_OVER_RUST} | ({"at_most": MOST_AT_100} if length == 100 else {})
        row = Row("py_append", {"body": length, "call": "by position"}, "ns a message", target)
        contenders = {OURS: partial(ours, body=body, count=count)} | limit
        measure(row, contenders | dict(rounds_of_peers(body, count)), rust)
        target = {"at_most": MOST_PREPARED_AT_100} if length == 100 else {}
        row = Row("py_append", {"body": length, "call": "by a TopicWriter"}, "ns a message", target)
        by_position = {"append by position": partial(ours, body=body, count=count)}
        measure(row, {OURS: partial(prepared, body=body, count=count)} | limit | by_position, rust)
        limit = {LIMIT: rust.round(f"append_with_key {length} {count}")} if rust else {}
        row = Row("py_append", {"body": length, "call": "key and tag"}, "ns a message")
        measure(row, {OURS: partial(ours_with_key, body=body, count=count)} | limit, rust)
