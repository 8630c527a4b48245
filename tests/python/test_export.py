"""An export is imported as it was, and a file exists only once it is whole."""

from __future__ import annotations

import base64
import csv
import json
import random
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from encoder import Encoder

import mqstore
from mqstore import Store, _export

GOLDEN = [
    "491_basic_clean",
    "491_crash_image",
    "491_delay_delivered",
    "491_indexroll",
    "491_multifile",
    "498_basic_clean",
    "498_mixed",
    "533_basic_clean",
    "533_crcprop",
    "533_mixed",
    "533_v2_record",
    "551_mixed",
]
FORMATS = ["parquet", "arrow", "jsonl"]
WRITTEN = [*FORMATS, "csv"]
TEXT = "a letter that nobody reads, größe \U0001f4e8".encode() * 20
#: What the store gives, whatever a caller says.
GIVEN = ["queue_offset", "physical_offset", "store_size", "store_time", "message_id"]


def of_caller(store: Store, **conditions: Any) -> list[dict[str, Any]]:
    """Every field that a caller can set, of each message. A checksum of a record is that of its place."""
    rows = store.scan(**conditions).to_arrow().drop_columns(GIVEN).to_pylist()
    return [row | {"properties": [pair for pair in row["properties"] if pair[0] != "__CRC32#"]} for row in rows]


def goes_round(store: Store, path: Path, tmp_path: Path, **options: Any) -> mqstore.files.Exported:
    """Exports and imports the messages; fails if one is not as it was."""
    got = store.export(path, **options)
    with mqstore.open(tmp_path / f"{path.name}.store", "x") as copy:
        taken = copy.import_from(got.path, format=options.get("format"))
        assert sorted(taken.files) == sorted(got.files)
        assert (got.complete, got.skipped, got.rows) == (True, 0, taken.rows)
        order = options.get("order", "queue" if "topic" in str(options.get("partition_by")) else "log")
        assert of_caller(copy, order=order) == of_caller(store, order=order)
    return got


@pytest.fixture
def dead_letters(tmp_path: Path) -> Path:
    """A store with a dead letter of each kind of compression, and an uncompressed letter."""
    with mqstore.open(tmp_path / "letters", "x") as store:
        compressed = {0x001: zlib.compress(TEXT), 0x301: zlib.compress(TEXT), 0: TEXT}
        compressed |= {kind: pa.Codec(name).compress(TEXT, asbytes=True) for kind, name in ((0x101, "lz4"), (0x201, "zstd"))}
        for sys_flag, body in compressed.items():
            store.append("%DLQ%billing", body, sys_flag=sys_flag | 0x2, properties={"RETRY_TOPIC": "orders"})
    return tmp_path / "letters"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Store]:
    """A writer with four kinds of messages."""
    with mqstore.open(tmp_path / "shop", "x") as store:
        store.append(
            "orders", b"\xff\x00", tags="paid", keys=["k1", "k2"], properties={"a": 'q"\n\u2028'}, born_host="10.0.0.1:7"
        )
        store.append("%RETRY%billing", b"", queue_id=3, unique_key="U1", flag=-7, sys_flag=1, reconsume_times=2)
        store.append("größe:1", b"text", properties={"__proto__": "p", "c": "\x7f"}, prepared_transaction_offset=2**40)
        store.append("orders", b'{"n": 1,\r\n "s": "\\n"}', born_time=datetime(1, 1, 1, tzinfo=UTC))
        yield store


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", GOLDEN)
def test_what_rocketmq_wrote_goes_round(golden: Path, tmp_path: Path, name: str, format: str) -> None:
    with mqstore.open(golden / name) as store:
        got = goes_round(store, tmp_path / f"out.{format}", tmp_path)
        assert got.rows == len(of_caller(store)) > 0
        assert got.covers == store.scan().covers or got.covers == (store.min_physical_offset, store.max_physical_offset)


@pytest.mark.parametrize("format", FORMATS)
def test_7865_events_go_round_by_topic_and_by_hour(events: Path, tmp_path: Path, format: str) -> None:
    with mqstore.open(events) as store:
        whole = goes_round(store, tmp_path / f"all.{format}", tmp_path, batch_bytes=100_000)
        assert (whole.rows, whole.files) == (7865, (tmp_path / f"all.{format}",))
        assert whole.bytes == whole.path.stat().st_size
        parts = goes_round(store, tmp_path / "parts", tmp_path, format=format, partition_by=("topic", "hour"))
        assert parts.bytes == sum(path.stat().st_size for path in parts.files)
        folders = {unquote(path.relative_to(parts.path).parts[0]) for path in parts.files}
        assert folders == {f"topic={topic}" for topic in store.topics}


