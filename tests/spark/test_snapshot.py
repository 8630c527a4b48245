from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import mqstore
from mqstore.cli._main import commands
from mqstore.spark import Stores, _snapshot, manifest
from mqstore.spark._option_reader import OptionReader
from mqstore.spark._options import ACCEPTED, ReadOptions
from mqstore.spark._snapshot import Snapshot
from mqstore.spark.source import MessageDataSource
from mqstore.spark.stores import StoreLike, as_stores, local_path, plan

WriteStore = Callable[..., None]


def snapshot_of(store: StoreLike) -> Snapshot:
    return plan(store)[None]


@pytest.fixture(autouse=True)
def _nothing_open() -> None:
    _snapshot._cache.clear()


def test_a_snapshot_travels_as_a_few_bytes(events_store: Path) -> None:
    with mqstore.open(events_store) as store:
        ref = snapshot_of(store)
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
    assert snapshot_of(events_store.name).path == str(events_store)
    with mqstore.open(events_store.name) as store:
        ref = snapshot_of(store)
    monkeypatch.chdir("/")
    assert ref.open().max_physical_offset == ref.end


def test_a_process_opens_a_store_once(events_store: Path) -> None:
    ref = snapshot_of(events_store)
    assert ref.open() is ref.open() is snapshot_of(str(events_store)).open()


def test_a_closed_reader_is_opened_again(events_store: Path) -> None:
    ref = snapshot_of(events_store)
    ref.open().close()
    assert not ref.open().closed


def test_a_store_that_grew_since_is_looked_at_again(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path, [("t", 0, b"a")], segment=8192)
    before = snapshot_of(tmp_path)
    before.open()
    write_store(tmp_path, [("t", 0, b"a"), ("t", 0, b"b")], segment=8192)
    after = snapshot_of(tmp_path)
    assert after.end > before.end
    assert len(after.open().topics["t"].queues[0]) == 2
    assert before.open() is after.open()


def test_another_store_at_the_same_path_is_opened_again(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path / "store", [("t", 0, b"first"), ("t", 0, b"second")], segment=8192)
    snapshot_of(tmp_path / "store").open()
    shutil.rmtree(tmp_path / "store")
    write_store(tmp_path / "store", [("u", 0, b"other")], segment=8192)
    assert list(snapshot_of(tmp_path / "store").open().topics) == ["u"]


def test_a_store_whose_files_are_written_over_is_another_one(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path, [("t", 0, b"first"), ("t", 0, b"second")], segment=8192)
    planned = snapshot_of(tmp_path)
    planned.open()
    write_store(tmp_path, [("t", 0, b"other"), ("t", 0, b"bodies")], segment=8192)
    with pytest.raises(mqstore.StoreError, match="is not the store that the job was planned with"):
        planned.open()
    other = snapshot_of(tmp_path)
    assert [message.body for message in other.open().topics["t"].queues[0]] == [b"other", b"bodies"]
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(b"")
    write_store(tmp_path, [("t", 0, b"shorter")], segment=4096)
    assert [message.body for message in snapshot_of(tmp_path).open().topics["t"].queues[0]] == [b"shorter"]


def test_a_copy_that_ends_before_the_plan_is_refused(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path / "whole", [("t", 0, b"a"), ("t", 0, b"b")], segment=8192)
    write_store(tmp_path / "older", [("t", 0, b"a")], segment=8192)
    end = snapshot_of(tmp_path / "whole").end
    with pytest.raises(mqstore.StoreError, match=f"ended at {end} when the job was planned"):
        dataclasses.replace(snapshot_of(tmp_path / "older"), end=end).open()


def test_only_a_few_stores_stay_open(tmp_path: Path, write_store: WriteStore) -> None:
    refs = []
    for n in range(_snapshot._KEPT_OPEN + 2):
        write_store(tmp_path / str(n), [("t", 0, b"a")], segment=8192)
        refs.append(snapshot_of(tmp_path / str(n)))
        refs[-1].open()
        first = refs[0].open()
    assert len(_snapshot._cache) == _snapshot._KEPT_OPEN
    assert refs[0].open() is first, "the most recently used stay"


def test_what_is_no_store_is_refused_where_the_job_is_planned(tmp_path: Path) -> None:
    with pytest.raises(mqstore.NotAStoreError):
        snapshot_of(tmp_path)
    with pytest.raises(TypeError, match=r"a path, an open mqstore\.Store or some Stores, not int"):
        snapshot_of(7)  # type: ignore[arg-type]


def test_a_closed_store_is_refused_where_the_job_is_planned(events_store: Path) -> None:
    store = mqstore.open(events_store)
    store.close()
    with pytest.raises(mqstore.ClosedError):
        snapshot_of(store)


