"""A whole RocketMQ of its own in a process: a name server, a broker and their clients, on 127.0.0.1. See `broker/`."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from generator import Geometry
from rocketmq import HERE, java

#: Of the versions whose store is tested only this one is published with a broker, its name server and its clients.
VERSION = "5.3.3"
#: The versions of the clients that a broker is run with where its own are not published.
CLIENTS = {"5.5.1": "5.5.0"}
#: A start takes some seconds, on a machine that does little else.
PATIENCE_S = 300

Ack: TypeAlias = dict[str, Any]


@dataclass(frozen=True, order=True)
class Place:
    """The place of a message in the store."""

    physical_offset: int
    topic: str
    queue_id: int
    queue_offset: int

    @classmethod
    def of(cls, ack: Ack) -> Place:
        """Builds a message from the report of a client."""
        return cls(**{field.name: ack[field.name] for field in fields(cls)})


class Broker:
    """A broker that runs on a store directory, and its clients."""

    def __init__(
        self,
        store: Path,
        geometry: Geometry,
        on_acked: Callable[[Ack], None] = lambda _: None,
        version: str = VERSION,
        options: Mapping[str, object] | None = None,
        program: str = "Broker",
    ) -> None:
        """Starts it. `on_acked` is called in another thread with the producer's report of a message. The program "Offline" is a
        broker without a network and clients.
        """
        #: By its number, the acknowledgement of a message.
        self.acked: dict[int, Ack] = {}
        self._on_acked = on_acked
        self._answers: SimpleQueue[Ack | None] = SimpleQueue()
        conf = store.with_name(f"{store.name}.broker.conf")
        conf.write_text(configuration(store, geometry, options or {}))
        clients = CLIENTS.get(version, version)
        target = HERE / "target" / f"broker-{version}"
        command = [*java(HERE / "broker", target, version, f"-Dclients.version={clients}"), f"interop.{program}", str(conf)]
        self._errors = store.with_name(f"{store.name}.broker.errors")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self._await("start")
        except BaseException:
            self.kill()
            raise

    def ask(self, *words: object) -> list[Ack]:
        """Gives a command, waits until it is carried out, and gives what was answered."""
        command = " ".join(map(str, words))
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._await(command)

    def stop(self) -> None:
        """Freezes the process."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After `stop`."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the process as a crash does."""
        self._process.kill()
        self._reader.join()
        self._process.communicate()

    def close(self) -> None:
        """Ends it in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join()
        assert self._process.wait(PATIENCE_S) == 0, self._failure()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # cut off by a kill
            ack = json.loads(line)
            if "acked" in ack:
                self.acked[ack["acked"]] = ack
                self._on_acked(ack)
            else:
                self._answers.put(ack)
        self._answers.put(None)

    def _await(self, command: str) -> list[Ack]:
        answers: list[Ack] = []
        with suppress(Empty):
            while (ack := self._answers.get(timeout=PATIENCE_S)) is not None:
                if ack == {"done": command}:
                    return answers
                answers.append(ack)
        raise RuntimeError(f"the broker does not answer {command!r}: {self._failure()}")

    def _failure(self) -> str:
        return self._errors.read_text(errors="replace")[-8000:]


def configuration(store: Path, geometry: Geometry, more: Mapping[str, object]) -> str:
    """A broker's configuration file for a store of these sizes."""
    options = {
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        "mappedFileSizeCommitLog": geometry.segment,
        "mappedFileSizeConsumeQueue": geometry.queue,
        "maxHashSlotNum": geometry.slots,
        "maxIndexNum": geometry.items,
        # A file may go once it is an hour old, or at once: then only this many at a time.
        "fileReservedTime": 0,
        "deleteFileBatchMax": 3,
        "deleteCommitLogFilesInterval": 10,
        "deleteConsumeQueueFilesInterval": 10,
        "mappedFileSizeTimerLog": 1 << 20,
        "recallMessageEnable": "true",
    }
    return "".join(f"{name}={value}\n" for name, value in {**options, **more}.items())
