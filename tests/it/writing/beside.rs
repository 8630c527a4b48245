//! A reader that is opened in another process while a writer appends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use mqstore::config::{Recovery, StoreConfig};
use mqstore::read::MessageReader;
use mqstore::storage::Env;
use mqstore::store::MessageStore;

use super::{Place, SEGMENT, message, put, small, walk};
use crate::counting_env::CountingEnv;

/// A store that is open: the checkpoint vouches for a few messages in its first segment, and four segments follow.
fn live(place: &Place) -> Arc<MessageStore> {
    let store = place.create();
    for _ in 0..5 {
        put(&store, "t", &[0; 1000]);
    }
    store.close().unwrap();
    let store = place.reopen();
    for _ in 0..60 {
        put(&store, "t", &[0; 1000]);
    }
    Arc::new(store)
}

#[test]
fn what_is_appended_while_a_reader_opens_is_left_out_and_all_that_was_there_is_seen() {
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

#[test]
fn a_reader_beside_a_writer_that_never_pauses_sees_whole_messages_and_all_that_were_appended_before() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..small()
    });
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                put(&store, "t", &[2; 3000]);
            }
        });
        for _ in 0..10 {
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
