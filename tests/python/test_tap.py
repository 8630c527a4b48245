"""A tap of a master of ours, which counts no acknowledgement of it."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
from test_replicate import SMALL, address_of, bodies, free_port, opened, wait_until

import mqstore
import mqstore.aio


def tapped(master: mqstore.Writer, path: Path, start: Any = "earliest", **options: Any) -> mqstore.Replica:
    # Our broker port does not say where the log begins: a master of ours refuses itself what it does not have.
    return mqstore.tap(address_of(master), path, start, broker="", **SMALL, **options)


def log_of(path: Path, end: int) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))[:end]


def test_a_master_counts_no_acknowledgement_of_a_tap(tmp_path: Path) -> None:
    with opened(tmp_path / "master", broker_role="ASYNC_MASTER") as master:
        first = master.append("orders", b"0")
        with tapped(master, tmp_path / "tap") as tap:
            for number in range(1, 300):
                last = master.append("orders", b"%d" % number)
            tap.wait(first, timeout=30)
            tap.wait(last, timeout=30)
            wait_until(lambda: tap.lag == 0)
            assert (tap.state, tap.offset, tap.error) == ("following", master.committed_offset, None)
            [slave] = master.replicas.slaves
            assert (slave.from_offset, slave.acknowledged_offset) == (1, 1)
            assert master.replicas.replicated_offset == 0
            wait_until(lambda: bodies(tmp_path / "tap")[-1] == b"299")
        end = master.committed_offset
    assert bodies(tmp_path / "tap") == [b"%d" % number for number in range(300)]
    assert log_of(tmp_path / "tap", end) == log_of(tmp_path / "master", end)


def test_a_synchronous_master_waits_for_another_slave_than_a_tap(tmp_path: Path) -> None:
    with opened(tmp_path / "master", broker_role="SYNC_MASTER", slave_timeout=200) as master:
        last = master.append("orders", b"before", durable=False)
        with tapped(master, tmp_path / "tap") as tap:
            tap.wait(last, timeout=30)
            last = master.append("orders", b"after")
            assert last.status == "FLUSH_SLAVE_TIMEOUT"
            tap.wait(last, timeout=30)


def test_a_tap_continues_through_restarts_on_both_sides(tmp_path: Path) -> None:
    port = free_port()
    for number in range(4):
        with opened(tmp_path / "master", ha_listen_port=port) as master:
            for _ in range(40):
                last = master.append("orders", b"%d" % number * 1000)
            with tapped(master, tmp_path / "tap") as tap:
                tap.wait(last, timeout=30)
                assert tap.cuts == ()
            end = master.committed_offset
    assert log_of(tmp_path / "tap", end) == log_of(tmp_path / "master", end)
    with mqstore.open(tmp_path / "tap") as store:
        assert store.verify().ok


def test_a_tap_begins_by_default_with_the_last_segment(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as master:
        for number in range(100):
            last = master.append("orders", b"%d" % number * 1000)
        assert inspect.signature(mqstore.tap).parameters["start"].default == "latest"
        with tapped(master, tmp_path / "tap", "latest") as tap:
            tap.wait(last, timeout=30)
    with mqstore.open(tmp_path / "tap") as store:
        assert store.min_physical_offset == last.physical_offset // (1 << 16) * (1 << 16)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"master": "host"}, "expected HOST:PORT"),
        ({"start": "first"}, 'start is "first": expected "latest", "earliest" or a physical offset'),
        ({"start": -1}, "the start is -1: a physical offset is 0 or more"),
        ({"start": 5, "broker": ""}, "only the broker port of the master says whether its log has that"),
        ({"flush_disk_type": "SYNC_FLUSH"}, "flush_disk_type has no meaning for a slave"),
    ],
)
def test_arguments_without_a_meaning_are_refused(tmp_path: Path, wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        mqstore.tap(**{"master": "127.0.0.1:1", "path": tmp_path / "tap", **wrong})
    assert not (tmp_path / "tap").exists()


def test_a_start_of_another_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        mqstore.tap("127.0.0.1:1", tmp_path / "tap", 1.5)  # type: ignore[arg-type]
    # It is that of the master: a slave has none.
    mqstore.tap("127.0.0.1:1", tmp_path / "tap", slave_timeout=10_000).close()


def test_an_absent_broker_port_is_named_before_a_tap_begins(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as master:
        broker = f"127.0.0.1:{free_port()}"
        with mqstore.tap(address_of(master), tmp_path / "tap", "earliest", broker=broker, **SMALL) as tap:
            wait_until(lambda: tap.error is not None)
            assert "cannot ask for the bounds of the log" in str(tap.error)
            assert broker in str(tap.error)
            assert (tap.state, tap.offset) == ("connecting", None)


def test_tasks_wait_for_a_tap(tmp_path: Path) -> None:
    async def main(master: mqstore.Writer) -> None:
        last = master.append("orders", b"x")
        async with mqstore.aio.tap(address_of(master), tmp_path / "tap", "earliest", broker="", **SMALL) as tap:
            await tap.wait(last, timeout=30)
        assert tap.closed

    with opened(tmp_path / "master") as master:
        asyncio.run(main(master))
