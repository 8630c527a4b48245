from collections.abc import AsyncIterator, Collection, Iterator, Reversible, Sequence
from socket import socket as _Socket
from typing import final, overload

from typing_extensions import Buffer

from mqstore._message import Message, MessageIterator
from mqstore._open import Recipe
from mqstore._scan import Batches, Tabular
from mqstore._store import Store
from mqstore._types import _Status

@final
class GetResult(Tabular, Reversible[Message], Collection[Message]):
    """The answer to `Store.get`: a sequence of Message, with the status and offsets that a consumer needs for its next call."""
    @property
    def status(self) -> _Status:
        """The status, by RocketMQ's name: FOUND, `NO_MATCHED_MESSAGE`, `MESSAGE_WAS_REMOVING`, `OFFSET_FOUND_NULL`,
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
        """True if the messages are so far from the end of the log that they count as not cached."""
    @property
    def skipped(self) -> int:
        """The number of messages that were skipped because they were lost or are damaged: always 0 with `errors="raise"`."""
    def batches(self, columns: Sequence[str] | None = None, max_bytes: int = 4194304) -> Batches:
        """Returns the messages of the answer as Arrow record batches. They were read already, so a closed store does not
        matter.

        Parameters
        ----------
        columns : iterable of str, optional
            The columns, in order; None for all.
        max_bytes : int, default 4194304
            About the most bytes in a batch.

        Returns
        -------
        Batches
            An iterable of `RecordBatch` that speaks Arrow.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted.
        """
    def send_to(self, socket: _Socket, header: Buffer = b"", *, start: int = 0) -> int:
        """Sends the records of the messages to a socket, as the log has them: those of sealed segments from the page cache,
        without a copy in this process.

        Parameters
        ----------
        socket : socket.socket
            A connected stream socket. Its timeout bounds the call.
        header : bytes-like, default b""
            Bytes that are sent before the records.
        start : int, default 0
            Bytes of header and records that are left out: those that earlier calls have sent.

        Returns
        -------
        int
            The bytes that were sent: all of header and records but the first `start`.

        Raises
        ------
        TypeError
            `socket` is no `socket.socket`, or an `ssl.SSLSocket`: the records would bypass TLS. Send
            `message.raw` of each message with its own methods.
        ValueError
            It is no stream socket, or header and records have fewer than `start` bytes.
        TimeoutError
            The timeout of the socket has passed.
        BlockingIOError
            The socket does not block, and its buffer is full: call again with a higher `start` once it is
            writable.
        CorruptError
            Another process has cut the file of a record short, or the device fails to read it. The last
            bytes that were sent may be zeros.
        OSError
            Any other error of the socket, such as BrokenPipeError; of a closed one, EBADF.

        Notes
        -----
        An error that ends the call has an attribute `characters_written`: the bytes that this call has
        sent. The call releases the interpreter, and signal handlers run during it. Bytes may leave the
        page cache after it returns: a process that overwrites the file then changes them.
        """
    def index(self, value: object, start: int = 0, stop: int = 9223372036854775807, /) -> int:
        """Returns the index of a message in the answer.

        Parameters
        ----------
        value : Message
            The message.
        start, stop : int, default 0 and 2**63 - 1
            The indexes between which it is looked for, the second exclusive. A negative one counts from
            the end.

        Returns
        -------
        int
            The index.

        Raises
        ------
        ValueError
            The message is not there.
        """
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

    The query has checked each message. A message that has expired, was damaged or replaced since raises `NotFoundError` or
    `CorruptError` when it is read; with `errors="skip"` a read of several passes over it, and `skipped` and `complete` then
    take account of it. An answer pickles as its store does; the messages of another store at that path count as gone.
    """
    @property
    def complete(self) -> bool:
        """True if these are all messages that match. False if the limit left messages out (`covers[0]` then says where it
        starts), if a message that could match was skipped (`skipped`) or its segment was removed during the query, and if
        `Store.recovery` is not complete.
        """
    @property
    def covers(self) -> tuple[int, int]:
        """The physical offsets (begin, end) that were looked at, end exclusive: down from the log's end, until the limit was
        reached. Every message there that matches is in the answer, unless it was skipped.
        """
    @property
    def skipped(self) -> int:
        """The number of offsets in the log that were skipped, because a message that could match was lost there, or, with
        `errors="skip"`, is damaged there; with those of the messages that reads of the answer have skipped so far.
        """
    def batches(self, columns: Sequence[str] | None = None, max_bytes: int = 4194304) -> Batches:
        """Returns the messages of the answer as Arrow record batches, read when they are asked for.

        Parameters
        ----------
        columns : iterable of str, optional
            The columns, in order; None for all.
        max_bytes : int, default 4194304
            About the most bytes in a batch.

        Returns
        -------
        Batches
            An iterable of `RecordBatch` that speaks Arrow; each iteration reads again.

        Raises
        ------
        TypeError, ValueError
            An argument is not one of those accepted.
        NotFoundError, CorruptError
            Raised by the iteration at a message that has expired, or is damaged, since the query,
            unless that had `errors="skip"`.
        """
    def index(self, value: object, start: int = 0, stop: int = 9223372036854775807, /) -> int:
        """Returns the index of a message in this answer.

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

def _get_result(status: str, offsets: tuple[int, int, int], rest: tuple[bool, int, tuple[Message, ...]]) -> GetResult: ...
def _query_result(
    store: Store | Recipe,
    coverage: tuple[bool, tuple[int, int], int],
    asked: tuple[str, str | None, str | None],
    options: tuple[tuple[int, int], int | None, bool],
    found: tuple[list[tuple[int, int, int, int]], list[int]],
) -> QueryResult: ...
