//! Opening a store whose writer died and whose checkpoint and flushed mark are lost, so that the whole log is read and rewritten.
//! The log is in the page cache.
//!
//! "scanned": a reader's open, which reads the log, and checks each record and its queue entry; the limit does only that.
//! "rewritten": the additional time of a writer's open; the limit writes the same bytes into existing blocks, one MiB at a time,
//! and syncs.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memmap2::Mmap;
use mqstore::config::StoreConfig;
use mqstore::format::{ABORT_FILE, CHECKPOINT_FILE, COMMIT_LOG_DIR, CONFIG_DIR, CONSUME_QUEUE_DIR, FLUSHED_MARK_FILE};
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use serde_json::json;

use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload, fill, open};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::scan_segment;

const BODY: usize = 1024;
const LOG_BYTES: usize = 256 << 20;
const PIECE: usize = 1 << 20;
const QUEUES: usize = 4;

pub fn run(bench: &Bench) {
    let dir = bench.dir();
    let image = dir.path().join("store");
    let workload = Workload::of_bodies(BODY);
    let store = open(&image, StoreConfig::default());
    let count = bench.size(LOG_BYTES, 1 << 20) / workload.record_size();
    fill(&store, &workload, count, QUEUES);
    let bytes = store.appended_offset() as f64;
    store.close().unwrap();
    let rate = |time: Duration| bytes / 1e6 / time.as_secs_f64();
    for part in ["scanned", "rewritten"] {
        let row = Row {
            name: "recover",
            params: json!({"body": BODY, "log_mib": bytes as u64 >> 20, "part": part}),
            unit: "MB/s",
            target: Target::of_limit(0.6),
            waits_for_disk: false,
        };
        let contenders = if part == "scanned" {
            vec![
                Contender::new(OURS, || rate(scan(&image))),
                Contender::new(LIMIT, || rate(check_records(&image, count))),
            ]
        } else {
            vec![
                Contender::new(OURS, || rate(rewrite(&image))),
                Contender::new(LIMIT, || rate(write(&dir.path().join("copy"), bytes as usize))),
            ]
        };
        bench.measure(&row, contenders);
    }
}

/// Turns the store into that of a writer that died.
fn kill(image: &Path) {
    for lost in [image.join(CHECKPOINT_FILE), image.join(CONFIG_DIR).join(FLUSHED_MARK_FILE)] {
        if lost.exists() {
            fs::remove_file(lost).unwrap();
        }
    }
    fs::write(image.join(ABORT_FILE), "").unwrap();
}

fn scan(image: &Path) -> Duration {
    kill(image);
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let begun = Instant::now();
    let reader = MessageReader::open(&env, image, StoreConfig::default()).unwrap();
    let took = begun.elapsed();
    assert_eq!(reader.recovery().scan_start, 0);
    took
}

fn rewrite(image: &Path) -> Duration {
    let scanned = scan(image);
    let begun = Instant::now();
    let store = open(image, StoreConfig::default());
    let took = begun.elapsed();
    store.close().unwrap();
    // The difference may be zero if the machine was slower during the scan.
    took.saturating_sub(scanned).max(Duration::from_micros(1))
}

/// Checks every record of the log against the entry in the queue files.
fn check_records(image: &Path, count: usize) -> Duration {
    let begun = Instant::now();
    let queues: Vec<Mmap> = (0..QUEUES)
        .map(|id| map(&files(&image.join(CONSUME_QUEUE_DIR).join(TOPIC).join(id.to_string()))[0]))
        .collect();
    let mut start = 0;
    let mut checked = 0;
    for segment in files(&image.join(COMMIT_LOG_DIR)) {
        let segment = map(&segment);
        checked += scan_segment(&segment, start, TOPIC.as_bytes(), &queues);
        start += segment.len() as i64;
    }
    let took = begun.elapsed();
    assert_eq!(checked, count);
    took
}

pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

pub(super) fn map(path: &Path) -> Mmap {
    // SAFETY: no process changes the file.
    unsafe { Mmap::map(&File::open(path).unwrap()) }.unwrap()
}

fn write(path: &Path, bytes: usize) -> Duration {
    let file = File::options().write(true).create(true).truncate(false).open(path).unwrap();
    let piece = vec![b'x'; PIECE];
    let begun = Instant::now();
    for at in (0..bytes).step_by(PIECE) {
        file.write_all_at(&piece, at as u64).unwrap();
    }
    file.sync_data().unwrap();
    begun.elapsed()
}
