"""A topic, a queue, a slice of one and a result as a table."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from encoder import EPOCH_MS, Encoder
from test_arrow import SCHEMA, row

import mqstore

TABLES: dict[str, Callable[[mqstore.Store], Any]] = {
    "topic": lambda store: store.topics["orders"],
    "topic got": lambda store: store.topics.get("orders"),
    "queue": lambda store: store.topics["orders"].queues[1],
    "queue of a list": lambda store: store.topics["orders"].queues[:][1],
    "slice": lambda store: store.topics["orders"].queues[1][3:30],
    "slice of a slice": lambda store: store.topics["orders"].queues[1][3:][:-10],
    "get": lambda store: store.get("orders", 1, 5),
    "query": lambda store: store.query("orders", key="k3"),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    encoder = Encoder(tmp_path_factory.mktemp("tabular") / "store")
    for number in range(120):
        encoder.append(
            "orders",
            b"\xff%d" % number,
            queue_id=number % 3,
            keys=[f"k{number % 7}"],
            tags=("paid", None)[number % 2],
            properties={"region": "eu"} if number % 4 else {},
            store_time=EPOCH_MS + number,
        )
    return encoder.write()


@pytest.fixture
def store(path: Path) -> mqstore.Store:
    return mqstore.open(path)


@pytest.fixture(params=list(TABLES))
def messages(store: mqstore.Store, request: pytest.FixtureRequest) -> Any:
    return TABLES[request.param](store)


def expected(messages: Any) -> list[dict[str, object]]:
    parts = messages.queues if isinstance(messages, mqstore.Topic) else [messages]
    return [row(message) for part in parts for message in part]


def test_it_is_an_arrow_table_of_its_messages(messages: Any) -> None:
    rows = expected(messages)
    assert len(rows) > 3
    whole = pa.table(messages)
    assert whole.schema.equals(SCHEMA)
    assert whole.to_pylist() == rows
    assert pa.schema(messages) == SCHEMA
    for read in (messages.to_arrow(), pa.RecordBatchReader.from_stream(messages).read_all(), messages.batches().to_arrow()):
        assert read.equals(whole)


def test_polars_duckdb_and_pandas_see_the_same_columns(messages: Any) -> None:
    rows = expected(messages)
    for frame in (pl.DataFrame(messages), messages.to_polars()):
        assert frame.columns == SCHEMA.names
        assert frame["body"].to_list() == [row["body"] for row in rows]
    found = duckdb.sql("select physical_offset, keys, properties['region'] from messages order by physical_offset").fetchall()
    wanted = sorted((row["physical_offset"], row["keys"], dict(row["properties"]).get("region")) for row in rows)
    assert found == wanted
    for pandas in (pd.DataFrame.from_arrow(messages), messages.to_pandas(), pd.DataFrame(messages.to_pandas())):
        assert list(pandas.columns) == SCHEMA.names
        assert list(pandas["physical_offset"]) == [row["physical_offset"] for row in rows]


def test_columns_are_those_asked_for_in_that_order(messages: Any) -> None:
    names = ["body", "queue_offset"]
    assert messages.to_arrow(names).equals(pa.table(messages).select(names))
    assert messages.to_polars(columns=names).columns == names
    assert list(messages.to_pandas(columns=names).columns) == names
    assert [batch.column_names for batch in messages.batches(names)] == [names]
    with pytest.raises(ValueError, match="'?.?size.*topic, queue_id"):
        messages.to_arrow(["size"])
    with pytest.raises(TypeError):
        messages.to_polars("body")


def test_batches_are_of_bounded_size_and_can_be_read_again(messages: Any) -> None:
    batches = messages.batches(["body"], max_bytes=40)
    assert len(list(batches)) == len(list(batches)) > 1
    assert batches.to_arrow().equals(messages.to_arrow(["body"]))


def test_numpy_arrays_and_their_pandas_frames_are_refused_with_a_remedy(messages: Any) -> None:
    with pytest.raises(TypeError, match=r"to_pandas\(\)"):
        np.asarray(messages)
    if not isinstance(messages, mqstore.Topic):
        with pytest.raises(TypeError, match=r"to_pandas\(\)"):
            pd.DataFrame(messages)


def test_a_topic_is_read_queue_by_queue_with_one_count_of_its_damage(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    for number in range(9):
        at = encoder.append("orders", b"body %d" % number, queue_id=number % 3)
        if number in (4, 5):
            encoder.log[encoder.log.index(b"body", at)] ^= 1
    with mqstore.open(encoder.write(), check_crc_on_recover=False) as store:
        topic = store.topics["orders"]
        with pytest.raises(mqstore.CorruptError):
            topic.to_arrow()
        batches = topic.batches(errors="skip")
        table = batches.to_arrow()
        assert table["queue_id"].to_pylist() == [0, 0, 0, 1, 1, 2, 2]
        assert batches.skipped == 2
        assert repr(batches) == "<mqstore.Batches of orders, 3 queues, 19 columns, max_bytes=4194304>"
    with mqstore.open(tmp_path / "store", check_crc_on_recover=False, errors="skip") as store:
        assert pa.table(store.topics["orders"]).num_rows == 7


def test_a_topic_without_a_message_is_an_empty_table(store: mqstore.Store, tmp_path: Path) -> None:
    assert store.topics["orders"].queues[0][5:5].to_arrow().schema == SCHEMA
    with mqstore.open(tmp_path / "own", "a") as own:
        own.append("orders", b"x", queue_id=2)
        own.wait_dispatched(0)
        assert own.topics["orders"].queues[0].to_arrow().schema == SCHEMA
        assert own.get("orders", 0, 0).to_arrow().num_rows == 0


def test_a_result_stays_a_table_after_its_store_is_closed(path: Path) -> None:
    with mqstore.open(path) as store:
        result, hits, queue = store.get("orders", 0, 0), store.query("orders", key="k3"), store.topics["orders"].queues[0]
        before = result.to_arrow()
    assert result.to_arrow() == before
    assert pl.DataFrame(result).height == len(result)
    assert repr(result.batches(["body"])) == f"<mqstore.Batches of {len(result)} messages, 1 columns, max_bytes=4194304>"
    for convert in (queue.to_arrow, queue.batches, hits.to_arrow):
        with pytest.raises(mqstore.ClosedError):
            convert()


def test_a_fork_reads_a_result_and_refuses_a_pass_that_its_parent_began(store: mqstore.Store) -> None:
    hits = store.query("orders", key="k3")
    under_way = iter(hits.batches(["body"], max_bytes=40))
    next(under_way)
    child = os.fork()
    if not child:
        status = 1
        try:
            whole = hits.to_arrow(["body"]).num_rows == len(hits)
            try:
                next(under_way)
            except ValueError as error:
                status = 0 if whole and "forked from" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(under_way)) > 1


def test_a_writer_gives_what_it_has_appended(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "own", "a") as store:
        offsets = store.append_batch([b"one", b"two"], "orders")
        store.wait_dispatched(offsets[-1])
        topic = store.topics["orders"]
        assert topic.to_polars(["body"])["body"].to_list() == [b"one", b"two"]
        store.wait_dispatched(store.append("orders", b"three").physical_offset)
        assert duckdb.sql("select count(*) from topic").fetchall() == [(3,)]
