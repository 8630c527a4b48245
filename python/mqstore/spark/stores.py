"""Which stores a job reads: `Stores` names them, `plan` looks at them once, where they can be seen."""

from __future__ import annotations

import copy
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import SparkSession

import mqstore
from mqstore._config import merged
from mqstore.spark._option_reader import OPEN_PREFIX, to_text
from mqstore.spark._snapshot import Options, Snapshot, pinned, take_snapshot

Path = str | os.PathLike[str]
Manifest = Mapping[str, Any]


class Stores:
    """Some stores by the names of their brokers, and how to open them: `Stores({"broker-a": "/mnt/a"}, errors="skip")`.

    A path is a directory or a `file:` URI, valid on every node that reads it. The other arguments are those of
    `mqstore.open`. Nothing is opened here, so a client of Spark Connect needs no store; it pickles, and so may be used in a
    function of a job.

    `manifests` gives, by broker, what `manifest` has made of a store, or a JSON file of that: a job then reads what the store
    held at that time, and nobody has to look at the store to plan it.
    """

    def __init__(
        self, stores: Mapping[str, Path], *, manifests: Mapping[str, Manifest | Path] | None = None, **options: Any
    ) -> None:
        if not isinstance(stores, Mapping) or not stores:
            raise ValueError(f'stores maps names of brokers to paths, such as {{"broker-a": "/mnt/a"}}, not {stores!r}')
        for broker in stores:
            if not isinstance(broker, str) or not broker:
                raise ValueError(f"the name of a broker is a str that is not empty, not {broker!r}")
        if (config := options.pop("config", None)) is not None:
            options = merged(config, **options)
        if "mode" in options:
            raise ValueError("mode is no option of Stores: Spark reads stores, and writes them with df.write")
        unknown = set(manifests or ()).difference(stores)
        if unknown:
            raise ValueError(f"manifests names {', '.join(sorted(unknown))}, but the brokers are {', '.join(stores)}")
        self._paths: dict[str | None, str] = {broker: local_path(path) for broker, path in stores.items()}
        self._manifests: dict[str | None, Manifest | Path] = dict((manifests or {}).items())
        self._options: Options = tuple(sorted(options.items()))
        self._identity = uuid.uuid4().hex

    @classmethod
    def _only(cls, path: Path, options: Options = (), manifest: Manifest | None = None) -> Stores:
        """One store without a broker."""
        stores = cls({"only": path}, **dict(options))
        stores._paths = {None: stores._paths["only"]}
        stores._manifests = {} if manifest is None else {None: manifest}
        return stores

    @property
    def brokers(self) -> tuple[str | None, ...]:
        """The names of the brokers, in order; (None,) for one store without a name."""
        return tuple(self._paths)

    def path(self, broker: str | None = None) -> str:
        """The directory of a broker's store. KeyError for a broker that has none."""
        try:
            return self._paths[broker]
        except KeyError:
            raise KeyError(f"there is no store of broker {broker!r}; the brokers are {self._names()}") from None

    def open(self, broker: str | None = None) -> mqstore.Store:
        """The store of a broker, read-only, as it was when this process first opened it: this object, and what was unpickled
        from it, opens it once in a process. Do not close it. Raises KeyError for an unknown broker, and what `mqstore.open` does.
        """
        return pinned(self.path(broker), self._options, self._identity, len(self._paths))

    def as_options(self) -> dict[str, str]:
        """As options of format "mqstore"."""
        given = {f"{OPEN_PREFIX}{name}": to_text(value) for name, value in self._options}
        manifests = {broker or "": _load(manifest) for broker, manifest in self._manifests.items()}
        if manifests:
            given["manifests"] = json.dumps(manifests)
        if self.brokers == (None,):
            return given | {"path": self.path()}
        return given | {"stores": json.dumps(self._paths)}

    def __repr__(self) -> str:
        return f"Stores of {self._names()}"

    def _names(self) -> str:
        return ", ".join(broker or path for broker, path in self._paths.items())


