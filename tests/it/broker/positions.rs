//! The positions file of a consumer that reads the store of another process: it is durable, and identifies the store.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqstore::broker::{Consumer, Start, Subscription};
use mqstore::config::StoreConfig;
use mqstore::error::{Error, Result};
use mqstore::format::{StoredPositions, decode_positions, encode_positions};
use mqstore::read::{MessageReader, OnMissing};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};

use super::{Open, ack, bodies, directory, subscription};
use crate::simulated_env::SimulatedEnv;
use crate::writing::message;

/// Small segments, so that few messages fill several.
const SEGMENT: u64 = 4096;

fn small_segments() -> StoreConfig {
    StoreConfig {
        mapped_file_size_commit_log: Some(SEGMENT),
        max_hash_slot_num: Some(16),
        max_index_num: Some(64),
        ..StoreConfig::default()
    }
}

fn positions_of(store: &Path) -> PathBuf {
    store.with_file_name("positions")
}

fn reader(store: &Path) -> Arc<MessageReader> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    Arc::new(MessageReader::open(&env, store, StoreConfig::default()).unwrap())
}

fn wanted(on_missing: OnMissing) -> Subscription {
    Subscription {
        on_missing,
        ..subscription(&["orders"])
    }
}

fn open_tap(store: &Path, on_missing: OnMissing) -> Result<Consumer> {
    Consumer::with_positions(reader(store), &positions_of(store), wanted(on_missing), &Start::Earliest)
}

fn tap(store: &Path) -> Consumer {
    open_tap(store, OnMissing::Refuse).unwrap()
}

fn refusal(store: &Path) -> Error {
    open_tap(store, OnMissing::Refuse).unwrap_err()
}

fn now() -> Instant {
    Instant::now()
}

/// Makes a store with a message for each text in queue orders/0.
fn store_with(store: &Path, texts: &[&str]) {
    let open = Open::at(store);
    for text in texts {
        open.append("orders", 0, text);
    }
    open.close();
}

/// Makes a store as [`store_with`], and a tap that acknowledges `count` of its messages.
fn consumed(store: &Path, texts: &[&str], count: usize) {
    store_with(store, texts);
    let consumer = tap(store);
    let got = consumer.poll(count, Some(now())).unwrap();
    assert_eq!(ack(&consumer, &got), count);
    consumer.close().unwrap();
}

#[test]
fn a_tap_continues_at_the_first_message_that_is_not_acknowledged() {
    let (_dir, store) = directory();
    store_with(&store, &["a", "b", "c", "d"]);
    let before = fs::read_dir(&store).unwrap().count();
    let consumer = tap(&store);
    let got = consumer.poll(3, Some(now())).unwrap();
    assert_eq!(ack(&consumer, &got[..1]) + ack(&consumer, &got[2..]), 2);
    consumer.close().unwrap();
    assert_eq!(bodies(&tap(&store).poll(9, Some(now())).unwrap()), ["b", "c", "d"]);
    assert_eq!(fs::read_dir(&store).unwrap().count(), before);
}

#[test]
fn a_tap_gets_what_a_live_writer_appends() {
    let (_dir, store) = directory();
    let open = Open::at(&store);
    open.append("orders", 0, "a");
    let consumer = tap(&store);
    assert_eq!(bodies(&consumer.poll(9, Some(now())).unwrap()), ["a"]);
    std::thread::scope(|scope| {
        let polling = scope.spawn(|| bodies(&consumer.poll(9, Instant::now().checked_add(Duration::from_secs(60))).unwrap()));
        std::thread::sleep(Duration::from_millis(5));
        open.append("orders", 1, "b");
        assert_eq!(polling.join().unwrap(), ["b"]);
    });
    let lag: i64 = consumer
        .positions()
        .unwrap()
        .iter()
        .map(|position| position.queue.end - position.committed)
        .sum();
    assert_eq!(lag, 2);
    open.close();
}

#[test]
fn the_start_of_a_tap_survives_a_kill() {
    let (_dir, store) = directory();
    store_with(&store, &["a", "b"]);
    let latest = || {
        let wanted = subscription(&["orders", "refunds"]);
        Consumer::with_positions(reader(&store), &positions_of(&store), wanted, &Start::Latest).unwrap()
    };
    // Without a close nothing more is written.
    drop(latest());
    let open = Open::at(&store);
    open.append("orders", 0, "c");
    open.append("refunds", 3, "d");
    open.close();
    let mut got = bodies(&latest().poll(9, Some(now())).unwrap());
    got.sort();
    assert_eq!(got, ["c", "d"]);
}

