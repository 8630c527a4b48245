//! Devices that fail. After a full disk at a roll the store works again; any other failure poisons it and is never tried again.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::error::Error;

use super::services::stepped;
use super::{Place, SEGMENT, bodies, io_error, message, put, put_in_file, record_of, small, soon};

fn full() -> io::Error {
    io::Error::from_raw_os_error(28)
}

#[test]
fn a_full_disk_at_a_roll_stores_nothing_leaves_nothing_and_heals() {
    for step in ["create ", "allocate ", "sync SegmentAllocated ", "rename "] {
        let place = Place::new();
        let (env, store) = stepped(&place);
        put(&store, "t", &[0; 10_000]);
        env.before_changes(move |change| {
            let is_segment = change.contains("mqstore-new-") || change.contains("commitlog");
            if change.starts_with(step) && is_segment && !change.contains("consumequeue") {
                Err(full())
            } else {
                Ok(())
            }
        });
        for _ in 0..2 {
            let refused = store.append(message("t", 0, &[1; 10_000])).unwrap_err();
            assert!(matches!(refused, Error::DiskFull { .. }), "{step}{refused}");
            assert_eq!(place.names("commitlog"), ["00000000000000000000"], "{step}");
            let left: Vec<_> = super::names(&place.store);
            assert!(!left.iter().any(|name| name.starts_with("mqstore-new")), "{step}{left:?}");
        }
        // A message that still fits is stored.
        put(&store, "t", b"small");
        env.heal();
        assert_eq!(put(&store, "t", &[1; 10_000]), SEGMENT as i64);
        store.flush().unwrap();
        store.close().unwrap();
        let read = bodies(&place.reader(), "t", 0);
        assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), [10_000, 5, 10_000]);
    }
}

#[test]
fn a_batch_on_a_full_disk_reports_what_it_stored() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    put(&store, "t", b"first");
    env.before_changes(|change| if change.starts_with("allocate") { Err(full()) } else { Ok(()) });
    let mut done = Vec::new();
    let batch = (0..10).map(|_| record_of(4000)).collect();
    assert!(matches!(
        store.appender(None).append_all(batch, &mut done),
        Err(Error::DiskFull { .. })
    ));
    assert_eq!(done.len(), 4);
    env.heal();
    store.append(record_of(4000)).unwrap();
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 6);
}

/// Fails every change whose text starts so, and counts the attempts.
fn fail(env: &crate::counting_env::CountingEnv, step: &'static str) -> Arc<AtomicUsize> {
    let tried = Arc::new(AtomicUsize::new(0));
    let counter = tried.clone();
    env.before_changes(move |change| {
        if change.starts_with(step) {
            counter.fetch_add(1, Ordering::SeqCst);
            return Err(io_error());
        }
        Ok(())
    });
    tried
}

fn never_flushing() -> StoreConfig {
    StoreConfig {
        flush_interval_commit_log: 1_000_000,
        ..small()
    }
}

#[test]
fn a_failed_sync_poisons_the_store_and_is_never_tried_again() {
    let place = Place::new();
    let (env, store) = place.create_counting(never_flushing());
    let first = put(&store, "t", b"first");
    let durable = store.flush().unwrap();
    let last = put(&store, "t", b"last");
    let tried = fail(&env, "sync LogRange");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert!(matches!(store.wait_durable(last, None), Err(Error::Poisoned { flushed, .. }) if flushed == durable));
            });
        }
    });
    assert!(matches!(store.flush(), Err(Error::Poisoned { flushed, .. }) if flushed == durable));
    assert!(matches!(store.append(message("t", 0, b"more")), Err(Error::Poisoned { flushed, .. }) if flushed == durable));
    env.heal();
    assert!(matches!(store.flush(), Err(Error::Poisoned { .. })));
    assert!(matches!(store.append(message("t", 0, b"more")), Err(Error::Poisoned { .. })));
    assert_eq!(tried.load(Ordering::SeqCst), 1);
    // What was durable stays so, and is read.
    assert_eq!(store.flushed_offset(), durable);
    store.wait_durable(first, None).unwrap();
    let waited = store.wait_dispatched(i64::MAX - 1, Some(soon()));
    assert!(
        matches!(waited, Err(Error::Poisoned { flushed, .. }) if flushed == durable),
        "{waited:?}"
    );
    assert_eq!(store.reader().message_at(first).unwrap().view().body(), b"first");
    assert!(matches!(store.close(), Err(Error::Poisoned { .. })));
    assert!(place.at("abort").exists() && !place.at("checkpoint").exists());
}

