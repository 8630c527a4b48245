//! A thread reads messages of a queue in random order while another one appends as fast as it can: the latency of the slowest read
//! in a hundred. The limit is the same reads without a writer.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use mqstore::config::StoreConfig;
use serde_json::json;

use crate::harness::machine::microseconds;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload, fill, open};
use crate::harness::{Bench, Contender, Row, Target, quantile};

const BODY: usize = 1024;
const STORED: usize = 20_000;
const READS: usize = 100_000;

pub fn run(bench: &Bench) {
    let workload = Workload::of_bodies(BODY);
    let (stored, reads) = (bench.size(STORED, 100), bench.size(READS, 100));
    for part in [0.5, 0.99] {
        let row = Row {
            name: "read_while_writing",
            params: json!({"body": BODY, "quantile": part}),
            unit: "us",
            target: Target::default(),
            waits_for_disk: false,
        };
        let read = |config, writes| slowest(bench, config, &workload, stored, reads, writes, part);
        let ours = Contender::new(OURS, || read(StoreConfig::default(), true));
        let limit = Contender::new(LIMIT, || read(StoreConfig::default(), false));
        let pool = Contender::new("mqstore with the pool", || {
            let pool = StoreConfig {
                transient_store_pool_enable: true,
                ..StoreConfig::default()
            };
            read(pool, true)
        });
        bench.measure(&row, vec![ours, limit, pool]);
    }
}

fn slowest(bench: &Bench, config: StoreConfig, workload: &Workload, stored: usize, reads: usize, writes: bool, part: f64) -> f64 {
    let dir = bench.dir();
    let store = open(&dir.path().join("store"), config);
    fill(&store, workload, stored, 1);
    store.wait_dispatched(store.appended_offset() - 1, None).unwrap();
    let ends = AtomicBool::new(false);
    let found = thread::scope(|scope| {
        if writes {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    black_box(store.append(workload.message(1)).unwrap());
                }
            });
        }
        let mut drawn = 1;
        let timed = |_| {
            drawn = drawn * 48_271 % 2_147_483_647;
            let begun = Instant::now();
            let message = store.reader().message_in_queue(TOPIC, 0, drawn % stored as i64).unwrap();
            black_box(message.view().body()[0]);
            microseconds(begun.elapsed())
        };
        let times = (0..reads).map(timed).collect();
        ends.store(true, Ordering::Relaxed);
        quantile(times, part)
    });
    store.close().unwrap();
    found
}
