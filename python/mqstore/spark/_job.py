"""Write jobs: a write-ahead manifest and staged files make an append of a frame idempotent.

    <stagingPath>/job-<jobId>/manifest.json             the files of the job, in order, and the log offset before its first row
                             /<write>/00003-17.arrow    the rows of partition 3, as task attempt 17 staged them

Each row has the job, the run that staged it, and its row number among its properties. The manifest is durable before the first
append and has the physical offset at which the rows begin. A run that finds a manifest ignores its own input, searches the store
for the last row of the job, and appends the rows after it. The lock of the store excludes a second run.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import mqstore
from mqstore._files import _make_directory, _sync
from mqstore._native import _checksums, _landmarks
from mqstore.spark._compute import pc

#: The properties of a row: its job, the run that staged it, and its number, from 0. The name of a run is random, so rows of a job
#: with the same name in another store, which were copied here, are not counted as rows of this job.
JOB_PROPERTY = "MQSTORE_JOB"
RUN_PROPERTY = "MQSTORE_RUN"
ROW_PROPERTY = "MQSTORE_ROW"

MANIFEST = "manifest.json"
#: The temporary name of a manifest until it is durable.
MANIFEST_PART = f"{MANIFEST}.part"
#: Prefixes of directories: a job; the batches of a streaming query; a run, inside one of these, or beside them without a jobId.
JOB_PREFIX, STREAM_PREFIX, RUN_PREFIX = "job-", "stream-", "write-"
_PROPERTIES = pa.map_(pa.string(), pa.string())
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Staged:
    """The output of one task: a file of rows, or a store."""

    partition: int
    name: str
    """The path below the folder of the job."""
    rows: int
    checksum: int
    """The CRC-32 of the file; 0 for a store."""


@dataclass(frozen=True)
class Manifest:
    """The content of a job. It replaces the input of every later run."""

    key: str | None
    """The value of `JOB_PROPERTY`."""
    run: str
    """The value of `RUN_PROPERTY`."""
    batch: int | None
    target: str
    per_task: bool
    topic: str | None
    frame: str
    staged: tuple[Staged, ...]
    """In the order of the rows."""
    rows: int
    end: int = 0
    """The physical end of the log before the first row; after the last row once the job is done."""
    landmarks: tuple[tuple[int, int], ...] = ()
    """Physical offset and checksum of records before `end`, which identify the store."""
    is_done: bool = False

    @classmethod
    def of(cls, job: Job, staged: Sequence[Staged], **bounds: Any) -> Manifest:
        """Creates the manifest of what the tasks of this run staged."""
        ordered = tuple(sorted(staged, key=lambda each: each.partition))
        rows = sum(each.rows for each in ordered)
        of_job = (job.key, job.write, job.batch, job.target, job.per_task, job.topic, job.frame)
        return cls(*of_job, ordered, rows, **bounds)

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads the manifest that `publish` wrote. Raises FileNotFoundError, and StoreError for a file of anything else."""
        text = path.read_bytes()
        try:
            fields = json.loads(text)
            fields["staged"] = tuple(Staged(**each) for each in fields["staged"])
            fields["landmarks"] = tuple((offset, checksum) for offset, checksum in fields["landmarks"])
            if not all(isinstance(each.name, str) and Path(each.name).parts for each in fields["staged"]):
                raise ValueError("a staged file has no name")
            return cls(**fields)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise mqstore.StoreError(
                f"{path} is not the manifest of a write job: {error!r}; remove {path.parent} to write the job again, all its rows"
            ) from error


