"""Trims the store of a broker that is down from the command line."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore

SEGMENT = 1 << 20


@pytest.fixture
def store(events: Path, tmp_path: Path) -> Path:
    """A store of six segments; a group has not consumed the first message."""
    path = Path(shutil.copytree(events, tmp_path / "events"))
    (path / "config").mkdir()
    with mqstore.open(path) as events_store:
        first = events_store.message_at(0)
    progress = {"offsetTable": {f"{first.topic}@billing": {str(first.queue_id): first.queue_offset}}}
    (path / "config" / "consumerOffset.json").write_text(json.dumps(progress))
    return path


def first_segment(store: Path) -> int:
    return int(min(os.listdir(store / "commitlog")))


def test_trim_counts_what_it_would_remove_and_removes_it_with_yes(events: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    store = Path(shutil.copytree(events, tmp_path / "events"))
    listed = run("trim", store, "--max-bytes", "4M", "--utc")
    assert (listed.code, listed.out.splitlines()) == (
        0,
        [
            "would remove: 2 segments, 2097152 bytes, stored from 2026-11-21 08:12:44.205 to 2026-11-21 08:12:44.799",
            "nothing was changed: --yes removes them",
        ],
    )
    assert first_segment(store) == 0
    done = run("trim", store, "--max-bytes", "4M", "--yes")
    assert done.code == 0
    assert first_segment(store) == 2 * SEGMENT
    assert run("trim", store, "--max-bytes", "4M").out == "nothing to remove: the last segment always stays\n"
    assert run("trim", store, "--max-bytes", "3M").out.startswith("would remove: 1 segment, 1048576 bytes, ")
    assert run("verify", store).code == 0


def test_unread_messages_are_refused_without_force_and_named(store: Path, run: Callable[..., Any]) -> None:
    kept = run("trim", store, "--before", "0d", "--yes")
    assert (kept.code, first_segment(store)) == (1, 0)
    [nothing, group, force] = kept.out.splitlines()
    assert nothing == "nothing to remove"
    assert group.startswith("keep: ")
    assert group.endswith(" that billing has not consumed")
    assert force == "--force also removes what a group has not consumed"
    forced = run("trim", store, "--before", "0d", "--yes", "--force", "--json")
    [report] = forced.rows
    assert (forced.code, report["kept_for"], len(report["segments"])) == (0, [], 5)
    assert report["unread"][0]["group"] == "billing"
    assert report["since"] == "2026-11-21T08:12:44.205Z"
    assert first_segment(store) == 5 * SEGMENT


def test_a_store_with_a_writer_and_wrong_arguments_are_refused(tmp_path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"x")
        refused = run("trim", store.path, "--before", "3d", "--yes")
        assert refused.code == 3
        assert "lock" in refused.err
    for wrong in ((), ("--before", "3d", "--max-bytes", "1G"), ("--before", "3x"), ("--max-bytes", "1X")):
        assert run("trim", tmp_path / "store", *wrong).code == 2
    assert run("trim", tmp_path / "none", "--before", "3d").code == 3
