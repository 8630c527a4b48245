"""Log usage, equal to a count by hand for any content, and the files of a store one by one."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import GOLDEN
from encoder import EPOCH_MS, Encoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mqstore

NAMES = ["topic", "queue_id", "tags", "hour", "segment"]
TIME = pa.timestamp("us", tz="UTC")
TYPES = dict(zip(NAMES, [pa.string(), pa.int32(), pa.string(), TIME, pa.int64()], strict=True))
COUNTS = [("messages", pa.int64()), ("bytes", pa.int64()), ("first_store_time", TIME), ("last_store_time", TIME)]
SEGMENT = 16_384


def walked(store: mqstore.Store, segment_size: int) -> Iterator[mqstore.Message]:
    """Every message of the log, read one by one."""
    at = store.min_physical_offset
    while at < store.max_physical_offset:
        try:
            message = store.message_at(at)
        except mqstore.NotFoundError:  # The BLANK at the end of a segment.
            at = (at // segment_size + 1) * segment_size
            continue
        yield message
        at += message.store_size


def by_hand(store: mqstore.Store, by: list[str], segment_size: int) -> list[dict[str, object]]:
    groups: dict[tuple[object, ...], list[mqstore.Message]] = {}
    for message in walked(store, segment_size):
        shared = {
            "topic": message.topic,
            "queue_id": message.queue_id,
            "tags": message.tags,
            "hour": message.store_time.replace(minute=0, second=0, microsecond=0),
            "segment": message.physical_offset // segment_size * segment_size,
        }
        groups.setdefault(tuple(shared[name] for name in by), []).append(message)
    counts = [
        dict(zip(by, shared, strict=True))
        | {
            "messages": len(messages),
            "bytes": sum(message.store_size for message in messages),
            "first_store_time": min(message.store_time for message in messages),
            "last_store_time": max(message.store_time for message in messages),
        }
        for shared, messages in groups.items()
    ]
    # Names in the order of their UTF-8; messages without tags come first.
    return sorted(counts, key=lambda row: [("",) if row[name] is None else (row[name], "") for name in by])


def rows(usage: mqstore.RecordBatch) -> list[dict[str, object]]:
    return usage.to_arrow().to_pylist()  # type: ignore[no-any-return]


def check(store: mqstore.Store, segment_size: int) -> None:
    for by in [["topic"], [], NAMES, ["tags", "topic"], ["hour"], ["queue_id", "segment"]]:
        usage = store.usage(by)
        assert rows(usage) == by_hand(store, by, segment_size)
        assert (usage.complete, usage.unread) == (True, [])
        assert usage.covers == (store.min_physical_offset, store.max_physical_offset)


SMALL = sorted(path.name for path in GOLDEN.iterdir() if (path / "commitlog").is_dir())


@pytest.mark.parametrize("name", SMALL)
def test_it_equals_a_count_by_hand_on_every_store_that_rocketmq_wrote(golden: Path, name: str) -> None:
    with mqstore.open(golden / name) as store:
        check(store, SEGMENT)


def test_it_equals_a_count_by_hand_on_a_whole_broker_and_on_all_events(broker: Path, events: Path) -> None:
    for path in (broker, events):
        with mqstore.open(path) as store:
            check(store, 1 << 20)
            queues = {
                (topic.name, queue.queue_id): len(queue)
                for topic in store.topics.values()
                for queue in topic.queues
                if len(queue)
            }
            counted = {(row["topic"], row["queue_id"]): row["messages"] for row in rows(store.usage(("topic", "queue_id")))}
            assert counted == queues


PUTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "Café", "a\u00e9", "%RETRY%g"]),
        st.integers(0, 3),
        st.sampled_from([None, "x", "y z", "订单"]),
        st.integers(0, 5 * 3_600_000),
        st.integers(0, 900),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(puts=PUTS)
def test_it_is_what_a_count_by_hand_gives_on_any_store(tmp_path_factory: pytest.TempPathFactory, puts: list[tuple]) -> None:
    encoder = Encoder(tmp_path_factory.mktemp("any") / "store", segment_size=4096)
    for topic, queue, tags, later, size in puts:
        encoder.append(topic, b"x" * size, queue_id=queue, tags=tags, store_time=EPOCH_MS + later)
    with mqstore.open(encoder.write()) as store:
        check(store, 4096)


def test_columns_have_the_documented_names_and_types(golden: Path) -> None:
    with mqstore.open(golden / "498_mixed") as store:
        for by in (NAMES, ["hour", "topic"], []):
            schema = pa.schema([*((name, TYPES[name]) for name in by), *COUNTS])
            assert store.usage(by).to_arrow().schema.equals(schema)
        assert store.usage().column_names == ["topic", *(name for name, _ in COUNTS)]
        assert store.usage("tags").column_names[0] == "tags"
        assert rows(store.usage(name for name in ["topic"])) == rows(store.usage())
        segments = [("segment", pa.int64()), ("bytes", pa.int64()), ("sealed", pa.bool_()), ("first_store_time", TIME)]
        assert store.inspect.segments().to_arrow().schema.equals(pa.schema(segments))


@pytest.mark.parametrize(
    ("by", "error", "words"),
    [
        ("topics", ValueError, 'by names "topics": expected some of topic, queue_id, tags, hour, segment'),
        (["topic", "topic"], ValueError, 'by names "topic" twice'),
        ([7], TypeError, "by holds 7, no name"),
        (7, TypeError, "by is a sequence of names"),
        (None, TypeError, "by is a sequence of names"),
        ("\ud800", ValueError, "by names"),
    ],
)
def test_an_invalid_name_is_refused(golden: Path, by: object, error: type[Exception], words: str) -> None:
    with mqstore.open(golden / "498_mixed") as store, pytest.raises(error) as raised:
        store.usage(by)  # type: ignore[arg-type]
    assert words in str(raised.value)


def test_what_iterating_the_names_raises_is_raised(golden: Path) -> None:
    def names() -> Iterator[str]:
        yield "topic"
        raise KeyError("mine")

    with mqstore.open(golden / "498_mixed") as store, pytest.raises(KeyError, match="mine"):
        store.usage(names())  # type: ignore[arg-type]


def test_damage_is_raised_or_said(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    starts = [encoder.append("orders", b"x" * 50) for _ in range(100)]
    encoder.log[starts[40] + 4] ^= 0xFF
    with mqstore.open(encoder.write()) as store:
        with pytest.raises(mqstore.CorruptError, match='errors="skip"') as raised:
            store.usage()
        assert raised.value.offset == starts[40] + 4
        usage = store.usage(errors="skip")
        assert rows(usage)[0]["messages"] == 99
        assert (usage.complete, usage.unread) == (False, [(starts[40], starts[41])])
        assert f"{starts[41] - starts[40]} bytes unread" in repr(usage)
    with mqstore.open(encoder.path, errors="skip") as store:
        assert not store.usage().complete
        with pytest.raises(mqstore.CorruptError):
            store.usage(errors="raise")


def test_what_a_salvage_lost_is_unread_and_not_counted(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    starts = [encoder.append("orders", b"important", store_time=EPOCH_MS + 1000 * number) for number in range(100)]
    encoder.log[encoder.log.index(b"important", starts[40])] ^= 1
    encoder.write(clean=False)
    with mqstore.open(encoder.path, mode="r+", recovery="salvage", max_hash_slot_num=200, max_index_num=2000) as store:
        usage = store.usage()
        assert rows(usage)[0]["messages"] == 99
        assert usage.unread == list(store.recovery.lost) == [(starts[40], starts[41])]


def test_a_writer_counts_what_it_has_appended(tmp_path: Path) -> None:
    modes: list[dict[str, object]] = [{}, {"flush_disk_type": "SYNC_FLUSH"}, {"transient_store_pool_enable": True}]
    for number, options in enumerate(modes):
        with mqstore.open(tmp_path / f"store{number}", "a", **options) as store:  # type: ignore[arg-type]
            assert rows(store.usage()) == []
            written = sum(store.append("t", b"x").wrote_bytes for _ in range(10))
            assert rows(store.usage(()))[0]["bytes"] == written
            assert [row["sealed"] for row in rows(store.inspect.segments())] == [False]
            assert rows(store.inspect.index_files()) == []
            store.append("t", b"x", keys=["k"])
            assert [(row["items"], row["whole"], row["used"]) for row in rows(store.inspect.index_files())] == [(1, True, True)]
            calls = (store.usage, store.inspect.segments, store.inspect.index_files)
        for call in calls:
            with pytest.raises(mqstore.ClosedError):
                call()


def test_others_run_concurrently(events: Path, lets_others_run: Callable[[Callable[[], object]], bool]) -> None:
    with mqstore.open(events) as store:
        for call in (store.usage, store.inspect.index_files):
            assert lets_others_run(call)


def test_segments_are_the_files_of_the_log_and_end_with_it(broker: Path) -> None:
    with mqstore.open(broker) as store:
        segments = rows(store.inspect.segments())
        assert [row["segment"] for row in segments] == [0, 1 << 20]
        assert [row["bytes"] for row in segments] == [1 << 20, store.max_physical_offset - (1 << 20)]
        assert [row["sealed"] for row in segments] == [True, False]
        counted = rows(store.usage("segment"))
        assert [row["first_store_time"] for row in segments] == [row["first_store_time"] for row in counted]


def test_an_index_file_reports_the_spread_of_its_keys(golden: Path, broker: Path, events: Path) -> None:
    for path, slots, items in [(golden / "498_mixed", 100, 50), (broker, 997, 4000), (events, 5000, 20_000)]:
        with mqstore.open(path) as store:
            files = rows(store.inspect.index_files())
        assert [row["name"] for row in files] == sorted(file.name for file in (path / "index").iterdir())
        for row in files:
            image = (path / "index" / str(row["name"])).read_bytes()
            if len(image) != 40 + 4 * slots + 20 * items:
                continue
            begin, end, first, last, _, count = struct.unpack(">qqqqii", image[:40])
            spread: Counter[int] = Counter()
            for number in range(1, count):
                at = 40 + 4 * slots + 20 * number
                spread[struct.unpack_from(">i", image, at)[0] % slots] += 1
            assert (row["slots"], row["max_items"], row["items"]) == (slots, items - 1, count - 1)
            assert (row["used_slots"], row["longest_chain"]) == (len(spread), max(spread.values()))
            assert row["mean_chain"] == pytest.approx((count - 1) / len(spread))
            assert row["load"] == pytest.approx((count - 1) / slots)
            assert (row["first_physical_offset"], row["last_physical_offset"]) == (first, last)
            times = [datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time) for time in (begin, end)]
            assert [row["first_store_time"], row["last_store_time"]] == times
            assert (row["whole"], row["used"]) == (True, True)


def test_a_broken_index_file_is_not_whole_and_not_used(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store", index_geometry=(20, 200))
    for number in range(100):
        encoder.append("orders", keys=[f"k{number}"])
    file = encoder.write(clean=False) / "index" / "20260101003000000"

    def row() -> dict[str, object]:
        with mqstore.open(encoder.path, max_hash_slot_num=20, max_index_num=200) as store:
            (row,) = rows(store.inspect.index_files())
        return row

    before = row()
    assert (before["slots"], before["items"], before["whole"], before["used"]) == (20, 100, True, True)
    image = bytearray(file.read_bytes())
    links = range(40 + 4 * 20 + 16, len(image), 20)
    linked = next(at for at in reversed(links) if image[at : at + 4] != bytes(4))
    image[linked : linked + 4] = bytes(4)  # The older items of its slot are lost.
    file.write_bytes(image)
    changed = {"whole": False, "used": False, "used_slots": None, "longest_chain": None, "mean_chain": None}
    assert row() == before | changed
    image[40 : 40 + 4 * 20] = bytes(4 * 20)  # No slot leads to an item.
    file.write_bytes(image)
    of_geometry = {"whole": None, "slots": None, "max_items": None, "load": None}
    assert row() == before | changed | of_geometry
