//! Appends that wait until their message is durable: one sync for all who wait, and an answer whatever the disk does.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::services::Service;
use mqstore::store::PutStatus;

use super::services::stepped_with;
use super::{Place, bodies, io_error, message, put, small, soon, with};
use crate::counting_env::CountingEnv;

/// With a pool so small that it fills often, or without.
fn mode(has_pool: bool) -> StoreConfig {
    StoreConfig {
        transient_store_pool_enable: has_pool,
        transient_store_pool_size: 2,
        transient_store_pool_buffer_size: 4096,
        ..sync_flush()
    }
}

/// Appends wait, and nothing is flushed unless somebody waits.
fn sync_flush() -> StoreConfig {
    StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        flush_interval_commit_log: 1_000_000,
        ..small()
    }
}

fn syncs_of_the_log(env: &CountingEnv) -> usize {
    let is_sync = |change: &&String| change.starts_with("sync LogRange");
    env.changes().iter().filter(is_sync).count()
}

/// Each sync of the log reports that it has begun, and then waits until it is released.
fn hold_syncs(env: &CountingEnv) -> (Receiver<()>, Sender<io::Result<()>>) {
    let ((begun, is_begun), (go, may_go)) = (channel(), channel::<io::Result<()>>());
    let both = Mutex::new((begun, may_go));
    env.before_changes(move |change| {
        if !change.starts_with("sync LogRange") {
            return Ok(());
        }
        let both = both.lock().unwrap();
        let _ = both.0.send(());
        both.1.recv().unwrap_or(Ok(()))
    });
    (is_begun, go)
}

/// The option, the message's properties, what the call says, and whether it waits.
type Row<'a> = (FlushDiskType, &'a [(&'a str, &'a str)], Option<bool>, bool);

#[test]
fn whether_an_append_waits_is_said_by_the_option_the_message_and_the_call() {
    let waits = [("WAIT", "true")];
    let passes = [("WAIT", "false")];
    let rows: [Row<'_>; 8] = [
        (FlushDiskType::Sync, &[], None, true),
        (FlushDiskType::Sync, &waits, None, true),
        (FlushDiskType::Sync, &passes, None, false),
        (FlushDiskType::Sync, &passes, Some(true), true),
        (FlushDiskType::Sync, &[], Some(false), false),
        (FlushDiskType::Async, &[], None, false),
        (FlushDiskType::Async, &waits, None, false),
        (FlushDiskType::Async, &[], Some(true), true),
    ];
    let with_and_without_pool = rows.iter().flat_map(|row| [false, true].map(|has_pool| (row, has_pool)));
    for ((flush_disk_type, properties, durable, is_waited_for), has_pool) in with_and_without_pool {
        let (flush_disk_type, durable, is_waited_for) = (*flush_disk_type, *durable, *is_waited_for);
        let place = Place::new();
        let config = StoreConfig {
            flush_disk_type,
            ..mode(has_pool)
        };
        let (env, store) = stepped_with(&place, config);
        let row = format!("{flush_disk_type:?} {properties:?} {durable:?}, pool: {has_pool}");
        let message = || with(message("t", 0, b"x"), properties);
        let one = store.appender(durable).append(message()).unwrap();
        assert_eq!((one.status, one.status.name()), (PutStatus::PutOk, "PUT_OK"), "{row}");
        assert_eq!(syncs_of_the_log(&env), usize::from(is_waited_for), "{row}");
        let mut done = Vec::new();
        let batch = vec![message(), message(), message()];
        store.appender(durable).append_all(batch, &mut done).unwrap();
        let batch = vec![message(), message()];
        store.appender(durable).append_together(batch, &mut done).unwrap();
        assert_eq!(
            (done.len(), syncs_of_the_log(&env)),
            (5, 3 * usize::from(is_waited_for)),
            "{row}"
        );
        let flushed = if is_waited_for { done[4].appended.end() } else { 0 };
        assert_eq!(store.flushed_offset(), flushed, "{row}");
        assert_eq!(store.is_committed(), is_waited_for || !store.config().uses_pool(), "{row}");
        // Without the interpreter an attempt does not wait.
        let attempt = store.appender(durable).checked(&mut message()).unwrap().try_append().unwrap();
        assert_eq!(attempt.is_none(), is_waited_for, "{row}");
        // With SYNC_FLUSH what nobody waits for is asked for at once.
        store.step(Service::Flush, Instant::now()).unwrap();
        let is_flushed = store.flushed_offset() == store.appended_offset();
        assert_eq!(is_flushed, is_waited_for || flush_disk_type == FlushDiskType::Sync, "{row}");
        store.close().unwrap();
    }
}

