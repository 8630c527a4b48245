"""Runs each public call of a store for the first time in a process that has no descriptor left; prints a line of JSON for each.

`python first_calls.py DIRECTORY` needs an empty directory. Each call runs in a fork of its own that has imported nothing but
mqstore, and opens a copy of the store before it takes every descriptor. Then it runs the same call with descriptors again.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import mqstore

Call = Callable[[mqstore.Store, str], object]


def all_of(items: Iterable[Any]) -> int:
    return sum(1 for _ in items)


def queue(store: mqstore.Store) -> mqstore.Queue:
    return store.topics["t"].queues[0]


def in_loop(make: Callable[[mqstore.Store, Any], Any]) -> Call:
    """A call of `mqstore.aio`, in an event loop that was made while there were descriptors."""

    def run(store: mqstore.Store, _: str) -> object:
        aio = sys.modules["mqstore.aio"]

        async def main() -> object:
            return await make(store, (aio.Writer if isinstance(store, mqstore.Writer) else aio.Store)(store))

        return LOOP[0].run_until_complete(main())

    return run


async def _each(items: Any) -> int:
    return len([item async for item in items])


LOOP: list[Any] = []
#: Two messages as a producer joins them: size, magic code, checksum, flag, body and properties with their lengths.
PRODUCED = struct.pack(">iiiii1sh", 23, 0, 0, 0, 1, b"x", 0) * 2
#: Files of a broker's `config`.
CONFIG = {
    "subscriptionGroup.json": {"subscriptionGroupTable": {"group": {"groupName": "group"}}},
    "consumerOffset.json": {"offsetTable": {"t@group": {"0": 1}}},
    "delayOffset.json": {"offsetTable": {"1": 1}},
    "topics.json": {"topicConfigTable": {"t": {"topicName": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}}},
}
#: The recall handle of a timer that is due in an hour.
HANDLE = base64.urlsafe_b64encode(f"v1 t broker {int(time.time() * 1000) + 3_600_000} key".encode()).decode()
#: What appends, with how many messages it stores.
APPENDS: dict[str, tuple[int, Call]] = {
    "append": (1, lambda store, _: store.append("t", b"x")),
    "append_batch": (2, lambda store, _: store.append_batch([b"x", b"y"], topic="t")),
    "append_producer_batch": (2, lambda store, _: store.append_producer_batch("t", PRODUCED)),
    "append_nowait": (1, lambda store, _: store.append_nowait("t", b"x").result(10)),
    "append_nowait durable": (1, lambda store, _: store.append_nowait("t", b"x", durable=True).result(10)),
    "append by a TopicWriter": (1, lambda store, _: store.writer("t").append(b"x", ["k"])),
    "append to a new topic": (1, lambda store, _: store.append("another", b"x")),
    "recall": (1, lambda store, _: store.broker.recall(HANDLE)),
    "import_from": (3, lambda store, work: store.import_from(f"{work}/rows.jsonl")),
    "aio append": (1, in_loop(lambda _, tasks: tasks.append("t", b"x"))),
    "aio append durable": (1, in_loop(lambda _, tasks: tasks.append("t", b"x", durable=True))),
}
WRITES: dict[str, Call] = {
    "close": lambda store, _: store.close(),
    "commit": lambda store, _: store.commit(),
    "create_topic": lambda store, _: store.create_topic("created"),
    "trim": lambda store, _: store.trim(before_offset=0).bytes,
    "resend": lambda store, _: store.broker.resend("group"),
    "hand_over": lambda store, _: store.broker.hand_over(),
    "delete_group": lambda store, _: store.broker.delete_group("group"),
    "reset": lambda store, _: store.broker.reset("group", "t", "earliest"),
    "consumer": lambda store, _: store.consumer("group", "t", timeout=0).topics,
    "committed_offset": lambda store, _: store.committed_offset,
    "dispatched_offset": lambda store, _: store.dispatched_offset,
    "flush": lambda store, _: store.flush(),
    "flushed_offset": lambda store, _: store.flushed_offset,
    "replicas": lambda store, _: store.replicas.slaves,
    "stats": lambda store, _: store.stats().to_dict(),
    "transactions": lambda store, _: len(store.transactions.open()),
    "wait_dispatched": lambda store, _: store.wait_dispatched(5),
    "writer": lambda store, _: repr(store.writer("t")),
    "wait_durable": lambda store, _: store.wait_durable(timeout=5),
}
READS: dict[str, Call] = {
    "closed": lambda store, _: store.closed,
    "consumer_offsets": lambda store, _: len(store.broker.consumer_offsets()),
    "copy_to": lambda store, work: store.copy_to(f"{work}/copy").rows,
    "trace": lambda store, _: store.broker.trace(queue(store)[0].message_id).records,
    "dead_letters": lambda store, _: len(store.broker.dead_letters("group")),
    "delay_offsets": lambda store, _: len(store.broker.delay_offsets()),
    "delay_backlog": lambda store, _: len(store.broker.delay_backlog()),
    "open transactions": lambda store, _: store.broker.transactions().halves,
    "next_removal": lambda store, _: store.broker.next_removal(),
    "dump": lambda store, _: len(store.inspect.dump(0)),
    "dump_entry": lambda store, _: len(store.inspect.dump_entry("t", 0, 0)),
    "dump_key": lambda store, _: len(store.inspect.dump_key("t", "k1")),
    "export": lambda store, work: store.export(f"{work}/out.jsonl").rows,
    "follow": lambda store, _: all_of(store.follow(start="earliest", timeout=0)),
    "follow an absent topic": lambda store, _: all_of(store.follow("tt", timeout=0)),
    "get": lambda store, _: len(store.get("t", 0, 0)),
    "group_configs": lambda store, _: len(store.broker.group_configs()),
    "groups": lambda store, _: len(store.broker.groups()),
    "index_files": lambda store, _: len(store.inspect.index_files()),
    "kept_elsewhere": lambda store, _: len(store.inspect.kept_elsewhere()),
    "lag": lambda store, _: len(store.broker.lag()),
    "max_physical_offset": lambda store, _: store.max_physical_offset,
    "message": lambda store, _: store.message(queue(store)[0].message_id).body,
    "message_at": lambda store, _: store.message_at(0).to_dict(),
    "min_physical_offset": lambda store, _: store.min_physical_offset,
    "mode": lambda store, _: store.mode,
    "path": lambda store, _: store.path,
    "query": lambda store, _: len(store.query("t", "k1")),
    "recovery": lambda store, _: repr(store.recovery),
    "refresh": lambda store, _: store.refresh(),
    "scan": lambda store, _: all_of(store.scan()),
    "segments": lambda store, _: len(store.inspect.segments()),
    "topic_configs": lambda store, _: len(store.broker.topic_configs()),
    "topics": lambda store, _: list(store.topics.items()) and repr(store.topics),
    "usage": lambda store, _: len(store.usage()),
    "verify": lambda store, _: store.verify().ok,
    "queue.tail": lambda store, _: all_of(queue(store).tail(0, start=0)),
    "queue.offset_at": lambda store, _: queue(store).offset_at(10**12),
    "queue[:]": lambda store, _: [message.store_time for message in queue(store)[:]],
    "queue in queues": lambda store, _: queue(store) in store.topics["t"].queues,
    "message.json": lambda store, _: queue(store)[2].json(),
    "message.to_dict": lambda store, _: queue(store)[0].to_dict(),
    "message html": lambda store, _: queue(store)[0]._repr_html_(),  # type: ignore[attr-defined]
    "store html": lambda store, _: store._repr_html_(),  # type: ignore[attr-defined]
    "batches html": lambda store, _: queue(store).batches()._repr_html_(),  # type: ignore[attr-defined]
    "to_arrow": lambda store, _: len(queue(store).to_arrow()),
    "to_pandas": lambda store, _: len(queue(store).to_pandas()),
    "to_polars": lambda store, _: len(queue(store).to_polars()),
    "aio get": in_loop(lambda _, tasks: tasks.get("t", 0, 0)),
    "aio queue": in_loop(lambda store, _: _each(queue(store))),
    "aio follow": in_loop(lambda store, _: _each(store.follow(start="earliest", timeout=0))),
}
#: Columns of the tables for calls that need one; they are made before the descriptors are taken.
COLUMNS: dict[str, dict[str, list[Any]]] = {
    "fetch": {"physical_offset": [0]},
    "resolve_ids": {"id": ["k1"]},
    "resolve_keys": {"topic": ["t"], "key": ["k1"]},
    "resolve_offsets": {"topic": ["t"], "queue_id": [0], "queue_offset": [1]},
    "resolve_times": {"topic": ["t"], "queue_id": [0], "time": [10**12]},
}
TABLES: dict[str, Any] = {}
OF_TABLES: dict[str, Call] = {
    "fetch": lambda store, _: all_of(store.fetch(TABLES["fetch"])),
    "resolve_ids": lambda store, _: len(store.resolve_ids(TABLES["resolve_ids"])),
    "resolve_keys": lambda store, _: len(store.resolve_keys(TABLES["resolve_keys"])),
    "resolve_offsets": lambda store, _: len(store.resolve_offsets(TABLES["resolve_offsets"])),
    "resolve_times": lambda store, _: len(store.resolve_times(TABLES["resolve_times"])),
}
OUTSIDE: dict[str, Call] = {
    "open": lambda store, _: mqstore.open(store.path).close(),
    "open a": lambda _, work: mqstore.open(f"{work}/new", "a").close(),
    "new_unique_key": lambda *_: mqstore.new_unique_key(),
    "replicate": lambda _, work: mqstore.replicate("127.0.0.1:1", f"{work}/replica").close(),
    "tap": lambda _, work: mqstore.tap("127.0.0.1:1", f"{work}/tap").close(),
}


def made(path: str) -> None:
    with mqstore.open(path, "x", mapped_file_size_commit_log=65536) as store:
        for number in range(3):
            store.append("t", b'{"number": %d}' % number, keys=[f"k{number}"], tags="a")
    os.makedirs(f"{path}/config", exist_ok=True)
    for name, content in CONFIG.items():
        with open(f"{path}/config/{name}", "w") as file:
            json.dump(content, file)


def messages(path: str) -> int:
    with mqstore.open(path) as store:
        return sum(len(batch) for batch in store.scan(columns=["physical_offset"]))


def without_descriptors(call: Call, store: mqstore.Store, work: str) -> tuple[str, int]:
    """Runs the call. Returns what became of it, and how many messages its exception says are stored."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = os.open("/dev/null", os.O_RDONLY)
    os.close(least)
    # Every descriptor below the least that is free is taken.
    resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
    try:
        call(store, work)
    except mqstore.StoreError as error:
        stored = getattr(error, "stored", 0)
        return type(error).__name__, stored
    except BaseException:
        # Python reads the sources for a traceback.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        return f"WRONG {traceback.format_exc()}", 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return "answer", -1


