"""An operator who does literally what `mqstore doctor` says next comes to a whole store, or to a loss that is named."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import stamp_as_broker

import mqstore
from mqstore.testing import Broker, Clock

SEGMENT = 16_384
SIZES = {
    "mapped_file_size_commit_log": SEGMENT,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 20,
    "max_index_num": 40,
}
#: Steps that an operator follows before he gives up.
STEPS = 4


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's store of four segments, with messages of each kind, and its settings."""
    path = tmp_path_factory.mktemp("small") / "store"
    with Clock() as clock, Broker(path, clock=clock, **SIZES) as broker:
        orders = [broker.send("orders", b"x" * 7 * number, keys=[f"o-{number}"]) for number in range(60)]
        for _ in range(3):
            broker.send_back(orders[0], "billing", delay_level=-1)
            broker.send("reminders", b"pay", delay_level=3)
        clock.advance(11)
        broker.deliver()
        broker.send("reminders", b"pay", delay_level=5)
        halves = [broker.send_half("payments", b"10 EUR", group="tellers") for _ in range(4)]
        broker.end_transaction(halves[0], "commit")
        broker.end_transaction(halves[1], "rollback")
        due = str(int(clock.now.timestamp() * 1000) + 100_000)
        broker.store.append("rmq_sys_wheel_timer", b"x", properties={"TIMER_OUT_MS": due})
        for number in range(60):
            broker.send("orders", b"y" * 7 * number, keys=[f"o-{number}"])
        for queue in range(4):
            broker.commit_offset("billing", "orders", queue, 10)
    stamp_as_broker(path)
    return path


def segment(path: Path, number: int) -> Path:
    return sorted((path / "commitlog").iterdir())[number]


