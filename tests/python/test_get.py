"""`Store.get` answers as a broker answers a pull."""

from __future__ import annotations

from pathlib import Path

import pytest
from encoder import PRE_BLANK, Encoder

import mqstore


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    return Encoder(tmp_path / "store")


@pytest.fixture
def ten(encoder: Encoder) -> Path:
    """Queue offsets 0 to 9, tags in turn paid, refund and none."""
    for number in range(10):
        encoder.append("orders", b"%d" % number, tags=("paid", "refund", None)[number % 3])
    return encoder.write()


def offsets(messages: mqstore.GetResult) -> list[int]:
    return [message.queue_offset for message in messages]


def test_found_names_the_next_position(ten: Path) -> None:
    with mqstore.open(ten) as store:
        result = store.get("orders", 0, 3, 4)
        assert (result.status, offsets(result), result.next_begin_offset) == ("FOUND", [3, 4, 5, 6], 7)
        assert (result.min_offset, result.max_offset) == (0, 10)
        assert result.messages == list(result)
        assert isinstance(result.messages, list)


@pytest.mark.parametrize(
    ("queue", "offset", "status", "next_begin_offset"),
    [
        (0, 10, "OFFSET_OVERFLOW_ONE", 10),
        (0, 11, "OFFSET_OVERFLOW_BADLY", 10),
        (0, -1, "OFFSET_TOO_SMALL", 0),
        (5, 3, "NO_MESSAGE_IN_QUEUE", 0),
    ],
)
def test_an_offset_outside_has_rocketmqs_status(ten: Path, queue: int, offset: int, status: str, next_begin_offset: int) -> None:
    with mqstore.open(ten) as store:
        result = store.get("orders", queue, offset)
        assert (result.status, result.next_begin_offset, len(result)) == (status, next_begin_offset, 0)


def test_an_unknown_topic_has_no_message_in_queue(ten: Path) -> None:
    with mqstore.open(ten) as store:
        assert store.get("nothing", 0, 0).status == "NO_MESSAGE_IN_QUEUE"


def test_no_match_moves_past_what_was_examined(ten: Path) -> None:
    with mqstore.open(ten) as store:
        result = store.get("orders", 0, 0, tags="void")
        assert (result.status, result.next_begin_offset) == ("NO_MATCHED_MESSAGE", 10)


def test_a_queue_whose_records_are_gone_is_being_removed(encoder: Encoder) -> None:
    for _ in range(60):
        encoder.append("orders", b"x" * 500)
    path = encoder.write()
    (path / "commitlog" / f"{0:020}").unlink()
    # The queue's own minimum moves up to the first record that is left.
    with mqstore.open(path) as store:
        result = store.get("orders", 0, 0)
        assert result.status == "OFFSET_TOO_SMALL"
        assert result.next_begin_offset == result.min_offset > 0
        assert store.get("orders", 0, result.min_offset).status == "FOUND"


def test_pre_blanks_at_the_start_of_a_queue_are_passed_over(encoder: Encoder) -> None:
    for _ in range(5):
        encoder.append("orders", b"x")
    encoder.queues["orders", 0][:2] = [PRE_BLANK] * 2
    with mqstore.open(encoder.write()) as store:
        queue = store.topics["orders"].queues[0]
        assert [message.queue_offset for message in queue] == [2, 3, 4]
        assert offsets(store.get("orders", 0, queue.min_offset)) == [2, 3, 4]


def test_a_scan_examines_800_entries_unless_it_is_unbounded(encoder: Encoder) -> None:
    encoder.queue_file_entries = 2000
    for number in range(900):
        encoder.append("orders", tags="late" if number == 850 else "early")
    with mqstore.open(encoder.write()) as store:
        result = store.get("orders", 0, 0, tags="late")
        assert (result.status, result.next_begin_offset) == ("NO_MATCHED_MESSAGE", 800)
        assert offsets(store.get("orders", 0, 0, tags="late", bounded=False)) == [850]


