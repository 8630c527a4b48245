"""Messages as Arrow: one schema, whoever reads it."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from encoder import EPOCH_MS, Encoder

import mqstore

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("store_size", pa.int32()),
        ("store_time", pa.timestamp("us", tz="UTC")),
        ("born_time", pa.timestamp("us", tz="UTC")),
        ("message_id", pa.string()),
        ("unique_key", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("sys_flag", pa.int32()),
        ("flag", pa.int32()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("born_host", pa.string()),
        ("store_host", pa.string()),
    ]
)


def row(message: mqstore.Message) -> dict[str, object]:
    return {name: getattr(message, name) for name in SCHEMA.names} | {"properties": list(message.properties.items())}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    encoder = Encoder(tmp_path_factory.mktemp("arrow") / "store")
    for number in range(300):
        encoder.append(
            "Café_订单",
            b"\xff%d" % number * (number % 7),
            tags=("paid", None)[number % 2],
            keys=["o-1", "o-2"][: number % 3],
            unique_key=f"U{number}" if number % 5 else None,
            properties={"k": "värde"} if number % 4 else {},
            store_time=EPOCH_MS + number,
        )
    return encoder.write()


@pytest.fixture
def part(path: Path) -> mqstore.QueueSlice:
    return mqstore.open(path).topics["Café_订单"].queues[0][:]


def test_the_schema_is_the_one_of_a_message(part: mqstore.QueueSlice) -> None:
    table = pa.table(part)
    assert table.schema.equals(SCHEMA, check_metadata=True)
    assert all(field.nullable for field in table.schema)
    properties = table.schema.field("properties").type
    assert (properties.key_field.name, properties.item_field.name) == ("key", "value")
    assert (properties.key_field.nullable, properties.item_field.nullable) == (False, True)
    assert str(table.schema.field("keys").type.value_field) == str(pa.list_(pa.string()).value_field)
    table.validate(full=True)


def test_every_column_of_every_row_is_the_messages(golden: Path) -> None:
    for name in ("533_mixed", "551_mixed", "533_v2_record", "491_basic_clean"):
        with mqstore.open(golden / name) as store:
            for queue in (queue for topic in store.topics.values() for queue in topic.queues):
                assert pa.table(queue[:]).to_pylist() == [row(message) for message in queue]


def test_columns_come_as_asked_and_in_that_order(part: mqstore.QueueSlice) -> None:
    names = ["body", "queue_offset", "keys"]
    table = part.batches(columns=names).to_arrow()
    assert table.equals(pa.table(part).select(names))
    for name in SCHEMA.names:
        assert part.batches([name]).to_arrow().equals(pa.table(part).select([name]))
    assert next(iter(part.batches(names))).column_names == names


def test_no_column_still_counts_rows(part: mqstore.QueueSlice) -> None:
    assert sum(len(batch) for batch in part.batches([])) == 300


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        (["size"], ValueError, "'?.?size.*topic, queue_id"),
        (["body", "body"], ValueError, "twice"),
        ("body", TypeError, None),
    ],
)
def test_columns_that_a_message_does_not_have_are_refused(
    part: mqstore.QueueSlice, columns: list[str], error: type[Exception], text: str | None
) -> None:
    with pytest.raises(error, match=text):
        part.batches(columns)


@pytest.mark.parametrize("max_bytes", [0, 2**30 + 1, 2**40])
def test_a_batch_size_that_cannot_be_is_refused(part: mqstore.QueueSlice, max_bytes: int) -> None:
    with pytest.raises(ValueError, match="max_bytes"):
        part.batches(max_bytes=max_bytes)
    with pytest.raises(ValueError, match="max_bytes is -1: expected an int from 0"):
        part.batches(max_bytes=-1)


@pytest.mark.parametrize("columns", [None, ["body"], ["queue_offset"], ["tags", "keys", "unique_key"], ["properties"]])
def test_batches_hold_max_bytes_at_most(events: Path, columns: list[str] | None) -> None:
    with mqstore.open(events) as store:
        queue = max((queue for topic in store.topics.values() for queue in topic.queues), key=len)
        whole = queue[:].batches(columns).to_arrow()
        for max_bytes in (1 << 12, 1 << 16, 1 << 20):
            batches = [pa.record_batch(batch) for batch in queue[:].batches(columns, max_bytes)]
            assert all(batch.nbytes <= max_bytes or batch.num_rows == 1 for batch in batches)
            assert pa.Table.from_batches(batches).equals(whole)
            # About full, not merely small.
            assert len(batches) <= 2 + 2 * whole.nbytes // max_bytes


def test_a_message_larger_than_a_batch_has_one_for_itself(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    for size in (10, 9000, 10, 10):
        encoder.append("orders", b"x" * size)
    with mqstore.open(encoder.write()) as store:
        batches = store.topics["orders"].queues[0][:].batches(["body"], max_bytes=100)
        assert [len(batch) for batch in batches] == [1, 1, 2]


def test_batches_are_read_again_at_each_pass(part: mqstore.QueueSlice) -> None:
    batches = part.batches(["queue_offset"], max_bytes=1000)
    first, second = list(batches), list(batches)
    assert len(first) == len(second) > 1
    under_way = iter(batches)
    next(under_way)
    assert pa.table(batches).num_rows == pa.table(batches).num_rows == 300
    assert len(list(under_way)) == len(first) - 1


def test_a_time_that_microseconds_cannot_hold_is_null(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    encoder.append("orders", store_time=2**62, born_time=-(2**62))
    with mqstore.open(encoder.write()) as store:
        table = pa.table(store.topics["orders"].queues[0][:])
        assert table.column("store_time").to_pylist() == table.column("born_time").to_pylist() == [None]


def test_pyarrow_polars_duckdb_and_pandas_take_it_as_it_is(part: mqstore.QueueSlice) -> None:
    batches = part.batches(["queue_offset", "tags", "body", "store_time", "keys"])
    expected = pa.table(batches)
    assert pa.RecordBatchReader.from_stream(batches).read_all().equals(expected)
    assert pl.DataFrame(batches).rows() == pl.from_arrow(expected).rows()
    assert duckdb.sql("SELECT count(*), max(queue_offset), count(tags) FROM batches").fetchall() == [(300, 299, 150)]
    assert duckdb.sql("SELECT count(*) FROM part WHERE tags = 'paid'").fetchall() == [(150,)]
    assert list(pd.DataFrame.from_arrow(batches)["queue_offset"]) == list(range(300))
    for batch in batches:
        assert pa.record_batch(batch).equals(expected.combine_chunks().to_batches()[0])
        assert pa.table(batch).equals(expected)
        assert pl.DataFrame(batch).shape == (300, 5)


def test_it_converts_itself(part: mqstore.QueueSlice) -> None:
    batches = part.batches(["queue_offset", "tags"])
    (batch,) = batches
    assert isinstance(batches.to_arrow(), pa.Table)
    assert isinstance(batch.to_arrow(), pa.RecordBatch)
    for frame in (batches.to_polars(), batch.to_polars()):
        assert isinstance(frame, pl.DataFrame)
        assert frame.shape == (300, 2)
    for frame in (batches.to_pandas(), batch.to_pandas()):
        assert isinstance(frame, pd.DataFrame)
        assert frame.shape == (300, 2)


def test_an_empty_slice_is_an_empty_table_with_the_schema(part: mqstore.QueueSlice) -> None:
    empty = part[:0]
    assert pa.table(empty).schema == SCHEMA
    assert pa.table(empty).num_rows == 0
    assert empty.batches().to_arrow().schema == SCHEMA
    assert list(empty.batches()) == []
    assert empty.batches().to_polars().shape == (0, 19)


def test_the_schema_capsule_needs_no_reading(part: mqstore.QueueSlice) -> None:
    batches = part.batches(["topic", "keys"])
    expected = pa.schema([SCHEMA.field("topic"), SCHEMA.field("keys")])
    assert pa.schema(batches) == expected
    assert pa.schema(next(iter(batches))) == expected


@pytest.mark.parametrize("messages", ["topic", "topic.queues[0][:].batches()"])
def test_a_missing_library_is_named(path: Path, messages: str) -> None:
    code = f"""
