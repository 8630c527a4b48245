"""The commands that count, copy and repair, on stores of every version and the directory of a broker.

They are compared with a walk over the bytes of the log, and with what RocketMQ itself reads.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from expected import Expected

BLANK = 0xCBD43194
HALF, OP, DELAYED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
#: Where a topic consists of failures: dead letters, and retries.
FAILED = ("%DLQ%", "%RETRY%")


def records(path: Path) -> Iterator[tuple[int, int]]:
    """Physical offset and size of each record, from the bytes of the segments."""
    for segment in sorted((path / "commitlog").iterdir()):
        log, at = segment.read_bytes(), 0
        while at + 8 <= len(log):
            size, magic = struct.unpack_from(">iI", log, at)
            if size == 0 or magic == BLANK:
                break
            yield int(segment.name) + at, size
            at += size


def index_items(path: Path) -> int:
    """Counts the items of all index files by their headers, which begin with an unused item."""
    headers = [file.read_bytes()[:40] for file in (path / "index").iterdir()] if (path / "index").is_dir() else []
    return sum(max(0, struct.unpack_from(">i", header, 36)[0] - 1) for header in headers)


def offsets(path: Path, name: str) -> dict[str, Any]:
    """The offsets in a file of a broker, which writes numbers before a colon as they are."""
    file = path / "config" / name
    text = file.read_text() if file.is_file() else '{"offsetTable": {}}'
    table: dict[str, Any] = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))["offsetTable"]
    return table


def warnings_of(path: Path) -> list[str]:
    """The warnings of verify about a store: the only index file of one has no item, so that a writer needs options."""
    return ["index.sizes_unknown"] if path.name == "533_v2_record" else []


def test_verify_and_doctor_compare_all_there_is(told: tuple[Path, Expected], run: Callable[..., Any]) -> None:
    path, expected = told
    warnings = warnings_of(path)
    [report] = run("verify", path, "--json").objects
    assert [finding["id"] for finding in report["findings"] if finding["severity"] != "note"] == warnings
    assert report["ok"] == (not warnings)
    assert report["covered"] == list(expected.bounds.values())
    assert report["messages"] == sum(1 for _ in records(path))
    assert report["queue_entries"] == sum(end - begin for begin, end in expected.queues.values())
    assert report["index_items"] == index_items(path)
    assert run("doctor", path, "--json").objects[0]["ok"] == (not warnings)


def test_du_counts_every_record(told: tuple[Path, Expected], run: Callable[..., Any]) -> None:
    path, _ = told
    rows = run("du", path, "--json").rows
    sizes = [size for _, size in records(path)]
    assert (sum(row["messages"] for row in rows), sum(row["bytes"] for row in rows)) == (len(sizes), sum(sizes))


def test_what_waits_and_what_failed_is_what_their_topics_hold(told: tuple[Path, Expected], run: Callable[..., Any]) -> None:
    path, expected = told
    delivered = offsets(path, "delayOffset.json")
    waiting = [m for m in expected.of(DELAYED) if m["queue_offset"] >= delivered.get(str(m["queue_id"] + 1), 0)]
    rows = run("delayed", path, "--json").objects
    assert sorted(row["physical_offset"] for row in rows) == [m["physical_offset"] for m in waiting]
    failed = [m for m in expected.messages if m["topic"].startswith(FAILED)]
    assert sum(row["messages"] for row in run("dead", path, "--json").objects) == len(failed)
    begin = offsets(path, "consumerOffset.json").get(f"{HALF}@CID_RMQ_SYS_TRANS", {}).get("0", 0)
    halves = {m["properties"]["UNIQ_KEY"]: m["queue_offset"] for m in expected.of(HALF) if m["queue_offset"] >= begin}
    ended = {int(text) for m in expected.of(OP) for text in body_of(path, m).split(",") if text.isdigit()}
    rows = run("transactions", path, "--json").objects
    assert {row["unique_key"] for row in rows} == {key for key, offset in halves.items() if offset not in ended}


def body_of(path: Path, message: dict[str, Any]) -> str:
    """A body of digits and commas, from the bytes of its record, in which the topic follows it."""
    segment = max(file for file in (path / "commitlog").iterdir() if int(file.name) <= message["physical_offset"])
    at = message["physical_offset"] - int(segment.name)
    record = segment.read_bytes()[at : at + message["store_size"]]
    end = record.index(OP.encode()) - 1
    return record[end - message["body_len"] : end].decode()


def test_lag_is_what_the_queues_have_after_the_offsets_of_the_broker(
    told: tuple[Path, Expected], run: Callable[..., Any]
) -> None:
    path, expected = told
    left = {}
    for key, consumed in offsets(path, "consumerOffset.json").items():
        topic, _, group = key.rpartition("@")
        for queue, offset in consumed.items():
            if (bounds := expected.queues.get(f"{topic}/{queue}")) is not None:
                left[group, topic, int(queue)] = bounds[1] - offset
    ran = run("lag", path, "--json")
    assert {(row["group"], row["topic"], row["queue_id"]): row["lag"] for row in ran.objects if row["max_offset"]} == left
    assert ran.code == (0 if left else 1)


def test_what_is_exported_and_imported_again_is_every_message(
    told: tuple[Path, Expected], tmp_path: Path, run: Callable[..., Any]
) -> None:
    path, expected = told
    [out] = run("export", path, tmp_path / "all.jsonl", "--json").rows
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    messages = sorted(expected.messages, key=lambda message: message["physical_offset"])
    assert out["rows"] == len(lines) == len(messages)
    for line, message in zip(lines, messages, strict=True):
        assert line["physical_offset"] == message["physical_offset"]
        assert line["properties"] == message["properties"]
        assert len(base64.b64decode(line["body"])) == message["body_len"]
    assert run("import", tmp_path / "new", tmp_path / "all.jsonl", "--json").rows[0]["rows"] == len(messages)
    assert run("info", tmp_path / "new", "--json").rows[0]["messages"] == len(messages)


def test_a_copy_omits_only_the_brokers_own_messages(told: tuple[Path, Expected], tmp_path: Path, run: Callable[..., Any]) -> None:
    path, expected = told
    [out] = run("copy", path, tmp_path / "copy", "--json").rows
    own = [m for m in expected.messages if m["topic"] in (HALF, OP)]
    assert (out["rows"], out["left_out"]) == (len(expected.messages) - len(own), len(own))
    ran = run("diff", path, tmp_path / "copy", "--renumbered", "--json")
    assert sum(row["end"] - row["begin"] for row in ran.objects) == len(own)
    assert {row["topic"] for row in ran.objects} <= {HALF, OP}
    assert run("diff", path, path, "--json").rows == []


def test_a_rebuild_gives_every_queue_its_bounds_again(
    told: tuple[Path, Expected], tmp_path: Path, run: Callable[..., Any]
) -> None:
    path, expected = told
    [nothing] = run("repair", path, "--json").objects
    assert [finding["id"] for finding in nothing["left"]] == warnings_of(path)
    assert (nothing["changes"], nothing["lost"]) == ([], [])
    store = shutil.copytree(path, tmp_path / "store")
    [rebuilt] = run("rebuild", store, "--yes", "--json").rows
    assert (rebuilt["ok"], rebuilt["left"]) == (True, [])
    [info] = run("info", store, "--json").rows
    assert (info["log_begin"], info["log_end"]) == tuple(expected.bounds.values())
    queues = run("queues", store, "--json").rows
    assert {f"{row['topic']}/{row['queue_id']}": (row["min_offset"], row["max_offset"]) for row in queues} == expected.queues
    [again] = run("repair", store, "--yes", "--json").rows
    assert (again["ok"], again["changes"]) == (True, [])


def test_dump_and_report_describe_the_bytes_there(told: tuple[Path, Expected], tmp_path: Path, run: Callable[..., Any]) -> None:
    path, expected = told
    for message in expected.messages[:: len(expected.messages) // 5 + 1]:
        of_record = {row["field"]: row["value"] for row in run("dump", path, message["physical_offset"], "--json").rows}
        assert int(of_record["total_size"]) == message["store_size"]
        place = f"{message['topic']}/{message['queue_id']}@{message['queue_offset']}"
        of_entry = {row["field"]: row["value"] for row in run("dump", path, "--entry", place, "--json").rows[:3]}
        found = (of_entry["physical_offset"], of_entry["size"])
        assert found == (str(message["physical_offset"]), str(message["store_size"]))
    warnings = warnings_of(path)
    [out] = run("report", path, "-o", tmp_path / "page.html", "--json").objects
    assert (out["ok"], out["errors"], out["warnings"]) == (not warnings, 0, len(warnings))
    assert (tmp_path / "page.html").stat().st_size == out["bytes"]
