//! Reading stores of any shape: by queue offset, physical offset, id, key and time; clean, crashed and damaged.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::{Error, Result};
use mqstore::format::{Check, Checkpoint, Message, encode_lock_file, encode_properties};
use mqstore::log::{LogFiles, LogRecord};
use mqstore::read::{
    GetMessageStatus, GetRequest, GetResult, HitBounds, MessageReader, QueryBy, QueryRequest, QueueScan, Side, TagFilter,
};
use mqstore::storage::{Env, RealEnv};
use proptest::prelude::*;
use tempfile::tempdir;

use crate::queries::offsets_by_key;
use crate::store_writer::StoreWriter;

pub fn open(path: &Path) -> Arc<MessageReader> {
    open_with(path, StoreConfig::default()).unwrap()
}

pub fn open_with(path: &Path, config: StoreConfig) -> Result<Arc<MessageReader>> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    MessageReader::open(&env, path, config).map(Arc::new)
}

fn request(offset: i64, max_messages: usize) -> GetRequest {
    GetRequest {
        topic: "orders".to_owned(),
        queue_id: 0,
        offset,
        max_messages,
        tags: TagFilter::default(),
        bounded: true,
        errors: Errors::Raise,
    }
}

fn get(reader: &MessageReader, request: &GetRequest) -> GetResult {
    reader.get::<Error>(request, |_| Ok(true)).unwrap()
}

fn bodies(reader: &Arc<MessageReader>, topic: &str, queue_id: i32, range: Range<i64>) -> Vec<Vec<u8>> {
    let scan = QueueScan::new(reader.clone(), topic.to_owned(), queue_id, range).unwrap();
    scan.map(|message| message.unwrap().view().body().to_vec()).collect()
}

/// A store of `count` messages in one queue, keys k0, k1, ..., every tenth also "ten".
fn plain(path: &Path, count: i64) -> (StoreWriter, Vec<i64>) {
    let mut writer = StoreWriter::small(path);
    let offsets = (0..count).map(|n| {
        let keys = if n % 10 == 0 { format!("k{n} ten") } else { format!("k{n}") };
        writer.put(
            "orders",
            0,
            format!("body {n}").as_bytes(),
            &[("KEYS", &keys), ("TAGS", if n % 2 == 0 { "even" } else { "odd" })],
        )
    });
    let offsets = offsets.collect();
    (writer, offsets)
}

#[test]
fn every_message_is_read_by_queue_offset_physical_offset_and_key() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 700);
    writer.finish(true);
    let reader = open(dir.path());
    assert!(reader.recovery().clean_exit);
    assert_eq!(reader.recovery().undispatched, 0);
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..700);
    for (n, offset) in offsets.iter().enumerate() {
        let by_queue = reader.message_in_queue("orders", 0, n as i64).unwrap();
        assert_eq!(by_queue.view().body(), format!("body {n}").as_bytes());
        assert_eq!(by_queue.view().physical_offset(), *offset);
        assert_eq!(reader.message_at(*offset).unwrap().view().queue_offset(), n as i64);
        assert_eq!(offsets_by_key(&reader, &format!("k{n}"), None), [*offset]);
        let id = by_queue.view().message_id().to_string();
        assert_eq!(reader.message(&id, false).unwrap().view().physical_offset(), *offset);
    }
}

#[test]
fn a_query_gives_the_newest_within_its_limit_in_ascending_order() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 700);
    writer.finish(true);
    let reader = open(dir.path());
    let tens: Vec<i64> = offsets.iter().step_by(10).copied().collect();
    assert_eq!(offsets_by_key(&reader, "ten", None), tens);
    assert_eq!(offsets_by_key(&reader, "ten", Some(64)), tens[tens.len() - 64..]);
    assert_eq!(offsets_by_key(&reader, "ten", Some(3)), tens[tens.len() - 3..]);
    assert_eq!(offsets_by_key(&reader, "eleven", None), [0_i64; 0]);
}

