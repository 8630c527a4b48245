//! Failures that the campaigns found, each as a small test.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::format::{Checkpoint, IndexHeader, Message, encode_properties};
use mqstore::read::MessageReader;
use mqstore::store::MessageStore;

use super::examine::{Care, Counts, Examiner, dispatch_all, root};
use super::history::TINY;
use super::run::machine;
use crate::queries::by_key;
use crate::simulated_env::SimulatedEnv;

fn open(env: &SimulatedEnv) -> MessageStore {
    let examiner = Examiner {
        geometry: TINY,
        care: Care { deep: 0, one_in: 1 },
        counts: &Counts::default(),
        without: None,
    };
    examiner.open(env, false).unwrap()
}

/// The machine after a store was made, used and killed. All of it has reached the disk.
fn killed(work: impl FnOnce(&MessageStore)) -> SimulatedEnv {
    let env = machine();
    let store = open(&env);
    work(&store);
    dispatch_all(&store).unwrap();
    env.kill()
}

fn reader(env: &SimulatedEnv) -> Arc<MessageReader> {
    Arc::new(MessageReader::open(&env.shared(), root(), TINY.config()).unwrap())
}

fn with(properties: &[(&str, &str)]) -> Message<'static> {
    Message {
        topic: "t".into(),
        properties: encode_properties(properties.iter().copied(), true).unwrap().into(),
        ..Message::default()
    }
}

/// Files below a directory of the store.
fn files(env: &SimulatedEnv, dir: &str) -> Vec<PathBuf> {
    env.files(&root().join(dir)).into_iter().map(|(path, _)| path).collect()
}

fn zero(env: &SimulatedEnv, file: &Path, range: std::ops::Range<usize>) {
    let mut bytes = env.files(file).remove(0).1;
    bytes[range].fill(0);
    env.put(file, &bytes);
}

fn found(reader: &MessageReader, key: &str) -> usize {
    let request = by_key("t", key);
    reader.query(&request).unwrap().hits.len()
}

#[test]
fn a_record_without_a_sector_in_its_middle_is_not_served() {
    let long = "x".repeat(1500);
    let env = killed(|store| {
        store.append(with(&[])).unwrap();
        store.append(with(&[("long", &long)])).unwrap();
        store.append(with(&[])).unwrap();
    });
    assert_eq!(reader(&env).queue_bounds("t", 0).unwrap(), 0..3);
    zero(&env, &files(&env, "commitlog")[0], 512..1024);
    assert_eq!(reader(&env).queue_bounds("t", 0).unwrap(), 0..1);
}

#[test]
fn a_record_without_its_last_sector_is_not_served_before_a_whole_one() {
    // The first record ends at the end of a sector.
    let shortest = with(&[("p", "x")]).encoded_len();
    let filler = "x".repeat(1 + 1024 - shortest);
    let env = killed(|store| {
        assert_eq!(store.append(with(&[("p", &filler)])).unwrap().appended.wrote_bytes, 1024);
        store.append(with(&[])).unwrap();
    });
    assert_eq!(reader(&env).queue_bounds("t", 0).unwrap(), 0..2);
    zero(&env, &files(&env, "commitlog")[0], 512..1024);
    assert_eq!(reader(&env).physical_bounds(), 0..0);
}

#[test]
fn a_record_with_nul_in_its_properties_is_served() {
    let nul = "\0".repeat(400);
    let env = killed(|store| {
        store.append(with(&[("nul", &nul)])).unwrap();
        store.append(with(&[])).unwrap();
    });
    assert_eq!(reader(&env).queue_bounds("t", 0).unwrap(), 0..2);
}

#[test]
fn an_index_file_continued_in_the_millisecond_of_the_stamp_is_checked() {
    let env = machine();
    let store = open(&env);
    store.append(with(&[("KEYS", "a b c")])).unwrap();
    store.append(with(&[("KEYS", "d")])).unwrap();
    // The close stamps the first file, which is full, and the clock does not advance.
    store.close().unwrap();
    let store = open(&env);
    for key in ["e", "f"] {
        store.append(with(&[("KEYS", key)])).unwrap();
    }
    dispatch_all(&store).unwrap();
    let env = env.kill();
    let index = files(&env, "index");
    assert_eq!(index.len(), 2);
    // The item of `e`, the second one; the header that counts it arrived.
    zero(&env, &index[1], 44 + 2 * 20..44 + 3 * 20);
    assert_eq!(found(&reader(&env), "e"), 1);
}

#[test]
fn an_index_header_of_which_a_part_arrived_hides_no_key() {
    let env = killed(|store| {
        for key in ["a", "b", "c"] {
            store.append(with(&[("KEYS", key)])).unwrap();
        }
    });
    let index = files(&env, "index").remove(0);
    let mut bytes = env.files(&index).remove(0).1;
    // Its end is that of the last message, its count is that of when only the first one was in.
    bytes[36..40].copy_from_slice(&2_i32.to_be_bytes());
    env.put(&index, &bytes);
    assert_eq!(found(&reader(&env), "b"), 1);
}