@pytest.mark.parametrize("format", FORMATS)
def test_every_field_of_a_caller_goes_round(shop: Store, tmp_path: Path, format: str) -> None:
    goes_round(shop, tmp_path / f"out.{format}", tmp_path)
    goes_round(shop, tmp_path / "hours", tmp_path, format=format, partition_by="hour")
    got = goes_round(shop, tmp_path / "topics", tmp_path, format=format, partition_by=["topic"])
    assert {str(path.relative_to(got.path)) for path in got.files} == {
        f"topic=orders/part-00000.{format}",
        f"topic=%25RETRY%25billing/part-00000.{format}",
        f"topic=größe%3A1/part-00000.{format}",
    }


@pytest.mark.parametrize("format", FORMATS)
def test_keys_with_control_characters_are_imported_as_they_are_copied(tmp_path: Path, format: str) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        for keys in ("a\x01b c", "a\tb", " a\x7f  b "):
            store.append("orders", b"x", properties={"KEYS": keys})
        store.append("orders", b"x", keys=["a", "b"])
        store.append("orders", b"x")
        goes_round(store, tmp_path / f"all.{format}", tmp_path)
        store.copy_to(tmp_path / "copy")
        with mqstore.open(tmp_path / "copy") as copy:
            assert of_caller(copy) == of_caller(store)


@pytest.mark.parametrize("format", FORMATS)
def test_keys_that_were_changed_in_the_file_replace_the_property(tmp_path: Path, format: str) -> None:
    rows = [{"topic": "orders", "body": b"x", "keys": ["new"], "properties": [("KEYS", "old")]}]
    path = tmp_path / f"rows.{format}"
    properties = pa.map_(pa.string(), pa.string())
    schema = pa.schema({"topic": pa.string(), "body": pa.binary(), "keys": pa.list_(pa.string()), "properties": properties})
    table = pa.Table.from_pylist(rows, schema)
    if format == "parquet":
        pq.write_table(table, path)
    elif format == "arrow":
        with pa.ipc.new_file(path, schema) as file:
            file.write(table)
    else:
        path.write_text('{"topic": "orders", "body": "eA==", "keys": ["new"], "properties": {"KEYS": "old"}}\n')
    with mqstore.open(tmp_path / "store", "x") as store:
        store.import_from(path)
        assert [message.keys for message in store.topics["orders"].queues[0]] == [["new"]]


def test_a_line_of_json_is_the_message(shop: Store, tmp_path: Path) -> None:
    path = shop.export(tmp_path / "out.ndjson").path
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    expected = shop.scan().to_arrow().to_pylist()
    for line, row in zip(lines, expected, strict=True):
        times = {name: datetime.fromisoformat(line[name]) for name in ("store_time", "born_time")}
        body = base64.b64decode(line["body"], validate=True)
        assert line | times | {"body": body, "properties": list(line["properties"].items())} == row
    assert lines[0]["store_time"].endswith("Z")
    assert lines[3]["born_time"] == "0001-01-01T00:00:00.000Z"


def test_bodies_of_every_length_become_base64(tmp_path: Path) -> None:
    drawn = random.Random(7)
    bodies = [drawn.randbytes(length) for length in range(100)]
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append_batch(bodies, "orders")
        lines = store.export(tmp_path / "out.jsonl", columns=["body"]).path.read_bytes().splitlines()
    assert lines == [b'{"body":"%s"}' % base64.b64encode(body) for body in bodies]