def test_bytes_and_count_are_capped_unless_unbounded(encoder: Encoder) -> None:
    for _ in range(50):
        encoder.append("orders", b"x" * 8000)
    with mqstore.open(encoder.write()) as store:
        # 262,144 bytes of records, or 32 messages.
        assert sum(message.store_size for message in store.get("orders", 0, 0, 50)) <= 262_144
        assert len(store.get("orders", 0, 0, 50)) == 32
        assert len(store.get("orders", 0, 0, 50, bounded=False)) == 50
    with mqstore.open(encoder.path, access_message_in_memory_max_ratio=0) as store:
        assert len(store.get("orders", 0, 0, 50)) == 8


def test_a_store_larger_than_memory_is_thought_to_be_suggests_the_slave(ten: Path) -> None:
    with mqstore.open(ten, access_message_in_memory_max_ratio=0) as store:
        assert store.get("orders", 0, 0).suggest_pulling_from_slave
    with mqstore.open(ten, access_message_in_memory_max_ratio=100) as store:
        assert not store.get("orders", 0, 0).suggest_pulling_from_slave


@pytest.mark.parametrize("wanted", ["paid", "refund || paid", " paid||refund ", "*", None, "void"])
def test_tags_give_what_a_filter_over_the_whole_queue_gives(ten: Path, wanted: str | None) -> None:
    with mqstore.open(ten) as store:
        names = {name.strip() for name in (wanted or "*").split("||")}
        everything = store.topics["orders"].queues[0]
        filtered = [message for message in everything if names == {"*"} or message.tags in names]
        assert store.get("orders", 0, 0, tags=wanted).messages == filtered


def test_tags_of_one_hash_do_not_mix(encoder: Encoder) -> None:
    for tags in ("Aa", "BB", "Aa", "BB"):
        encoder.append("orders", tags=tags)
    with mqstore.open(encoder.write()) as store:
        assert [message.tags for message in store.get("orders", 0, 0, tags="Aa")] == ["Aa", "Aa"]
        assert offsets(store.get("orders", 0, 0, tags="BB")) == [1, 3]


def test_where_sees_what_the_tags_let_through_and_decides(ten: Path) -> None:
    seen = []

    def even(message: mqstore.Message) -> bool:
        seen.append(message.queue_offset)
        return int(message.body) % 2 == 0

    with mqstore.open(ten) as store:
        result = store.get("orders", 0, 0, tags="paid", where=even)
        assert offsets(result) == [0, 6]
        assert seen == [0, 3, 6, 9]
        assert result.next_begin_offset == 10


def test_what_where_raises_comes_out(ten: Path) -> None:
    def broken(message: mqstore.Message) -> bool:
        raise RuntimeError(f"at {message.queue_offset}")

    with mqstore.open(ten) as store, pytest.raises(RuntimeError, match="at 4"):
        store.get("orders", 0, 4, where=broken)


def test_the_result_is_a_sequence(ten: Path) -> None:
    with mqstore.open(ten) as store:
        result = store.get("orders", 0, 0)
        assert offsets(result[2:4]) == [2, 3]
        assert result[-1].queue_offset == 9
        assert [message.queue_offset for message in reversed(result)] == list(range(9, -1, -1))
        assert result[4] in result
        assert result.index(result[4]) == 4
        assert result.count(result[4]) == 1
        with pytest.raises(IndexError):
            result[10]
        assert repr(result) == "<mqstore.GetResult FOUND, 10 messages, next_begin_offset=10, queue 0..10>"


def test_a_get_looks_at_the_entries_of_each_missing_segment(tmp_path: Path) -> None:
    encoder = Encoder(tmp_path / "store")
    starts = [encoder.append("orders", b"x" * 1_000, tags="even" if n < 42 else "odd") for n in range(70)]
    encoder.write()
    segments = [start // encoder.segment_size for start in starts]
    assert (segments[27], segments[28], segments[41], segments[42], segments[50]) == (1, 2, 2, 3, 3)
    for segment in (2, 3):
        (encoder.path / "commitlog" / f"{segment * encoder.segment_size:020}").unlink()
    with pytest.warns(RuntimeWarning, match="INCOMPLETE"):
        store = mqstore.open(encoder.path)
    with store:
        for tags, status in ((None, "MESSAGE_WAS_REMOVING"), ("even", "NO_MATCHED_MESSAGE"), ("odd", "MESSAGE_WAS_REMOVING")):
            result = store.get("orders", 0, 28, tags=tags)
            assert (result.status, result.next_begin_offset, len(result)) == (status, 50, 0)
