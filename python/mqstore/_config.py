"""The options of a store as one object: `StoreConfig`.

Imported at its first use, as `mqstore._reports` is. A test compares names, defaults and texts with docs/CONFIG.md.
"""

import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal, TypedDict, final

from mqstore._native import _check_options, _rocketmq_options
from mqstore._shown import Shown

__all__ = ["Options", "RepairOptions", "StoreConfig", "merged"]


class RepairOptions(TypedDict, total=False):
    """The options of `repair` and `rebuild`, which choose `recovery` themselves, run no `services` and have no slaves."""

    mapped_file_size_commit_log: int | None
    mapped_file_size_consume_queue: int | None
    geometry: Literal["broker"] | None
    max_hash_slot_num: int | None
    max_index_num: int | None
    access_message_in_memory_max_ratio: int
    max_transfer_bytes_on_message_in_memory: int
    max_transfer_count_on_message_in_memory: int
    max_transfer_bytes_on_message_in_disk: int
    max_transfer_count_on_message_in_disk: int
    max_filter_message_size: int
    check_crc_on_recover: bool
    message_delay_level: str
    max_message_size: int
    enabled_append_prop_crc: bool
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
    sync_flush_timeout: int | timedelta
    flush_interval_commit_log: int | timedelta
    flush_commit_log_least_pages: int
    flush_commit_log_thorough_interval: int | timedelta
    flush_commit_log_timed: bool
    warm_mapped_file_enable: bool
    flush_least_pages_when_warm_mapped_file: int
    transient_store_pool_enable: bool
    transient_store_pool_size: int
    transient_store_pool_buffer_size: int
    commit_interval_commit_log: int | timedelta
    commit_commit_log_least_pages: int
    commit_commit_log_thorough_interval: int | timedelta
    wait_time_out: int | timedelta
    os_page_cache_busy_time_out_mills: int | timedelta
    checkpoint_interval: int
    timer_max_delay_sec: int | timedelta
    file_reserved_time: float | timedelta | None
    expire_by_file_time: bool
    delete_when: str
    max_log_bytes: int | None
    disk_max_used_space_ratio: int | None
    disk_space_clean_forcibly_ratio: int
    clean_file_forcibly_enable: bool
    retain_unconsumed: bool
    clean_resource_interval: int | timedelta
    delete_commit_log_files_interval: int | timedelta
    lock_timeout: float | timedelta | None
    errors: Literal["raise", "skip"]
    index_tags: bool
    sigbus_guard: bool


class Options(RepairOptions, total=False):
    """The options of `open`."""

    recovery: Literal["heal", "salvage"]
    services: bool | None
    ha_listen_port: int | None
    ha_listen_host: str
    listen_port: int | None
    broker_role: Literal["ASYNC_MASTER", "SYNC_MASTER"]
    in_sync_replicas: int | None
    slave_timeout: int | timedelta
    ha_max_gap_not_in_sync: int


#: The index of a broker that states one of its sizes and not the other.
_INDEX_OF_BROKER = {"max_hash_slot_num": 5_000_000, "max_index_num": 20_000_000}
#: The options that remove old messages, as a broker has them where its configuration states none.
_RETENTION_OF_BROKER: dict[str, Any] = {
    "file_reserved_time": 72,
    "expire_by_file_time": True,
    "delete_when": "04",
    "disk_max_used_space_ratio": 75,
    "retain_unconsumed": False,
}
#: The smallest index, with which any accepted size of one of them makes a file that a broker maps.
_LEAST_INDEX = {"max_hash_slot_num": 1, "max_index_num": 2}


