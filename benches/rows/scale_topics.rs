//! A message to each of many topics in turn, appended and dispatched. The limit is the same store with one topic; the peer is a
//! file for each topic, of which a thousand are open.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use mqstore::config::StoreConfig;
use mqstore::format::Message;
use mqstore::store::MessageStore;
use serde_json::json;
use tempfile::TempDir;

use crate::harness::machine::each;
use crate::harness::row::{LIMIT, OURS};
use crate::harness::workload::{Workload, open};
use crate::harness::{Bench, Contender, Row, Target};

const BODY: usize = 100;
const MESSAGES: usize = 200_000;
/// The topics, and the target ratio to the rate with one topic.
const TOPICS: [(usize, f64); 3] = [(1000, 1.0 / 1.3), (10_000, 1.0 / 2.0), (50_000, 1.0 / 2.0)];
const OPEN_FILES: usize = 1000;

pub fn run(bench: &Bench) {
    let workload = Workload::of_bodies(BODY);
    let count = bench.size(MESSAGES, 100);
    for (topics, ratio) in bench.size(&TOPICS[..], &[(10, 0.0)]) {
        let row = Row {
            name: "scale_topics",
            params: json!({"body": BODY, "topics": topics}),
            unit: "ns a message",
            target: Target::of_limit(*ratio),
            waits_for_disk: false,
        };
        let (ours, alone, files) = (
            Topics::new(bench, *topics),
            Topics::new(bench, 1),
            Files::new(bench, &workload, *topics),
        );
        let contenders = vec![
            Contender::new(OURS, || ours.round(&workload, count)),
            Contender::new(LIMIT, || alone.round(&workload, count)),
            Contender::new("a file for each topic", || files.borrow_mut().round(count)),
        ];
        bench.measure(&row, contenders);
    }
}

/// A store that every round appends to, because its queues take long to create: their files exist after the first close.
pub struct Topics {
    store: MessageStore,
    names: Vec<String>,
    _dir: TempDir,
}

impl Topics {
    pub fn new(bench: &Bench, topics: usize) -> Self {
        let dir = bench.dir();
        let path = dir.path().join("store");
        let mut made = Self {
            store: open(&path, StoreConfig::default()),
            names: (0..topics).map(|number| format!("orders-{number}")).collect(),
            _dir: dir,
        };
        made.round(&Workload::of_bodies(BODY), topics);
        made.store.close().unwrap();
        made.store = open(&path, StoreConfig::default());
        made
    }

    /// Measures until all are in their queues.
    pub fn round(&self, workload: &Workload, count: usize) -> f64 {
        let begun = Instant::now();
        let mut last = 0;
        for number in 0..count {
            let message = Message {
                topic: self.names[number % self.names.len()].as_str().into(),
                ..workload.message(0)
            };
            last = self.store.append(message).unwrap().appended.physical_offset;
        }
        self.store.wait_dispatched(last, None).unwrap();
        each(begun.elapsed(), count)
    }
}

/// A file for each topic, some of which are open.
pub struct Files {
    dir: TempDir,
    topics: usize,
    open: HashMap<usize, File>,
    record: Vec<u8>,
}

impl Files {
    pub fn new(bench: &Bench, workload: &Workload, topics: usize) -> RefCell<Self> {
        let mut made = Self {
            dir: bench.dir(),
            topics,
            open: HashMap::new(),
            record: workload.message(0).encode().unwrap(),
        };
        made.round(topics);
        RefCell::new(made)
    }

    pub fn round(&mut self, count: usize) -> f64 {
        let begun = Instant::now();
        for number in 0..count {
            let topic = number % self.topics;
            if self.open.len() >= OPEN_FILES && !self.open.contains_key(&topic) {
                self.open.clear();
            }
            let file = self.open.entry(topic).or_insert_with(|| opened(self.dir.path(), topic));
            file.write_all(&self.record).unwrap();
        }
        each(begun.elapsed(), count)
    }
}

fn opened(dir: &Path, topic: usize) -> File {
    File::options()
        .append(true)
        .create(true)
        .open(dir.join(topic.to_string()))
        .unwrap()
}