#[test]
fn one_message_of_a_batch_that_waits_is_enough() {
    let place = Place::new();
    let (env, store) = stepped_with(&place, sync_flush());
    let passes = || with(message("t", 0, b"x"), &[("WAIT", "false")]);
    store
        .appender(None)
        .append_all(vec![passes(), passes()], &mut Vec::new())
        .unwrap();
    assert_eq!(syncs_of_the_log(&env), 0);
    store
        .appender(None)
        .append_all(vec![passes(), message("t", 0, b"x"), passes()], &mut Vec::new())
        .unwrap();
    assert_eq!(store.flushed_offset(), store.appended_offset());
    store
        .appender(None)
        .append_all(Vec::<mqstore::format::Message<'_>>::new(), &mut Vec::new())
        .unwrap();
    assert_eq!(syncs_of_the_log(&env), 1);
    store.close().unwrap();
}

#[test]
fn what_is_not_durable_is_not_read_from_a_store_with_sync_flush() {
    let place = Place::new();
    let (_, store) = stepped_with(&place, sync_flush());
    let first = store.append(message("t", 0, b"first")).unwrap().appended;
    let second = store
        .appender(Some(false))
        .append(message("t", 0, b"second"))
        .unwrap()
        .appended;
    for _ in 0..2 {
        store.step(Service::Dispatch, Instant::now()).unwrap();
        assert_eq!(bodies(store.reader(), "t", 0), [b"first"]);
        assert_eq!(store.dispatched_offset(), first.end());
        assert!(matches!(
            store.reader().message_at(second.physical_offset),
            Err(Error::NotFound { .. })
        ));
        assert!(store.is_caught_up());
    }
    store.step(Service::Flush, Instant::now()).unwrap();
    store.step(Service::Dispatch, Instant::now()).unwrap();
    assert_eq!(bodies(store.reader(), "t", 0), [b"first".to_vec(), b"second".to_vec()]);
    // What is left when the store is closed is dispatched, too.
    store.appender(Some(false)).append(message("t", 0, b"third")).unwrap();
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 3);
}

#[test]
fn a_wait_for_dispatch_asks_for_the_sync_that_it_needs() {
    let place = Place::new();
    let store = place.create_with(sync_flush());
    let appended = store.appender(Some(false)).append(message("t", 0, b"x")).unwrap().appended;
    store.wait_dispatched(appended.physical_offset, Some(soon())).unwrap();
    store.close().unwrap();
}

#[test]
fn thirty_two_threads_share_their_syncs() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        // One segment: a flush is one sync.
        mapped_file_size_commit_log: Some(1 << 20),
        sync_flush_timeout: 3_600_000,
        ..sync_flush()
    });
    let (store, threads, rounds) = (Arc::new(store), 32, 20);
    // The sync of a round that comes first ends when every thread has appended, however late the machine runs it.
    let (syncing, wanted) = (store.clone(), Arc::new(AtomicU64::new(0)));
    let appended = wanted.clone();
    env.before_changes(move |change| {
        while change.starts_with("sync LogRange") && syncing.stats().log.total().times < appended.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        Ok(())
    });
    for round in 1..=rounds {
        wanted.store(round * threads, Ordering::SeqCst);
        thread::scope(|scope| {
            for thread in 0..threads {
                let store = &store;
                scope.spawn(move || {
                    let done = store.append(message("t", thread as i32, b"x")).unwrap();
                    assert!(done.appended.end() <= store.flushed_offset());
                    assert_eq!(done.status, PutStatus::PutOk);
                });
            }
        });
    }
    let syncs = syncs_of_the_log(&env) as u64;
    assert!(syncs <= 2 * rounds, "{syncs} syncs for {rounds} rounds of {threads} messages");
    env.heal();
    store.close().unwrap();
}