#[test]
fn a_query_is_bounded_by_exact_store_times() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 700);
    writer.finish(true);
    let reader = open(dir.path());
    let time = |n: usize| reader.message_at(offsets[n]).unwrap().view().store_time();
    let request = |begin, end: i64| QueryRequest {
        topic: "orders".to_owned(),
        by: QueryBy::Key("ten".to_owned()),
        times: begin..end + 1,
        limit: None,
        errors: Errors::Raise,
    };
    let found = reader.query(&request(time(100), time(200))).unwrap();
    let found: Vec<i64> = found.hits.iter().map(|hit| hit.queue_offset).collect();
    assert_eq!(found, (100..=200).step_by(10).collect::<Vec<i64>>());
    assert!(reader.query(&request(time(101), time(109))).unwrap().hits.is_empty());
}

#[test]
fn keys_that_share_a_hash_never_mix() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let first = writer.put("orders", 0, b"1", &[("KEYS", "Aa")]);
    let second = writer.put("orders", 0, b"2", &[("KEYS", "BB")]);
    writer.finish(true);
    let reader = open(dir.path());
    assert_eq!(offsets_by_key(&reader, "Aa", None), [first]);
    assert_eq!(offsets_by_key(&reader, "BB", None), [second]);
    let hits = reader
        .resolve_keys(
            &[("orders", "BB"), ("orders", "none"), ("other", "Aa"), ("orders", "BB")],
            &HitBounds::default(),
            Errors::Raise,
        )
        .unwrap();
    let hits: Vec<Vec<i64>> = hits
        .iter()
        .map(|hits| hits.iter().map(|hit| hit.physical_offset).collect())
        .collect();
    assert_eq!(hits, [vec![second], vec![], vec![], vec![second]]);
}

#[test]
fn tags_that_share_a_hash_never_mix() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    for tag in ["Aa", "BB", "Aa", "other"] {
        writer.put("orders", 0, tag.as_bytes(), &[("TAGS", tag)]);
    }
    writer.finish(true);
    let reader = open(dir.path());
    let with = |expression: &str| {
        let result = get(
            &reader,
            &GetRequest {
                tags: TagFilter::parse(expression),
                ..request(0, 32)
            },
        );
        result
            .messages
            .iter()
            .map(|message| message.view().queue_offset())
            .collect::<Vec<_>>()
    };
    assert_eq!(with("Aa"), [0, 2]);
    assert_eq!(with("BB"), [1]);
    assert_eq!(with("Aa || other"), [0, 2, 3]);
    assert_eq!(with("*"), [0, 1, 2, 3]);
}

