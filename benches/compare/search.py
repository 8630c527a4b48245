"""A search for bytes in the bodies of all messages, plain and compressed, in megabytes of decompressed bodies in a second."""

from __future__ import annotations

import mmap
import random
import tempfile
import time
import zlib
from functools import partial
from pathlib import Path

from rounds import OURS, RESULTS, Round, Row, Rust, measure, size

import mqstore

BODY = 1024
BATCH = 1000
NEEDLE = b"needle"
#: The sysFlag of a message whose body is compressed with zlib.
COMPRESSED = 1 | 3 << 8


def by_scan(_: Path, *, path: Path, count: int, decode: bool) -> float:
    """Searches with `Store.scan`, which checks each body."""
    with mqstore.open(path) as store:
        begun = time.perf_counter()
        found = store.scan(body_contains=NEEDLE, decode_body=decode, columns=["physical_offset"])
        assert found.to_arrow().num_rows == count // BATCH
        return count * BODY / 1e6 / (time.perf_counter() - begun)


def by_message(_: Path, *, path: Path, count: int) -> float:
    """Searches message by message, as a program without `scan` does."""
    with mqstore.open(path) as store:
        begun = time.perf_counter()
        assert sum(NEEDLE in message.decoded_body for message in store.topics["orders"].queues[0]) == count // BATCH
        return count * BODY / 1e6 / (time.perf_counter() - begun)


def by_find(_: Path, *, path: Path, count: int) -> float:
    """Searches the raw files."""
    begun, found = time.perf_counter(), 0
    for file in sorted((path / "commitlog").iterdir()):
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as log:
            at = log.find(NEEDLE)
            while at >= 0:
                found, at = found + 1, log.find(NEEDLE, at + 1)
    assert found == count // BATCH
    return count * BODY / 1e6 / (time.perf_counter() - begun)


def run(_: Rust | None) -> None:
    """Measures plain and compressed bodies."""
    count = size(200_000, 1000)
    letters = random.Random(1).choices(b"abcdefghijklm ", k=BODY - len(NEEDLE))
    RESULTS.mkdir(parents=True, exist_ok=True)
    for form in ("plain", "zlib"):
        with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
            path = Path(folder) / "store"
            fill(path, bytes(letters), count, is_compressed=form == "zlib")
            rounds: dict[str, Round] = {
                OURS: partial(by_scan, path=path, count=count, decode=form == "zlib"),
                "mqstore, objects": partial(by_message, path=path, count=count),
            }
            if form == "plain":
                rounds["Python's mmap.find"] = partial(by_find, path=path, count=count)
            measure(Row("search", {"body": BODY, "form": form}, "MB/s"), rounds, None)


def fill(path: Path, text: bytes, count: int, *, is_compressed: bool) -> None:
    """Creates a store in which one body of each batch has the needle at its end."""
    bodies = [text + b"nothing"[: len(NEEDLE)]] * (BATCH - 1) + [text + NEEDLE]
    if is_compressed:
        bodies = [zlib.compress(body) for body in bodies]
    rows = [{"topic": "orders", "body": body, "sys_flag": COMPRESSED * is_compressed} for body in bodies]
    with mqstore.open(path, "x") as store:
        for _ in range(count // BATCH):
            store.append_batch(rows)
