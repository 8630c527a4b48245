"""Starts the programs of `writer.py`, under the shim or not, and reads what they left: journals and stores."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checker import check_read_only

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OUT = ROOT / "target" / "torture"

# As in shim.c.
COUNT, KILL_BEFORE, KILL_AFTER, FAIL, SHORT, SKIP, OLD = range(7)
FAULTS = ("nothing", "kill before", "kill after", "fail", "short write", "skip", "no flags of renameat2")
#: The programs that are swept call by call; each starts without a store.
PROGRAMS = (
    "append_and_flush",
    "roll",
    "batches",
    "sync_flush",
    "pool",
    "each_mode",
    "index_roll",
    "many_queues",
    "close_and_reopen",
)
#: The names of the sync calls.
SYNCS = ("fsync", "fdatasync", "msync", "syncfs")


def build_shim() -> Path | None:
    """The preload library, built if it is older than its source; `None` without a C compiler."""
    source, library = HERE / "shim.c", OUT / "shim.so"
    if library.exists() and library.stat().st_mtime > source.stat().st_mtime:
        return library
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    OUT.mkdir(parents=True, exist_ok=True)
    made = library.with_suffix(f".{os.getpid()}")
    subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", made, source], check=True)
    made.rename(library)
    return library


@dataclass(frozen=True)
class Ended:
    """The end of a child: see `writer.ending`."""

    status: int

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    @property
    def ok(self) -> bool:
        return self.status == 0

    def __str__(self) -> str:
        return "hung" if self.status == 1000 else f"ended with {self.status}"


class Nursery:
    """A process that has imported mqstore and forks for each job."""

    def __init__(self, shim: Path | None) -> None:
        environment = {"PATH": os.environ["PATH"]} | ({"LD_PRELOAD": str(shim)} if shim else {})
        command = [sys.executable, "-S", "-E", str(HERE / "writer.py"), str(ROOT / "python")]
        pipe = subprocess.PIPE
        #: The running child, until its end is reported.
        self.child: int | None = None
        self.process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, env=environment, cwd="/")

    def start(self, job: dict[str, Any]) -> None:
        """Starts a job. A job that a failed test left is killed first."""
        assert self.process.stdin is not None
        if self.child is not None:
            self.kill()
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.child = self._answer("started")

    def wait(self) -> Ended:
        ended = Ended(self._answer("ended"))
        self.child = None
        return ended

    def kill(self) -> Ended:
        """Kills the child. Its process id is not reused before the next child starts, even if it has ended."""
        assert self.child is not None
        assert self.child > 1
        os.kill(self.child, signal.SIGKILL)
        return self.wait()

    def run(self, job: dict[str, Any]) -> Ended:
        self.start(job)
        return self.wait()

    def _answer(self, kind: str) -> int:
        assert self.process.stdout is not None
        # Unbuffered: `select` would miss a line in a buffer.
        if not select.select([self.process.stdout], [], [], 120)[0]:
            raise TimeoutError("the writers' parent does not answer")
        line = self.process.stdout.readline()
        if not line:
            raise ChildProcessError("the writers' parent died")
        word, number = line.split()
        assert word.decode() == kind, line
        return int(number)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


@dataclass
class Call:
    """A system call that the shim saw: its name, or `pwrite-zeros`."""

    name: str
    path: str
    faulted: bool


@dataclass(frozen=True)
class Append:
    """An append of one message that returned: when, in ns, and the bytes of the record."""

    number: int
    at: int
    size: int


@dataclass
class Journal:
    """The contents of a writer's journal, in order."""

    #: Messages whose append began, without those whose append raised.
    intended: list[int] = field(default_factory=list)
    #: How many of these appends returned, how many are in the log for certain, and how many are acknowledged.
    returned: int = 0
    timed: list[Append] = field(default_factory=list)
    committed: int = 0
    acks: int = 0
    #: Whether appended messages wait in a transient store pool.
    has_pool: bool = False
    #: Whether they did in the store that is open, and in the one that the first fault was injected into.
    is_pooled: bool = False
    was_pooled: bool = False
    #: The same when the first fault was injected.
    acks_before: int | None = None
    raised: list[tuple[str, str, str, str]] = field(default_factory=list)
    untyped: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    #: The lines after the first fault, up to the next open, and the acks and calls among them.
    after: list[str] = field(default_factory=list)
    acks_after: int = 0
    calls_after: list[Call] = field(default_factory=list)
    is_after: bool = False
    opened: int = 0
    closed: int = 0
    reads: int = 0
    #: Errors that were raised before the test took the disk away.
    raised_before_cut: int = 0
    #: Acks that were given before that. A sync that runs while a file system is shut down or gives up may return as if all went
    #: well (ext4, Linux 6.18: blocks that had never been written); no power cut returns from a call.
    acks_before_cut: int | None = None
    ended: bool = False

    @staticmethod
    def read(path: Path) -> Journal:
        journal = Journal()
        # A line that a kill cut short does not count.
        for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
            if line.endswith("\n"):
                journal.take(line.rstrip("\n"))
        return journal

    def take(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        words = rest.split(" ")
        if kind == "opening":
            self.is_after = False
        if self.is_after:
            self.after.append(line)
        match kind:
            case "intent":
                self.intended.extend(range(int(words[0]), int(words[0]) + int(words[1])))
                self.waiting = int(words[1])
            case "appended":
                self.returned = len(self.intended)
                if len(words) > 1:
                    self.timed.append(Append(*map(int, words)))
            case "acked":
                # After a fault an ack may cover less than was appended, never more.
                self.acks = self.count_up_to(int(words[0]))
                self.committed = max(self.committed, self.acks)
                if self.is_after:
                    self.acks_after = self.acks
            case "raised":
                self.raised.append((words[0], words[1], words[2], " ".join(words[4:])))
                if words[0].startswith("append"):
                    stored = int(words[3])
                    del self.intended[len(self.intended) - self.waiting + stored :]
                    self.returned = len(self.intended)
            case "untyped":
                self.untyped.append(rest)
            case "committed":
                self.committed = max(self.committed, self.count_up_to(int(words[0])))
            case "opening":
                self.is_pooled = rest == "pool"
                self.has_pool |= self.is_pooled
            case "opened":
                self.opened += 1
            case "closed":
                self.closed += 1
            case "read":
                self.reads += 1
            case "call":
                faulted = "!" in rest
                self.calls.append(Call(words[1], words[2], faulted))
                if self.is_after:
                    self.calls_after.append(self.calls[-1])
                if faulted and self.acks_before is None:
                    self.acks_before = self.acks
                    self.was_pooled = self.is_pooled
                    self.is_after = True
            case "calls":
                self.ended = True
            case "cut":
                self.raised_before_cut = len(self.raised)
                self.acks_before_cut = self.acks
            case _:
                self.untyped.append(line)

    def count_up_to(self, number: int) -> int:
        return sum(1 for intended in self.intended if intended <= number)

    @property
    def appended(self) -> list[int]:
        """Messages that must survive the death of the process. Of those that wait in a pool, a killed process loses the last."""
        return self.intended[: self.committed if self.has_pool else self.returned]

    @property
    def in_flight(self) -> list[int]:
        """Returns the messages that it may leave, in this order."""
        return self.intended[len(self.appended) :]

    @property
    def acked(self) -> list[int]:
        """Messages that must survive a power cut."""
        return self.intended[: self.acks if self.acks_before_cut is None else self.acks_before_cut]

    @property
    def not_acked(self) -> list[int]:
        """Returns the messages that it may leave, in this order."""
        return self.intended[len(self.acked) :]

    @property
    def unexpected(self) -> list[str]:
        """Errors before the test took the disk away, and errors of a wrong type at any time."""
        raised = self.raised if self.acks_before_cut is None else self.raised[: self.raised_before_cut]
        return [f"raised {error}" for error in raised] + self.untyped

    @property
    def next_number(self) -> int:
        """A number that no message has."""
        return max(self.intended, default=0) + 1_000_000

    @property
    def fault(self) -> Call | None:
        return next((call for call in self.calls if call.faulted), None)


class Case:
    """A store in a directory of its own, the journal of its writer, and what is known of it."""

    def __init__(
        self, nursery: Nursery, place: Path, seed: int = 0, image: Path | None = None, known: Sequence[int] = ()
    ) -> None:
        self.nursery, self.seed = nursery, seed
        #: The messages that the store held before its writer began, in their order.
        self.known = list(known)
        self.path = place / "case"
        self.store = self.path / "store"
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        if image is not None:
            shutil.copytree(image, self.store)
        self.journal_path.unlink(missing_ok=True)

    @property
    def journal_path(self) -> Path:
        # Outside of the directory that the shim watches.
        return self.path.with_suffix(".journal")

    def start(self, program: str, at: int, fault: int, **more: Any) -> None:
        """Starts a program under the shim, which acts at its k-th system call."""
        paths = {"path": str(self.store), "watched": str(self.path), "journal": str(self.journal_path)}
        first = max(self.known, default=-1) + 1
        self.nursery.start({"program": program, "at": at, "fault": fault, "seed": self.seed, "first": first, **paths, **more})

    def run(self, program: str, at: int = 0, fault: int = COUNT, **more: Any) -> Ended:
        self.start(program, at, fault, **more)
        return self.nursery.wait()

    def journal(self) -> Journal:
        return Journal.read(self.journal_path)

    def calls(self, program: str, most: int | None = None) -> Sequence[int]:
        """The numbers of the calls that the program makes without a fault; evenly chosen if there are more than `most`."""
        made = range(1, self.count_calls(program) + 1)
        return made if most is None or len(made) <= most else [made[len(made) * number // most] for number in range(most)]

    def count_calls(self, program: str) -> int:
        """Returns their number."""
        ended = self.run(program)
        journal = self.journal()
        assert ended.ok, ended
        assert journal.closed, (journal.raised, journal.untyped)
        return len(journal.calls)

    def learn(self) -> None:
        """After a kill: takes the present contents of the store as what the next writer must find."""
        journal = self.journal()
        seen = check_read_only(self.store, [*self.known, *journal.appended], journal.in_flight)
        assert seen.ok, seen
        self.known = seen.present
        self.journal_path.unlink(missing_ok=True)


def crash_image(nursery: Nursery, place: Path, seed: int, image: Path) -> list[int]:
    """Copies to `image` a store whose writer was killed at a call of a program of that seed. Returns its messages."""
    chance = random.Random(seed)
    calls = Case(nursery, place, seed).count_calls("anything")
    case = Case(nursery, place, seed)
    case.run("anything", at=chance.randrange(30, calls), fault=chance.choice([KILL_BEFORE, KILL_AFTER]))
    case.learn()
    shutil.rmtree(image, ignore_errors=True)
    shutil.copytree(case.store, image)
    return case.known


def tell(journal: Path, line: str) -> None:
    """Adds a line to a journal that its writer continues."""
    fd = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Polls every millisecond; fails after two minutes."""
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.001)
