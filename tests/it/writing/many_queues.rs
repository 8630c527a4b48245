//! Tens of thousands of queues: few descriptors, few mappings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::read::MessageReader;
use mqstore::services::Service;
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};

use super::services::stepped_with;
use super::{Place, message, open, open_in, put, small};
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
        store.appender(None).append_all(messages, &mut done).unwrap();
    }
    check("appended");
    let last = done.last().unwrap().appended.physical_offset;
    // Only a hang takes that long for fifty thousand files.
    store
        .wait_dispatched(last, Some(Instant::now() + Duration::from_secs(600)))
        .unwrap();
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
    let synced = || {
        let is_sync = |change: &&String| change.starts_with("sync everything QueueFiles");
        env.changes().iter().filter(is_sync).count()
    };
    let mut queues = 0..;
    while synced() < 3 {
        for queue in queues.by_ref().take(10) {
            store.append(message("t", queue, &[0; 500])).unwrap();
        }
        store.catch_up(Duration::from_secs(20)).unwrap();
    }
    store.close().unwrap();
    assert_eq!((found.load(Ordering::SeqCst), opened(&env)), (1, 1));
    env.heal();
}

#[test]
fn a_slow_stamp_is_repeated_after_ten_times_its_duration() {
    let place = Place::new();
    let env = CountingEnv::new();
    let config = StoreConfig {
        checkpoint_interval: 4096,
        ..small()
    };
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let store = MessageStore::open_stepped(&seam, &place.store, config, OpenMode::New).unwrap();
    let took = Duration::from_millis(120);
    env.before_changes(move |change| {
        if change.starts_with("create ") && change.contains("checkpoint") {
            thread::sleep(took);
        }
        Ok(())
    });
    let stamps = || {
        let changes = env.changes();
        changes.iter().filter(|change| change.ends_with("/store/checkpoint")).count()
    };
    let start = Instant::now();
    let before = stamps();
    let stamped_after = |passed: Duration| {
        put(&store, "t", &[0; 5000]);
        store.step(Service::Dispatch, start + passed).unwrap();
        stamps() - before
    };
    let found = [0, 100, 1100, 60_000].map(|ms| stamped_after(Duration::from_millis(ms)));
    assert_eq!(found, [1, 1, 1, 2]);
    env.heal();
    store.close().unwrap();
}

/// Appends messages to `queues` queues, dispatches them and stamps the checkpoint for them: what changed during it.
fn stamp(env: &CountingEnv, store: &MessageStore, queues: i32, now: Instant) -> Vec<String> {
    let before = env.changes().len();
    for queue in 0..queues {
        store.append(message("t", queue, &[0; 4096])).unwrap();
    }
    // The first step dispatches, the second writes out what then has waited for long enough.
    store.step(Service::Dispatch, now).unwrap();
    store.step(Service::Dispatch, now + Duration::from_millis(10)).unwrap();
    let changes = env.changes().split_off(before);
    assert!(
        changes.iter().any(|change| change.ends_with("/store/checkpoint")),
        "{changes:?}"
    );
    changes
}

fn queue_syncs(changes: &[String]) -> Vec<&str> {
    let syncs = changes.iter().filter(|change| change.contains(" QueueFiles "));
    syncs
        .map(|change| change.rsplit_once("/store").unwrap_or((change, "")).1)
        .collect()
}

#[test]
fn a_stamp_syncs_few_queue_files_one_by_one_or_the_whole_file_system() {
    let place = Place::new();
    let config = StoreConfig {
        checkpoint_interval: 4096,
        ..small()
    };
    let (env, store) = stepped_with(&place, config);
    // A stamp that took long on a busy machine delays the next one.
    let mut now = Instant::now();
    let mut stamped = |queues| {
        now += Duration::from_secs(3600);
        queue_syncs(&stamp(&env, &store, queues, now)).join(" ")
    };
    let file = |queue: i32| format!("/consumequeue/t/{queue}/00000000000000000000");
    let files: Vec<String> = (0..16).map(file).collect();
    // The first files of the queues have new names.
    assert!(stamped(17).ends_with(' '), "the last is a sync of everything");
    assert_eq!(stamped(1), file(0));
    let mut sixteen = files.clone();
    sixteen.sort();
    assert_eq!(stamped(16), sixteen.join(" "));
    assert_eq!(stamped(17), "");
    assert_eq!(stamped(1), file(0));
    // A file with a new name among them.
    assert!(stamped(18).ends_with(' '));
    assert_eq!(stamped(1), file(0));
    store.close().unwrap();
}

