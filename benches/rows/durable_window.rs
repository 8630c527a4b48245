//! One producer that appends W messages and then waits once until all are durable. They wait in the transient store pool until
//! then: with `SYNC_FLUSH` each append would request a sync.
//!
//! The limit writes blocks that were written before. A growing log has no such blocks, so the same loop in unwritten blocks is
//! measured as well.

use std::hint::black_box;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use serde_json::json;

use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload, open};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{Durable, FileMap, RecordKernel};

const ROUND: Duration = Duration::from_millis(500);
const BODY: usize = 1024;
const NEW_BLOCKS: &str = "limit, new blocks";

pub fn run(bench: &Bench) {
    let whole = Target::of_limit(0.95);
    for (window, target) in [(16, Target::default()), (64, Target::default()), (1024, whole)] {
        let row = Row {
            name: "durable_window",
            params: json!({"body": BODY, "window": window}),
            unit: "messages/s",
            target,
            waits_for_disk: true,
        };
        let ours = Contender::new(OURS, || ours(bench, window));
        let workload = Workload::of_bodies(BODY);
        let written = Contender::new(LIMIT, || limit(bench, &workload, window));
        let unwritten = Contender::new(NEW_BLOCKS, || {
            let dir = bench.dir();
            let file = Durable::unwritten(&dir.path().join("segment"), bench.size(1 << 30, 4 << 20));
            write_windows(bench, &workload, window, file)
        });
        bench.measure(&row, vec![ours, written, unwritten]);
    }
}

/// Returns the messages in a second.
fn ours(bench: &Bench, window: usize) -> f64 {
    let dir = bench.dir();
    let config = StoreConfig {
        transient_store_pool_enable: true,
        ..StoreConfig::default()
    };
    let store = open(&dir.path().join("store"), config);
    let workload = Workload::of_bodies(BODY);
    store.append(workload.message(0)).unwrap();
    let rate = rate(bench, window, || {
        let mut last = 0;
        for _ in 0..window {
            let appended = store.append(workload.message(0)).unwrap();
            last = appended.appended.physical_offset;
        }
        store.wait_durable(last, None).unwrap();
    });
    store.close().unwrap();
    rate
}

/// Measures [`write_windows`] into blocks that were written before.
pub fn limit(bench: &Bench, workload: &Workload, window: usize) -> f64 {
    let dir = bench.dir();
    let file = Durable::new(&dir.path().join("segment"), bench.size(64 << 20, 4 << 20));
    write_windows(bench, workload, window, file)
}

/// Measures the record kernel: W records are built, written and synced at once.
fn write_windows(bench: &Bench, workload: &Workload, window: usize, mut file: Durable) -> f64 {
    let dir = bench.memory_dir();
    let map = FileMap::populated(&dir.path().join("memory"), (window + 1) * workload.record_size());
    let kernel = RecordKernel::new(&map, TOPIC);
    let records = vec![b'x'; window * workload.record_size()];
    rate(bench, window, || {
        for _ in 0..window {
            black_box(kernel.append(TOPIC.as_bytes(), 0, &workload.properties, black_box(&workload.body)));
        }
        file.append(&records);
    })
}

fn rate(bench: &Bench, window: usize, mut append_window: impl FnMut()) -> f64 {
    let round = bench.size(ROUND, Duration::from_millis(5));
    let (begun, mut count) = (Instant::now(), 0);
    while begun.elapsed() < round {
        append_window();
        count += window;
    }
    count as f64 / begun.elapsed().as_secs_f64()
}
