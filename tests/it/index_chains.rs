//! Chains of an index file: how they grow, and how far a query follows them. A broken chain neither delays a query nor changes
//! its answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mqstore::config::{Errors, StoreConfig};
use mqstore::format::{INDEX_HEADER_SIZE, ITEM_SIZE, IndexGeometry, IndexHeader, IndexItem, index_key_hash};
use mqstore::read::HitBounds;
use tempfile::tempdir;

use crate::child::on_core;
use crate::queries::offsets_by_key;
use crate::reading::{open, open_with};
use crate::store_writer::StoreWriter;

/// The geometry of [`StoreWriter::small`].
const SMALL: IndexGeometry = IndexGeometry { slots: 100, items: 400 };

/// Different keys with one hash: in Java `"Aa"` and `"BB"` have the same hash, and so has every sequence of them.
fn colliding_keys() -> Vec<String> {
    let half = |bit: bool| if bit { "BB" } else { "Aa" };
    (0..10_u8)
        .map(|n| (0..4).map(|bit| half(n >> bit & 1 == 1)).collect())
        .collect()
}

fn only_index_file(root: &Path) -> PathBuf {
    let mut files = fs::read_dir(root.join("index")).unwrap();
    let path = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    path
}

fn item_of(image: &[u8], number: i32) -> IndexItem {
    let at = SMALL.item_position(number as u32) as usize;
    IndexItem::decode(image[at..at + ITEM_SIZE].try_into().unwrap())
}

fn set_item(image: &mut [u8], number: i32, item: IndexItem) {
    let at = SMALL.item_position(number as u32) as usize;
    image[at..at + ITEM_SIZE].copy_from_slice(&item.encode());
}

fn slot(image: &mut [u8], key_hash: i32) -> &mut [u8; 4] {
    let at = SMALL.slot_position(SMALL.slot_of(key_hash)) as usize;
    (&mut image[at..at + 4]).try_into().unwrap()
}

#[test]
fn ten_colliding_keys_form_one_chain_newest_first_from_their_slot() {
    let keys = colliding_keys();
    let hash = index_key_hash("orders", &keys[0]);
    assert!(keys.iter().all(|key| index_key_hash("orders", key) == hash));
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let offsets: Vec<i64> = keys
        .iter()
        .map(|key| writer.put("orders", 0, b"x", &[("KEYS", key)]))
        .collect();
    writer.finish(true);

    let mut image = fs::read(only_index_file(dir.path())).unwrap();
    let header = IndexHeader::decode(image[..INDEX_HEADER_SIZE].try_into().unwrap());
    assert_eq!((header.slot_count, header.index_count), (1, 11));
    let mut number = i32::from_be_bytes(*slot(&mut image, hash));
    assert_eq!(number, 10, "the slot holds the last item");
    let mut chain = Vec::new();
    while number != 0 {
        let item = item_of(&image, number);
        assert_eq!(item.key_hash, hash);
        chain.push(item.physical_offset);
        number = item.previous;
    }
    let newest_first: Vec<i64> = offsets.iter().rev().copied().collect();
    assert_eq!(chain, newest_first);

    let reader = open(dir.path());
    for (key, offset) in keys.iter().zip(offsets) {
        assert_eq!(offsets_by_key(&reader, key, None), [offset], "{key}");
    }
}

#[test]
fn of_200_hits_a_limit_gives_the_newest_ascending_and_no_limit_gives_all() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let mut hits = Vec::new();
    for n in 0..600 {
        let key = format!("k{n}");
        if n % 3 == 0 {
            hits.push(writer.put("orders", n % 4, b"x", &[("KEYS", "hot")]));
        } else {
            writer.put("orders", n % 4, b"x", &[("KEYS", &key)]);
        }
    }
    writer.finish(true);
    assert_eq!(hits.len(), 200);
    let reader = open(dir.path());
    assert_eq!(offsets_by_key(&reader, "hot", Some(64)), hits[136..]);
    assert_eq!(offsets_by_key(&reader, "hot", Some(1)), hits[199..]);
    assert_eq!(offsets_by_key(&reader, "hot", Some(200)), hits);
    assert_eq!(offsets_by_key(&reader, "hot", Some(1000)), hits);
    assert_eq!(offsets_by_key(&reader, "hot", None), hits);
}

