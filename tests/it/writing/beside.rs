//! A reader that is opened in another process while a writer appends.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use mqstore::config::{FlushDiskType, Recovery, StoreConfig};
use mqstore::read::MessageReader;
use mqstore::services::{Next, Service};
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};

use super::{Place, SEGMENT, message, put, reader, small, walk};
use crate::counting_env::CountingEnv;

/// A store that is open: the checkpoint vouches for a few messages in its first segment, and four segments follow. No thread writes
/// entries of those into the queue, so a reader looks at no message before it scans the log.
fn live(place: &Place) -> Arc<MessageStore> {
    let store = place.create();
    for _ in 0..5 {
        put(&store, "t", &[0; 1000]);
    }
    store.close().unwrap();
    let store = MessageStore::open_stepped(&super::real(), &place.store, StoreConfig::default(), OpenMode::Existing).unwrap();
    for _ in 0..60 {
        put(&store, "t", &[0; 1000]);
    }
    Arc::new(store)
}

#[test]
fn appends_during_an_open_of_a_reader_are_left_out_and_earlier_ones_seen() {
    let place = Place::new();
    let store = live(&place);
    let (bounds, env) = (store.reader().physical_bounds(), CountingEnv::new());
    let second = format!("map {}", place.at("commitlog").join(format!("{SEGMENT:020}")).display());
    let (writer, appended) = (store.clone(), Arc::new(AtomicUsize::new(0)));
    let count = appended.clone();
    env.before_looks(move |look| {
        // The scan has come to the second segment; the end of the log is in the fifth.
        if look == second {
            for _ in 0..20 {
                writer.append(message("t", 0, &[1; 1000])).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok(())
    });
    let seam: Arc<dyn Env> = Arc::new(env);
    let reader = MessageReader::open(&seam, &place.store, StoreConfig::default()).unwrap();
    assert_eq!(appended.load(Ordering::SeqCst), 20);
    assert_eq!(reader.physical_bounds(), bounds);
    assert_eq!(reader.queue_bounds("t", 0).unwrap(), 0..65);
    assert!(reader.recovery().stop_reason.contains("nothing is written after it"));
    assert_eq!(walk(&reader, SEGMENT).len(), 65);
    assert_eq!(place.reader().queue_bounds("t", 0).unwrap(), 0..85);
}

/// Bytes that a reader may find appended beside it, and more than it takes on a machine that runs both.
const MOST_IN_A_ROUND: i64 = 32 << 20;

#[test]
fn a_reader_sees_whole_messages_and_all_earlier_ones_of_a_busy_writer() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..small()
    });
    let (is_over, rounds) = (AtomicBool::new(false), AtomicI64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                // A reader that the machine does not run leaves room for others in memory.
                if store.appended_offset() < rounds.load(Ordering::SeqCst) * MOST_IN_A_ROUND {
                    put(&store, "t", &[2; 3000]);
                } else {
                    thread::yield_now();
                }
            }
        });
        for round in 1..=10 {
            rounds.store(round, Ordering::SeqCst);
            let before = store.reader().physical_bounds().end;
            let reader = place.reader();
            assert!(reader.physical_bounds().end >= before);
            let messages = walk(&reader, 1 << 20).len() as i64;
            assert_eq!(reader.queue_bounds("t", 0).unwrap(), 0..messages);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    store.close().unwrap();
}

