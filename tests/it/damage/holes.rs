//! Holes in log and queues: an error for exactly the messages in them, never a shorter queue.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use mqstore::error::Error;
use mqstore::format::CqUnit;
use mqstore::read::{GetMessageStatus, GetRequest, MessageReader};
use tempfile::tempdir;

use super::{
    ENTRIES, QUEUE_FILE, SEGMENT, corrupt_place, edit_entry, edit_log, get_request, log_file, plain, put, queue_file, scan,
    whole_queue,
};
use crate::heap;
use crate::reading::open;
use crate::store_writer::StoreWriter;

const COUNT: i64 = 700;

/// Each of the queue offsets in `hole`, and no other, is damage in a file below `place`: to a look-up, and to a scan, which says it
/// `times` times.
fn assert_hole_reported(reader: &Arc<MessageReader>, hole: &Range<i64>, place: &Path, times: usize) {
    assert!(!hole.is_empty());
    let is_there = |error: Error| {
        let (path, _) = corrupt_place(error);
        assert!(path.starts_with(place), "{} is not {}", path.display(), place.display());
    };
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..COUNT);
    for n in 0..COUNT {
        match reader.message_in_queue("orders", 0, n) {
            Ok(message) => assert_eq!(message.view().queue_offset(), n),
            Err(error) => {
                assert!(hole.contains(&n), "queue offset {n}: {error}");
                is_there(error);
            }
        }
    }
    let (read, lost): (Vec<_>, Vec<_>) = scan(reader, "orders").into_iter().partition(Result::is_ok);
    let read = read.into_iter().map(|message| message.unwrap().view().queue_offset());
    assert_eq!(
        read.collect::<Vec<_>>(),
        (0..hole.start).chain(hole.end..COUNT).collect::<Vec<_>>()
    );
    assert_eq!(lost.len(), times);
    for lost in lost {
        is_there(lost.unwrap_err());
    }
}

fn assert_hole(reader: &Arc<MessageReader>, hole: &Range<i64>, place: &Path) {
    assert_hole_reported(reader, hole, place, (hole.end - hole.start) as usize);
}

#[test]
fn a_queue_file_under_a_name_far_ahead_is_one_gap_and_not_an_endless_one() {
    let dir = tempdir().unwrap();
    plain(dir.path(), COUNT).0.finish(true);
    let last = queue_file(dir.path(), "orders", 13 * QUEUE_FILE);
    fs::rename(last, queue_file(dir.path(), "orders", 9_223_372_036_854_774_000)).unwrap();
    let reader = open(dir.path());
    assert_eq!(
        reader.queue_bounds("orders", 0).unwrap().end,
        9_223_372_036_854_774_000 / 20 + ENTRIES
    );
    let (read, lost): (Vec<_>, Vec<_>) = scan(&reader, "orders").into_iter().partition(Result::is_ok);
    assert_eq!(read.len() as i64, 13 * ENTRIES);
    assert_eq!(
        lost.len() as i64,
        1 + ENTRIES,
        "the gap, and each entry that is not where it belongs"
    );
}

#[test]
fn a_missing_middle_queue_file_is_damage_at_each_offset_reported_once() {
    let dir = tempdir().unwrap();
    plain(dir.path(), COUNT).0.finish(true);
    let missing = queue_file(dir.path(), "orders", QUEUE_FILE);
    fs::remove_file(&missing).unwrap();
    let reader = open(dir.path());
    assert_hole_reported(&reader, &(ENTRIES..2 * ENTRIES), &missing, 1);
    let (_, at) = corrupt_place(reader.position("orders", 0, ENTRIES + 3).unwrap_err());
    assert_eq!(at, 60, "the entry's byte in that file");
    let result = reader.get::<Error>(&get_request(60, "*"), |_| Ok(true)).unwrap();
    assert_eq!(
        (result.status, result.next_begin_offset),
        (GetMessageStatus::OffsetFoundNull, 100)
    );
}

#[test]
fn a_missing_segment_in_the_middle_is_damage_at_each_of_its_messages() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), COUNT);
    writer.finish(true);
    let missing = log_file(dir.path(), 2 * SEGMENT);
    fs::remove_file(&missing).unwrap();
    let before = |end: i64| offsets.iter().filter(|offset| **offset < end).count() as i64;
    let hole = before(2 * SEGMENT)..before(3 * SEGMENT);
    let reader = open(dir.path());
    assert_hole(&reader, &hole, &dir.path().join("commitlog"));
    assert!(
        reader.position("orders", 0, hole.start).unwrap().is_some(),
        "the entry is whole"
    );
    let result = reader.get::<Error>(&get_request(hole.start, "*"), |_| Ok(true)).unwrap();
    assert_eq!(
        (result.status, result.messages.len()),
        (GetMessageStatus::MessageWasRemoving, 0)
    );
}

