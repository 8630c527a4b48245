//! The seam's contract on the real environment, and the queue of mapped files above it.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mqstore::error::{Error, Result};
use mqstore::format::{locate, segment_name};
use mqstore::storage::{
    Access, Advice, EntryKind, Env, MappedFile, MappedFileQueue, MappingPool, RealEnv, Region, SelectedBuffer, Step,
};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::child;
use crate::counting_env::CountingEnv;

fn make_pipe(path: &Path) {
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
    env.sync_all(dir.path(), Step::QueueFiles).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(file.read_full_at(&mut bytes, 0).unwrap(), 5);
    assert_eq!(
        (&bytes[..5], region.bytes(0..5)),
        (b"fresh".as_slice(), Some(b"fresh".as_slice()))
    );
    assert_eq!(refusal(env.unlink(&new)), ErrorKind::NotFound);
    assert_eq!(refusal(env.sync_dir(&new, Step::ConfigRenamed)), ErrorKind::NotFound);
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
fn the_clock_and_the_memory_are_this_machines() {
    let wall = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;
    assert!((RealEnv::new().now_ms() - wall).abs() < 1000);
    let info = fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = info.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!(RealEnv::new().physical_memory(), kib * 1024);
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

fn lock_of_child() -> PathBuf {
    std::env::temp_dir().join(format!("mqstore-lock-{}", std::os::unix::process::parent_id()))
}

#[test]
#[ignore = "a child's program"]
fn child_holds_a_classic_lock() {
    if child::is_child() {
        let file = fs::OpenOptions::new().read(true).write(true).open(lock_of_child()).unwrap();
        assert!(take_classic_lock(&file));
        child::wait_for_parent();
    }
}

#[test]
fn a_lock_excludes_a_brokers_and_a_brokers_excludes_it() {
    let path = std::env::temp_dir().join(format!("mqstore-lock-{}", std::process::id()));
    let env = RealEnv::new();
    let held = env.lock(&path).unwrap();
    let other = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert!(!take_classic_lock(&other));
    drop(held);
    let broker = child::run_until_ready("storage::child_holds_a_classic_lock");
    assert_eq!(refusal(env.lock(&path)), ErrorKind::WouldBlock);
    drop(broker);
    env.lock(&path).unwrap();
    fs::remove_file(path).unwrap();
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
    assert_eq!(region.load_be_u32(8), Some(7));
    region.prefetch(0..8192);
    region.prefetch(5000..9000);
}

/// The bounds hold whatever is asked for, on a mapping and on the heap alike.
fn assert_bounded(region: &Region, len: usize) {
    let mut four = [0; 4];
    assert!(region.read(len - 4, &mut four) && region.read(len, &mut []) && region.write(len - 4, &four));
    for at in [len - 3, len, len + 1, usize::MAX - 3, usize::MAX] {
        assert!(!region.read(at, &mut four) && !region.write(at, &four) && region.load_be_u32(at).is_none());
        assert!(!region.store_be_u32(at, 1) && region.bytes(at..at.saturating_add(4)).is_none_or(<[u8]>::is_empty));
    }
    #[expect(clippy::reversed_empty_ranges, reason = "the point")]
    let backwards = 8..4;
    assert!(region.bytes(backwards).is_none() && region.bytes(0..len).is_some_and(|all| all.len() == len));
    assert!(region.load_be_u32(2).is_none() && !region.store_be_u32(2, 1), "unaligned");
    assert!(region.store_be_u32(4, 5) && region.load_be_u32(4) == Some(5));
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

/// Files of `size` bytes at these starts (the last of `last` bytes), each byte telling its offset.
fn write_queue(dir: &Path, size: u64, starts: &[u64], last: u64) {
    for start in starts {
        let len = if Some(start) == starts.last() { last } else { size };
        let bytes: Vec<u8> = (*start..start + len).map(byte_at).collect();
        fs::write(dir.join(segment_name(*start)), bytes).unwrap();
    }
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn load(dir: &Path, file_size: Option<u64>) -> Result<MappedFileQueue> {
    MappedFileQueue::load(Arc::new(RealEnv::new()), dir, file_size, Arc::new(MappingPool::new(100)))
}

fn assert_corrupt(queue: Result<MappedFileQueue>, file: u64, at: u64, words: &str) {
    let error = queue.unwrap_err();
    let Error::Corrupt { path, offset, reason } = &error else {
        panic!("{error}")
    };
    assert!(
        path.ends_with(segment_name(file)) && *offset == at && reason.contains(words),
        "{error}"
    );
}

#[test]
fn a_missing_directory_is_an_empty_queue() {
    let dir = TempDir::new().unwrap();
    let queue = load(&dir.path().join("commitlog"), None).unwrap();
    assert_eq!((queue.len(), queue.file_size(), queue.starts().len()), (0, 0, 0));
    assert_eq!((queue.first_offset(), queue.end_offset()), (None, None));
    assert!(queue.is_empty() && queue.find(0).unwrap().is_none());
    assert_eq!(load(&dir.path().join("commitlog"), Some(4096)).unwrap().file_size(), 4096);
    assert!(matches!(load(dir.path(), Some(0)), Err(Error::Invalid { .. })));
}

#[test]
fn foreign_names_are_passed_over_and_remembered() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[0, 4096], 4096);
    for name in [
        "0000000000000000000a",
        "8192",
        ".DS_Store",
        "000000000000000081920",
        "99999999999999999999",
    ] {
        fs::write(dir.path().join(name), b"x").unwrap();
    }
    fs::create_dir(dir.path().join(segment_name(8192))).unwrap();
    make_pipe(&dir.path().join("pipe"));
    let queue = load(dir.path(), None).unwrap();
    assert_eq!(queue.starts(), [0, 4096]);
    let ignored = [
        ".DS_Store",
        "0000000000000000000a",
        "000000000000000081920",
        "8192",
        "99999999999999999999",
        "pipe",
    ];
    assert_eq!(queue.ignored(), ignored.map(OsString::from));
}

#[test]
fn a_segments_name_on_a_pipe_or_a_broken_link_is_corrupt() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[0], 4096);
    symlink(dir.path().join("nowhere"), dir.path().join(segment_name(4096))).unwrap();
    assert_corrupt(load(dir.path(), None), 4096, 0, "no regular file");
    fs::remove_file(dir.path().join(segment_name(4096))).unwrap();
    symlink(dir.path().join(segment_name(0)), dir.path().join(segment_name(4096))).unwrap();
    let queue = load(dir.path(), None).unwrap();
    assert_eq!(
        (queue.end_offset(), queue.find(5000).unwrap().unwrap().start()),
        (Some(8192), 4096)
    );
}

