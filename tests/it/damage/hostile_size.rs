//! A record with a damaged size at the end of the log, and an index file of a size that no broker makes: no memory is allocated for that
//! size.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::format::IndexGeometry;
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};

use super::{SEGMENT, edit_log, plain};
use crate::heap::most_while;
use crate::queries::by_key;
use crate::store_writer::StoreWriter;

const TOTAL_SIZE_AT: usize = 0;
const BODY_LENGTH_AT: usize = 84;
/// The memory for examining and clearing the end of a log.
const PIECE: usize = 64 * 1024;
const MESSAGES: usize = 40;

/// The most bytes that reading the store takes, and then opening it for writing; it has `messages` messages.
fn taken(root: &Path, messages: usize) -> [usize; 2] {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let (count, reading) = most_while(|| {
        let reader = MessageReader::open(&env, root, StoreConfig::default()).unwrap();
        reader.queue_bounds("orders", 0).unwrap().count()
    });
    assert_eq!(count, messages);
    let ((), writing) = most_while(|| {
        let store = MessageStore::open_stepped(&env, root, StoreConfig::default(), OpenMode::Existing).unwrap();
        assert_eq!(store.reader().queue_bounds("orders", 0).unwrap().count(), messages);
    });
    [reading, writing]
}

#[test]
fn a_last_record_of_a_hostile_size_costs_no_memory_beyond_its_segment() {
    let (sound, of_sound) = crashed();
    let sound = taken(sound.path(), of_sound.len());
    let sizes = [i32::MAX, 1 << 30, 1 << 20, SEGMENT as i32 + 1, SEGMENT as i32, -1, i32::MIN];
    for (size, at) in sizes
        .into_iter()
        .flat_map(|size| [(size, TOTAL_SIZE_AT), (size, BODY_LENGTH_AT)])
    {
        let (dir, offsets) = crashed();
        edit_log(dir.path(), *offsets.last().unwrap(), |bytes| {
            bytes[at..at + 4].copy_from_slice(&size.to_be_bytes());
        });
        let hostile = taken(dir.path(), MESSAGES - 1);
        let is_bounded = hostile
            .iter()
            .zip(sound)
            .all(|(hostile, sound)| *hostile <= sound + SEGMENT as usize + PIECE);
        assert!(is_bounded, "{size} at {at}: {hostile:?} bytes, {sound:?} without");
    }
}

/// A store that was not closed.
fn crashed() -> (tempfile::TempDir, Vec<i64>) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (writer, offsets) = plain(dir.path(), MESSAGES as i64);
    writer.finish(false);
    (dir, offsets)
}

#[test]
fn an_index_file_of_half_a_billion_slots_is_checked_in_little_memory() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 16, 1000, 100, 400);
    let at = writer.put("orders", 0, b"x", &[("KEYS", "k")]);
    writer.finish(false);
    let geometry = IndexGeometry {
        slots: 500_000_000,
        items: 4,
    };
    let index = dir.path().join("index");
    let path = std::fs::read_dir(&index).unwrap().next().unwrap().unwrap().path();
    let small = std::fs::read(&path).unwrap();
    let item = &small[40 + 400 + 20..][..20];
    let key_hash = i32::from_be_bytes(item[..4].try_into().unwrap());
    let file = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    file.set_len(geometry.file_len()).unwrap();
    file.write_all_at(&small[..40], 0).unwrap();
    let slot_at = geometry.slot_position(geometry.slot_of(key_hash));
    file.write_all_at(&1_i32.to_be_bytes(), slot_at).unwrap();
    file.write_all_at(item, geometry.item_position(1)).unwrap();
    let config = StoreConfig {
        max_hash_slot_num: Some(u64::from(geometry.slots)),
        max_index_num: Some(u64::from(geometry.items)),
        ..StoreConfig::default()
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let (found, taken) = most_while(|| {
        let reader = MessageReader::open(&env, dir.path(), config).unwrap();
        reader.query(&by_key("orders", "k")).unwrap()
    });
    assert!(found.complete && found.hits[0].physical_offset == at);
    assert!(taken < 80 << 20, "{taken} bytes");
    assert!(file.metadata().unwrap().blocks() < 100, "zeros were read into memory");
}
