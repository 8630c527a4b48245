import os
import sys
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Reversible, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any, Literal, NoReturn, Protocol, Self, TypeAlias, TypedDict, TypeVar, Unpack, final, overload

import polars
from typing_extensions import Buffer, CapsuleType, disjoint_base

from mqstore._config import Options, RepairOptions, StoreConfig
from mqstore._reports import RecoveryReport, RepairReport, StoreStats, VerifyReport
from mqstore.files import Copied, Exported, Imported

__all__ = [
    "AppendResult",
    "Batches",
    "BrokerState",
    "GetResult",
    "Inspect",
    "Message",
    "MessageIterator",
    "Offsets",
    "QueryResult",
    "Queue",
    "QueueSlice",
    "Queues",
    "Recipe",
    "RecordBatch",
    "Store",
    "Tabular",
    "Topic",
    "Topics",
    "Usage",
    "Writer",
    "_Flushed",
    "__version__",
    "_append_result",
    "_check_options",
    "_checksums",
    "_expect_outside",
    "_flushed_mark",
    "_get_result",
    "_json_lines",
    "_landmarks",
    "_message",
    "_named_json_lines",
    "_no_messages",
    "_offsets",
    "_open_after",
    "_part",
    "_query_result",
    "_reopen",
    "_rocketmq_options",
    "_stop_clock",
    "_topics",
    "new_unique_key",
    "open",
    "rebuild",
    "repair",
]

_T = TypeVar("_T")

__version__: str

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

_Table: TypeAlias = _ArrowStream | _ArrowArray
# pyarrow and pandas ship no types.
_PyArrowRecordBatch: TypeAlias = Any
_PyArrowTable: TypeAlias = Any
_PandasDataFrame: TypeAlias = Any
_Time: TypeAlias = datetime | int
_Errors: TypeAlias = Literal["raise", "skip"]
_UsageBy: TypeAlias = Literal["topic", "queue_id", "tags", "hour", "segment"]
_Partition: TypeAlias = Literal["topic", "hour"]
_BodyAs: TypeAlias = Literal["base64", "text", "json"]
_Properties: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
_Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Mode: TypeAlias = Literal["r", "r+", "a", "x"]
_Writing: TypeAlias = Literal["r+", "a", "x"]
# (topic, body, tags, keys, properties, queue_id)
_Row: TypeAlias = (
    Buffer
    | Message
    | Mapping[str, Any]
    | tuple[str | None, Buffer]
    | tuple[str | None, Buffer, str | None]
    | tuple[str | None, Buffer, str | None, str | Iterable[str] | None]
    | tuple[str | None, Buffer, str | None, str | Iterable[str] | None, _Properties | None]
    | tuple[str | None, Buffer, str | None, str | Iterable[str] | None, _Properties | None, int | None]
)
_Status: TypeAlias = Literal[
    "FOUND",
    "NO_MATCHED_MESSAGE",
    "MESSAGE_WAS_REMOVING",
    "OFFSET_FOUND_NULL",
    "OFFSET_OVERFLOW_BADLY",
    "OFFSET_OVERFLOW_ONE",
    "OFFSET_TOO_SMALL",
    "NO_MESSAGE_IN_QUEUE",
]

class _Conditions(TypedDict, total=False):
    topics: str | Iterable[str] | None
    queue_ids: int | Iterable[int] | None
    since: _Time | None
    until: _Time | None
    by: Literal["store", "born"]
    physical: tuple[int | None, int | None] | None
    tags: str | None
    keys: str | Iterable[str] | None
    properties: Mapping[str, str] | None
    body_contains: bytes | str | None
    body_regex: str | None
    limit: int | None
    errors: _Errors | None
    progress: Callable[[int, int], object] | None
    max_mb_per_s: float | None

class _ExportConditions(_Conditions, total=False):
    transactions: Literal["committed", "all"]
    order: Literal["log", "queue"]
    reverse: bool
    batch_bytes: int

def repair(
    path: _Path,
    *,
    dry_run: bool = True,
    into: _Path | None = None,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[RepairOptions],
) -> RepairReport:
    """Verifies a store, mends what can be mended, and verifies it again. By default it changes nothing and reports what it
    would change.

    Queues, index and checkpoint are rebuilt from the log, as by `rebuild`, where one of them is wrong. Files that do not
    belong into the store, and settings that are no JSON, are moved into a new directory `mqstore-backup-...` of the store,
    which `backup` names; move a file back to undo that. A record that is not whole is lost: a salvage record takes its
    place, as with `recovery="salvage"`, and every other message keeps its offsets. The segment as it was is copied into the
    backup first.

    Options are those of `open` but `recovery`, which is chosen here.

    With `into` all files are copied into that directory, which is missing or empty, and the copy is repaired; the store
    stays as it is. The copy gets the segments that are missing or cut short, with salvage records, up to the highest offset
    that the mark of what was flushed, queues or index name: no offset is assigned again. Queues of a topic that was deleted
    come back in a rebuild if the log still has its messages.

    Without `into` a store of which a part of the log is missing stays as it is: `refusal` says what to put back.

    It may be called again after an error or a crash, with another `into`: no message is lost then. Readers beside it go on.
    `progress` is called with two ints, how many bytes of the log are done, and of how many, in each pass: while it is
    verified, written, and verified again. Raises `LockedError` while a writer has the store, `StoreExistsError` if `into`
    is not empty, `ValueError` if it lies in a store, what `open` and `Store.verify` raise, and what `progress` raises.
    """

def rebuild(
    path: _Path,
    *,
    dry_run: bool = True,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[RepairOptions],
) -> RepairReport:
    """Makes the queues, the index and the checkpoint of a store anew from its log, and verifies it before and afterwards. By
    default it changes nothing and reports what it would change. Each queue keeps its offsets: entries of messages that have
    expired stay, and so does a queue without a message.

    Options are those of `open` but `recovery`, which is chosen here. Where all files of a kind are gone, and nothing has
    recorded their sizes, those of a broker's defaults are made.

    It changes nothing, and raises `CorruptError`, in a dry run, too: if the log is damaged, which `repair` mends; if a part
    of the log is missing, because queue offsets would be given again; and if a message and a queue entry contradict each
    other about a place. The error says what to do. Queues of a topic that was deleted come back if the log still has its
    messages. It may be called again after an error or a crash, and readers beside it go on. `progress` is called as by
    `repair`. Raises `LockedError` while a writer has the store, unless it is a dry run, what `open` and `Store.verify`
    raise, and what `progress` raises.
    """

def new_unique_key() -> str:
    """Returns a new unique key for a message: str, for `append(..., unique_key=...)`, as RocketMQ's client makes one for each
    message that it sends.

    No other call gives the same key, in any thread, process or fork. RocketMQ's `MessageClientIDSetter` reads it: it holds
    the address of this machine, the process id, a random number, the time and a counter as 32 hex digits in capitals, 56
    where the address is IPv6. `Store.message` finds the message by it.
    """

@overload
def open(path: _Path, mode: Literal["r"] = "r", config: StoreConfig | None = None, **options: Unpack[Options]) -> Store:
    """Opens the message store in the directory `path`.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The directory of the store.
    mode : {"r", "a", "r+", "x"}, default "r"
        "r" reads. It changes no file and takes no lock, so that a running broker may own the store.
        The store is read as it was when it was opened. The other modes write, too, one process at a
        time and without a broker: "a" creates the store if it does not exist, "r+" requires that it
        exists, and "x" creates it in a missing or empty directory.
    config : StoreConfig, optional
        Options that several calls share, such as `StoreConfig.from_broker_conf("broker.conf")`. An
        option that the call itself gives by name wins.
    geometry : {"broker", None}, default None
        The sizes of the files of a new store. None: segments of 64 MiB and index files of 500,000
        items. "broker": RocketMQ's defaults, 1 GiB and 20,000,000 items; a store of other sizes
        refuses it. `mapped_file_size_commit_log`, `max_hash_slot_num` and `max_index_num` state single
        sizes. An existing store keeps its sizes.
    flush_disk_type : {"ASYNC_FLUSH", "SYNC_FLUSH"}, default "ASYNC_FLUSH"
        When an append returns. "ASYNC_FLUSH": when its message survives the death of the process; a
        power failure can lose the appends of the last half second (`flush_interval_commit_log`), or
        of the last 10 s at very low rates. "SYNC_FLUSH": when it survives a power failure.
    errors : {"raise", "skip"}, default "raise"
        What a read of many messages (iteration, slices, `get`, `batches`, `fetch`) does at a message
        that was lost or is damaged, unless the call states it: it raises `CorruptError`, or skips the
        message and counts it (`skipped`).
    recovery : {"heal", "salvage"}, default "heal"
        What an open does with damage inside the log of a store that its last writer did not close.
        With "heal" a writer truncates a torn end, and refuses damage (`CorruptError`) of messages that
        were on disk, as the checkpoint or the mark of flushed bytes proves. "salvage" keeps whole
        messages on both sides of any damage. Copy a crashed store whose disk is in doubt before you
        open it with "heal".
    lock_timeout : float, timedelta or None, default 0
        How long a writer waits while another one has the store, in seconds; None for no limit.
        Signals interrupt the wait.
    **options
        All other options, by name: `help(mqstore.StoreConfig)` describes each. They have RocketMQ's
        names in snake case, units and defaults. A duration may also be a timedelta.

    Returns
    -------
    Store or Writer
        The open store, a context manager: a `Store`, which reads, with mode "r", and a `Writer`, which
        has all calls of a `Store` and those that append, with any other mode. A `Store` has no `append`:
        the call raises `AttributeError`.

    Raises
    ------
    NotAStoreError
        The directory has no store; a `FileNotFoundError`.
    StoreExistsError
        The mode is "x" and the directory is not empty; a `FileExistsError`.
    LockedError
        Another writer has the store; a `BlockingIOError`. The text states how long the call waited.
    CorruptError
        The files cannot belong together, or are damaged (`recovery`).
    StoreIOError
        The system refuses; an `OSError`.
    ValueError
        The mode, or the value of an option, is none of those accepted.
    TypeError
        There is no option of this name, or its value is of another type.

    Notes
    -----
    A store that its last writer did not close is recovered: in memory to read it, on disk to write to
    it. `Store.recovery` reports what was found. Messages before the last checkpoint of mqstore are not
    checked then; a read of a damaged one raises `CorruptError`. A reader warns (`RuntimeWarning`) if
    files of the store show that messages are missing in its log, as in an incomplete copy.

    A small store, of a few MiB: `mapped_file_size_commit_log=1 << 20, max_hash_slot_num=1000, max_index_num=4000`. A fast
    one: the defaults, and `append_batch` for many messages. A durable one: `flush_disk_type="SYNC_FLUSH"`, or
    `durable=True` for single appends.
    """

