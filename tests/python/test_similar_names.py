"""The closest names in the errors about unknown topics, options, columns and fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mqstore


def test_an_unknown_name_is_refused_with_the_closest_ones(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"x")
        topics: Any = store.topics
        with pytest.raises(KeyError, match='has no topic "ordres"; there is orders'):
            topics["ordres"]
        with pytest.raises(KeyError, match='has no topic "zzz"\'$'):
            topics["zzz"]
        for refused in (store.scan, store.topics["orders"].to_arrow):
            with pytest.raises(ValueError, match='columns names "tag".*; there is tags'):
                refused(columns=["tag"])
        with pytest.raises(ValueError, match='columns names "body" twice$'):
            store.scan(columns=["body", "body"])
        with pytest.raises(ValueError, match='"keyz" is not a field of a message.*; there is keys'):
            store.append_batch([{"topic": "t", "body": b"", "keyz": "x"}])
    options: Any = {"error": "skip"}
    with pytest.raises(TypeError, match='has no option "error"; there is errors: help'):
        mqstore.open(tmp_path / "store", **options)
