"""A message is a frozen view of its record."""

from __future__ import annotations

import pickle
import zlib
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from encoder import EPOCH_MS, Encoder, host
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mqstore

COMPRESSED, LZ4, ZSTD, ZLIB = 0x1, 0x100, 0x200, 0x300
BODY = b"the same words again and again, " * 100


@pytest.fixture
def encoder(tmp_path: Path) -> Encoder:
    return Encoder(tmp_path / "store")


def only(encoder: Encoder) -> mqstore.Message:
    with mqstore.open(encoder.write()) as store:
        return store.message_at(0)


def test_each_field_has_its_python_type(encoder: Encoder) -> None:
    encoder.append(
        "Café_订单",
        b"hello",
        queue_id=3,
        tags="paid",
        keys=["o-1", "o-2"],
        unique_key="AC11",
        properties={"k": "värde"},
        store_time=EPOCH_MS + 7,
        born_time=EPOCH_MS,
        flag=-5,
        sys_flag=0x8,
    )
    message = only(encoder)
    assert message.topic == "Café_订单"
    assert (message.queue_id, message.queue_offset, message.physical_offset) == (3, 0, 0)
    assert message.store_size == len(encoder.log)
    assert message.born_time == datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    assert message.store_time == datetime(2026, 1, 1, 0, 30, 0, 7000, tzinfo=UTC)
    assert message.store_time.tzinfo is UTC
    assert message.message_id == "0A00000100002A9F0000000000000000"
    assert (message.unique_key, message.tags, message.keys) == ("AC11", "paid", ["o-1", "o-2"])
    assert message.properties == {"k": "värde", "KEYS": "o-1 o-2", "UNIQ_KEY": "AC11", "TAGS": "paid"}
    assert (message.sys_flag, message.flag) == (0x8, -5)
    assert (message.reconsume_times, message.prepared_transaction_offset) == (0, 0)
    assert (message.born_host, message.store_host) == ("10.0.0.7:40000", "10.0.0.1:10911")
    assert (message.body, message.decoded_body, bytes(message.body_view)) == (b"hello",) * 3


def test_what_is_absent_is_none_or_empty(encoder: Encoder) -> None:
    encoder.append("orders")
    message = only(encoder)
    assert (message.tags, message.unique_key, message.keys, message.properties) == (None, None, [], {})
    assert (message.body, message.decoded_body, bytes(message.body_view)) == (b"",) * 3


def test_ipv6_hosts_are_in_brackets(encoder: Encoder) -> None:
    encoder.append("orders", born_host="[2001:db8::1]:5", store_host="[2001:db8::2]:10911")
    message = only(encoder)
    assert (message.born_host, message.store_host) == ("[2001:db8::1]:5", "[2001:db8::2]:10911")
    assert message.message_id == "20010DB8000000000000000000000002" + "00002A9F" + "0" * 16