@overload
def open(path: _Path, mode: _Writing, config: StoreConfig | None = None, **options: Unpack[Options]) -> Writer: ...
@overload
def open(path: _Path, mode: str, config: StoreConfig | None = None, **options: Unpack[Options]) -> Store: ...

@final
class Inspect:
    """The files of a store and their bytes: `Store.inspect` is one.

    `segments`, `index_files` and `kept_elsewhere` list files. `dump`, `dump_entry` and `dump_key` decode the bytes at a
    place field by field, whole or damaged.
    """
    def segments(self) -> RecordBatch:
        """Returns the segments of the log, a row each, ascending: `segment` (int64: the physical offset at which it starts,
        its name), `bytes` (int64: those that belong to the log), `sealed` (bool: true if the log continues in a later one),
        `first_store_time` (timestamp[us, UTC]: of its first message). Cheap: reads the first bytes of each segment.
        `usage("segment")` counts its messages.
        """
    def index_files(self) -> RecordBatch:
        """Returns the index files, a row each, oldest first: they show why queries by key are slow or walk the log. Reads them
        whole.

        Columns: `name` (utf8); `slots` and `max_items` (int64: the keys that it has room for), null if its bytes do not
        show it; `items` (int64: keys); `used_slots` (int64); `load` (float64: items a slot); `longest_chain` (int64) and
        `mean_chain` (float64): items in a used slot, which a query for a key of it reads; `first_physical_offset` and
        `last_physical_offset` (int64), `first_store_time` and `last_store_time` (timestamp[us, UTC]) of the messages that
        it indexes, null if it has no item; `whole` (bool): every item can be reached from its slot; `used` (bool): queries
        use it, and do not walk the log for its messages. `whole` is null where `slots` is; `used_slots` and the chains are
        null for a file that is not whole.
        """
    def kept_elsewhere(self) -> RecordBatch:
        """Returns the parts of the store that its broker keeps in files of another format, which are not read; mostly RocksDB
        databases. Cheap: lists some directories.

        Columns: `part` (utf8): `queues`, `keys`, `transactions`, `timers`, `compacted_topics`, `consumer_offsets` or
        `topic_configs`; `path` (utf8): the directory of these files; `topic` (utf8), null unless the part is of one topic;
        `message` (utf8): what is there, and what is read in its place.
        """
    def dump(self, physical_offset: int) -> RecordBatch:
        """Decodes the bytes at a physical offset, whole or damaged: a row for each field of the record or BLANK there.
        `message_at` reads a message.

        Columns: `file` (utf8), `offset` (int64: the field's first byte in the file), `length` (int64: its bytes), `bytes`
        (binary: the first 256 of them at most), `field` (utf8: its name), `value` (utf8: what it says), `wrong` (utf8: what
        is wrong with it, null if nothing is). Raises `NotFoundError` where no segment is, `OSError` for a file that cannot
        be read.
        """
    def dump_entry(self, topic: str, queue_id: int, queue_offset: int) -> RecordBatch:
        """Decodes the entry of a queue at a queue offset, in rows as those of `dump`, and after it the record that it leads
        to. Raises `NotFoundError` if no file of the queue has this place, `UnsupportedFormatError` as `get`, `OSError`.
        """
    def dump_key(self, topic: str, key: str, *, limit: int = 64) -> RecordBatch:
        """Decodes the places of a key in the index, in rows as those of `dump`: for each index file its slot and the items of
        the chain there, the newest first, at most `limit` of them, also those of other keys. The row `item N record` names
        the message that an item leads to. Raises `NotFoundError` if there is no index file, `OSError`.
        """

@final
class BrokerState:
    """The settings and positions that the broker of a store keeps in `config/`: `Store.broker` is one."""
    def consumer_offsets(self) -> RecordBatch:
        """Returns the positions of the groups of consumers, as the broker of the store has written them to
        `config/consumerOffset.json` (every 5 s) and, with light queues, to `config/lmqConsumerOffset.json`. A row a queue,
        ascending: `group` (utf8), `topic` (utf8), `queue_id` (int32), `offset` (int64: the queue offset of the message that
        the group gets next). Where names have an `@` in them, the topic is one of the store.

        If a file is missing, empty or damaged, its `.bak` is read, as by a broker, with a `RuntimeWarning`. Another one
        warns if the broker may keep newer offsets in another file. Raises `NotFoundError` if there is no file,
        `CorruptError` if none can be used, `UnsupportedFormatError` if the broker keeps the offsets in RocksDB alone.
        """
    def lag(self) -> RecordBatch:
        """Returns the number of messages that each group of consumers has not consumed yet. A row for each queue of each topic
        that the group has consumed from, ascending: `group`, `topic`, `queue_id` and `offset` as in `consumer_offsets`,
        `offset` null where the broker has none; `min_offset` and `max_offset` (int64) of the queue; `lag` (int64): messages
        of the queue that the group has not consumed, all of them without an offset. The last three are null where the queue
        is no file of this format (RocksDB, batch consume queue). With an `offset` below `min_offset` messages have expired
        unread; one above `max_offset` comes from another store, or messages were lost.

        Warns and raises as `consumer_offsets`.
        """
    def topic_configs(self) -> RecordBatch:
        """Returns the topics in the settings of the broker of the store (`config/topics.json`), with messages or without, a
        row each, ascending: `topic` (utf8), `read_queue_nums` and `write_queue_nums` (int32), `perm` (int32: 4 to read, 2
        to write, 1 a model for new topics), `topic_filter_type` (utf8), `topic_sys_flag` (int32), `order` (bool),
        `attributes` (map of utf8 to utf8, since 5.x). A value that is absent in the file is null.

        Warns and raises as `consumer_offsets`.
        """
    def delay_offsets(self) -> RecordBatch:
        """Returns the positions of the delivery of delayed messages (`config/delayOffset.json`, every 10 s), a row a level,
        ascending: `level` (int32), `offset` (int64: the queue offset of the message that is delivered next, in queue `level
        - 1` of `SCHEDULE_TOPIC_XXXX`).

        Warns and raises as `consumer_offsets`.
        """

