"""The time of a command, from the start of its process to its end.

`cli_info`: a log of 1 TiB, almost all of it sparse, and 10,000 queues. `cli_find`: a key in a small store; the limit is an
interpreter that does nothing.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from rounds import LIMIT, OURS, Row, Rust, measure, size

import mqstore

#: Bytes of a segment.
SEGMENT = 1 << 30
BLANK = 0xCBD43194


#: An installed package has its bytecode. The first run writes that of a source tree.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(*command: str) -> float:
    """Measures a process."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - begun


def info(folder: Path, *, topics: int, segments: int) -> float:
    """Measures `mqstore info`, after the store was opened once."""
    path = folder / "store"
    make_large(path, topics, segments)
    seconds("-m", "mqstore", "info", str(path))
    return seconds("-m", "mqstore", "info", str(path))


def make_large(path: Path, topics: int, segments: int) -> None:
    """Writes ten queues for each topic, with a message each. Each later segment has one more message of the last queue."""
    with mqstore.open(path, "x", geometry="broker") as store:
        names = [f"topic-{number:05}" for number in range(topics)]
        store.append_batch([{"topic": name, "queue_id": number, "body": b"x"} for name in names for number in range(10)])
        last = store.topics[names[-1]].queues[9][0]
        record, end = bytearray(last.raw), store.max_physical_offset
    queue = path / "consumequeue" / names[-1] / "9" / f"{0:020}"
    entry = queue.read_bytes()[:20]
    with queue.open("r+b") as entries:
        entries.seek(20)
        for number in range(1, segments):
            entries.write(struct.pack(">q", number * SEGMENT) + entry[8:])
    for number in range(segments):
        with (path / "commitlog" / f"{number * SEGMENT:020}").open("r+b" if number == 0 else "wb") as segment:
            segment.truncate(SEGMENT)
            if number > 0:
                struct.pack_into(">qq", record, 20, number, number * SEGMENT)
                segment.write(record)
            segment.seek(len(record) if number else end)
            if number + 1 < segments:
                segment.write(struct.pack(">iI", SEGMENT - segment.tell(), BLANK))


def find(folder: Path) -> float:
    """Measures `mqstore find` by key, in ms."""
    path = folder / "store"
    with mqstore.open(path, "x") as store:
        store.append_batch([{"topic": "orders", "body": b"x", "keys": [f"o-{number}"]} for number in range(1000)])
    command = ("-m", "mqstore", "find", str(path), "--topic", "orders", "--key", "o-500")
    seconds(*command)
    return seconds(*command) * 1000


def run_info(_: Rust | None) -> None:
    """Measures a store of the promised size."""
    topics, segments = size(1000, 2), size(1024, 3)
    row = Row("cli_info", {"queues": topics * 10, "gib": segments}, "s", {"at_most": 3.0})
    measure(row, {OURS: partial(info, topics=topics, segments=segments)}, None)


def run_find(_: Rust | None) -> None:
    """Measures a small store."""
    row = Row("cli_find", {"messages": 1000}, "ms", {"at_most": 50.0})
    measure(row, {OURS: find, LIMIT: lambda _: seconds("-c", "pass") * 1000}, None)
