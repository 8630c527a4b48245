"""Writes of a store for each broker: tasks write the stores, and the commit renames them to their paths."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import mqstore
from mqstore._files import _make_directory, _sync
from mqstore.spark._compute import pc
from mqstore.spark._job import Job, Manifest, Staged
from mqstore.spark._schema import BROKER


def stage_stores(job: Job, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> list[Staged]:
    """Writes the rows of a task to durable, closed stores, or none without rows."""
    home, rows = f"{job.write}/{partition:05}-{attempt}", Counter[str]()
    with ExitStack() as stack:
        stores: dict[str, mqstore.Writer] = {}
        for batch in batches:
            for broker, part in _by_broker(batch, partition):
                if broker not in stores:
                    path = job.folder / home / broker
                    path.parent.mkdir(exist_ok=True)
                    options: dict[str, Any] = job.store_options | {"services": False}
                    stores[broker] = stack.enter_context(mqstore.open(path, "x", **options))
                stores[broker].append_batch(part, job.topic, durable=False)
                rows[broker] += part.num_rows
    if rows:
        _sync(job.folder / home, job.folder / job.write)
    return [Staged(partition, f"{home}/{broker}", count, 0) for broker, count in rows.items()]


def _by_broker(batch: pa.RecordBatch, partition: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    if BROKER not in batch.schema.names:
        yield f"part-{partition:05}", batch
        return
    brokers = batch.column(BROKER)
    rows = batch.select([name for name in batch.schema.names if name != BROKER])
    for broker in pc.unique(brokers).to_pylist():
        if broker in (None, "", ".", "..") or "/" in broker:
            raise ValueError(f"column {BROKER} has {broker!r}, which cannot be the name of a directory")
        yield broker, rows.filter(pc.equal(brokers, broker))


def move_stores(job: Job, staged: Sequence[Staged]) -> None:
    """Renames the stores of the job to their paths below the target, except those that an earlier run has renamed."""
    found = job.manifest()
    target = Path(job.target)
    if found is None:
        _expect_new(target, staged)
        found = Manifest.of(job, staged)
        job.publish(found)
    _make_directory(target)
    for each in found.staged:
        _move(job, job.folder / each.name, target)
    _sync(target)
    job.publish(replace(found, is_done=True))
    job.clear()


def _expect_new(target: Path, staged: Sequence[Staged]) -> None:
    names = Counter(Path(each.name).name for each in staged)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise ValueError(
            f"rows of broker {twice[0]} are in {names[twice[0]]} partitions, and each would write a store of its own: "
            f'df.repartition("{BROKER}") puts them into one'
        )
    for name in names:
        if os.path.lexists(target / name):
            raise FileExistsError(
                errno.EEXIST,
                "a write of a store for each broker creates new stores: remove it, or save to another path",
                str(target / name),
            )


def _move(job: Job, source: Path, target: Path) -> None:
    try:
        source.rename(target / source.name)
    except FileNotFoundError:
        if not (target / source.name).is_dir():
            raise mqstore.StoreError(
                f"{target / source.name}, which job {job.key} wrote, was removed: remove {job.folder} to write the job again"
            ) from None
    except OSError as error:
        if error.errno == errno.EXDEV:
            error.add_note(f"set option stagingPath to a directory on the file system of {target}")
        raise