@disjoint_base
class Store:
    """An open message store; `mqstore.open` makes one. A context manager.

    It reads the store as it was when it was opened; `refresh` takes up what has come since. A store that is open for
    writing is a `Writer`, which has the calls that append, too.

    It pickles as path and options, and so do its topics, queues, slices and answers to queries: they open it again where
    they are unpickled, once per pickle. After a fork it opens again by itself, and an iteration that the parent began
    raises `ClosedError`.

    Safe to use from several threads. Once it is closed every call but `path`, `mode`, `closed` and `close` raises
    `ClosedError`; messages that were read stay readable. Where a call reads files it raises `CorruptError` for damage and
    `StoreIOError` for what the system refuses. It has no call that writes: open the store with mode "a" for a `Writer`,
    which also appends.
    """
    def __new__(cls, *_arguments: object, **_options: object) -> Store: ...
    @property
    def path(self) -> str:
        """The store's directory, absolute: str."""
    @property
    def mode(self) -> _Mode:
        """What it was opened with: "r", "r+", "a" or "x"."""
    @property
    def closed(self) -> bool:
        """Whether the store was closed."""
    def close(self) -> None:
        """Let go of the store's files, after everything that was appended is in its queues and durable. Messages that were
        read stay readable; calling it again does nothing.

        Raises `PoisonedError` or `StoreIOError` for what could not be done; the next open then recovers the store. If there
        is no room for what waits in the transient store pool (`DiskFullError`), the store stays locked until another call,
        or the end of the last reference, has written it.
        """
    @property
    def topics(self) -> Topics:
        """The topics by name: a mapping of str to Topic."""
    @property
    def inspect(self) -> Inspect:
        """The files of the store and their bytes: an `Inspect`."""
    @property
    def broker(self) -> BrokerState:
        """The settings and positions that the broker of the store keeps: a `BrokerState`."""
    @property
    def min_physical_offset(self) -> int:
        """Physical offset at which the commit log starts, in bytes."""
    @property
    def max_physical_offset(self) -> int:
        """Physical offset at which the commit log ends, in bytes."""
    @property
    def recovery(self) -> RecoveryReport:
        """What this opening of the store found; what an earlier one lost is no part of it."""
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = 32,
        *,
        tags: str | None = None,
        where: Callable[[Message], object] | None = None,
        bounded: bool = True,
        errors: _Errors | None = None,
    ) -> GetResult:
        """Read messages of a queue from a queue offset on, as a broker answers a pull.

        `tags` wants messages with one of some tags ("paid || refund"), `where` those for which a callable of one Message
        returns a true value. `max_messages` is the most messages to return, 0 as much as 1, as a broker has it. A broker
        gives no more than 32 (`max_transfer_count_on_message_in_memory`), whatever is asked for; `bounded=False` lifts its
        bounds on the entries examined, the bytes and the count (all but `max_messages`). `errors`, "raise" or "skip", says
        what to do at a message that was lost or is damaged; by default as in `open`.

        Raises `UnsupportedFormatError` where the queue is no file of this format (RocksDB, batch consume queue),
        `ValueError` for a negative `max_messages`, and what `where` raises.
        """
    @overload
    def query(
        self,
        topic: str,
        key: str,
        *,
        since: _Time | None = None,
        until: _Time | None = None,
        limit: int | None = None,
        tag: None = None,
        errors: _Errors | None = None,
    ) -> QueryResult:
        """Find the messages of a topic that carry a key (one of their keys, or their unique key), or else a tag, ascending by
        physical offset.

        `resolve_keys` finds where the messages of many keys lie, in a fraction of the time for each.

        `since` and `until` bound the store time, the first inclusive and the second exclusive: a datetime with a timezone,
        an int of ms since 1970, or None for open. Between two ms, since store times are whole ms, `since` is rounded down
        and `until` up. An int that is a time between 1980 and 2200 in another unit, such as seconds, is refused. `limit` is
        the most messages in the answer, the newest ones; None, the default, for all. `complete` of the answer says whether
        these are all that match. The answer holds places and reads each message when it is asked for. `errors`, "raise" or
        "skip", says what to do where a message that could match is damaged; by default as in `open`. Where
        recovery="salvage" has found messages lost, the answer is not complete. Where no index serves, the log is walked,
        and any damage in it counts; the index serves for tags only if the store is open with `index_tags=True`. An item of
        the index has no checksum: where its hash is damaged, its message is not found, and `complete` does not show it;
        `verify` does.

        Raises `TypeError` for a key and a tag or for neither, `ValueError` for a datetime without a timezone, a `since`
        after `until` and a tag with `||`, `CorruptError` as `errors` says.
        """
    @overload
    def query(
        self,
        topic: str,
        key: None = None,
        *,
        since: _Time | None = None,
        until: _Time | None = None,
        limit: int | None = None,
        tag: str,
        errors: _Errors | None = None,
    ) -> QueryResult: ...
    def message(self, id: str, *, walk: bool = False) -> Message:
        """The message with this id: an offset id (32 or 56 hex digits) if a record starts where it points, whatever its host;
        else the first stored message with this unique key, over every topic, to which the index leads. `walk=True` looks
        for a unique key that the index does not hold by reading the whole log, which takes seconds for each GiB. Raises
        `NotFoundError`.
        """
    def message_at(self, physical_offset: int) -> Message:
        """The message whose record starts at this physical offset.

        Raises `NotFoundError` if no record starts there, `CorruptError` if it is damaged.
        """
    def resolve_offsets(self, batch: _Table) -> RecordBatch:
        """Where messages lie in the log: columns `topic` (utf8), `queue_id` and `queue_offset` (integers) in, a `RecordBatch`
        of `physical_offset` (int64) and `store_size` (int32, bytes) out, a row for a row, null where there is no such
        message, where it was lost, and where its queue entry is damaged; the message itself is not read.

        `batch` is anything that speaks Arrow: a table, frame or batch of pyarrow, polars, duckdb, pandas. Raises
        `TypeError` if it does not, `ValueError` if a column is missing, of another type or malformed,
        `UnsupportedFormatError` as `get`.
        """
    def resolve_keys(
        self,
        batch: _Table,
        *,
        limit: int | None = None,
        physical: tuple[int | None, int | None] | None = None,
        errors: _Errors | None = None,
    ) -> RecordBatch:
        """Which messages carry keys: columns `topic` and `key` (utf8) in, a `RecordBatch` of one column `hits` out, a row for
        a row: a list of (`queue_id` int32, `queue_offset` int64, `physical_offset` int64, `store_size` int32) by physical
        offset; null if empty.

        `batch` is anything that speaks Arrow. `limit` is the most hits of a row, the newest ones; None for all: a key that
        many messages have takes memory for each of them. `physical` is a pair of physical offsets between which the records
        start, as in `scan`.

        Where no index serves, the log is walked, once for an open store: up to 256 MiB of its keys stay in memory.

        Raises `TypeError` and `ValueError` for an argument, and if a column is missing or of another type; `CorruptError`
        at a damaged message that may have one of the keys; with `errors="skip"` it leaves such a message out of the hits.
        """
    def refresh(self) -> int:
        """Take up what another process has changed since the store was opened or refreshed: new messages, queues and topics,
        and what was removed. Only what came since is read. Gives by how many bytes the log has grown: 0 if nothing came,
        and always for a store that is open for writing, which is up to date anyway.

        Topics and queues that came from the store show it; an iteration that has begun, a slice and batches keep the end
        that they began with. A message that its writer has not finished is left for a later refresh; so is one that a
        writer with `SYNC_FLUSH` has not made durable.

        Raises `CorruptError` if messages that could be read were cut from the log: their writer was killed, and the next
        one has recovered the store. Open it again then. Raises it also for damage that whole messages follow.
        """
    def follow(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        start: Literal["earliest", "latest"] | Mapping[tuple[str, int], int] = "latest",
        since: _Time | None = None,
        until: _Time | None = None,
        timeout: float | timedelta | None = None,
        tags: str | None = None,
        errors: _Errors | None = None,
        on_missing: Literal["earliest", "latest"] | None = None,
    ) -> MessageIterator:
        """The messages of the store as they come, in the order of the log: an iterator that waits for more. It refreshes the
        store.

        `topics` is a topic or several, all by default, and also those that come later; `tags` wants one of some tags ("paid
        || refund"). `start` is "latest" (the messages that come from now on, the default), "earliest" (those that are
        there, too), or a mapping of (topic, queue id) to the queue offset to begin with: no other queues are followed then.
        `since` begins with the messages stored then or later instead, and `until` ends before the first wanted message
        stored then or later: a datetime with a timezone, or an int of ms since 1970. Store times are whole ms: with `since`
        between two ms, the messages of that ms are returned, too, because some may have been stored after it. Until a
        message of `until` comes, only `timeout` ends the iteration. Half and rolled-back messages are left out. What
        expires before it is read is passed over; `errors` as in `get`.

        A queue offset may be any from 0 to the queue's `max_offset` after the refresh, which is that of its next message; a
        queue that is not there yet has only 0. One below `min_offset` has expired, and the pass starts at `min_offset`.
        With `on_missing="earliest"` or "latest" a queue that does not hold the offset starts at `min_offset` or
        `max_offset`, also if the offset has expired. A topic that is not there yet is followed once it is, and a
        `RuntimeWarning` names it with the topics of a similar name.

        The iteration ends when no message has come for `timeout` (seconds, or a timedelta; None for never), and goes on
        when it is asked again. It ends when the store is closed. A store that another process writes to is looked at every
        0.5 ms while messages come, and ever more rarely, up to 20 ms, while none do; in the writing process the iteration
        is woken.

        Raises `NotFoundError`, which names the bounds, for a queue offset outside of its queue; `ValueError` for a queue
        that `topics` excludes, and `TypeError` and `ValueError` for other arguments. The iteration raises `CorruptError` as
        `refresh`, and for damage.
        """
    def scan(
        self,
        *,
        topics: str | Iterable[str] | None = None,
        queue_ids: int | Iterable[int] | None = None,
        since: _Time | None = None,
        until: _Time | None = None,
        by: Literal["store", "born"] = "store",
        physical: tuple[int | None, int | None] | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        body_contains: bytes | str | None = None,
        body_regex: str | None = None,
        transactions: Literal["committed", "all"] = "committed",
        columns: Sequence[str] | None = None,
        order: Literal["log", "queue"] = "log",
        limit: int | None = None,
        reverse: bool = False,
        decode_body: bool = False,
        batch_bytes: int = 4194304,
        errors: _Errors | None = None,
        progress: Callable[[int, int], object] | None = None,
        max_mb_per_s: float | None = None,
    ) -> Batches:
        """Returns the messages that meet some conditions, as Arrow record batches. Reads nothing before the first batch is
        asked for.

        `topics` is a topic or several (an absent topic is not an error, because messages of a deleted topic may be in the
        log; `Batches.absent_topics` names the topics without a message), `queue_ids` a queue id or several. `since` and
        `until` bound the store time, or the born time with `by="born"`, as in `query`; `physical` is a pair of physical
        offsets at which records start, the first inclusive and the second exclusive, None for open. `tags` wants one of
        some tags ("paid || refund"), `keys` one of some keys (a unique key, or one of the keys of a message; an empty list
        matches no message), `properties` all of some properties with their values. `body_contains` (bytes or str) and
        `body_regex` (a pattern of Rust's regex crate) look into the body, decompressed. With `decode_body=True` the column
        `body` is decompressed, and the compression bits of `sys_flag` are cleared, so that the row can be appended as it
        is; a body that does not decompress counts as damaged.

        By default this is what consumers see, and, of topics whose queues are gone or are a database, what they would see.
        A message that is also in light queues is returned once. `transactions="all"` returns every whole record of the log:
        half and rolled-back messages, and those of an earlier topic of the same name, too.

        `order` is "log" (by physical offset) or "queue" (by topic, queue id and queue offset); `reverse=True` turns it, and
        `limit` counts in it. For "queue", the places of messages that are in no queue are found first and kept, 24 bytes
        for each. With `since` or `until`, segments are left out that were written at another time; a clock that was set
        back by more than half an hour can hide messages from that.

        `columns`, `errors` as in `Topic.batches`; `batch_bytes` is about the most that a batch holds. `progress` is called
        with two ints as the messages are read: about how many bytes are done, and of how many. `max_mb_per_s` bounds the
        reading, in 10**6 bytes a second. While `progress` runs, no thread can ask for the next batch of this iterator: that
        raises `ValueError`.

        A scan of 16 MiB or more without `limit`, `reverse` and `max_mb_per_s` is read by several threads: as many as the
        environment variable `OMP_NUM_THREADS` says, or as the process may run at once, 16 at most. Memory holds the batches
        of about 4 MiB of the log, or of `batch_bytes` if that is more, for each thread and two more. With `order="log"` the
        pages of the log that the scan brings into the page cache are dropped after they were read; those that were there
        before stay.

        No checksum covers the topic, the queue id and the transaction of a message, unless its record ends with one
        (`__CRC32#`). A message on which these and its queue entry disagree counts as damaged, whether the scan goes along
        the queues or along the log. So does one whose tags its entry contradicts, if `tags` are asked for and the entry has
        the code of one of them: one whose code was damaged is not looked at along the queues, as a broker does not look at
        it. Damage of the store time, of keys and other properties shows only in the message itself, and where no queue
        leads to a message, neither does that of its topic: `Store.verify` reports both where other files repeat them.

        Raises `TypeError` and `ValueError` for an argument; reading raises `CorruptError` at damage, or skips it, and what
        `progress` raises.
        """
    def resolve_ids(self, batch: _Table, *, errors: _Errors | None = None) -> RecordBatch:
        """Where messages lie in the log by their ids: column `id` (utf8) in, a `RecordBatch` of `physical_offset` (int64) and
        `store_size` (int32, bytes) out, a row for a row, null where there is no such message. An id is what `message`
        takes: an offset id if a record starts where it points, else the unique key of a message of a topic that has queues,
        of which the first stored one counts. A stretch of the log that no index covers is walked.

        `batch` and `errors` are those of `resolve_keys`, and so is what it raises.
        """
    def resolve_times(
        self, batch: _Table, *, side: Literal["left", "right"] = "left", errors: _Errors | None = None
    ) -> RecordBatch:
        """Where times begin in queues: columns `topic` (utf8), `queue_id` (integers) and `time` in, a `RecordBatch` of
        `queue_offset` (int64) out, a row for a row: what `Queue.offset_at` gives for the time and `side`, null where there
        is no such queue.

        `time` holds timestamps with a timezone, or integers of ms since 1970. `batch` is anything that speaks Arrow. Raises
        `TypeError` if it does not, `ValueError` for another `side` and if a column is missing, of another type or
        malformed, `UnsupportedFormatError` as `get`, and `CorruptError` at a damaged message on the way; with
        `errors="skip"` it passes over such a message.
        """
    def export(
        self,
        target: str | os.PathLike[str],
        *,
        format: Literal["parquet", "arrow", "jsonl", "csv"] | None = None,
        columns: Sequence[str] | None = None,
        partition_by: _Partition | Iterable[_Partition] | None = (),
        rewrite: Callable[[RecordBatch], _Table] | None = None,
        body_as: _BodyAs = "base64",
        decode_body: bool = False,
        spreadsheet: bool = False,
        **conditions: Unpack[_ExportConditions],
    ) -> Exported:
        """Writes messages to files: Parquet, Arrow IPC, JSON Lines or CSV. Returns an `mqstore.files.Exported` with the files
        and exact counts.

        `target` gets its name when all of it is written and synced: until then it is in a directory `.mqstore-*.part`
        beside it, which a killed process leaves there. `format` is "parquet", "arrow", "jsonl" or "csv"; by default as the
        name ends (.parquet, .arrow, .jsonl, .ndjson, .csv), and "parquet" for any other name. The first two need pyarrow
        (extra `arrow`). The other arguments are those of `scan`, which selects the messages; memory is taken for one batch
        of `batch_bytes` (32 MiB by default), a row group of Parquet.

        Bodies are written as they are stored. With `decode_body=True` they are decompressed (zlib, LZ4 or Zstandard), and
        the compression bits of `sys_flag` are cleared, so that consumers can read the messages that `import_from` appends.
        A body that does not decompress counts as damaged: it raises `CorruptError`, or is left out and counted with
        `errors="skip"`.

        `partition_by` is "topic", "hour" (of the store time, in UTC) or both. `target` is then a directory, of files
        `topic=orders/hour=2026-11-23T05/part-00000.parquet`, and the files have no column `topic`: pyarrow, polars, duckdb
        and Spark read it from the names. It needs pyarrow for each format. Where it names "topic", `order` is "queue" by
        default.

        `rewrite` is called with each `RecordBatch`, also with an empty one if there is no other, and returns the table to
        write instead: any object that speaks Arrow, always with the same columns.

        A line of JSON Lines is an object with a field a column: times are ISO 8601 in UTC ("2026-11-23T05:51:16.123Z"; a
        number of ms since 1970 outside the years 1 to 9999), `keys` an array, `properties` an object. `body_as` is the form
        of the body: "base64", "text" (it must be UTF-8), or "json" (it must be JSON, and becomes a value of the object; its
        line ends become spaces).

        A CSV file follows RFC 4180, in UTF-8: a header with the names of the columns, then a row a message, each ended by
        CRLF. Its cells have the values of JSON Lines: times and numbers are written in the same way, `keys` and
        `properties` as JSON text, the body as `body_as` says, and null as an empty cell. `spreadsheet=True` puts a `'`
        before each cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return, because a spreadsheet may run such
        a cell as a formula; only CSV takes it.

        `import_from` reads these files, except CSV.

        Raises `FileExistsError` if `target` exists, `ValueError` and `TypeError` for an argument and for a body that is not
        what `body_as` says, `ImportError` without pyarrow, `OSError` where the system refuses, and what a `scan`, `rewrite`
        and `progress` raise. No `target` is there then.
        """
    def copy_to(
        self,
        path: str | os.PathLike[str],
        *,
        rename: Mapping[str, str] | None = None,
        keep_store_time: bool = True,
        geometry: Literal["broker"] | Mapping[str, int] | None = None,
        **conditions: Unpack[_Conditions],
    ) -> Copied:
        """Copies messages into a new store at `path`, in the order of the log, and returns an `mqstore.files.Copied` with
        exact counts. A copy can drop topics and deleted messages, rename topics, rebuild the index, and change the sizes of
        files.

        The arguments are those of `scan`, but for what would change messages or their order. `topics` selects topics, all
        by default; `rename` maps names of topics to new ones, to the same one to merge them. Bodies, properties (except
        `__CRC32#`, which is computed again), queue ids, hosts, flags, born times, unique keys and keys are as they were,
        and with `keep_store_time` so are store times; a time that is before that of the message before it is raised to that
        (`Copied.raised`). Queue offsets begin at 0 in each queue, and physical offsets and offset ids are new.
        `prepared_transaction_offset` stays and names a place in the old log. Messages that wait for their delay are copied,
        too, and still name their topic by its old name. No settings of a broker are copied: a broker on the copy delivers
        from the first offset of each delay level and to each group.

        Only what consumers see is copied. A half, rolled-back or deleted message would be in no queue of the copy or come
        back into one, so `transactions="all"` is refused: `export` writes such messages. A broker's own topics of half
        messages and of their ends (`RMQ_SYS_TRANS_HALF_TOPIC`, `RMQ_SYS_TRANS_OP_HALF_TOPIC`) are left out
        (`Copied.left_out`), because one names offsets of the other, which are new: the broker would take open transactions
        for ended ones. End them before you copy.

        `geometry` states the sizes: None for those of this store, "broker", or a mapping of the sizes that `mqstore.open`
        takes by name, with those of a small store for the others. The copy is closed and synced before it is at `path`:
        until then it is in a directory `.mqstore-*.part` beside it, which a killed process leaves there.

        Raises `FileExistsError` if `path` exists, `TypeError` and `ValueError` for an argument and where `rename` gives a
        topic the name of another topic that keeps it, `IllegalMessageError` for a message that no store takes (a batch that
        is stored whole, a message larger than a segment of the copy, and a message whose properties take 32,767 bytes
        without the separator at their end, which brokers before 5.2 leave out), `DiskFullError`, `OSError`, and what a
        `scan` and `progress` raise. No store is at `path` then.
        """
    def _options_of_copy(self) -> dict[str, Any]: ...
    def fetch(
        self,
        batch: _Table,
        *,
        columns: Sequence[str] | None = None,
        max_bytes: int = 4194304,
        errors: _Errors | None = None,
    ) -> Batches:
        """The messages at physical offsets: column `physical_offset` (an integer) in, Batches out, a row for each offset that
        is not null, in order.

        `batch` is anything that speaks Arrow. `columns` names the columns wanted, in order, all by default; `max_bytes` is
        about the most that a batch holds. Raises `TypeError` and `ValueError` as `resolve_offsets`; reading raises
        `NotFoundError` at an offset where no message starts, `CorruptError` at a damaged one, or skips both
        (`errors="skip"`).
        """
    def usage(self, by: _UsageBy | Iterable[_UsageBy] = "topic", *, errors: _Errors | None = None) -> Usage:
        """Counts the messages of the log and their bytes, in one pass over it. `by` names the columns to group by, one or some
        of `topic` (utf8), `queue_id` (int32), `tags` (utf8, null without tags), `hour` (timestamp[us, UTC]: the hour of the
        store time) and `segment` (int64: the physical offset at which a segment of the log starts). A row a group,
        ascending: these columns, then `messages` (int64), `bytes` (int64, of their records), `first_store_time` and
        `last_store_time` (timestamp[us, UTC]). `by=()` counts all in one row.

        Every message of the log counts, also a message that is in no queue: a half message, or a message of a deleted
        topic. A batch that is stored whole counts as one. Bodies are not checked. Memory is taken for each group, not for
        each message. `errors`, "raise" or "skip", says what to do at damage; by default as in `open`. With "skip" the pass
        continues at the next whole message, and `unread` of the answer has the stretches that could not be counted.
        Messages that recovery="salvage" has found lost are in `unread`, too. Raises `ValueError` for a name in `by` that is
        not one of these or is repeated, `CorruptError` as `errors` says.
        """
    def verify(
        self,
        deep: bool = True,
        progress: Callable[[int, int], object] | None = None,
        max_mb_per_s: float | None = None,
    ) -> VerifyReport:
        """Compares log, queues, index, checkpoint and settings with each other and with the format, in one pass over the log.
        Changes nothing, takes no lock, and keeps a bounded part of the store in memory. It compares the store as it is now,
        also if a writer has changed it since this store was opened. Beside a live writer of another process it covers the
        log up to its end when the call began.

        With `deep=False` bodies are not compared with their checksums, and links of the index are not followed. `progress`
        is called with two ints: how many bytes of the log are done, and of how many. `max_mb_per_s` bounds the reading, in
        10**6 bytes a second, which one thread does then. Otherwise the log is read by as many threads as the environment
        variable `OMP_NUM_THREADS` says, or as the process may run at once, 16 at most. Damage is a finding and raises
        nothing. Raises `TypeError` and `ValueError` for an argument, `OSError` for a file that cannot be read,
        `CorruptError` for a file that is cut during the call, and what `progress` raises.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Writer(Store):
    """A message store that is open for writing: `mqstore.open(path, "a")` makes one. A context manager.

    It reads as a `Store` does. A read sees every append that returned before it: it waits the moment until what was
    appended is in its queue, a sync included. With `SYNC_FLUSH` a message is read once it is durable: after `append` with
    `durable=False` that is a moment later, or after `wait_durable`. A read waits no longer than 100 ms for queue files that
    cannot be written, and then answers with what is there and warns (`RuntimeWarning`).

    Close it (or use `with`): what it appended is then durable, and the next writer opens the store. A `Writer`, and what it
    returned (topics, queues, slices), is not pickled: that raises `TypeError`. In a fork its calls raise `ClosedError`: the
    child opens the store for itself, with mode "r".

    Once a write or sync has failed, calls that write raise `PoisonedError`.
    """
    def __new__(cls, *_arguments: object, **_options: object) -> Writer: ...
    def append(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: _Properties | None = None,
        queue_id: int = 0,
        delay_level: int = 0,
        unique_key: str | None = None,
        born_time: _Time | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        durable: bool | None = None,
    ) -> AppendResult:
        """Appends one message and returns its `AppendResult`. It survives the process from now on, and a power cut once it is
        durable. Where appended messages wait in memory (`transient_store_pool_enable`, `SYNC_FLUSH`) it survives the
        process once `committed_offset` is past it.

        With `durable=True` it is durable when the call returns; calls that wait at the same time share a sync. With
        `durable=False` it becomes so a while later, as `flush_commit_log_thorough_interval` says (with `SYNC_FLUSH` it is
        synced at once), or when `flush` or `wait_durable` returns. By default the store's `flush_disk_type` decides; with
        `SYNC_FLUSH` a message whose property WAIT is not "true" is not waited for. `status` of the result is
        `FLUSH_DISK_TIMEOUT` for a message that is stored and was not durable when `sync_flush_timeout` was over.

        `topic` is 1 to 255 bytes of UTF-8, without a slash or control character; more than 127 make a record at which
        brokers before 5.1 end their log. `body` is bytes, or a buffer of bytes (which is copied first). `tags` is one tag,
        stored as it is: "paid || refund" is an expression for `get`, and no expression matches such a tag. `keys` is a key
        or an iterable of them; a key holds no space. `properties` maps str to str (or is an iterable of pairs) and holds
        every property, TAGS, KEYS and DELAY included; an argument wins over the property of the same name, and a
        `unique_key` (`UNIQ_KEY`) is stored only if it is given; `mqstore.new_unique_key` makes one. `queue_id` is the
        queue's id, 0 to 65,535. `delay_level` of 1 or more sends the message to that level's queue (a level above the last
        one counts as the last), for a broker to deliver; `AppendResult` has its place there. `born_time` is a datetime with
        a timezone or an int of ms since 1970, now by default; hosts are "ip:port", an IPv6 address in brackets, 127.0.0.1:0
        by default. `sys_flag` is RocketMQ's bit field (a compressed body, a transaction's type); its two address bits
        follow the hosts.

        Raises `IllegalMessageError` (a `ValueError`), `ClosedError`, `PoisonedError`, `DiskFullError`, `BusyError`: nothing
        was stored; `status` has RocketMQ's word for it. If that is `FLUSH_DISK_TIMEOUT`, the message was stored and could
        not be made durable; it may be there after a reopen or not. Ctrl-C may leave it stored, too. `stored` of the
        exception is then 1, and 0 otherwise.
        """
    def append_nowait(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: _Properties | None = None,
        queue_id: int = 0,
        delay_level: int = 0,
        unique_key: str | None = None,
        born_time: _Time | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        durable: bool | None = None,
    ) -> Future[AppendResult]:
        """Appends a message as `append` does, without a wait until it is durable, and returns a `concurrent.futures.Future` of
        the `AppendResult`.

        The message is stored when the call returns. The future is done when `append` with the same arguments would have
        returned: at once where that does not wait, otherwise when the message is durable, or, with status
        `FLUSH_DISK_TIMEOUT`, when `sync_flush_timeout` is over. Thousands of messages may be in flight, and one sync is for
        all that are there. A thread of the store completes the futures in the order of the calls, and runs their callbacks.
        `close` completes all of them. `cancel` of such a future is False: the message stays. A future costs more than the
        append: where one caller has many messages, `append` for each and one `wait_durable` for the last takes a tenth of
        the time.

        What says that nothing was stored is raised by the call, as by `append`; so is `RuntimeError` if no thread can be
        started. The future raises `PoisonedError`, or `ClosedError` where the close failed, for a message that was stored
        and could not be made durable; `status` is then `FLUSH_DISK_TIMEOUT`, and `stored` 1. In a fork of the process no
        future is completed.
        """
    def append_batch(
        self,
        rows: Iterable[_Row] | _Table,
        topic: str | None = None,
        queue_id: int | None = None,
        *,
        one_segment: bool = False,
        durable: bool | None = None,
    ) -> Offsets:
        """Append messages in order in one call; gives their physical offsets, a row each, as `Offsets`, which `fetch` takes as
        a column `physical_offset`.

        `rows` is an iterable or speaks Arrow (a table, frame or batch of pyarrow, polars, duckdb, pandas; a slice of a
        queue). Items are bodies for `topic` (bytes or buffers of bytes), tuples (topic, body, tags, keys, properties,
        `queue_id`; the last four may be left out), dicts of a message's fields (`Message.to_dict` gives one), or
        `Message`s. Columns and fields: `body` (binary or utf8; required), `topic`, `tags`, `unique_key` (utf8), `keys`
        (list of utf8), `properties` (map of utf8, list of pairs, or struct), `queue_id`, `delay_level`, `flag`, `sys_flag`,
        `reconsume_times`, `prepared_transaction_offset` (integers), `born_time` (timestamp with a timezone, or ms),
        `born_host`, `store_host` (utf8). A store assigns `queue_offset`, `physical_offset`, `store_size`, `store_time` and
        `message_id` itself. A column that is null in every row may have any type, and pandas' own labels are passed over.
        `topic` and `queue_id` are those of rows that name none; a tuple keeps its own. A `Message`, a dict and a row of a
        table stay in their topic, whatever DELAY is among the properties, unless `delay_level` is 1 or more.

        `durable` is as in `append`, for all rows at once; if one row is waited for, all are. Rows that are not durable in
        time raise `WaitTimeoutError`, whose `offsets` has all of them: they are stored.

        Every row is checked before the first byte is written. Raises as `append`; an error about a row names its position,
        and nothing was stored. Raises `ValueError` for columns of other names or types, text that is no UTF-8, and a
        column, dict or `Message` that contradicts `topic` or `queue_id`. Where it fails midway, `stored` of the exception
        says how many rows, from the first, were stored, and `offsets` where. This also holds for what a signal handler
        raises, such as `KeyboardInterrupt`.

        With `one_segment` the rows are stored together, as a broker stores a producer's batch: all of them or none, one
        after the other in one segment of the log, in one hold of the lock, while other appends wait. Rows that need more
        than a segment raise `ValueError`. A crash before the call returns, and a power cut before they are durable, may
        keep a first part of them all the same.
        """
    def _check_batch(self, rows: _Table, topic: str | None = None) -> None: ...
    def append_producer_batch(
        self,
        topic: str,
        body: Buffer,
        *,
        properties: _Properties | None = None,
        queue_id: int = 0,
        born_time: _Time | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        sys_flag: int = 0,
        durable: bool | None = None,
    ) -> Offsets:
        """Append a batch as a producer sends it, each of its messages as a record of its own; gives their physical offsets as
        `Offsets`.

        `body` is the body of the producer's request (RocketMQ's `MessageDecoder.encodeMessages` makes it): body, flag and
        properties of each message. What they share is given as in `append`. `properties` are those of the batch itself,
        which brokers up to 5.3.3 store after a message's own, and later ones not at all. The messages are stored as
        `append_batch` stores rows with `one_segment`. A broker's limits hold: no transaction, no delay, and
        `max_message_size` for the whole `body`. `durable` and what is raised are as in `append_batch`.
        """
    def flush(self) -> int:
        """Make everything appended so far durable; gives the physical offset up to which the log then is.

        Raises `PoisonedError` if the device refuses: what is not durable by then is lost.
        """
    @property
    def flushed_offset(self) -> int:
        """Physical offset below which the log survives a power cut."""
    @property
    def committed_offset(self) -> int:
        """Physical offset below which the log survives the death of the process: what is appended after it waits in the
        transient store pool, which a store with `SYNC_FLUSH` always has.
        """
    @property
    def dispatched_offset(self) -> int:
        """Physical offset below which messages are in their queues and in the index."""
    def commit(self) -> None:
        """Writes what waits in the transient store pool to the log: the death of the process does not lose it then. Does
        nothing without a pool.

        Raises `PoisonedError`, `ClosedError`, `DiskFullError`, and `StoreIOError` for what the system refuses.
        """
    def stats(self) -> StoreStats:
        """Returns the counters since the open: puts and bytes by topic, slow puts, syncs, segments."""
    def wait_durable(self, offset: AppendResult | int | None = None, timeout: float | timedelta | None = None) -> None:
        """Waits until the message at a physical offset is durable, by default until everything appended so far is. The store
        syncs it at once.

        `offset` is an int, or the `AppendResult` of the message. `timeout` is in seconds, or a timedelta. Raises
        `ValueError` for an offset at which nothing was appended, `WaitTimeoutError` (a `TimeoutError`) when the time is up,
        `PoisonedError` or `ClosedError` if the message can no longer become durable.
        """
    def _durable(self, offset: AppendResult | int | None = None) -> tuple[int, Future[bool]]: ...
    def _in_loops(self, running_loop: Callable[[], AbstractEventLoop]) -> Any: ...
    def wait_dispatched(self, offset: AppendResult | int | None = None, timeout: float | timedelta | None = None) -> None:
        """Waits until the message at a physical offset is in its queue and in the index, by default until everything appended
        so far is. Reads of this store wait for that themselves. The arguments and what is raised are those of
        `wait_durable`.
        """
    def import_from(
        self,
        source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        format: Literal["parquet", "arrow", "jsonl"] | None = None,
        topic: str | None = None,
        body_as: _BodyAs = "base64",
        progress: Callable[[int, int], object] | None = None,
    ) -> Imported:
        """Appends the messages of files that `export` wrote. Returns an `mqstore.files.Imported` with exact counts.

        `source` is a file, a directory with files below it (in the order of their names; a folder `topic=...` names the
        topic of its files), or several of these. `format` is as in `export`, but CSV is not read; so is `body_as`: with
        "json" a body is the value as it is written. Other tables with columns as `append_batch` takes them are read as
        well. `topic` is that of rows that name none. `progress` is called with the files that are done, and how many there
        are.

        Every field that a caller of `append` can set is as it was. Offsets, store time and offset id are new; `copy_to`
        keeps store times.

        Files are read and appended a batch at a time. Where that fails, `stored` of the exception says how many rows were
        stored. Raises `FileNotFoundError` for a file that is missing and for a directory without files of a format,
        `ValueError` for a malformed line and for columns of other names or types, `ImportError` without pyarrow, and what
        `append_batch` and `progress` raise.
        """
    def _copy_from(
        self, batches: Batches, rename: dict[str, str], keep_store_time: bool
    ) -> tuple[dict[str, int], int, dict[str, int], int]: ...

@final
class Recipe:
    """What opens a reader again, in another process or later. A pickle holds it in place of an open store. It is one object
    for a store and everything that came from it, so that a pickle of several of them opens the store once.
    """

@final
class AppendResult:
    """What became of a message that was stored. Two that tell the same are equal."""
    @property
    def status(self) -> Literal["PUT_OK", "FLUSH_DISK_TIMEOUT"]:
        """RocketMQ's word for it: `PUT_OK`, or `FLUSH_DISK_TIMEOUT` for a message that was not durable yet when
        `sync_flush_timeout` was over. What is not stored raises instead.
        """
    @property
    def physical_offset(self) -> int:
        """The physical offset of its record in the commit log, in bytes."""
    @property
    def queue_offset(self) -> int:
        """Its number in its queue, from 0; 0 for a message that takes none: a prepared or rolled-back one."""
    @property
    def wrote_bytes(self) -> int:
        """Bytes of its record."""
    @property
    def store_time(self) -> datetime:
        """When it was stored, in UTC, to the ms; never earlier than that of the message before."""
    @property
    def message_id(self) -> str:
        """The offset id: store host and physical offset as 32 (IPv4) or 56 (IPv6) hex digits in capitals."""
    def _late(self) -> AppendResult: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Offsets(Sequence[int]):
    """The physical offsets of messages that were stored, a row each: a sequence of int, a read-only buffer of int64 and an
    Arrow array. Equal to another one, or a list, that holds the same.
    """
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> memoryview[int]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[CapsuleType, CapsuleType]: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Topics(Mapping[str, Topic]):
    """The topics of a store by name, ascending: a mapping of str to Topic.

    Where the queues are a RocksDB database the names come from walking the log. Any use raises `ClosedError` once the store
    is closed.
    """
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, name: str, /) -> Topic: ...
    @overload
    def get(self, key: str, default: None = None, /) -> Topic | None:
        """The topic of that name, or `default`."""
    @overload
    def get(self, key: str, default: Topic | _T, /) -> Topic | _T: ...

class Tabular:
    """Messages that turn into a table, with the columns of a message. `batches` reads them in batches of bounded size; polars,
    duckdb and pyarrow take the object as it is (`polars.DataFrame(queue[:])`), in such batches.

    `pandas.DataFrame(...)` does not look for Arrow: `to_pandas` makes a frame, and so does `pandas.DataFrame.from_arrow`.
    """

    def to_arrow(self, columns: Sequence[str] | None = None) -> _PyArrowTable:
        """A pyarrow.Table of everything.

        `columns` names the columns wanted, in order, all by default. Raises `ImportError` without pyarrow, `ValueError` for
        a column that a message does not have, and what reading the messages raises.
        """

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """A polars.DataFrame of everything.

        `columns` as in `to_arrow`. Raises `ImportError` without polars, and what `to_arrow` raises.
        """

    def to_pandas(self, columns: Sequence[str] | None = None) -> _PandasDataFrame:
        """A pandas.DataFrame of everything.

        `columns` as in `to_arrow`. Raises `ImportError` without pandas or pyarrow, and what `to_arrow` raises.
        """

    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType: ...
    def __array__(self, *_arguments: object, **_keywords: object) -> NoReturn:
        """Raises TypeError: NumPy, and pandas.DataFrame through it, would make one column of objects."""

@final
class Topic(Tabular, Collection[Message]):
    """One topic of a store, a collection of its messages.

    Iteration yields the messages queue by queue, in the order of their ids, and treats damage as iteration of a `Queue`
    does. `len(topic)` is the sum of the lengths of its queues. A topic without messages is therefore false: `name in
    store.topics` tests whether it exists.
    """
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def queues(self) -> Queues:
        """Its queues by id: a sequence of Queue.

        Raises `UnsupportedFormatError` where the queues are a RocksDB database or the topic's is a batch consume queue:
        `message_at`, `message` and `query` of the store work there.
        """
    @property
    def queue_ids(self) -> list[int]:
        """The ids of the queues that are there, ascending: list of int. `queues` spans every id up to the highest.

        Raises `UnsupportedFormatError` as `queues` does.
        """
    def batches(
        self, columns: Sequence[str] | None = None, max_bytes: int = 4194304, *, errors: _Errors | None = None
    ) -> Batches:
        """The messages that it has now as Arrow record batches, one queue after the other, by id.

        `columns`, `max_bytes` and `errors` as in `QueueSlice.batches`. Raises `UnsupportedFormatError` as `queues` does.
        """
    def __contains__(self, value: object, /) -> bool: ...
    def __iter__(self) -> MessageIterator: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __len__(self) -> int: ...

@final
class Queues(Sequence[Queue]):
    """The queues of a topic, a sequence of Queue: `queues[n]` is the queue with id n. An id that has no files is an empty
    queue.
    """
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Queue: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Queue]: ...

@final
class Queue(Tabular, Reversible[Message], Collection[Message]):
    """One queue of a topic: a sequence of messages by queue offset.

    `queue[n]` is the message with queue offset n, a negative n counts from `max_offset`; `queue[a:b]` is a `QueueSlice`,
    clipped to the queue, with queue offsets, too, so that it is empty where those messages have expired
    (`queue[queue.min_offset:][a:b]` counts from the first that is left); `len(queue)` is `max_offset - min_offset`.
    Iteration starts at `min_offset` and passes over messages that the log no longer holds; at one that was lost or is
    damaged it raises `CorruptError`, or, in a store opened with `errors="skip"`, passes over it and counts it
    (`iter(queue).skipped`). The bounds are those of when the store was opened, but `min_offset` rises when a read finds
    that a broker has removed the oldest files since. A queue file that is removed under a reader takes its entries along,
    as with a broker, also where the log still holds the messages; in a store that mqstore wrote, the next open makes them
    again from the log. Any use raises `ClosedError` once the store is closed, and `UnsupportedFormatError` where the queues
    are not files of this format (RocksDB, batch consume queues).
    """
    @property
    def topic(self) -> str:
        """The topic's name."""
    @property
    def queue_id(self) -> int:
        """The queue's id within the topic, from 0."""
    @property
    def min_offset(self) -> int:
        """Queue offset of the first message."""
    @property
    def max_offset(self) -> int:
        """Queue offset of the message that comes next: one more than the last one's."""
    def offset_at(self, time: _Time, side: Literal["left", "right"] = "left") -> int:
        """Queue offset of the first message stored at or after `time` (side="left") or after it (side="right"); `max_offset`
        if there is none. Messages that expired or were lost are passed over, and with `open(errors="skip")` damaged ones,
        too. Where the writer's clock was set back, several messages of the time follow an earlier one: the answer is the
        first that the search sees, and a short stretch of such messages further back can be missed. `query` with `since`
        and `until` misses none.

        `time` is a datetime with a timezone, or an int of ms since 1970. Raises `ValueError` for a datetime without one and
        for another side.
        """
    def batches(
        self, columns: Sequence[str] | None = None, max_bytes: int = 4194304, *, errors: _Errors | None = None
    ) -> Batches:
        """The messages that it has now as Arrow record batches: as `queue[:].batches`."""
    def tail(
        self,
        timeout: float | timedelta | None = None,
        *,
        start: Literal["earliest", "latest"] | int = "latest",
        since: _Time | None = None,
        until: _Time | None = None,
        tags: str | None = None,
        errors: _Errors | None = None,
        on_missing: Literal["earliest", "latest"] | None = None,
    ) -> MessageIterator:
        """The messages of the queue as they come: an iterator that waits for more, as `Store.follow`.

        `start` is "latest" (the messages that come from now on, the default), "earliest" (those that are there, too), or a
        queue offset. `since`, `until`, `timeout`, `tags`, `errors` and `on_missing`, and which queue offsets may be given,
        as in `Store.follow`.

        Raises `NotFoundError`, which names the bounds, for a queue offset outside of the queue, and `TypeError` and
        `ValueError` for other arguments; the iteration raises `NotFoundError` if the queue begins again, because its topic
        was deleted, and `CorruptError` as `Store.follow`.
        """
    def index(self, value: object, start: int = 0, stop: int = 9223372036854775807, /) -> int:
        """The queue offset of a message of this queue, if it lies between `start` and `stop`.

        Raises `ValueError` if it is not there.
        """
    def count(self, value: object, /) -> int:
        """Returns the number of times that the message is in this queue: 1 or 0."""
    def __contains__(self, value: object, /) -> bool: ...
    def __iter__(self) -> MessageIterator: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __reversed__(self) -> MessageIterator: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Message: ...
    @overload
    def __getitem__(self, index: slice, /) -> QueueSlice: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class QueueSlice(Tabular, Reversible[Message], Collection[Message]):
    """Consecutive messages of a queue, read when they are asked for.

    An index counts from the slice's start, so `s[0]` is the message with queue offset `s.start`; it raises `NotFoundError`
    where the log no longer holds the message, and iteration passes over it. `s[a:b]` is a smaller `QueueSlice`.
    """
    @property
    def start(self) -> int:
        """Queue offset of the first message."""
    @property
    def stop(self) -> int:
        """Queue offset after the last message."""
    def batches(
        self, columns: Sequence[str] | None = None, max_bytes: int = 4194304, *, errors: _Errors | None = None
    ) -> Batches:
        """The messages as Arrow record batches, read when they are asked for.

        `columns` names the columns wanted, in order, all by default; `max_bytes` is about the most that a batch holds;
        `errors` says what to do at a message that was lost or is damaged: "raise" or "skip", by default as the store was
        opened. Raises `ValueError` for a column that a message does not have.
        """
    def index(self, value: object, start: int = 0, stop: int = 9223372036854775807, /) -> int:
        """The index in this slice of a message, if it lies between the indexes `start` and `stop`.

        Raises `ValueError` if it is not there.
        """
    def count(self, value: object, /) -> int:
        """Returns the number of times that the message is in this slice: 1 or 0."""
    def __contains__(self, value: object, /) -> bool: ...
    def __iter__(self) -> MessageIterator: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __reversed__(self) -> MessageIterator: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Message: ...
    @overload
    def __getitem__(self, index: slice, /) -> QueueSlice: ...