StoreLike = Path | mqstore.Store | Stores


def as_stores(store: StoreLike) -> Stores:
    """A path or an open reader as the only one of some stores. A job with an open reader reads what that shows."""
    match store:
        case Stores():
            return store
        case mqstore.Store():
            if store.mode != "r":
                raise ValueError(f'Spark reads a store opened with mode="r", but this one has mode={store.mode!r}')
            return Stores._only(store.path, _options_of(store), manifest(store))
        case str() | os.PathLike():
            return Stores._only(store)
    raise TypeError(f"store is a path, an open mqstore.Store or some Stores, not {type(store).__name__}")


def manifest(store: Path | mqstore.Store) -> dict[str, Any]:
    """What a store holds now, as JSON has it: its bounds in the log and checksums of its first and last record. The command
    `mqstore manifest` prints the same and more.

    Give it to `Stores(..., manifests=)` where the driver cannot see the store. `store` is a path or an open reader.
    """
    if isinstance(store, mqstore.Store):
        return Snapshot.of(store, None, ()).manifest()
    with mqstore.open(local_path(store)) as reader:
        return manifest(reader)


def plan(store: StoreLike, spark: SparkSession | None = None) -> dict[str | None, Snapshot]:
    """A snapshot of each store, by broker: what a job that is planned now may read.

    The bounds come from the manifest if there is one, are read here if the path is here, and otherwise by a task of `spark` for
    each broker.
    """
    stores = with_remote_manifests(store, spark)
    return {broker: _snapshot(stores, broker, stores._manifests.get(broker)) for broker in stores.brokers}


def with_remote_manifests(store: StoreLike, spark: SparkSession | None) -> Stores:
    """The same stores, with the manifests of those that are not here."""
    stores = as_stores(store)
    remote = [broker for broker in stores.brokers if broker not in stores._manifests and not os.path.exists(stores.path(broker))]
    if not remote or spark is None:
        return stores
    found = copy.copy(stores)
    found._manifests = stores._manifests | _read_remote_manifests(stores, remote, spark)
    return found


def _snapshot(stores: Stores, broker: str | None, given: Manifest | Path | None) -> Snapshot:
    path, options = stores.path(broker), stores._options
    if given is None:
        return take_snapshot(path, broker, options)
    return Snapshot.from_manifest(_load(given), broker, path, options)


def _load(given: Manifest | Path) -> Manifest:
    if isinstance(given, Mapping):
        return given
    with open(local_path(given), encoding="utf-8") as file:
        loaded: Manifest = json.load(file)
    return loaded


def _read_remote_manifests(stores: Stores, brokers: list[str | None], spark: SparkSession) -> dict[str | None, Manifest]:
    """The manifests of stores that only the executors see, each read by a task of its own."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            found = [json.dumps(manifest(stores.open(brokers[number]))) for number in numbers]
            yield pa.record_batch([pa.array(numbers, pa.int64()), pa.array(found, pa.string())], ["number", "manifest"])

    frame = spark.range(0, len(brokers), 1, len(brokers)).mapInArrow(read, "number bigint, manifest string")
    return {brokers[row.number]: json.loads(row.manifest) for row in frame.collect()}


def local_path(given: Path) -> str:
    """The absolute path of a directory or a `file:` URI; a worker runs in another directory. ValueError for another URI."""
    path = os.fspath(given)
    uri = urlsplit(path if ":/" in path else "")
    if uri.scheme == "file" and uri.netloc in ("", "localhost"):
        path = unquote(uri.path)
    elif uri.scheme:
        raise ValueError(f"{path} is no path of a file system: mount it on every node, or move the messages as Parquet")
    return os.path.abspath(path)


def _options_of(store: mqstore.Store) -> Options:
    """What a reader was opened with; its pickle holds it."""
    reduce: Any = store.__reduce__
    _, (recipe,) = reduce()
    _, (_, options) = recipe.__reduce__()
    return tuple(sorted(options.items()))
