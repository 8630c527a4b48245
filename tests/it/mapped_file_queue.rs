//! A directory of mapped files: which files it accepts, which it refuses, and which file holds an offset.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use mqstore::error::{Error, Result};
use mqstore::format::{locate, segment_name};
use mqstore::log::LogFiles;
use mqstore::storage::{Access, Env, MappedFileQueue, MappingPool, RealEnv, SelectedBuffer};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::counting_env::CountingEnv;
use crate::storage::make_pipe;

/// Files of `size` bytes at these starts (the last of `last` bytes), in which each byte encodes its offset.
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

fn assert_corrupt<T: std::fmt::Debug>(queue: Result<T>, file: u64, at: u64, words: &str) {
    let error = queue.unwrap_err();
    let Error::Corrupt {
        path, offset, reason, ..
    } = &error
    else {
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
    fs::create_dir(dir.path().join("8193")).unwrap();
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
fn a_segments_name_on_a_directory_or_a_broken_link_is_corrupt() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[0], 4096);
    symlink(dir.path().join("nowhere"), dir.path().join(segment_name(4096))).unwrap();
    assert_corrupt(load(dir.path(), None), 4096, 0, "not a regular file");
    fs::remove_file(dir.path().join(segment_name(4096))).unwrap();
    fs::create_dir(dir.path().join(segment_name(4096))).unwrap();
    assert_corrupt(load(dir.path(), None), 4096, 0, "not a regular file");
    fs::remove_dir(dir.path().join(segment_name(4096))).unwrap();
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
    for given in [8192, 2048] {
        let Err(Error::Invalid { what }) = load(dir.path(), Some(given)) else {
            panic!("{given} bytes were accepted")
        };
        assert!(what.contains(&given.to_string()) && what.contains("has 4096") && what.contains(&segment_name(4096)));
    }
    resize(8192, 2048);
    assert_corrupt(load(dir.path(), Some(4096)), 8192, 2048, "copy it again");
    resize(8192, 4096);
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
fn segments_without_a_byte_do_not_determine_the_length_of_the_others() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[0, 4096, 8192, 12288, 16384], 100);
    for start in [0, 8192, 12288] {
        fs::write(dir.path().join(segment_name(start)), b"").unwrap();
    }
    let log = LogFiles::load(Arc::new(RealEnv::new()), dir.path(), None).unwrap();
    assert_eq!((log.segment_size(), log.starts().collect()), (4096, vec![4096, 16384]));
}

#[test]
fn segment_bounds_are_right_for_a_log_that_starts_between_multiples() {
    let dir = TempDir::new().unwrap();
    write_queue(dir.path(), 4096, &[100, 4196], 4096);
    let log = LogFiles::load(Arc::new(RealEnv::new()), dir.path(), None).unwrap();
    for (offset, end) in [(100, 4196), (4195, 4196), (4196, 8292), (8292, 12_388)] {
        assert_eq!(log.end_of_segment(offset), end);
    }
    assert_corrupt::<()>(Err(log.corrupt(4200, "x".to_owned())), 4196, 4, "x");
    let nothing = LogFiles::load(Arc::new(RealEnv::new()), &dir.path().join("nothing"), None).unwrap();
    assert_eq!(nothing.end_of_segment(0), 0);
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
    fs::remove_file(dir.path().join(segment_name(0))).unwrap();
    assert_eq!(queue.removals(), 0, "nobody has looked yet");
    assert!(queue.find(0).unwrap().is_none(), "a file that is not mapped is gone");
    assert!(queue.is_removed(0) && queue.is_removed(4096) && !queue.is_removed(8192));
    assert_eq!((queue.removals(), queue.starts()), (1, vec![8192]));
    assert_eq!((queue.first_offset(), queue.end_offset()), (Some(8192), Some(12288)));
    assert_eq!(one.bytes(0..1), Some([byte_at(4096)].as_slice()));
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
    assert!(mapped.check_intact().is_ok() && copied.check_intact().is_ok());
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
}
