//! Finding by key and id in damaged stores: the answer is right and complete, or says that it is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{IndexGeometry, IndexItem, Message, PREPARED, encode_properties};
use mqstore::read::MessageReader;
use mqstore::remedy::Remedy;
use mqstore::storage::Env;
use tempfile::tempdir;

use super::{SEGMENT, corrupt_place, edit, edit_log, log_file, offsets_of, plain, put, query_all, resolved, write_checkpoint};
use crate::counting_env::CountingEnv;
use crate::reading::{open, open_with};
use crate::store_writer::StoreWriter;

fn with_geometry(slots: u64, items: u64) -> StoreConfig {
    StoreConfig {
        max_hash_slot_num: Some(slots),
        max_index_num: Some(items),
        ..StoreConfig::default()
    }
}

fn index_files(root: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(root.join("index"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Every tenth.
fn tens(offsets: &[i64]) -> Vec<i64> {
    offsets.iter().step_by(10).copied().collect()
}

#[test]
fn an_index_geometry_of_another_file_length_is_refused_by_both_lengths() {
    let dir = tempdir().unwrap();
    plain(dir.path(), 300).0.finish(true);
    let right = IndexGeometry { slots: 100, items: 400 }.file_len();
    for (slots, items) in [(100, 401), (101, 400), (5_000_000, 20_000_000), (1, 2)] {
        let asked =
            open_with(dir.path(), with_geometry(slots, items)).and_then(|reader| query_all(&reader, "orders", "k7", None));
        let Err(Error::Invalid { what }) = asked else {
            panic!("{slots} slots and {items} items were accepted: {asked:?}")
        };
        let wrong = IndexGeometry {
            slots: slots as u32,
            items: items as u32,
        }
        .file_len();
        assert!(
            what.contains(&right.to_string()) && what.contains(&wrong.to_string()),
            "{what} names not both {right} and {wrong}"
        );
    }
}

#[test]
fn an_index_geometry_of_equal_length_and_other_shape_gives_whole_answers() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 300);
    writer.finish(true);
    for step in (-19_i64..=40).filter(|step| *step != 0) {
        let (slots, items) = ((100 + 5 * step) as u64, (400 - step) as u64);
        let reader = match open_with(dir.path(), with_geometry(slots, items)) {
            Ok(reader) => reader,
            Err(Error::Invalid { .. }) => continue,
            Err(other) => panic!("{slots} slots and {items} items: {other}"),
        };
        let keys = ["ten", "k0", "k7", "k150", "k299", "U0", "U298"];
        for (key, expected) in keys.into_iter().zip([
            tens(&offsets),
            vec![offsets[0]],
            vec![offsets[7]],
            vec![offsets[150]],
            vec![offsets[299]],
            vec![offsets[0]],
            vec![offsets[298]],
        ]) {
            let case = format!("{slots} slots and {items} items, key {key}");
            match query_all(&reader, "orders", key, None) {
                Ok(result) => assert!(offsets_of(&result) == expected || !result.complete, "{case}"),
                Err(error) => assert!(matches!(error, Error::Invalid { .. }), "{case}: {error}"),
            }
            match resolved(&reader, key) {
                Ok(hits) => assert_eq!(hits, expected, "{case}"),
                Err(error) => assert!(matches!(error, Error::Invalid { .. }), "{case}: {error}"),
            }
        }
    }
    let reader = open_with(dir.path(), with_geometry(100, 400)).unwrap();
    assert_eq!(
        resolved(&reader, "ten").unwrap(),
        tens(&offsets),
        "the right shape is accepted"
    );
}

#[test]
fn an_offset_id_that_points_at_a_damaged_record_is_damage() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 300);
    writer.finish(true);
    let at = offsets[150];
    let id = open(dir.path()).message_at(at).unwrap().view().message_id().to_string();
    edit_log(dir.path(), at, |bytes| bytes[90] ^= 1);
    let reader = open(dir.path());
    let (path, place) = corrupt_place(reader.message(&id, true).unwrap_err());
    assert_eq!(
        corrupt_place(reader.message("U150", false).unwrap_err()),
        (path.clone(), place)
    );
    assert_eq!(path, log_file(dir.path(), at - at % SEGMENT));
    assert!((at % SEGMENT..at % SEGMENT + 200).contains(&(place as i64)));
    assert_eq!(reader.message("U151", true).unwrap().view().physical_offset(), offsets[151]);
}