#[test]
fn only_the_last_file_may_be_shorter_and_none_longer() {
    let dir = TempDir::new().unwrap();
    let resize = |start: u64, len: u64| {
        let path = dir.path().join(segment_name(start));
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
    };
    write_queue(dir.path(), 4096, &[4096, 8192, 12288], 100);
    let queue = load(dir.path(), None).unwrap();
    assert_eq!((queue.end_offset(), queue.file_size(), queue.len()), (Some(12388), 4096, 3));
    assert!(queue.find(12387).unwrap().is_some() && queue.find(12388).unwrap().is_none());
    resize(12288, 4097);
    assert_corrupt(load(dir.path(), None), 12288, 4096, "expected 4096 bytes");
    resize(12288, 4096);
    resize(8192, 4095);
    assert_corrupt(load(dir.path(), None), 8192, 4095, "found 4095");
    resize(8192, 4096);
    assert_eq!(load(dir.path(), Some(4096)).unwrap().len(), 3);
    assert_corrupt(load(dir.path(), Some(8192)), 4096, 4096, "expected 8192 bytes");
    assert_corrupt(load(dir.path(), Some(2048)), 4096, 2048, "copy it again");
    resize(12288, 0);
    assert_eq!(
        load(dir.path(), None).unwrap().end_offset(),
        Some(12288),
        "an empty last file holds nothing yet"
    );
    resize(8192, 0);
    assert_eq!(load(dir.path(), None).unwrap().len(), 1);
    resize(12288, 1);
    assert_corrupt(load(dir.path(), None), 8192, 0, "found 0");
}

#[test]
fn a_start_between_the_multiples_or_beyond_all_offsets_is_corrupt() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[1000, 1000 + 4096, 1000 + 3 * 4096], 4096);
    assert_eq!(load(dir.path(), None).unwrap().len(), 3, "multiples count from the first");
    write_queue(dir.path(), 4096, &[1000 + 3 * 4096 + 1], 4096);
    assert_corrupt(load(dir.path(), None), 1000 + 3 * 4096 + 1, 0, "mixed");
    let far = TempDir::new().unwrap();
    write_queue(far.path(), 4096, &[i64::MAX as u64 - 4095], 4096);
    assert_corrupt(load(far.path(), None), i64::MAX as u64 - 4095, 0, "beyond");
    write_queue(far.path(), 4096, &[i64::MAX as u64 - 4095], 4095);
    assert_eq!(load(far.path(), None).unwrap().end_offset(), Some(i64::MAX as u64));
}

#[test]
fn a_gap_between_files_holds_nothing() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[4096, 12288], 4096);
    let queue = load(dir.path(), None).unwrap();
    let start = |offset| queue.find(offset).unwrap().map(|file| file.start());
    let seen = [0, 4095, 4096, 8191, 8192, 12287, 12288, 16383, 16384, u64::MAX].map(start);
    assert_eq!(
        seen,
        [
            None,
            None,
            Some(4096),
            Some(4096),
            None,
            None,
            Some(12288),
            Some(12288),
            None,
            None
        ]
    );
    assert_eq!(queue.starts(), [4096, 12288]);
}

