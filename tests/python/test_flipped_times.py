"""Bytes of the times in a store are flipped: every call answers or raises `StoreError`, and the rest stays readable."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import mqstore
from mqstore.cli._main import commands
from mqstore.report import report

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

LAYOUT = {"max_hash_slot_num": 10, "max_index_num": 20, "mapped_file_size_commit_log": 16_384, "services": False}
#: Places of the times in a record with hosts of IPv4.
BORN, STORED = 40, 56
SINCE = datetime(2001, 9, 9, tzinfo=UTC)
FIELDS = ("topic", "store_time", "born_time", "body", "properties", "keys", "message_id", "store_host")


def facts(message: mqstore.Message) -> list[object]:
    read: list[object] = [repr(message), hash(message)]
    for name in FIELDS:
        with suppress(mqstore.StoreError):
            read.append(getattr(message, name))
    assert message.body
    return read


def each(store: mqstore.Store) -> Iterator[mqstore.Message]:
    for name in store.topics:
        for queue in store.topics[name].queues:
            yield from queue


def starts(store: mqstore.Store) -> list[int]:
    return [message.physical_offset for message in each(store)]


def orders(store: mqstore.Store) -> mqstore.Queue:
    return store.topics["orders"].queues[0]


def key_of(store: mqstore.Store) -> str:
    key = orders(store)[0].unique_key
    assert key is not None
    return key


def all_facts(messages: Iterable[mqstore.Message]) -> list[list[object]]:
    return [facts(message) for message in messages]


#: Calls that must give every message, whatever its times say.
CALLS: dict[str, Callable[[mqstore.Store], object]] = {
    "usage": lambda store: [store.usage(by).to_pylist() for by in ("topic", "queue_id", "tags", "hour", "segment")],
    "usage as text": lambda store: [repr(store.usage()), store.usage("hour").to_arrow()],
    "segments": lambda store: [list(store.inspect.segments()), store.inspect.index_files().to_pylist()],
    "dump": lambda store: [store.inspect.dump(offset).to_pylist() for offset in starts(store)],
    "dump of a key": lambda store: store.inspect.dump_key("orders", "o-1").to_pylist(),
    "scan": lambda store: [row for batch in store.scan(transactions="all") for row in batch],
    "scan to rows": lambda store: [batch.to_pylist() for batch in store.scan(order="queue")],
    "scan in Arrow": lambda store: store.scan().to_arrow(),
    "scan of a time": lambda store: list(store.scan(since=SINCE, until=SINCE + timedelta(days=20_000))),
    "messages": lambda store: all_facts(each(store)),
    "message": lambda store: all_facts(map(store.message_at, starts(store))),
    "follow": lambda store: all_facts(store.follow(timeout=0, start="earliest")),
    "follow since": lambda store: all_facts(store.follow(timeout=0, since=SINCE)),
    "tail": lambda store: all_facts(orders(store).tail(timeout=0, since=SINCE)),
    "offset_at": lambda store: [orders(store).offset_at(SINCE + timedelta(days=days)) for days in (0, 9_000, 20_000)],
    "query": lambda store: all_facts(store.query("orders", key="o-1")),
    "query since": lambda store: all_facts(store.query("orders", key="o-1", since=SINCE)),
    "unique key": lambda store: facts(store.message(key_of(store))),
    "resolve keys": lambda store: store.resolve_keys(pa.table({"topic": ["orders"], "key": ["o-1"]})).to_pylist(),
    "resolve times": lambda store: store.resolve_times(
        pa.table({"topic": ["orders"], "queue_id": [0], "time": [999_993_600_000]})
    ).to_pylist(),
    "to_dict": lambda store: [message.to_dict() for message in each(store)],
    "trace": lambda store: repr(store.broker.trace(key_of(store))),
    "broker": lambda store: [call().to_pylist() for call in (store.broker.lag, store.broker.groups, store.broker.delay_backlog)],
    "recovery": lambda store: repr(store.recovery),
    "verify": lambda store: [repr(finding) for finding in store.verify().findings],
    "html": lambda store: [item._repr_html_() for item in (store, orders(store), *orders(store))],
}

COMMANDS = """
info; topics; queues; segments; index; du; du --by hour; lag; groups; delayed; transactions; dead; doctor; verify; manifest
cat orders; cat orders --json; get orders/0@0; get orders/0@1 --json; tail -n 5 orders; dump 0
find --key o-1 --topic orders; find --tag paid --topic orders; find --since 2001-09-09T00:00:00Z; trace KEY
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("times") / "store"
    with mqstore.open(path, "x", **LAYOUT) as writer:  # type: ignore[call-overload]
        for number in range(3):
            key = mqstore.new_unique_key()
            writer.append("orders", f"{number}".encode(), keys=["o-1"], tags="paid", properties={"UNIQ_KEY": key})
        with pytest.warns(RuntimeWarning, match="services"):
            writer.append("orders", b"later", delay_level=3)
        writer.transactions.send_half("orders", b"half", group="pay")
        with writer.consumer("billing", "orders") as consumer:
            consumer.ack(consumer.poll(1))
    return path