/// Damages of an item in the middle of a chain, by the item's number.
type Breakage = (&'static str, fn(i32, IndexItem) -> IndexItem);

const BREAKAGES: [Breakage; 8] = [
    ("a link to itself", |number, item| IndexItem {
        previous: number,
        ..item
    }),
    ("a link to a newer item", |number, item| IndexItem {
        previous: number + 3,
        ..item
    }),
    ("a link past the last item", |_, item| IndexItem { previous: 399, ..item }),
    ("a link beyond the file", |_, item| IndexItem {
        previous: i32::MAX,
        ..item
    }),
    ("a negative link", |_, item| IndexItem { previous: -7, ..item }),
    ("the lowest link", |_, item| IndexItem {
        previous: i32::MIN,
        ..item
    }),
    ("a negative time", |_, item| IndexItem { time_diff: -1, ..item }),
    ("the lowest time", |_, item| IndexItem {
        time_diff: i32::MIN,
        ..item
    }),
];

/// Asks every question twice: of a reader that finds the geometry, and of a reader that gets it and must follow the chain.
fn assert_answers_stay(root: &Path, what: &str, hot: &[i64]) {
    let given = StoreConfig {
        max_hash_slot_num: Some(100),
        max_index_num: Some(400),
        ..StoreConfig::default()
    };
    for config in [StoreConfig::default(), given] {
        let started = on_core();
        let reader = open_with(root, config).unwrap();
        assert_eq!(offsets_by_key(&reader, "hot", None), hot, "{what}");
        assert_eq!(offsets_by_key(&reader, "hot", Some(5)), hot[hot.len() - 5..], "{what}");
        let hits = reader
            .resolve_keys(&[("orders", "hot")], &HitBounds::default(), Errors::Raise)
            .unwrap();
        let hits: Vec<i64> = hits.of(0).iter().map(|hit| hit.physical_offset).collect();
        assert_eq!(hits, hot, "{what}");
        let took = on_core().saturating_sub(started);
        assert!(took < Duration::from_secs(2), "{what}: {took:?}");
    }
}

#[test]
fn broken_index_chains_end_and_cost_no_answer() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let mut hot = Vec::new();
    for n in 0..300 {
        let key = if n % 3 == 0 { "hot".to_owned() } else { format!("k{n}") };
        let offset = writer.put("orders", 0, b"x", &[("KEYS", &key)]);
        if n % 3 == 0 {
            hot.push(offset);
        }
    }
    writer.finish(true);
    let path = only_index_file(dir.path());
    let whole = fs::read(&path).unwrap();
    for (what, broken) in BREAKAGES {
        // Item n + 1 is message n's; 151 is hot and in the middle, 298 is hot and the newest, 1 is hot and the oldest.
        for number in [1, 151, 298] {
            let mut image = whole.clone();
            let item = item_of(&image, number);
            set_item(&mut image, number, broken(number, item));
            fs::write(&path, image).unwrap();
            assert_answers_stay(dir.path(), &format!("{what} in item {number}"), &hot);
        }
    }
    for head in [-1, 301, 350, 400, i32::MIN, i32::MAX] {
        let mut image = whole.clone();
        *slot(&mut image, index_key_hash("orders", "hot")) = head.to_be_bytes();
        fs::write(&path, image).unwrap();
        assert_answers_stay(dir.path(), &format!("a slot that holds {head}"), &hot);
    }
}

#[test]
fn two_items_that_link_to_each_other_end_and_cost_no_answer() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let hot: Vec<i64> = (0..20).map(|_| writer.put("orders", 0, b"x", &[("KEYS", "hot")])).collect();
    writer.finish(true);
    let path = only_index_file(dir.path());
    let mut image = fs::read(&path).unwrap();
    let item = item_of(&image, 5);
    set_item(&mut image, 5, IndexItem { previous: 20, ..item });
    fs::write(&path, image).unwrap();
    assert_answers_stay(dir.path(), "a circle", &hot);
}

#[test]
fn a_zeroed_item_does_not_end_a_chain_of_the_slot_of_hash_0() {
    let key = (0..1000)
        .map(|n| format!("k{n}"))
        .find(|key| SMALL.slot_of(index_key_hash("orders", key)) == 0)
        .unwrap();
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let offsets: Vec<i64> = (0..10).map(|_| writer.put("orders", 0, b"x", &[("KEYS", &key)])).collect();
    writer.finish(true);
    // A reader that has checked the whole file does not check it again.
    let used = open(dir.path());
    assert_eq!(offsets_by_key(&used, &key, None), offsets);
    let path = only_index_file(dir.path());
    let mut image = fs::read(&path).unwrap();
    set_item(&mut image, 5, IndexItem::decode(&[0; ITEM_SIZE]));
    fs::write(path, image).unwrap();
    assert_eq!(offsets_by_key(&used, &key, None), offsets);
    assert_eq!(offsets_by_key(&open(dir.path()), &key, None), offsets);
}

#[test]
fn a_file_zeroed_or_cut_under_a_reader_that_has_used_it_hides_no_key() {
    for is_cut in [false, true] {
        let dir = tempdir().unwrap();
        let mut writer = StoreWriter::small(dir.path());
        let offsets: Vec<i64> = (0..300)
            .map(|n| writer.put("orders", 0, b"x", &[("KEYS", &format!("k{n}"))]))
            .collect();
        writer.finish(true);
        let reader = open(dir.path());
        assert_eq!(offsets_by_key(&reader, "k7", None), [offsets[7]]);
        let path = only_index_file(dir.path());
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let len = file.metadata().unwrap().len();
        file.set_len(0).unwrap();
        if !is_cut {
            file.set_len(len).unwrap();
        }
        for n in [7, 8, 299] {
            assert_eq!(
                offsets_by_key(&reader, &format!("k{n}"), None),
                [offsets[n]],
                "k{n}, cut: {is_cut}"
            );
        }
        let wanted: Vec<(&str, &str)> = vec![("orders", "k9"), ("orders", "k10")];
        let hits = reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Raise).unwrap();
        assert_eq!((hits.of(0).len(), hits.of(1).len()), (1, 1), "cut: {is_cut}");
    }
}
