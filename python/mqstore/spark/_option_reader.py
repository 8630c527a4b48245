"""Typed access to the options of a read or write. Names are case-insensitive; an error has the option and what it accepts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, TypeVar

from mqstore.spark._conditions import _EPOCH

#: The prefix of an option of `mqstore.open`.
OPEN_PREFIX = "option."

#: Times from 1980 to 2200, in seconds. A value in this range in another unit than ms is refused.
_SECONDS = range(315_532_800, 7_258_118_400)
_UNITS = {"seconds": 1, "microseconds": 10**6, "nanoseconds": 10**9}

# The parts of a timedelta.
_DURATION = ("days", "seconds", "microseconds")

_T = TypeVar("_T")

# The things that an option lists, if the option has another name.
_ALL_OF = {"subscribe": "topics", "queueIds": "queue ids"}

# Options of other sources of Spark, with their names here.
_OF_OTHER_SOURCES = {"mode": "errors", "kafka.bootstrap.servers": "path", "includeheaders": "columns"}


def expect_known(names: Iterable[str], accepted: tuple[str, ...]) -> None:
    """Raises ValueError for unknown options: with their names as given, the accepted names that are close, and all accepted."""
    known = {name.lower(): name for name in (*accepted, "paths")}
    unknown = [name for name in sorted(names) if name.lower() not in known and not name.lower().startswith(OPEN_PREFIX)]
    if unknown:
        raise ValueError(
            f"unknown option {', '.join(name + _did_you_mean(name, known) for name in unknown)}; accepted are "
            f"{', '.join(accepted)}, and {OPEN_PREFIX}<name> for an option of mqstore.open"
        )


def _did_you_mean(name: str, known: Mapping[str, str]) -> str:
    """Returns a question that names the closest options, or an empty string. `known` maps lower case to the documented case."""
    same = _OF_OTHER_SOURCES.get(name.lower(), "").lower()
    close = " or ".join(known[each] for each in ([same] if same in known else get_close_matches(name.lower(), known, 2, 0.7)))
    return f" (did you mean {close}?)" if close else ""


class OptionReader:
    """The options of one read or write, converted at each access."""

    def __init__(self, options: Mapping[str, str], accepted: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        if "provider" in self._values:
            raise ValueError(
                "Spark gives a Python source no options of a table: use CREATE TEMPORARY VIEW to read, save(path) to write"
            )
        expect_known(options, accepted)

    def get(self, option: str) -> str | None:
        """Returns the text of an option, or None."""
        return self._values.get(option.lower())

    def word(self, option: str, accepted: Mapping[str, _T], default: _T, *, otherwise: str = "") -> _T:
        """Returns the value of a word, which may have any case. `otherwise` says what else the option accepts."""
        text = self.get(option)
        if text is None:
            return default
        for word, value in accepted.items():
            if text.lower() == word.lower():
                return value
        raise ValueError(f"option {option} is one of {', '.join(accepted)}{otherwise}, not {text!r}")

    def is_true(self, option: str, default: bool) -> bool:
        """Returns a boolean."""
        return self.word(option, {"true": True, "false": False}, default)

    def count(self, option: str) -> int | None:
        """Returns a positive integer, or None."""
        text = self.get(option)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise ValueError(f"option {option} is a positive number, not {text!r}")
        return int(text)

    def names(self, option: str) -> tuple[str, ...] | None:
        """Returns a list of names, or None. A JSON list also allows names with commas, and no name."""
        text = self.get(option)
        if text is None:
            return None
        given = self.json(option, list) if text.startswith("[") else text.split(",")
        names = tuple(dict.fromkeys(str(name).strip() for name in given))
        if "" in names:
            every = _ALL_OF.get(option, option)
            raise ValueError(f"option {option} has an empty name: {text!r}; leave the option out for all {every}")
        return names

    def queue_ids(self, option: str) -> frozenset[int] | None:
        """Returns queue ids, or None."""
        names = self.names(option)
        if names is not None and not all(name.isascii() and name.isdigit() for name in names):
            raise ValueError(f"option {option} is a list of queue ids, with commas or of JSON, not {self.get(option)!r}")
        return None if names is None else frozenset(map(int, names))

    def json(self, option: str, kind: type[_T]) -> _T:
        """Returns a JSON list or object, empty by default."""
        text = self.get(option)
        if text is None:
            return kind()
        word = "list" if kind is list else "object"
        try:
            value = json.loads(text, object_pairs_hook=_object)
        except ValueError as error:
            raise ValueError(f"option {option} is not a JSON {word}: {error}: {text!r}") from None
        if not isinstance(value, kind):
            raise ValueError(f"option {option} is a JSON {word}, not {text!r}")
        return value

    def time(self, option: str, default: int) -> int:
        """Returns a time in ms since 1970. The text is that, or ISO 8601 with a timezone.

        A time between two ms is rounded up, so that adjacent ranges share no message.
        """
        text = self.get(option)
        if text is None:
            return default
        if text.removeprefix("-").isdecimal() and text.isascii():
            return expect_ms(option, int(text))
        try:
            return -((_EPOCH - datetime.fromisoformat(text)) // timedelta(milliseconds=1))
        except (ValueError, TypeError):
            raise ValueError(
                f"option {option} is a number of ms since 1970, or a time with a timezone, as 2026-11-23T05:00:00Z, not {text!r}"
            ) from None

    def open_options(self) -> dict[str, Any]:
        """Returns the options of `mqstore.open`, converted from text."""
        found = {name: value for name, value in self._values.items() if name.startswith(OPEN_PREFIX)}
        return {name.removeprefix(OPEN_PREFIX): _python(name, value) for name, value in found.items()}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds a JSON object. Raises ValueError for a repeated name, of which Python would keep the second value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it names {next(name for name in names if names.count(name) > 1)} twice")
    return found


def expect_ms(option: str, time: int) -> int:
    """Returns the time. Raises ValueError for a time in another unit than ms since 1970."""
    for unit, in_a_second in _UNITS.items():
        if time // in_a_second in _SECONDS:
            raise ValueError(f"option {option} is {time}: it counts ms since 1970, and this one looks like {unit}")
    return time


def to_text(value: Any) -> str:
    """Encodes a value of an option of `mqstore.open` as JSON: a timedelta as `{"seconds": 2, "microseconds": 500}`."""
    if isinstance(value, timedelta):
        value = {unit: getattr(value, unit) for unit in _DURATION if getattr(value, unit)} or {"seconds": 0}
    return json.dumps(value)


def _python(option: str, text: str) -> Any:
    """Decodes what `to_text` encodes. Text that is not JSON is the value itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return value
    try:
        return timedelta(**value)
    except (TypeError, OverflowError):
        raise ValueError(f'option {option} is a duration such as {{"seconds": 2}}, not {text!r}') from None
