"""Fixtures: one Spark for all tests, the golden stores, and stores that a test encodes itself."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from unpack import unpack

# Otherwise workers of Spark would run the python3 of the PATH.
os.environ["PYSPARK_PYTHON"] = sys.executable

import pyspark
from pyspark.sql import SparkSession

import mqstore

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "matrix: runs over Spark Connect and with older versions of pyspark, too")
    config.addinivalue_line("filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Starts Spark, with TEST_REMOTE=1 as a server of Spark Connect."""
    with connect_server() if "TEST_REMOTE" in os.environ else classic() as builder:
        session = builder.getOrCreate()
        yield session
        session.stop()


@contextlib.contextmanager
def classic() -> Iterator[SparkSession.Builder]:
    """Configures Spark in a Java machine of this process."""
    builder = SparkSession.builder.master("local[2]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    yield builder


@contextlib.contextmanager
def connect_server() -> Iterator[SparkSession.Builder]:
    """Starts a server as `start-connect-server.sh` does, which shares only the machine with this process."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    settings = SETTINGS | {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [submit, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
    deadline = time.monotonic() + 180
    server = subprocess.Popen([*command, *(word for setting in settings.items() for word in ("--conf", "=".join(setting)))])
    try:
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)
        yield SparkSession.builder.remote(f"sc://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait()


def file_queue_stores() -> list[str]:
    """Lists the golden stores whose queues are files. The events are in an archive."""
    return sorted(path.name for path in GOLDEN.iterdir() if (path / "consumequeue").is_dir())


@pytest.fixture(params=file_queue_stores())
def golden_store(request: pytest.FixtureRequest) -> Path:
    return GOLDEN / request.param


@pytest.fixture(scope="session")
def golden() -> Path:
    """Returns the folder of the golden stores."""
    return GOLDEN


@pytest.fixture(scope="session")
def events_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpacks a store of 7,865 events in 53 topics."""
    folder = tmp_path_factory.mktemp("events")
    unpack(GOLDEN / "533_events.tar.xz", folder)
    return folder / "533_events"


@pytest.fixture(scope="session")
def queue_tables() -> Callable[..., list[pa.Table]]:
    """Returns a function that reads all queues with `mqstore`, in the order of a scan."""

    def read(path: Path, topics: Sequence[str] | None = None, columns: list[str] | None = None) -> list[pa.Table]:
        with mqstore.open(path) as store:
            return [
                pa.Table.from_batches(map(pa.record_batch, queue[:].batches(columns=columns)))
                for topic in topics or store.topics
                for queue in store.topics[topic].queues
                if len(queue)
            ]

    return read


def encode_record(topic: str, queue_id: int, queue_offset: int, physical_offset: int, body: bytes) -> bytes:
    """Encodes a V1 record without properties."""
    host = struct.pack(">4si", bytes([127, 0, 0, 1]), 10911)
    name = topic.encode()
    rest = struct.pack(">IIiiqqiq", 0xDAA320A7, zlib.crc32(body) & 0x7FFFFFFF, queue_id, 0, queue_offset, physical_offset, 0, 0)
    rest += host + struct.pack(">q", 1) + host + struct.pack(">iqi", 0, 0, len(body)) + body
    rest += struct.pack(">B", len(name)) + name + struct.pack(">h", 0)
    return struct.pack(">I", 4 + len(rest)) + rest


@pytest.fixture
def write_store() -> Callable[..., None]:
    """Returns a function that writes a store of one log segment and no queues, which a reader rebuilds, or appends to it."""

    def write(path: Path, messages: Sequence[tuple[str, int, bytes]], segment: int = 64 << 20) -> None:
        (path / "commitlog").mkdir(parents=True, exist_ok=True)
        written: dict[tuple[str, int], int] = {}
        segment_file = path / "commitlog" / f"{0:020}"
        # An existing file is overwritten in place, as by a broker, and never truncated under a reader that maps it.
        with segment_file.open("r+b" if segment_file.exists() else "w+b") as log:
            log.truncate(segment)
            for topic, queue_id, body in messages:
                queue_offset = written.get((topic, queue_id), 0)
                log.write(encode_record(topic, queue_id, queue_offset, log.tell(), body))
                written[topic, queue_id] = queue_offset + 1
        (path / "abort").touch()

    return write