@dataclass(frozen=True)
class Job:
    """One run of a write. It is pickled to the tasks."""

    target: str
    """The store, or the directory of the stores if `per_task`."""
    per_task: bool
    topic: str | None
    frame: str
    """A fingerprint of the frame that needs no read: its sorted columns, and the topic."""
    key: str | None
    """The id of the job; None for a write without a manifest, which a rerun repeats."""
    batch: int | None
    folder: Path
    write: str
    """The directory of this run in `folder`."""
    store_options: dict[str, Any]

    def manifest(self) -> Manifest | None:
        """Returns the manifest of an earlier run, of this batch or an earlier one.

        Raises ValueError for the manifest of another target, of a later batch, or of a frame with other columns. A batch may be
        repeated with other columns: by a streaming query that was changed between two runs.
        """
        if self.key is None:
            return None
        try:
            found = Manifest.read(self.folder / MANIFEST)
        except FileNotFoundError:
            return None
        if (found.target, found.per_task) != (self.target, self.per_task):
            raise ValueError(f"job {found.key} was written to {found.target}, not to {self.target}: choose another jobId")
        if found.batch is not None and self.batch is not None and found.batch > self.batch:
            raise ValueError(
                f"batch {self.key} was requested after {found.key} was written to {self.target}: a name belongs to one query and "
                f"its checkpoint; choose another name, or remove {self.folder} to begin again"
            )
        if self.batch is None and found.frame != self.frame:
            raise ValueError(
                f"job {found.key} was begun with the columns {found.frame}, not with {self.frame}: choose another jobId for "
                "other rows, or run the job with its first columns to finish it"
            )
        return found

    def is_written_by(self, manifest: Manifest | None) -> bool:
        """True if this manifest, not the input of this run, has the rows to write."""
        return manifest is not None and manifest.batch == self.batch

    def prepare(self) -> None:
        """Creates the directory for staged files. Tasks do not create it, to detect that it is not shared with the driver."""
        try:
            _make_directory(self.folder / self.write)
        except OSError as error:
            error.add_note("set option stagingPath to a directory that the driver and all tasks can write to")
            raise

    def expect_prepared(self) -> None:
        """Raises StoreError in a task that does not see the directory that `prepare` created."""
        if not (self.folder / self.write).is_dir():
            raise mqstore.StoreError(
                f"{self.folder / self.write}, which the driver created, is missing: set option stagingPath to a directory that "
                "the driver and all tasks share; if another run of the job finished first, run this one again"
            )

    def publish(self, manifest: Manifest) -> None:
        """Replaces the manifest durably. The files that it names were synced when they were staged."""
        if self.key is not None:
            part = self.folder / MANIFEST_PART
            part.write_text(json.dumps(asdict(manifest)))
            # The entries of the staged directories must be durable before the manifest names them.
            _sync(part, self.folder)
            part.rename(self.folder / MANIFEST)
            _sync(self.folder, self.folder.parent, self.folder.parent.parent)

    def clear(self) -> None:
        """Removes the staged files of all runs of the job. The manifest stays: it records that the job is done."""
        if self.key is None:
            self._remove_run()
            return
        for each in self.folder.iterdir():
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)

    def abandon(self) -> None:
        """Removes the files that this run staged, unless a manifest names them."""
        found = self.manifest()
        if found is None or not any(each.name.startswith(f"{self.write}/") for each in found.staged):
            self._remove_run()

    def _remove_run(self) -> None:
        """Removes the files that this run staged, and the staging directories beside the store that are empty then."""
        shutil.rmtree(self.folder / self.write, ignore_errors=True)
        for each in (self.folder, self.folder.parent):
            if each.is_relative_to(staging_beside(Path(self.target))):
                with suppress(OSError):
                    each.rmdir()


def staging_beside(target: Path) -> Path:
    """Returns the default of `stagingPath`."""
    return target.with_name(f".{target.name}.mqstore-staging")


