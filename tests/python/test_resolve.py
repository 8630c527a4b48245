"""Many references at once: Arrow in, Arrow out, order kept, missing is null."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from encoder import EPOCH_MS, Encoder

import mqstore

POSITIONS = pa.schema([("physical_offset", pa.int64()), ("store_size", pa.int32())])
HIT = pa.struct(
    [("queue_id", pa.int32()), ("queue_offset", pa.int64()), ("physical_offset", pa.int64()), ("store_size", pa.int32())]
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> mqstore.Store:
    """Topics a and b, queues 0 and 2, 30 messages in each; key k<number % 5>, unique key per message."""
    encoder = Encoder(tmp_path_factory.mktemp("resolve") / "store")
    for number in range(30):
        for topic in ("a", "b"):
            for queue in (0, 2):
                unique_key = f"{topic}{queue}-{number}"
                encoder.append(topic, unique_key.encode(), queue_id=queue, keys=[f"k{number % 5}"], unique_key=unique_key)
    return mqstore.open(encoder.write())


def references() -> pa.Table:
    rows = [(topic, queue, offset) for topic in ("b", "a", "none") for queue in (2, 0, 1, -1) for offset in range(-1, 32)]
    rows += [(None, 0, 0), ("a", None, 0), ("a", 0, None), (None, None, None)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.table(columns, pa.schema([("topic", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64())]))


def one_by_one(store: mqstore.Store, wanted: pa.Table) -> list[dict[str, int | None]]:
    answers: list[dict[str, int | None]] = []
    for line in wanted.to_pylist():
        result = None
        if None not in line.values() and line["queue_id"] >= 0 and line["queue_offset"] >= 0:
            result = store.get(line["topic"], line["queue_id"], line["queue_offset"], 1)
        message = result[0] if result else None
        answers.append(
            {
                "physical_offset": message.physical_offset if message else None,
                "store_size": message.store_size if message else None,
            }
        )
    return answers


def test_offsets_resolve_as_one_by_one(store: mqstore.Store) -> None:
    wanted = references()
    resolved = pa.record_batch(store.resolve_offsets(wanted))
    assert resolved.schema.equals(POSITIONS, check_metadata=True)
    assert resolved.to_pylist() == one_by_one(store, wanted)
    assert resolved.column("physical_offset").null_count == resolved.num_rows - 120


@pytest.mark.parametrize(
    "cast",
    [
        pytest.param([pa.large_string(), pa.int64(), pa.int64()], id="large"),
        pytest.param([pa.string_view(), pa.int8(), pa.int16()], id="view and narrow"),
        pytest.param([pa.dictionary(pa.int32(), pa.string()), pa.int16(), pa.int32()], id="dictionary"),
        pytest.param([pa.dictionary(pa.int8(), pa.large_string()), pa.int64(), pa.int8()], id="large dictionary"),
    ],
)
def test_text_and_integers_come_in_any_width(store: mqstore.Store, cast: list[pa.DataType]) -> None:
    wanted = references()
    columns = [column.combine_chunks().cast(kind) for column, kind in zip(wanted.columns, cast, strict=True)]
    given = pa.table(columns, names=wanted.column_names)
    assert pa.record_batch(store.resolve_offsets(given)).to_pylist() == one_by_one(store, wanted)


def test_unsigned_integers_come_in_and_one_too_large_is_refused(store: mqstore.Store) -> None:
    wanted = pa.table({"topic": ["a", "a"], "queue_id": [0, 2], "queue_offset": [5, None]})
    for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()):
        given = pa.table([wanted["topic"], wanted["queue_id"].cast(kind), wanted["queue_offset"].cast(kind)], wanted.column_names)
        assert pa.record_batch(store.resolve_offsets(given)).to_pylist() == one_by_one(store, wanted)
    large = pa.table({"topic": ["a"], "queue_id": [2**40], "queue_offset": pa.array([2**64 - 1], pa.uint64())})
    with pytest.raises(ValueError, match="18446744073709551615"):
        store.resolve_offsets(large)


def test_a_queue_id_beyond_32_bits_is_missing(store: mqstore.Store) -> None:
    wanted = pa.table({"topic": ["a"], "queue_id": [2**40], "queue_offset": [0]})
    assert pa.record_batch(store.resolve_offsets(wanted)).to_pylist() == [{"physical_offset": None, "store_size": None}]


def test_columns_of_nulls_are_missing(store: mqstore.Store) -> None:
    wanted = pa.table({"topic": pa.nulls(3), "queue_id": pa.nulls(3), "queue_offset": pa.nulls(3), "key": pa.nulls(3)})
    assert pa.record_batch(store.resolve_offsets(wanted)).column("store_size").null_count == 3
    assert pa.record_batch(store.resolve_keys(wanted)).column("hits").null_count == 3
    empty_words = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    wanted = pa.table({"topic": empty_words, "key": empty_words})
    assert pa.record_batch(store.resolve_keys(wanted)).column("hits").null_count == 2


def test_other_columns_and_their_order_do_not_matter(store: mqstore.Store) -> None:
    wanted = references()
    given = wanted.select(["queue_offset", "topic", "queue_id"]).append_column("extra", pa.array(range(wanted.num_rows)))
    assert pa.record_batch(store.resolve_offsets(given)).to_pylist() == one_by_one(store, wanted)


def test_several_chunks_come_out_as_one_batch(store: mqstore.Store) -> None:
    wanted = references()
    pieces = [wanted.slice(0, 1), wanted.slice(1, 0), wanted.slice(1, 100), wanted.slice(101)]
    given = pa.concat_tables(pieces)
    assert given.column("topic").num_chunks > 2
    assert pa.record_batch(store.resolve_offsets(given)).to_pylist() == one_by_one(store, wanted)


def test_a_sliced_batch_is_read_from_its_offset(store: mqstore.Store) -> None:
    wanted = references().combine_chunks().to_batches()[0].slice(40, 30)
    answer = one_by_one(store, pa.Table.from_batches([wanted]))
    assert pa.record_batch(store.resolve_offsets(wanted)).to_pylist() == answer
    assert pa.record_batch(store.resolve_offsets(wanted.to_struct_array())).to_pylist() == answer


def test_a_row_that_is_null_as_a_whole_is_missing(store: mqstore.Store) -> None:
    wanted = references().combine_chunks().to_batches()[0].slice(60, 4).to_struct_array()
    masked = pa.StructArray.from_arrays(wanted.flatten(), fields=list(wanted.type), mask=pa.array([False, True, False, True]))
    plain = pa.record_batch(store.resolve_offsets(wanted)).to_pylist()
    missing = {"physical_offset": None, "store_size": None}
    assert pa.record_batch(store.resolve_offsets(masked)).to_pylist() == [plain[0], missing, plain[2], missing]


def test_no_row_in_is_no_row_out(store: mqstore.Store) -> None:
    empty = references().slice(0, 0)
    assert pa.record_batch(store.resolve_offsets(empty)).num_rows == 0
    keys = pa.table({"topic": pa.array([], pa.string()), "key": pa.array([], pa.string())})
    assert pa.record_batch(store.resolve_keys(keys)).num_rows == 0


def test_polars_duckdb_and_pandas_come_in_as_they_are(store: mqstore.Store) -> None:
    wanted = references()
    answer = one_by_one(store, wanted)
    frame = pl.from_arrow(wanted)
    assert pa.record_batch(store.resolve_offsets(frame)).to_pylist() == answer
    assert pa.record_batch(store.resolve_offsets(frame.with_columns(pl.col("topic").cast(pl.Categorical)))).to_pylist() == answer
    relation = duckdb.from_arrow(wanted)
    assert pa.record_batch(store.resolve_offsets(relation)).to_pylist() == answer
    whole = wanted.slice(0, 100)
    assert pa.record_batch(store.resolve_offsets(whole.to_pandas())).to_pylist() == answer[:100]
    assert pa.record_batch(store.resolve_offsets(pd.DataFrame(whole.to_pylist()))).to_pylist() == answer[:100]


def test_what_we_give_we_take(store: mqstore.Store) -> None:
    batches = store.topics["a"].queues[2][5:25].batches(["topic", "queue_id", "queue_offset"], max_bytes=100)
    resolved = store.resolve_offsets(batches)
    assert [bytes(body).decode() for body in store.fetch(resolved).to_arrow()["body"].to_pylist()] == [
        f"a2-{number}" for number in range(5, 25)
    ]


def test_keys_resolve_as_queries_do(store: mqstore.Store) -> None:
    pairs = [(topic, key) for topic in ("b", "a", "none") for key in ("k3", "k9", "a2-7", "b0-0", "")] + [
        (None, "k3"),
        ("a", None),
    ]
    wanted = pa.table([list(column) for column in zip(*pairs, strict=True)], names=["topic", "key"])
    resolved = pa.record_batch(store.resolve_keys(wanted))
    assert resolved.schema.equals(pa.schema([("hits", pa.list_(HIT))]), check_metadata=True)
    for (topic, key), hits in zip(pairs, resolved.column("hits").to_pylist(), strict=True):
        found = [] if topic is None or key is None else store.query(topic, key, limit=None)
        expected = [{name: getattr(message, name) for name in HIT.names} for message in found]
        assert hits == (expected or None)


def test_a_limit_and_places_bound_the_hits_of_each_key(store: mqstore.Store) -> None:
    wanted = pa.table([["a", "b", "a", "none"], ["k3", "k3", "a2-7", "k3"]], names=["topic", "key"])
    every = pa.record_batch(store.resolve_keys(wanted)).column("hits").to_pylist()
    middle = every[0][5]["physical_offset"]

    def bounded(**bounds: Any) -> list[list[dict[str, int]] | None]:
        found: list[list[dict[str, int]] | None] = (
            pa.record_batch(store.resolve_keys(wanted, **bounds)).column("hits").to_pylist()
        )
        return found

    before = [[hit for hit in hits or [] if hit["physical_offset"] < middle] or None for hits in every]
    for limit in (1, 2, 5, 1000):
        assert bounded(limit=limit) == [hits and hits[-limit:] for hits in every]
        assert bounded(limit=limit, physical=(None, middle)) == [hits and hits[-limit:] for hits in before]
    assert bounded(physical=(middle, middle + 1))[0] == [every[0][5]]
    assert bounded(limit=0) == [None] * 4
    with pytest.raises(ValueError, match="physical begins at 2 and ends before that, at 1"):
        bounded(physical=(2, 1))
    with pytest.raises(TypeError, match="physical is a pair"):
        bounded(physical=7)
    with pytest.raises(ValueError, match="limit is -1"):
        bounded(limit=-1)


def test_hits_beyond_the_limit_take_no_memory(tmp_path: Path) -> None:
    messages, rows = 20_000, 200
    with mqstore.open(tmp_path, mode="x") as store:
        store.append_batch(pa.table({"topic": ["t"] * messages, "keys": [["k"]] * messages, "body": [b""] * messages}))
    wanted = pa.table({"topic": ["t"] * rows, "key": ["k"] * rows})
    with mqstore.open(tmp_path) as store:
        # From now on the peak is that of what follows.
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        hits = pa.record_batch(store.resolve_keys(wanted, limit=10)).column("hits")
        assert status("VmHWM") - before < 8 << 20 < rows * messages * 24
    assert len(hits.values) == rows * 10


def status(name: str) -> int:
    """Bytes, as the kernel counts them for this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) << 10


