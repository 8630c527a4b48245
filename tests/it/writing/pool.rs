//! The transient store pool: what waits in it, what must not be lost on the way to the log, and the errors of the caller.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::format::Message;
use mqstore::services::Service;
use mqstore::storage::TransientStorePool;
use mqstore::store::MessageStore;

use super::ahead::put_when_made;
use super::batches::batch;
use super::services::stepped_with;
use super::{Place, SEGMENT, append_producer_batch, append_together, bodies, contents, io_error, message, put, small, soon};
use crate::counting_env::CountingEnv;

/// A pool of `count` buffers, each of `size` bytes.
fn pool(count: usize, size: usize) -> StoreConfig {
    StoreConfig {
        transient_store_pool_enable: true,
        transient_store_pool_size: count,
        transient_store_pool_buffer_size: size,
        ..small()
    }
}

fn available(store: &MessageStore) -> u64 {
    store.stats().log.pool.unwrap().available
}

#[test]
fn bytes_in_the_pool_are_in_no_file_and_unseen_until_committed() {
    let place = Place::new();
    let (_, store) = stepped_with(&place, pool(2, 4096));
    let now = Instant::now();
    let done = store.append(message("t", 0, b"waits")).unwrap();
    let segment = place.at("commitlog/00000000000000000000");
    let is_in_file = || std::fs::read(&segment).unwrap().windows(5).any(|bytes| bytes == b"waits");
    assert!(!is_in_file() && !store.is_committed() && !store.is_caught_up());
    assert!(store.reader().message_at(done.appended.physical_offset).is_err());
    // Neither the first look of the committer nor a step of the dispatcher changes that.
    store.step(Service::Commit, now).unwrap();
    store.step(Service::Dispatch, now).unwrap();
    assert!(!is_in_file() && store.dispatched_offset() == 0);
    store.step(Service::Commit, now + Duration::from_millis(200)).unwrap();
    assert!(is_in_file() && store.is_committed());
    assert_eq!(store.reader().message_at(0).unwrap().view().body(), b"waits");
    assert_eq!(store.flushed_offset(), 0);
}

#[test]
fn the_committer_writes_at_once_when_much_waits_and_else_at_its_interval() {
    let place = Place::new();
    let config = StoreConfig {
        commit_interval_commit_log: 50,
        commit_commit_log_thorough_interval: 120,
        commit_commit_log_least_pages: 1,
        ..pool(4, 16_384)
    };
    let (_, store) = stepped_with(&place, config);
    let start = Instant::now();
    let after = |ms| {
        store.step(Service::Commit, start + Duration::from_millis(ms)).unwrap();
        store.is_committed()
    };
    assert!(after(0));
    store.append(message("t", 0, &[b'x'; 1000])).unwrap();
    assert!(!after(10) && !after(60), "less than a page waits");
    store.append(message("t", 0, &[b'x'; 4000])).unwrap();
    assert!(!after(70), "the next look comes at the interval");
    assert!(after(115), "a page waits");
    store.append(message("t", 0, b"little")).unwrap();
    assert!(!after(170) && !after(230));
    assert!(after(300), "the thorough interval is over");
    // A quarter of the pool.
    store.append(message("t", 0, &[b'x'; 16_000])).unwrap();
    store.append(message("t", 0, &[b'x'; 500])).unwrap();
    assert!(after(301));
}

#[test]
fn a_read_of_the_writing_process_asks_for_the_commit() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        commit_interval_commit_log: 3_600_000,
        commit_commit_log_thorough_interval: 3_600_000,
        // A flush would commit, too.
        flush_interval_commit_log: 3_600_000,
        flush_commit_log_thorough_interval: 3_600_000,
        ..pool(2, 4096)
    });
    for number in 0..50u8 {
        put(&store, "t", &[number]);
        assert!(!store.is_caught_up());
        assert!(store.catch_up(Duration::from_secs(20)).unwrap());
        assert_eq!(bodies(store.reader(), "t", 0).last().unwrap(), &[number]);
    }
    put(&store, "t", b"the last");
    store.wait_dispatched(store.appended_offset() - 1, Some(soon())).unwrap();
    assert!(store.is_committed());
}

