"""`StoreError.remedy`: what helps after an error, as data, and in the words of Python at the end of its text."""

from __future__ import annotations

import copy
import pickle
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from encoder import Encoder

import mqstore
from mqstore.errors import Remedy

NAMES = [name for names in typing.get_args(Remedy) for name in typing.get_args(names)]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A closed store of 100 messages; the body of number 40 is damaged."""
    encoder = Encoder(tmp_path / "store")
    for number in range(100):
        encoder.append("orders", b"number %d" % number)
    encoder.log[encoder.log.index(b"number 40")] ^= 1
    return encoder.write(clean=True)


def expect(error: mqstore.StoreError, remedy: str, advice: str) -> None:
    """The error, and each copy of it, has the remedy, and its text ends with the words."""
    for each in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (each.remedy, str(each)) == (remedy, str(error))
        assert each.remedy in NAMES
        assert each.advice is not None
        assert advice in each.advice
        assert str(each).endswith(f"; {each.advice}")


def test_damaged_message_names_skip_and_salvage(damaged: Path) -> None:
    with mqstore.open(damaged) as store, pytest.raises(mqstore.CorruptError) as raised:
        store.topics["orders"].queues[0][40]
    expect(raised.value, "skip-or-salvage", 'errors="skip"')
    assert "errors=" not in raised.value.reason


def damaged_at(store: mqstore.Store) -> int:
    before = store.topics["orders"].queues[0][39]
    return before.physical_offset + before.store_size


#: Calls that read a damaged message, with and without an argument `errors`.
READS: dict[str, Callable[[mqstore.Store], object]] = {
    "iter(queue)": lambda store: list(store.topics["orders"].queues[0]),
    "queue.to_arrow": lambda store: store.topics["orders"].queues[0].to_arrow(),
    "queue[:].to_pandas": lambda store: store.topics["orders"].queues[0][:].to_pandas(),
    "topic.to_polars": lambda store: store.topics["orders"].to_polars(),
    "scan.to_arrow": lambda store: store.scan().to_arrow(),
    "the Arrow stream": lambda store: pa.table(store.topics["orders"]),
    "tail": lambda store: list(store.topics["orders"].queues[0].tail(start=0, timeout=0)),
    "follow": lambda store: list(store.follow("orders", start="earliest", timeout=0)),
    "get": lambda store: store.get("orders", 0, 40),
    "fetch": lambda store: list(store.fetch(pa.table({"physical_offset": [damaged_at(store)]}))),
    "a fetch where no message is": lambda store: list(store.fetch(pa.table({"physical_offset": [5]}))),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_the_advice_to_skip_works_for_each_call(read: Callable[[mqstore.Store], object], damaged: Path) -> None:
    with mqstore.open(damaged) as store, pytest.raises(Exception, match='open the store with errors="skip"'):
        read(store)
    with mqstore.open(damaged, errors="skip") as store:
        read(store)


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_the_advice_of_a_damaged_message_reads_the_others(errors: Literal["raise", "skip"], damaged: Path) -> None:
    with mqstore.open(damaged, errors=errors) as store:
        for read in (lambda: store.topics["orders"].queues[0][40], lambda: store.message_at(damaged_at(store))):
            with pytest.raises(mqstore.CorruptError, match='to read the other messages, open the store with errors="skip"'):
                read()
    with mqstore.open(damaged, errors="skip") as store:
        assert len(list(store.topics["orders"].queues[0])) == 99


def test_missing_message_of_a_fetch_names_skip(damaged: Path) -> None:
    with mqstore.open(damaged) as store, pytest.raises(mqstore.NotFoundError) as raised:
        list(store.fetch(pa.table({"physical_offset": [5]})))
    expect(raised.value, "skip", 'errors="skip"')


def test_unknown_id_names_the_walk(damaged: Path) -> None:
    with mqstore.open(damaged) as store, pytest.raises(mqstore.NotFoundError) as raised:
        store.message("typo")
    expect(raised.value, "walk-log", "walk=True")


def test_second_writer_gets_the_remedy_to_read(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "a"), pytest.raises(mqstore.LockedError) as raised:
        mqstore.open(tmp_path / "store", "a")
    expect(raised.value, "read-only", 'mode "r"')


def test_gap_in_the_log_is_a_remedy_of_recovery_and_of_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=4096) as store:
        store.append_batch([b"x" * 500] * 50, topic="orders")
    (path / "commitlog" / f"{4096:020}").unlink()
    with pytest.warns(
        RuntimeWarning, match='INCOMPLETE.*put it back; to read the other messages, open the store with errors="skip"'
    ):
        store = mqstore.open(path)
    with store:
        assert store.recovery.remedy == "skip-or-put-back"
        assert (store.recovery.missing or "").endswith("put it back")
    with pytest.raises(mqstore.CorruptError) as raised:
        mqstore.open(path, "a")
    expect(raised.value, "read-around-gap", 'mode "r"')


def test_error_without_a_remedy_has_no_advice(tmp_path: Path) -> None:
    with pytest.raises(mqstore.NotAStoreError) as raised:
        mqstore.open(tmp_path)
    assert (raised.value.remedy, raised.value.advice) == (None, None)
