"""The operations of `rocketmq.py`, done by mqstore."""

from __future__ import annotations

import base64
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from generator import DELAY_LEVELS, Geometry, Record, Step, decode_units
from rocketmq import Dump

import mqstore

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: The last third of this number of consecutive puts goes into one batch.
STRETCH = 150
#: The write modes.
MODES: dict[str, dict[str, Any]] = {
    "ASYNC_FLUSH": {},
    "ASYNC_FLUSH with a pool": {
        "transient_store_pool_enable": True,
        "transient_store_pool_size": 2,
        "transient_store_pool_buffer_size": 16 << 10,
    },
    "SYNC_FLUSH": {"flush_disk_type": "SYNC_FLUSH"},
}
#: The fields that have one name in a step and in `append`.
OWN_FIELDS = [
    "flag",
    "sys_flag",
    "born_time",
    "born_host",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
]
#: The columns of a batch.
ROW = pa.schema(
    {
        "topic": pa.utf8(),
        "queue_id": pa.int32(),
        "tags": pa.utf8(),
        "keys": pa.list_(pa.utf8()),
        "body": pa.binary(),
        "properties": pa.map_(pa.utf8(), pa.utf8()),
        "sys_flag": pa.int32(),
        "flag": pa.int32(),
        "born_time": pa.timestamp("us", "UTC"),
        "born_host": pa.utf8(),
        "store_host": pa.utf8(),
        "reconsume_times": pa.int32(),
        "prepared_transaction_offset": pa.int64(),
    }
)


def options(geometry: Geometry) -> dict[str, Any]:
    """The options of a store of this geometry."""
    return {
        "mapped_file_size_commit_log": geometry.segment,
        "mapped_file_size_consume_queue": geometry.queue,
        "max_hash_slot_num": geometry.slots,
        "max_index_num": geometry.items,
        "message_delay_level": DELAY_LEVELS,
    }


def write(
    path: Path, mode: Literal["r+", "a", "x"], geometry: Geometry, plan: list[Step], *, index_tags: bool, **write_mode: Any
) -> tuple[list[Record], list[list[int]]]:
    """Carries out a plan. Returns where each message was stored, and which messages belong to each put."""
    stored: list[Record] = []
    with mqstore.open(path, mode=mode, index_tags=index_tags, **options(geometry), **write_mode) as store:
        for (op, together), group in groupby(enumerate(plan), way_in):
            steps = [step for _, step in group]
            if op == "sleep":
                time.sleep(sum(step["ms"] for step in steps) / 1000)
            elif op == "batch" or together:
                stored += append_together(store, steps)
            else:
                stored += [append(store, step) for step in steps]
    return stored, [[place["physical_offset"]] for place in stored]


def way_in(numbered: tuple[int, Step]) -> tuple[str, bool]:
    """The steps that go into one call: a pause or a producer batch alone, some puts together."""
    number, step = numbered
    # A row of a table is a copy of a stored message and stays where it was; only `append` sends a delayed one to its level.
    is_row = step["op"] == "put" and "DELAY" not in dict(step["properties"])
    return step["op"], is_row and number % STRETCH >= STRETCH * 2 // 3


def append(store: mqstore.Writer, step: Step) -> Record:
    """Appends one message and returns its place."""
    result = put(store, step)
    return {
        "physical_offset": result.physical_offset,
        "queue_offset": result.queue_offset,
        "store_size": result.wrote_bytes,
        "store_time": milliseconds(result.store_time),
        "message_id": result.message_id,
    }


def put(store: mqstore.Writer, step: Step) -> mqstore.AppendResult:
    """Appends one message, every other one with what has an argument of its own in that argument."""
    properties = dict(step["properties"])
    named: dict[str, Any] = {}
    if len(step["body"]) % 8 == 0:
        named["tags"] = properties.pop("TAGS", None)
        named["delay_level"] = int(properties.pop("DELAY", 0))
        if "  " not in properties.get("KEYS", ""):
            named["keys"] = properties.pop("KEYS", "").split()
    named |= {name: step[name] for name in OWN_FIELDS} | {"queue_id": step["queue"]}
    # As a datetime: an int that may count seconds is refused.
    named["born_time"] = EPOCH + timedelta(milliseconds=step["born_time"])
    return store.append(step["topic"], base64.b64decode(step["body"]), properties=properties, **named)


def said(result: mqstore.AppendResult) -> Record:
    """The report on a put, under the names that the harness uses."""
    names = ["status", "physical_offset", "queue_offset", "wrote_bytes", "message_id"]
    return {name: getattr(result, name) for name in names}


def append_together(store: mqstore.Writer, steps: list[Step]) -> list[Record]:
    """Appends puts, or the messages of producer batches, in one call."""
    rows = [row for step in steps for row in batch_rows(step)]
    offsets = store.append_batch(pa.RecordBatch.from_pylist(rows, schema=ROW))
    return [{"physical_offset": offset} for offset in offsets]


def batch_rows(step: Step) -> Iterator[dict[str, Any]]:
    """The rows of a put or of a producer batch. The properties of the batch itself are left out."""
    common = {name: step[name] for name in ROW.names if name in step}
    common |= {"queue_id": step["queue"], "born_time": EPOCH + timedelta(milliseconds=step["born_time"])}
    body = base64.b64decode(step["body"])
    units = [(step["flag"], body, step["properties"])] if step["op"] == "put" else decode_units(body)
    for flag, body_of_one, properties in units:
        others = dict(properties)
        yield common | {"flag": flag, "body": body_of_one, "tags": others.pop("TAGS", None), "properties": list(others.items())}


def dump(store: mqstore.Store, segment: int) -> Dump:
    """Returns everything in a store."""
    begin, end = store.min_physical_offset, store.max_physical_offset
    found = Dump(bounds=(begin, end))
    while begin < end:
        try:
            message = store.message_at(begin)
        except mqstore.NotFoundError:  # the rest of a segment
            begin = begin // segment * segment + segment
            continue
        found.records[begin] = fields(message)
        begin += message.store_size
    assert begin == end, f"the records do not end where the log ends: {begin}, {end}"
    for topic in store.topics.values():
        for queue in topic.queues:
            if queue.max_offset > 0:
                entries: list[tuple[int, ...]] = [(message.physical_offset, message.store_size) for message in queue]
                found.queues[topic.name, queue.queue_id] = queue.min_offset, queue.max_offset, entries
    return found


def fields(message: mqstore.Message) -> Record:
    """Every field, as the harness prints them."""
    body = message.body
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "store_size": message.store_size,
        "store_time": milliseconds(message.store_time),
        "born_time": milliseconds(message.born_time),
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "message_id": message.message_id,
        "body_len": len(body),
        "body_crc32": zlib.crc32(body),
        "properties": message.properties,
    }


def milliseconds(at: datetime) -> int:
    """Since 1970."""
    return (at - EPOCH) // timedelta(milliseconds=1)
