"""The records of `append`, its reports and its refusals."""

from __future__ import annotations

import array
import mmap
import pickle
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from test_golden import since_1970

import mqstore
from mqstore.testing import Clock

SEGMENT = 1 << 20


@pytest.fixture
def store(mqstore_stores: Callable[..., mqstore.Store]) -> mqstore.Store:
    return mqstore_stores(max_message_size=10_000)


def appended(store: mqstore.Store, topic: str = "orders", body: Any = b"", **fields: Any) -> mqstore.Message:
    return store.message_at(store.append(topic, body, **fields).physical_offset)


def refused(store: mqstore.Store, topic: str = "orders", body: Any = b"", **fields: Any) -> mqstore.IllegalMessageError:
    """The error; nothing was written."""
    end = store.max_physical_offset
    with pytest.raises(mqstore.IllegalMessageError) as raised:
        store.append(topic, body, **fields)
    assert store.max_physical_offset == end
    assert isinstance(raised.value, ValueError)
    return raised.value


def test_every_field_can_be_set_and_reads_back(store: mqstore.Store) -> None:
    fields: dict[str, Any] = {
        "flag": -7,
        "sys_flag": 0x701,
        "reconsume_times": 3,
        "prepared_transaction_offset": 1 << 40,
        "born_host": "10.1.2.3:4567",
        "store_host": "[2001:db8::1]:10911",
    }
    born = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    message = appended(
        store,
        "orders",
        b"body",
        tags="paid",
        keys=["o-1", "o-2"],
        properties={"UNIQ_KEY": "U1"},
        queue_id=9,
        born_time=born,
        **fields,
    )
    assert (message.topic, message.body, message.queue_id) == ("orders", b"body", 9)
    assert (message.tags, message.keys, message.unique_key) == ("paid", ["o-1", "o-2"], "U1")
    assert message.born_time == born
    for name, value in fields.items():
        read = getattr(message, name)
        assert (read & ~0x20 if name == "sys_flag" else read) == value, name
    assert message.sys_flag & 0x20, "the store host is an IPv6 one"


def test_what_is_left_out_is_empty_local_and_now(store: mqstore.Store, mqstore_clock: Clock) -> None:
    message = appended(store)
    assert message.born_time == message.store_time == mqstore_clock.now
    assert (message.queue_id, message.flag, message.sys_flag, message.reconsume_times) == (0, 0, 0, 0)
    assert (message.prepared_transaction_offset, message.properties, message.body) == (0, {}, b"")
    assert (message.tags, message.keys, message.unique_key) == (None, [], None)
    assert message.born_host == message.store_host == "127.0.0.1:0"


def test_the_result_says_what_the_message_says(store: mqstore.Store) -> None:
    for number, host in enumerate(["10.0.0.1:10911", "[2001:db8::1]:10911"]):
        result = store.append("orders", b"x" * number, store_host=host)
        message = store.message_at(result.physical_offset)
        assert result.status == "PUT_OK"
        assert result.queue_offset == message.queue_offset == number
        assert result.wrote_bytes == message.store_size
        assert result.store_time == message.store_time
        assert result.store_time.tzinfo is UTC
        assert result.message_id == message.message_id
        assert len(result.message_id) == (32, 56)[number]
        assert repr(result).startswith(f"<mqstore.AppendResult PUT_OK, physical_offset={result.physical_offset} ")


def test_offsets_have_no_gap(store: mqstore.Store) -> None:
    end, counts = 0, dict.fromkeys(range(5), 0)
    for number in range(1000):
        result = store.append("orders", b"x" * (number % 300), queue_id=number % 5)
        assert result.physical_offset == end
        assert result.queue_offset == counts[number % 5]
        end += result.wrote_bytes
        counts[number % 5] += 1


@pytest.mark.parametrize("topic", ["o", "o" * 127, "o" * 128, "o" * 255, "%RETRY%group", "größe", "a b", "注文", "..."])
def test_a_topic_is_any_name_of_a_directory(store: mqstore.Store, topic: str) -> None:
    result = store.append(topic, b"x", keys="k")
    assert store.message_at(result.physical_offset).topic == topic
    store.wait_dispatched(result.physical_offset)
    assert [message.body for message in store.topics[topic].queues[0]] == [b"x"]
    assert [message.body for message in store.query(topic, "k")] == [b"x"]


