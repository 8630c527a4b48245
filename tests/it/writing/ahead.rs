//! Segments are there before they are needed.

use std::fs;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::services::{Next, Service};
use mqstore::store::{MessageStore, OpenMode};

use super::services::stepped;
use super::{Place, SEGMENT, bodies, message, put, small, soon, wait_for_segments};

const IDLE: Next = Next::Idle { until: None };

fn segments(place: &Place) -> usize {
    place.names("commitlog").len()
}

#[test]
fn the_next_segment_is_made_when_the_first_message_of_one_is_appended() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    let now = Instant::now();
    assert_eq!(store.step(Service::Allocate, now).unwrap(), IDLE);
    assert_eq!(segments(&place), 0);
    for segment in 0..5 {
        // Each message fills more than half of a segment.
        put(&store, "t", &[0; 10_000]);
        assert_eq!(segments(&place), segment + 1);
        for _ in 0..2 {
            assert_eq!(store.step(Service::Allocate, now).unwrap(), IDLE);
            assert_eq!(segments(&place), segment + 2);
        }
        put(&store, "t", b"x");
        store.step(Service::Allocate, now).unwrap();
        assert_eq!(segments(&place), segment + 2);
    }
    store.close().unwrap();
    assert_eq!(segments(&place), 5);
    assert_eq!(store.step(Service::Allocate, now).unwrap(), Next::Done);
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 10);
}

#[test]
fn a_store_that_is_opened_and_not_appended_to_makes_nothing() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    put(&store, "t", b"x");
    store.close().unwrap();
    let store = place.reopen();
    thread::sleep(Duration::from_millis(20));
    assert_eq!(segments(&place), 1);
    store.close().unwrap();
}

#[test]
fn threads_make_the_segments_of_a_store_that_runs_them() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    for segment in 0..20 {
        put(&store, "t", &[0; 10_000]);
        wait_for_segments(&env, segment + 2);
    }
    let by = Arc::new(Mutex::new(Vec::new()));
    let seen = by.clone();
    env.before_changes(move |change| {
        if change.starts_with("create ") && change.contains("mqstore-new-000") {
            seen.lock().unwrap().push(thread::current().name().map(str::to_owned));
        }
        Ok(())
    });
    // Faster than segments can be made ahead.
    for _ in 0..200 {
        put(&store, "t", &[0; 10_000]);
    }
    store.close().unwrap();
    let by = by.lock().unwrap();
    assert!(by.len() >= 199, "{}", by.len());
    assert!(by.iter().all(|name| name.as_deref() == Some("mqstore-allocator")), "{by:?}");
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 220);
}

/// Appends again and again until the segment is there: a thread that the machine does not run makes none in 50 ms.
pub(super) fn put_when_made(store: &MessageStore, body: &[u8]) -> i64 {
    let deadline = soon();
    loop {
        match store.append(message("t", 0, body)) {
            Ok(done) => return done.appended.physical_offset,
            Err(refused) => assert!(
                refused.to_string().contains("wait_time_out") && Instant::now() < deadline,
                "{refused}"
            ),
        }
    }
}

#[test]
fn an_append_waits_for_its_segment_up_to_a_limit_and_a_later_one_works() {
    let place = Place::new();
    let config = StoreConfig {
        wait_time_out: 50,
        ..small()
    };
    let (env, store) = place.create_counting(config);
    put_when_made(&store, &[0; 10_000]);
    wait_for_segments(&env, 2);
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    env.before_changes(move |change| {
        if change.starts_with("allocate ") && change.contains("mqstore-new-000") {
            let _ = may_go.lock().unwrap().recv();
        }
        Ok(())
    });
    // It goes into the second segment. The third is not made as long as the disk stalls.
    let second = put_when_made(&store, &[0; 10_000]);
    assert_eq!(second, SEGMENT as i64);
    let end = store.appended_offset();
    for _ in 0..2 {
        let refused = store.append(message("t", 0, &[1; 10_000])).unwrap_err();
        assert_eq!(refused.put_status(), Some("CREATE_MAPPED_FILE_FAILED"), "{refused}");
        let Error::Io { path, source, .. } = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!(
            (path, source.kind()),
            (&place.at(&format!("commitlog/{:020}", 2 * SEGMENT)), io::ErrorKind::TimedOut)
        );
        assert!(refused.to_string().contains("wait_time_out"), "{refused}");
    }
    assert_eq!(store.appended_offset(), end);
    // What needs no segment does not wait for the disk.
    put(&store, "t", b"small");
    drop(go);
    assert_eq!(put_when_made(&store, &[2; 10_000]), 2 * SEGMENT as i64);
    store.close().unwrap();
    let stored: Vec<usize> = bodies(&place.reader(), "t", 0).iter().map(Vec::len).collect();
    assert_eq!(stored, [10_000, 10_000, 5, 10_000]);
}

