//! Queries of a store with lost or damaged messages, and of a log that is not whole: an error, or an answer that names its gaps.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use mqstore::config::{Errors, Recovery, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{INDEX_HEADER_SIZE, IndexHeader, segment_name};
use mqstore::read::{HitBounds, MessageReader, QueryBy, QueryHits, QueryRequest, QueryResult};
use mqstore::remedy::Remedy;
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode};
use tempfile::tempdir;

use crate::queries::by_key;
use crate::reading::open;
use crate::skipping::{DAMAGED, Damaged, MESSAGES, SEGMENT};
use crate::store_writer::StoreWriter;

fn asked(reader: &MessageReader, key: &str, errors: Errors) -> Result<QueryResult, Error> {
    let request = QueryRequest {
        errors,
        ..by_key("orders", key)
    };
    reader.query(&request)
}

fn query(reader: &MessageReader, key: &str) -> QueryResult {
    asked(reader, key, Errors::Skip).unwrap()
}

/// Returns the position and the text of the damage that a call found.
fn damage(asked: Result<QueryResult, Error>) -> (PathBuf, u64, Option<Remedy>) {
    match asked {
        Err(Error::Corrupt {
            path, offset, remedy, ..
        }) => (path, offset, remedy),
        other => panic!("no damage was reported: {other:?}"),
    }
}

#[test]
fn a_query_over_what_was_lost_is_incomplete_with_and_without_an_index() {
    let store = Damaged::salvaged(&[120]);
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(store.path().join("index")).unwrap();
        }
        let reader = open(store.path());
        for n in [0, 119, 120, 121, 699] {
            let result = query(&reader, &format!("k{n}"));
            assert_eq!(result.hits.len(), usize::from(n != 120), "k{n}, index: {with_index}");
            assert!(!result.complete, "k{n}, index: {with_index}");
            assert_eq!(result.skipped, 1, "k{n}, index: {with_index}");
            // Nothing brings back what was lost: that is not an error.
            let raising = asked(&reader, &format!("k{n}"), Errors::Raise).unwrap();
            assert_eq!(
                (raising.hits.len(), raising.complete, raising.skipped),
                (result.hits.len(), false, 1),
                "k{n}"
            );
        }
        let hits = reader
            .resolve_keys(
                &[("orders", "k120"), ("orders", "k121")],
                &HitBounds::default(),
                Errors::Raise,
            )
            .unwrap();
        assert_eq!((hits.of(0).len(), hits.of(1).len()), (0, 1));
        assert!(reader.message("k120", true).is_err());
    }
    let whole = Damaged::new(&[]);
    assert!(query(&open(whole.path()), "k120").complete);
}

#[test]
fn a_query_that_its_limit_cut_says_so_and_covers_what_it_gives() {
    let store = Damaged::new(&[]);
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(store.path().join("index")).unwrap();
        }
        let reader = open(store.path());
        let by_tag = |limit| {
            let request = QueryRequest {
                by: QueryBy::Tag("tag".to_owned()),
                limit,
                ..by_key("orders", "")
            };
            reader.query(&request).unwrap()
        };
        for (limit, complete) in [
            (None, true),
            (Some(701), true),
            (Some(700), true),
            (Some(699), false),
            (Some(0), false),
        ] {
            let result = by_tag(limit);
            let first = MESSAGES as usize - result.hits.len();
            assert_eq!(result.hits.len(), limit.unwrap_or(700).min(700));
            assert_eq!(result.complete, complete, "limit {limit:?}, index: {with_index}");
            let start = store.offsets.get(first).copied().unwrap_or(reader.physical_bounds().end);
            assert_eq!(result.covers, start..reader.physical_bounds().end, "limit {limit:?}");
        }
    }
}

#[test]
fn a_query_of_a_shortened_log_is_incomplete_with_and_without_an_index() {
    let store = Damaged::new(&[]);
    let last = store.offsets[699] / SEGMENT * SEGMENT;
    fs::remove_file(store.path().join("commitlog").join(segment_name(last as u64))).unwrap();
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(store.path().join("index")).unwrap();
        }
        let reader = open(store.path());
        assert!(reader.recovery().missing.is_some());
        for key in ["k1", "k699"] {
            assert!(!query(&reader, key).complete, "{key}, index: {with_index}");
        }
    }
}

