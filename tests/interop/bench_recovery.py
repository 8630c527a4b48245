"""Opening a store that a killed RocketMQ left: RocketMQ and mqstore, each a copy of the same image.

    python tests/interop/bench_recovery.py [VERSION...]

The log is about 1 GiB of messages of 1 KiB, its files are in the page cache; once with the checkpoint that RocketMQ left, once
with one that vouches for nothing. Prints; asserts nothing. RocketMQ's figure is that of `load` alone, without the start of its
process and of its services. mqstore also writes again, and syncs, what nothing vouches for; RocketMQ does not.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rocketmq import RocketMQ

import mqstore

VERSION = "5.3.3"
BODY, MESSAGES = 1024, 450_000
ROUNDS = 3


def leave(rocketmq: RocketMQ, path: Path) -> None:
    """Has RocketMQ write a store, without closing it."""
    rocketmq.run(path, None, f"bench={BODY},{MESSAGES},1", "halt")


def fresh(image: Path, copy: Path) -> None:
    """The image again, durable, with the holes of a segment that was made ahead."""
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-a", image, copy], check=True)
    subprocess.run(["sync", "-f", copy], check=True)


def by_rocketmq(rocketmq: RocketMQ, path: Path) -> float:
    """Seconds."""
    [found] = rocketmq.run(path, None, "load_time", "halt")["load_time"]
    return float(found["ns"]) / 1e9


def by_mqstore(path: Path) -> float:
    """Seconds."""
    start = time.perf_counter()
    store = mqstore.open(path, mode="a")
    seconds = time.perf_counter() - start
    store.close()
    return seconds


def compare(rocketmq: RocketMQ, image: Path, checkpoint: str) -> None:
    """A line for each round."""
    copy = image.with_name("copy")
    with mqstore.open(image) as store:
        size = store.max_physical_offset >> 20
    for _ in range(ROUNDS):
        fresh(image, copy)
        theirs = by_rocketmq(rocketmq, copy)
        fresh(image, copy)
        ours = by_mqstore(copy)
        print(f"{rocketmq.version:>8} {size:>8} {checkpoint:>10} {theirs:>11.2f} {ours:>10.2f} {theirs / ours:>6.1f}")


def main(versions: list[str]) -> None:
    """Some lines for each version."""
    print(f"{'RocketMQ':>8} {'log MiB':>8} {'checkpoint':>10} {'RocketMQ s':>11} {'mqstore s':>10} {'ratio':>6}")
    for version in versions:
        rocketmq = RocketMQ(version, compiled_in_full=True)
        with tempfile.TemporaryDirectory() as folder:
            image = Path(folder) / "image"
            leave(rocketmq, image)
            compare(rocketmq, image, "as left")
            checkpoint = image / "checkpoint"
            checkpoint.write_bytes(bytes(checkpoint.stat().st_size))
            compare(rocketmq, image, "zeros")


if __name__ == "__main__":
    main(sys.argv[1:] or [VERSION])