#[test]
fn a_replaced_store_is_refused_with_the_difference() {
    let (_dir, store) = directory();
    consumed(&store, &["a", "b", "c"], 2);
    fs::remove_dir_all(&store).unwrap();
    store_with(&store, &["x", "y", "z"]);
    let Error::PositionMismatch {
        path,
        topic,
        queue_id,
        offset,
        reason,
    } = refusal(&store)
    else {
        panic!("accepted a position of another store");
    };
    assert_eq!(
        (path, topic.as_str(), queue_id, offset),
        (positions_of(&store), "orders", 0, 2)
    );
    assert!(reason.starts_with("the message at queue offset 1 had "), "{reason}");
    assert!(reason.contains("now has CRC-32 "), "{reason}");
    for (on_missing, rest) in [(OnMissing::Latest, &[][..]), (OnMissing::Earliest, &["x", "y", "z"][..])] {
        let consumer = open_tap(&store, on_missing).unwrap();
        assert_eq!(bodies(&consumer.poll(9, Some(now())).unwrap()), rest);
    }
    let consumer = open_tap(&store, OnMissing::Latest).unwrap();
    consumer.close().unwrap();
    assert!(tap(&store).poll(9, Some(now())).unwrap().is_empty());
}

#[test]
fn a_store_that_was_shortened_is_refused_with_its_bounds() {
    let (_dir, store) = directory();
    consumed(&store, &["a", "b", "c"], 3);
    fs::remove_dir_all(&store).unwrap();
    store_with(&store, &["a"]);
    let refused = refusal(&store);
    assert!(
        matches!(&refused, Error::OffsetOutOfRange { queue_id: 0, offset: 3, bounds, .. } if *bounds == (0..1)),
        "{refused}"
    );
}

#[test]
fn a_message_of_another_size_before_the_position_is_named() {
    let (_dir, store) = directory();
    consumed(&store, &["a", "b"], 2);
    fs::remove_dir_all(&store).unwrap();
    store_with(&store, &["a", "longer"]);
    let refused = refusal(&store).to_string();
    assert!(refused.contains("orders/0") && refused.contains("and now has "), "{refused}");
}

#[test]
fn a_position_whose_message_expired_is_refused_and_one_at_the_bound_not() {
    let (_dir, store) = directory();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let writer = MessageStore::open(&env, &store, small_segments(), OpenMode::Append).unwrap();
    for n in 0..20 {
        writer.append(message("orders", 0, &[n; 700])).unwrap();
    }
    writer.close().unwrap();
    let consumer = tap(&store);
    let of_first_segment = |offset: &i64| {
        let position = reader(&store).position("orders", 0, *offset).unwrap().unwrap();
        position.physical_offset < i64::try_from(SEGMENT).unwrap()
    };
    let bound = (0..20).find(|offset| !of_first_segment(offset)).unwrap();
    let write = |consumer: &Consumer, offset| {
        consumer.seek("orders", 0, offset).unwrap();
        consumer.commit().unwrap();
    };
    write(&consumer, bound);
    consumer.close().unwrap();
    let at_bound = fs::read(positions_of(&store)).unwrap();
    let consumer = tap(&store);
    write(&consumer, bound - 1);
    consumer.close().unwrap();
    fs::remove_file(store.join(format!("commitlog/{:020}", 0))).unwrap();
    let refused = refusal(&store);
    assert!(
        matches!(&refused, Error::OffsetOutOfRange { offset, bounds, .. } if *offset == bound - 1 && bounds.start == bound),
        "{refused}"
    );
    fs::write(positions_of(&store), at_bound).unwrap();
    let got = tap(&store).poll(1, Some(now())).unwrap();
    assert_eq!(got[0].view().queue_offset(), bound);
}

#[test]
fn a_second_consumer_of_a_positions_file_is_refused_until_the_first_ends() {
    let (_dir, store) = directory();
    store_with(&store, &["a"]);
    let first = tap(&store);
    assert!(matches!(refusal(&store), Error::PositionsLocked { path } if path.ends_with("positions.lock")));
    drop(first);
    assert_eq!(tap(&store).poll(9, Some(now())).unwrap().len(), 1);
}

