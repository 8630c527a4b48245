//! Opening a store whose writer died, by what lies past its checkpoint. Prints; asserts nothing.
//!
//! One GiB of messages with a body of 1 KiB and a key, hot. `open` is until messages can be appended; `keys` until every key is in the
//! index as well. The target is 1 s and 0.5 s a GiB.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqstore::config::StoreConfig;
use mqstore::format::{Message, encode_properties};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{Incoming, MessageStore, OpenMode};

const BYTES: i64 = 1 << 30;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    write(&path);
    println!("{:>34} {:>12} {:>9} {:>9}", "lost", "read MiB", "open s", "keys s");
    let cases: [(&str, &[&str]); 4] = [
        ("nothing", &[]),
        ("checkpoint", &["checkpoint"]),
        ("checkpoint, queues", &["checkpoint", "consumequeue"]),
        ("checkpoint, queues, index", &["checkpoint", "consumequeue", "index"]),
    ];
    for (name, gone) in cases {
        for gone in gone {
            let gone = path.join(gone);
            if gone.is_dir() {
                fs::remove_dir_all(gone).unwrap();
            } else {
                fs::remove_file(gone).unwrap();
            }
        }
        fs::write(path.join("abort"), "").unwrap();
        let start = Instant::now();
        let store = open(&path);
        let opened = start.elapsed();
        let report = store.reader().recovery().clone();
        store.wait_dispatched(report.last_offset, None).unwrap();
        let keys = start.elapsed();
        let read = (report.log_end - report.scan_start) >> 20;
        println!("{name:>34} {read:>12} {:>9.2} {:>9.2}", seconds(opened), seconds(keys));
        store.close().unwrap();
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn open(path: &Path) -> MessageStore {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    MessageStore::open(&env, path, StoreConfig::default(), OpenMode::Append).unwrap()
}

fn write(path: &Path) {
    let store = open(path);
    let body = vec![b'x'; 1024];
    let mut number = 0;
    while store.reader().physical_bounds().end < BYTES {
        let batch: Vec<Incoming<'_>> = (0..1000)
            .map(|_| {
                number += 1;
                let key = format!("order-{number}");
                let message = Message {
                    topic: "orders".to_owned(),
                    queue_id: number % 4,
                    body: body.as_slice().into(),
                    properties: encode_properties([("KEYS", &*key), ("TAGS", "paid")], true).unwrap(),
                    ..Message::default()
                };
                message.into()
            })
            .collect();
        store.appender(None).append_all(batch, &mut Vec::new()).unwrap();
    }
    store.close().unwrap();
}