def test_json_lines_and_csv_need_no_package(shop: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    got = shop.export(tmp_path / "out.jsonl", rewrite=lambda batch: batch)
    assert got.rows == shop.export(tmp_path / "out.csv", rewrite=lambda batch: batch).rows == 4
    with mqstore.open(tmp_path / "copy", "x") as copy:
        assert copy.import_from(got.path).rows == 4
    for arguments in ({}, {"format": "parquet"}, {"format": "arrow"}, {"format": "jsonl", "partition_by": "topic"}):
        with pytest.raises(ModuleNotFoundError, match=r"needs pyarrow: run pip install '\.\[arrow\]' in a checkout"):
            shop.export(tmp_path / "out", **arguments)
    with pytest.raises(ModuleNotFoundError, match="format 'parquet' needs pyarrow"):
        shop.import_from(got.path, format="parquet")


def test_text_and_json_bodies_are_readable_and_go_round(tmp_path: Path) -> None:
    bodies = [b'{"n":1.50,"s":"\\n\xc3\xa9"}', b"[1,2]", b'"x"', b"null", b"12345678901234567890123"]
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append_batch([*bodies[:-1], b'{\n"n":\r\n1 }'], "orders")
        text = store.export(tmp_path / "text.jsonl", body_as="text").path
        parsed = store.export(tmp_path / "json.jsonl", body_as="json").path
        lines = [json.loads(line) for line in parsed.read_bytes().splitlines()]
        assert [line["body"] for line in lines] == [{"n": 1.5, "s": "\né"}, [1, 2], "x", None, {"n": 1}]
        with mqstore.open(tmp_path / "texts", "x") as copy:
            copy.import_from(text, body_as="text")
            assert of_caller(copy) == of_caller(store)
        with mqstore.open(tmp_path / "jsons", "x") as copy:
            copy.import_from(parsed, body_as="json")
            assert [row["body"] for row in of_caller(copy)] == [*bodies[:-1], b'{ "n":  1 }']


@pytest.mark.parametrize("format", ["jsonl", "csv"])
@pytest.mark.parametrize(("body_as", "what"), [("text", "not UTF-8"), ("json", "not JSON")])
def test_a_body_that_is_not_what_it_should_be_is_named(shop: Store, tmp_path: Path, body_as: str, what: str, format: str) -> None:
    with pytest.raises(ValueError, match=f"the message at physical offset 0: the body is {what}.*base64"):
        shop.export(tmp_path / "out", format=format, body_as=body_as)
    assert leftovers(tmp_path) == ["shop"]


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("format", FORMATS)
def test_no_messages_are_a_file_with_the_columns(shop: Store, tmp_path: Path, format: str) -> None:
    got = shop.export(tmp_path / f"out.{format}", topics="none", columns=["topic", "body"])
    assert (got.rows, got.complete, len(got.files)) == (0, True, 1)
    if format == "parquet":
        assert pq.read_schema(got.path).names == ["topic", "body"]
    if format == "arrow":
        assert pa.ipc.open_file(got.path).schema.names == ["topic", "body"]
    with mqstore.open(tmp_path / "copy", "x") as copy:
        assert copy.import_from(got.path).rows == 0
    assert shop.export(tmp_path / "parts", topics="none", partition_by="topic", format=format).files == ()


def test_a_topic_that_is_called_as_a_partition_of_null_goes_round(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append_batch([("__HIVE_DEFAULT_PARTITION__", b"a"), ("orders", b"b")])
        goes_round(store, tmp_path / "parts", tmp_path, format="jsonl", partition_by="topic")


def test_other_readers_read_the_partitions(shop: Store, tmp_path: Path) -> None:
    got = shop.export(tmp_path / "parts", partition_by=("topic", "hour"), format="parquet")
    hour = f"{shop.scan().to_arrow()['store_time'][0].as_py():%Y-%m-%dT%H}"
    by_duckdb = duckdb.sql(f"select topic, hour, count(*) from read_parquet('{got.path}/**/*.parquet') group by all").fetchall()
    assert sorted(by_duckdb) == sorted([("orders", hour, 2), ("%RETRY%billing", hour, 1), ("größe:1", hour, 1)])
    types = pa.schema([("topic", pa.string()), ("hour", pa.string())])
    table = ds.dataset(got.path, partitioning=ds.partitioning(types, flavor="hive")).to_table()
    assert sorted(table["topic"].to_pylist()) == sorted(["orders", "orders", "%RETRY%billing", "größe:1"])


def test_a_partition_that_comes_back_gets_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_export, "MOST_OPEN", 2)
    with mqstore.open(tmp_path / "store", "x") as store:
        for number in range(60):
            store.append(f"t{number % 5}", b"%d" % number, queue_id=number % 2)
        got = store.export(tmp_path / "parts", partition_by="topic", format="jsonl", order="log", batch_bytes=2000)
        assert len(got.files) > 5
        with mqstore.open(tmp_path / "copy", "x") as copy:
            copy.import_from(got.path)
            assert of_caller(copy, order="queue") == of_caller(store, order="queue")


def test_json_lines_take_columns_of_booleans_and_of_floats(shop: Store, tmp_path: Path) -> None:
    def other(_: mqstore.RecordBatch) -> pa.Table:
        return pa.table({"paid": [None, True, False], "share": [0.5, None, float("nan")]})

    shop.export(tmp_path / "out.jsonl", rewrite=other)
    assert (tmp_path / "out.jsonl").read_text().splitlines() == [
        '{"paid":null,"share":0.5}',
        '{"paid":true,"share":null}',
        '{"paid":false,"share":null}',
    ]


def test_what_rewrite_gives_is_written(shop: Store, tmp_path: Path) -> None:
    def paid(batch: mqstore.RecordBatch) -> pa.Table:
        table = batch.to_arrow()
        return pa.table(
            {"day": pc.cast(table["store_time"], pa.date32()).cast(pa.string()), "size": pc.binary_length(table["body"])}
        )

    got = shop.export(tmp_path / "out.parquet", topics="orders", rewrite=paid)
    assert (got.rows, pq.read_table(got.path)["size"].to_pylist()) == (2, [2, 21])
    empty = shop.export(tmp_path / "empty.parquet", topics="none", rewrite=paid)
    assert pq.read_schema(empty.path).names == ["day", "size"]
    dropped = shop.export(tmp_path / "out.jsonl", rewrite=lambda batch: batch.to_arrow().filter(pc.field("flag") == -7))
    assert dropped.rows == 1
    with pytest.raises(TypeError, match="expected a table that speaks Arrow"):
        shop.export(tmp_path / "none.jsonl", rewrite=lambda _: None)
    with pytest.raises(ValueError, match="partition_by needs the column 'store_time'"):
        shop.export(tmp_path / "none", partition_by="hour", columns=["topic", "body"], format="arrow")
    assert "none" not in " ".join(leftovers(tmp_path))


@pytest.mark.parametrize("format", WRITTEN)
@pytest.mark.parametrize("partition_by", [(), "topic"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, ZeroDivisionError])
def test_what_a_callable_raises_leaves_nothing(
    events: Path, tmp_path: Path, format: str, partition_by: Any, raised: type[BaseException]
) -> None:
    calls = 0

    def third(batch: mqstore.RecordBatch) -> mqstore.RecordBatch:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise raised
        return batch

    with mqstore.open(events) as store:
        with pytest.raises(raised):
            store.export(tmp_path / "out", format=format, rewrite=third, batch_bytes=50_000, partition_by=partition_by)
        calls = 2
        with pytest.raises(raised):
            store.export(tmp_path / "out", format=format, progress=lambda *_: third(None))  # type: ignore[arg-type]
        assert leftovers(tmp_path) == []
        got: list[tuple[int, int]] = []
        store.export(tmp_path / "out", format=format, progress=lambda *at: got.append(at))
    assert got == sorted(got)
    assert got[-1][0] == got[-1][1]


KILLED = """
import os, signal, sys
import mqstore
calls = 0
def die(batch):
    global calls
    calls += 1
    if calls == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch
with mqstore.open(sys.argv[1]) as store:
    store.export(sys.argv[2], rewrite=die, batch_bytes=50_000)
"""


@pytest.mark.parametrize("format", WRITTEN)
def test_a_killed_export_leaves_no_file_of_the_name(events: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"out.{format}"
    done = subprocess.run([sys.executable, "-c", KILLED, events, path], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = leftovers(tmp_path)
    assert left.startswith(".mqstore-")
    assert left.endswith(".part")
    with mqstore.open(events) as store:
        assert store.export(path).rows == 7865


FULL = """
import errno, resource, signal, sys
import mqstore, pyarrow.parquet
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
with mqstore.open(sys.argv[1]) as store:
    try:
        store.export(sys.argv[2], batch_bytes=50_000)
    except OSError as error:
        sys.exit(0)
"""


@pytest.mark.parametrize("format", WRITTEN)
def test_a_disk_without_room_leaves_nothing(events: Path, tmp_path: Path, format: str) -> None:
    subprocess.run([sys.executable, "-c", FULL, events, tmp_path / f"out.{format}"], check=True)
    assert leftovers(tmp_path) == []


def test_a_file_that_is_there_is_not_replaced(shop: Store, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(FileExistsError, match="out.jsonl"):
        shop.export(tmp_path / "out.jsonl")
    with pytest.raises(FileExistsError, match="late.jsonl"):
        shop.export(tmp_path / "late.jsonl", rewrite=lambda batch: (tmp_path / "late.jsonl").write_text("mine") and batch)
    assert [(tmp_path / name).read_text() for name in ("out.jsonl", "late.jsonl")] == ["mine", "mine"]
    with pytest.raises(FileNotFoundError):
        shop.export(tmp_path / "nowhere" / "out.jsonl")
    assert leftovers(tmp_path) == ["late.jsonl", "out.jsonl", "shop"]


def test_a_directory_that_is_not_there_is_named(shop: Store, tmp_path: Path) -> None:
    for write in (shop.export, shop.copy_to):
        with pytest.raises(FileNotFoundError, match=r"there is no such directory: make it first: '.*/none'$"):
            write(tmp_path / "none" / "out.jsonl")


def test_damage_is_counted_or_raised(tmp_path: Path) -> None:
    made = Encoder(tmp_path / "store")
    offsets = [made.append("orders", b"body %d" % number) for number in range(10)]
    made.log[made.log.index(b"body 4")] ^= 1
    made.write()
    assert len(offsets) == 10
    with mqstore.open(made.path) as store:
        with pytest.raises(mqstore.CorruptError):
            store.export(tmp_path / "out.jsonl")
        got = store.export(tmp_path / "out.jsonl", errors="skip")
        assert (got.rows, got.skipped, got.complete) == (9, 1, False)
        assert store.export(tmp_path / "three.jsonl", limit=3).complete is False


def test_arguments_are_checked_before_anything_is_written(shop: Store, tmp_path: Path) -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ValueError, "format is 'cvs'", {"format": "cvs"}),
        (ValueError, "spreadsheet is for the format 'csv', and this one is 'parquet'", {"spreadsheet": True}),
        (TypeError, "decode_body", {"format": "jsonl", "decode_body": "yes"}),
        (ValueError, "partition_by is", {"format": "jsonl", "partition_by": "tags"}),
        (ValueError, "partition_by is", {"format": "jsonl", "partition_by": ("topic", "topic")}),
        (ValueError, "body_as is", {"format": "jsonl", "body_as": "hex"}),
        (ValueError, "does not have", {"format": "jsonl", "columns": ["bdy"]}),
        (TypeError, "topic_s", {"format": "jsonl", "topic_s": "orders"}),
        (TypeError, "progress", {"format": "jsonl", "progress": 7}),
    ]
    for kind, text, arguments in wrong:
        with pytest.raises(kind, match=text):
            shop.export(tmp_path / "out", **arguments)
    assert leftovers(tmp_path) == ["shop"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"{", "line 2: "),
        (b"[1]", "line 2: expected an object"),
        (b'{"topic":"t","body":"!"}', r"line 2: the body is not base64.*body_as=\"text\""),
        (b'{"topic":"t","body":{}}', r"line 2: the body is not a str.*body_as=\"json\""),
        (b'{"topic":"t","body":"","born_time":"soon"}', "line 2: Invalid isoformat"),
        (b'{"topic":"t"}', "message 1: "),
        (b'{"topic":"t","body":"","colour":"red"}', '"colour" is not a field'),
    ],
)
def test_a_line_that_is_no_message_is_named_and_its_batch_is_not_stored(tmp_path: Path, line: bytes, text: str) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'{"topic":"t","body":"YQ=="}\n%s\n' % line)
    with mqstore.open(tmp_path / "store", "x") as store:
        with pytest.raises((ValueError, TypeError), match=text) as raised:
            store.import_from(file)
        assert getattr(raised.value, "stored", None) == 0
        assert list(store.topics) == []


