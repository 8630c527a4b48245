"""Writes the golden stores of options that RocketMQ 5.5.1 has and 5.3.3 has not: `python tests/interop/golden.py [NAME...]`.

A broker of 5.5.1 with such options stores what its clients send, and is closed or killed. Its directory becomes
`tests/golden/NAME.tar.xz`, and what RocketMQ's own store reads of a copy becomes `tests/golden/expected/NAME.jsonl`.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker import Broker
from generator import Geometry
from rocketmq import HERE, RocketMQ

VERSION = "5.5.1"
GOLDEN = HERE.parent / "golden"
GEOMETRY = Geometry(segment=16_384, queue=1_000, slots=100, items=400)
#: An hour: no timer becomes due, and no producer is asked, while a store is written.
LATER_MS = 3_600_000
#: The databases and the compaction log get a message by a thread of its own.
SETTLE_S = 3

#: Options of every store. A timer wheel is a file of 37 MB, and a half message that is older than the reserved time is given up.
COMMON: Mapping[str, object] = {
    "timerWheelEnable": "false",
    "transactionTimeOut": LATER_MS,
    "fileReservedTime": 72,
    "compactionMappedFileSize": 16_384,
    "compactionCqMappedFileSize": 1_000,
    "enableRocksDBLog": "true",
}


@dataclass(frozen=True)
class Golden:
    """A golden store: the options of its broker, and what the clients do besides `orders`."""

    options: Mapping[str, object]
    #: Commands of the broker's process.
    commands: list[str] = field(default_factory=list)
    is_killed: bool = False
    #: False where the queues are in RocksDB alone: the store classes for files then make queues again from the log.
    has_file_queues: bool = True


def put(topic: str, number: int, **more: object) -> str:
    """The command that sends a message."""
    message: dict[str, object] = {
        "topic": topic,
        "queue": number % 2,
        "tags": ("paid", "open")[number % 2],
        "keys": f"k{number} both",
        "body": f"{topic} {number}",
    }
    return f"put {json.dumps(message | more)}"


TIMERS = [put("orders", 100 + n, delay_ms=LATER_MS * (n + 1)) for n in range(3)]
TRANSACTIONS = [
    put("orders", 200 + n, queue=0, transaction=end)
    for n, end in enumerate(["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW", "COMMIT_MESSAGE", "UNKNOW"])
]
LITE = ["create chats 2 message.type=LITE"] + [put("chats", n, properties={"__LITE_TOPIC": f"room-{n % 3}"}) for n in range(9)]
#: Each key three times: compaction keeps the last message of a key.
COMPACTED = ["create prices 1 cleanup.policy=COMPACTION"] + [put("prices", n, queue=0, keys=f"p{n % 4}") for n in range(12)]

STORES: dict[str, Golden] = {
    "551_index_rocksdb": Golden({"indexRocksDBEnable": "true", "indexFileWriteEnable": "false", "indexFileReadEnable": "false"}),
    "551_timer_rocksdb": Golden({"timerWheelEnable": "true", "timerRocksDBEnable": "true"}, TIMERS),
    "551_trans_rocksdb": Golden({"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}, TRANSACTIONS),
    # With double writing a broker does not start unless light queues are in RocksDB, too.
    "551_double_write": Golden(
        {
            "rocksdbCQDoubleWriteEnable": "true",
            "combineCQUseRocksdbForLmq": "true",
            "enableLmq": "true",
            "enableMultiDispatch": "true",
        },
        LITE,
    ),
    "551_rocksdb": Golden({"storeType": "defaultRocksDB"}, has_file_queues=False),
    "551_config_v2": Golden({"configManagerVersion": "v2"}),
    "551_without_mmap": Golden({"writeWithoutMmap": "true"}),
    "551_without_mmap_killed": Golden({"writeWithoutMmap": "true"}, is_killed=True),
    "551_accelerated": Golden({"enableAcceleratedRecovery": "true"}),
    "551_accelerated_killed": Golden({"enableAcceleratedRecovery": "true"}, is_killed=True),
    "551_lite": Golden({"enableLmq": "true", "enableMultiDispatch": "true"}, LITE),
    "551_compaction": Golden({"compactionScheduleInternal": 1_000}, COMPACTED),
}


def write(name: str, folder: Path) -> Path:
    """Writes a store below a folder, and returns its directory."""
    golden = STORES[name]
    store = folder / name
    store.mkdir()
    with Broker(store, GEOMETRY, version=VERSION, options={**COMMON, **golden.options}) as broker:
        broker.ask("create", "orders", 2)
        for number in range(80):
            broker.ask(put("orders", number))
        for command in golden.commands:
            broker.ask(command)
        broker.ask("progress", "shop", "orders", 0, 7)
        broker.ask("progress", "shop", "orders", 1, 30)
        time.sleep(SETTLE_S)
        if golden.is_killed:
            broker.kill()
        else:
            broker.close()
    wheel = store / "timerwheel"
    if wheel.exists() and not any(wheel.read_bytes()):
        # RocksDB has the timers: a broker makes the 37 MB of zeros again.
        wheel.unlink()
    return store


def expected(name: str, store: Path) -> Iterator[dict[str, Any]]:
    """Returns what RocketMQ reads of a copy of a store."""
    copy = store.with_name(f"{name}.copy")
    shutil.copytree(store, copy)
    if not STORES[name].has_file_queues:
        shutil.rmtree(copy / "consumequeue")
        (copy / "checkpoint").unlink(missing_ok=True)
    lines = RocketMQ(VERSION).run(copy, GEOMETRY, *options_of(name), "dump")["dump"]
    names = {"store_time": "store_timestamp", "born_time": "born_timestamp", "message_id": "msg_id"}
    for line in lines:
        line.pop("store_host", None)
        line.pop("entries", None)
        line.pop("walked_to", None)
        yield {names.get(str(key), str(key)): value for key, value in line.items()}


def options_of(name: str) -> list[str]:
    """The options of a golden store, as the harness of the store classes takes them."""
    both = {**COMMON, **STORES[name].options}
    # These are a broker's, and the store classes alone do not know them.
    return [f"option.{key}={value}" for key, value in both.items() if key != "storeType"]


def pack(store: Path, archive: Path) -> None:
    """Packs a store, with the same bytes for the same files."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(archive, "w:xz", preset=9) as archived:
        archived.add(store, store.name, filter=plain)


def main(names: list[str]) -> None:
    """Writes the named stores, or all."""
    for name in names or STORES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            store = write(name, folder)
            pack(store, GOLDEN / f"{name}.tar.xz")
            lines = [json.dumps(line) for line in expected(name, store)]
            (GOLDEN / "expected" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        print(f"{name}: {(GOLDEN / f'{name}.tar.xz').stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
