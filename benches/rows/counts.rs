//! The costs of a message that are the same, or nearly the same, on every machine: instructions, allocations, page faults, system
//! calls. These have bounds, and a run that exceeds one of them fails.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::error::Error;
use mqstore::read::MessageReader;
use mqstore::services::Service;
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode, TopicWriter};
use serde_json::json;
use tempfile::TempDir;

use super::dispatch::{create_files, dispatch_all, one_in_each_queue};
use super::queue_read::{reader, scan};
use super::read_get::pull;
use crate::counting_env::CountingEnv;
use crate::harness::counting::Counts;
use crate::harness::instructions;
use crate::harness::workload::{KEY, TAG, TOPIC, Workload, fill, open_stepped, warmed};
use crate::harness::{Bench, Row, Target};

const MESSAGES: usize = 4000;
/// The messages of a single-stepped process, which takes some microseconds for an instruction.
const STEPPED: usize = 25;
const BODY: usize = 100;
const QUEUES: usize = 4;
/// The calls that read [`STEPPED`] messages: in one call, in a call each, and by the iterator of a queue.
const GET: &str = "get of 25";
const GET_ONE: &str = "get of 1";
const ITERATE: &str = "iteration of a queue";

pub fn run(bench: &Bench) {
    append(bench);
    prepared(bench);
    dispatch(bench);
    read(bench);
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

/// Counts appends into a segment with prefaulted pages.
fn append(bench: &Bench) {
    let (_dir, store, workload) = to_append(bench);
    let before = Counts::now();
    append_all(&store, &workload, MESSAGES);
    let counts = Counts::now().since(before);
    bench.count(&row("append", "allocations", 0.01), a_message(counts.allocations));
    bench.count(&row("append", "page faults", 0.01), a_message(counts.faults));
    instructions(bench, "append", bench.size(2300.0, 4000.0));
}

/// Counts the same appends by a prepared writer.
fn prepared(bench: &Bench) {
    let (_dir, writer, workload) = to_append_prepared(bench);
    let before = Counts::now();
    append_all_prepared(&writer, &workload, MESSAGES);
    let counts = Counts::now().since(before);
    bench.count(&row("prepared append", "allocations", 0.01), a_message(counts.allocations));
    instructions(bench, "prepared append", bench.size(1400.0, 4000.0));
}

fn dispatch(bench: &Bench) {
    let (_dir, store) = to_dispatch(bench, MESSAGES);
    let before = Counts::now();
    dispatch_all(&store);
    let counts = Counts::now().since(before);
    bench.count(&row("dispatch", "allocations", 0.1), a_message(counts.allocations));
    instructions(bench, "dispatch", bench.size(2400.0, 7600.0));
}

/// Counts reads of a closed store whose pages are mapped.
fn read(bench: &Bench) {
    let (_dir, reader) = to_read(bench);
    get(&reader, 0, STEPPED);
    let before = Counts::now();
    get(&reader, 0, STEPPED);
    let counts = Counts::now().since(before);
    bench.count(&row(GET, "allocations", 0.7), counts.allocations as f64 / STEPPED as f64);
    instructions(bench, GET, bench.size(1600.0, 12_000.0));
    instructions(bench, GET_ONE, bench.size(5900.0, 40_000.0));
    instructions(bench, ITERATE, bench.size(1500.0, 12_000.0));
}

/// Counts instructions. A test build has few optimizations, and therefore another bound.
fn instructions(bench: &Bench, call: &str, most: f64) {
    match instructions::of(call) {
        Some(count) => bench.count(&row(call, "instructions", most), count as f64 / STEPPED as f64),
        None => println!("counts: the instructions of {call} are not counted, because no process may be stepped here"),
    }
}

/// Does the work in the process whose instructions are counted.
pub fn stepped(bench: &Bench, call: &str) {
    match call {
        "append" => {
            let (_dir, store, workload) = to_append(bench);
            append_all(&store, &workload, STEPPED);
            instructions::stepped(|| append_all(&store, &workload, STEPPED));
        }
        "prepared append" => {
            let (_dir, writer, workload) = to_append_prepared(bench);
            append_all_prepared(&writer, &workload, STEPPED);
            instructions::stepped(|| append_all_prepared(&writer, &workload, STEPPED));
        }
        "dispatch" => {
            let (_dir, store) = one_in_each_queue(bench);
            create_files(&store);
            fill(&store, &Workload::of_bodies(BODY), STEPPED, QUEUES);
            // A single-stepped process is slow. At a later time the entries would be written back.
            let now = Instant::now();
            instructions::stepped(|| _ = store.step(Service::Dispatch, now).unwrap());
            assert_eq!(store.dispatched_offset(), store.appended_offset());
        }
        GET | GET_ONE | ITERATE => {
            let (_dir, reader) = to_read(bench);
            let work = || match call {
                GET => get(&reader, 0, STEPPED),
                GET_ONE => (0..STEPPED as i64).for_each(|offset| get(&reader, offset, 1)),
                _ => iterate(&reader),
            };
            work();
            instructions::stepped(work);
        }
        unknown => panic!("no work is called {unknown:?}"),
    }
}

fn to_append(bench: &Bench) -> (TempDir, MessageStore, Workload) {
    let dir = bench.dir();
    let workload = Workload::of_bodies(BODY);
    let store = warmed(&dir.path().join("store"), 4 << 20, &workload);
    (dir, store, workload)
}

fn append_all(store: &MessageStore, workload: &Workload, count: usize) {
    for _ in 0..count {
        store.append(workload.message(0)).unwrap();
    }
}

fn to_append_prepared(bench: &Bench) -> (TempDir, TopicWriter, Workload) {
    let (dir, store, workload) = to_append(bench);
    let writer = Arc::new(store).writer(TOPIC, 0, Some(TAG)).unwrap();
    (dir, writer, workload)
}

fn append_all_prepared(writer: &TopicWriter, workload: &Workload, count: usize) {
    for _ in 0..count {
        writer.append(&workload.body, &[black_box(KEY)]).unwrap();
    }
}

fn to_dispatch(bench: &Bench, count: usize) -> (TempDir, MessageStore) {
    let dir = bench.dir();
    let store = open_stepped(&dir.path().join("store"), StoreConfig::default());
    fill(&store, &Workload::of_bodies(BODY), count, QUEUES);
    (dir, store)
}

fn to_read(bench: &Bench) -> (TempDir, Arc<MessageReader>) {
    let dir = bench.dir();
    let path = dir.path().join("store");
    let store = open_stepped(&path, StoreConfig::default());
    fill(&store, &Workload::of_bodies(BODY), STEPPED, 1);
    store.close().unwrap();
    let reader = reader(&path);
    (dir, reader)
}

fn get(reader: &MessageReader, offset: i64, messages: usize) {
    let request = pull(offset, messages);
    let pulled = reader.get(&request, |_| Ok::<_, Error>(true)).unwrap();
    assert_eq!(pulled.messages.len(), messages);
}

fn iterate(reader: &Arc<MessageReader>) {
    assert_eq!(scan(reader, 0).map(Result::unwrap).count(), STEPPED);
}

/// Counts appends that each wait for their sync: a write and a sync of the log, and a write of the mark of the flushed offset. The
/// calls that change a file are counted at the interface to the system.
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
