import os
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any, Literal, final, overload

from typing_extensions import Buffer, CapsuleType

from mqstore._consumer import Consumer
from mqstore._reports import Replicas, StoreStats, TrimReport
from mqstore._scan import Batches
from mqstore._store import Store
from mqstore._transaction import Transactions
from mqstore._types import _BodyAs, _Properties, _Row, _Table, _Time
from mqstore.files import Imported

def new_unique_key() -> str:
    """Returns a new unique key for a message: str, for `append(..., unique_key=...)`, as RocketMQ's client makes one for each
    message that it sends.

    No other call gives the same key, in any thread, process or fork. RocketMQ's `MessageClientIDSetter` reads it: it holds
    the address of this machine, the process id, a random number, the time and a counter as 32 hex digits in capitals, 56
    where the address is IPv6. `Store.message` finds the message by it.
    """

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
    @property
    def transactions(self) -> Transactions:
        """The transactions of the store: a `Transactions`."""
    def append(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: _Properties | None = None,
        queue_id: int | Literal["next"] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        deliver_at: _Time | timedelta | None = None,
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
        """Appends one message. It survives the death of the process when the call returns, and a power failure once it is
        durable.

        Parameters
        ----------
        topic : str
            1 to 255 bytes of UTF-8, without a slash or control character. More than 127 bytes make a record
            at which brokers before 5.1 end their log.
        body : bytes or a buffer of bytes
            The body, stored as it is. A buffer is copied first.
        tags : str, optional
            One tag. "paid || refund" is an expression for `get`, and no expression matches such a tag.
        keys : str or iterable of str, optional
            The keys by which `query` finds the message; a key holds no space.
        properties : mapping or iterable of pairs, of str to str, optional
            All properties, TAGS, KEYS and DELAY included. An argument wins over the property of the same
            name.
        queue_id : int or "next", default 0
            The id of the queue, 0 to 65,535. With "next" the queues of a created topic take turns.
        sharding_key : str, optional
            Chooses the queue of a created topic (`create_topic`), as RocketMQ's `SelectMessageQueueByHash`
            does: messages with one key are in one queue, in their order. It is stored (`__SHARDINGKEY`).
        delay_level : int, default 0
            1 or more delays the message: it waits in the queue of that level until this writer (see the
            option `services`) or a broker delivers it. A level above the last one counts as the last.
            `AppendResult` has its offsets there.
        deliver_at : datetime with a timezone, timedelta, or int of ms since 1970, optional
            The time from which on the topic has the message, rounded up to ms, or the delay from now on. It
            waits in a topic for all such messages until this writer (see the option `services`) or a broker
            of 5.x delivers it, at most `timer_max_delay_sec` from now. A past time is not a delay.
            `AppendResult` has its offsets there.
        unique_key : str, optional
            The property UNIQ_KEY; `mqstore.new_unique_key` makes one. None: the message has none.
        born_time : datetime with a timezone, or int of ms since 1970, optional
            The time of the producer. None: now.
        born_host, store_host : str, default "127.0.0.1:0"
            The hosts of the producer and of the broker, "ip:port", an IPv6 address in brackets.
        flag : int, default 0
            A number for the application.
        sys_flag : int, default 0
            RocketMQ's bit field (a compressed body, the type of a transaction). Its two address bits follow
            the hosts.
        reconsume_times : int, default 0
            How often a consumer group has failed on the message.
        prepared_transaction_offset : int, default 0
            The physical offset of the half message that this one ends.
        durable : bool, optional
            True: the call returns when the message is durable; calls that wait at the same time share a
            sync. False: it becomes durable later (with `SYNC_FLUSH` it is synced at once). None: as
            `flush_disk_type` says; with `SYNC_FLUSH` a message whose property WAIT is not "true" is not
            waited for.

        Returns
        -------
        AppendResult
            The offsets of the message. Its `status` is `FLUSH_DISK_TIMEOUT` if the message was not durable
            when `sync_flush_timeout` was over.

        Raises
        ------
        IllegalMessageError
            No store takes the message; a `ValueError`.
        ClosedError, PoisonedError, DiskFullError, BusyError
            The store cannot take it now. `status` has RocketMQ's word. Nothing was stored and `stored` is
            0, unless `status` is `FLUSH_DISK_TIMEOUT`: the message was stored, could not be made durable,
            and may be there after a reopen or not. `stored` is then 1, also if Ctrl-C ended the wait.

        Notes
        -----
        Where appended messages wait in memory (`transient_store_pool_enable`, `SYNC_FLUSH`), a message
        survives the death of the process once `committed_offset` is past it.
        """
    def append_nowait(
        self,
        topic: str,
        body: Buffer,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: _Properties | None = None,
        queue_id: int | Literal["next"] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        deliver_at: _Time | timedelta | None = None,
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
        """Appends a message as `append` does, without a wait until it is durable.

        Parameters
        ----------
        topic, body, queue_id, sharding_key
            The message and its queue, as in `append`.
        tags, keys, properties, unique_key
            Its properties, as in `append`.
        delay_level, deliver_at
            Its delay, as in `append`.
        born_time, born_host, store_host
            Its origin, as in `append`.
        flag, sys_flag, reconsume_times, prepared_transaction_offset
            Its other fields, as in `append`.
        durable : bool, optional
            As in `append`: True, and None with `SYNC_FLUSH`, complete the future when the message is
            durable.

        Returns
        -------
        concurrent.futures.Future of AppendResult
            The message is stored when the call returns. The future is done when `append` would have
            returned. It raises `PoisonedError`, or `ClosedError` where the close failed, for a message that
            was stored and could not be made durable; `status` is then `FLUSH_DISK_TIMEOUT`, and `stored` 1.

        Raises
        ------
        StoreError
            As `append`: nothing was stored.
        RuntimeError
            No thread can be started.

        Notes
        -----
        Thousands of messages may wait at the same time, and one sync is for all of them. A thread of the
        store completes the futures in the order of the calls, and runs their callbacks. `close` completes
        all of them. `cancel` of such a future returns False: the message stays. In a fork of the process no
        future is completed. A future costs more than the append: where one caller has many messages,
        `append` for each and one `wait_durable` for the last takes a tenth of the time.
        """
    def writer(self, topic: str, queue_id: int = 0, tags: str | None = None) -> TopicWriter:
        """Returns a `TopicWriter`, whose `append(body, keys)` appends to one queue. It costs less than an `append` that names
        topic and tag at each call.

        Parameters
        ----------
        topic : str
            As in `append`. Nothing is made of it before its first message.
        queue_id : int, default 0
            The id of the queue, 0 to 65,535.
        tags : str, optional
            The tag of all messages.

        Raises
        ------
        IllegalMessageError
            No message may have this topic, queue id or tag, also by the settings of the topic
            (`create_topic`).
        """
    def append_batch(
        self,
        rows: Iterable[_Row] | _Table,
        topic: str | None = None,
        queue_id: int | Literal["next"] | None = None,
        *,
        one_segment: bool = False,
        durable: bool | None = None,
    ) -> Offsets:
        """Appends messages in order, in one call.

        Parameters
        ----------
        rows : iterable, or anything that speaks Arrow
            An item is a body (bytes or a buffer), a tuple (topic, body, tags, keys, properties, `queue_id`;
            the last four may be left out), a dict of a message's fields (`Message.to_dict`), or a
            `Message`. A table, frame or batch has the columns below.
        topic : str, optional
            The topic of rows that name none.
        queue_id : int or "next", optional
            The queue id of rows that name none; None is 0. With "next" they take turns. A column or field
            `sharding_key` chooses the queue instead, as in `append`.
        one_segment : bool, default False
            True stores all rows or none, one after the other in one segment, as a broker stores a
            producer's batch; other appends wait. A crash before the call returns, and a power failure
            before the rows are durable, may still keep a first part of them.
        durable : bool, optional
            As in `append`, for all rows at once: if one row is waited for, all are.

        Returns
        -------
        Offsets
            The physical offsets, a row each, which `fetch` takes as a column `physical_offset`.

        Raises
        ------
        StoreError
            As `append`. Every row is checked before the first byte is written; an error about a row names
            its position. Where a write fails midway, `stored` says how many rows, from the first, were
            stored, and `offsets` where; also of what a signal handler raises, such as `KeyboardInterrupt`.
        WaitTimeoutError
            The rows are stored, and were not durable in time; `offsets` has all of them.
        ValueError
            A column has another name or type; text is not UTF-8; a column, dict or `Message` contradicts
            `topic` or `queue_id`; rows with `one_segment` need more than a segment.

        Notes
        -----
        Columns and fields: `body` (binary or utf8; required), `topic`, `tags`, `unique_key` (utf8), `keys`
        (list of utf8), `properties` (map of utf8, list of pairs, or struct), `queue_id`, `delay_level`,
        `flag`, `sys_flag`, `reconsume_times`, `prepared_transaction_offset` (integers), `born_time`,
        `deliver_at` (timestamp with a timezone, or ms), `born_host`, `store_host` (utf8). A store assigns
        `queue_offset`, `physical_offset`, `store_size`, `store_time` and `message_id` itself: such columns
        are skipped, and so are pandas' own labels. A column that is null in every row may have any
        type.

        A `Message`, a dict and a row of a table stay in their topic, also with DELAY or TIMER_DELIVER_MS among the
        properties, unless `delay_level` is 1 or more or `deliver_at` is given.
        """
    def _check_batch(self, rows: _Table, topic: str | None = None) -> None: ...
    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        perm: int = 6,
        order: bool = False,
        message_type: Literal["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"] | None = None,
    ) -> None:
        """Creates a topic with a fixed number of queues, or changes its settings. They are durable when the call returns. Does
        nothing if the topic has these settings.

        Parameters
        ----------
        topic : str
            1 to 127 letters and digits of ASCII and %|-_, as a broker accepts it, and no topic that a
            broker makes for itself.
        queues : int, default 8
            The number of queues, 1 to 65,536. A queue that has messages stays readable if there are
            fewer now.
        perm : int, default 6
            2 (write), 4 (read) or 6 (both), or one of them + 1 (a template for topics that a broker
            creates).
        order : bool, default False
            A broker's flag of an ordered topic.
        message_type : {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}, optional
            The messages that the topic takes. "NORMAL": no delay, transaction or sharding key. "FIFO":
            with a sharding key. "DELAY", "TRANSACTION": with a delay, or of a transaction. "MIXED",
            "UNSPECIFIED": any. None keeps the type that the topic has.

        Raises
        ------
        TypeError, ValueError
            No broker takes the name, or a value.
        CorruptError
            `config/topics.json` is damaged. Appends still work; restore the file, or remove it.
        UnsupportedFormatError
            A broker keeps the topics in RocksDB.

        Notes
        -----
        From then on appends follow these settings, as they follow those that a broker has written: a
        message without permission, for a queue that the topic does not have, or of another type raises
        `IllegalMessageError`. A topic that is not created has as many queues as its messages name;
        `close` writes it to `config/topics.json` as well, so that a broker serves it.
        """
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
        """Appends a batch as a producer sends it, each message as its own record.

        Parameters
        ----------
        topic : str
            As in `append`.
        body : bytes or a buffer of bytes
            The body of the producer's request (RocketMQ's `MessageDecoder.encodeMessages` makes it):
            body, flag and properties of each message. `max_message_size` bounds all of it.
        properties : mapping or iterable of pairs, of str to str, optional
            The properties of the batch itself, which brokers up to 5.3.3 store after a message's own,
            and later ones not at all. They name no transaction and no delay.
        queue_id : int, default 0
            The id of the queue, 0 to 65,535.
        born_time, born_host, store_host, sys_flag
            As in `append`, for all messages.
        durable : bool, optional
            As in `append_batch`.

        Returns
        -------
        Offsets
            The physical offsets, one for each message.

        Raises
        ------
        StoreError
            As `append_batch`.

        Notes
        -----
        The messages are stored as `append_batch` stores rows with `one_segment`. A broker's limits
        hold.
        """
    def flush(self) -> int:
        """Makes everything appended so far durable. Returns the physical offset up to which the log is durable.

        Raises `PoisonedError` if the device refuses: what is not durable by then is lost.
        """
    @property
    def flushed_offset(self) -> int:
        """Physical offset below which the log survives a power failure."""
    @property
    def replicas(self) -> Replicas:
        """The slaves of this store: who is connected, since when and how far, and who was refused and why. They connect where
        the option `ha_listen_port` says so, and ask for topics, groups and progress where `listen_port` says so.
        """
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
    def trim(
        self,
        before: int | datetime | timedelta | None = None,
        *,
        before_offset: int | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> TrimReport:
        """Removes the oldest messages, by whole segments of the log, and the queue and index files that lead to nothing else.
        Returns a `TrimReport`. Queues keep their offsets, and reads find that the messages have expired.

        Parameters
        ----------
        before : datetime with a timezone, int of ms since 1970, or timedelta, optional
            Removes messages that were stored before this time, or are older than this.
        before_offset : int, optional
            Removes messages before this physical offset.
        max_bytes : int, optional
            Removes the oldest messages until the log has at most this many bytes. One of the three is
            given.
        dry_run : bool, default False
            Removes nothing, and reports what would be removed.
        force : bool, default False
            Also removes messages that consumer groups have not consumed, and that connected slaves have
            not acknowledged: without it a trim stops before the first of them. Delayed messages that
            were not delivered, and half messages of open transactions, are always kept. So is the last
            segment.

        Raises
        ------
        CorruptError
            A settings file with the progress of groups is damaged, or, unless `force` is true, the
            progress of a group is lost: nothing is removed.
        DiskFullError
            Nothing can be removed before there is free space.
        PoisonedError, ClosedError, StoreIOError
            As in `append`.

        Notes
        -----
        It needs no free space for messages that each group has passed by the progress on disk, and
        whose queue entries are on disk. What they free is used to store newer progress and entries;
        `refusal` says if it was too little to remove the rest.
        """
    def stats(self) -> StoreStats:
        """Returns the counters since the open: puts and bytes by topic, slow puts, syncs, segments; the backlog of groups and
        deliveries; what retention has removed, and removes next.
        """
    def wait_durable(self, offset: AppendResult | int | None = None, timeout: float | timedelta | None = None) -> None:
        """Waits until a message is durable. The store syncs it at once.

        Parameters
        ----------
        offset : AppendResult or int, optional
            The message, or a physical offset in it. None: everything that was appended so far.
        timeout : float of seconds, or timedelta, optional
            The longest wait. None waits for ever.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted, or nothing was appended at the offset.
        WaitTimeoutError
            The time is over; a `TimeoutError`.
        PoisonedError, ClosedError
            The message can no longer become durable.
        """
    def _durable(self, offset: AppendResult | int | None = None) -> tuple[int, Future[bool]]: ...
    def _in_loops(self, running_loop: Callable[[], AbstractEventLoop]) -> Any: ...
    def wait_dispatched(self, offset: AppendResult | int | None = None, timeout: float | timedelta | None = None) -> None:
        """Waits until a message is in its queue and in the index. Reads of this store wait for that themselves.

        Parameters
        ----------
        offset, timeout
            As in `wait_durable`.

        Raises
        ------
        TypeError, ValueError, WaitTimeoutError
            As `wait_durable`.
        PoisonedError, ClosedError
            The message can no longer come into its queue.
        """
    # A writer's consumers keep their progress in the store, a reader's in a file of the caller.
    def consumer(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        group: str | None,
        topics: str | Iterable[str],
        *,
        tags: str | None = None,
        start: Literal["earliest", "latest"] | Mapping[tuple[str, int], int] = "earliest",
        since: _Time | None = None,
        on_missing: Literal["earliest", "latest"] | None = None,
        ordered: bool | None = None,
        max_reconsume_times: int | None = None,
        consume_timeout: float | timedelta = 900,
        timeout: float | timedelta | None = None,
    ) -> Consumer:
        """Returns a `Consumer` of a group, which remembers what the group has consumed.

        Parameters
        ----------
        group : str or None
            Name of the group. None reads every message for itself and keeps no progress (broadcast).
        topics : str or iterable of str
            A topic, or several. All consumers of a group have the same topics and options.
        tags : str, optional
            Wanted tags, such as "paid || refund". All by default.
        start : {"earliest", "latest"} or mapping, default "earliest"
            Where a group begins that has no progress in a queue: "earliest" (the default), "latest",
            or a mapping of (topic, queue id) to a queue offset.
        since : datetime or int, optional
            Begins with the messages stored then or later instead: a datetime with a timezone, or an
            int of ms since 1970.
        on_missing : {"earliest", "latest"}, optional
            What happens where the progress lies outside of the queue, because messages expired or
            were lost: by default `OffsetOutOfRangeError`; "earliest" and "latest" continue at that
            end of the queue.
        ordered : bool, optional
            True keeps the order of each queue: a message that fails is given again after 1 s, and its
            queue waits. By default as the topic was created.
        max_reconsume_times : int, optional
            Retries before a message becomes a dead letter. By default `retryMaxTimes` of the group's
            settings, which is 16 for a new group; no limit if ordered.
        consume_timeout : float or timedelta, default 900
            Seconds, or a timedelta (15 min by default): a message that was neither acknowledged nor
            sent back by then is given again.
        timeout : float or timedelta, optional
            Seconds, or a timedelta, after which an iteration ends without a message. None waits for
            ever.

        Raises
        ------
        ValueError
            Another consumer of the group has other topics or options; a name that no broker accepts; the
            settings of the group (`config/subscriptionGroup.json`) have `consumeEnable` false, or no
            `retryQueueNums`.
        CorruptError
            `config/consumerOffset.json`, `config/subscriptionGroup.json`, or without `ordered`
            `config/topics.json`, cannot be read, and has no usable previous version.
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
        """Appends the messages of files that `export` wrote, and of other tables with columns as `append_batch` takes them.

        Parameters
        ----------
        source : str, os.PathLike, or an iterable of them
            A file, a directory with files below it (in the order of their names; a folder `topic=...`
            names the topic of its files), or several of these.
        format : {"parquet", "arrow", "jsonl"}, optional
            None: as the name of a file ends. CSV is not read.
        topic : str, optional
            The topic of rows that name none.
        body_as : {"base64", "text", "json"}, default "base64"
            The form of the body in JSON Lines, as in `export`. With "json" a body is the value as it is
            written.
        progress : callable, optional
            Called with two ints: how many files are done, and of how many. What it raises ends the
            call.

        Returns
        -------
        mqstore.files.Imported
            The files, and exact counts.

        Raises
        ------
        FileNotFoundError
            A file is missing, or a directory has no file of a format.
        TypeError, ValueError
            An argument is not one of those accepted, a line is malformed, or a column has another name
            or type.
        ImportError
            pyarrow is not installed.
        StoreError
            As `append_batch`.

        Notes
        -----
        Files are read and appended a batch at a time. Where that fails, `stored` of the exception says
        how many rows were stored.

        Every field that a caller of `append` can set is as it was. Offsets, store time and offset id are new; `copy_to`
        keeps store times.
        """
    def _copy_from(
        self, batches: Batches, rename: dict[str, str], keep_store_time: bool
    ) -> tuple[dict[str, int], int, dict[str, int], int]: ...

@final
class AppendResult:
    """The result of an append. Two results with the same values are equal."""
    @property
    def status(self) -> Literal["PUT_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"]:
        """RocketMQ's word for it: `PUT_OK`, or `FLUSH_DISK_TIMEOUT` for a message that was not durable yet when
        `sync_flush_timeout` was over. Of a `SYNC_MASTER` also `FLUSH_SLAVE_TIMEOUT`: too few slaves had it when
        `slave_timeout` was over; and `SLAVE_NOT_AVAILABLE`: too few are connected, or they are far behind, and it was not
        waited for. What is not stored raises instead.
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
class _Flushed:
    def wait(self, physical_offset: int, timeout: float) -> int: ...
    def copied(self, result: AppendResult, timeout: float, disk: bool) -> AppendResult: ...

def _append_result(
    status: str, physical_offset: int, queue_offset: int, wrote_bytes: int, store_time: int, message_id: str
) -> AppendResult: ...
def _offsets(values: list[int]) -> Offsets: ...

@final
class TopicWriter:
    """A prepared writer: it appends messages with one tag to one queue of a topic. `Writer.writer` makes one.

    A call of its `append` costs less than one of `Writer.append`, because topic, queue and tag were checked and encoded
    when the writer was made. The records are the same, and so are durability, warnings and errors.

    Any number of threads may use it. It does not pickle, and raises `ClosedError` once the store is closed and in a fork.
    """
    def __new__(cls, *_arguments: object, **_options: object) -> TopicWriter: ...
    @property
    def topic(self) -> str:
        """The topic of its messages."""
    @property
    def queue_id(self) -> int:
        """The id of their queue."""
    def append(self, body: Buffer, keys: str | Iterable[str] | None = None) -> AppendResult:
        """Appends one message, as `Writer.append` does with the topic, queue id and tag of this writer.

        Parameters
        ----------
        body : bytes or a buffer of bytes
            The body, stored as it is. A buffer is copied first.
        keys : str or iterable of str, optional
            The keys by which `query` finds the message; a key holds no space.

        Returns
        -------
        AppendResult
            The offsets of the message. Its `status` is `FLUSH_DISK_TIMEOUT` if the message was not durable
            when `sync_flush_timeout` was over. The call waits for that only with `SYNC_FLUSH`.

        Raises
        ------
        IllegalMessageError, ClosedError, PoisonedError, DiskFullError, BusyError
            As `Writer.append`. The settings of the topic (`create_topic`) bind each append.
        """
