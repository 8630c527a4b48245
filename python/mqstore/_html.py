"""The HTML that notebooks show for an object: its `repr` and a table of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from html import escape
from itertools import chain, islice
from typing import TypeAlias

import mqstore
from mqstore._rows import first_rows

#: Most rows of a table.
ROWS = 20
#: Most characters in a cell.
TEXT = 100

_Row: TypeAlias = Iterable[object]
_Table: TypeAlias = tuple[Sequence[str], Iterable[_Row]]

_FACTS: dict[type, Sequence[str]] = {
    mqstore.AppendResult: ("status", "physical_offset", "queue_offset", "wrote_bytes", "store_time", "message_id"),
    mqstore.Change: ("action", "file", "message"),
    mqstore.Message: (
        *("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_time", "born_time", "message_id"),
        *("unique_key", "tags", "keys", "transaction", "delay_level", "born_host", "store_host"),
    ),
    mqstore.RecoveryReport: (
        *("complete", "missing", "clean_exit", "scan_start", "log_end", "stop_reason", "undispatched", "refused"),
        *("queue_entries_ahead", "bytes_cut", "messages_cut", "bytes_lost"),
    ),
    mqstore.TopicStats: ("put_message_times_total", "put_message_size_total"),
}


def shown(value: object) -> str:
    """Returns the object as HTML. An error of a read is shown in place of the rows."""
    head = repr(value).partition("\n")[0] if isinstance(value, mqstore.RecordBatch) else repr(value)
    lines = [f'<caption style="text-align:left">{_text(head, 1000)}</caption>']
    try:
        heads, rows = _table(value)
        if heads:
            lines.append(_line("th", heads))
        lines += (_line("td", row) for row in _first(rows))
    except mqstore.StoreError as error:
        lines.append(_line("td", [f"{type(error).__name__}: {error}"]))
    return f"<table>{''.join(lines)}</table>"


def _first(rows: Iterable[_Row]) -> Iterator[_Row]:
    for number, row in enumerate(rows):
        if number == ROWS:
            yield ["\N{HORIZONTAL ELLIPSIS}"]
            return
        yield row


def _table(value: object) -> _Table:
    match value:
        case mqstore.Store():
            return (), _facts_of_store(value)
        case mqstore.StoreConfig():
            return ("option", "value"), value._given().items()
        case mqstore.Message():
            return (), chain(_facts(value), _facts_of_content(value))
        case mqstore.Finding():
            return (), value.to_dict().items()
        case mqstore.StoreStats():
            return (), [(name, count) for name, count in value.to_dict().items() if name != "topics"]
        case mqstore.Topics():
            return ("topic", "queues", "messages"), ((name, *_lengths(topic)) for name, topic in value.items())
        case mqstore.Topic():
            return _table(value.queues)
        case mqstore.Queues():
            queues = ((queue.queue_id, queue.min_offset, queue.max_offset, len(queue)) for queue in value)
            return ("queue_id", "min_offset", "max_offset", "messages"), queues
        case mqstore.VerifyReport():
            names = ("severity", "id", "file", "offset", "count", "message", "fix")
            return names, ([_read(finding, name) for name in names] for finding in value.findings)
        case mqstore.RepairReport():
            changed = ("action", "file", "message")
            return changed, ([_read(change, name) for name in changed] for change in value.changes)
        case mqstore.RecordBatch():
            return value.column_names, first_rows(value, ROWS + 1)
        case mqstore.Batches():
            return ("column", "type"), _columns(value)
        case mqstore.Queue() | mqstore.QueueSlice() | mqstore.GetResult() | mqstore.QueryResult():
            heads = ("queue_id", "queue_offset", "store_time", "tags", "keys", "body")
            return heads, ([*(_read(message, head) for head in heads[:-1]), _body(message)] for message in value)
        case _:
            return (), _facts(value)


def _facts(value: object) -> Iterator[_Row]:
    return ((name, _read(value, name)) for name in _FACTS[type(value)])


def _facts_of_store(store: mqstore.Store) -> Iterator[_Row]:
    yield "path", store.path
    if store.closed:
        yield "state", "closed"
        return
    yield "mode", store.mode
    yield "log", f"{store.min_physical_offset} to {store.max_physical_offset}"
    yield "closed cleanly", store.recovery.clean_exit
    yield "complete", store.recovery.missing or True
    yield "log ends", store.recovery.stop_reason


def _facts_of_content(message: mqstore.Message) -> Iterator[_Row]:
    yield "body", f"{len(message.body_view)} bytes: {_body(message)}"
    yield from (
        (f"property {name}", text) for name, text in message.properties.items() if name not in ("KEYS", "TAGS", "UNIQ_KEY")
    )


def _lengths(topic: mqstore.Topic) -> tuple[object, object]:
    try:
        return len(topic.queue_ids), sum(len(topic.queues[queue]) for queue in topic.queue_ids)
    except mqstore.UnsupportedFormatError as error:
        return type(error).__name__, None


def _columns(batches: mqstore.Batches) -> Iterable[_Row]:
    """Returns the names and types of the columns. Messages are not read, because a scan may read the whole log to find one."""
    try:
        from pyarrow import schema
    except ImportError:
        return []
    return [(field.name, field.type) for field in schema(batches)]


def _read(value: object, name: str) -> object:
    try:
        return getattr(value, name)
    except (mqstore.StoreError, ValueError) as error:
        return type(error).__name__


def _body(message: mqstore.Message) -> str:
    first = bytes(message.body_view[: TEXT + 1])
    text = first.decode("utf-8", "replace")
    # The cut may split one character. Binary data has many invalid sequences.
    return text if text.count("\N{REPLACEMENT CHARACTER}") <= 1 else repr(first)


def _text(value: object, most: int = TEXT) -> str:
    match value:
        case None | []:
            return ""
        case datetime():
            text = value.isoformat(timespec="milliseconds")
        case [*values]:
            text = ", ".join(map(str, islice(values, ROWS + 1)))
        case _:
            text = str(value)
    return escape(text if len(text) <= most else f"{text[:most]}\N{HORIZONTAL ELLIPSIS}")


def _line(tag: str, cells: _Row) -> str:
    return "<tr>" + "".join(f'<{tag} style="text-align:left">{_text(cell)}</{tag}>' for cell in cells) + "</tr>"
