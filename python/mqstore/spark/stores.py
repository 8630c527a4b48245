"""The stores of a job: `Stores` names them, `plan` takes a snapshot of each."""

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
    """The stores of several brokers, with options to open them: `Stores({"broker-a": "/mnt/a"}, errors="skip")`.

    A path is a directory or a `file:` URI, valid on each node that reads it. The other arguments are those of `mqstore.open`. It
    opens no store, so a client of Spark Connect needs none, and it pickles, so functions of a job can use it.

    `manifests` has, by broker, the result of `manifest`, or the path of a JSON file with it. A job then reads the store as of
    that time, and its plan reads no store.
    """

    def __init__(
        self, stores: Mapping[str, Path], *, manifests: Mapping[str, Manifest | Path] | None = None, **options: Any
    ) -> None:
        if not isinstance(stores, Mapping) or not stores:
            raise ValueError(f'stores maps names of brokers to paths, such as {{"broker-a": "/mnt/a"}}, not {stores!r}')
        for broker in stores:
            if not isinstance(broker, str) or not broker:
                raise ValueError(f"the name of a broker is a non-empty str, not {broker!r}")
        if (config := options.pop("config", None)) is not None:
            options = merged(config, **options)
        if "mode" in options:
            raise ValueError("mode is not an option of Stores: Spark reads stores, and writes them with df.write")
        unknown = set(manifests or ()).difference(stores)
        if unknown:
            raise ValueError(f"manifests names {', '.join(sorted(unknown))}, but the brokers are {', '.join(stores)}")
        self._paths: dict[str | None, str] = {broker: local_path(path) for broker, path in stores.items()}
        self._manifests: dict[str | None, Manifest | Path] = dict((manifests or {}).items())
        self._options: Options = tuple(sorted(options.items()))
        self._identity = uuid.uuid4().hex

    @classmethod
    def _only(cls, path: Path, options: Options = (), manifest: Manifest | None = None) -> Stores:
        """Returns one store without a broker."""
        stores = cls({"only": path}, **dict(options))
        stores._paths = {None: stores._paths["only"]}
        stores._manifests = {} if manifest is None else {None: manifest}
        return stores

    @property
    def brokers(self) -> tuple[str | None, ...]:
        """The names of the brokers, in order; (None,) for one store without a broker."""
        return tuple(self._paths)

    def path(self, broker: str | None = None) -> str:
        """Returns the directory of the store of a broker. Raises KeyError for an unknown broker."""
        try:
            return self._paths[broker]
        except KeyError:
            raise KeyError(f"there is no store of broker {broker!r}; the brokers are {self._names()}") from None

    def open(self, broker: str | None = None) -> mqstore.Store:
        """Returns the store of a broker, read-only, as of the first call in this process: this object and its unpickled copies
        open it once in a process. Do not close it. Raises KeyError for an unknown broker, and what `mqstore.open` raises.
        """
        return pinned(self.path(broker), self._options, self._identity, len(self._paths))

    def as_options(self) -> dict[str, str]:
        """Returns the stores as options of format "mqstore"."""
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
    """Converts a path or an open reader to one store. A job with an open reader reads the snapshot of that reader."""
    match store:
        case Stores():
            return store
        case mqstore.Store():
            if store.mode != "r":
                raise ValueError(f'Spark needs a store that was opened with mode="r", but this one has mode={store.mode!r}')
            return Stores._only(store.path, _options_of(store), manifest(store))
        case str() | os.PathLike():
            return Stores._only(store)
    raise TypeError(f"store is a path, an open mqstore.Store or some Stores, not {type(store).__name__}")


def manifest(store: Path | mqstore.Store) -> dict[str, Any]:
    """Returns the manifest of a store, to be stored as JSON: the bounds of its log, and the checksums of its first and last
    record. The command `mqstore manifest` prints the same and more.

    Give it to `Stores(..., manifests=)` if the driver does not see the store. `store` is a path or an open reader.
    """
    if isinstance(store, mqstore.Store):
        return Snapshot.of(store, None, ()).manifest()
    with mqstore.open(local_path(store)) as reader:
        return manifest(reader)


def plan(store: StoreLike, spark: SparkSession | None = None) -> dict[str | None, Snapshot]:
    """Takes a snapshot of each store, by broker: from its manifest, or from its files if this process sees them, or by a task of
    `spark` for each broker.
    """
    stores = with_remote_manifests(store, spark)
    return {broker: _snapshot(stores, broker, stores._manifests.get(broker)) for broker in stores.brokers}


def with_remote_manifests(store: StoreLike, spark: SparkSession | None) -> Stores:
    """Adds manifests of the stores that this process does not see, read by tasks."""
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
    """Reads the manifests of stores that only the executors see, each by a task of its own."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            found = [json.dumps(manifest(stores.open(brokers[number]))) for number in numbers]
            yield pa.record_batch([pa.array(numbers, pa.int64()), pa.array(found, pa.string())], ["number", "manifest"])

    frame = spark.range(0, len(brokers), 1, len(brokers)).mapInArrow(read, "number bigint, manifest string")
    return {brokers[row.number]: json.loads(row.manifest) for row in frame.collect()}


def local_path(given: Path) -> str:
    """Converts a path or a `file:` URI to an absolute path, as workers need. Raises ValueError for another URI."""
    path = os.fspath(given)
    uri = urlsplit(path if ":/" in path else "")
    if uri.scheme == "file" and uri.netloc in ("", "localhost"):
        path = unquote(uri.path)
    elif uri.scheme:
        raise ValueError(f"{path} is not a path of a file system: mount it on each node, or export the messages to Parquet")
    return os.path.abspath(path)


def _options_of(store: mqstore.Store) -> Options:
    """Returns the options of a reader, from its pickle."""
    reduce: Any = store.__reduce__
    _, (recipe,) = reduce()
    _, (_, options) = recipe.__reduce__()
    return tuple(sorted(options.items()))
