"""`Store.export`."""

from __future__ import annotations

import importlib
import os
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from mqstore._csv import CsvFile
from mqstore._files import NULL, absolute, format_named, format_of, whole
from mqstore._lost_queues import warn_of_lost
from mqstore._native import RecordBatch, Store, _json_lines, _no_messages
from mqstore.files import Exported

# pyarrow ships no types.
_PyArrowSchema: TypeAlias = Any
_PyArrowRecordBatch: TypeAlias = Any

#: Bytes of a batch: a row group of Parquet.
BATCH_BYTES = 32 << 20
#: Most files of partitions that are open at the same time. A partition whose file was closed gets another file.
MOST_OPEN = 64
#: Characters that Hive and Spark escape in the names of partitions, and the first one of a topic with their name for null.
ESCAPED = re.compile(rf"[\x00-\x1f\"#%'*/:=?\\\x7f{{\[\]^]|^_(?={NULL[1:]}$)")


class _File(Protocol):
    """A file that is open for writing."""

    def write(self, rows: Any) -> int:
        """Writes rows of any Arrow object and returns their number."""
        ...

    def close(self) -> None:
        """Writes the end of the file."""


class _Lines:
    """A file of JSON Lines, which needs no pyarrow."""

    def __init__(self, path: Path, body_as: str) -> None:
        self._file = path.open("xb")
        self._body_as = body_as

    def write(self, rows: Any) -> int:
        lines = _json_lines(rows, self._body_as)
        self._file.write(lines)
        return lines.count(b"\n")

    def close(self) -> None:
        self._file.close()


class _Table:
    """A file of Parquet or Arrow IPC. The first rows determine its columns."""

    def __init__(self, path: Path, writer: Callable[[Path, _PyArrowSchema], Any]) -> None:
        self._path = path
        self._make = writer
        self._writer: Any = None

    def write(self, rows: Any) -> int:
        import pyarrow as pa

        table = pa.table(rows)
        if self._writer is None:
            self._writer = self._make(self._path, table.schema)
        self._writer.write_table(table, max(1, table.num_rows))
        return int(table.num_rows)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _parquet(path: Path, schema: _PyArrowSchema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(path, schema, compression="zstd")


def _arrow(path: Path, schema: _PyArrowSchema) -> Any:
    import pyarrow as pa

    return pa.ipc.new_file(os.fspath(path), schema)


def _begin(format: str, body_as: str, spreadsheet: bool, path: Path) -> _File:
    if format == "csv":
        return CsvFile(path, body_as, spreadsheet)
    if format == "jsonl":
        return _Lines(path, body_as)
    return _Table(path, _parquet if format == "parquet" else _arrow)


class _Files:
    """The files of an export, by partition. Without partitions the path itself is the only file."""

    def __init__(self, path: Path, keys: Sequence[str], suffix: str, begin: Callable[[Path], _File]) -> None:
        self._path = path
        self._keys = keys
        self._suffix = suffix
        self._begin = begin
        self._open: OrderedDict[Path, _File] = OrderedDict()
        self._begun: Counter[Path] = Counter()
        self.files: list[Path] = []
        self.rows = 0

    def write(self, rows: Any) -> None:
        for folder, part in _split(rows, self._keys) if self._keys else [(Path(), rows)]:
            self.rows += self._file(folder).write(part)

    def _file(self, folder: Path) -> _File:
        if folder in self._open:
            self._open.move_to_end(folder)
            return self._open[folder]
        if len(self._open) == MOST_OPEN:
            _, oldest = self._open.popitem(last=False)
            oldest.close()
        name = folder / f"part-{self._begun[folder]:05}.{self._suffix}" if self._keys else folder
        self._begun[folder] += 1
        path = self._path / name
        if self._keys:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.files.append(name)
        self._open[folder] = file = self._begin(path)
        return file

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            return self.close()
        while self._open:
            # The export has failed and its files are removed: another error of theirs would hide the first one.
            with suppress(Exception):
                self.close()
        return None


def _split(rows: Any, keys: Sequence[str]) -> Iterator[tuple[Path, _PyArrowRecordBatch]]:
    """Yields the folder of each partition and its rows."""
    import pyarrow as pa

    pc: Any = importlib.import_module("pyarrow.compute")  # it defines its functions at run time, unknown to type checkers
    table = pa.table(rows)
    for column in ("topic" if key == "topic" else "store_time" for key in keys):
        if column not in table.column_names:
            raise ValueError(f"partition_by needs the column {column!r}: name it in columns, and keep it in rewrite")
    for batch in table.combine_chunks().to_batches():
        values = {
            key: batch.column("topic").cast(pa.string())
            if key == "topic"
            else pc.floor_temporal(batch.column("store_time"), unit="hour")
            for key in keys
        }
        numbered = pa.table(values | {"row": pa.array(range(batch.num_rows), pa.int64())})
        groups = numbered.group_by(list(keys), use_threads=False).aggregate([("row", "list")])
        kept = batch.select([name for name in batch.schema.names if name != "topic" or "topic" not in keys])
        for at in range(groups.num_rows):
            folder = Path(*(_folder(key, groups.column(key)[at].as_py()) for key in keys))
            yield folder, kept.take(groups.column("row_list")[at].values)


def _folder(key: str, value: Any) -> str:
    if value is None:
        return f"{key}={NULL}"
    text = value if key == "topic" else value.isoformat(timespec="hours")[:13]
    return f"{key}={ESCAPED.sub(lambda found: f'%{ord(found[0]):02X}', text)}"


def _keys(partition_by: str | Iterable[str] | None) -> tuple[str, ...]:
    keys = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
    if any(key not in ("topic", "hour") for key in keys) or len(set(keys)) != len(keys):
        raise ValueError(f'partition_by is {partition_by!r}: expected "topic", "hour" or both')
    return keys


def _expect_pyarrow(needs: str, instead: str = "") -> None:
    try:
        import pyarrow as _  # noqa: F401
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{needs} needs pyarrow: run pip install '.[arrow]' in a checkout of mqstore{instead}"
        ) from None


