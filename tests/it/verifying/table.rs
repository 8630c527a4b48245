//! One damaged store for each finding: that one is found, and nothing else.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use mqstore::check::{FindingId, VerifyReport};
use mqstore::config::{Recovery, StoreConfig};
use mqstore::format::{
    CQ_UNIT_SIZE, Checkpoint, CqUnit, FLUSHED_MARK_SIZE, FlushedMark, ITEM_SIZE, LOCK_FILE, Message, own_from, segment_name,
};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use super::{copy, names, told, verified, verified_in};
use crate::damage::bases::{append, tiny};
use crate::damage::fields::{Family, fields, number, record_starts};
use crate::golden::golden_dir;

pub(crate) const MESSAGES: usize = 60;
/// The store of a broker that some rows put in the place of the store.
pub(crate) const BROKER_STORE: &str = "533_v2_record";
const SEGMENT: usize = 4096;
/// Of an index file: header and slots come before the items.
const FIRST_ITEM: usize = 40 + 4 * 10;

pub(crate) fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// A store in a directory, and the positions of its parts.
pub(crate) struct Store<'a>(pub(crate) &'a Path);

impl Store<'_> {
    pub(crate) fn files(&self, dir: &str) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(self.0.join(dir))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_dir_all(self.0.join(name))
            .or_else(|_| fs::remove_file(self.0.join(name)))
            .unwrap();
    }

    pub(crate) fn crash(&self) {
        self.put("abort", b"");
    }

    /// Changes a field of the record of message `n` of the second segment.
    fn edit_record(&self, n: usize, name: &str, change: impl FnOnce(&mut [u8])) {
        let path = &self.files("commitlog")[1];
        edit(path, |bytes| {
            let at = record_starts(bytes)[n];
            let field = fields(path.strip_prefix(self.0).unwrap(), bytes)
                .into_iter()
                .find(|field| field.at >= at && field.name == name);
            let field = field.unwrap();
            change(&mut bytes[field.at..field.at + field.width]);
        });
    }

    fn log_end(&self) -> i64 {
        crate::reading::open(self.0).physical_bounds().end
    }

    /// The file that holds entry `offset` of `orders/0`, and the entry's first byte.
    fn entry(&self, offset: i64) -> (PathBuf, usize) {
        let start = offset / 5 * 100;
        let path = self.0.join("consumequeue/orders/0").join(segment_name(start as u64));
        (path, (offset * 20 - start) as usize)
    }

    /// The segment of a message in queue 0 of "orders", and where its record starts there.
    fn record(&self, offset: i64) -> (PathBuf, usize) {
        let message = crate::reading::open(self.0).message_in_queue("orders", 0, offset).unwrap();
        let at = message.view().physical_offset() as usize;
        (self.files("commitlog").swap_remove(at / SEGMENT), at % SEGMENT)
    }

    fn edit_entry(&self, offset: i64, change: impl FnOnce(CqUnit) -> CqUnit) {
        let (path, at) = self.entry(offset);
        edit(&path, |bytes| {
            let unit = CqUnit::decode(bytes[at..at + CQ_UNIT_SIZE].try_into().unwrap());
            bytes[at..at + CQ_UNIT_SIZE].copy_from_slice(&change(unit).encode());
        });
    }

    /// The queue offset after the last message of `orders/0`.
    fn queue_end(&self) -> i64 {
        crate::reading::open(self.0).queue_bounds("orders", 0).unwrap().end
    }

    /// Moves the last message of the queue to the next queue offset. `left` is the entry that stays at the old one.
    fn move_last(&self, left: impl FnOnce(CqUnit) -> CqUnit) {
        let last = self.queue_end() - 1;
        assert!(last % 5 < 4, "{last}");
        let (path, at) = self.record(last);
        edit(&path, |bytes| {
            bytes[at + 20..at + 28].copy_from_slice(&(last + 1).to_be_bytes());
        });
        let mut moved = NO_ENTRY;
        self.edit_entry(last, |unit| {
            moved = unit;
            left(unit)
        });
        self.edit_entry(last + 1, |_| moved);
    }

    pub(crate) fn edit_checkpoint(&self, change: impl FnOnce(&mut Checkpoint)) {
        edit(&self.0.join("checkpoint"), |bytes| {
            let mut checkpoint = Checkpoint::decode(bytes);
            change(&mut checkpoint);
            *bytes = checkpoint.encode().to_vec();
        });
    }

    fn last_store_time(&self) -> i64 {
        crate::reading::open(self.0).recovery().last_store_time
    }
}

