"""Random stores, damaged, with files removed and salvaged: every reading call is compared with a full list of what was stored.

A result may have gaps where something is gone. It never holds anything else, and a complete result has no gap.
`MQSTORE_DIFFERENTIAL=1000` tries that many stores.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mqstore

STORES = int(os.environ.get("MQSTORE_DIFFERENTIAL", "12"))
SEGMENT = 16_384
GONE = (mqstore.CorruptError, mqstore.NotFoundError)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def as_row(message: mqstore.Message) -> dict[str, Any]:
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_time", "keys", "tags", "body")
    return {name: getattr(message, name) for name in names}


def as_rows(messages: Iterable[mqstore.Message]) -> list[dict[str, Any]]:
    return [as_row(message) for message in messages]


class Model:
    """A store, everything that was ever stored in it, and the random numbers."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.dice = path, random.Random(seed)
        self.options = {
            "mapped_file_size_commit_log": SEGMENT,
            "mapped_file_size_consume_queue": self.dice.choice([1_000, 2_000]),
            "max_hash_slot_num": self.dice.choice([10, 100]),
            "max_index_num": self.dice.choice([40, 400]),
            "index_tags": self.dice.random() < 0.5,
        }
        self.rows: list[dict[str, Any]] = []
        with mqstore.open(path, mode="x", **self.options) as store:
            self.append(store, self.dice.randrange(50, 250))

    def append(self, store: mqstore.Store, count: int) -> None:
        dice = self.dice
        for _ in range(count):
            appended = store.append(
                dice.choice("ab"),
                dice.randbytes(dice.choice([1, 10, 300, dice.randrange(1, 6_000)])),
                queue_id=dice.randrange(2),
                keys=dice.sample(["hot", "k1", "k2", "k3"], dice.randrange(3)),
                tags=dice.choice([None, "x", "y"]),
            )
            self.rows.append(as_row(store.message_at(appended.physical_offset)))

    def segments(self) -> list[Path]:
        return sorted((self.path / "commitlog").iterdir())

    def files(self, name: str) -> list[Path]:
        return sorted(file for file in (self.path / name).rglob("*") if file.is_file())

    def remove(self) -> None:
        """Removes files as retention and the deletion of a topic do, or a partial copy."""
        kind = self.dice.randrange(6)
        if kind == 0:
            for segment in self.segments()[:-1][: self.dice.randrange(1, 4)]:
                segment.unlink()
        elif kind == 1 and len(self.segments()) > 1:
            self.dice.choice(self.segments()).unlink()
        elif kind == 2 and self.files("consumequeue"):
            self.dice.choice(self.files("consumequeue")).unlink()
        elif kind == 3:
            shutil.rmtree(self.path / "consumequeue" / self.dice.choice("ab"), ignore_errors=True)
        elif kind == 4 and self.files("index"):
            self.dice.choice(self.files("index")).unlink()
        elif kind == 5:
            shutil.rmtree(self.path / "index", ignore_errors=True)

    def spoil(self) -> None:
        """Damages some records so that every reader can see it: no checksum covers topic and properties."""
        kind, first = self.dice.randrange(4), self.dice.randrange(len(self.rows))
        rows = self.rows[first : first + self.dice.randrange(1, 4)]
        for row in rows:
            if kind == 0:
                self.write(row["physical_offset"], bytes(row["store_size"]))
            elif kind == 1:
                self.write(row["physical_offset"] + self.dice.randrange(8), b"\x55")
            elif kind == 2:
                self.write(row["physical_offset"] + 88, bytes([row["body"][0] ^ 1]))
        if kind == 3:
            os.truncate(self.segments()[-1], self.dice.randrange(SEGMENT))

    def write(self, physical_offset: int, damage: bytes) -> None:
        segment = self.path / "commitlog" / f"{physical_offset // SEGMENT * SEGMENT:020}"
        if segment.exists() and physical_offset % SEGMENT + len(damage) <= segment.stat().st_size:
            with segment.open("r+b") as file:
                file.seek(physical_offset % SEGMENT)
                file.write(damage)

    def readable(self, store: mqstore.Store) -> list[dict[str, Any]]:
        """Returns what can be read at its place, which is all that was not damaged or removed."""
        found = []
        for row in self.rows:
            try:
                found.append(as_row(store.message_at(row["physical_offset"])))
            except GONE:
                continue
            assert found[-1] == row
            assert store.min_physical_offset <= row["physical_offset"] < store.max_physical_offset
        return found


