"""The programs that are killed, failed and cut off: `python -S -E writer.py PACKAGE` reads jobs and forks for each of them.

A job is a line of JSON. The answers are the child's process id, and when it has ended its ending. What the child does is in its
journal, a line an event, written before or after the event as its name says:

    intent N COUNT      messages N to N + COUNT are about to be appended
    appended N AT SIZE  message N was, by an append of its own: when it returned, in ns, and the bytes of the record
    appended N          the messages up to N were, by a batch
    acked N             every message up to N survives a power cut
    committed N         every message up to N survives the death of the process, also in a store with a pool
    raised CALL TYPE E N TEXT   CALL raised a mqstore error with errno E (or -), after it had stored N messages
    untyped CALL TEXT   it raised something else
    opening HOW         the store is about to be opened; HOW is "pool" if appended messages wait in memory
    opened, closed      it is
    read                the message that was appended last
    call K NAME PATH    the shim saw a system call
    cut                 (written by the parent) its disk is about to be taken away
    calls N             the child came to its end, and the shim saw that many
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

#: A segment holds a handful of messages, a queue file 20, an index file 19 keys: everything rolls within a few appends.
SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 8,
    "max_index_num": 20,
    "flush_interval_commit_log": 3_600_000,
}

#: What the pool holds is less than a segment: it is full every few appends.
POOL: dict[str, Any] = {
    "transient_store_pool_enable": True,
    "transient_store_pool_size": 1,
    "transient_store_pool_buffer_size": 4096,
    "commit_interval_commit_log": 3_600_000,
    "commit_commit_log_thorough_interval": 3_600_000,
}

SYNC: dict[str, Any] = {"flush_disk_type": "SYNC_FLUSH"}

#: Every page of a segment is written, and with `SYNC` synced, before the segment is begun.
WARM: dict[str, Any] = {"warm_mapped_file_enable": True, "flush_least_pages_when_warm_mapped_file": 1}

#: The ways to write.
MODES: list[dict[str, Any]] = [{}, POOL, SYNC, SYNC | POOL, WARM, SYNC | WARM]


class Failed(Exception):
    """The program cannot continue: its store was not opened, or takes no more."""


def message(number: int, size: int, queues: int) -> tuple[str, bytes, str, list[str], None, int]:
    """Returns the message of that number as a row: a reader can check that every byte is as it was appended."""
    topic, queue = f"topic{number % 2}", number % queues
    head = f"{number} {size} {queues} ".encode()
    filler = random.Random(number).randbytes(16).hex().encode()
    body = head + (filler * (size // len(filler) + 1))[: max(0, size - len(head))]
    return topic, body, f"tag{number % 3}", [f"key{number}", f"group{number % 5}"], None, queue


class Writer:
    """A store, and the journal of what is done to it."""

    def __init__(self, mqstore: Any, path: str, journal: int, first: int) -> None:
        self.mqstore, self.path, self.journal = mqstore, path, journal
        self.next = first
        self.queues = 2
        self.store: Any = None
        #: The last message whose append returned, and where it is.
        self.appended = -1
        self.last: int | None = None
        #: Whether each append waits until its message is durable.
        self.is_sync = False
        #: Seconds that a wait may take.
        self.patience = 20.0

    def say(self, *words: object) -> None:
        os.write(self.journal, (" ".join(map(str, words)) + "\n").encode())

    def tried(self, name: str, call: Callable[[], Any]) -> Any:
        """Returns the result of the call; `None` if it raised what it may raise."""
        try:
            return call()
        except self.mqstore.StoreError as error:
            cause = getattr(error, "errno", None)
            text = str(error).replace("\n", " ")
            self.say("raised", name, type(error).__name__, cause if cause is not None else "-", getattr(error, "stored", 0), text)
            if name == "open":
                raise Failed from error
        except BaseException as error:
            self.say("untyped", name, type(error).__name__, traceback.format_exc().replace("\n", " | "))
            raise Failed from error
        return None

    def open(self, mode: str = "a", **options: object) -> None:
        has_pool = bool(options.get("transient_store_pool_enable"))
        self.is_sync = options.get("flush_disk_type") == "SYNC_FLUSH"
        self.say("opening", "pool" if has_pool or self.is_sync else "plain")
        waits = {"wait_time_out": int(self.patience * 1000)} if has_pool else {}
        self.store = self.tried("open", lambda: self.mqstore.open(self.path, mode, **(SMALL | waits | options)))
        self.say("opened")

    def append(self, size: int = 60, durable: bool | None = None) -> bool:
        number, self.next = self.next, self.next + 1
        topic, body, tags, keys, _, queue = message(number, size, self.queues)
        self.say("intent", number, 1)
        more = {"tags": tags, "keys": keys, "queue_id": queue} | ({} if durable is None else {"durable": durable})
        done = self.tried("append", lambda: self.store.append(topic, body, **more))
        if done is not None:
            self.say("appended", number, time.monotonic_ns(), done.wrote_bytes)
            self.appended, self.last = number, done.physical_offset
            if (self.is_sync if durable is None else durable) and done.status == "PUT_OK":
                self.say("acked", number)
        return done is not None

    def batch(self, count: int, size: int = 60) -> bool:
        number, self.next = self.next, self.next + count
        rows = [message(number + row, size, self.queues) for row in range(count)]
        self.say("intent", number, count)
        done = self.tried("append_batch", lambda: self.store.append_batch(rows))
        if done is not None:
            self.say("appended", number + count - 1)
            self.appended, self.last = number + count - 1, done[-1]
            if self.is_sync:
                self.say("acked", number + count - 1)
        return done is not None

    def flush(self) -> None:
        number = self.next - 1
        if self.tried("flush", self.store.flush) is not None:
            self.say("acked", number)

    def wait_durable(self) -> None:
        def wait() -> bool:
            self.store.wait_durable(self.last, timeout=self.patience)
            return True

        if self.last is not None and self.tried("wait_durable", wait):
            self.say("acked", self.appended)

    def wait_dispatched(self) -> None:
        def wait() -> bool:
            self.store.wait_dispatched(self.last, timeout=self.patience)
            return True

        if self.last is not None and self.tried("wait_dispatched", wait):
            self.say("committed", self.appended)

    def read(self) -> None:
        """Checks that the last append can be read, whatever failed."""
        if self.last is not None and self.tried("read", lambda: self.store.message_at(self.last).body) is not None:
            self.say("read")
            self.say("committed", self.appended)

    def close(self) -> bool:
        def close() -> bool:
            self.store.close()
            return True

        is_closed = bool(self.tried("close", close))
        if is_closed:
            self.say("acked", self.next - 1)
            self.say("closed")
        return is_closed


# The programs: each creates or continues the store at its path.


def append_and_flush(writer: Writer, _: dict[str, Any]) -> None:
    writer.open()
    for number in range(8):
        writer.append()
        if number % 3 == 0:
            writer.flush()
    writer.close()


def roll(writer: Writer, _: dict[str, Any]) -> None:
    writer.open()
    for number in range(9):
        writer.append(1100)
        if number % 4 == 3:
            writer.flush()
    writer.close()


def batches(writer: Writer, _: dict[str, Any]) -> None:
    writer.open()
    for count in (1, 7, 24):
        writer.batch(count, 300)
        writer.wait_durable()
    writer.batch(5)
    writer.close()


def sync_flush(writer: Writer, _: dict[str, Any]) -> None:
    writer.open(flush_disk_type="SYNC_FLUSH")
    for size in (60, 60, 1100, 1100, 1100, 60):
        writer.append(size)
    writer.batch(12, 300)
    writer.wait_dispatched()
    writer.append()
    writer.close()


def pool(writer: Writer, _: dict[str, Any]) -> None:
    writer.open(mapped_file_size_commit_log=16_384, **POOL)
    for size in (60, 1100, 1100, 60):
        writer.append(size)
    writer.flush()
    writer.append()
    writer.read()
    writer.batch(12, 300)
    # More than the pool has, and then up to the next segment.
    writer.append(5000)
    writer.wait_durable()
    writer.batch(10, 500)
    writer.wait_dispatched()
    writer.append()
    writer.close()


def each_mode(writer: Writer, _: dict[str, Any]) -> None:
    """Continues in another mode after each close. After a failure the journal does not say what of a pool the next open finds."""
    for mode in MODES:
        writer.open(**mode)
        writer.append(1100)
        writer.append(3000)
        writer.wait_durable()
        writer.append()
        if not writer.close():
            break


def index_roll(writer: Writer, _: dict[str, Any]) -> None:
    writer.open()
    for _number in range(24):
        writer.append()
    writer.wait_dispatched()
    writer.flush()
    writer.append()
    writer.close()


def many_queues(writer: Writer, _: dict[str, Any]) -> None:
    writer.queues = 18
    writer.open()
    writer.batch(36)
    writer.wait_dispatched()
    writer.flush()
    writer.close()


def close_and_reopen(writer: Writer, _: dict[str, Any]) -> None:
    for _round in range(3):
        writer.open()
        writer.append(700)
        writer.flush()
        writer.append(700)
        writer.close()


def go_on(writer: Writer, _: dict[str, Any]) -> None:
    """Opens a store that a crash left, and appends."""
    writer.open("r+")
    writer.append(500)
    writer.flush()
    writer.append(500)
    writer.close()


def continue_and_read(writer: Writer, job: dict[str, Any]) -> None:
    """Opens a store that somebody has left, appends, and reads each message as soon as it is there."""
    writer.open("r+", **job.get("options", {}))
    for number in range(6):
        writer.append((60, 700)[number % 2])
        writer.wait_dispatched()
        writer.read()
        writer.flush()
    writer.close()


def anything(writer: Writer, job: dict[str, Any]) -> None:
    """A program by seed."""
    chance = random.Random(job["seed"])
    writer.queues = chance.choice([1, 2, 5, 18])
    options = chance.choice(MODES)
    writer.open(**options)
    steps: list[Callable[[], object]] = [
        lambda: writer.append(chance.choice([60, 60, 300, 1100, 3000])),
        lambda: writer.append(chance.randrange(40, 400)),
        lambda: writer.batch(chance.randrange(1, 30), chance.randrange(40, 300)),
        writer.flush,
        writer.wait_dispatched,
        writer.wait_durable,
    ]
    writer.append()
    for _step in range(chance.randrange(4, 24)):
        chance.choice(steps)()
        if chance.random() < 0.06:
            writer.close()
            writer.open(**options)
    writer.close()


def die(writer: Writer, job: dict[str, Any]) -> None:
    """Appends `count` messages, and does not close."""
    writer.open()
    for _number in range(job["count"]):
        writer.append()
    writer.wait_dispatched()
    writer.flush()


def endless(writer: Writer, job: dict[str, Any]) -> None:
    """Appends and flushes until somebody ends it."""
    chance = random.Random(job["seed"])
    writer.open(**job.get("options", {}))
    while True:
        for _number in range(chance.randrange(1, 12)):
            if chance.random() < 0.1:
                writer.batch(chance.randrange(1, 20), chance.randrange(40, 600))
            else:
                writer.append(chance.choice([60, 400, 2000]))
        if not writer.append():
            break
        chance.choice([writer.flush, writer.wait_durable, writer.wait_dispatched])()
    writer.read()
    writer.flush()
    writer.close()


def paced(writer: Writer, job: dict[str, Any]) -> None:
    """Appends one message after the other, at a pace, until somebody ends it."""
    writer.open(**job["options"])
    due, every = time.monotonic(), job["durable_every"]
    while writer.append(job["size"], durable=True if every and writer.next % every == 0 else job["durable"]):
        due += job["pace"]
        time.sleep(max(0.0, due - time.monotonic()))


def fill(writer: Writer, job: dict[str, Any]) -> None:
    """Appends until the parent fills the disk; continues when the ballast is removed."""
    writer.open(**job.get("options", {}))
    while not os.path.exists(job["ballast"]):
        time.sleep(0.0005)
    size = job["size"]
    for _number in range(job["most"]):
        if not writer.append(size):
            break
        if job.get("flushes"):
            writer.flush()
    writer.read()
    os.unlink(job["ballast"])
    for _number in range(job["more"]):
        writer.append(size)
    writer.wait_dispatched()
    writer.flush()
    writer.close()


def read_on(writer: Writer, job: dict[str, Any]) -> None:
    """Reads the beginning of every queue, and on request all of them: each message is whole, or raises."""
    writer.open("r")
    queues = [queue for topic in writer.store.topics.values() for queue in topic.queues if len(queue)]

    def read(queue: Any, offset: int) -> None:
        found = writer.tried("read", lambda: queue[offset])
        if found is not None and found.body != message(int(found.body.split()[0]), job["size"], 2)[1]:
            writer.say("untyped", "read", f"{found!r} is not as it was appended")

    for until in (job["first_part"], None):
        for queue in queues:
            for offset in range(until or len(queue)):
                read(queue, offset)
        writer.say("read")
        while not os.path.exists(job["go"]):
            time.sleep(0.0005)


PROGRAMS: dict[str, Callable[[Writer, dict[str, Any]], None]] = {
    program.__name__: program
    for program in (
        append_and_flush,
        roll,
        batches,
        sync_flush,
        pool,
        each_mode,
        index_roll,
        many_queues,
        close_and_reopen,
        go_on,
        continue_and_read,
        anything,
        die,
        endless,
        paced,
        fill,
        read_on,
    )
}


def run(mqstore: Any, job: dict[str, Any]) -> None:
    """The child: one program, under the shim."""
    journal = os.open(job["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    writer = Writer(mqstore, job["path"], journal, job.get("first", 0))
    writer.patience = job.get("patience", writer.patience)
    shim = ctypes.CDLL(None)
    if "watched" in job:
        number, keep, sticky = job.get("errno", 0), job.get("keep", 0), job.get("sticky", False)
        shim.shim_calls.restype = ctypes.c_long
        shim.shim_arm(
            os.fsencode(job["watched"]), journal, ctypes.c_long(job["at"]), job["fault"], number, ctypes.c_long(keep), sticky
        )
    with suppress(Failed):
        PROGRAMS[job["program"]](writer, job)
    writer.say("calls", shim.shim_calls() if "watched" in job else 0)
    # Now, while the store is still referred to: a store that is open stays so, and an end without a close is a crash.
    os._exit(0)


def jobs() -> Iterator[dict[str, Any]]:
    for line in sys.stdin.buffer:
        yield json.loads(line)


def serve(package: str) -> None:
    """Forks for each job, so that a start costs a millisecond."""
    sys.path.insert(0, package)
    import mqstore

    child = 0
    for job in jobs():
        if child:
            os.waitpid(child, 0)
        child = os.fork()
        if child == 0:
            try:
                run(mqstore, job)
            finally:
                os._exit(1)
        os.write(1, f"started {child}\n".encode())
        os.write(1, f"ended {ending(child, job.get('timeout', 60))}\n".encode())


def ending(child: int, seconds: float) -> int:
    """The end of a child: its exit code, minus the signal that killed it, or 1000 if it had to be killed for it hung."""
    deadline, hung = time.monotonic() + seconds, False
    # It is only looked at: its process id stays its own until `serve` takes the next job.
    while (end := os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is None:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            hung = True
        time.sleep(0.0005)
    if hung:
        return 1000
    return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status


if __name__ == "__main__":
    serve(sys.argv[1])
