import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Self, Unpack, overload

from typing_extensions import disjoint_base

from mqstore._inspect import BrokerState, Inspect
from mqstore._message import Message, MessageIterator
from mqstore._open import Recipe
from mqstore._reports import RecoveryReport, VerifyReport
from mqstore._results import GetResult, QueryResult
from mqstore._scan import Batches, RecordBatch, Usage
from mqstore._topics import Queue, QueueSlice, Topic, Topics
from mqstore._types import _BodyAs, _Conditions, _Errors, _ExportConditions, _Mode, _Partition, _Table, _Time, _UsageBy
from mqstore.files import Copied, Exported

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
        """The mode of the open: "r", "r+", "a" or "x"."""
    @property
    def closed(self) -> bool:
        """True if the store was closed."""
    def close(self) -> None:
        """Closes the store, after every appended message is in its queue and durable. Messages that were read stay readable;
        calling it again does nothing.

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
        """The findings of this open. Losses of an earlier open are not among them."""
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
        an int of ms since 1970, or None for open. A bound between two ms is rounded up. An int that is a time between 1980
        and 2200 in another unit, such as seconds, is refused. `limit` is the most messages in the answer, the newest ones;
        None, the default, for all. `complete` of the answer says whether these are all that match. The answer holds places
        and reads each message when it is asked for. `errors`, "raise" or "skip", says what to do where a message that could
        match is damaged; by default as in `open`. Where recovery="salvage" has found messages lost, the answer is not
        complete. Where no index serves, the log is walked, and any damage in it counts; the index serves for tags only if
        the store is open with `index_tags=True`. An item of the index has no checksum: where its hash is damaged, its
        message is not found, and `complete` does not show it; `verify` does.

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
        """Resolves queue offsets to places in the log: columns `topic` (utf8), `queue_id` and `queue_offset` (integers) in, a
        `RecordBatch` of `physical_offset` (int64) and `store_size` (int32, bytes) out, a row for a row, null where there is
        no such message, where it was lost, and where its queue entry is damaged; the message itself is not read.

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
        """Resolves keys to messages: columns `topic` and `key` (utf8) in, a `RecordBatch` of one column `hits` out, a row for
        a row: a list of (`queue_id` int32, `queue_offset` int64, `physical_offset` int64, `store_size` int32) by physical
        offset; null if empty.

        `batch` is anything that speaks Arrow. `limit` is the most hits of a row, the newest ones; None for all: a key that
        many messages have takes memory for each of them. `physical` is a pair of physical offsets between which the records
        start, as in `scan`.

        The log is walked where no index serves, once for an open store: up to 256 MiB of its keys stay in memory.

        Raises `TypeError` and `ValueError` for an argument, and if a column is missing or of another type; `CorruptError`
        at a damaged message that may have one of the keys; with `errors="skip"` it leaves such a message out of the hits.
        """
    def refresh(self) -> int:
        """Take up what another process has changed since the store was opened or refreshed: new messages, queues and topics,
        and what was removed. Only what came since is read. Gives by how many bytes the log has grown: 0 if nothing came,
        and always for a store that is open for writing, which is up to date anyway.

        Topics and queues that came from the store show it; an iteration that has begun, a slice and batches keep the end
        that they began with. A message that its writer has not finished is left for a later refresh; so is a message that a
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

        The iteration ends when no message has come for `timeout` (seconds, or a timedelta; None for never), and continues
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
        """Resolves ids to places in the log: column `id` (utf8) in, a `RecordBatch` of `physical_offset` (int64) and
        `store_size` (int32, bytes) out, a row for a row, null where there is no such message. An id is what `message`
        takes: an offset id if a record starts where it points, else the unique key of a message of a topic that has queues;
        the first message with this key counts. A stretch of the log that no index covers is walked.

        `batch` and `errors` are those of `resolve_keys`, and so is what it raises.
        """
    def resolve_times(
        self, batch: _Table, *, side: Literal["left", "right"] = "left", errors: _Errors | None = None
    ) -> RecordBatch:
        """Resolves times to queue offsets: columns `topic` (utf8), `queue_id` (integers) and `time` in, a `RecordBatch` of
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

def _landmarks(store: Store) -> list[tuple[int, int]]: ...
def _checksums(store: Store, offsets: list[int]) -> list[int | None]: ...
def _flushed_mark(store: Store) -> int | None: ...
def _part(
    store: Store | Recipe,
    topic: str | None = None,
    queue_id: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    /,
) -> Store | Topic | Queue | QueueSlice: ...
