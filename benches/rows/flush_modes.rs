//! The cost of each flush mode for its callers: eight producers that append messages of 1 KiB, each as fast as it can. There is no
//! comparison, so no row is refused: compare the modes of one run, and check the sync latency of its rounds.

use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{FlushDiskType, StoreConfig};
use serde_json::json;

use crate::harness::machine::microseconds;
use crate::harness::row::OURS;
use crate::harness::workload::{Workload, open};
use crate::harness::{Bench, Contender, Row, Target, quantile};

const BODY: usize = 1024;
const PRODUCERS: usize = 8;
const ROUND: Duration = Duration::from_millis(500);
/// The calls of a producer whose times are kept: those of a million calls would take more memory than the store.
const KEPT: usize = 100_000;

type Figure = fn(Found) -> f64;

/// The result of a round of one mode.
struct Found {
    rate: f64,
    /// In microseconds.
    times: Vec<f64>,
}

pub fn run(bench: &Bench) {
    let is_sync = |flush_disk_type| StoreConfig {
        flush_disk_type,
        ..StoreConfig::default()
    };
    let pool = StoreConfig {
        transient_store_pool_enable: true,
        ..StoreConfig::default()
    };
    let modes = [
        ("ASYNC_FLUSH", StoreConfig::default(), None),
        ("ASYNC_FLUSH with the pool", pool, None),
        ("SYNC_FLUSH", is_sync(FlushDiskType::Sync), None),
        ("ASYNC_FLUSH, durable=True", StoreConfig::default(), Some(true)),
    ];
    for (mode, config, durable) in modes {
        let found = || measure(bench, config.clone(), durable);
        let figures: [(&str, &str, Figure); 3] = [
            ("rate", "messages/s", |found| found.rate),
            ("p50", "us", |found| quantile(found.times, 0.5)),
            ("p99", "us", |found| quantile(found.times, 0.99)),
        ];
        for (figure, unit, of) in figures {
            let row = Row {
                name: "flush_modes",
                params: json!({"body": BODY, "producers": PRODUCERS, "mode": mode, "figure": figure}),
                unit,
                target: Target::default(),
                waits_for_disk: false,
            };
            bench.measure(&row, vec![Contender::new(OURS, || of(found()))]);
        }
    }
}

fn measure(bench: &Bench, config: StoreConfig, durable: Option<bool>) -> Found {
    let dir = bench.dir();
    let store = open(&dir.path().join("store"), config);
    let workload = Workload::of_bodies(BODY);
    let round = bench.size(ROUND, Duration::from_millis(20));
    let produce = |queue_id: usize| {
        let (begun, mut count, mut times) = (Instant::now(), 0, Vec::with_capacity(KEPT));
        while begun.elapsed() < round {
            let called = Instant::now();
            store.appender(durable).append(workload.message(queue_id as i32)).unwrap();
            if times.len() < KEPT {
                times.push(microseconds(called.elapsed()));
            }
            count += 1;
        }
        let rate = f64::from(count) / begun.elapsed().as_secs_f64();
        Found { rate, times }
    };
    let found = thread::scope(|scope| {
        let threads: Vec<_> = (0..PRODUCERS)
            .map(|producer| scope.spawn(move || produce(producer)))
            .collect();
        let all = threads.into_iter().map(|thread| thread.join().unwrap());
        all.reduce(|mut sum, found| {
            sum.rate += found.rate;
            sum.times.extend(found.times);
            sum
        })
    });
    store.close().unwrap();
    found.unwrap()
}
