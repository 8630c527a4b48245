//! The gain of each part of the write path: mqstore with the part, compared with the same work without it.

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use mqstore::config::StoreConfig;
use serde_json::json;

use super::scale_topics::{Files, Topics};
use super::{append_sustained, group_commit, io_modes};
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::Workload;
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::Durable;

const BODY: usize = 1024;
const ROUND_BYTES: usize = 192 << 20;
const TOPICS: usize = 1000;
const PRODUCERS: usize = 8;

pub fn run(bench: &Bench) {
    single_log(bench);
    option(bench, "warm-up", |is_on| StoreConfig {
        warm_mapped_file_enable: is_on,
        ..StoreConfig::default()
    });
    mapping(bench);
    option(bench, "pool", |is_on| StoreConfig {
        transient_store_pool_enable: is_on,
        ..StoreConfig::default()
    });
    hand_off(bench);
}

fn row(part: &str, unit: &'static str) -> Row {
    Row {
        name: "ablation",
        params: json!({"body": BODY, "part": part}),
        unit,
        target: Target::default(),
        waits_for_disk: false,
    }
}

/// Measures a message to each of a thousand topics in turn. The limit is one topic.
fn single_log(bench: &Bench) {
    let workload = Workload::of_bodies(BODY);
    let (topics, count) = (
        bench.size(TOPICS, 10),
        bench.size(ROUND_BYTES / workload.record_size() / 4, 50),
    );
    let (ours, alone) = (Topics::new(bench, topics), Topics::new(bench, 1));
    let files = Files::new(bench, &workload, topics);
    let contenders = vec![
        Contender::new(OURS, || ours.round(&workload, count)),
        Contender::new(LIMIT, || alone.round(&workload, count)),
        Contender::new("without it", || files.borrow_mut().round(count)),
    ];
    bench.measure(&row("a single log", "ns a message"), contenders);
}

/// Measures some seconds with an option and without it. The limit is the record kernel with a thread that prefaults pages.
fn option(bench: &Bench, part: &str, config: fn(bool) -> StoreConfig) {
    let workload = Workload::of_bodies(BODY);
    let count = bench.size(ROUND_BYTES / workload.record_size(), 50);
    let with = |is_on| append_sustained::with(bench, &workload, count, config(is_on));
    let contenders = vec![
        Contender::new(OURS, || with(true)),
        Contender::new(LIMIT, || append_sustained::limit(bench, &workload, count)),
        Contender::new("without it", || with(false)),
    ];
    bench.measure(&row(part, "ns a message"), contenders);
}

/// Measures records written through the mapping of a segment, or by a system call each. The limit is the record kernel onto a
/// prefaulted map.
fn mapping(bench: &Bench) {
    let workload = Workload::of_bodies(BODY);
    let count = bench.size(ROUND_BYTES / workload.record_size() / 2, 50);
    let in_dir = |write: &dyn Fn(&std::path::Path) -> f64| {
        let dir = bench.dir();
        write(&dir.path().join("log"))
    };
    let contenders = vec![
        Contender::new(OURS, || in_dir(&|path| io_modes::ours(path, &workload, count, false))),
        Contender::new(LIMIT, || in_dir(&|path| io_modes::map(path, &workload, count, true))),
        Contender::new("without it", || in_dir(&|path| io_modes::pwrite(path, &workload, count, 1))),
    ];
    bench.measure(&row("a mapping", "ns a message"), contenders);
}

/// Measures durable messages of eight producers: one thread syncs for all waiting ones and hands over to the next, or each syncs
/// its own. The limit writes and syncs a record of each producer at once.
fn hand_off(bench: &Bench) {
    let contenders = vec![
        Contender::new(OURS, || group_commit::ours(bench, PRODUCERS, None)),
        Contender::new(LIMIT, || group_commit::limit(bench, PRODUCERS)),
        Contender::new("without it", || each_on_its_own(bench)),
    ];
    let row = Row {
        waits_for_disk: true,
        ..row("group commit with hand-over", "messages/s")
    };
    bench.measure(&row, contenders);
}

fn each_on_its_own(bench: &Bench) -> f64 {
    let dir = bench.dir();
    let file = Mutex::new(Durable::new(&dir.path().join("segment"), bench.size(64 << 20, 1 << 20)));
    let record = vec![b'x'; Workload::of_bodies(BODY).record_size()];
    let round = bench.size(group_commit::ROUND, group_commit::SMOKE_ROUND);
    let produce = || {
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < round {
            file.lock().unwrap().append(&record);
            count += 1;
        }
        f64::from(count) / begun.elapsed().as_secs_f64()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PRODUCERS).map(|_| scope.spawn(produce)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}
