//! Messages with pauses between them: the cost of an append for the caller if each may have to wake the dispatcher.

use std::hint::black_box;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use serde_json::json;

use crate::harness::machine::microseconds;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload, open};
use crate::harness::{Bench, Contender, Row, Target, quantile};
use crate::limits::{FileMap, RecordKernel};

/// The pause, and the messages of a round.
const GAPS: [(Duration, usize); 2] = [(Duration::from_micros(20), 20_000), (Duration::from_millis(1), 500)];

pub fn run(bench: &Bench) {
    for (gap, count) in GAPS {
        let workload = Workload::of_bodies(100);
        let count = bench.size(count, 20);
        let row = Row {
            name: "append_paced",
            params: json!({"body": 100, "gap_us": gap.as_micros() as u64, "quantile": 0.5}),
            unit: "us",
            target: Target::at_most(2.0),
            waits_for_disk: false,
        };
        let ours = Contender::new(OURS, || ours(bench, &workload, gap, count));
        let limit = Contender::new(LIMIT, || limit(bench, &workload, gap, count));
        bench.measure(&row, vec![ours, limit]);
    }
}

fn ours(bench: &Bench, workload: &Workload, gap: Duration, count: usize) -> f64 {
    let dir = bench.dir();
    let store = open(&dir.path().join("store"), StoreConfig::default());
    let found = median(gap, count, || {
        black_box(store.append(workload.message(0)).unwrap());
    });
    store.close().unwrap();
    found
}

fn limit(bench: &Bench, workload: &Workload, gap: Duration, count: usize) -> f64 {
    let dir = bench.dir();
    let map = FileMap::populated(&dir.path().join("segment"), 16 << 20);
    let kernel = RecordKernel::new(&map, TOPIC);
    median(gap, count, || {
        black_box(kernel.append(TOPIC.as_bytes(), 0, &workload.properties, &workload.body));
    })
}

/// Returns the median time of a call, with a pause before each. Long pauses are slept, as by a real caller.
fn median(gap: Duration, count: usize, mut call: impl FnMut()) -> f64 {
    call();
    let timed = |_| {
        let before = Instant::now();
        if gap >= Duration::from_millis(1) {
            std::thread::sleep(gap);
        }
        while before.elapsed() < gap {
            std::hint::spin_loop();
        }
        let begun = Instant::now();
        call();
        microseconds(begun.elapsed())
    };
    quantile((0..count).map(timed).collect(), 0.5)
}
