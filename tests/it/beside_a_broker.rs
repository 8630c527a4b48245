//! A reader beside a broker: what it takes up, what it leaves until it is whole, and what it refuses.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{CqUnit, segment_name};
use mqstore::read::{HitBounds, MessageReader};
use mqstore::storage::{Env, RealEnv};
use tempfile::{TempDir, tempdir};

use crate::counting_env::CountingEnv;
use crate::reading::open;
use crate::store_writer::StoreWriter;

const SEGMENT: usize = 16384;
/// Byte positions of a record's queue offset and store time.
const QUEUE_OFFSET: i64 = 20;
const STORE_TIME: i64 = 56;

/// The files of a running broker: no file is closed.
struct Broker {
    dir: TempDir,
    writer: StoreWriter,
}

impl Broker {
    /// Some messages of two topics.
    fn new() -> Self {
        let dir = tempdir().unwrap();
        let mut broker = Self {
            writer: StoreWriter::small(dir.path()),
            dir,
        };
        for _ in 0..5 {
            broker.put("orders", 100);
            broker.put("bills", 100);
        }
        broker.write();
        broker
    }

    fn put(&mut self, topic: &str, body: usize) -> i64 {
        self.writer.put(topic, 0, &vec![b'x'; body], &[("KEYS", "late")])
    }

    fn write(&self) {
        self.writer.finish(false);
    }

    /// Enough for two more segments.
    fn roll(&mut self) {
        for _ in 0..40 {
            self.put("orders", 900);
        }
        self.write();
    }

    fn reader(&self) -> Arc<MessageReader> {
        open(self.dir.path())
    }

    fn segment(&self, number: usize) -> PathBuf {
        let name = segment_name((number * SEGMENT) as u64);
        self.dir.path().join("commitlog").join(name)
    }

    /// Writes over bytes of the log.
    fn change(&self, at: i64, bytes: &[u8]) {
        let file = OpenOptions::new()
            .write(true)
            .open(self.segment(at as usize / SEGMENT))
            .unwrap();
        file.write_all_at(bytes, at as u64 % SEGMENT as u64).unwrap();
    }
}

fn end_of(reader: &MessageReader, topic: &str) -> i64 {
    reader.queue_bounds(topic, 0).unwrap().end
}

/// The reader after a refresh, and by how many bytes the log has grown.
fn refreshed(reader: &Arc<MessageReader>) -> (i64, Arc<MessageReader>) {
    let refreshed = reader.refresh().unwrap();
    (refreshed.bytes, refreshed.reopened.unwrap_or_else(|| reader.clone()))
}

fn expect_damage_at(reader: &MessageReader, last: i64) {
    let error = reader.refresh().unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt { offset, .. } if *offset == last as u64),
        "{error}"
    );
}

#[test]
fn the_last_message_waits_until_its_properties_are_written() {
    let mut broker = Broker::new();
    let reader = broker.reader();
    broker.put("orders", 50);
    broker.write();
    let end = broker.writer.end();
    // No checksum covers the properties: "KEYS", 1, "late", 2.
    for missing in [1, 3, 10] {
        broker.change(end - missing, &vec![0; missing as usize]);
        assert_eq!(reader.refresh().unwrap().bytes, 0, "{missing} bytes are missing");
        assert_eq!(end_of(&reader, "orders"), 5);
    }
    broker.write();
    assert!(reader.refresh().unwrap().bytes > 0);
    assert_eq!(end_of(&reader, "orders"), 6);
}

#[test]
fn an_open_beside_a_broker_waits_for_the_last_messages_properties() {
    let mut broker = Broker::new();
    broker.put("orders", 50);
    broker.write();
    let end = broker.writer.end();
    broker.change(end - 3, &[0; 3]);
    let lock = broker.dir.path().join("lock");
    fs::write(&lock, "").unwrap();
    let held = RealEnv::new().lock(&lock).unwrap();
    let reader = broker.reader();
    assert_eq!(end_of(&reader, "orders"), 5);
    broker.write();
    assert!(reader.refresh().unwrap().bytes > 0);
    assert_eq!(end_of(&reader, "orders"), 6);
    // The message of a broker that was killed stays as its recovery finds it.
    broker.change(end - 3, &[0; 3]);
    drop(held);
    assert_eq!(end_of(&broker.reader(), "orders"), 6);
}

