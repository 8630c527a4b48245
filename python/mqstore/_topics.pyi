from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Reversible, Sequence
from datetime import timedelta
from typing import Literal, TypeVar, final, overload

from mqstore._message import Message, MessageIterator
from mqstore._open import Recipe
from mqstore._scan import Batches, Tabular
from mqstore._store import Store
from mqstore._types import _Errors, _Time

_T = TypeVar("_T")

@final
class Topics(Mapping[str, Topic]):
    """The topics of a store by name, ascending: a mapping of str to Topic.

    If the queues are a RocksDB database the names come from walking the log. Any use raises `ClosedError` once the store is
    closed.
    """
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, name: str, /) -> Topic: ...
    @overload
    def get(self, key: str, default: None = None, /) -> Topic | None:
        """Returns the topic with a name.

        Parameters
        ----------
        key : str
            The name.
        default : object, optional
            What to return if there is no such topic.

        Returns
        -------
        Topic
            The topic, or `default`.

        Raises
        ------
        TypeError
            The name is not a str.
        """
    @overload
    def get(self, key: str, default: Topic | _T, /) -> Topic | _T: ...

@final
class Topic(Tabular, Collection[Message]):
    """One topic of a store, a collection of its messages.

    Iteration yields the messages queue by queue, in the order of their ids, and treats damage as iteration of a `Queue`
    does. If the files of a queue are lost, a `RuntimeWarning` and the `lost_queues` of the iterator name it. `len(topic)`
    is the sum of the lengths of its queues. A topic without messages is therefore false: `name in store.topics` tests
    whether it exists.
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
        """Returns the messages that the topic has now as Arrow record batches, one queue after the other, by id.

        Parameters
        ----------
        columns : iterable of str, optional
            The columns, in order; None for all.
        max_bytes : int, default 4194304
            About the most bytes in a batch.
        errors : {"raise", "skip"}, optional
            What to do at a message that was lost or is damaged. None: as in `open`.

        Returns
        -------
        Batches
            An iterable of `RecordBatch` that speaks Arrow; each iteration reads again. If the files of
            a queue are lost, `lost_queues` names it.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted.
        UnsupportedFormatError
            The queues are not files of this format (RocksDB, batch consume queue).
        CorruptError
            Raised by the iteration at a message that was lost or is damaged (`errors`).
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
    Iteration starts at `min_offset` and skips messages that the log no longer holds; at a message that was lost or is
    damaged it raises `CorruptError`, or, in a store opened with `errors="skip"`, skips and counts it
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
        """Returns the queue offset of the first message from a time on.

        Parameters
        ----------
        time : datetime with a timezone, or int of ms since 1970
            The time.
        side : {"left", "right"}, default "left"
            "left": of the first message stored at the time or later. "right": of the first one stored
            later.

        Returns
        -------
        int
            The queue offset; `max_offset` without such a message.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted, such as a datetime without a timezone.
        CorruptError
            A message on the way is damaged, unless the store was opened with `errors="skip"`.

        Notes
        -----
        Messages that expired or were lost are skipped, and with `open(errors="skip")` damaged ones,
        too. Where the writer's clock was set back, several messages of the time follow an earlier one:
        the answer is the first that the search sees, and a short stretch of such messages further back
        can be missed. `query` with `since` and `until` misses none.
        """
    def batches(
        self, columns: Sequence[str] | None = None, max_bytes: int = 4194304, *, errors: _Errors | None = None
    ) -> Batches:
        """Returns the messages that the queue has now as Arrow record batches.

        Parameters
        ----------
        columns : iterable of str, optional
            The columns, in order; None for all.
        max_bytes : int, default 4194304
            About the most bytes in a batch.
        errors : {"raise", "skip"}, optional
            What to do at a message that was lost or is damaged. None: as in `open`.

        Returns
        -------
        Batches
            An iterable of `RecordBatch` that speaks Arrow; each iteration reads again.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted.
        UnsupportedFormatError
            The queues are not files of this format (RocksDB, batch consume queue).
        CorruptError
            Raised by the iteration at a message that was lost or is damaged (`errors`).
        """
    def tail(
        self,
        timeout: float | timedelta | None = None,
        *,
        start: Literal["earliest", "latest"] | int | Mapping[tuple[str, int], int] = "latest",
        since: _Time | None = None,
        until: _Time | None = None,
        tags: str | None = None,
        errors: _Errors | None = None,
        on_missing: Literal["earliest", "latest"] | None = None,
    ) -> MessageIterator:
        """Returns an iterator of the messages of the queue as they come, which waits for more, as `Store.follow`.

        Parameters
        ----------
        timeout : float of seconds, or timedelta, optional
            Ends the iteration when no message has come for this time; None for never.
        start : {"latest", "earliest"}, int or mapping, default "latest"
            "latest": the messages that come from now on. "earliest": those that are there, too. An int: the
            queue offset to begin with, as in `Store.follow`. A mapping of (topic, queue id) to one, such as
            the `positions` of another pass.
        since, until, tags, errors, on_missing
            As in `Store.follow`.

        Returns
        -------
        MessageIterator
            The iterator. If the topic is deleted and made again, it continues with the first message of the
            new queue: a `RuntimeWarning` names the queue.

        Raises
        ------
        NotFoundError
            The queue does not hold the offset; the text names the bounds.
        TypeError, ValueError
            An argument is not one of those accepted.
        CorruptError
            Raised by the iteration, as by `Store.follow`.
        """
    def index(self, value: object, start: int = 0, stop: int = 9223372036854775807, /) -> int:
        """Returns the queue offset of a message of this queue.

        Parameters
        ----------
        value : object
            What is looked for.
        start, stop : int, default 0 and 2**63 - 1
            The bounds of the result, the second exclusive.

        Returns
        -------
        int
            The index of the value, as `[...]` takes it.

        Raises
        ------
        ValueError
            It is not there, or not within the bounds.
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
    where the log no longer holds the message, and iteration skips it. `s[a:b]` is a smaller `QueueSlice`.
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
        """Returns the messages of the slice as Arrow record batches, read when they are asked for.

        Parameters
        ----------
        columns : iterable of str, optional
            The columns, in order; None for all.
        max_bytes : int, default 4194304
            About the most bytes in a batch.
        errors : {"raise", "skip"}, optional
            What to do at a message that was lost or is damaged. None: as in `open`.

        Returns
        -------
        Batches
            An iterable of `RecordBatch` that speaks Arrow; each iteration reads again.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted.
        CorruptError
            Raised by the iteration at a message that was lost or is damaged (`errors`).
        """
    def index(self, value: object, start: int = 0, stop: int = 9223372036854775807, /) -> int:
        """Returns the index of a message in this slice.

        Parameters
        ----------
        value : object
            What is looked for.
        start, stop : int, default 0 and 2**63 - 1
            The bounds of the result, the second exclusive.

        Returns
        -------
        int
            The index of the value, as `[...]` takes it.

        Raises
        ------
        ValueError
            It is not there, or not within the bounds.
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

def _topics(store: Store | Recipe, /) -> Topics: ...
