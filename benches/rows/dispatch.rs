//! Dispatch of messages with a key and a tag to four queues and the index: the bound of sustained writing. "`queue_files`": the
//! creation of the queues' files, which another thread does.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use mqstore::config::{Sizes, StoreConfig};
use mqstore::services::{Next, Service};
use mqstore::store::MessageStore;
use serde_json::json;
use tempfile::TempDir;

use super::resolve::map_queue;
use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, fill, open_stepped};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::DispatchKernel;

const MESSAGES: usize = 100_000;
const QUEUES: usize = 4;

pub fn run(bench: &Bench) {
    for body in [100, 1024] {
        let workload = Workload::of_bodies(body);
        let count = bench.size(MESSAGES.min((48 << 20) / workload.record_size()), 200);
        let row = Row {
            name: "dispatch",
            params: json!({"body": body, "keys": 1, "queues": QUEUES}),
            unit: "ns a message",
            target: Target::at_most(160.0),
            waits_for_disk: false,
        };
        let ours = Contender::new(OURS, || ours(bench, &workload, count));
        let limit = Contender::new(LIMIT, || limit(bench, &workload, count));
        bench.measure(&row, vec![ours, limit]);
    }
    let row = Row {
        name: "queue_files",
        params: json!({"queues": QUEUES}),
        unit: "us a file",
        target: Target::of_limit(0.5),
        waits_for_disk: true,
    };
    let ours = Contender::new(OURS, || files(bench));
    let limit = Contender::new(LIMIT, || files_limit(bench));
    bench.measure(&row, vec![ours, limit]);
}

/// Measures the dispatch of messages to queues that have their files.
fn ours(bench: &Bench, workload: &Workload, count: usize) -> f64 {
    let (_dir, store) = one_in_each_queue(bench);
    create_files(&store);
    fill(&store, workload, count, QUEUES);
    let begun = Instant::now();
    dispatch_all(&store);
    let took = begun.elapsed();
    assert_eq!(store.dispatched_offset(), store.appended_offset());
    each(took, count)
}

/// Measures the creation of the first file of each queue, which is not on the thread of the dispatcher.
fn files(bench: &Bench) -> f64 {
    let (dir, store) = one_in_each_queue(bench);
    let begun = Instant::now();
    create_files(&store);
    let took = begun.elapsed();
    assert!(map_queue(&dir.path().join("store"), QUEUES - 1).is_some());
    each(took, QUEUES) / 1000.0
}

/// Measures new files that are synced before they get their names.
fn files_limit(bench: &Bench) -> f64 {
    let dir = bench.dir();
    let begun = Instant::now();
    for number in 0..QUEUES {
        let (new, path) = (dir.path().join(format!("new-{number}")), dir.path().join(number.to_string()));
        let file = File::create_new(&new).unwrap();
        file.write_all_at(&[1; 20], 0).unwrap();
        file.sync_data().unwrap();
        fs::rename(new, path).unwrap();
    }
    each(begun.elapsed(), QUEUES) / 1000.0
}

/// Creates a store with a dispatched message in each queue, whose entries are in memory, and with an index file.
pub fn one_in_each_queue(bench: &Bench) -> (TempDir, MessageStore) {
    let dir = bench.dir();
    let store = open_stepped(&dir.path().join("store"), StoreConfig::default());
    // From now on the dispatcher leaves new files to this service.
    store.step(Service::CreateQueueFiles, Instant::now()).unwrap();
    fill(&store, &Workload::of_bodies(100), QUEUES, QUEUES);
    dispatch_all(&store);
    (dir, store)
}

/// Creates the files of the queues with entries in memory.
pub fn create_files(store: &MessageStore) {
    let due = Instant::now() + Duration::from_secs(1);
    store.step(Service::Dispatch, due).unwrap();
    store.step(Service::CreateQueueFiles, due).unwrap();
    store.step(Service::Dispatch, due + Duration::from_secs(1)).unwrap();
}

/// Dispatches the appended messages of a store without threads.
pub fn dispatch_all(store: &MessageStore) {
    while store.step(Service::Dispatch, Instant::now()).unwrap() == Next::Again {}
}

/// Measures the kernel over the same log, whose pages are in memory.
fn limit(bench: &Bench, workload: &Workload, count: usize) -> f64 {
    let dir = bench.dir();
    let path = dir.path().join("store");
    let store = open_stepped(&path, StoreConfig::default());
    fill(&store, workload, count, QUEUES);
    let log = std::fs::read(path.join("commitlog").join("0".repeat(20))).unwrap();
    let mut kernel = DispatchKernel::new(Sizes::SMALL.index);
    let begun = Instant::now();
    let dispatched = kernel.run(&log);
    let took = begun.elapsed();
    assert_eq!(dispatched, count);
    each(took, count)
}
