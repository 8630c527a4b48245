"""Consuming a queue in a group, in batches and message by message, compared with queues that a Python program could use instead.

The limit of the batches is the iteration of the same queue, without a group. That of single messages is a read by queue offset,
without an acknowledgement; of durable ones it is a write and a sync of eight bytes, into a file that was written before.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from queues import QUEUES, QueuePeer
from rounds import LIMIT, OURS, Round, Row, Rust, measure, size

import mqstore

BODY = 100
BATCH = 32
#: The largest time for a message of a batch, in ns, and the least ratio to the iteration.
MOST, LEAST_RATIO = 1000, 1 / 1.5


def filled(folder: Path, count: int) -> mqstore.Writer:
    """Returns a store with this number of messages in one queue."""
    store = mqstore.open(folder / "store", "x")
    store.append_batch([bytes(BODY)] * count, "orders")
    store.flush()
    return store


def in_batches(folder: Path, *, count: int) -> float:
    """Returns the nanoseconds for a message that is polled in a batch, read, and acknowledged with its batch."""
    with filled(folder, count) as store, store.consumer("billing", "orders") as consumer:
        begun, left = time.perf_counter_ns(), count
        while left:
            messages = consumer.poll(BATCH)
            for message in messages:
                _ = message.body
            consumer.ack(messages)
            left -= len(messages)
        return (time.perf_counter_ns() - begun) / count


def iterated(folder: Path, *, count: int) -> float:
    """Returns the nanoseconds for a message of an iteration."""
    with filled(folder, count) as store:
        begun = time.perf_counter_ns()
        for message in store.topics["orders"].queues[0]:
            _ = message.body
        return (time.perf_counter_ns() - begun) / count


def one_by_one(folder: Path, *, count: int, durable: bool) -> float:
    """Returns the nanoseconds to get one message and to acknowledge it."""
    with filled(folder, count) as store, store.consumer("billing", "orders") as consumer:
        begun = time.perf_counter_ns()
        for _ in range(count):
            [message] = consumer.poll(1)
            _ = message.body
            consumer.ack(message)
            if durable:
                consumer.commit(durable=True)
        return (time.perf_counter_ns() - begun) / count


def gets(folder: Path, *, count: int) -> float:
    """Returns the nanoseconds to read one message by its queue offset."""
    with filled(folder, count) as store:
        queue = store.topics["orders"].queues[0]
        begun = time.perf_counter_ns()
        for offset in range(count):
            _ = queue[offset].body
        return (time.perf_counter_ns() - begun) / count


def syncs(folder: Path, *, count: int) -> float:
    """Returns the nanoseconds of a write with its sync."""
    file = os.open(folder / "progress", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(4096), 0)
    os.fsync(file)
    begun = time.perf_counter_ns()
    for number in range(count):
        os.pwrite(file, number.to_bytes(8, "big"), 0)
        os.fdatasync(file)
    took = time.perf_counter_ns() - begun
    os.close(file)
    return took / count


def by_peer(folder: Path, *, peer: type[QueuePeer], count: int, batch: int, durable: bool) -> float:
    """Returns the nanoseconds to get one message from a peer and to acknowledge it, alone or in a batch."""
    queue = peer(folder, durable=durable)
    queue.fill([bytes(BODY)] * count)
    begun = time.perf_counter_ns()
    for _ in range(count // batch):
        queue.get_and_ack(batch)
    took = time.perf_counter_ns() - begun
    queue.close()
    return took / count


def peers(count: int, batch: int, *, durable: bool) -> dict[str, Round]:
    """Returns a round of each peer that is as durable."""
    asked = [peer for peer in QUEUES if durable in peer.durability]
    return {peer.name: partial(by_peer, peer=peer, count=count, batch=batch, durable=durable) for peer in asked}


def batches(rust: Rust | None) -> None:
    """Measures batches."""
    count = size(320_000, 320)
    row = Row("consume", {"body": BODY, "batch": BATCH}, "ns a message", {"at_most": MOST, "ratio_limit": LEAST_RATIO})
    both: dict[str, Round] = {OURS: partial(in_batches, count=count), LIMIT: partial(iterated, count=count)}
    measure(row, both | peers(size(3200, 64), BATCH, durable=False), rust)


def single(rust: Rust | None) -> None:
    """Measures single messages, with acknowledgements in memory and durable ones."""
    for durable, count, limit in [(False, size(20_000, 20), gets), (True, size(300, 20), syncs)]:
        row = Row("get_ack", {"body": BODY, "durable": durable}, "ns a message", waits_for_disk=durable)
        ours: dict[str, Round] = {OURS: partial(one_by_one, count=count, durable=durable), LIMIT: partial(limit, count=count)}
        measure(row, ours | peers(min(count, 2000), 1, durable=durable), rust)