def test_stores_travel_without_being_opened_and_open_once_in_a_process(events_store: Path) -> None:
    stores = Stores({"broker-a": events_store, "broker-b": "/not/here"}, errors="skip")
    travelled = pickle.loads(pickle.dumps(stores))
    assert travelled.brokers == ("broker-a", "broker-b")
    assert travelled.open("broker-a") is stores.open("broker-a")
    assert Stores({"broker-a": events_store}).open("broker-a") is not stores.open("broker-a")
    with pytest.raises(mqstore.NotAStoreError):
        travelled.open("broker-b")
    with pytest.raises(KeyError, match="there is no store of broker 'c'; the brokers are broker-a, broker-b"):
        travelled.open("c")


def test_options_of_stores_reach_the_data_source_unchanged(events_store: Path) -> None:
    options = {"lock_timeout": timedelta(seconds=2), "wait_time_out": timedelta(microseconds=1500), "errors": "skip"}
    stores = Stores({"a": events_store}, config=mqstore.StoreConfig(index_tags=True, errors="raise"), **options)
    expected = options | {"index_tags": True}
    assert dict(plan(stores)["a"].options) == expected
    assert dict(plan(ReadOptions.parse(OptionReader(stores.as_options(), ACCEPTED)).stores)["a"].options) == expected
    with mqstore.open(events_store, **options) as reader:
        written = as_stores(reader).as_options()
    assert dict(plan(ReadOptions.parse(OptionReader(written, ACCEPTED)).stores)[None].options) == options
    for wrong in ('{"fortnights": 1}', '{"seconds": "2"}'):
        with pytest.raises(ValueError, match=r'option option.lock_timeout is a duration such as \{"seconds": 2\}, not'):
            OptionReader({"option.lock_timeout": wrong}, ACCEPTED).open_options()


def test_opened_stores_stay_as_they_were(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path, [("t", 0, b"a")], segment=8192)
    stores = Stores({"a": tmp_path})
    end = stores.open("a").max_physical_offset
    write_store(tmp_path, [("t", 0, b"a"), ("t", 0, b"b")], segment=8192)
    assert stores.open("a").max_physical_offset == end
    assert Stores({"a": tmp_path}).open("a").max_physical_offset > end


def test_a_plan_of_stores_has_a_snapshot_of_each_broker(events_store: Path, golden: Path) -> None:
    snapshots = plan(Stores({"a": events_store, "b": golden / "533_mixed"}))
    assert [(broker, snapshot.broker) for broker, snapshot in snapshots.items()] == [("a", "a"), ("b", "b")]
    assert snapshots["a"].open().path == str(events_store)


def test_an_open_reader_is_planned_as_it_is(tmp_path: Path, write_store: WriteStore) -> None:
    write_store(tmp_path, [("t", 0, b"a")], segment=8192)
    with mqstore.open(tmp_path, errors="skip") as store:
        write_store(tmp_path, [("t", 0, b"a"), ("t", 0, b"b")], segment=8192)
        snapshot = snapshot_of(store)
        assert snapshot.end == store.max_physical_offset < snapshot_of(tmp_path).end
        assert snapshot.options == (("errors", "skip"),)


def test_a_manifest_replaces_a_read_of_the_store(tmp_path: Path, events_store: Path) -> None:
    written = manifest(events_store)
    (tmp_path / "a.json").write_text(json.dumps(written))
    for given in (written, tmp_path / "a.json", (tmp_path / "a.json").as_uri()):
        stores = Stores({"a": "/not/here"}, manifests={"a": given})
        assert dataclasses.replace(plan(stores)["a"], path=str(events_store), broker=None) == snapshot_of(events_store)
    with pytest.raises(
        ValueError, match=r"its manifest was not written by mqstore.spark.manifest or .*: KeyError\('min_physical_offset'\)"
    ):
        plan(Stores({"a": "/not/here"}, manifests={"a": {}}))


def test_what_the_command_manifest_prints_is_a_manifest(events_store: Path) -> None:
    printed = CliRunner().invoke(commands, ["manifest", str(events_store)]).stdout
    assert manifest(events_store).items() <= json.loads(printed).items()


def test_bounds_of_stores_that_only_executors_see_come_from_tasks(spark: SparkSession, events_store: Path) -> None:
    with mock.patch("mqstore.spark.stores.os.path.exists", return_value=False):
        found = plan(Stores({"a": events_store, "b": str(events_store)}), spark)
    assert [found[broker].end for broker in "ab"] == [snapshot_of(events_store).end] * 2


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Stores({}), "stores maps names of brokers to paths"),
        (lambda: Stores({"": "/a"}), "the name of a broker is a non-empty str"),
        (lambda: Stores({"a": "/a"}, mode="a"), "mode is not an option of Stores"),
        (lambda: Stores({"a": "/a"}, manifests={"b": {}}), "manifests names b, but the brokers are a"),
        (lambda: Stores({"a": "s3://bucket/a"}), "s3://bucket/a is not a path of a file system: mount it on each node"),
    ],
)
def test_stores_that_cannot_be_are_refused(make: Callable[[], Stores], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def test_paths_are_absolute_and_may_be_uris(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_path("a") == str(tmp_path / "a")
    assert local_path("file:///a%20b") == local_path("file:/a%20b") == "/a b"
    assert as_stores(Path("a")).path() == str(tmp_path / "a")