def times_of(path: Path) -> Iterator[tuple[Path, range]]:
    """Yields file and bytes of each time of the store."""
    with mqstore.open(path) as store:
        segment = next(path.glob("commitlog/*"))
        for message in [*each(store)]:
            for place in (BORN, STORED):
                yield segment, range(message.physical_offset + place, message.physical_offset + place + 8)
    yield path / "checkpoint", range(24)
    index = next(path.glob("index/*"))
    yield index, range(16)
    first_item = 40 + 4 * LAYOUT["max_hash_slot_num"] + 20
    yield index, range(first_item + 12, first_item + 16)


def flipped(path: Path, mask: int) -> Iterator[str]:
    """Flips a byte of a time, yields its name, and restores it."""
    for file, places in times_of(path):
        for place in places:
            with file.open("r+b") as writable:
                writable.seek(place)
                [before] = writable.read(1)
                for byte in (before ^ mask, before):
                    writable.seek(place)
                    writable.write(bytes([byte]))
                    writable.flush()
                    if byte != before:
                        yield f"{file.name} byte {place} ^ {mask:#x}"


@pytest.mark.parametrize("mask", [0xFF, 0x41])
def test_a_flipped_byte_of_a_time_raises_nothing_but_store_errors(store: Path, mask: int) -> None:
    wrong = set()
    for place in flipped(store, mask):
        with mqstore.open(store) as opened:
            for name, call in CALLS.items():
                try:
                    call(opened)
                except mqstore.CorruptError:
                    pass
                except Exception as error:
                    # An index whose items are damaged is not used, and a lookup walks the log only with walk=True.
                    if not (isinstance(error, mqstore.NotFoundError) and "walk=True" in str(error)):
                        wrong.add(f"{name}: {place}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(sorted(wrong))


def test_commands_print_a_store_whose_times_are_flipped(store: Path) -> None:
    with mqstore.open(store) as opened:
        key = key_of(opened)
    wrong = set()
    for place in flipped(store, 0xFF):
        for words in re.split("[;\n]", COMMANDS.strip()):
            name, *more = words.replace("KEY", key).split()
            ran = CliRunner().invoke(commands, [name, str(store), *more])
            if not isinstance(ran.exception, SystemExit | None) or re.search("Error|Usage|years 1 to", ran.stderr):
                wrong.add(f"{words}: {place}: {ran.exception!r} {ran.stderr}")
    assert not wrong, "\n".join(sorted(wrong))


def test_a_report_is_made_of_a_store_whose_times_are_flipped(store: Path) -> None:
    for _ in itertools.islice(flipped(store, 0x41), 0, None, 12):
        assert report(store).html