#[test]
fn a_flush_that_fails_for_its_caller_is_never_tried_again() {
    let place = Place::new();
    let (env, store) = place.create_counting(never_flushing());
    put(&store, "t", b"x");
    let tried = fail(&env, "sync LogRange");
    assert!(matches!(store.flush(), Err(Error::Poisoned { .. })));
    env.heal();
    assert!(matches!(store.flush(), Err(Error::Poisoned { .. })));
    assert!(matches!(store.append(message("t", 0, b"more")), Err(Error::Poisoned { .. })));
    assert_eq!((tried.load(Ordering::SeqCst), store.flushed_offset()), (1, 0));
    assert!(matches!(store.close(), Err(Error::Poisoned { .. })));
}

#[test]
fn a_new_segment_whose_name_could_not_be_synced_poisons_the_store() {
    for dir in ["commitlog", "store"] {
        let place = Place::new();
        let (env, store) = place.create_counting(never_flushing());
        let tried = Arc::new(AtomicUsize::new(0));
        let counter = tried.clone();
        // That of the first segment succeeds. The second one is made as soon as a message is in the first.
        env.before_changes(move |change| {
            let is_counted = change.starts_with("sync directory SegmentRenamed") && change.ends_with(dir);
            if is_counted && counter.fetch_add(1, Ordering::SeqCst) > 0 {
                return Err(io_error());
            }
            Ok(())
        });
        put(&store, "t", &[0; 10_000]);
        for _ in 0..3 {
            let refused = store.append(message("t", 0, &[1; 10_000])).unwrap_err();
            assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
        }
        assert!(matches!(store.append(message("t", 0, b"small")), Err(Error::Poisoned { .. })));
        assert_eq!(tried.load(Ordering::SeqCst), 2);
        assert!(store.close().is_err());
        assert!(place.at("abort").exists());
    }
}

#[test]
fn a_roll_does_not_wait_for_a_sync_that_runs() {
    let place = Place::new();
    let (env, store) = place.create_counting(never_flushing());
    put(&store, "t", &[0; 10_000]);
    let (syncing, is_syncing) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    env.before_changes(move |change| {
        if change.starts_with("sync LogRange") {
            let _ = syncing.send(());
            let _ = may_go.lock().unwrap().recv();
        }
        Ok(())
    });
    thread::scope(|scope| {
        let flushing = scope.spawn(|| store.flush());
        is_syncing.recv().unwrap();
        let (rolled, has_rolled) = channel();
        let store = &store;
        scope.spawn(move || {
            put(store, "t", &[1; 10_000]);
            rolled.send(()).unwrap();
        });
        let in_time = has_rolled.recv_timeout(Duration::from_secs(5));
        drop(go);
        assert!(in_time.is_ok(), "the roll waited for the sync");
        assert!(flushing.join().unwrap().unwrap() < SEGMENT as i64);
    });
    env.heal();
    store.close().unwrap();
}

#[test]
fn waiters_share_a_sync() {
    let place = Place::new();
    let (env, store) = place.create_counting(never_flushing());
    env.before_changes(|change| {
        if change.starts_with("sync LogRange") {
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    });
    let all_appended = Barrier::new(64);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let offset = put(&store, "t", b"x");
                all_appended.wait();
                store.wait_durable(offset, None).unwrap();
                assert!(store.flushed_offset() > offset);
            });
        }
    });
    let syncs = env
        .changes()
        .iter()
        .filter(|change| change.starts_with("sync LogRange"))
        .count();
    assert!(syncs <= 2, "{syncs} syncs for 64 waiters");
    store.close().unwrap();
}

