//! Dispatch of messages with a key and a tag to four queues and the index: the bound of sustained writing.

use std::time::Instant;

use mqstore::config::{Sizes, StoreConfig};
use mqstore::services::{Next, Service};
use mqstore::store::MessageStore;
use serde_json::json;

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
            target: Target::at_most(150.0),
            waits_for_disk: false,
        };
        let ours = Contender::new(OURS, || ours(bench, &workload, count));
        let limit = Contender::new(LIMIT, || limit(bench, &workload, count));
        bench.measure(&row, vec![ours, limit]);
    }
}

fn ours(bench: &Bench, workload: &Workload, count: usize) -> f64 {
    let dir = bench.dir();
    let store = open_stepped(&dir.path().join("store"), StoreConfig::default());
    fill(&store, workload, count, QUEUES);
    let begun = Instant::now();
    dispatch_all(&store);
    let took = begun.elapsed();
    assert_eq!(store.dispatched_offset(), store.appended_offset());
    each(took, count)
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
