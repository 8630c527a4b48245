//! Verification of a closed store, with one thread and with one for each core. The limit is that of a scan of the log (`scan.rs`),
//! with as many threads. "`verify_cold`": no page of the store is in the page cache; the limit has another thread that reads ahead.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::check::{VerifyRequest, verify};
use mqstore::storage::{Env, RealEnv};
use serde_json::json;

use super::queue_read::{cold_copy, reader};
use super::scan::{limit, make};
use crate::harness::row::{LIMIT, OURS};
use crate::harness::{Bench, Contender, Row, Target};

const BODY: usize = 1024;
const MESSAGES: usize = 220_000;

pub fn run(bench: &Bench) {
    let dir = bench.dir();
    let path = dir.path().join("store");
    let count = bench.size(MESSAGES, 200);
    make(&path, count);
    let bounds = reader(&path).physical_bounds();
    let rate = |took: Duration| (bounds.end - bounds.start) as f64 / 1e6 / took.as_secs_f64();
    let cores = thread::available_parallelism().unwrap().get();
    for (name, part) in [("verify", 0.55), ("verify_cold", 0.9)] {
        let is_cold = name == "verify_cold";
        let timed = |read: &dyn Fn(&Path) -> Duration| {
            if is_cold {
                rate(read(&cold_copy(bench, &path).path().join("store")))
            } else {
                rate(read(&path))
            }
        };
        for threads in [1, cores] {
            let row = Row {
                name,
                params: json!({"body": BODY, "threads": threads}),
                unit: "MB/s",
                target: Target::of_limit(part),
                waits_for_disk: false,
            };
            let ours = || timed(&|path| verify_all(path, threads, count));
            let limit = || {
                timed(&|path| {
                    let begun = Instant::now();
                    assert_eq!(limit(path, threads, is_cold, false), count);
                    begun.elapsed()
                })
            };
            bench.measure(&row, vec![Contender::new(OURS, ours), Contender::new(LIMIT, limit)]);
        }
    }
}

fn verify_all(path: &Path, threads: usize, count: usize) -> Duration {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let reader = reader(path);
    let request = VerifyRequest {
        threads,
        ..VerifyRequest::default()
    };
    let begun = Instant::now();
    let report = verify(&env, &reader, request, |_, _| Ok(())).unwrap();
    let took = begun.elapsed();
    assert!(report.is_ok() && report.messages == count as u64, "{:?}", report.findings);
    took
}
