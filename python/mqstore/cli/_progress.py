"""The progress of a long command."""

from __future__ import annotations

import sys
import threading

#: Seconds until the line is shown, and between two updates.
FIRST, NEXT = 1.0, 0.2


class Progress:
    """A progress line on stderr, shown after one second. It is called with the amount that is done and the total."""

    def __init__(self) -> None:
        self._done = ""
        self._is_shown = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def __call__(self, done: int, total: int) -> None:
        """Sets the progress."""
        self._done = f"{done * 100 // total} %" if total else ""

    def end(self) -> None:
        """Removes the line for good."""
        self._ended.set()
        self._thread.join()
        self.clear()

    def clear(self) -> None:
        """Removes the line until its next update, so that other output can be written."""
        if self._is_shown:
            with self._lock:
                self._is_shown = False
                self._write("")

    def _show(self) -> None:
        seconds = wait = FIRST
        while not self._ended.wait(wait):
            with self._lock:
                self._is_shown = True
                self._write(f"reading ... {self._done or f'{seconds:.0f} s'}")
            wait = NEXT
            seconds += NEXT

    def _write(self, text: str) -> None:
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
