"""Damage that a read does not see: docs/RELIABILITY.md lists it."""

from __future__ import annotations

from pathlib import Path

import pytest

import mqstore

COUNT = 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=65536) as store:
        for number in range(COUNT):
            store.append("orders", b"%d" % number, tags="paid", properties={"region": "north"}, queue_id=0)
    return path


def flip(folder: Path, at: int) -> None:
    file = next(folder.iterdir())
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("text", [b"region", b"north"])
def test_a_scan_by_a_property_misses_a_message_whose_property_was_flipped(path: Path, text: bytes) -> None:
    flip(path / "commitlog", next((path / "commitlog").iterdir()).read_bytes().index(text))
    with mqstore.open(path) as store:
        scan = store.scan(topics="orders", properties={"region": "north"})
        assert (scan.to_arrow().num_rows, scan.complete, store.verify().findings) == (COUNT - 1, True, ())


@pytest.mark.parametrize("byte", [16, 17, 18, 19])
def test_get_and_a_consumer_by_tag_miss_a_message_with_a_flipped_tag_code(path: Path, byte: int) -> None:
    flip(path / "consumequeue" / "orders" / "0", 4 * 20 + byte)
    with mqstore.open(path) as store:
        assert len(store.get("orders", 0, 0, tags="paid").messages) == COUNT - 1
        with store.consumer("orders", positions=path.parent / "positions", tags="paid", timeout=0) as consumer:
            assert len(list(consumer)) == COUNT - 1
        assert [str(finding.id) for finding in store.verify().findings] == ["queue.tags_code"]
        for messages in (
            store.scan(topics="orders", tags="paid"),
            store.follow("orders", start="earliest", tags="paid", timeout=0),
        ):
            with pytest.raises(mqstore.CorruptError):
                list(messages)
