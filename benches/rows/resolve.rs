//! Bulk resolution of many messages, in random order. "`resolve_offsets`": by queue offset; the limit reads the same entries from a
//! mapping. "`resolve_keys`": by key, each checked in the log; the limit follows the same chains in memory and reads no record;
//! `RocketMQ` gets one key in a call. "`resolve_keys_files`": the same in many index files; the limit is one file with all of their
//! keys. "query": one key in a call, compared with `RocketMQ` on a copy of the store.

use std::fs::{self, File};
use std::hint::black_box;
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mqstore::config::{Errors, Sizes, StoreConfig};
use mqstore::format::CONSUME_QUEUE_DIR;
use mqstore::read::{HitBounds, MessageReader, OffsetResolver, QueryBy, QueryRequest};
use mqstore::storage::{Env, RealEnv};
use serde_json::json;

use crate::harness::machine::each;
use crate::harness::rocketmq::RocketMq;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload, fill, open};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{IndexKernel, hash};

const MESSAGES: usize = 400_000;
const QUEUES: usize = 16;
/// The index files of a store with many.
const FILES: usize = 16;
const ENTRY: usize = 20;

pub fn run(bench: &Bench) {
    let dir = bench.dir();
    let count = bench.size(MESSAGES, 160);
    let one = dir.path().join("one");
    make(&one, StoreConfig::default(), count);
    offsets(bench, &one, count);
    let keys = shuffled(count).into_iter().map(|n| format!("order-{n}")).collect::<Vec<_>>();
    keys_of_one_file(bench, &one, &keys);
    keys_of_many_files(bench, &one, &dir.path().join("many"), &keys);
    query(bench, &one, &keys);
}

fn row(name: &'static str, params: serde_json::Value, unit: &'static str, target: Target) -> Row {
    Row {
        name,
        params,
        unit,
        target,
        waits_for_disk: false,
    }
}

pub(super) fn make(path: &Path, config: StoreConfig, count: usize) {
    let store = open(path, config);
    fill(&store, &Workload::of_bodies(100), count, QUEUES);
    store.close().unwrap();
}

pub(super) fn reader(path: &Path) -> Arc<MessageReader> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    Arc::new(MessageReader::open(&env, path, StoreConfig::default()).unwrap())
}

/// Returns the numbers below `count` in a random order, which is the same in each run.
pub(super) fn shuffled(count: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut state = 88_172_645_463_325_252_u64;
    for at in (1..count).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        numbers.swap(at, (state % (at as u64 + 1)) as usize);
    }
    numbers
}

fn offsets(bench: &Bench, path: &Path, count: usize) {
    let places: Vec<(i32, i64)> = shuffled(count)
        .into_iter()
        .map(|n| ((n % QUEUES) as i32, (n / QUEUES) as i64))
        .collect();
    let wanted: Vec<_> = places.iter().map(|(id, offset)| Some((TOPIC, *id, *offset))).collect();
    let reader = reader(path);
    let ours = || {
        let begun = Instant::now();
        let mut found = Vec::with_capacity(count);
        OffsetResolver::new(&reader).positions(&wanted, &mut found).unwrap();
        let time = each(begun.elapsed(), count);
        assert!(found.iter().all(Option::is_some));
        time
    };
    let queues: Vec<_> = (0..QUEUES).filter_map(|queue_id| map_queue(path, queue_id)).collect();
    let limit = || {
        let begun = Instant::now();
        for (queue_id, queue_offset) in &places {
            let at = *queue_offset as usize * ENTRY;
            let entry: [u8; ENTRY] = queues[*queue_id as usize][at..at + ENTRY].try_into().unwrap();
            black_box(entry);
        }
        each(begun.elapsed(), count)
    };
    let row = row(
        "resolve_offsets",
        json!({"queues": QUEUES}),
        "ns a row",
        Target::at_most(40.0),
    );
    bench.measure(&row, vec![Contender::new(OURS, ours), Contender::new(LIMIT, limit)]);
}

