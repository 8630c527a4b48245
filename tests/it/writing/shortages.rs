//! No room, no descriptor, no memory: the call fails or the service waits, and nothing is poisoned.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mqstore::config::{Recovery, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::read::MessageReader;
use mqstore::recovery::RecoveryReport;
use mqstore::services::{Next, Service};
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};

use super::full_disk::{count, crashed};
use super::services::stepped;
use crate::counting_env::CountingEnv;

use super::{Place, SEGMENT, bodies, contents, message, put, reader, small, wait_for_segments, with};

/// `EMFILE`, `ENFILE`, `ENOMEM`.
const SHORTAGES: [i32; 3] = [24, 23, 12];

#[test]
fn a_segment_that_cannot_be_made_gives_rocketmqs_status_and_no_message() {
    let calls = [
        "create ",
        "allocate ",
        "sync SegmentAllocated ",
        "map for writing ",
        "rename ",
    ];
    let cases = calls
        .into_iter()
        .flat_map(|call| [5, 12, 23, 24, 27, 28, 122].map(|errno| (call, errno)));
    let of_names = SHORTAGES.map(|errno| ("sync directory SegmentRenamed ", errno));
    for ((call, errno), is_served) in cases
        .chain(of_names)
        .flat_map(|case| [false, true].map(|is_served| (case, is_served)))
    {
        let case = format!("{call}fails with {errno}, is_served: {is_served}");
        let place = Place::new();
        let (env, store) = if is_served {
            place.create_counting(small())
        } else {
            stepped(&place)
        };
        let first = put(&store, "t", &[0; 10_000]);
        if is_served {
            wait_for_segments(&env, 2);
        }
        env.before_changes(move |change| {
            let is_of_log = change.contains("mqstore-new-000") || change.contains("commitlog") || change.ends_with("/store");
            if change.starts_with(call) && is_of_log && !change.contains("consumequeue") {
                return Err(io::Error::from_raw_os_error(errno));
            }
            Ok(())
        });
        if is_served {
            // The second segment was made ahead. It takes one more message, and the third one fails unseen.
            put(&store, "t", &[1; 10_000]);
            // An append that is refused has waited until nobody tries any more.
            store.append(message("t", 0, &[1; 10_000])).unwrap_err();
        }
        store.flush().unwrap();
        let before = contents(&place.at("commitlog"));
        let end = store.reader().physical_bounds().end;
        for _ in 0..2 {
            let refused = store.append(message("t", 0, &[1; 10_000])).unwrap_err();
            assert_eq!(refused.put_status(), Some("CREATE_MAPPED_FILE_FAILED"), "{case}: {refused:?}");
            match &refused {
                Error::DiskFull { .. } => assert!([28, 122].contains(&errno), "{case}"),
                Error::Io { source, .. } => assert_eq!(source.raw_os_error(), Some(errno), "{case}"),
                other => panic!("{case}: {other:?}"),
            }
            assert!(contents(&place.at("commitlog")) == before, "{case}");
            assert_eq!(store.reader().physical_bounds().end, end, "{case}");
        }
        env.heal();
        let segments = if is_served { 2 } else { 1 };
        assert_eq!(put(&store, "t", &[1; 10_000]), segments * SEGMENT as i64, "{case}");
        assert_eq!(store.reader().message_at(first).unwrap().view().body(), [0; 10_000], "{case}");
        store.close().unwrap();
        assert_eq!(bodies(&place.reader(), "t", 0).len() as i64, segments + 1, "{case}");
    }
}

