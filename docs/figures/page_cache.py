"""The figure of the page cache: which pages of the files are in memory, as `mincore` says."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

from svg import Figure

import mqstore

MESSAGES, BODY, CELLS = 20_000, 2000, 60
STATES = ("after the writes", "dropped from memory", "100 reads of a queue", "one query by key", "scan of the whole log")


def facts(work: Path) -> dict[str, Any]:
    """Measures the part of each file that is in memory, after the writes and after reads of several kinds."""
    root = work / "store"
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": 64 << 20, "mapped_file_size_consume_queue": 1_000_000}
    with mqstore.open(root, "x", max_hash_slot_num=50_000, max_index_num=50_000, **sizes) as store:
        store.append_batch([("orders", bytes(BODY), None, [f"key-{number}"]) for number in range(MESSAGES)])
    files = {
        "log": next((root / "commitlog").iterdir()),
        "queue": next((root / "consumequeue").rglob("0" * 20)),
        "index": next((root / "index").iterdir()),
    }
    found = [{name: resident(file) for name, file in files.items()}]
    drop(files)
    found.append({name: resident(file) for name, file in files.items()})
    for state in STATES[2:]:
        drop(files)
        with mqstore.open(root) as store:
            if state.startswith("100"):
                _ = [message.body for message in store.topics["orders"].queues[0][10_000:10_100]]
            elif state.startswith("one"):
                assert len(list(store.query("orders", key="key-5000"))) == 1
            else:
                assert sum(len(batch) for batch in store.scan()) == MESSAGES
            found.append({name: resident(file) for name, file in files.items()})
    return {
        "states": dict(zip(STATES, found, strict=True)),
        "bytes": {name: file.stat().st_size for name, file in files.items()},
        "read_ahead": read_ahead(root),
    }


def read_ahead(path: Path) -> int:
    """Returns how many KiB the system reads ahead from the device of a file; 0 if it does not say."""
    device = path.stat().st_dev
    told = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for folder in (told, told.resolve().parent):
        if (folder / "queue" / "read_ahead_kb").exists():
            return int((folder / "queue" / "read_ahead_kb").read_text(encoding="ascii"))
    return 0


def drop(files: dict[str, Path]) -> None:
    """Drops the pages of files from memory."""
    for file in files.values():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(path: Path) -> list[float]:
    """Returns for each of some equal parts of a file the share of its pages that is in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = -(-len(mapped) // mmap.PAGESIZE)
        states = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(mapped)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(mapped)), states)
        del start
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
    cells = min(CELLS, pages)
    parts = [states[pages * cell // cells : pages * (cell + 1) // cells] for cell in range(cells)]
    return [round(sum(state & 1 for state in part) / len(part), 2) for part in parts]


def draw(facts: dict[str, Any]) -> Figure:
    """Draws each file as a strip for each state: the darker a cell, the more of it is in memory."""
    figure = Figure("page-cache", "What the page cache holds")
    y = 46
    for state, files in facts["states"].items():
        figure.text(12, y, state, "bold")
        y += 8
        for name, cells in files.items():
            size = facts["bytes"][name]
            width = 188 / len(cells)
            figure.text(12, y + 10, name, "small soft")
            figure.box(52, y, 188, 12, "f", radius=1)
            for number, share in enumerate(cells):
                if share:
                    figure.box(52 + number * width, y + 12 * (1 - share), max(width - 0.3, 0.5), 12 * share, "ink", radius=0)
            share = sum(cells) / len(cells)
            figure.text(348, y + 10, f"{share:.1%} of {size / (1 << 20):.1f} MiB", "small end", measured=True)
            y += 16
        y += 20
    notes = (
        "A strip is a file from its first byte to its last. The height of a bar",
        "is the share of pages in memory (mincore). Before each read the",
        f"files were dropped. The system reads ahead {facts['read_ahead']:,} KiB here.",
    )
    for number, note in enumerate(notes):
        figure.text(12, y + 13 * number, note, "small soft", measured=number == 2)
    return figure
