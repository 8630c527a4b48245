//! Closing: every acknowledged message is kept, every segment that was made ahead is removed, and no waiter hangs.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{Checkpoint, encode_lock_file};

use super::services::stepped;
use super::{Place, SEGMENT, bodies, message, put, put_in_file, record_of, small, soon, with};

#[test]
fn a_clean_close_stamps_the_checkpoint_and_removes_abort() {
    let place = Place::new();
    let store = place.create();
    assert_eq!(fs::read(place.at("lock")).unwrap(), encode_lock_file(0));
    let abort = fs::read_to_string(place.at("abort")).unwrap();
    assert_eq!(abort, std::process::id().to_string());
    let mut last = None;
    for n in 0..500 {
        let keyed = with(message("orders", 0, b"body"), &[("KEYS", &format!("k{n}"))]);
        last = Some(store.append(keyed).unwrap().appended);
    }
    store.close().unwrap();
    assert!(!place.at("abort").exists());
    let bytes = fs::read(place.at("checkpoint")).unwrap();
    assert_eq!(bytes.len(), 4096);
    let checkpoint = Checkpoint::decode(&bytes);
    let stored = last.unwrap().store_time;
    assert_eq!(
        (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp),
        (stored, stored)
    );
    // The index stamp is the end time of the last full file, which is the one before the last.
    let index = place.names("index");
    assert_eq!(index.len(), 2);
    let full = fs::read(place.at("index").join(&index[0])).unwrap();
    assert_eq!(checkpoint.index_msg_timestamp.to_be_bytes(), full[8..16]);
    assert!(matches!(store.append(message("t", 0, b"")), Err(Error::Closed)));
    assert!(store.flush().is_ok());
    store.close().unwrap();
}

#[test]
fn a_store_without_a_message_closes_and_opens_again() {
    let place = Place::new();
    for round in 0..2 {
        let store = if round == 0 { place.create() } else { place.reopen() };
        assert_eq!(store.flush().unwrap(), 0);
        store.close().unwrap();
        assert_eq!(place.names("commitlog"), [""; 0]);
        assert!(place.names("consumequeue").is_empty() && place.names("index").is_empty());
        assert_eq!(
            Checkpoint::decode(&fs::read(place.at("checkpoint")).unwrap()),
            Checkpoint::default()
        );
    }
}

#[test]
fn messages_acknowledged_before_a_close_are_queued_whoever_was_appending() {
    for _ in 0..20 {
        let place = Place::new();
        let store = Arc::new(place.create());
        let barrier = Arc::new(Barrier::new(9));
        let acknowledged: Vec<_> = (0..8)
            .map(|thread| {
                let (store, barrier) = (store.clone(), barrier.clone());
                thread::spawn(move || {
                    barrier.wait();
                    let mut count = 0;
                    while store.append(message("orders", thread, b"body")).is_ok() {
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        barrier.wait();
        thread::sleep(Duration::from_millis(3));
        store.close().unwrap();
        let reader = place.reader();
        assert_eq!(reader.recovery().undispatched, 0);
        for (queue, count) in (0..).zip(acknowledged) {
            assert_eq!(bodies(&reader, "orders", queue).len(), count.join().unwrap());
        }
    }
}

#[test]
fn a_message_appended_during_a_close_is_dispatched_or_refused() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    put(&store, "t", b"first");
    let (inside, is_inside) = channel();
    env.before_changes(move |change| {
        // The clock is read with the lock held.
        if change == "clock" {
            let _ = inside.send(());
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    });
    thread::scope(|scope| {
        let appending = scope.spawn(|| store.append(message("t", 0, b"second")));
        is_inside.recv().unwrap();
        store.close().unwrap();
        let count = if appending.join().unwrap().is_ok() { 2 } else { 1 };
        let reader = place.reader();
        assert_eq!((reader.recovery().undispatched, bodies(&reader, "t", 0).len()), (0, count));
    });
}

#[test]
fn a_closed_store_has_only_the_segments_that_it_used() {
    for _ in 0..10 {
        let place = Place::new();
        let store = place.create();
        let end = AtomicI64::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let done = store.append(record_of(4000)).unwrap().appended;
                        end.fetch_max(done.physical_offset, Ordering::SeqCst);
                    }
                });
            }
        });
        store.close().unwrap();
        // Four records of 4,000 bytes fit into a segment.
        assert_eq!(place.names("commitlog").len(), 8 * 20 / 4);
        assert_eq!(end.into_inner(), 39 * SEGMENT as i64 + 12_000);
        place.reopen().close().unwrap();
    }
}

#[test]
fn a_segment_that_is_made_while_the_store_closes_is_removed_again() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    put(&store, "t", &[0; 10_000]);
    let (made, is_made) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = std::sync::Mutex::new(may_go);
    env.before_changes(move |change| {
        if change.starts_with("sync directory SegmentRenamed") && change.ends_with("commitlog") {
            made.send(()).unwrap();
            may_go.lock().unwrap().recv().unwrap();
        }
        Ok(())
    });
    thread::scope(|scope| {
        let rolling = scope.spawn(|| store.append(message("t", 0, &[1; 10_000])));
        is_made.recv().unwrap();
        let closing = scope.spawn(|| store.close());
        // Nothing is appended once the close has begun.
        while matches!(store.expect_appended(-1), Err(Error::Invalid { .. })) {
            thread::sleep(Duration::from_millis(1));
        }
        go.send(()).unwrap();
        assert!(matches!(rolling.join().unwrap(), Err(Error::Closed)));
        closing.join().unwrap().unwrap();
    });
    assert_eq!(place.names("commitlog"), ["00000000000000000000"]);
    let store = place.reopen();
    assert_eq!(put(&store, "t", &[2; 10_000]), SEGMENT as i64);
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 2);
}

