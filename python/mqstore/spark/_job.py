"""A write job on disk: what its tasks staged, its manifest, and how both become rows of a store, each once.

    <stagingPath>/job-<jobId>/manifest.json             which files the job is made of, in which order, and where its rows begin
                             /<write>/00003-17.arrow    the rows of partition 3, as task attempt 17 staged them

Every row goes into the store with its job, the run that staged it, and its number among the properties. The manifest is durable
before the first of them, and tells the physical offset from which on they are. So a run of the job that finds a manifest ignores
its own input, asks the store for the last row of the job, and appends those that follow. The lock of the store keeps out a
second run.
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

#: The properties with the job that a row belongs to, the run that staged it, and the number of the row, from 0. No other job has
#: the name of a run: a job of the same name in another store, whose rows were copied here, has others.
JOB_PROPERTY = "MQSTORE_JOB"
RUN_PROPERTY = "MQSTORE_RUN"
ROW_PROPERTY = "MQSTORE_ROW"

MANIFEST = "manifest.json"
#: The name of a manifest until it is durable.
MANIFEST_PART = f"{MANIFEST}.part"
#: How the names of directories begin: that of a job, that of the batches of a streaming query, and that of a run in either, or
#: beside them if the write has no jobId.
JOB_PREFIX, STREAM_PREFIX, RUN_PREFIX = "job-", "stream-", "write-"
_PROPERTIES = pa.map_(pa.string(), pa.string())
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Staged:
    """What one task staged: a file of rows, or a store."""

    partition: int
    name: str
    """Its path below the folder of the job."""
    rows: int
    checksum: int
    """The CRC-32 of the file; 0 for a store."""


@dataclass(frozen=True)
class Manifest:
    """What a job is made of. It replaces the input of every later run."""

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
    """Physical offset at which the log of the store ended before the first row; once the job is done, after the last."""
    landmarks: tuple[tuple[int, int], ...] = ()
    """Physical offset and checksum of records before `end`: another store at the same path has others."""
    is_done: bool = False

    @classmethod
    def of(cls, job: Job, staged: Sequence[Staged], **bounds: Any) -> Manifest:
        """What the tasks of this run staged."""
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
            return cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise mqstore.StoreError(
                f"{path} is not the manifest of a write job: {error!r}; remove {path.parent} to write the job again, all its rows"
            ) from error


@dataclass(frozen=True)
class Job:
    """One run of a write, as it travels to the tasks."""

    target: str
    """The store, or the directory of the stores if `per_task`."""
    per_task: bool
    topic: str | None
    frame: str
    """What tells the frame from another one without reading it: its columns, in any order, and the topic."""
    key: str | None
    """None for a write that cannot be run again: it has no manifest, and its rows are appended as they are."""
    batch: int | None
    folder: Path
    write: str
    """The directory of this run in `folder`."""
    store_options: dict[str, Any]

    def manifest(self) -> Manifest | None:
        """What an earlier run has published, of this batch or an earlier one.

        ValueError if it is of another write, of a later batch, or of another frame, as far as the columns tell. A batch may come
        again with other columns, from a query that was changed meanwhile.
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
                f"batch {self.key} comes after {found.key}, which was written to {self.target}: a name is for one query and its "
                f"checkpoint; choose another name, or remove {self.folder} to begin again"
            )
        if self.batch is None and found.frame != self.frame:
            raise ValueError(
                f"job {found.key} was begun with the columns {found.frame}, not with {self.frame}: choose another jobId for "
                "other rows; a run with the columns of before goes on with what was begun"
            )
        return found

    def is_written_by(self, manifest: Manifest | None) -> bool:
        """Whether this manifest, not the input of this run, says what is written."""
        return manifest is not None and manifest.batch == self.batch

    def prepare(self) -> None:
        """Make the directory that the tasks stage into. They do not make it: one that does not see it does not share it."""
        try:
            _make_directory(self.folder / self.write)
        except OSError as error:
            error.add_note("option stagingPath names a directory that the driver and all tasks can write to")
            raise

    def expect_prepared(self) -> None:
        """StoreError where a task does not see what `prepare` made."""
        if not (self.folder / self.write).is_dir():
            raise mqstore.StoreError(
                f"{self.folder / self.write}, which the driver made, is not there: option stagingPath names a directory that the "
                "driver and all tasks share; if another run of the job was done meanwhile, run it again"
            )

    def publish(self, manifest: Manifest) -> None:
        """Make the manifest durable under its name. What it names is durable since it was staged."""
        if self.key is not None:
            part = self.folder / MANIFEST_PART
            part.write_text(json.dumps(asdict(manifest)))
            # The folder too, so that the manifest does not get its name before what it names has one.
            _sync(part, self.folder)
            part.rename(self.folder / MANIFEST)
            _sync(self.folder, self.folder.parent, self.folder.parent.parent)

    def clear(self) -> None:
        """Remove what is staged, of earlier runs of the job, too. The manifest stays: it says that the job is done."""
        if self.key is None:
            self._remove_run()
            return
        for each in self.folder.iterdir():
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)

    def abandon(self) -> None:
        """Remove what this run has staged, unless a manifest names it."""
        found = self.manifest()
        if found is None or not any(each.name.startswith(f"{self.write}/") for each in found.staged):
            self._remove_run()

    def _remove_run(self) -> None:
        """Remove what this run has staged, and the directories beside the store that are empty then."""
        shutil.rmtree(self.folder / self.write, ignore_errors=True)
        for each in (self.folder, self.folder.parent):
            if each.is_relative_to(staging_beside(Path(self.target))):
                with suppress(OSError):
                    each.rmdir()


