"""Drives RocketMQ's own store classes, of one published version, through the harness in src/."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from generator import DELAY_LEVELS, Geometry, Record, Step

HERE = Path(__file__).resolve().parent
VERSIONS = ["4.9.1", "4.9.8", "5.3.3", "5.5.1"]
#: Nothing here takes longer than some seconds.
TIMEOUT_S = 120
#: Stores that a process surveys one after the other, and processes at once.
BATCH, PROCESSES = 12, 6
#: What the harness prints when it begins to hold a store open.
HELD = '{"command":"hold"}\n'


@dataclass
class Dump:
    """The content of a store as one side reads it."""

    #: By physical offset, every record of the log.
    records: dict[int, Record] = field(default_factory=dict)
    #: By topic and queue id: min and max offset, and the entries: physical offset, size and, if the side has it, tags code.
    queues: dict[tuple[str, int], tuple[int, int, list[tuple[int, ...]]]] = field(default_factory=dict)
    #: Where the log begins and ends.
    bounds: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Survey:
    """The contents of a store that may have lost something."""

    #: By physical offset, every record of the log.
    records: dict[int, Record]
    #: What queue offsets give a consumer: topic, queue id, queue offset, and the message's physical offset.
    served: set[tuple[str, int, int, int]]


def need(program: str, package: str) -> str:
    """The path of a program that these tests need."""
    found = shutil.which(program)
    if found is None:
        raise RuntimeError(
            f"{program} is missing: the tests against RocketMQ's own classes need it (Debian: apt-get install {package})"
        )
    return found


def as_number(version: str) -> tuple[int, ...]:
    """For comparisons."""
    return tuple(int(part) for part in version.split("."))


class RocketMQ:
    """One version."""

    def __init__(self, version: str, *, compiled_in_full: bool = False) -> None:
        self.version = version
        self.number = as_number(version)
        #: The generation of its classes.
        self.api = self.number[0]
        #: Properties end with a separator.
        self.separator_at_end = self.number >= (5, 2)
        #: The properties of a producer batch itself are stored with each of its messages.
        self.batch_properties = self.number < (5, 3, 4)
        #: Tags are indexed.
        self.index_tags = self.number >= (5, 4)
        #: Records of the second form, for topics over 127 bytes.
        self.longest_topic = self.number >= (5, 1)
        self.command = java_command(version, compiled_in_full=compiled_in_full)

    def run(self, store: Path, geometry: Geometry | None, *commands: str) -> dict[str, list[Any]]:
        """Opens a store, carries out commands and closes it; gives the lines that each command printed."""
        arguments = self.arguments(store, geometry, *commands)
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"RocketMQ {self.version} failed on {store}: {' '.join(commands)}\n{done.stderr[-8000:]}")
        return by_command(done.stdout.splitlines())

    @contextmanager
    def held(self, store: Path, geometry: Geometry, plan: list[Step]) -> Iterator[list[Record]]:
        """Executes a plan and keeps the store open during it; returns the store's report of each put."""
        file = save_lines(store.with_name(f"{store.name}.plan"), plan)
        arguments = self.arguments(store, geometry, f"write={file}", "hold")
        with subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as java:
            assert java.stdin is not None
            assert java.stdout is not None
            yield by_command(list(iter(java.stdout.readline, HELD)))["write"]
            java.stdin.close()
        assert java.returncode == 0, f"RocketMQ {self.version} failed on {store}"

    @contextmanager
    def slave(self, store: Path, geometry: Geometry, master: str) -> Iterator[subprocess.Popen[bytes]]:
        """Keeps a store open as the slave of the master at this address, until the end of the block, which may kill it."""
        arguments = self.arguments(store, geometry, "option.brokerRole=SLAVE", f"slave={master}", "hold")
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as java:
            assert java.stdin is not None
            yield java
            java.stdin.close()
        assert java.returncode in (0, -signal.SIGKILL), f"RocketMQ {self.version} failed on {store}"

    @contextmanager
    def master(self, store: Path, geometry: Geometry, port: int, *commands: str) -> Iterator[subprocess.Popen[bytes]]:
        """Keeps a store open as a master that carries out commands, until the end of the block, which may kill it."""
        arguments = self.arguments(store, geometry, f"option.haListenPort={port}", *commands, "hold")
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as java:
            assert java.stdin is not None
            yield java
            java.stdin.close()
        assert java.returncode in (0, -signal.SIGKILL), f"RocketMQ {self.version} failed on {store}"

    def arguments(self, store: Path, geometry: Geometry | None, *commands: str) -> list[str]:
        """The command line of the harness. Without a geometry sizes are RocketMQ's defaults."""
        sizes = [f"{name}={value}" for name, value in vars(geometry).items()] if geometry else []
        return [*self.command, str(store), *sizes, f"levels={DELAY_LEVELS}", *commands]

    def write(self, store: Path, geometry: Geometry | None, plan: list[Step]) -> list[Record]:
        """Carries out a plan; gives what the store said of each put."""
        file = save_lines(store.with_name(f"{store.name}.plan"), plan)
        return self.run(store, geometry, f"write={file}")["write"]

    def killed(self, store: Path, geometry: Geometry, plan: list[Step], after: int) -> list[Record]:
        """Executes a plan until this many puts are reported, and kills the process; returns the store's report of each put."""
        file = save_lines(store.with_name(f"{store.name}.plan"), plan)
        arguments = self.arguments(store, geometry, f"write={file}", "hold")
        lines: list[str] = []
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as java:
            assert java.stdout is not None
            for line in java.stdout:
                if not line.endswith(b"\n"):
                    break  # the last one, cut off
                lines.append(line.decode())
                if len(lines) > after:
                    java.kill()
        assert java.returncode == -signal.SIGKILL, f"RocketMQ {self.version} ended by itself: {java.returncode}"
        return by_command(lines)["write"]

    def survey(self, store: Path, geometry: Geometry, questions: list[dict[str, Any]]) -> tuple[Survey, list[Any]]:
        """Returns what RocketMQ recovers of a store, and its answers; nothing if it refuses it. The store is not closed."""
        file = save_lines(store.with_name(f"{store.name}.questions"), questions)
        try:
            answers = self.run(store, geometry, "survey", f"query={file}", "halt")
        except RuntimeError as error:
            if f"RocketMQ does not load {store}" not in str(error):
                raise
            return Survey({}, set()), [[] for _ in questions]
        served = {tuple(place) for place in answers["survey"].pop()}
        return Survey({line["physical_offset"]: with_hosts(line) for line in answers["survey"]}, served), answers["query"]

    def survey_each(self, stores: list[tuple[Path, Geometry, list[dict[str, Any]]]]) -> list[tuple[Survey, list[Any]] | None]:
        """Surveys many stores, each process one after the other, and closes them; None for a store that RocketMQ refuses."""
        batches = [stores[first : first + BATCH] for first in range(0, len(stores), BATCH)]
        # A process mostly sleeps: each close of a store waits for services of RocketMQ.
        with ThreadPoolExecutor(PROCESSES) as pool:
            return [answer for answers in pool.map(self._survey_batch, batches) for answer in answers]

    def _survey_batch(self, stores: list[tuple[Path, Geometry, list[dict[str, Any]]]]) -> list[tuple[Survey, list[Any]] | None]:
        lines = []
        for store, geometry, questions in stores:
            file = save_lines(store.with_name(f"{store.name}.questions"), questions)
            lines.append(self.arguments(store, geometry, "survey", f"query={file}")[len(self.command) :])
        first = stores[0][0]
        file = save_lines(first.with_name(f"{first.name}.batch"), lines)
        done = subprocess.run([*self.command, "each", str(file)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"RocketMQ {self.version} failed on one of {len(stores)} stores:\n{done.stderr[-8000:]}")
        printed: list[list[str]] = []
        for line in done.stdout.splitlines():
            if line.startswith('{"store":'):
                printed.append([])
            else:
                printed[-1].append(line)
        assert len(printed) == len(stores)
        return [surveyed(lines) for lines in printed]

    def ask(self, store: Path, geometry: Geometry | None, questions: list[dict[str, Any]]) -> tuple[Dump, list[Any]]:
        """Returns everything in a store, and the answers to questions."""
        file = save_lines(store.with_name(f"{store.name}.questions"), questions)
        answers = self.run(store, geometry, "dump", f"query={file}")
        return read_dump(answers["dump"]), answers["query"]


@cache
def java_command(version: str, *, compiled_in_full: bool) -> list[str]:
    """The command that starts the harness against a version.

    Compiling Java's byte code in full takes longer than a test runs.
    """
    return [*java(HERE, HERE / "target" / version, version, compiled_in_full=compiled_in_full), "interop.Harness"]


def java(project: Path, target: Path, version: str, *settings: str, compiled_in_full: bool = False) -> list[str]:
    """Compiles a project against a version, unless that was done, and gives the command that starts a class of it."""
    classpath = target / "classpath"
    sources = [project / "pom.xml", *(path for path in (project / "src").rglob("*") if path.is_file())]
    HERE.joinpath("target").mkdir(exist_ok=True)
    with open(HERE / "target" / "lock", "w") as lock:
        # Two processes of Maven damage each other's downloads. Another run of pytest may be compiling now.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not classpath.exists() or classpath.stat().st_mtime < max(path.stat().st_mtime for path in sources):
            maven(project, version, *settings)
            classpath.touch()
    options = [
        "-Xmx512m",
        f"-Duser.home={target}",
        *([] if compiled_in_full else ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]),
    ]
    # 4.9 unmaps files by reflection.
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")]
    program = need("java", "openjdk-17-jdk-headless")
    return [program, *options, *opened, "-cp", f"{target / 'classes'}{os.pathsep}{classpath.read_text().strip()}"]


