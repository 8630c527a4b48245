//! The contract of `storage::Env` on the real system.
#![allow(unsafe_code)]

use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use mqstore::error::Error;
use mqstore::storage::{Access, Advice, EntryKind, Env, MappedFile, RealEnv, Region, Step};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::child;
use crate::heap;

pub(crate) fn make_pipe(path: &Path) {
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

fn refusal<T>(answer: std::io::Result<T>) -> ErrorKind {
    answer.map(|_| ()).unwrap_err().kind()
}

#[test]
fn a_listing_is_sorted_and_follows_links() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("c"), [0; 30]).unwrap();
    fs::create_dir(at("b")).unwrap();
    make_pipe(&at("pipe"));
    symlink(at("c"), at("to-file")).unwrap();
    symlink(at("b"), at("to-dir")).unwrap();
    symlink(at("nowhere"), at("to-nowhere")).unwrap();
    symlink(at("to-itself"), at("to-itself")).unwrap();
    let entries = RealEnv::new().list(dir.path()).unwrap();
    let seen: Vec<_> = entries.iter().map(|e| (e.name.to_str().unwrap(), e.kind, e.len)).collect();
    let expected = [
        ("b", EntryKind::Directory, 0),
        ("c", EntryKind::File, 30),
        ("pipe", EntryKind::Other, 0),
        ("to-dir", EntryKind::Directory, 0),
        ("to-file", EntryKind::File, 30),
        ("to-itself", EntryKind::Other, 0),
        ("to-nowhere", EntryKind::Other, 0),
    ];
    assert_eq!(seen, expected);
    assert_eq!(refusal(RealEnv::new().list(&at("nowhere"))), ErrorKind::NotFound);
    assert_eq!(refusal(RealEnv::new().list(&at("c"))), ErrorKind::NotADirectory);
}

#[test]
fn a_process_without_memory_can_still_write_zeros() {
    let dir = TempDir::new().unwrap();
    let file = RealEnv::new().create(&dir.path().join("file")).unwrap();
    let before: Vec<u8> = (0..1 << 20).map(|at| at as u8 | 1).collect();
    file.write_all_at(&before, 0).unwrap();
    let (zeroed, most) = heap::most_while(|| file.zero(1000..1_000_000));
    zeroed.unwrap();
    assert_eq!(most, 0, "bytes of memory");
    let mut found = vec![0; before.len()];
    file.read_full_at(&mut found, 0).unwrap();
    let mut expected = before;
    expected[1000..1_000_000].fill(0);
    assert!(found == expected);
}

#[test]
fn opening_creates_nothing_and_refuses_what_is_no_file_without_waiting() {
    let dir = TempDir::new().unwrap();
    let env = RealEnv::new();
    let missing = dir.path().join("missing");
    for access in [Access::Read, Access::ReadWrite] {
        assert_eq!(refusal(env.open(&missing, access)), ErrorKind::NotFound);
    }
    assert!(!missing.exists());
    let pipe = dir.path().join("pipe");
    make_pipe(&pipe);
    let refused = env.open(&pipe, Access::Read).unwrap_err();
    assert_eq!(
        (refused.kind(), refused.to_string().contains("found a pipe")),
        (ErrorKind::InvalidInput, true)
    );
    assert_eq!(refusal(env.open(dir.path(), Access::Read)), ErrorKind::InvalidInput);
    assert_eq!(
        refusal(env.open(Path::new("/dev/null"), Access::Read)),
        ErrorKind::InvalidInput
    );
}

#[test]
fn a_file_opened_for_reading_cannot_be_written() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, [1; 4096]).unwrap();
    let file = RealEnv::new().open(&path, Access::Read).unwrap();
    assert!(file.write_at(b"x", 0).is_err() && file.map(4096, Access::ReadWrite).is_err());
    let region = file.map(4096, Access::Read).unwrap();
    assert!(!region.write(0, b"x") && !region.store_be_u32(0, 1));
    assert_eq!(fs::read(&path).unwrap(), [1; 4096]);
}

