"""Readers of a store beside a broker, for test_beside_a_broker.py: one kind of reader in a process of its own.

The standard input has the producers' reports of their messages, a line of JSON each; its end ends the reader. Each
message that was read is examined, and its number and place go to a file, a line of JSON each.
"""

from __future__ import annotations

import json
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

import pyarrow as pa
from broker import Ack, Place

import mqstore

#: Where the producers send messages: with how many queues. The last topic is deleted from time to time, and made again.
TOPICS = {"orders": 4, "payments": 1, "victim": 2}
VICTIM = "victim"
TAGS = ("paid", "open", "refund")

#: The columns of a message.
Row: TypeAlias = dict[str, Any]

over = threading.Event()
#: Acknowledgements that no reader has asked for yet.
heard: SimpleQueue[Ack] = SimpleQueue()


def number_of(row: Row) -> int:
    """The number of a message, each byte of which is as it was sent."""
    number, crc, filler = row["body"].split(b" ", 2)
    found, check = int(number), zlib.crc32(filler)
    topic = list(TOPICS)[found % len(TOPICS)]
    expected = {
        "topic": topic,
        "queue_id": found // len(TOPICS) % TOPICS[topic],
        "tags": TAGS[found % len(TAGS)],
        "keys": [f"k{found}"],
        "check": f"{check:x}",
        "long": "v" * (1 + found % 300),
    }
    given = {**dict(row["properties"]), **row}
    assert {name: given.get(name) for name in expected} == expected, f"message {found} at {row['physical_offset']} is torn: {row}"
    assert int(crc, 16) == check, f"message {found} at {row['physical_offset']} has another body"
    return found


def row_of(message: mqstore.Message) -> Row:
    return message.to_dict() | {"body": message.decoded_body}


def rows_of(batches: mqstore.Batches) -> list[Row]:
    rows: list[Row] = batches.to_arrow().to_pylist()
    return rows


def follow(path: Path) -> Iterator[Row]:
    """The whole log, as it grows."""
    with mqstore.open(path) as store:
        yield from until_over(store.follow(start="earliest", timeout=0.5))


def follow_topic(path: Path) -> Iterator[Row]:
    with mqstore.open(path) as store:
        yield from until_over(store.follow("payments", start="earliest", timeout=0.5))


def tail(path: Path) -> Iterator[Row]:
    """A queue, as it grows."""
    with mqstore.open(path) as store:
        before = None
        for row in until_over(store.topics["orders"].queues[0].tail(0.5, start="earliest")):
            if before is not None and row["queue_offset"] != before["queue_offset"] + 1:
                store.refresh()
                assert store.min_physical_offset > before["physical_offset"], f"{row} comes after {before}"
            before = row
            yield row


def until_over(messages: Iterator[mqstore.Message]) -> Iterator[Row]:
    while True:
        is_over = over.is_set()
        yield from map(row_of, messages)
        if is_over:
            return


def tail_victim(path: Path) -> Iterator[Row]:
    """A queue that is deleted and begins again."""
    with mqstore.open(path) as store:
        next_offset = 0
        while not over.wait(0.01):
            store.refresh()
            if VICTIM not in store.topics:
                continue
            try:
                for message in store.topics[VICTIM].queues[0].tail(0.1, start=next_offset):
                    next_offset = message.queue_offset + 1
                    yield row_of(message)
            except mqstore.NotFoundError:
                next_offset = 0


def scan(path: Path) -> Iterator[Row]:
    """Counts the messages of each refresh."""
    with mqstore.open(path) as store:
        seen, is_over = 0, False
        while not is_over:
            is_over = over.wait(0.01)
            store.refresh()
            end = store.max_physical_offset
            yield from rows_of(store.scan(physical=(seen, end), decode_body=True))
            seen = end


def reopen(path: Path) -> Iterator[Row]:
    """Reads the newest messages, each time from a store that is opened again."""
    while not over.wait(0.05):
        with mqstore.open(path) as store:
            yield from rows_of(store.scan(reverse=True, limit=50, decode_body=True))
            for queue in store.topics["orders"].queues:
                yield from map(row_of, queue[-5:])


def verify(path: Path) -> Iterator[Row]:
    """The whole store, and the newest message that it had."""
    while not over.wait(0.05):
        with mqstore.open(path) as store:
            wrong = [finding.to_dict() for finding in store.verify().findings if finding.severity == "error"]
            assert not wrong, f"verify finds {wrong[:3]}"
            yield from rows_of(store.scan(reverse=True, limit=1, decode_body=True))


