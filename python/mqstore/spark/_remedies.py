"""Words of the remedies for users of the data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mqstore
    from mqstore.errors import Remedy

_ERRORS = 'option errors: "skip" skips and counts such messages, "corrupt_record" returns a row for each'
#: The option of a read that helps. None keeps the words of the Python API: `Stores` takes the options of `mqstore.open`.
_WAYS: dict[Remedy, str | None] = {
    "skip": _ERRORS,
    "skip-or-salvage": _ERRORS,
    "skip-or-put-back": _ERRORS,
    "salvage-or-read": None,
    "salvage-past-end": None,
    "salvage-or-put-back": None,
    "read-around-gap": None,
    "extend-copy": None,
    "cut-file": None,
    "put-back": None,
    "repair": None,
    "repair-copy": None,
    "rebuild": None,
    "copy-whole": None,
    "read-only": None,
    "walk-log": None,
    "start-at-bound": None,
    "discard-tail": None,
}


def advise_of_option(error: mqstore.StoreError) -> None:
    """Replaces the advice of an error by the option of a read that helps, if there is one."""
    if error.remedy is not None:
        error.advice = _WAYS[error.remedy] or error.advice