@pytest.mark.parametrize("ms", [-62_135_596_800_000, -1, 0, 951_782_400_000, 4_102_444_800_000, 253_402_300_799_999])
def test_every_time_of_a_datetime_is_exact(encoder: Encoder, ms: int) -> None:
    encoder.append("orders", store_time=ms)
    expected = datetime(1970, 1, 1, tzinfo=UTC).timestamp() + ms // 1000
    time = only(encoder).store_time
    assert (time.timestamp() // 1, time.microsecond) == (expected, ms % 1000 * 1000)
    assert time.replace(microsecond=0) == datetime(1970, 1, 1, tzinfo=UTC).fromtimestamp(ms // 1000, UTC)


def test_a_time_beyond_a_datetime_raises_but_not_for_the_repr(encoder: Encoder) -> None:
    encoder.append("orders", store_time=253_402_300_800_000, born_time=-(2**63))
    message = only(encoder)
    with pytest.raises(mqstore.StoreError, match="253402300800000"):
        message.store_time  # noqa: B018
    with pytest.raises(mqstore.StoreError):
        message.born_time  # noqa: B018
    assert "253402300800000 ms" in repr(message)


@pytest.mark.parametrize(
    ("sys_flag", "stored"),
    [
        (COMPRESSED, zlib.compress(BODY)),
        (COMPRESSED | ZLIB, zlib.compress(BODY)),
        (COMPRESSED | LZ4, pa.Codec("lz4").compress(BODY, asbytes=True)),
        (COMPRESSED | ZSTD, pa.Codec("zstd").compress(BODY, asbytes=True)),
        (0, BODY),
        (ZSTD, BODY),
    ],
    ids=["zlib of old", "zlib", "lz4", "zstd", "plain", "type without bit 0"],
)
def test_bodies_decode_as_sys_flag_says(encoder: Encoder, sys_flag: int, stored: bytes) -> None:
    encoder.append("orders", stored, sys_flag=sys_flag)
    message = only(encoder)
    assert message.body == stored
    assert message.decoded_body == BODY


@pytest.mark.parametrize("sys_flag", [COMPRESSED, COMPRESSED | LZ4, COMPRESSED | ZSTD, COMPRESSED | 0x700])
def test_a_body_that_does_not_decode_is_corrupt(encoder: Encoder, sys_flag: int) -> None:
    encoder.append("orders", b"x" * 10)
    encoder.append("orders", b"these are no compressed bytes", sys_flag=sys_flag)
    with mqstore.open(encoder.write()) as store:
        message = store.topics["orders"].queues[0][1]
        with pytest.raises(mqstore.CorruptError, match="orders/0 at queue offset 1") as raised:
            message.decoded_body  # noqa: B018
        assert raised.value.offset == message.physical_offset
        assert message.body == b"these are no compressed bytes"


def test_the_view_of_a_body_is_read_only_and_outlives_message_and_store(encoder: Encoder) -> None:
    for _ in range(2):
        encoder.append("orders", BODY * 3)
    encoder.append("orders", b"in the second segment")
    with mqstore.open(encoder.write()) as store:
        views = [message.body_view for message in store.topics["orders"].queues[0]]
    del store
    for view, body in zip(views, (BODY * 3, BODY * 3, b"in the second segment"), strict=True):
        assert view.readonly
        assert (view.format, view.itemsize, view.contiguous, view.nbytes) == ("B", 1, True, len(body))
        assert view == body
        with pytest.raises(TypeError):
            view[0] = 0


def test_a_message_is_frozen(encoder: Encoder) -> None:
    encoder.append("orders")
    message = only(encoder)
    with pytest.raises(AttributeError):
        message.topic = "other"
    with pytest.raises(TypeError):
        mqstore.Message()


def test_messages_are_equal_if_their_records_are(encoder: Encoder) -> None:
    for _ in range(2):
        encoder.append("orders", b"the same")
    with mqstore.open(encoder.write()) as store, mqstore.open(encoder.path) as again:
        queue, other = (opened.topics["orders"].queues[0] for opened in (store, again))
        assert queue[0] == other[0]
        assert hash(queue[0]) == hash(other[0])
        assert queue[0] != queue[1]
        assert queue[0] != "a message"
        assert len({*queue, *other}) == 2


def test_a_message_pickles_by_value(encoder: Encoder) -> None:
    encoder.append("orders", BODY, tags="paid", keys=["o-1"])
    message = only(encoder)
    encoder.path.rename(encoder.path.with_name("gone"))
    copy = pickle.loads(pickle.dumps(message))
    assert copy == message
    assert hash(copy) == hash(message)
    assert (copy.body, copy.tags, copy.keys, bytes(copy.body_view)) == (BODY, "paid", ["o-1"], BODY)
    assert pickle.loads(pickle.dumps(copy)) == message


def test_shown_in_one_line_and_as_html(encoder: Encoder) -> None:
    encoder.append("orders", b"hello", tags="<b>paid</b>")
    message = only(encoder)
    assert repr(message) == (
        '<mqstore.Message orders/0 queue_offset=0 physical_offset=0 2026-01-01T00:30:00.000Z, tags "<b>paid</b>", body 5 bytes>'
    )
    assert "&lt;b&gt;paid" in message._repr_html_()
    assert "<b>" not in message._repr_html_()


def test_text_that_is_not_utf8_reads_with_replacement_characters(encoder: Encoder) -> None:
    encoder.append("orders", properties={"k": "valueX"})
    encoder.log[encoder.log.index(b"valueX") + 5] = 0xFF
    assert only(encoder).properties == {"k": "value\N{REPLACEMENT CHARACTER}"}


TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)
HOST = st.one_of(st.ip_addresses(v=4).map("{}:10911".format), st.ip_addresses(v=6).map("[{}]:65535".format))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None)
@given(
    topic=st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/"), min_size=1, max_size=30).filter(
        lambda topic: topic not in (".", "..")
    ),
    body=st.binary(max_size=200),
    tags=st.none() | TEXT,
    keys=st.lists(TEXT.map(lambda key: key.replace(" ", "_")), max_size=3),
    properties=st.dictionaries(TEXT.filter(lambda name: name not in ("TAGS", "KEYS", "UNIQ_KEY", "DELAY")), TEXT, max_size=3),
    hosts=st.tuples(HOST, HOST),
    flag=st.integers(-(2**31), 2**31 - 1),
)
def test_any_message_reads_as_it_was_written(
    topic: str,
    body: bytes,
    tags: str | None,
    keys: list[str],
    properties: dict[str, str],
    hosts: tuple[str, str],
    flag: int,
) -> None:
    with TemporaryDirectory() as folder:
        encoder = Encoder(Path(folder) / "store")
        encoder.append(
            topic, body, tags=tags, keys=keys, properties=properties, born_host=hosts[0], store_host=hosts[1], flag=flag
        )
        message = only(encoder)
    assert (message.topic, message.body, message.tags, message.keys, message.flag) == (topic, body, tags, keys, flag)
    named = {"TAGS": tags, "KEYS": " ".join(keys) or None}
    assert message.properties == properties | {name: value for name, value in named.items() if value}
    # One address has more than one spelling.
    assert (host(message.born_host), host(message.store_host)) == (host(hosts[0]), host(hosts[1]))