#[test]
fn a_waiter_for_a_segment_gets_an_error_when_the_store_fails_or_closes() {
    for fails in [true, false] {
        let place = Place::new();
        let (env, store) = place.create_counting(StoreConfig {
            wait_time_out: 3_600_000,
            ..small()
        });
        put(&store, "t", &[0; 10_000]);
        wait_for_segments(&env, 2);
        let (go, may_go) = channel::<()>();
        let may_go = Mutex::new(may_go);
        env.before_changes(move |change| {
            if change.starts_with("allocate ") && change.contains("mqstore-new-000") {
                let _ = may_go.lock().unwrap().recv();
            }
            match change {
                sync if fails && sync.starts_with("sync LogRange") => Err(super::io_error()),
                _ => Ok(()),
            }
        });
        put(&store, "t", &[1; 10_000]);
        let store = Arc::new(store);
        let (told, is_told) = channel();
        let appending = store.clone();
        thread::spawn(move || told.send(appending.append(message("t", 0, &[2; 10_000]))));
        let ending = store.clone();
        thread::sleep(Duration::from_millis(20));
        let ending = thread::spawn(move || if fails { ending.flush().map(drop) } else { ending.close() });
        // Long before the hour after which the wait would end by itself.
        let refused = is_told.recv_timeout(Duration::from_secs(60)).unwrap().unwrap_err();
        assert_eq!(matches!(refused, Error::Poisoned { .. }), fails, "{refused:?}");
        drop(go);
        assert_eq!(ending.join().unwrap().is_err(), fails);
    }
}

/// Rolls a thousand times. `pace` is called between two appends, with the number of the segment that is to be made next.
fn made_ahead_of_a_thousand(pace: impl Fn(&Place, &MessageStore, u64)) -> u64 {
    let place = Place::new();
    let store = place.create();
    put(&store, "t", &[0; 10_000]);
    let before = store.stats().log.segments;
    for segment in 1..=1000 {
        pace(&place, &store, segment);
        put(&store, "t", &[0; 10_000]);
    }
    let after = store.stats().log.segments;
    store.close().unwrap();
    assert_eq!(after.begun - before.begun, 1000);
    let (made_ahead, waits) = (after.made_ahead - before.made_ahead, after.waits - before.waits);
    assert_eq!(made_ahead + waits, 1000);
    made_ahead
}

#[test]
fn a_thousand_rolls_each_find_the_allocators_segment_ready() {
    // Whether the other thread runs in this time is up to the machine.
    let pause = made_ahead_of_a_thousand(|_, _, _| thread::sleep(Duration::from_millis(1)));
    println!("{pause} of 1000 segments are ready for a writer that pauses for 1 ms");
    let ready = made_ahead_of_a_thousand(|place, store, segment| {
        let name = place.at(&format!("commitlog/{:020}", segment * SEGMENT));
        while !name.exists() {
            thread::sleep(Duration::from_micros(100));
        }
        // The thread is in the step that hands the segment over. The next step, which has nothing to do, begins after that.
        assert_eq!(store.step(Service::Allocate, Instant::now()).unwrap(), IDLE);
    });
    assert_eq!(ready, 1000);
}

#[test]
fn a_store_with_only_the_segment_made_ahead_is_refused_and_incomplete() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    for _ in 0..4 {
        put(&store, "t", &[0; 10_000]);
    }
    store.step(Service::Allocate, Instant::now()).unwrap();
    store.flush().unwrap();
    let left = super::killed(&place);
    let names = super::names(&left.path().join("commitlog"));
    let (newest, others) = names.split_last().unwrap();
    for name in others {
        fs::remove_file(left.path().join("commitlog").join(name)).unwrap();
    }
    let start: i64 = newest.parse().unwrap();
    assert!(start > store.flushed_offset());
    let missing = super::reader(left.path()).recovery().missing.clone().unwrap().what;
    assert!(missing.contains("the log starts here"), "{missing}");
    match super::open(left.path(), StoreConfig::default(), OpenMode::Existing) {
        Err(Error::Corrupt {
            path, offset: 0, reason, ..
        }) => {
            assert!(path.ends_with(newest) && reason.contains("the log starts here"), "{reason}");
        }
        opened => panic!("{opened:?}"),
    }
    store.close().unwrap();
}
