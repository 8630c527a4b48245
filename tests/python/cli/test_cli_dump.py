"""`mqstore dump` and `Store.inspect.dump`: each byte has a name, and damage is reported at its field."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import mqstore

STORES = ["491_multifile", "498_mixed", "533_mixed", "533_v2_record", "551_mixed"]
SAME = ("queue_id", "queue_offset", "physical_offset", "flag", "reconsume_times", "prepared_transaction_offset")


@pytest.mark.parametrize("name", STORES)
def test_the_fields_of_a_record_are_adjacent_and_equal_the_message(golden: Path, name: str) -> None:
    with mqstore.open(golden / name) as store:
        messages = [message for topic in store.topics.values() for queue in topic.queues for message in queue]
        assert messages
        for message in messages:
            rows = store.inspect.dump(message.physical_offset).to_arrow().to_pylist()
            assert all(row["wrong"] is None for row in rows)
            assert sum(row["length"] for row in rows) == message.store_size
            assert all(row["offset"] + row["length"] == after["offset"] for row, after in pairwise(rows))
            start = rows[0]["offset"]
            assert all(message.raw[row["offset"] - start :].startswith(row["bytes"]) for row in rows)
            assert all(len(row["bytes"]) == min(row["length"], 256) for row in rows)
            fields = {row["field"]: row["value"] for row in rows}
            assert [fields[name] for name in SAME] == [str(getattr(message, name)) for name in SAME]
            assert (fields["born_host"], fields["store_host"]) == (message.born_host, message.store_host)
            assert fields["topic"] == message.topic
            assert int(fields["body_length"]) == len(message.body)
            assert all(f"{name}={value}"[:50] in fields["properties"] for name, value in list(message.properties.items())[:1])


def damaged(path: Path, at: int, data: bytes) -> dict[str, str]:
    """Returns what is wrong, by field, with the first record after these bytes are put into the first segment."""
    segment = path / "commitlog" / f"{0:020}"
    before = segment.read_bytes()
    segment.write_bytes(before[:at] + data + before[at + len(data) :])
    try:
        with mqstore.open(path, errors="skip") as store:
            return {row["field"]: row["wrong"] for row in store.inspect.dump(0).to_arrow().to_pylist() if row["wrong"]}
    finally:
        segment.write_bytes(before)


def test_what_is_wrong_with_a_damaged_record_is_said_at_its_field(copied: Callable[[str], Path]) -> None:
    path = copied("498_mixed")
    with mqstore.open(path) as store:
        first = store.message_at(0)
    body = first.raw.index(first.body, 84)
    assert damaged(path, 0, b"") == {}
    assert "CRC-32 of its body" in damaged(path, body, b"\xee")["body_crc"]
    assert "is not that of a record" in damaged(path, 4, b"\1\2\3\4")["magic"]
    assert "stale bytes of an earlier log" in damaged(path, 28, struct.pack(">q", 7))["physical_offset"]
    assert set(damaged(path, body - 4, struct.pack(">i", -1))) >= {"body_length"}
    assert "of the record are left" in damaged(path, body - 4, struct.pack(">i", 1 << 30))["body_length"]
    assert "at least 91 are needed" in damaged(path, 0, struct.pack(">i", 5))["total_size"]


def test_an_offset_without_a_record_describes_the_bytes_there(golden: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(golden / "491_multifile") as store:
        [start, second, *_] = [row["segment"] for row in store.inspect.segments().to_arrow().to_pylist()]
        last = max(
            (m for topic in store.topics.values() for queue in topic.queues for m in queue if m.physical_offset < second),
            key=lambda message: message.physical_offset,
        )
        end = store.max_physical_offset
    blank = run("dump", golden / "491_multifile", last.physical_offset + last.store_size)
    assert "a BLANK: the log continues in the next segment" in blank.out
    assert "nothing is written here" in run("dump", golden / "491_multifile", end).out
    middle = run("dump", golden / "491_multifile", last.physical_offset + 40).out
    assert "is not that of a record" in middle
    assert ": a record, V" not in middle
    past = run("dump", golden / "491_multifile", 1 << 40)
    assert (past.code, past.out) == (1, "")
    assert past.err == f"mqstore: no message starts at physical offset {1 << 40}: no segment of the log has this offset\n"
    assert start == 0


def test_a_queue_entry_is_shown_with_the_record_that_it_leads_to(copied: Callable[[str], Path], run: Callable[..., Any]) -> None:
    path = copied("498_mixed")
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        first, second = queue[0], queue[1]
        record = store.inspect.dump(second.physical_offset).to_arrow().to_pylist()
        rows = store.inspect.dump_entry("orders", 0, 1).to_arrow().to_pylist()
    assert [row["field"] for row in rows[:3]] == ["physical_offset", "size", "tags_code"]
    assert [row["value"] for row in rows[:2]] == [str(second.physical_offset), str(second.store_size)]
    assert rows[3:] == record
    file = path / "consumequeue" / "orders" / "0" / f"{0:020}"
    assert (rows[0]["file"], rows[0]["offset"], rows[0]["length"]) == (str(file), 20, 8)
    entries = bytearray(file.read_bytes())
    entries[20:40] = struct.pack(">qiq", first.physical_offset, 5, 77)
    file.write_bytes(entries)
    out = run("dump", path, "--entry", "orders/0@1").out
    assert "it leads to orders/0@0" in out
    assert f"the record has {first.store_size} bytes" in out
    assert "that of the record's tags is " in out


def test_the_chain_of_a_key_leads_to_the_messages_that_a_query_finds(golden: Path, run: Callable[..., Any]) -> None:
    for name in ("491_indexroll", "498_mixed", "551_mixed"):
        with mqstore.open(golden / name) as store:
            message = next(m for topic in store.topics.values() for queue in topic.queues for m in queue)
            topic, key = message.topic, message.keys[0] if message.keys else str(message.unique_key)
            found = {f"{hit.topic}/{hit.queue_id}@{hit.queue_offset}" for hit in store.query(topic, key, limit=None)}
            rows = store.inspect.dump_key(topic, key).to_arrow().to_pylist()
        records = [row for row in rows if row["field"].endswith(" record")]
        assert {row["value"].partition(",")[0] for row in records if key in row["value"].split()} >= found
        assert all(row["wrong"] is None for row in rows)
        slots = [row for row in rows if row["field"].startswith("slot ")]
        assert slots
        assert all(row["offset"] >= 40 and row["length"] == 4 for row in slots)
        ran = run("dump", golden / name, "--key", topic, key, "-n", 1)
        assert ran.code == 0
        assert ran.out.count(" record ") <= len(slots)


def test_a_broken_chain_is_said_where_it_breaks(copied: Callable[[str], Path]) -> None:
    path = copied("498_mixed")
    with mqstore.open(path) as store:
        message = next(m for m in store.topics["orders"].queues[0] if m.keys)
        rows = store.inspect.dump_key("orders", message.keys[0]).to_arrow().to_pylist()
    slot = next(row for row in rows if row["field"].startswith("slot ") and row["value"] != "no item")
    file = Path(slot["file"])
    data = bytearray(file.read_bytes())
    data[slot["offset"] : slot["offset"] + 4] = struct.pack(">i", 2_000_000_000)
    file.write_bytes(data)
    with mqstore.open(path) as store:
        wrong = [row["wrong"] for row in store.inspect.dump_key("orders", message.keys[0]).to_arrow().to_pylist() if row["wrong"]]
    assert wrong
    assert "the chain is broken" in wrong[0]


def test_the_command_asks_for_one_place_and_prints_hex(golden: Path, run: Callable[..., Any]) -> None:
    store = golden / "498_mixed"
    assert run("dump", store).code == 2
    assert run("dump", store, 0, "--entry", "orders/0@0").code == 2
    assert run("dump", store, "--entry", "orders/0").code == 2
    assert run("dump", store, "--entry", "orders/9@0").code == 1
    first = run("dump", store, 0, "--json").rows[1]
    assert (first["field"], first["offset"], first["length"], first["bytes"]) == ("magic", 4, 4, "da a3 20 a7")
    lines = run("dump", store, 0).out.splitlines()
    assert lines[0] == str(store / "commitlog" / f"{0:020}")
    assert lines[2].split()[:6] == ["4", "da", "a3", "20", "a7", "magic"]


def test_a_place_in_a_queue_is_refused_with_the_option_for_it(golden: Path, run: Callable[..., Any]) -> None:
    ran = run("dump", golden / "498_mixed", "orders/0@1")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("'orders/0@1' is not a physical offset: for a queue entry give --entry orders/0@1\n")
    assert run("dump", golden / "498_mixed", "-1").code == run("dump", golden / "498_mixed", "x").code == 2


def test_any_bytes_are_shown(copied: Callable[[str], Path]) -> None:
    path = copied("533_mixed")
    segment = path / "commitlog" / f"{0:020}"
    data = bytearray(segment.read_bytes())
    random = Random(16)
    for _ in range(400):
        at = random.randrange(len(data) - 8)
        data[at : at + 4] = random.choice(
            [random.randbytes(4), b"\xff" * 4, b"\0\0\0\x7f", b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"]
        )
    segment.write_bytes(data)
    with mqstore.open(path, errors="skip") as store:
        for offset in range(0, len(data), 5):
            rows = store.inspect.dump(offset).to_arrow().to_pylist()
            assert rows[0]["offset"] == offset
            assert all(row["offset"] + row["length"] == after["offset"] for row, after in pairwise(rows))
            assert all(data[row["offset"] :].startswith(row["bytes"]) for row in rows)
