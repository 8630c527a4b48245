//! The cost of a message in a scan of a log, and of a log that is several times as large: the limit is the smaller log.
//! `BENCH_GIB=20` takes a log of 20 GiB, and one of 1 GiB.

use std::path::Path;
use std::time::Instant;

use serde_json::json;

use super::queue_read::reader;
use super::scan;
use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::{Bench, Contender, Row, Target};

/// The MiB of the larger log, and its size as a multiple of the smaller one.
const LOG: usize = 512;
const TIMES: usize = 8;
const TIMES_OF_GIB: usize = 20;
/// The messages in a MiB.
const IN_MIB: usize = 900;

pub fn run(bench: &Bench) {
    let gib = std::env::var("BENCH_GIB").ok().map(|text| text.parse::<usize>().unwrap());
    let (mib, times) = match gib {
        Some(gib) => (gib * 1024, TIMES_OF_GIB),
        None => (LOG, TIMES),
    };
    let dir = bench.dir();
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    let count = bench.size(mib * IN_MIB, 800);
    scan::make(&large, count);
    scan::make(&small, count / times);
    let cost = |path: &Path| {
        let reader = reader(path);
        let begun = Instant::now();
        let count = scan::scan(&reader, 1);
        each(begun.elapsed(), count)
    };
    let row = Row {
        name: "scale_size",
        params: json!({"log_mib": mib, "times": times}),
        unit: "ns a message",
        target: Target::of_limit(1.0 / 1.15),
        waits_for_disk: false,
    };
    let limit = Contender::new(LIMIT, || cost(&small));
    bench.measure(&row, vec![Contender::new(OURS, || cost(&large)), limit]);
}
