"""The thread that asks about open transactions, for `Transactions.check`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from logging import getLogger
from typing import TYPE_CHECKING, Literal

from mqstore.errors import ClosedError, StoreError

if TYPE_CHECKING:
    from mqstore._native import Half, Transactions, _Checker

    _Callback = Callable[[Half], object]

#: The answers that end a transaction.
_ENDS: dict[str, Literal["commit", "rollback"]] = {"commit": "commit", "rollback": "rollback"}
#: Seconds before a check that has failed is tried again.
_RETRY = 1.0


def start(checker: _Checker, callback: _Callback, transactions: Transactions) -> None:
    """Starts the thread. It ends with the check: at the close of the store, or when another check begins."""
    # A daemon thread does not delay the exit of the interpreter.
    threading.Thread(target=_run, args=(checker, callback, transactions), name="mqstore-transactions", daemon=True).start()


def _run(checker: _Checker, callback: _Callback, transactions: Transactions) -> None:
    patience = 0.0
    try:
        while checker.wait(patience):
            try:
                halves, patience = checker.take_due()
            except ClosedError:
                raise
            except Exception:
                getLogger("mqstore").exception("finding the open transactions to ask about")
                patience = _RETRY
                continue
            for half in halves:
                _ask(half, callback, transactions)
    except ClosedError:
        return


def _ask(half: Half, callback: _Callback, transactions: Transactions) -> None:
    """Asks about a half message, and ends its transaction as the answer says. An exception means that the end is not known."""
    try:
        answer = callback(half)
    except Exception:
        getLogger("mqstore").exception("asking about %r", half)
        return
    # Another object may define a comparison that raises.
    end = _ENDS.get(answer) if isinstance(answer, str) else None
    if end is None:
        return
    try:
        transactions.end(half, end)
    except ClosedError:
        raise
    except (StoreError, ValueError):
        # The callback may have ended it itself.
        getLogger("mqstore").info("the answer %r about %r came too late", answer, half, exc_info=True)
