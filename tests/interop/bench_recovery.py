"""Opening a store that a killed RocketMQ left: RocketMQ and mqstore, each a copy of the same image.

    python tests/interop/bench_recovery.py [VERSION...]

The log is about 1 GiB of messages of 1 KiB; the checkpoint vouches for none of it. The files are in the page cache. Prints; asserts
nothing. RocketMQ's figure is that of `load` alone, without the start of its process and of its services.
"""

from __future__ import annotations

import shutil
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
    """Has RocketMQ write a store, without closing it, and takes its checkpoint's stamps away."""
    rocketmq.run(path, None, f"bench={BODY},{MESSAGES},1", "halt")
    checkpoint = path / "checkpoint"
    checkpoint.write_bytes(bytes(checkpoint.stat().st_size))


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


def main(versions: list[str]) -> None:
    """A line for each round of each version."""
    print(f"{'RocketMQ':>8} {'log MiB':>8} {'RocketMQ s':>11} {'mqstore s':>10} {'ratio':>6}")
    for version in versions:
        rocketmq = RocketMQ(version, compiled_in_full=True)
        with tempfile.TemporaryDirectory() as folder:
            image, copy = Path(folder) / "image", Path(folder) / "copy"
            leave(rocketmq, image)
            with mqstore.open(image) as store:
                size = store.max_physical_offset >> 20
            for _ in range(ROUNDS):
                shutil.copytree(image, copy)
                theirs = by_rocketmq(rocketmq, copy)
                shutil.rmtree(copy)
                shutil.copytree(image, copy)
                ours = by_mqstore(copy)
                shutil.rmtree(copy)
                print(f"{version:>8} {size:>8} {theirs:>11.2f} {ours:>10.2f} {theirs / ours:>6.1f}")


if __name__ == "__main__":
    main(sys.argv[1:] or [VERSION])