#[test]
fn a_zeroed_record_in_a_sealed_segment_is_damage_at_its_place() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), COUNT);
    writer.finish(true);
    let n = 200;
    let [at, end] = [offsets[n], offsets[n + 1]];
    edit_log(dir.path(), at, |bytes| bytes[..(end - at) as usize].fill(0));
    let reader = open(dir.path());
    let hole = n as i64..n as i64 + 1;
    assert_hole(&reader, &hole, &log_file(dir.path(), at - at % SEGMENT));
    let (_, place) = corrupt_place(reader.message_in_queue("orders", 0, n as i64).unwrap_err());
    assert_eq!(place as i64, at % SEGMENT);
    let result = reader.get::<Error>(&get_request(hole.start, "*"), |_| Ok(true));
    corrupt_place(result.unwrap_err());
}

#[test]
fn zeroed_entries_in_a_clean_queue_are_damage_at_each_of_them() {
    let dir = tempdir().unwrap();
    plain(dir.path(), COUNT).0.finish(true);
    for n in 20..25 {
        edit_entry(dir.path(), n, |entry| entry.fill(0));
    }
    let reader = open(dir.path());
    assert_hole(&reader, &(20..25), &queue_file(dir.path(), "orders", 0));
    for n in 20..25 {
        let error = reader.position("orders", 0, n).unwrap_err();
        assert_eq!(corrupt_place(error), (queue_file(dir.path(), "orders", 0), n as u64 * 20));
        let result = reader.get::<Error>(&get_request(n, "*"), |_| Ok(true));
        corrupt_place(result.unwrap_err());
    }
    assert!(reader.position("orders", 0, 19).unwrap().is_some());
    assert_eq!(
        reader.position("orders", 0, COUNT).unwrap(),
        None,
        "past the queue is not damage"
    );
}

#[test]
fn a_get_that_meets_a_damaged_entry_is_an_error_and_not_a_shorter_answer() {
    let dir = tempdir().unwrap();
    plain(dir.path(), COUNT).0.finish(true);
    edit_entry(dir.path(), 20, |entry| entry.fill(0));
    let reader = open(dir.path());
    let all = GetRequest {
        max_messages: 1000,
        bounded: false,
        errors: mqstore::config::Errors::Raise,
        ..get_request(10, "*")
    };
    corrupt_place(reader.get::<Error>(&all, |_| Ok(true)).unwrap_err());
    let later = reader.get::<Error>(&get_request(21, "*"), |_| Ok(true)).unwrap();
    assert_eq!((later.status, later.messages.len()), (GetMessageStatus::Found, 29));
}

#[test]
fn only_what_lies_before_the_first_segment_is_passed_over() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), COUNT);
    writer.finish(true);
    fs::remove_file(log_file(dir.path(), 0)).unwrap();
    let first = offsets.iter().position(|offset| *offset >= SEGMENT).unwrap() as i64;
    let reader = open(dir.path());
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), first..COUNT);
    assert_eq!(whole_queue(&reader, "orders"), (first..COUNT).collect::<Vec<_>>());
    let Err(Error::NotFound { .. }) = reader.message_in_queue("orders", 0, first - 1) else {
        panic!("an expired message is not damage")
    };
}

/// 40 messages in `orders/0`; with `other`, another queue reaches the log's end.
fn forty(path: &Path, other: bool, clean: bool) {
    let (mut writer, _) = plain(path, 40);
    if other {
        put(&mut writer, "other", 0);
    }
    writer.finish(clean);
}

