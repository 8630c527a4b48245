"""Figures of the files of a store: the layout, a record, a queue with the index, and the checkpoint."""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from svg import Figure

import mqstore

#: Sizes so small that a figure shows all of a file.
OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "max_hash_slot_num": 5,
    "max_index_num": 16,
}
BORN = 1_790_000_000_000
MESSAGES = (
    ("orders", b"two shirts", "paid", "o-1"),
    ("payments", b"42.00", "card", "p-1"),
    ("orders", b"one hat", "paid", "o-2"),
    ("payments", b"7.50", "cash", "p-2"),
    ("orders", b"a scarf", "new", "o-7"),
)
LARGE = ("orders", bytes(3600), "large", "o-9")

#: The meaning of each file, by its path in the store; and its colour: the log, files derived from it, and settings.
MEANINGS = (
    (r"commitlog/\d{20}", "segment of the commit log: all messages, by arrival", "a"),
    (r"consumequeue/[^/]+/\d+/\d{20}", "queue entries: offset, size, tags code", "b"),
    (r"index/\d{17}", "hash index: from keys to offsets", "b"),
    (r"checkpoint", "times and offsets up to which files are on disk", "b"),
    (r"lock", "held by the writer; has mqstore's claim", "f"),
    (r"config/mqstore\.flushed", "up to which offset the log is on disk", "f"),
    (r"config/mqstore\.json", "the sizes of the files", "f"),
    (r"config/topics\.json", "the topics, as a broker keeps them", "f"),
)


def make(path: Path) -> None:
    """Makes the store that the figures show: five small messages, and a large one in a second segment."""
    with mqstore.open(path, "x", **OPTIONS) as store:
        for topic, body, tags, key in (*MESSAGES, LARGE):
            store.append(topic, body, tags=tags, keys=[key], born_time=BORN)


def rows(batch: Any) -> list[dict[str, Any]]:
    """Returns the rows of a batch as dicts."""
    found: list[dict[str, Any]] = batch.to_arrow().to_pylist()
    return found


def layout_facts(work: Path) -> dict[str, Any]:
    """Lists the files of a store."""
    make(work / "store")
    root = work / "store"
    files = sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())
    return {"files": [{"path": file, "bytes": (root / file).stat().st_size, **meaning(file)} for file in files]}


def meaning(path: str) -> dict[str, str]:
    """Returns what a file of a store is for."""
    return next({"about": about, "kind": kind} for pattern, about, kind in MEANINGS if re.fullmatch(pattern, path))


def draw_layout(facts: dict[str, Any]) -> Figure:
    """Draws the directories and files of a store."""
    figure = Figure("store-layout", "The files of a store")
    y, folder = 46, ""
    order = [kind for _, _, kind in MEANINGS]
    for file in sorted(facts["files"], key=lambda file: (order.index(file["kind"]), file["path"])):
        parent, _, name = file["path"].rpartition("/")
        if parent != folder:
            folder = parent
            if parent:
                figure.text(12, y, f"{parent}/", "mono bold")
                y += 16
        x = 24 if parent else 12
        figure.box(x, y - 10, 6, 24, f"{file['kind']} edge", radius=1)
        figure.text(x + 12, y, name, "mono", measured=folder == "index")
        figure.text(348, y, f"{file['bytes']:,} bytes", "small end")
        figure.text(x + 12, y + 13, file["about"], "small soft")
        y += 34
    for number, (kind, text) in enumerate((("a", "the log"), ("b", "derived from the log"), ("f", "settings and marks"))):
        figure.box((12, 76, 206)[number], y - 6, 10, 10, f"{kind} edge", radius=1)
        figure.text((26, 90, 220)[number], y + 3, text, "small")
    return figure


def record_facts(work: Path) -> dict[str, Any]:
    """Decodes the first record of a store, field by field."""
    make(work / "store")
    with mqstore.open(work / "store") as store:
        fields = rows(store.inspect.dump(0))
    names = ("offset", "length", "field", "value")
    return {"fields": [{name: field[name] for name in names} | {"bytes": field["bytes"].hex()} for field in fields]}


