//! Verifying a closed store that is in the page cache. The limit reads the same bytes of the log and computes their CRC, and nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqstore::check::{VerifyRequest, verify};
use mqstore::config::StoreConfig;
use mqstore::format::COMMIT_LOG_DIR;
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use serde_json::json;

use super::recover::{files, map};
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, fill, open};
use crate::harness::{Bench, Contender, Row, Target};

const BODY: usize = 1024;
const LOG_BYTES: usize = 256 << 20;
const QUEUES: usize = 4;

pub fn run(bench: &Bench) {
    let dir = bench.dir();
    let path = dir.path().join("store");
    let workload = Workload::of_bodies(BODY);
    let store = open(&path, StoreConfig::default());
    let count = bench.size(LOG_BYTES, 1 << 20) / workload.record_size();
    fill(&store, &workload, count, QUEUES);
    let bytes = store.appended_offset();
    store.close().unwrap();
    let rate = |time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
    let row = Row {
        name: "verify",
        params: json!({"body": BODY, "log_mib": bytes >> 20}),
        unit: "MB/s",
        target: Target::of_limit(0.8),
        waits_for_disk: false,
    };
    let ours = Contender::new(OURS, || rate(verify_all(&path, count)));
    let limit = Contender::new(LIMIT, || rate(checksum(&path, bytes)));
    bench.measure(&row, vec![ours, limit]);
}

fn verify_all(path: &Path, count: usize) -> Duration {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let reader = MessageReader::open(&env, path, StoreConfig::default()).unwrap();
    let request = VerifyRequest {
        deep: true,
        max_bytes_per_s: None,
    };
    let begun = Instant::now();
    let report = verify(&env, &reader, request, |_, _| Ok(())).unwrap();
    let took = begun.elapsed();
    assert!(report.is_ok() && report.messages == count as u64, "{:?}", report.findings);
    took
}

fn checksum(path: &Path, bytes: i64) -> Duration {
    let begun = Instant::now();
    let mut left = bytes as usize;
    let mut crc = crc32fast::Hasher::new();
    for segment in files(&path.join(COMMIT_LOG_DIR)) {
        let segment = map(&segment);
        let part = &segment[..left.min(segment.len())];
        crc.update(part);
        left -= part.len();
    }
    assert_ne!(crc.finalize(), 0);
    begun.elapsed()
}
