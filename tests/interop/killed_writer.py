"""A writer of a store, for test_groups.py: it works for two groups, says what it has left, and ends as by `kill -9`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from handover import OPTIONS, poll, write_groups

import mqstore


def main(path: Path) -> None:
    """Ends the process while it has the store open, with progress that no file has."""
    store = mqstore.open(path, "x", **OPTIONS)
    left = write_groups(store)
    billing = store.consumer("billing", "orders")
    messages = poll(billing, 20)
    billing.ack(messages)
    print(json.dumps({**left, "acked": [message.body.decode() for message in messages]}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


main(Path(sys.argv[1]))
