//! Damage of every kind, drawn from a seed, in copies of stores that RocketMQ wrote: each ends in data or in a typed error.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::error::{Error, Result};
use mqstore::format::{CQ_UNIT_SIZE, Check};
use mqstore::format::{INDEX_HEADER_SIZE, Record, read_record, segment_name};
use mqstore::read::{GetRequest, MessageReader, QueryRequest, QueueScan, Side, TagFilter};
use tempfile::tempdir_in;

use crate::golden::golden_dir;
use crate::reading::open_with;

const STORES: [&str; 6] = [
    "491_multifile",
    "491_indexroll",
    "491_crash_image",
    "533_basic_clean",
    "533_mixed",
    "533_batchcq",
];
const ROUNDS: u64 = 400;
const SLOWEST: Duration = Duration::from_secs(2);
/// More messages than any of the stores holds.
const ENDLESS: usize = 100_000;

/// `SplitMix64`: every number follows from the seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let into = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &into);
        } else {
            fs::copy(entry.path(), into).unwrap();
        }
    }
}

/// The files that a reader looks into, always in one order.
fn files(root: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Where numbers stand whose value leads further: of records, queue entries, index items and headers.
fn fields(path: &Path, bytes: &[u8]) -> Vec<(usize, usize)> {
    let path = path.to_string_lossy();
    let every = |start: usize, step: usize, fields: &[(usize, usize)]| {
        let starts = (start..bytes.len()).step_by(step);
        starts
            .flat_map(|at| fields.iter().map(move |(field, width)| (at + field, *width)))
            .collect()
    };
    let mut found: Vec<(usize, usize)> = if path.contains("/commitlog/") {
        record_fields(bytes)
    } else if path.contains("consumequeue/") {
        every(0, CQ_UNIT_SIZE, &[(0, 8), (8, 4), (12, 8)])
    } else if path.contains("/index/") {
        let mut header = vec![(0, 8), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4)];
        header.extend((INDEX_HEADER_SIZE..INDEX_HEADER_SIZE + 400).step_by(4).map(|at| (at, 4)));
        header.extend(every(INDEX_HEADER_SIZE + 400, 20, &[(0, 4), (4, 8), (12, 4), (16, 4)]));
        header
    } else {
        every(0, 8, &[(0, 8)])
    };
    found.retain(|(at, width)| at + width <= bytes.len());
    found
}

/// Sizes, magics, offsets, times and lengths of every record that stands behind the first.
fn record_fields(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + 8 <= bytes.len()
        && let Record::Message(view) = read_record(&bytes[at..], Check::Structure)
    {
        let body_length = view.size() as usize - view.properties().bytes().len() - 2 - view.topic_bytes().len() - 1;
        let body_length = body_length - view.body().len() - 4;
        let topic_length = body_length + 4 + view.body().len();
        let properties_length = view.size() as usize - view.properties().bytes().len() - 2;
        for (field, width) in [(0, 4), (4, 4), (8, 4), (12, 4), (20, 8), (28, 8), (36, 4), (56, 8)] {
            found.push((at + field, width));
        }
        found.extend([(at + body_length, 4), (at + topic_length, 1), (at + properties_length, 2)]);
        at += view.size() as usize;
    }
    found.push((at, 4));
    found
}

/// A value of `width` bytes that someone may not have thought of.
fn hostile(draw: &mut Draw, old: &[u8]) -> Vec<u8> {
    let width = old.len();
    let number = old.iter().fold(0_i64, |number, byte| number << 8 | i64::from(*byte));
    let largest = i64::MAX >> (64 - 8 * width);
    let values = [
        0,
        1,
        -1,
        largest,
        !largest,
        number.wrapping_add(1),
        number.wrapping_sub(1),
        number ^ 1 << draw.below(8 * width),
        largest / 20,
        largest / 20 + 1,
        draw.next() as i64,
    ];
    draw.one(&values).to_be_bytes()[8 - width..].to_vec()
}