def look_up(ask: Callable[[mqstore.Store, list[Ack]], Iterator[Row | None]]) -> Callable[[Path], Iterator[Row]]:
    """A reader that looks for each message that was acknowledged. `ask` gives one for each, or None."""

    def looking(path: Path) -> Iterator[Row]:
        with mqstore.open(path) as store:
            while wanted := some_acks():
                store.refresh()
                for ack, row in zip(wanted, ask(store, wanted), strict=True):
                    if row is not None and row["physical_offset"] == ack["physical_offset"]:
                        yield row
                    elif ack["topic"] != VICTIM:
                        store.refresh()
                        assert ack["physical_offset"] < store.min_physical_offset, f"{ack} is not found, but {row}"

    return looking


def some_acks() -> list[Ack]:
    """Returns the reports since the last call; nothing at the end."""
    found: list[Ack] = []
    while not found and not (over.wait(0.01) and heard.empty()):
        try:
            while len(found) < 500:
                found.append(heard.get_nowait())
        except Empty:
            pass
    return found


def by_offset(store: mqstore.Store, wanted: list[Ack]) -> Iterator[Row | None]:
    for ack in wanted:
        found = store.get(ack["topic"], ack["queue_id"], ack["queue_offset"], max_messages=1).messages
        yield row_of(found[0]) if found and found[0].queue_offset == ack["queue_offset"] else None


def by_key(store: mqstore.Store, wanted: list[Ack]) -> Iterator[Row | None]:
    for ack in wanted:
        found = store.query(ack["topic"], f"k{ack['acked']}")
        assert len(found) <= 1, f"{ack} is found {len(found)} times"
        yield row_of(found[0]) if len(found) else None


def by_id(store: mqstore.Store, wanted: list[Ack]) -> Iterator[Row | None]:
    for ack in wanted:
        try:
            yield row_of(store.message(ack["message_id"]))
        except mqstore.NotFoundError:
            yield None


def by_resolving(store: mqstore.Store, wanted: list[Ack]) -> Iterator[Row | None]:
    """All three kinds of reference must lead to the same messages."""
    asked = pa.Table.from_pylist([{"key": f"k{ack['acked']}", "id": ack["unique_key"]} | ack for ack in wanted])
    by_offset = column(store.resolve_offsets(asked), "physical_offset")
    by_id = column(store.resolve_ids(asked), "physical_offset")
    by_key = column(store.resolve_keys(asked), "hits")
    rows: dict[int, Row] = {}
    offsets = pa.table({"physical_offset": pa.array({*by_offset, *by_id} - {None}, pa.int64())})
    for row in rows_of(store.fetch(offsets, errors="skip")):
        is_compressed = row["sys_flag"] & 1
        rows[row["physical_offset"]] = row | {"body": zlib.decompress(row["body"])} if is_compressed else row
    for ack, *found, hits in zip(wanted, by_offset, by_id, by_key, strict=True):
        found.append(hits[0]["physical_offset"] if hits else None)
        # Only references to a message that expires or is deleted during the read lead nowhere.
        yield rows.get(found[0]) if found == [ack["physical_offset"]] * 3 else None


def column(batch: mqstore.RecordBatch, name: str) -> list[Any]:
    values: list[Any] = batch.to_arrow()[name].to_pylist()
    return values


ROLES: dict[str, Callable[[Path], Iterator[Row]]] = {
    "follow": follow,
    "follow_topic": follow_topic,
    "tail": tail,
    "tail_victim": tail_victim,
    "scan": scan,
    "reopen": reopen,
    "verify": verify,
    "by_offset": look_up(by_offset),
    "by_key": look_up(by_key),
    "by_id": look_up(by_id),
    "by_resolving": look_up(by_resolving),
}


def listen() -> None:
    for line in sys.stdin:
        heard.put(json.loads(line))
    over.set()


def main(role: str, path: Path, found: Path) -> None:
    """Reads until the standard input ends."""
    threading.Thread(target=listen, daemon=True).start()
    print("ready", flush=True)
    with found.open("w") as file:
        for row in ROLES[role](path):
            if row["topic"] in TOPICS:  # a broker writes some of its own
                file.write(json.dumps([number_of(row), *astuple(Place.of(row))]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