const NO_ENTRY: CqUnit = CqUnit {
    physical_offset: 0,
    size: 0,
    tags_code: 0,
};

/// A finding, the others that come with it, and the damage.
pub(crate) type Row = (FindingId, &'static [FindingId], fn(&Store<'_>));

pub(crate) const ROWS: &[Row] = &[
    (FindingId::StoreNotClosed, &[], |store| store.crash()),
    (FindingId::StoreUnfinishedFile, &[], |store| {
        store.put("mqstore-new-x", b"half");
    }),
    (FindingId::StoreWrongType, &[], |store| {
        fs::create_dir(store.0.join("config/mqstore-recovery.json")).unwrap();
    }),
    (FindingId::StoreWrongType, &[], |store| store.put("consumequeue/new", b"x")),
    (FindingId::StoreNotRead, &[], |store| {
        fs::create_dir_all(store.0.join("compaction/compactionLog/prices/0")).unwrap();
    }),
    (FindingId::LogDamagedRecord, &[], |store| {
        store.edit_record(3, "body", |body| body[0] ^= 1);
    }),
    (FindingId::LogDamagedRecord, &[], |store| {
        store.edit_record(3, "magic", |magic| magic[0] ^= 1);
    }),
    (FindingId::LogDamagedRecord, &[], |store| {
        store.edit_record(3, "body length", |length| length[3] ^= 1);
    }),
    (FindingId::LogMissingSegment, &[], |store| {
        fs::remove_file(&store.files("commitlog")[1]).unwrap();
    }),
    (FindingId::LogBeginsLate, &[], |store| {
        fs::remove_file(&store.files("commitlog")[0]).unwrap();
    }),
    (FindingId::LogCutShort, &[], |store| {
        edit(store.files("commitlog").last().unwrap(), |bytes| bytes.truncate(SEGMENT - 8));
    }),
    (FindingId::LogCutShort, &[FindingId::LogDamagedRecord], |store| {
        edit(&store.files("commitlog")[1], |bytes| bytes.truncate(SEGMENT / 2));
    }),
    (FindingId::LogCutShort, &[FindingId::LogMissingSegment], |store| {
        edit(&store.files("commitlog")[1], Vec::clear);
    }),
    (FindingId::LogCutShort, &[], |store| {
        edit(&store.files("commitlog")[0], Vec::clear);
    }),
    (FindingId::LogEmptyFile, &[], |store| {
        let next = store.files("commitlog").len() * SEGMENT;
        store.put(&format!("commitlog/{}", segment_name(next as u64)), b"");
    }),
    (FindingId::LogForeignFile, &[], |store| {
        store.put("commitlog/.notes.swp", b"x");
    }),
    (FindingId::LogBytesAfterEnd, &[], |store| {
        let end = store.log_end() as usize % SEGMENT;
        edit(store.files("commitlog").last().unwrap(), |bytes| bytes[end..end + 20].fill(7));
    }),
    (FindingId::LogSegmentAfterEnd, &[], |store| {
        let next = store.files("commitlog").len() * SEGMENT;
        store.put(&format!("commitlog/{}", segment_name(next as u64)), &[0; SEGMENT]);
    }),
    (FindingId::LogEndsEarly, &[], |store| {
        let mark = FlushedMark {
            flushed: store.log_end() + 100,
            own_from: own_from(&fs::read(store.0.join(LOCK_FILE)).unwrap()).unwrap(),
            is_sync: false,
        };
        let mark = mark.encode();
        assert_eq!(mark.len(), FLUSHED_MARK_SIZE);
        store.put("config/mqstore.flushed", &mark);
    }),
    (FindingId::LogLostMessages, &[], |store| {
        store.edit_record(3, "body", |body| body[0] ^= 1);
        let config = StoreConfig {
            recovery: Recovery::Salvage,
            ..StoreConfig::default()
        };
        let env: std::sync::Arc<dyn Env> = std::sync::Arc::new(RealEnv::new());
        MessageStore::open(&env, store.0, config, OpenMode::Existing)
            .unwrap()
            .close()
            .unwrap();
    }),
    (FindingId::LogStoreTimeFalls, &[], |store| {
        store.edit_record(4, "store time", |time| {
            let fallen = i64::from_be_bytes((&*time).try_into().unwrap()) - 10_000;
            time.copy_from_slice(&fallen.to_be_bytes());
        });
    }),
    (FindingId::LogStoreTimeWrong, &[], |store| {
        store.edit_record(4, "store time", |time| time[2] ^= 1);
    }),
    (FindingId::LogStoreTimeWrong, &[FindingId::IndexItemWrong], |store| {
        store.edit_record(4, "store time", |time| time[2] ^= 2);
    }),
    (FindingId::LogTopicName, &[], |store| {
        let env: std::sync::Arc<dyn Env> = std::sync::Arc::new(RealEnv::new());
        let writer = MessageStore::open(&env, store.0, StoreConfig::default(), OpenMode::Existing).unwrap();
        let message = Message {
            topic: "with.dot".into(),
            ..Message::default()
        };
        writer.append(message).unwrap();
        writer.close().unwrap();
    }),
    (FindingId::LogDuplicateQueueOffset, &[], |store| {
        let last = store.queue_end() - 1;
        let (path, at) = store.record(last);
        edit(&path, |bytes| {
            bytes[at + 20..at + 28].copy_from_slice(&2_i64.to_be_bytes());
        });
        store.edit_entry(last, |_| NO_ENTRY);
    }),
    (FindingId::LogEarlierTopic, &[], earlier_topic),
    (FindingId::QueueTopicMissing, &[], |store| {
        store.remove("consumequeue/payments");
    }),
    (FindingId::QueueEntryMissing, &[], |store| store.edit_entry(3, |_| NO_ENTRY)),
    (FindingId::QueueEntryMissing, &[], |store| {
        fs::remove_file(store.entry(7).0).unwrap();
    }),
    (FindingId::QueueEntryMissing, &[], |store| store.remove("consumequeue")),
    (FindingId::QueueNotDispatched, &[FindingId::StoreNotClosed], |store| {
        store.crash();
        store.edit_entry(store.queue_end() - 1, |_| NO_ENTRY);
    }),
    (FindingId::QueueNotRecovered, &[FindingId::StoreNotClosed], |store| {
        store.crash();
        let files = (20..store.queue_end()).step_by(5).map(|offset| store.entry(offset).0);
        files.for_each(|file| fs::remove_file(file).unwrap());
    }),
    (FindingId::QueueEntryWrong, &[], |store| {
        store.edit_entry(3, |unit| CqUnit {
            size: unit.size + 1,
            ..unit
        });
    }),
    (FindingId::QueueEntryWrong, &[], |store| {
        store.edit_entry(3, |unit| CqUnit {
            physical_offset: unit.physical_offset + 1,
            ..unit
        });
    }),
    (FindingId::QueuePlaceContradicted, &[FindingId::QueueEntryMissing], |store| {
        let (path, at) = store.record(3);
        edit(&path, |bytes| bytes[at + 15] ^= 8);
    }),
    (FindingId::QueueMessageLost, &[], |store| {
        store.move_last(CqUnit::of_lost);
    }),
    (FindingId::QueueTagsCode, &[], |store| {
        store.edit_entry(3, |unit| CqUnit {
            tags_code: unit.tags_code + 1,
            ..unit
        });
    }),
    (FindingId::QueueEntryPastEnd, &[], |store| {
        let (end, at) = (store.queue_end(), store.log_end());
        assert_ne!(end % 5, 0);
        store.edit_entry(end, |_| CqUnit {
            physical_offset: at,
            size: 100,
            tags_code: 0,
        });
    }),
    (FindingId::QueueHole, &[], |store| {
        store.move_last(|_| NO_ENTRY);
    }),
    (FindingId::QueueZeroFile, &[], |store| {
        let next = (store.queue_end() / 5 + 1) * 100;
        store.put(&format!("consumequeue/orders/0/{}", segment_name(next as u64)), &[0; 100]);
    }),
    (FindingId::QueueFileLength, &[], |store| {
        let last = store.files("consumequeue/orders/0").pop().unwrap();
        assert_ne!(store.queue_end() % 5, 0);
        edit(&last, |bytes| bytes.truncate(80));
    }),
    (FindingId::QueueFileLength, &[], |store| {
        edit(&store.files("consumequeue/orders/0")[0], |bytes| bytes.push(0));
    }),
    (FindingId::QueueFileLength, &[], |store| {
        edit(&store.files("consumequeue/orders/0")[0], |bytes| bytes.extend([1; 20]));
    }),
    (FindingId::QueueFileLength, &[FindingId::QueueEntryMissing], |store| {
        edit(&store.files("consumequeue/orders/0")[0], |bytes| bytes.truncate(99));
    }),
    (FindingId::QueueForeignFile, &[], |store| {
        store.put("consumequeue/orders/0/x", b"x");
    }),
    (FindingId::QueueNotRead, &[], |store| {
        fs::remove_dir_all(store.0).unwrap();
        copy(&golden_dir().join("533_batchcq"), store.0);
    }),
    (FindingId::IndexAbsent, &[], |store| store.remove("index")),
    (FindingId::IndexKeyMissing, &[], |store| {
        fs::remove_file(store.files("index").last().unwrap()).unwrap();
    }),
    (FindingId::IndexKeyMissing, &[], |store| {
        fs::remove_file(&store.files("index")[1]).unwrap();
    }),
    (FindingId::IndexNotIndexed, &[FindingId::StoreNotClosed], |store| {
        store.crash();
        fs::remove_file(store.files("index").last().unwrap()).unwrap();
    }),
    (FindingId::IndexNotRecovered, &[FindingId::StoreNotClosed], |store| {
        store.crash();
        store.edit_checkpoint(|checkpoint| checkpoint.index_msg_timestamp = 0);
    }),
    (FindingId::IndexItemWrong, &[], |store| {
        let time = FIRST_ITEM + 3 * ITEM_SIZE + 12;
        edit(&store.files("index")[1], |bytes| bytes[time] = 1);
    }),
    (FindingId::IndexItemWrong, &[FindingId::IndexKeyMissing], |store| {
        let hash = FIRST_ITEM + 3 * ITEM_SIZE;
        edit(&store.files("index")[1], |bytes| bytes[hash + 1] ^= 1);
    }),
    (FindingId::IndexItemPastEnd, &[FindingId::IndexKeyMissing], |store| {
        let offset = FIRST_ITEM + 3 * ITEM_SIZE + 4;
        edit(&store.files("index")[1], |bytes| bytes[offset] = 1);
    }),
    (FindingId::IndexChainBroken, &[], |store| {
        edit(&store.files("index")[1], |bytes| {
            let items = (1..19).map(|number| FIRST_ITEM + number * ITEM_SIZE + 16);
            let linked = items.into_iter().find(|at| number(bytes, *at, 4) > 0).unwrap();
            bytes[linked..linked + 4].fill(0);
        });
    }),
    (FindingId::IndexChainBroken, &[], |store| {
        edit(&store.files("index")[1], |bytes| {
            let slots = (0..10).map(|slot| 40 + slot * 4);
            let used = slots.into_iter().find(|at| number(bytes, *at, 4) > 0).unwrap();
            bytes[used..used + 4].fill(0);
        });
    }),
    (FindingId::IndexHeaderWrong, &[], |store| {
        edit(&store.files("index")[1], |bytes| bytes[0] ^= 1);
    }),
    (FindingId::IndexHeaderWrong, &[], |store| {
        edit(&store.files("index")[1], |bytes| bytes[35] ^= 1);
    }),
    (FindingId::IndexHeaderWrong, &[], |store| {
        edit(&store.files("index")[1], |bytes| bytes[39] -= 1);
    }),
    (FindingId::IndexHeaderWrong, &[], |store| {
        edit(&store.files("index")[1], |bytes| bytes[36..40].fill(0));
    }),
    (FindingId::IndexHeaderWrong, &[], |store| {
        // An index file without an item.
        fs::remove_dir_all(store.0).unwrap();
        copy(&golden_dir().join(BROKER_STORE), store.0);
        edit(&store.files("index")[0], |bytes| bytes[42] = 1);
    }),
    (FindingId::IndexUnreadable, &[], |store| {
        edit(&store.files("index")[1], |bytes| bytes.truncate(400));
    }),
    (FindingId::IndexFileLength, &[], |store| {
        edit(&store.files("index")[1], |bytes| bytes.resize(500, 0));
    }),
    (FindingId::IndexSizesUnknown, &[], |store| {
        fs::remove_dir_all(store.0).unwrap();
        copy(&golden_dir().join(BROKER_STORE), store.0);
    }),
    (FindingId::IndexForeignFile, &[], |store| store.put("index/x", b"x")),
    (FindingId::CheckpointMissing, &[], |store| store.remove("checkpoint")),
    (FindingId::CheckpointAhead, &[], |store| {
        let last = store.last_store_time();
        store.edit_checkpoint(|checkpoint| checkpoint.physic_msg_timestamp = last + 1);
    }),
    (FindingId::CheckpointInFuture, &[], |store| {
        store.edit_checkpoint(|checkpoint| checkpoint.physic_msg_timestamp = i64::MAX);
    }),
    (FindingId::ConfigUnreadable, &[], |store| {
        store.put("config/subscriptionGroup.json", &[0; 40]);
    }),
    (FindingId::ConfigTopicMissing, &[], |store| {
        store.put(
            "config/topics.json",
            br#"{"topicConfigTable":{"orders":{"topicName":"orders"}}}"#,
        );
    }),
];

