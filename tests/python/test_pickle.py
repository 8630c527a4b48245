"""Pickling: a reader and its parts as recipe and place, answers by value."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from encoder import Encoder

import mqstore

PARTS: dict[str, Callable[[mqstore.Store], Any]] = {
    "topics": lambda store: store.topics,
    "topic": lambda store: store.topics["orders"],
    "queues": lambda store: store.topics["orders"].queues,
    "queue": lambda store: store.topics["orders"].queues[1],
    "slice": lambda store: store.topics["orders"].queues[1][3:9],
    "slice of a slice": lambda store: store.topics["orders"].queues[1][3:][1:4],
    "empty slice": lambda store: store.topics["orders"].queues[1][3:3],
    "query": lambda store: store.query("orders", key="k1"),
}
ANSWERS: dict[str, Callable[[mqstore.Store], Any]] = {
    "get": lambda store: store.get("orders", 1, 2),
    "get of nothing": lambda store: store.get("orders", 1, 999),
    "message": lambda store: store.message_at(0),
}


def contents(part: Any) -> Any:
    if isinstance(part, mqstore.Topics):
        return {name: contents(topic) for name, topic in part.items()}
    if isinstance(part, mqstore.Topic):
        return contents(part.queues)
    if isinstance(part, mqstore.Queues):
        return [contents(queue) for queue in part]
    return [message.raw for message in part]


def attributes(answer: Any) -> Any:
    if isinstance(answer, mqstore.GetResult):
        names = ("status", "next_begin_offset", "min_offset", "max_offset", "suggest_pulling_from_slave", "skipped", "messages")
        return [getattr(answer, name) for name in names]
    return answer


def fill(folder: Path, count: int = 40) -> Path:
    encoder = Encoder(folder)
    for number in range(count):
        encoder.append("orders", b"%d" % number, queue_id=number % 3, keys=[f"k{number % 4}"])
    encoder.append("other", b"x")
    return encoder.write()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return fill(tmp_path / "store")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_reader_comes_back_as_the_same_part(path: Path, part: str, protocol: int) -> None:
    with mqstore.open(path) as store:
        given = PARTS[part](store)
        back = pickle.loads(pickle.dumps(given, protocol))
        assert type(back) is type(given)
        assert contents(back) == contents(given)
        assert repr(back) == repr(given)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("part", PARTS)
def test_a_copy_of_a_part_reads_the_same(path: Path, part: str, copied: Callable[[Any], Any]) -> None:
    with mqstore.open(path) as store:
        given = PARTS[part](store)
        assert contents(copied(given)) == contents(given)


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_pickles_by_value_and_needs_no_store(path: Path, answer: str) -> None:
    with mqstore.open(path) as store:
        given = ANSWERS[answer](store)
        pickled = pickle.dumps(given)
        expected = attributes(given)
    shutil.rmtree(path)
    back = pickle.loads(pickled)
    assert attributes(back) == expected
    assert attributes(pickle.loads(pickle.dumps(back))) == expected
    if not isinstance(back, mqstore.Message):
        assert back.to_arrow(["body"]).equals(given.to_arrow(["body"]))
        assert repr(back) == repr(given)


def test_reports_are_frozen_values_that_compare_hash_and_pickle(path: Path) -> None:
    with mqstore.open(path) as store:
        recovery = store.recovery
        assert recovery == store.recovery
    repaired = mqstore.repair(path)
    with mqstore.open(path, "r+") as store:
        stats, found = store.stats(), store.verify()
        reports = [recovery, found, found.findings[0], repaired, repaired.found, stats]
        assert store.recovery != recovery
    for report in reports:
        for back in (pickle.loads(pickle.dumps(report)), copy.copy(report), copy.deepcopy(report)):
            assert (back, hash(back), repr(back), type(back)) == (report, hash(report), repr(report), type(report))
        for name in ("ok", "topics", "new"):
            with pytest.raises(AttributeError, match=f"cannot assign to field '{name}'"):
                setattr(report, name, 1)


def test_a_pickle_opens_the_store_once_whatever_it_holds(path: Path) -> None:
    with mqstore.open(path) as store:
        queues = store.topics["orders"].queues
        pickled = pickle.dumps([store, store.topics["other"], *queues, *(queue[1:5] for queue in queues)])
        (first, topic, *queues_back) = pickle.loads(pickled)
        assert isinstance(first, mqstore.Store)
        first.close()
        for part in queues_back:
            with pytest.raises(mqstore.ClosedError):
                list(part)
        with pytest.raises(mqstore.ClosedError):
            topic.to_arrow()


def test_it_opens_with_the_same_options(path: Path) -> None:
    with mqstore.open(path, errors="skip", max_transfer_count_on_message_in_memory=3) as store:
        back = pickle.loads(pickle.dumps(store.topics["orders"].queues[1]))
        again = pickle.loads(pickle.dumps(back))
        reopened = pickle.loads(pickle.dumps(store))
        assert len(reopened.get("orders", 0, 0)) == len(store.get("orders", 0, 0)) == 3
        assert contents(again) == contents(back)


def rows(part: Any) -> int:
    return sum(len(batch) for batch in part.batches(["body"]))


def test_workers_that_are_spawned_read_slices(path: Path) -> None:
    with mqstore.open(path) as store:
        queue = store.topics["orders"].queues[0]
        slices = [queue[at : at + 5] for at in range(0, len(queue), 5)]
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            counts = pool.map(rows, [*slices, store.get("orders", 1, 0)])
        assert sum(counts[:-1]) == len(queue)
        assert counts[-1] == len(store.get("orders", 1, 0))


def test_a_relative_path_is_found_from_another_directory(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with mqstore.open(path.name) as store:
        pickled = pickle.dumps(store.topics["orders"])
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    assert pickle.loads(pickled).to_arrow().num_rows == 40


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_writer_does_not_pickle_and_its_answers_do(tmp_path: Path, part: str) -> None:
    with mqstore.open(tmp_path / "own", "a") as store:
        offsets = store.append_batch([{"body": b"x", "queue_id": n % 2, "keys": ["k1"]} for n in range(30)], "orders")
        store.wait_dispatched(offsets[-1])
        with pytest.raises(TypeError, match=r'open for writing does not pickle.*mode="r"'):
            pickle.dumps(PARTS[part](store))
        for answer in ANSWERS.values():
            assert attributes(pickle.loads(pickle.dumps(answer(store)))) == attributes(answer(store))


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_closed_store_does_not_pickle(path: Path, part: str) -> None:
    with mqstore.open(path) as store:
        given = PARTS[part](store)
    with pytest.raises(mqstore.ClosedError):
        pickle.dumps(given)


def test_what_the_store_does_not_hold_any_more_is_an_error_and_not_less(path: Path) -> None:
    with mqstore.open(path) as store:
        pickled = {name: pickle.dumps(part(store)) for name, part in PARTS.items()}
    shutil.rmtree(path)
    fill(path, count=12)
    assert len(pickle.loads(pickled["queue"])) == 4
    with pytest.raises(mqstore.StoreError, match=r"orders/1 ends at queue offset 4 here, .* held 3 to 9"):
        pickle.loads(pickled["slice"])
    shutil.rmtree(path)
    encoder = Encoder(path)
    encoder.append("other", b"x")
    encoder.write()
    for name in ("topic", "queue", "slice"):
        with pytest.raises(KeyError, match="orders"):
            pickle.loads(pickled[name])
    shutil.rmtree(path)
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickled["topic"])


def test_a_closure_that_holds_a_slice_travels_as_spark_sends_it(path: Path) -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    with mqstore.open(path) as store:
        part, hits = store.topics["orders"].queues[1][3:9], store.query("orders", key="k1")
        pickled = cloudpickle.dumps(lambda: (contents(part), contents(hits)))
        expected = contents(part), contents(hits)
    assert pickle.loads(pickled)() == expected
