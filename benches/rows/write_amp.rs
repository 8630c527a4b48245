//! Write amplification: the bytes written to the disk for each byte of a record. The limit writes the same records, in whole
//! blocks, and syncs as often. Other writes to the disk at the same time are counted, too.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mqstore::config::{FlushDiskType, StoreConfig};
use serde_json::json;

use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, open};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::Durable;

const BODY: usize = 1024;
const SECTOR: f64 = 512.0;

pub fn run(bench: &Bench) {
    let dir = bench.dir();
    let Some(disk) = disk_of(dir.path()) else {
        println!(
            "write_amp is not measured: the system does not say what the disk of {} writes",
            dir.path().display()
        );
        return;
    };
    let workload = Workload::of_bodies(BODY);
    // The queue entry of a message and the item of its key take 40 bytes more, and the system writes whole pages.
    let asynchronous = (FlushDiskType::Async, bench.size(50_000, 100), Target::at_most(1.10));
    let synchronous = (FlushDiskType::Sync, bench.size(1000, 10), Target::default());
    for (flush, count, target) in [asynchronous, synchronous] {
        let is_sync = flush == FlushDiskType::Sync;
        let row = Row {
            name: "write_amp",
            params: json!({"body": BODY, "flush": if is_sync { "each message" } else { "at the end" }}),
            unit: "bytes a byte",
            target,
            waits_for_disk: false,
        };
        let bytes = (count * workload.record_size()) as f64;
        let ours = Contender::new(OURS, || {
            let dir = bench.dir();
            let config = StoreConfig {
                flush_disk_type: flush,
                ..StoreConfig::default()
            };
            let store = open(&dir.path().join("store"), config);
            store.append(workload.message(0)).unwrap();
            let before = written(&disk);
            for _ in 0..count {
                store.append(workload.message(0)).unwrap();
            }
            store.flush().unwrap();
            let found = (written(&disk) - before) / bytes;
            store.close().unwrap();
            found
        });
        let limit = Contender::new(LIMIT, || {
            let dir = bench.dir();
            let mut file = Durable::new(&dir.path().join("segment"), 80 << 20);
            let record = vec![b'x'; workload.record_size()];
            let before = written(&disk);
            if is_sync {
                (0..count).for_each(|_| file.append(&record));
            } else {
                file.append(&record.repeat(count));
            }
            (written(&disk) - before) / bytes
        });
        bench.measure(&row, vec![ours, limit]);
    }
}

/// Returns the statistics file of the device that contains a directory.
fn disk_of(dir: &Path) -> Option<PathBuf> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    path.exists().then_some(path)
}

/// Returns the bytes written since the system started.
fn written(disk: &Path) -> f64 {
    let statistics = fs::read_to_string(disk).unwrap();
    let sectors: f64 = statistics.split_whitespace().nth(6).unwrap().parse().unwrap();
    sectors * SECTOR
}
