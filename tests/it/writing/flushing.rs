//! The flush that nobody waits for: when it comes.

use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::services::{Next, Service};
use mqstore::store::MessageStore;

use super::services::stepped_with;
use super::{Place, put, record_of, small, soon};

/// Returns what a flush at its interval makes durable, this long after the start.
fn flushed_at(store: &MessageStore, start: Instant, ms: u64) -> i64 {
    store.step(Service::Flush, start + Duration::from_millis(ms)).unwrap();
    store.flushed_offset()
}

#[test]
fn three_pages_wait_for_the_thorough_interval_and_four_go_at_the_next_one() {
    let place = Place::new();
    let (_, store) = stepped_with(&place, small());
    let start = Instant::now();
    assert_eq!(flushed_at(&store, start, 0), 0);
    for _ in 0..3 {
        store.append(record_of(4096)).unwrap();
    }
    assert_eq!(flushed_at(&store, start, 499), 0);
    assert_eq!(flushed_at(&store, start, 500), 0);
    assert_eq!(flushed_at(&store, start, 9_999), 0);
    assert_eq!(flushed_at(&store, start, 10_499), 3 * 4096);
    for pages in [4, 5] {
        // A BLANK fills the first segment.
        let before = store.flushed_offset();
        for _ in 0..pages {
            store.append(record_of(3000)).unwrap();
            store.append(record_of(1096)).unwrap();
        }
        let due = 10_499 + 500 * (pages - 3);
        assert_eq!(flushed_at(&store, start, due - 1), before);
        assert_eq!(flushed_at(&store, start, due), store.appended_offset());
    }
    store.close().unwrap();
}

#[test]
fn unflushed_bytes_are_never_older_than_the_thorough_interval() {
    let place = Place::new();
    let config = StoreConfig {
        flush_commit_log_thorough_interval: 2000,
        ..small()
    };
    let (_, store) = stepped_with(&place, config);
    let start = Instant::now();
    flushed_at(&store, start, 0);
    for second in 0..20 {
        let appended = put(&store, "t", b"x");
        for half in 0..4 {
            flushed_at(&store, start, second * 2500 + half * 500);
        }
        assert_eq!(
            flushed_at(&store, start, second * 2500 + 2000),
            store.appended_offset(),
            "{appended}"
        );
    }
    store.close().unwrap();
}

#[test]
fn without_timed_flushes_an_append_requests_one_after_enough_pages() {
    for (is_timed, is_flushed) in [(true, false), (false, true)] {
        let place = Place::new();
        let config = StoreConfig {
            flush_interval_commit_log: 1_000_000,
            flush_commit_log_timed: is_timed,
            flush_commit_log_least_pages: 2,
            ..small()
        };
        let (_, store) = stepped_with(&place, config);
        let start = Instant::now();
        assert!(matches!(store.step(Service::Flush, start).unwrap(), Next::Idle { .. }));
        store.append(record_of(4096)).unwrap();
        assert_eq!(flushed_at(&store, start, 1), 0);
        store.append(record_of(4096)).unwrap();
        assert_eq!(flushed_at(&store, start, 2) > 0, is_flushed);
        store.close().unwrap();
    }
    // Its thread is woken.
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        flush_interval_commit_log: 1_000_000,
        flush_commit_log_timed: false,
        ..small()
    });
    for _ in 0..8 {
        store.append(record_of(4000)).unwrap();
    }
    let deadline = soon();
    while store.appended_offset() / 4096 - store.flushed_offset() / 4096 >= 4 {
        assert!(Instant::now() < deadline, "nothing was flushed");
        std::thread::yield_now();
    }
    store.close().unwrap();
}