#[test]
fn damage_followed_by_later_records_of_a_broker_is_an_error() {
    let mut broker = Broker::new();
    let reader = broker.reader();
    let damaged = broker.put("orders", 50);
    broker.put("orders", 50);
    broker.write();
    broker.change(damaged + 100, b"y");
    expect_damage_at(&reader, damaged);
}

#[test]
fn another_message_where_the_last_one_was_is_an_error() {
    let mut broker = Broker::new();
    let last = broker.put("orders", 50);
    broker.write();
    let reader = broker.reader();
    broker.put("orders", 50);
    broker.write();
    let later = broker.writer.last_store_time + 1000;
    broker.change(last + STORE_TIME, &later.to_be_bytes());
    for _ in 0..2 {
        expect_damage_at(&reader, last);
    }
}

#[test]
fn a_log_without_any_segment_left_is_an_error() {
    let mut broker = Broker::new();
    let last = broker.put("orders", 50);
    broker.write();
    let reader = broker.reader();
    fs::remove_file(broker.segment(0)).unwrap();
    expect_damage_at(&reader, last);
}

#[test]
fn a_reader_continues_after_its_last_message_has_expired() {
    let mut broker = Broker::new();
    let reader = broker.reader();
    broker.roll();
    fs::remove_file(broker.segment(0)).unwrap();
    let (bytes, reader) = refreshed(&reader);
    assert!(bytes > 0);
    assert_eq!(reader.physical_bounds(), SEGMENT as i64..broker.writer.end());
    assert_eq!(end_of(&reader, "orders"), 45);
}

#[test]
fn a_follower_continues_though_its_last_message_has_expired() {
    let mut broker = Broker::new();
    let reader = broker.reader();
    broker.roll();
    fs::remove_file(broker.segment(0)).unwrap();
    let refreshed = reader.read_on().unwrap();
    assert!(refreshed.bytes > 0);
    let reader = refreshed.reopened.unwrap_or(reader);
    assert_eq!(end_of(&reader, "orders"), 45);
}

#[test]
fn a_reader_follows_the_log_into_new_segments() {
    let mut broker = Broker::new();
    let reader = broker.reader();
    for round in 1..5 {
        broker.roll();
        // A follower reads on without a refresh.
        let refreshed = if round % 2 == 0 { reader.refresh() } else { reader.read_on() };
        assert!(refreshed.unwrap().bytes > 0);
        assert_eq!(reader.physical_bounds().end, broker.writer.end());
        assert_eq!(end_of(&reader, "orders"), 5 + 40 * round);
    }
}

#[test]
fn a_follower_reads_the_next_segment_from_the_file_that_has_its_name() {
    let mut broker = Broker::new();
    let next = broker.segment(1);
    fs::write(&next, vec![0; SEGMENT]).unwrap();
    let reader = broker.reader();
    // The reader maps the segment.
    assert!(reader.message_at(SEGMENT as i64).is_err());
    while broker.put("orders", 900) < SEGMENT as i64 {}
    // A writer has removed the segment, which had no message, and has made it again.
    fs::remove_file(&next).unwrap();
    broker.write();
    assert!(reader.read_on().unwrap().bytes > 0);
    assert_eq!(reader.physical_bounds().end, broker.writer.end());
}

#[test]
fn a_deleted_topic_is_noticed_without_a_new_message() {
    let broker = Broker::new();
    let reader = broker.reader();
    fs::remove_file(broker.dir.path().join("abort")).unwrap();
    fs::remove_dir_all(broker.dir.path().join("consumequeue/bills")).unwrap();
    let (bytes, fresh) = refreshed(&reader);
    assert_eq!((bytes, Arc::ptr_eq(&fresh, &reader)), (0, false), "it was opened again");
}

