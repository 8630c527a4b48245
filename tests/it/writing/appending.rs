//! Appending: what is written reads back, in this store and after a second open.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{Check, Message, Record, read_record};
use mqstore::storage::{Access, Region};
use mqstore::store::{Incoming, MessageStore, OpenMode};

use super::services::{stepped, stepped_with};
use super::{Place, bodies, message, open, open_in, put, real, record_of, small, with};
use crate::counting_env::CountingEnv;
use crate::heap;
use crate::queries::by_key;

#[test]
fn what_is_appended_is_read_at_once_and_after_every_reopening() {
    let place = Place::new();
    let mut expected = Vec::new();
    for round in 0..3 {
        let store = if round == 0 { place.create() } else { place.reopen() };
        let mut last = 0;
        for n in 0..300 {
            let body = format!("round {round} body {n}").into_bytes();
            let keyed = with(message("orders", 0, &body), &[("KEYS", &format!("k{round}-{n}"))]);
            let result = store.append(keyed).unwrap();
            assert_eq!(result.appended.queue_offset, expected.len() as i64);
            let read = store.reader().message_at(result.appended.physical_offset).unwrap();
            assert_eq!(read.view().body(), body);
            last = result.appended.physical_offset;
            expected.push(body);
        }
        store.wait_dispatched(last, None).unwrap();
        assert_eq!(bodies(store.reader(), "orders", 0), expected);
        let request = by_key("orders", &format!("k{round}-77"));
        assert_eq!(store.reader().query(&request).unwrap().hits.len(), 1);
        store.wait_durable(last, None).unwrap();
        store.close().unwrap();
        assert!(matches!(store.append(message("orders", 0, b"x")), Err(Error::Closed)));
        let reader = place.reader();
        assert!(reader.recovery().clean_exit);
        assert_eq!(reader.recovery().undispatched, 0);
        assert_eq!(bodies(&reader, "orders", 0), expected);
    }
}

#[test]
fn a_second_writer_is_refused_while_the_first_is_open() {
    let place = Place::new();
    let store = place.create();
    let second = || open(&place.store, StoreConfig::default(), OpenMode::Existing);
    assert!(matches!(second(), Err(Error::Locked { .. })));
    store.close().unwrap();
    second().unwrap();
}

#[test]
fn a_second_writer_waits_for_lock_timeout_then_opens_or_is_refused() {
    let place = Place::new();
    let store = place.create();
    let second = |lock_timeout| {
        let config = StoreConfig {
            lock_timeout,
            ..StoreConfig::default()
        };
        open(&place.store, config, OpenMode::Existing)
    };
    let timeout = Duration::from_millis(50);
    match second(timeout) {
        Err(Error::Locked { waited, .. }) => assert!(waited >= timeout && waited < 100 * timeout, "{waited:?}"),
        other => panic!("{:?}", other.map(drop)),
    }
    assert!(matches!(
        second(Duration::ZERO),
        Err(Error::Locked {
            waited: Duration::ZERO,
            ..
        })
    ));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(timeout);
            store.close().unwrap();
        });
        second(Duration::MAX).unwrap();
    });
}

#[test]
fn a_writer_that_waits_for_the_lock_opens_no_file_and_changes_nothing() {
    let place = Place::new();
    let store = place.create();
    let env = CountingEnv::new();
    let config = StoreConfig {
        lock_timeout: Duration::from_millis(100),
        ..small()
    };
    assert!(matches!(
        open_in(&env, &place.store, config, OpenMode::Existing),
        Err(Error::Locked { .. })
    ));
    let changes = env.changes();
    assert!(changes.len() > 2, "{changes:?}");
    assert!(changes.iter().all(|change| change.starts_with("lock ")), "{changes:?}");
    assert_eq!(env.opened(), Vec::<PathBuf>::new());
    store.close().unwrap();
}

#[test]
fn store_times_never_fall_although_the_clock_does() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    let mut last = 0;
    for now in [1_700_000_005_000, 1_700_000_004_000, 1_000, 1_700_000_006_000] {
        env.set_now(now);
        let stored = store.append(message("t", 0, b"x")).unwrap().appended.store_time;
        assert!(stored >= last.max(now), "{stored} after {last}, at {now}");
        last = stored;
    }
    store.close().unwrap();
}

#[test]
fn a_place_inside_a_record_holds_no_message() {
    let place = Place::new();
    let store = place.create();
    let done = store.append(message("t", 0, &[7; 500])).unwrap().appended;
    for at in 1..done.wrote_bytes {
        let inside = store.reader().message_at(done.physical_offset + i64::from(at));
        assert!(matches!(inside, Err(Error::NotFound { .. })), "{at}: {inside:?}");
    }
    store.close().unwrap();
}

#[test]
fn a_try_that_needs_a_segment_leaves_the_message_and_makes_none() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    let segments = || env.changes().iter().filter(|change| change.starts_with("allocate ")).count();
    let mut delayed = with(message("t", 0, b"x"), &[("DELAY", "3")]);
    let checked = store.appender(None).checked(&mut delayed).unwrap();
    assert!(checked.try_append().unwrap().is_none());
    assert_eq!(segments(), 0);
    // It is checked and delayed once, however often it is tried.
    let first = checked.append().unwrap().appended;
    assert_eq!((segments(), first.physical_offset), (1, 0));
    let stored = store.reader().message_at(0).unwrap();
    assert_eq!(
        (stored.view().topic().as_ref(), stored.view().queue_id()),
        ("SCHEDULE_TOPIC_XXXX", 2)
    );
    let mut large = record_of(10_000);
    let checked = store.appender(None).checked(&mut large).unwrap();
    assert!(checked.try_append().unwrap().is_some());
    assert!(checked.try_append().unwrap().is_none());
    assert_eq!(segments(), 1);
    store.close().unwrap();
    assert!(matches!(
        store.appender(None).checked(&mut record_of(100)).unwrap().try_append(),
        Err(Error::Closed)
    ));
}

