"""A copy holds the messages of a store in the order of its log, and is there only when it is whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from encoder import EPOCH_MS, Encoder
from test_export import GOLDEN, leftovers

import mqstore
from mqstore import Store

NEW = ["queue_offset", "physical_offset", "store_size", "message_id"]
OF_TRANSACTIONS = ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]


def kept(store: Store, **conditions: Any) -> list[dict[str, Any]]:
    """Returns everything in the messages but their places. A checksum of a record is that of its place."""
    rows = store.scan(**conditions).to_arrow().drop_columns(NEW).to_pylist()
    return [row | {"properties": [pair for pair in row["properties"] if pair[0] != "__CRC32#"]} for row in rows]


def sizes(path: Path, folder: str) -> set[int]:
    return {file.stat().st_size for file in (path / folder).rglob("*") if file.is_file()}


def ms(number: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=EPOCH_MS + number)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_copy_of_what_rocketmq_wrote_is_equal(golden: Path, tmp_path: Path, name: str) -> None:
    with mqstore.open(golden / name) as store:
        told = store.copy_to(tmp_path / "copy")
        with mqstore.open(tmp_path / "copy") as copy:
            assert kept(copy) == kept(store)
            assert copy.recovery.clean_exit
            assert copy.recovery.complete
            assert (told.path, told.rows, told.raised) == (tmp_path / "copy", len(kept(copy)), 0)
            assert (told.complete, told.skipped, dict(told.left_out)) == (True, 0, {})
            assert told.topics == Counter(row["topic"] for row in kept(copy))
            assert told.bytes == sum(copy.scan().to_arrow()["store_size"].to_pylist())
            for topic in copy.topics.values():
                for queue in topic.queues:
                    assert [message.queue_offset for message in queue] == list(range(len(queue)))
                    for message in queue:
                        assert all(message in copy.query(topic.name, key=key, limit=None) for key in message.keys)
    assert leftovers(tmp_path) == ["copy"]


def test_a_copy_of_7865_events_has_their_times_keys_and_sizes(events: Path, tmp_path: Path) -> None:
    with mqstore.open(events) as store:
        told = store.copy_to(tmp_path / "copy")
        assert (told.rows, told.raised, told.complete) == (7865, 0, True)
        with mqstore.open(tmp_path / "copy") as copy:
            assert kept(copy) == kept(store)
    for folder in ("commitlog", "index"):
        assert sizes(tmp_path / "copy", folder) == sizes(events, folder)


def test_sizes_are_those_that_are_given(events: Path, tmp_path: Path) -> None:
    with mqstore.open(events) as store:
        given = {"mapped_file_size_commit_log": 1 << 18, "max_hash_slot_num": 100, "max_index_num": 1000}
        store.copy_to(tmp_path / "given", geometry=given)
        store.copy_to(tmp_path / "small", geometry={})
        with mqstore.open(tmp_path / "given") as copy, mqstore.open(tmp_path / "small") as small:
            assert kept(copy) == kept(store) == kept(small)
    assert sizes(tmp_path / "given", "commitlog") == {1 << 18}
    assert sizes(tmp_path / "given", "index") == {40 + 4 * 100 + 20 * 1000}
    assert sizes(tmp_path / "small", "commitlog") == {64 << 20}


def fallen(path: Path) -> Encoder:
    """A store of a broker whose clock was set back after the second of four messages."""
    made = Encoder(path)
    for at in (10, 20, 5, 20, 21, 21):
        made.append("orders", b"%d" % at, store_time=EPOCH_MS + at)
    made.write()
    return made


def test_store_times_are_kept_and_a_falling_one_is_raised_and_counted(tmp_path: Path) -> None:
    with mqstore.open(fallen(tmp_path / "store").path) as store:
        told = store.copy_to(tmp_path / "copy", geometry={})
        now = store.copy_to(tmp_path / "now", geometry={}, keep_store_time=False)
    assert (told.raised, now.raised) == (1, 0)
    with mqstore.open(tmp_path / "copy", "a") as copy:
        assert copy.scan().to_arrow()["store_time"].to_pylist() == [ms(at) for at in (10, 20, 20, 20, 21, 21)]
        assert copy.append("orders", b"later").store_time > ms(21)
    with mqstore.open(tmp_path / "now") as copy:
        assert all(message.store_time > datetime.now(UTC) - timedelta(minutes=10) for message in copy.topics["orders"].queues[0])


def test_equal_store_times_stay_equal_however_much_is_copied(tmp_path: Path) -> None:
    made = Encoder(tmp_path / "store", segment_size=80 << 20, queue_file_entries=20_000)
    for _ in range(80):
        made.append("orders", bytes(1 << 20))
    made.write()
    with mqstore.open(made.path) as store:
        assert store.copy_to(tmp_path / "copy").raised == 0
        with mqstore.open(tmp_path / "copy") as copy:
            assert set(copy.scan(columns=["store_time"]).to_arrow()["store_time"].to_pylist()) == {ms(0)}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with mqstore.open(tmp_path / "shop", "x") as store:
        for number in range(30):
            store.append(("orders", "billing", "audit")[number % 3], b"%d" % number, queue_id=number % 2, keys=[f"k{number}"])
    return tmp_path / "shop"


def bodies(store: Store, topic: str) -> list[bytes]:
    return [row["body"] for row in kept(store, topics=topic)]


def test_topics_are_dropped_renamed_and_merged(shop: Path, tmp_path: Path) -> None:
    with mqstore.open(shop) as store:
        dropped = store.copy_to(tmp_path / "dropped", topics=["orders", "audit"], rename={"audit": "archive", "billing": "b"})
        assert dict(dropped.topics) == {"archive": 10, "orders": 10}
        merged = store.copy_to(tmp_path / "merged", rename={"billing": "orders", "orders": "orders"})
        assert dict(merged.topics) == {"orders": 20, "audit": 10}
        swapped = store.copy_to(tmp_path / "swapped", rename={"billing": "orders", "orders": "billing"})
        assert dict(swapped.topics) == {"orders": 10, "billing": 10, "audit": 10}
        with mqstore.open(tmp_path / "dropped") as copy:
            assert (sorted(copy.topics), bodies(copy, "archive")) == (["archive", "orders"], bodies(store, "audit"))
            assert [message.body for message in copy.query("archive", key="k2")] == [b"2"]
        with mqstore.open(tmp_path / "merged") as copy:
            assert bodies(copy, "orders") == [b"%d" % number for number in range(30) if number % 3 < 2]
        with mqstore.open(tmp_path / "swapped") as copy:
            assert (bodies(copy, "orders"), bodies(copy, "billing")) == (bodies(store, "billing"), bodies(store, "orders"))


def test_a_topic_is_not_renamed_to_the_name_of_another_topic(shop: Path, tmp_path: Path) -> None:
    with mqstore.open(shop) as store:
        with pytest.raises(ValueError, match='the name "billing", which a topic of this store has'):
            store.copy_to(tmp_path / "copy", rename={"orders": "billing"})
        with pytest.raises(mqstore.IllegalMessageError, match=r"topic orders at physical offset 0 cannot be copied.*'/'"):
            store.copy_to(tmp_path / "copy", rename={"orders": "a/b"})
    assert leftovers(tmp_path) == ["shop"]


def test_conditions_select_what_is_copied(shop: Path, tmp_path: Path) -> None:
    with mqstore.open(shop) as store:
        first = store.copy_to(tmp_path / "first", queue_ids=1, limit=5)
        assert (first.rows, first.complete) == (5, False)
        keyed = store.copy_to(tmp_path / "keyed", keys=["k7", "k8"])
        assert (dict(keyed.topics), keyed.complete) == ({"billing": 1, "audit": 1}, True)
        none = store.copy_to(tmp_path / "none", topics="no such")
        assert (none.rows, none.bytes, dict(none.topics), none.complete) == (0, 0, {}, True)
    with mqstore.open(tmp_path / "none", "a") as copy:
        assert copy.append("orders", b"").queue_offset == 0


def test_a_writer_copies_what_it_has_appended(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"one")
        assert store.copy_to(tmp_path / "copy").rows == 1
        store.append("orders", b"two")
        assert store.copy_to(tmp_path / "later").rows == 2


def test_a_broker_s_state_of_transactions_is_left_out_and_counted(broker: Path, tmp_path: Path) -> None:
    with mqstore.open(broker) as store:
        counts = Counter(row["topic"] for row in kept(store))
        told = store.copy_to(tmp_path / "copy")
        assert dict(told.left_out) == {topic: counts[topic] for topic in OF_TRANSACTIONS}
        assert dict(told.topics) == {topic: count for topic, count in counts.items() if topic not in OF_TRANSACTIONS}
        with mqstore.open(tmp_path / "copy") as copy:
            assert kept(copy) == [row for row in kept(store) if row["topic"] not in OF_TRANSACTIONS]
            assert {0, 8} <= {row["sys_flag"] & 12 for row in kept(copy)}


def test_a_batch_that_is_stored_whole_is_refused_with_its_place(golden: Path, tmp_path: Path) -> None:
    refused = pytest.raises(mqstore.IllegalMessageError, match="topic TopicQ at physical offset 0 cannot be copied: .*batch")
    with mqstore.open(golden / "533_batchcq") as store, refused:
        store.copy_to(tmp_path / "copy")
    with mqstore.open(golden / "491_multifile") as store:
        tiny = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 1000}
        told = store.copy_to(tmp_path / "tiny", geometry=tiny)
        assert told.rows == 120
    assert leftovers(tmp_path) == ["tiny"]


def test_damage_is_counted_or_raised(tmp_path: Path) -> None:
    made = Encoder(tmp_path / "store")
    for number in range(10):
        made.append("orders", b"body %d" % number)
    made.log[made.log.index(b"body 4")] ^= 1
    made.write()
    with mqstore.open(made.path) as store:
        with pytest.raises(mqstore.CorruptError):
            store.copy_to(tmp_path / "copy", geometry={})
        told = store.copy_to(tmp_path / "copy", geometry={}, errors="skip")
    assert (told.rows, told.skipped, told.complete) == (9, 1, False)


def test_arguments_that_would_change_messages_or_their_order_are_refused(shop: Path, tmp_path: Path) -> None:
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TypeError, "takes no argument 'transactions'", {"transactions": "all"}),
        (TypeError, "takes no argument 'order'", {"order": "queue"}),
        (TypeError, "takes no argument 'columns'", {"columns": ["body"]}),
        (TypeError, "topic_s", {"topic_s": "orders"}),
        (ValueError, "geometry is 'small'", {"geometry": "small"}),
        (ValueError, "geometry has 'segment'", {"geometry": {"segment": 1}}),
        (TypeError, "rename|str", {"rename": {"orders": 7}}),
    ]
    with mqstore.open(shop) as store:
        for kind, text, arguments in wrong:
            with pytest.raises(kind, match=text):
                store.copy_to(tmp_path / "copy", **arguments)
        with pytest.raises(FileExistsError, match="there is something of this name: choose another one:"):
            store.copy_to(shop)
    assert leftovers(tmp_path) == ["shop"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ZeroDivisionError])
def test_what_progress_raises_ends_the_copy_and_leaves_nothing(events: Path, tmp_path: Path, raised: type[BaseException]) -> None:
    def stop(done: int, _: int) -> None:
        if done:
            raise raised

    with mqstore.open(events) as store, pytest.raises(raised):
        store.copy_to(tmp_path / "copy", progress=stop)
    assert leftovers(tmp_path) == []


KILLED = """
import os, signal, sys
import mqstore
def die(done, _):
    if done:
        os.kill(os.getpid(), {how})
