"""Remedies in the words of the data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mqstore
    from mqstore.errors import Remedy

_ERRORS = 'option errors: "skip" passes over such messages and counts them, "corrupt_record" returns a row for each'
#: The option of a read that helps. None where the words of Python do: `Stores` takes the options of `mqstore.open`.
_WAYS: dict[Remedy, str | None] = {
    "skip": _ERRORS,
    "skip-or-salvage": _ERRORS,
    "skip-or-put-back": _ERRORS,
    "salvage-or-read": None,
    "salvage-past-end": None,
    "salvage-or-put-back": None,
    "read-around-gap": None,
    "extend-copy": None,
    "put-back": None,
    "repair": None,
    "repair-copy": None,
    "rebuild": None,
    "copy-whole": None,
    "read-only": None,
    "walk-log": None,
    "start-at-bound": None,
}


def advise_of_option(error: mqstore.StoreError) -> None:
    """Ends the text of the error with the option of a read that helps, if there is one."""
    if error.remedy is not None:
        error.advice = _WAYS[error.remedy] or error.advice
