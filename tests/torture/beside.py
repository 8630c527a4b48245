"""Concurrent processes of test_readers.py: a writer, and readers of several kinds. Each runs until its input ends."""

from __future__ import annotations

import random
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import mqstore

TOPICS = ("orders", "payments", "victim")
OPTIONS = mqstore.StoreConfig(mapped_file_size_commit_log=1 << 18, mapped_file_size_consume_queue=20_000)

over = threading.Event()


def text(number: int) -> bytes:
    """The body of the message with this number: nothing else has these bytes."""
    return random.Random(number).randbytes(number % 700)


def last_number(store: mqstore.Store) -> int:
    if store.min_physical_offset == store.max_physical_offset:
        return -1
    newest = store.scan(transactions="all", reverse=True, limit=1, columns=["keys"]).to_arrow()
    return int(newest["keys"][0].as_py()[0]) if len(newest) else -1


def properties(number: int) -> dict[str, str]:
    return {"check": str(zlib.crc32(text(number))), "long": "v" * (1 + number % 300)}


def write(path: Path) -> None:
    """Appends messages with consecutive numbers as their keys, some at a time."""
    with mqstore.open(path, "a", OPTIONS) as store:
        number = last_number(store) + 1
        while not over.wait(0.002):
            for _ in range(1 + number % 30):
                place = {"topic": TOPICS[number % 3], "queue_id": number % 2}
                store.append(body=text(number), keys=[str(number)], properties=properties(number), **place)  # type: ignore[arg-type]
                number += 1


def number_of(message: mqstore.Message) -> int:
    """The number of a message, each byte of which is as it was appended."""
    number = int(message.keys[0])
    body = text(number)
    assert message.body == body, f"message {number} has another body"
    assert (message.topic, message.queue_id) == (TOPICS[number % 3], number % 2), f"message {number} is elsewhere"
    found = {name: message.properties.get(name, "") for name in ("check", "long")}
    assert found == properties(number), f"message {number} has other properties"
    return number


def expect_next(store: mqstore.Store, before: mqstore.Message | None, message: mqstore.Message, step: int) -> None:
    """Messages are left out only where their segments have gone."""
    number = number_of(message)
    if before is None:
        return
    last = int(before.keys[0])
    assert number > last, f"message {number} after {last}"
    assert (number - last) % step == 0, f"message {number} after {last}"
    if number != last + step:
        store.refresh()
        assert store.min_physical_offset > before.physical_offset, f"messages from {last + step} to {number} are missing"


def follow(path: Path) -> Iterator[int]:
    with mqstore.open(path) as store:
        following, before = store.follow(timeout=0.2), None
        while not over.is_set():
            for message in following:
                expect_next(store, before, message, 1)
                before = message
                yield 1
                if over.is_set():
                    break


def tail(path: Path) -> Iterator[int]:
    with mqstore.open(path) as store:
        before = None
        following = store.follow(topics="payments", timeout=0.2)
        while not over.is_set():
            for message in following:
                expect_next(store, before, message, 3)
                before = message
                yield 1
                if over.is_set():
                    break


def refresh(path: Path) -> Iterator[int]:
    """Reads what each refresh has brought, by the queues, the log and the index."""
    with mqstore.open(path) as store:
        seen = store.max_physical_offset
        while not over.wait(0.01):
            store.refresh()
            end = store.max_physical_offset
            found = store.scan(physical=(seen, end), columns=["physical_offset", "keys"], errors="raise").to_arrow()
            for offset, keys in zip(found["physical_offset"].to_pylist(), found["keys"].to_pylist(), strict=True):
                try:
                    message = store.message_at(offset)
                except mqstore.NotFoundError:
                    assert store.refresh() >= 0
                    assert store.min_physical_offset > offset
                    continue
                assert str(number_of(message)) == keys[0]
                yield 1
            for queue in store.topics["orders"].queues if "orders" in store.topics else ():
                for message in queue[-20:]:
                    number_of(message)
            seen = end


ROLES: dict[str, Callable[[Path], Iterator[int]]] = {"follow": follow, "tail": tail, "refresh": refresh}


def wait_for_end() -> None:
    sys.stdin.read()
    over.set()


def main(role: str, path: Path) -> None:
    threading.Thread(target=wait_for_end, daemon=True).start()
    print("ready", flush=True)
    if role == "write":
        write(path)
    else:
        print(sum(ROLES[role](path)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
