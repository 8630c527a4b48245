"""Messages by key, by id and by physical offset."""

from __future__ import annotations

import pickle
import re
import shutil
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from encoder import EPOCH_MS, Encoder

import mqstore


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    return Encoder(tmp_path / "store")


@pytest.fixture(params=["index", "walk"])
def hundred(request: pytest.FixtureRequest, encoder: Encoder) -> mqstore.Store:
    """Messages 0 to 99, a second apart, key "all" and key "k<number % 10>", unique key "U<number>"; by index and without one."""
    encoder.index_geometry = (100, 400) if request.param == "index" else None
    for number in range(100):
        encoder.append(
            "orders",
            b"%d" % number,
            keys=["all", f"k{number % 10}"],
            unique_key=f"U{number}",
            store_time=EPOCH_MS + 1000 * number,
        )
    return mqstore.open(encoder.write())


def numbers(result: mqstore.QueryResult) -> list[int]:
    return [int(message.body) for message in result]


def test_all_hits_come_in_ascending_order(hundred: mqstore.Store) -> None:
    result = hundred.query("orders", "k3", limit=None)
    assert numbers(result) == list(range(3, 100, 10))
    assert result.complete
    assert result.covers == (hundred.min_physical_offset, hundred.max_physical_offset)


def test_the_limit_keeps_the_newest(hundred: mqstore.Store) -> None:
    assert numbers(hundred.query("orders", "all")) == list(range(100))
    assert numbers(hundred.query("orders", "all", limit=5)) == list(range(95, 100))
    assert numbers(hundred.query("orders", "all", limit=None)) == list(range(100))
    assert numbers(hundred.query("orders", "all", limit=0)) == []
    with pytest.raises(ValueError, match="limit is -1: expected an int from 0"):
        hundred.query("orders", "all", limit=-1)


def test_an_answer_reads_its_messages_when_they_are_asked_for(encoder: Encoder) -> None:
    for number in range(5):
        encoder.append("orders", b"%d" % number, keys=["k"])
    path = encoder.write()
    with mqstore.open(path) as store:
        answer = store.query("orders", "k")
        assert [message.body for message in reversed(answer)] == [b"4", b"3", b"2", b"1", b"0"]
        assert (answer[-1].body, [message.body for message in answer[1:3]]) == (b"4", [b"1", b"2"])
        assert (answer.index(answer[3]), answer.count(store.message_at(0)), answer[3] in answer) == (3, 1, True)
        assert b"x" not in answer
        assert answer.to_arrow(["body"])["body"].to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
        with pytest.raises(IndexError, match="index 5 is outside an answer of 5 messages"):
            answer[5]
    for read in (lambda: answer[0], lambda: list(answer), answer.to_arrow):
        with pytest.raises(mqstore.ClosedError):
            read()


def test_an_answer_that_the_limit_cut_is_not_complete(hundred: mqstore.Store) -> None:
    for limit, complete in ((9, False), (10, True), (11, True), (None, True), (0, False)):
        result = hundred.query("orders", "k3", limit=limit)
        assert (result.complete, result.skipped) == (complete, 0)
        begin = result[0].physical_offset if limit == 9 else hundred.max_physical_offset if limit == 0 else 0
        assert result.covers == (begin, hundred.max_physical_offset)
        assert pickle.loads(pickle.dumps(result)).covers == result.covers


def test_a_query_is_bounded_by_times_half_open_and_exact_to_the_ms(hundred: mqstore.Store) -> None:
    ten, twenty = EPOCH_MS + 10_000, EPOCH_MS + 20_000
    assert numbers(hundred.query("orders", "all", since=ten, until=twenty + 1)) == list(range(10, 21))
    assert numbers(hundred.query("orders", "all", since=ten + 1, until=twenty)) == list(range(11, 20))
    assert numbers(hundred.query("orders", "all", until=ten)) == list(range(10))
    assert numbers(hundred.query("orders", "all", since=EPOCH_MS + 98_000)) == [98, 99]
    time = datetime.fromtimestamp(ten / 1000, UTC)
    assert numbers(hundred.query("orders", "all", since=time, until=time)) == []
    micro = timedelta(microseconds=1)
    assert numbers(hundred.query("orders", "all", since=time - micro, until=time + micro)) == [10]
    assert numbers(hundred.query("orders", "all", since=time + micro, until=time + 2 * micro)) == []
    with pytest.raises(ValueError, match="timezone"):
        hundred.query("orders", "all", since=datetime(2026, 1, 1))


