//! Dispatch, driven step by step over a log that lies on disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use mqstore::engine::Dispatcher;
use mqstore::error::Error;
use mqstore::format::{DelayLevels, IndexGeometry, Message};
use mqstore::log::{ConsumeQueueStore, IndexService, LogFiles};
use mqstore::storage::{Env, RealEnv};
use mqstore::watermark::Watermark;
use tempfile::tempdir;

const SEGMENT: usize = 16384;
const GEOMETRY: IndexGeometry = IndexGeometry { slots: 100, items: 400 };

/// A dispatcher that is told that `appended` bytes of the log are messages.
fn dispatcher(store: &Path, appended: usize) -> (Dispatcher, Arc<Watermark>) {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let dispatched = Arc::new(Watermark::new(0));
    let dispatcher = Dispatcher::new(
        Arc::new(LogFiles::load(env.clone(), &store.join("commitlog"), Some(SEGMENT as u64)).unwrap()),
        Arc::new(ConsumeQueueStore::load(env.clone(), store, Some(1000)).unwrap()),
        Arc::new(IndexService::load(&env, &store.join("index"), Some(GEOMETRY), 0).unwrap()),
        Arc::new(Watermark::new(appended as i64)),
        dispatched.clone(),
        DelayLevels::default(),
        GEOMETRY,
        false,
    );
    (dispatcher, dispatched)
}

/// Anything that does not end here would keep a store from closing.
fn damage_ends_dispatch(damage: impl FnOnce(&mut [u8], usize)) {
    let dir = tempdir().unwrap();
    let message = Message {
        topic: "orders".to_owned(),
        ..Message::default()
    };
    let first = message.encode().unwrap();
    let second = Message {
        physical_offset: first.len() as i64,
        queue_offset: 1,
        ..message
    };
    let mut segment = [first.clone(), second.encode().unwrap()].concat();
    let end = segment.len();
    segment.resize(SEGMENT, 0);
    damage(&mut segment, first.len());
    for folder in ["commitlog", "consumequeue", "index"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    fs::write(dir.path().join("commitlog").join(format!("{:020}", 0)), segment).unwrap();

    let (mut dispatcher, dispatched) = dispatcher(dir.path(), end);
    assert!(matches!(dispatcher.step(), Err(Error::Corrupt { .. })));
    assert_eq!(dispatched.get(), first.len() as i64);
}

#[test]
fn a_damaged_record_ends_dispatch_behind_the_one_in_front_of_it() {
    damage_ends_dispatch(|segment, second| segment[second + 3] ^= 1);
}

#[test]
fn zeros_below_the_end_of_the_log_end_dispatch() {
    damage_ends_dispatch(|segment, second| segment[second..].fill(0));
}
