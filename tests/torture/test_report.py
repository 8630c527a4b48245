"""The page of what was tried says what its data say, and names only tests that there are."""

from __future__ import annotations

import report


def test_the_page_is_what_its_data_make_of_it() -> None:
    assert report.REPORT.read_text() == report.render(), "run tests/torture/report.py"


def test_every_known_failure_of_rocketmq_has_a_row() -> None:
    rows = [line.split(" | ") for line in report.render().splitlines() if line.startswith("| R-")]
    assert [row[0] for row in rows] == [f"| R-{number}" for number in range(1, 46)]
