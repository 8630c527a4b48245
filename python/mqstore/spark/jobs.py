"""Garbage collection of write jobs: manifests of finished jobs, and staged files of abandoned runs."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import mqstore
from mqstore.spark import stores
from mqstore.spark._job import JOB_PREFIX, MANIFEST, MANIFEST_PART, RUN_PREFIX, STREAM_PREFIX, Manifest, staging_beside


@dataclass(frozen=True)
class CleanedJobs:
    """The outcome of `clean_jobs`."""

    removed: tuple[str, ...]
    """The ids of the jobs whose manifests were removed."""
    skipped: tuple[str, ...]
    """The manifests that cannot be read, each with the reason: their jobs were left as they are."""


def clean_jobs(store: stores.Path, *, older_than: timedelta, staging_path: stores.Path | None = None) -> CleanedJobs:
    """Removes files that write jobs left beside the store at this path more than `older_than` ago.

    It removes the manifests of finished jobs, and staged rows that no unfinished manifest names, which runs leave that died
    before they wrote one. The age is that of the last change, so `older_than` must be longer than a run may take between
    changes. It must also be longer than the time in which a job may run again: without its manifest a job appends all rows
    again. The manifest of an unfinished job stays, and so does that of a streaming query (`append_batch`), which has one for all
    its batches. `staging_path` is the option `stagingPath` of the jobs, if they had one. A job whose manifest cannot be read is
    left as it is, reported and logged. Raises ValueError for a negative `older_than`.
    """
    if older_than < timedelta(0):
        raise ValueError(f"older_than is a duration of at least 0, not {older_than}")
    target = Path(stores.local_path(store))
    staging = staging_beside(target) if staging_path is None else Path(stores.local_path(staging_path))
    before = time.time() - older_than.total_seconds()
    removed: list[str] = []
    skipped: list[str] = []
    for folder in _directories(staging):
        if folder.name.startswith(RUN_PREFIX):
            _remove_run(folder, before)
        elif folder.name.startswith((JOB_PREFIX, STREAM_PREFIX)):
            try:
                removed += _clean_job(folder, str(target), before)
            except FileNotFoundError:
                continue  # another cleaning, or the end of its run, removed it
            except (mqstore.StoreError, OSError) as error:
                skipped.append(str(error))
                logging.getLogger("mqstore.spark").warning("%s", error)
    if staging_path is None:
        _remove_if_empty(staging)
    return CleanedJobs(tuple(removed), tuple(skipped))


def _clean_job(folder: Path, target: str, before: float) -> Iterator[str]:
    """Cleans the directory of a job, and yields its id if it removes the manifest."""
    path = folder / MANIFEST
    found = Manifest.read(path) if path.exists() else None
    if found is not None and found.target != target:
        return
    named = set() if found is None or found.is_done else {Path(each.name).parts[0] for each in found.staged}
    for run in _directories(folder):
        if run.name not in named:
            _remove_run(run, before)
    part = folder / MANIFEST_PART
    if part.exists() and part.stat().st_mtime < before:
        part.unlink()
    is_finished = found is not None and found.is_done and found.batch is None
    if found is not None and found.key is not None and is_finished and path.stat().st_mtime < before:
        path.unlink()
        yield found.key
    _remove_if_empty(folder)


def _remove_run(run: Path, before: float) -> None:
    """Removes the staged files of a run if none changed since `before`."""
    # The run itself may remove files at the same time.
    with suppress(FileNotFoundError):
        if max(each.stat().st_mtime for each in (run, *run.rglob("*"))) < before:
            shutil.rmtree(run, ignore_errors=True)


def _directories(folder: Path) -> list[Path]:
    """Returns the directories in a directory, which may be missing."""
    return sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
