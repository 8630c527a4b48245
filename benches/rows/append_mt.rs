//! Several producers on one store, with prefaulted pages. The limit is one producer of the same store, because two cores have no
//! more memory bandwidth than one.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use serde_json::json;

use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, warmed};
use crate::harness::{Bench, Contender, Row, Target};

const PRODUCERS: [usize; 5] = [2, 4, 8, 16, 64];
const SEGMENT: u64 = 64 << 20;
const QUEUES: usize = 4;

pub fn run(bench: &Bench) {
    for body in [100, 1024] {
        let workload = Workload::of_bodies(body);
        for producers in bench.size(&PRODUCERS[..], &PRODUCERS[..1]) {
            let row = Row {
                name: "append_mt",
                params: json!({"body": body, "producers": producers}),
                unit: "messages/s",
                target: Target::of_limit(0.7),
                waits_for_disk: false,
            };
            let all = Contender::new(OURS, || ours(bench, &workload, *producers));
            let alone = Contender::new(LIMIT, || ours(bench, &workload, 1));
            bench.measure(&row, vec![all, alone]);
        }
    }
}

/// Returns the messages in a second of all producers, each to one of four queues.
pub fn ours(bench: &Bench, workload: &Workload, producers: usize) -> f64 {
    let dir = bench.dir();
    let store = warmed(&dir.path().join("store"), bench.size(SEGMENT, 1 << 20), workload);
    let each = workload.messages(bench.is_smoke) / producers;
    rate(producers, each, |producer| {
        store.append(workload.message((producer % QUEUES) as i32)).unwrap();
    })
}

/// Returns the messages in a second of all producers, each of which appends `each` messages.
pub fn rate(producers: usize, each: usize, append: impl Fn(usize) + Sync) -> f64 {
    let start = Barrier::new(producers);
    let produce = |producer: usize| {
        start.wait();
        let begun = Instant::now();
        for _ in 0..each {
            append(producer);
        }
        (begun, Instant::now())
    };
    // By the producers' own clocks: a waiting thread may be scheduled only after they are done.
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..producers)
            .map(|producer| scope.spawn(move || produce(producer)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let first = spans.iter().map(|(begun, _)| *begun).min().unwrap();
    let last = spans.iter().map(|(_, ended)| *ended).max().unwrap();
    (each * producers) as f64 / (last - first).as_secs_f64()
}
