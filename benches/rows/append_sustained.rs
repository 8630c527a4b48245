//! One producer and a log that grows past many segments, with dispatch and flush running: the cost of a message over some seconds.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use serde_json::json;

use crate::harness::machine::each;
use crate::harness::rocketmq::RocketMq;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{BODIES, TOPIC, Workload, open};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{FileMap, RecordKernel};

/// The bytes that a round appends, and that the limit keeps prefaulted ahead of the end.
const ROUND_BYTES: usize = 256 << 20;
const AHEAD: usize = 16 << 20;
const STEP: usize = 1 << 20;

pub fn run(bench: &Bench) {
    for (body, times) in BODIES.into_iter().zip([5.0, 5.0, 3.0]) {
        let workload = Workload::of_bodies(body);
        let row = Row {
            name: "append_sustained",
            params: json!({"body": body}),
            unit: "ns a message",
            target: Target {
                ratio_limit: Some(0.80),
                ratio_rocketmq: Some(times),
                ..Target::default()
            },
            waits_for_disk: false,
        };
        let count = bench.size(ROUND_BYTES / workload.record_size(), 50);
        let mut contenders = vec![
            Contender::new(OURS, || ours(bench, &workload, count)),
            Contender::new(LIMIT, || limit(bench, &workload, count)),
        ];
        contenders.extend(RocketMq::start_all(bench, &[]).into_iter().map(|mut peer| {
            Contender::new(peer.name.clone(), move || {
                let puts = peer.put(body, 1, count, 0);
                puts.ns / puts.messages
            })
        }));
        bench.measure(&row, contenders);
    }
}

/// Returns the nanoseconds for a message of a store with default options.
pub fn ours(bench: &Bench, workload: &Workload, count: usize) -> f64 {
    with(bench, workload, count, StoreConfig::default())
}

/// Returns the nanoseconds for a message with other options.
pub fn with(bench: &Bench, workload: &Workload, count: usize, config: StoreConfig) -> f64 {
    let dir = bench.dir();
    let store = open(&dir.path().join("store"), config);
    store.append(workload.message(0)).unwrap();
    let begun = Instant::now();
    for _ in 0..count {
        black_box(store.append(workload.message(0)).unwrap());
    }
    let took = begun.elapsed();
    store.close().unwrap();
    each(took, count)
}

/// Measures the record kernel, with a thread that prefaults pages ahead of it.
pub fn limit(bench: &Bench, workload: &Workload, count: usize) -> f64 {
    let dir = bench.dir();
    let map = FileMap::new(&dir.path().join("segment"), (count + 1) * workload.record_size());
    let kernel = RecordKernel::new(&map, TOPIC);
    let ends = AtomicBool::new(false);
    let is_ready = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut populated = 0;
            while !ends.load(Ordering::Acquire) && populated < map.len() {
                if populated < kernel.appended() as usize + AHEAD {
                    map.populate(populated..populated + STEP);
                    populated += STEP;
                } else {
                    is_ready.store(true, Ordering::Release);
                    thread::sleep(Duration::from_micros(50));
                }
            }
            is_ready.store(true, Ordering::Release);
        });
        while !is_ready.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(1));
        }
        let begun = Instant::now();
        for _ in 0..count {
            black_box(kernel.append(TOPIC.as_bytes(), 0, &workload.properties, black_box(&workload.body)));
        }
        let took = begun.elapsed();
        ends.store(true, Ordering::Release);
        each(took, count)
    })
}