@pytest.mark.parametrize("convert", [int, lambda ms: datetime.fromtimestamp(ms / 1000, UTC)])
def test_an_inverted_time_range_of_a_query_is_refused_with_both_times(
    hundred: mqstore.Store, convert: Callable[[int], datetime | int]
) -> None:
    begin, end = convert(1_600_000_000_001), convert(1_600_000_000_000)
    with pytest.raises(ValueError, match=r"since is 2020-09-13T12:26:40.001Z, which is after until: 2020-09-13T12:26:40.000Z"):
        hundred.query("orders", "all", since=begin, until=end)


def test_unique_keys_are_keys(hundred: mqstore.Store) -> None:
    assert numbers(hundred.query("orders", "U57")) == [57]
    assert hundred.message("U57", walk=True).body == b"57"


def test_a_key_that_nobody_has_gives_a_complete_empty_answer(hundred: mqstore.Store) -> None:
    for topic, key in (("orders", "k10"), ("orders", ""), ("other", "k1"), ("", "")):
        result = hundred.query(topic, key)
        assert (numbers(result), result.complete, bool(result)) == ([], True, False)


def test_keys_of_one_hash_do_not_mix(encoder: Encoder) -> None:
    for key in ("Aa", "BB", "AaBB", "BBAa", "Aa"):
        encoder.append("orders", key.encode(), keys=[key])
    # orders#... of these topics and keys collide too.
    encoder.append("Aa#x", b"y", keys=["y"])
    encoder.append("Aa", b"x#y", keys=["x#y"])
    with mqstore.open(encoder.write()) as store:
        assert [message.body for message in store.query("orders", "Aa")] == [b"Aa", b"Aa"]
        assert [message.body for message in store.query("orders", "BBAa")] == [b"BBAa"]
        assert [message.body for message in store.query("Aa", "x#y")] == [b"x#y"]
        assert [message.body for message in store.query("Aa#x", "y")] == [b"y"]


@pytest.mark.parametrize("index_tags", [False, True])
def test_a_tag_finds_what_a_key_of_its_name_does_not(tmp_path: Path, index_tags: bool) -> None:
    odd = ["paid", "Aa", "BB", "a | b", " ", "\x01", "\x00", "T#paid", "标签", "x" * 30_000]
    with mqstore.open(tmp_path / "store", mode="x", index_tags=True) as store:
        for number, tag in enumerate(odd):
            # As a property a tag may be anything; the argument takes no control character.
            store.append("orders", b"%d" % number, properties={"TAGS": tag})
            store.append("orders", b"key", keys=["paid", "T#Aa", "T#paid"])
        store.append("refunds", b"other topic", tags="paid")
    with mqstore.open(tmp_path / "store", index_tags=index_tags) as store:
        for number, tag in enumerate(odd):
            result = store.query("orders", tag=tag)
            assert ([message.body for message in result], result.complete) == ([b"%d" % number], True)
        assert len(store.query("orders", "paid")) == len(odd)
        assert len(store.query("orders", tag="nobody's")) == len(store.query("orders", tag="")) == 0
        times = [message.store_time for message in store.topics["orders"].queues[0]]
        assert len(store.query("orders", tag="paid", since=times[0], until=times[-1])) == 1


def test_a_query_is_by_a_key_or_by_a_tag(hundred: mqstore.Store) -> None:
    with pytest.raises(TypeError, match=r"give one of them, or use scan\(\), which finds by time"):
        hundred.query("orders")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="leave one of them out"):
        hundred.query("orders", "all", tag="paid")  # type: ignore[call-overload]


def test_a_query_by_an_expression_of_tags_is_refused(hundred: mqstore.Store) -> None:
    with pytest.raises(ValueError, match=r'tag is "paid \|\| refund".*get\(tags='):
        hundred.query("orders", tag="paid || refund")


