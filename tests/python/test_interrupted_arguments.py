"""Exceptions of an argument's own code, or of a signal handler that runs in it, while a call converts the argument."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

import mqstore


class Stop(BaseException):
    """An exception of a signal handler; its class takes two arguments."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first, second)


def stop(*_: object) -> Any:
    raise Stop(1, 2)


class _Class:
    @property
    def __class__(self) -> Any:
        return stop()


class _Iter:
    def __iter__(self) -> Iterator[Any]:
        return stop()


class _Next:
    def __iter__(self) -> Iterator[Any]:
        yield stop()


class _Getitem:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: object) -> Any:
        return stop()


class _Index:
    def __index__(self) -> int:
        return int(stop())


class _Float:
    def __float__(self) -> float:
        return float(stop())


class _Items(Mapping[Any, Any]):
    def __getitem__(self, key: object) -> Any:
        return stop()

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        return stop()


class _Text:
    def __repr__(self) -> str:
        return str(stop())

    __str__ = __repr__


class _Fspath:
    def __fspath__(self) -> str:
        return str(stop())


class _Attributes:
    def __getattr__(self, name: str) -> Any:
        return stop()


class _Buffer:
    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(stop())


KINDS: list[type] = [_Class, _Iter, _Next, _Getitem, _Index, _Float, _Items, _Text, _Fspath, _Attributes]
if sys.version_info >= (3, 12):
    KINDS.append(_Buffer)

#: Calls that convert an argument.
CALLS: dict[str, Callable[[mqstore.Store, Any], object]] = {
    "open": lambda store, value: mqstore.open(value),
    "open max_message_size": lambda store, value: mqstore.open(store.path, max_message_size=value),
    "open errors": lambda store, value: mqstore.open(store.path, errors=value),
    "append topic": lambda store, value: store.append(value, b""),
    "append body": lambda store, value: store.append("t", value),
    "append keys": lambda store, value: store.append("t", b"", keys=value),
    "append properties": lambda store, value: store.append("t", b"", properties=value),
    "append pair": lambda store, value: store.append("t", b"", properties=[value]),
    "append queue": lambda store, value: store.append("t", b"", queue_id=value),
    "append born_time": lambda store, value: store.append("t", b"", born_time=value),
    "append durable": lambda store, value: store.append("t", b"", durable=value),
    "open lock_timeout": lambda store, value: mqstore.open(store.path, lock_timeout=value),
    "append_batch": lambda store, value: store.append_batch(value, topic="t"),
    "append_batch row": lambda store, value: store.append_batch([value], topic="t"),
    "append_batch tuple": lambda store, value: store.append_batch([("t", b"", None, value)]),
    "follow": lambda store, value: store.follow(value, timeout=0),
    "follow start": lambda store, value: store.follow(start=value, timeout=0),
    "follow start queue": lambda store, value: store.follow(start={("t", value): 0}, timeout=0),
    "follow start offset": lambda store, value: store.follow(start={("t", 0): value}, timeout=0),
    "follow since": lambda store, value: store.follow(since=value, timeout=0),
    "follow until": lambda store, value: store.follow(until=value, timeout=0),
    "follow timeout": lambda store, value: store.follow(timeout=value),
    "follow on_missing": lambda store, value: store.follow(on_missing=value),
    "tail start": lambda store, value: store.topics["t"].queues[0].tail(0, start=value),
    "queue": lambda store, value: store.topics["t"].queues[0][value],
    "queue slice": lambda store, value: store.topics["t"].queues[0][value:],
    "queues": lambda store, value: store.topics["t"].queues[value],
    "scan topics": lambda store, value: store.scan(topics=value),
    "scan queues": lambda store, value: store.scan(queue_ids=value),
    "scan since": lambda store, value: store.scan(since=value),
    "scan physical": lambda store, value: store.scan(physical=(value, None)),
    "scan properties": lambda store, value: store.scan(properties=value),
    "scan columns": lambda store, value: store.scan(columns=value),
    "scan max_mb_per_s": lambda store, value: store.scan(max_mb_per_s=value),
    "usage by": lambda store, value: store.usage(by=value),
    "resolve_keys": lambda store, value: store.resolve_keys(value),
    "verify deep": lambda store, value: store.verify(deep=value),
}


WITHOUT_CODE = ["append topic", *(["append body", "append_batch row"] if sys.version_info < (3, 12) else [])]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mqstore.Store]:
    with mqstore.open(tmp_path_factory.mktemp("interrupted") / "store", "x") as store:
        store.append("t", b"x")
        yield store


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("call", CALLS)
def test_exception_of_an_arguments_code_arrives_and_none_is_dropped(
    store: mqstore.Store, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: dropped.append(each.exc_value))
    appended = store.max_physical_offset
    arrived: list[Any] = []
    for kind in KINDS:
        try:
            CALLS[call](store, kind())
        except Stop as error:
            arrived.append(error.args)
        except (TypeError, ValueError):
            # The call does not run this kind of code.
            pass
        assert dropped == [], kind
    # A text, and before Python 3.12 a buffer, are made without code of the argument.
    assert arrived or call in WITHOUT_CODE
    assert set(arrived) <= {(1, 2)}
    assert store.max_physical_offset == appended


#: Calls that ask whether the argument is a mapping: the code of `abc` runs for it.
MAPPINGS = ["append properties", "follow start", "scan properties"]


@pytest.mark.parametrize("call", MAPPINGS)
def test_signal_handler_that_raises_in_the_mapping_check_ends_the_call(
    store: mqstore.Store, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal is raised in the check itself: code of the argument sends it, and Python runs the handler at once."""
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: dropped.append(each.exc_value))

    class Asked:
        @property
        def __class__(self) -> Any:
            signal.raise_signal(signal.SIGALRM)
            return object

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Stop):
            CALLS[call](store, Asked())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert dropped == []


@pytest.mark.parametrize("call", MAPPINGS)
def test_signal_that_comes_at_any_time_ends_one_of_many_calls(
    store: mqstore.Store, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer interrupts calls in a loop, which run little else than the check."""
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: dropped.append(each.exc_value))
    value, function = object(), CALLS[call]

    def interrupted() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        while not dropped:
            with suppress(TypeError):
                function(store, value)

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(100):
            with pytest.raises(Stop):
                interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert dropped == []
