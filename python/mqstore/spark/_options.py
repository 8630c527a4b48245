"""Parses and validates the options of batch reads and streams."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader

import mqstore
from mqstore.spark._conditions import ALWAYS, Conditions
from mqstore.spark._option_reader import OptionReader
from mqstore.spark._subscription import OffsetRange, Offsets, Subscription
from mqstore.spark.stores import Stores, local_path

if TYPE_CHECKING:
    #: The reaction of a task to a lost or damaged message: it fails, skips the message, or returns a row of nulls with the error
    #: in the column `_corrupt_record`.
    _OnDamage: TypeAlias = Literal["raise", "skip", "corrupt_record"]

_ERRORS: Mapping[str, _OnDamage] = {"raise": "raise", "skip": "skip", "corrupt_record": "corrupt_record"}

_SHARED = (
    *("path", "stores", "topics", "queueIds", "subscribe", "subscribePattern", "assign", "startingOffsets"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "startingTimestamp", "columns", "decodeBody"),
    *("errors", "failOnDataLoss", "targetPartitionBytes", "minPartitions", "maxRecordsPerPartition"),
)
_OF_BATCH = (
    *("manifests", "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp", "by", "tags", "keys", "properties"),
    *("bodyContains", "bodyRegex", "pushdown"),
)
_OF_STREAM = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
#: The options of a batch.
ACCEPTED = (*_SHARED, *_OF_BATCH)
#: The options of a read that may become a batch or a stream.
ACCEPTED_BY_READS = (*ACCEPTED, *_OF_STREAM)

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class ReadOptions:
    """The options that batches and streams share."""

    stores: Stores
    columns: tuple[str, ...] | None
    decode_body: bool
    errors: _OnDamage
    fail_on_data_loss: bool

    @classmethod
    def parse(cls, given: OptionReader) -> ReadOptions:
        """Raises ValueError for a wrong option, with what it accepts."""
        return cls(
            _stores(given),
            given.names("columns"),
            given.is_true("decodeBody", default=False),
            given.word("errors", _ERRORS, "raise"),
            given.is_true("failOnDataLoss", default=True),
        )


@dataclass(frozen=True)
class ScanOptions:
    """The options of a batch read."""

    read: ReadOptions
    conditions: Conditions
    range: OffsetRange | None
    target_partition_bytes: int | None
    min_partitions: int
    max_records: int | None
    pushes_filters: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ScanOptions:
        """Raises ValueError for a wrong option, with what it accepts."""
        if option := _first_of(_OF_STREAM, options):
            raise ValueError(f"option {option} is only for streams (spark.readStream): leave it out")
        given = OptionReader(options, ACCEPTED)
        read = ReadOptions.parse(given)
        brokers = read.stores.brokers
        subscription = Subscription.parse(given, brokers)
        return cls(
            read,
            _conditions(given, subscription),
            OffsetRange.parse(given, subscription, brokers),
            given.count("targetPartitionBytes"),
            given.count("minPartitions") or 1,
            given.count("maxRecordsPerPartition"),
            given.is_true("pushdown", default=False),
        )


@dataclass(frozen=True)
class StreamOptions:
    """The options of a stream."""

    scan: ScanOptions
    """The options that plan a batch."""
    subscription: Subscription
    starting: Offsets
    max_offsets: int | None
    min_offsets: int | None
    max_delay: float
    """The longest time, in seconds, that a batch waits for `min_offsets`."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """Raises ValueError for a wrong option, with what it accepts."""
        if option := _first_of(_OF_BATCH, options):
            has_end = "a stream has no end; trigger(availableNow=True) reads what exists now"
            is_of_batch = "it is only for batches (spark.read)"
            raise ValueError(f"option {option} is refused: {has_end if option.startswith('ending') else is_of_batch}")
        given = OptionReader(options, (*_SHARED, *_OF_STREAM))
        scan = ScanOptions(
            ReadOptions.parse(given),
            Conditions(),
            None,
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
        subscription = Subscription.parse(given, brokers)
        subscription.expect_no_light_queue()
        return cls(scan, subscription, Offsets.of_stream(given, brokers), most, least, _delay(given))


def parse_read(options: Mapping[str, str]) -> ReadOptions:
    """Parses the shared options. Raises ValueError for options that are valid neither for a batch nor for a stream."""
    OptionReader(options, ACCEPTED_BY_READS)
    try:
        return ScanOptions.parse(options).read
    except ValueError as of_batch:
        try:
            return StreamOptions.parse(options).scan.read
        except ValueError as of_stream:
            raise (of_stream if _first_of(_OF_STREAM, options) else of_batch) from None


def _first_of(names: Sequence[str], options: Mapping[str, str]) -> str | None:
    """Returns the first of the names that is an option, case-insensitively."""
    given = {name.lower() for name in options}
    return next((name for name in names if name.lower() in given), None)


def _expect_limits(given: OptionReader) -> None:
    """Raises ValueError for options that this version of pyspark does not support."""
    if hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        return
    for option in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if given.get(option) is not None:
            raise ValueError(f"option {option} needs pyspark 4.2 or later; this is {pyspark.__version__}: leave it out")


def _delay(given: OptionReader) -> float:
    text = given.get("maxTriggerDelay") or "15m"
    parts = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    unit = _SECONDS.get(parts[2] or "ms") if parts else None
    if parts is None or unit is None:
        raise ValueError(f"option maxTriggerDelay is a duration such as 500ms, 30s or 15m, not {text!r}")
    return int(parts[1]) * unit


def _conditions(given: OptionReader, subscription: Subscription) -> Conditions:
    keys = given.get("keys")
    by: dict[str, Literal["store", "born"]] = {"store": "store", "born": "born"}
    time = given.time("startingTimestamp", ALWAYS[0]), given.time("endingTimestamp", ALWAYS[1])
    if time[0] > time[1]:
        raise ValueError(f"option startingTimestamp is {time[0]}, past endingTimestamp, which is {time[1]} (ms since 1970)")
    return Conditions(
        topics=subscription.topics,
        queue_ids=subscription.queue_ids,
        time=time,
        by=given.word("by", by, "store"),
        tags=given.get("tags"),
        keys=None if keys is None else tuple(keys.split()),
        properties=tuple((name, str(value)) for name, value in given.json("properties", dict).items()),
        body_contains=given.get("bodyContains"),
        body_regex=given.get("bodyRegex"),
    )


def _stores(given: OptionReader) -> Stores:
    """Returns one store without a broker, or several: of option `stores`, or of several paths, which name the brokers."""
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
            raise ValueError(f"{other} and {path} are the same store, which would be read twice: leave one of them out")
    return Stores({path: path for path in found}, manifests=manifests, **options)


def _is_pattern(path: str) -> bool:
    """True for a glob pattern. A path that exists literally is not a pattern."""
    return glob.has_magic(path) and not os.path.exists(local_path(path))
