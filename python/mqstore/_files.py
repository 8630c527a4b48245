"""Files that appear under their name only when they are complete, and their formats."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EEXIST, ENOENT, ENOSPC
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from mqstore._native import _expect_outside

SUFFIXES: dict[str, str] = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
}
#: The name of the partition of null values, as Hive has it.
NULL = "__HIVE_DEFAULT_PARTITION__"


def format_named(name: str) -> str:
    """Returns the name of a format, if it is one."""
    if name not in SUFFIXES.values():
        raise ValueError(f'format is {name!r}: expected "parquet", "arrow", "jsonl" or "csv"')
    return name


def format_of(path: Path) -> str:
    """Returns the format of the suffix of a file, Parquet for an unknown suffix."""
    return SUFFIXES.get(path.suffix.lower(), "parquet")


def absolute(path: str | os.PathLike[str]) -> Path:
    """Returns the absolute path, which a later change of the working directory does not affect."""
    return Path(os.path.abspath(os.fspath(path)))


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yields a temporary path, and renames it to `target` at the end of the block, after it has synced everything there.

    If the block raises, nothing remains. A killed process does not remove the temporary directory.
    """
    _expect_free(target)
    _expect_outside(target)
    if not target.parent.is_dir():
        raise FileNotFoundError(ENOENT, "there is no such directory: make it first", str(target.parent))
    scratch, maker = mkdtemp(prefix=".mqstore-", suffix=".part", dir=target.parent), os.getpid()
    try:
        part = Path(scratch, target.name)
        yield part
        for folder, _, files in os.walk(part):
            _sync(*(Path(folder, name) for name in files), Path(folder))
        if part.is_file():
            _sync(part)
        _expect_free(target)
        part.rename(target)
    except OSError as error:
        if error.errno != ENOSPC or error.filename is not None:
            raise
        # pyarrow and a write to an open file name no file.
        raise OSError(ENOSPC, "no space left on the disk for this file: free some and try again", str(target)) from error
    finally:
        # A forked child leaves it to the parent, which still writes to it.
        if os.getpid() == maker:
            rmtree(scratch)
    _sync(target.parent)


def _expect_free(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(EEXIST, "there is something of this name: choose another one", str(target))


def _make_directory(path: Path) -> None:
    """Creates a directory and its missing parents, durably."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    _sync(*(each.parent for each in missing))


def _sync(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
