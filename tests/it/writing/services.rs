//! Services do the same in steps of the caller and in threads, and none leaves a caller waiting.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::services::{Next, Service};
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};

use super::{Place, bodies, io_error, message, put, small, soon};
use crate::counting_env::CountingEnv;

/// A new store without threads.
pub(super) fn stepped(place: &Place) -> (CountingEnv, MessageStore) {
    stepped_with(place, small())
}

pub(super) fn stepped_with(place: &Place, config: StoreConfig) -> (CountingEnv, MessageStore) {
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let store = MessageStore::open_stepped(&seam, &place.store, config, OpenMode::New).unwrap();
    (env, store)
}

#[test]
fn a_stepped_store_does_nothing_by_itself_and_everything_in_its_steps() {
    let place = Place::new();
    let config = StoreConfig {
        flush_commit_log_least_pages: 0,
        ..small()
    };
    let (_, store) = stepped_with(&place, config);
    let start = Instant::now();
    let idle = store.step(Service::Flush, start).unwrap();
    assert_eq!(
        idle,
        Next::Idle {
            until: Some(start + Duration::from_millis(500))
        }
    );
    let offset = put(&store, "t", b"x");
    thread::sleep(Duration::from_millis(50));
    assert_eq!((store.dispatched_offset(), store.flushed_offset()), (0, 0));

    let written_out = start + Duration::from_millis(10);
    let next = store.step(Service::Dispatch, start).unwrap();
    assert_eq!(
        next,
        Next::Idle {
            until: Some(written_out)
        }
    );
    assert!(store.dispatched_offset() > offset && !place.at("consumequeue/t").exists());
    assert_eq!(
        store.step(Service::Dispatch, written_out).unwrap(),
        Next::Idle { until: None }
    );
    assert!(place.at("consumequeue/t/0").exists());

    store.step(Service::Flush, start + Duration::from_millis(499)).unwrap();
    assert_eq!(store.flushed_offset(), 0);
    store.step(Service::Flush, start + Duration::from_millis(500)).unwrap();
    assert!(store.flushed_offset() > offset);
    store.close().unwrap();
    for service in [Service::Dispatch, Service::Flush, Service::Allocate, Service::Supply] {
        assert_eq!(store.step(service, Instant::now()).unwrap(), Next::Done);
    }
}

#[test]
fn a_stepped_store_is_drained_by_whoever_closes_it() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    for _ in 0..5000 {
        put(&store, "t", b"x");
    }
    store.close().unwrap();
    let reader = place.reader();
    assert_eq!((reader.recovery().undispatched, bodies(&reader, "t", 0).len()), (0, 5000));
}

#[test]
fn many_queues_wait_longer_and_are_written_a_thousand_in_a_step() {
    const QUEUES: i32 = 1100;
    let place = Place::new();
    let (_, store) = stepped(&place);
    for queue_id in 0..QUEUES {
        store.append(message("t", queue_id, b"x")).unwrap();
    }
    let start = Instant::now();
    let due = start + Duration::from_micros(20) * QUEUES as u32;
    let idle = Next::Idle { until: Some(due) };
    assert_eq!(store.step(Service::Dispatch, start).unwrap(), idle);
    assert_eq!(
        store.step(Service::Dispatch, start + Duration::from_millis(10)).unwrap(),
        idle
    );
    assert!(!place.at("consumequeue/t").exists());
    assert_eq!(store.step(Service::Dispatch, due).unwrap(), Next::Again);
    assert_eq!(place.names("consumequeue/t").len(), 1000);
    // New messages are dispatched, and do not make the others wait.
    let offset = put(&store, "u", b"y");
    let later = Next::Idle {
        until: Some(due + Duration::from_millis(10)),
    };
    assert_eq!(store.step(Service::Dispatch, due).unwrap(), later);
    assert!(store.dispatched_offset() > offset);
    assert_eq!(place.names("consumequeue/t").len(), QUEUES as usize);
    store.close().unwrap();
    let reader = place.reader();
    assert!((0..QUEUES).all(|queue_id| reader.queue_bounds("t", queue_id).unwrap().end >= 1));
}

#[test]
fn a_wanted_sync_is_made_in_the_next_step() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    let now = Instant::now();
    store.step(Service::Flush, now).unwrap();
    let offset = put(&store, "t", b"x");
    assert!(matches!(store.wait_durable(offset, Some(now)), Err(Error::TimedOut { .. })));
    store.step(Service::Flush, now).unwrap();
    store.wait_durable(offset, Some(now)).unwrap();
}