@final
class MessageIterator(Iterator[Message]):
    """Messages one by one: `iter` of a topic, a queue, a slice of one or the answer to a query.

    It reads blocks of messages and releases the interpreter for that, so other threads run. `Store.follow` and `Queue.tail`
    return an iterator that waits for more messages; it may be asked again after it has ended at its timeout. `async for`
    reads it without blocking the event loop.
    """
    @property
    def skipped(self) -> int:
        """How many messages were skipped, because they were lost or are damaged, among those that were read so far; a few
        messages are read ahead. Always 0 in a store that was opened with `errors="raise"`.
        """
    def _is_due(self, waited: timedelta) -> bool: ...
    def _look(self, waited: timedelta) -> bool | None: ...
    def _take(self) -> Message | None: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __next__(self) -> Message: ...

@final
class GetResult(Tabular, Reversible[Message], Collection[Message]):
    """The answer to `Store.get`: a sequence of Message, with what a consumer needs to go on."""
    @property
    def status(self) -> _Status:
        """How it ended, in RocketMQ's words: FOUND, `NO_MATCHED_MESSAGE`, `MESSAGE_WAS_REMOVING`, `OFFSET_FOUND_NULL`,
        `OFFSET_OVERFLOW_BADLY`, `OFFSET_OVERFLOW_ONE`, `OFFSET_TOO_SMALL` or `NO_MESSAGE_IN_QUEUE`.
        """
    @property
    def next_begin_offset(self) -> int:
        """The queue offset to ask for next."""
    @property
    def min_offset(self) -> int:
        """The queue's first offset."""
    @property
    def max_offset(self) -> int:
        """The queue's next offset: one more than its last."""
    @property
    def messages(self) -> list[Message]:
        """The messages in queue order, as a new list of Message."""
    @property
    def suggest_pulling_from_slave(self) -> bool:
        """Whether the messages lie so far from the log's end that memory is assumed not to hold them."""
    @property
    def skipped(self) -> int:
        """How many messages were passed over because they were lost or are damaged: always 0 with `errors="raise"`."""
    def batches(self, columns: Sequence[str] | None = None, max_bytes: int = 4194304) -> Batches:
        """Returns its messages as Arrow record batches. They were read already, so a closed store does not matter.

        `columns` and `max_bytes` as in `QueueSlice.batches`.
        """
    def index(self, value: object, start: int = 0, stop: int = 9223372036854775807, /) -> int:
        """Returns the index of a message. Raises `ValueError` if it is not there."""
    def count(self, value: object, /) -> int:
        """Returns how often a message is in it."""
    def __contains__(self, value: object, /) -> bool: ...
    def __iter__(self) -> Iterator[Message]: ...
    def __reversed__(self) -> Iterator[Message]: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Message: ...
    @overload
    def __getitem__(self, index: slice, /) -> tuple[Message, ...]: ...

