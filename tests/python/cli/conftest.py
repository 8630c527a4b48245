"""Running commands, in this process and in others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from mqstore.cli._main import commands


@dataclass(frozen=True)
class Ran:
    """What a command did."""

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
