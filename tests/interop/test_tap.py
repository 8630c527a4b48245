"""A tap of RocketMQ's store: it has the log byte by byte through kills on both sides, and no append counts it. See README.md."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import embedded
from following import MESSAGES, MIDDLE, end_of, free_port, log_of, settled_end, wait_until
from generator import Geometry, Step
from rocketmq import HELD, RocketMQ, by_command, save_lines

import mqstore


def test_a_tap_has_the_log_of_rocketmq_through_kills(rocketmq: RocketMQ, geometry: Geometry, tmp_path: Path) -> None:
    theirs, ours, port = tmp_path / "master", tmp_path / "tap", free_port()
    put = f"put=1000,1,{MESSAGES},60000"
    # More than a segment: a slave would begin with the last one.
    rocketmq.run(theirs, geometry, f"put=1000,1,{MESSAGES // 10},60000")
    begin = end_of(theirs)
    assert begin > geometry.segment
    # The harness has no broker port.
    with mqstore.tap(f"127.0.0.1:{port}", ours, "earliest", broker="", **embedded.options(geometry)) as tap:
        with rocketmq.master(theirs, geometry, port, put) as java:
            wait_until(lambda: (tap.offset or 0) > begin + MIDDLE)
            java.kill()
        # It recovers, and may have lost what the tap has.
        with rocketmq.master(theirs, geometry, port, put):
            wait_until(lambda: tap.state == "following" and tap.lag == 0)
    command = [sys.executable, "-m", "mqstore", "tap", f"127.0.0.1:{port}", str(ours), "--broker", ""]
    before = end_of(ours)
    with rocketmq.master(theirs, geometry, port, put) as java:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            wait_until(lambda: end_of(ours) > before + MIDDLE)
            process.kill()
        with mqstore.tap(f"127.0.0.1:{port}", ours, broker="") as tap:
            end = settled_end(theirs, begin + 2 * MESSAGES * 1000)
            tap.wait(end - 1, timeout=60)
            assert (tap.state, tap.error) == ("following", None)
    assert log_of(ours, end) == log_of(theirs, end)
    with mqstore.open(ours) as copy:
        assert copy.max_physical_offset == end
        assert copy.verify().ok
    # A broker starts on it, and serves it.
    dump, _ = rocketmq.ask(ours, geometry, [])
    assert dump.bounds == (0, end)


def put(body: bytes) -> Step:
    """A step of a plan."""
    hosts = {"born_host": "127.0.0.1:1", "store_host": "127.0.0.1:2"}
    numbers = dict.fromkeys(("queue", "flag", "sys_flag", "born_time", "reconsume_times", "prepared_transaction_offset"), 0)
    return {"op": "put", "topic": "orders", "body": b64encode(body).decode(), "properties": {}, **hosts, **numbers}


def test_no_append_of_a_synchronous_master_counts_a_tap(rocketmq: RocketMQ, geometry: Geometry, tmp_path: Path) -> None:
    theirs, ours, port = tmp_path / "master", tmp_path / "tap", free_port()
    rocketmq.write(theirs, geometry, [put(b"before")])
    # The tap connects in the pause.
    plan = save_lines(tmp_path / "plan", [{"op": "sleep", "ms": 15_000}, put(b"one"), put(b"two")])
    role = ["option.brokerRole=SYNC_MASTER", *(["option.inSyncReplicas=2"] if rocketmq.api == 5 else [])]
    arguments = rocketmq.arguments(theirs, geometry, f"option.haListenPort={port}", *role, f"write={plan}", "hold")
    with (
        mqstore.tap(f"127.0.0.1:{port}", ours, "earliest", broker="", **embedded.options(geometry)) as tap,
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as java,
    ):
        assert java.stdin is not None
        assert java.stdout is not None
        puts = by_command(list(iter(java.stdout.readline, HELD)))["write"]
        tap.wait(end_of(theirs) - 1, timeout=60)
        assert tap.error is None
        java.stdin.close()
    # Without a slave 4.9.x says SLAVE_NOT_AVAILABLE, and after an acknowledgement PUT_OK.
    assert [line["status"] for line in puts if line] == ["FLUSH_SLAVE_TIMEOUT"] * 2
    with mqstore.open(ours) as copy:
        assert [message.body for message in copy.topics["orders"].queues[0]] == [b"before", b"one", b"two"]
