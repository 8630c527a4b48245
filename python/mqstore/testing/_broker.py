"""A store as a broker writes it."""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import mqstore
from mqstore._broker_topics import DEAD, HALF_TOPIC, OP_TOPIC, RETRY, SCHEDULE_TOPIC, TRANSACTION_GROUP
from mqstore.testing import _config
from mqstore.testing._clock import Clock

if TYPE_CHECKING:
    from typing import Self

#: `sys_flag` of a message that a transaction committed.
COMMIT = 0x8

#: Options of `mqstore.open` for a store of few and small files, for messages of up to 1 MiB.
SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 6_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 4_000,
}

DELAYS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

#: Where the names of properties stand in a record of a broker. The properties of a user come where there is no name.
_ORDER = (
    *("ORIGIN_MESSAGE_ID", "RETRY_TOPIC", "MSG_REGION", "UNIQ_KEY", "CLUSTER", "PGROUP", "__transactionId__", "DELAY", ""),
    *("TAGS", "TRAN_MSG", "KEYS", "WAIT", "TRACE_ON", "TRANSACTION_CHECK_TIMES", "REAL_TOPIC", "REAL_QID"),
)


class Broker:
    """Writes a new store as a broker of RocketMQ 5.3 and its clients do: delayed, half and retried messages, and `config`.

    Each call that stores a message gives it as it lies in the store. `close`, at the end of the block, writes the files of
    `config`. Nothing happens by itself: `deliver` does what a broker does when the time has come, and `clock` says what time it
    is. The same calls write the same bytes.

    The services of a writer do not run here, because a test of what a broker leaves needs what they do not: records and times
    that are the same in each run, properties in the order of a broker (a transaction, a retry), and a half message that a check
    stores again, which mqstore never does. A test of its own delays, retries and transactions opens a store instead: the
    fixture `mqstore_store`.

    `path` must be missing or empty, `options` are those of `mqstore.open`, by default `mqstore.testing.SMALL`. Without a `clock`
    it has one of its own, which stops the time of all stores of the process until the end of the block.
    """

    #: The store that it writes: it reads, and takes messages of any other kind.
    store: mqstore.Writer
    clock: Clock
    #: How many queues each topic has. A topic that is not there gets 4 with its first message.
    topics: dict[str, int]

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        host: str = "127.0.0.1:10911",
        client_host: str = "127.0.0.1:50000",
        cluster: str = "DefaultCluster",
        **options: Any,
    ) -> None:
        all_options: dict[str, Any] = SMALL | {"services": False} | options
        with ExitStack() as opened:
            self.clock = clock or opened.enter_context(Clock())
            self.store = opened.enter_context(mqstore.open(path, "x", **all_options))
            self._opened = opened.pop_all()
        self.topics = {}
        self._hosts = {"born_host": client_host, "store_host": host}
        self._cluster = cluster
        self._delays = [_SECONDS[delay[-1]] * int(delay[:-1]) for delay in options.get("message_delay_level", DELAYS).split()]
        self._sent = count()
        #: The queue offset of the next message of a level that is to be delivered, by level.
        self._delivered: dict[int, int] = {}
        #: The next queue offset of a group, by "topic@group" and queue.
        self._consumed: defaultdict[str, dict[int, int]] = defaultdict(dict)
        #: The half messages, by queue offset, whose transactions are open.
        self._open: set[int] = set()
        #: The half message that each op message lists, in the order of the op messages.
        self._ended: list[int] = []

    @property
    def path(self) -> str:
        """The store's directory."""
        return self.store.path

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Makes a topic with that many queues."""
        self.topics[topic] = queues

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        delay_level: int = 0,
    ) -> mqstore.Message:
        """A producer sends a message; by default to the queues in turn. With a delay level it waits in `SCHEDULE_TOPIC_XXXX`."""
        given = self._of_producer(tags, keys, properties)
        queue_id = self._queue(topic, queue_id)
        if delay_level <= 0:
            return self._put(topic, queue_id, body, _in_order(given))
        return self._delay(topic, queue_id, body, given, delay_level)

    def deliver(self) -> list[mqstore.Message]:
        """Puts the delayed messages whose time has come into their topics, the earliest first, and gives them."""
        due = []
        for level in self._delivered:
            for message in self._queue_of(SCHEDULE_TOPIC, level - 1)[self._delivered[level] :]:
                time = message.store_time.timestamp() + self._delays[level - 1]
                if time > self.clock.now.timestamp():
                    break
                due.append((time, message.physical_offset, message))
                self._delivered[level] += 1
        return [self._move(message) for *_, message in sorted(due)]

    def send_half(
        self,
        topic: str,
        body: bytes,
        *,
        group: str,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
    ) -> mqstore.Message:
        """A producer of the group begins a transaction: the half message is in `RMQ_SYS_TRANS_HALF_TOPIC`."""
        given = self._of_producer(tags, keys, properties)
        given |= {"PGROUP": group, "__transactionId__": given["UNIQ_KEY"], "TRAN_MSG": "true"}
        given |= {"REAL_TOPIC": topic, "REAL_QID": str(self._queue(topic, queue_id))}
        return self._put_half(body, given, self.clock.now)

    def check_back(self, half: mqstore.Message) -> mqstore.Message:
        """The broker asks the producer of an open transaction, and stores the half message again; gives the new one."""
        self._expect_open(half)
        self._open.remove(half.queue_offset)
        times = int(half.properties.get("TRANSACTION_CHECK_TIMES", "0")) + 1
        return self._put_half(half.body, half.properties | {"TRANSACTION_CHECK_TIMES": str(times)}, half.born_time)

    def end_transaction(self, half: mqstore.Message, how: Literal["commit", "rollback"]) -> mqstore.Message | None:
        """Ends an open transaction, and notes that in `RMQ_SYS_TRANS_OP_HALF_TOPIC`; gives the message that was committed."""
        if how not in ("commit", "rollback"):
            raise ValueError(f'how is {how!r}: expected "commit" or "rollback"')
        self._expect_open(half)
        sent = None
        if how == "commit":
            sent = self._move(half, sys_flag=half.sys_flag | COMMIT, prepared_transaction_offset=half.physical_offset)
        self._open.remove(half.queue_offset)
        self.topics.setdefault(OP_TOPIC, 1)
        self._ended.append(half.queue_offset)
        noted_by = {"born_host": self._hosts["store_host"]}
        self._put(OP_TOPIC, 0, b"%d," % half.queue_offset, {"WAIT": "true", "TAGS": "d"}, **noted_by)
        return sent

    def send_back(
        self, message: mqstore.Message, group: str, *, delay_level: int = 0, max_reconsume_times: int = 16
    ) -> mqstore.Message:
        """A consumer of the group failed on a message: it waits for its delivery to `%RETRY%group`, or is in `%DLQ%group`.

        It is in `%DLQ%group` after `max_reconsume_times`, and with a negative delay level. By default it waits longer each time.
        """
        times = message.reconsume_times
        given = {"ORIGIN_MESSAGE_ID": message.message_id, "RETRY_TOPIC": message.topic} | message.properties | {"WAIT": "false"}
        more = {"born_time": message.born_time, "born_host": message.born_host, "flag": message.flag}
        more |= {"sys_flag": message.sys_flag, "reconsume_times": times + 1}
        if delay_level < 0 or times >= max_reconsume_times:
            self.topics.setdefault(f"{DEAD}{group}", 1)
            return self._put(f"{DEAD}{group}", 0, message.body, _in_order(given | {"DELAY": "0"}), **more)
        self.topics.setdefault(f"{RETRY}{group}", 1)
        return self._delay(f"{RETRY}{group}", 0, message.body, given, delay_level or 3 + times, **more)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A group has consumed a queue up to this queue offset, exclusive: `config/consumerOffset.json` says so."""
        self._consumed[f"{topic}@{group}"][queue_id] = offset

    def persist(self) -> None:
        """Writes `topics.json`, `consumerOffset.json` and `delayOffset.json` in `config`, as a broker does every few seconds."""
        if HALF_TOPIC in self.topics:
            done = min(self._open, default=self._queue_of(HALF_TOPIC, 0).max_offset)
            self.commit_offset(TRANSACTION_GROUP, HALF_TOPIC, 0, done)
            if OP_TOPIC in self.topics:
                # An op message is needed until the progress has passed its half message.
                needed = (op for op, half in enumerate(self._ended) if half >= done)
                self.commit_offset(TRANSACTION_GROUP, OP_TOPIC, 0, next(needed, len(self._ended)))
        self._write_settings()

    def _write_settings(self) -> None:
        folder = Path(self.path, "config")
        version = {"counter": 1, "stateVersion": 0, "timestamp": int(self.clock.now.timestamp() * 1000)}
        _config.write(folder / "topics.json", {"dataVersion": version, "topicConfigTable": _topic_configs(self.topics)})
        _config.write(folder / "delayOffset.json", {"dataVersion": version, "offsetTable": self._delivered})
        groups: dict[str, list[str]] = {}
        for name in self._consumed:
            topic, _, group = name.rpartition("@")
            groups.setdefault(group, []).append(topic)
        consumed = {"dataVersion": version, "groupTopicMap": groups, "offsetTable": self._consumed}
        _config.write(folder / "consumerOffset.json", consumed)

    def close(self) -> None:
        """Writes `config` and closes the store; calling it again does nothing."""
        is_open = not self.store.closed
        with self._opened:
            if is_open:
                self.persist()
        if is_open:
            # The close of the store has written topics.json, too.
            self._write_settings()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _of_producer(self, tags: str | None, keys: str | Iterable[str], more: Mapping[str, str] | None) -> dict[str, str]:
        """The properties that client and broker give a message."""
        given = {"MSG_REGION": "DefaultRegion", "UNIQ_KEY": self._unique_key(), "CLUSTER": self._cluster, "TAGS": tags}
        given |= {"KEYS": keys if isinstance(keys, str) else " ".join(keys), "WAIT": "true", "TRACE_ON": "true"}
        return {name: value for name, value in given.items() if value} | dict(more or {})

    def _unique_key(self) -> str:
        """Makes keys as `MessageClientIDSetter` does: address, process 1, no class loader, ms of the month, number."""
        address = ip_address(self._hosts["born_host"].rpartition(":")[0].strip("[]")).packed.hex().upper()
        now = self.clock.now
        ms = (now - now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)).total_seconds() * 1000
        return f"{address}{1:04X}{0:08X}{int(ms):08X}{next(self._sent) & 0xFFFF:04X}"

    def _queue(self, topic: str, queue_id: int | None) -> int:
        queues = self.topics.setdefault(topic, 4)
        if queue_id is None:
            taken = self.store.topics.get(topic)
            return (sum(map(len, taken.queues)) if taken else 0) % queues
        self.topics[topic] = max(queues, queue_id + 1)
        return queue_id

    def _queue_of(self, topic: str, queue_id: int) -> mqstore.Queue:
        return self.store.topics[topic].queues[queue_id]

    def _put(self, topic: str, queue_id: int, body: bytes, properties: Mapping[str, str], **more: Any) -> mqstore.Message:
        fields = {"topic": topic, "queue_id": queue_id, "body": body, "properties": properties}
        [offset] = self.store.append_batch([fields | self._hosts | more])
        return self._stored(offset)

    def _put_half(self, body: bytes, properties: Mapping[str, str], born_time: object) -> mqstore.Message:
        self.topics.setdefault(HALF_TOPIC, 1)
        half = self._put(HALF_TOPIC, 0, body, _in_order(properties), born_time=born_time)
        self._open.add(half.queue_offset)
        return half

    def _expect_open(self, half: mqstore.Message) -> None:
        if half.topic != HALF_TOPIC or half.queue_offset not in self._open:
            raise ValueError(f"{half!r} is not an open half message: take what send_half or check_back returned last")

    def _delay(
        self, topic: str, queue_id: int, body: bytes, given: Mapping[str, str], level: int, **more: Any
    ) -> mqstore.Message:
        self.topics.setdefault(SCHEDULE_TOPIC, len(self._delays))
        level = min(level, len(self._delays))
        self._delivered.setdefault(level, 0)
        fields: dict[str, Any] = {"queue_id": queue_id, "delay_level": level, **self._hosts, **more}
        # This class delivers the message itself.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            done = self.store.append(topic, body, properties=_in_order({**given, "DELAY": str(level)}), **fields)
        return self._stored(done.physical_offset)

    def _stored(self, physical_offset: int) -> mqstore.Message:
        # The name of a new index file is the time of its making.
        self.store.wait_dispatched()
        return self.store.message_at(physical_offset)

    def _move(self, message: mqstore.Message, **more: Any) -> mqstore.Message:
        """Stores a message again, in the topic that it is meant for."""
        fields = {
            "born_time": message.born_time,
            "born_host": message.born_host,
            "flag": message.flag,
            "sys_flag": message.sys_flag,
        }
        given = message.properties
        fields |= {"reconsume_times": message.reconsume_times} | more
        return self._put(given["REAL_TOPIC"], int(given["REAL_QID"]), message.body, given, **fields)


def _in_order(properties: Mapping[str, str]) -> dict[str, str]:
    ranks = {name: rank for rank, name in enumerate(_ORDER)}
    return dict(sorted(properties.items(), key=lambda item: ranks.get(item[0], ranks[""])))


def _topic_configs(topics: Mapping[str, int]) -> dict[str, object]:
    return {
        name: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }
        for name, queues in topics.items()
    }
