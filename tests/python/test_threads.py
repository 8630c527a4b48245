"""One store, read by many threads at once. Needs no other package, so that it also runs on a free-threaded Python."""

from __future__ import annotations

import itertools
import os
import random
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import mqstore

_T = TypeVar("_T")

THREADS = 8
MESSAGES = 2_000
#: Rounds of each thread; more where a run is to look for races.
ROUNDS = int(os.environ.get("THREAD_ROUNDS", "3"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 messages in three queues, in some segments, queue files and index files."""
    path = tmp_path_factory.mktemp("threads") / "store"
    sizes = {"mapped_file_size_commit_log": 65_536, "mapped_file_size_consume_queue": 2_000, "max_hash_slot_num": 100}
    with mqstore.open(path, "x", max_index_num=1_000, **sizes) as store:
        for number in range(MESSAGES):
            body, tags = b"%d" % number, ("paid", "refund", None)[number % 3]
            store.append("orders", body, tags=tags, keys=[f"k{number % 50}"], unique_key=f"U{number}", queue_id=number % 3)
    return path


@pytest.fixture
def store(path: Path) -> Iterator[mqstore.Store]:
    with mqstore.open(path) as store:
        yield store


def queues(store: mqstore.Store) -> mqstore.Queues:
    return store.topics["orders"].queues


def facts(message: mqstore.Message) -> object:
    return message.to_dict(), message.raw, bytes(message.body_view), message.decoded_body, hash(message), repr(message)


def first(queue: mqstore.Queue, *columns: str) -> mqstore.RecordBatch:
    return next(iter(queue.batches(columns)))


READS: dict[str, Callable[[mqstore.Store, int], object]] = {
    "iteration": lambda store, n: [facts(message) for message in queues(store)[n % 3]],
    "backwards": lambda store, n: [message.body for message in reversed(queues(store)[n % 3])],
    "slice": lambda store, n: [message.queue_offset for message in queues(store)[n % 3][n % 600 : n % 600 + 40]],
    "index": lambda store, n: facts(queues(store)[n % 3][n % 600]),
    "length": lambda store, n: [len(queue) for queue in queues(store)],
    "get": lambda store, n: list(store.get("orders", n % 3, n % 600, tags="paid || refund")),
    "where": lambda store, n: list(store.get("orders", n % 3, 0, where=lambda message: int(message.body) % 7 == n % 7)),
    "key": lambda store, n: list(store.query("orders", f"k{n % 50}", limit=None)),
    "tag": lambda store, n: len(store.query("orders", tag="refund", limit=None)),
    "unique key": lambda store, n: facts(store.message(f"U{n % MESSAGES}")),
    "offset id": lambda store, n: store.message(queues(store)[0][n % 600].message_id).body,
    "time": lambda store, n: queues(store)[n % 3].offset_at(queues(store)[n % 3][n % 600].store_time),
    "topics": lambda store, n: [(name, topic.queue_ids) for name, topic in store.topics.items()],
    "batches": lambda store, n: [len(batch) for batch in store.topics["orders"].batches(["body", "keys"], 10_000)],
    "fetch": lambda store, n: [len(batch) for batch in store.fetch(first(queues(store)[n % 3], "physical_offset"))],
    "resolve": lambda store, n: len(store.resolve_offsets(first(queues(store)[0], "topic", "queue_id", "queue_offset"))),
    "recovery": lambda store, n: repr(store.recovery),
    "notebook": lambda store, n: queues(store)[n % 3]._repr_html_(),  # type: ignore[attr-defined]
}


def at_once(work: Callable[[int], _T]) -> list[_T]:
    """Returns the result of the work in each thread; they begin together. An exception of one is raised."""
    barrier, results, errors = threading.Barrier(THREADS), {}, []

    def run(thread: int) -> None:
        try:
            barrier.wait()
            results[thread] = work(thread)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[thread] for thread in range(THREADS)]


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a global lock")
def test_the_import_leaves_a_free_threaded_python_without_a_global_lock() -> None:
    assert not sys._is_gil_enabled()  # type: ignore[attr-defined]


def test_many_threads_read_one_store_with_the_answers_of_one_thread(path: Path, store: mqstore.Store) -> None:
    work = [(name, number) for name in READS for number in range(0, 40, 13)]
    with mqstore.open(path) as alone:
        expected = {(name, number): READS[name](alone, number) for name, number in work}

    def read(thread: int) -> int:
        order = random.Random(thread)
        for name, number in itertools.chain.from_iterable(order.sample(work, len(work)) for _ in range(ROUNDS)):
            assert READS[name](store, number) == expected[name, number], name
        return len(work)

    assert at_once(read) == [len(work)] * THREADS


def test_threads_that_share_an_iterator_get_each_message_once(store: mqstore.Store) -> None:
    for _ in range(ROUNDS):
        shared = iter(queues(store)[1])
        taken = at_once(lambda _, shared=shared: [message.queue_offset for message in shared])
        assert sorted(itertools.chain.from_iterable(taken)) == list(range(len(queues(store)[1])))
        assert all(part == sorted(part) for part in taken)


def test_threads_that_share_batches_each_read_all_of_them(store: mqstore.Store) -> None:
    batches = store.topics["orders"].batches(["body"], 1_000)
    expected = [len(batch) for batch in batches]
    assert sum(expected) == MESSAGES
    assert at_once(lambda _: [len(batch) for batch in batches]) == [expected] * THREADS
    shared = iter(batches)
    assert sum(itertools.chain.from_iterable(at_once(lambda _: [len(batch) for batch in shared]))) == MESSAGES


def test_threads_may_share_a_message(store: mqstore.Store) -> None:
    for number in range(20 * ROUNDS):
        message = queues(store)[0][number]
        answers = at_once(lambda _, message=message: facts(message))
        assert answers == [answers[0]] * THREADS


def test_a_close_under_reading_threads_ends_each_with_an_answer_or_closed(path: Path) -> None:
    for number in range(10 * ROUNDS):
        store = mqstore.open(path)

        def read(thread: int, store: mqstore.Store = store, number: int = number) -> int:
            if thread == 0:
                for _ in range(number):
                    queues(store)[0][0]
                store.close()
                return 0
            for done, name in enumerate(itertools.cycle(READS)):
                try:
                    READS[name](store, thread)
                except mqstore.ClosedError:
                    return done
            raise AssertionError

        at_once(read)
        assert store.closed


def test_threads_read_what_others_append_concurrently(tmp_path: Path) -> None:
    each = 200
    with mqstore.open(tmp_path / "store", "x", mapped_file_size_commit_log=65_536) as store:

        def write(topic: str) -> None:
            for number in range(each):
                done = store.append(topic, b"%d" % number, keys=[f"{topic}-{number}"])
                assert store.topics[topic].queues[0][done.queue_offset].body == b"%d" % number

        def read(topic: str) -> None:
            known = 0
            while known < each:
                if topic not in store.topics:
                    continue
                bodies = [int(message.body) for message in store.topics[topic].queues[0]]
                assert bodies == list(range(len(bodies)))
                assert len(bodies) >= known
                known = len(bodies)
                hits = store.query(topic, f"{topic}-{known // 2}")
                assert [int(hit.body) for hit in hits] == [known // 2] or known == 0

        def work(thread: int) -> None:
            (write if thread % 2 else read)(f"t{thread // 2}")

        at_once(work)
        assert store.stats().put_message_times_total == each * THREADS // 2