def test_a_clock_that_was_set_back_hides_no_message(encoder: Encoder) -> None:
    times = [EPOCH_MS + 1000 * number - (60_000 if number >= 70 else 0) for number in range(100)]
    for number, time in enumerate(times):
        encoder.append("orders", b"%d" % number, keys=["all"], store_time=time)
    store = mqstore.open(encoder.write())
    assert store.recovery.complete
    queue = store.topics["orders"].queues[0]
    for time in range(EPOCH_MS - 500, EPOCH_MS + 80_000, 500):
        result = store.query("orders", "all", since=time)
        assert (numbers(result), result.complete) == ([n for n, stored in enumerate(times) if stored >= time], True)
        assert queue.offset_at(time) == next((n for n, stored in enumerate(times) if stored >= time), 100)


def test_an_empty_answer_shows_the_topics_that_are_like_a_misspelled_one(hundred: mqstore.Store) -> None:
    answer = hundred.query("ordrs", "k3")
    shown = f"<mqstore.QueryResult 0 messages, complete=True, covers 0..{hundred.max_physical_offset}"
    assert repr(answer) == f'{shown}, no topic "ordrs"; there is orders>'
    assert repr(hundred.query("orders", "nobody's")) == f"{shown}>"
    hundred.close()
    assert repr(answer) == f"{shown}>"


def test_the_answer_is_a_sequence(hundred: mqstore.Store) -> None:
    result = hundred.query("orders", "k3")
    assert len(result) == 10
    assert result[0].body == b"3"
    assert [message.body for message in result[-2:]] == [b"83", b"93"]
    assert result[4] in result
    assert (result.index(result[4]), result.count(result[4])) == (4, 1)
    assert next(reversed(result)) == result[-1]
    with pytest.raises(IndexError):
        result[10]


def test_an_offset_id_leads_to_its_record_whatever_its_host(hundred: mqstore.Store) -> None:
    message = hundred.topics["orders"].queues[0][33]
    assert hundred.message(message.message_id) == message
    assert hundred.message(message.message_id.lower()) == message
    assert hundred.message("7F000001" + message.message_id[8:]) == message
    assert hundred.message("0" * 32 + message.message_id[8:]) == message


@pytest.mark.parametrize("unknown", ["", "U100", "k3", "0A00000100002A9F0000000000000001", "7" * 56, "é"])
def test_an_unknown_id_is_not_found(hundred: mqstore.Store, unknown: str) -> None:
    with pytest.raises(mqstore.NotFoundError) as raised:
        hundred.message(unknown)
    assert isinstance(raised.value, LookupError)


def test_an_offset_id_can_be_a_unique_key_too(encoder: Encoder) -> None:
    encoder.append("orders", unique_key="0A00000100002A9F00000000000F0000")
    with mqstore.open(encoder.write()) as store:
        assert store.message("0A00000100002A9F00000000000F0000").physical_offset == 0


def test_a_record_starts_where_it_starts_only(hundred: mqstore.Store) -> None:
    starts = {message.physical_offset for message in hundred.topics["orders"].queues[0]}
    for offset in range(hundred.max_physical_offset):
        if offset in starts:
            assert hundred.message_at(offset).physical_offset == offset
        else:
            with pytest.raises((mqstore.NotFoundError, mqstore.CorruptError)):
                hundred.message_at(offset)


@pytest.mark.parametrize("offset", [-1, -(2**63), 10**9, 2**63 - 1])
def test_an_offset_outside_the_log_is_not_found(hundred: mqstore.Store, offset: int) -> None:
    with pytest.raises(mqstore.NotFoundError, match="0 to "):
        hundred.message_at(offset)