/// The first messages of `orders/0` become those of a topic that was deleted: the later ones count from 0.
fn earlier_topic(store: &Store<'_>) {
    let (earlier, end) = (4, store.queue_end());
    let reader = crate::reading::open(store.0);
    let mut units = Vec::new();
    for offset in earlier..end {
        let message = reader.message_in_queue("orders", 0, offset).unwrap();
        let at = message.view().physical_offset() as usize;
        let (path, entry) = store.entry(offset);
        units.push(fs::read(path).unwrap()[entry..entry + CQ_UNIT_SIZE].to_vec());
        let moved = (offset - earlier).to_be_bytes();
        edit(&store.files("commitlog")[at / SEGMENT], |bytes| {
            bytes[at % SEGMENT + 20..at % SEGMENT + 28].copy_from_slice(&moved);
        });
    }
    for file in store.files("consumequeue/orders/0") {
        fs::remove_file(file).unwrap();
    }
    for (number, file) in units.chunks(5).enumerate() {
        let mut bytes = file.concat();
        bytes.resize(100, 0);
        store.put(
            &format!("consumequeue/orders/0/{}", segment_name(number as u64 * 100)),
            &bytes,
        );
    }
}

fn id_names(ids: &[FindingId]) -> BTreeSet<&'static str> {
    ids.iter().map(|id| id.facts().name).collect()
}

