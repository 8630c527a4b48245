"""The first call of each kind in a process that has no descriptor left: it answers, or raises a typed error."""

from __future__ import annotations

import json
import subprocess
import sys

import first_calls
import pytest

import mqstore


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    root = tmp_path_factory.mktemp("first")
    printed = subprocess.run(
        [sys.executable, first_calls.__file__, str(root)], stdout=subprocess.PIPE, text=True, timeout=300, check=True
    ).stdout
    return {each["call"]: each for each in map(json.loads, printed.splitlines())}


def names() -> list[str]:
    groups = (first_calls.APPENDS, first_calls.WRITES, first_calls.READS, first_calls.OF_TABLES, first_calls.OUTSIDE)
    return [name for group in groups for name in group]


def test_every_public_name_of_a_store_is_called() -> None:
    classes = (mqstore.Writer, mqstore.Inspect, mqstore.BrokerState)
    assert {name for of in classes for name in dir(of) if not name.startswith("_")} - {"inspect", "broker"} <= set(names())


@pytest.mark.parametrize("name", names())
def test_first_call_without_a_descriptor_answers_or_raises_a_store_error(
    outcomes: dict[str, dict[str, object]], name: str
) -> None:
    outcome = outcomes[name]
    first = str(outcome["first"])
    assert not first.startswith("WRONG"), first
    assert outcome["then"] == "answer", outcome["then"]
    assert outcome["stored"] == outcome["expected"], outcome


WITHOUT_FILES = ["append", "append_batch", "append_nowait", "append_nowait durable", "aio append", "aio append durable"]


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_calls_that_need_no_file_answer_without_a_descriptor(outcomes: dict[str, dict[str, object]], name: str) -> None:
    assert outcomes[name]["first"] == "answer"


def test_import_of_datetime_precedes_every_call() -> None:
    """PyO3 imports it at the first use of one of its types, and panics where that fails."""
    program = "import sys, mqstore; print('datetime' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-I", "-c", program], text=True).startswith("True")
