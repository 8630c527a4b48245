"""Consumer groups, retries and delayed messages between whole brokers with real clients and our writer. See README.md."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from broker import Ack, Broker
from handover import (
    OPTIONS,
    QUEUES,
    TOPICS,
    VERSIONS,
    Group,
    bodies,
    delivered,
    delivered_again,
    expect_dead,
    put,
    register,
    rest_of,
    serve,
    settings,
    take,
    unsettled,
    wait_until,
    write_groups,
)

import mqstore

Settings: TypeAlias = dict[str, dict[str, Any]]

#: What a broker leaves: messages of the third delay level, and others.
LEFT, NEW = ([f"{kind} {number}" for number in range(3)] for kind in ("left", "new"))
#: The topics from which the groups consume.
CONSUMED = {"billing": ["orders", "%RETRY%billing"], "shipping": [*TOPICS, "%RETRY%shipping"]}
#: On this message the clients of a group fail, and it becomes a dead letter.
REFUSED = "payment 40"


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version of a whole broker."""
    return str(request.param)


def test_clients_of_a_broker_continue_our_groups_and_we_continue_theirs(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with mqstore.open(path, "x", **OPTIONS) as store:
        left = write_groups(store)
    before = settings(path)
    with serve(path, version) as broker:
        register(broker)
        expect_continued(broker, left)
        leave(broker)
        broker.close()
    theirs = settings(path)
    with mqstore.open(path, "r+", **OPTIONS) as store:
        assert rest_of(store, "billing", ["orders"], LEFT) == sorted([*LEFT, *NEW])
        assert rest_of(store, "shipping", TOPICS, LEFT) == sorted([*LEFT, *NEW])
        expect_dead_letters(store, {"billing": left["dead"], "shipping": [REFUSED]})
        store.create_topic("ours", queues=2)
    assert set(delivered(path).values()) == {1}
    expect_kept(known_to(theirs, before), theirs)
    expect_kept(theirs, settings(path))
    assert "ours" in settings(path)["topics"]["topicConfigTable"]


def test_our_writer_then_a_broker_are_killed_and_no_message_is_lost(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    left = killed_writer(path)
    # A group gets again what no file says that it has settled, and nothing else.
    next_of_billing = {*unsettled(path, "billing", CONSUMED["billing"])}
    assert next_of_billing <= {*left["billing"]}
    left["billing"] = [body for body in left["billing"] if body in next_of_billing or body not in left["acked"]]
    again = delivered_again(path)
    with serve(path, version) as broker:
        register(broker)
        retries = expect_continued(broker, left, again)
        wait_until(lambda: is_settled(path, "billing", ["orders"]) and is_settled(path, "shipping", TOPICS))
        leave(broker)
        # Whether this progress is on disk when the broker is killed is open.
        assert {*NEW} <= {*bodies(take(broker, Group("billing", ["orders"], NEW))["billing"])}
        broker.kill()
    next_of = {group: left_for(path, group) for group in CONSUMED}
    # The progress in the topic of the retries, too, may be older.
    assert {*next_of["billing"]} <= {*LEFT, *NEW, *bodies(retries)}
    assert next_of["shipping"] == sorted([*LEFT, *NEW])
    with mqstore.open(path, "r+", **OPTIONS) as store:
        assert rest_of(store, "billing", ["orders"], LEFT) == next_of["billing"]
        assert rest_of(store, "shipping", TOPICS, LEFT) == next_of["shipping"]
        expect_dead_letters(store, {"billing": left["dead"], "shipping": [REFUSED]})
    copies = delivered(path)
    assert copies == {body: 1 + (body in again) for body in copies}
    assert copies.keys() >= {*LEFT}


def test_we_continue_a_brokers_first_groups_and_it_continues_ours(version: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    first = [f"first {number}" for number in range(40)]
    with serve(path, version) as broker:
        broker.ask("create", "orders", QUEUES)
        for number, body in enumerate(first):
            put(broker, "orders", body, number % QUEUES)
        got = take(
            broker,
            Group("billing", ["orders"], [*first, first[7]], {first[7]: 1}, level=2),
            Group("shipping", ["orders"], first, {first[5]: 1}, level=-1),
        )
        assert bodies(got["billing"]) == sorted([*first, first[7]])
        assert bodies(got["shipping"]) == sorted(first)
        leave(broker)
        broker.close()
    theirs = settings(path)
    with mqstore.open(path, "r+", **OPTIONS) as store:
        assert rest_of(store, "billing", ["orders"], LEFT) == sorted([*LEFT, *NEW])
        assert rest_of(store, "shipping", ["orders"], LEFT) == sorted([*LEFT, *NEW])
        expect_dead_letters(store, {"billing": [], "shipping": [first[5]]})
        left = write_groups(store)
    ours = settings(path)
    expect_kept(theirs, ours)
    with serve(path, version) as broker:
        register(broker)
        expect_continued(broker, left)
        broker.close()
    expect_kept(known_to(settings(path), ours), settings(path))
    with mqstore.open(path) as store:
        expect_dead_letters(store, {"billing": left["dead"], "shipping": [first[5], REFUSED]})
    assert set(delivered(path).values()) == {1}


def killed_writer(path: Path) -> dict[str, list[str]]:
    """Has a process write for two groups that is killed then; returns what it has said."""
    program = Path(__file__).with_name("killed_writer.py")
    done = subprocess.run([sys.executable, program, path], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left: dict[str, list[str]] = json.loads(done.stdout)
    return left


def expect_continued(broker: Broker, left: dict[str, list[str]], again: Iterable[str] = ()) -> list[Ack]:
    """Clients of the groups get each message that is left, and a second time those delivered again. Returns the retries."""
    failed = next(body for body in left["billing"] if body.startswith("order") and body not in left["retried"])
    got = take(
        broker,
        Group("billing", ["orders"], [*left["billing"], *again, failed], {failed: 1}, level=2),
        Group("shipping", TOPICS, left["shipping"], {REFUSED: 1}, level=-1),
    )
    # Those that were not settled too, and once more what the client itself sent back.
    assert bodies(got["billing"]) == sorted([*left["billing"], *again, failed])
    assert bodies(got["shipping"]) == sorted([*left["shipping"], *(body for body in again if body not in left["retried"])])
    retries = [ack for ack in got["billing"] if ack["is_retry"]]
    retried = {(ack["body"], ack["reconsume_times"], ack["topic"]) for ack in retries}
    assert retried == {(body, 1, "orders") for body in (*left["retried"], failed)}
    expect_dead(broker, left["dead"][0])
    return retries


def leave(broker: Broker) -> None:
    """Sends delayed messages, and others, that no client has consumed."""
    for number, (left, new) in enumerate(zip(LEFT, NEW, strict=True)):
        put(broker, "orders", left, number, delay_level=3)
        put(broker, "orders", new, number)


def is_settled(path: Path, group: str, topics: list[str]) -> bool:
    """True if the broker has written to disk that the group has settled every message of the topics."""
    with suppress(mqstore.StoreError):  # the file may be half written
        return not unsettled(path, group, topics)
    return False


def left_for(path: Path, group: str) -> list[str]:
    """Returns the bodies that a group gets next by its progress on disk, with those that are still delayed, ascending."""
    found = unsettled(path, group, CONSUMED[group])
    return sorted([*found, *(body for body in LEFT if body not in found)])


def expect_dead_letters(store: mqstore.Store, letters: dict[str, list[str]]) -> None:
    """Each group has these dead letters."""
    assert letters == {group: [letter.body.decode() for letter in store.broker.dead_letters(group)] for group in letters}


def expect_kept(before: Settings, after: Settings) -> None:
    """Every entry of the settings is still there, with its values. Of progress none falls."""
    for table, name in (("topicConfigTable", "topics"), ("subscriptionGroupTable", "subscriptionGroup")):
        for entry, fields in before[name][table].items():
            now = after[name][table][entry]
            assert {field: now[field] for field in fields} == fields, (name, entry)
    for key, queues in before["consumerOffset"]["offsetTable"].items():
        assert all(after["consumerOffset"]["offsetTable"][key][queue] >= offset for queue, offset in queues.items()), key
    for level, offset in before["delayOffset"]["offsetTable"].items():
        assert after["delayOffset"]["offsetTable"][level] >= offset


def known_to(broker: Settings, ours: Settings) -> Settings:
    """Returns our settings without the fields that a broker does not know, and so does not keep."""
    known = dict(ours)
    for table, name in (("topicConfigTable", "topics"), ("subscriptionGroupTable", "subscriptionGroup")):
        fields = {field for entry in broker[name][table].values() for field in entry}
        entries = ours[name][table].items()
        kept = {entry: {field: value for field, value in values.items() if field in fields} for entry, values in entries}
        known[name] = {table: kept}
    return known