#[test]
fn the_unique_key_of_a_half_message_whose_topic_has_no_queue_is_found() {
    for index in [true, false] {
        let dir = tempdir().unwrap();
        let mut writer = StoreWriter::small(dir.path());
        put(&mut writer, "orders", 0);
        let half = writer.append(Message {
            topic: "half".into(),
            sys_flag: PREPARED,
            body: b"x".into(),
            properties: encode_properties([("UNIQ_KEY", "HALF")], true).unwrap().into(),
            ..Message::default()
        });
        put(&mut writer, "orders", 1);
        writer.finish(true);
        fs::remove_dir_all(dir.path().join("consumequeue/half")).unwrap();
        if !index {
            fs::remove_dir_all(dir.path().join("index")).unwrap();
        }
        let reader = open(dir.path());
        assert_eq!(reader.topics().unwrap(), ["orders"]);
        let refused = reader.message("HALF", false).unwrap_err();
        assert_eq!(refused.remedy(), Some(Remedy::WalkLog));
        assert!(refused.to_string().contains("is not an offset id"), "{refused}");
        assert_eq!(
            reader.message("HALF", true).unwrap().view().physical_offset(),
            half,
            "index {index}"
        );
    }
}

#[test]
fn no_message_at_or_past_the_end_of_the_log_is_found_by_key() {
    for late_checkpoint in [true, false] {
        let dir = tempdir().unwrap();
        let (writer, offsets) = plain(dir.path(), 300);
        writer.finish(false);
        if late_checkpoint {
            write_checkpoint(dir.path(), writer.last_store_time + 60_000);
        }
        // The log ends in its last segment; whole records, and the index, continue after that position.
        let last_segment = offsets[299] - offsets[299] % SEGMENT;
        let n = offsets.iter().position(|offset| *offset > last_segment).unwrap() + 4;
        edit_log(dir.path(), offsets[n], |bytes| bytes[90] ^= 1);
        let reader = open(dir.path());
        assert_eq!(reader.recovery().log_end, offsets[n]);
        let kept: Vec<i64> = tens(&offsets).into_iter().filter(|offset| *offset < offsets[n]).collect();
        assert!(kept.len() < tens(&offsets).len());
        for limit in [None, Some(64)] {
            let result = query_all(&reader, "orders", "ten", limit).unwrap();
            assert_eq!(offsets_of(&result), kept);
            assert!(result.covers.end <= offsets[n]);
        }
        assert_eq!(resolved(&reader, "ten").unwrap(), kept);
        for n in n..300 {
            let found = query_all(&reader, "orders", &format!("k{n}"), None).unwrap();
            assert!(found.hits.is_empty());
            assert!(matches!(reader.message(&format!("U{n}"), true), Err(Error::NotFound { .. })));
        }
    }
}

#[test]
fn an_index_item_that_points_between_records_makes_its_stretch_be_walked() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 300);
    writer.finish(true);
    let path = index_files(dir.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let geometry = IndexGeometry { slots: 100, items: 400 };
    let item_at = |number: u32| geometry.item_position(number) as usize;
    // Each of the first messages has put U, k and, every tenth, "ten": items 1, 2, 3 are message 0's, 4 and 5 message 1's.
    for (number, key, expected) in [
        (3, "ten", tens(&offsets)),
        (5, "k1", vec![offsets[1]]),
        (4, "U1", vec![offsets[1]]),
    ] {
        for moved in [1, -1, 17, 1 << 40] {
            fs::write(&path, &whole).unwrap();
            edit(&path, |image| {
                let place = item_at(number)..item_at(number) + 20;
                let item = IndexItem::decode(image[place.clone()].try_into().unwrap());
                let item = IndexItem {
                    physical_offset: item.physical_offset + moved,
                    ..item
                };
                image[place].copy_from_slice(&item.encode());
            });
            for config in [StoreConfig::default(), with_geometry(100, 400)] {
                let reader = open_with(dir.path(), config).unwrap();
                let case = format!("item {number} moved by {moved}");
                let result = query_all(&reader, "orders", key, None).unwrap();
                assert_eq!((offsets_of(&result), result.complete), (expected.clone(), true), "{case}");
                assert_eq!(resolved(&reader, key).unwrap(), expected, "{case}");
                assert_eq!(
                    reader.message("U1", true).unwrap().view().physical_offset(),
                    offsets[1],
                    "{case}"
                );
            }
        }
    }
}

