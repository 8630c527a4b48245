//! Files of a broker's sizes, and of the largest that there are. On disk: nothing of them is written but a few pages.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use mqstore::config::{Geometry, MAX_SEGMENT_SIZE, StoreConfig};
use mqstore::format::{Checkpoint, CqUnit, Message};
use mqstore::store::OpenMode;
use tempfile::TempDir;

use super::{bodies, message, names, open, put, reader, record_of, small, with};

fn on_disk() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Length and allocated bytes.
fn size(path: &Path) -> (u64, u64) {
    let found = fs::metadata(path).unwrap();
    (found.len(), found.blocks() * 512)
}

#[test]
fn a_store_of_a_broker_s_sizes_has_a_broker_s_names_and_lengths() {
    let dir = on_disk();
    let path = dir.path().join("store");
    let config = StoreConfig {
        geometry: Geometry::Broker,
        ..StoreConfig::default()
    };
    let store = open(&path, config, OpenMode::New).unwrap();
    store.append(with(message("t", 0, b"first"), &[("KEYS", "k")])).unwrap();
    store.close().unwrap();
    let (len, allocated) = size(&path.join("commitlog/00000000000000000000"));
    assert!(len == 1_073_741_824 && allocated >= len);
    assert_eq!(size(&path.join("consumequeue/t/0/00000000000000000000")).0, 6_000_000);
    let index = names(&path.join("index")).remove(0);
    let (len, allocated) = size(&path.join("index").join(index));
    assert!(len == 420_000_040 && allocated >= len);
    // The sizes are a broker's again when it is opened without a word.
    fs::remove_file(path.join("config/mqstore.json")).unwrap();
    let store = open(&path, StoreConfig::default(), OpenMode::Existing).unwrap();
    assert_eq!(store.config().max_hash_slot_num, Some(5_000_000));
    store.append(with(message("t", 0, b"second"), &[("KEYS", "k")])).unwrap();
    store.close().unwrap();
    assert_eq!(bodies(&reader(&path), "t", 0), [b"first".as_slice(), b"second"]);
    assert_eq!(names(&path.join("index")).len(), 1);
}

#[test]
fn the_largest_segment_is_filled_to_its_end_and_rolls() {
    let dir = on_disk();
    let path = dir.path().join("store");
    // A log whose last message ends 5,000 bytes before the end of a segment of 2 GiB - 4 KiB.
    let record = record_of(1000);
    let at = MAX_SEGMENT_SIZE - 5000 - 1000;
    let record = Message {
        physical_offset: at as i64,
        store_time: 1,
        ..record
    };
    for name in ["commitlog", "consumequeue/t/0"] {
        fs::create_dir_all(path.join(name)).unwrap();
    }
    let segment = fs::File::create(path.join("commitlog/00000000000000000000")).unwrap();
    segment.set_len(MAX_SEGMENT_SIZE).unwrap();
    segment.write_all_at(&record.encode().unwrap(), at).unwrap();
    let entry = CqUnit {
        physical_offset: at as i64,
        size: 1000,
        tags_code: 0,
    };
    let mut queue = entry.encode().to_vec();
    queue.resize(1000, 0);
    fs::write(path.join("consumequeue/t/0/00000000000000000000"), queue).unwrap();
    // The zeros in front are no log: without this it is read from the front for keys.
    let stamps = Checkpoint {
        keys_dispatched: at as i64 + 1000,
        ..Checkpoint::default()
    };
    fs::write(path.join("checkpoint"), stamps.encode()).unwrap();
    let config = StoreConfig {
        mapped_file_size_commit_log: None,
        ..small()
    };
    let store = open(&path, config, OpenMode::Existing).unwrap();
    let end = MAX_SEGMENT_SIZE as i64;
    assert_eq!(store.append(record_of(4000)).unwrap().appended.physical_offset, end - 5000);
    assert_eq!(put(&store, "t", &[7; 1000]), end);
    store.close().unwrap();
    assert_eq!(
        names(&path.join("commitlog")),
        ["00000000000000000000", "00000000002147479552"]
    );
    assert_eq!(bodies(&reader(&path), "t", 0).len(), 3);
}

#[test]
fn segments_are_whole_pages_from_4_kib_to_2_gib_less_4_kib() {
    for (size, is_right) in [
        (0, false),
        (4095, false),
        (4096, true),
        (4097, false),
        (MAX_SEGMENT_SIZE, true),
        (1 << 31, false),
    ] {
        let config = StoreConfig {
            mapped_file_size_commit_log: Some(size),
            ..StoreConfig::default()
        };
        assert_eq!(config.validate().is_ok(), is_right, "{size}");
    }
}