def draw_record(facts: dict[str, Any]) -> Figure:
    """Draws each byte of a record, and below them its fields."""
    figure = Figure("record", "A record of the log, byte by byte")
    across, cell = 12, 27
    colors = "abcef"
    for number, field in enumerate(facts["fields"]):
        data = bytes.fromhex(field["bytes"])
        for at, byte in enumerate(data, field["offset"]):
            x, y = 32 + at % across * cell, 36 + at // across * 19
            if at % across == 0:
                figure.text(28, y + 13, str(at), "mono soft end")
            figure.box(x, y, cell - 1, 18, colors[number % 5], radius=1)
            figure.text(x + cell / 2, y + 13, f"{byte:02x}", "mono middle", measured=field["field"] == "store_time")
    last = facts["fields"][-1]
    y = 36 + ((last["offset"] + last["length"] - 1) // across + 1) * 19 + 20
    figure.text(50, y, "at", "small soft end")
    figure.text(78, y, "size", "small soft end")
    figure.text(86, y, "field", "small soft")
    figure.text(232, y, "value", "small soft")
    for number, field in enumerate(facts["fields"]):
        y += 15
        figure.box(12, y - 9, 10, 10, f"{colors[number % 5]} edge", radius=1)
        figure.text(50, y, str(field["offset"]), "mono end")
        figure.text(78, y, str(field["length"]), "mono end")
        figure.text(86, y, field["field"], "small")
        figure.text(232, y, short(field["value"]), "small", measured=field["field"] == "store_time")
    return figure


def short(value: str) -> str:
    """Returns the value of a field in few words: of a time the time of the day."""
    time = re.fullmatch(r"\d+: \S+ (\S+ UTC)", value)
    return time[1] if time else value.replace(": a record, V1", ", V1")


def index_facts(work: Path) -> dict[str, Any]:
    """Reads the entries of a queue, the records and the items of the index."""
    make(work / "store")
    slots: dict[int, int] = {}
    items: dict[int, dict[str, int]] = {}
    with mqstore.open(work / "store") as store:
        entries = []
        for number in range(3):
            field = {row["field"]: row["value"] for row in rows(store.inspect.dump_entry("orders", 0, number))[:3]}
            entries.append({name: int(field[name]) for name in ("physical_offset", "size", "tags_code")})
        records = []
        for topic, _, _, key in MESSAGES:
            [message] = store.query(topic, key=key)
            records.append({"at": message.physical_offset, "size": message.store_size, "topic": topic, "key": key})
            for row in rows(store.inspect.dump_key(topic, key)):
                read_index_row(row, slots, items)
    return {
        "entries": entries,
        "records": records,
        "slots": {str(slot): item for slot, item in sorted(slots.items())},
        "items": {str(number): items[number] for number in sorted(items)},
    }


def read_index_row(row: dict[str, Any], slots: dict[int, int], items: dict[int, dict[str, int]]) -> None:
    """Adds what a row of `Inspect.dump_key` says to slots and items."""
    if slot := re.fullmatch(r"slot (\d+)", row["field"]):
        slots[int(slot[1])] = int(row["value"].removeprefix("item "))
    elif item := re.fullmatch(r"item (\d+) (key_hash|physical_offset|previous)", row["field"]):
        items.setdefault(int(item[1]), {})[item[2]] = int(row["value"])


def chain(facts: dict[str, Any]) -> tuple[int, list[int]]:
    """Returns the slot with the longest chain, and the items of the chain, the newest first."""
    chains = {}
    for slot, item in facts["slots"].items():
        found = [item]
        while previous := facts["items"][str(found[-1])]["previous"]:
            found.append(previous)
        chains[int(slot)] = found
    longest = max(chains, key=lambda slot: len(chains[slot]))
    return longest, chains[longest]


def draw_index(facts: dict[str, Any]) -> Figure:
    """Draws a queue above the log, and the index below it with one hash chain."""
    figure = Figure("queue-and-index", "A queue, the log, and a hash chain of the index")
    slot, linked = chain(facts)
    lane = [14 + 67 * number for number in range(5)]
    at = {record["at"]: x for record, x in zip(facts["records"], lane, strict=True)}
    figure.text(12, 44, "consume queue orders/0: an entry is 20 bytes", "small soft")
    for number, entry in enumerate(facts["entries"]):
        x = 14 + 114 * number
        figure.box(x, 52, 106, 46, "b edge")
        figure.text(x + 53, 66, f"queue offset {number}", "small bold middle")
        figure.text(x + 53, 79, f"at {entry['physical_offset']}, {entry['size']} bytes", "small middle")
        figure.text(x + 53, 92, f"tags {entry['tags_code']}", "small middle")
        figure.line([(x + 53, 98), (at[entry["physical_offset"]] + 31, 152)], arrow=True)
    figure.text(130, 128, "commit log", "small soft middle")
    for record, x in zip(facts["records"], lane, strict=True):
        figure.box(x, 154, 63, 46, "a edge")
        figure.text(x + 31.5, 168, f"at {record['at']}", "small bold middle")
        figure.text(x + 31.5, 181, record["topic"], "small middle")
        figure.text(x + 31.5, 194, f"key {record['key']}", "small middle")
    for number, item in facts["items"].items():
        if item["physical_offset"] in at:
            x = at[item["physical_offset"]]
            figure.line([(x + 31.5, 236), (x + 31.5, 202)], arrow=True)
            figure.box(x, 238, 63, 46, ("c" if int(number) in linked else "f") + " edge")
            figure.text(x + 31.5, 252, f"item {number}", "small bold middle")
            figure.text(x + 31.5, 265, f"{item['key_hash']}", "small middle")
            figure.text(x + 31.5, 278, f"previous {item['previous']}", "small middle")
    centre = {number: at[facts["items"][str(number)]["physical_offset"]] + 31.5 for number in linked}
    for newer, older in itertools.pairwise(linked):
        figure.arc((centre[newer] - 8, 284), (centre[older] + 8, 285), 24, "strong")
    figure.line([(14 + 67 * slot + 31.5, 348), (centre[linked[0]] + 6, 286)], "strong", arrow=True)
    for number, x in enumerate(lane):
        figure.box(x, 350, 63, 32, ("c" if number == slot else "f") + " edge")
        figure.text(x + 31.5, 363, f"slot {number}", "small bold middle")
        newest = facts["slots"].get(str(number), 0)
        figure.text(x + 31.5, 376, f"item {newest}" if newest else "empty", "small middle")
    figure.text(12, 400, f"index: {len(lane)} slots. A key goes to slot (hash mod {len(lane)}), which names", "small soft")
    figure.text(12, 413, "the newest item; each item names the previous one of its slot.", "small soft")
    return figure


#: Adds messages to a store, makes all but the last one durable, and dies.
_DIES = """
import os, sys, mqstore
store = mqstore.open(sys.argv[1], "a")
store.append("orders", b"a belt", tags="paid", keys=["o-4"])
store.append("orders", b"a coat", tags="paid", keys=["o-5"])
store.flush()
store.append("orders", b"a ring", tags="paid", keys=["o-6"])
store.wait_dispatched()
os._exit(1)
"""
FIELDS = (
    (0, "time: the log is on disk up to here", True),
    (8, "time: queues are on disk up to here", True),
    (16, "time: index files are on disk up to here", True),
    (40, "start of the last record with its queue entry", False),
    (48, "every key below is in the index", False),
    (56, "items in all index files", False),
    (72, "entries in all queue files", False),
    (80, "start of the log", False),
)


def checkpoint_facts(work: Path) -> dict[str, Any]:
    """Stamps a checkpoint, kills a later writer, and reads the checkpoint, the mark and what an open finds."""
    path = work / "store"
    with mqstore.open(path, "x", **OPTIONS) as store:
        for topic, body, tags, key in MESSAGES[:3]:
            store.append(topic, body, tags=tags, keys=[key], born_time=BORN)
    subprocess.run([sys.executable, "-c", _DIES, str(path)], check=False)
    stamped = (path / "checkpoint").read_bytes()
    with mqstore.open(path) as store:
        report = store.recovery
        starts = [row["physical_offset"] for batch in store.scan() for row in rows(batch)]
    return {
        "fields": {str(at): struct.unpack_from(">q", stamped, at)[0] for at, _, _ in FIELDS},
        "mark": struct.unpack_from(">q", (path / "config" / "mqstore.flushed").read_bytes(), 8)[0],
        "records": sorted(starts),
        "scan_start": report.scan_start,
        "log_end": report.log_end,
    }


def draw_checkpoint(facts: dict[str, Any]) -> Figure:
    """Draws a log after a crash, with the offsets that checkpoint and mark name."""
    figure = Figure("checkpoint", "What the checkpoint says after a crash")
    ends = [*facts["records"][1:], facts["log_end"]]
    width = 336 / len(ends)
    at = dict(zip([*facts["records"], facts["log_end"]], (12 + width * number for number in range(len(ends) + 1)), strict=True))
    for start, end in zip(facts["records"], ends, strict=True):
        kind = "b" if end <= facts["scan_start"] else "a" if end <= facts["mark"] else "c"
        figure.box(at[start] + 1, 40, width - 2, 32, f"{kind} edge")
        figure.text(at[start] + width / 2, 60, str(start), "small middle")
    notes = (
        (facts["fields"]["40"], "byte 40: the last record whose queue entry is on disk"),
        (facts["fields"]["48"], "byte 48: below it all keys are in the index"),
        (facts["scan_start"], "from here the next open reads the log"),
        (facts["mark"], "mark of what was flushed: below it all is on disk"),
        (facts["log_end"], "end of the log: no whole record follows"),
    )
    y = 102
    for named in sorted({offset for offset, _ in notes}):
        numbers = ", ".join(str(number) for number, (offset, _) in enumerate(notes, 1) if offset == named)
        figure.line([(at[named], 90), (at[named], 74)], arrow=True)
        figure.text(at[named], y, numbers, "small bold " + ("end" if named == facts["log_end"] else "middle"))
    for number, (offset, text) in enumerate(notes, 1):
        y += 16
        figure.text(12, y, str(number), "small bold")
        figure.text(50, y, str(offset), "mono end")
        figure.text(58, y, text, "small")
    y += 24
    for kind, text in (
        ("b", "stamped: not read again"),
        ("a", "on disk: not written again"),
        ("c", "kept if whole, else a torn end"),
    ):
        figure.box(12, y - 9, 10, 10, f"{kind} edge", radius=1)
        figure.text(28, y, text, "small")
        y += 16
    y += 12
    figure.text(12, y, "byte", "small soft")
    figure.text(44, y, "field of the checkpoint", "small soft")
    for offset, text, is_time in FIELDS:
        y += 16
        figure.text(12, y, str(offset), "mono")
        figure.text(44, y, text, "small")
        figure.text(348, y, str(facts["fields"][str(offset)]), "mono end", measured=is_time)
    return figure