def staging_beside(target: Path) -> Path:
    """Where a write stages that names no other directory."""
    return target.with_name(f".{target.name}.mqstore-staging")


def stage_rows(job: Job, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> list[Staged]:
    """The rows of a task as a durable Arrow file; nothing if it has none."""
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
    """Append the rows of the job to its store, those that an earlier run has not appended. They are durable at the return."""
    with _open(job) as store:
        # Not the manifest from before: now the lock of the store keeps other runs of the job out.
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
    """Opens the store of the job, which the first run creates if it is missing."""
    is_first = job.manifest() is None
    try:
        store: mqstore.Writer = mqstore.open(job.target, "a" if is_first else "r+", **job.store_options)
        return store
    except mqstore.NotAStoreError as error:
        if not is_first:
            error.add_note(f"job {job.key} was written to the store here: put it back, or remove {job.folder} to write it again")
        raise


def _expect_legal(job: Job, store: mqstore.Writer, manifest: Manifest) -> None:
    """Every row, before the first is stored: a job that cannot be finished would leave a part of its rows."""
    for row, rows in rows_of(job, manifest, 0):
        try:
            store._check_batch(rows, manifest.topic)
        except ValueError as error:
            error.add_note(f"its batch begins with row {row} of the frame; nothing was appended")
            raise


def _finish(job: Job, store: mqstore.Writer, manifest: Manifest) -> None:
    """Append the rows that the store does not have yet, and make them durable."""
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
            f"{store.path} is not the store that job {manifest.key} was written to, or has lost messages of it: "
            f"remove {job.folder} to write the job to this store"
        )


def _stored_rows(store: mqstore.Store, manifest: Manifest) -> int:
    """How many rows of the job are in the store: the first ones, because only the end of a log is ever lost."""
    if manifest.key is None:
        return 0
    start = max(manifest.end, store.min_physical_offset)
    last = -1
    marks = {JOB_PROPERTY: manifest.key, RUN_PROPERTY: manifest.run}
    mine = store.scan(physical=(start, None), properties=marks, columns=["properties"], transactions="all")
    for batch in map(pa.record_batch, mine):
        rows = pc.map_lookup(batch.column("properties"), ROW_PROPERTY, "last").cast(pa.int64())
        # Not the row that comes last: a broker that delivers a delayed message stores it a second time, after others.
        last = max(last, pc.max(rows).as_py())
    if last < 0 and start > manifest.end:
        raise mqstore.StoreError(
            f"{store.path} begins at physical offset {start} now: whether rows of job {manifest.key}, which was begun at "
            f"{manifest.end}, have expired since cannot be told; choose another jobId to write all of them"
        )
    return last + 1


def rows_of(job: Job, manifest: Manifest, first: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of the job from number `first` on, as they are appended, in batches, each with the number of its first row."""
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
            f"{path} is {'missing' if found is None else 'damaged'}, which partition {staged.partition} staged: stagingPath is "
            "a directory that the driver and all tasks share; if a run of the job had begun to append, only another jobId writes "
            "the rows that are missing"
        )


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def with_job_properties(batch: pa.RecordBatch, key: str, run: str, first: int) -> pa.RecordBatch:
    """The rows with their job, its run and their numbers, from `first` on, as three more properties each. Where these came with
    the rows, which another job wrote then, they are replaced.
    """
    rows, at = batch.num_rows, batch.schema.get_field_index("properties")
    own = batch.column(at).cast(_PROPERTIES) if at >= 0 else pa.nulls(rows, _PROPERTIES)
    # Taken anew, so that the entries of the rows are one after the other, without gaps.
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