#[test]
fn a_queue_that_begins_again_gives_its_new_messages() {
    for has_expired in [false, true] {
        let mut broker = Broker::new();
        broker.roll();
        let reader = broker.reader();
        let first = broker.put("bills", 50);
        broker.write();
        broker.change(first + QUEUE_OFFSET, &0_i64.to_be_bytes());
        let file = broker.dir.path().join("consumequeue/bills/0").join(segment_name(0));
        let entries = fs::read(&file).unwrap();
        let entry = CqUnit::decode(entries[5 * 20..6 * 20].try_into().unwrap());
        let mut again = entry.encode().to_vec();
        again.resize(entries.len(), 0);
        fs::remove_file(&file).unwrap();
        fs::write(&file, again).unwrap();
        fs::remove_file(broker.dir.path().join("abort")).unwrap();
        if has_expired {
            // No message shows that the queue had others at these offsets.
            fs::remove_file(broker.segment(0)).unwrap();
        }
        let (bytes, fresh) = refreshed(&reader);
        assert!(bytes > 0);
        assert_eq!(fresh.queue_bounds("bills", 0).unwrap(), 0..1, "{has_expired}");
        let message = fresh.message_in_queue("bills", 0, 0).unwrap();
        assert_eq!(message.view().physical_offset(), first);
    }
}

#[test]
fn messages_of_a_deleted_topic_are_not_taken_for_those_of_its_successor() {
    let mut broker = Broker::new();
    for _ in 5..20 {
        broker.put("bills", 50);
    }
    // The topic was deleted, and made again: its queue has the entries of two messages so far.
    let again = [0, 1, 2].map(|_| broker.put("bills", 50));
    broker.write();
    for (queue_offset, message) in again.iter().enumerate() {
        broker.change(message + QUEUE_OFFSET, &(queue_offset as i64).to_be_bytes());
    }
    let file = broker.dir.path().join("consumequeue/bills/0").join(segment_name(0));
    let entries = fs::read(&file).unwrap();
    let mut new = entries[20 * 20..22 * 20].to_vec();
    new.resize(entries.len(), 0);
    fs::write(&file, new).unwrap();
    let reader = broker.reader();
    assert_eq!(reader.queue_bounds("bills", 0).unwrap(), 0..3);
    for (queue_offset, message) in again.iter().enumerate() {
        let found = reader.message_in_queue("bills", 0, queue_offset as i64).unwrap();
        assert_eq!(found.view().physical_offset(), *message);
    }
}

/// A store of `messages` messages with distinct keys, and a reader that counts its calls.
fn with_keys(dir: &Path, messages: usize) -> (StoreWriter, CountingEnv, MessageReader) {
    let mut writer = StoreWriter::small(dir);
    put_keys(&mut writer, 0..messages);
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    (
        writer,
        env.clone(),
        MessageReader::open(&seam, dir, StoreConfig::default()).unwrap(),
    )
}

fn put_keys(writer: &mut StoreWriter, numbers: std::ops::Range<usize>) {
    for number in numbers {
        writer.put("orders", 0, b"x", &[("KEYS", &format!("k{number}"))]);
    }
    writer.finish(false);
}

/// Returns the number of these keys that a query finds.
fn found(reader: &MessageReader, keys: impl Iterator<Item = String>) -> usize {
    let keys: Vec<String> = keys.collect();
    let wanted: Vec<(&str, &str)> = keys.iter().map(|key| ("orders", key.as_str())).collect();
    let hits = reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Raise).unwrap();
    hits.iter().filter(|hits| !hits.is_empty()).count()
}

#[test]
fn keys_added_to_an_index_file_after_many_lookups_in_it_are_found() {
    let dir = tempdir().unwrap();
    // A full file, and one of 101 keys.
    let (mut writer, _, reader) = with_keys(dir.path(), 500);
    for _ in 0..2 {
        assert_eq!(found(&reader, (0..1000).map(|number| format!("k{number}"))), 500);
    }
    put_keys(&mut writer, 500..700);
    reader.refresh().unwrap();
    assert_eq!(found(&reader, (0..1000).map(|number| format!("k{number}"))), 700);
}

#[test]
fn to_look_for_keys_that_no_index_file_holds_hardly_reads_the_files() {
    let dir = tempdir().unwrap();
    let (_, env, reader) = with_keys(dir.path(), 2000);
    let index = dir.path().join("index");
    // Enough keys that each full file gets its Bloom filter.
    assert_eq!(found(&reader, (0..2000).map(|number| format!("k{number}"))), 2000);
    let before = env.bytes_read_below(&index);
    assert_eq!(found(&reader, (0..1000).map(|number| format!("none{number}"))), 0);
    // Of each key a slot of the last file, which is not full and has no filter. Without filters it is 85 bytes of each of the others, too.
    assert!(env.bytes_read_below(&index) - before < 50_000);
}
