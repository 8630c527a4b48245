//! Bulk reads of a store with lost or damaged messages: raise at the first, or skip and count.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use mqstore::config::{Errors, Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::segment_name;
use mqstore::read::{Filled, GetRequest, HitBounds, MessageReader, OffsetResolver, OnDamage, QueueScan, Scan, Side, TagFilter};
use mqstore::remedy::Remedy;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::{TempDir, tempdir};

use crate::reading::{open, open_with};
use crate::store_writer::StoreWriter;

pub const SEGMENT: i64 = 16384;
pub const MESSAGES: i64 = 700;

/// A store of 700 messages in orders/0, keys k0, k1 ..., all tagged; bits of the bodies of `damaged` are flipped.
pub struct Damaged {
    dir: TempDir,
    pub offsets: Vec<i64>,
    /// Numbers of the damaged messages.
    numbers: Vec<i64>,
}

impl Damaged {
    pub fn new(damaged: &[i64]) -> Self {
        Self::of(MESSAGES, damaged)
    }

    /// The number of messages.
    pub fn of(count: i64, damaged: &[i64]) -> Self {
        let dir = tempdir().unwrap();
        let mut writer = StoreWriter::small(dir.path());
        let put = |n: i64| {
            let (body, key) = (format!("body {n}"), format!("k{n}"));
            writer.put("orders", 0, body.as_bytes(), &[("KEYS", &key), ("TAGS", "tag")])
        };
        let offsets: Vec<i64> = (0..count).map(put).collect();
        writer.finish(true);
        for n in damaged {
            let (start, at) = (offsets[*n as usize] / SEGMENT * SEGMENT, offsets[*n as usize] % SEGMENT);
            let path = dir.path().join("commitlog").join(segment_name(start as u64));
            let mut bytes = fs::read(&path).unwrap();
            bytes[at as usize + 90] ^= 1;
            fs::write(path, bytes).unwrap();
        }
        Self {
            dir,
            offsets,
            numbers: damaged.to_vec(),
        }
    }

    /// The store after a salvage: damaged messages are now lost. All derived files are made again.
    pub fn salvaged(damaged: &[i64]) -> Self {
        let store = Self::new(damaged);
        fs::write(store.path().join("abort"), "").unwrap();
        fs::remove_dir_all(store.path().join("index")).unwrap();
        let config = StoreConfig {
            recovery: Recovery::Salvage,
            max_hash_slot_num: Some(100),
            max_index_num: Some(400),
            ..StoreConfig::default()
        };
        let env: Arc<dyn Env> = Arc::new(RealEnv::new());
        let writer = MessageStore::open(&env, store.path(), config, OpenMode::Existing).unwrap();
        assert!(!writer.reader().recovery().lost.is_empty());
        writer.close().unwrap();
        store
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Gives the record of a message another length.
    pub fn put_length(&self, n: usize, length: i32) {
        self.edit(n, |record| record[..4].copy_from_slice(&length.to_be_bytes()));
    }

    /// Edits the record of a message, and what follows it in its segment.
    pub fn edit(&self, n: usize, change: impl FnOnce(&mut [u8])) {
        let (start, at) = (self.offsets[n] / SEGMENT * SEGMENT, self.offsets[n] % SEGMENT);
        let path = self.path().join("commitlog").join(segment_name(start as u64));
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes[at as usize..]);
        fs::write(path, bytes).unwrap();
    }

    fn left(&self) -> Vec<i64> {
        (0..MESSAGES).filter(|n| !self.numbers.contains(n)).collect()
    }
}

pub const DAMAGED: [i64; 6] = [0, 120, 121, 122, 349, 698];

fn both() -> [Damaged; 2] {
    [Damaged::new(&DAMAGED), Damaged::salvaged(&DAMAGED)]
}

fn scan(reader: &Arc<MessageReader>) -> QueueScan {
    QueueScan::new(reader.clone(), "orders".to_owned(), 0, 0..i64::MAX).unwrap()
}

/// The queue offsets that a pass gives before it stops, and why it stops.
fn fill(scan: &mut Scan) -> (Vec<i64>, Filled) {
    let mut found = Vec::new();
    let filled = scan.fill(|picked| {
        found.push(picked.view.queue_offset());
        Ok(true)
    });
    (found, filled.unwrap())
}

fn request(offset: i64, errors: Errors) -> GetRequest {
    GetRequest {
        topic: "orders".to_owned(),
        queue_id: 0,
        offset,
        max_messages: 1000,
        tags: TagFilter::default(),
        bounded: false,
        errors,
    }
}

