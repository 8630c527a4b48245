"""Exporting a whole store to a file, compared with pyarrow writing the same file from a list of rows ("rows")."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import pyarrow as pa
from py_read_batch import BATCH, each
from pyarrow import ipc, parquet
from rounds import OURS, RESULTS, Round, Row, Rust, measure, size

import mqstore

BODY = 100
ROWS = "rows"


def by_export(to: Path, *, path: Path, name: str, count: int) -> float:
    """Exports with one call."""
    with mqstore.open(path) as store:
        return each(count, lambda: store.export(to / name))


def by_rows(to: Path, *, path: Path, name: str, count: int) -> float:
    """Exports message by message, as a program without `export` does."""

    def write() -> None:
        with mqstore.open(path) as store:
            rows = [message.to_dict() for queue in store.topics["orders"].queues for message in queue]
            table = pa.Table.from_pylist(rows, pa.schema(store.scan()))
        if name.endswith(".parquet"):
            parquet.write_table(table, to / name, compression="zstd")
        else:
            with ipc.new_file(to / name, table.schema) as file:
                file.write_table(table)

    return each(count, write)


def run(rust: Rust | None) -> None:
    """Measures each format."""
    count = size(200_000, 1000)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        path, body = Path(folder) / "store", bytes(BODY)
        with mqstore.open(path, "x") as store:
            for first in range(0, count, BATCH):
                store.append_batch([("orders", body, "paid", [f"order-{number}"]) for number in range(first, first + BATCH)])
        for name in ("all.parquet", "all.arrow"):
            rounds: dict[str, Round] = {
                OURS: partial(by_export, path=path, name=name, count=count),
                ROWS: partial(by_rows, path=path, name=name, count=count),
            }
            row = Row("export", {"body": BODY, "format": name.partition(".")[2]}, "ns a message", {"ratio_peers": 3})
            measure(row, rounds, rust)