/// Makes a store for each row, and damages it.
fn for_each_damaged(mut look: impl FnMut(usize, &Row, &Path)) {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    append(&intact, OpenMode::New, 0..MESSAGES);
    assert_eq!(told(&verified(&intact)), "");
    for (number, row) in ROWS.iter().enumerate() {
        let root = dir.path().join(number.to_string());
        copy(&intact, &root);
        (row.2)(&Store(&root));
        look(number, row, &root);
        fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn each_damage_is_found_by_its_name_and_nothing_else_is() {
    assert_eq!(Family::of(Path::new("index/x")), Family::Index);
    assert_eq!(tiny().max_hash_slot_num, Some(10));
    let mut wrong = String::new();
    for_each_damaged(|number, (id, others, _), root| {
        let report = verified(root);
        let mut expected = id_names(others);
        expected.insert(id.facts().name);
        if names(&report) != expected {
            let _ = write!(wrong, "--- row {number}, {}:\n{}\n", id.facts().name, told(&report));
        }
    });
    assert_eq!(wrong, "");
}

#[test]
fn findings_and_their_order_do_not_depend_on_threads_and_sections() {
    for_each_damaged(|number, (id, ..), root| {
        let whole = verified_in(root, 1, i64::MAX);
        for (threads, bytes) in [(1, 700), (4, 700), (4, 5000)] {
            let parts = verified_in(root, threads, bytes);
            let of = |report: &VerifyReport| {
                let counts = (report.messages, report.queue_entries, report.index_items);
                (report.findings.clone(), report.covered.clone(), counts)
            };
            let name = id.facts().name;
            assert_eq!(
                of(&parts),
                of(&whole),
                "row {number}, {name}, {threads} threads, {bytes} bytes"
            );
        }
    });
}

#[test]
fn the_table_of_damages_has_every_finding() {
    let rows: BTreeSet<_> = ROWS.iter().map(|(id, _, _)| *id).collect();
    let all: BTreeSet<_> = FindingId::ALL.iter().copied().collect();
    let lacking: Vec<_> = all.difference(&rows).collect();
    assert_eq!(lacking, Vec::<&FindingId>::new());
}
