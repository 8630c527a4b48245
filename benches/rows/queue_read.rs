//! Queues whose messages are interleaved with those of many others in the log, read one after another in order. The limit copies
//! the same bodies from a mapping of the log, at known offsets. A scan of the log is measured as well; it does not return the order
//! of the queues. "cold": no page of the store is in the page cache.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mqstore::config::StoreConfig;
use mqstore::format::{COMMIT_LOG_DIR, Check};
use mqstore::log::LogFiles;
use mqstore::read::{MessageReader, QueueScan};
use mqstore::storage::{Env, RealEnv};
use serde_json::json;
use tempfile::TempDir;

use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload, copy_store, fill, open};
use crate::harness::{Bench, Contender, Row, Target};

pub(super) const BODY: usize = 1024;
/// The queues whose messages alternate in the log.
const QUEUES: usize = 1000;
const MESSAGES: usize = 50_000;
/// The position of the body in a record.
const BODY_AT: usize = 88;

pub fn run(bench: &Bench) {
    for queues in [1, bench.size(QUEUES, 10)] {
        interleaved(bench, queues);
    }
}

fn interleaved(bench: &Bench, queues: usize) {
    let dir = bench.dir();
    let path = dir.path().join("store");
    let workload = Workload::of_bodies(BODY);
    let count = bench.size(MESSAGES, 200);
    let store = open(&path, StoreConfig::default());
    fill(&store, &workload, count, queues);
    store.close().unwrap();
    let offsets = offsets(&path, queues);
    assert_eq!(offsets.len(), count);
    for cache in ["hot", "cold"] {
        let row = Row {
            name: "queue_read",
            params: json!({"body": BODY, "queues": queues, "cache": cache}),
            unit: "ns a message",
            target: if (queues, cache) == (1, "hot") {
                Target::of_limit(0.6)
            } else {
                Target::default()
            },
            waits_for_disk: false,
        };
        let timed = |read: &dyn Fn(&Path) -> f64| match cache {
            "cold" => read(&cold_copy(bench, &path).path().join("store")),
            _ => read(&path),
        };
        let contenders = vec![
            Contender::new(OURS, || timed(&|path| ours(path, queues))),
            Contender::new(LIMIT, || timed(&|path| limit(path, &offsets))),
            Contender::new("mqstore, one pass over the log", || timed(&one_pass)),
        ];
        bench.measure(&row, contenders);
    }
}

pub(super) fn reader(path: &Path) -> Arc<MessageReader> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    Arc::new(MessageReader::open(&env, path, StoreConfig::default()).unwrap())
}

pub(super) fn scan(reader: &Arc<MessageReader>, queue_id: usize) -> QueueScan {
    QueueScan::new(reader.clone(), TOPIC.to_owned(), queue_id as i32, 0..i64::MAX).unwrap()
}

fn ours(path: &Path, queues: usize) -> f64 {
    let reader = reader(path);
    let (begun, mut count, mut body) = (Instant::now(), 0, Vec::with_capacity(BODY));
    for queue_id in 0..queues {
        for message in scan(&reader, queue_id) {
            body.clear();
            body.extend_from_slice(message.unwrap().view().body());
            std::hint::black_box(&mut body);
            count += 1;
        }
    }
    each(begun.elapsed(), count)
}

fn one_pass(path: &Path) -> f64 {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let log = LogFiles::load(env, &path.join(COMMIT_LOG_DIR), None).unwrap();
    let (begun, mut count, mut body) = (Instant::now(), 0, Vec::with_capacity(BODY));
    for message in log.scan(0, i64::MAX, Check::Body) {
        body.clear();
        body.extend_from_slice(message.unwrap().view().body());
        std::hint::black_box(&mut body);
        count += 1;
    }
    each(begun.elapsed(), count)
}

/// Returns the offsets of the records in the log, queue by queue.
pub(super) fn offsets(path: &Path, queues: usize) -> Vec<usize> {
    let reader = reader(path);
    let of_queue = |queue_id| scan(&reader, queue_id).map(|message| message.unwrap().view().physical_offset() as usize);
    (0..queues).flat_map(of_queue).collect()
}

pub(super) fn limit(path: &Path, offsets: &[usize]) -> f64 {
    let mut names: Vec<_> = fs::read_dir(path.join(COMMIT_LOG_DIR))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    // SAFETY: no process changes the files.
    let maps: Vec<_> = names
        .iter()
        .map(|name| unsafe { memmap2::Mmap::map(&File::open(name).unwrap()) }.unwrap())
        .collect();
    let segment = maps[0].len();
    let (begun, mut body) = (Instant::now(), Vec::with_capacity(BODY));
    for offset in offsets {
        body.clear();
        let at = offset % segment + BODY_AT;
        body.extend_from_slice(&maps[offset / segment][at..at + BODY]);
        std::hint::black_box(&mut body);
    }
    each(begun.elapsed(), offsets.len())
}

/// Copies a store, and drops the copy from the page cache. The store itself stays cached, because this process has mapped it.
pub(super) fn cold_copy(bench: &Bench, path: &Path) -> TempDir {
    let dir = bench.dir();
    copy_store(path, &dir.path().join("store"), |made| {
        let file = File::open(made).unwrap();
        file.sync_all().unwrap();
        // SAFETY: the call changes no byte.
        let done = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(done, 0);
    });
    dir
}
