//! A scan leaves the page cache of the log as it was, whatever way it takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::check::{VerifyRequest, verify};
use mqstore::config::{Errors, StoreConfig};
use mqstore::format::Message;
use mqstore::read::{Filled, MessageReader, OnDamage, ParallelScan, Scan, ScanRequest};
use mqstore::storage::{Access, Advice, Env, MappedFile, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use crate::reading::open;

const PAGE: usize = 4096;
const SEGMENT: u64 = 4 << 20;
const MESSAGES: usize = 24_000;

/// A closed store of 24 MiB; every fourth message is of a topic of its own.
fn make(path: &Path) {
    make_of(path, MESSAGES, 900);
}

/// A closed store of `messages` messages with bodies of `body` bytes.
fn make_of(path: &Path, messages: usize, body: usize) {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(SEGMENT),
        ..StoreConfig::default()
    };
    let store = MessageStore::open(&env, path, config, OpenMode::New).unwrap();
    let message = |number: usize| Message {
        topic: if number.is_multiple_of(4) {
            "few".into()
        } else {
            "orders".into()
        },
        body: vec![7; body].into(),
        ..Message::default()
    };
    let messages: Vec<_> = (0..messages).map(message).collect();
    store.appender(None).append_all(messages, &mut Vec::new()).unwrap();
    store.close().unwrap();
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(path.join("commitlog")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn drop_cached(path: &Path) {
    fs::File::open(path).unwrap().sync_all().unwrap();
    let opened = RealEnv::new().open(path, Access::Read).unwrap();
    opened.advise(0..SEGMENT, Advice::DontNeed).unwrap();
}

/// Returns which pages of the log are in memory.
fn cached(path: &Path) -> Vec<bool> {
    let pages = segments(path).into_iter().flat_map(|segment| {
        let file = MappedFile::open(&RealEnv::new(), segment, 0, SEGMENT).unwrap();
        (0..SEGMENT as usize).step_by(PAGE).map(move |at| file.is_cached(at..at + 1))
    });
    pages.collect()
}

/// Returns the number of messages of a scan.
fn pass(mut scan: Scan, threads: usize) -> usize {
    if threads > 0 {
        let gather = |section: &mut mqstore::read::ScanSection<'_>| {
            let mut count = 0_usize;
            let filled = section.fill(|_| {
                count += 1;
                Ok(true)
            });
            assert!(matches!(filled, Ok(Filled::End)));
            (vec![count], None)
        };
        let mut sections = ParallelScan::new(scan, threads, 1 << 20, gather);
        return std::iter::from_fn(|| sections.next_section().unwrap()).flatten().sum();
    }
    let mut count = 0;
    loop {
        let filled = scan.fill(|_| {
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

#[test]
fn a_scan_of_what_is_not_cached_leaves_the_page_cache_as_it_was() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("store");
    make(&path);
    let of_few = ScanRequest {
        topics: Some(vec!["few".to_owned()]),
        ..ScanRequest::default()
    };
    let reversed = ScanRequest {
        reverse: true,
        ..ScanRequest::default()
    };
    let ways = [
        (ScanRequest::default(), 0, MESSAGES),
        (ScanRequest::default(), 3, MESSAGES),
        (of_few.clone(), 0, MESSAGES / 4),
        (of_few, 3, MESSAGES / 4),
        (reversed, 0, MESSAGES),
    ];
    for (request, threads, expected) in ways {
        let reads = |reader| {
            let scan = Scan::new(reader, request.clone(), OnDamage::new(Errors::Raise)).unwrap();
            assert_eq!(pass(scan, threads), expected);
        };
        expect_left_as_it_was(&path, &format!("{request:?}, {threads} threads"), &reads);
    }
}

#[test]
fn counting_and_verifying_uncached_files_leave_the_page_cache_unchanged() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("store");
    make(&path);
    expect_left_as_it_was(&path, "usage", &|reader| {
        let usage = reader.usage(&[], Errors::Raise).unwrap();
        assert_eq!(usage.groups[0].1.messages, MESSAGES as i64);
    });
    for threads in [1, 3] {
        expect_left_as_it_was(&path, &format!("verify, {threads} threads"), &|reader| {
            assert_eq!(verified(&reader, threads), MESSAGES as u64);
        });
    }
}

/// Returns the number of messages that a verification compares.
fn verified(reader: &MessageReader, threads: usize) -> u64 {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let request = VerifyRequest {
        threads,
        ..VerifyRequest::default()
    };
    verify(&env, reader, request, |_, _| Ok(())).unwrap().messages
}

#[test]
fn a_pass_over_a_long_log_keeps_a_short_part_of_it_mapped() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("store");
    let messages = 110;
    make_of(&path, messages, 900 << 10);
    let ways: [(&str, Reads<'_>); 4] = [
        ("usage", &|reader| drop(reader.usage(&[], Errors::Raise).unwrap())),
        ("verify", &|reader| assert_eq!(verified(&reader, 1), messages as u64)),
        ("verify, 3 threads", &|reader| {
            assert_eq!(verified(&reader, 3), messages as u64);
        }),
        ("scan", &|reader| {
            let scan = Scan::new(reader, ScanRequest::default(), OnDamage::new(Errors::Raise)).unwrap();
            assert_eq!(pass(scan, 0), messages);
        }),
    ];
    for (what, reads) in ways {
        let reader = open(&path);
        reads(Arc::clone(&reader));
        let mapped = mapped_bytes(&path.join("commitlog"));
        assert!(mapped < 48 << 20, "{what}: {mapped} bytes");
    }
}

/// Bytes of the files in a directory that this process has mapped and that count as its memory.
fn mapped_bytes(dir: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut is_inside, mut kilobytes) = (false, 0);
    for line in maps.lines() {
        if let Some(resident) = line.strip_prefix("Rss:") {
            let number = resident.trim().trim_end_matches(" kB");
            kilobytes += if is_inside { number.parse().unwrap() } else { 0 };
        } else if line.contains(" r--s ") || line.contains(" rw-s ") || line.contains("-p ") {
            is_inside = line.contains(dir.to_str().unwrap());
        }
    }
    kilobytes << 10
}

/// The system takes pages from the cache when it likes. Who does wrong does it each time.
fn expect_left_as_it_was(path: &Path, what: &str, reads: Reads<'_>) {
    let tries: Vec<_> = (0..3).map_while(|_| left_as_it_was(path, reads).err()).collect();
    assert!(tries.len() < 3, "{what}: {tries:?}");
}

/// Reads all of a store, and drops what it has read.
type Reads<'a> = &'a dyn Fn(Arc<MessageReader>);

fn left_as_it_was(path: &Path, reads: Reads<'_>) -> Result<(), String> {
    for segment in segments(path) {
        drop_cached(&segment);
    }
    if cached(path).contains(&true) {
        return Ok(()); // The file system is in memory alone, or somebody else reads it.
    }
    let kept = RealEnv::new().open(&segments(path)[2], Access::Read).unwrap();
    kept.read_full_at(&mut vec![0; 1 << 20], 1 << 20).unwrap();
    // An open reads the end of the log.
    let reader = open(path);
    let before = cached(path);
    // What is past the end of the log are zeros, which nobody needs.
    let pages = reader.physical_bounds().end as usize / PAGE;
    reads(reader);
    let after = cached(path);
    let pairs = || before.iter().zip(&after).take(pages);
    if pairs().any(|(before, after)| after < before) {
        return Err("what was cached did not stay".to_owned());
    }
    let brought = pairs().filter(|(before, after)| after > before).count() * PAGE;
    if brought < 3 << 20 {
        Ok(())
    } else {
        Err(format!("{brought} bytes stay in the cache"))
    }
}
