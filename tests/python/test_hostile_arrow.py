"""Malformed Arrow data gives rows or a `ValueError`: never a crash, a panic or another error."""

from __future__ import annotations

import base64
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mqstore

PROGRAM = Path(__file__).with_name("hostile_arrow.py")


class Worker:
    """A process that passes cases to a store; a process that crashed is replaced."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, case: tuple[str, Any]) -> Any:
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(base64.b64encode(pickle.dumps(case)).decode(), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.process = None
            raise AssertionError(f"the process ended with {code} at {case}")
        reply = pickle.loads(base64.b64decode(line))
        assert isinstance(reply, list), reply
        return reply


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    if worker.process is not None:
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        assert worker.process.wait(60) == 0


def latin(words: list[bytes], kind: pa.DataType | None = None) -> pa.Array:
    """Text in Latin-1 that says that it is UTF-8, as a Parquet file of a careless program has it."""
    kind = kind or pa.string()
    binary = pa.array(words, type=pa.large_binary() if kind == pa.large_string() else pa.binary())
    return pa.Array.from_buffers(kind, len(words), binary.buffers())


# Bytes of values. Memory is always as long as the lengths and the last offset ask for: no consumer can see otherwise.
VALUES = 512
# Types without children.
LEAVES = ["string", "large_string", "binary", "large_binary", "string_view", "binary_view", "int32", "uint64", "fixed", "null"]


@st.composite
def arrays(draw: st.DrawFn, depth: int = 0) -> Any:
    """Arrays of any type that a message's column can have, their buffers filled with anything."""
    nested = ["list", "large_list", "struct", "map", "dictionary"] if depth < 2 else []
    kind = draw(st.sampled_from(LEAVES + nested))
    length, offset = draw(st.integers(0, 6)), draw(st.integers(0, 3))
    noise = random.Random(draw(st.integers(0, 2**32)))
    tame = draw(st.booleans())
    slots = length + offset
    null_count = draw(st.sampled_from([-1, -1, 0, 1, length]))
    validity = draw(st.sampled_from([None, noise.randbytes(8)]))
    text = b"\x00key tag-" * 64 if tame else noise.randbytes(VALUES)

    def offsets(code: str, most: int) -> bytes:
        values = sorted(noise.randint(0, most) for _ in range(slots + 1))
        if draw(st.booleans()):
            values = [noise.choice([*values, -1, 2**31 - 1, most + 1]) for _ in values[1:]] + [noise.choice([values[-1], -7])]
        return struct.pack(f"={slots + 1}{code}", *values)

    if kind in ("string", "binary"):
        return kind, length, null_count, [validity, offsets("i", VALUES), text], offset, []
    if kind in ("large_string", "large_binary"):
        return kind, length, null_count, [validity, offsets("q", VALUES), text], offset, []
    if kind.endswith("_view"):
        buffers = [validity, views_of(noise, slots), text, noise.randbytes(20)][: draw(st.sampled_from([2, 3, 4]))]
        return kind, length, null_count, buffers, offset, []
    if kind == "null":
        return kind, length, length, [None], 0, []
    if kind in ("int32", "uint64", "fixed"):
        return kind, length, null_count, [validity, noise.randbytes(8 * slots)], offset, []
    if kind == "dictionary":
        indices = struct.pack(f"={slots}i", *(noise.choice([0, 1, 5, -1, 2**31 - 1]) for _ in range(slots)))
        return kind, 0, 0, [], 0, [("int32", length, null_count, [validity, indices], offset, []), draw(arrays(depth + 1))]
    children = [draw(arrays(depth + 1)) for _ in range(1 if kind.endswith("list") else 2)]
    if kind == "struct":
        return kind, min(child_length(child) for child in children), null_count, [validity], 0, children
    if kind == "map":
        children = [
            child if child[0] == "string" else ("string", 4, 0, [None, offsets_of(4), b"word" * 4], 0, []) for child in children
        ]
        shortest = min(child_length(child) for child in children)
        children = [(child[0], shortest, *child[2:]) for child in children]
        return kind, length, null_count, [validity, offsets("i", shortest)], offset, children
    return (
        kind,
        length,
        null_count,
        [validity, offsets("q" if kind == "large_list" else "i", child_length(children[0]))],
        offset,
        children,
    )


def views_of(noise: random.Random, slots: int) -> bytes:
    """Views: a length, a prefix, the number of a buffer and an offset in it."""
    return b"".join(
        struct.pack(
            "=i4sii",
            noise.choice([0, 3, 12, 13, 40, -1, 2**31 - 1]),
            noise.randbytes(4),
            noise.choice([0, 0, 1, 5, -1]),
            noise.choice([0, 9, 500, -3]),
        )
        for _ in range(slots)
    )


