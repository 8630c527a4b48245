"""Runs the commands that a page shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: The folder of the stores, as the pages name it.
FOLDER = "/data"


def printed(commands: str, folder: Path) -> str:
    """Returns what some lines print in a shell, in UTC, with `folder` as FOLDER."""
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