#[test]
fn pages_that_a_mapping_releases_are_the_same_when_they_are_read_again() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, [1; 16384]).unwrap();
    let file = RealEnv::new().open(&path, Access::ReadWrite).unwrap();
    let region = file.map(16384, Access::ReadWrite).unwrap();
    assert!(region.write(5000, b"changed"));
    region.release_pages(4096..8192);
    region.release_pages(0..usize::MAX);
    let mut found = [0; 7];
    assert!(region.read(5000, &mut found) && found == *b"changed" && region.faults() == 0);
    assert_eq!(&fs::read(&path).unwrap()[5000..5007], b"changed");

    // Memory that belongs to no file would lose them.
    let memory = Region::anonymous(8192).unwrap();
    assert!(memory.write(0, b"waiting"));
    memory.release_pages(0..8192);
    assert!(memory.read(0, &mut found) && found == *b"waiting");
}

/// Bytes of a file that this process has mapped and in memory.
fn resident(path: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut entry = maps.lines().skip_while(|line| !line.ends_with(path.to_str().unwrap()));
    let line = entry.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[test]
fn a_mapping_takes_no_memory_until_its_pages_are_supplied() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    let file = RealEnv::new().create(&path).unwrap();
    let len = 100 << 20;
    file.allocate(len as u64).unwrap();
    let region = file.map(len, Access::ReadWrite).unwrap();
    assert_eq!(resident(&path), 0);
    assert!(region.write(0, b"one page"));
    assert!((4096..1 << 20).contains(&resident(&path)));
    region.supply(0..len).unwrap();
    assert_eq!(resident(&path), 25_600 * 4096);
}

#[test]
fn creating_never_takes_an_existing_name() {
    let dir = TempDir::new().unwrap();
    let env = RealEnv::new();
    let path = dir.path().join("f");
    env.create(&path).unwrap().write_all_at(b"first", 0).unwrap();
    assert_eq!(refusal(env.create(&path)), ErrorKind::AlreadyExists);
    symlink(dir.path().join("nowhere"), dir.path().join("link")).unwrap();
    assert_eq!(refusal(env.create(&dir.path().join("link"))), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    env.create_dir(&dir.path().join("d")).unwrap();
    assert_eq!(refusal(env.create_dir(&dir.path().join("d"))), ErrorKind::AlreadyExists);
    assert_eq!(refusal(env.create_dir(&dir.path().join("e/f"))), ErrorKind::NotFound);
}

#[test]
fn renaming_replaces_and_unlinking_leaves_open_files_readable() {
    let dir = TempDir::new().unwrap();
    let env = RealEnv::new();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::write(&old, b"fresh").unwrap();
    fs::write(&new, b"stale").unwrap();
    env.rename(&old, &new).unwrap();
    env.sync_dir(dir.path(), Step::ConfigRenamed).unwrap();
    assert!(!old.exists());
    let file = env.open(&new, Access::Read).unwrap();
    let region = file.map(5, Access::Read).unwrap();
    env.unlink(&new).unwrap();
    env.file_system(dir.path()).unwrap().sync(Step::QueueFiles).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(file.read_full_at(&mut bytes, 0).unwrap(), 5);
    assert_eq!(
        (&bytes[..5], region.bytes(0..5)),
        (b"fresh".as_slice(), Some(b"fresh".as_slice()))
    );
    assert_eq!(refusal(env.unlink(&new)), ErrorKind::NotFound);
    assert_eq!(refusal(env.sync_dir(&new, Step::ConfigRenamed)), ErrorKind::NotFound);
    assert_eq!(refusal(env.file_system(&new)), ErrorKind::NotFound);
}

#[test]
fn writes_grow_a_file_and_reads_stop_at_its_end() {
    let dir = TempDir::new().unwrap();
    let file = RealEnv::new().create(&dir.path().join("f")).unwrap();
    file.write_all_at(b"abc", 10).unwrap();
    assert_eq!(file.len().unwrap(), 13);
    let mut bytes = [9; 8];
    assert_eq!(file.read_at(&mut bytes, 8).unwrap(), 5);
    assert_eq!(bytes, *b"\0\0abc\x09\x09\x09");
    assert_eq!(file.read_at(&mut bytes, 13).unwrap(), 0);
    file.zero(10..12).unwrap();
    assert_eq!(refusal(file.zero(10..14)), ErrorKind::InvalidInput);
    file.sync_range(10..12, Step::TailZeroed).unwrap();
    file.sync(Step::LogRange).unwrap();
    assert_eq!(file.read_full_at(&mut bytes, 10).unwrap(), 3);
    assert_eq!((&bytes[..3], file.len().unwrap()), (b"\0\0c".as_slice(), 13));
}

#[test]
fn allocated_space_is_never_sparse_and_keeps_what_was_there() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    let file = RealEnv::new().create(&path).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    file.allocate(1 << 20).unwrap();
    file.sync(Step::SegmentAllocated).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!(found.len(), 1 << 20);
    assert!(found.blocks() * 512 >= found.len(), "{} blocks", found.blocks());
    file.allocate(4096).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20, "never shorter");
    for advice in [Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed] {
        file.advise(0..1 << 20, advice).unwrap();
    }
    let mut start = [9; 8];
    assert_eq!(file.read_at(&mut start, 0).unwrap(), 8);
    assert_eq!(start, *b"kept\0\0\0\0");
}

