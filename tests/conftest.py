"""The mark `slow`, of the tests that `make test` leaves out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

left_out: list[pytest.Item] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes long; `make test` leaves it out, `make slowtest` runs it")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    left_out.extend(item for item in items if item.get_closest_marker("slow"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    # `make slowtest` and `make sparktest` select by other marks.
    if left_out and config.option.markexpr == "not slow":
        files = ", ".join(sorted({item.path.name for item in left_out}))
        terminalreporter.write_line(f"left out: {len(left_out)} slow tests ({files}) and Spark Connect; make slowtest runs them")
