//! A record with a damaged size at the end of the log: no memory is allocated for that size.

use std::path::Path;
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};

use super::{SEGMENT, edit_log, plain};
use crate::heap::most_while;

const TOTAL_SIZE_AT: usize = 0;
const BODY_LENGTH_AT: usize = 84;
/// The memory for examining and clearing the end of a log.
const PIECE: usize = 64 * 1024;
const MESSAGES: usize = 40;

/// Bytes that reading the store takes at most, and then opening it for writing; it has so many messages.
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