def test_a_record_that_was_damaged_is_corrupt(encoder: Encoder) -> None:
    for _ in range(3):
        start = encoder.append("orders", b"important", keys=["o-1"])
    damaged = encoder.log.index(b"important", start - 200)
    encoder.log[damaged] ^= 1
    encoder.append("orders", b"after it", keys=["o-1"])
    with mqstore.open(encoder.write(), check_crc_on_recover=False) as store:
        at = next(unit for unit in (0, start // 2) if damaged > unit)
        with pytest.raises(mqstore.CorruptError) as raised:
            store.message_at(at)
        assert Path(raised.value.path).name == f"{0:020}"
        with pytest.raises(mqstore.CorruptError, match='errors="skip"') as raised:
            store.query("orders", "o-1")
        assert Path(raised.value.path).name == f"{0:020}"
        result = store.query("orders", "o-1", errors="skip")
        assert (result.complete, result.skipped) == (False, 1)
        assert b"after it" in [message.body for message in result]


#: Changes of the record that starts at an offset, as a log that was cut and has grown again may have another one there.
CHANGES: dict[str, Callable[[bytearray, int], None]] = {
    "topic": lambda log, start: log.__setitem__(log.index(b"orders", start) + 5, ord("z")),
    "queue id": lambda log, start: struct.pack_into(">i", log, start + 12, 7),
    "queue offset": lambda log, start: struct.pack_into(">q", log, start + 20, 99),
    "body": lambda log, start: log.__setitem__(log.index(b"body", start), ord("B")),
    "key": lambda log, start: log.__setitem__(log.index(b"KEYS\x01k", start) + 5, ord("j")),
}


@pytest.fixture(params=[*CHANGES, "size"])
def changed(request: pytest.FixtureRequest, encoder: Encoder, tmp_path: Path) -> tuple[Path, int]:
    """A store of three messages with the key "k", and the number of the message that `change` replaces."""
    for number in range(3):
        encoder.append("orders", b"body %d" % number, keys=["k"])
    return encoder.write(), 2 if request.param == "size" else 1


def change(path: Path, kind: str) -> None:
    """Writes the store again with another record in the place of one."""
    shutil.rmtree(path)
    encoder = Encoder(path)
    starts = [encoder.append("orders", b"body %d" % number, keys=["k"]) for number in range(2)]
    encoder.append("orders", b"a longer body" if kind == "size" else b"body 2", keys=["k"])
    if kind != "size":
        CHANGES[kind](encoder.log, starts[1])
    encoder.write()


def test_an_answer_raises_where_another_message_is_at_the_place_of_a_hit(
    request: pytest.FixtureRequest, changed: tuple[Path, int]
) -> None:
    (path, number), kind = changed, request.node.callspec.params["changed"]
    with mqstore.open(path) as store:
        pickled = pickle.dumps(store.query("orders", "k"))
    change(path, kind)
    answer = pickle.loads(pickled)
    where = rf'has found the message of topic "orders", queue 0, queue offset {number}, in \d+ bytes at .*: query it again$'
    if kind == "key":
        where = 'another message at that offset now, which the query for key "k" does not find: query it again$'
    reads = (lambda: answer[number], lambda: list(answer), lambda: list(reversed(answer)), lambda: answer[:], answer.to_arrow)
    for read in reads:
        with pytest.raises(mqstore.CorruptError if kind == "body" else mqstore.NotFoundError) as raised:
            read()
        assert kind == "body" or re.search(where, str(raised.value).partition("; open the store")[0]), raised.value
    assert [message.body for message in answer[:number]] == [b"body %d" % before for before in range(number)]
    assert (answer.complete, answer.skipped) == (True, 0)


def test_an_answer_skips_and_counts_each_hit_that_is_gone_once(request: pytest.FixtureRequest, changed: tuple[Path, int]) -> None:
    (path, number), kind = changed, request.node.callspec.params["changed"]
    with mqstore.open(path) as store:
        answer = store.query("orders", "k", errors="skip")
        message, pickled = answer[number], pickle.dumps(answer)
    change(path, kind)
    whole = [b"body %d" % each for each in range(3) if each != number]
    for read in (list, lambda answer: answer[:], lambda answer: list(reversed(answer))[::-1], mqstore.QueryResult.to_arrow):
        answer = pickle.loads(pickled)
        assert (len(answer), answer.complete, answer.skipped) == (3, True, 0)
        for _ in range(2):
            found = read(answer)
            bodies = found["body"].to_pylist() if hasattr(found, "to_pylist") else [each.body for each in found]
            assert bodies == whole
            assert (len(answer), answer.complete, answer.skipped) == (3, False, 1)
        assert message not in answer
        with pytest.raises(mqstore.CorruptError if kind == "body" else mqstore.NotFoundError):
            answer[number]
        again = pickle.loads(pickle.dumps(answer))
        assert (again.complete, again.skipped) == (False, 1)
        read(again)
        assert (again.complete, again.skipped) == (False, 1)
    iterator = iter(answer)
    assert ([each.body for each in iterator], iterator.skipped) == (whole, 1)
