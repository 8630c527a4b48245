"""Files of a wrong length, and recorded sizes that are not those of the files."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mqstore

#: A reader says that a store with a file that is cut short is incomplete.
pytestmark = pytest.mark.filterwarnings("ignore:.*INCOMPLETE:RuntimeWarning")

COUNT = 70
SEGMENT = 16384
QUEUE_FILE = 400


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lengths") / "whole"
    sizes = {"mapped_file_size_commit_log": SEGMENT, "mapped_file_size_consume_queue": QUEUE_FILE}
    with mqstore.open(path, "x", **sizes, max_hash_slot_num=100, max_index_num=400) as store:  # type: ignore[arg-type]
        for number in range(COUNT):
            store.append("orders", b"%d" % number + b"." * 700, keys=f"k{number}", queue_id=0)
    return path


@pytest.fixture(params=[True, False], ids=["recorded", "unrecorded"])
def path(whole: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "store"
    shutil.copytree(whole, path)
    if not request.param:
        (path / "config" / "mqstore.json").unlink()
    return path


def resize(file: Path, by: int) -> int:
    length = file.stat().st_size + by
    os.truncate(file, length)
    return length


def numbers(path: Path) -> list[int]:
    with mqstore.open(path, errors="skip") as store:
        return [int(bytes(message.body).partition(b".")[0]) for message in store.topics["orders"].queues[0]]


def verify(path: Path) -> list[str]:
    with mqstore.open(path) as store:
        return [str(finding.id) for finding in store.verify().findings]


OPENS: list[Callable[[Path], object]] = [
    lambda path: mqstore.open(path),
    lambda path: mqstore.open(path, "a"),
    lambda path: mqstore.repair(path),
    lambda path: mqstore.repair(path, dry_run=False),
    lambda path: mqstore.rebuild(path, dry_run=False),
]


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("by", [1, 20, 4097])
def test_a_segment_that_is_too_long_is_corrupt_and_no_option_is_blamed(path: Path, number: int, by: int) -> None:
    segment = sorted((path / "commitlog").iterdir())[number]
    length = resize(segment, by)
    for opens in OPENS:
        with pytest.raises(mqstore.CorruptError) as raised:
            opens(path)
        assert Path(raised.value.path) == segment
        assert f"expected {SEGMENT} bytes" in str(raised.value)
        assert f"found {length}" in str(raised.value)
        assert "option" not in str(raised.value)
        assert f"extended by {by} bytes; copy the file again" in str(raised.value)
        assert (raised.value.remedy, "truncate -s" in str(raised.value)) == ("cut-file", True)
        assert "cut short" not in str(raised.value)


def test_an_only_segment_that_is_too_long_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=SEGMENT) as store:
        store.append("orders", b"x")
    segment = path / "commitlog" / f"{0:020}"
    resize(segment, 1)
    for recorded in (True, False):
        if not recorded:
            (path / "config" / "mqstore.json").unlink()
        with pytest.raises(mqstore.CorruptError) as raised:
            mqstore.open(path, "a")
        assert Path(raised.value.path) == segment
        assert "option" not in str(raised.value)


def expect_cut_short(path: Path, segment: Path) -> None:
    with mqstore.open(path, errors="skip") as store:
        assert not store.recovery.complete
        assert str(segment) in str(store.recovery.missing)
        cut_short = [finding for finding in store.verify().findings if finding.id == "log.cut_short"]
        assert [(finding.severity, Path(finding.file)) for finding in cut_short] == [("error", segment)]
    for refused in (lambda: mqstore.open(path, "a"), lambda: mqstore.rebuild(path, dry_run=False)):
        with pytest.raises(mqstore.CorruptError) as raised:
            refused()
        assert Path(raised.value.path) == segment
        assert "option" not in str(raised.value)
    report = mqstore.repair(path, dry_run=False)
    assert report.refusal is not None
    assert str(segment) in report.refusal
    assert not report.changes


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("by", [-1, -20, -4097])
def test_a_segment_that_is_too_short_is_reported_and_no_option_is_blamed(path: Path, number: int, by: int) -> None:
    segment = sorted((path / "commitlog").iterdir())[number]
    resize(segment, by)
    expect_cut_short(path, segment)
    found = numbers(path)
    assert found == sorted(set(found))
    assert COUNT // 2 < len(found) <= COUNT


@pytest.mark.parametrize("recorded", [True, False])
def test_an_only_segment_that_is_one_byte_short_is_reported(tmp_path: Path, recorded: bool) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=SEGMENT) as store:
        store.append("orders", b"0.", queue_id=0)
    if not recorded:
        (path / "config" / "mqstore.json").unlink()
    segment = path / "commitlog" / f"{0:020}"
    resize(segment, -1)
    expect_cut_short(path, segment)
    assert numbers(path) == [0]


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("by", [1, 20, 400, -1, -20, -200])
@pytest.mark.parametrize("remedy", [mqstore.repair, mqstore.rebuild])
def test_a_queue_file_of_a_wrong_length_is_read_named_and_made_again(
    path: Path, number: int, by: int, remedy: Callable[..., mqstore.RepairReport]
) -> None:
    file = sorted((path / "consumequeue" / "orders" / "0").iterdir())[number]
    resize(file, by)
    found = numbers(path)
    lost = set(range(COUNT)) - set(found)
    first = int(file.name) // 20
    assert found == sorted(found)
    assert lost <= set(range(first, first + 20))
    if by > 0:
        assert not lost
    with mqstore.open(path) as store:
        assert len(list(store.query("orders", "k3"))) == 1
    assert "queue.file_length" in verify(path)
    with pytest.raises(mqstore.CorruptError) as raised:
        mqstore.open(path, "a")
    assert Path(raised.value.path) == file
    assert "rebuild" in str(raised.value)
    planned = remedy(path)
    assert planned.refusal is None
    assert not remedy(path, dry_run=False).left
    assert verify(path) == []
    assert numbers(path) == list(range(COUNT))
    with mqstore.open(path, "a") as store:
        store.append("orders", b"%d." % COUNT, queue_id=0)
    assert numbers(path) == list(range(COUNT + 1))


def record(path: Path, name: str, value: int) -> None:
    file = path / "config" / "mqstore.json"
    text = re.sub(rf'("{name}": )\d+', rf"\g<1>{value}", file.read_text())
    assert text != file.read_text()
    file.write_text(text)


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mapped_file_size_commit_log", 16383),
        ("mapped_file_size_commit_log", 96384),
        ("mapped_file_size_commit_log", 0),
        ("mapped_file_size_commit_log", 12288),
        ("mapped_file_size_commit_log", 32768),
        ("mapped_file_size_consume_queue", 900),
        ("mapped_file_size_consume_queue", 401),
        ("mapped_file_size_consume_queue", 200),
        ("mapped_file_size_consume_queue", 0),
        ("max_hash_slot_num", 200),
        ("max_hash_slot_num", 10),
        ("max_hash_slot_num", 0),
        ("max_index_num", 500),
        ("max_index_num", 300),
        ("max_index_num", 0),
    ],
)
def test_the_files_correct_a_recorded_size(whole: Path, tmp_path: Path, name: str, value: int, mode: str) -> None:
    path = tmp_path / "store"
    shutil.copytree(whole, path)
    sizes = (path / "config" / "mqstore.json").read_text()
    record(path, name, value)
    with mqstore.open(path, mode) as store:  # type: ignore[arg-type]
        assert len(store.topics["orders"].queues[0]) == COUNT
    assert verify(path) == []
    assert mqstore.repair(path).refusal is None
    if mode == "a":
        assert (path / "config" / "mqstore.json").read_text() == sizes, "the record is written again"


@pytest.mark.parametrize(("queues", "size"), [(3, 400), (1, 6_000_000)])
@pytest.mark.parametrize("digit", ["1", "9"])
@pytest.mark.parametrize("remedy", [mqstore.open, mqstore.repair, mqstore.rebuild])
def test_queues_of_one_file_each_correct_a_recorded_size(
    tmp_path: Path, queues: int, size: int, digit: str, remedy: Callable[..., object]
) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_consume_queue=size) as store:
        for number in range(6):
            store.append("orders", b"%d." % number, keys="k", queue_id=number % queues)
    sizes = (path / "config" / "mqstore.json").read_text()
    record(path, "mapped_file_size_consume_queue", int(digit + str(size)[1:]))
    assert verify(path) == []
    if remedy is mqstore.open:
        with mqstore.open(path, "a") as store:
            store.append("orders", b"6.", queue_id=0)
    else:
        remedy(path, dry_run=False)
        mqstore.open(path, "a").close()
    assert verify(path) == []
    assert {file.stat().st_size for file in (path / "consumequeue").rglob("0*") if file.is_file()} == {size}
    assert (path / "config" / "mqstore.json").read_text() == sizes


def test_a_shortened_only_queue_file_does_not_correct_the_recorded_size(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_consume_queue=QUEUE_FILE) as store:
        store.append("orders", b"x", queue_id=0)
    resize(path / "consumequeue" / "orders" / "0" / f"{0:020}", -40)
    with pytest.raises(mqstore.CorruptError, match=f"{QUEUE_FILE} bytes were expected"):
        mqstore.open(path, "a")


@pytest.mark.parametrize(("name", "value"), [("max_hash_slot_num", 200), ("max_index_num", 500)])
def test_rebuild_keeps_the_size_of_index_files_with_a_wrong_record(whole: Path, tmp_path: Path, name: str, value: int) -> None:
    path = tmp_path / "store"
    shutil.copytree(whole, path)
    lengths = {file.stat().st_size for file in (path / "index").iterdir()}
    record(path, name, value)
    mqstore.rebuild(path, dry_run=False)
    assert {file.stat().st_size for file in (path / "index").iterdir()} == lengths
    with mqstore.open(path) as store:
        assert len(list(store.query("orders", "k3"))) == 1
    assert verify(path) == []


def test_a_segment_that_is_cut_to_its_length_as_advised_opens_whole(path: Path) -> None:
    segment = sorted((path / "commitlog").iterdir())[0]
    resize(segment, 1)
    with pytest.raises(mqstore.CorruptError) as raised:
        mqstore.open(path)
    length = re.search(r"expected (\d+) bytes", raised.value.reason)
    assert length is not None
    os.truncate(raised.value.path, int(length[1]))
    assert (numbers(path), verify(path)) == (list(range(COUNT)), [])
