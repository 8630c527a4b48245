"""Opening a store that a killed process left: RocketMQ and mqstore, each a copy of the same image.

    python tests/interop/bench_recovery.py [VERSION...]

The log is about 1 GiB of messages of 1 KiB with a key, and its files are in the page cache. Prints; asserts nothing. RocketMQ's
figure is that of `load` alone, without the start of its process and of its services. `open` is until messages can be appended,
`keys` until every key is in the index as well, as it is after RocketMQ's `load`. mqstore also writes again, and syncs, what no
stamp covers, which RocketMQ does not.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generator import Geometry
from rocketmq import RocketMQ

import mqstore

VERSION = "5.3.3"
BODY, MESSAGES = 1024, 450_000
ROUNDS = 3
#: mqstore's own sizes.
OURS = Geometry(segment=64 << 20, queue=6_000_000, slots=125_000, items=500_000)
#: What is lost of an image besides, by what the table calls it.
LOSSES: dict[str, list[str]] = {
    "nothing": [],
    "queues, index": ["consumequeue", "index"],
    "queues, index, checkpoint": ["consumequeue", "index", "checkpoint"],
}


def left_by_rocketmq(rocketmq: RocketMQ, path: Path) -> None:
    """Has RocketMQ write a store, without closing it."""
    rocketmq.run(path, None, f"put={BODY},1,{2 * MESSAGES},0", "halt")


def left_by_mqstore(path: Path) -> None:
    """Has mqstore write a store, and kills it."""
    child = os.fork()
    if child == 0:
        # Whoever is killed has no store of the parent's open: this is the first.
        store = mqstore.open(path, mode="x")
        row = ("orders", b"x" * BODY, "paid", ["order-1"], None, 0)
        for _ in range(2 * MESSAGES // 1000):
            store.append_batch([row] * 1000)
        store.wait_dispatched(store.max_physical_offset - 1)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def fresh(image: Path, copy: Path, lost: list[str]) -> None:
    """The image again, durable, with the holes of a segment that was made ahead."""
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-a", image, copy], check=True)
    for name in lost:
        subprocess.run(["rm", "-r", copy / name], check=True)
    subprocess.run(["sync", "-f", copy], check=True)


def by_rocketmq(rocketmq: RocketMQ, geometry: Geometry | None, path: Path) -> float:
    """Seconds."""
    [found] = rocketmq.run(path, geometry, "load_time", "halt")["load_time"]
    return float(found["ns"]) / 1e9


def by_mqstore(path: Path) -> tuple[float, float, int]:
    """Seconds until it is open, and until all keys are in; bytes of the log that were read."""
    start = time.perf_counter()
    store = mqstore.open(path, mode="a")
    opened = time.perf_counter() - start
    store.wait_dispatched(store.max_physical_offset - 1)
    keys = time.perf_counter() - start
    read = store.recovery.log_end - store.recovery.scan_start
    store.close()
    return opened, keys, read


def compare(rocketmq: RocketMQ, geometry: Geometry | None, image: Path, writer: str) -> None:
    """A line for each round."""
    copy = image.with_name("copy")
    for name, lost in LOSSES.items():
        for _ in range(ROUNDS):
            fresh(image, copy, lost)
            theirs = by_rocketmq(rocketmq, geometry, copy)
            fresh(image, copy, lost)
            opened, keys, read = by_mqstore(copy)
            print(
                f"{writer:>14} {name:>26} {read >> 20:>9} {theirs:>11.2f} {opened:>7.2f} {theirs / opened:>6.1f}"
                f" {keys:>7.2f} {theirs / keys:>6.1f}",
                flush=True,
            )


def main(versions: list[str]) -> None:
    """Some lines for each version."""
    for version in versions:
        rocketmq = RocketMQ(version, compiled_in_full=True)
        print(f"{'written by':>14} {'lost':>26} {'read MiB':>9} {'RocketMQ s':>11} {'open s':>7} {'ratio':>6}", end="")
        print(f" {'keys s':>7} {'ratio':>6}")
        with tempfile.TemporaryDirectory() as folder:
            image = Path(folder) / "image"
            left_by_mqstore(image)
            compare(rocketmq, OURS, image, "mqstore")
            shutil.rmtree(image)
            left_by_rocketmq(rocketmq, image)
            compare(rocketmq, None, image, f"RocketMQ {version}")


if __name__ == "__main__":
    main(sys.argv[1:] or [VERSION])
