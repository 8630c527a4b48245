# The types of arguments that several calls share.
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias, TypedDict

from typing_extensions import Buffer

from mqstore._message import Message

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

_Table: TypeAlias = _ArrowStream | _ArrowArray
# pyarrow and pandas ship no types.
_PyArrowRecordBatch: TypeAlias = Any
_PyArrowTable: TypeAlias = Any
_PandasDataFrame: TypeAlias = Any
_Time: TypeAlias = datetime | int
_Errors: TypeAlias = Literal["raise", "skip"]
_UsageBy: TypeAlias = Literal["topic", "queue_id", "tags", "hour", "segment"]
_Partition: TypeAlias = Literal["topic", "hour"]
_BodyAs: TypeAlias = Literal["base64", "text", "json"]
_Properties: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
_Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_Mode: TypeAlias = Literal["r", "r+", "a", "x"]
_Writing: TypeAlias = Literal["r+", "a", "x"]
# (topic, body, tags, keys, properties, queue_id)
_Row: TypeAlias = (
    Buffer
    | Message
    | Mapping[str, Any]
    | tuple[str | None, Buffer]
    | tuple[str | None, Buffer, str | None]
    | tuple[str | None, Buffer, str | None, str | Iterable[str] | None]
    | tuple[str | None, Buffer, str | None, str | Iterable[str] | None, _Properties | None]
    | tuple[str | None, Buffer, str | None, str | Iterable[str] | None, _Properties | None, int | None]
)
_Status: TypeAlias = Literal[
    "FOUND",
    "NO_MATCHED_MESSAGE",
    "MESSAGE_WAS_REMOVING",
    "OFFSET_FOUND_NULL",
    "OFFSET_OVERFLOW_BADLY",
    "OFFSET_OVERFLOW_ONE",
    "OFFSET_TOO_SMALL",
    "NO_MESSAGE_IN_QUEUE",
]

class _Conditions(TypedDict, total=False):
    topics: str | Iterable[str] | None
    queue_ids: int | Iterable[int] | None
    since: _Time | None
    until: _Time | None
    by: Literal["store", "born"]
    physical: tuple[int | None, int | None] | None
    tags: str | None
    keys: str | Iterable[str] | None
    properties: Mapping[str, str] | None
    body_contains: bytes | str | None
    body_regex: str | None
    limit: int | None
    errors: _Errors | None
    progress: Callable[[int, int], object] | None
    max_mb_per_s: float | None

class _ExportConditions(_Conditions, total=False):
    transactions: Literal["committed", "all"]
    order: Literal["log", "queue"]
    reverse: bool
    batch_bytes: int
