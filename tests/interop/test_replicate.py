"""Our slave of RocketMQ's store: it has the log of its master byte by byte, through kills on both sides. See README.md."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from following import MESSAGES, MIDDLE, end_of, free_port, log_of, settled_end, wait_until
from generator import Geometry
from rocketmq import RocketMQ

import mqstore


def test_our_slave_has_the_log_of_rocketmq_through_kills(rocketmq: RocketMQ, geometry: Geometry, tmp_path: Path) -> None:
    theirs, ours, port = tmp_path / "master", tmp_path / "slave", free_port()
    put = f"put=1000,1,{MESSAGES},60000"
    # An empty slave would begin with the last segment.
    rocketmq.run(theirs, geometry, "put=1000,1,50,60000")
    shutil.copytree(theirs, ours)
    begin = end_of(theirs)
    with mqstore.replicate(f"127.0.0.1:{port}", ours) as replica:
        with rocketmq.master(theirs, geometry, port, put) as java:
            wait_until(lambda: (replica.offset or 0) > begin + MIDDLE)
            java.kill()
        # It recovers, and may have lost what the slave has.
        with rocketmq.master(theirs, geometry, port, put):
            wait_until(lambda: replica.state == "following" and replica.lag == 0)
    command = [sys.executable, "-m", "mqstore", "replicate", f"127.0.0.1:{port}", str(ours)]
    before = end_of(ours)
    with rocketmq.master(theirs, geometry, port, put) as java:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as slave:
            wait_until(lambda: end_of(ours) > before + MIDDLE)
            slave.kill()
        with mqstore.replicate(f"127.0.0.1:{port}", ours) as replica:
            end = settled_end(theirs, begin + 2 * MESSAGES * 1000)
            replica.wait(end - 1, timeout=60)
            assert (replica.state, replica.error) == ("following", None)
    assert log_of(ours, end) == log_of(theirs, end)
    with mqstore.open(ours) as copy, mqstore.open(theirs) as master:
        assert copy.max_physical_offset == end
        assert {name: [queue.max_offset for queue in topic.queues] for name, topic in copy.topics.items()} == {
            name: [queue.max_offset for queue in topic.queues] for name, topic in master.topics.items()
        }
        assert copy.verify().ok
    # A broker starts on it, and serves it.
    dump, _ = rocketmq.ask(ours, geometry, [])
    assert dump.bounds == (0, end)