#[test]
fn an_append_waits_for_a_full_pool_and_is_refused_without_a_trace() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        wait_time_out: 50,
        ..pool(1, 4096)
    });
    put_when_made(&store, b"first");
    store.commit().unwrap();
    let (go, may_go) = channel::<()>();
    let (begun, is_begun) = channel();
    let may_go = Mutex::new(may_go);
    env.before_changes(move |change| {
        if is_log_write(change) {
            let _ = begun.send(());
            let _ = may_go.lock().unwrap().recv();
        }
        Ok(())
    });
    let fill = || store.append(message("t", 0, &[b'x'; 1000]));
    // The committer writes what waits, and the disk stalls.
    let mut stored = 1;
    let refused = loop {
        match fill() {
            Ok(_) => stored += 1,
            Err(refused) => break refused,
        }
    };
    is_begun.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(refused, Error::PoolFull { .. }), "{refused}");
    assert_eq!(refused.put_status(), Some("OS_PAGE_CACHE_BUSY"));
    assert!(
        store
            .appender(None)
            .checked(&mut message("t", 0, &[b'x'; 1000]))
            .unwrap()
            .try_append()
            .unwrap()
            .is_none()
    );
    assert_eq!(store.stats().log.pool.unwrap().available, 0);
    assert!(store.stats().log.pool.unwrap().is_low() && store.stats().log.pool.unwrap().waits > 0);
    env.heal();
    drop(go);
    // It finds room at once then, however late the committer runs.
    store.commit().unwrap();
    fill().unwrap();
    store.catch_up(Duration::from_secs(20)).unwrap();
    assert_eq!(bodies(store.reader(), "t", 0).len(), stored + 1);
    assert_eq!(available(&store), 1);
    store.close().unwrap();
}

/// A store whose next write to the log waits until the sender is dropped.
fn stalled(place: &Place, config: StoreConfig) -> (CountingEnv, MessageStore, Sender<()>) {
    let (env, store) = place.create_counting(config);
    put_when_made(&store, b"first");
    store.commit().unwrap();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    env.before_changes(move |change| {
        if is_log_write(change) {
            let _ = may_go.lock().unwrap().recv();
        }
        Ok(())
    });
    (env, store, go)
}

#[test]
fn an_append_that_needs_room_asks_for_the_commit() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        commit_interval_commit_log: 3_600_000,
        commit_commit_log_thorough_interval: 3_600_000,
        // A flush would commit, too.
        flush_interval_commit_log: 3_600_000,
        flush_commit_log_thorough_interval: 3_600_000,
        wait_time_out: 30_000,
        ..pool(1, 4096)
    });
    for _ in 0..20 {
        // Less than what is committed without being asked, and then nearly the whole pool.
        put(&store, "t", &[b'x'; 700]);
        put(&store, "t", &[b'y'; 3600]);
    }
    store.close().unwrap();
}

#[test]
fn no_read_waits_for_a_disk_that_stalls_at_a_commit() {
    let place = Place::new();
    let (_env, store, go) = stalled(&place, pool(2, 4096));
    let waits = put(&store, "t", b"waits");
    let begin = Instant::now();
    assert!(!store.catch_up(Duration::from_millis(100)).unwrap());
    assert!(!store.make_readable(Duration::from_millis(100)).unwrap());
    assert!(matches!(
        store.wait_dispatched(waits, Some(Instant::now() + Duration::from_millis(50))),
        Err(Error::TimedOut { .. })
    ));
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    drop(go);
    store.wait_dispatched(waits, Some(soon())).unwrap();
    assert_eq!(bodies(store.reader(), "t", 0), [&b"first"[..], b"waits"]);
}

#[test]
fn a_record_larger_than_the_pool_waits_outside_the_lock_for_earlier_ones() {
    let place = Place::new();
    let (_env, store, go) = stalled(
        &place,
        StoreConfig {
            wait_time_out: 100,
            ..pool(1, 4096)
        },
    );
    put(&store, "t", b"waits");
    let large = || message("t", 0, &[b'L'; 9000]);
    assert!(
        store
            .appender(None)
            .checked(&mut large())
            .unwrap()
            .try_append()
            .unwrap()
            .is_none()
    );
    assert!(matches!(store.append(large()), Err(Error::PoolFull { .. })));
    // Nobody holds the lock.
    put(&store, "t", b"small");
    drop(go);
    store.commit().unwrap();
    store.append(large()).unwrap();
    assert!(store.catch_up(Duration::from_secs(60)).unwrap());
    let lengths: Vec<_> = bodies(store.reader(), "t", 0).iter().map(Vec::len).collect();
    assert_eq!(lengths, [5, 5, 5, 9000]);
}

#[test]
fn threads_with_records_larger_than_the_pool_pass_it_beside_others() {
    let place = Place::new();
    let store = place.create_with(pool(1, 4096));
    thread::scope(|scope| {
        for thread in 0..8u8 {
            let store = &store;
            scope.spawn(move || {
                for _ in 0..30 {
                    let body = vec![thread; if thread < 2 { 6000 } else { 300 }];
                    store.append(message("t", i32::from(thread), &body)).unwrap();
                }
            });
        }
    });
    assert!(store.catch_up(Duration::from_secs(60)).unwrap());
    for thread in 0..8u8 {
        let found = bodies(store.reader(), "t", i32::from(thread));
        assert!(found.len() == 30 && found.iter().flatten().all(|byte| *byte == thread));
    }
}