/// Same as `Damaged::salvaged`, with the index files of before.
fn salvaged_with_its_index(damaged: &[i64]) -> Damaged {
    let store = Damaged::new(damaged);
    fs::write(store.path().join("abort"), "").unwrap();
    let config = StoreConfig {
        recovery: Recovery::Salvage,
        ..StoreConfig::default()
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let writer = MessageStore::open(&env, store.path(), config, OpenMode::Existing).unwrap();
    writer.close().unwrap();
    store
}

#[test]
fn a_salvage_at_the_end_of_an_index_file_leaves_its_other_keys_findable() {
    let ends = ends_of_index_files(&Damaged::new(&[]));
    assert!(!ends.is_empty());
    for end in ends {
        for lost in [
            vec![end],
            vec![end - 1, end],
            vec![end, end + 1],
            (end - 5..end + 5).collect(),
        ] {
            let store = salvaged_with_its_index(&lost);
            let reader = open(store.path());
            for n in [0, end - 6, end - 1, end, end + 1, end + 6, MESSAGES - 1] {
                for errors in [Errors::Raise, Errors::Skip] {
                    let found = asked(&reader, &format!("k{n}"), errors).unwrap();
                    assert_eq!(found.hits.len(), usize::from(!lost.contains(&n)), "k{n}, lost {lost:?}");
                    assert!(!found.complete, "k{n}, lost {lost:?}");
                }
                let key = format!("k{n}");
                let hits = reader
                    .resolve_keys(&[("orders", &key)], &HitBounds::default(), Errors::Raise)
                    .unwrap();
                assert_eq!(hits.of(0).len(), usize::from(!lost.contains(&n)), "k{n}, lost {lost:?}");
            }
        }
    }
}

#[test]
fn a_damaged_last_record_of_an_index_file_is_reported_for_a_single_key() {
    for end in ends_of_index_files(&Damaged::new(&[])) {
        let store = Damaged::new(&[]);
        store.put_length(end as usize, 7);
        let reader = open(store.path());
        for n in [0, end - 1, end + 1, MESSAGES - 1] {
            let found = asked(&reader, &format!("k{n}"), Errors::Raise).unwrap();
            assert_eq!((found.hits.len(), found.complete), (1, true), "k{n}, damaged: {end}");
        }
        asked(&reader, &format!("k{end}"), Errors::Raise).unwrap_err();
    }
}

#[test]
fn damage_of_all_messages_of_a_removed_index_file_is_reported() {
    let store = Damaged::of(1000, &[]);
    let [first_file, last_file] = ends_of_index_files(&store)[..] else {
        panic!("not three index files");
    };
    // From the last message of the first file to the one before the first message of the last file.
    for n in first_file..=last_file {
        store.put_length(n as usize, 7);
    }
    let mut files: Vec<PathBuf> = fs::read_dir(store.path().join("index"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    fs::remove_file(&files[1]).unwrap();
    let reader = open(store.path());
    for n in [first_file + 1, last_file] {
        asked(&reader, &format!("k{n}"), Errors::Raise).unwrap_err();
        assert!(!query(&reader, &format!("k{n}")).complete, "k{n}");
        reader
            .resolve_keys(&[("orders", &format!("k{n}"))], &HitBounds::default(), Errors::Raise)
            .unwrap_err();
    }
}

/// The numbers of the last messages of all index files but the newest.
fn ends_of_index_files(store: &Damaged) -> Vec<i64> {
    let mut ends: Vec<i64> = fs::read_dir(store.path().join("index"))
        .unwrap()
        .map(|file| {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            let end = IndexHeader::decode(bytes[..INDEX_HEADER_SIZE].try_into().unwrap()).end_physical_offset;
            store.offsets.iter().position(|offset| *offset == end).unwrap() as i64
        })
        .collect();
    ends.sort_unstable();
    ends.pop();
    ends
}

#[test]
fn a_query_raises_for_a_damaged_possible_match_or_skips_and_counts_it() {
    let store = Damaged::new(&DAMAGED);
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(store.path().join("index")).unwrap();
        }
        let reader = open(store.path());
        for n in DAMAGED {
            let key = format!("k{n}");
            let (_, _, remedy) = damage(asked(&reader, &key, Errors::Raise));
            assert_eq!(remedy, Some(Remedy::SkipOrSalvage));
            let result = query(&reader, &key);
            assert_eq!((result.hits.len(), result.complete, result.skipped), (0, false, 1), "{key}");
        }
        // The key of none of these could be that of a damaged message: the index, and the records themselves, say so.
        for n in [1, 119, 123, 699] {
            let result = asked(&reader, &format!("k{n}"), Errors::Raise).unwrap();
            assert_eq!((result.hits.len(), result.complete, result.skipped), (1, true, 0), "k{n}");
        }
    }
}

/// The first byte of the queue id, of the queue offset and of the topic in the record of `body 120`.
const PLACE: [(&str, usize); 3] = [("queue id", 12), ("queue offset", 20), ("topic", 97)];

#[test]
fn a_query_raises_at_a_message_that_names_another_place_than_its_entry() {
    for ((field, at), with_index) in PLACE.into_iter().flat_map(|place| [(place, true), (place, false)]) {
        let store = Damaged::new(&[]);
        store.edit(120, |record| record[at] ^= 1);
        if !with_index {
            fs::remove_dir_all(store.path().join("index")).unwrap();
        }
        let reader = open(store.path());
        let what = format!("{field}, index: {with_index}");
        let read = reader.message_in_queue("orders", 0, 120).unwrap_err();
        let (path, offset, remedy) = damage(asked(&reader, "k120", Errors::Raise));
        assert_eq!(remedy, Some(Remedy::SkipOrSalvage), "{what}");
        assert_eq!(damage(Err(read)), (path, offset, remedy), "{what}");
        let result = query(&reader, "k120");
        assert_eq!((result.hits.len(), result.complete, result.skipped), (0, false, 1), "{what}");
        // Of its tag, too, for which the log is walked.
        let tagged = QueryRequest {
            by: QueryBy::Tag("tag".to_owned()),
            ..by_key("orders", "")
        };
        reader.query(&tagged).unwrap_err();
        for n in [0, 119, 121, 699] {
            let result = asked(&reader, &format!("k{n}"), Errors::Raise).unwrap();
            assert_eq!((result.hits.len(), result.complete), (1, true), "{what}, k{n}");
        }
    }
}

#[test]
fn resolve_keys_returns_no_message_that_names_another_place() {
    for ((field, at), with_index) in PLACE.into_iter().flat_map(|place| [(place, true), (place, false)]) {
        let store = Damaged::new(&[]);
        store.edit(120, |record| record[at] ^= 1);
        if !with_index {
            fs::remove_dir_all(store.path().join("index")).unwrap();
        }
        let (reader, what) = (open(store.path()), format!("{field}, index: {with_index}"));
        let (wanted, only) = (
            [("orders", "k119"), ("orders", "k120"), ("orders", "k121")],
            [("orders", "k120")],
        );
        for _ in 0..2 {
            for wanted in [&wanted[..], &only] {
                let raised = reader.resolve_keys(wanted, &HitBounds::default(), Errors::Raise);
                assert!(matches!(raised, Err(Error::Corrupt { .. })), "{what}");
            }
            let hits = reader.resolve_keys(&wanted, &HitBounds::default(), Errors::Skip).unwrap();
            assert_eq!([0, 1, 2].map(|key| hits.of(key).len()), [1, 0, 1], "{what}");
            let hits = reader.resolve_keys(&only, &HitBounds::default(), Errors::Skip).unwrap();
            assert!(hits.all().is_empty(), "{what}");
        }
    }
}

#[test]
fn a_query_by_tag_raises_where_the_entry_of_a_message_has_another_code() {
    let store = Damaged::new(&[]);
    // The last byte of the tag.
    store.edit(120, |record| record[122] ^= 1);
    let tagged = |errors| QueryRequest {
        by: QueryBy::Tag("tag".to_owned()),
        errors,
        ..by_key("orders", "")
    };
    let reader = open(store.path());
    damage(reader.query(&tagged(Errors::Raise)));
    let result = reader.query(&tagged(Errors::Skip)).unwrap();
    assert_eq!((result.hits.len(), result.complete, result.skipped), (699, false, 1));
    let changed = format!("ta{}", char::from(b'g' ^ 1));
    let of_changed = QueryRequest {
        by: QueryBy::Tag(changed),
        ..tagged(Errors::Raise)
    };
    assert_eq!(reader.query(&of_changed).unwrap().hits.len(), 1);
}

#[test]
fn a_walk_for_an_id_raises_at_a_message_that_names_another_place() {
    for (field, at) in PLACE {
        let dir = tempdir().unwrap();
        let mut writer = StoreWriter::small(dir.path());
        for n in 100..110 {
            let (body, id) = (format!("body {n}"), format!("U{n}"));
            writer.put("orders", 0, body.as_bytes(), &[("UNIQ_KEY", &id)]);
        }
        writer.finish(true);
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        let start = open(dir.path()).position("orders", 0, 5).unwrap().unwrap().physical_offset as usize;
        let segment = dir.path().join("commitlog").join(segment_name(0));
        let mut bytes = fs::read(&segment).unwrap();
        bytes[start + at] ^= 1;
        fs::write(segment, bytes).unwrap();
        let reader = open(dir.path());
        assert!(matches!(reader.message("U105", true), Err(Error::Corrupt { .. })), "{field}");
        for n in [104, 106] {
            reader.message(&format!("U{n}"), true).unwrap();
        }
    }
}

#[test]
fn a_limit_does_not_cover_a_record_whose_keys_two_index_files_share() {
    let dir = tempdir().unwrap();
    // Eight keys fill an index file.
    let mut writer = StoreWriter::new(dir.path(), 16384, 50, 4, 9);
    for n in 0..7 {
        writer.put("orders", 0, b"x", &[("KEYS", &format!("k{n}"))]);
    }
    let shared = writer.put("orders", 0, b"x", &[("KEYS", "old new")]);
    let last = writer.put("orders", 0, b"x", &[("KEYS", "old")]);
    writer.finish(true);
    let reader = open(dir.path());
    for (key, limit, found) in [
        ("old", 1, vec![last]),
        ("old", 2, vec![shared, last]),
        ("new", 1, vec![shared]),
    ] {
        let request = QueryRequest {
            limit: Some(limit),
            ..by_key("orders", key)
        };
        let result = reader.query(&request).unwrap();
        let offsets: Vec<i64> = result.hits.iter().map(|hit| hit.physical_offset).collect();
        assert_eq!(offsets, found, "{key}");
        assert_eq!(
            result.covers.contains(&shared),
            found.contains(&shared),
            "{key}: {:?}",
            result.covers
        );
    }
}

#[test]
fn a_hit_is_not_found_if_its_key_tag_or_time_is_another_one_now() {
    let store = Damaged::new(&[]);
    let time = open(store.path()).message_at(store.offsets[120]).unwrap().view().store_time();
    let asked = by_key("orders", "k120");
    let tagged = QueryBy::Tag("tag".to_owned());
    // The last byte of the store time, of the key and of the tag in the record of `body 120`.
    for (request, at) in [
        (
            QueryRequest {
                times: time..time + 1,
                ..asked.clone()
            },
            63,
        ),
        (asked.clone(), 113),
        (QueryRequest { by: tagged, ..asked }, 122),
    ] {
        let hits = open(store.path()).query(&request).unwrap().hits;
        let hits = QueryHits::new(request, hits);
        hits.message(&open(store.path()), store.offsets[120]).unwrap();
        store.edit(120, |record| record[at] ^= 1);
        let found = hits.message(&open(store.path()), store.offsets[120]);
        assert!(matches!(found, Err(Error::NotFound { .. })), "byte {at}: {found:?}");
        store.edit(120, |record| record[at] ^= 1);
    }
}

#[test]
fn a_query_without_the_queue_of_a_message_believes_the_message() {
    let store = Damaged::new(&[]);
    fs::remove_dir_all(store.path().join("consumequeue")).unwrap();
    let result = asked(&open(store.path()), "k120", Errors::Raise).unwrap();
    assert_eq!((result.hits.len(), result.complete), (1, true));
}

#[test]
fn a_query_without_index_raises_at_impossible_lengths_or_uses_the_queues() {
    let store = Damaged::new(&[]);
    fs::remove_dir_all(store.path().join("index")).unwrap();
    store.put_length(300, 7);
    let reader = open(store.path());
    for (key, found) in [("k1", 1), ("k300", 0), ("k301", 1), ("k699", 1)] {
        let (_, _, remedy) = damage(asked(&reader, key, Errors::Raise));
        assert_eq!(remedy, Some(Remedy::SkipOrSalvage));
        let result = query(&reader, key);
        assert_eq!(
            (result.hits.len(), result.complete, result.skipped),
            (found, false, 1),
            "{key}"
        );
    }
}

#[test]
fn damage_before_the_newest_hits_of_a_limit_does_not_concern_a_query() {
    let store = Damaged::new(&[]);
    store.put_length(300, 7);
    let tagged = |limit| QueryRequest {
        by: QueryBy::Tag("tag".to_owned()),
        limit: Some(limit),
        ..by_key("orders", "")
    };
    let reader = open(store.path());
    let result = reader.query(&tagged(100)).unwrap();
    assert_eq!((result.hits.len(), result.complete, result.skipped), (100, false, 0));
    assert_eq!(result.covers.start, store.offsets[600]);
    assert!(reader.query(&tagged(699)).is_err());
}

#[test]
fn damage_of_the_index_alone_is_no_error_of_a_query() {
    let store = Damaged::new(&[]);
    for file in fs::read_dir(store.path().join("index")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        bytes[40..].reverse();
        fs::write(path, bytes).unwrap();
    }
    let result = asked(&open(store.path()), "k300", Errors::Raise).unwrap();
    assert_eq!((result.hits.len(), result.complete, result.skipped), (1, true, 0));
}
