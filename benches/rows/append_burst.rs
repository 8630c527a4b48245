//! One producer, with prefaulted pages: the cost of an append if nothing else happens. A copy of as many bytes is measured as well.

use std::hint::black_box;
use std::time::Instant;

use serde_json::json;

use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{BODIES, TOPIC, Workload, warmed};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{FileMap, RecordKernel};

const SEGMENT: u64 = 64 << 20;

pub fn run(bench: &Bench) {
    for (body, ratio) in BODIES.into_iter().zip([0.75, 0.80, 0.80]) {
        let workload = Workload::of_bodies(body);
        let row = Row {
            name: "append_burst",
            params: json!({"body": body}),
            unit: "ns a message",
            target: Target::of_limit(ratio),
            waits_for_disk: false,
        };
        let ours = Contender::new(OURS, || ours(bench, &workload));
        let limit = Contender::new(LIMIT, || limit(bench, &workload));
        let copy = Contender::new("limit, a copy alone", || copy(bench, &workload));
        bench.measure(&row, vec![ours, limit, copy]);
    }
}

/// Returns the nanoseconds for a message of a store without threads, whose segment was warmed up.
pub fn ours(bench: &Bench, workload: &Workload) -> f64 {
    let dir = bench.dir();
    let store = warmed(&dir.path().join("store"), bench.size(SEGMENT, 1 << 20), workload);
    let count = workload.messages(bench.is_smoke);
    let begun = Instant::now();
    for _ in 0..count {
        black_box(store.append(workload.message(0)).unwrap());
    }
    each(begun.elapsed(), count)
}

/// Measures a copy of the bytes onto a prefaulted map.
fn copy(bench: &Bench, workload: &Workload) -> f64 {
    let dir = bench.dir();
    let map = FileMap::populated(&dir.path().join("segment"), bench.size(SEGMENT, 1 << 20) as usize);
    let record = vec![b'x'; workload.record_size()];
    let count = workload.messages(bench.is_smoke);
    let begun = Instant::now();
    for number in 0..count {
        map.write(number * record.len(), black_box(&record));
    }
    each(begun.elapsed(), count)
}

/// Measures the record kernel onto a prefaulted map.
pub fn limit(bench: &Bench, workload: &Workload) -> f64 {
    let dir = bench.dir();
    let map = FileMap::populated(&dir.path().join("segment"), bench.size(SEGMENT, 1 << 20) as usize);
    let kernel = RecordKernel::new(&map, TOPIC);
    let append = || {
        kernel.append(
            black_box(TOPIC.as_bytes()),
            0,
            black_box(&workload.properties),
            black_box(&workload.body),
        )
    };
    append();
    let count = workload.messages(bench.is_smoke);
    let begun = Instant::now();
    for _ in 0..count {
        black_box(append());
    }
    each(begun.elapsed(), count)
}
