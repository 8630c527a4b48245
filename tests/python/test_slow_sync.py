"""Waits for a sync that takes long, fails, or comes too late."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from conftest import led_test, sync_test


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a store that does not exist yet."""
    return tmp_path / "store"


@pytest.mark.parametrize("timeout", [0, 0.3, timedelta(milliseconds=300)])
def test_a_wait_ends_when_its_time_is_up(slow_sync: Path, path: Path, timeout: float | timedelta) -> None:
    code = f"""
import datetime
say(30)
raises(TimeoutError, lambda: store.wait_durable(offset, timeout={timeout!r}))
os.unlink(sync)
store.wait_durable(offset, timeout=20)
"""
    sync_test(slow_sync, path, code)


def test_ctrl_c_ends_a_wait(slow_sync: Path, path: Path) -> None:
    code = """
before = syncs()
say(30)
def interrupt():
    until(lambda: syncs() > before)  # the wait has asked for it
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
raises(KeyboardInterrupt, lambda: store.wait_durable(offset))
os.unlink(sync)
store.close()
"""
    sync_test(slow_sync, path, code)


def test_a_wait_whose_signal_handler_forks_does_not_continue_in_the_child(slow_sync: Path, path: Path) -> None:
    code = """
before = syncs()
say(30)
child = None
def handler(*_):
    global child
    child = os.fork()
    if child:
        os.unlink(sync)
signal.signal(signal.SIGUSR1, handler)
def interrupt():
    until(lambda: syncs() > before)  # the wait has asked for it
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGUSR1)
threading.Thread(target=interrupt).start()
try:
    store.wait_durable(offset, timeout=25)
except mqstore.ClosedError:
    os._exit(7 if child == 0 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
store.close()
"""
    sync_test(slow_sync, path, code)


def test_a_durable_append_that_times_out_says_so_and_is_read_later(slow_sync: Path, path: Path) -> None:
    code = """
begin = time.monotonic()
late = store.append("orders", b"late")
assert late.status == "FLUSH_DISK_TIMEOUT" and "FLUSH_DISK_TIMEOUT" in repr(late), late
import pickle
assert pickle.loads(pickle.dumps(late)) == late
error = raises(TimeoutError, lambda: store.append_batch([b"later", b"latest"], "orders"))
assert isinstance(error, mqstore.WaitTimeoutError), error
assert (error.status, error.stored, len(error.offsets)) == ("FLUSH_DISK_TIMEOUT", 2, 2), vars(error)
assert time.monotonic() - begin > 0.6
assert [message.body for message in store.topics["orders"].queues[0]] == [b"first"]
os.unlink(sync)
leader.join()
assert got == ["PUT_OK"], got
store.wait_durable(timeout=20)
assert [message.body for message in store.topics["orders"].queues[0]] == [b"first", b"leads", b"late", b"later", b"latest"]
store.close()
"""
    led_test(slow_sync, path, 300, code)


def test_ctrl_c_ends_the_wait_of_a_durable_append_that_stays_stored(slow_sync: Path, path: Path) -> None:
    code = """
errors = []
def interrupt(stored):
    until(lambda: store.stats().put_message_times_total == stored)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
one, batch = lambda: store.append("orders", b"one"), lambda: store.append_batch([b"two", b"three"], "orders")
for append, stored in ((one, 3), (batch, 5)):
    threading.Thread(target=interrupt, args=(stored,)).start()
    errors.append(raises(KeyboardInterrupt, append))
assert [error.stored for error in errors] == [1, 2]
assert len(errors[1].offsets) == 2
os.unlink(sync)
leader.join()
store.wait_dispatched(timeout=20)
assert [message.body for message in store.topics["orders"].queues[0]] == [b"first", b"leads", b"one", b"two", b"three"]
store.close()
"""
    led_test(slow_sync, path, 3_600_000, code)


def test_an_append_that_waits_in_a_close_returns_when_it_is_durable(slow_sync: Path, path: Path) -> None:
    code = """
ended = []
def follow(append):
    try:
        ended.append(append())
    except mqstore.StoreError as error:
        ended.append(error)
one, batch = lambda: store.append("orders", b"one").status, lambda: len(store.append_batch([b"two", b"three"], "orders"))
followers = [threading.Thread(target=follow, args=(append,)) for append in (one, batch)]
for follower in followers:
    follower.start()
until(lambda: store.stats().put_message_times_total == 5)
closing = threading.Thread(target=store.close)
closing.start()
def is_closing():
    try:
        return store.flushed_offset < 0
    except mqstore.ClosedError:
        return True
until(is_closing)
followers[0].join(1)
before = list(ended)
os.unlink(sync)
for thread in (leader, closing, *followers):
    thread.join()
assert before == [] and got == ["PUT_OK"] and sorted(ended, key=str) == [2, "PUT_OK"], (before, got, ended)
with mqstore.open(sys.argv[1] + "2") as again:
    bodies = sorted(message.body for message in again.topics["orders"].queues[0])
assert bodies == [b"first", b"leads", b"one", b"three", b"two"], bodies
"""
    led_test(slow_sync, path, 3_600_000, code)


def test_a_durable_append_whose_sync_fails_says_its_message_was_appended(slow_sync: Path, path: Path) -> None:
    code = """
def wait():
    error = raises(mqstore.PoisonedError, lambda: store.append("orders", b"waits"))
    assert "was appended, and whether it survives is not known" in str(error), error
    assert error.stored == 1
    got.append(error.status)
# The sync of the leader is under way until the message is stored. The next one fails.
def fail():
    until(lambda: store.stats().put_message_times_total == 3)
    say(-1)
threading.Thread(target=fail).start()
wait()
leader.join()
assert sorted(got) == ["FLUSH_DISK_TIMEOUT", "PUT_OK"], got
error = raises(mqstore.PoisonedError, lambda: store.append("orders", b"x"))
assert error.status == "SERVICE_NOT_AVAILABLE", error.status
raises(mqstore.PoisonedError, store.close)
"""
    led_test(slow_sync, path, 3_600_000, code)


def test_a_sync_that_fails_is_never_tried_again(slow_sync: Path, path: Path) -> None:
    code = """
store.wait_dispatched(offset)
say(-1)
for call in (store.flush, store.flush, lambda: store.wait_durable(offset), lambda: store.append("orders", b"")):
    error = raises(mqstore.PoisonedError, call)
    assert (error.errno, error.status) == (errno.EIO, "SERVICE_NOT_AVAILABLE"), error
    assert isinstance(error.__cause__, mqstore.StoreIOError) and error.__cause__.errno == errno.EIO
    assert error.flushed_offset == store.flushed_offset <= offset and f"up to {store.flushed_offset};" in str(error), error
    os.path.exists(sync) and os.unlink(sync)
assert store.message_at(offset).body == b"x"
raises(mqstore.PoisonedError, store.close)
with mqstore.open(sys.argv[1], "a") as again:
    assert not again.recovery.clean_exit and again.message_at(offset).body == b"x"
"""
    sync_test(slow_sync, path, code)


def test_closing_ends_the_waits_of_other_threads(slow_sync: Path, path: Path) -> None:
    code = """
say(1)
ends = []
def wait():
    store.wait_durable(offset)
    ends.append("durable")
waiting = threading.Thread(target=wait)
waiting.start()
time.sleep(0.2)
second = threading.Thread(target=lambda: (store.close(), ends.append(os.path.exists(sys.argv[1] + "/abort"))))
second.start()
store.close()
second.join()
waiting.join()
assert sorted(ends, key=str) == ["durable", False][::-1], ends
"""
    sync_test(slow_sync, path, code)
