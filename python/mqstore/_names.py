"""Hints for misspelled names: the closest ones that exist."""

from __future__ import annotations

from collections.abc import Iterable

from mqstore._rows import visible


def there_is(name: str, names: Iterable[str]) -> str:
    """Returns `; there is A, B` with the closest names, or an empty string."""
    from difflib import get_close_matches

    close = ", ".join(map(visible, get_close_matches(name, sorted(set(names)), 3)))
    return f"; there is {close}" if close else ""


def not_there_yet(path: str, topics: Iterable[str], names: Iterable[str]) -> str:
    """Returns the warning for followed topics that are not among the topics of the store."""
    known = set(names)
    absent = ", and ".join(f'"{visible(topic)}"{there_is(topic, known)}' for topic in topics)
    return f"{visible(path)} has no topic {absent}: it is followed once its first message is stored"


def begun_again(path: str, queues: Iterable[tuple[str, int]]) -> str:
    """Returns the warning for followed queues whose topic was deleted and made again."""
    names = ", ".join(f"{visible(topic)}/{queue_id}" for topic, queue_id in queues)
    return (
        f"queues of {visible(path)} begin again at smaller queue offsets: {names}; their topic was deleted, or all their "
        "messages expired, and each is followed from its first new message on"
    )