/// Changes the bytes of one file; says how.
fn mutate_bytes(draw: &mut Draw, path: &Path) -> String {
    let mut bytes = fs::read(path).unwrap();
    let blocks = bytes.len() / CQ_UNIT_SIZE;
    let block = |n: usize| n * CQ_UNIT_SIZE..(n + 1) * CQ_UNIT_SIZE;
    // Most bytes are zeros behind what was written: damage there says little.
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    let written_blocks = written.div_ceil(CQ_UNIT_SIZE).clamp(1, blocks.max(1));
    let what = match draw.below(8) {
        0..=3 => {
            let fields = fields(path, &bytes);
            if fields.is_empty() {
                return "nothing".to_owned();
            }
            let within: Vec<_> = fields.iter().filter(|(at, _)| *at < written).copied().collect();
            let (at, width) = *draw.one(if within.is_empty() { &fields } else { &within });
            let value = hostile(draw, &bytes[at..at + width]);
            bytes[at..at + width].copy_from_slice(&value);
            format!("{width} bytes at {at} become {value:?}")
        }
        4 if written > 0 => {
            let at = draw.below(written);
            bytes[at] ^= 1 << draw.below(8);
            format!("a bit at {at}")
        }
        5 if blocks > 0 => {
            let n = draw.below(written_blocks);
            bytes[block(n)].fill(0);
            format!("block {n} becomes zero")
        }
        6 if blocks > 0 => {
            let (a, b) = (draw.below(written_blocks), draw.below(blocks));
            let (old_a, old_b) = (bytes[block(a)].to_vec(), bytes[block(b)].to_vec());
            bytes[block(a)].copy_from_slice(&old_b);
            bytes[block(b)].copy_from_slice(&old_a);
            format!("blocks {a} and {b} change places")
        }
        7 if blocks > 0 => {
            let (a, b) = (draw.below(written_blocks), draw.below(blocks));
            let old = bytes[block(a)].to_vec();
            bytes[block(b)].copy_from_slice(&old);
            format!("block {b} becomes block {a}")
        }
        _ => return "nothing".to_owned(),
    };
    fs::write(path, bytes).unwrap();
    what
}

/// Cuts, extends, renames, doubles or removes one file; says how.
fn mutate_file(draw: &mut Draw, path: &Path) -> String {
    let length = fs::metadata(path).unwrap().len() as usize;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    match draw.below(6) {
        0 | 1 => {
            let to = if draw.below(2) == 0 {
                draw.below(length)
            } else {
                draw.below(40).min(length)
            };
            file.set_len(to as u64).unwrap();
            format!("cut to {to} bytes")
        }
        2 => {
            let by = *draw.one(&[1, 19, 20, 4096, length]);
            file.set_len((length + by) as u64).unwrap();
            format!("extended by {by} bytes")
        }
        3 => {
            let starts = [
                0,
                20,
                1000,
                16384,
                163_840,
                1 << 40,
                i64::MAX as u64,
                u64::MAX - 999,
                draw.next() >> 40,
            ];
            let name = segment_name(*draw.one(&starts));
            fs::rename(path, path.with_file_name(&name)).unwrap();
            format!("renamed to {name}")
        }
        4 => {
            let name = segment_name(length as u64 * draw.below(20) as u64);
            let to = path.with_file_name(&name);
            if to != *path {
                fs::copy(path, to).unwrap();
            }
            format!("copied to {name}")
        }
        _ => {
            fs::remove_file(path).unwrap();
            "removed".to_owned()
        }
    }
}

fn mutate(draw: &mut Draw, root: &Path) -> Vec<String> {
    let mut done = Vec::new();
    for _ in 0..=draw.below(3) {
        let mut all = Vec::new();
        files(root, &mut all);
        let kinds = ["/commitlog/", "consumequeue/", "/index/", ""];
        let kind = *draw.one(&kinds);
        all.retain(|path| path.to_string_lossy().contains(kind));
        if all.is_empty() {
            continue;
        }
        let path = draw.one(&all).clone();
        let what = if draw.below(4) == 0 {
            mutate_file(draw, &path)
        } else {
            mutate_bytes(draw, &path)
        };
        done.push(format!("{}: {what}", path.strip_prefix(root).unwrap().display()));
    }
    let abort = root.join("abort");
    match draw.below(3) {
        0 => fs::write(abort, "").unwrap(),
        1 => drop(fs::remove_file(abort)),
        _ => {}
    }
    done
}

/// What reading came to.
#[derive(Default)]
struct Outcome {
    read: usize,
    errors: usize,
}

impl Outcome {
    fn count<T>(&mut self, result: Result<T>) -> Option<T> {
        match &result {
            Ok(_) => self.read += 1,
            // Asking outside the queue, and for what is not built here, is no damage.
            Err(Error::NotFound { .. } | Error::Unsupported { .. }) => {}
            Err(_) => self.errors += 1,
        }
        result.ok()
    }
}

