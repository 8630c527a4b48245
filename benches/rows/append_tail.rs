//! 100,000 messages a second into the transient store pool while it is committed and flushed: the latency of the slowest one in a
//! thousand. A message that starts late because an earlier one was slow is measured from its scheduled start (no coordinated
//! omission).

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use serde_json::json;

use crate::harness::machine::microseconds;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload, open};
use crate::harness::{Bench, Contender, Row, Target, quantile};
use crate::limits::{FileMap, RecordKernel};

const BODY: usize = 1024;
const EVERY: Duration = Duration::from_micros(10);
const MESSAGES: usize = 200_000;
/// With a pool of 256 MiB a slow disk does not show.
const POOL_BUFFERS: usize = 64;

pub fn run(bench: &Bench) {
    let workload = Workload::of_bodies(BODY);
    let count = bench.size(MESSAGES, 1000);
    for (part, most) in [(0.99, 60.0), (0.999, 200.0)] {
        let row = Row {
            name: "append_tail",
            params: json!({"body": BODY, "every_us": EVERY.as_micros() as u64, "quantile": part}),
            unit: "us",
            target: Target::at_most(most),
            waits_for_disk: false,
        };
        let pool = StoreConfig {
            transient_store_pool_enable: true,
            transient_store_pool_size: bench.size(POOL_BUFFERS, 2),
            ..StoreConfig::default()
        };
        let store = |config: StoreConfig| {
            let dir = bench.dir();
            slowest(&dir.path().join("store"), config, &workload, count, part)
        };
        let contenders = vec![
            Contender::new(OURS, || store(pool.clone())),
            Contender::new(LIMIT, || limit(bench, &workload, count, part)),
            Contender::new("mqstore without pool", || store(StoreConfig::default())),
            Contender::new("mqstore without pool, warmed up", || {
                store(StoreConfig {
                    warm_mapped_file_enable: true,
                    ..StoreConfig::default()
                })
            }),
        ];
        bench.measure(&row, contenders);
    }
}

fn slowest(path: &Path, config: StoreConfig, workload: &Workload, count: usize, part: f64) -> f64 {
    let store = open(path, config);
    let found = paced(count, part, || {
        black_box(store.append(workload.message(0)).unwrap());
    });
    store.close().unwrap();
    found
}

/// Measures the record kernel: the pauses that the machine itself imposes on a thread.
fn limit(bench: &Bench, workload: &Workload, count: usize, part: f64) -> f64 {
    let dir = bench.dir();
    let map = FileMap::populated(&dir.path().join("segment"), 16 << 20);
    let kernel = RecordKernel::new(&map, TOPIC);
    paced(count, part, || {
        black_box(kernel.append(TOPIC.as_bytes(), 0, &workload.properties, &workload.body));
    })
}

fn paced(count: usize, part: f64, mut call: impl FnMut()) -> f64 {
    call();
    let begun = Instant::now();
    let timed = |number: usize| {
        let due = begun + EVERY * number as u32;
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        call();
        microseconds(due.elapsed())
    };
    quantile((0..count).map(timed).collect(), part)
}