def attempt(read: Callable[[], Any]) -> Any:
    """Returns what was read, or None where it is gone."""
    try:
        return read()
    except (*GONE, IndexError):
        return None


def check_queries(model: Model, store: mqstore.Store, readable: list[dict[str, Any]]) -> None:
    bounds = store.min_physical_offset, store.max_physical_offset
    wanted: list[tuple[str, dict[str, str]]] = [
        (topic, by) for topic in "ab" for by in ({"key": "hot"}, {"key": "k1"}, {"tag": "x"}, {"key": "none"})
    ]
    for topic, by in wanted:
        matching = [
            row
            for row in model.rows
            if row["topic"] == topic and (by.get("key") in row["keys"] or ("tag" in by and row["tags"] == by["tag"]))
        ]
        for limit in (None, 3):
            result = store.query(topic, **by, limit=limit, errors="skip")  # type: ignore[call-overload]
            begin, end = result.covers
            assert bounds[0] <= begin <= end <= bounds[1]
            found = as_rows(result)
            assert all(row in matching for row in found)
            if result.complete or (limit == len(found) and not result.skipped):
                covered = [row for row in matching if begin <= row["physical_offset"] < end]
                assert found == covered[-(limit or len(model.rows)) :]
        if "key" in by:
            resolved = attempt(lambda topic=topic, by=by: store.resolve_keys(pa.table({"topic": [topic], "key": [by["key"]]})))
            if resolved is not None:
                hits = pa.record_batch(resolved)["hits"].to_pylist()[0] or []
                places = [hit["physical_offset"] for hit in hits]
                assert set(places) <= {row["physical_offset"] for row in matching}
                assert set(places) >= {row["physical_offset"] for row in matching if row in readable}


def pulled(store: mqstore.Store, queue: mqstore.Queue, tags: str | None) -> Iterator[dict[str, Any]]:
    """Reads as a consumer does that asks from the first message until nothing is left."""
    offset = queue.min_offset
    while offset < queue.max_offset:
        result = store.get(queue.topic, queue.queue_id, offset, 7, tags=tags, errors="skip")
        assert result.next_begin_offset > offset
        yield from as_rows(result)
        offset = result.next_begin_offset