@final
class QueryResult(Tabular, Reversible[Message], Collection[Message]):
    """The answer to `Store.query`: a sequence of Message, ascending by physical offset, and how much of the log it covers. It
    holds where each message is stored, 24 bytes, and reads a message when it is asked for: the store must be open then.

    The query has checked each message. One that has expired, was damaged or gave way to another one since raises
    `NotFoundError` or `CorruptError` when it is read; with `errors="skip"` a read of several passes over it, and `skipped`
    and `complete` then take account of it. An answer pickles as its store does; the messages of another store at that path
    count as gone.
    """
    @property
    def complete(self) -> bool:
        """Whether these are all messages that match. False if the limit left messages out (`covers[0]` then says where it
        starts), if a message that could match was passed over (`skipped`) or its segment was removed meanwhile, and if
        `Store.recovery` is not complete.
        """
    @property
    def covers(self) -> tuple[int, int]:
        """The physical offsets (begin, end) that were looked at, end exclusive: down from the log's end, until the limit was
        reached. Every message there that matches is in the answer, unless it was passed over.
        """
    @property
    def skipped(self) -> int:
        """How many places of the log were passed over, because a message that could match was lost there, or, with
        `errors="skip"`, is damaged there; with those of the messages that reads of the answer have passed over so far.
        """
    def batches(self, columns: Sequence[str] | None = None, max_bytes: int = 4194304) -> Batches:
        """Returns its messages as Arrow record batches, read when they are asked for.

        `columns` and `max_bytes` as in `QueueSlice.batches`.
        """
    def index(self, value: object, start: int = 0, stop: int = 9223372036854775807, /) -> int:
        """The index in this answer of a message, if it lies between the indexes `start` and `stop`.

        Raises `ValueError` if it is not there.
        """
    def count(self, value: object, /) -> int:
        """Returns the number of times that the message is in this answer: 1 or 0."""
    def __contains__(self, value: object, /) -> bool: ...
    def __iter__(self) -> MessageIterator: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __reversed__(self) -> MessageIterator: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Message: ...
    @overload
    def __getitem__(self, index: slice, /) -> tuple[Message, ...]: ...

