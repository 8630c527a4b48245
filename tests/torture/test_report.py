"""The pages of what was tried say what their data say, and name only tests that there are."""

from __future__ import annotations

import pytest
import report


def test_the_pages_are_what_their_data_make_of_them() -> None:
    for path, text in report.render().items():
        assert path.read_text() == text, "run tests/torture/report.py"


def test_every_known_failure_of_rocketmq_has_a_row() -> None:
    rows = [line.split(" | ") for line in report.render()[report.TABLES].splitlines() if line.startswith("| R-")]
    assert [row[0] for row in rows] == [f"| R-{number}" for number in range(1, 46)]


def test_classes_of_failure_sum_up_every_layer() -> None:
    counts = {"cases": 2, "lost": 1, "phantom": 0, "errors": 0}
    text = report.classes({"kill at any moment": counts, "kill inside recovery, 2 deep": counts})
    assert "| killed process | 4 | 2 | 0 | 0 |" in text
    assert text.endswith("| **all** | 4 | 2 | 0 | 0 |")


def test_a_layer_without_a_class_of_failure_is_refused() -> None:
    with pytest.raises(SystemExit, match="'flood' has the classes"):
        report.classes({"flood": {}})
