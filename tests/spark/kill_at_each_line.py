"""Runs a write job as Spark does, in a process that kills itself at a line of the job's code, for each line in turn.

    python kill_at_each_line.py <empty directory> one|per-task

The lines are those that a run goes through: nobody lists them. Each run writes rows of its own, so that the rows say which run
staged them. Prints a line of JSON for each line of code that was killed at.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

import mqstore
from mqstore.spark import _job, _task_stores, sink

CODE = {module.__file__ for module in (_job, _task_stores, sink)}
SCHEMA = StructType([StructField("topic", StringType()), StructField("body", StringType()), StructField("broker", StringType())])
#: The rows of each partition, in batches.
PARTITIONS = [[1, 2], [], [2]]
OF_OTHERS = b"of others"
SEGMENT = {"option.mapped_file_size_commit_log": "65536"}


def in_child(function: Callable[..., Any], *arguments: object) -> Any:
    """Returns the result of the function, None if it killed its process."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open(send, "wb") as pipe:
                pickle.dump(function(*arguments), pipe)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(send)
    with open(receive, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    if status:
        raise SystemExit(f"a run failed: status {status}")
    return pickle.loads(answer)


def killed_at(step: int | None, target: Path, stores: str, run: int) -> list[str]:
    """Counts the lines of the code of the job that a run executes, and kills the process before a line."""
    lines: list[str] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in CODE:
            return None
        if event == "line":
            if len(lines) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            lines.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        return trace

    sys.settrace(trace)
    write(target, stores, run)
    sys.settrace(None)
    return lines


def write(target: Path, stores: str, run: int) -> None:
    """Runs the job, from the plan to the commit."""
    options = {"path": str(target), "jobId": "orders", "stores": stores} | SEGMENT
    schema = SCHEMA if stores == "per-task" else StructType(SCHEMA.fields[:2])
    writer = sink.message_writer(options, schema, overwrite=False)
    messages = []
    for partition, batches in enumerate(PARTITIONS):
        rows = iter([batch.select(schema.names) for batch in rows_of(run, partition, batches)])
        messages.append(sink.CommitMessage(writer.stage(rows, partition, attempt=run * len(PARTITIONS) + partition)))
    writer.commit(messages)


def rows_of(run: int, partition: int, batches: list[int]) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_pylist(
            [{"topic": "orders", "body": f"{run}/{partition}/{at}/{row}", "broker": f"broker-{partition}"} for row in range(rows)]
        )
        for at, rows in enumerate(batches)
    ]


def interfere(target: Path, stores: str) -> None:
    """Appends a foreign message with the properties of a row of the job."""
    if stores == "one" and (target / "commitlog").exists():
        with mqstore.open(target, "r+", mapped_file_size_commit_log=65536) as store:
            foreign = {_job.JOB_PROPERTY: "orders", _job.ROW_PROPERTY: "4"}
            store.append("orders", OF_OTHERS, properties=foreign)


def stored(target: Path, stores: str) -> list[str]:
    """Returns the bodies of the store or stores, in order."""
    paths = sorted(target.glob("broker-*")) if stores == "per-task" else [target] if (target / "commitlog").exists() else []
    found = []
    for path in paths:
        with mqstore.open(path) as store:
            read = store.scan(columns=["body"]).to_arrow().column("body").to_pylist()
            found += [body.decode() for body in read if body != OF_OTHERS]
    return found


def expected(run: int) -> list[str]:
    rows = [batch.column("body").to_pylist() for at, batches in enumerate(PARTITIONS) for batch in rows_of(run, at, batches)]
    return [body for batch in rows for body in batch]


def rerun(target: Path, stores: str) -> tuple[list[str], list[str]]:
    """Returns the bodies after a killed run, and after a rerun of the same job."""
    after_kill = stored(target, stores)
    interfere(target, stores)
    write(target, stores, 1)
    return after_kill, stored(target, stores)


def killed_again(step: int, target: Path, stores: str) -> list[str]:
    """Runs the job after runs that were killed, each one line later than the run before."""
    interfere(target, stores)
    return killed_at(step, target, stores, step)


def main(directory: Path, stores: str) -> None:
    for step, line in enumerate(in_child(killed_at, None, directory / "whole", stores, 0)):
        target = directory / str(step)
        if in_child(killed_at, step, target, stores, 0) is not None:
            raise SystemExit(f"{line} was not reached")
        after_kill, after_rerun = in_child(rerun, target, stores)
        runs = [run for run in (0, 1) if after_rerun == expected(run)]
        print(json.dumps({"line": line, "after_kill": after_kill, "after_rerun": after_rerun, "rows_of_run": runs}))
    target, step = directory / "killed", 0
    while in_child(killed_again, step, target, stores) is None:
        step += 1
    found = in_child(stored, target, stores)
    print(json.dumps({"kills": step, "after_all": found, "rows_of_run": [n for n in range(step + 1) if found == expected(n)]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
