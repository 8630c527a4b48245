from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack, final, overload

from mqstore._append import Writer
from mqstore._config import Options, RepairOptions, StoreConfig
from mqstore._reports import RepairReport, TrimReport
from mqstore._store import Store
from mqstore._types import _Path, _Writing

def repair(
    path: _Path,
    *,
    dry_run: bool = True,
    into: _Path | None = None,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[RepairOptions],
) -> RepairReport:
    """Verifies a store, repairs it, and verifies it again. By default it changes nothing and reports what it would change.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The directory of the store.
    dry_run : bool, default True
        False makes the changes.
    into : str, bytes or os.PathLike, optional
        A missing or empty directory, outside of any store: all files are copied into it, and the copy
        is repaired; the store stays as it is. Segments that are missing or cut short get salvage
        records, up to the highest offset that the mark of what was flushed, queues, index or checkpoint
        name: no offset is assigned again. None: the store itself; if a part of its log is missing it
        stays as it is, and `refusal` says what to put back.
    progress : callable, optional
        Called with two ints: how many bytes of the log are done, and of how many, in each pass (verify,
        write, verify again).
    **options
        The options of `open` but `recovery`, which is chosen here.

    Returns
    -------
    RepairReport
        The changes, and what is wrong after them.

    Raises
    ------
    LockedError
        A writer has the store.
    StoreExistsError
        `into` is not empty.
    ValueError
        `into` lies in a store.
    StoreError
        As `open` and `Store.verify`.

    Notes
    -----
    Queues, index and checkpoint are rebuilt from the log, as by `rebuild`, where one of them is wrong;
    queues of a topic that was deleted then come back if the log still has its messages. Files that do
    not belong into the store, and settings that are not JSON, are moved into a new directory
    `mqstore-backup-...` of the store, which `backup` names; move a file back to undo that. A record
    that is not whole is lost: a salvage record takes its place, as with `recovery="salvage"`, and every
    other message keeps its offsets. The segment as it was is copied into the backup first.

    It may be called again after an error or a crash, with another `into`: no message is lost then. Open readers continue.
    What `progress` raises ends the call.
    """

def rebuild(
    path: _Path,
    *,
    dry_run: bool = True,
    progress: Callable[[int, int], object] | None = None,
    **options: Unpack[RepairOptions],
) -> RepairReport:
    """Rebuilds the queues, the index and the checkpoint of a store from its log, and verifies it before and afterwards. Each
    queue keeps its offsets: entries of messages that have expired stay, and so does a queue without a message.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The directory of the store.
    dry_run : bool, default True
        True changes nothing, and reports what would be changed.
    progress : callable, optional
        As in `repair`.
    **options
        The options of `open` but `recovery`, which is chosen here. Where all files of a kind are
        gone, and nothing has recorded their sizes, those of a broker's defaults are made.

    Returns
    -------
    RepairReport
        What was changed, and the findings before and afterwards.

    Raises
    ------
    CorruptError
        The log is damaged, which needs `repair`; a part of it is missing, because queue offsets
        would be given again; or a message and a queue entry contradict each other about topic,
        queue id or queue offset.
        The error says what to do. Nothing is changed, and a dry run raises it, too.
    LockedError
        A writer has the store; a dry run does not ask.
    StoreError
        As `open` and `Store.verify`.

    Notes
    -----
    Queues of a topic that was deleted come back if the log still has its messages. It may be called
    again after an error or a crash, and open readers continue.
    """

def trim(
    path: _Path,
    before: int | datetime | timedelta | None = None,
    *,
    before_offset: int | None = None,
    max_bytes: int | None = None,
    dry_run: bool = True,
    force: bool = False,
    **options: Unpack[RepairOptions],
) -> TrimReport:
    """Removes the oldest messages of a store that no writer has open, such as that of a broker whose disk is full. By default
    it changes nothing and reports what it would remove.

    Parameters
    ----------
    path : str, bytes or os.PathLike
        The directory of the store.
    before : datetime with a timezone, int of ms since 1970, or timedelta, optional
        Removes messages that were stored before this time, or are older than this.
    before_offset : int, optional
        Removes messages before this physical offset.
    max_bytes : int, optional
        Removes the oldest messages until the log has at most this many bytes. One of the three is
        given.
    dry_run : bool, default True
        False removes the files.
    force : bool, default False
        As in `Writer.trim`.
    **options
        The options of `repair`, such as `lock_timeout`.

    Returns
    -------
    TrimReport
        As `Writer.trim`.

    Raises
    ------
    LockedError
        A writer has the store; a dry run does not ask.
    CorruptError
        The first segment that would stay does not begin with a message, a settings file with the
        progress of groups is damaged, or, unless `force` is true, the progress of a group is lost:
        nothing is removed.
    StoreError
        As `open`.

    Notes
    -----
    It only removes files, and needs no free space. It recovers nothing: the next writer finds the
    end of the log, the checkpoint and `abort` as they are. Messages that are not in their queues on
    disk stay, and `refusal` says so. After an error or a crash it may be called again.
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
        The open store, a context manager: a `Store`, which reads, with mode "r", and a `Writer`,
        which has all calls of a `Store` and those that append, with any other mode. A `Store` has
        no `append`: the call raises `AttributeError`.

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
class Recipe:
    """The path and options that open a reader again, in another process or later. A pickle holds it in place of an open store.
    It is one object for a store and everything that came from it, so that a pickle of several of them opens the store once.
    """

def _open_after(
    waited: timedelta,
    path: _Path,
    mode: str = "r",
    config: StoreConfig | None = None,
    **options: Unpack[Options],
) -> Store | None: ...
def _check_options(**options: Any) -> None: ...
def _rocketmq_options() -> dict[str, str]: ...
def _reopen(path: str, options: dict[str, Any]) -> Store: ...