/// Returns true if reading past damage helps.
fn helps_to_skip(error: &Error) -> bool {
    matches!(error.remedy(), Some(Remedy::Skip | Remedy::SkipOrSalvage))
}

#[test]
fn a_scan_skips_and_counts_what_was_lost_or_is_damaged_from_either_end() {
    for store in both() {
        let reader = open(store.path());
        let on_damage = OnDamage::new(Errors::Skip);
        let forward = scan(&reader).on_damage(on_damage.clone());
        let found: Vec<i64> = forward.map(|message| message.unwrap().view().queue_offset()).collect();
        assert_eq!(found, store.left());
        assert_eq!(on_damage.skipped(), 6);
        let on_damage = OnDamage::new(Errors::Skip);
        let backward = scan(&reader).on_damage(on_damage.clone()).rev();
        let mut found: Vec<i64> = backward.map(|message| message.unwrap().view().queue_offset()).collect();
        found.reverse();
        assert_eq!(found, store.left());
        assert_eq!(on_damage.skipped(), 6);
    }
}

#[test]
fn a_scan_raises_at_the_first_damage_unless_the_store_skips_damage() {
    for store in both() {
        let error = scan(&open(store.path())).next().unwrap().unwrap_err();
        assert!(helps_to_skip(&error), "{error}");
        let config = StoreConfig {
            errors: Errors::Skip,
            ..StoreConfig::default()
        };
        let reader = open_with(store.path(), config).unwrap();
        assert_eq!(scan(&reader).flatten().count(), 694);
        assert_eq!(scan(&reader).filter(Result::is_err).count(), 0);
    }
}

#[test]
fn a_get_skips_and_counts_or_raises_and_names_the_option() {
    for store in both() {
        let reader = open(store.path());
        let result = reader.get::<Error>(&request(0, Errors::Skip), |_| Ok(true)).unwrap();
        let found: Vec<i64> = result.messages.iter().map(|message| message.view().queue_offset()).collect();
        assert_eq!(found, store.left());
        assert_eq!((result.skipped, result.next_begin_offset), (6, MESSAGES));
        let tagged = GetRequest {
            tags: TagFilter::parse("tag"),
            ..request(0, Errors::Skip)
        };
        let result = reader.get::<Error>(&tagged, |_| Ok(true)).unwrap();
        assert_eq!(
            (result.skipped, result.messages.len()),
            (6, 694),
            "what was lost may have had the tag"
        );
        let error = reader.get::<Error>(&request(100, Errors::Raise), |_| Ok(true)).unwrap_err();
        assert!(helps_to_skip(&error), "{error}");
        let one = GetRequest {
            max_messages: 1,
            bounded: true,
            ..request(120, Errors::Skip)
        };
        let result = reader.get::<Error>(&one, |_| Ok(true)).unwrap();
        assert_eq!((result.messages.len(), result.skipped, result.next_begin_offset), (1, 3, 124));
    }
}

#[test]
fn a_get_by_tag_raises_or_counts_where_the_entry_has_another_code() {
    let store = Damaged::new(&[]);
    // The last byte of the tag.
    store.edit(120, |record| record[122] ^= 1);
    let reader = open(store.path());
    let tagged = |errors| GetRequest {
        tags: TagFilter::parse("tag"),
        ..request(0, errors)
    };
    let error = reader.get::<Error>(&tagged(Errors::Raise), |_| Ok(true)).unwrap_err();
    assert!(helps_to_skip(&error), "{error}");
    let result = reader.get::<Error>(&tagged(Errors::Skip), |_| Ok(true)).unwrap();
    assert_eq!((result.messages.len(), result.skipped), (699, 1));
    let all = reader.get::<Error>(&request(0, Errors::Raise), |_| Ok(true)).unwrap();
    assert_eq!(all.messages.len(), 700, "without tags the code does not matter");
}

#[test]
fn unreadable_records_at_given_offsets_are_skipped_and_counted() {
    for store in both() {
        let reader = open(store.path());
        let offsets: Vec<i64> = store.offsets.iter().copied().chain([-1, 7, i64::MAX]).collect();
        let on_damage = OnDamage::new(Errors::Skip);
        let (found, filled) = fill(&mut Scan::of_records(reader.clone(), &offsets, on_damage.clone()));
        assert_eq!(found, store.left());
        assert!(matches!(filled, Filled::End), "{filled:?}");
        assert_eq!(on_damage.skipped(), 9);
        let mut raising = Scan::of_records(reader, &offsets, OnDamage::new(Errors::Raise));
        let (found, filled) = fill(&mut raising);
        assert!(found.is_empty(), "the first one is damaged: {found:?}");
        let Filled::Stopped(error) = filled else {
            panic!("{filled:?}")
        };
        assert!(helps_to_skip(&error), "{error}");
        let (found, _) = fill(&mut raising);
        assert_eq!(found.first(), Some(&1), "a pass continues after damage");
    }
}

