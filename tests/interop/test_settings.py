"""Topics, groups and progress between masters and slaves of both sides. See README.md."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import embedded
import pytest
from broker import Broker
from handover import (
    LEVELS,
    OPTIONS,
    QUEUES,
    SIZES,
    VERSIONS,
    Group,
    put,
    rest_of,
    serve,
    settings,
    take,
    wait_until,
    write_groups,
)

import mqstore

LEFT, NEW = ([f"{kind} {number}" for number in range(12)] for kind in ("left", "new"))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version of a whole broker."""
    return str(request.param)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def offsets(path: Path, name: str) -> dict[str, Any]:
    """The progress in a settings file; nothing without one."""
    file = path / "config" / f"{name}.json"
    text = file.read_text() if file.exists() else '{"offsetTable":{}}'
    table: dict[str, Any] = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))["offsetTable"]
    return table


def test_our_slave_continues_the_groups_of_a_broker(version: str, tmp_path: Path) -> None:
    theirs, ours, port = tmp_path / "master", tmp_path / "slave", free_port()
    options = {"messageDelayLevel": LEVELS, "haListenPort": port, "flushDelayOffsetInterval": 500}
    with Broker(theirs, SIZES, version=version, options=options) as broker:
        address = broker.ask("address")[0]["address"]
        broker.ask("create", "orders", QUEUES)
        with mqstore.replicate(f"127.0.0.1:{port}", ours, broker=address, **embedded.options(SIZES)) as replica:
            for number, body in enumerate(LEFT):
                put(broker, "orders", body, number % QUEUES)
            put(broker, "orders", "later", 0, delay_level=1)
            take(broker, Group("billing", ["orders"], [*LEFT, "later"]))
            for number, body in enumerate(NEW):
                put(broker, "orders", body, number % QUEUES)
            settled = sum(offsets_of(broker, theirs).values())
            wait_until(lambda: sum(offsets(ours, "consumerOffset").get("orders@billing", {}).values()) == settled)
            wait_until(lambda: offsets(ours, "delayOffset").get("1") == 1)
            assert (replica.state, replica.settings_error) == ("following", None)
            assert replica.settings_taken_at is not None
            with mqstore.open(theirs) as master:
                end = master.max_physical_offset
            replica.wait(end - 1, timeout=60)
        broker.close()
    taken, stated = settings(ours), settings(theirs)
    # A broker adds topics of its own while it runs.
    for topic in ("orders", "%RETRY%billing", "SCHEDULE_TOPIC_XXXX"):
        assert taken["topics"]["topicConfigTable"][topic] == stated["topics"]["topicConfigTable"][topic]
    groups = [files["subscriptionGroup"]["subscriptionGroupTable"]["billing"] for files in (taken, stated)]
    assert groups[0] == groups[1]
    with mqstore.open(ours, "r+", **OPTIONS) as store:
        assert rest_of(store, "billing", ["orders"], NEW) == sorted(NEW)


def offsets_of(broker: Broker, path: Path) -> dict[str, int]:
    """Returns the progress of "billing" in the file of the broker, once the group has consumed everything."""
    everything = len(LEFT) + 1

    def written() -> dict[str, int]:
        table: dict[str, int] = offsets(path, "consumerOffset").get("orders@billing", {})
        return table

    wait_until(lambda: sum(written().values()) == everything)
    return written()


def test_a_slave_of_rocketmq_takes_all_settings_of_our_master(version: str, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "master", tmp_path / "slave"
    with mqstore.open(ours, "x", listen_port=0, **OPTIONS) as store:
        write_groups(store)
        store.append("orders", b"later", delay_level=1)
        wait_until(lambda: offsets(ours, "delayOffset").get("1", 0) > 0)
        with serve(theirs, version) as broker:
            broker.ask("synchronize", store.replicas.broker_address)
            taken, stated = settings(theirs), settings(ours)
            assert store.replicas.refused == ()
            broker.kill()
    for topic, entry in stated["topics"]["topicConfigTable"].items():
        known = taken["topics"]["topicConfigTable"][topic]
        assert {name: known[name] for name in ("perm", "readQueueNums", "writeQueueNums")} == {
            name: entry[name] for name in ("perm", "readQueueNums", "writeQueueNums")
        }
    groups = taken["subscriptionGroup"]["subscriptionGroupTable"]
    assert {"billing", "shipping"} <= groups.keys() >= stated["subscriptionGroup"]["subscriptionGroupTable"].keys()
    assert {key: taken["consumerOffset"]["offsetTable"][key] for key in stated["consumerOffset"]["offsetTable"]} == stated[
        "consumerOffset"
    ]["offsetTable"]
    assert taken["delayOffset"]["offsetTable"] == stated["delayOffset"]["offsetTable"]
