//! What a message takes that is the same on every machine: allocations, page faults, calls of the system. These have bounds, and a run
//! over one of them fails.

use std::sync::Arc;

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};
use serde_json::json;

use super::dispatch::dispatch_all;
use crate::counting_env::CountingEnv;
use crate::harness::counting::Counts;
use crate::harness::workload::{Workload, fill, open_stepped, warmed};
use crate::harness::{Bench, Row, Target};

const MESSAGES: usize = 4000;
const BODY: usize = 100;

pub fn run(bench: &Bench) {
    append(bench);
    dispatch(bench);
    durable_append(bench);
}

fn row(call: &str, count: &str, most: f64) -> Row {
    Row {
        name: "counts",
        params: json!({"call": call, "body": BODY, "count": count}),
        unit: "a message",
        target: Target::at_most(most),
        waits_for_disk: false,
    }
}

fn a_message(count: u64) -> f64 {
    count as f64 / MESSAGES as f64
}

/// Into a segment whose pages are ready.
fn append(bench: &Bench) {
    let dir = bench.dir();
    let workload = Workload::of_bodies(BODY);
    let store = warmed(&dir.path().join("store"), 4 << 20, &workload);
    let before = Counts::now();
    for _ in 0..MESSAGES {
        store.append(workload.message(0)).unwrap();
    }
    let counts = Counts::now().since(before);
    bench.count(&row("append", "allocations", 0.01), a_message(counts.allocations));
    bench.count(&row("append", "page faults", 0.01), a_message(counts.faults));
}

fn dispatch(bench: &Bench) {
    let dir = bench.dir();
    let store = open_stepped(&dir.path().join("store"), StoreConfig::default());
    fill(&store, &Workload::of_bodies(BODY), MESSAGES, 4);
    let before = Counts::now();
    dispatch_all(&store);
    let counts = Counts::now().since(before);
    bench.count(&row("dispatch", "allocations", 5.1), a_message(counts.allocations));
}

/// Each one waits for its sync: a write and a sync of the log, and a write of the mark of what was flushed. Calls that change a file are counted at the interface to the system, those of other threads, too.
fn durable_append(bench: &Bench) {
    let dir = bench.dir();
    let env = CountingEnv::new();
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        ..StoreConfig::default()
    };
    let store = MessageStore::open_stepped(&shared, &dir.path().join("store"), config, OpenMode::New).unwrap();
    let workload = Workload::of_bodies(BODY);
    store.append(workload.message(0)).unwrap();
    let count = 100;
    let before = env.changes().len();
    for _ in 0..count {
        store.append(workload.message(0)).unwrap();
    }
    let calls = env.changes().len() - before;
    store.close().unwrap();
    bench.count(&row("durable append", "system calls", 3.0), calls as f64 / f64::from(count));
}