@pytest.mark.parametrize("topic", ["", "o" * 256, "ö" * 128, "a/b", "a\0b", "a\nb", ".", ".."])
def test_what_is_no_name_of_a_directory_is_no_topic(store: mqstore.Store, topic: str) -> None:
    error = refused(store, topic)
    assert "topic" in str(error)
    assert error.status == "MESSAGE_ILLEGAL"


def test_a_body_is_at_most_max_message_size(store: mqstore.Store) -> None:
    for size in (9999, 10_000):
        assert len(appended(store, body=b"x" * size).body) == size
    error = refused(store, body=b"x" * 10_001)
    assert "max_message_size" in str(error)
    assert error.status == "MESSAGE_ILLEGAL"


def test_a_record_fits_into_a_segment(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "tiny", "x", mapped_file_size_commit_log=4096) as store:
        empty = store.append("orders", b"").wrote_bytes
        largest = 4096 - 8 - empty
        for size in (largest - 1, largest):
            assert len(appended(store, body=b"x" * size).body) == size
        assert "segment" in str(refused(store, body=b"x" * (largest + 1)))


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: memoryview(bytearray(data)),
        lambda data: np.frombuffer(data, dtype=np.uint8),
        lambda data: array.array("B", data),
    ],
    ids=["bytes", "bytearray", "memoryview", "writable", "numpy", "array"],
)
@pytest.mark.parametrize("size", [0, 1, 5000])
def test_a_body_is_any_buffer_of_bytes(store: mqstore.Store, make: Callable[[bytes], Any], size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    assert appended(store, body=make(data)).body == data


def test_a_body_may_lie_scattered_or_in_a_file(store: mqstore.Store, tmp_path: Path) -> None:
    assert appended(store, body=memoryview(b"a-b-c")[::2]).body == b"abc"
    assert appended(store, body=np.arange(6, dtype=np.uint8).reshape(2, 3).T).body == bytes([0, 3, 1, 4, 2, 5])
    (tmp_path / "file").write_bytes(b"mapped")
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert appended(store, body=mapped).body == b"mapped"


@pytest.mark.parametrize("body", ["text", None, 7, ["b"], np.zeros(2), array.array("i", [1])], ids=type)
def test_what_is_no_buffer_of_bytes_is_no_body(store: mqstore.Store, body: Any) -> None:
    with pytest.raises(TypeError, match="body"):
        store.append("orders", body)
    assert store.max_physical_offset == 0


@pytest.mark.parametrize(
    ("keys", "stored"),
    [
        ("o-1", "o-1"),
        (["o-1"], "o-1"),
        (("o-1", "o-2"), "o-1 o-2"),
        ((f"o-{number}" for number in range(3)), "o-0 o-1 o-2"),
        (["a#b", "ä", "a\u00a0b"], "a#b ä a\u00a0b"),
    ],
    ids=["one", "list", "tuple", "generator", "odd"],
)
def test_keys_are_joined_by_one_space(store: mqstore.Store, keys: Any, stored: str) -> None:
    message = appended(store, keys=keys)
    assert message.properties == {"KEYS": stored}
    assert message.keys == stored.split(" ")


def test_no_keys_are_no_property(store: mqstore.Store) -> None:
    for keys in ((), [], None, iter(())):
        assert appended(store, keys=keys).properties == {}


@pytest.mark.parametrize("keys", ["", "a b", ["a", "b c"], ["a", ""], "a\x01", "a\x02", "a\nb", "\x7f"])
def test_a_key_that_would_not_read_back_is_refused(store: mqstore.Store, keys: Any) -> None:
    error = refused(store, keys=keys)
    assert "key" in str(error)
    assert error.status == "MESSAGE_ILLEGAL"


def test_properties_keep_their_order_and_arguments_win_over_them(store: mqstore.Store) -> None:
    given = {"z": "1", "TAGS": "old", "a": "2", "KEYS": "old", "UNIQ_KEY": "U1", "WAIT": "false"}
    message = appended(store, properties=given, tags="new", keys=["k1", "k2"])
    assert list(message.properties.items()) == [*(given | {"TAGS": "new", "KEYS": "k1 k2"}).items()]
    message = appended(store, properties={"z": "1"}, tags="t", keys="k")
    assert list(message.properties.items()) == [("z", "1"), ("TAGS", "t"), ("KEYS", "k")]


def test_properties_are_any_mapping_of_text(store: mqstore.Store) -> None:
    for given in ({"größe": "ä\x01b c"}, MappingProxyType({"k": "v"}), {"k": "=" * 1000, "a b": "\n"}):
        assert appended(store, properties=given).properties == dict(given)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"": "v"}, "empty name"),
        ({"k": ""}, '"k"'),
        ({"a\x01b": "v"}, "a\\\\u{1}b"),
        ({"a\x02b": "v"}, "0x02"),
        ({"k": "\x02"}, '"k"'),
    ],
)
def test_a_property_that_would_not_read_back_is_refused_by_name(
    store: mqstore.Store, properties: Mapping[str, str], named: str
) -> None:
    error = refused(store, properties=properties)
    assert named.replace("\\\\", "\\") in str(error)
    assert error.status == "MESSAGE_ILLEGAL"