def offsets_of(words: int) -> bytes:
    return struct.pack(f"={words + 1}i", *range(0, 4 * (words + 1), 4))


def child_length(spec: Any) -> int:
    return child_length(spec[5][0]) if spec[0] == "dictionary" else spec[1]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(spec=arrays())
def test_arrays_of_garbage_end_in_rows_or_in_a_value_error(worker: Worker, spec: Any) -> None:
    worker.ask(("array", spec))


POKES: dict[str, dict[str, Any]] = {
    "a negative length": {"array": {"length": -1}},
    "a negative offset": {"array": {"offset": -3}},
    "an endless length": {"array": {"length": 2**62}},
    "a length that overflows": {"child": 0, "array": {"length": 2**63 - 1, "offset": 1}},
    "more rows than its columns have": {"array": {"length": 5}},
    "fewer rows in a column": {"child": 1, "array": {"length": 2}},
    "more nulls than rows": {"child": 0, "array": {"null_count": 4}},
    "nulls without saying where": {"child": 0, "array": {"null_count": 1}},
    "too few buffers": {"child": 0, "array": {"n_buffers": 2}},
    "too many buffers": {"child": 0, "array": {"n_buffers": 7}},
    "negative buffers": {"child": 0, "array": {"n_buffers": -1}},
    "no array of buffers": {"child": 0, "array": {"buffers": None}},
    "no offsets": {"child": 0, "buffers": {1: None}},
    "no values": {"child": 0, "buffers": {2: None}},
    "offsets at an odd address": {"child": 0, "buffers": {1: 1}},
    "too few children": {"array": {"n_children": 1}},
    "negative children": {"array": {"n_children": -1}},
    "no array of children": {"array": {"children": None}},
    "a child that is null": {"no child": True},
    "an array that was released": {"array": {"release": None}},
    "a schema that was released": {"schema": {"release": None}},
    "a schema without a type": {"schema": {"format": None}},
    "a type of another shape": {"schema": {"format": b"+l"}},
    "an unknown type": {"schema": {"format": b"?!"}},
    "a type that is not text": {"schema": {"format": b"\xff"}},
    "a schema of fewer columns": {"schema": {"n_children": 1}},
    "a schema of negative columns": {"schema": {"n_children": -1}},
    "views without the lengths of their buffers": {"type": "string_view", "child": 0, "array": {"n_buffers": 2}},
}


@pytest.mark.parametrize("poke", POKES)
def test_structs_that_contradict_themselves_are_refused(worker: Worker, poke: str) -> None:
    answers = worker.ask(("poked", POKES[poke]))
    assert "taken" not in answers, answers


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("column", ["topic", "tags", "unique_key", "keys", "born_host", "body"])
def test_latin_text_is_refused_by_column_and_row(store: mqstore.Store, column: str, kind: pa.DataType) -> None:
    words = latin([b"fine", b"too", b"caf\xe9"], kind)
    table = pa.table({"body": [b"x"] * 3, "topic": ["orders"] * 3} | {column: words})
    with pytest.raises(ValueError, match=rf'^column "{column}", row 2: Invalid UTF8'):
        store.append_batch(table)
    with pytest.raises(ValueError, match=rf'^column "{column}", row 4: Invalid UTF8'):
        store.append_batch(pa.concat_tables([table[:2], table]))
    assert not store.topics


def test_latin_text_in_a_list_is_refused_by_its_row(store: mqstore.Store) -> None:
    keys = pa.ListArray.from_arrays([0, 2, 2, 4], latin([b"a", b"b", b"c", b"\xe9"]))
    with pytest.raises(ValueError, match=r'^column "keys", row 2: .*UTF8'):
        store.append_batch(pa.table({"body": [b"x"] * 3, "keys": keys}), "orders")


def test_latin_text_to_be_resolved_is_refused(store: mqstore.Store) -> None:
    with pytest.raises(ValueError, match=r'^column "key", row 0: Invalid UTF8'):
        store.resolve_keys(pa.table({"topic": ["orders"], "key": latin([b"\xe9"])}))
    with pytest.raises(ValueError, match=r'^column "topic", row 1: Invalid UTF8'):
        store.resolve_offsets(pa.table({"topic": latin([b"a", b"\xe9"]), "queue_id": [0, 0], "queue_offset": [0, 0]}))


@pytest.mark.parametrize("index", [2, -1])
def test_an_index_past_the_words_of_a_dictionary_is_refused(store: mqstore.Store, index: int) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, index]), pa.array(["paid", "refund"]), safe=False)
    with pytest.raises(ValueError, match=r'^column "tags", row 2: .*out of bounds'):
        store.append_batch(pa.table({"body": [b"x"] * 3, "tags": words}), "orders")