#[test]
fn a_file_is_mapped_once_at_its_first_use_and_its_descriptor_closed() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[0, 4096, 8192], 4096);
    let env = CountingEnv::new();
    let queue = MappedFileQueue::load(Arc::new(env.clone()), dir.path(), None, Arc::new(MappingPool::new(100))).unwrap();
    assert!(env.opened().is_empty());
    let path = dir.path().join(segment_name(4096));
    let (one, two) = (queue.find(4096).unwrap().unwrap(), queue.find(5000).unwrap().unwrap());
    assert!(Arc::ptr_eq(&one, &two) && one.path() == path && (one.start(), one.len(), one.end()) == (4096, 4096, 8192));
    assert_eq!(env.opened(), std::slice::from_ref(&path));
    let open = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    assert!(!open.into_iter().any(|target| target == path));
    fs::remove_file(&path).unwrap();
    assert_eq!(
        one.bytes(0..1),
        Some([byte_at(4096)].as_slice()),
        "what is mapped stays readable"
    );
    fs::remove_file(dir.path().join(segment_name(8192))).unwrap();
    assert!(
        matches!(queue.find(8192), Err(Error::Io { action: "open", .. })),
        "what is not is told"
    );
}

#[test]
fn reading_changes_nothing_and_every_byte_read_is_counted() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[0, 4096], 4096);
    let env = CountingEnv::new();
    let queue = MappedFileQueue::load(Arc::new(env.clone()), dir.path(), None, Arc::new(MappingPool::new(100))).unwrap();
    let file = queue.find(5000).unwrap().unwrap();
    assert!(file.read(904, &mut [0; 100]) && file.copy(0..20).is_some() && !file.read(4090, &mut [0; 100]));
    assert_eq!(file.select(0..30).unwrap().bytes().len(), 30);
    file.prefetch(0..4096);
    let same = env.open(&dir.path().join(segment_name(4096)), Access::Read).unwrap();
    same.read_full_at(&mut [0; 5000], 0).unwrap();
    assert_eq!(env.bytes_read(&dir.path().join(segment_name(4096))), 100 + 20 + 30 + 4096);
    assert_eq!(
        (
            env.bytes_read(&dir.path().join(segment_name(0))),
            env.bytes_read_below(dir.path())
        ),
        (0, 4246)
    );
    assert!(env.changes().is_empty(), "{:?}", env.changes());
    env.create(&dir.path().join("new")).unwrap().write_all_at(b"x", 0).unwrap();
    env.unlink(&dir.path().join("new")).unwrap();
    assert_eq!(env.changes().len(), 3);
}

#[test]
fn a_selected_buffer_outlives_its_queue_and_a_copy_its_file() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[0], 4096);
    let queue = load(dir.path(), None).unwrap();
    let file = queue.find(0).unwrap().unwrap();
    let (mapped, copied) = (file.select(10..20).unwrap(), file.copy(10..20).unwrap());
    assert!(mapped.is_mapped() && !copied.is_mapped() && matches!(copied, SelectedBuffer::Owned(_)));
    drop((queue, file, dir));
    let expected: Vec<u8> = (10..20).map(byte_at).collect();
    assert_eq!((mapped.clone().bytes(), copied.bytes()), (&*expected, &*expected));
    assert!(mapped.intact() && copied.intact());
    let SelectedBuffer::Mapped { file, .. } = &mapped else {
        panic!()
    };
    assert!(file.select(4090..4097).is_none() && file.copy(4090..4097).is_none() && file.copy(0..usize::MAX).is_none());
    assert!(file.select(4096..4096).unwrap().bytes().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn three_files_of_any_size_are_found_by_every_offset(
        size in 1_u64..9000,
        first in 0_u64..5,
        gaps in prop::array::uniform2(1_u64..3),
        last in 1_u64..9000,
        offsets in prop::collection::vec(0_u64..100_000, 50),
    ) {
        let dir = TempDir::new().unwrap();
        let last = last.min(size);
        let starts = [first, first + gaps[0], first + gaps[0] + gaps[1]].map(|n| n * size);
        write_queue(dir.path(), size, &starts, last);
        let queue = load(dir.path(), None).unwrap();
        prop_assert_eq!(queue.end_offset(), Some(starts[2] + last));
        for offset in offsets.into_iter().chain(starts).chain(starts.map(|start| start + size - 1)) {
            let (start, position) = locate(offset, size);
            let holds = starts.contains(&start) && (start != starts[2] || position < last);
            let found = queue.find(offset).unwrap();
            prop_assert_eq!(found.as_ref().map(|file| file.start()), holds.then_some(start));
            if let Some(file) = found {
                let at = position as usize;
                prop_assert_eq!(file.bytes(at..at + 1).map(<[u8]>::to_vec), Some(vec![byte_at(offset)]));
            }
        }
    }

    #[test]
    fn a_mapping_reads_what_pread_reads(len in 1_usize..20_000, at in 0_usize..20_000, take in 0_usize..20_000) {
        let dir = TempDir::new().unwrap();
        write_queue(dir.path(), len as u64, &[0], len as u64);
        let file = RealEnv::new().open(&dir.path().join(segment_name(0)), Access::Read).unwrap();
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