#[test]
fn a_broken_index_falls_back_to_the_log_and_finds_the_same() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 700);
    writer.finish(true);
    let whole = offsets_by_key(&open(dir.path()), "ten", None);
    let index: Vec<_> = fs::read_dir(dir.path().join("index"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(index.len() > 1);
    for path in &index {
        let mut bytes = fs::read(path).unwrap();
        let items = 40 + 4 * 100;
        for at in (items..bytes.len()).step_by(60) {
            bytes[at + 16..at + 20].copy_from_slice(&i32::MAX.to_be_bytes());
        }
        fs::write(path, bytes).unwrap();
    }
    let reader = open(dir.path());
    assert_eq!(offsets_by_key(&reader, "ten", None), whole);
    assert_eq!(offsets_by_key(&reader, "k7", None), [offsets[7]]);
    fs::remove_dir_all(dir.path().join("index")).unwrap();
    assert_eq!(offsets_by_key(&open(dir.path()), "ten", None), whole);
}

#[test]
fn the_statuses_and_next_offsets_of_get_are_the_brokers() {
    let dir = tempdir().unwrap();
    let (writer, _) = plain(dir.path(), 120);
    writer.finish(true);
    let reader = open(dir.path());
    let status = |request: &GetRequest| {
        let result = get(&reader, request);
        (result.status.name(), result.next_begin_offset, result.messages.len())
    };
    assert_eq!(status(&request(0, 32)), ("FOUND", 32, 32));
    assert_eq!(status(&request(0, 100)), ("FOUND", 32, 32), "32 messages an answer at most");
    assert_eq!(
        status(&request(40, 32)),
        ("FOUND", 50, 10),
        "never past the queue file of the first offset"
    );
    assert_eq!(status(&request(119, 32)), ("FOUND", 120, 1));
    assert_eq!(status(&request(120, 32)), ("OFFSET_OVERFLOW_ONE", 120, 0));
    assert_eq!(status(&request(121, 32)), ("OFFSET_OVERFLOW_BADLY", 120, 0));
    assert_eq!(status(&request(-1, 32)), ("OFFSET_TOO_SMALL", 0, 0));
    assert_eq!(
        status(&GetRequest {
            queue_id: 9,
            ..request(5, 32)
        }),
        ("NO_MESSAGE_IN_QUEUE", 0, 0)
    );
    assert_eq!(
        status(&GetRequest {
            tags: TagFilter::parse("none"),
            ..request(3, 32)
        }),
        ("NO_MATCHED_MESSAGE", 50, 0)
    );
    assert_eq!(
        status(&GetRequest {
            bounded: false,
            errors: Errors::Raise,
            ..request(0, 1000)
        }),
        ("FOUND", 120, 120)
    );
    fs::remove_file(dir.path().join("consumequeue/orders/0/00000000000000001000")).unwrap();
    let reader = open(dir.path());
    let result = get(&reader, &request(60, 32));
    assert_eq!(
        (result.status, result.next_begin_offset),
        (GetMessageStatus::OffsetFoundNull, 100)
    );
}

#[test]
fn a_get_examines_800_entries_at_most() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 1 << 20, 3000, 100, 400);
    for n in 0..2000 {
        writer.put("orders", 0, b"x", &[("TAGS", if n == 1999 { "last" } else { "many" })]);
    }
    writer.finish(true);
    let reader = open(dir.path());
    let last = GetRequest {
        tags: TagFilter::parse("last"),
        ..request(100, 32)
    };
    let result = get(&reader, &last);
    assert_eq!(
        (result.status, result.next_begin_offset),
        (GetMessageStatus::NoMatchedMessage, 900)
    );
    let result = get(&reader, &GetRequest { bounded: false, ..last });
    assert_eq!((result.status, result.next_begin_offset), (GetMessageStatus::Found, 2000));
}

#[test]
fn the_memory_ratio_decides_the_limits_and_the_suggestion() {
    let dir = tempdir().unwrap();
    let (writer, _) = plain(dir.path(), 120);
    writer.finish(true);
    let with = |ratio| {
        let reader = open_with(
            dir.path(),
            StoreConfig {
                access_message_in_memory_max_ratio: ratio,
                ..StoreConfig::default()
            },
        )
        .unwrap();
        let result = get(&reader, &request(0, 32));
        (result.messages.len(), result.suggest_pulling_from_slave)
    };
    assert_eq!(with(0), (8, true));
    assert_eq!(with(100), (32, false));
}

#[test]
fn a_message_of_a_removed_segment_is_being_removed_and_min_offset_moves() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 700);
    writer.finish(true);
    fs::remove_file(dir.path().join("commitlog/00000000000000000000")).unwrap();
    let reader = open(dir.path());
    let first = offsets.iter().position(|offset| *offset >= 16384).unwrap() as i64;
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), first..700);
    assert_eq!(get(&reader, &request(0, 32)).status, GetMessageStatus::OffsetTooSmall);
    assert!(matches!(reader.message_at(0), Err(Error::NotFound { .. })));
    // A hole in the middle: the entries are there, the messages are not.
    fs::remove_file(dir.path().join("commitlog/00000000000000032768")).unwrap();
    let reader = open(dir.path());
    let second = offsets.iter().position(|offset| *offset >= 32768).unwrap() as i64;
    let result = get(&reader, &request(second, 2));
    assert_eq!(
        (result.status, result.messages.len()),
        (GetMessageStatus::MessageWasRemoving, 0)
    );
    let asked = |errors| {
        reader.query(&QueryRequest {
            topic: "orders".to_owned(),
            by: QueryBy::Key("ten".to_owned()),
            times: 0..i64::MAX,
            limit: None,
            errors,
        })
    };
    assert!(matches!(asked(Errors::Raise), Err(Error::Corrupt { .. })));
    let result = asked(Errors::Skip).unwrap();
    assert!(!result.complete);
}

