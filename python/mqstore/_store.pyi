import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Self, Unpack, overload

from typing_extensions import disjoint_base

from mqstore._consumer import Consumer
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
        """Reads messages of a queue from a queue offset on, as a broker answers a pull.

        Parameters
        ----------
        topic, queue_id, offset : str, int, int
            The queue, and the queue offset of the first message.
        max_messages : int, default 32
            The most messages to return; 0 counts as 1, as in a broker.
        tags : str, optional
            Returns messages with one of these tags: "paid || refund". None: all.
        where : callable, optional
            Returns messages for which it returns a true value; it is called with each `Message`. What it
            raises ends the call.
        bounded : bool, default True
            True: the bounds of a broker hold, at most 32 messages
            (`max_transfer_count_on_message_in_memory`), and bounds on the bytes and the entries examined.
            False: only `max_messages` holds.
        errors : {"raise", "skip"}, optional
            What to do at a message that was lost or is damaged. None: as in `open`.

        Returns
        -------
        GetResult
            The messages, with the `status`, bounds and `next_begin_offset` of a broker's answer.

        Raises
        ------
        UnsupportedFormatError
            The queue is not a file of this format (RocksDB, batch consume queue).
        CorruptError
            A message was lost or is damaged (`errors`).
        ValueError
            `max_messages` is negative.
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
        """Finds the messages of a topic that have a key, or else a tag.

        Parameters
        ----------
        topic : str
            The topic.
        key, tag : str, optional
            A key of the messages, or their unique key; or, in place of it, their tag.
        since, until : datetime with a timezone, or int of ms since 1970, optional
            Bounds of the store time, the first inclusive and the second exclusive. A bound between two ms
            is rounded up. An int that is a time between 1980 and 2200 in another unit, such as seconds, is
            refused.
        limit : int, optional
            The most messages in the answer, the newest ones. None: all.
        errors : {"raise", "skip"}, optional
            What to do where a message that could match is damaged. None: as in `open`.

        Returns
        -------
        QueryResult
            The messages, ascending by physical offset. It holds offsets, and reads each message when it is
            asked for. `complete` says whether these are all that match.

        Raises
        ------
        TypeError
            The call has a key and a tag, or neither.
        ValueError
            A datetime has no timezone, `since` is after `until`, or the tag has `||`.
        CorruptError
            A message that could match is damaged (`errors`).

        Notes
        -----
        Where no index serves, the log is walked, and any damage in it counts; the index serves for tags
        only if the store is open with `index_tags=True`. Where recovery="salvage" has found messages lost,
        the answer is not complete. An item of the index has no checksum: where its hash is damaged, its
        message is not found, and `complete` does not show it; `verify` does. `resolve_keys` finds the
        offsets of the messages of many keys, in a fraction of the time for each.
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
        """Returns the message with an id.

        Parameters
        ----------
        id : str
            An offset id (32 or 56 hex digits), if a record starts where it points, whatever its host; else
            a unique key: the first stored message of any topic with this key counts.
        walk : bool, default False
            True reads the whole log for a unique key that the index does not have, which takes seconds for
            each GiB.

        Returns
        -------
        Message
            The message.

        Raises
        ------
        NotFoundError, CorruptError
            There is no such message in the index (with `walk`: in the log), or it is damaged.
        """
    def message_at(self, physical_offset: int) -> Message:
        """Returns the message whose record starts at this physical offset.

        Raises `NotFoundError` if no record starts there, `CorruptError` if it is damaged.
        """
    def resolve_offsets(self, batch: _Table) -> RecordBatch:
        """Resolves queue offsets to physical offsets and sizes. Reads no message.

        Parameters
        ----------
        batch : a table of Arrow
            A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
            Arrow: columns `topic` (utf8), `queue_id` and `queue_offset` (integers).

        Returns
        -------
        RecordBatch
            A row for a row: `physical_offset` (int64) and `store_size` (int32, bytes), null where there
            is no such message, where it was lost, and where its queue entry is damaged.

        Raises
        ------
        TypeError, ValueError
            `batch` does not speak Arrow, or a column is missing, of another type or malformed.
        UnsupportedFormatError
            As `get`.
        """
    def resolve_keys(
        self,
        batch: _Table,
        *,
        limit: int | None = None,
        physical: tuple[int | None, int | None] | None = None,
        errors: _Errors | None = None,
    ) -> RecordBatch:
        """Resolves keys to messages.

        Parameters
        ----------
        batch : a table of Arrow
            A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
            Arrow: columns `topic` and `key` (utf8).
        limit : int, optional
            The most hits of a row, the newest ones. None: all; a key that many messages have takes
            memory for each of them.
        physical : pair of int or None, optional
            Physical offsets between which the records start, as in `scan`.
        errors : {"raise", "skip"}, optional
            What to do at a damaged message that may have one of the keys. None: as in `open`. "skip"
            leaves it out of the hits.

        Returns
        -------
        RecordBatch
            A row for a row, in one column `hits`: a list of (`queue_id` int32, `queue_offset` int64,
            `physical_offset` int64, `store_size` int32), by physical offset; null if empty.

        Raises
        ------
        TypeError, ValueError
            `batch` does not speak Arrow, a column is missing, of another type or malformed, or another
            argument is not one of those accepted.
        CorruptError
            A message that may have one of the keys is damaged (`errors`).

        Notes
        -----
        The log is walked where no index serves, once for an open store: up to 256 MiB of its keys stay
        in memory.
        """
    def refresh(self) -> int:
        """Takes up what another process has changed since the last open or refresh, reading only the new part: new messages,
        queues and topics, and what was removed. Returns the growth of the log in bytes: 0 if nothing came, and always for a
        writer.

        Topics and queues that came from the store show it; an iteration that has begun, a slice and batches keep the end
        that they began with. A message that its writer has not finished is left for a later refresh; so is a message that a
        writer with `SYNC_FLUSH` has not made durable.

        Raises `CorruptError` if messages that could be read were cut from the log: their writer was killed, and the next
        one has recovered the store. Open it again then. Raises it also for damage that whole messages follow.
        """
    def consumer(
        self,
        topics: str | Iterable[str],
        *,
        positions: str | os.PathLike[str],
        group: str | None = None,
        tags: str | None = None,
        start: Literal["earliest", "latest"] | Mapping[tuple[str, int], int] = "earliest",
        since: _Time | None = None,
        on_missing: Literal["earliest", "latest"] | None = None,
        consume_timeout: float | timedelta = 900,
        timeout: float | timedelta | None = None,
    ) -> Consumer:
        """Returns a `Consumer` that keeps its positions in a file. The store is only read: it may be that of a live broker or
        of another process that writes it.

        The file has, for each queue, the offset of the next message, and the offsets and checksum of the record before it.
        They are compared with the store first, so that nothing is skipped or read again because the store was replaced, or
        its log was cut. `docs/FORMAT.md` describes the file, which is replaced as a whole. A file beside it, with `.lock`
        after the name, keeps a second consumer away. The messages of a queue whose files are lost are missing: a
        `RuntimeWarning` names it.

        Parameters
        ----------
        topics : str or iterable of str
            A topic, or several.
        positions : str or os.PathLike
            The positions file. It is created if it does not exist, and lies outside of the store.
        group : str, optional
            A label: `Consumer.group`.
        tags : str, optional
            Wanted tags, such as "paid || refund". All by default.
        start : {"earliest", "latest"} or mapping, default "earliest"
            Where the consumer begins in topics without a position: "earliest" (the default), "latest",
            or a mapping of (topic, queue id) to a queue offset.
        since : datetime or int, optional
            Begins with the messages stored then or later instead: a datetime with a timezone, or an
            int of ms since 1970.
        on_missing : {"earliest", "latest"}, optional
            What happens where a position does not fit the store: by default
            `OffsetOutOfRangeError` or `PositionMismatchError`; "earliest" and "latest" continue at
            that end of the queue.
        consume_timeout : float or timedelta, default 900
            Seconds, or a timedelta (15 min by default): a message that was not acknowledged by then is
            given again.
        timeout : float or timedelta, optional
            Seconds, or a timedelta, after which an iteration ends without a message. None waits for
            ever.

        Raises
        ------
        PositionMismatchError
            The record before a position is another one in this store.
        OffsetOutOfRangeError
            A position lies outside of its queue: messages expired unread, or the store lost messages.
        LockedError
            Another consumer keeps its positions in the file.
        CorruptError
            The file is damaged.
        ValueError
            The file lies in the store.
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
        """Returns an iterator of the messages as they come, in the order of the log, which waits for more. Refreshes the
        store.

        Parameters
        ----------
        topics : str or iterable of str, optional
            The topics; None for all, also those that come later. A topic that is not there yet is followed
            once it is; a `RuntimeWarning` names it with the topics of a similar name.
        start : {"latest", "earliest"} or mapping, default "latest"
            "latest": the messages that come from now on. "earliest": those that are there, too. A mapping
            of (topic, queue id) to the queue offset to begin with: no other queues are followed then. An
            offset is one from 0 to the `max_offset` of the queue, and 0 for a queue that is not there yet.
            One below `min_offset` has expired, and the pass starts at `min_offset`.
            The `positions` of another pass are such a mapping.
        since : datetime with a timezone, or int of ms since 1970, optional
            Begins with the messages stored then or later, in place of `start`. Between two ms, the messages
            of that ms are returned, too, because some may have been stored after it.
        until : datetime with a timezone, or int of ms since 1970, optional
            Ends before the first wanted message that was stored then or later. Until one comes, only
            `timeout` ends the iteration.
        timeout : float of seconds, or timedelta, optional
            Ends the iteration when no message has come for this time; it continues when it is asked again.
            None: it waits until the store is closed.
        tags : str, optional
            One of these tags: "paid || refund". None: all.
        errors : {"raise", "skip"}, optional
            What to do at a message that was lost or is damaged. None: as in `open`.
        on_missing : {"earliest", "latest"}, optional
            Where a queue starts that does not hold its offset in `start`, also if that has expired: at
            `min_offset` or `max_offset`. None: an offset outside of the queue is an error.

        Returns
        -------
        MessageIterator
            The iterator. Half and rolled-back messages are left out. What expires before it is read is
            skipped. The messages of a queue whose files are lost are missing: a `RuntimeWarning` and
            `lost_queues` name it. A queue of `start` whose topic is deleted and made again is followed from
            the first message of the new topic on: a `RuntimeWarning` names it.

        Raises
        ------
        NotFoundError
            A queue does not hold its offset; the text names the bounds.
        TypeError, ValueError
            An argument is not one of those accepted, or `topics` excludes a queue of `start`.
        CorruptError
            Raised by the iteration, as by `refresh`, and at damage (`errors`).

        Notes
        -----
        A store that another process writes to is polled every 0.5 ms while messages come, and ever more
        rarely, up to 20 ms, while none do; in the writing process the iteration is woken.
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

        Parameters
        ----------
        topics : str or iterable of str, optional
            The topics, also deleted ones; None for all. `Batches.absent_topics` names those without a
            message.
        queue_ids : int or iterable of int, optional
            The queue ids; None for all.
        since, until : datetime with a timezone, or int of ms since 1970, optional
            Bounds of the time that `by` names, as in `query`.
        by : {"store", "born"}, default "store"
            The time that `since` and `until` bound.
        physical : pair of int or None, optional
            Physical offsets between which records start, the first inclusive and the second exclusive.
        tags : str, optional
            One of these tags: "paid || refund".
        keys : str or iterable of str, optional
            One of these keys: a unique key, or one of the keys of a message. An empty list matches none.
        properties : mapping or iterable of pairs, of str to str, optional
            All of these properties, with their values.
        body_contains : bytes or str, optional
            A part of the body, decompressed.
        body_regex : str, optional
            A pattern of Rust's regex crate, found in the body, decompressed.
        transactions : {"committed", "all"}, default "committed"
            "committed": what consumers see, or would see if the queues of the topic were there; a message
            in light queues once. "all": every whole record, also of half and rolled-back messages and of an
            earlier topic of the same name.
        columns : iterable of str, optional
            The columns, in order; None for all.
        order : {"log", "queue"}, default "log"
            "log": by physical offset. "queue": by topic, queue id and queue offset; the offsets of messages
            in no queue are found first and kept, 24 bytes each.
        limit : int, optional
            The most messages, counted in this order.
        reverse : bool, default False
            True turns the order around.
        decode_body : bool, default False
            True decompresses the column `body` and clears the compression bits of `sys_flag`, so that the
            row can be appended as it is. A body that does not decompress counts as damaged.
        batch_bytes : int, default 4194304
            About the most bytes in a batch.
        errors : {"raise", "skip"}, optional
            What to do at a message that was lost or is damaged. None: as in `open`.
        progress : callable, optional
            Called with two ints: about how many bytes are read, and of how many. What it raises ends the
            iteration. A thread that asks for a batch while it runs gets `ValueError`.
        max_mb_per_s : float, optional
            A bound on the reading, in 10**6 bytes a second.

        Returns
        -------
        Batches
            An iterable of `RecordBatch` that speaks Arrow; each iteration reads again.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted.
        CorruptError
            Raised by the iteration at damage (`errors`).

        Notes
        -----
        With `since` or `until`, segments are left out that were written at another time; a clock that was
        set back by more than half an hour can hide messages from that.

        A scan of 16 MiB or more without `limit`, `reverse` and `max_mb_per_s` is read by several threads: as many as the
        environment variable `OMP_NUM_THREADS` says, or as the process may run at once, 16 at most. Memory holds the batches
        of about 4 MiB of the log, or of `batch_bytes` if that is more, for each thread and two more. With `order="log"` the
        pages of the log that the scan brings into the page cache are dropped after they were read; those that were there
        before stay.

        No checksum covers the topic, the queue id and the transaction of a message, unless its record ends with one
        (`__CRC32#`). A message that contradicts its queue entry in these, or in `tags` that are asked for, counts as
        damaged; one whose entry has a damaged tags code is skipped, as a broker does. Damage of times, keys and other
        properties shows in the message alone: `Store.verify` reports it where other files repeat them.
        """
    def resolve_ids(self, batch: _Table, *, errors: _Errors | None = None) -> RecordBatch:
        """Resolves ids to physical offsets and sizes.

        Parameters
        ----------
        batch : a table of Arrow
            A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
            Arrow: a column `id` (utf8). An id is what `message` takes: an offset id if a record starts
            where it points, else the unique key of a message of a topic that has queues; the first
            message with this key counts.
        errors : {"raise", "skip"}, optional
            What to do at a damaged message that may have one of the keys. None: as in `open`. "skip"
            passes over it.

        Returns
        -------
        RecordBatch
            A row for a row: `physical_offset` (int64) and `store_size` (int32, bytes), null where there
            is no such message.

        Raises
        ------
        TypeError, ValueError
            `batch` does not speak Arrow, a column is missing, of another type or malformed, or another
            argument is not one of those accepted.
        CorruptError
            A message that may have one of the keys is damaged (`errors`).

        Notes
        -----
        A stretch of the log that no index covers is walked.
        """
    def resolve_times(
        self, batch: _Table, *, side: Literal["left", "right"] = "left", errors: _Errors | None = None
    ) -> RecordBatch:
        """Resolves times to queue offsets.

        Parameters
        ----------
        batch : a table of Arrow
            A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
            Arrow: columns `topic` (utf8), `queue_id` (integers) and `time`: timestamps with a timezone,
            or integers of ms since 1970.
        side : {"left", "right"}, default "left"
            As in `Queue.offset_at`.
        errors : {"raise", "skip"}, optional
            What to do at a damaged message on the way. None: as in `open`. "skip" passes over it.

        Returns
        -------
        RecordBatch
            A row for a row: `queue_offset` (int64), which `Queue.offset_at` returns for the time, null
            where there is no such queue.

        Raises
        ------
        TypeError, ValueError
            `batch` does not speak Arrow, a column is missing, of another type or malformed, or another
            argument is not one of those accepted.
        UnsupportedFormatError
            As `get`.
        CorruptError
            A message on the way is damaged (`errors`).
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
        """Writes messages to files: Parquet, Arrow IPC, JSON Lines or CSV.

        Parameters
        ----------
        target : str or os.PathLike
            The file, or the directory with `partition_by`. It gets its name when all of it is written and
            synced: until then it is in a directory `.mqstore-*.part` beside it, which a killed process
            leaves there.
        format : {"parquet", "arrow", "jsonl", "csv"}, optional
            None: as the name ends (.parquet, .arrow, .jsonl, .ndjson, .csv), and "parquet" for any other
            name. "parquet" and "arrow" need pyarrow.
        columns : iterable of str, optional
            The columns, in order; None for all.
        partition_by : {"topic", "hour"} or both, default ()
            Writes files `topic=orders/hour=2026-11-23T05/part-00000.parquet` (the hour of the store time,
            in UTC) without a column `topic`: pyarrow, polars, duckdb and Spark read it from the names.
            Needs pyarrow for each format. With "topic", `order` is "queue" by default.
        rewrite : callable, optional
            Called with each `RecordBatch`, also with an empty one if there is no other. Returns the table
            to write instead: any object that speaks Arrow, always with the same columns.
        body_as : {"base64", "text", "json"}, default "base64"
            The form of the body in JSON Lines and CSV. "text" must be UTF-8; "json" must be JSON, and
            becomes a value of the object, its line ends spaces.
        decode_body : bool, default False
            True decompresses bodies (zlib, LZ4, Zstandard) and clears the compression bits of `sys_flag`,
            so that consumers can read the messages that `import_from` appends. False: as they are stored.
        spreadsheet : bool, default False
            For CSV: puts a `'` before each cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage
            return, because a spreadsheet may run such a cell as a formula.
        **conditions
            The other arguments of `scan`, which selects the messages. `batch_bytes` is 32 MiB by default, a
            row group of Parquet, and the memory that is taken.

        Returns
        -------
        mqstore.files.Exported
            The files, and exact counts. After an exception, also of `rewrite`, there is no `target`.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted, or a body is not what `body_as` says.
        CorruptError
            A message is damaged, or its body does not decompress (`errors`).
        FileExistsError, ImportError, OSError
            `target` exists, pyarrow is not installed, or the system refuses.

        Notes
        -----
        In JSON Lines and CSV times are ISO 8601 in UTC ("2026-11-23T05:51:16.123Z"; a number of ms since
        1970 outside the years 1 to 9999), and `keys` and `properties` JSON. A CSV file follows RFC 4180, in
        UTF-8, with a header; null is an empty cell. `import_from` reads these files, except CSV.
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
        """Copies messages into a new store, in the order of the log. A copy can drop topics and deleted messages, rename
        topics, rebuild the index, and change the sizes of files.

        Parameters
        ----------
        path : str or os.PathLike
            The directory of the new store. The copy is closed and synced before it is there: until then
            it is in a directory `.mqstore-*.part` beside it, which a killed process leaves there.
        rename : mapping of str to str, optional
            New names of topics, the same one for topics to merge.
        keep_store_time : bool, default True
            True keeps store times; a time that is before that of the message before it is raised to
            that (`Copied.raised`). False: each message gets the time at which it is copied.
        geometry : "broker" or mapping of str to int, optional
            The sizes of the files. None: those of this store. "broker": RocketMQ's defaults. A mapping
            has the sizes that `mqstore.open` takes by name; the others are those of a small store.
        **conditions
            The other arguments of `scan`, which selects the messages, but for those that would change
            messages or their order.

        Returns
        -------
        mqstore.files.Copied
            The new store, and exact counts.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted, or `rename` gives a topic the name of another
            topic that keeps it.
        FileExistsError
            `path` exists.
        IllegalMessageError
            No store takes a message: a batch that is stored whole, a message larger than a segment of
            the copy, and a message whose properties take 32,767 bytes without the separator at their
            end, which brokers before 5.2 leave out.
        DiskFullError, OSError, CorruptError
            The system refuses, or a message is damaged (`errors`). After any exception, also of
            `progress`, no store is at `path`.

        Notes
        -----
        Bodies, properties (except `__CRC32#`, which is computed again), queue ids, hosts, flags, born
        times, unique keys and keys are as they were. Queue offsets begin at 0 in each queue, and
        physical offsets and offset ids are new. `prepared_transaction_offset` stays and is an offset in
        the old log. Messages that wait for their delay are copied, too, and still name their topic by
        its old name. No settings of a broker are copied: a broker on the copy delivers from the first
        offset of each delay level and to each group.

        Only what consumers see is copied. A half, rolled-back or deleted message would be in no queue of the copy or come
        back into one, so `transactions="all"` is refused: `export` writes such messages. A broker's own topics of half
        messages and of their ends (`RMQ_SYS_TRANS_HALF_TOPIC`, `RMQ_SYS_TRANS_OP_HALF_TOPIC`) are left out
        (`Copied.left_out`), because one names offsets of the other, which are new: the broker would take open transactions
        for ended ones. End them before you copy.
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
        """Returns the messages at physical offsets, as Arrow record batches, a row for each offset that is not null, in order.

        Parameters
        ----------
        batch : a table of Arrow
            A table, frame or batch of pyarrow, polars, duckdb or pandas, or anything else that speaks
            Arrow: a column `physical_offset` (an integer).
        columns : iterable of str, optional
            The columns, in order; None for all.
        max_bytes : int, default 4194304
            About the most bytes in a batch.
        errors : {"raise", "skip"}, optional
            What to do at an offset where no message starts, or a damaged one. None: as in `open`.

        Returns
        -------
        Batches
            An iterable of `RecordBatch` that speaks Arrow; each iteration reads again.

        Raises
        ------
        TypeError, ValueError
            `batch` does not speak Arrow, a column is missing, of another type or malformed, or another
            argument is not one of those accepted.
        NotFoundError
            Raised by the iteration at an offset where no message starts (`errors`).
        CorruptError
            Raised by the iteration at a damaged message (`errors`).
        """
    def usage(self, by: _UsageBy | Iterable[_UsageBy] = "topic", *, errors: _Errors | None = None) -> Usage:
        """Counts the messages of the log and their bytes, in one pass over it.

        Parameters
        ----------
        by : str or iterable of str, default "topic"
            The columns to group by: `topic` (utf8), `queue_id` (int32), `tags` (utf8, null without
            tags), `hour` (timestamp[us, UTC]: the hour of the store time) and `segment` (int64: the
            physical offset at which a segment of the log starts). An empty one counts all in one row.
        errors : {"raise", "skip"}, optional
            What to do at damage. None: as in `open`. "skip" continues at the next whole message, and
            `Usage.unread` has the stretches that could not be counted.

        Returns
        -------
        Usage
            A row a group, ascending: the columns of `by`, then `messages` (int64), `bytes` (int64, of
            their records), `first_store_time` and `last_store_time` (timestamp[us, UTC]).

        Raises
        ------
        TypeError, ValueError
            `by` has what is none of these names, or repeats one; or `errors` is not one of those
            accepted.
        CorruptError
            A part of the log is damaged (`errors`).

        Notes
        -----
        Every message of the log counts, also a message that is in no queue: a half message, or a
        message of a deleted topic. A batch that is stored whole counts as one. Bodies are not checked.
        Memory is taken for each group, not for each message. Messages that recovery="salvage" has found
        lost are in `unread`, too.
        """
    def verify(
        self,
        deep: bool = True,
        progress: Callable[[int, int], object] | None = None,
        max_mb_per_s: float | None = None,
    ) -> VerifyReport:
        """Compares log, queues, index, checkpoint and settings with each other and with the format, in one pass over the log.
        Changes nothing and takes no lock.

        Parameters
        ----------
        deep : bool, default True
            False leaves out the checksums of bodies and the links of the index.
        progress : callable, optional
            Called with two ints: how many bytes of the log are done, and of how many. What it raises ends
            the call.
        max_mb_per_s : float, optional
            A bound on the reading, in 10**6 bytes a second, which one thread does then.

        Returns
        -------
        VerifyReport
            The findings, damage included, and what was compared.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted.
        OSError, CorruptError
            A file cannot be read, or is cut during the call.

        Notes
        -----
        It compares the store as it is now, also if a writer has changed it since this store was opened.
        Beside a live writer of another process it covers the log up to its end when the call began. The log
        is read by as many threads as a large `scan`. A bounded part of the store is kept in memory.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

def _landmarks(store: Store) -> list[tuple[int, int]]: ...
def _lost_queues(store: Store, topics: list[str] | None = None, /) -> list[tuple[str, int]]: ...
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
