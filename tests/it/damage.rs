//! Damaged stores: a lost message is an error that names its place, and everything else reads as before.

pub(crate) mod bases;
mod by_key;
mod campaign;
mod corpus;
mod draw;
pub(crate) mod every_bit;
pub(crate) mod fields;
mod holes;
mod hostile_size;
pub(crate) mod image;
mod mending;
mod mutator;
mod on_disk;
mod questions;
mod recovery;
mod routes;
mod truth;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::config::Errors;
use mqstore::error::{Error, Result};
use mqstore::format::{Checkpoint, segment_name};
use mqstore::log::StoredMessage;
use mqstore::read::{GetRequest, HitBounds, MessageReader, QueryBy, QueryRequest, QueryResult, QueueScan, TagFilter};

use crate::store_writer::StoreWriter;

/// Bytes of a commit-log segment of [`StoreWriter::small`].
const SEGMENT: i64 = 16384;
/// Entries and bytes of one of its queue files.
const ENTRIES: i64 = 50;
const QUEUE_FILE: u64 = 1000;

/// A store of `count` messages in `orders/0`, tags in turn even and odd, keys k0, k1, ..., every tenth also "ten", unique keys
/// U0, U1, ...; with their physical offsets.
fn plain(path: &Path, count: i64) -> (StoreWriter, Vec<i64>) {
    let mut writer = StoreWriter::small(path);
    let offsets = (0..count).map(|n| put(&mut writer, "orders", n));
    let offsets = offsets.collect();
    (writer, offsets)
}

fn put(writer: &mut StoreWriter, topic: &str, n: i64) -> i64 {
    let keys = if n % 10 == 0 { format!("k{n} ten") } else { format!("k{n}") };
    let tag = if n % 2 == 0 { "even" } else { "odd" };
    let properties = [("KEYS", &*keys), ("TAGS", tag), ("UNIQ_KEY", &*format!("U{n}"))];
    writer.put(topic, 0, format!("body {n}").as_bytes(), &properties)
}

fn log_file(root: &Path, start: i64) -> PathBuf {
    root.join("commitlog").join(segment_name(start as u64))
}

fn queue_file(root: &Path, topic: &str, start: u64) -> PathBuf {
    root.join("consumequeue").join(topic).join("0").join(segment_name(start))
}

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Changes entry `n` of `orders/0`.
fn edit_entry(root: &Path, n: i64, change: impl FnOnce(&mut [u8])) {
    let start = n / ENTRIES * QUEUE_FILE as i64;
    let at = (n * 20 - start) as usize;
    edit(&queue_file(root, "orders", start as u64), |bytes| {
        change(&mut bytes[at..at + 20]);
    });
}

/// Changes the log from a physical offset to the end of its segment.
fn edit_log(root: &Path, offset: i64, change: impl FnOnce(&mut [u8])) {
    let start = offset - offset % SEGMENT;
    edit(&log_file(root, start), |bytes| {
        change(&mut bytes[(offset - start) as usize..]);
    });
}

/// A checkpoint that claims everything stored before `time` and more is on disk.
fn write_checkpoint(root: &Path, time: i64) {
    let checkpoint = Checkpoint {
        physic_msg_timestamp: time,
        logics_msg_timestamp: time,
        ..Checkpoint::default()
    };
    fs::write(root.join("checkpoint"), checkpoint.encode()).unwrap();
}

fn scan(reader: &Arc<MessageReader>, topic: &str) -> Vec<Result<StoredMessage>> {
    let scan = QueueScan::new(reader.clone(), topic.to_owned(), 0, 0..i64::MAX).unwrap();
    scan.take(100_000).collect()
}

/// The queue offsets of all messages of a queue, none of which may be damaged.
fn whole_queue(reader: &Arc<MessageReader>, topic: &str) -> Vec<i64> {
    let messages = scan(reader, topic).into_iter();
    messages.map(|message| message.unwrap().view().queue_offset()).collect()
}

fn corrupt_place(error: Error) -> (PathBuf, u64) {
    match error {
        Error::Corrupt { path, offset, .. } => (path, offset),
        other => panic!("not Corrupt: {other}"),
    }
}

fn get_request(offset: i64, tags: &str) -> GetRequest {
    GetRequest {
        topic: "orders".to_owned(),
        queue_id: 0,
        offset,
        max_messages: 32,
        tags: TagFilter::parse(tags),
        bounded: true,
        errors: Errors::Raise,
    }
}

fn query_all(reader: &MessageReader, topic: &str, key: &str, limit: Option<usize>) -> Result<QueryResult> {
    reader.query(&QueryRequest {
        topic: topic.to_owned(),
        by: QueryBy::Key(key.to_owned()),
        times: i64::MIN..i64::MAX,
        limit,
        errors: Errors::Raise,
    })
}

fn offsets_of(result: &QueryResult) -> Vec<i64> {
    result.hits.iter().map(|hit| hit.physical_offset).collect()
}

fn resolved(reader: &MessageReader, key: &str) -> Result<Vec<i64>> {
    let hits = reader.resolve_keys(&[("orders", key)], &HitBounds::default(), Errors::Raise)?;
    Ok(hits.all().iter().map(|hit| hit.physical_offset).collect())
}
