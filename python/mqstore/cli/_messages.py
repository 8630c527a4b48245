"""Messages: the options that select them, and their output."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import click

import mqstore
from mqstore._facts import parts_elsewhere
from mqstore._lost_queues import lost_in_scan, lost_in_words
from mqstore._names import there_is
from mqstore._rows import json_time, visible
from mqstore.cli._main import Failure, from_the_command_line
from mqstore.cli._output import Output, Row
from mqstore.cli._times import shown_time, time_of

#: The options that select messages, by the arguments of `Store.scan`.
_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "topics": click.option(
        "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated (default: all)."
    ),
    "tags": click.option("--tag", "tags", metavar="TAG", help="With this tag, or one of some: 'paid || refund'."),
    "properties": click.option(
        "--property", "properties", multiple=True, metavar="K=V", help="With this property; all of several."
    ),
    "body_regex": click.option("--body", "body_regex", metavar="REGEX", help="Only messages whose decompressed body matches."),
    "since": click.option(
        "--since", callback=time_of, metavar="TIME", help="Stored then or later: 2026-11-20 10:00, -2h, or ms."
    ),
    "until": click.option("--until", callback=time_of, metavar="TIME", help="Stored before."),
    "everything": click.option("--all", "everything", is_flag=True, help="Also half, rolled-back and deleted messages."),
}


#: Why a store has no progress of groups.
NO_GROUP = "no group has consumed from this store"
#: The compression bits of `sys_flag`: `COMPRESSED` and `COMPRESSION_MASK` of docs/FORMAT.md.
_COMPRESSION = 0x701


def chosen_by(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds options that select messages to a command, which gets them in `conditions`, as arguments of `Store.scan`."""

    def give(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def call(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in names}
            function(conditions=_conditions(given), **arguments)

        for name in reversed(names):
            call = _OPTIONS[name](call)
        return call

    return give


def _conditions(given: dict[str, Any]) -> dict[str, Any]:
    """Converts the given options into arguments of `Store.scan`."""
    since, until = given.pop("since", None), given.pop("until", None)
    if since is not None and until is not None and until < since:
        raise click.BadParameter("it is before --since", param_hint="--until")
    conditions = {name: value for name, value in given.items() if value}
    conditions |= {name: time for name, time in (("since", since), ("until", until)) if time is not None}
    if "properties" in conditions:
        pairs = [text.partition("=") for text in conditions["properties"]]
        if wrong := [name for name, equals, _ in pairs if not equals]:
            raise click.BadParameter(f"{wrong[0]!r} has no '=': expected K=V", param_hint="--property")
        conditions["properties"] = {name: value for name, _, value in pairs}
    if conditions.pop("everything", False):
        conditions["transactions"] = "all"
    return conditions


def _expect_some(_context: click.Context, _option: click.Parameter, number: int | None) -> int | None:
    if number == 0:
        raise click.BadParameter("0 asks for no message: expected N or -N")
    return number


#: The option for the number of messages, the first or the last ones.
count = click.option(
    "-n", "number", type=int, callback=_expect_some, metavar="N", help="The first N messages, or with -N the last N."
)
#: The option for the form of bodies.
body_as = click.option(
    "--body-as",
    type=click.Choice(["text", "json", "base64"]),
    default="text",
    metavar="FORM",
    help="The body in JSON: text (default), json or base64.",
)


def place(store: mqstore.Store, text: str) -> tuple[str, int | None, int | None]:
    """Splits `TOPIC[/QUEUE][@OFFSET]` into topic, queue id and queue offset. The name of a topic may contain an `@`."""
    topic, slash, rest = text.partition("/")
    if slash:
        found = re.fullmatch(r"(\d+)(?:@(\d+))?", rest)
        if found is None:
            raise click.BadParameter(f"{text!r} is not a place: expected TOPIC, TOPIC/QUEUE or TOPIC/QUEUE@OFFSET")
        return topic, int(found[1]), None if found[2] is None else int(found[2])
    before, at, offset = text.rpartition("@")
    if not at or not offset.isdigit() or text in store.topics:
        return text, None, None
    ids = store.topics[before].queue_ids if before in store.topics else []
    if len(ids) > 1:
        raise click.BadParameter(f"{before!r} has {len(ids)} queues: name one, as in {before}/{ids[0]}@{offset}")
    return before, ids[0] if ids else 0, int(offset)


def no_message_of(store: mqstore.Store, topic: str) -> str:
    """Returns the sentence that no message of a topic was found, with topics of similar names."""
    text = f"no message of {visible(topic)} is found"
    return text if topic in store.topics else f"{text}: it is not a topic of {store.path}{there_is(topic, store.topics)}"


def expect_none_absent(store: mqstore.Store, topics: Iterable[str]) -> None:
    """Fails if there are absent topics."""
    if absent := [no_message_of(store, topic) for topic in topics]:
        raise Failure("; ".join(absent))


def expect_topic(store: mqstore.Store, topic: str) -> None:
    """Fails if the store has no queue of that topic."""
    if topic not in store.topics:
        raise Failure(no_message_of(store, topic))


def rows_of_group(rows: list[dict[str, Any]], group: str | None) -> list[dict[str, Any]]:
    """Returns the rows of a group, or all without one. Fails if there is none of that group."""
    if group is None:
        return rows
    if found := [row for row in rows if row["group"] == group]:
        return found
    raise Failure(f"no group {visible(group)} has consumed from this store{there_is(group, {row['group'] for row in rows})}")


def expect_queue(store: mqstore.Store, topic: str, queue_id: int) -> None:
    """Fails if the topic has queues and the id is higher than all of theirs."""
    if topic in store.topics:
        with suppress(mqstore.UnsupportedFormatError):
            _ = store.topics[topic].queues[queue_id]


def scanned(
    store: mqstore.Store,
    out: Output,
    number: int | None = None,
    wanted: Callable[[Row], bool] | None = None,
    **conditions: Any,
) -> Iterator[Row]:
    """Yields the wanted messages that meet the conditions of `Store.scan`, in the order of the log: all, the first or the last
    ones.
    """
    from base64 import b64decode

    from mqstore._native import _json_lines

    is_last = number is not None and number < 0
    most = None if number is None else abs(number)
    limit = most if wanted is None else None
    with from_the_command_line():
        batches = out.counting(store.scan(decode_body=True, limit=limit, reverse=is_last, progress=out.progress, **conditions))

    def rows() -> Iterator[Row]:
        for batch in batches:
            for line in _json_lines(batch, "base64").splitlines():
                row = json.loads(line)
                if row.get("body") is not None:
                    row["body"] = b64decode(row["body"])
                yield row

    chosen = islice(filter(wanted, rows()), most)
    yield from reversed(list(chosen)) if is_last else chosen
    lost = lost_in_scan(store, conditions, out.progress, batches.lost_queues)
    if (missing := lost_in_words(store, lost)) is not None:
        out.lack(missing)
    expect_none_absent(store, batches.absent_topics)


def note_elsewhere(store: mqstore.Store, out: Output, part: str) -> bool:
    """Names on stderr the directories in which the broker keeps this part in a format that is not read; True if there are any."""
    sentences = parts_elsewhere(store, part)
    for sentence in sentences:
        out.note(sentence)
    return bool(sentences)


def row_of(message: mqstore.Message) -> Row:
    """Returns the columns of one message, as a scan with decompressed bodies does."""
    row = message.to_dict()
    for name in ("store_time", "born_time"):
        row[name] = json_time(row[name])
    try:
        row["body"] = message.decoded_body
        row["sys_flag"] &= ~_COMPRESSION
    except (mqstore.CorruptError, ValueError):
        # The body does not decompress: show it as it is stored.
        row["body"] = message.body
    return row


def whole_number(text: str | None) -> int | None:
    """Converts the text of a property to an int; None if it is not a number."""
    return int(text) if text is not None and re.fullmatch(r"\d{1,18}", text) else None


def print_message(out: Output, row: Row, body_as: str) -> None:
    """Prints a message in one line."""
    if out.as_json:
        return out.object({**row, "body": json_body(row["body"], body_as)})
    time, where = shown_time(row["store_time"], out.utc), f"{row['topic']}/{row['queue_id']}@{row['queue_offset']}"
    parts = [visible(where), out.shown("tags", row["tags"]), out.shown("keys", row["keys"]), shown_body(row["body"])]
    line = "  ".join([time, *parts])
    if out.is_terminal:
        from shutil import get_terminal_size

        width = get_terminal_size().columns
        line = line if len(line) <= width else f"{line[: width - 1]}\N{HORIZONTAL ELLIPSIS}"
        if out.in_color:
            line = f"\x1b[2m{line[: len(time)]}\x1b[0m{line[len(time) :]}"
    out.line(line)


def print_messages(out: Output, rows: Iterator[Row], body_as: str, nothing: Callable[[], str]) -> None:
    """Prints each message in one line. Without messages the command fails with the sentence of `nothing`."""
    found = False
    for row in rows:
        found = True
        print_message(out, row, body_as)
    if not found:
        raise Failure(nothing())


def shown_body(body: bytes | None) -> str:
    """Returns a body in one line for people: text, or the bytes in Python's notation."""
    if body is None:
        return "-"
    try:
        return visible(body.decode())
    except UnicodeDecodeError:
        return repr(body)


def json_body(body: bytes | None, body_as: str) -> Any:
    """Returns a body as a value of JSON: text, with U+FFFD for invalid UTF-8; base64; or its JSON, with text for other bodies."""
    if body is None:
        return None
    if body_as == "base64":
        from base64 import b64encode

        return b64encode(body).decode()
    if body_as == "json":
        try:
            return json.loads(body, parse_constant=_refuse)
        except (ValueError, RecursionError):
            pass
    return body.decode("utf-8", "replace")


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