#[test]
fn lost_messages_and_those_of_damaged_entries_have_no_position() {
    let store = Damaged::salvaged(&DAMAGED);
    let first = store.path().join("consumequeue/orders/0").join(segment_name(0));
    let mut bytes = fs::read(&first).unwrap();
    bytes[20 * 7..20 * 8].fill(0xFF);
    fs::write(first, bytes).unwrap();
    let reader = open(store.path());
    let mut resolver = OffsetResolver::new(&reader);
    for n in 0..MESSAGES {
        assert_eq!(reader.position("orders", 0, n).is_err(), n == 7, "{n}");
        let position = resolver.position("orders", 0, n).unwrap();
        assert_eq!(position.is_none(), n == 7 || DAMAGED.contains(&n), "{n}: {position:?}");
    }
}

#[test]
fn a_lookup_by_time_passes_over_what_cannot_be_read() {
    let wide: Vec<i64> = (300..420).collect();
    for store in [Damaged::new(&wide), Damaged::salvaged(&wide)].into_iter().chain(both()) {
        let config = StoreConfig {
            errors: Errors::Skip,
            ..StoreConfig::default()
        };
        let reader = open_with(store.path(), config).unwrap();
        let left = store.left();
        for n in -1..=MESSAGES {
            for side in [Side::Left, Side::Right] {
                let wanted = n + i64::from(side == Side::Right);
                let expected = left.iter().find(|offset| **offset >= wanted).unwrap_or(&MESSAGES);
                let time = 1_700_000_000_010 + 10 * n;
                assert_eq!(reader.offset_at("orders", 0, time, side).unwrap(), *expected, "{n} {side:?}");
            }
        }
    }
}

#[test]
fn keys_are_resolved_past_damaged_messages_only_where_that_is_asked_for() {
    let store = Damaged::new(&DAMAGED);
    let wanted = [("orders", "k120"), ("orders", "k123"), ("orders", "k122")];
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(store.path().join("index")).unwrap();
        }
        let reader = open(store.path());
        let hits = reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Skip).unwrap();
        assert_eq!(hits.of(1).len(), 1, "with an index: {with_index}");
        // A walk compares no checksum: it gives what the record says of its keys.
        assert_eq!(hits.of(0).len(), usize::from(!with_index));
        if with_index {
            let error = reader
                .resolve_keys(&wanted, &HitBounds::default(), Errors::Raise)
                .unwrap_err();
            assert!(helps_to_skip(&error), "{error}");
        }
    }
    // Lengths that cannot be right end the walk of a segment.
    store.put_length(300, 7);
    let wanted = [("orders", "k1"), ("orders", "k300"), ("orders", "k301"), ("orders", "k699")];
    let reader = open(store.path());
    assert!(matches!(
        reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Raise),
        Err(Error::Corrupt { .. })
    ));
    let hits = reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Skip).unwrap();
    assert_eq!(
        hits.iter().map(<[_]>::len).collect::<Vec<_>>(),
        [1, 0, 1, 1],
        "queues lead past damage"
    );
}

#[test]
fn missing_queue_files_and_segments_are_skipped_whole_and_counted() {
    let store = Damaged::new(&[]);
    fs::remove_file(store.path().join("consumequeue/orders/0").join(segment_name(2000))).unwrap();
    fs::remove_file(store.path().join("commitlog").join(segment_name(2 * SEGMENT as u64))).unwrap();
    let reader = open(store.path());
    let is_left = |n: &i64| !(100..150).contains(n) && store.offsets[*n as usize] / SEGMENT != 2;
    let expected: Vec<i64> = (0..MESSAGES).filter(is_left).collect();
    for backward in [false, true] {
        let on_damage = OnDamage::new(Errors::Skip);
        let skipping = scan(&reader).on_damage(on_damage.clone());
        let number = |message: mqstore::error::Result<mqstore::read::StoredMessage>| message.unwrap().view().queue_offset();
        let mut found: Vec<i64> = if backward {
            skipping.rev().map(number).collect()
        } else {
            skipping.map(number).collect()
        };
        found.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(on_damage.skipped(), MESSAGES as u64 - expected.len() as u64);
    }
}