#[test]
fn queues_and_index_wait_for_resources_without_poisoning_the_store() {
    let calls = [
        "create ",
        "open for writing ",
        "map for writing ",
        "sync directory IndexDirectory ",
    ];
    let too_large = ["allocate ", "write "].map(|call| (call, 27));
    for (call, errno) in calls
        .into_iter()
        .flat_map(|call| SHORTAGES.map(|errno| (call, errno)))
        .chain(too_large)
    {
        let case = format!("{call}fails with {errno}");
        let place = Place::new();
        let (env, store) = stepped(&place);
        let mut now = Instant::now();
        let keyed = || with(message("t", 0, b"x"), &[("KEYS", "k")]);
        env.before_changes(move |change| {
            if change.starts_with(call) && (change.contains("/consumequeue") || change.contains("/index")) {
                return Err(io::Error::from_raw_os_error(errno));
            }
            Ok(())
        });
        let mut end = 0;
        // The second queue file, and the second index file.
        for _ in 0..450 {
            let appended = store.append(keyed()).unwrap().appended;
            end = appended.physical_offset + i64::from(appended.wrote_bytes);
            now += Duration::from_millis(20);
            assert!(matches!(store.step(Service::Dispatch, now), Ok(Next::Idle { .. })), "{case}");
        }
        assert!(store.step(Service::Flush, now).is_ok(), "{case}");
        let refused = store.close().unwrap_err();
        assert!(refused.is_shortage(), "{case}: {refused:?}");
        assert!(place.at("abort").exists(), "{case}");
        env.heal();
        store.close().unwrap();
        assert_eq!(store.dispatched_offset(), end, "{case}");
        let reader = place.reader();
        assert!(reader.recovery().clean_exit, "{case}");
        assert_eq!(
            (reader.recovery().undispatched, bodies(&reader, "t", 0).len()),
            (0, 450),
            "{case}"
        );
    }
}

