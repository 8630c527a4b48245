"""Opening a store that a killed process left: RocketMQ and mqstore, each a copy of the same image.

The log is 256 MiB of messages of 1 KiB with a key. Its files are in the page cache. RocketMQ's figure is that of `load` alone,
without the start of its process and of its services. Ours is until messages can be appended; "until keys" is until every key is
in the index as well, as it is after RocketMQ's `load`. mqstore also rewrites and syncs what no stamp covers. RocketMQ does
not.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rounds import OURS, RESULTS, ROOT, Round, Row, Rust, is_smoke, measure, size

import mqstore

sys.path.insert(0, str(ROOT / "tests" / "interop"))

from generator import Geometry
from rocketmq import RocketMQ

TOPIC, BODY, BATCH = "orders", 1024, 1000
MESSAGES = 225_000
#: mqstore's own sizes.
SIZES = Geometry(segment=64 << 20, queue=6_000_000, slots=125_000, items=500_000)
#: The additional losses of an image, by their names in the table.
LOSSES: dict[str, list[str]] = {"nothing": [], "queues, index, checkpoint": ["consumequeue", "index", "checkpoint"]}
#: The target speedup over RocketMQ for an open of our image.
TIMES = 8.0


def versions() -> list[RocketMQ]:
    """Returns the measured versions; an empty list without Maven."""
    named = os.environ.get("BENCH_ROCKETMQ", "5.3.3 5.5.1").split()
    return [RocketMQ(version, compiled_in_full=True) for version in named] if shutil.which("mvn") and not is_smoke() else []


def left_by_mqstore(image: Path) -> None:
    """Writes a store with mqstore in a child process, and kills it."""
    child = os.fork()
    if child == 0:
        # The killed child has not inherited an open store: this is the first.
        store = mqstore.open(image, mode="x")
        row = (TOPIC, b"x" * BODY, "paid", ["order-1"], None, 0)
        for _ in range(size(MESSAGES // BATCH, 2)):
            store.append_batch([row] * BATCH)
        store.wait_dispatched(store.max_physical_offset - 1)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def left_by_rocketmq(rocketmq: RocketMQ, image: Path) -> None:
    """Writes a store with RocketMQ, without closing it."""
    rocketmq.run(image, None, f"put={BODY},1,{MESSAGES},0", "halt")


def fresh(image: Path, copy: Path, lost: list[str]) -> None:
    """Copies the image, durably, with the holes of a segment that was created ahead."""
    subprocess.run(["cp", "-a", image, copy], check=True)
    for name in lost:
        subprocess.run(["rm", "-rf", copy / name], check=True)
    subprocess.run(["sync", "-f", copy], check=True)


class Ours:
    """An open of mqstore, which has two figures, in seconds."""

    def __init__(self, image: Path, lost: list[str]) -> None:
        self._image, self._lost = image, lost
        self._keys = 0.0

    def until_open(self, folder: Path) -> float:
        """Measures until messages can be appended."""
        copy = folder / "copy"
        fresh(self._image, copy, self._lost)
        begun = time.perf_counter()
        with mqstore.open(copy, mode="a") as store:
            opened = time.perf_counter() - begun
            store.wait_dispatched(store.max_physical_offset - 1)
            self._keys = time.perf_counter() - begun
        return opened

    def until_keys(self, _: Path) -> float:
        """Returns the time until every key is in the index as well, in the same open."""
        return self._keys


def by_rocketmq(folder: Path, *, rocketmq: RocketMQ, geometry: Geometry | None, image: Path, lost: list[str]) -> float:
    """Returns the time of RocketMQ's open, in seconds."""
    copy = folder / "copy"
    fresh(image, copy, lost)
    [found] = rocketmq.run(copy, geometry, "load_time", "halt")["load_time"]
    return float(found["ns"]) / 1e9


def compare(writer: str, write: Callable[[Path], None], geometry: Geometry | None, rust: Rust | None, by: list[RocketMQ]) -> None:
    """Measures a row for each loss of an image."""
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        image = Path(folder) / "image"
        write(image)
        for name, lost in LOSSES.items():
            ours = Ours(image, lost)
            contenders: dict[str, Round] = {OURS: ours.until_open, "mqstore until keys": ours.until_keys}
            for rocketmq in by:
                theirs = partial(by_rocketmq, rocketmq=rocketmq, geometry=geometry, image=image, lost=lost)
                contenders[f"RocketMQ {rocketmq.version}"] = theirs
            target = {"ratio_rocketmq": TIMES} if geometry else {}
            measure(Row("recover_killed", {"written by": writer, "lost": name}, "s", target), contenders, rust)


def run(rust: Rust | None) -> None:
    """Measures our image, and one of each version."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    compare("mqstore", left_by_mqstore, SIZES, rust, versions())
    for rocketmq in versions():
        compare(f"RocketMQ {rocketmq.version}", partial(left_by_rocketmq, rocketmq), None, rust, [rocketmq])
