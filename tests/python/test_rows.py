"""The rows of a table without an Arrow library."""

from __future__ import annotations

import copy
import pickle
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from encoder import EPOCH_MS, Encoder

import mqstore

LIBRARIES = ("pyarrow", "polars", "pandas", "numpy")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    encoder = Encoder(tmp_path / "store")
    for number in range(60):
        encoder.append(
            "orders",
            b"\xff%d" % number,
            queue_id=number % 3,
            keys=[f"k{number % 7}", "all"] if number % 2 else [],
            tags=("paid", None)[number % 2],
            properties={"region": "eu"},
            store_time=EPOCH_MS + number,
        )
    return encoder.write()


def tables(store: mqstore.Store) -> dict[str, mqstore.RecordBatch]:
    """Tables with each type of column, by what they are."""
    positions = pa.table({"topic": ["orders", "none"], "queue_id": pa.array([0, 0], pa.int32()), "queue_offset": [1, 1]})
    return {
        "usage": store.usage(("topic", "tags", "hour")),
        "segments": store.inspect.segments(),
        "index_files": store.inspect.index_files(),
        "dump": store.inspect.dump(0),
        "messages": next(iter(store.scan())),
        "resolve_offsets": store.resolve_offsets(positions),
        "resolve_keys": store.resolve_keys(pa.table({"topic": ["orders", "orders"], "key": ["k1", "none"]})),
    }


def of_pyarrow(table: mqstore.RecordBatch) -> list[dict[str, Any]]:
    """The rows as pyarrow has them. It has a list of pairs for a map."""
    rows: list[dict[str, Any]] = table.to_arrow().to_pylist()
    return [row | ({"properties": dict(row["properties"])} if "properties" in row else {}) for row in rows]


def test_rows_are_those_of_pyarrow_with_dicts_for_maps(path: Path, golden: Path, broker: Path) -> None:
    with mqstore.open(path) as store:
        for name, table in tables(store).items():
            assert table.to_pylist() == of_pyarrow(table), name
    with mqstore.open(broker) as store:
        for table in (
            store.broker.lag(),
            store.broker.consumer_offsets(),
            store.broker.delay_offsets(),
            store.inspect.segments(),
            store.usage("hour"),
        ):
            assert table.to_pylist() == of_pyarrow(table)
            assert len(table) == len(list(table)) > 0
        configs = store.broker.topic_configs()
        assert configs.to_pylist() == [
            row | {"attributes": None if row["attributes"] is None else dict(row["attributes"])}
            for row in configs.to_arrow().to_pylist()
        ]


def test_a_row_is_a_frozen_named_tuple_of_its_columns(path: Path) -> None:
    with mqstore.open(path) as store:
        for table in tables(store).values():
            rows = list(table)
            assert [row._asdict() for row in rows] == table.to_pylist()
            assert [tuple(row) for row in rows] == [tuple(row.values()) for row in table.to_pylist()]
            assert all(row._fields == tuple(table.column_names) for row in rows)
        row, *_ = store.usage()
        assert (row.topic, row[0], row.messages) == ("orders", "orders", 60)
        assert row.first_store_time == datetime.fromtimestamp(EPOCH_MS / 1000, UTC)
        assert row.first_store_time.tzinfo is UTC
        assert repr(row).startswith("Row(topic='orders', messages=60, ")
        with pytest.raises(AttributeError):
            row.topic = "other"
        assert pickle.loads(pickle.dumps(row)) == row == copy.deepcopy(row)
        assert pickle.loads(pickle.dumps(row)).messages == 60


def test_missing_references_are_none_and_hits_are_lists_of_dicts(path: Path) -> None:
    with mqstore.open(path) as store:
        found = tables(store)
        first, second = found["resolve_offsets"]
        assert (first.physical_offset, second.physical_offset) == (store.topics["orders"].queues[0][1].physical_offset, None)
        hits, nothing = (row.hits for row in found["resolve_keys"])
        assert nothing is None
        names = {"queue_id", "queue_offset", "physical_offset", "store_size"}
        assert len(hits) > 3
        assert all(isinstance(hit, dict) and hit.keys() == names for hit in hits)


