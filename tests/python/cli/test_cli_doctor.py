"""`mqstore doctor`: its findings, their order, and the next step."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import mqstore
from mqstore.report import report
from mqstore.testing import Broker

#: Findings that come last, in this order.
NOTES = ["dead.letters", "transaction.open", "delayed.waiting", "timer.waiting", "retention.next", "consumer.lag"]


def test_doctor_puts_the_worst_first_and_what_waits_last(stores: dict[str, Path], run: Callable[..., Any]) -> None:
    for path in stores.values():
        findings = run("doctor", path, "--json").objects[0]["findings"]
        severities = [finding["severity"] for finding in findings]
        assert severities == sorted(severities, key=["error", "warning", "note"].index)
        ids = [key for key, _ in itertools.groupby(finding["id"] for finding in findings)]
        waiting = [each for each in NOTES if each in ids]
        assert ids[len(ids) - len(waiting) :] == waiting
    assert run("doctor", stores["torn"], "--json").objects[0]["findings"][0]["id"] == "log.whole_after_end"


def test_doctor_finds_nothing_wrong_in_a_new_store_without_groups(tmp_path: Path, run: Callable[..., Any]) -> None:
    with mqstore.open(tmp_path / "store", "x") as store:
        store.append("orders", b"x")
    ran = run("doctor", tmp_path / "store", "--json")
    assert (ran.code, ran.objects[0]["findings"]) == (0, [])


def test_doctor_and_report_name_the_next_removal_by_a_broker_conf(tmp_path: Path, run: Callable[..., Any]) -> None:
    path, conf = tmp_path / "store", tmp_path / "broker.conf"
    with mqstore.open(path, "x", mapped_file_size_commit_log=1 << 20) as store:
        store.append_batch([b"x" * 1024] * 2000, topic="orders")
    conf.write_text("fileReservedTime=48\n")
    found = run("doctor", path, "--broker-conf", conf, "--json").objects[0]["findings"]
    [removal] = [row for row in found if row["id"] == "retention.next"]
    assert removal["severity"] == "note"
    assert removal["message"].startswith("the segment from 0 to 1048576 goes next, from ")
    assert removal["meaning"] == "nothing needs its messages any more"
    assert "retention.next" not in run("doctor", path).out
    page = tmp_path / "page.html"
    assert run("report", path, "--broker-conf", conf, "-o", page).code == 0
    assert "The segment from 0 to 1048576 goes next, from " in page.read_text()
    conf.write_text("fileReservedTime=soon\n")
    refused = run("doctor", path, "--broker-conf", conf)
    assert (refused.code, refused.out) == (2, "")
    assert "line 1: fileReservedTime = soon" in refused.err


def test_doctor_counts_what_waits_for_consumers(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    order = mqstore_broker.send("orders", b"x", queue_id=0)
    mqstore_broker.send("orders", b"x", queue_id=0)
    mqstore_broker.send_back(order, "billing", delay_level=-1)
    mqstore_broker.send_half("payments", b"x", group="tellers")
    for _ in range(2):
        mqstore_broker.send("reminders", b"x", delay_level=1)
    mqstore_broker.clock.advance(1)
    mqstore_broker.deliver()
    mqstore_broker.send("reminders", b"x", delay_level=3)
    now = int(mqstore_broker.clock.now.timestamp() * 1000)
    place = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
    for due, more in ((-1000, {}), (1000, {}), (2000, place), (2000, {**place, "TIMER_ROLL_TIMES": "1"})):
        mqstore_broker.store.append("rmq_sys_wheel_timer", b"x", properties={"TIMER_OUT_MS": str(now + due), **more})
    mqstore_broker.commit_offset("billing", "orders", 0, 1)
    mqstore_broker.commit_offset("done", "orders", 0, 2)
    mqstore_broker.persist()
    [answer] = run("doctor", mqstore_broker.path, "--json").rows
    notes = [finding for finding in answer["findings"] if finding["id"] in NOTES]
    found = [(finding["id"], finding["message"].partition(", the oldest since ")[0]) for finding in notes]
    assert found == [
        ("dead.letters", "1 messages were given up, after consumers of group billing had failed on them"),
        ("transaction.open", "1 transactions are neither committed nor rolled back"),
        ("delayed.waiting", "1 messages wait for their delivery"),
        ("timer.waiting", "2 timer messages wait for their delivery"),
        ("consumer.lag", "group billing has 1 messages to consume"),
    ]


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_findings_count_what_follows_damage_and_report_the_damage(
    errors: Literal["raise", "skip"], mqstore_broker: Broker, run: Callable[..., Any]
) -> None:
    halves = [mqstore_broker.send_half("payments", b"x", group="tellers") for _ in range(3)]
    due = str(int(mqstore_broker.clock.now.timestamp() * 1000) + 1000)
    timers = [mqstore_broker.store.append("rmq_sys_wheel_timer", b"x", properties={"TIMER_OUT_MS": due}) for _ in range(3)]
    mqstore_broker.close()
    with next(Path(mqstore_broker.path, "commitlog").iterdir()).open("r+b") as segment:
        for message in (halves[0], timers[0]):
            segment.seek(message.physical_offset + 4)  # the magic code
            segment.write(b"\xff")
    with mqstore.open(mqstore_broker.path, errors=errors) as store:
        findings = {finding["id"]: finding for finding in report(store).findings}
    since = halves[1].store_time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    expected = f"2 transactions are neither committed nor rolled back, the oldest since {since}"
    expected += "; 2 damaged stretches of the log may have ended some"
    assert findings["transaction.open"]["message"] == expected
    assert findings["timer.waiting"]["message"] == "2 timer messages wait for their delivery"
    assert findings["transaction.not_read"]["message"] == "1 half or op messages were lost or are damaged"
    assert findings["timer.not_read"]["message"] == "1 timer messages were lost or are damaged"
    ids = {finding["id"] for finding in run("doctor", mqstore_broker.path, "--json").objects[0]["findings"]}
    assert ids == findings.keys()


def test_doctor_reports_that_open_transactions_were_not_counted(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    mqstore_broker.send_half("payments", b"x", group="tellers")
    mqstore_broker.close()
    config = Path(mqstore_broker.path, "config")
    (config / "consumerOffset.json").write_text("{")
    (config / "consumerOffset.json.bak").unlink(missing_ok=True)
    findings = {finding["id"]: finding for finding in run("doctor", mqstore_broker.path, "--json").objects[0]["findings"]}
    assert "transaction.open" not in findings
    said = findings["transaction.not_read"]
    assert (said["severity"], said["message"]) == (
        "warning",
        "open transactions were not counted: the progress of the broker cannot be read",
    )


def test_doctor_ends_with_the_most_urgent_step(stores: dict[str, Path], events: Path, run: Callable[..., Any]) -> None:
    steps = {
        "whole": f"mqstore dead {stores['whole']} flaky-group",
        "torn": f"mqstore repair {stores['torn']} --into {stores['torn']}.repaired --yes",
        "incomplete": "put back the part of the log that is missing; if it is lost: mqstore repair "
        f"{stores['incomplete']} --into {stores['incomplete']}.repaired --yes",
    }
    for name, step in steps.items():
        when = "" if name == "whole" else ", before a broker or another writer starts"
        assert run("doctor", stores[name]).out.splitlines()[-1] == f"do next{when}: {step}"
        assert run("doctor", stores[name], "--json").objects[0]["do_next"] == step
    assert "do next" not in run("doctor", events).out
    assert run("doctor", events, "--json").rows[0]["do_next"] is None


def test_verify_ends_with_the_step_of_its_most_urgent_finding(
    stores: dict[str, Path], events: Path, run: Callable[..., Any]
) -> None:
    for name in ("torn", "incomplete"):
        of_doctor = run("doctor", stores[name]).out.splitlines()[-1]
        assert of_doctor.startswith("do next, before a broker or another writer starts: ")
        assert run("verify", stores[name]).out.splitlines()[-1] == of_doctor
        assert of_doctor.endswith(run("verify", stores[name], "--json").objects[0]["do_next"])
    assert run("verify", events).out.splitlines()[-1].startswith("nothing is wrong: ")
    assert run("verify", events, "--json").rows[0]["do_next"] is None


def test_no_note_is_the_next_step_where_something_is_wrong(tmp_path: Path, run: Callable[..., Any]) -> None:
    assert run("demo", tmp_path / "store").code == 0
    file = tmp_path / "store" / "checkpoint"
    later = int((time.time() + 86_400) * 1000).to_bytes(8, "big")
    content = file.read_bytes()
    file.write_bytes(content[:16] + later + content[24:])
    ran = run("doctor", tmp_path / "store", "--json")
    [answer] = ran.objects
    wrong = [row["id"] for row in answer["findings"] if row["severity"] != "note"]
    assert (ran.code, wrong, answer["do_next"]) == (1, ["checkpoint.in_future"], None)
    last = run("doctor", tmp_path / "store").out.splitlines()[-1]
    assert last == "nothing has to be done now: the next open for writing sets it right"


def test_next_step_is_whole_if_the_path_of_the_store_reads_like_a_command(
    golden: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path = tmp_path / "with no writer running: mqstore copy --yes; mqstore x"
    shutil.copytree(golden / "491_multifile", path)
    shutil.rmtree(path / "consumequeue")
    answer = run("doctor", path, "--json").objects[0]
    assert answer["do_next"] == f"mqstore rebuild '{path}' --yes"
    assert f"with no writer running: mqstore rebuild '{path}' --yes" in {row["fix"] for row in answer["findings"]}


@pytest.mark.parametrize("command", ["doctor", "verify"])
def test_no_rebuild_is_advised_while_a_writer_runs(command: str, copied: Callable[[str], Path], run: Callable[..., Any]) -> None:
    path = copied("498_mixed")
    with mqstore.open(path, "r+"):
        with next((path / "consumequeue" / "orders").glob("*/*")).open("r+b") as entries:
            entries.seek(12)  # the tags code
            entries.write(b"\x01")
        ran = run(command, path, "--json")
        [finding] = [finding for finding in json.loads(ran.out)["findings"] if finding["id"] == "queue.tags_code"]
        assert finding["fix"] == f"stop the writer, and ask again: mqstore doctor {path}"
        assert "mqstore rebuild" not in ran.out
    closed = json.loads(run(command, path, "--json").out)["findings"]
    assert f"with no writer running: mqstore rebuild {path} --yes" in {finding["fix"] for finding in closed}


def test_a_finding_about_the_index_names_its_file(copied: Callable[[str], Path], run: Callable[..., Any]) -> None:
    path = copied("491_crash_image")
    for command in ("doctor", "verify"):
        findings = run(command, path, "--json").objects[0]["findings"]
        [finding] = [finding for finding in findings if finding["id"].startswith("index.")]
        assert finding["message"].startswith(f"index file {Path(finding['file']).name}: a broker drops its first 2 keys")


@pytest.mark.parametrize("command", ["info", "doctor"])
def test_missing_messages_are_described_once(command: str, stores: dict[str, Path], run: Callable[..., Any]) -> None:
    for name, place, words in (
        ("torn", f"commitlog/{81_920:020} at byte 4075", "and whole messages follow"),
        ("incomplete", f"commitlog/{0:020} at byte 1042730", "a part of the log is missing"),
    ):
        ran = run(command, stores[name])
        [line] = ran.err.splitlines()
        assert line.startswith(f"mqstore: {stores[name]} is incomplete: {place}")
        assert words not in line
        assert words in ran.out


def test_the_next_step_names_a_directory_that_does_not_exist(stores: dict[str, Path], run: Callable[..., Any]) -> None:
    path = stores["torn"]
    path.with_name(f"{path.name}.repaired").mkdir()
    [told] = run("doctor", path, "--json").objects
    assert told["do_next"] == f"mqstore repair {path} --into {path}.repaired1 --yes"


def test_offsets_of_a_lost_queue_are_not_to_be_reset(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    shutil.rmtree(path / "consumequeue" / "orders")
    ids = {finding["id"] for finding in run("doctor", path, "--json").objects[0]["findings"]}
    assert ids & {"queue.topic_missing", "consumer.past_end"} == {"queue.topic_missing"}


def test_offsets_past_a_lost_end_of_the_log_wait_for_its_repair(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    for segment in (path / "commitlog").iterdir():
        segment.unlink()
    [answer] = run("doctor", path, "--json").objects
    [fix] = {finding["fix"] for finding in answer["findings"] if finding["id"] == "consumer.past_end"}
    assert fix == "do first what queue.entry_past_end asks for"


def test_doctor_counts_damaged_delayed_messages_until_they_are_salvaged(mqstore_broker: Broker, run: Callable[..., Any]) -> None:
    delayed = [mqstore_broker.send("reminders", b"pay", delay_level=3) for _ in range(3)]
    mqstore_broker.close()
    path = mqstore_broker.path
    with next(Path(path, "commitlog").iterdir()).open("r+b") as segment:
        segment.seek(delayed[1].physical_offset + 4)  # the magic code
        segment.write(b"\xff")

    def delayed_findings(path: str) -> tuple[int, str, dict[str, tuple[str, str]]]:
        ran = run("doctor", path, "--json")
        findings = ran.objects[0]["findings"]
        # What is overdue depends on the clock.
        waiting = {row["id"]: (row["severity"], row["message"].partition(", ")[0]) for row in findings if "delayed" in row["id"]}
        return ran.code, ran.err, waiting

    lost, waiting = "1 delayed messages were lost or are damaged", ("note", "2 messages wait for their delivery")
    assert delayed_findings(path) == (1, "", {"delayed.not_read": ("warning", lost), "delayed.waiting": waiting})
    assert run("repair", path, "--into", f"{path}.repaired", "--yes").code == 0
    assert delayed_findings(f"{path}.repaired") == (0, "", {"delayed.not_read": ("note", lost), "delayed.waiting": waiting})


def test_doctor_reports_settings_that_a_repair_has_set_aside(broker: Path, tmp_path: Path, run: Callable[..., Any]) -> None:
    path = Path(shutil.copytree(broker, tmp_path / "store"))
    file = path / "config" / "topics.json"
    whole = file.read_bytes()
    file.write_bytes(b"")
    file.with_name("topics.json.bak").unlink()
    assert run("repair", path, "--yes").code == 0
    ran = run("doctor", path, "--json")
    [finding] = (finding for finding in ran.objects[0]["findings"] if finding["id"] == "config.missing")
    assert (ran.code, finding["file"]) == (1, str(file))
    assert "deletes the queues of its topics" in finding["meaning"]
    file.write_bytes(whole)
    assert run("doctor", path).code == 0


@pytest.mark.parametrize(
    ("name", "id"),
    [("consumerOffset.json", "consumer.not_read"), ("delayOffset.json", "delayed.not_read"), ("topics.json", "config.missing")],
)
def test_doctor_reports_settings_that_a_repair_has_not_copied(
    name: str, id: str, broker: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    path, new = Path(shutil.copytree(broker, tmp_path / "store")), tmp_path / "new"
    (path / "config" / name).write_bytes(b"")
    (path / "config" / f"{name}.bak").unlink()
    assert run("repair", path, "--into", new, "--yes").code == 0
    ran = run("doctor", new, "--json")
    findings = {finding["id"]: finding["message"] for finding in ran.objects[0]["findings"] if finding["severity"] == "warning"}
    assert (ran.code, list(findings)) == (1, [id])
    assert f"{name} is missing" in findings[id]


KILLED = """
import os, signal, sys, time, mqstore
store = mqstore.open(sys.argv[1], "x", mapped_file_size_commit_log=16384, max_hash_slot_num=100, max_index_num=200)
for number in range(2000):
    store.append("orders", b"%d" % number, queue_id=number % 2, keys=[f"k{number}"])
store.wait_dispatched()
# Entries are in the queue files 10 ms later. Without them a broker needs a rebuild.
time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_each_finding_after_a_killed_writer_has_one_next_step(tmp_path: Path, run: Callable[..., Any]) -> None:
    path = tmp_path / "store"
    assert subprocess.run([sys.executable, "-c", KILLED, path]).returncode == -signal.SIGKILL
    found = run("doctor", path, "--json")
    [answer] = found.objects
    assert "index.not_recovered_by_broker" in {row["id"] for row in answer["findings"]}
    assert (found.code, answer["do_next"]) == (0, None)
    assert {str(row["fix"]) for row in answer["findings"]} == {"the next open for writing sets it right"}
    assert run("doctor", path).out.splitlines()[-1] == "nothing is wrong"
    with mqstore.open(path, "a"):
        pass
    assert run("doctor", path, "--json").objects == [{"ok": True, "findings": [], "do_next": None}]
