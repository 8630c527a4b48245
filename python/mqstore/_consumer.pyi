from collections.abc import Iterable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Self, final

from mqstore._message import Message

@final
class Consumer(Iterator[Message]):
    """A consumer of a group: it polls messages, and acknowledges them. `Writer.consumer` and `Store.consumer` make one. A
    context manager, and an iterator over the messages as they come.

    Each message comes at least once. In the process that writes the store, the consumers of a group share its queues, by
    RocketMQ's rule for averages, and continue where the group was. The progress of a group is the first message of a queue
    that is not acknowledged; it is written to `config/consumerOffset.json` every 5 s, by `commit(durable=True)` and by
    `close`, and never passes a message that is not durable. After a crash the group gets the messages after it again.

    A consumer of a store that is open for reading keeps its positions in a file of its user, written every 5 s by a poll,
    by `commit(durable=True)` and by `close`. It works alone, and sends nothing back: `nack` raises `ReadOnlyError`.

    Any number of threads may use a consumer. It does not pickle, and raises `ClosedError` in a fork.
    """
    def __new__(cls, *_arguments: object, **_options: object) -> Consumer: ...
    @property
    def group(self) -> str | None:
        """Name of the group; None for a consumer that reads every message for itself."""
    @property
    def topics(self) -> list[str]:
        """The topics, ascending."""
    @property
    def skipped(self) -> int:
        """Number of lost or damaged messages that the group has skipped, with errors="skip"."""
    def poll(self, max_messages: int = 32, timeout: float | timedelta | None = None) -> list[Message]:
        """Returns up to `max_messages` messages; waits up to `timeout` for the first one. An append ends the wait.

        Parameters
        ----------
        max_messages : int, default 32
            The most messages to return, 1 or more.
        timeout : float of seconds, or timedelta, optional
            The longest wait. None waits for ever.

        Returns
        -------
        list of Message
            The messages; none when the time is over.

        Raises
        ------
        ValueError
            An argument is not one of those accepted.
        OffsetOutOfRangeError
            The progress of the group lies outside of a queue (`on_missing`).
        CorruptError
            A message is damaged. A store that was opened with `errors="skip"` skips and counts it.
        ClosedError, PoisonedError
            The store or the consumer is closed, or a write of the store has failed.
        """
    def ack(self, messages: Message | Iterable[Message]) -> int:
        """Acknowledges a message, or several. Returns how many of them were in flight: a message that took longer than
        `consume_timeout` is not, and neither is an acknowledged message.
        """
    def nack(self, message: Message, delay_level: int | None = None) -> bool:
        """Sends a message back: the group gets it again later.

        Parameters
        ----------
        message : Message
            The message, as a poll returned it.
        delay_level : int, optional
            The delay level after which it comes. None: after 10 s, 30 s, 1 min and so on up to 2 h.
            Negative: it becomes a dead letter at once.

        Returns
        -------
        bool
            False if the message was not in flight.

        Raises
        ------
        ReadOnlyError
            The store is open for reading.
        TypeError
            `message` is no `Message`, or the consumer has no group.
        StoreError
            As `append`: the message stays in flight.

        Notes
        -----
        After `max_reconsume_times` retries the message becomes a dead letter, in the topic `%DLQ%` and
        the name of the group. In an ordered topic it comes again after 1 s, and its queue waits.
        """
    def commit(self, durable: bool = False) -> None:
        """Writes the progress of the store's groups, or the positions, to disk if `durable`. Without it they are written every
        5 s, and by `close`.

        With a positions file raises `CorruptError` if messages were cut from the log since they were read, and
        `PositionMismatchError` if the store was replaced: the file keeps its positions then.
        """
    def seek(self, queue_id: int, offset: int, topic: str | None = None) -> None:
        """Continues at a queue offset of a queue. What is in flight in the queue is forgotten.

        Parameters
        ----------
        queue_id : int
            The id of the queue.
        offset : int
            The queue offset of the message that is handed out next.
        topic : str, optional
            The topic of the queue. It may be left out if the consumer has one topic.

        Raises
        ------
        TypeError
            The consumer has several topics, and none is named.
        OffsetOutOfRangeError
            The offset lies outside of the queue.
        """
    def position(self) -> dict[tuple[str, int], int]:
        """Returns the position in each queue that this consumer reads now, as a dict of (topic, queue id) to the queue offset
        that is handed out next.
        """
    def committed(self) -> dict[tuple[str, int], int]:
        """Returns the progress of the group in each queue that this consumer reads now, as a dict of (topic, queue id) to the
        first queue offset that is not acknowledged.
        """
    def lag(self) -> int:
        """Returns the number of messages in the queues of this consumer that are not acknowledged, also of those with other
        tags.
        """
    def pause(self, queues: Iterable[tuple[str, int]] | None = None) -> None:
        """Pauses these queues, pairs of (topic, queue id), by default all that this consumer reads now: `poll` returns no new
        message of them. They stay assigned to this consumer.
        """
    def resume(self, queues: Iterable[tuple[str, int]] | None = None) -> None:
        """Continues these queues, by default all that are paused."""
    def close(self) -> None:
        """Leaves the group, and makes its progress durable. The other consumers of the group get what this one has in flight.
        A second call does nothing.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __next__(self) -> Message: ...