#[test]
fn a_queue_that_starts_late_skips_its_pre_blanks() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    for n in 0..5 {
        let properties = encode_properties([("KEYS", "k")], true).unwrap();
        writer.append(Message {
            topic: "orders".into(),
            queue_offset: 60 + n,
            body: b"x".into(),
            properties: properties.into(),
            ..Message::default()
        });
    }
    writer.finish(true);
    let reader = open(dir.path());
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 60..65);
    assert_eq!(get(&reader, &request(60, 32)).messages.len(), 5);
    assert!(matches!(
        reader.message_in_queue("orders", 0, 55),
        Err(Error::NotFound { .. })
    ));
}

#[test]
fn times_are_found_on_both_sides() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    for time in [100, 200, 200, 200, 300] {
        writer.append(Message {
            topic: "orders".into(),
            store_time: time,
            body: b"x".into(),
            ..Message::default()
        });
    }
    writer.finish(true);
    let reader = open(dir.path());
    let at = |time, side| reader.offset_at("orders", 0, time, side).unwrap();
    assert_eq!(
        [
            at(50, Side::Left),
            at(100, Side::Left),
            at(200, Side::Left),
            at(201, Side::Left),
            at(301, Side::Left)
        ],
        [0, 0, 1, 4, 5]
    );
    assert_eq!(
        [
            at(50, Side::Right),
            at(100, Side::Right),
            at(200, Side::Right),
            at(300, Side::Right)
        ],
        [0, 1, 4, 5]
    );
}

#[test]
fn a_store_without_queues_is_rebuilt_in_memory_and_reads_the_same() {
    let dir = tempdir().unwrap();
    let (writer, _) = plain(dir.path(), 700);
    writer.finish(false);
    let whole = bodies(&open(dir.path()), "orders", 0, 0..700);
    assert_eq!(whole.len(), 700);
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let reader = open(dir.path());
    assert_eq!(bodies(&reader, "orders", 0, 0..700), whole);
    assert_eq!(reader.recovery().undispatched, 700);
    assert_eq!(get(&reader, &request(0, 32)).next_begin_offset, 32);
}

#[test]
fn zeroed_entries_are_taken_from_the_log_again() {
    for zeroed in [1_usize, 20, 70, 119] {
        let dir = tempdir().unwrap();
        let (writer, _) = plain(dir.path(), 120);
        writer.finish(false);
        for (file, first) in [
            ("00000000000000000000", 0_usize),
            ("00000000000000001000", 50),
            ("00000000000000002000", 100),
        ] {
            let path = dir.path().join("consumequeue/orders/0").join(file);
            let mut bytes = fs::read(&path).unwrap();
            let from = (120 - zeroed).saturating_sub(first).min(50) * 20;
            bytes[from..].fill(0);
            fs::write(&path, bytes).unwrap();
        }
        let reader = open(dir.path());
        assert_eq!(reader.recovery().undispatched, zeroed as u64);
        assert_eq!(bodies(&reader, "orders", 0, 0..200).len(), 120, "{zeroed} zeroed");
    }
}

#[test]
fn a_clean_store_without_its_last_entries_gets_the_first_of_them_too() {
    let dir = tempdir().unwrap();
    let (writer, _) = plain(dir.path(), 120);
    writer.finish(true);
    let path = dir.path().join("consumequeue/orders/0/00000000000000002000");
    let mut bytes = fs::read(&path).unwrap();
    bytes[10 * 20..].fill(0);
    fs::write(&path, bytes).unwrap();
    let reader = open(dir.path());
    assert_eq!(reader.recovery().undispatched, 10);
    assert_eq!(bodies(&reader, "orders", 0, 0..200).len(), 120);
}

#[test]
fn entries_ahead_of_the_log_are_left_out() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 700);
    writer.finish(false);
    let last = fs::read_dir(dir.path().join("commitlog"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .max()
        .unwrap();
    let start: i64 = last.file_name().unwrap().to_str().unwrap().parse().unwrap();
    fs::write(&last, vec![0; 16384]).unwrap();
    let reader = open(dir.path());
    let kept = offsets.iter().filter(|offset| **offset < start).count() as i64;
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..kept);
    assert_eq!(reader.recovery().queue_entries_ahead, 700 - kept as u64);
    assert_eq!(reader.recovery().log_end, start);
}