/// Reads everything there is to read, in every way there is.
fn read_all(reader: &Arc<MessageReader>, outcome: &mut Outcome) {
    let mut keys = Vec::new();
    for topic in outcome.count(reader.topics()).unwrap_or_default() {
        for queue_id in outcome.count(reader.queue_ids(&topic)).unwrap_or_default() {
            read_queue(reader, &topic, queue_id, &mut keys, outcome);
        }
    }
    for (topic, key) in keys.iter().step_by(keys.len() / 20 + 1) {
        for limit in [None, Some(2)] {
            outcome.count(reader.query(&QueryRequest {
                topic: topic.clone(),
                key: key.clone(),
                begin: i64::MIN,
                end: i64::MAX,
                limit,
            }));
        }
        outcome.count(reader.message(key));
    }
    let wanted: Vec<(&str, &str)> = keys.iter().take(50).map(|(topic, key)| (&**topic, &**key)).collect();
    outcome.count(reader.resolve_keys(&wanted));
    let bounds = reader.physical_bounds();
    for offset in [i64::MIN, -1, 0, bounds.start, bounds.end - 1, bounds.end, i64::MAX] {
        outcome.count(reader.message_at(offset));
    }
}

fn read_queue(reader: &Arc<MessageReader>, topic: &str, queue_id: i32, keys: &mut Vec<(String, String)>, outcome: &mut Outcome) {
    let Some(bounds) = outcome.count(reader.queue_bounds(topic, queue_id)) else {
        return;
    };
    let Some(scan) = outcome.count(QueueScan::new(reader.clone(), topic.to_owned(), queue_id, bounds.clone())) else {
        return;
    };
    let mut count = 0;
    for message in scan.take(ENDLESS) {
        count += 1;
        let Some(message) = outcome.count(message) else { continue };
        let view = message.view();
        assert_eq!(
            reader.message_at(view.physical_offset()).unwrap().view().bytes(),
            view.bytes()
        );
        if count % 10 == 0 {
            outcome.count(reader.message(&view.message_id().to_string()));
        }
        keys.extend(view.keys().into_iter().map(|key| (topic.to_owned(), key)));
    }
    assert!(count < ENDLESS, "{topic}/{queue_id} {bounds:?} is iterated without end");
    for offset in [
        i64::MIN,
        bounds.start,
        bounds.start + (bounds.end - bounds.start) / 2,
        bounds.end,
        i64::MAX,
    ] {
        for bounded in [true, false] {
            let request = GetRequest {
                topic: topic.to_owned(),
                queue_id,
                offset,
                max_messages: 32,
                tags: TagFilter::default(),
                bounded,
            };
            outcome.count(reader.get::<Error>(&request, |_| Ok(true)));
        }
        outcome.count(reader.message_in_queue(topic, queue_id, offset));
        outcome.count(reader.offset_at(topic, queue_id, offset, Side::Left));
        outcome.count(reader.offset_at(topic, queue_id, 1_760_000_000_000, Side::Right));
    }
}

#[test]
fn any_damage_ends_in_data_or_a_typed_error() {
    let (mut with_errors, mut with_data, mut wrong) = (0, 0, Vec::new());
    for seed in 0..ROUNDS {
        let mut draw = Draw(seed);
        let dir = tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let name = *draw.one(&STORES);
        let root = dir.path().join("store");
        copy(&golden_dir().join(name), &root);
        let done = mutate(&mut draw, &root);
        let started = Instant::now();
        let mut outcome = Outcome::default();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            if let Some(reader) = outcome.count(open_with(&root, StoreConfig::default())) {
                read_all(&reader, &mut outcome);
            }
        }));
        let took = started.elapsed();
        with_errors += usize::from(outcome.errors > 0);
        with_data += usize::from(outcome.read > 100);
        if ended.is_err() || took > SLOWEST {
            wrong.push(format!(
                "seed {seed}, {name}, {took:?}, panic {}: {}",
                ended.is_err(),
                done.join("; ")
            ));
        }
    }
    assert!(wrong.is_empty(), "{} rounds\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        with_errors > 50 && with_data > 50,
        "{with_errors} rounds with errors, {with_data} with data"
    );
}