#[test]
fn a_full_disk_is_the_reason_that_an_append_gets_when_the_pool_stays_full() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        wait_time_out: 500,
        ..pool(1, 4096)
    });
    put_when_made(&store, b"first");
    store.commit().unwrap();
    env.before_changes(|change| {
        if is_log_write(change) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    let (mut stored, deadline) = (1, soon());
    let refused = loop {
        match store.append(message("t", 0, &[b'x'; 1000])) {
            Ok(_) => stored += 1,
            // The committer has not run in this time.
            Err(Error::PoolFull { .. }) if Instant::now() < deadline => {}
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
    // A close says so, too, and loses nothing of what was appended if it is called again.
    assert!(matches!(store.close(), Err(Error::DiskFull { .. })));
    env.heal();
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), stored);
}

#[test]
fn a_close_beside_a_sync_that_finds_no_room_returns_and_can_be_repeated() {
    for _ in 0..10 {
        let place = Place::new();
        let (env, store) = place.create_counting(StoreConfig {
            flush_interval_commit_log: 1,
            flush_commit_log_thorough_interval: 0,
            ..pool(2, 4096)
        });
        put(&store, "t", b"first");
        store.flush().unwrap();
        let (begun, is_begun) = channel();
        env.before_changes(move |change| {
            if is_log_write(change) {
                let _ = begun.send(());
                thread::sleep(Duration::from_millis(20));
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        });
        put(&store, "t", b"waits");
        // Threads that the test does not wait for: it fails where one of them hangs.
        let store = Arc::new(store);
        for _ in 0..2 {
            let store = store.clone();
            thread::spawn(move || store.flush());
        }
        is_begun.recv().unwrap();
        let (closed, is_closed) = channel();
        let closing = store.clone();
        thread::spawn(move || closed.send(closing.close()));
        let outcome = is_closed.recv_timeout(Duration::from_secs(20));
        assert!(matches!(outcome, Ok(Ok(()) | Err(Error::DiskFull { .. }))), "{outcome:?}");
        env.heal();
        store.close().unwrap();
        assert_eq!(bodies(&place.reader(), "t", 0), [&b"first"[..], b"waits"]);
    }
}

#[test]
fn the_log_is_the_same_whatever_the_pool_is() {
    let config = |buffers: usize| StoreConfig {
        mapped_file_size_commit_log: Some(64 << 10),
        transient_store_pool_enable: buffers > 0,
        transient_store_pool_size: buffers.max(1),
        transient_store_pool_buffer_size: 4096,
        ..small()
    };
    let logs: Vec<_> = [0, 1, 2, 7, 40]
        .map(|buffers| {
            let place = Place::new();
            let (env, store) = place.create_counting(config(buffers));
            env.set_now(1_700_000_000_000);
            for round in 0..40usize {
                // Records of all sizes, up to more than the largest pool but one.
                let len = [1, 700, 3900, 4096, 5000, 9000, 28_000, 40_000][round % 8] + round;
                put(&store, "t", &vec![round as u8; len]);
                let batch = |len: usize| {
                    (0..3)
                        .map(|_| message("t", 1, &[7; 9000][..len]))
                        .collect::<Vec<Message<'_>>>()
                };
                store.appender(None).append_all(batch(round * 30), &mut Vec::new()).unwrap();
                append_together(&store, batch(round * 200)).unwrap();
            }
            store.close().unwrap();
            contents(&place.at("commitlog"))
        })
        .into();
    assert!(logs[0].len() > 15, "{} segments", logs[0].len());
    assert!(logs.iter().all(|log| *log == logs[0]));
}

#[test]
fn a_thousand_rolls_with_two_buffers_lose_nothing() {
    let place = Place::new();
    let store = place.create_with(pool(2, 4096));
    let body = vec![b'x'; SEGMENT as usize - 300];
    for _ in 0..1000 {
        put(&store, "t", &body);
    }
    store.wait_dispatched(store.appended_offset() - 1, Some(soon())).unwrap();
    let stats = store.stats().log;
    assert_eq!((stats.segments.begun, stats.total().times), (1000, 1000));
    assert!(bodies(store.reader(), "t", 0).iter().all(|stored| *stored == body));
    store.close().unwrap();
}

#[test]
fn a_failed_commit_is_reported_to_everybody_and_committed_bytes_stay() {
    let place = Place::new();
    let (env, store) = place.create_counting(pool(2, 4096));
    put(&store, "t", b"committed");
    store.flush().unwrap();
    store.wait_dispatched(0, Some(soon())).unwrap();
    // Whoever commits what is appended from now on fails.
    env.before_changes(|change| if is_log_write(change) { Err(io_error()) } else { Ok(()) });
    put(&store, "t", b"lost");
    let refused = store.flush().unwrap_err();
    assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
    env.heal();
    for refused in [
        store.append(message("t", 0, b"x")).map(drop),
        store.flush().map(drop),
        store.commit(),
    ] {
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    }
    assert_eq!(bodies(store.reader(), "t", 0), [b"committed"]);
    store.close().unwrap_err();
    drop(store);
    let store = place.reopen();
    assert_eq!(bodies(store.reader(), "t", 0), [b"committed"]);
}

#[test]
fn a_commit_that_finds_no_room_is_made_again_and_poisons_nothing() {
    let place = Place::new();
    let (env, store) = place.create_counting(pool(2, 4096));
    put(&store, "t", b"first");
    store.commit().unwrap();
    env.before_changes(|change| {
        if is_log_write(change) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    put(&store, "t", b"waits");
    assert!(matches!(store.flush(), Err(Error::DiskFull { .. })));
    let durable = store.appender(Some(true)).append(message("t", 0, b"asked for")).unwrap_err();
    assert!(
        matches!(&durable, Error::NotDurable { cause, .. } if matches!(**cause, Error::DiskFull { .. })),
        "{durable}"
    );
    env.heal();
    store.flush().unwrap();
    assert!(store.catch_up(Duration::from_secs(20)).unwrap());
    assert_eq!(bodies(store.reader(), "t", 0), [&b"first"[..], b"waits", b"asked for"]);
    store.close().unwrap();
}

#[test]
fn sixty_four_threads_share_a_small_pool() {
    for flush_disk_type in [FlushDiskType::Async, FlushDiskType::Sync] {
        let place = Place::new();
        let store = place.create_with(StoreConfig {
            flush_disk_type,
            os_page_cache_busy_time_out_mills: 1_000_000,
            ..pool(3, 4096)
        });
        thread::scope(|scope| {
            for thread in 0..64u8 {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..20u8 {
                        let body = vec![thread; 100 + usize::from(number) * 300];
                        store.append(message("t", i32::from(thread), &body)).unwrap();
                    }
                });
            }
        });
        assert!(store.catch_up(Duration::from_secs(60)).unwrap());
        for thread in 0..64u8 {
            let found = bodies(store.reader(), "t", i32::from(thread));
            assert!(found.len() == 20 && found.iter().flatten().all(|byte| *byte == thread));
        }
        store.close().unwrap();
    }
}

#[test]
fn an_append_waits_until_it_is_durable_in_a_store_with_a_pool_too() {
    let place = Place::new();
    let store = place.create_with(pool(2, 4096));
    let done = store.appender(Some(true)).append(message("t", 0, b"x")).unwrap();
    assert!(store.flushed_offset() >= done.appended.end());
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        ..pool(2, 4096)
    });
    let done = append_producer_batch(&store, &batch(&[10, 20, 30]), None).unwrap();
    assert!(store.flushed_offset() >= done[2].appended.end());
}

