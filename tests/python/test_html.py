"""The display of objects in a notebook."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import mqstore
from mqstore import _html


class Table(HTMLParser):
    """The cells of a table by row. Refuses what is not a table, and any tag that a message could bring along."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("table", "caption", "tr", "th", "td"), tag
        assert {name for name, _ in attrs} <= {"style"}
        if tag in ("caption", "tr"):
            self.rows.append([""] if tag == "caption" else [])
        elif tag != "table":
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.rows[-1][-1] += data


def rows(value: object) -> list[list[str]]:
    """The rows of what a notebook shows, after the line of the object."""
    html = value._repr_html_()  # type: ignore[attr-defined]
    assert html.startswith("<table>")
    assert len(html) < 40_000
    first, *others = Table(html).rows
    # A table of text follows the line of a `RecordBatch`.
    line = repr(value).partition("\n")[0]
    assert first == [line] if len(line) <= 1000 else first[0][:1000] == line[:1000]
    assert len(others) <= _html.ROWS + 12
    return others


def test_every_object_that_a_call_gives_is_shown_as_a_table(store: mqstore.Store) -> None:
    done = store.append("orders", b"hello", tags="paid", keys=["o-1", "o-2"], properties={"region": "eu"})
    topic = store.topics["orders"]
    queue = topic.queues[0]
    messages = [["queue_id", "queue_offset", "store_time", "tags", "keys", "body"]]
    messages.append(["0", "0", queue[0].store_time.isoformat(timespec="milliseconds"), "paid", "o-1, o-2", "hello"])
    assert rows(queue) == rows(queue[:]) == rows(store.get("orders", 0, 0)) == rows(store.query("orders", "o-2")) == messages
    assert rows(topic) == rows(topic.queues) == [["queue_id", "min_offset", "max_offset", "messages"], ["0", "0", "1", "1"]]
    assert rows(store.topics) == [["topic", "queues", "messages"], ["orders", "1", "1"]]
    batches = queue.batches(["tags", "keys", "body"])
    assert rows(batches) == [["column", "type"], ["tags", "string"], ["keys", "list<item: string>"], ["body", "binary"]]
    assert rows(next(iter(batches))) == [["tags", "keys", "body"], ["paid", "o-1, o-2", "b'hello'"]]
    shown = dict(rows(queue[0]))
    assert (shown["topic"], shown["tags"], shown["body"], shown["property region"]) == ("orders", "paid", "5 bytes: hello", "eu")
    assert dict(rows(done))["message_id"] == done.message_id
    assert dict(rows(store.stats()))["put_message_times_total"] == "1"
    assert dict(rows(store.stats().topics["orders"]))["put_message_times_total"] == "1"
    assert dict(rows(store.recovery))["complete"] == "True"
    assert dict(rows(store))["mode"] == "a"
    report = store.verify()
    assert [row[1] for row in rows(report)] == ["id", *(finding.id for finding in report.findings)]
    assert dict(rows(report.findings[0]))["id"] == "store.not_closed"
    repaired = mqstore.repair(store.path)
    assert rows(repaired)[0] == ["action", "file", "message"]
    assert rows(report)[0] == ["severity", "id", "file", "offset", "count", "message", "fix"]


def test_every_public_class_that_holds_something_is_shown() -> None:
    shown = {name for name in mqstore.__all__ if hasattr(getattr(mqstore, name), "_repr_html_")}
    classes = {name for name in mqstore.__all__ if isinstance(getattr(mqstore, name), type) and not name.endswith("Error")}
    # A sequence of numbers, whose line says as much, iterators, which to show would use up, and some that have calls alone.
    calls = {"Consumer", "Inspect", "BrokerState", "Transactions", "Transaction", "Half", "TopicWriter", "Replica"}
    assert classes - shown == {"Offsets", "MessageIterator"} | calls


def test_a_config_is_shown_with_the_options_that_were_given() -> None:
    assert rows(mqstore.StoreConfig(errors="skip", max_index_num=9, max_hash_slot_num=4))[1:] == [
        ["max_hash_slot_num", "4"],
        ["max_index_num", "9"],
        ["errors", "skip"],
    ]


