//! Segments of every size that a store may have: where an offset lies in them, and that the largest open like the smallest.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use mqstore::config::{MAX_SEGMENT_SIZE, MIN_SEGMENT_SIZE, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{Message, encode_blank, locate, segment_name};
use proptest::prelude::*;
use tempfile::tempdir;

use crate::reading::open;

const GIB: u64 = 1 << 30;

/// A store of two segments of `size` bytes with one message at the start of each; the rest of the file is sparse.
fn two_segments(root: &Path, size: u64) -> [i64; 2] {
    let dir = root.join("commitlog");
    fs::create_dir_all(&dir).unwrap();
    let starts = [0, size];
    for (queue_offset, start) in starts.into_iter().enumerate() {
        let message = Message {
            topic: "orders".into(),
            queue_offset: queue_offset as i64,
            physical_offset: start as i64,
            store_time: 1_700_000_000_000 + queue_offset as i64,
            body: start.to_string().into_bytes().into(),
            ..Message::default()
        };
        let record = message.encode().unwrap();
        let path = dir.join(segment_name(start));
        let file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(&record, 0).unwrap();
        if start == 0 {
            let blank = encode_blank((size - record.len() as u64) as u32);
            file.write_all_at(&blank, record.len() as u64).unwrap();
        }
    }
    starts.map(|start| start as i64)
}

#[test]
fn two_segments_of_the_smallest_usual_and_largest_size_open_and_read() {
    for size in [MIN_SEGMENT_SIZE, GIB, MAX_SEGMENT_SIZE] {
        let dir = tempdir().unwrap();
        let offsets = two_segments(dir.path(), size);
        let config = StoreConfig {
            mapped_file_size_commit_log: Some(size),
            ..StoreConfig::default()
        };
        config.validate().unwrap();
        let reader = open(dir.path());
        assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..2, "segments of {size} bytes");
        assert_eq!(reader.recovery().scan_start, 0);
        assert!((size as i64 + 91..size as i64 + 200).contains(&reader.recovery().log_end));
        for (queue_offset, offset) in offsets.into_iter().enumerate() {
            let by_queue = reader.message_in_queue("orders", 0, queue_offset as i64).unwrap();
            assert_eq!(by_queue.view().body(), offset.to_string().as_bytes());
            assert_eq!(reader.message_at(offset).unwrap().view().queue_offset(), queue_offset as i64);
        }
    }
}

#[test]
fn segments_of_2_gib_are_refused() {
    for size in [0, 4095, 4097, MAX_SEGMENT_SIZE + 1, 2 * GIB, u64::MAX] {
        let config = StoreConfig {
            mapped_file_size_commit_log: Some(size),
            ..StoreConfig::default()
        };
        let Err(Error::Invalid { what }) = config.validate() else {
            panic!("segments of {size} bytes were accepted")
        };
        assert!(
            what.contains("mapped_file_size_commit_log") && what.contains(&size.to_string()),
            "{what}"
        );
    }
    assert_eq!(MAX_SEGMENT_SIZE, 2 * GIB - 4096);
}

#[test]
fn an_offset_is_its_own_place_in_the_log() {
    assert_eq!(locate(73_741_824, GIB), (0, 73_741_824));
    assert_eq!(locate(1_073_741_829, GIB), (1_073_741_824, 5));
}

proptest! {
    #[test]
    fn the_file_and_the_position_in_it_add_up_to_the_offset(offset: u64, size in 1..=MAX_SEGMENT_SIZE) {
        let (start, position) = locate(offset, size);
        prop_assert_eq!(start + position, offset);
        prop_assert!(start.is_multiple_of(size) && position < size);
    }
}
