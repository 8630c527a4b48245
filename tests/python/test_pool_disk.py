"""A transient store pool whose disk stalls, is full, or fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import pool_test


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a store that does not exist yet."""
    return tmp_path / "store"


def test_a_full_pool_refuses_after_the_time_and_stores_nothing(stalled_write: Path, path: Path) -> None:
    code = """
store = opened(wait_time_out=300)
stored = fill(store)
begin = time.monotonic()
for call in (
    lambda: store.append("orders", b"x" * 4000),
    lambda: store.append_batch([b"x" * 4000], "orders"),
    lambda: store.append_batch([b"x" * 2000] * 2, "orders", one_segment=True),
    lambda: store.append_nowait("orders", b"x" * 4000),
):
    error = raises(mqstore.BusyError, call)
    assert error.status == "OS_PAGE_CACHE_BUSY" and "wait_time_out" in str(error), error
assert 1.1 < time.monotonic() - begin < 20
error = raises(mqstore.BusyError, lambda: store.append_batch([b"small", b"x" * 4000], "orders"))
stored += len(error.stored) if hasattr(error.stored, "__len__") else error.stored
stats = store.stats()
assert stats.buffer_waits >= 5 and stats.is_transient_store_pool_low, stats
say(0)
store.append("orders", b"x" * 4000)
assert len(bodies(store)) == stored + 2
store.close()
"""
    pool_test(stalled_write, path, code)


def test_a_close_under_a_full_pool_leaves_nobody_waiting_and_loses_nothing(stalled_write: Path, path: Path) -> None:
    code = """
store = opened(wait_time_out=60_000)
stored = [fill(store)]
refused = []
def appends():
    try:
        while True:
            store.append("orders", b"x" * 4000)
            stored.append(1)
    except mqstore.ClosedError as error:
        refused.append(error)
threads = [threading.Thread(target=appends) for _ in range(6)]
for thread in threads:
    thread.start()
until(lambda: store.stats().buffer_waits >= 6)
closer = threading.Thread(target=store.close)
closer.start()
time.sleep(0.1)
say(0)
closer.join(30)
assert not closer.is_alive()
for thread in threads:
    thread.join(5)
    assert not thread.is_alive(), "an append still waits"
assert len(refused) == 6
with mqstore.open(path) as reader:
    assert reader.recovery.clean_exit
    assert len(bodies(reader)) == 1 + sum(stored), (len(bodies(reader)), stored)
"""
    pool_test(stalled_write, path, code)


@pytest.mark.parametrize("call", ["append", "append_batch"])
def test_a_signal_ends_an_append_that_waits_for_room_and_nothing_is_stored(stalled_write: Path, path: Path, call: str) -> None:
    code = f"""
store = opened(wait_time_out=30_000)
stored = fill(store)
def handler(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
appends = dict(
    append=lambda: store.append("orders", b"x" * 4000),
    append_batch=lambda: store.append_batch([b"x" * 4000], "orders"),
)
begin = time.monotonic()
error = raises(KeyboardInterrupt, appends["{call}"])
assert error.stored == 0, error.stored
assert time.monotonic() - begin < 10
say(0)
assert len(bodies(store)) == stored + 1
store.close()
"""
    pool_test(stalled_write, path, code)


def test_a_commit_without_room_keeps_pending_bytes_and_names_lost_ones(stalled_write: Path, path: Path) -> None:
    code = """
store = opened()
store.append("orders", b"waits")
say(errno.ENOSPC)
with warnings.catch_warnings(record=True) as got:
    warnings.simplefilter("always")
    assert bodies(store) == [b"first"]
assert any("may be missing in this answer" in str(warning.message) for warning in got), got
assert raises(mqstore.DiskFullError, store.flush).errno == errno.ENOSPC
# There is room in the pool.
assert store.append("orders", b"too").status == "PUT_OK"
say(0)
store.flush()
assert bodies(store) == [b"first", b"waits", b"too"]
store.append("orders", b"lost")
say(errno.EIO)
for call in (store.flush, store.flush, lambda: store.append("orders", b"x")):
    assert raises(mqstore.PoisonedError, call).errno == errno.EIO
say(0)
for call in (store.flush, lambda: store.append("orders", b"x"), store.close):
    raises(mqstore.PoisonedError, call)
with mqstore.open(path, "r+") as store:
    assert bodies(store) == [b"first", b"waits", b"too"]
"""
    pool_test(stalled_write, path, code)


def test_a_close_that_finds_no_room_keeps_pending_bytes_and_is_repeatable(stalled_write: Path, path: Path) -> None:
    code = """
store = opened()
store.append("orders", b"waits")
say(errno.ENOSPC)
for _ in range(2):
    raises(mqstore.DiskFullError, store.close)
    raises(mqstore.ClosedError, lambda: store.append("orders", b"x"))
    raises(mqstore.LockedError, lambda: mqstore.open(path, "a"))
say(0)
store.close()
store.close()
with mqstore.open(path, "r+") as store:
    assert store.recovery.clean_exit
    assert bodies(store) == [b"first", b"waits"]
"""
    pool_test(stalled_write, path, code)


@pytest.mark.parametrize("is_there_room", [True, False])
def test_a_store_whose_close_found_no_room_is_closed_when_it_is_dropped(
    stalled_write: Path, path: Path, is_there_room: bool
) -> None:
    code = f"""
store = opened()
store.append("orders", b"waits")
say(errno.ENOSPC)
raises(mqstore.DiskFullError, store.close)
if {is_there_room}:
    say(0)
got = []
sys.unraisablehook = lambda unraisable: got.append(unraisable)
del store
assert bool(got) == (not {is_there_room}), got
say(0)
warnings.simplefilter("default")
with mqstore.open(path, "r+") as store:
    assert bodies(store) == [b"first", b"waits"][: 1 + {is_there_room}]
"""
    pool_test(stalled_write, path, code)