#[test]
fn a_limit_bounds_what_a_query_reads() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 30_000, 1000, 40_000);
    let offsets: Vec<i64> = (0..30_000)
        .map(|n| writer.put("orders", 0, format!("body {n}").as_bytes(), &[("KEYS", "hot")]))
        .collect();
    writer.finish(true);
    let counting = CountingEnv::new();
    let env: Arc<dyn Env> = Arc::new(counting.clone());
    let reader = MessageReader::open(&env, dir.path(), StoreConfig::default()).unwrap();
    let log = dir.path().join("commitlog");
    let before = counting.bytes_read_below(&log);
    let result = query_all(&reader, "orders", "hot", Some(2)).unwrap();
    assert_eq!(offsets_of(&result), offsets[29_998..]);
    let read = counting.bytes_read_below(&log) - before;
    assert!(read < 10_000, "{read} bytes of the log were read for two messages");
}

/// A closed store of 60 messages in index files of 20 keys, so that the keys of some messages are split between two files; and
/// one of these files.
fn with_tiny_index(root: &Path, number: usize) -> (Vec<i64>, PathBuf) {
    let mut writer = StoreWriter::new(root, 16384, 50, 100, 21);
    let offsets = (0..60).map(|n| put(&mut writer, "orders", n)).collect();
    writer.finish(true);
    (offsets, index_files(root).remove(number))
}

/// Every key is found, by query and in bulk, with each way to know the geometry.
fn assert_every_key_is_found(root: &Path, offsets: &[i64], case: &str) {
    for config in [StoreConfig::default(), with_geometry(100, 21)] {
        let reader = open_with(root, config).unwrap();
        for (n, offset) in offsets.iter().enumerate() {
            for key in [format!("k{n}"), format!("U{n}")] {
                let result = query_all(&reader, "orders", &key, None).unwrap();
                assert_eq!((offsets_of(&result), result.complete), (vec![*offset], true), "{case}: {key}");
                assert_eq!(resolved(&reader, &key).unwrap(), [*offset], "{case}: {key}");
            }
        }
    }
}

const TINY: IndexGeometry = IndexGeometry { slots: 100, items: 21 };

fn edit_item(path: &Path, number: u32, change: impl FnOnce(&mut IndexItem)) {
    let at = TINY.item_position(number) as usize;
    edit(path, |image| {
        let mut item = IndexItem::decode(image[at..at + 20].try_into().unwrap());
        change(&mut item);
        image[at..at + 20].copy_from_slice(&item.encode());
    });
}

#[test]
fn keys_split_between_a_damaged_index_file_and_the_next_are_found() {
    for number in 0..3 {
        let dir = tempdir().unwrap();
        let (offsets, path) = with_tiny_index(dir.path(), number);
        edit_item(&path, 10, |item| item.time_diff = -1);
        assert_every_key_is_found(dir.path(), &offsets, &format!("file {number}"));
    }
}

#[test]
fn an_index_item_to_a_message_without_its_key_causes_a_log_walk() {
    let dir = tempdir().unwrap();
    let (offsets, path) = with_tiny_index(dir.path(), 1);
    edit_item(&path, 7, |item| item.physical_offset = offsets[13]);
    assert_every_key_is_found(dir.path(), &offsets, "item 7");
}

#[test]
fn an_index_file_whose_header_is_not_that_of_its_items_is_not_used() {
    for number in [0, 1, 4] {
        for (at, len) in [(16, 8), (24, 8), (36, 4)] {
            for bit in 0..len * 8 {
                let dir = tempdir().unwrap();
                let (offsets, path) = with_tiny_index(dir.path(), number);
                edit(&path, |image| image[at + bit / 8] ^= 0x80 >> (bit % 8));
                assert_every_key_is_found(dir.path(), &offsets, &format!("file {number}, byte {at}, bit {bit}"));
            }
        }
    }
}
