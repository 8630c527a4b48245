from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Literal, final

from typing_extensions import Buffer

from mqstore._append import AppendResult
from mqstore._message import Message
from mqstore._types import _Properties, _Time

@final
class Transactions:
    """The transactions of a store that is open for writing: `Writer.transactions` is one.

    A message of a transaction is appended as a *half message*, which consumers do not get. A commit appends its copy to its
    topic; a rollback ends it without one. Each transaction ends once: a second end raises `TransactionEndedError` with the
    outcome, after a crash too. A transaction that nobody ends stays open until a check asks about it.
    """
    def begin(
        self,
        topic: str,
        body: Buffer,
        *,
        group: str = "DEFAULT_PRODUCER",
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: _Properties | None = None,
        queue_id: int | Literal["next"] | None = None,
        sharding_key: str | None = None,
        unique_key: str | None = None,
        born_time: _Time | None = None,
        durable: bool | None = None,
    ) -> Transaction:
        """Begins a transaction with one message, for `with`: the block gets the half message, a `Half`. Its end commits the
        message, an exception rolls it back.

        Parameters
        ----------
        topic, body, group, tags, keys, properties, queue_id, sharding_key, unique_key, born_time
            As in `send_half`.
        durable : bool, optional
            As in `Writer.append`, for the half message and its end.

        Returns
        -------
        Transaction
            A context manager.

        Raises
        ------
        IllegalMessageError, StoreError
            As `send_half`; the end of the block as `end`.
        """
    def send_half(
        self,
        topic: str,
        body: Buffer,
        *,
        group: str = "DEFAULT_PRODUCER",
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: _Properties | None = None,
        queue_id: int | Literal["next"] | None = None,
        sharding_key: str | None = None,
        unique_key: str | None = None,
        born_time: _Time | None = None,
        durable: bool | None = None,
    ) -> Half:
        """Appends a half message, which consumers do not get until it is committed.

        Parameters
        ----------
        topic, body, tags, keys, properties, queue_id, sharding_key, born_time, durable
            As in `Writer.append`: of the message that the commit appends. The settings of its topic hold.
        group : str, default "DEFAULT_PRODUCER"
            The producer group, whose producers a broker would ask.
        unique_key : str, optional
            The property UNIQ_KEY. None makes one.

        Returns
        -------
        Half
            The half message, for `end`.

        Raises
        ------
        IllegalMessageError
            As `append`. A message of a transaction cannot be delayed.
        StoreError
            As `append`.
        """
    def end(self, half: Half | str, how: Literal["commit", "rollback"], *, durable: bool | None = None) -> AppendResult | None:
        """Ends the transaction of a half message. Returns the result of the committed message, an `AppendResult`, or None for
        a rollback.

        Parameters
        ----------
        half : Half or str
            The half message, or its `id`.
        how : {"commit", "rollback"}
            The end.
        durable : bool, optional
            As in `Writer.append`. After a power failure that takes an end that was not durable the
            transaction is open.

        Raises
        ------
        TransactionEndedError
            The transaction has ended: `outcome` says how. Nothing was stored.
        ValueError
            It is not a half message, or a `Half` of another store.
        NotFoundError
            Nothing is at that offset, or it has expired.
        CorruptError
            `config/consumerOffset.json`, or the half message, is damaged.
        StoreError
            As `append`: nothing was stored, and the transaction is open, unless `stored` is 1.
        """
    def open(self) -> list[Half]:
        """Returns the half messages whose transactions are open, the oldest first: a list of `Half`. A `RuntimeWarning` counts
        those that are left out because they are lost or damaged, and another one what may have ended transactions that are
        listed: op messages, and stretches of the log, that are lost or damaged. `BrokerState.transactions` has the same as
        plain data.
        """
    def check(
        self,
        callback: Callable[[Half], object] | None,
        *,
        timeout: float | timedelta = 6,
        interval: float | timedelta = 60,
        max_checks: int = 15,
    ) -> None:
        """Asks about open transactions, in a thread, until the close of the store.

        Parameters
        ----------
        callback : callable or None
            It gets a `Half`, and returns "commit" or "rollback"; anything else means that the end is not
            known yet, and so does an exception, which is logged. None ends the check that runs; another
            callback replaces it.
        timeout : float or timedelta, default 6
            The age of a half message at the first question, unless its property
            CHECK_IMMUNITY_TIME_IN_SECONDS states another.
        interval : float or timedelta, default 60
            The time between two questions.
        max_checks : int, default 15
            A half message that stays unanswered this many times is moved to
            TRANS_CHECK_MAX_TIME_TOPIC.

        Notes
        -----
        Without a check nothing is counted, and no transaction is given up. The count survives a reopen.
        """

@final
class Half:
    """A half message. `Transactions.send_half`, `begin` and `open` return it; it equals another one of the same half message."""
    @property
    def id(self) -> str:
        """Its offset message id: 32 hex digits, with which another process can end it."""
    @property
    def unique_key(self) -> str | None:
        """Its unique key, by which consumers know the message; None if a broker stored it without one."""
    @property
    def group(self) -> str | None:
        """The producer group."""
    @property
    def topic(self) -> str | None:
        """The topic that gets the message at the commit."""
    @property
    def queue_id(self) -> int | None:
        """The id of the queue that gets it."""
    @property
    def physical_offset(self) -> int:
        """The physical offset of its record."""
    @property
    def queue_offset(self) -> int:
        """Its number among the half messages."""
    @property
    def checks(self) -> int:
        """The number of questions about it so far."""
    @property
    def store_time(self) -> datetime:
        """When it was stored, in UTC, to the ms: its age counts from there."""
    @property
    def age(self) -> timedelta:
        """The time since it was stored: a `timedelta`, never negative."""
    @property
    def message(self) -> Message:
        """Its message, as it is stored among the half messages: a `Message`. Reads it."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Transaction:
    """A transaction with one message, for `with`: `Transactions.begin` makes one.

    The message is committed at the end of the block, and rolled back if the block raises. A block that has ended the half
    message itself leaves nothing to do.
    """
    @property
    def half(self) -> Half:
        """The half message: a `Half`."""
    def __enter__(self) -> Half: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None = None,
        exception: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> bool: ...

@final
class _Checker:
    def take_due(self) -> tuple[list[Half], float]: ...
    def wait(self, seconds: float) -> bool: ...