def export(
    store: Store,
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    columns: Sequence[str] | None = None,
    partition_by: str | Iterable[str] | None = (),
    rewrite: Callable[[RecordBatch], Any] | None = None,
    body_as: str = "base64",
    decode_body: bool = False,
    spreadsheet: bool = False,
    **conditions: Any,
) -> Exported:
    """See `Store.export`."""
    path, keys = absolute(target), _keys(partition_by)
    chosen = format_of(path) if format is None else format_named(format)
    if keys:
        _expect_pyarrow("partition_by")
    elif chosen in ("parquet", "arrow"):
        _expect_pyarrow(f"format {chosen!r}", instead="; the formats 'jsonl' and 'csv' need no package")
    if body_as not in ("base64", "text", "json"):
        raise ValueError(f'body_as is {body_as!r}: expected "base64", "text" or "json"')
    if spreadsheet and chosen != "csv":
        raise ValueError(f"spreadsheet is for the format 'csv', and this one is {chosen!r}")
    if "topic" in keys:
        conditions.setdefault("order", "queue")
    conditions.setdefault("batch_bytes", BATCH_BYTES)
    batches = store.scan(columns=columns, decode_body=decode_body, **conditions)
    with whole(path) as part:
        if keys:
            part.mkdir()
        with _Files(part, keys, chosen, partial(_begin, chosen, body_as, spreadsheet)) as files:
            # A file without messages still has the columns.
            first = None
            for first in batches:
                files.write(first if rewrite is None else rewrite(first))
            if first is None and not keys:
                empty = _no_messages(columns)
                files.write(empty if rewrite is None else rewrite(empty))
        size = sum((part / name).stat().st_size for name in files.files)
    names = tuple(path / name for name in files.files)
    lost = warn_of_lost(store, path, batches, conditions)
    told = (batches.skipped, batches.complete and not lost, batches.covers, tuple(batches.absent_topics), lost)
    return Exported(path, names, files.rows, size, *told)
