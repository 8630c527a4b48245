//! One thread and one record of 4 KiB, durable when the append returns, compared with a write and a sync into blocks that were
//! written before.

use std::time::Instant;

use mqstore::config::{FlushDiskType, StoreConfig};
use serde_json::json;

use crate::harness::machine::microseconds;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, open};
use crate::harness::{Bench, Contender, Row, Target, quantile};
use crate::limits::Durable;

const APPENDS: usize = 1000;
const RECORD: usize = 4096;

pub fn run(bench: &Bench) {
    let row = Row {
        name: "sync_floor",
        params: json!({"record": RECORD, "quantile": 0.5}),
        unit: "us",
        target: Target::of_limit(1.0 / 1.10),
        waits_for_disk: true,
    };
    let ours = Contender::new(OURS, || ours(bench));
    let limit = Contender::new(LIMIT, || limit(bench));
    bench.measure(&row, vec![ours, limit]);
}

fn ours(bench: &Bench) -> f64 {
    let dir = bench.dir();
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        ..StoreConfig::default()
    };
    let store = open(&dir.path().join("store"), config);
    let beside_body = Workload::of_bodies(0).record_size();
    let workload = Workload::of_bodies(RECORD - beside_body);
    let found = median(bench, || {
        store.append(workload.message(0)).unwrap();
    });
    store.close().unwrap();
    found
}

fn limit(bench: &Bench) -> f64 {
    let dir = bench.dir();
    let mut file = Durable::new(&dir.path().join("segment"), bench.size(64 << 20, 1 << 20));
    median(bench, || file.append(&[b'x'; RECORD]))
}

fn median(bench: &Bench, mut call: impl FnMut()) -> f64 {
    call();
    let timed = |_| {
        let begun = Instant::now();
        call();
        microseconds(begun.elapsed())
    };
    quantile((0..bench.size(APPENDS, 10)).map(timed).collect(), 0.5)
}