@final
@dataclass(frozen=True, kw_only=True, repr=False)
class StoreConfig(Shown):
    """Options of a store, for `mqstore.open(path, config=...)`. They have RocketMQ's names in snake
    case where RocketMQ has the option, and RocketMQ's defaults unless the text states another one.

    A value that cannot be right raises `ValueError` or `TypeError`. `dataclasses.replace` returns a
    changed copy.

    Attributes
    ----------
    mapped_file_size_commit_log : int | None, default None
        The size of a commit-log segment. None: that of the files; 67108864 in a new store
        (RocketMQ's default: 1073741824). In bytes. RocketMQ: `mappedFileSizeCommitLog`.
    mapped_file_size_consume_queue : int | None, default None
        The size of a consume-queue file. None: that of the files; 6000000 in a new store,
        RocketMQ's default. In bytes. RocketMQ: `mappedFileSizeConsumeQueue`.
    geometry : Literal["broker"] | None, default None
        The sizes of a new store that no other option states: "broker" for RocketMQ's, None for
        those of a small store. A store of other sizes refuses "broker".
    max_hash_slot_num : int | None, default None
        Hash slots of an index file, given together with `max_index_num`. None: as in the files;
        125000 in a new store (RocketMQ's default: 5000000). In slots. RocketMQ:
        `maxHashSlotNum`.
    max_index_num : int | None, default None
        Items of an index file, given together with `max_hash_slot_num`. None: as in the files;
        500000 in a new store (RocketMQ's default: 20000000). In items. RocketMQ: `maxIndexNum`.
    access_message_in_memory_max_ratio : int, default 40
        The part of physical memory within which a message counts as cached: decides the limits
        of `get` and `suggest_pulling_from_slave`. A writer drops its older appends from the
        page cache. In percent. RocketMQ: `accessMessageInMemoryMaxRatio`.
    max_transfer_bytes_on_message_in_memory : int, default 262144
        The most bytes that one `get` returns while the messages count as cached. In bytes.
        RocketMQ: `maxTransferBytesOnMessageInMemory`.
    max_transfer_count_on_message_in_memory : int, default 32
        The most messages that one `get` returns while they count as cached. In messages.
        RocketMQ: `maxTransferCountOnMessageInMemory`.
    max_transfer_bytes_on_message_in_disk : int, default 65536
        The most bytes that one `get` returns once a message counts as cold. In bytes. RocketMQ:
        `maxTransferBytesOnMessageInDisk`.
    max_transfer_count_on_message_in_disk : int, default 8
        The most messages that one `get` returns once one counts as cold. In messages. RocketMQ:
        `maxTransferCountOnMessageInDisk`.
    max_filter_message_size : int, default 16000
        The least bytes of queue entries that one `get` examines (20 an entry). In bytes.
        RocketMQ: `maxFilterMessageSize`.
    check_crc_on_recover : bool, default True
        The scan for the end of the log compares each body, and each record with a `__CRC32#`,
        with its checksum. RocketMQ: `checkCRCOnRecover`.
    message_delay_level : str, default "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
        The delay of each delay level: a list of times such as "1s 5m 2h". RocketMQ:
        `messageDelayLevel`.
    max_message_size : int, default 4194304
        The largest body of a message. In bytes. RocketMQ: `maxMessageSize`.
    enabled_append_prop_crc : bool, default False
        Each appended record gets a checksum of all its other bytes, header included, as its
        last property (`__CRC32#`). Brokers of 5.2 and later with `forceVerifyPropCRC` check it,
        others read a property. RocketMQ: `enabledAppendPropCRC`.
    flush_disk_type : Literal["ASYNC_FLUSH", "SYNC_FLUSH"], default "ASYNC_FLUSH"
        The acknowledgement of an append: with `ASYNC_FLUSH` when the message survives the
        process or waits in the pool, with `SYNC_FLUSH` when it survives a power failure. With
        `SYNC_FLUSH` it is read only then. RocketMQ: `flushDiskType`.
    sync_flush_timeout : int | timedelta, default 5000
        The longest wait of an append for its message to be durable, unless the append itself
        syncs for all that wait. In ms. RocketMQ: `syncFlushTimeout`.
    flush_interval_commit_log : int | timedelta, default 500
        The interval at which appended messages are made durable without a request. In ms.
        RocketMQ: `flushIntervalCommitLog`.
    flush_commit_log_least_pages : int, default 4
        The new pages that a flush at an interval needs. In pages of 4 KiB. RocketMQ:
        `flushCommitLogLeastPages`.
    flush_commit_log_thorough_interval : int | timedelta, default 10000
        The time after which a flush at an interval needs no new pages. In ms. RocketMQ:
        `flushCommitLogThoroughInterval`.
    flush_commit_log_timed : bool, default True
        Flushes without a request come at the interval alone. With False they come as soon as
        there are enough new pages. RocketMQ: `flushCommitLogTimed`.
    warm_mapped_file_enable : bool, default False
        All pages of a new segment are written with zeros and locked in memory before it is
        used. Not with `ASYNC_FLUSH` and a pool. RocketMQ: `warmMapedFileEnable`.
    flush_least_pages_when_warm_mapped_file : int, default 4096
        With `SYNC_FLUSH`, the zeros of `warm_mapped_file_enable` are synced after this number
        of pages. In pages of 4 KiB. RocketMQ: `flushLeastPagesWhenWarmMapedFile`.
    transient_store_pool_enable : bool, default False
        Appended messages wait in locked memory until a thread of the store writes them to the
        log in large pieces. A read of this store, `commit` and every sync write them at once; a
        killed process loses the rest. With `SYNC_FLUSH` they wait in memory in any case, and
        this locks it. RocketMQ: `transientStorePoolEnable`.
    transient_store_pool_size : int, default 5
        The number of buffers of the transient store pool. In buffers. RocketMQ:
        `transientStorePoolSize`.
    transient_store_pool_buffer_size : int, default 4194304
        The size of each buffer (RocketMQ: that of a segment). `transient_store_pool_enable`
        locks it as far as `RLIMIT_MEMLOCK` permits. In bytes.
    commit_interval_commit_log : int | timedelta, default 200
        The interval at which the pool is written to the log, unless much waits. In ms.
        RocketMQ: `commitIntervalCommitLog`.
    commit_commit_log_least_pages : int, default 4
        The pages that must wait in the pool before an interval writes it. In pages of 4 KiB.
        RocketMQ: `commitCommitLogLeastPages`.
    commit_commit_log_thorough_interval : int | timedelta, default 200
        The time after which the pool is written however few pages wait. In ms. RocketMQ:
        `commitCommitLogThoroughInterval`.
    wait_time_out : int | timedelta, default 5000
        The longest wait of an append for the next segment of the log or for a buffer. In ms.
    os_page_cache_busy_time_out_mills : int | timedelta, default 1000
        While an append holds the append lock for longer than this, other appends raise
        `BusyError`. In ms. RocketMQ: `osPageCacheBusyTimeOutMills`.
    checkpoint_interval : int, default 67108864
        Dispatched bytes after which the checkpoint is stamped again: about the amount that
        recovery reads. Stamps that take 100 ms or longer come later. In bytes.
    services : bool | None, default None
        A writer does the work of a broker: it delivers delayed messages and timers, and removes
        old ones. None: True for a store that mqstore has made, False once a broker has written
        it. With False delayed messages wait for a broker, and nothing is removed by itself.
    timer_max_delay_sec : int | timedelta, default 259200
        The longest time from an append to the time of delivery that it asks for (`deliver_at`).
        In seconds. RocketMQ: `timerMaxDelaySec`.
    file_reserved_time : float | timedelta | None, default None
        The age at which a segment of the log is removed (`services`): that of its last message.
        None: no age (RocketMQ's default: 72). In hours. RocketMQ: `fileReservedTime`.
    expire_by_file_time : bool, default False
        The age of a segment is that of its file (mtime), as in RocketMQ, instead of that of its
        last message.
    delete_when : str, default ""
        The hours of the day, in local time, in which segments are removed for their age: a list
        such as "04;16". Empty: all (RocketMQ's default: "04"). RocketMQ: `deleteWhen`.
    max_log_bytes : int | None, default None
        The oldest segments are removed while the log has more bytes than this. None: no limit.
        In bytes.
    disk_max_used_space_ratio : int | None, default None
        The part of the disk above which segments that are old enough are removed in any hour,
        read or not. None: the use of the disk does not matter (RocketMQ's default: 75). In
        percent. RocketMQ: `diskMaxUsedSpaceRatio`.
    disk_space_clean_forcibly_ratio : int, default 85
        The part of the disk above which the oldest segments are removed, however young and read
        or not, if `disk_max_used_space_ratio` is given. In percent. RocketMQ:
        `diskSpaceCleanForciblyRatio`.
    clean_file_forcibly_enable : bool, default True
        Segments are removed above `disk_space_clean_forcibly_ratio`. With False a full disk
        removes nothing that is not old enough. RocketMQ: `cleanFileForciblyEnable`.
    retain_unconsumed : bool, default True
        The removal for age or `max_log_bytes` waits until each consumer group has consumed the
        messages, and each connected slave has acknowledged them. With False it does not, as in
        RocketMQ.
    clean_resource_interval : int | timedelta, default 10000
        The time between two looks for segments to remove. The first one is a minute after the
        open. In ms. RocketMQ: `cleanResourceInterval`.
    delete_commit_log_files_interval : int | timedelta, default 100
        The pause after the removal of a segment. In ms. RocketMQ:
        `deleteCommitLogFilesInterval`.
    ha_listen_port : int | None, default None
        The port at which a writer listens for slaves; 0 for any that is free. None: it does not
        listen. RocketMQ's `haListenPort`, which `StoreConfig.from_broker_conf` leaves out.
    ha_listen_host : str, default "127.0.0.1"
        The IP address at which it listens. The protocol knows neither passwords nor encryption:
        whoever reaches the port reads the log.
    listen_port : int | None, default None
        The port at which a writer answers slaves that ask for topics, groups and progress; 0
        for any that is free. It listens on `ha_listen_host`, also at the port two below. None:
        it does not listen. RocketMQ's `listenPort`, which `StoreConfig.from_broker_conf` leaves
        out.
    broker_role : Literal["ASYNC_MASTER", "SYNC_MASTER"], default "ASYNC_MASTER"
        `SYNC_MASTER`: an append also waits until slaves hold its message. RocketMQ's
        `brokerRole`, which `StoreConfig.from_broker_conf` leaves out.
    in_sync_replicas : int | None, default None
        The copies that an append of a `SYNC_MASTER` waits for, that of the master included;
        connections of one host count as one. None: 2 (RocketMQ's default: 1). 1 waits for
        nobody. In replicas. RocketMQ: `inSyncReplicas`.
    slave_timeout : int | timedelta, default 3000
        The longest wait of an append of a `SYNC_MASTER` for slaves. In ms. RocketMQ:
        `slaveTimeout`.
    ha_max_gap_not_in_sync : int, default 268435456
        A slave that is behind by this much or more is not waited for. In bytes. RocketMQ:
        `haMaxGapNotInSync`.
    lock_timeout : float | timedelta | None, default 0
        The longest wait of a writer for another one to release the lock. 0: it fails at once.
        In seconds.
    recovery : Literal["heal", "salvage"], default "heal"
        The treatment of damage inside the log at an open. "heal": a writer refuses damage of
        messages that were on disk, and cuts a torn end. "salvage": whole messages are kept on
        both sides of any damage.
    errors : Literal["raise", "skip"], default "raise"
        The treatment of a lost or damaged message in a read of many messages, unless the call
        states it: "raise" an error, or "skip" and count it.
    index_tags : bool, default False
        Tags are indexed, too, as by 5.4 and later. For a reader: the index holds the tag of
        every message, so that `query(topic, tag=...)` need not walk the log.
    sigbus_guard : bool, default True
        An I/O error under a mapping becomes an error instead of a SIGBUS signal.
    """

    mapped_file_size_commit_log: int | None = None
    mapped_file_size_consume_queue: int | None = None
    geometry: Literal["broker"] | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    access_message_in_memory_max_ratio: int = 40
    max_transfer_bytes_on_message_in_memory: int = 262144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65536
    max_transfer_count_on_message_in_disk: int = 8
    max_filter_message_size: int = 16000
    check_crc_on_recover: bool = True
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    max_message_size: int = 4194304
    enabled_append_prop_crc: bool = False
    flush_disk_type: Literal["ASYNC_FLUSH", "SYNC_FLUSH"] = "ASYNC_FLUSH"
    sync_flush_timeout: int | timedelta = 5000
    flush_interval_commit_log: int | timedelta = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int | timedelta = 10000
    flush_commit_log_timed: bool = True
    warm_mapped_file_enable: bool = False
    flush_least_pages_when_warm_mapped_file: int = 4096
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    transient_store_pool_buffer_size: int = 4194304
    commit_interval_commit_log: int | timedelta = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int | timedelta = 200
    wait_time_out: int | timedelta = 5000
    os_page_cache_busy_time_out_mills: int | timedelta = 1000
    checkpoint_interval: int = 67108864
    services: bool | None = None
    timer_max_delay_sec: int | timedelta = 259200
    file_reserved_time: float | timedelta | None = None
    expire_by_file_time: bool = False
    delete_when: str = ""
    max_log_bytes: int | None = None
    disk_max_used_space_ratio: int | None = None
    disk_space_clean_forcibly_ratio: int = 85
    clean_file_forcibly_enable: bool = True
    retain_unconsumed: bool = True
    clean_resource_interval: int | timedelta = 10000
    delete_commit_log_files_interval: int | timedelta = 100
    ha_listen_port: int | None = None
    ha_listen_host: str = "127.0.0.1"
    listen_port: int | None = None
    broker_role: Literal["ASYNC_MASTER", "SYNC_MASTER"] = "ASYNC_MASTER"
    in_sync_replicas: int | None = None
    slave_timeout: int | timedelta = 3000
    ha_max_gap_not_in_sync: int = 268435456
    lock_timeout: float | timedelta | None = 0
    recovery: Literal["heal", "salvage"] = "heal"
    errors: Literal["raise", "skip"] = "raise"
    index_tags: bool = False
    sigbus_guard: bool = True

    def __post_init__(self) -> None:
        _check_options(**self._given())

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._given().items())
        return f"mqstore.StoreConfig({given})"

    def _given(self) -> dict[str, Any]:
        """Returns the options that differ from their defaults."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    @classmethod
    def from_broker_conf(cls, path: str | os.PathLike[str]) -> "StoreConfig":
        """Returns the options in a `broker.conf`, or another file of properties, of a broker.

        It takes the options that mqstore has, by RocketMQ's names. It ignores all others, which say
        nothing of a store that mqstore opens: names, addresses, threads, limits of the network. File
        sizes that the file does not state are RocketMQ's (`geometry="broker"`), as in that broker;
        `open(path, config=config, geometry=None)` opens a store of other sizes. Old messages go as in
        that broker, where this writer does its work (`services`): after 72 hours by the time of their
        file, at 4 o'clock or on a disk that is used by more than 75 %, consumed or not. As in a broker, the
        last of several entries with one key counts, and the size of queue files is rounded up to a
        multiple of 20. `storePathRootDir` says nothing here: the store is in the `path` of `open`.

        Raises `ValueError` with file and line for a value that the option does not accept, also
        where a broker starts and ignores it, such as text that is not a number, and for queues in
        RocksDB (`storeType`). Warns (`RuntimeWarning`) of a commit log that is not in the directory
        of the store (`storePathCommitLog`): `open` reads `commitlog` in its `path`.
        """
        with open(path, encoding="latin-1", newline=None) as file:
            entries = {key: (line, text) for line, key, text in _properties(file.read())}
        for key, problem, is_error in _unlike_ours(entries):
            line, text = entries[key]
            problem = f"{os.fspath(path)}, line {line}: {key} = {text}: {problem}"
            if is_error:
                raise ValueError(problem)
            warnings.warn(problem, RuntimeWarning, stacklevel=2)
        names, given = _rocketmq_options(), {}
        for key, (line, text) in entries.items():
            if (name := names.get(key)) is not None:
                try:
                    given[name] = _value_of(name, text, getattr(cls, name))
                    _check_options(**_LEAST_INDEX | {name: given[name]})
                except ValueError as error:
                    raise ValueError(f"{os.fspath(path)}, line {line}: {key} = {text}: {error}") from None
        if not given.keys().isdisjoint(_INDEX_OF_BROKER):
            given = _INDEX_OF_BROKER | given
        try:
            return replace(cls(geometry="broker"), **_RETENTION_OF_BROKER | given)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from None


def _unlike_ours(entries: dict[str, tuple[int, str]]) -> Iterator[tuple[str, str, bool]]:
    """Yields the keys that put a store where mqstore does not look for it, why, and whether that is an error."""
    texts = {key: text for key, (_, text) in entries.items()}
    if texts.get("storeType", "").lower() == "defaultrocksdb":
        yield "storeType", "mqstore neither reads nor writes queues in RocksDB", True
    root, log = texts.get("storePathRootDir"), texts.get("storePathCommitLog")
    if log and (root is None or os.path.normpath(log) != os.path.join(os.path.normpath(root), "commitlog")):
        where = "the directory of the store" if root is None else f"storePathRootDir ({root})"
        yield "storePathCommitLog", f"mqstore reads the log from commitlog in {where}: link it there", False


def merged(config: StoreConfig, /, **options: Any) -> dict[str, Any]:
    """Returns the options of a call of `open`: those given by name win."""
    if not isinstance(config, StoreConfig):
        raise TypeError(f"config is a mqstore.StoreConfig or None, not {type(config).__name__}")
    return config._given() | options


def _value_of(name: str, text: str, default: Any) -> Any:
    """Converts a value of a properties file to the type of an option, and rounds it as a broker does."""
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ValueError("expected true or false")
        return text.lower() == "true"
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError("expected a whole number")
    # RocketMQ: getMappedFileSizeConsumeQueue.
    return -(-int(text) // 20) * 20 if name == "mapped_file_size_consume_queue" else int(text)


def _properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Yields line number, key and value of each entry of a Java properties file."""
    logical, begun = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not logical:
            begun = number
        logical += line.lstrip(" \t\f")
        if not logical or logical[0] in "#!":
            logical = ""
        elif (len(logical) - len(logical.rstrip("\\"))) % 2:
            logical = logical[:-1]
        else:
            yield begun, *_entry(logical)
            logical = ""
    if logical:
        yield begun, *_entry(logical)


def _entry(line: str) -> tuple[str, str]:
    """Splits a logical line of a properties file at the first `=`, `:` or white space that is not escaped."""
    key, value = re.fullmatch(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line).groups()  # type: ignore[union-attr]
    return _unescaped(key), _unescaped(value).strip()


def _unescaped(text: str) -> str:
    """Replaces the escapes of a properties file."""
    letters = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
    return re.sub(
        r"\\(?:u([0-9a-fA-F]{4})|(.))",
        lambda escape: chr(int(escape[1], 16)) if escape[1] else letters.get(escape[2], escape[2]),
        text,
    )
