"""The recipes for lakehouse tables in docs/RECIPES.md load each message once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import pyarrow as pa
import pyiceberg.exceptions
import pyiceberg.table
import pytest
from test_recipes import PAGE, RECIPE

Commit = Callable[..., None]
EVENTS = 7865


@dataclass
class Recipe:
    """A recipe after it ran: its table has the store as that of broker-a, loaded in three commits."""

    names: dict[str, Any]
    open_table: Callable[[], Any]
    read: Callable[[], pa.Table]
    commit: Commit
    replace_commit: Callable[[Commit], AbstractContextManager[Any]]
    conflict: type[Exception]

    def load(self) -> None:
        self.names["load"](self.open_table(), "broker-b", "store")

    def copies(self) -> Counter[int]:
        """Counts messages by the number of their rows."""
        rows = self.read().select(["topic", "queue_id", "queue_offset"]).to_pylist()
        return Counter(Counter(tuple(row.values()) for row in rows).values())


def iceberg(names: dict[str, Any]) -> Recipe:
    def open_table() -> pyiceberg.table.Table:
        table: pyiceberg.table.Table = names["catalog"].load_table("mq.messages")
        return table

    owner = pyiceberg.table.Table
    return Recipe(
        names,
        open_table,
        lambda: open_table().scan().to_arrow(),
        owner.append,
        lambda commit: mock.patch.object(owner, "append", commit),
        pyiceberg.exceptions.CommitFailedException,
    )


def delta(names: dict[str, Any]) -> Recipe:
    return Recipe(
        names,
        lambda: deltalake.DeltaTable("messages"),
        lambda: deltalake.DeltaTable("messages").to_pyarrow_table(),
        deltalake.write_deltalake,
        lambda commit: mock.patch.dict(names, write_deltalake=commit),
        deltalake.exceptions.CommitFailedError,
    )


@pytest.fixture(params=[("pyiceberg", iceberg), ("deltalake", delta)], ids=["pyiceberg", "deltalake"])
def recipe(request: pytest.FixtureRequest, events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    library, make = request.param
    (tmp_path / "store").symlink_to(events)
    monkeypatch.chdir(tmp_path)
    (found,) = (each for each in RECIPE.finditer(PAGE.read_text(encoding="utf-8")) if f"\nfrom {library}" in each["program"])
    names: dict[str, Any] = {}
    exec(compile(found["program"], PAGE, "exec"), names)
    made: Recipe = make(names)
    assert made.copies() == {1: EVENTS}
    return made


class KilledError(Exception):
    """The end of the process that loads."""


def test_a_killed_and_repeated_load_has_each_message_once(recipe: Recipe) -> None:
    calls = itertools.count(1)

    def commit(*arguments: Any, **options: Any) -> None:
        call = next(calls)
        if call in (1, 3):
            raise KilledError
        recipe.commit(*arguments, **options)
        if call in (2, 5):
            raise KilledError

    with recipe.replace_commit(commit):
        for _ in range(4):
            with pytest.raises(KilledError):
                recipe.load()
        recipe.load()
    assert next(calls) == 6, "the calls 2, 4 and 5 committed the three ranges"
    assert recipe.copies() == {2: EVENTS}, "one row of each broker"


def test_a_load_that_another_one_overtakes_fails_and_repeats_nothing(recipe: Recipe) -> None:
    def commit(*arguments: Any, **options: Any) -> None:
        with recipe.replace_commit(recipe.commit):
            recipe.load()
        recipe.commit(*arguments, **options)

    with recipe.replace_commit(commit), pytest.raises(recipe.conflict):
        recipe.load()
    assert recipe.copies() == {2: EVENTS}


def test_a_load_refuses_a_store_without_the_offset_where_it_continues(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "store").unlink()
    recipe.names["mqstore"].open(tmp_path / "store", "x").close()
    with pytest.raises(ValueError, match="store has the physical offsets 0 to 0, but broker-a was loaded up to 6153015"):
        recipe.names["load"](recipe.open_table(), "broker-a", "store")