#[test]
fn a_queue_that_cannot_be_written_poisons_the_store_and_stays_unclean() {
    for (step, what) in [("write", "consumequeue"), ("rename", "consumequeue"), ("write", "/index/")] {
        let place = Place::new();
        let (env, store) = place.create_counting(small());
        env.before_changes(move |change| {
            if change.starts_with(step) && change.contains(what) {
                Err(io_error())
            } else {
                Ok(())
            }
        });
        let offset = store
            .append(super::with(message("t", 0, b"x"), &[("KEYS", "k")]))
            .unwrap()
            .appended
            .physical_offset;
        // Without a pause, so that the first refusal is met as soon as it can be.
        let deadline = soon();
        while !matches!(store.append(message("t", 0, b"x")), Err(Error::Poisoned { .. })) {
            assert!(Instant::now() < deadline, "{step} {what}");
        }
        let Err(Error::Poisoned { cause, flushed }) = store.flush() else {
            panic!("{step} {what}: a poisoned store was flushed")
        };
        let later = store.wait_dispatched(offset, Some(soon()));
        assert!(
            matches!(later, Ok(()) | Err(Error::Poisoned { .. })),
            "{step} {what}: {later:?}"
        );
        let refused = [
            store.append(message("t", 0, b"x")).map(drop),
            store.wait_durable(i64::MAX - 1, None),
            store.wait_dispatched(i64::MAX - 1, None),
            store.wait_durable(offset, Some(soon())),
        ];
        let is_refused = |outcome: &Result<(), Error>| matches!(outcome, Err(Error::Poisoned { cause: same, .. }) if same.to_string() == cause.to_string());
        assert!(
            refused[..3].iter().all(is_refused),
            "{step} {what}: {cause}, then {refused:?}"
        );
        assert!(
            flushed > offset || is_refused(&refused[3]),
            "{step} {what}: {cause}, then {refused:?}"
        );
        assert!(is_refused(&store.close()));
        assert!(store.flushed_offset() > offset);
        assert!(place.at("abort").exists());
    }
}

#[test]
fn a_close_after_a_failed_dispatch_syncs_the_log_and_raises_the_failure() {
    let place = Place::new();
    let (env, store) = place.create_counting(never_flushing());
    env.before_changes(|change| {
        if change.starts_with("write") && change.contains("consumequeue") {
            Err(io_error())
        } else {
            Ok(())
        }
    });
    let offset = put(&store, "t", b"x");
    let never = store.wait_dispatched(offset + 10_000, Some(soon()));
    assert!(matches!(never, Err(Error::Poisoned { .. })), "{never:?}");
    assert_eq!(store.flushed_offset(), 0);
    let end = store.reader().physical_bounds().end;
    assert!(matches!(store.close(), Err(Error::Poisoned { flushed, .. }) if flushed == end));
    assert_eq!(store.flushed_offset(), end);
    assert!(place.at("abort").exists());
}

#[test]
fn a_record_damaged_before_its_dispatch_poisons_the_store_without_a_hang() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    put_in_file(&place, &store, "t", b"in its file");
    let (stuck, is_stuck) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    env.before_changes(move |change| {
        if change.starts_with("write ") && change.contains("consumequeue/t/0/") {
            let _ = stuck.send(());
            let _ = may_go.lock().unwrap().recv();
        }
        Ok(())
    });
    put(&store, "t", b"first");
    is_stuck.recv().unwrap();
    let second = put(&store, "t", b"second");
    let segment = fs::OpenOptions::new()
        .write(true)
        .open(place.at("commitlog/00000000000000000000"))
        .unwrap();
    std::os::unix::fs::FileExt::write_all_at(&segment, b"rubbish", second as u64).unwrap();
    drop(go);
    assert!(matches!(
        store.wait_dispatched(second, Some(soon())),
        Err(Error::Poisoned { .. })
    ));
    assert!(matches!(store.append(message("t", 0, b"third")), Err(Error::Poisoned { .. })));
    let (closed, is_closed) = channel();
    thread::spawn(move || closed.send(store.close().is_err()));
    assert!(is_closed.recv_timeout(Duration::from_secs(20)).unwrap());
    assert!(place.at("abort").exists());
}

#[test]
fn a_failure_at_any_step_of_the_close_leaves_abort_in_place() {
    let steps = [
        "sync LogRange",
        "sync everything QueueFiles",
        "sync IndexFile",
        "sync directory IndexDirectory",
        "sync Checkpoint",
    ];
    for step in steps {
        let place = Place::new();
        let (env, store) = place.create_counting(never_flushing());
        let keyed = super::with(message("t", 0, b"x"), &[("KEYS", "k")]);
        let offset = store.append(keyed).unwrap().appended.physical_offset;
        store.wait_dispatched(offset, Some(soon())).unwrap();
        let tried = fail(&env, step);
        assert!(store.close().is_err(), "{step}");
        assert_eq!(tried.load(Ordering::SeqCst), 1, "{step}");
        assert!(place.at("abort").exists(), "{step}");
        assert!(store.close().is_ok(), "a second call does nothing");
    }
}

