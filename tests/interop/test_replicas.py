"""RocketMQ's store as a slave of ours: it has our log byte by byte, and an append waits for it. See README.md."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import embedded
from generator import Geometry
from rocketmq import RocketMQ

import mqstore

#: Messages of a batch, and batches: about 64 MiB in all.
ROWS, BATCHES = 1000, 60
#: Few files: RocketMQ does not load a store in which it was killed while it made one.
GEOMETRY = Geometry(segment=4 << 20, queue=6_000_000, slots=5_000, items=20_000)
BODY = os.urandom(1000)


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def log_of(path: Path, end: int) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))[:end]


def test_a_slave_of_rocketmq_has_our_log_and_is_waited_for(rocketmq: RocketMQ, tmp_path: Path) -> None:
    theirs = tmp_path / "slave"
    with mqstore.open(
        tmp_path / "master",
        "x",
        broker_role="SYNC_MASTER",
        ha_listen_port=0,
        slave_timeout=30_000,
        **embedded.options(GEOMETRY),
    ) as store:
        assert store.append("orders", b"nobody").status == "SLAVE_NOT_AVAILABLE"
        address = store.replicas.address
        assert address is not None

        def connected() -> bool:
            return len(store.replicas.slaves) == 1

        def append(batches: int) -> None:
            for n in range(batches):
                store.append_batch([(f"t{n % 3}", BODY, None, f"k{n}")] * ROWS, durable=False)

        with rocketmq.slave(theirs, GEOMETRY, address) as java:
            wait_until(connected)
            append(BATCHES // 3)
            wait_until(lambda: store.replicas.replicated_offset == store.committed_offset)
            java.kill()
        wait_until(lambda: not store.replicas.slaves)
        append(BATCHES // 3)
        with rocketmq.slave(theirs, GEOMETRY, address) as java:
            wait_until(connected)
            append(BATCHES - BATCHES // 3 * 2)
            waited = [store.append("orders", b"x") for _ in range(5)]
            assert {result.status for result in waited} == {"PUT_OK"}
            end = waited[-1].physical_offset + waited[-1].wrote_bytes
            assert store.replicas.replicated_offset >= end
            assert store.replicas.refused == ()
            java.kill()
        # What was acknowledged is in its files although it was killed.
        assert log_of(theirs, end) == log_of(tmp_path / "master", end)
        wait_until(lambda: not store.replicas.slaves)
        assert store.append("orders", b"alone").status in ("SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT")
    # It starts on what it has, and serves it.
    dump, _ = rocketmq.ask(theirs, GEOMETRY, [])
    with mqstore.open(tmp_path / "master") as reader:
        records = embedded.dump(reader, GEOMETRY.segment).records
    assert dump.bounds == (0, end)
    assert dump.records == {offset: record for offset, record in records.items() if offset < end}
