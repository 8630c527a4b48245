//! What an option of the write path is worth over some seconds: the default beside the same with one option switched. The limit is the
//! record kernel with a thread that populates pages, as in `append_sustained`.

use mqstore::config::StoreConfig;
use serde_json::json;

use super::append_sustained;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::Workload;
use crate::harness::{Bench, Contender, Row, Target};

const BODY: usize = 1024;
const ROUND_BYTES: usize = 192 << 20;

pub fn run(bench: &Bench) {
    let workload = Workload::of_bodies(BODY);
    let count = bench.size(ROUND_BYTES / workload.record_size(), 50);
    let row = Row {
        name: "ablation",
        params: json!({"body": BODY}),
        unit: "ns a message",
        target: Target::default(),
        waits_for_disk: false,
    };
    let with = |config: StoreConfig| append_sustained::with(bench, &workload, count, config);
    let contenders = vec![
        Contender::new(OURS, || with(StoreConfig::default())),
        Contender::new(LIMIT, || append_sustained::limit(bench, &workload, count)),
        Contender::new("mqstore with the pool", || {
            with(StoreConfig {
                transient_store_pool_enable: true,
                ..StoreConfig::default()
            })
        }),
        Contender::new("mqstore with warm-up", || {
            with(StoreConfig {
                warm_mapped_file_enable: true,
                ..StoreConfig::default()
            })
        }),
        Contender::new("mqstore flushed every 50 ms", || {
            with(StoreConfig {
                flush_interval_commit_log: 50,
                ..StoreConfig::default()
            })
        }),
        Contender::new("mqstore without the SIGBUS guard", || {
            with(StoreConfig {
                sigbus_guard: false,
                ..StoreConfig::default()
            })
        }),
    ];
    bench.measure(&row, contenders);
}