#[test]
fn a_disk_too_full_for_queues_and_index_keeps_entries_in_memory_and_heals() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        max_hash_slot_num: Some(2),
        max_index_num: Some(4),
        mapped_file_size_commit_log: Some(1 << 20),
        ..small()
    });
    let keyed = |n: u8| {
        let keys = format!("a{n} b{n}");
        let mut message = super::with(message("t", 0, b""), &[("KEYS", &keys)]);
        message.body = vec![n].into();
        message
    };
    let put = |n: u8| store.append(keyed(n)).unwrap().appended.physical_offset;
    store.wait_dispatched(put(0), Some(soon())).unwrap();
    env.before_changes(|change| {
        let is_write = ["create ", "write ", "allocate "].iter().any(|what| change.starts_with(what));
        if is_write && (change.contains("/consumequeue/") || change.contains("/index/")) {
            Err(full())
        } else {
            Ok(())
        }
    });
    // The first file takes one more key; the second key of this message finds the disk full.
    for n in 1..50 {
        put(n);
    }
    let last = put(50);
    let soon_over = Some(Instant::now() + Duration::from_millis(100));
    assert!(matches!(store.wait_dispatched(last, soon_over), Err(Error::TimedOut { .. })));
    assert_eq!(store.flush().unwrap(), store.reader().physical_bounds().end);
    env.heal();
    store.wait_dispatched(last, Some(soon())).unwrap();
    store.close().unwrap();
    let reader = place.reader();
    let expected: Vec<Vec<u8>> = (0..=50).map(|n| vec![n]).collect();
    assert_eq!(bodies(&reader, "t", 0), expected);
    // Each key once: 102 of them, three to a file.
    let counts = place.names("index").into_iter().map(|name| {
        let bytes = fs::read(place.at("index").join(name)).unwrap();
        i32::from_be_bytes(bytes[36..40].try_into().unwrap()) - 1
    });
    assert_eq!(counts.collect::<Vec<_>>(), [3; 34]);
    assert!(super::names(&place.at("consumequeue/t")).iter().all(|name| name == "0"));
}

#[test]
fn a_disk_too_full_for_the_queues_fails_the_close_and_leaves_abort() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    env.before_changes(|change| {
        if change.starts_with("create ") && change.contains("/consumequeue/") {
            Err(full())
        } else {
            Ok(())
        }
    });
    put(&store, "t", b"x");
    thread::sleep(Duration::from_millis(50));
    put(&store, "t", b"x");
    assert!(matches!(store.close(), Err(Error::DiskFull { .. })));
    assert!(place.at("abort").exists());
}

#[test]
fn a_refusal_needs_no_lock() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    let (inside, is_inside) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    env.before_changes(move |change| {
        // The clock is read with the lock held.
        if change == "clock" {
            let _ = inside.send(());
            let _ = may_go.lock().unwrap().recv();
        }
        Ok(())
    });
    thread::scope(|scope| {
        let appending = scope.spawn(|| put(&store, "t", b"x"));
        is_inside.recv().unwrap();
        assert!(matches!(
            store.append(record_of(SEGMENT as usize)),
            Err(Error::IllegalMessage { .. })
        ));
        drop(go);
        appending.join().unwrap();
    });
}

#[test]
fn a_segment_cut_off_under_its_writer_poisons_the_store_without_a_crash() {
    let place = Place::new();
    let store = place.create_with(never_flushing());
    let first = put(&store, "t", &[1; 5000]);
    store.wait_dispatched(first, Some(soon())).unwrap();
    let end = store.reader().physical_bounds().end;
    let segment = fs::OpenOptions::new()
        .write(true)
        .open(place.at("commitlog/00000000000000000000"))
        .unwrap();
    segment.set_len(4096).unwrap();
    for _ in 0..2 {
        let refused = store.append(message("t", 0, &[2; 5000])).unwrap_err();
        assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
    }
    assert!(matches!(store.wait_durable(first, Some(soon())), Err(Error::Poisoned { .. })));
    assert_eq!(store.reader().physical_bounds().end, end);
    assert!(store.close().is_err());
    assert!(place.at("abort").exists());
}
