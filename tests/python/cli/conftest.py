"""Running commands, in this process and in others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from expected import Expected

from mqstore.cli._main import commands

#: One of each version, closed and crashed.
STORES = ["491_multifile", "491_crash_image", "491_delay_delivered", "498_mixed", "533_mixed", "533_v2_record", "551_mixed"]


@dataclass(frozen=True)
class Ran:
    """The outcome of a command."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The objects that it printed, where these are the whole answer."""
        assert self.code == 0, self
        return self.objects

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The objects that it printed."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run() -> Callable[..., Ran]:
    """Runs a command as `mqstore` does, but for how a process ends."""

    def ran(*arguments: object) -> Ran:
        result = CliRunner().invoke(commands, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return ran


@pytest.fixture(params=[*STORES, "533_broker"])
def told(request: pytest.FixtureRequest) -> tuple[Path, Expected]:
    """A store, and what RocketMQ says of it."""
    is_broker = request.param == "533_broker"
    path = request.getfixturevalue("broker") if is_broker else request.getfixturevalue("golden") / request.param
    return path, Expected(request.param)


def torn(path: Path) -> Path:
    """The crashed store with damage in what was not flushed."""
    with (path / "commitlog" / f"{81_920:020}").open("r+b") as file:
        file.seek(4096)
        file.write(bytes(512))
    return path


@pytest.fixture
def stores(broker: Path, copied: Callable[[str], Path], tmp_path: Path) -> dict[str, Path]:
    """A whole store, a store that a crash damaged, and a store without its last segment."""
    incomplete = shutil.copytree(broker, tmp_path / "incomplete")
    (incomplete / "commitlog" / f"{1 << 20:020}").unlink()
    return {"whole": broker, "torn": torn(copied("491_crash_image")), "incomplete": incomplete}
