//! Threads that each wait until their message is durable: how close they come to one message of each thread in every sync.
//!
//! With a sync of latency L, P threads can append at most P / L messages a second. If the sync is simulated, on a file system in
//! memory, L is the time of the same wait in one thread in the same round, because a wait of 1 ms may end late. On the disk the
//! limit is one thread that writes and syncs P records at once, into blocks that were written before.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::config::{FlushDiskType, StoreConfig};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use serde_json::json;

use crate::harness::rocketmq::RocketMq;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::slow_env::SlowEnv;
use crate::harness::workload::Workload;
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{Durable, simulated_syncs};

pub const ROUND: Duration = Duration::from_millis(500);
pub const SMOKE_ROUND: Duration = Duration::from_millis(20);
const BODY: usize = 1024;
/// The producers; the target ratio to P / L for a sync of 1 ms; the target speedup over `RocketMQ` on a disk.
const PRODUCERS: [(usize, f64, f64); 5] = [
    (1, 0.93, 2.0),
    (2, 0.85, 2.0),
    (8, 0.90, 4.0),
    (32, 0.85, 8.0),
    (64, 0.80, 12.0),
];

pub fn run(bench: &Bench) {
    for sync in [1, 5].map(Duration::from_millis) {
        for (producers, part, _) in bench.size(&PRODUCERS[..], &PRODUCERS[1..2]) {
            let row = Row {
                name: "group_commit",
                params: json!({"body": BODY, "sync_ms": sync.as_millis() as u64, "producers": producers}),
                unit: "messages/s",
                target: Target::of_limit(*part),
                waits_for_disk: false,
            };
            let ours = Contender::new(OURS, || ours(bench, *producers, Some(sync)));
            let limit = Contender::new(LIMIT, || {
                let round = bench.size(ROUND, Duration::from_millis(20));
                *producers as f64 * simulated_syncs(sync, round)
            });
            bench.measure(&row, vec![ours, limit]);
        }
    }
    on_disk(bench);
}

fn on_disk(bench: &Bench) {
    for (producers, _, times) in bench.size(&PRODUCERS[..], &PRODUCERS[1..2]) {
        let row = Row {
            name: "group_commit",
            params: json!({"body": BODY, "sync_ms": "disk", "producers": producers}),
            unit: "messages/s",
            target: Target {
                ratio_rocketmq: Some(*times),
                ..Target::default()
            },
            waits_for_disk: true,
        };
        let ours = Contender::new(OURS, || ours(bench, *producers, None));
        let limit = Contender::new(LIMIT, || limit(bench, *producers));
        let mut contenders = vec![ours, limit];
        contenders.extend(RocketMq::start_all(bench, &["flush=SYNC_FLUSH"]).into_iter().map(|mut peer| {
            Contender::new(peer.name.clone(), move || {
                let puts = peer.put(BODY, *producers, usize::MAX >> 1, ROUND.as_millis() as u64);
                puts.messages / puts.ns * 1e9
            })
        }));
        bench.measure(&row, contenders);
    }
}

/// Returns the messages in a second of all producers, each with its own queue.
pub fn ours(bench: &Bench, producers: usize, simulated: Option<Duration>) -> f64 {
    let (dir, env): (_, Arc<dyn Env>) = match simulated {
        Some(sync) => (bench.memory_dir(), Arc::new(SlowEnv::new(sync))),
        None => (bench.dir(), Arc::new(RealEnv::new())),
    };
    let config = StoreConfig {
        flush_disk_type: FlushDiskType::Sync,
        ..StoreConfig::default()
    };
    let store = MessageStore::open(&env, &dir.path().join("store"), config, OpenMode::New).unwrap();
    let workload = Workload::of_bodies(BODY);
    let append = |queue_id: usize| {
        store.append(workload.message(queue_id as i32)).unwrap();
    };
    append(0);
    let round = bench.size(ROUND, SMOKE_ROUND);
    let produce = |producer: usize| {
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < round {
            append(producer);
            count += 1;
        }
        f64::from(count) / begun.elapsed().as_secs_f64()
    };
    let rate = thread::scope(|scope| {
        let threads: Vec<_> = (0..producers)
            .map(|producer| scope.spawn(move || produce(producer)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    store.close().unwrap();
    rate
}

/// Measures one thread that writes and syncs a record of each producer at once.
pub fn limit(bench: &Bench, producers: usize) -> f64 {
    let dir = bench.dir();
    let mut file = Durable::new(&dir.path().join("segment"), bench.size(64 << 20, 1 << 20));
    let records = vec![b'x'; producers * Workload::of_bodies(BODY).record_size()];
    let round = bench.size(ROUND, SMOKE_ROUND);
    let (begun, mut syncs) = (Instant::now(), 0);
    while begun.elapsed() < round {
        file.append(&records);
        syncs += producers;
    }
    syncs as f64 / begun.elapsed().as_secs_f64()
}
