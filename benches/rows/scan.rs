//! A scan of all messages of a store, in the order of the log, with one thread and with one for each core. The limit reads the same
//! bytes and checks the CRC of each body, with as many threads; they find the starts of pieces of the log on the way, because only
//! the records determine them. A second limit also checks what a scan promises: the offset in each record, and that its queue entry
//! points to it.

use std::fs::{self, File};
use std::hint::black_box;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use memmap2::Mmap;
use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::format::COMMIT_LOG_DIR;
use mqstore::read::{Filled, MessageReader, OnDamage, ParallelScan, Scan, ScanRequest, ScanSection};
use serde_json::json;

use super::queue_read::{cold_copy, reader};
use super::resolve::map_queue;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, fill, open};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{check_messages, end_of_piece};

const BODY: usize = 1024;
const MESSAGES: usize = 220_000;
const QUEUES: usize = 4;
/// The bytes that a thread reads before it requests more.
const PIECE: usize = 4 << 20;
/// The bytes that are read ahead at once.
const READ_AHEAD: usize = 128 << 10;

pub fn run(bench: &Bench) {
    let dir = bench.dir();
    let path = dir.path().join("store");
    make(&path, bench.size(MESSAGES, 200));
    let cores = thread::available_parallelism().unwrap().get();
    for (name, part) in [("scan_hot", 0.8), ("scan_cold", 0.9)] {
        for threads in [1, cores] {
            let row = Row {
                name,
                params: json!({"body": BODY, "threads": threads}),
                unit: "MB/s",
                target: Target::of_limit(part),
                waits_for_disk: false,
            };
            let is_cold = name == "scan_cold";
            let timed = |read: &dyn Fn(&Path) -> f64| {
                if is_cold {
                    read(&cold_copy(bench, &path).path().join("store"))
                } else {
                    read(&path)
                }
            };
            let ours = || timed(&|path| rate(path, || scan(&reader(path), threads)));
            let limit = |promise| move || timed(&|path| rate(path, || limit(path, threads, is_cold, promise)));
            bench.measure(
                &row,
                vec![
                    Contender::new(OURS, ours),
                    Contender::new(LIMIT, limit(false)),
                    Contender::new("limit, with its queue entry", limit(true)),
                ],
            );
        }
    }
}

/// Creates a store of `count` messages, one to each queue in turn.
pub(super) fn make(path: &Path, count: usize) {
    let store = open(path, StoreConfig::default());
    fill(&store, &Workload::of_bodies(BODY), count, QUEUES);
    store.close().unwrap();
}

/// Returns the rate at which the log was read, in MB in a second.
fn rate(path: &Path, read: impl Fn() -> usize) -> f64 {
    let begun = Instant::now();
    let count = black_box(read());
    let took = begun.elapsed();
    let reader = reader(path);
    assert!(count > 0);
    let bytes = reader.physical_bounds();
    (bytes.end - bytes.start) as f64 / 1e6 / took.as_secs_f64()
}

/// Returns the number of messages that a scan of the log returns.
pub(super) fn scan(reader: &Arc<MessageReader>, threads: usize) -> usize {
    let mut scan = Scan::new(Arc::clone(reader), ScanRequest::default(), OnDamage::new(Errors::Raise)).unwrap();
    if threads > 1 {
        let mut sections = ParallelScan::new(scan, threads, PIECE as u64, count_of);
        return std::iter::from_fn(|| sections.next_section().unwrap()).flatten().sum();
    }
    let mut count = 0;
    loop {
        let filled = scan.fill(|picked| {
            black_box(picked.body);
            count += 1;
            Ok(true)
        });
        match filled.unwrap() {
            Filled::Full | Filled::Paused => {}
            Filled::End => return count,
            Filled::Stopped(error) => panic!("{error}"),
        }
    }
}

fn count_of(section: &mut ScanSection<'_>) -> (Vec<usize>, Option<Error>) {
    let mut count = 0;
    let filled = section.fill(|picked| {
        black_box(picked.body);
        count += 1;
        Ok(true)
    });
    match filled {
        Ok(Filled::Stopped(error)) | Err(error) => (vec![count], Some(error)),
        Ok(_) => (vec![count], None),
    }
}

/// Returns the number of messages that the limit reads; with `is_promise` it also checks their queue entries.
pub(super) fn limit(path: &Path, threads: usize, is_cold: bool, is_promise: bool) -> usize {
    let mut names: Vec<_> = fs::read_dir(path.join(COMMIT_LOG_DIR))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    let files: Vec<File> = names.iter().map(|name| File::open(name).unwrap()).collect();
    // SAFETY: no process changes the files.
    let maps: Vec<Mmap> = files.iter().map(|file| unsafe { Mmap::map(file) }.unwrap()).collect();
    let queues: Vec<Mmap> = (0..QUEUES).filter_map(|queue_id| map_queue(path, queue_id)).collect();
    let queues = is_promise.then_some(&queues[..]);
    let (next, count) = (Mutex::new((0, 0)), AtomicUsize::new(0));
    let take = || next_piece(&maps, &mut next.lock().unwrap());
    thread::scope(|scope| {
        if is_cold {
            scope.spawn(|| files.iter().for_each(read_ahead));
        }
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((segment, piece)) = take() {
                    let start = segment * maps[0].len() + piece.start;
                    count.fetch_add(check_messages(&maps[segment][piece], start as i64, queues), Ordering::Relaxed);
                }
            });
        }
    });
    count.into_inner()
}

/// Returns the next piece of the log: the number of the segment, and positions in it.
fn next_piece(segments: &[Mmap], next: &mut (usize, usize)) -> Option<(usize, Range<usize>)> {
    while let Some(segment) = segments.get(next.0) {
        let (number, at) = *next;
        next.1 = end_of_piece(segment, at, PIECE);
        if at < next.1 {
            return Some((number, at..next.1));
        }
        *next = (number + 1, 0);
    }
    None
}

fn read_ahead(file: &File) {
    for at in (0..file.metadata().unwrap().len()).step_by(READ_AHEAD) {
        // SAFETY: the call changes no byte.
        unsafe { libc::readahead(file.as_raw_fd(), at as i64, READ_AHEAD) };
    }
}

/// Measures the limit of a store that is in the page cache, in ns for a message.
pub(super) fn limit_of(path: &Path) -> f64 {
    let threads = thread::available_parallelism().unwrap().get();
    let begun = Instant::now();
    let count = limit(path, threads, false, false);
    crate::harness::machine::each(begun.elapsed(), count)
}