@pytest.mark.parametrize("body", [b"1e400", b"1.0000000000000000001", b"1E5", b'{"a":1, "a":"}"}', b' [ "\\"body\\":" , {} ] '])
def test_the_json_of_a_body_is_stored_as_it_is_written(tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "in.jsonl"
    lines = [b'{"topic":"t","body":%s}', b' { "body" : "b", "keys" : [ "body" ] , "body" :%s, "topic":"t" } ']
    file.write_bytes(b"\xef\xbb\xbf" + b"\n".join(line % body for line in lines))
    with mqstore.open(tmp_path / "store", "x") as store:
        store.import_from(file, body_as="json")
        assert [message.body for message in store.topics["t"].queues[0]] == [body.strip()] * 2


@pytest.mark.parametrize("body", [b"NaN", b"[-Infinity]"])
def test_a_body_of_a_line_that_is_no_json_is_named_and_not_stored(tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(b'{"topic":"t","body":%s}\n' % body)
    with mqstore.open(tmp_path / "store", "x") as store:
        with pytest.raises(ValueError, match=r"line 1: \S+ is (no|not) JSON"):
            store.import_from(file, body_as="json")
        assert list(store.topics) == []


def test_nothing_is_stored_where_one_of_the_files_is_missing(shop: Store, tmp_path: Path) -> None:
    good = shop.export(tmp_path / "good.jsonl").path
    with mqstore.open(tmp_path / "new", "x") as store:
        with pytest.raises(FileNotFoundError, match="there is no such file or directory"):
            store.import_from([good, tmp_path / "missing.jsonl"])
        assert list(store.topics) == []


def test_a_failed_import_says_how_many_rows_are_stored(shop: Store, tmp_path: Path) -> None:
    good = shop.export(tmp_path / "good.jsonl").path
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"{")
    got: list[tuple[int, int]] = []
    with mqstore.open(tmp_path / "store", "x") as store:
        with pytest.raises(ValueError, match=r"bad\.jsonl, line 1") as raised:
            store.import_from([good, good, bad], progress=lambda *at: got.append(at))
        assert raised.value.stored == 8  # type: ignore[attr-defined]
        assert raised.value.__notes__ == [f"in {bad}, after 8 rows that are stored"]
        assert (len(of_caller(store)), got) == (8, [(0, 3), (1, 3), (2, 3)])
        (tmp_path / "empty").mkdir()
        with pytest.raises(FileNotFoundError, match="no file below it"):
            store.import_from(tmp_path / "empty")
        with pytest.raises(AttributeError), mqstore.open(tmp_path / "store") as reader:
            reader.import_from(good)


def test_a_topic_is_given_to_rows_without_one(shop: Store, tmp_path: Path) -> None:
    path = shop.export(tmp_path / "out.parquet", columns=["body", "tags"], topics="orders").path
    with mqstore.open(tmp_path / "copy", "x") as copy:
        copy.import_from(path, topic="archive")
        assert [row["tags"] for row in of_caller(copy, topics="archive")] == ["paid", None]


def test_times_of_no_year_that_is_written_are_numbers(tmp_path: Path) -> None:
    made = Encoder(tmp_path / "store")
    made.append("orders", b"x", born_time=-(2**62))
    made.write()
    with mqstore.open(made.path) as store:
        line = json.loads(store.export(tmp_path / "out.jsonl").path.read_bytes())
    assert line["born_time"] is None or line["born_time"] == -(2**62)


def test_a_store_that_was_closed_raises_and_leaves_nothing(shop: Store, tmp_path: Path) -> None:
    with pytest.raises(mqstore.ClosedError):
        shop.export(tmp_path / "out.jsonl", rewrite=lambda batch: shop.close() or batch, batch_bytes=1)
    with pytest.raises(mqstore.ClosedError):
        shop.export(tmp_path / "out.jsonl")
    assert leftovers(tmp_path) == ["shop"]


@pytest.mark.parametrize("folder", ["shop", "shop/commitlog", "shop/consumequeue/orders", "shop/config/.."])
@pytest.mark.parametrize("partition_by", [None, "topic"])
def test_nothing_is_exported_into_a_store(shop: Store, tmp_path: Path, folder: str, partition_by: str | None) -> None:
    with pytest.raises(ValueError, match=f"lies in the store {tmp_path / 'shop'}: name a directory beside it"):
        shop.export(tmp_path / folder / "out.jsonl", partition_by=partition_by)
    assert not [*tmp_path.rglob("*out*"), *tmp_path.rglob("*.part")]
    assert shop.export(tmp_path / "shop/../out.jsonl").rows > 0


@pytest.mark.parametrize("partition_by", [(), "topic"])
@pytest.mark.parametrize("format", FORMATS)
def test_decoded_bodies_come_back_as_messages_that_consumers_read(
    dead_letters: Path, tmp_path: Path, format: str, partition_by: Any
) -> None:
    with mqstore.open(dead_letters) as store, mqstore.open(tmp_path / "new", "x") as new:
        stored = store.export(tmp_path / "stored", format=format, partition_by=partition_by)
        got = store.export(tmp_path / "out", format=format, partition_by=partition_by, decode_body=True)
        assert (stored.rows, got.rows, got.complete) == (5, 5, True)
        new.import_from(got.path, format=format)
        letters = list(new.topics["%DLQ%billing"].queues[0])
        assert [letter.body for letter in letters] == [TEXT] * 5
        assert [letter.decoded_body for letter in letters] == [TEXT] * 5
        assert [letter.sys_flag for letter in letters] == [0x2] * 5
        new.import_from(stored.path, format=format)
        assert of_caller(new, order="queue")[5:] == of_caller(store, order="queue")


def test_a_scan_clears_the_bits_of_compression_only_with_decoded_bodies(dead_letters: Path) -> None:
    with mqstore.open(dead_letters) as store:
        for columns in (["sys_flag"], ["sys_flag", "body"]):
            decoded = store.scan(columns=columns, decode_body=True).to_arrow()
            assert decoded.column("sys_flag").to_pylist() == [0x2] * 5
        stored = store.scan(columns=["sys_flag"], body_contains=TEXT[:8]).to_arrow().column("sys_flag").to_pylist()
        assert sorted(stored) == [0x2, 0x3, 0x103, 0x203, 0x303]


@pytest.mark.parametrize("format", WRITTEN)
@pytest.mark.parametrize("sys_flag", [0x1, 0x101, 0x201, 0x301, 0x501])
def test_a_body_that_does_not_decompress_is_raised_or_counted(tmp_path: Path, format: str, sys_flag: int) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"whole")
        place = store.append("orders", b"these are no compressed bytes", sys_flag=sys_flag).physical_offset
        path = tmp_path / f"out.{format}"
        with pytest.raises(mqstore.CorruptError, match="compress") as raised:
            store.export(path, decode_body=True)
        assert (raised.value.offset, path.exists()) == (place, False)
        got = store.export(path, decode_body=True, errors="skip")
        assert (got.rows, got.skipped, got.complete) == (1, 1, False)


