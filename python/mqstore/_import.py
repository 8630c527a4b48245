"""`Writer.import_from`."""

from __future__ import annotations

import binascii
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from errno import ENOENT
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

from mqstore._export import _expect_pyarrow
from mqstore._files import NULL, SUFFIXES, absolute, format_named, format_of
from mqstore._native import Writer
from mqstore._rows import members
from mqstore.files import Imported

#: About the number of bytes that one batch appends.
BATCH_BYTES = 16 << 20
TIMES = ("born_time", "store_time")


def _parquet(path: Path, _: str) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        meta = file.metadata
        size = sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))
        batches = file.iter_batches(batch_size=max(1, min(1 << 20, meta.num_rows * BATCH_BYTES // max(1, size))))
        yield from map(_without_repeated_keys, batches)


def _arrow(path: Path, _: str) -> Iterator[Any]:
    import pyarrow as pa

    with pa.OSFile(os.fspath(path)) as file, pa.ipc.open_file(file) as reader:
        for at in range(reader.num_record_batches):
            yield _without_repeated_keys(reader.get_batch(at))


def _without_repeated_keys(batch: Any) -> Any:
    """Sets `keys` to null where the property `KEYS` has the same keys.

    The property is stored as it is. A column of keys is checked as an argument of `append` is, and a key of an earlier writer may
    have characters that `append` refuses.
    """
    import pyarrow as pa

    # It defines its functions at run time, unknown to type checkers.
    pc: Any = import_module("pyarrow.compute")
    at, of_properties = (batch.schema.get_field_index(name) for name in ("keys", "properties"))
    exported = [pa.list_(pa.string()), pa.map_(pa.string(), pa.string())]
    if min(at, of_properties) < 0 or [batch.schema.types[at], batch.schema.types[of_properties]] != exported:
        return batch
    listed = batch.column(at)
    spaced = pc.map_lookup(batch.column(of_properties), "KEYS", "last")
    text = pc.utf8_trim(pc.replace_substring_regex(spaced, " +", " "), " ")
    repeats = pc.fill_null(pc.equal(pc.binary_join(listed, " "), text), False)
    keys = pc.if_else(repeats, pa.scalar(None, listed.type), listed)
    return batch.set_column(at, "keys", keys)


def _lines(path: Path, body_as: str) -> Iterator[list[dict[str, Any]]]:
    rows, size = [], 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                rows.append(_row(line.decode("utf-8-sig"), body_as))
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            size += len(line)
            if size >= BATCH_BYTES:
                yield rows
                rows, size = [], 0
    yield rows


def _row(line: str, body_as: str) -> dict[str, Any]:
    row = json.loads(line, parse_constant=_refuse)
    if not isinstance(row, dict):
        raise ValueError(f"expected an object with the fields of a message, got {row!r:.50}")
    if body_as == "json" and "body" in row:
        row["body"] = dict(members(line))["body"].encode()
    elif row.get("body") is not None:
        row["body"] = _body(row["body"], body_as)
    for name in TIMES:
        if isinstance(row.get(name), str):
            row[name] = datetime.fromisoformat(row[name])
    properties = row.get("properties")
    spaced = properties.get("KEYS") if isinstance(properties, dict) else None
    # As in _without_repeated_keys.
    if isinstance(spaced, str) and row.get("keys") == [key for key in spaced.split(" ") if key]:
        del row["keys"]
    return row


def _refuse(constant: str) -> NoReturn:
    """Refuses NaN and infinities, which Python accepts in JSON."""
    raise ValueError(f"{constant} is not JSON")


def _body(body: Any, body_as: str) -> bytes:
    if not isinstance(body, str):
        raise ValueError(f'the body is not a str, but {body!r:.50}: was it exported with body_as="json"?')
    if body_as == "text":
        return body.encode()
    try:
        return binascii.a2b_base64(body, strict_mode=True)
    except ValueError as error:
        raise ValueError(f'the body is not base64 ({error}): was it exported with body_as="text"?') from None


READERS: dict[str, Callable[[Path, str], Iterator[Any]]] = {"parquet": _parquet, "arrow": _arrow, "jsonl": _lines}


def _found(source: Any, format: str | None) -> Iterator[tuple[Path, str | None]]:
    """Yields the files of a source, each with the topic that its folder names."""
    if not isinstance(source, (str, os.PathLike)):
        for each in source:
            yield from _found(each, format)
        return
    path = absolute(source)
    if not path.exists():
        raise FileNotFoundError(ENOENT, "there is no such file or directory", str(path))
    if not path.is_dir():
        yield path, None
        return
    empty = True
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        is_hidden = any(part.startswith((".", "_")) for part in inside.parts)
        if file.is_file() and not is_hidden and (format is not None or file.suffix.lower() in SUFFIXES):
            empty = False
            yield file, _topic((path.name, *inside.parts[:-1]))
    if empty:
        suffixes = ", ".join(suffix for suffix, named in SUFFIXES.items() if named in READERS)
        raise FileNotFoundError(ENOENT, f"there is no file below it whose name ends in {suffixes}", str(path))


def _topic(folders: Iterable[str]) -> str | None:
    named = [folder.removeprefix("topic=") for folder in folders if folder.startswith("topic=")]
    return unquote(named[-1], errors="strict") if named and named[-1] != NULL else None


def import_from(
    store: Writer,
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    format: str | None = None,
    topic: str | None = None,
    body_as: str = "base64",
    progress: Callable[[int, int], object] | None = None,
) -> Imported:
    """See `Writer.import_from`."""
    if body_as not in ("base64", "text", "json"):
        raise ValueError(f'body_as is {body_as!r}: expected "base64", "text" or "json"')
    given = None if format is None else format_named(format)
    files = [(path, given or format_of(path), told) for path, told in _found(source, given)]
    for path, chosen, _ in files:
        if chosen not in READERS:
            raise ValueError(f'format of {path} is {chosen!r}, which is only written: expected "parquet", "arrow" or "jsonl"')
    for name in {chosen for _, chosen, _ in files} - {"jsonl"}:
        _expect_pyarrow(f"format {name!r}")
    rows = 0
    for done, (path, chosen, told) in enumerate(files):
        try:
            if progress is not None:
                progress(done, len(files))
            for batch in READERS[chosen](path, body_as):
                rows += len(store.append_batch(batch, told or topic))
        except BaseException as error:
            # A signal handler may raise an exception of a class without attributes.
            with suppress(Exception):
                stored = rows + getattr(error, "stored", 0)
                error.stored = stored  # type: ignore[attr-defined]
                error.add_note(f"in {path}, after {stored} rows that are stored")
            raise
    if progress is not None:
        progress(len(files), len(files))
    return Imported(tuple(path for path, _, _ in files), rows)