def maven(project: Path, version: str, *settings: str) -> None:
    """Compiles a project and lists the jars it needs, fetching what is not there yet."""
    command = [need("mvn", "maven"), "--quiet", "--batch-mode", "--file", str(project / "pom.xml")]
    command += [
        f"-Drocketmq.version={version}",
        f"-Drocketmq.api={version[0]}",
        *settings,
        "compile",
        "dependency:build-classpath",
    ]
    # Of several Javas Maven would take the first, and that one may have no compiler.
    home = os.environ.get("JAVA_HOME") or str(Path(need("javac", "openjdk-17-jdk-headless")).resolve().parents[1])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"JAVA_HOME": home})
    if done.returncode != 0:
        raise RuntimeError(f"Maven could not build {project} for RocketMQ {version}:\n{done.stdout[-8000:]}{done.stderr[-2000:]}")


def by_command(lines: list[str]) -> dict[str, list[Any]]:
    """The harness's lines, by the command that printed them."""
    answers: dict[str, list[Any]] = {}
    command = ""
    for line in map(json.loads, lines):
        if isinstance(line, dict) and "command" in line:
            command = line["command"]
            answers[command] = []
        else:
            answers[command].append(line)
    return answers


def surveyed(lines: list[str]) -> tuple[Survey, list[Any]] | None:
    """A survey and answers to questions from the harness's lines; None if the run failed before."""
    answers = by_command([line for line in lines if not line.startswith('{"failed":')])
    if "query" not in answers:
        return None
    served = {tuple(place) for place in answers["survey"].pop()}
    return Survey({line["physical_offset"]: with_hosts(line) for line in answers["survey"]}, served), answers["query"]