#[test]
fn a_timed_out_caller_gets_an_error_and_its_message_is_read_later() {
    let place = Place::new();
    let config = StoreConfig {
        sync_flush_timeout: 100,
        ..sync_flush()
    };
    let (env, store) = place.create_counting(config);
    let (is_begun, go) = hold_syncs(&env);
    thread::scope(|scope| {
        let leader = scope.spawn(|| store.append(message("t", 0, b"leads")).unwrap());
        is_begun.recv().unwrap();
        let late = store.append(message("t", 0, b"late")).unwrap();
        assert_eq!(
            (late.status, late.status.name()),
            (PutStatus::FlushDiskTimeout, "FLUSH_DISK_TIMEOUT")
        );
        let mut done = Vec::new();
        let batch = vec![message("t", 0, b"later"), message("t", 0, b"latest")];
        store.appender(None).append_all(batch, &mut done).unwrap();
        assert_eq!(
            done.iter().map(|one| one.status).collect::<Vec<_>>(),
            [PutStatus::FlushDiskTimeout; 2]
        );
        assert!(matches!(
            store.reader().message_at(late.appended.physical_offset),
            Err(Error::NotFound { .. })
        ));
        env.heal();
        drop(go);
        // It syncs itself, so it knows.
        assert_eq!(leader.join().unwrap().status, PutStatus::PutOk);
        store.wait_dispatched(done[1].appended.physical_offset, Some(soon())).unwrap();
    });
    assert_eq!(bodies(store.reader(), "t", 0).len(), 4);
    store.close().unwrap();
}

#[test]
fn a_failed_sync_fails_its_waiters_and_those_of_the_next_sync() {
    let place = Place::new();
    let (env, store) = place.create_counting(sync_flush());
    let durable = put(&store, "t", b"durable");
    store.wait_dispatched(durable, Some(soon())).unwrap();
    let (is_begun, go) = hold_syncs(&env);
    thread::scope(|scope| {
        let leader = scope.spawn(|| store.append(message("t", 0, b"leads")));
        is_begun.recv().unwrap();
        let others: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| store.append(message("t", 0, b"waits"))))
            .collect();
        while store.stats().log.total().times < 1 + 9 {
            thread::yield_now();
        }
        go.send(Err(io_error())).unwrap();
        for thread in others.into_iter().chain([leader]) {
            let refused = thread.join().unwrap().unwrap_err();
            assert_eq!(refused.put_status(), Some("FLUSH_DISK_TIMEOUT"), "{refused}");
            let Error::NotDurable { physical_offset, cause } = refused else {
                panic!("{refused}");
            };
            assert!(physical_offset > 0 && matches!(*cause, Error::Poisoned { .. }), "{cause}");
        }
    });
    env.heal();
    let refused = store.append(message("t", 0, b"more")).unwrap_err();
    assert!(matches!(refused, Error::Poisoned { .. }) && refused.put_status() == Some("SERVICE_NOT_AVAILABLE"));
    assert_eq!(syncs_of_the_log(&env), 2);
    // Whether the others survive is not known, so nobody has seen them.
    assert_eq!(bodies(store.reader(), "t", 0), [b"durable"]);
    store.close().unwrap_err();
}

#[test]
fn a_close_makes_durable_what_threads_wait_for() {
    let place = Place::new();
    let (env, store) = place.create_counting(sync_flush());
    let (is_begun, go) = hold_syncs(&env);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| store.append(message("t", 0, b"x")))).collect();
        is_begun.recv().unwrap();
        let closing = scope.spawn(|| store.close());
        env.heal();
        drop(go);
        closing.join().unwrap().unwrap();
        for thread in waiting {
            match thread.join().unwrap() {
                Ok(done) => assert_eq!(done.status, PutStatus::PutOk),
                // It came too late.
                Err(error) => assert!(matches!(error, Error::Closed), "{error}"),
            }
        }
    });
    assert!(!place.at("abort").exists());
}

#[test]
fn the_same_appends_at_the_same_times_make_the_same_log_in_each_mode() {
    let modes = [FlushDiskType::Async, FlushDiskType::Sync].map(|flush| [(flush, false), (flush, true)]);
    let logs = modes.as_flattened().iter().map(|(flush_disk_type, has_pool)| {
        let place = Place::new();
        let config = StoreConfig {
            flush_disk_type: *flush_disk_type,
            ..mode(*has_pool)
        };
        let (env, store) = stepped_with(&place, config);
        for number in 0..200_i64 {
            env.set_now(1_700_000_000_000 + number / 3);
            let body = vec![number as u8; number as usize * 7 % 900];
            let properties = [
                ("KEYS", "k"),
                ("TAGS", "t"),
                ("WAIT", if number % 2 == 0 { "true" } else { "false" }),
            ];
            let message = with(message("t", number as i32 % 3, &body), &properties);
            if number % 5 == 0 {
                store
                    .appender(None)
                    .append_all(vec![message.clone(), message], &mut Vec::new())
                    .unwrap();
            } else {
                store.append(message).unwrap();
            }
        }
        store.close().unwrap();
        super::contents(&place.at("commitlog"))
    });
    let logs: Vec<_> = logs.collect();
    assert!(logs[0].len() > 5);
    assert!(logs.iter().all(|log| *log == logs[0]), "the logs differ");
}