#[test]
fn a_reader_names_the_missing_messages_of_a_closed_store() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 700);
    writer.finish(true);
    assert_eq!(open(dir.path()).recovery().missing, None);
    let log = dir.path().join("commitlog");
    let last = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let start: i64 = last.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let lost = offsets.iter().filter(|offset| **offset >= start).count();
    let whole = fs::read(&last).unwrap();
    let missing = || open(dir.path()).recovery().missing.clone().unwrap().what;

    fs::write(&last, vec![0; 16384]).unwrap();
    assert!(missing().contains(&format!("{lost} queue entries")), "{}", missing());
    fs::remove_file(&last).unwrap();
    assert!(missing().contains(&format!("{lost} queue entries")), "{}", missing());
    // Without queues only the checkpoint shows it.
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let stamps = Checkpoint {
        physic_msg_timestamp: writer.last_store_time,
        ..Checkpoint::default()
    };
    fs::write(dir.path().join("checkpoint"), stamps.encode()).unwrap();
    assert!(missing().contains("the checkpoint says"), "{}", missing());
    // A store with an abort file may have a live writer.
    fs::write(dir.path().join("abort"), "").unwrap();
    assert_eq!(open(dir.path()).recovery().missing, None);

    fs::write(&last, whole).unwrap();
    fs::remove_file(log.join("00000000000000016384")).unwrap();
    assert!(missing().contains("this segment is missing"), "{}", missing());
}

#[test]
fn a_record_cut_at_any_byte_ends_the_log_before_it() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 20);
    writer.finish(false);
    fs::write(dir.path().join("lock"), encode_lock_file(0)).unwrap();
    let path = dir.path().join("commitlog/00000000000000000000");
    let whole = fs::read(&path).unwrap();
    let last = offsets[19] as usize;
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for cut in last..end {
        let mut bytes = whole.clone();
        bytes[cut..].fill(0);
        fs::write(&path, bytes).unwrap();
        let reader = open(dir.path());
        assert_eq!(reader.recovery().log_end, last as i64, "cut at byte {cut}");
        assert_eq!(bodies(&reader, "orders", 0, 0..100).len(), 19);
    }
}

#[test]
fn a_whole_record_at_a_place_that_it_does_not_name_ends_the_log() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 20);
    writer.finish(false);
    let path = dir.path().join("commitlog/00000000000000000000");
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    bytes.copy_within(offsets[5] as usize..offsets[7] as usize, end);
    fs::write(&path, bytes).unwrap();
    // Of a crashed store only lengths are compared up to its end; of a closed one and by `message_at` each record is read.
    for is_closed in [false, true] {
        if is_closed {
            fs::remove_file(dir.path().join("abort")).unwrap();
        }
        let reader = open(dir.path());
        assert_eq!(reader.recovery().log_end, end as i64, "{is_closed}");
        assert!(reader.message_at(end as i64).is_err());
    }
    let log = LogFiles::load(Arc::new(RealEnv::new()), &dir.path().join("commitlog"), None).unwrap();
    assert!(matches!(
        log.read(end as i64, Check::Structure).unwrap(),
        LogRecord::NoRecord(_)
    ));
}

#[test]
fn a_blank_of_another_size_than_what_remains_ends_the_log() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 300);
    writer.finish(false);
    let path = dir.path().join("commitlog/00000000000000000000");
    let bytes = fs::read(&path).unwrap();
    let inside = offsets.iter().filter(|offset| **offset < bytes.len() as i64).count();
    let last = offsets[inside - 1] as usize;
    let filler = last + u32::from_be_bytes(bytes[last..last + 4].try_into().unwrap()) as usize;
    let remaining = (bytes.len() - filler) as u32;
    for size in [8, remaining - 1, remaining, remaining + 1, i32::MAX as u32] {
        let mut changed = bytes.clone();
        changed[filler..filler + 4].copy_from_slice(&size.to_be_bytes());
        fs::write(&path, changed).unwrap();
        let reader = open(dir.path());
        let expected = if size == remaining { 300 } else { inside };
        assert_eq!(
            bodies(&reader, "orders", 0, 0..300).len(),
            expected,
            "{size} where {remaining} remain"
        );
        assert_eq!(reader.recovery().log_end == filler as i64, size != remaining);
    }
}

