"""Functions of columns and of SQL that look up messages in a store.

Spark sends only the arguments of a function to Python, however wide the frame is, but the result of a batch of rows is one array.
So these are for small results; `fetch` returns whole messages in batches of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql.functions import col, unix_micros

import mqstore
from mqstore.spark._columnar import HAS_ARROW_UDF, columnar
from mqstore.spark._compute import pc
from mqstore.spark._positions import QueueName, ends_before
from mqstore.spark._snapshot import Snapshot
from mqstore.spark.stores import StoreLike, plan

Snapshots = Mapping[str | None, Snapshot]

# The limit for the bodies of one batch of rows, which Spark holds at once.
_MOST_BODY_BYTES = 512 << 20

_POSITION = pa.struct([("physical_offset", pa.int64()), ("store_size", pa.int32())])
_HIT = pa.struct([("queue_id", pa.int32()), ("queue_offset", pa.int64()), *_POSITION])


@dataclass(frozen=True)
class Lookup:
    """A lookup of each row of a batch in one store."""

    arguments: Mapping[str, pa.DataType]
    returns: pa.DataType
    answer: Callable[[Snapshot, pa.RecordBatch], pa.Array]


def message_position(
    topic: Column | str,
    queue_id: Column | str,
    queue_offset: Column | str,
    *,
    store: StoreLike,
    broker: Column | str | None = None,
) -> Column:
    """Returns the position of a message in the commit log: a struct of physical_offset (bigint) and store_size (int, bytes).

    Both are null for an absent or lost message. The arguments are columns or their names: topic is a string, the other two are
    any integers. `store` is a path that is valid on each node, an open reader, or `Stores`; with several stores `broker` is the
    column with the broker of each row, and a row without a broker gets nulls.

    The call takes a snapshot of the store. Later messages are not found. The job fails if a part of the snapshot has expired
    since, or if another store is at the path.
    """
    return lookup_column("message_position", POSITION, [topic, queue_id, queue_offset], plan_now(store), broker)


def key_hits(
    topic: Column | str, key: Column | str, *, store: StoreLike, limit: int | None = None, broker: Column | str | None = None
) -> Column:
    """Returns the positions of the messages with a key: an array of structs of queue_id, queue_offset, physical_offset and
    store_size, ascending by physical offset; null without any.

    topic and key are columns of strings, or their names. `limit` is the number of newest messages to return for a row; None for
    all. All hits of a batch of rows are in memory at once, 24 bytes each: give a limit if many messages have the same key.
    `store` and `broker` are those of `message_position`.
    """
    return lookup_column("key_hits", hits_lookup(limit), [topic, key], plan_now(store), broker)


def queue_offset_at(
    topic: Column | str,
    queue_id: Column | str,
    time: Column | str,
    *,
    store: StoreLike,
    side: Literal["left", "right"] = "left",
    broker: Column | str | None = None,
) -> Column:
    """Returns the queue offset (bigint) of the first message that was stored at a time or later, with side="right" later than
    it. It is the end of the queue if no message is, and null if the queue does not exist.

    topic is a column of strings, queue_id of integers, time of timestamps; or their names. `store` and `broker` are those of
    `message_position`.
    """
    return lookup_column("queue_offset_at", times_lookup(side), [topic, queue_id, micros(time)], plan_now(store), broker)


def message_body(
    physical_offset: Column | str,
    *,
    store: StoreLike,
    errors: Literal["raise", "skip"] = "raise",
    broker: Column | str | None = None,
) -> Column:
    """Returns the body of a message (binary, as stored), null where physical_offset is null.

    physical_offset is a column of bigint, or its name, as `message_position` returns it. The job fails if no message starts at
    an offset, and at a damaged message; with errors="skip" the body is null instead. It also fails if the bodies of one batch of
    rows take more than 512 MiB; `fetch` has no such limit. `store` and `broker` are those of `message_position`.
    """
    return lookup_column("message_body", body_lookup(errors), [physical_offset], plan_now(store), broker)


def register_functions(spark: SparkSession, store: StoreLike, *, limit: int | None = None) -> None:
    """Registers SQL functions over a snapshot of the store in this session. Another call takes a new snapshot.

    They are `message_position(topic, queue_id, queue_offset)`, `key_hits(topic, key)` with this `limit`,
    `queue_offset_at(topic, queue_id, time)` and `message_body(physical_offset)`, as the functions of this module. With several
    stores each takes the broker as its last argument. With pyspark 4.0, queue_offset_at takes unix_micros(time).
    """
    snapshots = plan(store, spark)
    lookups = {
        "message_position": POSITION,
        "key_hits": hits_lookup(limit),
        "queue_offset_at": times_lookup("left"),
        "message_body": body_lookup("raise"),
    }
    for name, lookup in lookups.items():
        spark.udf.register(name, _function(name, lookup, snapshots))


def plan_now(store: StoreLike) -> Snapshots:
    """Takes a snapshot of each store, by broker. Tasks of the active Spark read stores that this node does not see."""
    return plan(store, SparkSession.getActiveSession())


def micros(time: Column | str) -> Column:
    """Returns the column of a timestamp in a form that keeps the time zone."""
    return as_column(time) if HAS_ARROW_UDF else unix_micros(time)


def lookup_column(
    name: str, lookup: Lookup, arguments: Sequence[Column | str], snapshots: Snapshots, broker: Column | str | None
) -> Column:
    """Returns the column of the results. Raises ValueError for a missing or unexpected broker."""
    expect_broker(name, snapshots, broker)
    brokers = [] if broker is None else [as_column(broker)]
    return _function(name, lookup, snapshots)(*map(as_column, arguments), *brokers)


def expect_broker(name: str, snapshots: Snapshots, broker: Column | str | None) -> None:
    """Raises ValueError if several stores have no `broker`, or if a store without a broker has one."""
    if broker is None and len(snapshots) > 1:
        brokers = ", ".join(map(str, snapshots))
        raise ValueError(f"{name} needs broker=, the column with the broker of each row: there are stores of {brokers}")
    if broker is not None and None in snapshots:
        raise ValueError(f"{name} has broker=, but the store has no broker: give a Stores, or leave broker out")


def by_broker(brokers: pa.Array, snapshots: Snapshots) -> Iterator[tuple[Snapshot | None, pa.Array]]:
    """Yields for each broker the snapshot of its store, None for rows without a broker, and the numbers of its rows."""
    for broker in pc.unique(brokers).to_pylist():
        if broker is None:
            yield None, pc.indices_nonzero(pc.is_null(brokers))
        elif broker in snapshots:
            yield snapshots[broker], pc.indices_nonzero(pc.equal(brokers, broker))
        else:
            raise ValueError(f"there is no store of broker {broker!r}; the brokers are {', '.join(map(str, snapshots))}")


def whole(snapshot: Snapshot, resolve: Callable[[mqstore.Store], mqstore.RecordBatch]) -> pa.RecordBatch:
    """Calls `resolve` with a store that has the whole snapshot before and after the call: expired messages would look absent."""
    found = resolve(snapshot.open(whole=True))
    snapshot.open(whole=True)
    return pa.record_batch(found)


def as_column(given: Column | str) -> Column:
    """Returns a column that is given itself or by its name."""
    return col(given) if isinstance(given, str) else given


def _function(name: str, lookup: Lookup, snapshots: Snapshots) -> Callable[..., Column]:
    takes = [*lookup.arguments.values(), pa.string()]
    return cast(Callable[..., Column], columnar(name, partial(_answer, name, lookup, snapshots), takes, lookup.returns))


def _answer(name: str, lookup: Lookup, snapshots: Snapshots, columns: Sequence[pa.Array]) -> pa.Array:
    """Looks up a batch of rows, each in the store of its broker."""
    count = len(lookup.arguments)
    arguments, brokers = columns[:count], columns[count:]
    if len(arguments) < count or len(brokers) > 1 or (len(snapshots) > 1 and not brokers):
        wanted = [*lookup.arguments, *(["broker"] if len(snapshots) > 1 else [])]
        raise TypeError(f"{name} takes {', '.join(wanted)}, but was called with {len(columns)} columns")
    wanted_rows = pa.RecordBatch.from_arrays(list(arguments), names=list(lookup.arguments))
    if not brokers:
        (snapshot,) = snapshots.values()
        return lookup.answer(snapshot, wanted_rows)
    answers, numbers = [pa.nulls(0, lookup.returns)], [pa.nulls(0, pa.uint64())]
    for known, rows in by_broker(brokers[0], snapshots):
        numbers.append(rows)
        answers.append(pa.nulls(len(rows), lookup.returns) if known is None else lookup.answer(known, wanted_rows.take(rows)))
    return pa.concat_arrays(answers).take(pc.sort_indices(pa.concat_arrays(numbers)))


def _positions(snapshot: Snapshot, wanted: pa.RecordBatch) -> pa.Array:
    found = whole(snapshot, lambda store: store.resolve_offsets(wanted))
    is_planned = pc.less(found.column("physical_offset"), snapshot.end)
    columns = [pc.if_else(is_planned, column, pa.scalar(None, column.type)) for column in found.columns]
    return pa.StructArray.from_arrays(columns, fields=list(_POSITION))


def _hits(limit: int | None, snapshot: Snapshot, wanted: pa.RecordBatch) -> pa.Array:
    found = whole(snapshot, lambda store: store.resolve_keys(wanted, limit=limit, physical=(None, snapshot.end)))
    return found.column("hits")


def _times(side: Literal["left", "right"], snapshot: Snapshot, wanted: pa.RecordBatch) -> pa.Array:
    time = wanted.column("time")
    if pa.types.is_integer(time.type):
        time = time.cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
    asked = pa.RecordBatch.from_arrays([*wanted.columns[:2], time], names=wanted.schema.names)
    found = whole(snapshot, lambda store: store.resolve_times(asked, side=side)).column("queue_offset")
    store = snapshot.open()
    if store.max_physical_offset == snapshot.end:
        return found
    queues = list(zip(wanted.column("topic").to_pylist(), wanted.column("queue_id").to_pylist(), strict=True))
    ends = _planned_ends(snapshot, store, set(queues))
    planned = pa.array([ends.get(queue) for queue in queues], pa.int64())
    return pc.min_element_wise(found, planned, skip_nulls=False)


def _planned_ends(
    snapshot: Snapshot, store: mqstore.Store, queues: set[tuple[str | None, int | None]]
) -> dict[tuple[str, int], int | None]:
    """Returns the end of each queue in the snapshot, None for a queue that began later."""
    bounds: dict[QueueName, tuple[int, int]] = {}
    for topic, queue_id in queues:
        if topic is not None and queue_id is not None and topic in store.topics and queue_id in store.topics[topic].queue_ids:
            opened = store.topics[topic].queues[queue_id]
            bounds[QueueName(None, topic, queue_id)] = opened.min_offset, opened.max_offset
    ends = ends_before(store, bounds, snapshot.end)
    return {(name.topic, name.queue_id): end or None for name, end in ends.items()}


def _bodies(errors: Literal["raise", "skip"], snapshot: Snapshot, wanted: pa.RecordBatch) -> pa.Array:
    offsets = wanted.column("physical_offset")
    if not (pa.types.is_integer(offsets.type) or pa.types.is_null(offsets.type)):
        raise ValueError(f"message_body takes physical_offset as bigint, but the column is {offsets.type}: cast it first")
    offsets = offsets.cast(pa.int64())
    found_offsets, bodies, size = [pa.nulls(0, pa.int64())], [pa.nulls(0, pa.binary())], 0
    asked = planned_offsets(snapshot, pc.unique(offsets).drop_null(), errors)
    store = snapshot.open(whole=errors == "skip")
    names = ["physical_offset", "body"]
    for batch in map(pa.record_batch, store.fetch(pa.table([asked], names[:1]), columns=names, errors=errors)):
        size += batch.nbytes
        _expect_room(size, len(offsets))
        found_offsets.append(batch.column(0))
        bodies.append(batch.column(1))
    snapshot.open(whole=errors == "skip")
    rows = pc.index_in(offsets, value_set=pa.concat_arrays(found_offsets))
    found = pa.concat_arrays(bodies)
    _expect_room(pc.sum(pc.binary_length(found).take(rows).cast(pa.int64())).as_py() or 0, len(offsets))
    return found.take(rows)


def _expect_room(size: int, rows: int) -> None:
    if size > _MOST_BODY_BYTES:
        raise mqstore.StoreError(
            f"the bodies of a batch of {rows} rows take more than {_MOST_BODY_BYTES >> 20} MiB: use fetch, which "
            "splits its batches, or set spark.sql.execution.arrow.maxRecordsPerBatch to fewer rows"
        )


def planned_offsets(snapshot: Snapshot, offsets: pa.Array, errors: Literal["raise", "skip"]) -> pa.Array:
    """Keeps the offsets within the snapshot. Raises NotFoundError for any other, unless `errors` is "skip"."""
    is_planned = pc.less(offsets, snapshot.end)
    if pc.all(is_planned, min_count=0).as_py():
        return offsets
    if errors == "raise":
        later = pc.max(offsets).as_py()
        raise mqstore.NotFoundError(
            f"no message starts at physical offset {later}: the log of {snapshot.path} ended at {snapshot.end} "
            "when the job was planned"
        )
    return offsets.filter(is_planned)


POSITION = Lookup({"topic": pa.string(), "queue_id": pa.int32(), "queue_offset": pa.int64()}, _POSITION, _positions)


def hits_lookup(limit: int | None) -> Lookup:
    """Returns the lookup of all messages with a key, or of the newest."""
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        raise ValueError(f"limit is a number of messages from 1 on, or None for all, not {limit!r}")
    return Lookup({"topic": pa.string(), "key": pa.string()}, pa.list_(_HIT), partial(_hits, limit))


def times_lookup(side: Literal["left", "right"]) -> Lookup:
    """Returns the lookup of the queue offset of a time."""
    if side not in ("left", "right"):
        raise ValueError(f'side is "left" or "right", not {side!r}')
    return Lookup({"topic": pa.string(), "queue_id": pa.int32(), "time": pa.int64()}, pa.int64(), partial(_times, side))


def body_lookup(errors: Literal["raise", "skip"]) -> Lookup:
    """Returns the lookup of the body at a physical offset."""
    expect_errors(errors)
    return Lookup({"physical_offset": pa.int64()}, pa.binary(), partial(_bodies, errors))


def expect_errors(errors: Literal["raise", "skip"]) -> None:
    """Raises ValueError for another value."""
    if errors not in ("raise", "skip"):
        raise ValueError(f'errors is "raise" or "skip", not {errors!r}')
