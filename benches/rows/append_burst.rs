//! One producer, with prefaulted pages: the cost of an append if nothing else happens. A copy of as many bytes is measured as well.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{BODIES, KEY, TAG, TOPIC, Workload, warmed};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{FileMap, RecordKernel};

const SEGMENT: u64 = 64 << 20;

/// The contender without a prepared writer, in the rows of one.
const APPEND: &str = "append without a prepared writer";

pub fn run(bench: &Bench) {
    for (body, ratio) in BODIES.into_iter().zip([0.50, 0.75, 0.90]) {
        let workload = Workload::of_bodies(body);
        let ours = Contender::new(OURS, || ours(bench, &workload));
        let limit = Contender::new(LIMIT, || limit(bench, &workload));
        let copy = Contender::new("limit, a copy alone", || copy(bench, &workload));
        bench.measure(&row(json!({"body": body}), ratio), vec![ours, limit, copy]);
    }
    for (body, ratio) in BODIES.into_iter().zip([0.68, 0.87, 0.90]) {
        let workload = Workload::of_bodies(body);
        let prepared = Contender::new(OURS, || prepared(bench, &workload));
        let limit = Contender::new(LIMIT, || limit(bench, &workload));
        let append = Contender::new(APPEND, || ours(bench, &workload));
        let params = json!({"body": body, "call": "by a prepared writer"});
        bench.measure(&row(params, ratio), vec![prepared, limit, append]);
    }
}

fn row(params: Value, ratio: f64) -> Row {
    Row {
        name: "append_burst",
        params,
        unit: "ns a message",
        target: Target::of_limit(ratio),
        waits_for_disk: false,
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

/// Measures the same messages by a prepared writer. Their key is encoded at each call.
fn prepared(bench: &Bench, workload: &Workload) -> f64 {
    let dir = bench.dir();
    let store = warmed(&dir.path().join("store"), bench.size(SEGMENT, 1 << 20), workload);
    let writer = Arc::new(store).writer(TOPIC, 0, Some(TAG)).unwrap();
    let count = workload.messages(bench.is_smoke);
    let begun = Instant::now();
    for _ in 0..count {
        black_box(writer.append(&workload.body, &[black_box(KEY)]).unwrap());
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
