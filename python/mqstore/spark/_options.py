"""The options of a read, checked together: those of a batch, and those of a stream."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader

import mqstore
from mqstore.spark._conditions import ALWAYS, Conditions
from mqstore.spark._given import Given
from mqstore.spark._subscription import Starting, Subscription
from mqstore.spark.stores import Stores, local_path

#: What a task does at a message that was lost or is damaged: it fails, passes over the message, or makes a row of nulls with the
#: error in column `_corrupt_record`.
Errors = Literal["raise", "skip", "corrupt_record"]
_ERRORS: Mapping[str, Errors] = {"raise": "raise", "skip": "skip", "corrupt_record": "corrupt_record"}

ACCEPTED = (
    *("path", "stores", "manifests", "topics", "queues", "startingTimestamp", "endingTimestamp", "by", "tags", "keys"),
    *("properties", "bodyContains", "bodyRegex", "columns", "decodeBody", "targetPartitionBytes", "minPartitions"),
    *("maxRecordsPerPartition", "errors", "failOnDataLoss", "pushdown"),
)
ACCEPTED_BY_STREAM = (
    *("path", "stores", "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "maxOffsetsPerTrigger", "minOffsetsPerTrigger"),
    *("maxTriggerDelay", "columns", "decodeBody", "targetPartitionBytes", "minPartitions", "maxRecordsPerPartition"),
    *("errors", "failOnDataLoss"),
)

_OF_STREAM_ALONE = tuple(option for option in ACCEPTED_BY_STREAM if option not in ACCEPTED)
#: By a read of which nobody knows yet whether it is one of a batch or of a stream.
ACCEPTED_BY_READS = (*ACCEPTED, *_OF_STREAM_ALONE)

_ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class ReadOptions:
    """What batch and stream have in common."""

    stores: Stores
    columns: tuple[str, ...] | None
    decode_body: bool
    errors: Errors
    fail_on_data_loss: bool

    @classmethod
    def parse(cls, given: Given) -> ReadOptions:
        """ValueError says which option is wrong and what is accepted."""
        return cls(
            _stores(given),
            given.names("columns"),
            given.is_true("decodeBody", default=False),
            given.word("errors", _ERRORS, "raise"),
            given.is_true("failOnDataLoss", default=True),
        )


@dataclass(frozen=True)
class ScanOptions:
    """The options of one load, checked."""

    read: ReadOptions
    conditions: Conditions
    target_partition_bytes: int | None
    min_partitions: int
    max_records: int | None
    pushes_filters: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ScanOptions:
        """ValueError says which option is wrong and what is accepted."""
        given = Given(options, ACCEPTED)
        return cls(
            ReadOptions.parse(given),
            _conditions(given),
            given.count("targetPartitionBytes"),
            given.count("minPartitions") or 1,
            given.count("maxRecordsPerPartition"),
            given.is_true("pushdown", default=False),
        )


@dataclass(frozen=True)
class StreamOptions:
    """The options of a streaming read, checked."""

    scan: ScanOptions
    """How the messages of a batch are read."""
    subscription: Subscription
    starting: Starting
    max_offsets: int | None
    min_offsets: int | None
    max_delay: float
    """Seconds that a batch waits for `min_offsets` at most."""

    @property
    def read(self) -> ReadOptions:
        """What batch and stream have in common."""
        return self.scan.read

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """ValueError says which option is wrong and what is accepted."""
        names = {name.lower() for name in options}
        for option in _ENDING:
            if option.lower() in names:
                raise ValueError(
                    f"option {option} is refused: a stream has no end; trigger(availableNow=True) reads what is there"
                )
        given = Given(options, ACCEPTED_BY_STREAM)
        scan = ScanOptions(
            ReadOptions.parse(given),
            Conditions(),
            given.count("targetPartitionBytes"),
            given.count("minPartitions") or 1,
            given.count("maxRecordsPerPartition"),
            pushes_filters=False,
        )
        most, least = given.count("maxOffsetsPerTrigger"), given.count("minOffsetsPerTrigger")
        _expect_limits(given)
        if most is not None and least is not None and least > most:
            raise ValueError(f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")
        brokers = scan.read.stores.brokers
        return cls(scan, Subscription.parse(given, brokers), Starting.parse(given, brokers), most, least, _delay(given))


def is_of_stream(options: Iterable[str]) -> bool:
    """Whether one of these options is of a streaming read alone."""
    alone = {option.lower() for option in _OF_STREAM_ALONE}
    return not alone.isdisjoint(option.lower() for option in options)


def _expect_limits(given: Given) -> None:
    """Refuses by name what this pyspark cannot do."""
    if hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        return
    for option in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if given.get(option) is not None:
            raise ValueError(f"option {option} needs pyspark 4.2 or later; this is {pyspark.__version__}: leave it out")


def _delay(given: Given) -> float:
    text = given.get("maxTriggerDelay") or "15m"
    parts = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    unit = _SECONDS.get(parts[2] or "ms") if parts else None
    if parts is None or unit is None:
        raise ValueError(f"option maxTriggerDelay is a duration such as 500ms, 30s or 15m, not {text!r}")
    return int(parts[1]) * unit


def _conditions(given: Given) -> Conditions:
    topics, queues, keys = given.names("topics"), given.names("queues"), given.get("keys")
    if queues is not None and not all(queue.isascii() and queue.isdigit() for queue in queues):
        raise ValueError(f"option queues is a list of queue ids, with commas or of JSON, not {given.get('queues')!r}")
    by: dict[str, Literal["store", "born"]] = {"store": "store", "born": "born"}
    time = given.time("startingTimestamp", ALWAYS[0]), given.time("endingTimestamp", ALWAYS[1])
    if time[0] > time[1]:
        raise ValueError(f"option startingTimestamp is {time[0]}, past endingTimestamp, which is {time[1]} (ms since 1970)")
    return Conditions(
        topics=None if topics is None else frozenset(topics),
        queues=None if queues is None else frozenset(map(int, queues)),
        time=time,
        by=given.word("by", by, "store"),
        tags=given.get("tags"),
        keys=None if keys is None else tuple(keys.split()),
        properties=tuple((name, str(value)) for name, value in given.json("properties", dict).items()),
        body_contains=given.get("bodyContains"),
        body_regex=given.get("bodyRegex"),
    )


def _stores(given: Given) -> Stores:
    """One store without a broker, or several: `stores` names their brokers, several paths and a pattern are their own names."""
    paths = given.json("paths", list) or ([path] if (path := given.get("path")) else [])
    named = given.json("stores", dict)
    if bool(paths) == bool(named):
        raise ValueError(
            'name the store directory by load("/path/of/the/store"), or several stores by option '
            'stores = {"broker-a": "/mnt/a", ...}; ' + ("both are given" if paths else "path is missing")
        )
    manifests, options = given.json("manifests", dict), given.open_options()
    if named:
        return Stores(named, manifests=manifests, **options)
    if len(paths) == 1 and not _is_pattern(paths[0]):
        if manifests.keys() - {""}:
            raise ValueError(f'option manifests names {", ".join(manifests)}, but one store without a broker has the name ""')
        return Stores._only(paths[0], tuple(options.items()), manifests.get(""))
    found = [path for each in map(local_path, paths) for path in (sorted(glob.glob(each)) if _is_pattern(each) else [each])]
    if not found:
        raise mqstore.NotAStoreError(2, "no directory matches", ", ".join(paths))
    there: dict[str, str] = {}
    for path in found:
        other = there.setdefault(os.path.realpath(path), path)
        if other != path:
            raise ValueError(f"{other} and {path} are one store, whose messages would come twice: leave one of them out")
    return Stores({path: path for path in found}, manifests=manifests, **options)


def _is_pattern(path: str) -> bool:
    """Whether a path stands for those that it matches. One that is there as it is written stands for itself."""
    return glob.has_magic(path) and not os.path.exists(local_path(path))
