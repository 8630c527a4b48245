//! A pass over all messages of a store, in the order of the log, with one thread and with one for each core. The limit reads the same bytes
//! and checks the CRC of each body, with as many threads. "`scan_cold`": the page cache holds nothing of the store; the limit has another
//! thread that reads ahead.

use std::fs::{self, File};
use std::hint::black_box;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use memmap2::Mmap;
use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{COMMIT_LOG_DIR, Check};
use mqstore::log::LogFiles;
use mqstore::read::{Filled, MessageReader, OnDamage, Scan, ScanRequest, Section, Sections};
use mqstore::storage::{Env, RealEnv};
use serde_json::json;

use super::queue_read::{cold_copy, reader};
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, fill, open};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::check_bodies;

const BODY: usize = 1024;
const MESSAGES: usize = 220_000;
const QUEUES: usize = 4;
/// Bytes that a thread reads before it asks for more.
const PIECE: usize = 4 << 20;
/// Bytes that are read ahead at once.
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
            let pieces = pieces(&path);
            let limit = || timed(&|path| rate(path, || limit(path, &pieces, threads, is_cold)));
            bench.measure(&row, vec![Contender::new(OURS, ours), Contender::new(LIMIT, limit)]);
        }
    }
}

/// A store of so many messages in the order of their queues' turns.
pub(super) fn make(path: &Path, count: usize) {
    let store = open(path, StoreConfig::default());
    fill(&store, &Workload::of_bodies(BODY), count, QUEUES);
    store.close().unwrap();
}

/// Bytes of the log that were read, in MB a second.
fn rate(path: &Path, read: impl Fn() -> usize) -> f64 {
    let begun = Instant::now();
    let count = black_box(read());
    let took = begun.elapsed();
    let reader = reader(path);
    assert!(count > 0);
    let bytes = reader.physical_bounds();
    (bytes.end - bytes.start) as f64 / 1e6 / took.as_secs_f64()
}

/// The messages that a pass over the log gives.
pub(super) fn scan(reader: &Arc<MessageReader>, threads: usize) -> usize {
    let mut scan = Scan::new(Arc::clone(reader), ScanRequest::default(), OnDamage::new(Errors::Raise)).unwrap();
    if threads > 1 {
        let mut sections = Sections::new(scan, threads, PIECE as u64, count_of);
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

fn count_of(section: &mut Section<'_>) -> (Vec<usize>, Option<Error>) {
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

/// Pieces of the log: the number of the segment, and positions in it.
pub(super) fn pieces(path: &Path) -> Vec<(usize, Range<usize>)> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let log = LogFiles::load(env, &path.join(COMMIT_LOG_DIR), None).unwrap();
    let size = log.segment_size() as usize;
    let mut pieces: Vec<(usize, Range<usize>)> = Vec::new();
    for message in log.scan(0, i64::MAX, Check::Structure) {
        let message = message.unwrap();
        let (start, end) = (message.view().physical_offset() as usize, message.view().end() as usize);
        let (segment, at) = (start / size, start % size);
        match pieces.last_mut() {
            Some((last, piece)) if *last == segment && piece.len() < PIECE => piece.end = end - segment * size,
            _ => pieces.push((segment, at..end - segment * size)),
        }
    }
    pieces
}

/// The messages that the limit reads.
pub(super) fn limit(path: &Path, pieces: &[(usize, Range<usize>)], threads: usize, is_cold: bool) -> usize {
    let mut names: Vec<_> = fs::read_dir(path.join(COMMIT_LOG_DIR))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    let files: Vec<File> = names.iter().map(|name| File::open(name).unwrap()).collect();
    // SAFETY: nobody changes the files.
    let maps: Vec<Mmap> = files.iter().map(|file| unsafe { Mmap::map(file) }.unwrap()).collect();
    let (next, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        if is_cold {
            scope.spawn(|| pieces.iter().for_each(|(segment, piece)| read_ahead(&files[*segment], piece)));
        }
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((segment, piece)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    count.fetch_add(check_bodies(&maps[*segment][piece.clone()]), Ordering::Relaxed);
                }
            });
        }
    });
    count.into_inner()
}

fn read_ahead(file: &File, piece: &Range<usize>) {
    for at in piece.clone().step_by(READ_AHEAD) {
        // SAFETY: the call changes no byte.
        unsafe { libc::readahead(file.as_raw_fd(), at as i64, READ_AHEAD) };
    }
}

/// The limit of a store that is in the page cache, in ns a message.
pub(super) fn limit_of(path: &Path) -> f64 {
    let pieces = pieces(path);
    let threads = thread::available_parallelism().unwrap().get();
    let begun = Instant::now();
    let count = limit(path, &pieces, threads, false);
    crate::harness::machine::each(begun.elapsed(), count)
}
