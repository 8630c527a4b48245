//! The cost of one more key of a message: the dispatch of messages with many keys minus that of messages with one. The limit finds
//! the same keys in the property of each message, hashes them and stores them in memory.

use std::hint::black_box;
use std::time::Instant;

use mqstore::config::{Sizes, StoreConfig};
use serde_json::json;

use super::dispatch::dispatch_all;
use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{TOPIC, Workload, open_stepped, properties};
use crate::harness::{Bench, Contender, Row, Target};
use crate::limits::{IndexKernel, hash};

const MESSAGES: usize = 20_000;
/// The keys of a message after the first.
const MORE: usize = 16;

pub fn run(bench: &Bench) {
    let count = bench.size(MESSAGES, 50);
    let row = Row {
        name: "index_put",
        params: json!({"hashed_bytes": TOPIC.len() + 1 + key(0, 0).len()}),
        unit: "ns a key",
        target: Target::of_limit(0.8),
        waits_for_disk: false,
    };
    let ours = Contender::new(OURS, || {
        let (many, one) = (dispatch(bench, count, 1 + MORE), dispatch(bench, count, 1));
        // A machine that was slower during one part may make the difference negative.
        (many - one).max(0.1) / MORE as f64
    });
    let limit = Contender::new(LIMIT, || limit(count));
    bench.measure(&row, vec![ours, limit]);
}

fn key(message: usize, number: usize) -> String {
    format!("customer-order-{message:08}-item-{number:03}")
}

/// Returns the keys of a message in the form of its property.
fn joined(message: usize, keys: usize) -> String {
    let keys: Vec<String> = (0..keys).map(|number| key(message, number)).collect();
    keys.join(" ")
}

/// Returns the nanoseconds for a message.
fn dispatch(bench: &Bench, count: usize, keys: usize) -> f64 {
    let dir = bench.dir();
    let store = open_stepped(&dir.path().join("store"), StoreConfig::default());
    for message in 0..count {
        let workload = Workload {
            body: vec![b'x'; 100],
            properties: properties(&joined(message, keys)),
        };
        store.append(workload.message(0)).unwrap();
    }
    let begun = Instant::now();
    dispatch_all(&store);
    each(begun.elapsed(), count)
}

fn limit(count: usize) -> f64 {
    let properties: Vec<String> = (0..count).map(|message| joined(message, MORE)).collect();
    let mut kernel = IndexKernel::new(Sizes::SMALL.index);
    let begun = Instant::now();
    for (message, keys) in properties.iter().enumerate() {
        let of_topic = hash(hash(0, TOPIC.as_bytes()), b"#");
        for key in keys.as_bytes().split(|byte| *byte == b' ') {
            kernel.put(black_box(hash(of_topic, key).wrapping_abs()), message as i64, 0);
        }
    }
    each(begun.elapsed(), count * MORE)
}