def test_properties_take_at_most_32767_bytes(store: mqstore.Store) -> None:
    for size in (32_766, 32_767):
        value = "x" * (size - 3)
        assert appended(store, properties={"k": value}).properties == {"k": value}
    for fields in ({"properties": {"k": "x" * 32_765}}, {"tags": "ä" * 16_400}, {"keys": ["k" * 99] * 400}):
        error = refused(store, **fields)
        assert error.status == "PROPERTIES_SIZE_EXCEEDED"
        assert "32767" in str(error)


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ({"topic": 7}, "topic is a str, not int"),
        ({"topic": None}, "topic is a str, not NoneType"),
        ({"tags": 7}, "tags is a str, not int"),
        ({"keys": 7}, "keys is a str or an iterable of them, not int"),
        ({"keys": [7]}, "keys: a key is a str, not int"),
        ({"keys": b"k"}, "keys: a key is a str, not int"),
        ({"properties": 7}, "properties is a mapping of str to str, or an iterable of pairs of them, not int"),
        ({"properties": ["kv"]}, "properties is a mapping of str to str, or an iterable of pairs of them, not of 'kv'"),
        ({"properties": {"k": 7}}, "properties: a value is a str, not int"),
        ({"properties": {7: "v"}}, "properties: a name is a str, not int"),
        ({"queue_id": "0"}, "queue_id is an int, not str"),
        ({"delay_level": 1.5}, "delay_level is an int, not float"),
        ({"flag": None}, "flag is an int, not NoneType"),
        ({"prepared_transaction_offset": "0"}, "prepared_transaction_offset is an int, not str"),
        ({"unique_key": 7}, "unique_key is a str, not int"),
        ({"born_time": "now"}, "born_time: expected a datetime with a timezone or an int"),
        ({"born_host": 7}, "born_host is a str, not int"),
        ({"durable": "yes"}, "durable is True, False or None, not 'yes'"),
    ],
)
def test_what_has_the_wrong_type_is_named(store: mqstore.Store, fields: dict[str, Any], argument: str) -> None:
    arguments: dict[str, Any] = {"topic": "orders", "body": b""} | fields
    for append in (store.append, store.append_nowait):
        with pytest.raises(TypeError) as raised:
            append(**arguments)
        assert argument in str(raised.value)
    assert store.max_physical_offset == 0


@pytest.mark.parametrize("call", ["append_batch", "append_producer_batch"])
def test_truth_of_a_batch_that_has_the_wrong_type_is_named(store: mqstore.Store, call: str) -> None:
    arguments: list[Any] = [[b"x"], "orders"] if call == "append_batch" else ["orders", b""]
    with pytest.raises(TypeError, match="durable is True, False or None, not 1"):
        getattr(store, call)(*arguments, durable=1)
    with pytest.raises(TypeError, match="one_segment is True or False, not 'no'"):
        store.append_batch([b"x"], "orders", one_segment="no")  # type: ignore[arg-type]
    assert store.max_physical_offset == 0