with mqstore.open(sys.argv[1]) as store:
    store.copy_to(sys.argv[2], progress=die)
"""


@pytest.mark.parametrize(("how", "left"), [("signal.SIGKILL", 1), ("signal.SIGINT", 0)])
def test_a_copy_that_is_killed_or_interrupted_is_no_store(events: Path, tmp_path: Path, how: str, left: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(how=how), events, tmp_path / "copy"], check=False, stderr=subprocess.PIPE
    )
    assert done.returncode == (-signal.SIGKILL if left else -signal.SIGINT)
    assert [name.endswith(".part") for name in leftovers(tmp_path)] == [True] * left


FULL = """
import resource, signal, sys
import mqstore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
with mqstore.open(sys.argv[1]) as store:
    try:
        store.copy_to(sys.argv[2])
    except OSError:
        sys.exit(0)
"""


def test_a_disk_without_room_leaves_nothing(events: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FULL, events, tmp_path / "copy"], check=True)
    assert leftovers(tmp_path) == []


def test_other_threads_run_during_a_copy(
    events: Path, tmp_path: Path, lets_others_run: Callable[[Callable[[], object]], bool]
) -> None:
    copies = iter(range(10))
    with mqstore.open(events) as store:
        assert lets_others_run(lambda: store.copy_to(tmp_path / f"copy{next(copies)}"))
    assert os.listdir(tmp_path)


@pytest.mark.parametrize("folder", [".", "commitlog", "consumequeue/orders/0"])
def test_no_store_is_made_in_a_store(tmp_path: Path, folder: str) -> None:
    with mqstore.open(tmp_path / "store", "x", mapped_file_size_commit_log=65536) as store:
        store.append("orders", b"first")
        copy = tmp_path / "store" / folder / "copy"
        match = f"lies in the store {tmp_path / 'store'}: name a directory beside it"
        with pytest.raises(ValueError, match=match):
            store.copy_to(copy)
        for mode in ("a", "x"):
            with pytest.raises(ValueError, match=match):
                mqstore.open(copy, mode)
        assert not [*tmp_path.rglob("*copy*"), *tmp_path.rglob("*.part")]
