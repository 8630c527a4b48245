"""The commands of docs/OPERATING.md print what stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "OPERATING.md"
BLOCK = re.compile(r"```sh\n(?P<commands>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
#: Where the stores lie, as the page calls it.
FOLDER = "/data"


def printed(commands: str, folder: Path) -> str:
    """What some lines print in a shell."""
    python = f'python() {{ {sys.executable} "$@"; }}'
    shell = f'{python}\nmqstore() {{ python -m mqstore "$@"; }}\n{commands}'
    ran = subprocess.run(
        ["bash", "-c", shell],
        cwd=folder,
        env=os.environ | {"TZ": "UTC"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ran.stdout.replace(str(folder), FOLDER)


def test_every_command_of_the_page_prints_what_the_page_says(
    broker: Path, events: Path, copied: Callable[[str], Path], tmp_path: Path
) -> None:
    for path, name in ((broker, "broker"), (events, "events")):
        shutil.copytree(path, tmp_path / name)
    copied("491_crash_image").rename(tmp_path / "crashed")
    page = PAGE.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(page))
    assert len(blocks) == page.count("```sh") >= 12
    for block in blocks:
        assert printed(block["commands"], tmp_path) == block["output"], block["commands"]
