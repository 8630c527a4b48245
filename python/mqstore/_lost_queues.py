"""Lost queues: the settings of the broker name them and the log has their messages, but they have no file."""

from __future__ import annotations

import os
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import mqstore
from mqstore import _native
from mqstore._broker_topics import DEAD, SCHEDULE_TOPIC, TIMER_TOPIC
from mqstore._facts import parts_elsewhere
from mqstore._rows import visible

if TYPE_CHECKING:
    from pathlib import Path

#: Errors of settings that are missing, damaged, or in a database: they name no queue.
_NOT_READ = (mqstore.NotFoundError, mqstore.CorruptError, mqstore.UnsupportedFormatError)

#: Arguments of `Store.scan` that do not select messages.
_NOT_OF_MESSAGES = ("columns", "batch_bytes", "decode_body", "order", "reverse", "errors", "progress", "max_mb_per_s")


def lost_queues(
    store: mqstore.Store,
    is_wanted: Callable[[str], bool],
    progress: Callable[[int, int], object] | None = None,
    known: Iterable[tuple[str, int]] = (),
    **conditions: Any,
) -> Counter[tuple[str, int]]:
    """Returns the number of messages in the log of each lost queue, for the topics that `is_wanted` accepts.

    A queue was used if a group has consumed from it, if it is a delay level of `config/delayOffset.json`, if `timerlog/` has a
    file, or if the topic is one of dead letters, which a broker creates for the first dead letter. A used queue without a file
    is lost. So is a queue that other queues of the topic, or its settings, imply, if the log has messages of it: the entries of
    all queues are read then, and the segments that they do not fill. The whole log is read once if a queue is lost, and not at
    all otherwise. Messages of a deleted topic do not count: `config/topics.json` does not name it. `known` are further queues
    without a file. `conditions` are those of `Store.scan` for the messages.
    """
    found = Counter[tuple[str, int]]()
    if parts_elsewhere(store, "queues"):
        return found
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        missing = {queue for queue in _used_queues(store, is_wanted) if not has_queue(store, *queue)} | set(known)
        missing.update(_native._lost_queues(store, [topic for topic in store.topics if is_wanted(topic)]))
    if missing:
        topics, ids = {topic for topic, _ in missing}, {queue_id for _, queue_id in missing}
        how: dict[str, Any] = {"transactions": "all", "columns": ["topic", "queue_id"], "errors": "skip", "progress": progress}
        for batch in store.scan(topics=topics, queue_ids=ids, **how, **conditions):
            found.update(queue for queue in batch if queue in missing)
    return found


def lost_in_scan(
    store: mqstore.Store,
    conditions: Mapping[str, Any],
    progress: Callable[[int, int], object] | None = None,
    known: Iterable[tuple[str, int]] = (),
) -> Counter[tuple[str, int]]:
    """Returns by queue the number of messages that meet the conditions and that `Store.scan` omits, because the queue is lost.
    The scan takes messages of a topic without any queue from the log: they do not count.
    """
    more = dict(conditions)
    names, queue_id, transactions = more.pop("topics", None), more.pop("queue_ids", None), more.pop("transactions", None)
    if transactions == "all":
        return Counter()
    topics = set(store.topics) & ({names} if isinstance(names, str) else set(names or store.topics))
    lost = lost_queues(store, topics.__contains__, progress, known, **more)
    return Counter({queue: number for queue, number in lost.items() if queue_id in (None, queue[1])})


def empty_lost(
    store: mqstore.Store, rows: Iterable[dict[str, Any]], progress: Callable[[int, int], object] | None = None
) -> Counter[tuple[str, int]]:
    """Sets bounds and lag to None in the rows of `Store.broker.lag` whose queue is lost, and returns `lost_queues`."""
    consumed = list(rows)
    topics = {row["topic"] for row in consumed}
    lost = lost_queues(store, lambda topic: topic in topics, progress)
    for row in consumed:
        if (row["topic"], row["queue_id"]) in lost:
            row.update(dict.fromkeys(("min_offset", "max_offset", "lag")))
    return lost


def warn_of_lost(
    store: mqstore.Store, target: Path, batches: mqstore.Batches, conditions: Mapping[str, Any]
) -> tuple[tuple[str, int], ...]:
    """Returns the queues that are lost and whose messages are not in what was written from a scan with these conditions, and
    warns of them. A scan of named topics may have read their queues instead of the log.
    """
    lost = set(batches.lost_queues)
    if batches.complete and conditions.get("topics"):
        lost.update(lost_in_scan(store, {name: value for name, value in conditions.items() if name not in _NOT_OF_MESSAGES}))
    if lost:
        warnings.warn(f"{target} is partial: {_in_words(store.path, lost)}", RuntimeWarning, stacklevel=4)
    return tuple(sorted(lost))


def lost_warning(path: str, lost: Iterable[tuple[str, int]]) -> str:
    """Returns the warning that the messages of lost queues are missing in a pass over a store."""
    return f"messages of {visible(path)} are missing in this pass: {_in_words(path, lost)}"


def _in_words(path: str, lost: Iterable[tuple[str, int]]) -> str:
    names = ", ".join(f"{visible(topic)}/{queue_id}" for topic, queue_id in sorted(lost))
    return (
        f"the files of queues are lost, and only the log has their messages: {names}; with no writer running, "
        f"mqstore.rebuild({path!r}, dry_run=False) restores the queues"
    )


def lost_in_words(store: mqstore.Store, lost: Counter[tuple[str, int]]) -> str | None:
    """Returns the sentence that messages of lost queues are missing in an answer, with commands that help; None without any."""
    if not lost:
        return None
    path, topics = shlex.quote(store.path), Counter[str]()
    for (topic, _), number in lost.items():
        topics[topic] += number
    counts = ", ".join(f"{number} of {visible(topic)}" for topic, number in topics.items())
    shown = " ".join(f"--topic {shlex.quote(topic)}" for topic in topics)
    return (
        f"{topics.total()} messages are not in this answer: their queues are lost, and the log has them ({counts}); "
        f"mqstore find {path} {shown} --all shows them; with no writer running: mqstore rebuild {path} --yes"
    )


def has_queue(store: mqstore.Store, topic: str, queue_id: int) -> bool:
    """Returns whether a queue has a file, or messages that recovery has found."""
    with suppress(mqstore.UnsupportedFormatError):
        return topic in store.topics and queue_id in store.topics[topic].queue_ids
    return True


def _used_queues(store: mqstore.Store, is_wanted: Callable[[str], bool]) -> set[tuple[str, int]]:
    """Returns topic and id of each queue that was used according to the settings of the broker, for the wanted topics."""
    used: set[tuple[str, int]] = set()
    queues: dict[str, int] | None = None
    with suppress(*_NOT_READ):
        queues = {row.topic: row.write_queue_nums or 0 for row in store.broker.topic_configs()}
        used.update((topic, each) for topic, number in queues.items() if topic.startswith(DEAD) for each in range(number))
    with suppress(*_NOT_READ):
        rows = store.broker.consumer_offsets()
        # A store can have a million rows: 1,000 groups with 1,000 queues.
        used.update((topic, each) for _, topic, each, offset in rows if offset and (queues is None or topic in queues))
    with suppress(*_NOT_READ):
        used.update((SCHEDULE_TOPIC, row.level - 1) for row in store.broker.delay_offsets())
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.listdir(os.path.join(store.path, "timerlog")):
            used.add((TIMER_TOPIC, 0))
    return {(topic, queue_id) for topic, queue_id in used if is_wanted(topic)}
