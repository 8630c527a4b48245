"""Messages out of a store, into another one, and two stores compared."""

from __future__ import annotations

import json
import random
import shlex
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from encoder import Encoder

import mqstore
from mqstore.testing import SMALL

STORES = ["491_multifile", "498_mixed", "533_mixed", "551_mixed"]
#: What export and import keep of a message that they store again.
KEPT = ("topic", "queue_id", "body", "properties", "keys", "tags", "born_time", "born_host", "flag", "reconsume_times")


def messages(path: Path) -> Iterator[mqstore.Message]:
    """Returns every message of a queue."""
    with mqstore.open(path) as store:
        for topic in store.topics.values():
            for queue in topic.queues:
                yield from queue


def kept(message: mqstore.Message) -> tuple[object, ...]:
    properties = {name: text for name, text in message.properties.items() if name != "__CRC32#"}
    return tuple(properties if name == "properties" else getattr(message, name) for name in KEPT)


@pytest.mark.parametrize("name", STORES)
def test_what_export_writes_import_appends_again(golden: Path, tmp_path: Path, name: str, run: Callable[..., Any]) -> None:
    [out] = run("export", golden / name, tmp_path / "all.jsonl", "--json").rows
    before = list(messages(golden / name))
    assert (out["rows"], out["files"], out["complete"], out["skipped"]) == (len(before), 1, True, 0)
    with mqstore.open(tmp_path / "new", "x", **SMALL):
        pass
    [back] = run("import", tmp_path / "new", tmp_path / "all.jsonl", "--json").rows
    assert back == {"path": str(tmp_path / "new"), "files": 1, "rows": len(before)}
    assert list(map(kept, messages(tmp_path / "new"))) == list(map(kept, before))
    assert run("diff", golden / name, tmp_path / "new", "--renumbered").code == 0


