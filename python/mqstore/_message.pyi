from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Literal, final

from typing_extensions import Buffer

from mqstore._types import _Properties, _Time

@final
class MessageIterator(Iterator[Message]):
    """Messages one by one: `iter` of a topic, a queue, a slice of one or the answer to a query.

    It reads blocks of messages and releases the interpreter for that, so other threads run. `Store.follow` and `Queue.tail`
    return an iterator that waits for more messages; it may be asked again after it has ended at its timeout. `async for`
    reads it without blocking the event loop.
    """
    @property
    def skipped(self) -> int:
        """The number of messages that were skipped so far, because they were lost or are damaged; a few messages are read
        ahead. Always 0 in a store that was opened with `errors="raise"`.
        """
    @property
    def lost_queues(self) -> list[tuple[str, int]]:
        """Topic and queue id of each queue whose files are lost and whose messages, which the log has, are missing in this
        pass over a topic or a store: a new list. A `RuntimeWarning` names them. `Store.follow` adds a queue when it comes
        to its first message.
        """
    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """The positions after the messages that were returned so far, of `Store.follow` and `Queue.tail`: a dict of (topic,
        queue id) to a queue offset. As `start` of another pass, or of a consumer, it continues with the next message, also
        in another process. A pass that was begun with such a dict has its queues; another one has every queue of its topics
        that exists, and a queue that comes later is not in the dict.

        Raises `TypeError` for an iterator that does not wait for messages. It waits for a thread that waits for the next
        message.
        """
    def _is_due(self, waited: timedelta) -> bool: ...
    def _look(self, waited: timedelta) -> bool | None: ...
    def _take(self) -> Message | None: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __next__(self) -> Message: ...

@final
class Message:
    """One message as it is stored: a frozen view of its record, which stays readable after the store is closed.

    A store gives it; `Message(topic, body, ...)` makes one for a test. Two messages are equal if their records are, byte
    for byte. A message pickles by value. Text that is not UTF-8 reads with U+FFFD in it. Every attribute raises
    `CorruptError` if the device fails to read the bytes, or the file was shortened.
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
        """The topic it was written to. For a message that a `Consumer` returned after a retry, that of its first record."""
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

        Raises `StoreError` outside the years 1 to 9999.
        """
    @property
    def born_time(self) -> datetime:
        """When its producer made it, in UTC, to the ms.

        Raises `StoreError` outside the years 1 to 9999.
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
        """Returns the decoded body parsed as JSON, as `json.loads` does.

        Raises `ValueError` (a `json.JSONDecodeError`, a `UnicodeDecodeError`) for a body that is not JSON, and what
        `decoded_body` raises.
        """
    @property
    def body_crc(self) -> int:
        """The CRC-32 of the body as the record states it, an int of 31 bits; a read has compared it with the body."""
    @property
    def raw(self) -> bytes:
        """The whole record as it is stored in the commit log: bytes."""
    @property
    def version(self) -> Literal[1, 2]:
        """The form of the record: 1, or 2 for a topic of more than 127 bytes."""
    @property
    def transaction(self) -> Literal["prepared", "commit", "rollback"] | None:
        """Its part in a transaction: "prepared", "commit", "rollback", or None."""
    @property
    def compression(self) -> Literal["zlib", "lz4", "zstd"] | None:
        """The compression of the body, which `decoded_body` reverses: "zlib", "lz4", "zstd", or None.

        Raises `ValueError` for a kind of compression that RocketMQ does not have.
        """
    @property
    def delay_level(self) -> int:
        """The level by which its producer delayed it (property DELAY): an int from 1; 0 for none."""
    def to_dict(self) -> dict[str, Any]:
        """Returns a dict of every column, in the order of the schema: the attributes of this object. A time outside the years
        1 to 9999 is an int of ms since 1970.
        """
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

def _message(record: bytes) -> Message: ...