#[test]
fn a_queue_whose_first_file_was_lost_is_whole() {
    let env = killed(|store| {
        for _ in 0..5 {
            store.append(with(&[])).unwrap();
        }
    });
    let queue = files(&env, "consumequeue");
    assert_eq!(queue.len(), 3);
    env.remove(&queue[0]);
    let reader = reader(&env);
    assert_eq!(reader.queue_bounds("t", 0).unwrap(), 0..5);
    assert!((0..5).all(|offset| reader.message_in_queue("t", 0, offset).is_ok()));
}

#[test]
fn a_queue_that_lost_its_messages_and_its_first_file_starts_at_0_again() {
    let env = killed(|store| {
        for _ in 0..5 {
            store.append(with(&[])).unwrap();
        }
    });
    env.remove(&files(&env, "consumequeue")[0]);
    let log = files(&env, "commitlog").remove(0);
    let len = env.files(&log).remove(0).1.len();
    zero(&env, &log, 0..len);
    assert_eq!(reader(&env).queue_bounds("t", 0).unwrap(), 0..0);
    let store = open(&env);
    assert_eq!(store.reader().queue_bounds("t", 0).unwrap(), 0..0);
    assert_eq!(store.append(with(&[])).unwrap().appended.queue_offset, 0);
}

#[test]
fn a_last_record_without_a_sector_in_its_middle_is_not_served() {
    let long = "x".repeat(1500);
    let env = killed(|store| {
        store.append(with(&[])).unwrap();
        store.append(with(&[("long", &long)])).unwrap();
    });
    zero(&env, &files(&env, "commitlog")[0], 512..1024);
    assert_eq!(reader(&env).queue_bounds("t", 0).unwrap(), 0..1);
}

#[test]
fn an_index_file_whose_length_never_arrived_goes_when_the_store_is_opened() {
    let env = killed(|store| {
        store.append(with(&[("KEYS", "a b c")])).unwrap();
    });
    let begun = root().join("index/20991231235959999");
    env.put(&begun, &[]);
    let store = open(&env);
    assert_eq!((files(&env, "index").len(), found(store.reader(), "a")), (1, 1));
}

#[test]
fn keys_past_the_end_of_the_log_go_despite_a_later_empty_index_file() {
    let env = killed(|store| {
        store.append(with(&[("KEYS", "a")])).unwrap();
        store.append(with(&[("KEYS", "b c")])).unwrap();
    });
    let index = env.files(&root().join("index")).remove(0).1;
    env.put(&root().join("index/20991231235959999"), &vec![0; index.len()]);
    let first = with(&[("KEYS", "a")]).encoded_len();
    zero(&env, &files(&env, "commitlog")[0], first..first + 200);
    let store = open(&env);
    store.append(with(&[("KEYS", "d")])).unwrap();
    dispatch_all(&store).unwrap();
    assert_eq!(["a", "b", "c", "d"].map(|key| found(store.reader(), key)), [1, 0, 0, 1]);
    let items = IndexHeader::decode(env.files(&root().join("index")).remove(0).1.first_chunk().unwrap()).index_count - 1;
    assert_eq!((files(&env, "index").len(), items), (1, 2));
}

#[test]
fn an_index_header_whose_begin_time_is_torn_is_made_again() {
    let env = killed(|store| {
        store.append(with(&[("KEYS", "a")])).unwrap();
    });
    let begin = || IndexHeader::decode(env.files(&root().join("index")).remove(0).1.first_chunk().unwrap()).begin_time;
    let right = begin();
    zero(&env, &files(&env, "index")[0], 0..4);
    assert_ne!(begin(), right);
    let store = open(&env);
    dispatch_all(&store).unwrap();
    assert_eq!((begin(), found(store.reader(), "a")), (right, 1));
}

#[test]
fn a_stamp_in_the_future_is_gone_before_anything_is_appended() {
    let env = killed(|store| {
        store.append(with(&[])).unwrap();
    });
    let future = Checkpoint {
        physic_msg_timestamp: env.now() + 3_600_000,
        ..Checkpoint::default()
    };
    env.put(&root().join("checkpoint"), &future.encode());
    let _store = open(&env);
    let stamps = |env: &SimulatedEnv| Checkpoint::decode(&env.files(&root().join("checkpoint")).remove(0).1);
    assert!((0..20).all(|seed| stamps(&env.crash(seed).0) == Checkpoint::default()));
}

#[test]
fn an_index_file_has_its_name_for_good_before_the_next_one_is_made() {
    let env = machine();
    let store = open(&env);
    store.append(with(&[("KEYS", "a b c d")])).unwrap();
    dispatch_all(&store).unwrap();
    let both = files(&env, "index");
    assert_eq!(both.len(), 2);
    assert!((0..50).all(|seed| files(&env.crash(seed).0, "index").contains(&both[0])));
}
