//! Light queues are compared with the log as other queues are, where they have files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use mqstore::check::{FindingId, rebuild};
use mqstore::config::StoreConfig;
use mqstore::format::{CQ_UNIT_SIZE, CqUnit, java_hash};
use mqstore::read::MessageReader;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::TempDir;

use super::table::edit;
use super::{names, told, verified, verified_in};
use crate::damage::bases::tiny;
use crate::writing::{message, with};

const ROOM: &str = "%LMQ%$chats$room-0";
const MESSAGES: usize = 12;
/// Entries of a queue file.
const A_FILE: usize = 5;
const NO_ENTRY: CqUnit = CqUnit {
    physical_offset: 0,
    size: 0,
    tags_code: 0,
};

fn real() -> Arc<dyn Env> {
    Arc::new(RealEnv::new())
}

/// A store in which each message of a topic is in a light queue, too.
struct Store {
    dir: TempDir,
    /// Entries of the light queue.
    units: Vec<CqUnit>,
}

impl Store {
    fn new() -> Self {
        let mut store = Self {
            dir: TempDir::new().unwrap(),
            units: Vec::new(),
        };
        store.fill(0);
        store
    }

    /// Appends messages that are in the light queue from the queue offset `first` on, and makes its files for them alone.
    fn fill(&mut self, first: usize) {
        self.units.clear();
        let store = MessageStore::open(&real(), self.root(), tiny(), OpenMode::Append).unwrap();
        for n in 0..MESSAGES {
            let body = vec![b'x'; 200 + n];
            let properties = [
                ("INNER_MULTI_DISPATCH", ROOM.to_owned()),
                ("INNER_MULTI_QUEUE_OFFSET", (first + n).to_string()),
                ("TAGS", "red".to_owned()),
            ];
            let properties: Vec<_> = properties.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let appended = store
                .append(with(message("chats", n as i32 % 2, &body), &properties))
                .unwrap()
                .appended;
            self.units.push(CqUnit {
                physical_offset: appended.physical_offset,
                size: appended.wrote_bytes,
                tags_code: java_hash("red").into(),
            });
        }
        store.close().unwrap();
        self.write(&self.units);
    }

    fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Writes the files of the light queue.
    fn write(&self, units: &[CqUnit]) {
        let queue = self.root().join("consumequeue").join(ROOM).join("0");
        fs::create_dir_all(&queue).unwrap();
        for (number, units) in units.chunks(A_FILE).enumerate() {
            let mut bytes: Vec<u8> = units.iter().flat_map(|unit| unit.encode()).collect();
            bytes.resize(A_FILE * CQ_UNIT_SIZE, 0);
            fs::write(queue.join(format!("{:020}", number * A_FILE * CQ_UNIT_SIZE)), bytes).unwrap();
        }
    }

    /// Verifies, also in sections by several threads.
    fn found(&self) -> Vec<FindingId> {
        let report = verified(self.root());
        for threads in [1, 3] {
            let again = verified_in(self.root(), threads, 700);
            assert_eq!(names(&again), names(&report), "{}\n{}", told(&again), told(&report));
        }
        report.findings.iter().map(|finding| finding.id).collect()
    }

    /// Returns the physical offsets of the messages of the light queue.
    fn read(&self) -> Vec<i64> {
        let reader = MessageReader::open(&real(), self.root(), StoreConfig::default()).unwrap();
        let bounds = reader.queue_bounds(ROOM, 0).unwrap();
        bounds
            .map(|offset| reader.message_in_queue(ROOM, 0, offset).unwrap().view().physical_offset())
            .collect()
    }
}

#[test]
fn whole_light_queues_are_compared_and_nothing_is_found() {
    let store = Store::new();
    assert_eq!(store.found(), []);
    assert_eq!(verified(store.root()).queue_entries, 2 * MESSAGES as u64);
    // A broker removes those that nobody uses.
    fs::remove_dir_all(store.root().join("consumequeue").join(ROOM)).unwrap();
    assert_eq!(store.found(), []);
    // It makes them again for later messages.
    let mut store = Store::new();
    store.fill(5);
    store.fill(0);
    store.found();
    assert_eq!(names(&verified(store.root())), BTreeSet::from(["log.earlier_topic"]));
}

#[test]
fn damage_of_a_light_queue_is_found_and_a_rebuild_restores_it() {
    let store = Store::new();
    let (tags_code, size, place) = (store.units[4], store.units[5], store.units[6]);
    let wrong = [
        (FindingId::QueueEntryMissing, MESSAGES - 1, NO_ENTRY),
        (FindingId::QueueEntryMissing, 3, NO_ENTRY),
        (
            FindingId::QueueTagsCode,
            4,
            CqUnit {
                tags_code: 7,
                ..tags_code
            },
        ),
        (
            FindingId::QueueEntryWrong,
            5,
            CqUnit {
                size: size.size + 1,
                ..size
            },
        ),
        (
            FindingId::QueueEntryWrong,
            6,
            CqUnit {
                physical_offset: place.physical_offset + 8,
                ..place
            },
        ),
    ];
    for (expected, at, unit) in wrong {
        let mut units = store.units.clone();
        units[at] = unit;
        store.write(&units);
        assert_eq!(store.found(), [expected], "entry {at}: {}", told(&verified(store.root())));
        rebuild(&real(), store.root(), &StoreConfig::default(), false, |_, _| Ok(())).unwrap();
        assert_eq!(store.found(), [], "entry {at}: {}", told(&verified(store.root())));
        let all: Vec<_> = store.units.iter().map(|unit| unit.physical_offset).collect();
        assert_eq!(store.read(), all, "entry {at}");
    }
}

#[test]
fn a_light_queue_that_a_crash_left_short_is_completed_by_the_next_open() {
    let store = Store::new();
    let file = format!("consumequeue/{ROOM}/0/{:020}", 2 * A_FILE * CQ_UNIT_SIZE);
    edit(&store.root().join(file), |bytes| bytes[CQ_UNIT_SIZE..].fill(0));
    fs::write(store.root().join("abort"), b"").unwrap();
    assert_eq!(store.found(), [FindingId::StoreNotClosed, FindingId::QueueNotDispatched]);
    let writer = MessageStore::open(&real(), store.root(), StoreConfig::default(), OpenMode::Existing).unwrap();
    writer.close().unwrap();
    assert_eq!((store.found(), store.read().len()), (vec![], MESSAGES));
}