def outcome(name: str, call: Call, appends: int | None, mode: Any, work: str) -> dict[str, object]:
    path = f"{work}/store"
    if name.startswith("aio"):
        import asyncio

        __import__("mqstore.aio")
        LOOP.append(asyncio.new_event_loop())
    if name in COLUMNS:
        import pyarrow as pa

        kinds = {"queue_id": pa.int32()}
        TABLES[name] = pa.table({column: pa.array(values, kinds.get(column)) for column, values in COLUMNS[name].items()})
    # The timers of a store with the files of a broker are handed over by a writer that delivers them.
    services = True if name == "hand_over" else None
    store = mqstore.open(path, mode, flush_disk_type="ASYNC_FLUSH", services=services)
    first, stored = without_descriptors(call, store, work)
    then = "answer"
    try:
        if name != "close":
            call(store, f"{work}/again")
    except BaseException:
        then = traceback.format_exc()
    store.close()
    found = messages(path)
    expected = 3
    if appends is not None:
        expected += appends * (1 + (stored == -1)) + max(0, stored)
    return {"call": name, "first": first, "then": then, "stored": found, "expected": expected}


def forked(name: str, call: Call, appends: int | None, mode: str, base: str, root: str) -> None:
    work = f"{root}/{name.replace(' ', '_')}"
    os.makedirs(f"{work}/again")
    shutil.copytree(f"{base}/store", f"{work}/store")
    for folder in (work, f"{work}/again"):
        shutil.copy(f"{base}/rows.jsonl", folder)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        warnings.simplefilter("ignore")
        try:
            told = outcome(name, call, appends, mode, work)
        except BaseException:
            told = {"call": name, "first": f"WRONG {traceback.format_exc()}", "then": "", "stored": 0, "expected": 0}
        os.write(writing, json.dumps(told).encode())
        os._exit(0)
    os.close(writing)
    # A call that waits for ever is killed.
    deadline = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, 9)
        time.sleep(0.005)
    with os.fdopen(reading) as file:
        text = file.read() or json.dumps({"call": name, "first": "WRONG no answer", "then": "", "stored": 0, "expected": 0})
    print(text, flush=True)


def main(root: str) -> None:
    base = f"{root}/base"
    os.mkdir(base)
    # In a fork, too: this process imports nothing that a call needs.
    if (child := os.fork()) == 0:
        made(f"{base}/store")
        with mqstore.open(f"{base}/store") as store:
            store.export(f"{base}/rows.jsonl")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for name, (count, call) in APPENDS.items():
        forked(name, call, count, "a", base, root)
    for name, call in WRITES.items():
        forked(name, call, None, "a", base, root)
    for name, call in (READS | OF_TABLES | OUTSIDE).items():
        forked(name, call, None, "r", base, root)


if __name__ == "__main__":
    main(sys.argv[1])
