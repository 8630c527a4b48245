"""docs/COMPATIBILITY.md names the parts of a store that `mqstore info` prints as kept elsewhere."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mqstore.cli._main import commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "COMPATIBILITY.md"
#: A row of the table of parts: its first cell and its last one.
ROW = re.compile(r"^\| ([^|]+) \| [\w. ]+ \| [^|]+ \| [^|]+ \|([^|]*)\|$", re.MULTILINE)
#: A store with the part that a row is about.
STORES = {
    "`writeWithoutMmap`": "551_without_mmap",
    "`enableAcceleratedRecovery`": "551_accelerated",
    "`queue.type=BatchCQ`": "533_batchcq",
    "`enableLmq`": "551_lite",
    "`rocksdbCQDoubleWriteEnable`": "551_double_write",
    "`storeType=defaultRocksDB`": "551_rocksdb",
    "tags in index files": "551_mixed",
    "`indexRocksDBEnable`": "551_index_rocksdb",
    "delayed messages": "491_delay_delivered",
    "timers in the timer wheel": "timer wheel",
    "`timerRocksDBEnable`": "551_timer_rocksdb",
    "`transRocksDBEnable`": "551_trans_rocksdb",
    "`cleanup.policy=COMPACTION`": "551_compaction",
    "`configManagerVersion=v2`": "551_config_v2",
}


@pytest.fixture
def store(golden: Path, unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Finds a store by its name; no golden one has the files of a timer wheel."""

    def find(name: str) -> Path:
        if name == "timer wheel":
            path = shutil.copytree(golden / "533_mixed", tmp_path / "wheel")
            (path / "timerlog").mkdir()
            (path / "timerlog" / f"{0:020}").write_bytes(bytes(52))
            return path
        return golden / name if (golden / name).is_dir() else unpacked(name)

    return find


def test_info_prints_the_parts_that_the_page_names(store: Callable[[str], Path]) -> None:
    _, *found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    rows = dict(found)
    named = {row: [name for name in STORES if row.startswith(name)] for row in rows}
    assert sorted(name for names in named.values() for name in names) == sorted(STORES)
    assert [row for row, cell in rows.items() if "`" in cell and not named[row]] == []
    for row, names in named.items():
        for name in names:
            info = json.loads(CliRunner().invoke(commands, ["info", str(store(STORES[name])), "--json"]).stdout)
            assert info["kept_elsewhere"] == re.findall(r"`([^`]*)`", rows[row]), row
