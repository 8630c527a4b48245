"""`GetResult.send_to`: the bytes of the log, over sockets of every kind, and what ends a call early."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mqstore

HEADER = b"\0\0\0\x2aheader"
#: Messages of 1 KiB. They fill more than two segments.
COUNT = 300
SEGMENT = 131072


def fill(path: Path, **options: object) -> mqstore.Writer:
    store = mqstore.open(path, "a", mapped_file_size_commit_log=SEGMENT, **options)  # type: ignore[call-overload]
    for number in range(COUNT):
        store.append("orders", b"%04d" % number * 256, tags="even" if number % 2 == 0 else "odd")
    return store  # type: ignore[no-any-return]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def answer(path: Path) -> mqstore.GetResult:
    """All messages."""
    with mqstore.open(path) as store:
        return store.get("orders", 0, 0, COUNT, bounded=False)


def records(path: Path, answer: mqstore.GetResult) -> bytes:
    """The records as the files have them."""
    log = b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))
    return b"".join(log[m.physical_offset : m.physical_offset + m.store_size] for m in answer)


def pair_of_tcp() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


@pytest.fixture(params=[socket.socketpair, pair_of_tcp])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = request.param()
    with near, far:
        yield near, far


class Taker:
    """Takes all that comes at a socket, in a thread of its own."""

    def __init__(self, far: socket.socket) -> None:
        self.bytes = bytearray()
        self.thread = threading.Thread(target=self.take, args=(far,))
        self.thread.start()

    def take(self, far: socket.socket) -> None:
        while piece := far.recv(1 << 16):
            self.bytes += piece

    def all(self, near: socket.socket) -> bytes:
        near.shutdown(socket.SHUT_WR)
        self.thread.join()
        return bytes(self.bytes)


def sent(answer: mqstore.GetResult, pair: tuple[socket.socket, socket.socket], header: bytes = HEADER) -> bytes:
    near, far = pair
    taker = Taker(far)
    count = answer.send_to(near, header)
    taken = taker.all(near)
    assert count == len(taken)
    return taken


@pytest.mark.parametrize("tags", [None, "even", "neither"])
def test_the_header_and_the_records_of_the_log_are_sent(
    path: Path, pair: tuple[socket.socket, socket.socket], tags: str | None
) -> None:
    with mqstore.open(path) as store:
        answer = store.get("orders", 0, 0, COUNT, tags=tags, bounded=False)
    assert sent(answer, pair) == HEADER + records(path, answer)


@pytest.mark.parametrize(
    "options", [{}, {"transient_store_pool_enable": True}, {"flush_disk_type": "SYNC_FLUSH"}], ids=["mapped", "pool", "sync"]
)
@pytest.mark.parametrize("tags", [None, "even"])
def test_a_writer_sends_what_it_has_just_appended(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket], options: dict[str, object], tags: str | None
) -> None:
    with fill(tmp_path / "store", **options) as store:
        answer = store.get("orders", 0, 0, COUNT, tags=tags, bounded=False)
        assert len(answer) == (COUNT if tags is None else COUNT // 2)
        taken = sent(answer, pair, b"")
    assert taken == records(tmp_path / "store", answer) == b"".join(message.raw for message in answer)


@pytest.mark.parametrize("header", [b"ab", bytearray(b"ab"), memoryview(b"ab")])
def test_a_header_is_any_buffer_and_an_empty_answer_sends_it_alone(path: Path, header: bytes) -> None:
    with mqstore.open(path) as store:
        assert sent(store.get("nothing", 0, 0), socket.socketpair(), header) == b"ab"
        assert sent(store.get("nothing", 0, 0), socket.socketpair(), b"") == b""


def test_a_pickled_answer_sends_the_same(path: Path, answer: mqstore.GetResult) -> None:
    assert sent(pickle.loads(pickle.dumps(answer)), socket.socketpair()) == HEADER + records(path, answer)


@pytest.mark.parametrize("tags", [None, "even"])
def test_an_answer_outlives_the_trim_of_its_segments(tmp_path: Path, tags: str | None) -> None:
    with fill(tmp_path / "store") as store:
        answer = store.get("orders", 0, 0, 50, tags=tags, bounded=False)
        expected = records(tmp_path / "store", answer)
        store.trim(before_offset=store.get("orders", 0, COUNT - 1)[0].physical_offset)
        assert not (tmp_path / "store" / "commitlog" / f"{0:020}").exists()
        assert sent(answer, socket.socketpair()) == HEADER + expected


def test_what_is_no_plain_stream_socket_is_refused(answer: mqstore.GetResult) -> None:
    with pytest.raises(TypeError, match=r"socket is a socket\.socket, not str"):
        answer.send_to("127.0.0.1")  # type: ignore[arg-type]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, pytest.raises(ValueError, match="no stream socket"):
        answer.send_to(datagrams)
    near, far = socket.socketpair()
    near.close()
    far.close()
    with pytest.raises(OSError, match="closed"):
        answer.send_to(near)
    with pytest.raises(TypeError, match="header is bytes"):
        answer.send_to(far, "header")  # type: ignore[arg-type]


def test_a_tls_socket_is_refused_and_nothing_is_sent(answer: mqstore.GetResult) -> None:
    near, far = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with far, context.wrap_socket(near, do_handshake_on_connect=False) as wrapped:
        with pytest.raises(TypeError, match="bypass TLS; send message.raw"):
            answer.send_to(wrapped)
        far.setblocking(False)
        with pytest.raises(BlockingIOError):
            far.recv(1)


@pytest.mark.parametrize("tags", [None, "even"])
def test_the_timeout_of_the_socket_bounds_the_call(
    path: Path, pair: tuple[socket.socket, socket.socket], tags: str | None
) -> None:
    near, far = pair
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    near.settimeout(0.2)
    with mqstore.open(path) as store:
        answer = store.get("orders", 0, 0, COUNT, tags=tags, bounded=False)
    header = bytes(8 << 20)
    with pytest.raises(TimeoutError, match=r"\d+ of \d+ bytes were sent") as raised:
        answer.send_to(near, header)
    count = raised.value.characters_written
    assert 0 < count < len(header)
    near.close()
    taken = 0
    while piece := far.recv(1 << 20):
        taken += len(piece)
    assert taken == count


def test_a_non_blocking_socket_says_how_much_went_and_continues(
    path: Path, answer: mqstore.GetResult, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    near.setblocking(False)
    expected = HEADER + records(path, answer)
    taken, start, calls = b"", 0, 0
    while start < len(expected):
        calls += 1
        try:
            start += answer.send_to(near, HEADER, start=start)
        except BlockingIOError as full:
            start += full.characters_written
        while len(taken) < start:
            taken += far.recv(start - len(taken))
    assert calls > 1
    assert taken == expected
    assert answer.send_to(near, HEADER, start=start) == 0
    with pytest.raises(ValueError, match="start is"):
        answer.send_to(near, HEADER, start=start + 1)


@pytest.mark.parametrize("tags", [None, "even"])
def test_a_peer_that_has_left_is_an_error(path: Path, tags: str | None) -> None:
    near, far = socket.socketpair()
    far.close()
    with mqstore.open(path) as store, near:
        answer = store.get("orders", 0, 0, COUNT, tags=tags, bounded=False)
        with pytest.raises(BrokenPipeError, match="0 of"):
            answer.send_to(near)


def test_a_segment_that_was_cut_short_is_an_error(path: Path, answer: mqstore.GetResult) -> None:
    os.truncate(path / "commitlog" / f"{0:020}", 5000)
    near, far = socket.socketpair()
    with near, far, pytest.raises(mqstore.CorruptError, match="cut short") as raised:
        answer.send_to(near, HEADER)
    assert raised.value.characters_written == 0  # type: ignore[attr-defined]


class HandlerError(Exception):
    pass


def send_for_ever(answer: mqstore.GetResult, near: socket.socket) -> None:
    while True:
        answer.send_to(near)


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_signal_handler_runs_while_the_socket_is_full(answer: mqstore.GetResult, timeout: float | None) -> None:
    def handle(number: int, frame: object) -> None:
        raise HandlerError

    near, far = socket.socketpair()
    near.settimeout(timeout)
    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        with near, far, pytest.raises(HandlerError) as raised:
            send_for_ever(answer, near)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert raised.value.characters_written >= 0  # type: ignore[attr-defined]


def test_a_signal_without_an_error_does_not_end_the_call(path: Path, answer: mqstore.GetResult) -> None:
    seen = []
    near, far = socket.socketpair()
    taken = bytearray()

    def handle(number: int, frame: object) -> None:
        seen.append(number)

    def take() -> None:
        # The peer takes nothing before two signals have come.
        while len(seen) < 2:
            threading.Event().wait(0.01)
        while piece := far.recv(1 << 16):
            taken.extend(piece)

    taker = threading.Thread(target=take)
    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        taker.start()
        header = bytes(4 << 20)
        count = answer.send_to(near, header)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    near.close()
    taker.join()
    assert (count, bytes(taken)) == (len(taken), header + records(path, answer))


def test_a_call_releases_the_interpreter(
    answer: mqstore.GetResult, lets_others_run: Callable[[Callable[[], object]], bool]
) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(0.05)

        def call() -> None:
            with pytest.raises(TimeoutError):
                send_for_ever(answer, near)

        assert lets_others_run(call)


def test_threads_share_an_answer(path: Path, answer: mqstore.GetResult) -> None:
    expected = HEADER + records(path, answer)
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(sent(answer, socket.socketpair()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


TRACED = """
import socket, sys, threading
import mqstore
with mqstore.open(sys.argv[1]) as store:
    answers = [store.get("orders", 0, 0, 40, tags=tags, bounded=False) for tags in (None, "even")]
near, far = socket.socketpair()
near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
for answer in answers:
    print(answer.send_to(near, b"header"))
    far.recv(1 << 20)
"""


def test_the_system_calls_are_those_of_the_page(path: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")
    trace = tmp_path / "trace"
    calls = "trace=read,pread64,readv,write,writev,sendto,sendmsg,sendfile"
    command = ["strace", "-f", "-o", str(trace), "-e", calls, sys.executable, "-c", TRACED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0 and "ptrace" in done.stderr.lower():
        pytest.skip(f"ptrace is not allowed: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    lines = trace.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if "header" in line)
    names = [line.split(" ", 1)[1].split("(")[0].strip() for line in lines[first:] if "(" in line]
    # Python writes the counts.
    moved = [name for name in names if name.startswith("send") or "read" in name]
    assert moved == ["sendmsg", "sendfile", "sendmsg"]