#[test]
fn the_ring_gives_back_what_was_written_at_every_place() {
    let pool = TransientStorePool::new(3, 4096).unwrap();
    assert_eq!((pool.count(), pool.buffer_size(), pool.capacity()), (3, 4096, 12_288));
    for offset in (0..30_000u64).step_by(997) {
        for len in [0, 1, 4095, 4096, 4097, 9000, 12_288] {
            let bytes: Vec<u8> = (0..len).map(|at| (offset as usize + at) as u8).collect();
            assert!(pool.write(offset, &[&bytes]));
            let read = pool.read(offset..offset + len as u64).unwrap().concat();
            assert!(read == bytes, "{len} bytes at {offset}");
        }
        assert!(!pool.write(offset, &[&[0; 12_289]]));
        assert!(pool.read(offset..offset + 12_289).is_none());
    }
}

#[test]
fn a_pool_of_no_buffer_or_of_odd_buffers_is_refused() {
    for (config, option) in [
        (pool(0, 4096), "transient_store_pool_size"),
        (pool(1, 0), "transient_store_pool_buffer_size"),
        (pool(1, 5000), "transient_store_pool_buffer_size"),
        (pool(1025, 4096), "transient_store_pool_size"),
        (pool(1024, usize::MAX & !4095), "transient_store_pool_buffer_size"),
        (
            StoreConfig {
                commit_interval_commit_log: 0,
                ..small()
            },
            "commit_interval_commit_log",
        ),
    ] {
        let refused = config.validate().unwrap_err().to_string();
        assert!(refused.starts_with(option), "{refused}");
    }
}

/// Returns true if a change is a write to a segment, under the name that it was made with.
fn is_log_write(change: &str) -> bool {
    change.starts_with("write ") && change.contains("/mqstore-new-000")
}