#[test]
fn every_damaged_byte_of_the_file_is_noticed_and_nothing_overwrites_it() {
    let (_dir, store) = directory();
    consumed(&store, &["a", "b"], 1);
    let whole = fs::read(positions_of(&store)).unwrap();
    assert_eq!(decode_positions(&whole).map(|positions| positions.len()), Ok(1));
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        assert!(decode_positions(&damaged).is_err(), "byte {at}");
        assert!(decode_positions(&whole[..at]).is_err(), "the first {at} bytes");
    }
    fs::write(positions_of(&store), &whole[1..]).unwrap();
    assert!(matches!(refusal(&store), Error::Corrupt { path, .. } if path == positions_of(&store)));
    assert_eq!(fs::read(positions_of(&store)).unwrap(), &whole[1..]);
    assert!(
        decode_positions(&encode_positions(&StoredPositions::new()))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_positions_file_in_the_store_is_refused() {
    let (_dir, store) = directory();
    store_with(&store, &["a"]);
    let inside = store.join("config/positions");
    let refused = Consumer::with_positions(reader(&store), &inside, wanted(OnMissing::Refuse), &Start::Earliest);
    assert!(matches!(refused, Err(Error::Invalid { .. })));
    assert!(!store.join("config/positions.lock").exists());
}

#[test]
fn a_tap_sends_nothing_back_and_repeats_what_takes_too_long() {
    let (_dir, store) = directory();
    store_with(&store, &["a", "b", "c"]);
    let consumer = tap(&store);
    let got = consumer.poll(2, Some(now())).unwrap();
    let refused = consumer.nack(&got[0].view(), None, Instant::now());
    assert!(matches!(refused, Err(Error::ReadOnly { .. })));
    assert_eq!(ack(&consumer, &got[1..]), 1);
    let later = Instant::now() + super::CONSUME_TIMEOUT;
    assert_eq!(bodies(&consumer.take(9, later).unwrap()), ["a", "c"]);
    assert_eq!(consumer.positions().unwrap()[0].committed, 0);
}

#[test]
fn positions_of_a_log_that_was_cut_are_never_written() {
    let (_dir, store) = directory();
    let open = Open::at(&store);
    open.append("orders", 0, "a");
    let consumer = tap(&store);
    ack(&consumer, &consumer.poll(9, Some(now())).unwrap());
    consumer.commit().unwrap();
    let before = fs::read(positions_of(&store)).unwrap();
    open.append("orders", 0, "b");
    let got = consumer.poll(9, Some(now())).unwrap();
    assert_eq!((bodies(&got), ack(&consumer, &got)), (vec!["b".to_owned()], 1));
    // The writer died, and the next one has put another message where this one was.
    let segment = store.join(format!("commitlog/{:020}", 0));
    let (at, size) = (got[0].view().physical_offset() as usize, got[0].view().bytes().len());
    let mut bytes = fs::read(&segment).unwrap();
    bytes[at..at + size].fill(0);
    open.kill();
    fs::write(&segment, bytes).unwrap();
    let refused = consumer.commit();
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert_eq!(fs::read(positions_of(&store)).unwrap(), before);
}

#[test]
fn a_power_cut_leaves_committed_positions_and_never_half_a_file() {
    for seed in 0..10 {
        let env = SimulatedEnv::new();
        let (root, path) = (Path::new("/store"), Path::new("/positions"));
        let config = small_segments();
        let store = MessageStore::open_stepped(&env.shared(), root, config.clone(), OpenMode::Append).unwrap();
        for n in 0..8 {
            store.append(message("orders", 0, &[n])).unwrap();
        }
        store.close().unwrap();
        let reader = Arc::new(MessageReader::open(&env.shared(), root, config).unwrap());
        let consumer = Consumer::with_positions(reader, path, wanted(OnMissing::Refuse), &Start::Earliest).unwrap();
        env.take_images(seed, 2);
        for next in 1..=8 {
            ack(&consumer, &consumer.poll(1, Some(now())).unwrap());
            consumer.commit().unwrap();
            let (cut, _) = env.crash(seed);
            assert_eq!(stored_next(&cut, path), Some(next), "seed {seed}: a durable commit was lost");
            for image in env.taken() {
                let found = stored_next(&image.env, path);
                assert!(
                    found == Some(next) || found == Some(next - 1),
                    "seed {seed}: {found:?} of {next}"
                );
            }
        }
    }
}

/// Returns the position in the file on this machine, which is whole; `None` if there is no file.
fn stored_next(env: &SimulatedEnv, path: &Path) -> Option<i64> {
    let (_, bytes) = env.files(Path::new("/")).into_iter().find(|(name, _)| name == path)?;
    let positions = decode_positions(&bytes).unwrap();
    positions.get(&("orders".to_owned(), 0)).map(|position| position.next)
}
