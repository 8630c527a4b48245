//! Tens of thousands of queues: few descriptors, few mappings.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mqstore::config::StoreConfig;
use mqstore::read::MessageReader;
use mqstore::store::{MessageStore, OpenMode};

use super::{Place, message, open, open_in, small, soon};
use crate::child;
use crate::counting_env::CountingEnv;

const TOPICS: usize = 500;
const QUEUES: i32 = 100;
const COUNT: usize = TOPICS * QUEUES as usize;

/// Descriptors and mappings of this process.
fn held() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    (descriptors, maps)
}

fn check(when: &str) {
    let (descriptors, maps) = held();
    println!("{when}: {descriptors} descriptors, {maps} mappings");
    assert!(
        descriptors <= 1000 && maps <= 4000,
        "{when}: {descriptors} descriptors, {maps} mappings"
    );
}

fn append_to_all(store: &MessageStore) {
    let mut done = Vec::new();
    for topic in 0..TOPICS {
        let topic = format!("t{topic}");
        let messages = (0..QUEUES).map(|queue| message(&topic, queue, b"x")).collect();
        store.append_all(messages, &mut done).unwrap();
    }
    check("appended");
    let last = done.last().unwrap().appended.physical_offset;
    store.wait_dispatched(last, Some(soon())).unwrap();
    check("dispatched");
}

fn read_all(reader: &MessageReader, number: i64) {
    for topic in 0..TOPICS {
        let topic = format!("t{topic}");
        for queue in 0..QUEUES {
            assert_eq!(reader.queue_bounds(&topic, queue).unwrap(), 0..number + 1);
            assert_eq!(
                reader.message_in_queue(&topic, queue, number).unwrap().view().queue_offset(),
                number
            );
        }
    }
    check("read");
}

#[test]
#[ignore = "the program of a child process"]
fn child_writes_to_fifty_thousand_queues() {
    if !child::is_child() {
        return;
    }
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..small()
    });
    append_to_all(&store);
    read_all(store.reader(), 0);
    store.close().unwrap();
    drop(store);
    let store = open(&place.store, StoreConfig::default(), OpenMode::Existing).unwrap();
    check("opened again");
    append_to_all(&store);
    store.close().unwrap();
    read_all(store.reader(), 1);
}

#[test]
fn a_writer_opens_its_file_system_once_and_before_anything_of_its_queues() {
    let place = Place::new();
    place.create().close().unwrap();
    let env = CountingEnv::new();
    let root = place.store.clone();
    let opened = move |env: &CountingEnv| env.opened().iter().filter(|path| **path == root).count();
    let (seen, looked_at, found) = (env.clone(), opened.clone(), Arc::new(AtomicUsize::new(usize::MAX)));
    let before = found.clone();
    env.before_changes(move |change| {
        if change.contains("consumequeue/") {
            before.fetch_min(looked_at(&seen), Ordering::SeqCst);
        }
        Ok(())
    });
    let config = StoreConfig {
        checkpoint_interval: 4096,
        ..small()
    };
    let store = open_in(&env, &place.store, config, OpenMode::Existing).unwrap();
    for queue in 0..40 {
        let offset = store.append(message("t", queue, &[0; 500])).unwrap().appended.physical_offset;
        store.wait_dispatched(offset, Some(soon())).unwrap();
    }
    store.close().unwrap();
    let synced = env
        .changes()
        .iter()
        .filter(|change| change.starts_with("sync everything QueueFiles"))
        .count();
    assert!(synced > 2, "{synced}");
    assert_eq!((found.load(Ordering::SeqCst), opened(&env)), (1, 1));
    env.heal();
}

#[test]
fn fifty_thousand_queues_hold_few_descriptors_and_mappings() {
    let program = "writing::many_queues::child_writes_to_fifty_thousand_queues";
    let output = child::run_within(program, Duration::from_secs(120));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches(" descriptors, ").count(), 7, "{text}");
    assert_eq!(COUNT, 50_000);
}
