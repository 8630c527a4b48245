"""A process with little address space reads stores with large segments: what cannot be mapped is read piece by piece."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mqstore

GIB = 1 << 30
MESSAGES = 2000

#: Reads a store in every way, with 512 MiB of address space above what the interpreter takes.
READ = """
import resource, sys
from pathlib import Path
import mqstore
import pyarrow as pa
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = taken + (512 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
messages = int(sys.argv[2])
with mqstore.open(sys.argv[1]) as store:
    queue = store.topics["orders"].queues[0]
    assert [message.queue_offset for message in queue] == list(range(messages))
    assert queue[7].body == b"7" * 100 and len(queue[3:5].to_arrow()) == 2
    assert len(store.scan().to_arrow()) == len(store.scan(topics="orders", reverse=True).to_arrow()) == messages
    found = store.query("orders", "k11")
    assert found.complete and [message.queue_offset for message in found] == [11]
    assert store.message(queue[12].message_id).queue_offset == 12
    assert queue.offset_at(queue[0].store_time) == 0
    wanted = pa.table({"topic": ["orders"], "queue_id": [0], "queue_offset": [9]})
    assert pa.table(store.resolve_offsets(wanted))["physical_offset"].to_pylist() == [queue[9].physical_offset]
    assert store.refresh() == 0
    assert len(list(store.follow(start="earliest", timeout=0))) == messages
    assert bytes(queue[5].body_view) == b"5" * 100
print("read")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "store"
    with mqstore.open(path, "x", mapped_file_size_commit_log=GIB, max_hash_slot_num=1000, max_index_num=10_000) as store:
        for number in range(MESSAGES):
            store.append("orders", b"%d" % number * (100 if number < 10 else 1), keys=[f"k{number}"])
    return path


def test_a_store_with_segments_of_a_gibibyte_is_read_in_half_of_that(path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", READ, path, str(MESSAGES)], capture_output=True, text=True)
    assert ran.stdout == "read\n", ran.stderr