@final
class Message:
    """One message as it is stored: a frozen view of its record, which stays readable after the store is closed.

    A store gives it; `Message(topic, body, ...)` makes one for a test. Two messages are equal if their records are, byte
    for byte. A message pickles by value. Text that is not UTF-8 reads with U+FFFD in it. Every attribute raises
    `CorruptError` if the device fails to deliver the bytes, or the file was shortened meanwhile.
    """
    def __new__(
        cls,
        topic: str,
        body: Buffer | None = None,
        *,
        queue_id: int = 0,
        queue_offset: int = 0,
        physical_offset: int = 0,
        store_time: _Time | None = None,
        born_time: _Time | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: _Properties | None = None,
        unique_key: str | None = None,
        delay_level: int = 0,
        sys_flag: int = 0,
        flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        born_host: str | None = None,
        store_host: str | None = None,
    ) -> Message: ...
    @property
    def topic(self) -> str:
        """The topic it was written to."""
    @property
    def queue_id(self) -> int:
        """The queue of that topic."""
    @property
    def queue_offset(self) -> int:
        """Its number in the queue, from 0."""
    @property
    def physical_offset(self) -> int:
        """The physical offset of its record in the commit log, in bytes."""
    @property
    def store_size(self) -> int:
        """Bytes of its record."""
    @property
    def store_time(self) -> datetime:
        """When the broker stored it, in UTC, to the ms.

        Raises `OverflowError` outside the years 1 to 9999.
        """
    @property
    def born_time(self) -> datetime:
        """When its producer made it, in UTC, to the ms.

        Raises `OverflowError` outside the years 1 to 9999.
        """
    @property
    def message_id(self) -> str:
        """The offset id: store host and physical offset as 32 (IPv4) or 56 (IPv6) hex digits in capitals."""
    @property
    def unique_key(self) -> str | None:
        """The id that its producer gave it (property `UNIQ_KEY`), or None."""
    @property
    def tags(self) -> str | None:
        """Its tag (property TAGS), or None."""
    @property
    def keys(self) -> list[str]:
        """Its keys (property KEYS, split at spaces), a list of str."""
    @property
    def properties(self) -> dict[str, str]:
        """Every property, TAGS, KEYS and `UNIQ_KEY` among them, as a new dict of str to str."""
    @property
    def body(self) -> bytes:
        """The body as stored (compressed, if its producer compressed it): bytes."""
    @property
    def decoded_body(self) -> bytes:
        """The body, decompressed as `sys_flag` says (zlib, LZ4 or Zstandard): bytes.

        Raises `CorruptError` if it does not decompress, or to more than 1 GiB.
        """
    @property
    def body_view(self) -> memoryview:
        """The body as stored, as a read-only memoryview that copies nothing and keeps the file mapped while it lives."""
    def json(self) -> Any:
        """The decoded body as JSON: what `json.loads` returns for it.

        Raises `ValueError` (a `json.JSONDecodeError`, a `UnicodeDecodeError`) for a body that is no JSON, and what
        `decoded_body` raises.
        """
    @property
    def body_crc(self) -> int:
        """The CRC-32 of the body as the record states it, an int of 31 bits; a read has compared it with the body."""
    @property
    def raw(self) -> bytes:
        """The whole record as it stands in the commit log: bytes."""
    @property
    def version(self) -> Literal[1, 2]:
        """The form of the record: 1, or 2 for a topic of more than 127 bytes."""
    @property
    def transaction(self) -> Literal["prepared", "commit", "rollback"] | None:
        """Its part in a transaction: "prepared", "commit", "rollback", or None."""
    @property
    def compression(self) -> Literal["zlib", "lz4", "zstd"] | None:
        """How `decoded_body` decompresses it: "zlib", "lz4", "zstd", or None.

        Raises `ValueError` for a kind of compression that RocketMQ does not have.
        """
    @property
    def delay_level(self) -> int:
        """The level by which its producer delayed it (property DELAY): an int from 1; 0 for none."""
    def to_dict(self) -> dict[str, Any]:
        """Every column of a message by its name, in the order of the schema: a dict of this object's attributes."""
    @property
    def sys_flag(self) -> int:
        """RocketMQ's bit field: 0x1 compressed, 0xC transaction type, 0x10 and 0x20 IPv6 hosts, 0x700 compression."""
    @property
    def flag(self) -> int:
        """The producer's own number."""
    @property
    def reconsume_times(self) -> int:
        """The number of times that a consumer sent it back."""
    @property
    def prepared_transaction_offset(self) -> int:
        """Physical offset of the half message that a transaction message commits, else 0."""
    @property
    def born_host(self) -> str:
        """The producer's address: "ip:port", an IPv6 one in brackets."""
    @property
    def store_host(self) -> str:
        """The broker's address: "ip:port", an IPv6 one in brackets."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@disjoint_base
class RecordBatch:
    """One Arrow record batch. Hand it to pyarrow, polars, duckdb or pandas as it is, or call one of the `to_` methods.

    No other package is needed to read its rows. Iteration yields a named tuple for each, with a field for each column
    (`row.topic`, `row[0]`, `row._asdict()`); `to_pylist` returns dicts; `repr` shows the first rows as a table. A null
    reads as None, a time as a datetime in UTC, a list as a list, and a struct or a map as a dict. A time outside the years
    1 to 9999 raises `OverflowError`.
    """
    @property
    def column_names(self) -> list[str]:
        """The names of its columns, a list of str."""
    def to_arrow(self) -> _PyArrowRecordBatch:
        """A pyarrow.RecordBatch with the same memory.

        Raises `ImportError` without pyarrow.
        """
    def to_polars(self) -> polars.DataFrame:
        """A polars.DataFrame.

        Raises `ImportError` without polars.
        """
    def to_pandas(self) -> _PandasDataFrame:
        """A pandas.DataFrame.

        Raises `ImportError` without pandas or pyarrow.
        """
    def to_pylist(self) -> list[dict[str, Any]]:
        """Returns the rows as a list of dicts by column name."""
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[CapsuleType, CapsuleType]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType: ...

@final
class Usage(RecordBatch):
    """What `Store.usage` counted, a `RecordBatch`, and what it could not count."""
    @property
    def complete(self) -> bool:
        """Whether every message of the log was counted: nothing is `unread`."""
    @property
    def covers(self) -> tuple[int, int]:
        """The physical offsets that were read: the first byte, and the byte after the last."""
    @property
    def unread(self) -> list[tuple[int, int]]:
        """The stretches of the log in which messages were lost, are damaged, or are gone with their segment, as pairs of
        physical offsets: the first byte, and the byte after the last. The counts lack what stood there.
        """

@final
class Batches:
    """Messages as Arrow record batches, read when they are asked for; it can be read any number of times, from the start each
    time.

    Iterating gives `RecordBatch` objects of about `max_bytes` at most (a larger message has one for itself). Hand it to
    pyarrow, polars or duckdb as it is, or call one of the `to_` methods. Raises `ClosedError` once the store is closed, and
    from a batch what reading its messages raises (through `__arrow_c_stream__` the consumer raises its own error with the
    same text). An iterator that has raised `CorruptError` or `NotFoundError` gives the messages after that one when it is
    asked again.
    """
    @property
    def absent_topics(self) -> list[str]:
        """Topics that were asked for by name and have neither a queue nor a message in the latest pass so far: a new list of
        str. The store does not know them, or they were deleted and their messages have expired.
        """
    @property
    def complete(self) -> bool:
        """Whether the latest pass has given all there is: it came to its end before a `limit`, no message was skipped or
        raised an error, none expired meanwhile, and the open found no sign of messages that are missing. False before the
        first pass.
        """
    @property
    def covers(self) -> tuple[int, int] | None:
        """The physical offsets that the latest pass looks at, from the first up to the second; None before the first pass, and
        for messages that are held in memory.
        """
    @property
    def skipped(self) -> int:
        """How many messages the latest pass has skipped so far, because they were lost or are damaged: always 0 with
        `errors="raise"`. A pass along the log counts a missing or damaged stretch as the messages to which the queues lead
        there, and as one if none does. Messages that the log no longer holds, and that a queue still counts, are not among
        them.
        """
    def to_arrow(self) -> _PyArrowTable:
        """A pyarrow.Table of everything.

        Raises `ImportError` without pyarrow, and what reading the messages raises.
        """
    def to_polars(self) -> polars.DataFrame:
        """A polars.DataFrame of everything.

        Raises `ImportError` without polars, and what reading the messages raises.
        """
    def to_pandas(self) -> _PandasDataFrame:
        """A pandas.DataFrame of everything.

        Raises `ImportError` without pandas or pyarrow, and what reading the messages raises.
        """
    def __iter__(self) -> Iterator[RecordBatch]: ...
    def __aiter__(self) -> AsyncIterator[RecordBatch]: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType: ...

@final
class _Flushed:
    def wait(self, physical_offset: int, timeout: float) -> int: ...

def _append_result(
    status: str, physical_offset: int, queue_offset: int, wrote_bytes: int, store_time: int, message_id: str
) -> AppendResult: ...
def _landmarks(store: Store) -> list[tuple[int, int]]: ...
def _checksums(store: Store, offsets: list[int]) -> list[int | None]: ...
def _flushed_mark(store: Store) -> int | None: ...
def _offsets(values: list[int]) -> Offsets: ...
def _open_after(
    waited: timedelta,
    path: _Path,
    mode: str = "r",
    config: StoreConfig | None = None,
    **options: Unpack[Options],
) -> Store | None: ...
def _message(record: bytes) -> Message: ...
def _expect_outside(path: str | os.PathLike[str]) -> None: ...
def _json_lines(rows: _Table, body_as: str) -> bytes: ...
def _named_json_lines(rows: _Table, body_as: str) -> tuple[list[str], bytes]: ...
def _no_messages(columns: Sequence[str] | None = None) -> RecordBatch: ...
def _check_options(**options: Any) -> None: ...
def _rocketmq_options() -> dict[str, str]: ...
def _reopen(path: str, options: dict[str, Any]) -> Store: ...
def _stop_clock(time: _Time | None) -> None: ...
def _topics(store: Store | Recipe, /) -> Topics: ...
def _part(
    store: Store | Recipe,
    topic: str | None = None,
    queue_id: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    /,
) -> Store | Topic | Queue | QueueSlice: ...
def _get_result(status: str, offsets: tuple[int, int, int], rest: tuple[bool, int, tuple[Message, ...]]) -> GetResult: ...
def _query_result(
    store: Store | Recipe,
    coverage: tuple[bool, tuple[int, int], int],
    found: tuple[str, bool, list[tuple[int, int, int, int]]],
) -> QueryResult: ...