@pytest.mark.parametrize("field", ["topic", "tags", "keys", "unique_key", "born_host"])
def test_half_a_surrogate_pair_is_illegal_and_named(store: mqstore.Store, field: str) -> None:
    arguments: dict[str, Any] = {"topic": "orders", "body": b"", field: "\ud800"}
    with pytest.raises(mqstore.IllegalMessageError, match=r"key|" + field) as raised:
        store.append(**arguments)
    assert "ud800" in str(raised.value)


def test_a_number_that_does_not_fit_is_named(store: mqstore.Store) -> None:
    with pytest.raises(ValueError, match="queue_id is 2147483648: expected an int of 32 bits"):
        store.append("orders", b"", queue_id=1 << 31)


@pytest.mark.parametrize("queue", [65_536, (1 << 31) - 1])
def test_no_topic_becomes_absurdly_long(store: mqstore.Store, queue: int) -> None:
    store.wait_dispatched(store.append("orders", b"", queue_id=65_535).physical_offset)
    assert len(store.topics["orders"].queues) == 65_536
    with pytest.raises(mqstore.IllegalMessageError, match="numbered from 0 to 65535"):
        store.append("orders", b"", queue_id=queue)


def test_a_unique_key_is_found(store: mqstore.Store) -> None:
    message = appended(store, unique_key="U1", properties={"UNIQ_KEY": "U0", "region": "eu"})
    assert (message.unique_key, message.properties) == ("U1", {"UNIQ_KEY": "U1", "region": "eu"})
    store.wait_dispatched(message.physical_offset)
    assert store.message("U1") == message


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"topic": "a/b"}, "a topic has no slash and no control character"),
        ({"tags": ""}, '"TAGS" = ""'),
        ({"properties": {"": "v"}}, '"" = "v"'),
    ],
)
def test_a_refusal_names_the_value_and_no_byte(store: mqstore.Store, fields: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {"topic": "orders", "body": b""} | fields
    with pytest.raises(mqstore.IllegalMessageError) as raised:
        store.append(**arguments)
    assert text in str(raised.value)
    assert "at byte" not in str(raised.value)


def test_a_result_is_a_value(store: mqstore.Store) -> None:
    first, second = store.append("orders", b"", store_host="[2001:db8::1]:10911"), store.append("orders", b"")
    again: mqstore.AppendResult = pickle.loads(pickle.dumps(first))
    assert (again, hash(again), repr(again), again.store_time) == (first, hash(first), repr(first), first.store_time)
    assert again.message_id == first.message_id
    assert first != second
    assert first != first.physical_offset


def test_arguments_after_the_body_are_keyword_only(store: mqstore.Store) -> None:
    with pytest.raises(TypeError):
        store.append("orders", b"", "paid")  # type: ignore[misc]
    assert appended(store, topic="t", body=b"b").body == b"b"


@pytest.mark.parametrize(
    ("time", "ms"),
    [
        (0, 0),
        (-1, -1),
        (1_767_225_600_123, 1_767_225_600_123),
        (datetime(2026, 1, 1, 0, 0, 0, 123_999, UTC), 1_767_225_600_123),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1_767_225_600_000),
        (datetime(1960, 1, 1, tzinfo=UTC), -315_619_200_000),
    ],
)
def test_a_born_time_is_kept_to_the_ms(store: mqstore.Store, time: datetime | int, ms: int) -> None:
    assert since_1970(appended(store, born_time=time).born_time) == ms


def test_a_born_time_has_a_timezone(store: mqstore.Store) -> None:
    with pytest.raises(ValueError, match="timezone"):
        store.append("orders", b"", born_time=datetime(2026, 1, 1))