def overwrite(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        opened.write(data)


def record(path: Path, number: int) -> int:
    """The physical offset of a message of the second segment."""
    with mqstore.open(path) as store:
        offsets = [offset for batch in store.scan(columns=["physical_offset"]) for (offset,) in batch]
    return [offset for offset in offsets if SEGMENT <= offset < 2 * SEGMENT][number]


def crash(path: Path) -> None:
    (path / "abort").touch()


def lose_queue_in_crash(path: Path) -> None:
    crash(path)
    shutil.rmtree(path / "consumequeue" / "orders" / "1")


def lose_all_queues(path: Path) -> None:
    shutil.rmtree(path / "consumequeue")


def lose_dead_letters(path: Path) -> None:
    shutil.rmtree(path / "consumequeue" / "%DLQ%flaky-group")


def lose_ends_of_transactions(path: Path) -> None:
    shutil.rmtree(path / "consumequeue" / "RMQ_SYS_TRANS_OP_HALF_TOPIC")


def flip_magic_code(path: Path) -> None:
    overwrite(segment(path, 1), record(path, 3) - SEGMENT + 4, b"\xff")


def flip_body(path: Path) -> None:
    overwrite(segment(path, 1), record(path, 3) - SEGMENT + 100, b"\xff")


def zero_a_stretch(path: Path) -> None:
    overwrite(segment(path, 1), 4096, bytes(4096))


def zero_a_sector_in_crash(path: Path) -> None:
    crash(path)
    overwrite(segment(path, -1), 1024, bytes(512))


def remove_segment(number: int) -> Callable[[Path], None]:
    return lambda path: segment(path, number).unlink()


def empty_last_segment(path: Path) -> None:
    os.truncate(segment(path, -1), 0)


def cut_last_segment(path: Path) -> None:
    os.truncate(segment(path, -1), 5000)


def empty_log(path: Path) -> None:
    for file in (path / "commitlog").iterdir():
        file.unlink()


def remove_index_file(path: Path) -> None:
    min((path / "index").iterdir()).unlink()


def put_foreign_files(path: Path) -> None:
    for name in ("commitlog/.notes.swp", "consumequeue/orders/0/x", "index/x"):
        (path / name).write_bytes(b"x")


def cut_queue_file(path: Path) -> None:
    os.truncate(max((path / "consumequeue" / "orders" / "0").iterdir()), 300)


def zero_queue_entries(path: Path) -> None:
    overwrite(min((path / "consumequeue" / "orders" / "0").iterdir()), 40, bytes(40))


def put_file_for_topic(path: Path) -> None:
    (path / "consumequeue" / "new").write_bytes(b"x")


def stamp_checkpoint_ahead(path: Path) -> None:
    file = path / "checkpoint"
    overwrite(file, 0, (int.from_bytes(file.read_bytes()[:8], "big") + 1_000_000).to_bytes(8, "big"))


def empty_settings(name: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        (path / "config" / name).write_bytes(b"")
        (path / "config" / f"{name}.bak").unlink(missing_ok=True)

    return damage


#: The store, the damage, and words of the loss that doctor names in the end; None if the store is whole then.
DAMAGES: dict[str, tuple[str, Callable[[Path], None], str | None]] = {
    "a queue lost in a crash": ("small", lose_queue_in_crash, None),
    "all queues": ("small", lose_all_queues, None),
    "the queue of dead letters": ("broker", lose_dead_letters, None),
    "the queue of op messages": ("broker", lose_ends_of_transactions, None),
    "a magic code": ("small", flip_magic_code, None),
    "a body": ("small", flip_body, None),
    "zeros in the log": ("small", zero_a_stretch, None),
    "zeros after a crash": ("small", zero_a_sector_in_crash, None),
    "the first segment": ("small", remove_segment(0), "messages expired before the group"),
    "a segment between others": ("small", remove_segment(1), None),
    "the last segment": ("small", remove_segment(-1), None),
    "the last segment of a broker": ("broker", remove_segment(-1), None),
    "an empty segment": ("small", empty_last_segment, None),
    "a segment cut short": ("small", cut_last_segment, None),
    "an empty commitlog": ("small", empty_log, "all messages are lost"),
    "an index file": ("small", remove_index_file, None),
    "an index file of a broker": ("broker", remove_index_file, None),
    "foreign files": ("small", put_foreign_files, None),
    "a queue file cut short": ("small", cut_queue_file, None),
    "zeros in a queue file": ("small", zero_queue_entries, None),
    "a file for a topic": ("small", put_file_for_topic, None),
    "a checkpoint ahead": ("small", stamp_checkpoint_ahead, None),
    "consumerOffset.json": ("broker", empty_settings("consumerOffset.json"), "set the damaged consumerOffset.json aside"),
    "delayOffset.json": ("broker", empty_settings("delayOffset.json"), "unknown how many of 110 delayed messages wait"),
    "topics.json": ("broker", empty_settings("topics.json"), "set the damaged topics.json aside"),
}


def step_of(run: Callable[..., Any], path: Path) -> tuple[int, str, dict[str, Any]]:
    """The exit code of doctor, its last line, and its answer as JSON. Each fact is in the answer once."""
    shown, [answer] = run("doctor", path), run("doctor", path, "--json").objects
    facts = [(row["message"], row["file"], row["offset"]) for row in answer["findings"]]
    assert len(set(facts)) == len(facts)
    return shown.code, shown.out.splitlines()[-1], answer


def followed(run: Callable[..., Any], path: Path) -> tuple[Path, int, dict[str, Any]]:
    """The store, the exit code and the answer of doctor at the end of the operator's way, and where it is a loss."""
    for _ in range(STEPS):
        code, line, answer = step_of(run, path)
        step = re.fullmatch(
            r"do next(, before a broker or another writer starts)?: (?P<text>.*?(?P<command>mqstore [^;]*)?)", line
        )
        assert step is not None, line
        assert step["text"] == answer["do_next"]
        words = shlex.split(step["command"] or "")[1:]
        if code == 0 or not words or words[0] in ("lag", "verify"):
            return path, code, answer
        ran = run(*words)
        assert ran.code == 0, (words, ran)
        if "--into" in words:
            path = Path(words[words.index("--into") + 1])
    pytest.fail(f"{STEPS} steps of doctor lead to no end: {run('doctor', path).out}")


@pytest.mark.parametrize("name", DAMAGES)
def test_the_next_steps_of_doctor_end_in_a_whole_store_or_a_named_loss(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, run: Callable[..., Any]
) -> None:
    base, damage, loss = DAMAGES[name]
    path = Path(shutil.copytree(request.getfixturevalue(base), tmp_path / "store"))
    damage(path)
    end, code, answer = followed(run, path)
    if loss is None:
        assert (code, run("verify", end).code) == (0, 0)
        assert answer["ok"]
    else:
        assert code == 1
        assert loss in " ".join([answer["do_next"], *(row["message"] for row in answer["findings"])])
