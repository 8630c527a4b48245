//! Appending one message after another from one thread, beside copying the same records in memory. Prints; asserts nothing.
//!
//! Each figure is the median of five rounds after one to warm up; the two take turns, so that a machine that slows down slows both.
//! `durable` adds what the final flush and the dispatch of everything take.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing, missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use mqstore::config::StoreConfig;
use mqstore::format::{Message, encode_properties};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};

const ROUNDS: usize = 6;
const ROUND_BYTES: usize = 96 << 20;
const MOST_MESSAGES: usize = 200_000;

/// Nanoseconds a message: appended, durable and dispatched, copied.
struct Round {
    append: f64,
    durable: f64,
    copy: f64,
}

fn main() {
    println!(
        "{:>8} {:>10} {:>12} {:>14} {:>14} {:>14} {:>8}",
        "body", "messages", "append ns", "messages/s", "durable ns", "memcpy ns", "ratio"
    );
    for size in [100, 1024, 16 * 1024] {
        let count = (ROUND_BYTES / size).min(MOST_MESSAGES);
        let rounds: Vec<Round> = (0..ROUNDS).map(|_| round(size, count)).skip(1).collect();
        let median = |of: fn(&Round) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (append, durable, copy) = (median(|r| r.append), median(|r| r.durable), median(|r| r.copy));
        let rate = 1e9 / append;
        println!(
            "{size:>8} {count:>10} {append:>12.0} {rate:>14.0} {durable:>14.0} {copy:>14.0} {:>8.2}",
            copy / append
        );
    }
    println!("ratio: memcpy ns / append ns; 1 would be as fast as copying the record and nothing else");
}

fn round(size: usize, count: usize) -> Round {
    let body = vec![b'x'; size];
    let properties = encode_properties([("KEYS", "order-1"), ("TAGS", "paid")], true).unwrap();
    let message = || Message {
        topic: "orders".to_owned(),
        body: body.as_slice().into(),
        properties: properties.clone(),
        ..Message::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = MessageStore::open(&env, &dir.path().join("store"), StoreConfig::default(), OpenMode::New).unwrap();
    let begun = Instant::now();
    let mut last = 0;
    for _ in 0..count {
        last = store.append(message()).unwrap().appended.physical_offset;
    }
    let append = begun.elapsed();
    store.flush().unwrap();
    store.wait_dispatched(last, None).unwrap();
    let durable = begun.elapsed();
    store.close().unwrap();

    let record = message().encode().unwrap();
    let places = (64 << 20) / record.len();
    // Touched beforehand, and larger than the caches.
    let mut copied = vec![1_u8; record.len() * places];
    let begun = Instant::now();
    for n in 0..count {
        let at = n % places * record.len();
        copied[at..at + record.len()].copy_from_slice(black_box(&record));
        black_box(&mut copied);
    }
    let copy = begun.elapsed();
    let each = |took: std::time::Duration| took.as_secs_f64() * 1e9 / f64::from(u32::try_from(count).unwrap());
    Round {
        append: each(append),
        durable: each(durable),
        copy: each(copy),
    }
}