#[test]
fn an_unsynced_segment_name_during_a_close_fails_the_close_in_each_mode() {
    for flush_disk_type in [FlushDiskType::Async, FlushDiskType::Sync] {
        let place = Place::new();
        let config = StoreConfig {
            flush_disk_type,
            ..small()
        };
        let (env, store) = place.create_counting(config);
        let (made, is_made) = channel();
        let (go, may_go) = channel::<()>();
        let may_go = std::sync::Mutex::new(may_go);
        let first = AtomicBool::new(true);
        env.before_changes(move |change| {
            let is_name = change.starts_with("sync directory SegmentRenamed") && change.ends_with("commitlog");
            // The second segment, which is made ahead.
            if is_name && !first.swap(false, Ordering::SeqCst) {
                made.send(()).unwrap();
                let _ = may_go.lock().unwrap().recv();
                return Err(std::io::Error::from_raw_os_error(5));
            }
            Ok(())
        });
        put(&store, "t", b"x");
        is_made.recv().unwrap();
        thread::scope(|scope| {
            let closing = scope.spawn(|| store.close());
            let begun = Instant::now();
            // Where readers see what is durable, a close that has flushed ends their waits, which shows when that was. In the other mode nothing
            // shows it, and the store fails in the same way if the close is later.
            let is_flushed = || match flush_disk_type {
                FlushDiskType::Sync => matches!(store.wait_durable(i64::MAX / 2, Some(Instant::now())), Err(Error::Closed)),
                FlushDiskType::Async => begun.elapsed() > Duration::from_millis(100),
            };
            while !is_flushed() {
                thread::sleep(Duration::from_millis(1));
            }
            drop(go);
            let closed = closing.join().unwrap();
            assert!(
                matches!(closed, Err(Error::Poisoned { .. })),
                "{flush_disk_type:?}: {closed:?}"
            );
        });
        assert!(place.at("abort").exists());
        drop(store);
        env.heal();
        let store = place.reopen();
        put(&store, "t", b"y");
        store.close().unwrap();
        assert_eq!(bodies(&place.reader(), "t", 0).len(), 2);
    }
}

#[test]
fn a_second_close_returns_when_the_first_is_done() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    put(&store, "t", b"x");
    let (started, has_started) = channel();
    env.before_changes(move |change| {
        if change.starts_with("sync Checkpoint") {
            started.send(()).unwrap();
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    });
    thread::scope(|scope| {
        scope.spawn(|| store.close().unwrap());
        has_started.recv().unwrap();
        store.close().unwrap();
        assert!(!place.at("abort").exists());
    });
}

#[test]
fn a_waiter_for_more_than_a_closed_store_has_gets_an_error() {
    let place = Place::new();
    let store = place.create();
    let last = put(&store, "t", b"x");
    store.close().unwrap();
    store.wait_durable(last, Some(soon())).unwrap();
    store.wait_dispatched(last, Some(soon())).unwrap();
    let beyond = last + 10_000;
    assert!(matches!(store.wait_durable(beyond, Some(soon())), Err(Error::Closed)));
    assert!(matches!(store.wait_dispatched(beyond, Some(soon())), Err(Error::Closed)));
}

#[test]
fn waiting_ends_at_its_deadline() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    put_in_file(&place, &store, "t", b"in its file");
    let stalled = Arc::new(AtomicBool::new(true));
    let until = stalled.clone();
    let (stuck, is_stuck) = channel();
    env.before_changes(move |change| {
        let is_queue = change.starts_with("write ") && change.contains("consumequeue/t/0/");
        if is_queue {
            let _ = stuck.send(());
        }
        let give_up = soon();
        while (change.starts_with("sync LogRange") || is_queue) && until.load(Ordering::SeqCst) && Instant::now() < give_up {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    // The dispatcher is blocked while it writes the first entry.
    put(&store, "t", b"first");
    is_stuck.recv().unwrap();
    let last = put(&store, "t", b"x");
    let started = Instant::now();
    let deadline = || Some(Instant::now() + Duration::from_millis(30));
    assert!(matches!(store.wait_durable(last, deadline()), Err(Error::TimedOut { .. })));
    assert!(matches!(store.wait_dispatched(last, deadline()), Err(Error::TimedOut { .. })));
    assert!(started.elapsed() >= Duration::from_millis(60) && started.elapsed() < Duration::from_secs(50));
    stalled.store(false, Ordering::SeqCst);
    store.wait_durable(last, Some(soon())).unwrap();
    store.wait_dispatched(last, Some(soon())).unwrap();
    assert!(store.flushed_offset() > last && store.dispatched_offset() > last);
    store.close().unwrap();
}

#[test]
fn a_dropped_store_is_closed() {
    let place = Place::new();
    put(&place.create(), "t", b"x");
    assert!(place.reader().recovery().clean_exit);
    assert_eq!(bodies(&place.reader(), "t", 0), [b"x"]);
}