def save_lines(path: Path, lines: list[Any]) -> Path:
    """Writes JSON Lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read_dump(lines: list[dict[str, Any]]) -> Dump:
    """From the harness's lines."""
    dump = Dump()
    for line in lines:
        if "queue" in line:
            topic, _, queue = line["queue"].rpartition("/")
            if line["max"] > 0:  # some versions make the queues of the delay levels ahead of the first message
                dump.queues[topic, int(queue)] = line["min"], line["max"], [tuple(entry) for entry in line["entries"]]
        elif "walked_to" in line:
            dump.bounds = line["min_physical_offset"], line["max_physical_offset"]
            assert line["walked_to"] == line["max_physical_offset"], f"RocketMQ's records do not end where its log ends: {line}"
        else:
            line.pop("unqueued", None)
            with_hosts(line)
            assert line["physical_offset"] not in dump.records, f"two queues hold the record at {line['physical_offset']}"
            dump.records[line["physical_offset"]] = line
    return dump


def with_hosts(message: Record) -> Record:
    """A message as both sides write it."""
    message |= {name: canonical_host(message[name]) for name in ("born_host", "store_host")}
    return message


def canonical_host(text: str) -> str:
    """Java writes an IPv6 address in full and without brackets."""
    address, _, port = text.rpartition(":")
    parsed = ip_address(address)
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"
