//! Ways to write records to a file as fast as possible: mqstore through its mappings and through the transient store pool, compared
//! with a system call for each record, a buffer of 256 KiB, and a mapping whose pages are faulted in by the writes. No way syncs.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use mqstore::config::StoreConfig;
use serde_json::json;

use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{BODIES, TOPIC, Workload, open};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{FileMap, RecordKernel};

const ROUND_BYTES: usize = 96 << 20;
const BUFFER: usize = 256 << 10;

pub fn run(bench: &Bench) {
    for body in BODIES {
        let workload = Workload::of_bodies(body);
        let count = bench.size(ROUND_BYTES / workload.record_size(), 50);
        for (mode, is_pool) in [("mapped", false), ("pool", true)] {
            let row = Row {
                name: "io_modes",
                params: json!({"body": body, "mode": mode}),
                unit: "ns a message",
                target: Target::default(),
                waits_for_disk: false,
            };
            let in_dir = |write: &dyn Fn(&Path, &Workload, usize) -> f64| {
                let dir = bench.dir();
                write(&dir.path().join("log"), &workload, count)
            };
            let contenders = vec![
                Contender::new(OURS, || in_dir(&|path, workload, count| ours(path, workload, count, is_pool))),
                Contender::new(LIMIT, || in_dir(&|path, workload, count| map(path, workload, count, true))),
                Contender::new("a mapping, touched on the way", || {
                    in_dir(&|path, workload, count| map(path, workload, count, false))
                }),
                Contender::new("a write for each record", || {
                    in_dir(&|path, workload, count| pwrite(path, workload, count, 1))
                }),
                Contender::new("a buffer of 256 KiB", || {
                    in_dir(&|path, workload, count| pwrite(path, workload, count, BUFFER))
                }),
            ];
            bench.measure(&row, contenders);
        }
    }
}

/// Measures until everything is in the file.
pub fn ours(path: &Path, workload: &Workload, count: usize, is_pool: bool) -> f64 {
    let config = StoreConfig {
        transient_store_pool_enable: is_pool,
        ..StoreConfig::default()
    };
    let store = open(path, config);
    store.append(workload.message(0)).unwrap();
    let begun = Instant::now();
    for _ in 0..count {
        black_box(store.append(workload.message(0)).unwrap());
    }
    store.commit().unwrap();
    let took = begun.elapsed();
    store.close().unwrap();
    each(took, count)
}

/// Measures the record kernel.
pub fn map(path: &Path, workload: &Workload, count: usize, is_populated: bool) -> f64 {
    let len = (count + 1) * workload.record_size();
    let map = if is_populated {
        FileMap::populated(path, len)
    } else {
        FileMap::new(path, len)
    };
    let kernel = RecordKernel::new(&map, TOPIC);
    let begun = Instant::now();
    for _ in 0..count {
        black_box(kernel.append(TOPIC.as_bytes(), 0, &workload.properties, black_box(&workload.body)));
    }
    each(begun.elapsed(), count)
}

/// Measures writes of prepared records, with `buffer` bytes or one record in a call.
pub fn pwrite(path: &Path, workload: &Workload, count: usize, buffer: usize) -> f64 {
    drop(FileMap::new(path, (count + 1) * workload.record_size()));
    let file = File::options().write(true).open(path).unwrap();
    let record = workload.message(0).encode().unwrap();
    let records = (buffer / record.len()).max(1);
    let mut bytes = Vec::with_capacity(records * record.len());
    let (begun, mut at) = (Instant::now(), 0);
    for number in 0..count {
        bytes.extend_from_slice(black_box(&record));
        if bytes.len() == records * record.len() || number + 1 == count {
            file.write_all_at(&bytes, at).unwrap();
            at += bytes.len() as u64;
            bytes.clear();
        }
    }
    each(begun.elapsed(), count)
}
