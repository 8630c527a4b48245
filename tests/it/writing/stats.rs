//! Statistics of an open store.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::log::{PutStats, SegmentStats};
use mqstore::services::Service;
use mqstore::store::AppendResult;

use super::services::{stepped, stepped_with};
use super::{Place, message, put, small};

/// Counts a result as the store should.
fn count(counted: &mut BTreeMap<String, PutStats>, topic: &str, done: AppendResult) {
    let puts = counted.entry(topic.to_owned()).or_default();
    puts.times += 1;
    puts.size += done.appended.wrote_bytes as u64;
}

#[test]
fn a_thousand_puts_in_three_topics_are_counted_exactly() {
    let place = Place::new();
    let store = place.create();
    let mut counted = BTreeMap::new();
    let topics = ["a", "b", "c"];
    for n in 0..500 {
        let topic = topics[n % 3];
        let done = store.append(message(topic, n as i32 % 4, &vec![0; n])).unwrap();
        count(&mut counted, topic, done);
    }
    for together in [false, true] {
        for _ in 0..10 {
            let batch: Vec<_> = (0..25).map(|n| message(topics[n % 3], 0, b"body")).collect();
            let mut done = Vec::new();
            if together {
                store.appender(None).append_together(batch, &mut done).unwrap();
            } else {
                store.appender(None).append_all(batch, &mut done).unwrap();
            }
            for (n, done) in done.into_iter().enumerate() {
                count(&mut counted, topics[n % 3], done);
            }
        }
    }
    // A message that was prepared takes no queue offset, and is put all the same.
    let mut prepared = message("half", 0, b"x");
    prepared.sys_flag = 4;
    count(&mut counted, "half", store.append(prepared).unwrap());
    // What is refused is not counted.
    store.append(message("a", -1, b"x")).unwrap_err();
    let stats = store.stats().log;
    assert_eq!(stats.topics, counted);
    assert_eq!(stats.total().times, 1001);
    assert_eq!(stats.total().size, counted.values().map(|puts| puts.size).sum::<u64>());
    store.close().unwrap();

    let store = place.reopen();
    assert!(store.stats().log.topics.is_empty());
    assert_eq!(store.stats().log.total(), PutStats::default());
    put(&store, "b", b"x");
    let topics: Vec<_> = store.stats().log.topics.into_keys().collect();
    assert_eq!(topics, ["b"]);
    store.close().unwrap();
}

/// An append that takes 500 ms under the lock is not slow, an append of 501 ms is.
#[test]
fn an_append_that_holds_the_lock_over_500_ms_is_a_slow_put_counted_once() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    let stall = |ms: i64| {
        let clock = env.clone();
        env.set_monotonic(1000);
        env.before_changes(move |change| {
            if change == "clock" {
                clock.set_monotonic(1000 + ms);
            }
            Ok(())
        });
        put(&store, "t", b"x");
        env.heal();
    };
    stall(500);
    let stats = store.stats().log;
    assert_eq!((stats.slow_puts, stats.in_lock_time_max), (0, Duration::from_millis(500)));
    assert!(store.take_slow_puts().is_empty());
    stall(600);
    stall(501);
    stall(1);
    let stats = store.stats().log;
    assert_eq!((stats.slow_puts, stats.in_lock_time_max), (2, Duration::from_millis(600)));
    assert_eq!(store.take_slow_puts(), [600, 501].map(Duration::from_millis));
    assert!(store.take_slow_puts().is_empty());
    // Of those that nobody asks for the newest are kept.
    for ms in 0..100 {
        stall(1000 + ms);
    }
    let given = store.take_slow_puts();
    assert_eq!((given.len(), given[63]), (64, Duration::from_millis(1099)));
    assert_eq!(store.stats().log.slow_puts, 102);
    store.close().unwrap();
}

#[test]
fn a_segment_that_an_append_waited_for_was_not_made_ahead() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    let expect = |begun, made_ahead, waits| {
        let expected = SegmentStats {
            begun,
            made_ahead,
            locked: 0,
            waits,
        };
        assert_eq!(store.stats().log.segments, expected);
    };
    expect(0, 0, 0);
    put(&store, "t", &[0; 10_000]);
    expect(1, 0, 1);
    store.step(Service::Allocate, Instant::now()).unwrap();
    expect(1, 0, 1);
    put(&store, "t", &[0; 10_000]);
    expect(2, 1, 1);
    put(&store, "t", &[0; 10_000]);
    expect(3, 1, 2);
    put(&store, "t", b"fits");
    expect(3, 1, 2);
    store.close().unwrap();
}

#[test]
fn each_durable_append_counts_once_and_each_sync_that_carries_them() {
    let place = Place::new();
    let (env, store) = place.create_counting(StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        flush_disk_type: FlushDiskType::Sync,
        flush_interval_commit_log: 1_000_000,
        ..small()
    });
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    put(&store, "t", b"x");
                }
            });
        }
    });
    let stats = store.stats().log;
    let changes = env.changes();
    let synced = changes.iter().filter(|change| change.starts_with("sync LogRange")).count() as u64;
    assert_eq!((stats.group_commit_requests, stats.syncs), (200, synced));
    assert_eq!(stats.group_commits, stats.syncs);
    assert!((1..=200).contains(&stats.group_commits));
    store.close().unwrap();
}

#[test]
fn a_flush_counts_as_a_sync_and_an_append_without_wait_as_no_request() {
    let place = Place::new();
    let (_, store) = stepped(&place);
    let expect = |syncs, group_commits, requests| {
        let stats = store.stats().log;
        let found = (stats.syncs, stats.group_commits, stats.group_commit_requests);
        assert_eq!(found, (syncs, group_commits, requests));
    };
    put(&store, "t", b"x");
    expect(0, 0, 0);
    store.flush().unwrap();
    expect(1, 0, 0);
    store.flush().unwrap();
    expect(1, 0, 0);
    store.appender(Some(true)).append(message("t", 0, b"x")).unwrap();
    expect(2, 1, 1);
    let batch = vec![message("t", 0, b"x"), message("t", 0, b"x")];
    store.appender(Some(true)).append_all(batch, &mut Vec::new()).unwrap();
    expect(3, 2, 2);
    store.close().unwrap();
}

#[test]
fn what_is_not_dispatched_yet_is_reported_in_bytes() {
    let place = Place::new();
    let (_, store) = stepped_with(&place, small());
    assert_eq!(store.stats().dispatch_behind_bytes, 0);
    put(&store, "t", b"one");
    put(&store, "t", b"two");
    assert_eq!(store.stats().dispatch_behind_bytes, store.stats().log.total().size);
    store.step(Service::Dispatch, Instant::now()).unwrap();
    assert_eq!(store.stats().dispatch_behind_bytes, 0);
    store.close().unwrap();
}
