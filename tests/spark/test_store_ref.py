from __future__ import annotations

import dataclasses
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore
from mqstore.spark import _store
from mqstore.spark._store import StoreRef
from mqstore.spark.source import MessageDataSource

WriteStore = Callable[..., None]


@pytest.fixture(autouse=True)
def _nothing_open() -> None:
    _store._opened.clear()


def test_a_reference_travels_as_a_few_bytes(events_store: Path) -> None:
    with mqstore.open(events_store) as store:
        ref = StoreRef.plan(store)
        travelled = pickle.dumps(ref)
        assert len(travelled) < 1000
        assert pickle.loads(travelled) == ref
        assert pickle.loads(travelled).open().max_physical_offset == store.max_physical_offset


def test_the_data_source_and_its_parts_pickle(events_store: Path) -> None:
    source = pickle.loads(pickle.dumps(MessageDataSource({"path": str(events_store)})))
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    partitions = pickle.loads(pickle.dumps(reader.partitions()))
    assert sum(batch.num_rows for part in partitions for batch in reader.read(part)) == 7865


def test_a_relative_path_travels_as_absolute(events_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(events_store.parent)
    assert StoreRef.plan(events_store.name).path == str(events_store)
    with mqstore.open(events_store.name) as store:
        ref = StoreRef.plan(store)
    monkeypatch.chdir("/")
    assert ref.open().max_physical_offset == ref.end


def test_a_process_opens_a_store_once(events_store: Path) -> None:
    ref = StoreRef.plan(events_store)
    assert ref.open() is ref.open() is StoreRef.plan(str(events_store)).open()


def test_a_closed_reader_is_opened_again(events_store: Path) -> None:
    ref = StoreRef.plan(events_store)
    ref.open().close()
    assert not ref.open().closed


def test_a_store_that_grew_since_is_opened_again(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path, [("t", 0, b"a")], segment=8192)
    before = StoreRef.plan(tmp_path)
    old = before.open()
    write_store(tmp_path, [("t", 0, b"a"), ("t", 0, b"b")], segment=8192)
    after = StoreRef.plan(tmp_path)
    assert after.end > before.end
    assert after.open() is not old
    assert len(after.open().topics["t"].queues[0]) == 2
    assert before.open() is after.open()


def test_another_store_at_the_same_path_is_opened_anew(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path / "store", [("t", 0, b"first"), ("t", 0, b"second")], segment=8192)
    StoreRef.plan(tmp_path / "store").open()
    shutil.rmtree(tmp_path / "store")
    write_store(tmp_path / "store", [("u", 0, b"other")], segment=8192)
    assert list(StoreRef.plan(tmp_path / "store").open().topics) == ["u"]


def test_a_copy_that_ends_before_the_plan_is_refused(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path / "whole", [("t", 0, b"a"), ("t", 0, b"b")], segment=8192)
    write_store(tmp_path / "older", [("t", 0, b"a")], segment=8192)
    end = StoreRef.plan(tmp_path / "whole").end
    with pytest.raises(mqstore.StoreError, match=f"ended at {end} where the job was planned"):
        dataclasses.replace(StoreRef.plan(tmp_path / "older"), end=end).open()


def test_only_a_few_stores_stay_open(tmp_path: Path, write_store: WriteStore) -> None:
    refs = []
    for n in range(_store._KEPT_OPEN + 2):
        write_store(tmp_path / str(n), [("t", 0, b"a")], segment=8192)
        refs.append(StoreRef.plan(tmp_path / str(n)))
        refs[-1].open()
        first = refs[0].open()
    assert len(_store._opened) == _store._KEPT_OPEN
    assert refs[0].open() is first, "the most recently used stay"


def test_what_is_no_store_is_refused_where_the_job_is_planned(tmp_path: Path) -> None:
    with pytest.raises(mqstore.NotAStoreError):
        StoreRef.plan(tmp_path)
    with pytest.raises(TypeError, match=r"a path or an open mqstore\.Store, not int"):
        StoreRef.plan(7)  # type: ignore[arg-type]


def test_a_closed_store_is_refused_where_the_job_is_planned(events_store: Path) -> None:
    store = mqstore.open(events_store)
    store.close()
    with pytest.raises(mqstore.ClosedError):
        StoreRef.plan(store)