def test_a_table_has_few_rows_of_little_text(store: mqstore.Store) -> None:
    store.append_batch(
        [("orders", b"x" * 100_000, "t" * 500, ["k" * 9] * 300, {"p" * 9 + str(n): "v" * 900 for n in range(30)})] * 30
    )
    store.append_batch([(f"topic-{number}", b"x") for number in range(50)])
    queue = store.topics["orders"].queues[0]
    for value in (
        queue,
        queue[2:],
        next(iter(queue.batches())),
        store.topics,
        store.get("orders", 0, 0, bounded=False),
    ):
        shown = rows(value)
        assert len(shown) == 1 + _html.ROWS + 1
        assert shown[-1] == ["…"]
        assert max(len(cell) for row in shown for cell in row) <= _html.TEXT + 1
    assert rows(queue[0])[-1] == ["…"]


def test_text_of_a_message_is_escaped_and_stays_text(store: mqstore.Store) -> None:
    evil = "<script>alert(1)</script><b onclick='x'>&amp;"
    store.append("<i>", evil.encode(), tags=evil, keys=["<k>"], properties={"<p>": evil})
    topic = store.topics["<i>"]
    for value in (topic, topic.queues[0], next(iter(topic.queues[0].batches())), topic.queues[0][0], store.topics):
        shown = rows(value)
        assert any("<i>" in cell or evil in cell for row in [[repr(value)], *shown] for cell in row)


def test_a_body_that_is_no_text_is_shown_as_bytes(store: mqstore.Store) -> None:
    store.append("orders", bytes(range(128, 160)))
    store.append("orders", ("ä" * 400).encode()[1:])
    shown = rows(store.topics["orders"].queues[0])
    assert shown[1][-1].startswith("b'\\x80\\x81")
    assert shown[2][-1].startswith("b'\\xa4") or shown[2][-1].startswith("\N{REPLACEMENT CHARACTER}ä")


def test_what_cannot_be_read_is_named_in_its_place(store: mqstore.Store) -> None:
    store.append_batch([b"%d" % number for number in range(5)], "orders")
    queue, topics = store.topics["orders"].queues[0], store.topics
    result = store.get("orders", 0, 0)
    store.close()
    assert "ClosedError" in rows(queue)[-1][0]
    assert dict(rows(store))["state"] == "closed"
    assert len(rows(result)) == 6  # was read before
    with pytest.raises(mqstore.ClosedError):
        repr(topics)


def test_messages_before_a_damaged_one_are_shown(tmp_path: Path) -> None:
    with mqstore.open(tmp_path / "store", "x", mapped_file_size_commit_log=65_536) as store:
        store.append_batch([b"body %d" % number for number in range(5)], "orders")
    segment = tmp_path / "store" / "commitlog" / f"{0:020}"
    segment.write_bytes(segment.read_bytes().replace(b"body 3", b"bodx 3"))
    with mqstore.open(tmp_path / "store") as store:
        shown = rows(store.topics["orders"].queues[0])
    assert [row[-1] for row in shown[1:-1]] == ["body 0", "body 1", "body 2"]
    assert shown[-1][0].startswith("CorruptError")


def test_without_pyarrow_a_batch_shows_its_rows(store: mqstore.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("orders", b"x")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    batches = store.topics["orders"].batches(["topic", "body"])
    assert rows(batches) == [["column", "type"]]
    assert rows(next(iter(batches))) == [["topic", "body"], ["orders", "b'x'"]]


def test_a_table_of_queues_that_are_no_files_says_so(golden: Path) -> None:
    with mqstore.open(golden / "533_batchcq") as store:
        assert "UnsupportedFormatError" in str(rows(store.topics))
        for topic in store.topics.values():
            assert "UnsupportedFormatError" in str(rows(topic))


def test_batches_are_shown_without_a_read(store: mqstore.Store) -> None:
    store.append_batch([b"x"] * 100, "orders")
    batches = store.scan(topics="orders", body_contains=b"y", progress=lambda *_: pytest.fail("it reads"))
    assert ["body", "binary"] in rows(batches)
