from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Self, Unpack, final

from mqstore._append import AppendResult
from mqstore._config import Options
from mqstore._reports import ReplicaCut
from mqstore._types import _Path

def replicate(
    master: str,
    path: _Path,
    *,
    broker: str | None = None,
    sync: bool = True,
    discard_tail: bool = False,
    **options: Unpack[Options],
) -> Replica:
    """Follows a master: receives its log into a store of the same bytes, and makes queues and index of it. The master is an
    open store with `ha_listen_port`, or a broker of RocketMQ 4.9.x or 5.x.

    Parameters
    ----------
    master : str
        "HOST:PORT", where the master listens for slaves: its `ha_listen_port`, for a broker its
        `haListenPort` (by default its listening port + 1).
    path : str, bytes or os.PathLike
        The directory of the store. A missing or empty one gets the log from the start of the master's
        last segment on, as an empty slave of RocketMQ. For the whole log, begin with a copy of the
        closed master.
    broker : str, optional
        "HOST:PORT", where the master answers for topics, groups, their progress and that of delayed
        messages: its `listen_port`, for a broker its `listenPort`. By default the port below that of
        `master`; "" asks nothing. They are merged into the store, as `Replica.settings_taken_at` says.
    sync : bool, default True
        Syncs before each acknowledgement. False acknowledges what survives the death of this process,
        and not a power failure.
    discard_tail : bool, default False
        Also removes what a writer has appended to this store, where the master has other bytes. By
        default only what was received from a master is removed there.
    **options
        The sizes of a new store, which are those of the master (`geometry`,
        `mapped_file_size_commit_log`, `mapped_file_size_consume_queue`, `max_hash_slot_num`,
        `max_index_num`), and other options of `open` such as `lock_timeout`. What would promise more
        than a slave does raises `ValueError`: `flush_disk_type`, `transient_store_pool_enable`,
        `recovery`, `services`, the options of masters, and those by which a writer removes old
        messages. Other options of appends have no effect.

    Returns
    -------
    Replica
        The running slave, a context manager. It connects in the background, and again after failures.

    Raises
    ------
    ValueError
        `master` is not "HOST:PORT", or an option has no meaning.
    LockedError
        A writer has the store.
    StoreError
        As `open`.
    """

def tap(
    master: str,
    path: _Path,
    start: Literal["latest", "earliest"] | int = "latest",
    *,
    broker: str | None = None,
    sync: bool = True,
    **options: Unpack[Options],
) -> Replica:
    """Follows a broker as `replicate`, and acknowledges nothing: its master sends the log, and no append waits for this copy.
    A live copy for readers, without a consumer group.

    A `SYNC_MASTER` of RocketMQ 4.9.x counts it as a connected slave all the same. If that has no other slave its appends
    return `FLUSH_SLAVE_TIMEOUT` after their timeout, instead of `SLAVE_NOT_AVAILABLE` at once.

    Parameters
    ----------
    master : str
        "HOST:PORT", where the master listens for slaves, as for `replicate`.
    path : str, bytes or os.PathLike
        The directory of the store. One with a log is continued at its end.
    start : {"latest", "earliest"} or int, default "latest"
        Where a missing or empty store begins. "latest": with the master's last segment. "earliest": at
        the begin of its log. A physical offset: with the segment that contains it. All but "latest" ask
        `broker` where the log of the master begins and ends.
    broker : str, optional
        "HOST:PORT" of the broker port, as for `replicate`. "" asks nothing: then "earliest" begins at
        physical offset 0, an offset other than 0 is refused, and nobody notices that the master has
        removed what comes next while this is connected.
    sync : bool, default True
        `offset` and `wait` count what is synced. False: what survives the death of this process.
    **options
        As for `replicate`. `slave_timeout` is that of the master (`slaveTimeout`, for 4.9.1 and 4.9.2
        `syncFlushTimeout`), by default 3 s: a report never names a record that is not 5 s older.

    Returns
    -------
    Replica
        The running tap, a context manager. Its state is "failed" once the master has removed what comes
        next: nothing is skipped.

    Raises
    ------
    ValueError
        `master` is not "HOST:PORT", `start` is none of these, or an option has no meaning.
    LockedError
        A writer has the store.
    StoreError
        As `open`.
    """

@final
class Replica:
    """A running slave: what `replicate` and `tap` return.

    It holds the lock of its store. Read the store beside it with `open` and mode "r", as that of any writer. To promote it,
    `close` it, and open the store with mode "r+".

    Any number of threads may use it. It does not pickle.
    """
    def __new__(cls, *_arguments: object, **_options: object) -> Replica: ...
    @property
    def master(self) -> str:
        """The address of the master, "HOST:PORT"."""
    @property
    def broker(self) -> str | None:
        """The address that it asks for topics, groups and progress, "HOST:PORT"; None if it asks nothing."""
    @property
    def settings_taken_at(self) -> datetime | None:
        """When the topics, groups and progress of the master were last taken, in UTC; None before."""
    @property
    def settings_error(self) -> Exception | None:
        """The reason why the topics, groups and progress were not taken the last time, as an exception; None while they are.
        The log does not wait for them.
        """
    @property
    def path(self) -> Path:
        """The directory of its store, absolute."""
    @property
    def state(self) -> Literal["connecting", "comparing", "following", "failed", "closed"]:
        """The state: "connecting", "comparing" its log with that of the master, "following", "failed" (it has given up: see
        `error`) or "closed".
        """
    @property
    def offset(self) -> int | None:
        """The physical offset up to which it holds the log of the master, synced with `sync=True`, by what was compared or
        received since the start; None before.
        """
    @property
    def lag(self) -> int | None:
        """The bytes that have come from the master and are not held yet; None unless it follows. A master says where its log
        ends only when it has nothing to send, so bytes that are on their way are not counted: `Writer.replicas` of the
        master counts them.
        """
    @property
    def cuts(self) -> tuple[ReplicaCut, ...]:
        """The cuts of its log since the start, the oldest first. A store that was opened before a cut has to be opened again
        if it has messages that were cut: `CorruptError` says so.
        """
    @property
    def error(self) -> Exception | None:
        """The reason why it does not follow, as an exception; None while it follows, and before the first failure."""
    @property
    def closed(self) -> bool:
        """True once it is closed."""
    def wait(self, offset: int | AppendResult, timeout: float | timedelta | None = None) -> None:
        """Waits until it holds the message at a physical offset, as it acknowledges it.

        Parameters
        ----------
        offset : int or AppendResult
            The physical offset, or the result of the append on the master.
        timeout : float of seconds or timedelta, optional
            The longest wait. None waits for ever.

        Raises
        ------
        WaitTimeoutError
            The time is up. It is a `TimeoutError`.
        ClosedError
            The slave is closed.
        StoreError
            The slave has given up: its `error`.
        """
    def close(self) -> None:
        """Ends the connection, and closes the store. A second call does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
