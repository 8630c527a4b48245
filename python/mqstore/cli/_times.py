"""Times of the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def time_of(ctx: click.Context, _: click.Parameter, text: str | None) -> datetime | None:
    """Converts a time: `2026-11-20 10:00` in local time, or in UTC with `--utc`; `2h` or `-2h` ago; ms since
    1970.
    """
    if text is None:
        return None
    try:
        if ago := re.fullmatch(r"-?(\d+)([smhdw])", text):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        if re.fullmatch(r"\d{9,11}", text):
            raise click.BadParameter(f"{text!r} is too small for ms since 1970: for seconds write {text}000")
        if re.fullmatch(r"\d{12,}", text):
            return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(text))
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC) if ctx.params["utc"] else time.astimezone()
        return time
    except (ValueError, OverflowError):
        message = f"{text!r} is not a time: expected 2026-11-20 10:00, -2h (s, m, h, d, w) or ms since 1970"
        raise click.BadParameter(message) from None


def shown_time(time: str | int | None, utc: bool) -> str:
    """Returns a time of JSON as text for people. Outside the years 1 to 9999 it is a number of ms."""
    if not isinstance(time, str):
        return "-" if time is None else str(time)
    moment = datetime.fromisoformat(time).astimezone(UTC if utc else None)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"
