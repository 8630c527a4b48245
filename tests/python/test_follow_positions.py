"""Start positions of `follow` and `tail`: each is used as given or refused with the bounds, and none skips or waits silently."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest

import mqstore

Start = Callable[[mqstore.Store, Any, dict[str, Any]], Any]


def by_follow(store: mqstore.Store, offset: Any, options: dict[str, Any]) -> Any:
    return store.follow(start={("orders", 0): offset}, timeout=0, **options)


def by_tail(store: mqstore.Store, offset: Any, options: dict[str, Any]) -> Any:
    return store.topics["orders"].queues[0].tail(0, start=offset, **options)


@pytest.fixture(params=[by_follow, by_tail])
def start(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["r", "a"])
def two(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[mqstore.Store, mqstore.Store]]:
    """A writer with three messages in queue orders/0, and the store that is followed: a reader, or the writer itself."""
    with mqstore.open(tmp_path / "store", "x", mapped_file_size_commit_log=65536) as writer:
        writer.append_batch([b"0", b"1", b"2"], topic="orders")
        writer.append("payments", b"p")
        writer.wait_dispatched()
        if request.param == "a":
            yield writer, writer
        else:
            with mqstore.open(writer.path) as store:
                yield writer, store


def bodies(messages: Any) -> list[str]:
    return [message.body.decode() for message in messages]


@pytest.mark.parametrize("offset", [4, 2**40, 2**63 - 1, -1, -(2**63)])
def test_position_outside_the_queue_is_refused_with_its_bounds(two: Any, start: Start, offset: int) -> None:
    _, store = two
    with pytest.raises(mqstore.NotFoundError) as raised:
        start(store, offset, {})
    text = str(raised.value)
    assert f"orders/0 at queue offset {offset}" in text
    assert "valid positions are 0 to 3" in text
    assert 'on_missing="earliest"' in text
    assert '"latest"' in text


@pytest.mark.parametrize("offset", [4, 2**63 - 1, -1, -(2**63)])
def test_on_missing_begins_at_an_end_of_the_queue(two: Any, start: Start, offset: int) -> None:
    writer, store = two
    earliest = start(store, offset, {"on_missing": "earliest"})
    latest = start(store, offset, {"on_missing": "latest"})
    writer.append("orders", b"3")
    assert bodies(earliest) == ["0", "1", "2", "3"]
    assert bodies(latest) == ["3"]


@pytest.mark.parametrize("options", [{}, {"on_missing": "earliest"}, {"on_missing": "latest"}])
def test_position_inside_the_queue_or_at_its_end_is_used(two: Any, start: Start, options: dict[str, Any]) -> None:
    writer, store = two
    iterators = [start(store, offset, options) for offset in range(4)]
    writer.append("orders", b"3")
    assert [bodies(each) for each in iterators] == [["0", "1", "2", "3"], ["1", "2", "3"], ["2", "3"], ["3"]]


def test_bounds_are_those_of_a_refresh(two: Any, start: Start) -> None:
    writer, store = two
    writer.append("orders", b"3")
    writer.wait_dispatched()
    at_end = start(store, 4, {})
    with pytest.raises(mqstore.NotFoundError, match="are 0 to 4"):
        start(store, 5, {})
    writer.append("orders", b"4")
    assert bodies(at_end) == ["4"]


class Index:
    """An integer of another class, as numpy has them."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize("offset", [True, False, 1.0, float("nan"), b"1", [1], object()])
def test_position_of_another_type_is_refused(two: Any, start: Start, offset: Any) -> None:
    for options in ({}, {"on_missing": "earliest"}):
        with pytest.raises(TypeError, match="start"):
            start(two[1], offset, options)