#[test]
fn a_close_that_found_no_descriptor_at_any_call_can_be_called_again() {
    let mut refused = 0;
    for number in 0.. {
        let place = Place::new();
        let (env, store) = stepped(&place);
        store.append(with(message("t", 0, &[0; 10_000]), &[("KEYS", "k")])).unwrap();
        let before = env.changes().len();
        let changes = env.clone();
        env.before_changes(move |change| {
            let is_one = ["create ", "open for ", "map for ", "sync directory ", "rename "]
                .iter()
                .any(|call| change.starts_with(call));
            if is_one && changes.changes().len() > before + number {
                return Err(io::Error::from_raw_os_error(24));
            }
            Ok(())
        });
        let closed = store.close();
        env.heal();
        match closed {
            Ok(()) => break,
            Err(error) => assert!(error.is_shortage(), "{number}: {error:?}"),
        }
        refused += 1;
        store.close().unwrap();
        assert!(!place.at("abort").exists(), "{number}");
        let reader = place.reader();
        assert!(
            reader.recovery().clean_exit && reader.recovery().undispatched == 0,
            "{number}"
        );
        place.reopen().close().unwrap();
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_stamp_on_a_full_disk_backs_off_and_delays_no_message() {
    let place = Place::new();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let config = StoreConfig {
        checkpoint_interval: 4096,
        ..small()
    };
    let store = MessageStore::open_stepped(&seam, &place.store, config, OpenMode::New).unwrap();
    env.before_changes(|change| {
        if change.starts_with("create ") && change.contains("checkpoint") {
            return Err(io::Error::from_raw_os_error(28));
        }
        Ok(())
    });
    let syncs = || {
        let changes = env.changes();
        changes.iter().filter(|change| change.starts_with("sync everything")).count()
    };
    let start = Instant::now();
    let mut now = start;
    let before = syncs();
    put(&store, "t", &[0; 5000]);
    // A minute, in steps as a thread would make them.
    while now < start + Duration::from_secs(60) {
        let appended = store.append(message("t", 0, b"x")).unwrap().appended;
        let next = store.step(Service::Dispatch, now).unwrap();
        assert!(store.dispatched_offset() > appended.physical_offset);
        let Next::Idle { until: Some(until) } = next else {
            panic!("{next:?}")
        };
        assert!(until > now && until <= now + Duration::from_secs(10));
        now = until.min(now + Duration::from_millis(100));
    }
    let tries = syncs() - before;
    assert!((5..=15).contains(&tries), "{tries} times the whole file system was synced");
    assert!(!place.at("checkpoint").exists());
    env.heal();
    store.step(Service::Dispatch, now + Duration::from_secs(10)).unwrap();
    assert!(place.at("checkpoint").exists());
    store.close().unwrap();
}

/// Opens a crashed store for reading or writing while the call number `failing` that looks at something finds no descriptor.
/// Gives what the open found, and how many messages can be read; the error if the open says so.
fn open_crashed(place: &Place, is_reader: bool, failing: usize) -> (Result<(RecoveryReport, usize)>, usize) {
    let env = CountingEnv::new();
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = looks.clone();
    env.before_looks(move |_| {
        if counted.fetch_add(1, Ordering::SeqCst) == failing {
            return Err(io::Error::from_raw_os_error(24));
        }
        Ok(())
    });
    let config = StoreConfig {
        recovery: Recovery::Salvage,
        ..small()
    };
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let found = if is_reader {
        MessageReader::open(&seam, &place.store, config).map(|reader| {
            env.heal();
            (report(place, &reader), count(&reader))
        })
    } else {
        MessageStore::open_stepped(&seam, &place.store, config, OpenMode::Existing).map(|store| {
            env.heal();
            let found = (report(place, store.reader()), count(store.reader()));
            store.close().unwrap();
            found
        })
    };
    (found, looks.load(Ordering::SeqCst))
}

/// Returns what the open found, without the place.
fn report(place: &Place, reader: &MessageReader) -> RecoveryReport {
    let mut report = reader.recovery().clone();
    report.stop_reason = report.stop_reason.replace(&*place.store.to_string_lossy(), "");
    report
}

#[test]
fn an_open_that_finds_no_descriptor_at_any_look_says_so_or_finds_the_same() {
    for is_reader in [true, false] {
        let place = Place::new();
        crashed(&place);
        let (whole, all_looks) = open_crashed(&place, is_reader, usize::MAX);
        let whole = whole.unwrap();
        assert_eq!(whole.1, 58);
        let mut refused = 0;
        for failing in 0..all_looks {
            let place = Place::new();
            crashed(&place);
            match open_crashed(&place, is_reader, failing).0 {
                Ok(found) => assert_eq!(found, whole, "look {failing}"),
                Err(error) => {
                    refused += 1;
                    assert!(error.is_shortage(), "look {failing}: {error:?}");
                    let (again, _) = open_crashed(&place, is_reader, usize::MAX);
                    assert_eq!(again.unwrap().1, whole.1, "look {failing}");
                }
            }
        }
        assert!(refused > 20, "{refused} of {all_looks}");
    }
}

#[test]
fn a_dispatch_that_is_short_after_the_stop_is_left_to_the_close() {
    for errno in SHORTAGES {
        let place = Place::new();
        let (env, store) = stepped(&place);
        put(&store, "t", b"x");
        let store = Arc::new(store);
        let (dispatching, is_short) = (Arc::downgrade(&store), AtomicBool::new(false));
        // The thread of the dispatcher may begin a step before it sees the stop: here, while the close syncs the log.
        env.before_changes(move |change| {
            if change.starts_with("sync LogRange")
                && let Some(store) = dispatching.upgrade()
            {
                is_short.store(true, Ordering::SeqCst);
                assert!(store.step(Service::Dispatch, Instant::now()).unwrap_err().is_shortage());
                is_short.store(false, Ordering::SeqCst);
            }
            if is_short.load(Ordering::SeqCst) && change.contains("consumequeue") {
                return Err(io::Error::from_raw_os_error(errno));
            }
            Ok(())
        });
        store.close().unwrap();
        env.heal();
        assert_eq!(bodies(&reader(&place.store), "t", 0), [b"x"]);
    }
}
