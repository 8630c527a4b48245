"""Each command on each store of a newer broker: it reads what it can, and names what the broker keeps in another format."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mqstore

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("551_*.tar.xz"))

#: The commands that need a part, and name its directory where the broker keeps it in another format.
NEEDING = {
    "queues": {"topics", "queues"},
    "keys": {"index", "find --key"},
    "transactions": {"transactions"},
    "timers": {"delayed"},
    "consumer_offsets": {"lag", "groups", "trace", "trim"},
    "topic_configs": {"topics"},
    "group_configs": set[str](),
    "compacted_topics": {"topics"},
}
#: Those that name every part.
OVERVIEWS = {"info", "doctor", "verify", "report"}
#: Those that go along queues, and have no answer where no queue is a file.
ALONG_QUEUES = {"queues", "get place", "diff", "transactions", "consume", "import", "resend", "tail queue"}
#: Those that find nothing in a store without dead letters, delayed messages and transactions.
MAY_FIND_NOTHING = {"dead", "resend", "delayed", "transactions", "index"}
#: Those that need only a store.
PLAIN = (
    *("topics", "queues", "du", "segments", "index", "dead", "manifest", "lag", "groups", "tail", "delayed", "transactions"),
    *("doctor", "verify", "info"),
)


def commands(path: Path, folder: Path) -> dict[str, list[object]]:
    """The arguments of each command. Those that write get a store of their own."""
    with mqstore.open(path) as store:
        message = next(message for message in store.scan(topics="orders").to_arrow().to_pylist())

    def own(name: str) -> Path:
        return shutil.copytree(path, folder / name)

    at, unique_key = message["physical_offset"], message["unique_key"]
    return {name: [name, path] for name in PLAIN} | {
        "cat": ["cat", path, "orders"],
        "find": ["find", path, "--topic", "orders", "--all"],
        "find --key": ["find", path, "--topic", "orders", "--key", "k7"],
        "tail queue": ["tail", path, "orders/0"],
        "get": ["get", path, at],
        "get place": ["get", path, "orders/0@0"],
        "trace": ["trace", path, unique_key],
        "dump": ["dump", path, at],
        "diff": ["diff", path, path],
        "export": ["export", path, folder / "orders.jsonl", "--topic", "orders"],
        "copy": ["copy", path, folder / "copy"],
        "report": ["report", path, "-o", folder / "page.html"],
        "import": ["import", own("imported"), folder / "orders.jsonl"],
        "trim": ["trim", path, "--before", "2001-01-01"],
        "consume": ["consume", own("consumed"), "orders", "--group", "new", "--max", "2"],
        "resend": ["resend", own("resent"), "shop"],
    }


@pytest.fixture(params=NAMES)
def answers(
    request: pytest.FixtureRequest, unpacked: Callable[[str], Path], tmp_path: Path, run: Callable[..., Any]
) -> tuple[Path, dict[str, Any]]:
    """The store, and the outcome of each command."""
    path = unpacked(request.param)
    told = {name: run(*arguments) for name, arguments in commands(path, tmp_path).items()}
    told["report"] = type(told["report"])(told["report"].code, (tmp_path / "page.html").read_text(), "")
    return path, told


def test_each_command_reads_what_it_can_and_names_what_it_cannot(answers: tuple[Path, dict[str, Any]]) -> None:
    path, told = answers
    with mqstore.open(path) as store:
        kept = store.inspect.kept_elsewhere().to_arrow().to_pylist()
        has_queues = bool(store.topics["orders"].queue_ids) if path.name != "551_rocksdb" else False
    for row in kept:
        directory = str(Path(row["path"]).relative_to(path))
        for name in OVERVIEWS | NEEDING[row["part"]]:
            assert directory in told[name].out + told[name].err, (name, row["part"], told[name])
    for name, ran in told.items():
        assert ran.out or ran.err.startswith("mqstore: "), (name, ran)
        if not has_queues and name in ALONG_QUEUES and ran.code != 0:
            assert "consumequeue" in ran.err, (name, ran)
        elif ran.code != 0:
            # A killed broker has not written its progress yet.
            is_unread = "a RocksDB database" in ran.err or "consumerOffset.json" in ran.out + ran.err
            assert is_unread or (ran.code == 1 and name in MAY_FIND_NOTHING), (name, ran)


def test_messages_are_read_from_the_log_of_each_store(answers: tuple[Path, dict[str, Any]]) -> None:
    path, told = answers
    messages = 82 if path.name == "551_trans_rocksdb" else 80
    assert len(told["cat"].out.splitlines()) == len(told["find"].out.splitlines()) == messages
    assert len(told["find --key"].out.splitlines()) == 1
    assert f"rows      {messages}\n" in told["export"].out
    assert "orders" in told["du"].out
    assert "orders" in told["topics"].out