@pytest.mark.parametrize("offset", [2**63, -(2**63) - 1, 10**30])
def test_position_of_more_than_64_bits_is_refused(two: Any, start: Start, offset: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        start(two[1], offset, {})


def test_integers_of_other_classes_are_positions(two: Any, start: Start) -> None:
    np = pytest.importorskip("numpy")
    for integer in (Index, np.int64, np.int32, np.uint8):
        assert bodies(start(two[1], integer(2), {})) == ["2"]
    with pytest.raises(mqstore.NotFoundError):
        start(two[1], np.int64(4), {})


@pytest.mark.parametrize("topics", ["payments", ["payments", "none"]])
@pytest.mark.parametrize("on_missing", [None, "earliest", "latest"])
def test_position_in_a_topic_that_is_not_followed_is_refused(two: Any, topics: Any, on_missing: Any) -> None:
    warnings.simplefilter("ignore")
    with pytest.raises(ValueError, match=r"orders/0.*from 0 to 3.*payments"):
        two[1].follow(topics, start={("payments", 0): 0, ("orders", 0): 1}, timeout=0, on_missing=on_missing)


def test_mapping_that_agrees_with_topics_is_followed(two: Any) -> None:
    following = two[1].follow(["orders", "payments"], start={("payments", 0): 0}, timeout=0)
    assert bodies(following) == ["p"]


def test_start_that_can_never_return_a_message_is_refused(two: Any) -> None:
    _, store = two
    with pytest.raises(ValueError, match="start names no queue"):
        store.follow(start={}, timeout=0)
    with pytest.raises(ValueError, match="topics names no topic"):
        store.follow([], timeout=0)
    with pytest.raises(ValueError, match="queue id of start is -1"):
        store.follow(start={("orders", -1): 0}, timeout=0)


@pytest.mark.parametrize("value", ["first", "", 1, True])
def test_another_on_missing_is_refused(two: Any, start: Start, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="on_missing"):
        start(two[1], 1, {"on_missing": value})


def absent(text: str) -> Any:
    return pytest.warns(RuntimeWarning, match=text)


def test_an_absent_topic_is_named_once_and_followed_once_it_exists(two: Any) -> None:
    writer, store = two
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        following = store.follow(["order", "payments", "order"], timeout=0.2)
        assert bodies(following) == []
        assert bodies(following) == []
        writer.append("order", b"first")
        assert bodies(following) == ["first"]
    texts = [str(each.message) for each in caught]
    assert len(texts) == 1, texts
    assert '"order"' in texts[0]
    assert "there is orders" in texts[0]
    assert "payments" not in texts[0]
    assert caught[0].category is RuntimeWarning


def test_absent_topic_of_a_mapping_is_named_once_and_followed_from_0(two: Any) -> None:
    writer, store = two
    mapping = {("later", 0): 0, ("later", 1): 0, ("orders", 0): 3}
    with absent('"later"') as caught:
        following = store.follow(["later", "orders"], start=mapping, timeout=0)
    assert len(caught) == 1
    writer.append("later", b"l", queue_id=1)
    writer.append("orders", b"3")
    assert bodies(following) == ["l", "3"]
    with absent('"none"'), pytest.raises(mqstore.NotFoundError, match="none/0 at queue offset 5.*there is no topic none"):
        store.follow(start={("none", 0): 5})
    with pytest.raises(mqstore.NotFoundError, match="topic orders has no queue 7, only \\[0"):
        store.follow(start={("orders", 7): 5})
    with absent('"none"'):
        assert bodies(store.follow(start={("none", 0): 5}, timeout=0, on_missing="latest")) == []


def test_topic_without_a_similar_name_is_named_alone(two: Any) -> None:
    with absent("zzz") as caught:
        two[1].follow("zzz", timeout=0)
    assert "orders" not in str(caught[0].message)


def test_topics_that_are_there_cause_no_warning(two: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        two[1].follow(timeout=0)
        two[1].follow(["orders", "payments"], timeout=0)


def test_tail_from_a_time_gives_only_what_was_stored_then_or_later(two: Any) -> None:
    writer, store = two
    queue = store.topics["orders"].queues[0]
    later = queue.tail(0, since=datetime.now(UTC) + timedelta(hours=1))
    writer.append("orders", b"3")
    assert bodies(later) == []


def test_expired_position_is_passed_over_unless_on_missing_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400) as writer:
        for _ in range(100):
            writer.append("orders", b"x" * 4000)
    for file in sorted((path / "commitlog").iterdir())[:2]:
        file.unlink()
    (path / "consumequeue" / "orders" / "0" / f"{0:020}").unlink()
    with mqstore.open(path) as store:
        least = store.topics["orders"].queues[0].min_offset
        assert least > 0
        for begin in (by_follow, by_tail):
            first: dict[Literal["earliest", "latest"] | None, list[int]] = {}
            for on_missing in (None, "earliest", "latest"):
                options = {} if on_missing is None else {"on_missing": on_missing}
                first[on_missing] = [m.queue_offset for m in itertools.islice(begin(store, 1, options), 1)]
            assert first == {None: [least], "earliest": [least], "latest": []}
