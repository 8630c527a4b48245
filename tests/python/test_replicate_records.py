"""Records that no queue can have: a slave refuses them, and writes nothing outside its store."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from encoder import Encoder
from test_replicate import wait_until

import mqstore

#: The bytes of a record before its queue offset.
QUEUE_OFFSET_AT = 20


@pytest.fixture
def master(tmp_path: Path) -> Iterator[tuple[str, Encoder]]:
    """The address of a master that sends the log of an encoder to each slave that asks."""
    encoder = Encoder(tmp_path / "master")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    slave, _ = listener.accept()
                except OSError:
                    return
                with slave:
                    slave.recv(8)
                    slave.sendall(struct.pack(">qi", 0, len(encoder.log)) + encoder.log)
                    while slave.recv(8):
                        pass

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", encoder
        listener.shutdown(socket.SHUT_RDWR)
    serving.join(10)


@pytest.mark.parametrize(
    ("topic", "queue_id", "queue_offset", "reason"),
    [
        ("../../other/consumequeue/pay", 0, 3, "a topic has no slash"),
        ("/tmp/orders", 0, 0, "a topic has no slash"),
        ("..", 0, 0, "names a special directory"),
        ("or\0ders", 0, 0, "no control character"),
        ("orders", 0, (1 << 63) - 1, "queue offset 9223372036854775807 of queue 0"),
        ("orders", 0, 1 << 58, "queue offset 288230376151711744 of queue 0"),
        ("orders", 0, -1, "queue offset -1 of queue 0"),
        ("orders", -1, 0, "queue offset 0 of queue -1"),
    ],
)
def test_a_record_that_no_queue_can_have_is_refused(
    tmp_path: Path, master: tuple[str, Encoder], topic: str, queue_id: int, queue_offset: int, reason: str
) -> None:
    address, encoder = master
    with mqstore.open(tmp_path / "other", "x") as other:
        other.append("pay", b"own")
    encoder.append("orders", b"whole")
    at = encoder.append(topic, b"odd", queue_id=queue_id)
    struct.pack_into(">q", encoder.log, at + QUEUE_OFFSET_AT, queue_offset)
    with mqstore.replicate(address, tmp_path / "slave", mapped_file_size_commit_log=encoder.segment_size) as slave:
        wait_until(lambda: slave.error is not None)
        assert reason in str(slave.error)
        assert "no queue can have" in str(slave.error)
    with mqstore.open(tmp_path / "slave", "a") as store:
        assert [message.body for message in store.topics["orders"].queues[0]] == [b"whole"]
        assert list(store.topics) == ["orders"]
    with mqstore.open(tmp_path / "other") as other:
        assert [message.body for message in other.topics["pay"].queues[0]] == [b"own"]