#[test]
fn what_was_never_written_is_no_data_and_one_byte_is() {
    let dir = TempDir::new().unwrap();
    let file = RealEnv::new().create(&dir.path().join("f")).unwrap();
    file.allocate(1 << 20).unwrap();
    let written = |range| file.written(range).unwrap();
    assert_eq!(written(0..1 << 20), [0..0; 0]);
    file.write_all_at(&[7], 1 << 19).unwrap();
    // A system may report the bytes around a written byte as written, too.
    let around = |at: u64| written(0..1 << 20).iter().any(|part| part.contains(&at));
    assert!(around(1 << 19) && !around(0));
    let region = file.map(1 << 20, Access::ReadWrite).unwrap();
    assert!(region.write(1 << 12, &[7]));
    assert!(around(1 << 12) && around(1 << 19));
    // Only what is asked for, and nothing past the end.
    let one = (1 << 19)..(1 << 19) + 1;
    assert_eq!(written(one.clone()), std::slice::from_ref(&one));
    assert_eq!(written(1 << 20..1 << 21), [0..0; 0]);
}

#[test]
fn the_clock_and_the_memory_are_this_machines() {
    let wall = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    let (before, now, after) = (wall(), RealEnv::new().now_ms(), wall());
    assert!((before - 1000..after + 1000).contains(&now), "{before} {now} {after}");
    let info = fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = info.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!(RealEnv::new().physical_memory(), kib * 1024);
}

#[test]
fn the_clock_is_never_before_an_earlier_reading_of_the_wall_clock() {
    let until = std::time::Instant::now() + std::time::Duration::from_millis(50);
    while std::time::Instant::now() < until {
        let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
        let now = RealEnv::new().now_ms();
        assert!(now >= before, "{now} after {before}");
    }
}

#[test]
fn a_lock_excludes_a_second_one_in_the_same_process_until_it_is_dropped() {
    let dir = TempDir::new().unwrap();
    let env = RealEnv::new();
    let path = dir.path().join("lock");
    let held = env.lock(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "made if missing");
    assert_eq!(refusal(env.lock(&path)), ErrorKind::WouldBlock);
    drop(env.open(&path, Access::ReadWrite).unwrap());
    assert_eq!(
        refusal(env.lock(&path)),
        ErrorKind::WouldBlock,
        "closing another descriptor gives nothing up"
    );
    drop(held);
    env.lock(&path).unwrap();
    assert_eq!(refusal(env.lock(dir.path())), ErrorKind::IsADirectory);
}

