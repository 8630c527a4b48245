"""Reports as values: nothing in them changes, and they are public classes of `mqstore`."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import typing
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import pytest
from encoder import Encoder

import mqstore

COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda report: pickle.loads(pickle.dumps(report))]


@pytest.fixture
def reports(tmp_path: Path) -> dict[str, Any]:
    """One report of each class, of a store with a damaged message; no list of them is empty."""
    encoder = Encoder(tmp_path / "store")
    for number in range(100):
        encoder.append("orders", b"number %d" % number)
    encoder.log[encoder.log.index(b"number 40")] ^= 1
    path = encoder.write(clean=False)
    with mqstore.open(path, errors="skip") as reader:
        found = reader.verify()
    repaired = mqstore.repair(path, into=tmp_path / "copy")
    with mqstore.open(path, "r+", recovery="salvage", max_hash_slot_num=200, max_index_num=2000) as store:
        store.append("orders", b"x")
        given = [
            store.stats(),
            store.stats().topics["orders"],
            store.recovery,
            found,
            found.findings[0],
            repaired,
            repaired.changes[0],
        ]
    return {type(report).__name__: report for report in given}


def test_no_list_of_a_report_can_be_changed(reports: dict[str, Any]) -> None:
    lists = [
        reports["RecoveryReport"].lost,
        reports["VerifyReport"].findings,
        *(reports["RepairReport"].found.findings, reports["RepairReport"].changes, reports["RepairReport"].lost),
    ]
    assert all(lists)
    for value in [*lists, reports["RepairReport"].left]:
        assert (type(value), isinstance(value, Hashable)) == (tuple, True)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("__setitem__", ("new", 1)),
        ("__delitem__", ("orders",)),
        ("__ior__", ({"new": 1},)),
        ("clear", ()),
        ("pop", ("orders",)),
        ("popitem", ()),
        ("setdefault", ("new", 1)),
        ("update", ({"new": 1},)),
    ],
)
def test_the_topics_of_the_counters_cannot_be_changed(reports: dict[str, Any], method: str, arguments: tuple[Any, ...]) -> None:
    for stats in [reports["StoreStats"], *(made(reports["StoreStats"]) for made in COPIES)]:
        with pytest.raises(TypeError, match="read-only"):
            getattr(stats.topics, method)(*arguments)
        assert stats.topics == {"orders": reports["TopicStats"]}
        assert stats == reports["StoreStats"]


def test_a_copy_of_the_topics_of_the_counters_is_a_plain_dict(reports: dict[str, Any]) -> None:
    topics = reports["StoreStats"].topics
    for copied in [dict(topics), topics | {}, topics.copy(), *(made(topics) for made in COPIES)]:
        assert (type(copied), copied) == (dict, topics)
        copied.clear()
    assert reports["StoreStats"].topics == {"orders": reports["TopicStats"]}


def test_the_dict_of_the_counters_is_plain(reports: dict[str, Any]) -> None:
    topics = reports["StoreStats"].to_dict()["topics"]
    assert (type(topics), type(topics["orders"])) == (dict, dict)
    assert topics == dataclasses.asdict(reports["StoreStats"])["topics"]


def test_reports_copy_and_pickle_under_their_public_names(reports: dict[str, Any]) -> None:
    assert len(reports) == 7
    assert "after a crash" in repr(reports["RecoveryReport"])
    for name, report in reports.items():
        assert repr(type(report)) == f"<class 'mqstore.{name}'>"
        assert b"mqstore._reports" not in pickle.dumps(report)
        for back in [*(made(report) for made in COPIES), dataclasses.replace(report)]:
            assert (back, hash(back), repr(back), type(back)) == (report, hash(report), repr(report), type(report))


def test_reports_have_public_fields_and_no_others(reports: dict[str, Any]) -> None:
    for report in reports.values():
        names = [field.name for field in dataclasses.fields(report)]
        assert [name for name in names if name.startswith("_")] == []
        values = dataclasses.asdict(report)
        assert list(values) == names
        assert set(names) <= set(typing.get_type_hints(type(report)))
        assert json.loads(json.dumps(values)).keys() == values.keys()


def test_no_attribute_of_a_report_can_be_set_or_deleted(reports: dict[str, Any]) -> None:
    for report in reports.values():
        before = repr(report)
        for name in (dataclasses.fields(report)[0].name, "ok", "new"):
            with pytest.raises(dataclasses.FrozenInstanceError, match=name):
                setattr(report, name, 1)
            with pytest.raises(dataclasses.FrozenInstanceError, match=name):
                delattr(report, name)
        assert repr(report) == before