#[test]
fn damage_is_an_error_that_names_file_and_place() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 700);
    writer.finish(true);
    let path = dir.path().join("commitlog/00000000000000016384");
    let mut bytes = fs::read(&path).unwrap();
    let n = offsets.iter().position(|offset| *offset > 20000).unwrap();
    let at = offsets[n] as usize - 16384;
    bytes[at + 90] ^= 1;
    fs::write(&path, bytes).unwrap();
    let reader = open(dir.path());
    let Err(Error::Corrupt { path: named, offset, .. }) = reader.message_at(offsets[n]) else {
        panic!("read a damaged record")
    };
    assert_eq!(named, path);
    assert!((at as u64..at as u64 + 200).contains(&offset));
    assert!(
        matches!(reader.message_at(offsets[n] + 1), Err(Error::NotFound { .. })),
        "no record starts inside one"
    );
    assert_eq!(reader.message_at(offsets[n + 1]).unwrap().view().queue_offset(), n as i64 + 1);
}

#[test]
fn a_file_cut_short_while_it_is_read_is_an_error_and_not_an_end() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 700);
    writer.finish(true);
    let reader = open(dir.path());
    let held = reader.message_at(offsets[0]).unwrap();
    assert!(held.is_mapped() && held.intact().is_ok());
    for file in ["commitlog/00000000000000000000", "consumequeue/orders/0/00000000000000000000"] {
        fs::OpenOptions::new()
            .write(true)
            .open(dir.path().join(file))
            .unwrap()
            .set_len(0)
            .unwrap();
    }
    let path_of = |error: Error| match error {
        Error::Corrupt { path, .. } => path,
        other => panic!("{other}"),
    };
    let log = path_of(reader.message_at(offsets[50]).unwrap_err());
    assert!(log.ends_with("commitlog/00000000000000000000"));
    assert_eq!(held.view().body(), [0; 6], "zeros are in its place");
    assert!(path_of(held.intact().unwrap_err()).ends_with("commitlog/00000000000000000000"));
    let queue = path_of(reader.message_in_queue("orders", 0, 3).unwrap_err());
    assert!(queue.ends_with("consumequeue/orders/0/00000000000000000000"));
    assert_eq!(reader.message_at(offsets[699]).unwrap().view().queue_offset(), 699);
}

#[test]
fn what_is_no_store_says_what_was_expected_and_found() {
    let dir = tempdir().unwrap();
    let message = |path: &Path| open_with(path, StoreConfig::default()).unwrap_err().to_string();
    assert!(message(&dir.path().join("absent")).ends_with("absent: no such directory"));
    assert!(message(dir.path()).contains("expected a directory with commitlog/"));
    assert!(message(dir.path()).contains("an empty directory"));
    fs::write(dir.path().join("notes.txt"), "x").unwrap();
    assert!(message(dir.path()).contains("notes.txt"));
    assert!(message(&dir.path().join("notes.txt")).ends_with("found a file"));
    let (writer, _) = plain(&dir.path().join("store"), 3);
    writer.finish(true);
    assert!(message(&dir.path().join("store/commitlog")).contains("open the directory above"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn any_geometry_is_detected(
        pages in 1_usize..40, cq_entries in 2_usize..400, slots in 1_u32..3000, items in 2_u32..3000, count in 1_i64..400, clean: bool,
    ) {
        let dir = tempdir().unwrap();
        let mut writer = StoreWriter::new(dir.path(), pages * 4096, cq_entries, slots, items);
        for n in 0..count {
            writer.put("orders", 0, format!("body {n}").as_bytes(), &[("KEYS", &format!("k{n} every{}", n % 7)), ("TAGS", "t")]);
        }
        writer.finish(clean);
        let reader = open(dir.path());
        prop_assert_eq!(bodies(&reader, "orders", 0, 0..i64::MAX).len() as i64, count);
        for n in 0..count.min(20) {
            let found = offsets_by_key(&reader, &format!("k{n}"), None);
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(reader.message_at(found[0]).unwrap().view().queue_offset(), n);
        }
        let every = offsets_by_key(&reader, "every0", None);
        prop_assert_eq!(every.len() as i64, (count + 6) / 7);
    }
}
