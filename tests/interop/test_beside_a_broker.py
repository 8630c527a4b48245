"""Our readers beside a running broker, and that broker on stores that we wrote. See README.md."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import embedded
import pytest
from broker import PATIENCE_S, Ack, Broker, Place
from broker_readers import ROLES, TAGS, TOPICS, VICTIM, Row, number_of, row_of
from generator import Geometry

import mqstore

#: A second of the producers fills a segment, a queue file and an index file, or two.
SMALL = Geometry(segment=256 << 10, queue=4_000, slots=100, items=400)
BROKER = Geometry(segment=1 << 30, queue=6_000_000, slots=5_000_000, items=20_000_000)
#: What happens to the broker, with a second before each.
EVENTS = ("expire", "stop", "delete", "kill", "expire", "stop", "delete", "expire", "kill", "expire")
#: The readers that must miss none of these topics.
COMPLETE = {"follow": ("orders", "payments"), "follow_topic": ("payments",), "scan": ("orders", "payments")}
#: Messages of a store that we wrote.
MESSAGES = 3_000


class Reader:
    """A process of `broker_readers.py`."""

    def __init__(self, role: str, path: Path, directory: Path) -> None:
        self.role = role
        self._found = directory / f"{role}.found"
        program = Path(__file__).with_name("broker_readers.py")
        self._process = subprocess.Popen(
            [sys.executable, program, role, path, self._found],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def tell(self, ack: Ack) -> None:
        """Passes it the report of a producer."""
        if self.role.startswith("by_"):
            assert self._process.stdin is not None
            # A reader that has failed is found at the end.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(ack) + "\n")
                self._process.stdin.flush()

    def end(self) -> dict[int, Place]:
        """Waits until it has read all that there is; by their numbers, where the messages were that it has read."""
        _, errors = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, f"{self.role} failed: {errors[-4000:]}"
        found: dict[int, Place] = {}
        for line in self._found.read_text().splitlines():
            number, *place = json.loads(line)
            first = found.setdefault(number, Place(*place))
            assert first == Place(*place), f"{self.role} has read message {number} at {first} and at {place}"
        assert found, f"{self.role} has read nothing"
        return found

    def kill(self) -> None:
        """Ends it in any case."""
        self._process.kill()
        self._process.wait()


class Session:
    """A broker with readers beside it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "store"
        self._directory = directory
        self.readers: list[Reader] = []
        #: By its number, the acknowledgement of a message.
        self.acked: dict[int, Ack] = {}
        self._newest = 0
        self.broker = Broker(self.path, SMALL, self._on_ack)
        for topic, queues in TOPICS.items():
            self.broker.ask("create", topic, queues)

    def _on_ack(self, ack: Ack) -> None:
        self.acked[ack["acked"]] = ack
        self._newest = ack["acked"]
        for reader in self.readers:
            reader.tell(ack)

    def send(self) -> None:
        """Lets the producers begin, with numbers that they have not used."""
        first = (self._newest // 1_000_000 + 1) * 1_000_000
        self.broker.ask("send", first, *(word for topic in TOPICS.items() for word in topic))
        wait_until(lambda: self._newest > first + 200)

    def read(self) -> None:
        """Starts the readers."""
        self.readers += [Reader(role, self.path, self._directory) for role in ROLES]

    def happen(self, event: str) -> None:
        """Does one thing to the broker."""
        if event == "expire":
            self.broker.ask("expire")
        elif event == "stop":
            self.broker.stop()
            time.sleep(0.5)
            self.broker.go_on()
        elif event == "delete":
            self.broker.ask("delete", VICTIM)
            time.sleep(0.5)
            self.broker.ask("create", VICTIM, TOPICS[VICTIM])
        else:
            self.broker.kill()
            self.broker = Broker(self.path, SMALL, self._on_ack)
            self.send()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self.readers:
            reader.kill()
        self.broker.__exit__()


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, "the broker does not store messages"
        time.sleep(0.02)


def test_readers_beside_a_broker_read_exactly_what_its_clients_stored(tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        session.send()
        session.read()
        for event in EVENTS:
            time.sleep(1)
            session.happen(event)
        session.broker.ask("rest")
        found = {reader.role: reader.end() for reader in session.readers}
        consumed = consume(session.broker)
        session.broker.close()
    acked = {number: Place.of(ack) for number, ack in session.acked.items()}
    for role, places in found.items():
        elsewhere = {number: place for number, place in places.items() if acked.get(number, place) != place}
        assert not elsewhere, f"{role} has read messages where they are not: {elsewhere}"
    for role, topics in COMPLETE.items():
        first = min(found[role].values())
        missing = {number: at for number, at in acked.items() if at.topic in topics and at > first and number not in found[role]}
        assert not missing, f"{role} has missed messages: {missing}"
    with mqstore.open(session.path) as store:
        expect_consumed(store, consumed)
        for number, place in acked.items():
            if place.physical_offset >= store.min_physical_offset:
                assert number_of(row_of(store.message_at(place.physical_offset))) == number


def consume(broker: Broker, tags: str = "*") -> list[Ack]:
    """Returns what a consumer gets of each queue."""
    return [ack for topic in TOPICS if topic != VICTIM for ack in broker.ask("consume", topic, tags)]


def expect_consumed(store: mqstore.Store, consumed: Iterable[Ack], tags: tuple[str, ...] = TAGS) -> None:
    """The queues give what a consumer got, in the same order."""
    topics = (store.topics[topic] for topic in TOPICS if topic != VICTIM)
    rows = [row_of(message) for topic in topics for queue in topic.queues for message in queue]
    ours = [as_consumed(row) for row in rows if row["tags"] in tags]
    assert ours == [message | {"properties": own_properties(message["properties"])} for message in consumed]


def own_properties(properties: dict[str, str]) -> dict[str, str]:
    """Returns the properties of the stored message, without what a client adds to a message that it gets."""
    return {name: properties[name] for name in ("TAGS", "KEYS", "UNIQ_KEY", "check", "long")}


def as_consumed(row: Row) -> Ack:
    """Returns a message in the form of the consumer's report."""
    number_of(row)
    names = ("topic", "queue_id", "queue_offset", "physical_offset", "store_size")
    return {name: row[name] for name in names} | {
        "store_time": embedded.milliseconds(row["store_time"]),
        "born_time": embedded.milliseconds(row["born_time"]),
        "body_crc32": zlib.crc32(row["body"]),
        "properties": own_properties(dict(row["properties"])),
    }


def append(store: mqstore.Writer, numbers: Iterable[int]) -> None:
    """Appends messages as the producers send them."""
    for number in numbers:
        topic = list(TOPICS)[number % len(TOPICS)]
        filler = random.Random(number).randbytes(number % 900)
        check = zlib.crc32(filler)
        store.append(
            topic,
            b"%d %08x " % (number, check) + filler,
            tags=TAGS[number % len(TAGS)],
            keys=[f"k{number}"],
            properties={"check": f"{check:x}", "long": "v" * (1 + number % 300), "UNIQ_KEY": mqstore.new_unique_key()},
            queue_id=number // len(TOPICS) % TOPICS[topic],
        )


def write_small(path: Path) -> Geometry:
    with mqstore.open(path, "x", **embedded.options(SMALL)) as store:
        append(store, range(MESSAGES))
    return SMALL


def write_as_a_broker(path: Path) -> Geometry:
    with mqstore.open(path, "x", geometry="broker") as store:
        store.create_topic("orders", queues=TOPICS["orders"], message_type="NORMAL")
        append(store, range(MESSAGES))
    return BROKER


def copy_with_other_sizes(path: Path) -> Geometry:
    origin, geometry = path.with_name("origin"), Geometry(segment=1 << 20, queue=8_000, slots=500, items=2_000)
    write_small(origin)
    sizes = {name: size for name, size in embedded.options(geometry).items() if name != "message_delay_level"}
    with mqstore.open(origin) as store:
        store.copy_to(path, geometry=sizes, keep_store_time=True)
    return geometry


@pytest.mark.parametrize("write", [write_small, write_as_a_broker, copy_with_other_sizes])
def test_a_broker_serves_a_store_that_we_wrote_and_continues_it(write: Callable[[Path], Geometry], tmp_path: Path) -> None:
    path = tmp_path / "store"
    geometry = write(path)
    # The broker creates no topic by itself: it serves those that our close has written to config/topics.json.
    with Broker(path, geometry) as broker:
        # At a new topic it registers all its topics with the name server at once.
        broker.ask("create", "unrelated", 1)
        with mqstore.open(path) as store:
            expect_consumed(store, consume(broker))
            expect_consumed(store, consume(broker, "paid||refund"), ("paid", "refund"))
            broker.ask("send", 10_000, *(word for topic in TOPICS.items() for word in topic))
            wait_until(lambda: len(broker.acked) > 500)
            broker.ask("rest")
            store.refresh()
            consumed = consume(broker)
            expect_consumed(store, consumed)
        broker.close()
    assert not (path / "abort").exists()
    with mqstore.open(path, "a") as store:
        expect_consumed(store, consumed)
        append(store, range(20_000, 20_100))
    expected = [*range(MESSAGES), *sorted(broker.acked), *range(20_000, 20_100)]
    with mqstore.open(path) as store:
        assert sorted(numbers_of(store)) == expected


def numbers_of(store: mqstore.Store) -> Iterator[int]:
    for row in store.scan(topics=list(TOPICS), decode_body=True).to_arrow().to_pylist():
        yield number_of(row)