/// The kind of lock that a broker takes: `FileChannel.lock(0, 1, false)`.
fn take_classic_lock(file: &fs::File) -> bool {
    // SAFETY: all-zero is a valid flock, the descriptor is open.
    unsafe {
        let mut wanted: libc::flock = std::mem::zeroed();
        wanted.l_type = libc::F_WRLCK as libc::c_short;
        wanted.l_len = 1;
        libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const wanted) == 0
    }
}

#[test]
#[ignore = "a child's program"]
fn child_holds_a_classic_lock() {
    if child::is_child() {
        let file = fs::OpenOptions::new().read(true).write(true).open("lock").unwrap();
        assert!(take_classic_lock(&file));
        child::wait_for_parent();
    }
}

#[test]
fn a_lock_excludes_a_brokers_and_a_brokers_excludes_it() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("lock");
    let env = RealEnv::new();
    let held = env.lock(&path).unwrap();
    let other = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert!(!take_classic_lock(&other));
    drop(held);
    let broker = child::run_until_ready("storage::child_holds_a_classic_lock", dir.path());
    assert_eq!(refusal(env.lock(&path)), ErrorKind::WouldBlock);
    drop(broker);
    env.lock(&path).unwrap();
}

#[test]
fn a_mapping_never_goes_past_the_end_of_the_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, [1; 5000]).unwrap();
    let env = RealEnv::new();
    let file = env.open(&path, Access::Read).unwrap();
    assert_eq!(refusal(file.map(5001, Access::Read)), ErrorKind::InvalidInput);
    assert_eq!(file.map(5000, Access::Read).unwrap().len(), 5000);
    assert!(file.map(0, Access::Read).unwrap().is_empty());
    let short = MappedFile::open(&env, path.clone(), 0, 8192).unwrap_err();
    assert!(
        matches!(&short, Error::Corrupt { path: p, offset: 5000, .. } if *p == path),
        "{short}"
    );
    let missing = MappedFile::open(&env, dir.path().join("g"), 0, 1).unwrap_err();
    assert!(missing.to_string().starts_with("cannot open "), "{missing}");
}

#[test]
fn a_mapping_shares_its_bytes_with_the_file_both_ways() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    let file = RealEnv::new().create(&path).unwrap();
    file.allocate(8192).unwrap();
    let region = file.map(8192, Access::ReadWrite).unwrap();
    assert!(region.write(4090, b"across a page") && region.store_be_u32(8, 0x0102_0304));
    file.sync_range(0..8192, Step::LogRange).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(
        (&bytes[8..12], &bytes[4090..4103]),
        ([1, 2, 3, 4].as_slice(), b"across a page".as_slice())
    );
    file.write_all_at(&7_u32.to_be_bytes(), 8).unwrap();
    let mut seven = [0; 4];
    assert!(region.read(8, &mut seven) && seven == [0, 0, 0, 7]);
    region.prefetch(0..8192);
    region.prefetch(5000..9000);
}

/// Pages of a file, from a page on, that are changed in memory and not yet on their way to the disk; `None` before Linux 6.5.
fn dirty_pages(file: &fs::File, from: u64) -> Option<u64> {
    const CACHESTAT: libc::c_long = 451;
    let range = [from * 4096, 0];
    let mut counts = [0_u64; 5];
    // SAFETY: two numbers are read and five are written.
    let status = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    (status == 0).then_some(counts[1])
}

#[test]
fn a_sync_of_a_range_leaves_the_rest_of_the_changed_pages_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("f");
    let file = RealEnv::new().create(&path).unwrap();
    file.allocate(1 << 20).unwrap();
    let region = file.map(1 << 20, Access::ReadWrite).unwrap();
    let watched = fs::File::open(&path).unwrap();
    let mut is_told = false;
    for _ in 0..1000 {
        for page in 0..256 {
            assert!(region.write(page * 4096, b"x"));
        }
        let Some(256) = dirty_pages(&watched, 0) else {
            // Nobody writes pages out here, or somebody did just now.
            continue;
        };
        is_told = true;
        file.sync_range(4000..8200, Step::LogRange).unwrap();
        // The pages of the range are 0 to 2.
        let left = (dirty_pages(&watched, 0), dirty_pages(&watched, 3));
        assert!(left.0 <= Some(253), "{left:?}");
        file.sync_range(5..5, Step::LogRange).unwrap();
        if (left, dirty_pages(&watched, 0)) == ((Some(253), Some(253)), Some(253)) {
            file.sync(Step::LogRange).unwrap();
            assert_eq!(dirty_pages(&watched, 0), Some(0));
            return;
        }
        // The system wrote them out by itself, or for another program that syncs the file system.
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!is_told, "a sync of a range syncs more than its pages");
    println!("skipped: this system does not report which pages are changed (Linux 6.5 and a file system on a disk do)");
}