def test_a_message_of_a_test_reads_like_one_of_a_store(encoder: Encoder) -> None:
    encoder.append("orders", b"body", tags="paid", keys=["o-1"], properties={"k": "v"}, store_time=EPOCH_MS, born_time=EPOCH_MS)
    stored = only(encoder)
    made = mqstore.Message(
        "orders",
        b"body",
        tags="paid",
        keys=["o-1"],
        properties={"k": "v"},
        store_time=EPOCH_MS,
        born_time=EPOCH_MS,
        store_host=stored.store_host,
        born_host=stored.born_host,
    )
    assert made.to_dict() == stored.to_dict()
    assert pickle.loads(pickle.dumps(made)) == made
    with mqstore.open(encoder.path.parent / "other", "a") as store:
        store.append_batch([made])
        store.wait_dispatched(0)
        assert store.topics["orders"].queues[0][0].body == b"body"


def test_a_message_that_no_record_can_hold_is_refused() -> None:
    with pytest.raises(mqstore.IllegalMessageError, match="0 bytes"):
        mqstore.Message("")
    with pytest.raises(mqstore.IllegalMessageError, match="o 1"):
        mqstore.Message("orders", b"", keys=["o 1"])
    with pytest.raises(TypeError):
        mqstore.Message("orders", "text")  # type: ignore[arg-type]
    long = "t" * 200
    assert (mqstore.Message(long).version, mqstore.Message(long).topic) == (2, long)


def test_to_dict_has_the_columns_of_a_batch_in_their_order(encoder: Encoder) -> None:
    encoder.append("orders", b"body", tags="paid")
    with mqstore.open(encoder.write()) as store:
        queue = store.topics["orders"].queues[0]
        names = queue[:].batches().to_arrow().schema.names
        fields = queue[0].to_dict()
    assert list(fields) == names
    assert (fields["topic"], fields["tags"], fields["body"]) == ("orders", "paid", b"body")


def test_json_is_what_the_decoded_body_says() -> None:
    message = mqstore.Message("orders", zlib.compress(b'{"id": 7}'), sys_flag=COMPRESSED)
    assert message.json() == {"id": 7}
    with pytest.raises(ValueError, match="Expecting value"):
        mqstore.Message("orders", b"no json").json()


def test_what_the_flags_say_has_names() -> None:
    plain = mqstore.Message("orders", b"x")
    assert (plain.transaction, plain.compression, plain.delay_level, plain.version) == (None, None, 0, 1)
    kinds = {COMPRESSED: "zlib", COMPRESSED | LZ4: "lz4", COMPRESSED | ZSTD: "zstd", COMPRESSED | ZLIB: "zlib"}
    assert {flag: mqstore.Message("t", sys_flag=flag).compression for flag in kinds} == kinds
    parts = {0x4: "prepared", 0x8: "commit", 0xC: "rollback"}
    assert {flag: mqstore.Message("t", sys_flag=flag).transaction for flag in parts} == parts
    assert mqstore.Message("t", delay_level=3).delay_level == 3
    with pytest.raises(ValueError, match="compression kind 7"):
        _ = mqstore.Message("t", sys_flag=0x701).compression


def test_the_record_and_its_checksum_can_be_taken() -> None:
    message = mqstore.Message("orders", b"body")
    assert message.raw[:4] == message.store_size.to_bytes(4, "big") == len(message.raw).to_bytes(4, "big")
    assert message.body_crc == zlib.crc32(b"body") & 0x7FFFFFFF