#[test]
fn a_service_that_panics_poisons_the_store_and_leaves_nobody_waiting() {
    for (change, service) in [
        ("consumequeue/t", "queue files"),
        ("sync LogRange", "flusher"),
        ("mqstore-new-00000000000000016384", "allocator"),
    ] {
        let place = Place::new();
        let (env, store) = place.create_counting(small());
        env.before_changes(move |what| {
            assert!(!what.contains(change), "planted");
            Ok(())
        });
        let offset = put(&store, "t", b"x");
        let store = Arc::new(store);
        let (told, is_told) = channel();
        for wait in [MessageStore::wait_durable, MessageStore::wait_dispatched] {
            let (store, told) = (store.clone(), told.clone());
            // Past the end: only the failure can end this wait.
            thread::spawn(move || told.send(wait(&store, offset + 10_000, None)));
        }
        for _ in 0..2 {
            let error = is_told.recv_timeout(Duration::from_secs(20)).unwrap().unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, Error::Poisoned { .. }) && text.contains(service) && text.contains("planted"),
                "{text}"
            );
        }
        env.heal();
        assert!(matches!(store.append(message("t", 0, b"y")), Err(Error::Poisoned { .. })));
        assert!(matches!(store.close(), Err(Error::Poisoned { .. })));
        assert!(place.at("abort").exists());
        assert_eq!(store.reader().message_at(offset).unwrap().view().body(), b"x");
    }
}

#[test]
fn a_close_that_panics_or_fails_leaves_nobody_waiting() {
    for (change, is_panic) in [
        ("consumequeue/t", true),
        ("sync Checkpoint ", true),
        ("consumequeue/t", false),
    ] {
        let place = Place::new();
        let (env, store) = stepped(&place);
        let offset = put(&store, "t", b"x");
        let store = Arc::new(store);
        let (told, is_told) = channel();
        let waiting = store.clone();
        thread::spawn(move || told.send(waiting.wait_dispatched(offset + 10_000, None)));
        env.before_changes(move |what| {
            if what.contains(change) {
                assert!(!is_panic, "planted");
                return Err(io_error());
            }
            Ok(())
        });
        let closed = store.close().unwrap_err();
        let waited = is_told.recv_timeout(Duration::from_secs(20)).unwrap().unwrap_err();
        match (&closed, is_panic) {
            (Error::Panicked { message, .. }, true) => assert!(message.contains("planted"), "{message}"),
            (Error::Io { .. }, false) => {}
            other => panic!("{other:?}"),
        }
        assert!(matches!(waited, Error::Poisoned { .. } | Error::Closed), "{waited:?}");
        assert!(
            change.starts_with("sync") || waited.to_string().contains(&closed.to_string()),
            "{waited}"
        );
        env.heal();
        assert!(place.at("abort").exists());
        drop(store);
        // It is not locked any more.
        place.reopen().close().unwrap();
        assert_eq!(bodies(&place.reader(), "t", 0), [b"x"]);
    }
}

#[test]
fn a_failed_sync_also_fails_the_threads_that_wait_for_dispatch() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    let offset = put(&store, "t", b"x");
    env.before_changes(|change| {
        if change.starts_with("sync LogRange") {
            Err(io_error())
        } else {
            Ok(())
        }
    });
    assert!(store.flush().is_err());
    store.wait_dispatched(offset, Some(soon())).unwrap();
    let never = store.wait_dispatched(offset + 10_000, Some(soon()));
    assert!(matches!(never, Err(Error::Poisoned { .. })), "{never:?}");
}

#[test]
fn a_close_that_found_the_disk_full_can_be_called_again() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    env.before_changes(|change| {
        if change.starts_with("create ") && change.contains("/consumequeue/") {
            Err(std::io::Error::from_raw_os_error(28))
        } else {
            Ok(())
        }
    });
    put(&store, "t", b"x");
    for _ in 0..2 {
        assert!(matches!(store.close(), Err(Error::DiskFull { .. })));
        assert!(place.at("abort").exists());
    }
    env.heal();
    store.close().unwrap();
    let reader = place.reader();
    assert!(reader.recovery().clean_exit);
    assert_eq!((reader.recovery().undispatched, bodies(&reader, "t", 0).len()), (0, 1));
}
