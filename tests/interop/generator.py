"""Plans of random messages with every kind of record among them; the same seed gives the same plan.

A plan is a list of steps, each a dictionary that the harness (src/) and `embedded.py` carry out: put, producer batch or pause.
"""

from __future__ import annotations

import base64
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Step = dict[str, Any]
Record = dict[str, Any]

#: So long that no delayed message is delivered while a test runs.
DELAY_LEVELS = "1h 2h 3h 12h 1d"
DELAY_MS = [3_600_000 * hours for hours in (1, 2, 3, 12, 24)]
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
MAX_PROPERTIES = 32_767
#: The bytes that a segment keeps free for its BLANK.
BLANK = 8
#: How often a plan has each of the records that it must have but only few of.
RARE = 10

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
BORN_HOST_V6, STORE_HOST_V6 = 0x10, 0x20
ZLIB = 0x1

#: "AaAa", "AaBB" and "BBBB" share a hash, and so do "Aa" and "BB".
COLLIDING = ["Aa", "BB", "AaAa", "AaBB", "BBBB"]
TAGS = [*COLLIDING, "paid", "refund", "标签", "😀", "a||b", "order-created", "polygenelubricants"]
LONG_TOPIC = "t" * 127
LONGEST_TOPIC = "%RETRY%" + "g" * 248
#: With the topic "T" its hash is the one number without an absolute value.
UNLUCKY_TOPIC, UNLUCKY_KEY = "T", "(8'+,4+"
BUSY_TOPIC = "busy"
TOPICS = [BUSY_TOPIC, "orders", "TopicA", UNLUCKY_TOPIC, "Café_订单", LONG_TOPIC]
HOSTS = ["127.0.0.1:40000", "10.1.2.3:0", "255.255.255.255:65535"]
V6_HOSTS = ["[2001:db8::7]:40000", "[fe80::1]:10911", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"]


@dataclass(frozen=True)
class Geometry:
    """Sizes of a store's files, small so that everything rolls."""

    segment: int
    queue: int
    slots: int
    items: int


def java_hash(text: str) -> int:
    """String.hashCode()."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def encode_properties(properties: dict[str, str], *, separator_at_end: bool = True) -> bytes:
    """Returns the properties as a record holds them."""
    encoded = b"".join(f"{name}\x01{value}\x02".encode() for name, value in properties.items())
    return encoded if separator_at_end else encoded[:-1]


def decode_properties(encoded: bytes) -> dict[str, str]:
    """Returns what was encoded."""
    pairs = (pair.partition("\x01") for pair in encoded.decode().split("\x02") if pair)
    return {name: value for name, _, value in pairs}


def encode_unit(flag: int, body: bytes, properties: dict[str, str]) -> bytes:
    """A message as a producer puts it into a batch."""
    encoded = encode_properties(properties)
    size = 22 + len(body) + len(encoded)
    return struct.pack(">iiiii", size, 0, 0, flag, len(body)) + body + struct.pack(">h", len(encoded)) + encoded


def decode_units(batch: bytes) -> Iterable[tuple[int, bytes, dict[str, str]]]:
    """Flag, body and properties of each message of a producer batch."""
    at = 0
    while at < len(batch):
        size, _, _, flag, body_size = struct.unpack_from(">iiiii", batch, at)
        body = batch[at + 20 : at + 20 + body_size]
        yield flag, body, decode_properties(batch[at + 22 + body_size : at + size])
        at += size


def asked(step: Step, *, batch_properties: bool) -> list[Record]:
    """Returns the expected records of a step, except what the store adds. `batch_properties`: a batch's own reach its records."""
    common = {name: step[name] for name in ("topic", "sys_flag", "born_time", "born_host", "store_host", "reconsume_times")}
    common["queue_id"] = step["queue"]
    common["prepared_transaction_offset"] = step["prepared_transaction_offset"]
    common["sys_flag"] |= BORN_HOST_V6 * step["born_host"].startswith("[")
    common["sys_flag"] |= STORE_HOST_V6 * step["store_host"].startswith("[")
    body = base64.b64decode(step["body"])
    if step["op"] == "put":
        record = common | {"flag": step["flag"], "body": body, "properties": dict(step["properties"])}
        return [delayed(record)]
    shared = step["properties"] if batch_properties else {}
    return [
        common | {"flag": flag, "body": body, "properties": properties | shared} for flag, body, properties in decode_units(body)
    ]


def is_visible(sys_flag: int) -> bool:
    """Returns true if a message of that transaction type gets into its queue."""
    return sys_flag & 0xC in (0, COMMIT)


def delayed(record: Record) -> Record:
    """The record as it waits in its level's queue, if it has a level."""
    level = int(record["properties"].get("DELAY", 0))
    if level <= 0 or not is_visible(record["sys_flag"]):
        return record
    level = min(level, len(DELAY_MS))
    home = {"DELAY": str(level), "REAL_TOPIC": record["topic"], "REAL_QID": str(record["queue_id"])}
    return record | {"topic": SCHEDULE_TOPIC, "queue_id": level - 1, "properties": record["properties"] | home}


def tags_code(record: Record) -> int:
    """The third number of the record's queue entry."""
    level = int(record["properties"].get("DELAY", 0))
    if record["topic"] == SCHEDULE_TOPIC and level:
        return int(record["store_time"]) + DELAY_MS[level - 1]
    return java_hash(record["properties"].get("TAGS", ""))


def index_keys(record: Record, *, tags: bool) -> list[str]:
    """The keys that find the record."""
    if record["sys_flag"] & 0xC == ROLLBACK:
        return []
    properties = record["properties"]
    keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    if tags and "TAGS" in properties:
        keys.append("T#" + properties["TAGS"])
    return [key for key in keys if key]


def index_hash(topic: str, key: str) -> int:
    """Returns the form of a key in the index."""
    return abs(java_hash(f"{topic}#{key}")) % (1 << 31)


class Generator:
    """Draws plans for one writer, whose records end their properties with a separator or not."""

    def __init__(self, seed: str, geometry: Geometry, *, longest_topic: bool, separator_at_end: bool, now_ms: int) -> None:
        self.random = random.Random(seed)
        self.geometry = geometry
        self.topics = [*TOPICS, LONGEST_TOPIC] if longest_topic else TOPICS
        self.separator_at_end = separator_at_end
        self.now_ms = now_ms
        self.drawn = 0

    def plan(self, messages: int) -> list[Step]:
        """Draws steps that store at least this many messages. Two pauses of more than a second separate their times."""
        rare = [self.longest_properties, self.full_segment, self.unlucky_key] * RARE
        rare_at = dict(zip(self.random.sample(range(messages // 2), len(rare)), rare, strict=True))
        pauses = [messages // 3, messages * 2 // 3]
        steps: list[Step] = []
        done = 0
        while done < messages:
            step = rare_at.get(len(steps), self.usual)()
            steps.append(step)
            done += count_messages(step)
            if self.random.random() < 0.005:
                steps.append({"op": "sleep", "ms": self.random.randint(1, 3)})
            if pauses and done > pauses[0]:
                steps.append({"op": "sleep", "ms": 1100})
                pauses.pop(0)
        return steps

    def usual(self) -> Step:
        """A put or, one in twenty-five, a batch."""
        return self.batch() if self.random.random() < 0.04 else self.plain()

    def common(self) -> Step:
        """A put with random values in every field but body and properties."""
        pick = self.random.choice
        step = {
            "op": "put",
            "topic": self.random.choices(self.topics, [6] + [1] * (len(self.topics) - 1))[0],
            "queue": 0 if self.random.random() < 0.4 else self.random.randrange(4),
            "flag": pick([0, 0, self.random.randrange(-(1 << 31), 1 << 31)]),
            "sys_flag": pick([0, 0, 0, 0, 0x2]),
            "born_time": self.now_ms + self.random.randint(-(10**10), 10**10),
            "born_host": pick(HOSTS * 3 + V6_HOSTS),
            "store_host": pick(HOSTS * 3 + V6_HOSTS),
            "reconsume_times": pick([0, 0, 1, 16, 2**31 - 1]),
            "prepared_transaction_offset": 0,
            "body": "",
            "properties": {},
        }
        self.drawn += 1
        return step

    def plain(self) -> Step:
        """A put of any kind that has no size to meet."""
        step = self.common()
        step["properties"] = self.properties(step["topic"])
        chance = self.random.random()
        if chance < 0.03:
            step["properties"]["DELAY"] = str(self.random.choice([1, 2, 3, 4, 5, 6, 18]))
        if chance < 0.005 or chance > 0.94:
            step["sys_flag"] |= self.random.choice([PREPARED, COMMIT, ROLLBACK])
            step["prepared_transaction_offset"] = self.random.randrange(1 << 40)
        body = self.body()
        if self.random.random() < 0.02:
            step["sys_flag"] |= ZLIB
            body = zlib.compress(body)
        step["body"] = encoded(body)
        return step

    def properties(self, topic: str) -> dict[str, str]:
        """Tags, keys, a unique key and others, each present or not, in any order."""
        pick, chance = self.random.choice, self.random.random
        pairs = []
        if chance() < 0.7:
            pairs.append(("TAGS", pick(TAGS)))
        if chance() < 0.6:
            pairs.append(("KEYS", pick([" ", " ", " ", " ", "  "]).join(self.keys(topic))))
        if chance() < 0.7:
            pairs.append(("UNIQ_KEY", f"{self.random.getrandbits(96):024X}{self.drawn:08X}"))
        if chance() < 0.2:
            pairs.append((pick(["p1", "größe", "属性"]), pick(["v", "wert-ä", "值" * 20, "a\x01b", " "])))
        if chance() < 0.2:
            pairs.append(("WAIT", pick(["true", "false"])))
        self.random.shuffle(pairs)
        return dict(pairs)

    def keys(self, topic: str) -> list[str]:
        """One to three keys, some of which share a hash."""
        pool = [*COLLIDING, "订单1", *(f"k{self.random.randrange(400)}" for _ in range(12))]
        if topic == UNLUCKY_TOPIC:
            pool.append(UNLUCKY_KEY)
        return self.random.sample(pool, self.random.choice([1, 1, 2, 3]))

    def body(self) -> bytes:
        """Mostly short, some empty, a few of several pages."""
        size = self.random.choices([0, self.random.randrange(1, 200), self.random.randrange(200, 9000)], [5, 93, 2])[0]
        return self.random.randbytes(size)

    def batch(self) -> Step:
        """A producer batch, with a property of its own."""
        step = self.common() | {"op": "batch", "properties": {"CLUSTER": "DefaultCluster"}}
        step["flag"] = 0
        units = []
        for _ in range(self.random.randint(1, 8)):
            self.drawn += 1
            units.append(encode_unit(self.random.randrange(1 << 31), self.body()[:500], self.properties(step["topic"])))
        step["body"] = encoded(b"".join(units))
        return step

    def longest_properties(self) -> Step:
        """Properties of as many bytes as a record can count."""
        step = self.common()
        properties = {"TAGS": "long", "KEYS": " ".join(self.keys(step["topic"])), "filler": "x"}
        short = len(encode_properties(properties, separator_at_end=self.separator_at_end))
        properties["filler"] += "x" * (MAX_PROPERTIES - short)
        step["properties"] = properties
        return step

    def unlucky_key(self) -> Step:
        """A key whose hash has no absolute value."""
        return self.common() | {"topic": UNLUCKY_TOPIC, "properties": {"KEYS": UNLUCKY_KEY}}

    def full_segment(self) -> Step:
        """A record that leaves just the room for a BLANK, and so fills a segment alone."""
        step = self.common() | {"properties": {"TAGS": "full"}}
        room = self.geometry.segment - BLANK - record_size(step, b"", separator_at_end=self.separator_at_end)
        step["body"] = encoded(self.random.randbytes(room))
        return step


def encoded(body: bytes) -> str:
    """Returns a body in the form of a plan."""
    return base64.b64encode(body).decode()


def count_messages(step: Step) -> int:
    """Counts the messages that a step stores."""
    if step["op"] == "batch":
        return len(list(decode_units(base64.b64decode(step["body"]))))
    return 1 if step["op"] == "put" else 0


def record_size(step: Step, body: bytes, *, separator_at_end: bool) -> int:
    """Bytes of a put's record."""
    hosts = sum(20 if step[name].startswith("[") else 8 for name in ("born_host", "store_host"))
    topic = len(step["topic"].encode())
    properties = encode_properties(step["properties"], separator_at_end=separator_at_end)
    return 74 + hosts + (2 if topic > 127 else 1) + len(body) + topic + len(properties)


def _is_put(step: Step) -> bool:
    return bool(step["op"] == "put")


#: What must be among the messages, each with how to tell it by its step and record.
KINDS: dict[str, Callable[[Step, Record], bool]] = {
    "tags": lambda _, r: "TAGS" in r["properties"],
    "no tags": lambda _, r: "TAGS" not in r["properties"],
    "tags with a negative hash": lambda _, r: java_hash(r["properties"].get("TAGS", "")) < 0,
    "one key": lambda _, r: len(r["properties"].get("KEYS", "").split()) == 1,
    "several keys": lambda _, r: len(r["properties"].get("KEYS", "").split()) > 1,
    "key Aa": lambda _, r: "Aa" in r["properties"].get("KEYS", "").split(),
    "key BB": lambda _, r: "BB" in r["properties"].get("KEYS", "").split(),
    "key without a positive hash": lambda _, r: java_hash(r["topic"] + "#" + r["properties"].get("KEYS", "")) == -(1 << 31),
    "UNIQ_KEY": lambda _, r: "UNIQ_KEY" in r["properties"],
    "no properties": lambda _, r: not r["properties"],
    "longest properties": lambda _, r: len(encode_properties(r["properties"])) >= MAX_PROPERTIES,
    "separator inside a value": lambda _, r: any("\x01" in value for value in r["properties"].values()),
    "empty body": lambda _, r: not r["body"],
    "body over 4 KiB": lambda _, r: len(r["body"]) > 4096,
    "compressed body": lambda _, r: bool(r["sys_flag"] & ZLIB),
    "record of a whole segment": lambda s, r: _is_put(s) and r["properties"] == {"TAGS": "full"},
    "born host v6": lambda _, r: r["born_host"].startswith("[") and not r["store_host"].startswith("["),
    "store host v6": lambda _, r: r["store_host"].startswith("[") and not r["born_host"].startswith("["),
    "both hosts v6": lambda _, r: r["store_host"].startswith("[") and r["born_host"].startswith("["),
    "no transaction": lambda _, r: r["sys_flag"] & 0xC == 0,
    "prepared": lambda _, r: r["sys_flag"] & 0xC == PREPARED,
    "commit": lambda _, r: r["sys_flag"] & 0xC == COMMIT,
    "rollback": lambda _, r: r["sys_flag"] & 0xC == ROLLBACK,
    "delay level": lambda _, r: r["topic"] == SCHEDULE_TOPIC,
    "delay level over the last": lambda s, r: r["topic"] == SCHEDULE_TOPIC and int(s["properties"]["DELAY"]) > len(DELAY_MS),
    "in a producer batch": lambda s, _: not _is_put(s),
    "non-ASCII topic": lambda _, r: not r["topic"].isascii(),
    "non-ASCII property": lambda _, r: not encode_properties(r["properties"]).isascii(),
    "topic of 127 bytes": lambda _, r: len(r["topic"].encode()) == 127,
    "topic of 255 bytes": lambda _, r: len(r["topic"].encode()) == 255,
}


def count_kinds(plan: list[Step], *, longest_topic: bool) -> Counter[str]:
    """Counts the messages of each kind that a plan stores; every kind is there, even with 0."""
    counts: Counter[str] = Counter({kind: 0 for kind in KINDS if longest_topic or kind != "topic of 255 bytes"})
    for step in plan:
        if step["op"] == "sleep":
            continue
        for record in asked(step, batch_properties=True):
            counts.update(kind for kind in counts if KINDS[kind](step, record))
    return counts