@pytest.mark.parametrize("host", ["1.2.3.4:10911", "[2001:db8::1]:10911", "[::1]:0", "0.0.0.0:65535", "1.2.3.4:-1"])
def test_a_host_is_an_address_and_a_port(store: mqstore.Store, host: str) -> None:
    message = appended(store, born_host=host, store_host=host)
    assert message.born_host == message.store_host == host


@pytest.mark.parametrize(
    "host", ["", "localhost:1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "[::1]", "1.2.3:1", "1.2.3.4:99999999999"]
)
def test_what_is_no_host_is_refused(store: mqstore.Store, host: str) -> None:
    for name in ("born_host", "store_host"):
        assert repr(host).replace("'", '"') in str(refused(store, **{name: host}))


def test_a_queue_is_numbered_from_0(store: mqstore.Store) -> None:
    assert appended(store, queue_id=65_535).queue_id == 65_535
    assert "queue" in str(refused(store, queue_id=-1))
    with pytest.raises(ValueError, match="queue_id is 2147483648"):
        store.append("orders", b"", queue_id=2**31)


def test_a_delayed_message_waits_in_its_levels_queue(store: mqstore.Store) -> None:
    result = store.append("orders", b"later", tags="paid", queue_id=2, delay_level=3)
    message = store.message_at(result.physical_offset)
    assert (message.topic, message.queue_id) == ("SCHEDULE_TOPIC_XXXX", 2)
    assert message.properties == {"TAGS": "paid", "DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "2"}
    same = appended(store, body=b"later", queue_id=2, properties={"TAGS": "paid", "DELAY": "3"})
    assert (same.topic, same.queue_offset, same.properties) == (message.topic, 1, message.properties)
    assert appended(store, delay_level=99).properties["DELAY"] == "18"
    assert "delay_level" in str(refused(store, delay_level=-1))
    assert "DELAY" in str(refused(store, properties={"DELAY": "soon"}))


def test_a_prepared_or_rolled_back_message_takes_no_queue_offset(store: mqstore.Store) -> None:
    kinds = {"none": 0x0, "prepared": 0x4, "commit": 0x8, "rollback": 0xC}
    results = {name: store.append("orders", b"", sys_flag=sys_flag) for name, sys_flag in kinds.items()}
    assert [results[name].queue_offset for name in kinds] == [0, 0, 1, 0]
    store.wait_dispatched(results["rollback"].physical_offset)
    assert [message.sys_flag for message in store.topics["orders"].queues[0]] == [0x0, 0x8]
    assert store.message_at(results["prepared"].physical_offset).sys_flag == 0x4


def test_a_checksum_of_a_whole_record_is_computed_again(store: mqstore.Store) -> None:
    message = appended(store, properties={"__CRC32#": "1234567890", "a": "1"})
    assert list(message.properties) == ["a", "__CRC32#"]
    assert message.properties["__CRC32#"] != "1234567890"


def test_threads_append_without_losing_or_mixing_anything(store: mqstore.Store) -> None:
    threads, each = 16, 400
    results: list[list[mqstore.AppendResult]] = [[] for _ in range(threads)]

    def append(thread: int) -> None:
        for number in range(each):
            body = b"%d:%d:" % (thread, number) + b"x" * (number % 50)
            if number % 40 == 7:
                store.append_batch([body] * 3, "shared", queue_id=1)
            results[thread].append(store.append("shared", body, queue_id=0, keys=f"{thread}-{number}"))
            if number % 100 == 0:
                store.flush()

    workers = [threading.Thread(target=append, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    every = [result for own in results for result in own]
    assert sorted(result.queue_offset for result in every) == list(range(threads * each))
    for own in results:
        assert own == sorted(own, key=lambda result: result.physical_offset)
    store.wait_dispatched(max(result.physical_offset for result in every))
    queue = store.topics["shared"].queues[0]
    assert len(queue) == threads * each
    for thread, own in enumerate(results):
        for number, result in enumerate(own):
            assert queue[result.queue_offset].body.startswith(b"%d:%d:" % (thread, number))
    assert [message.body[:6] for message in store.query("shared", "11-399")] == [b"11:399"]
    assert len(store.topics["shared"].queues[1]) == threads * 10 * 3
