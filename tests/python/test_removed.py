"""A broker's retention removes files under an open reader: every reading call answers."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from encoder import EPOCH_MS, Encoder

import mqstore

MESSAGES = 700
SEGMENT = 16_384


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    encoder = Encoder(tmp_path / "store")
    for number in range(MESSAGES):
        encoder.append("orders", b"x" * 100, keys=[f"k{number}"], store_time=EPOCH_MS + 1000 * number)
    encoder.write()
    return encoder


def remove_oldest_segments(path: Path) -> None:
    for start in (0, SEGMENT):
        (path / "commitlog" / f"{start:020}").unlink()


def remove_a_queue_file(path: Path) -> None:
    (path / "consumequeue" / "orders" / "0" / f"{0:020}").unlink()


def remove_a_topic(path: Path) -> None:
    shutil.rmtree(path / "consumequeue" / "orders")


def remove_the_index(path: Path) -> None:
    shutil.rmtree(path / "index")


def remove_everything(path: Path) -> None:
    for name in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(path / name)


def numbers(messages: object) -> list[int]:
    return [message.queue_offset for message in messages]  # type: ignore[attr-defined]


def all_calls(store: mqstore.Store, starts: list[int]) -> None:
    """Calls everything that a reader answers, and checks each answer."""
    queue = store.topics["orders"].queues[0]
    assert list(store.topics) == ["orders"]
    # The first pass finds out what is gone; what was mapped before is readable until then.
    for _ in queue:
        pass
    left = numbers(queue)
    assert left == sorted(set(left))
    assert numbers(reversed(queue)) == left[::-1]
    assert numbers(queue[100:400]) == [offset for offset in left if 100 <= offset < 400]
    assert queue.min_offset == (left[0] if left else MESSAGES)
    assert queue.max_offset == MESSAGES
    table = queue[:].batches().to_arrow()
    assert table["queue_offset"].to_pylist() == left
    assert pa.table(queue[:])["queue_offset"].to_pylist() == left
    for offset in range(0, MESSAGES, 13):
        result = store.get("orders", 0, offset)
        assert set(numbers(result)) <= set(left)
        assert result.next_begin_offset > offset or result.status == "OFFSET_OVERFLOW_BADLY"
        after = [number for number in left if number >= offset]
        assert queue.offset_at(EPOCH_MS + 1000 * offset) == (after[0] if after else MESSAGES)
        for read in (lambda n=offset: store.message_at(starts[n]), lambda n=offset: store.message(f"k{n}")):
            with contextlib.suppress(mqstore.NotFoundError):
                assert read().queue_offset == offset
        try:
            assert queue[offset].queue_offset == offset
            assert offset in left
        except (mqstore.NotFoundError, IndexError):
            assert offset not in left
        found = store.query("orders", f"k{offset}")
        assert numbers(found) in ([], [offset])
        assert found or not found.complete or found.covers[0] > starts[offset]
    wanted = pa.table({"topic": ["orders"] * MESSAGES, "queue_id": [0] * MESSAGES, "queue_offset": range(MESSAGES)})
    resolved = pa.record_batch(store.resolve_offsets(wanted))["physical_offset"].to_pylist()
    assert resolved == [starts[n] if n in left else None for n in range(MESSAGES)]
    keys = pa.table({"topic": ["orders"] * MESSAGES, "key": [f"k{n}" for n in range(MESSAGES)]})
    hits = pa.record_batch(store.resolve_keys(keys))["hits"].to_pylist()
    assert all(hit is None or [row["queue_offset"] for row in hit] == [n] for n, hit in enumerate(hits))
    fetched = store.fetch(pa.table({"physical_offset": starts}), errors="skip")
    assert set(left) <= set(fetched.to_arrow()["queue_offset"].to_pylist())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "remove", [remove_oldest_segments, remove_a_queue_file, remove_a_topic, remove_the_index, remove_everything]
)
def test_every_reading_call_answers_when_files_go_under_a_reader(
    encoder: Encoder, remove: Callable[[Path], None], clean: bool
) -> None:
    starts = [int.from_bytes(entry[:8], "big") for entry in encoder.queues["orders", 0]]
    if not clean:
        (encoder.path / "abort").touch()
    with mqstore.open(encoder.path) as store:
        remove(encoder.path)
        all_calls(store, starts)
        all_calls(store, starts)


def test_the_first_pull_after_retention_moves_and_the_next_is_too_small(encoder: Encoder) -> None:
    with mqstore.open(encoder.path) as store:
        remove_oldest_segments(encoder.path)
        first = store.get("orders", 0, 0)
        assert (first.status, first.next_begin_offset, len(first)) == ("MESSAGE_WAS_REMOVING", 50, 0)
        second = store.get("orders", 0, 0)
        assert second.status == "OFFSET_TOO_SMALL"
        assert second.next_begin_offset == second.min_offset == store.topics["orders"].queues[0].min_offset > 50
        assert store.get("orders", 0, second.min_offset).status == "FOUND"


def test_a_query_says_that_what_it_missed_is_gone(encoder: Encoder) -> None:
    with mqstore.open(encoder.path) as store:
        remove_oldest_segments(encoder.path)
        gone = store.query("orders", "k0")
        assert (len(gone), gone.complete, gone.covers[0]) == (0, False, 2 * SEGMENT)
        there = store.query("orders", "k600")
        assert (len(there), there.complete, there.covers[0]) == (1, True, 2 * SEGMENT)


def test_a_removed_queue_file_hides_its_entries_until_the_next_open(tmp_path: Path) -> None:
    sizes = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 2000}
    with mqstore.open(tmp_path / "store", mode="x", **sizes) as store:
        for _ in range(250):
            store.append("orders", b"x")
    reader = mqstore.open(tmp_path / "store")
    queue = reader.topics["orders"].queues[0]
    remove_a_queue_file(tmp_path / "store")
    with pytest.raises(mqstore.NotFoundError, match="100 to 250"):
        queue[5]
    result = reader.get("orders", 0, 5)
    assert (result.status, result.next_begin_offset, queue.min_offset) == ("OFFSET_TOO_SMALL", 100, 100)
    assert mqstore.open(tmp_path / "store").topics["orders"].queues[0][5].body == b"x"