import sys
sys.modules["polars"] = sys.modules["pyarrow"] = None
import mqstore
topic = mqstore.open({str(path)!r}).topics["Café_订单"]
messages = {messages}
for convert in (messages.to_arrow, messages.to_polars, messages.to_pandas):
    try:
        convert()
    except ImportError as error:
        print(error)
"""
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.count("pip install pyarrow") == 2
    assert printed.count("pip install polars") == 1


def test_damage_raises_our_error_when_we_read_and_theirs_when_they_do(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    for _ in range(3):
        last = encoder.append("orders", b"important")
    encoder.log[encoder.log.index(b"important", last)] ^= 1
    encoder.append("orders", b"x")
    with mqstore.open(encoder.write(), check_crc_on_recover=False) as store:
        batches = store.topics["orders"].queues[0][:].batches(max_bytes=10)
        under_way = iter(batches)
        assert [len(next(under_way)) for _ in range(2)] == [1, 1]
        with pytest.raises(mqstore.CorruptError):
            next(under_way)
        assert [len(batch) for batch in under_way] == [1]
        for convert in (batches.to_arrow, batches.to_polars, batches.to_pandas):
            with pytest.raises(mqstore.CorruptError):
                convert()
        with pytest.raises((OSError, pa.ArrowInvalid), match="CRC|crc|checksum"):
            pa.table(batches)


def test_streams_that_nobody_reads_are_released(part: mqstore.QueueSlice) -> None:
    batches = part.batches()
    for _ in range(200):
        batches.__arrow_c_stream__()
        reader = pa.RecordBatchReader.from_stream(batches)
        reader.read_next_batch()
    del reader
    gc.collect()
    assert pa.table(batches).num_rows == 300


def test_reprs_say_what_it_is_in_their_first_line(part: mqstore.QueueSlice) -> None:
    batches = part.batches(["topic", "body"])
    assert repr(batches) == "<mqstore.Batches of Café_订单/0[0:300], 2 columns, max_bytes=4194304>"
    assert repr(next(iter(batches))).splitlines()[0] == "<mqstore.RecordBatch 300 rows: topic, body>"
