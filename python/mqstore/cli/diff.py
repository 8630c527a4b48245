"""The command `diff`: compares two stores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import TypeAlias

import click

import mqstore
from mqstore.cli._main import FINDINGS, command
from mqstore.cli._output import Output, Row
from mqstore.cli._store import opened, prints

#: An offset of a queue and its message; None if only bounds are compared.
_Numbered: TypeAlias = tuple[float, mqstore.Message | None]
PAST_END: _Numbered = (inf, None)

ONLY_A, ONLY_B, DIFFERS = "only in A", "only in B", "differs"


@command(examples=("diff /data/store /backup/store", "diff /data/store /data/copy --renumbered"))
@click.argument("a", type=click.Path())
@click.argument("b", type=click.Path())
@prints
@click.option("--bounds-only", is_flag=True, help="Compares only the offsets of the queues, and reads no message.")
@click.option("--renumbered", is_flag=True, help="Counts each queue from its first message, for stores made by copy or import.")
def diff(a: str, b: str, out: Output, bounds_only: bool, renumbered: bool) -> None:
    """Compares two stores, queue by queue.

    It lists the messages that only A or only B has, and those that differ in body, properties, born time, born host, flags or
    reconsume times. A row is a range of queue offsets, end exclusive. Exit code 1 if the stores differ; otherwise there is no
    row.
    """
    with opened(a, out, errors="skip") as store_a, opened(b, out, errors="skip") as store_b:
        queues_a, queues_b = _queues(store_a), _queues(store_b)
        names = sorted(queues_a.keys() | queues_b.keys())

        def rows() -> Iterator[Row]:
            for topic, queue_id in names:
                sides = [_numbered(side.get((topic, queue_id)), out, bounds_only, renumbered) for side in (queues_a, queues_b)]
                for what, begin, end in _stretches(*sides):
                    yield {"topic": topic, "queue_id": queue_id, "what": what, "begin": begin, "end": end}

        # `table` fails without rows, which is success here.
        found = iter(rows())
        first = next(found, None)
        if first is None:
            messages = sum(map(len, queues_a.values()))
            return out.note(f"no difference: {messages} messages in {len(names)} queues")
        out.table(chain([first], found), "")
        raise click.exceptions.Exit(FINDINGS)


def _queues(store: mqstore.Store) -> dict[tuple[str, int], mqstore.Queue]:
    return {
        (topic.name, queue_id): topic.queues[queue_id]
        for topic in store.topics.values()
        for queue_id in topic.queue_ids
        if len(topic.queues[queue_id])
    }


def _numbered(queue: mqstore.Queue | None, out: Output, bounds_only: bool, renumbered: bool) -> Iterator[_Numbered]:
    """Yields the messages of a queue, each with the number under which it is compared."""
    if queue is None:
        return
    base = queue.min_offset if renumbered else 0
    if bounds_only:
        yield from ((offset - base, None) for offset in range(queue.min_offset, queue.max_offset))
    else:
        yield from ((message.queue_offset - base, message) for message in out.counting(iter(queue)))


def _stretches(a: Iterator[_Numbered], b: Iterator[_Numbered]) -> Iterator[tuple[str, int, int]]:
    """Yields each range of numbers with the same difference: the kind, the first number and the one after the last."""
    what, begin, end = "", 0, 0
    for number, how in _differences(a, b):
        if (how, number) != (what, end):
            if what:
                yield what, begin, end
            what, begin = how, number
        end = number + 1
    if what:
        yield what, begin, end


def _differences(a: Iterator[_Numbered], b: Iterator[_Numbered]) -> Iterator[tuple[int, str]]:
    """Yields each number at which the sides differ, with the kind of difference."""
    left, right = next(a, PAST_END), next(b, PAST_END)
    while left != PAST_END or right != PAST_END:
        if left[0] < right[0]:
            yield int(left[0]), ONLY_A
            left = next(a, PAST_END)
        elif right[0] < left[0]:
            yield int(right[0]), ONLY_B
            right = next(b, PAST_END)
        else:
            if not _equal(left[1], right[1]):
                yield int(left[0]), DIFFERS
            left, right = next(a, PAST_END), next(b, PAST_END)


def _equal(a: mqstore.Message | None, b: mqstore.Message | None) -> bool:
    # Equal records need no comparison of their fields.
    return a == b or (a is not None and b is not None and _content(a) == _content(b))


def _content(message: mqstore.Message) -> tuple[object, ...]:
    """Returns the fields that a copy keeps."""
    properties = {name: text for name, text in message.properties.items() if name != "__CRC32#"}
    fixed = (message.flag, message.sys_flag, message.reconsume_times)
    return message.body, properties, message.born_time, message.born_host, fixed
