//! Files of a broker's sizes, and of the largest possible ones. They are on disk; only a few pages of them are written.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use mqstore::config::{Geometry, MAX_SEGMENT_SIZE, Sizes, StoreConfig};
use mqstore::format::{Checkpoint, CqUnit, ITEM_SIZE, Message, index_key_hash};
use mqstore::store::OpenMode;
use tempfile::TempDir;

use super::{bodies, message, names, open, put, reader, record_of, small, soon, with};

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
    // Without options the next open uses the broker's sizes again.
    fs::remove_file(path.join("config/mqstore.json")).unwrap();
    let store = open(&path, StoreConfig::default(), OpenMode::Existing).unwrap();
    assert_eq!(store.config().max_hash_slot_num, Some(5_000_000));
    store.append(with(message("t", 0, b"second"), &[("KEYS", "k")])).unwrap();
    store.close().unwrap();
    assert_eq!(bodies(&reader(&path), "t", 0), [b"first".as_slice(), b"second"]);
    assert_eq!(names(&path.join("index")).len(), 1);
}

/// Fills a segment of this many bytes to its end, from 5,000 bytes before it, and rolls.
fn fill_and_roll(size: u64) {
    let dir = on_disk();
    let path = dir.path().join("store");
    // A log whose last message ends 5,000 bytes before the end of its segment.
    let record = record_of(1000);
    let at = size - 5000 - 1000;
    let record = Message {
        physical_offset: at as i64,
        store_time: 1,
        ..record
    };
    for name in ["commitlog", "consumequeue/t/0"] {
        fs::create_dir_all(path.join(name)).unwrap();
    }
    let segment = fs::File::create(path.join("commitlog/00000000000000000000")).unwrap();
    segment.set_len(size).unwrap();
    segment.write_all_at(&record.encode().unwrap(), at).unwrap();
    let entry = CqUnit {
        physical_offset: at as i64,
        size: 1000,
        tags_code: 0,
    };
    let mut queue = entry.encode().to_vec();
    queue.resize(1000, 0);
    fs::write(path.join("consumequeue/t/0/00000000000000000000"), queue).unwrap();
    // The zeros before it are no log. Without this, the log would be read from its start for keys.
    let stamps = Checkpoint {
        physic_msg_timestamp: 1,
        logics_msg_timestamp: 1,
        logics_physical_offset: at as i64,
        keys_stamp: 1,
        keys_dispatched: at as i64 + 1000,
        queue_entries: 1,
        ..Checkpoint::default()
    };
    fs::write(path.join("checkpoint"), stamps.encode()).unwrap();
    let config = StoreConfig {
        mapped_file_size_commit_log: None,
        ..small()
    };
    let store = open(&path, config, OpenMode::Existing).unwrap();
    let end = size as i64;
    assert_eq!(store.append(record_of(4000)).unwrap().appended.physical_offset, end - 5000);
    assert_eq!(put(&store, "t", &[7; 1000]), end);
    store.close().unwrap();
    assert_eq!(
        names(&path.join("commitlog")),
        ["00000000000000000000".to_owned(), format!("{size:020}")]
    );
    assert_eq!(
        fs::metadata(path.join("commitlog").join(format!("{size:020}")))
            .unwrap()
            .len(),
        size
    );
    assert_eq!(bodies(&reader(&path), "t", 0).len(), 3);
}

#[test]
fn a_brokers_segment_and_the_largest_one_are_filled_to_their_end_and_roll() {
    for size in [Sizes::BROKER.commit_log, MAX_SEGMENT_SIZE] {
        fill_and_roll(size);
    }
}

#[test]
fn a_brokers_index_file_fills_to_its_last_key_before_the_next_begins() {
    let dir = on_disk();
    let path = dir.path().join("store");
    let sizes = StoreConfig {
        max_hash_slot_num: Some(5_000_000),
        max_index_num: Some(20_000_000),
        ..small()
    };
    let keyed = |key: &str| with(message("t", 0, b"x"), &[("KEYS", key)]);
    let store = open(&path, sizes, OpenMode::New).unwrap();
    store.append(keyed("first")).unwrap();
    store.close().unwrap();
    // As if the key had been put 19,999,998 times. Only those items are there that opening looks at, one in 78,125.
    let geometry = Sizes::BROKER.index;
    let first = path.join("index").join(names(&path.join("index")).remove(0));
    let file = fs::OpenOptions::new().read(true).write(true).open(&first).unwrap();
    let mut item = [0; ITEM_SIZE];
    file.read_exact_at(&mut item, geometry.item_position(1)).unwrap();
    let keys = 19_999_998_u32;
    for number in (1..=keys).rev().step_by(20_000_000_usize.div_ceil(256)) {
        file.write_all_at(&item, geometry.item_position(number)).unwrap();
    }
    let slot = geometry.slot_position(geometry.slot_of(index_key_hash("t", "first")));
    file.write_all_at(&keys.to_be_bytes(), slot).unwrap();
    file.write_all_at(&(keys + 1).to_be_bytes(), 36).unwrap();
    let count = |file: &fs::File| {
        let mut count = [0; 4];
        file.read_exact_at(&mut count, 36).unwrap();
        u32::from_be_bytes(count)
    };
    let store = open(&path, StoreConfig::default(), OpenMode::Existing).unwrap();
    for key in ["no. 19,999,999", "no. 20,000,000"] {
        assert_eq!(names(&path.join("index")).len(), 1, "{key}");
        let done = store.append(keyed(&key.replace(' ', "_"))).unwrap().appended;
        store.wait_dispatched(done.physical_offset, Some(soon())).unwrap();
    }
    let files = names(&path.join("index"));
    assert_eq!((files.len(), count(&file)), (2, 20_000_000));
    let second = fs::File::open(path.join("index").join(&files[1])).unwrap();
    assert_eq!((count(&second), second.metadata().unwrap().len()), (2, 420_000_040));
    store.close().unwrap();
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
