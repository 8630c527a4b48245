"""The commands of docs/OPERATING.md print the output that the page shows."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from shell import printed

import mqstore

PAGE = Path(__file__).resolve().parents[3] / "docs" / "OPERATING.md"
BLOCK = re.compile(r"```sh\n(?P<commands>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
#: The command of the page that takes dead letters out of a store.
RESEND = re.compile(r"^mqstore export broker dead\.jsonl .*$", re.MULTILINE)


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


@pytest.mark.parametrize(("sys_flag", "codec"), [(0x0, None), (0x1, None), (0x101, "lz4"), (0x201, "zstd"), (0x301, None)])
def test_bodies_of_the_dead_letter_recipe_are_readable(tmp_path: Path, sys_flag: int, codec: str | None) -> None:
    text = "a letter that nobody reads, größe".encode() * 20
    body = pa.Codec(codec).compress(text, asbytes=True) if codec else zlib.compress(text) if sys_flag else text
    with mqstore.open(tmp_path / "broker", "x") as store:
        store.append("%DLQ%flaky-group", body, sys_flag=sys_flag, properties={"RETRY_TOPIC": "flaky-topic"})
    [command] = RESEND.findall(PAGE.read_text(encoding="utf-8"))
    assert printed(command, tmp_path).startswith("path ")
    [row] = [json.loads(line) for line in (tmp_path / "dead.jsonl").open(encoding="utf-8")]
    assert (row["properties"]["RETRY_TOPIC"], base64.b64decode(row["body"]), row["sys_flag"]) == ("flaky-topic", text, 0)
