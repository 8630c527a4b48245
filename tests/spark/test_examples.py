from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.java_gateway import launch_gateway

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "spark_examples"


@pytest.fixture(scope="module")
def java() -> Iterator[dict[str, str]]:
    """Returns the environment of processes that share a Java machine, whose start takes longer than most examples. Each process
    has its own Spark in it. A process that fails leaves its Spark running, and the next ones fail, too.
    """
    gateway = launch_gateway()
    found = gateway.gateway_parameters
    yield {"PYSPARK_GATEWAY_PORT": str(found.port), "PYSPARK_GATEWAY_SECRET": found.auth_token}
    # The Java machine exits at the end of its input.
    gateway.proc.stdin.close()
    gateway.proc.wait()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command, within = [sys.executable, *arguments], os.environ | environment
    return subprocess.run(command, cwd="/", env=within, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ("resolve_offsets.py", ["3 of 4 references lead to a message"]),
        ("resolve_keys.py", ["|broker|         1568|       8| 3792650|", "15 messages carry one of the 4 keys"]),
        ("column_functions.py", ["6 of 6 references lead to a message"]),
        ("join_by_key.py", ["messages for 3 of 4 owners"]),
        ("map_partitions.py", ["references lead to a message"]),
        ("resolve_times.py", ["messages of topic store in 4 queues"]),
        ("many_references.py --references 50000 --messages 20000", ["of 50,000 references lead to a message"]),
        ("backfill.py", ["|2013| 1863|", "7,865 messages of 4,075 hours; 0 hours miss messages"]),
        ("fetch_bodies.py", ["40 messages with 22,495 bytes of bodies"]),
        (
            "forensic_search.py",
            ["3 messages name it, of 7,865", "12 messages carry one of two keys", "0 messages are from before 2000"],
        ),
        (
            "scan_topics.py",
            [
                *("7,865 messages by the queues", "7,865 messages in 53 topics", "|rocketmq-client|  882|"),
                *("|       0|   10|", "|       1|    7|", "|2025|    21|    7|"),
            ],
        ),
        (
            "tail_topics.py",
            [
                "while it is written, part 1    root   193  broker     0",
                "while it is written, part 2    root   618  broker   116",
                "after a restart                root   768  broker   556",
                "Each message came once.",
            ],
        ),
        (
            "change_capture.py",
            [
                "captured while the tap runs: 3,000 messages\ncaptured while the tap runs: 7,865 messages",
                "acknowledged to the broker: 0 bytes\nEach message came once.",
            ],
        ),
        (
            "append_frame.py",
            ["after run 1: 334 messages\nthe last one is row 333 of job fixes", "after run 2: 334 messages"],
        ),
        (
            "resolve_events.py",
            [
                "total                 7,865  4,838,322" + 2 * "     7,865       79     3,915       40",
                "Keys that nobody asks for twice, each of another message of ours: 200,000 in ",
                "Checked against the events, in both stores: 7,865 bodies are equal byte for byte, 3,915 keys",
                "The 7,865 messages of the two are equal in 14\nof 19 columns",
                "exported to Parquet (7,865 rows, ",
            ],
        ),
    ],
)
def test_an_example_runs_alone_and_prints_what_it_found(java: dict[str, str], example: str, expected: list[str]) -> None:
    program, *arguments = example.split()
    done = run(str(EXAMPLES / program), *arguments, **java)
    assert done.returncode == 0, done.stderr
    for line in expected:
        assert line in done.stdout
    assert "WARN" not in done.stderr
    assert "starting Spark ... " in done.stderr


def test_every_example_is_run() -> None:
    parameters = test_an_example_runs_alone_and_prints_what_it_found.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {example.split()[0] for example, _ in parameters} == {path.name for path in EXAMPLES.glob("[!_]*.py")}


def main_job(java: dict[str, str], change: str) -> subprocess.CompletedProcess[str]:
    """Runs the main job with a change and without timings."""
    code = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import dataclasses, resolve_events
events = resolve_events.load_events()
write_store = resolve_events.write_store
resolve_events.time_jobs = lambda *_: {{}}
resolve_events.DISTINCT = 10_000
{change}
sys.exit(resolve_events.main())
"""
    return run("-c", code, **java)


@pytest.mark.slow
def test_the_main_job_fails_when_an_answer_is_wrong(java: dict[str, str]) -> None:
    done = main_job(
        java,
        """
events[7] = dataclasses.replace(events[7], body=b"not what RocketMQ wrote")
resolve_events.load_events = lambda: events
""",
    )
    assert done.returncode == 1, done.stderr
    assert "4 answers are WRONG" in done.stdout
    for wrong in (
        "what a scan gives is not the events",
        "RocketMQ 5.3.3: the body of",
        "body differs in 1 messages",
        "store_size differs in 1 messages",
    ):
        assert wrong in done.stdout


@pytest.mark.slow
def test_the_main_job_fails_when_the_stores_differ_in_a_column(java: dict[str, str]) -> None:
    done = main_job(
        java,
        """
events[7] = dataclasses.replace(events[7], time_ms=events[7].time_ms + 1, tag=events[7].tag.swapcase())
resolve_events.write_store = lambda _, path: write_store(events, path)
""",
    )
    assert done.returncode == 1, done.stderr
    assert "3 answers are WRONG" in done.stdout
    for column in ("born_time", "tags", "properties"):
        assert f"{column} differs in 1 messages" in done.stdout


def test_importing_mqstore_imports_neither_spark_nor_arrow() -> None:
    done = run("-c", "import mqstore, sys; print([m for m in ('pyspark', 'pyarrow', 'pandas', 'numpy') if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_discovery_package_imports_even_if_mqstore_does_not() -> None:
    done = run(
        "-c",
        "import sys; sys.modules['mqstore'] = None\n"
        "import pyspark_mqstore\n"
        "print(pyspark_mqstore.DefaultSource.name())\n"
        "try: pyspark_mqstore.DefaultSource({})\n"
        "except ImportError as error: print(error)",
    )
    assert done.stdout.startswith(f'mqstore\nformat "mqstore" is not available in this Python, {sys.executable}: '), done.stderr
    assert "set PYSPARK_PYTHON to the Python that has it" in done.stdout


def test_without_pyspark_the_import_says_what_to_install() -> None:
    done = run("-c", "import sys; sys.modules['pyspark'] = None\nimport mqstore.spark")
    wanted = "pyspark 4.0 or later, pyarrow and pandas: run pip install '.[spark]' in a checkout of mqstore"
    assert f"mqstore.spark needs {wanted}" in done.stderr
