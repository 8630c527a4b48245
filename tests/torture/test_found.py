"""Failures that the other tests here found, each as a small test."""

from __future__ import annotations

import errno
from itertools import chain, repeat
from pathlib import Path

import pytest
from rig import FAIL, Case, Nursery

import mqstore


def crashed(nursery: Nursery, place: Path, bodies: int) -> Path:
    """A store whose writer died after `bodies` messages of two keys each, all of it dispatched."""
    case = Case(nursery, place)
    case.run("die", count=bodies)
    assert (case.store / "abort").exists()
    return case.store


@pytest.mark.parametrize("length", [0, 40, 471])
def test_an_index_file_that_was_just_being_made_is_no_obstacle(shimmed: Nursery, place: Path, length: int) -> None:
    store = crashed(shimmed, place, 10)
    name = str(int(max((store / "index").iterdir()).name) + 1)
    (store / "index" / name).write_bytes(bytes(length))
    with mqstore.open(store, "a") as writer:
        assert [len(writer.query(f"topic{number % 2}", f"key{number}")) for number in range(10)] == [1] * 10


@pytest.mark.parametrize("lost", range(1, 14))
def test_what_comes_after_a_cut_is_found_whatever_the_index_held_past_it(shimmed: Nursery, place: Path, lost: int) -> None:
    # 19 messages fill two index files, and the third is empty, as a writer leaves it that was about to continue.
    store = crashed(shimmed, place, 19)
    full = max((store / "index").iterdir())
    (store / "index" / str(int(full.name) + 1)).write_bytes(bytes(full.stat().st_size))
    with mqstore.open(store) as reader:
        messages = [message for topic in reader.topics.values() for queue in topic.queues for message in queue]
    end = sorted(message.physical_offset for message in messages)[-lost]
    with (store / "commitlog" / f"{end // 4096 * 4096:020}").open("r+b") as segment:
        segment.seek(end % 4096)
        segment.write(bytes(4096 - end % 4096))
    # The power cut that takes the end of the log leaves an old mark of what was flushed, or none.
    (store / "config" / "mqstore.flushed").unlink()
    with mqstore.open(store, "a") as writer:
        assert writer.max_physical_offset == end
        writer.append("topic0", b"x", keys="new")
    with mqstore.open(store) as reader:
        assert [message.body for message in reader.query("topic0", "new")] == [b"x"]


def test_an_index_without_room_at_first_gets_its_keys_without_poison(shimmed: Nursery, place: Path) -> None:
    # The message is dispatched again, and its queue must not be written out twice.
    met = 0
    # Which calls are the index's depends on the threads.
    for at in chain(range(20, 90), *repeat(range(20, 90), 10)):
        if met and at == 20:
            break
        case = Case(shimmed, place)
        case.run("append_and_flush", at=at, fault=FAIL, errno=errno.ENOSPC)
        journal = case.journal()
        if journal.fault is not None and journal.fault.name in ("create", "fallocate") and "store/index/" in journal.fault.path:
            met += 1
            # A close that meets the full disk says so; a queue file that is made twice is found missing.
            assert {code for _, _, code, _ in journal.raised} <= {str(errno.ENOSPC)}, journal.raised
    assert met
