"""`errors="raise"` and `errors="skip"`: reading a store in which messages were lost or are damaged."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from encoder import EPOCH_MS, Encoder

import mqstore

MESSAGES = 300
LOST = [0, 77, 78, 150]
LEFT = [number for number in range(MESSAGES) if number not in LOST]


def damaged_store(path: Path, *, clean: bool) -> Encoder:
    """A store whose messages LOST have a flipped bit in their bodies."""
    encoder = Encoder(path)
    for number in range(MESSAGES):
        start = encoder.append("orders", b"important", keys=[f"k{number}"], store_time=EPOCH_MS + 1000 * number)
        if number in LOST:
            encoder.log[encoder.log.index(b"important", start)] ^= 1
    encoder.write(clean=clean)
    return encoder


@pytest.fixture(params=["damaged", "salvaged"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    encoder = damaged_store(tmp_path / "store", clean=request.param == "damaged")
    if request.param == "salvaged":
        with mqstore.open(encoder.path, mode="r+", recovery="salvage", max_hash_slot_num=200, max_index_num=2000) as store:
            assert len(store.recovery.lost) == 3
    return encoder.path


def numbers(messages: object) -> list[int]:
    return [message.queue_offset for message in messages]  # type: ignore[attr-defined]


def references() -> pa.Table:
    return pa.table({"topic": ["orders"] * MESSAGES, "queue_id": [0] * MESSAGES, "queue_offset": range(MESSAGES)})


def test_bulk_reads_raise_at_the_first_and_name_the_option(path: Path) -> None:
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        offsets = pa.table({"physical_offset": [0]})
        for read in (
            lambda: list(queue),
            lambda: list(reversed(queue)),
            lambda: list(queue[70:]),
            lambda: queue[:].batches().to_arrow(),
            lambda: queue[:].batches(errors="raise").to_arrow(),
            lambda: store.get("orders", 0, 0),
            lambda: store.fetch(offsets).to_arrow(),
        ):
            with pytest.raises((mqstore.CorruptError, mqstore.NotFoundError), match='errors="skip"'):
                read()


def test_bulk_reads_skip_and_count(path: Path) -> None:
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        batches = queue[:].batches(errors="skip", max_bytes=2000)
        assert batches.skipped == 0
        for _ in range(2):
            assert batches.to_arrow()["queue_offset"].to_pylist() == LEFT
            assert batches.skipped == len(LOST)
        result = store.get("orders", 0, 0, 1000, bounded=False, errors="skip")
        assert numbers(result) == LEFT
        assert (result.skipped, result.next_begin_offset) == (len(LOST), MESSAGES)
        offsets = [store.query("orders", f"k{n}", errors="skip")[0].physical_offset for n in (1, 2)]
        fetched = store.fetch(pa.table({"physical_offset": [offsets[0], 0, offsets[1], 5]}), errors="skip")
        assert fetched.to_arrow()["queue_offset"].to_pylist() == [1, 2]
        assert fetched.skipped == 2


def test_a_store_opened_to_skip_skips_where_the_call_does_not_say(path: Path) -> None:
    with mqstore.open(path, errors="skip") as store:
        assert pickle.loads(pickle.dumps(store)).get("orders", 0, 0).skipped > 0
        assert copy.copy(store).get("orders", 0, 0).skipped > 0
        queue = store.topics["orders"].queues[0]
        messages = iter(queue)
        assert numbers(messages) == LEFT
        assert messages.skipped == len(LOST)
        backward = reversed(queue)
        assert numbers(backward) == LEFT[::-1]
        assert backward.skipped == len(LOST)
        part = iter(queue[70:100])
        assert numbers(part) == [number for number in LEFT if 70 <= number < 100]
        assert part.skipped == 2
        assert pa.table(queue[:])["queue_offset"].to_pylist() == LEFT
        assert numbers(store.get("orders", 0, 0, 10)) == LEFT[:10]
        assert store.query("orders", "k77").skipped > 0
        with pytest.raises(mqstore.CorruptError):
            queue[:].batches(errors="raise").to_arrow()
        with pytest.raises(mqstore.CorruptError):
            queue[77]


def test_a_lookup_by_time_passes_over_what_cannot_be_read(path: Path) -> None:
    with mqstore.open(path, errors="skip") as store:
        queue = store.topics["orders"].queues[0]
        for number in range(MESSAGES):
            wanted = next(offset for offset in LEFT if offset >= number)
            assert queue.offset_at(EPOCH_MS + 1000 * number) == wanted


def test_what_was_lost_resolves_to_null_and_queries_count_it(tmp_path: Path) -> None:
    encoder = damaged_store(tmp_path / "store", clean=False)
    (encoder.path / "index" / "20260101003000000").unlink()
    with mqstore.open(encoder.path, mode="r+", recovery="salvage", max_hash_slot_num=200, max_index_num=2000):
        pass
    with mqstore.open(encoder.path) as store:
        resolved = pa.record_batch(store.resolve_offsets(references()))["physical_offset"].to_pylist()
        assert [number for number, offset in enumerate(resolved) if offset is None] == LOST
        assert store.topics["orders"].queues[0].offset_at(EPOCH_MS + 77_000) == 79
        for key, count in (("k77", 0), ("k79", 1)):
            for errors in (None, "raise", "skip"):
                found = store.query("orders", key, errors=errors)
                assert (len(found), found.complete, found.skipped) == (count, False, 3)
        times = pa.table({"topic": ["orders"], "queue_id": [0], "time": [EPOCH_MS + 77_000]})
        assert pa.record_batch(store.resolve_times(times))["queue_offset"].to_pylist() == [79]
        keys = pa.table({"topic": ["orders", "orders"], "key": ["k77", "k79"]})
        assert [hit is None for hit in pa.record_batch(store.resolve_keys(keys))["hits"].to_pylist()] == [True, False]


def test_a_query_raises_where_a_message_that_could_match_is_damaged(tmp_path: Path) -> None:
    path = damaged_store(tmp_path / "store", clean=True).path
    with mqstore.open(path) as store:
        with pytest.raises(mqstore.CorruptError, match='errors="skip"'):
            store.query("orders", "k77")
        found = store.query("orders", "k77", errors="skip")
        assert (len(found), found.complete, found.skipped > 0) == (0, False, True)


def test_keys_resolve_past_damage_where_that_is_asked_for(tmp_path: Path) -> None:
    path = damaged_store(tmp_path / "store", clean=True).path
    keys = pa.table({"topic": ["orders", "orders"], "key": ["k77", "k79"]})
    with mqstore.open(path) as store:
        for read in (lambda: store.resolve_keys(keys), lambda: store.resolve_keys(keys, errors="raise")):
            with pytest.raises(mqstore.CorruptError, match='errors="skip"'):
                read()
        skipped = pa.record_batch(store.resolve_keys(keys, errors="skip"))
        assert [hit is None for hit in skipped["hits"].to_pylist()] == [True, False]
        with pytest.raises(ValueError, match="errors"):
            store.resolve_keys(keys, errors="ignore")  # type: ignore[arg-type]
    with mqstore.open(path, errors="skip") as store:
        assert pa.record_batch(store.resolve_keys(keys)).equals(skipped)
        with pytest.raises(mqstore.CorruptError):
            store.resolve_keys(keys, errors="raise")


@pytest.mark.parametrize(("value", "error"), [("ignore", ValueError), (1, TypeError)])
def test_another_value_is_refused_by_name(path: Path, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="errors"):
        mqstore.open(path, errors=value)  # type: ignore[arg-type]
    with mqstore.open(path) as store:
        part = store.topics["orders"].queues[0][:]
        offsets = pa.table({"physical_offset": [0]})
        for call in (
            lambda: part.batches(errors=value),  # type: ignore[arg-type]
            lambda: store.get("orders", 0, 0, errors=value),  # type: ignore[arg-type]
            lambda: store.query("orders", "k1", errors=value),  # type: ignore[call-overload]
            lambda: store.fetch(offsets, errors=value),  # type: ignore[arg-type]
        ):
            with pytest.raises(error, match="errors"):
                call()