/// Queues of the stores whose opening is counted.
const COUNTED: usize = 200;
/// Bytes that a look into a queue file reads at once, at most.
const BLOCK: u64 = 8160;

/// A closed store whose queues are in files of a broker's size, with this many messages each.
fn counted(place: &Place, each: usize) {
    let store = place.create_with(StoreConfig {
        mapped_file_size_consume_queue: Some(6_000_000),
        mapped_file_size_commit_log: Some(1 << 20),
        ..small()
    });
    append_to_each(&store, each);
    store.close().unwrap();
}

fn append_to_each(store: &MessageStore, each: usize) {
    for queue in 0..COUNTED {
        let messages = (0..each).map(|_| message("t", queue as i32, b"x")).collect();
        store.appender(None).append_all(messages, &mut Vec::new()).unwrap();
    }
}

/// Returns the largest number of times that a queue file was opened.
fn most_opened(env: &CountingEnv, root: &Path) -> usize {
    let mut opened = BTreeMap::new();
    for path in env
        .opened()
        .into_iter()
        .filter(|path| path.starts_with(root.join("consumequeue")))
    {
        *opened.entry(path).or_insert(0) += 1;
    }
    assert_eq!(opened.len(), COUNTED);
    opened.into_values().max().unwrap()
}

fn read_counting(place: &Place) -> CountingEnv {
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    MessageReader::open(&seam, &place.store, StoreConfig::default()).unwrap();
    env
}

#[test]
fn opening_a_closed_store_looks_into_each_queue_file_once_and_maps_none() {
    // The end of a file is a page of zeros, which is looked at, too.
    for (each, blocks) in [(1, 2), (3, 2), (600, 3)] {
        let place = Place::new();
        counted(&place, each);
        let env = read_counting(&place);
        assert_eq!(most_opened(&env, &place.store), 1);
        let read = env.bytes_read_below(&place.at("consumequeue"));
        assert!(
            read <= COUNTED as u64 * (blocks - 1) * BLOCK,
            "{read} bytes for {each} messages a queue"
        );
        let calls = env.calls();
        // One list, open, look for what was written and a few reads each; a dozen of each for all else.
        assert!(calls["list"] <= COUNTED + 12 && calls["open"] <= COUNTED + 12, "{calls:?}");
        assert!(calls["written"] <= COUNTED + 12 && calls["map"] <= 12, "{calls:?}");
        assert!(calls["read"] <= COUNTED * blocks as usize + 12, "{calls:?}");
        let env = CountingEnv::new();
        let store = open_in(&env, &place.store, StoreConfig::default(), OpenMode::Existing).unwrap();
        assert_eq!(most_opened(&env, &place.store), 1, "for writing");
        assert!(
            env.calls()["map"] <= 12 && env.calls()["list"] <= COUNTED + 24,
            "{:?}",
            env.calls()
        );
        store.close().unwrap();
    }
}

#[test]
fn opening_a_crashed_store_looks_into_each_queue_file_twice_and_maps_none() {
    let place = Place::new();
    counted(&place, 3);
    let stamped = fs::read(place.at("checkpoint")).unwrap();
    for later in [0, 2] {
        let store = place.reopen();
        append_to_each(&store, later);
        store.close().unwrap();
        // What lies after this stamp has to be read.
        fs::write(place.at("checkpoint"), &stamped).unwrap();
        fs::write(place.at("abort"), "").unwrap();
        let env = read_counting(&place);
        assert!(most_opened(&env, &place.store) <= 2, "{later} messages after the stamp");
        assert!(env.calls()["map"] <= 12, "{:?}", env.calls());
    }
}

#[test]
fn fifty_thousand_queues_hold_few_descriptors_and_mappings() {
    let program = "writing::many_queues::child_writes_to_fifty_thousand_queues";
    let output = child::run_within(program, Duration::from_secs(1200));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches(" descriptors, ").count(), 7, "{text}");
    assert_eq!(COUNT, 50_000);
}
