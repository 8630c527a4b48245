"""The same as `rocketmq.py`, done by mqstore."""

from __future__ import annotations

import base64
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mqstore
from generator import DELAY_LEVELS, Geometry, Record, Step, decode_units
from rocketmq import Dump

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def options(geometry: Geometry) -> dict[str, Any]:
    """The options of a store of this geometry."""
    return {
        "mapped_file_size_commit_log": geometry.segment,
        "mapped_file_size_consume_queue": geometry.queue,
        "max_hash_slot_num": geometry.slots,
        "max_index_num": geometry.items,
        "message_delay_level": DELAY_LEVELS,
    }


def write(path: Path, mode: str, geometry: Geometry, plan: list[Step], *, index_tags: bool) -> list[Record]:
    """Carries out a plan; gives where each message was stored."""
    with mqstore.open(path, mode=mode, index_tags=index_tags, **options(geometry)) as store:
        return [stored for step in plan for stored in carry_out(store, step)]


def dump(store: mqstore.Store, segment: int) -> Dump:
    """Everything in a store."""
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
                entries = [(message.physical_offset, message.store_size) for message in queue]
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


def milliseconds(time: datetime) -> int:
    """Since 1970."""
    return (time - EPOCH) // timedelta(milliseconds=1)