def test_rows_and_representation_need_no_other_package(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mqstore.open(path) as store:
        wanted = tables(store)
        expected = {name: (table.to_pylist(), repr(table), table._repr_html_()) for name, table in wanted.items()}  # type: ignore[attr-defined]
        for library in LIBRARIES:
            monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ImportError):
            store.usage().to_arrow()
        for name, table in wanted.items():
            assert (table.to_pylist(), repr(table), table._repr_html_()) == expected[name]  # type: ignore[attr-defined]


def test_an_iterator_ends_once_and_several_are_independent(path: Path) -> None:
    with mqstore.open(path) as store:
        table = next(iter(store.scan(columns=["queue_offset"])))
    first, second = iter(table), iter(table)
    assert next(first).queue_offset == next(second).queue_offset == 0
    assert len(list(first)) == 59
    assert [list(first), next(first, None)] == [[], None]
    assert len(list(second)) == 59


def test_other_libraries_still_read_the_columns(path: Path) -> None:
    with mqstore.open(path) as store:
        counts = store.usage("queue_id")
    assert pl.DataFrame(counts).columns == counts.column_names
    assert duckdb.sql("select sum(messages) from counts").fetchall() == [(60,)]
    assert list(pd.DataFrame(counts).columns) == counts.column_names
    assert list(pd.DataFrame(counts.to_pylist())["messages"]) == [20, 20, 20]


def test_a_table_without_rows_is_an_empty_list_and_one_line(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        table = store.usage()
        assert (len(table), list(table), table.to_pylist()) == (0, [], [])
        assert repr(table) == "<mqstore.Usage 0 rows, covers 0..0, 0 bytes unread>"


def test_a_table_without_columns_has_rows_without_fields(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"x")
        batch = next(iter(store.scan(columns=[])))
        assert (len(batch), batch.to_pylist(), [tuple(row) for row in batch]) == (1, [{}], [()])
        assert repr(batch) == "<mqstore.RecordBatch 1 rows: >"
        assert store.usage("segment").to_pylist()[0]["segment"] == 0


def test_a_time_that_no_datetime_holds_is_a_number_of_ms(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    encoder.append("orders", b"x", born_time=10**15)
    with mqstore.open(encoder.write()) as store:
        batch = next(iter(store.scan(columns=["topic", "born_time"])))
        assert [tuple(row) for row in batch] == [("orders", 10**15)]
        assert batch.to_pylist() == [{"topic": "orders", "born_time": 10**15}]
        assert store.topics["orders"].queues[0][0].to_dict()["born_time"] == 10**15
        assert "orders  1000000000000000" in repr(batch)
        assert "1000000000000000" in batch._repr_html_()  # type: ignore[attr-defined]


def test_the_representation_is_an_aligned_table(path: Path) -> None:
    with mqstore.open(path) as store:
        head, names, row = repr(store.usage()).splitlines()
        assert head.startswith("<mqstore.Usage 1 rows, covers 0..")
        assert names.split() == store.usage().column_names
        assert row.split()[:2] == ["orders", "60"]
        assert row.split()[3] == datetime.fromtimestamp(EPOCH_MS / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
        by_queue = repr(store.usage("queue_id")).splitlines()
        assert [line[:18] for line in by_queue[1:]] == ["queue_id  messages"] + [f"{queue:>8}        20" for queue in range(3)]


def test_the_representation_is_bounded_in_rows_and_width(path: Path) -> None:
    with mqstore.open(path) as store:
        lines = repr(next(iter(store.scan(columns=["queue_offset"])))).splitlines()
        assert (len(lines), lines[-1]) == (13, "... 50 more rows")
        lines = repr(next(iter(store.scan()))).splitlines()
        assert lines[-1].startswith("... 50 more rows and ")
        assert lines[-1].endswith(" more columns")
        assert max(map(len, lines[1:])) <= 120
    encoder = Encoder(path.parent / "wide")
    encoder.append("orders", b"x" * 10_000, tags="\x1b[31m\nred" + "t" * 500)
    with mqstore.open(encoder.write()) as store:
        text = repr(next(iter(store.scan(columns=["tags", "body"]))))
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 120
        assert len(text.splitlines()) == 3