def test_export_partitions_and_filters(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    [out] = run("export", broker, tmp_path / "out", "--format", "jsonl", "--partition-by", "topic", "--tag", "x", "--json").rows
    rows = sum(1 for path in (tmp_path / "out").rglob("*.jsonl") for _ in path.open())
    assert rows == out["rows"] == len(run("find", broker, "--tag", "x", "--json").rows)
    again = run("export", broker, tmp_path / "out", "--format", "jsonl")
    assert (again.code, again.out) == (1, "")
    assert "there is something of this name" in again.err


@pytest.mark.parametrize("name", STORES)
def test_a_copy_has_what_its_source_has(golden: Path, tmp_path: Path, name: str, run: Callable[..., Any]) -> None:
    [out] = run("copy", golden / name, tmp_path / "copy", "--json").rows
    assert out["rows"] + out["left_out"] == len(list(messages(golden / name)))
    ran = run("diff", golden / name, tmp_path / "copy", "--renumbered")
    assert (ran.code, ran.out) == (0, "")
    assert (
        ran.err
        == f"mqstore: no difference: {out['rows']} messages in {len(run('queues', tmp_path / 'copy', '--json').rows)} queues\n"
    )


def test_export_decodes_bodies_for_import(tmp_path: Path, run: Callable[..., Any]) -> None:
    text = b"a letter" * 20
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("%DLQ%billing", zlib.compress(text), sys_flag=0x301)
    run("export", tmp_path / "store", tmp_path / "dead.jsonl", "--decode-body", "--body-as", "text")
    [row] = [json.loads(line) for line in (tmp_path / "dead.jsonl").open()]
    assert (row["body"], row["sys_flag"]) == (text.decode(), 0)
    assert run("import", tmp_path / "new", tmp_path / "dead.jsonl", "--body-as", "text").code == 0
    assert [(letter.decoded_body, letter.sys_flag) for letter in messages(tmp_path / "new")] == [(text, 0)]


def test_commands_print_a_sys_flag_that_fits_the_body(tmp_path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", zlib.compress(b"text"), sys_flag=0x303, keys="k")
        store.append("orders", b"text", sys_flag=0x2, keys="k")
    for arguments in (("cat", "orders"), ("find", "--body", "text"), ("find", "--topic", "orders", "--key", "k")):
        rows = run(arguments[0], tmp_path / "store", *arguments[1:], "--json").rows
        assert [(row["body"], row["sys_flag"]) for row in rows] == [("text", 0x2)] * 2
    assert [run("get", tmp_path / "store", f"orders/0@{at}", "--json").rows[0]["sys_flag"] for at in (0, 1)] == [0x2] * 2


def test_export_writes_csv_and_import_refuses_it(tmp_path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"=1+1")
    file = tmp_path / "all.csv"
    [out] = run("export", tmp_path / "store", file, "--body-as", "text", "--spreadsheet", "--json").rows
    assert (out["rows"], out["bytes"], ",'=1+1," in file.read_text()) == (1, file.stat().st_size, True)
    refused = run("import", tmp_path / "new", file)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(f"mqstore: --format of {file} is 'csv', which is only written: expected \"parquet\"")
    named = run("import", tmp_path / "new", file, "--format", "csv")
    assert (named.code, "'csv' is not one of 'parquet', 'arrow', 'jsonl'" in named.err) == (2, True)


def test_export_without_pyarrow_says_what_to_install(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = run("export", golden / "498_mixed", tmp_path / "all")
    assert (ran.code, ran.out) == (2, "")
    install = "run pip install '.[arrow]' in a checkout of mqstore; the formats 'jsonl' and 'csv' need no package"
    assert ran.err == f"mqstore: format 'parquet' needs pyarrow: {install}\n"


def test_an_import_that_fails_names_the_file_and_says_how_much_is_stored(tmp_path: Path, run: Callable[..., Any]) -> None:
    (tmp_path / "good.jsonl").write_text('{"topic": "orders", "body": "YQ=="}\n')
    (tmp_path / "null.jsonl").write_text('{"topic": "orders"}\n')
    (tmp_path / "no.parquet").write_text("no")
    for wrong in ("null.jsonl", "no.parquet"):
        ran = run("import", tmp_path / wrong.replace(".", "-"), tmp_path / "good.jsonl", tmp_path / wrong)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("mqstore: the import is partial: ")
        assert ran.err.endswith(f"; in {tmp_path / wrong}, after 1 rows that are stored\n")
    alone = run("import", tmp_path / "new", tmp_path / "no.parquet")
    assert (alone.code, "partial" in alone.err) == (2, False)


def test_copy_renames_topics(golden: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    run("copy", golden / "498_mixed", tmp_path / "copy", "--topic", "orders", "--rename", "orders=old", "--json")
    assert [row["topic"] for row in run("topics", tmp_path / "copy", "--json").rows] == ["old"]
    wrong = run("copy", golden / "498_mixed", tmp_path / "wrong", "--rename", "orders")
    assert wrong.code == 2
    assert not (tmp_path / "wrong").exists()


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two stores: the second ends queue 0 earlier, has a queue more, and another body at offsets 3 and 4 of queue 1."""
    a, b = Encoder(tmp_path / "a"), Encoder(tmp_path / "b")
    for number in range(10):
        for queue in (0, 1):
            body = b"%d" % number
            a.append("orders", body, queue_id=queue)
            if queue == 1 or number < 7:
                b.append("orders", b"other" if queue == 1 and number in (3, 4) else body, queue_id=queue)
    b.append("payments", b"x")
    return a.write(), b.write()


def test_diff_names_the_stretches_in_which_stores_differ(two: tuple[Path, Path], run: Callable[..., Any]) -> None:
    ran = run("diff", *two, "--json")
    assert ran.code == 1
    rows = [json.loads(line) for line in ran.out.splitlines()]
    lacks = {"topic": "orders", "queue_id": 0, "what": "only in A", "begin": 7, "end": 10}
    more = {"topic": "payments", "queue_id": 0, "what": "only in B", "begin": 0, "end": 1}
    assert rows == [lacks, {"topic": "orders", "queue_id": 1, "what": "differs", "begin": 3, "end": 5}, more]
    bounds = run("diff", *two, "--bounds-only", "--json")
    assert [json.loads(line) for line in bounds.out.splitlines()] == [lacks, more]
    assert run("diff", two[0], two[0]).code == 0


def damaged(path: Path) -> Encoder:
    """A store of 100 messages, one of which is damaged."""
    encoder = Encoder(path)
    starts = [encoder.append("orders", b"x" * 50, keys=[f"k{number}"]) for number in range(100)]
    encoder.log[starts[40] + 4] ^= 0xFF
    encoder.write()
    return encoder


def test_damage_is_passed_over_and_said_and_stops_what_writes(tmp_path: Path, run: Callable[..., Any]) -> None:
    damaged(tmp_path / "store")
    for arguments in (("cat", tmp_path / "store", "orders"), ("find", tmp_path / "store", "--body", "x")):
        ran = run(*arguments, "--json")
        assert (ran.code, len(ran.objects)) == (1, 99)
        assert "1 message was skipped: it was lost or damaged" in ran.err
    counted = run("du", tmp_path / "store", "--json")
    assert (counted.code, counted.objects[0]["messages"]) == (1, 99)
    assert "bytes of the log were not counted" in counted.err
    refused = run("export", tmp_path / "store", tmp_path / "all.jsonl")
    assert (refused.code, refused.out) == (1, "")
    assert not (tmp_path / "all.jsonl").exists()
    assert "--skip-damaged leaves out what was lost or is damaged; see mqstore doctor" in refused.err
    [out] = run("export", tmp_path / "store", tmp_path / "all.jsonl", "--skip-damaged", "--json").objects
    assert (out["rows"], out["skipped"], out["complete"]) == (99, 1, False)
    told = json.loads(run("doctor", tmp_path / "store", "--json").out)
    [finding] = [finding for finding in told["findings"] if finding["id"] == "log.damaged_record"]
    segment = str(tmp_path / "store" / "commitlog" / f"{0:020}")
    assert (finding["severity"], finding["file"], told["ok"]) == ("error", segment, False)
    with mqstore.open(tmp_path / "store") as store:
        [(begin, _)] = store.usage(errors="skip").unread
    assert finding["offset"] == begin + 4  # the magic


def test_verify_names_the_message_that_is_damaged_as_get_takes_it(tmp_path: Path, run: Callable[..., Any]) -> None:
    damaged(tmp_path / "store")
    assert ", orders/0@40 [log.damaged_record]\n" in run("verify", tmp_path / "store").out


def test_the_advised_command_names_the_store_as_a_shell_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "bob's store; rm -r $HOME"
    damaged(path)
    with mqstore.open(path) as store:
        [finding] = [finding for finding in store.verify(deep=False).findings if finding.id == "log.damaged_record"]
    _, command = finding.fix.split(": ", 1)
    assert shlex.split(command)[:4] == ["mqstore", "repair", str(path), "--into"]


def test_doctor_names_the_messages_that_the_next_start_would_remove(tmp_path: Path, run: Callable[..., Any]) -> None:
    encoder = Encoder(tmp_path / "store")
    starts = [encoder.append("orders", b"x" * 50) for _ in range(100)]
    encoder.log[starts[40] + 4] ^= 0xFF
    encoder.write(clean=False)
    ran = run("doctor", tmp_path / "store", "--json")
    findings = {finding["id"]: finding for finding in json.loads(ran.out)["findings"]}
    assert (ran.code, "is incomplete: " in ran.err) == (1, True)
    cut = findings["log.whole_after_end"]
    assert (cut["severity"], cut["file"], cut["offset"]) == (
        "error",
        str(tmp_path / "store" / "commitlog" / f"{0:020}"),
        starts[40],
    )
    assert cut["message"].endswith(f"up to {starts[-1] + starts[1] - starts[0]}")
    with mqstore.open(tmp_path / "store") as store:
        verified = {finding.id for finding in store.verify(deep=False).findings}
    assert findings.keys() == verified - {"log.ends_early"} | {"log.whole_after_end"}


def test_reading_commands_report_whole_messages_after_a_crashed_logs_end(tmp_path: Path, run: Callable[..., Any]) -> None:
    encoder = Encoder(tmp_path / "store")
    starts = [encoder.append("orders", b"x" * 50, keys=["k"]) for _ in range(100)]
    encoder.log[starts[40] + 4] ^= 0xFF
    encoder.write(clean=False)
    store, salvage = tmp_path / "store", "--salvage"
    for arguments in (
        ("cat", store, "orders"),
        ("find", store, "--topic", "orders", "--key", "k"),
        ("find", store, "--body", "x"),
    ):
        cut = run(*arguments, "--json")
        assert (cut.code, len(cut.out.splitlines())) == (1, 40)
        assert f"the first at {starts[41]}" in cut.err
        assert len(run(*arguments, "--json", salvage).out.splitlines()) == 99
    for command in ("export", "copy"):
        for options, rows in ((), 40), ((salvage, "--skip-damaged"), 99):
            ran = run(command, store, tmp_path / f"{command}{rows}.jsonl", "--json", *options)
            told = json.loads(ran.out)
            assert (ran.code, told["rows"], told["complete"]) == (1, rows, False)


def test_a_topic_that_is_not_there_is_named_with_the_nearest_ones(tmp_path: Path, run: Callable[..., Any]) -> None:
    encoder = Encoder(tmp_path / "store")
    encoder.append("orders", b"x")
    encoder.write()
    both = ("--topic", "orders", "--topic", "order")
    for arguments in (
        ("export", tmp_path / "store", tmp_path / "all.jsonl"),
        ("copy", tmp_path / "store", tmp_path / "copy"),
        ("find", tmp_path / "store"),
    ):
        ran = run(*arguments, *both, "--json")
        assert (ran.code, len(ran.out.splitlines())) == (1, 1)
        assert "no message of order is found" in ran.err
        assert "there is orders" in ran.err


def test_nothing_is_written_where_no_topic_that_was_named_is(copied: Callable[[str], Path], run: Callable[..., Any]) -> None:
    path = copied("498_mixed")
    for command in ("export", "copy"):
        target = path.with_name(f"{command}.jsonl")
        ran = run(command, path, target, "--topic", "order", "--topic", "none")
        assert (ran.code, ran.out, target.exists()) == (1, "", False)
        assert f"no message of order is found: it is not a topic of {path}; there is orders" in ran.err
    shutil.rmtree(path / "consumequeue" / "orders")
    [out] = run("export", path, path.with_name("deleted.jsonl"), "--topic", "orders", "--json").rows
    assert out["rows"] > 0


@pytest.mark.parametrize("command", ["export", "copy"])
def test_the_last_line_of_a_partial_answer_says_so(tmp_path: Path, command: str, run: Callable[..., Any]) -> None:
    damaged(tmp_path / "store")
    target = tmp_path / "out.jsonl"
    words = [command, tmp_path / "store", target, "--skip-damaged"]
    ran = subprocess.run(
        [sys.executable, "-m", "mqstore", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    why = f"mqstore: {target} is partial: 1 message was skipped: it was lost or damaged"
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (1, why)
    more = run(command, tmp_path / "store", tmp_path / "more", "--skip-damaged", "--topic", "orders", "--topic", "order")
    [last] = more.err.splitlines()
    assert (more.code, last.startswith(f"{why.replace('out.jsonl', 'more')}; no message of order is found")) == (1, True)


@pytest.mark.parametrize("command", ["export", "copy"])
def test_what_is_taken_from_an_incomplete_store_is_partial(
    copied: Callable[[str], Path], command: str, run: Callable[..., Any]
) -> None:
    path = copied("491_crash_image")
    with (path / "commitlog" / f"{81_920:020}").open("r+b") as file:
        file.seek(4096)
        file.write(bytes(512))
    target = path.with_name("out.jsonl")
    ran = run(command, path, target, "--json")
    assert (ran.code, ran.objects[0]["complete"], target.exists()) == (1, False, True)
    assert ran.err.splitlines()[-1] == f"mqstore: {target} is partial: the store is incomplete"


def test_an_export_that_misses_expired_messages_is_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Any]
) -> None:
    damaged(tmp_path / "store")
    short = mqstore.files.Exported(tmp_path / "out", (), 0, 0, 0, complete=False, covers=None, absent_topics=(), lost_queues=())
    monkeypatch.setattr("mqstore._export.export", lambda *_, **__: short)
    ran = run("export", tmp_path / "store", tmp_path / "out")
    assert (ran.code, ran.err) == (1, f"mqstore: {tmp_path / 'out'} is partial: messages expired while they were read\n")


@pytest.mark.parametrize("name", ["all.parquet", "all.jsonl", "all.csv"])
def test_an_export_to_a_full_disk_names_the_file_and_leaves_none(
    tmp_path: Path, mounted: Callable[[str], Path], name: str, run: Callable[..., Any]
) -> None:
    with mqstore.open(tmp_path / "store", "x", **SMALL) as store:
        store.append_batch([random.randbytes(4096) for _ in range(100)], topic="orders")
    disk = mounted("64k")
    full = run("export", tmp_path / "store", disk / name)
    assert (full.code, full.out) == (1, "")
    assert full.err == f"mqstore: no space left on the disk for this file: free some and try again: {disk / name}\n"
    assert list(disk.iterdir()) == []
