"""Passes malformed Arrow data to a store. It reads a pickled case a line and writes an answer a line.

It runs in a process of its own, so that whoever asks sees a crash as the end of the answers.
"""

from __future__ import annotations

import base64
import ctypes
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import mqstore

Capsules = tuple[object, object]


class Schema(ctypes.Structure):
    """`struct ArrowSchema`."""

    _fields_ = [
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


class Array(ctypes.Structure):
    """`struct ArrowArray`."""

    _fields_ = [
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.POINTER(ctypes.c_void_p)),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


NOTHING = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
ALIVE: list[object] = [NOTHING]
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Poked:
    """A table of columns `topic`, `body` (and `key`) whose C structs were changed. Nothing of it is ever freed."""

    def __init__(self, change: dict[str, Any]) -> None:
        column = pa.array(["orders", "b", "c"], type=pa.type_for_alias(change.get("type", "string")))
        table = pa.record_batch({"topic": column, "key": column, "body": pa.array([b"x"] * 3)})
        self.array, self.schema = Array(), Schema()
        ALIVE.extend([table, self.array, self.schema])
        table._export_to_c(ctypes.addressof(self.array), ctypes.addressof(self.schema))
        self.array.release = self.schema.release = ctypes.cast(NOTHING, ctypes.c_void_p).value
        target: Any = self.array
        if "child" in change:
            target = ctypes.cast(self.array.children[change["child"]], ctypes.POINTER(Array)).contents
        for name, value in change.get("array", {}).items():
            setattr(target, name, value)
        for at, pointer in change.get("buffers", {}).items():
            target.buffers[at] = None if pointer is None else target.buffers[at] + pointer
        for name, value in change.get("schema", {}).items():
            setattr(self.schema, name, value)
        if change.get("no child"):
            self.array.children[0] = None

    def __arrow_c_array__(self, requested_schema: object = None) -> Capsules:
        del requested_schema
        schema = new_capsule(ctypes.addressof(self.schema), b"arrow_schema", None)
        return schema, new_capsule(ctypes.addressof(self.array), b"arrow_array", None)


def made(spec: Any) -> pa.Array:
    """The array of (type, length, null count, buffers, offset, children)."""
    kind, length, null_count, buffers, offset, children = spec
    if kind == "dictionary":
        return pa.DictionaryArray.from_arrays(made(children[0]), made(children[1]), safe=False)
    types: dict[str, Callable[[], pa.DataType]] = {
        "list": lambda: pa.list_(items[0].type),
        "large_list": lambda: pa.large_list(items[0].type),
        "struct": lambda: pa.struct([(f"f{at}", item.type) for at, item in enumerate(items)]),
        "map": lambda: pa.map_(pa.string(), pa.string()),
        "fixed": lambda: pa.binary(3),
        "string_view": pa.string_view,
        "binary_view": pa.binary_view,
    }
    items = [made(child) for child in children]
    if kind == "map":
        entries = pa.StructArray.from_buffers(
            pa.struct([pa.field("key", pa.string(), False), ("value", pa.string())]), len(items[0]), [None], children=items
        )
        items = [entries]
    data_type = types[kind]() if kind in types else pa.type_for_alias(kind)
    given = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(data_type, length, given, null_count, offset, items)


def tables(array: pa.Array) -> Iterator[tuple[str, Any]]:
    """Ways in which the array may come in, and what they are asked."""
    rows = len(array)
    body, topic = pa.array([b"x"] * rows), pa.array(["orders"] * rows)
    for name in ("topic", "tags", "unique_key", "keys", "properties", "born_time", "queue_id", "born_host"):
        yield "append", {"body": body, "topic": topic} | {name: array}
    yield "append", {"topic": topic, "body": array}
    yield "offsets", {"topic": array, "queue_id": array, "queue_offset": array}
    yield "offsets", {"topic": topic, "queue_id": pa.nulls(rows), "queue_offset": array}
    yield "offsets", {"topic": array, "queue_id": pa.array([0] * rows), "queue_offset": pa.array([0] * rows)}
    yield "keys", {"topic": topic, "key": array}
    yield "times", {"topic": array, "queue_id": array, "time": array}
    yield "times", {"topic": topic, "queue_id": pa.array([0] * rows), "time": array}
    yield "ids", {"id": array}
    yield "fetch", {"physical_offset": array}


def ask(store: mqstore.Store, what: str, table: Any) -> str:
    asked: dict[str, Callable[[Any], object]] = {
        "append": store.append_batch,
        "offsets": store.resolve_offsets,
        "keys": store.resolve_keys,
        "times": store.resolve_times,
        "ids": store.resolve_ids,
        "fetch": lambda given: store.fetch(given),
    }
    try:
        asked[what](table)
    except (ValueError, TypeError) as error:
        return str(error)
    return "taken"


def answer(store: mqstore.Store, case: tuple[str, Any]) -> list[str]:
    kind, given = case
    if kind == "poked":
        return [ask(store, what, Poked(given)) for what in ("append", "offsets", "keys", "times", "ids", "fetch")]
    try:
        array = made(given)
    except pa.ArrowException as error:
        return [f"refused by pyarrow itself: {error}"]
    answers = []
    for what, columns in tables(array):
        batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        for table in (batch, pa.Table.from_batches([batch[:0], batch, batch[1:]])):
            answers.append(ask(store, what, table))
    return answers


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, mqstore.open(Path(folder) / "store", "x") as store:
        for line in sys.stdin:
            try:
                reply: Any = answer(store, pickle.loads(base64.b64decode(line)))
            except BaseException as error:
                reply = f"{type(error).__name__}: {error}"
            print(base64.b64encode(pickle.dumps(reply)).decode(), flush=True)
            for queue in store.topics["orders"].queues if "orders" in store.topics else ():
                for message in queue[-50:]:
                    _ = message.properties, message.topic


if __name__ == "__main__":
    main()
