"""Batch reads, with typed arguments for the options of format "mqstore"."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypedDict

from pyspark.sql import DataFrame, SparkSession

from mqstore.spark._option_reader import expect_known
from mqstore.spark._options import ACCEPTED
from mqstore.spark.stores import StoreLike, with_remote_manifests


class Where(TypedDict, total=False):
    """The conditions of `scan`, a conjunction, named as in `mqstore.Store.scan`."""

    queue_ids: int | Iterable[int]
    tags: str
    """Alternative tags: "paid || refund"."""
    keys: str | Iterable[str]
    """Alternative keys or unique keys."""
    properties: Mapping[str, str]
    """Properties that a message has, all of them."""
    body_contains: str
    """Text in the decompressed body."""
    body_regex: str
    """A pattern of Rust's regex crate to search for in the decompressed body."""


def scan(
    spark: SparkSession,
    store: StoreLike,
    *,
    columns: Sequence[str] | None = None,
    topics: str | Iterable[str] | None = None,
    since: datetime | int | None = None,
    until: datetime | int | None = None,
    where: Where | None = None,
    **options: str | int | bool,
) -> DataFrame:
    """Returns the messages of a store, or of several, as a frame. The arguments select messages before they become rows.

    `columns` are columns of a message, by default all, and `broker` before them with `Stores`. If they are among topic,
    queue_id, queue_offset, physical_offset and store_size, and topics and queue_ids are the only conditions, only the queues are
    read. `topics` is a topic or several. `since` and `until` bound the store time, the second exclusive: a datetime with a
    timezone, or ms since 1970. `options` are those of format "mqstore": `errors="skip"`.

    The first action on the frame takes a snapshot, which later actions read, too. The snapshot of an open reader is that
    reader's. The snapshot of a store that only the executors see is taken now, by a task for each broker. Raises ValueError for
    a wrong argument; docs/SPARK.md has the errors of the actions.
    """
    # Checked here, because Spark converts the names to lower case.
    expect_known(options, ACCEPTED)
    given: dict[str, str | int | bool | None] = {
        "columns": None if columns is None else json.dumps(_names(columns)),
        "topics": None if topics is None else json.dumps(_listed(topics)),
        "startingTimestamp": _time("since", since),
        "endingTimestamp": _time("until", until),
        **_options_of({} if where is None else where),
        **with_remote_manifests(store, spark).as_options(),
        **options,
    }
    return spark.read.format("mqstore").options(**{name: value for name, value in given.items() if value is not None}).load()


def _options_of(where: Where) -> dict[str, str | None]:
    if not isinstance(where, Mapping):
        raise ValueError(f'where is a dict such as {{"tags": "paid"}}, not {where!r}: give SQL conditions to df.where')
    unknown = set(where).difference(Where.__annotations__)
    if unknown:
        raise ValueError(f"where has {', '.join(sorted(unknown))}; it may have {', '.join(Where.__annotations__)}")
    queue_ids, keys, properties = where.get("queue_ids"), where.get("keys"), where.get("properties")
    return {
        "queueIds": None if queue_ids is None else json.dumps([queue_ids] if isinstance(queue_ids, int) else list(queue_ids)),
        "tags": where.get("tags"),
        "keys": None if keys is None else " ".join(map(_key, _listed(keys))),
        "properties": None if properties is None else json.dumps(dict(properties)),
        "bodyContains": where.get("body_contains"),
        "bodyRegex": where.get("body_regex"),
    }


def _key(key: str) -> str:
    if len(key.split()) != 1 or key != key.strip():
        raise ValueError(f"where has the key {key!r}: a key is a text without spaces")
    return key


def _names(columns: Sequence[str]) -> list[str]:
    if isinstance(columns, str):
        raise ValueError(f"columns is a list of column names, such as [{columns!r}], not {columns!r}")
    return list(columns)


def _listed(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _time(name: str, time: datetime | int | None) -> str | None:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"{name} is a datetime with a timezone, not {time!r}")
        return time.astimezone(UTC).isoformat()
    return None if time is None else str(time)