def stage_rows(job: Job, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> list[Staged]:
    """Writes the rows of a task to a durable Arrow file, or no file without rows."""
    first = next(batches, None)
    if first is None:
        return []
    name, rows = f"{job.write}/{partition:05}-{attempt}.arrow", 0
    path = job.folder / name
    with path.open("xb") as file, pa.ipc.new_file(file, first.schema) as out:
        for batch in chain([first], batches):
            out.write_batch(batch)
            rows += batch.num_rows
    _sync(path, path.parent)
    return [Staged(partition, name, rows, _checksum(path))]


def append_rows(job: Job, staged: Sequence[Staged]) -> None:
    """Appends the rows of the job that its store does not have yet. They are durable when it returns."""
    with _open(job) as store:
        # Read again: the lock of the store now excludes other runs of the job.
        found = job.manifest()
        if found is not None:
            _expect_same_store(job, store, found)
        if found is not None and not found.is_done:
            _finish(job, store, found)
        if not job.is_written_by(found):
            fresh = Manifest.of(job, staged, end=store.max_physical_offset, landmarks=tuple(_landmarks(store)))
            _expect_legal(job, store, fresh)
            job.publish(fresh)
            _finish(job, store, fresh)
    job.clear()


def _open(job: Job) -> mqstore.Writer:
    """Opens the store of the job. The first run creates a missing store."""
    is_first = job.manifest() is None
    options: dict[str, Any] = job.store_options | {"services": False}
    try:
        store: mqstore.Writer = mqstore.open(job.target, "a" if is_first else "r+", **options)
        return store
    except mqstore.NotAStoreError as error:
        if not is_first:
            error.add_note(
                f"job {job.key} was written to a store at this path: restore it, or remove {job.folder} to write the job again"
            )
        raise


def _expect_legal(job: Job, store: mqstore.Writer, manifest: Manifest) -> None:
    """Validates all rows before the first append, so that an illegal row leaves no part of the job in the store."""
    for row, rows in rows_of(job, manifest, 0):
        try:
            store._check_batch(rows, manifest.topic)
        except ValueError as error:
            error.add_note(f"its batch begins with row {row} of the frame; nothing was appended")
            raise


def _finish(job: Job, store: mqstore.Writer, manifest: Manifest) -> None:
    """Appends the rows that the store does not have yet, syncs them, and marks the job as done."""
    known = [offset for offset, _ in _landmarks(store)]
    for _, rows in rows_of(job, manifest, _stored_rows(store, manifest)):
        known[1:] = store.append_batch(rows, manifest.topic, durable=False)[-1:]
    store.flush()
    marks = zip(known, _checksums(store, known), strict=True)
    landmarks = tuple((offset, checksum) for offset, checksum in marks if checksum is not None)
    job.publish(replace(manifest, staged=(), end=store.max_physical_offset, landmarks=landmarks, is_done=True))


def _expect_same_store(job: Job, store: mqstore.Store, manifest: Manifest) -> None:
    kept = [(offset, checksum) for offset, checksum in manifest.landmarks if offset >= store.min_physical_offset]
    if store.max_physical_offset < manifest.end or _checksums(store, [offset for offset, _ in kept]) != [crc for _, crc in kept]:
        raise mqstore.StoreError(
            f"{store.path} is not the store that job {manifest.key} was written to, or has lost messages of the job: "
            f"remove {job.folder} to write the job to this store"
        )


def _stored_rows(store: mqstore.Store, manifest: Manifest) -> int:
    """Returns how many rows of the job the store has. They are the first rows, because a crash loses only the end of a log."""
    if manifest.key is None:
        return 0
    start = max(manifest.end, store.min_physical_offset)
    last = -1
    marks = {JOB_PROPERTY: manifest.key, RUN_PROPERTY: manifest.run}
    mine = store.scan(physical=(start, None), properties=marks, columns=["properties"], transactions="all")
    for batch in map(pa.record_batch, mine):
        rows = pc.map_lookup(batch.column("properties"), ROW_PROPERTY, "last").cast(pa.int64())
        # The maximum, not the last row: when a broker delivers a delayed message it appends the message a second time.
        last = max(last, pc.max(rows).as_py())
    if last < 0 and start > manifest.end:
        raise mqstore.StoreError(
            f"{store.path} now starts at physical offset {start}, after {manifest.end}, where job {manifest.key} began: rows of "
            "the job may have expired, so the job cannot continue; choose another jobId to write all rows"
        )
    return last + 1


def rows_of(job: Job, manifest: Manifest, first: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields the rows of the job from number `first` on in batches, each with the number of its first row."""
    row = 0
    for each in manifest.staged:
        if row + each.rows <= first:
            row += each.rows
            continue
        _expect_whole(job, each)
        with pa.OSFile(str(job.folder / each.name)) as file, pa.ipc.open_file(file) as reader:
            for at in range(reader.num_record_batches):
                batch = reader.get_batch(at)
                skipped = min(max(first - row, 0), batch.num_rows)
                if skipped < batch.num_rows:
                    rows = batch.slice(skipped)
                    yield row + skipped, _of_job(rows, manifest, row + skipped)
                row += batch.num_rows


def _of_job(rows: pa.RecordBatch, manifest: Manifest, first: int) -> pa.RecordBatch:
    return rows if manifest.key is None else with_job_properties(rows, manifest.key, manifest.run, first)


def _expect_whole(job: Job, staged: Staged) -> None:
    path = job.folder / staged.name
    try:
        found = _checksum(path)
    except FileNotFoundError:
        found = None
    if found != staged.checksum:
        raise mqstore.StoreError(
            f"{path}, which partition {staged.partition} staged, is {'missing' if found is None else 'damaged'}: set stagingPath "
            "to a directory that the driver and all tasks share; if a run has already appended rows of the job, write all rows "
            "with another jobId"
        )


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def with_job_properties(batch: pa.RecordBatch, key: str, run: str, first: int) -> pa.RecordBatch:
    """Adds three properties to each row: the job, its run, and the row number, counted from `first`. Replaces properties with
    these names, which rows of another job have.
    """
    rows, at = batch.num_rows, batch.schema.get_field_index("properties")
    own = batch.column(at).cast(_PROPERTIES) if at >= 0 else pa.nulls(rows, _PROPERTIES)
    # A take compacts the child arrays: a sliced map array has entries of other rows.
    every_row = np.arange(rows)
    own = own.take(pa.array(every_row))
    numbers = pa.array(np.arange(first, first + rows)).cast(pa.string())
    marks = {JOB_PROPERTY: pa.repeat(key, rows), RUN_PROPERTY: pa.repeat(run, rows), ROW_PROPERTY: numbers}
    is_kept = pc.invert(pc.is_in(own.keys, value_set=pa.array(list(marks))))
    row_of_kept = np.repeat(every_row, np.diff(own.offsets))[is_kept.to_numpy(zero_copy_only=False)]
    row_of = np.concatenate([row_of_kept, *[every_row] * len(marks)])
    keys = pa.concat_arrays([own.keys.filter(is_kept), *(pa.repeat(name, rows) for name in marks)])
    items = pa.concat_arrays([own.items.filter(is_kept), *marks.values()])
    by_row = pa.array(np.argsort(row_of, kind="stable"))
    ends = np.cumsum(np.bincount(row_of, minlength=rows))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    properties = pa.MapArray.from_arrays(offsets, keys.take(by_row), items.take(by_row))
    if at < 0:
        return batch.append_column("properties", properties)
    return batch.set_column(at, "properties", properties)