#[test]
fn one_bad_entry_never_shortens_its_queue() {
    type Change = (&'static str, fn(&mut [u8]));
    let changes: [Change; 5] = [
        ("zeroed", |entry| entry.fill(0)),
        ("high bit of the offset", |entry| entry[2] ^= 1),
        ("low bit of the offset", |entry| entry[7] ^= 1),
        ("sign of the offset", |entry| entry[0] ^= 0x80),
        ("bit of the size", |entry| entry[11] ^= 4),
    ];
    for (what, change) in changes {
        for n in 0..39 {
            for (other, clean) in [(false, true), (true, true), (false, false), (true, false)] {
                let dir = tempdir().unwrap();
                forty(dir.path(), other, clean);
                edit_entry(dir.path(), n, change);
                let reader = open(dir.path());
                let case = format!("{what} of entry {n}, other queue {other}, clean {clean}");
                assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..40, "{case}");
                for offset in 0..40 {
                    match reader.message_in_queue("orders", 0, offset) {
                        Ok(message) => assert_eq!(message.view().queue_offset(), offset, "{case}"),
                        Err(error) => {
                            assert_eq!(offset, n, "{case}: {error}");
                            corrupt_place(error);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_bad_last_entry_is_taken_from_the_log_again() {
    for clean in [true, false] {
        let dir = tempdir().unwrap();
        forty(dir.path(), false, clean);
        edit_entry(dir.path(), 39, |entry| entry.fill(0));
        assert_eq!(whole_queue(&open(dir.path()), "orders"), (0..40).collect::<Vec<_>>());
    }
}

#[test]
fn an_entry_that_names_another_message_is_damage_and_not_that_message() {
    let dir = tempdir().unwrap();
    let (mut writer, offsets) = plain(dir.path(), 40);
    let other = put(&mut writer, "other", 0);
    writer.finish(true);
    for named in [offsets[11], offsets[9], other] {
        edit_entry(dir.path(), 10, |entry| entry[..8].copy_from_slice(&named.to_be_bytes()));
        let reader = open(dir.path());
        let place = (log_file(dir.path(), named - named % SEGMENT), (named % SEGMENT) as u64);
        assert_eq!(corrupt_place(reader.message_in_queue("orders", 0, 10).unwrap_err()), place);
        let got = reader.get::<Error>(&get_request(10, "*"), |_| Ok(true));
        assert_eq!(corrupt_place(got.unwrap_err()), place);
        let read = scan(&reader, "orders").into_iter().flatten().count();
        assert_eq!(read, 39, "the other entries stay");
    }
}

#[test]
fn a_light_queues_entries_name_messages_of_another_topic() {
    for clean in [true, false] {
        light_queues(clean);
    }
}

fn light_queues(clean: bool) {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let light = |n: i64| {
        [
            ("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b".to_owned()),
            ("INNER_MULTI_QUEUE_OFFSET", format!("{n},{}", n + 7)),
        ]
    };
    let put = |n: i64| {
        let properties = light(n);
        let properties: Vec<(&str, &str)> = properties.iter().map(|(name, value)| (*name, &**value)).collect();
        writer.put("orders", 3, b"light", &properties)
    };
    let offsets: Vec<i64> = (0..5).map(put).collect();
    let size = |n: usize| (offsets[(n + 1).min(4)] - offsets[n.min(3)]) as i32;
    writer.finish(clean);
    for (topic, first) in [("%LMQ%a", 0), ("%LMQ%b", 7)] {
        let entry = |n: usize| CqUnit {
            physical_offset: offsets[n],
            size: size(n),
            tags_code: 0,
        };
        let mut bytes = CqUnit::PRE_BLANK.encode().repeat(first);
        bytes.extend((0..5).flat_map(|n| entry(n).encode()));
        bytes.resize(QUEUE_FILE as usize, 0);
        let path = queue_file(dir.path(), topic, 0);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let reader = open(dir.path());
    for n in 0..5 {
        for (topic, number) in [("%LMQ%a", n), ("%LMQ%b", n + 7)] {
            let message = reader.message_in_queue(topic, 0, number).unwrap();
            assert_eq!(
                message.view().physical_offset(),
                offsets[n as usize],
                "{topic} {number}, clean {clean}"
            );
        }
    }
}

#[test]
fn a_last_queue_file_cut_to_any_length_opens_without_a_gap() {
    for (count, last) in [(40, 0), (120, 2 * QUEUE_FILE)] {
        let dir = tempdir().unwrap();
        plain(dir.path(), count).0.finish(true);
        let path = queue_file(dir.path(), "orders", last);
        let whole = fs::read(&path).unwrap();
        let lengths = (0..45)
            .chain((45..whole.len()).step_by(17))
            .chain([whole.len() - 1, whole.len()]);
        for length in lengths {
            fs::write(&path, &whole[..length]).unwrap();
            let reader = open(dir.path());
            let read = whole_queue(&reader, "orders");
            assert_eq!(
                read,
                (0..count).collect::<Vec<_>>(),
                "{count} messages, cut to {length} bytes"
            );
        }
    }
}

#[test]
fn a_removed_message_followed_by_unwanted_ones_is_no_matched_message() {
    let dir = tempdir().unwrap();
    // Tag "a" for the first `wanted` messages, "b" after them.
    let write = |wanted: i64| {
        let mut writer = StoreWriter::small(dir.path());
        let tag = |n| if n < wanted { "a" } else { "b" };
        let offsets = (0..300).map(|n| writer.put("orders", 0, &[7; 100], &[("TAGS", tag(n))]));
        let first_kept = offsets.filter(|offset| *offset < 2 * SEGMENT).count() as i64;
        writer.finish(true);
        first_kept
    };
    let first_kept = write(0);
    assert!((100..290).contains(&first_kept));
    assert_eq!(write(first_kept), first_kept);
    fs::remove_file(log_file(dir.path(), SEGMENT)).unwrap();
    let reader = open(dir.path());
    let request = GetRequest {
        bounded: false,
        errors: mqstore::config::Errors::Raise,
        ..get_request(first_kept - 5, "a")
    };
    let result = reader.get::<Error>(&request, |_| Ok(true)).unwrap();
    assert_eq!(
        (result.status, result.messages.len(), result.next_begin_offset),
        (GetMessageStatus::NoMatchedMessage, 0, 300)
    );
}

#[test]
fn a_gap_between_records_of_a_large_segment_takes_no_memory_to_search() {
    let dir = tempdir().unwrap();
    let (writer, offsets) = plain(dir.path(), 40);
    writer.finish(true);
    let segment = fs::OpenOptions::new().write(true).open(log_file(dir.path(), 0)).unwrap();
    segment.set_len(1 << 30).unwrap();
    let reader = open(dir.path());
    let (found, most) = heap::most_while(|| {
        let between = offsets[0] + 1..offsets[2];
        between.filter(|offset| reader.message_at(*offset).is_ok()).count()
    });
    assert_eq!(found, 1, "one of them has a message");
    assert!(most < 100_000, "{most} bytes");
}