/// A body in a file that is mapped: whoever writes to the file changes it.
struct Shared {
    path: PathBuf,
    region: Region,
}

impl Shared {
    fn new(place: &Place, len: usize) -> Self {
        let path = place.store.with_extension("body");
        fs::write(&path, vec![b'a'; len]).unwrap();
        let region = real().open(&path, Access::Read).unwrap().map(len, Access::Read).unwrap();
        Self { path, region }
    }

    fn message(&self) -> Message<'_> {
        message("t", 0, self.region.bytes(0..self.region.len()).unwrap())
    }

    /// Changes it when the lock is taken: then the clock is read.
    fn change_under_the_lock(&self, env: &CountingEnv) {
        let (path, len) = (self.path.clone(), self.region.len());
        env.before_changes(move |change| {
            if change == "clock" {
                // In place: a shorter file would take the mapping's pages away.
                let file = fs::OpenOptions::new().write(true).open(&path)?;
                std::os::unix::fs::FileExt::write_all_at(&file, &vec![b'b'; len], 0)?;
            }
            Ok(())
        });
    }
}

/// Without threads: this one alone takes the lock and looks at the clock, and wakes nobody.
fn with_large_segments(place: &Place) -> (CountingEnv, MessageStore) {
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..small()
    };
    stepped_with(place, config)
}

#[test]
fn a_checksum_is_taken_before_the_lock() {
    let place = Place::new();
    let (env, store) = with_large_segments(&place);
    put(&store, "t", b"first");
    let body = Shared::new(&place, 1000);
    body.change_under_the_lock(&env);
    let offset = store.append(body.message()).unwrap().appended.physical_offset;
    let read = store.reader().message_at(offset);
    assert!(matches!(read, Err(Error::Corrupt { .. })), "{read:?}");
}

#[test]
fn a_whole_record_checksum_reads_no_body_under_the_lock() {
    let place = Place::new();
    let (env, store) = with_large_segments(&place);
    put(&store, "t", b"first");
    let body = Shared::new(&place, 1000);
    body.change_under_the_lock(&env);
    let mut checked = body.message();
    checked.crc_property = true;
    let appended = store.append(checked).unwrap().appended;
    store.close().unwrap();
    let segment = fs::read(place.at("commitlog/00000000000000000000")).unwrap();
    let mut record = segment[appended.physical_offset as usize..][..appended.wrote_bytes as usize].to_vec();
    let body_at = record.windows(1000).position(|window| window == [b'b'; 1000]).unwrap();
    record[body_at..body_at + 1000].fill(b'a');
    let read = read_record(&record, Check::Whole);
    assert!(matches!(read, Record::Message(_)), "{read:?}");
}

/// Properties in this many pairs.
fn with_pairs(count: usize) -> Message<'static> {
    let names: Vec<String> = (0..count).map(|n| format!("name-{n}")).collect();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "value")).collect();
    with(message("t", 0, b"x"), &pairs)
}

#[test]
fn what_is_done_under_the_lock_does_not_depend_on_the_properties() {
    let place = Place::new();
    let (env, store) = with_large_segments(&place);
    // The first message of a topic makes room for its queues' numbers.
    put(&store, "t", b"first");
    let at_the_lock = Arc::new(AtomicUsize::new(0));
    let seen = at_the_lock.clone();
    env.before_changes(move |change| {
        // The clock is read when the lock is taken.
        if change == "clock" {
            seen.store(heap::times(), Ordering::SeqCst);
        }
        Ok(())
    });
    for has_checksum in [false, true] {
        let mut found = Vec::new();
        for count in [1, 30, 1500] {
            let mut message = with_pairs(count);
            message.crc_property = has_checksum;
            let mut pieces = 0;
            message.prepare().unwrap().write(0, 0, 0, |parts| {
                pieces = parts.len();
                true
            });
            store.append(message).unwrap();
            let allocations = heap::times() - at_the_lock.load(Ordering::SeqCst);
            found.push((pieces, allocations));
        }
        assert_eq!(
            found, [found[0]; 3],
            "pieces copied, allocations and releases since the lock was taken"
        );
        assert_eq!(found[0].0, if has_checksum { 7 } else { 6 });
    }
}

#[test]
fn a_batch_is_encoded_a_stretch_at_a_time() {
    let place = Place::new();
    let (env, store) = with_large_segments(&place);
    put(&store, "t", b"first");
    let body = Shared::new(&place, 200_000);
    body.change_under_the_lock(&env);
    let mut done = Vec::new();
    store
        .appender(None)
        .append_all(vec![body.message(), body.message()], &mut done)
        .unwrap();
    let read = |n: usize| store.reader().message_at(done[n].appended.physical_offset);
    assert!(read(0).is_err());
    assert_eq!(read(1).unwrap().view().body(), vec![b'b'; 200_000]);
}

#[test]
fn a_copied_message_whose_body_changes_concurrently_matches_its_checksum() {
    let place = Place::new();
    let (env, store) = with_large_segments(&place);
    put(&store, "t", b"first");
    let body = Shared::new(&place, 1000);
    body.change_under_the_lock(&env);
    store
        .appender(None)
        .append_all(vec![Incoming::Copied(body.message())], &mut Vec::new())
        .unwrap();
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0), [b"first".to_vec(), vec![b'a'; 1000]]);
}
