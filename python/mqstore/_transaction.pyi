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
    ) -> Transaction: ...
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
    ) -> Half: ...
    def end(
        self, half: Half | str, how: Literal["commit", "rollback"], *, durable: bool | None = None
    ) -> AppendResult | None: ...
    def open(self) -> list[Half]: ...
    def check(
        self,
        callback: Callable[[Half], object] | None,
        *,
        timeout: float | timedelta = 6,
        interval: float | timedelta = 60,
        max_checks: int = 15,
    ) -> None: ...

@final
class Half:
    @property
    def id(self) -> str: ...
    @property
    def unique_key(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def queue_id(self) -> int | None: ...
    @property
    def physical_offset(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def checks(self) -> int: ...
    @property
    def store_time(self) -> datetime: ...
    @property
    def message(self) -> Message: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Transaction:
    @property
    def half(self) -> Half: ...
    def __enter__(self) -> Half: ...
    def __exit__(
        self, exception_type: type[BaseException] | None, exception: BaseException | None, traceback: TracebackType | None, /
    ) -> bool: ...

@final
class _Checker:
    def take_due(self) -> tuple[list[Half], float]: ...
    def wait(self, seconds: float) -> bool: ...
