"""The base of the examples: a quiet Spark, and a store of real events."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Otherwise workers of Spark would run the python3 of the PATH.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")

from pyspark.sql import SparkSession  # noqa: E402  (reads the environment)

REPOSITORY = Path(__file__).resolve().parent.parent
WORK = REPOSITORY / "target" / "spark_examples"
ARCHIVE = REPOSITORY / "tests" / "golden" / "533_events.tar.xz"
EVENTS = REPOSITORY / "tests" / "data" / "events.jsonl.gz"
UNPACK = EVENTS.with_name("unpack.py")
CORES = 2


@dataclass(frozen=True)
class Event:
    """A line of events.jsonl.gz, and its location in the store of RocketMQ."""

    topic: str
    queue_id: int
    queue_offset: int
    issues: tuple[str, ...]
    tag: str
    unique_key: str
    time_ms: int
    body: bytes


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Prints the name of a step on stderr, and its duration at the end."""
    print(f"{what} ...", end=" ", file=sys.stderr, flush=True)
    begin = time.perf_counter()
    try:
        yield
    except BaseException:
        print("failed", file=sys.stderr, flush=True)
        raise
    print(f"{time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)


def start_spark(name: str) -> SparkSession:
    """Starts a local Spark. The output of the Java machine goes to a file, to keep that of the example readable."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        sys.exit("Spark needs Java 17 or later: install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME")
    builder = SparkSession.builder.master(f"local[{CORES}]").appName(name)
    settings = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    WORK.mkdir(parents=True, exist_ok=True)
    log = WORK / "spark.log"
    with step("starting Spark"), _stderr_into(log):
        return builder.getOrCreate()


@contextlib.contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Redirects stderr to a file. Processes that start inside keep writing to it; the stderr of this process is restored."""
    ours = os.dup(2)
    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def events_store() -> Path:
    """Unpacks, once, the store of 7,865 events that RocketMQ 5.3.3 wrote."""
    store = WORK / f"533_events-{zlib.crc32(ARCHIVE.read_bytes()):08x}"
    if store.exists():
        return store
    WORK.mkdir(parents=True, exist_ok=True)
    with step(f"unpacking {ARCHIVE.relative_to(REPOSITORY)}"), tempfile.TemporaryDirectory(dir=WORK) as fresh:
        subprocess.run([sys.executable, UNPACK, ARCHIVE, fresh], check=True)
        # The rename is atomic: no partly unpacked copy has this name.
        with contextlib.suppress(OSError):
            os.rename(Path(fresh) / "533_events", store)
    return store


def load_events() -> list[Event]:
    """Reads the events of the store: queue id = line number % 4, the next offset of that queue, the line itself as body."""
    events = []
    written: Counter[tuple[str, int]] = Counter()
    with gzip.open(EVENTS) as lines:
        for number, line in enumerate(lines):
            body = line.rstrip(b"\n")
            event = json.loads(body)
            queue = (event["topic"], number % 4)
            issues = tuple(map(str, event["issues"]))
            events.append(Event(*queue, written[queue], issues, event["tag"], event["id"].upper(), event["time_ms"], body))
            written[queue] += 1
    return events