def test_a_million_offsets_with_nulls_resolve_as_the_queues_say(store: mqstore.Store) -> None:
    rows = 1_000_000
    places = {
        (topic, queue.queue_id, message.queue_offset): message.physical_offset
        for topic in ("a", "b")
        for queue in store.topics[topic].queues
        for message in queue
    }
    random = Random(5)
    topics = random.choices(["a", "b", "none", None], [6, 6, 1, 1], k=rows)
    queues = random.choices([0, 1, 2, None], [6, 1, 6, 1], k=rows)
    offsets = random.choices([*range(-1, 32), None], k=rows)
    wanted = pa.table({"topic": topics, "queue_id": queues, "queue_offset": offsets})
    resolved = pa.record_batch(store.resolve_offsets(wanted))["physical_offset"].to_pylist()
    assert resolved == [places.get(place) for place in zip(topics, queues, offsets, strict=True)]


def test_times_resolve_as_one_by_one(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    for number in range(60):
        encoder.append("a", b"x", queue_id=number % 2, store_time=EPOCH_MS + 1000 * (number // 4))
    with mqstore.open(encoder.write()) as store:
        times = [EPOCH_MS + 250 * step for step in range(-4, 70)]
        rows = [(topic, queue, time) for topic in ("a", "none") for queue in (1, 0, 7, -1) for time in times]
        rows += [(None, 0, times[0]), ("a", None, times[0]), ("a", 0, None)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        numbers = pa.table(columns, names=["topic", "queue_id", "time"])
        stamps = numbers.set_column(2, "time", numbers["time"].cast(pa.timestamp("ms", "UTC")))
        between = numbers.set_column(
            2, "time", pc.subtract(pc.multiply(numbers["time"], 1000), 1).cast(pa.timestamp("us", "UTC"))
        )
        for side in ("left", "right"):
            expected = []
            for topic, queue, time in rows:
                there = topic == "a" and queue in (0, 1) and time is not None
                expected.append(store.topics["a"].queues[queue or 0].offset_at(time, side) if there else None)
            for given in (numbers, stamps):
                resolved = pa.record_batch(store.resolve_times(given, side=side))
                assert resolved.schema.equals(pa.schema([("queue_offset", pa.int64())]), check_metadata=True)
                assert resolved["queue_offset"].to_pylist() == expected
            # A microsecond before each time no message was stored that was not stored before it.
            left = pa.record_batch(store.resolve_times(numbers))["queue_offset"].to_pylist()
            assert pa.record_batch(store.resolve_times(between, side=side))["queue_offset"].to_pylist() == left
        for side in ("middle", "LEFT"):
            with pytest.raises(ValueError, match=r'side is .*expected "left" or "right"'):
                store.resolve_times(numbers, side=side)  # type: ignore[arg-type]
        naive = numbers["time"].cast(pa.timestamp("ms"))
        with pytest.raises(ValueError, match="without a timezone"):
            store.resolve_times(numbers.set_column(2, "time", naive))
        with pytest.raises(ValueError, match="Date32: cast it to a timestamp with timezone UTC first"):
            store.resolve_times(numbers.set_column(2, "time", naive.cast(pa.date32())))


def test_ids_resolve_as_messages_do(store: mqstore.Store) -> None:
    messages = list(store.topics["a"].queues[2])
    ids = [message.message_id for message in messages] + [message.unique_key for message in reversed(messages)]
    ids += [None, "", "none", "7F00000100002A9F0000000000000001", None, "b0-3", "b0-3", "k3"]
    resolved = pa.record_batch(store.resolve_ids(pa.table({"id": ids})))
    assert resolved.schema.equals(POSITIONS, check_metadata=True)
    for wanted, found in zip(ids, resolved.to_pylist(), strict=True):
        expected = dict.fromkeys(POSITIONS.names)
        if wanted is not None:
            with contextlib.suppress(mqstore.NotFoundError):
                message = store.message(wanted, walk=True)
                expected = {"physical_offset": message.physical_offset, "store_size": message.store_size}
        assert found == expected, wanted
    assert resolved["physical_offset"].null_count == 6
    fetched = store.fetch(resolved, columns=["unique_key"]).to_arrow()["unique_key"].to_pylist()
    assert fetched == [f"a2-{number}" for number in [*range(30), *reversed(range(30))]] + ["b0-3", "b0-3"]


def test_keys_that_fill_many_index_files_resolve_as_queries_do(tmp_path: Path) -> None:
    """More keys than a filter of each file takes to be worth its while, and they are asked for twice."""
    with mqstore.open(tmp_path / "store", "x", max_hash_slot_num=100, max_index_num=400) as store:
        store.append_batch([("orders", b"x", None, [f"k{n % 1500}"]) for n in range(3000)])
    with mqstore.open(tmp_path / "store") as store:
        assert len(list((tmp_path / "store" / "index").iterdir())) > 5
        wanted = pa.table({"topic": ["orders"] * 3000, "key": [f"k{n}" for n in range(3000)]})
        for _ in range(2):
            hits = pa.record_batch(store.resolve_keys(wanted))["hits"].to_pylist()
            assert [[hit["queue_offset"] for hit in line or []] for line in hits] == [
                [n, n + 1500] if n < 1500 else [] for n in range(3000)
            ]


@pytest.fixture
def starts(store: mqstore.Store) -> list[int]:
    return [message.physical_offset for message in store.topics["b"].queues[2]]


def test_fetch_gives_a_row_for_each_offset_in_order(store: mqstore.Store, starts: list[int]) -> None:
    offsets = [*reversed(starts), None, starts[3], starts[3]]
    fetched = store.fetch(pa.table({"physical_offset": offsets}))
    there = [offset for offset in offsets if offset is not None]
    assert fetched.to_arrow()["physical_offset"].to_pylist() == there
    assert fetched.to_arrow()["body"].to_pylist() == [store.message_at(offset).body for offset in there]
    assert pa.table(fetched).equals(fetched.to_arrow())
    assert repr(fetched) == f"<mqstore.Batches of {len(there)} records, 19 columns, max_bytes=4194304>"


def test_fetch_cuts_batches_and_columns(store: mqstore.Store, starts: list[int]) -> None:
    fetched = store.fetch(pl.DataFrame({"physical_offset": starts}), columns=["body", "tags"], max_bytes=200)
    batches = [pa.record_batch(batch) for batch in fetched]
    assert len(batches) > 1
    assert all(batch.nbytes <= 200 for batch in batches)
    assert batches[0].schema.names == ["body", "tags"]


def test_fetch_where_no_record_starts_is_not_found(store: mqstore.Store, starts: list[int]) -> None:
    fetched = store.fetch(pa.table({"physical_offset": [starts[0], store.max_physical_offset]}))
    with pytest.raises(mqstore.NotFoundError, match=str(store.max_physical_offset)):
        fetched.to_arrow()
    with pytest.raises((OSError, pa.ArrowInvalid), match=str(store.max_physical_offset)):
        pa.table(fetched)


def test_offsets_that_pandas_turned_into_floats_for_nulls_are_offsets(store: mqstore.Store, starts: list[int]) -> None:
    missing = pa.table({"topic": ["b"] * 3, "queue_id": [2] * 3, "queue_offset": [1, 10**6, 0]})
    frame = pa.table(store.resolve_offsets(missing)).to_pandas()
    assert str(frame["physical_offset"].dtype) == "float64"
    fetched = store.fetch(frame).to_arrow()["physical_offset"].to_pylist()
    resolved = pa.table(store.resolve_offsets(missing))["physical_offset"].to_pylist()
    assert fetched == [offset for offset in resolved if offset is not None]
    assert len(fetched) == 2
    floats = pa.table({"physical_offset": pa.array([float("nan"), float(starts[1]), None, -0.0])})
    assert store.fetch(floats).to_arrow()["physical_offset"].to_pylist() == [starts[1], 0]


@pytest.mark.parametrize("value", [0.5, -1e-300, 2.0**53 + 2, float("inf"), -float("inf"), 1e300])
def test_a_float_that_is_no_exact_whole_number_is_refused(store: mqstore.Store, value: float) -> None:
    with pytest.raises(ValueError, match=r'column "physical_offset" holds .*cast it to int64'):
        store.fetch(pa.table({"physical_offset": [0.0, value]}))


@pytest.mark.parametrize("value", [None, 7, [1, 2], {"topic": ["a"]}, "topic"])
def test_what_speaks_no_arrow_is_refused(store: mqstore.Store, value: object) -> None:
    for call in (store.resolve_offsets, store.resolve_keys, store.resolve_times, store.resolve_ids, store.fetch):
        with pytest.raises(TypeError, match="Arrow"):
            call(value)


def test_a_column_alone_is_no_table(store: mqstore.Store) -> None:
    for value in (pa.array([1, 2]), pa.chunked_array([[1], [2]]), pl.Series([1, 2])):
        with pytest.raises(TypeError, match="named columns"):
            store.fetch(value)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"topic": ["a"], "queue_id": [0]}, "'?.?queue_offset.*topic, queue_id"),
        ({"topic": ["a"], "queue_id": [False], "queue_offset": [0]}, "queue_id.*Boolean.*int64"),
        ({"topic": [b"a"], "queue_id": [0], "queue_offset": [0]}, "topic.*Binary.*utf8"),
        ({"topic": [7], "queue_id": [0], "queue_offset": [0]}, "topic.*Int64.*utf8"),
    ],
)
def test_a_column_that_is_missing_or_of_another_type_is_named(
    store: mqstore.Store, columns: dict[str, list[object]], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        store.resolve_offsets(pa.table(columns))


def test_a_column_name_that_comes_twice_is_refused(store: mqstore.Store) -> None:
    with pytest.raises(ValueError, match="one column called"):
        store.fetch(pa.table([pa.array([1]), pa.array([2])], names=["physical_offset", "physical_offset"]))


def test_what_a_producer_raises_comes_out_as_text(store: mqstore.Store) -> None:
    schema = pa.schema([("physical_offset", pa.int64())])

    def broken() -> object:
        yield pa.record_batch([[0]], schema=schema)
        raise RuntimeError("the producer broke")

    with pytest.raises(ValueError, match="the producer broke"):
        store.fetch(pa.RecordBatchReader.from_batches(schema, broken()))


def test_a_stream_that_was_read_before_is_refused(store: mqstore.Store) -> None:
    reader = pa.RecordBatchReader.from_batches(pa.schema([("physical_offset", pa.int64())]), [])

    class Twice:
        def __init__(self) -> None:
            self.capsule = reader.__arrow_c_stream__()

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.capsule

    once = Twice()
    store.fetch(once)
    with pytest.raises(ValueError, match="released"):
        store.fetch(once)


def test_every_event_resolves_and_fetches(events: Path) -> None:
    with mqstore.open(events) as store:
        scanned = [
            queue[:].batches(["topic", "queue_id", "queue_offset", "physical_offset", "unique_key"]).to_arrow()
            for topic in store.topics.values()
            for queue in topic.queues
        ]
        everything = pa.concat_tables(scanned)
        assert everything.num_rows == 7865
        resolved = pa.table(store.resolve_offsets(everything))
        assert resolved["physical_offset"].combine_chunks().equals(everything["physical_offset"].combine_chunks())
        fetched = store.fetch(resolved, columns=["unique_key"]).to_arrow()
        assert fetched["unique_key"].combine_chunks().equals(everything["unique_key"].combine_chunks())
        keys = pa.table({"topic": everything["topic"], "key": everything["unique_key"]})
        hits = pa.record_batch(store.resolve_keys(keys)).column("hits").to_pylist()
        assert [[hit["physical_offset"] for hit in line] for line in hits] == [
            [offset] for offset in everything["physical_offset"].to_pylist()
        ]