def check_queue(model: Model, store: mqstore.Store, queue: mqstore.Queue) -> None:
    stored = {row["queue_offset"]: row for row in model.rows if (row["topic"], row["queue_id"]) == (queue.topic, queue.queue_id)}
    offsets = range(queue.min_offset, queue.max_offset)
    rows = []
    for offset in offsets:
        message = attempt(lambda offset=offset: queue[offset])
        if message is not None:
            assert as_row(message) == stored[offset]
            rows.append(stored[offset])
    forward, backward = iter(queue), reversed(queue)
    assert as_rows(forward) == rows
    assert as_rows(backward) == rows[::-1]
    batches = queue[:].batches(errors="skip", max_bytes=2_000)
    table = batches.to_arrow()
    assert table["queue_offset"].to_pylist() == [row["queue_offset"] for row in rows]
    assert table["body"].to_pylist() == [row["body"] for row in rows]
    assert forward.skipped == backward.skipped == batches.skipped
    strict = attempt(lambda: queue[:].batches(errors="raise").to_arrow())
    assert (strict is None) == (forward.skipped > 0)
    for tags in (None, "x"):
        wanted = [row for row in rows if tags in (None, row["tags"])]
        assert list(pulled(store, queue, tags)) == wanted
        if offsets:
            at_once = store.get(queue.topic, queue.queue_id, offsets.start, 10**6, tags=tags, errors="skip", bounded=False)
            assert at_once.status == "OFFSET_FOUND_NULL" or as_rows(at_once) == wanted
    for row in rows[:: max(1, len(rows) // 3)]:
        left = next(other for other in rows if other["store_time"] >= row["store_time"])
        right = next((other["queue_offset"] for other in rows if other["store_time"] > row["store_time"]), offsets.stop)
        assert queue.offset_at(row["store_time"]) == left["queue_offset"]
        assert queue.offset_at(row["store_time"], side="right") == right
        moment = pa.table({"topic": [queue.topic], "queue_id": [queue.queue_id], "time": [row["store_time"]]})
        assert pa.record_batch(store.resolve_times(moment))["queue_offset"].to_pylist() == [left["queue_offset"]]
        assert pa.record_batch(store.resolve_times(moment, side="right"))["queue_offset"].to_pylist() == [right]
        ids = pa.table({"id": [f"0A00000100002A9F{row['physical_offset']:016X}"]})
        assert pa.record_batch(store.resolve_ids(ids))["physical_offset"].to_pylist() == [row["physical_offset"]]
    asked = pa.table(
        {"topic": [queue.topic] * len(offsets), "queue_id": [queue.queue_id] * len(offsets), "queue_offset": offsets}
    )
    resolved = pa.record_batch(store.resolve_offsets(asked))["physical_offset"].to_pylist()
    places = dict(zip(offsets, resolved, strict=True))
    assert all(places[row["queue_offset"]] == row["physical_offset"] for row in rows)
    assert all(place is None or place == stored[offset]["physical_offset"] for offset, place in places.items())


def check(model: Model, store: mqstore.Store) -> list[dict[str, Any]]:
    readable = model.readable(store)
    check_queries(model, store, readable)
    for topic in store.topics.values():
        for queue in topic.queues:
            check_queue(model, store, queue)
    return readable


def check_beside_retention(model: Model) -> None:
    with mqstore.open(model.path, errors="skip") as store:
        check(model, store)
        model.remove()
        # The first pass finds out what is gone; what was mapped before is readable until then.
        model.readable(store)
        for topic in store.topics.values():
            for queue in topic.queues:
                for offset in range(queue.max_offset):
                    attempt(lambda queue=queue, offset=offset: queue[offset])
        check(model, store)


def check_salvaged(model: Model) -> None:
    segments = model.segments()
    os.truncate(segments[-1], SEGMENT)  # the remedy in the error about a file that is cut short
    if int(segments[-1].name) - int(segments[0].name) >= SEGMENT * len(segments):
        with pytest.raises(mqstore.CorruptError, match="put it back"):
            mqstore.open(model.path, mode="r+", recovery="salvage", **model.options)
        return
    with mqstore.open(model.path, mode="r+", recovery="salvage", **model.options) as store:
        model.rows = [row for row in model.rows if row["physical_offset"] < store.max_physical_offset]
        model.append(store, model.dice.randrange(20))
        left = model.readable(store)
    with mqstore.open(model.path, errors="skip") as store:
        assert check(model, store) == left


@pytest.mark.parametrize("seed", range(STORES))
def test_no_answer_holds_what_was_not_stored_or_says_complete_and_is_not(tmp_path: Path, seed: int) -> None:
    model = Model(tmp_path / "store", seed)
    with mqstore.open(model.path, errors="skip") as store:
        assert check(model, store) == model.rows
    for _ in range(model.dice.randrange(3)):
        model.remove()
    for _ in range(model.dice.randrange(3)):
        model.spoil()
    if model.dice.random() < 0.4:
        (model.path / "abort").touch()
    for phase in (check_beside_retention, check_salvaged, check_salvaged):
        phase(model)
        model.spoil()
