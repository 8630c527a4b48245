//! Pages and blocks are ready before they are written.
#![allow(unsafe_code)]

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::services::{Next, Service};
use mqstore::storage::Access;
use mqstore::store::MessageStore;

use super::services::stepped_with;
use super::{Place, bodies, message, put, small};

const IDLE: Next = Next::Idle { until: None };

/// Page faults of this thread that needed no disk.
fn faults() -> i64 {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a rusage to be written.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_minflt
}

/// Appends nearly a MiB in messages of a KiB: the faults that this took.
fn append_a_mib(store: &MessageStore) -> i64 {
    let body = [7; 1024];
    let before = faults();
    for _ in 0..900 {
        store.append(message("t", 0, &body)).unwrap();
    }
    faults() - before
}

#[test]
fn an_append_finds_its_pages_supplied() {
    let place = Place::new();
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(16 << 20),
        ..small()
    };
    let (_, store) = stepped_with(&place, config);
    let mut now = Instant::now();
    assert_eq!(store.step(Service::Supply, now).unwrap(), IDLE);
    let without = append_a_mib(&store);
    assert!(without > 200, "{without} faults");
    // The rate is high: the window is a quarter of the segment.
    let mut with = 0;
    for _ in 0..8 {
        while store.step(Service::Supply, now).unwrap() == Next::Again {}
        with += append_a_mib(&store);
        now += Duration::from_millis(5);
    }
    // Across the roll, with the next segment made ahead.
    for _ in 0..8 {
        store.step(Service::Allocate, now).unwrap();
        while store.step(Service::Supply, now).unwrap() == Next::Again {}
        with += append_a_mib(&store);
        now += Duration::from_millis(5);
    }
    assert!(with < 16, "{with} faults in 16 MiB");
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 17 * 900);
}

#[test]
fn pages_are_supplied_for_what_is_appended_and_no_further_than_the_window() {
    let place = Place::new();
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(64 << 20),
        ..small()
    };
    let (_, store) = stepped_with(&place, config);
    let mut now = Instant::now();
    store.step(Service::Supply, now).unwrap();
    put(&store, "t", b"x");
    // One message in five ms: the smallest window, one MiB, in one step.
    now += Duration::from_millis(5);
    assert_eq!(store.step(Service::Supply, now).unwrap(), IDLE);
    assert_eq!(store.step(Service::Supply, now).unwrap(), IDLE);
    // Half of it is used up before there is more to do.
    for _ in 0..400 {
        put(&store, "t", &[0; 1000]);
    }
    assert_eq!(store.step(Service::Supply, now).unwrap(), IDLE);
    for _ in 0..100 {
        put(&store, "t", &[0; 1000]);
    }
    now += Duration::from_millis(1);
    // 500 kB in a ms: the largest window, which is 16 MiB, a MiB in a step.
    let mut steps = 1;
    while store.step(Service::Supply, now).unwrap() == Next::Again {
        steps += 1;
    }
    assert!((15..=17).contains(&steps), "{steps} steps");
    store.close().unwrap();
}

#[test]
fn a_segment_that_was_warmed_up_has_all_its_pages_when_it_is_begun() {
    for (flush_disk_type, syncs) in [(FlushDiskType::Async, 1), (FlushDiskType::Sync, 1 + 5)] {
        // On the disk: a file system with a disk write-protects a page when it is synced.
        let place = Place::on_disk();
        let config = StoreConfig {
            mapped_file_size_commit_log: Some(5 << 20),
            flush_disk_type,
            warm_mapped_file_enable: true,
            flush_least_pages_when_warm_mapped_file: 256,
            ..small()
        };
        let (env, store) = stepped_with(&place, config);
        store.step(Service::Allocate, Instant::now()).unwrap();
        store
            .appender(Some(false))
            .append(message("t", 0, b"makes the first one"))
            .unwrap();
        let allocated = |change: &String| change.contains("SegmentAllocated");
        assert_eq!(env.changes().iter().filter(|change| allocated(change)).count(), syncs);
        let before = faults();
        for _ in 0..4000 {
            store.appender(Some(false)).append(message("t", 0, &[7; 1024])).unwrap();
        }
        let with = faults() - before;
        // With SYNC_FLUSH the pages of the pool are written, and the warm-up is for the blocks.
        assert!(with < 16 || flush_disk_type == FlushDiskType::Sync, "{with} faults");
        assert_eq!(store.stats().log.segments.locked, 1);
        store.flush().unwrap();
        store.close().unwrap();
        // What a broker finds is what it finds without a warm-up.
        assert_eq!(place.reader().physical_bounds(), 0..store.appended_offset());
    }
}

/// Bytes from the start of a file that have blocks that were written.
fn written(path: &Path) -> u64 {
    let file = super::real().open(path, Access::Read).unwrap();
    let len = file.len().unwrap();
    file.written(0..len).unwrap().iter().map(|part| part.end - part.start).sum()
}

fn synced_with_blocks(segment: u64) -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(segment),
        flush_disk_type: FlushDiskType::Sync,
        ..small()
    }
}

#[test]
fn a_sync_that_comes_to_the_end_of_the_written_blocks_writes_more_of_them() {
    let place = Place::on_disk();
    let (env, store) = stepped_with(&place, synced_with_blocks(8 << 20));
    let zeros = || env.changes().iter().filter(|change| change.starts_with("zero ")).count();
    let body = vec![7; 100_000];
    let (stretch, mut ends) = (1 << 20, 0);
    for stretches in 1..=3 {
        // The first commit that comes to the end of the written blocks is the one after which the log ends there or later.
        put(&store, "t", b"x");
        while store.flushed_offset() <= ends {
            put(&store, "t", &body);
        }
        assert_eq!(zeros(), stretches);
        ends = store.flushed_offset() + stretch;
        let until = written(&place.at("commitlog/00000000000000000000"));
        assert!(
            (0..64 << 10).contains(&(until as i64 - ends)),
            "{until} bytes, {ends} expected"
        );
    }
    store.close().unwrap();
    let all = bodies(&place.reader(), "t", 0);
    assert!(all.len() > 20 && all.iter().all(|stored| stored == &body || stored == b"x"));
}

#[test]
fn what_is_committed_while_blocks_are_written_stays() {
    let place = Place::new();
    let (env, store) = place.create_counting(synced_with_blocks(4 << 20));
    env.before_changes(|change| {
        if change.starts_with("zero ") {
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    });
    thread::scope(|scope| {
        for queue_id in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for body in 1..=20 {
                    store.append(message("t", queue_id, &vec![body; 300_000])).unwrap();
                }
            });
        }
    });
    store.close().unwrap();
    let reader = place.reader();
    for queue_id in 0..4 {
        let stored = bodies(&reader, "t", queue_id);
        let expected: Vec<Vec<u8>> = (1..=20).map(|body| vec![body; 300_000]).collect();
        assert!(stored == expected, "queue {queue_id} has other bytes");
    }
}

#[test]
fn blocks_that_cannot_be_written_cost_no_message() {
    let place = Place::new();
    let (env, store) = stepped_with(&place, synced_with_blocks(8 << 20));
    env.before_changes(move |change| {
        if change.starts_with("zero ") {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    });
    put(&store, "t", b"a");
    assert_eq!(store.flushed_offset(), store.appended_offset());
    env.heal();
    put(&store, "t", b"b");
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0), [b"a", b"b"]);
}