#[test]
fn what_is_appended_while_a_reader_salvages_is_no_damage() {
    let place = Place::new();
    let store = live(&place);
    let (bounds, env) = (store.reader().physical_bounds(), CountingEnv::new());
    let last = format!(
        "open {}",
        place.at("commitlog").join(format!("{:020}", 4 * SEGMENT)).display()
    );
    let (writer, appended) = (store.clone(), Arc::new(AtomicUsize::new(0)));
    let count = appended.clone();
    env.before_looks(move |look| {
        // The segment is opened once more where the search for a record after the log's end begins.
        if look == last {
            for _ in 0..2 {
                writer.append(message("t", 0, &[1; 100])).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
        Ok(())
    });
    let seam: Arc<dyn Env> = Arc::new(env);
    let config = StoreConfig {
        recovery: Recovery::Salvage,
        ..StoreConfig::default()
    };
    let reader = MessageReader::open(&seam, &place.store, config).unwrap();
    assert!(appended.load(Ordering::SeqCst) > 2);
    let report = reader.recovery();
    assert!(report.lost.is_empty() && report.missing.is_none(), "{report:?}");
    assert!(reader.physical_bounds().end > bounds.end);
    let messages = walk(&reader, SEGMENT).len() as i64;
    assert_eq!(reader.queue_bounds("t", 0).unwrap(), 0..messages);
}

#[test]
fn a_reader_sees_durable_messages_of_a_sync_writer_and_all_once_it_died() {
    let place = Place::new();
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        flush_interval_commit_log: 1_000_000,
        ..small()
    };
    let store = MessageStore::open_stepped(&super::real(), &place.store, config, OpenMode::New).unwrap();
    let passing = |count: usize| {
        for _ in 0..count {
            store.appender(Some(false)).append(message("t", 0, &[2; 1000])).unwrap();
        }
        store.commit().unwrap();
    };
    let dispatch = || while store.step(Service::Dispatch, Instant::now()).unwrap() == Next::Again {};
    for flushed in [3, 20, 60] {
        while store.reader().queue_bounds("t", 0).map_or(0, |bounds| bounds.end) < flushed {
            put(&store, "t", &[1; 1000]);
            dispatch();
        }
        // Some of them roll into the next segment.
        passing(20);
        dispatch();
        let beside = place.reader();
        assert_eq!(beside.physical_bounds().end, store.flushed_offset());
        assert_eq!(
            beside.queue_bounds("t", 0).unwrap(),
            store.reader().queue_bounds("t", 0).unwrap()
        );
        assert_eq!(
            beside.recovery().stop_reason,
            "its writer has made nothing durable after it yet"
        );
        assert_eq!(beside.recovery().missing, None);
        let all = walk(&beside, SEGMENT).len() as i64;
        assert_eq!(all, beside.queue_bounds("t", 0).unwrap().end);
        // A copy has no writer: it is a store after a crash.
        let copied = super::killed(&place);
        let dead = reader(copied.path());
        assert_eq!(
            (dead.physical_bounds().end, walk(&dead, SEGMENT).len() as i64),
            (store.appended_offset(), all + 20)
        );
        store.flush().unwrap();
        dispatch();
    }
    assert_eq!(place.reader().physical_bounds().end, store.appended_offset());
    store.close().unwrap();
    // The mark still names the mode.
    assert_eq!(place.reader().physical_bounds().end, store.appended_offset());
    let store = place.reopen();
    put(&store, "t", b"not flushed");
    assert_eq!(
        place.reader().physical_bounds().end,
        store.appended_offset(),
        "this writer shows what it appends"
    );
    store.close().unwrap();
}

#[test]
fn a_reader_sees_a_dead_writers_messages_also_during_the_next_recovery() {
    let place = Place::new();
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        flush_interval_commit_log: 1_000_000,
        ..small()
    };
    let store = MessageStore::open_stepped(&super::real(), &place.store, config.clone(), OpenMode::New).unwrap();
    put(&store, "t", b"durable");
    store.appender(Some(false)).append(message("t", 0, b"not yet")).unwrap();
    store.commit().unwrap();
    let copied = super::killed(&place);
    assert_eq!(place.reader().queue_bounds("t", 0).unwrap(), 0..1);
    assert_eq!(reader(copied.path()).queue_bounds("t", 0).unwrap(), 0..2);
    let (env, seen) = (CountingEnv::new(), Arc::new(AtomicUsize::new(0)));
    let (path, count) = (copied.path().to_owned(), seen.clone());
    env.before_changes(move |change| {
        if change != "clock" {
            assert_eq!(reader(&path).queue_bounds("t", 0).unwrap(), 0..2, "{change}");
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let next = MessageStore::open_stepped(&seam, copied.path(), config, OpenMode::Existing).unwrap();
    env.heal();
    assert!(seen.load(Ordering::SeqCst) > 5);
    assert_eq!(reader(copied.path()).queue_bounds("t", 0).unwrap(), 0..2);
    next.close().unwrap();
    store.close().unwrap();
}

#[test]
fn a_segment_that_was_made_while_the_log_was_listed_is_no_hole() {
    let place = Place::new();
    let store = live(&place);
    let (all, env) = (place.reader().physical_bounds(), CountingEnv::new());
    let middle = place.at("commitlog").join(format!("{:020}", 2 * SEGMENT));
    let elsewhere = place.at("elsewhere");
    let list = format!("list {}", place.at("commitlog").display());
    let listed = AtomicUsize::new(0);
    env.before_looks(move |look| {
        if look == list {
            // It is not in the first list.
            match listed.fetch_add(1, Ordering::SeqCst) {
                0 => fs::rename(&middle, &elsewhere)?,
                1 => fs::rename(&elsewhere, &middle)?,
                _ => {}
            }
        }
        Ok(())
    });
    let seam: Arc<dyn Env> = Arc::new(env);
    let reader = MessageReader::open(&seam, &place.store, StoreConfig::default()).unwrap();
    assert_eq!((reader.recovery().missing.clone(), reader.physical_bounds()), (None, all));
    store.close().unwrap();
}
