"""The work of a producer's client before it sends, and the checksum of a whole record."""

from __future__ import annotations

import base64
import os
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import embedded
from generator import Geometry, Record, Step
from rocketmq import RocketMQ, read_dump, save_lines

import mqstore

GEOMETRY = Geometry(segment=64 << 10, queue=1_000, slots=100, items=400)
BATCHES = 100
MESSAGES = 300


def batches(rocketmq: RocketMQ, directory: Path) -> list[Step]:
    """Batches of one to nine messages of every size, whose bodies RocketMQ's own `MessageDecoder.encodeMessages` makes."""
    units: list[list[dict[str, Any]]] = []
    for number in range(BATCHES):
        units.append(
            [
                {
                    "flag": number * 10 + at,
                    "body": base64.b64encode(bytes([number]) * (number * at % 700)).decode(),
                    "properties": {"KEYS": f"k{number} m{at}", "TAGS": "paid", "ü": "标签", "WAIT": "true"} if at % 3 else {},
                }
                for at in range(1 + number % 9)
            ]
        )
    bodies = rocketmq.run(directory / "encoder", GEOMETRY, f"encode={save_lines(directory / 'units', units)}")["encode"]
    return [
        {
            "op": "batch",
            "topic": "orders",
            "queue": number % 3,
            "body": body,
            "flag": 0,
            "sys_flag": 0,
            "born_time": 1_700_000_000_000 + number,
            "born_host": "[2001:db8::7]:40000" if number % 4 == 0 else "10.1.2.3:40000",
            "store_host": "127.0.0.1:10911",
            "reconsume_times": 0,
            "prepared_transaction_offset": 0,
            # Until 4.9.3 the first of these fuses with the last property of a message.
            "properties": {"CLUSTER": "c1"} if number % 2 and rocketmq.number >= (4, 9, 3) else {},
        }
        for number, body in enumerate(bodies)
    ]


def append_batch(store: mqstore.Writer, step: Step, properties: dict[str, str] | None) -> list[int]:
    """Appends one batch, whose own properties are these; gives where its messages are."""
    offsets = store.append_producer_batch(
        step["topic"],
        base64.b64decode(step["body"]),
        properties=properties,
        queue_id=step["queue"],
        born_time=step["born_time"],
        born_host=step["born_host"],
        store_host=step["store_host"],
        sys_flag=step["sys_flag"],
    )
    return list(offsets)


def test_a_batch_of_rocketmqs_producer_is_stored_as_rocketmq_stores_it(rocketmq: RocketMQ, tmp_path: Path) -> None:
    plan = batches(rocketmq, tmp_path)
    said = rocketmq.write(tmp_path / "theirs", GEOMETRY, plan)
    assert {put["status"] for put in said} == {"PUT_OK"}
    with mqstore.open(tmp_path / "ours", "x", index_tags=rocketmq.index_tags, **embedded.options(GEOMETRY)) as store:
        puts = [append_batch(store, step, step["properties"] if rocketmq.batch_properties else None) for step in plan]
        read = embedded.dump(store, GEOMETRY.segment)
    assert [len(put) for put in puts] == [put["messages"] for put in said]
    if rocketmq.separator_at_end:  # before, each record of theirs may be a byte shorter
        assert [put[0] for put in puts] == [put["physical_offset"] for put in said]
    ours, _ = rocketmq.ask(tmp_path / "ours", GEOMETRY, [])
    theirs, _ = rocketmq.ask(tmp_path / "theirs", GEOMETRY, [])
    assert ours.records == read.records
    own = {"physical_offset", "message_id", "store_time", "store_size"}
    assert len(ours.records) == len(theirs.records) == sum(len(put) for put in puts)
    for our, their in zip(*(sorted(side.records.items()) for side in (ours, theirs)), strict=True):
        assert drop(our[1], own) == drop(their[1], own)
        assert 0 <= our[1]["store_size"] - their[1]["store_size"] <= 1
    assert ours.queues.keys() == theirs.queues.keys()


def drop(record: Record, names: set[str]) -> Record:
    """Without the fields that differ by design."""
    return {name: value for name, value in record.items() if name not in names}


def by_checksum(rocketmq: RocketMQ, path: Path) -> tuple[dict[int, Record], int]:
    """The records that a broker with `forceVerifyPropCRC` finds in a log, and where the log ends for it."""
    found = read_dump(rocketmq.run(path, GEOMETRY, "verify_crc=true", "dump")["dump"])
    return found.records, found.bounds[1]


def test_rocketmq_verifies_our_checksums_of_whole_records(rocketmq: RocketMQ, tmp_path: Path) -> None:
    """4.9 knows no such option, and reads a property."""
    path = tmp_path / "store"
    with mqstore.open(path, "x", enabled_append_prop_crc=True, **embedded.options(GEOMETRY)) as store:
        for number in range(MESSAGES):
            host = "[2001:db8::7]:40000" if number % 3 == 0 else None
            named: dict[str, Any] = {"tags": "paid", "keys": [f"k{number}"]} if number % 2 else {}
            store.append("Café_订单", bytes([number % 256]) * number, born_host=host, sys_flag=number % 4 * 4, **named)
        store.append_batch([b"x"] * MESSAGES, "orders")
        for step in batches(rocketmq, tmp_path):
            append_batch(store, step, step["properties"])
        last = store.append("orders", b"last", properties={"region": "eu"})
        ours = embedded.dump(store, GEOMETRY.segment)
    theirs, end = by_checksum(rocketmq, path)
    assert (theirs, end) == (ours.records, ours.bounds[1])
    assert all(len(record["properties"]["__CRC32#"]) == 10 for record in theirs.values())
    # Bytes that the checksum of a body does not cover.
    segment = path / "commitlog" / f"{last.physical_offset // GEOMETRY.segment * GEOMETRY.segment:020}"
    log = bytearray(segment.read_bytes())
    at = log.index(b"region\1eu", last.physical_offset % GEOMETRY.segment)
    log[at + 7 : at + 9] = b"us"
    segment.write_bytes(log)
    changed, end = by_checksum(rocketmq, path)
    if rocketmq.api == 5:
        assert (set(changed), end) == (ours.records.keys() - {last.physical_offset}, last.physical_offset)
    else:
        assert changed[last.physical_offset]["properties"]["region"] == "us"


def test_rocketmqs_client_reads_our_unique_keys(rocketmq: RocketMQ, tmp_path: Path) -> None:
    before = time.time_ns() // 1_000_000
    keys = [mqstore.new_unique_key() for _ in range(100)]
    after = time.time_ns() // 1_000_000
    file = tmp_path / "keys"
    file.write_text("\n".join(keys))
    said = rocketmq.run(tmp_path / "store", GEOMETRY, "new_unique_key", f"unique_keys={file}")
    [theirs] = said["new_unique_key"]
    assert len(theirs["unique_key"]) in (32, 56)
    assert [line["unique_key"] for line in said["unique_keys"]] == keys
    for line in said["unique_keys"]:
        assert ip_address(line["ip"]).packed == bytes.fromhex(line["unique_key"])[:-12]
        assert line["process"] == os.getpid() & 0xFFFF
        assert before <= line["time"] <= after