def read_csv(path: Path) -> list[dict[str, str]]:
    """Reads a CSV file as RFC 4180 says; fails for a row of another length or form."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, strict=True)
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_csv_has_rows_as_rfc_4180_says(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", 'a "b", c\r\nd é'.encode(), tags="paid", keys=["k1", "k2"], properties={"p": 'q"'})
        store.append("orders", b"plain")
        columns = ["topic", "queue_offset", "tags", "keys", "body"]
        path = store.export(tmp_path / "out.csv", columns=columns, body_as="text").path
    assert path.read_bytes().decode() == (
        'topic,queue_offset,tags,keys,body\r\norders,0,paid,"[""k1"",""k2""]","a ""b"", c\r\nd é"\r\norders,1,,[],plain\r\n'
    )


def test_a_row_of_csv_has_the_values_of_a_line_of_json(shop: Store, tmp_path: Path) -> None:
    rows = read_csv(shop.export(tmp_path / "out.csv").path)
    lines = [json.loads(line) for line in shop.export(tmp_path / "out.jsonl").path.read_bytes().splitlines()]
    of_json = {"keys", "properties", "queue_id", "queue_offset", "flag", "sys_flag"}
    for row, line in zip(rows, lines, strict=True):
        assert list(row) == list(line)
        for name, value in line.items():
            if name in of_json:
                assert json.loads(row[name]) == value
            else:
                assert row[name] == ("" if value is None else str(value))


def test_other_readers_read_7865_events_as_csv(events: Path, tmp_path: Path) -> None:
    with mqstore.open(events) as store:
        got = store.export(tmp_path / "all.csv", body_as="text", decode_body=True)
        expected = [(row["topic"], row["queue_offset"], row["body"].decode()) for row in store.scan().to_arrow().to_pylist()]
    assert got.rows == len(expected) == 7865
    assert [(row["topic"], int(row["queue_offset"]), row["body"]) for row in read_csv(got.path)] == expected
    query = f"select topic, queue_offset, body from read_csv('{got.path}', header=true, all_varchar=true)"
    assert [(topic, int(offset), body) for topic, offset, body in duckdb.sql(query).fetchall()] == expected


def test_a_cell_of_csv_has_the_json_of_a_body_as_it_is_written(tmp_path: Path) -> None:
    bodies = [b'{"n":1.50}', b"1.0000000000000000001", b"7" * 300, b' [1E5,\r\n"," ] ', b'"x"', b"null"]
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append_batch(bodies, "orders")
        path = store.export(tmp_path / "out.csv", columns=["body", "tags"], body_as="json").path
    assert [row["body"].encode() for row in read_csv(path)] == [body.replace(b"\r\n", b"  ").strip() for body in bodies]


def test_spreadsheet_cells_that_begin_a_formula_become_text(tmp_path: Path) -> None:
    formulas = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    others = ["1+1", "'=1", " =1", ""]
    with mqstore.open(tmp_path / "store", "x") as store:
        for body in formulas + others:
            store.append("orders", body.encode(), flag=-7)
        plain, safe = (
            read_csv(store.export(tmp_path / f"{so}.csv", columns=["body", "flag"], body_as="text", spreadsheet=so).path)
            for so in (False, True)
        )
    assert [(row["body"], row["flag"]) for row in plain] == [(body, "-7") for body in formulas + others]
    assert [row["body"] for row in safe] == [f"'{body}" for body in formulas] + others
    assert {row["flag"] for row in safe} == {"'-7"}


def test_csv_of_no_messages_is_a_header(shop: Store, tmp_path: Path) -> None:
    got = shop.export(tmp_path / "out.csv", topics="none", columns=["topic", "body"])
    assert (got.rows, got.path.read_bytes()) == (0, b"topic,body\r\n")


def test_csv_is_written_by_partition_and_with_rewritten_columns(shop: Store, tmp_path: Path) -> None:
    got = shop.export(tmp_path / "parts", format="csv", partition_by="topic")
    assert sum(len(read_csv(path)) for path in got.files) == got.rows == 4
    sums = pa.table({"paid": [None, True, False], "share": [0.5, None, 2.0]})
    shop.export(tmp_path / "sums.csv", rewrite=lambda _: sums)
    assert (tmp_path / "sums.csv").read_bytes() == b"paid,share\r\n,0.5\r\ntrue,\r\nfalse,2.0\r\n"
    tables = iter([sums, sums.select(["share"])])
    with pytest.raises(ValueError, match=r"rewrite gave the columns \['share'\] after \['paid', 'share'\]"):
        shop.export(tmp_path / "other.csv", rewrite=lambda _: next(tables), batch_bytes=1)


def test_import_refuses_csv_before_it_stores_anything(shop: Store, tmp_path: Path) -> None:
    good = shop.export(tmp_path / "good.jsonl").path
    file = shop.export(tmp_path / "c.csv").path
    parts = shop.export(tmp_path / "c", format="csv", partition_by="topic").path
    with mqstore.open(tmp_path / "new", "x") as new:
        for source, format in (([good, file], None), (parts, None), (file, "csv")):
            with pytest.raises(ValueError, match=r"format of .*\.csv is 'csv', which is only written: expected \"parquet\""):
                new.import_from(source, format=format)  # type: ignore[arg-type]
        assert list(new.topics) == []


@pytest.mark.parametrize("name", ["out", "out.2026-11-23", "out.dat"])
def test_a_name_with_an_unknown_suffix_is_a_parquet_file(shop: Store, tmp_path: Path, name: str) -> None:
    got = goes_round(shop, tmp_path / name, tmp_path)
    assert pq.read_metadata(got.path).num_rows == 4
    parts = shop.export(tmp_path / "parts", partition_by="topic")
    assert {path.suffix for path in parts.files} == {".parquet"}


@pytest.mark.parametrize("topics", [None, "orders"])
def test_an_export_and_a_copy_warn_of_a_lost_queue(broker: Path, tmp_path: Path, topics: str | None) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    shutil.rmtree(path / "consumequeue" / "orders" / "1")
    with mqstore.open(path) as store:
        for write, target in ((store.export, "all.jsonl"), (store.copy_to, "copy")):
            with pytest.warns(RuntimeWarning, match=f"{target} is partial: the files of queues are lost.*: orders/1; ") as told:
                done = write(tmp_path / target, topics=topics)
            assert (done.complete, done.lost_queues, len(told)) == (False, (("orders", 1),), 1)
        done = store.export(tmp_path / "rest.jsonl", topics="%RETRY%billing", queue_ids=[0])
        assert (done.complete, done.lost_queues) == (True, ())