/// Maps the first file of a queue, if there is such a queue.
pub(super) fn map_queue(path: &Path, queue_id: usize) -> Option<memmap2::Mmap> {
    let dir = path.join(CONSUME_QUEUE_DIR).join(TOPIC).join(queue_id.to_string());
    let name = fs::read_dir(dir).ok()?.map(|entry| entry.unwrap().path()).min()?;
    // SAFETY: no process changes the file.
    Some(unsafe { memmap2::Mmap::map(&File::open(name).unwrap()) }.unwrap())
}

/// Returns the nanoseconds for a key.
pub(super) fn resolve(reader: &MessageReader, keys: &[String]) -> f64 {
    let wanted: Vec<(&str, &str)> = keys.iter().map(|key| (TOPIC, key.as_str())).collect();
    let begun = Instant::now();
    let hits = reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Raise).unwrap();
    let time = each(begun.elapsed(), keys.len());
    assert_eq!(hits.all().len(), keys.len());
    time
}

fn keys_of_one_file(bench: &Bench, path: &Path, keys: &[String]) {
    let reader = reader(path);
    let mut kernel = IndexKernel::new(Sizes::SMALL.index);
    let hash_of = |key: &str| hash(hash(hash(0, TOPIC.as_bytes()), b"#"), key.as_bytes()).wrapping_abs();
    for number in 0..keys.len() {
        kernel.put(hash_of(&format!("order-{number}")), number as i64, 0);
    }
    let limit = || {
        let begun = Instant::now();
        let hashes: Vec<i32> = keys.iter().map(|key| hash_of(key)).collect();
        assert!(kernel.find_all(&hashes) >= keys.len());
        each(begun.elapsed(), keys.len())
    };
    let target = Target {
        at_most: Some(250.0),
        ratio_rocketmq: Some(25.0),
        ..Target::default()
    };
    let row = row("resolve_keys", json!({"files": 1}), "ns a key", target);
    let ours = [Contender::new(OURS, || resolve(&reader, keys)), Contender::new(LIMIT, limit)];
    bench.measure(&row, ours.into_iter().chain(peers(bench, path)).collect());
}

fn keys_of_many_files(bench: &Bench, one: &Path, many: &Path, keys: &[String]) {
    let files = bench.size(FILES, 4);
    let items = (keys.len() / files) as u64;
    let config = StoreConfig {
        max_hash_slot_num: Some(items / 4),
        max_index_num: Some(items + 1),
        ..StoreConfig::default()
    };
    make(many, config, keys.len());
    let (one, many) = (reader(one), reader(many));
    let row = row(
        "resolve_keys_files",
        json!({"files": files}),
        "ns a key",
        Target::of_limit(1.0 / 1.5),
    );
    let ours = Contender::new(OURS, || resolve(&many, keys));
    bench.measure(&row, vec![ours, Contender::new(LIMIT, || resolve(&one, keys))]);
}

fn query(bench: &Bench, path: &Path, keys: &[String]) {
    let reader = reader(path);
    let requests: Vec<QueryRequest> = keys
        .iter()
        .take(asked_one_by_one(bench))
        .map(|key| QueryRequest {
            topic: TOPIC.to_owned(),
            by: QueryBy::Key(key.clone()),
            times: i64::MIN..i64::MAX,
            limit: Some(64),
            errors: Errors::Raise,
        })
        .collect();
    let ours = Contender::new(OURS, || {
        let begun = Instant::now();
        for request in &requests {
            assert_eq!(black_box(reader.query(request).unwrap()).hits.len(), 1);
        }
        each(begun.elapsed(), requests.len())
    });
    let row = row("query", json!({"files": 1}), "ns a query", Target::at_most(400.0));
    bench.measure(&row, iter::once(ours).chain(peers(bench, path)).collect());
}

fn asked_one_by_one(bench: &Bench) -> usize {
    bench.size(100_000, 50)
}

/// Starts `RocketMQ` on a copy of the store, with one key in a call.
fn peers<'a>(bench: &Bench, path: &Path) -> impl Iterator<Item = Contender<'a>> + use<'a> {
    let count = asked_one_by_one(bench);
    let all = RocketMq::start_all_on(bench, path).into_iter();
    all.map(move |mut peer| Contender::new(peer.name.clone(), move || peer.query(count)))
}