/// The bounds hold for any request, on a mapping and on the heap.
fn assert_bounded(region: &Region, len: usize) {
    let mut four = [0; 4];
    assert!(region.read(len - 4, &mut four) && region.read(len, &mut []) && region.write(len - 4, &four));
    for at in [len - 3, len, len + 1, usize::MAX - 3, usize::MAX] {
        assert!(!region.read(at, &mut four) && !region.write(at, &four));
        assert!(!region.store_be_u32(at, 1) && region.bytes(at..at.saturating_add(4)).is_none_or(<[u8]>::is_empty));
    }
    #[expect(clippy::reversed_empty_ranges, reason = "the point")]
    let backwards = 8..4;
    assert!(region.bytes(backwards).is_none() && region.bytes(0..len).is_some_and(|all| all.len() == len));
    assert!(!region.store_be_u32(2, 1), "unaligned");
    assert!(region.store_be_u32(4, 5) && region.bytes(4..8) == Some(&[0, 0, 0, 5]));
    assert_eq!((region.faults(), region.intact_len(), region.len()), (0, len, len));
}

#[test]
fn no_access_reaches_outside_a_region() {
    let dir = TempDir::new().unwrap();
    let file = RealEnv::new().create(&dir.path().join("f")).unwrap();
    file.allocate(4096).unwrap();
    assert_bounded(&file.map(4096, Access::ReadWrite).unwrap(), 4096);
    assert_bounded(&file.map(1000, Access::ReadWrite).unwrap(), 1000);
    let words: Arc<[AtomicU64]> = (0..125).map(|_| AtomicU64::new(0)).collect();
    assert!(Region::on_heap(Arc::clone(&words), 1001).is_none());
    assert_bounded(&Region::on_heap(words, 1000).unwrap(), 1000);
}

/// A process may read a record while another one writes it. It knows the record by its first part.
#[test]
fn of_parts_that_are_written_the_first_one_is_written_last() {
    let dir = TempDir::new().unwrap();
    let file = RealEnv::new().create(&dir.path().join("f")).unwrap();
    file.allocate(4096).unwrap();
    let (region, beside) = (
        file.map(4096, Access::ReadWrite).unwrap(),
        file.map(4096, Access::Read).unwrap(),
    );
    // What a reader finds in the place of the first part, at the moment at which this is copied.
    let found = beside.bytes(0..4).unwrap();
    assert!(region.write_parts(0, &[b"head", found]));
    assert_eq!(region.bytes(0..8).unwrap(), b"head\0\0\0\0");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_mapping_reads_what_pread_reads(len in 1_usize..20_000, at in 0_usize..20_000, take in 0_usize..20_000) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, (0..len).map(|n| ((n * n) >> 7) as u8).collect::<Vec<_>>()).unwrap();
        let file = RealEnv::new().open(&path, Access::Read).unwrap();
        let region = file.map(len, Access::Read).unwrap();
        let (mut read, mut mapped) = (vec![0; take], vec![0; take]);
        let done = file.read_full_at(&mut read, at as u64).unwrap();
        let fits = at + take <= len;
        prop_assert_eq!((region.read(at, &mut mapped), done == take && at <= len), (fits, fits));
        if fits {
            prop_assert_eq!(&mapped, &read);
            prop_assert_eq!(region.bytes(at..at + take), Some(&*read));
        }
    }
}