def test_a_null_may_have_any_index_and_rows_outside_a_slice_any_bytes(store: mqstore.Store) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0, None, 9]), pa.array(["paid"]), safe=False)
    table = pa.table({"body": [b"x"] * 3, "tags": words})
    offsets = store.append_batch(table[:2], "orders")
    assert [store.message_at(offset).tags for offset in offsets] == ["paid", None]


class Once:
    """Gives the same capsules at every call."""

    def __init__(self, method: str, table: Any) -> None:
        capsule = getattr(table, method)()
        setattr(self, method, lambda *_: capsule)


@pytest.mark.parametrize("method", ["__arrow_c_stream__", "__arrow_c_array__"])
def test_a_capsule_is_taken_once(store: mqstore.Store, method: str) -> None:
    batch = pa.record_batch({"body": [b"x"]})
    once = Once(method, batch if method == "__arrow_c_array__" else pa.table(batch))
    assert len(store.append_batch(once, "orders")) == 1
    with pytest.raises(ValueError, match="read or released before: ask for a new one"):
        store.append_batch(once, "orders")


def test_a_stream_that_fails_midway_stores_nothing_and_says_why(store: mqstore.Store) -> None:
    schema = pa.schema([("body", pa.binary())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"body": [b"x"]}, schema=schema)
        raise RuntimeError("no more of it")

    with pytest.raises(ValueError, match="producer of the Arrow stream failed: .*no more of it"):
        store.append_batch(pa.RecordBatchReader.from_batches(schema, batches()), "orders")
    assert not store.topics


def test_a_stream_whose_schema_changes_is_refused(store: mqstore.Store) -> None:
    schema = pa.schema([("body", pa.binary())])
    other = pa.record_batch({"body": [b"x"], "tags": ["a"]})
    with pytest.raises(ValueError, match="children|failed"):
        store.append_batch(pa.RecordBatchReader.from_batches(schema, iter([other])), "orders")


def test_types_inside_types_have_a_bottom(store: mqstore.Store) -> None:
    deep = pa.int32()
    for _ in range(200):
        deep = pa.list_(deep)
    with pytest.raises(ValueError, match="more than 64 types inside one another"):
        store.append_batch(pa.table({"body": [b"x"], "keys": pa.nulls(1, deep)}), "orders")


def test_more_rows_than_memory_holds_are_refused(store: mqstore.Store) -> None:
    """A column of nulls takes no memory, whatever its length."""
    nulls = pa.Array.from_buffers(pa.null(), 2**45, [None])
    with pytest.raises(ValueError, match="no memory for the table's 35184372088832 rows"):
        store.resolve_offsets(pa.RecordBatch.from_arrays([nulls] * 3, ["topic", "queue_id", "queue_offset"]))
    with pytest.raises(ValueError, match="no memory for the table's 35184372088832 rows"):
        store.append_batch(pa.RecordBatch.from_arrays([nulls], ["body"]), "orders")


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary", "list"])
def test_under_a_null_there_may_be_any_text(store: mqstore.Store, kind: str) -> None:
    """Arrow leaves these bytes to the producer: they read as a null, and text elsewhere that is not UTF-8 is refused as ever."""
    validity = pa.py_buffer(b"\x05")  # the second of three is null
    long = kind == "large_string"
    offsets = pa.py_buffer(struct.pack("4q" if long else "4i", 0, 1, 3, 4))

    def made(words: bytes) -> pa.Array:
        if kind == "string_view":
            views = [struct.pack("i12s", size, text) for size, text in ((1, words[:1]), (2, words[1:3]), (1, words[3:]))]
            return pa.Array.from_buffers(pa.string_view(), 3, [validity, pa.py_buffer(b"".join(views))])
        texts = pa.Array.from_buffers(pa.large_string() if long else pa.string(), 3, [validity, offsets, pa.py_buffer(words)])
        if kind == "dictionary":
            return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), texts)
        return pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts) if kind == "list" else texts

    column = "keys" if kind == "list" else "tags"
    bodies = pa.array([b"x"] * 3)
    if kind == "list":
        # A list of keys holds no null: that it is said to be one shows that the text was not looked at.
        with pytest.raises(ValueError, match="holds a null in a list"):
            store.append_batch(pa.table({"body": bodies, "keys": made(b"a\xff\xfeb")}), "orders")
    else:
        stored = store.append_batch(pa.table({"body": bodies, "tags": made(b"a\xff\xfeb")}), "orders")
        assert [store.message_at(at).tags for at in stored] == ["a", None, "b"]
    with pytest.raises(ValueError, match=f'column "{column}".*(?i:utf-?8)'):
        store.append_batch(pa.table({"body": bodies, column: made(b"\xffcdb")}), "orders")
