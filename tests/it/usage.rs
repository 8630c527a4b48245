//! Log usage by topic, in one scan: nothing is counted twice, and what was not read is reported.

use std::fs;
use std::path::Path;

use mqstore::config::Errors;
use mqstore::error::Error;
use mqstore::format::Message;
use mqstore::read::{MessageReader, Shared, Usage, UsageBy};
use mqstore::remedy::Remedy;
use tempfile::tempdir;

use crate::reading::open;
use crate::store_writer::StoreWriter;

const SEGMENT: usize = 16384;

/// Messages of two topics in three segments; where each record starts.
fn three_segments(root: &Path) -> Vec<i64> {
    let mut writer = StoreWriter::small(root);
    let starts = (0..200).map(|number: i32| {
        let topic = if number % 3 == 0 { "a" } else { "b" };
        writer.put(topic, number % 2, &[b'x'; 100], &[])
    });
    let starts = starts.collect();
    writer.finish(true);
    starts
}

fn messages(usage: &Usage) -> i64 {
    usage.groups.iter().map(|(_, count)| count.messages).sum()
}

fn bytes(usage: &Usage) -> i64 {
    usage.groups.iter().map(|(_, count)| count.bytes).sum()
}

fn unread(usage: &Usage) -> i64 {
    usage.unread.iter().map(|stretch| stretch.end - stretch.start).sum()
}

fn counted(reader: &MessageReader, errors: Errors) -> Usage {
    let usage = reader.usage(&[UsageBy::Topic, UsageBy::Segment], errors).unwrap();
    assert_eq!(usage.covers, reader.physical_bounds());
    usage
}

/// Writes over a segment's bytes.
fn overwrite(root: &Path, at: i64, with: &[u8]) {
    let (segment, position) = (at as usize / SEGMENT * SEGMENT, at as usize % SEGMENT);
    let path = root.join(format!("commitlog/{segment:020}"));
    let mut bytes = fs::read(&path).unwrap();
    bytes[position..position + with.len()].copy_from_slice(with);
    fs::write(path, bytes).unwrap();
}

#[test]
fn groups_come_in_the_order_of_what_they_share() {
    let root = tempdir().unwrap();
    let starts = three_segments(root.path());
    let usage = open(root.path())
        .usage(&[UsageBy::QueueId, UsageBy::Topic], Errors::Raise)
        .unwrap();
    let groups: Vec<_> = usage
        .groups
        .iter()
        .map(|(shared, count)| (shared.clone(), count.messages))
        .collect();
    let group =
        |queue: i64, topic: &str, messages: i64| (vec![Shared::Number(queue), Shared::Text(Some(topic.to_owned()))], messages);
    assert_eq!(
        groups,
        [group(0, "a", 34), group(0, "b", 66), group(1, "a", 33), group(1, "b", 67)]
    );
    assert_eq!((messages(&usage), unread(&usage)), (starts.len() as i64, 0));
    assert_eq!(
        open(root.path()).usage(&[], Errors::Raise).unwrap().groups[0].1.messages,
        starts.len() as i64
    );
}

#[test]
fn a_message_without_tags_shares_none_with_one_of_empty_text() {
    let root = tempdir().unwrap();
    let mut writer = StoreWriter::small(root.path());
    writer.put("t", 0, b"1", &[]);
    writer.put("t", 0, b"2", &[("TAGS", "x")]);
    writer.put("tx", 0, b"3", &[]);
    writer.finish(true);
    let usage = open(root.path())
        .usage(&[UsageBy::Topic, UsageBy::Tags], Errors::Raise)
        .unwrap();
    assert_eq!(usage.groups.len(), 3);
    assert_eq!(usage.groups[0].0[1], Shared::Text(None));
}

#[test]
fn an_hour_before_1970_is_an_hour() {
    let root = tempdir().unwrap();
    let mut writer = StoreWriter::small(root.path());
    for store_time in [-1, -3_600_000, -3_600_001, 1, 3_599_999, i64::MIN, i64::MAX] {
        writer.append(Message {
            topic: "t".into(),
            store_time,
            ..Message::default()
        });
    }
    writer.finish(true);
    let usage = open(root.path()).usage(&[UsageBy::Hour], Errors::Raise).unwrap();
    let hours: Vec<_> = usage
        .groups
        .iter()
        .map(|(shared, count)| (shared[0].clone(), count.messages))
        .collect();
    let middle = [(-7_200_000, 1), (-3_600_000, 2), (0, 2)].map(|(hour, count)| (Shared::Number(hour), count));
    assert_eq!(hours.len(), 5);
    assert_eq!(hours[1..4], middle);
}

#[test]
fn damage_is_raised_or_passed_over_up_to_the_next_whole_message_and_said() {
    let root = tempdir().unwrap();
    let starts = three_segments(root.path());
    let whole = counted(&open(root.path()), Errors::Raise);
    // The topic's length of message 20, so that the lengths contradict each other; all of messages 50 to 52.
    let size = starts[1] - starts[0];
    overwrite(root.path(), starts[20] + 4, b"\xff");
    overwrite(root.path(), starts[50], &vec![0; 3 * size as usize]);
    let reader = open(root.path());
    let error = reader.usage(&[UsageBy::Topic], Errors::Raise).unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt { offset, .. } if *offset == starts[20] as u64 + 4),
        "{error}"
    );
    assert_eq!(error.remedy(), Some(Remedy::SkipOrSalvage), "{error}");
    let usage = counted(&reader, Errors::Skip);
    assert_eq!(usage.unread, [starts[20]..starts[21], starts[50]..starts[53]]);
    assert_eq!(messages(&usage), starts.len() as i64 - 4);
    assert_eq!(bytes(&usage) + unread(&usage), bytes(&whole));
}

#[test]
fn a_missing_segment_is_raised_or_unread() {
    let root = tempdir().unwrap();
    let starts = three_segments(root.path());
    fs::remove_file(root.path().join(format!("commitlog/{SEGMENT:020}"))).unwrap();
    let reader = open(root.path());
    let error = reader.usage(&[UsageBy::Topic], Errors::Raise).unwrap_err();
    assert!(error.to_string().contains("put back the segment that is missing"), "{error}");
    let usage = counted(&reader, Errors::Skip);
    let segment = SEGMENT as i64;
    assert_eq!(usage.unread, vec![segment..2 * segment]);
    let left = starts.iter().filter(|start| !(segment..2 * segment).contains(*start)).count();
    assert_eq!(messages(&usage), left as i64);
    let listed: Vec<_> = reader.segments().unwrap().iter().map(|segment| segment.start).collect();
    assert_eq!(listed, [0, 2 * segment]);
}

#[test]
fn a_segment_that_is_cut_short_is_listed_with_its_whole_records() {
    let root = tempdir().unwrap();
    three_segments(root.path());
    let cut = root.path().join(format!("commitlog/{SEGMENT:020}"));
    fs::OpenOptions::new().write(true).open(cut).unwrap().set_len(1000).unwrap();
    let reader = open(root.path());
    let mut whole = SEGMENT as i64;
    while let Ok(message) = reader.message_at(whole) {
        whole = message.view().end();
    }
    let bytes: Vec<_> = reader
        .segments()
        .unwrap()
        .iter()
        .take(2)
        .map(|segment| segment.bytes)
        .collect();
    assert_eq!(bytes, [SEGMENT as i64, whole - SEGMENT as i64]);
    assert!(bytes[1] > 0);
}

#[test]
fn a_segment_that_expires_concurrently_is_reported_and_not_as_damage() {
    let root = tempdir().unwrap();
    three_segments(root.path());
    let reader = open(root.path());
    fs::remove_file(root.path().join(format!("commitlog/{:020}", 0))).unwrap();
    let usage = reader.usage(&[], Errors::Raise).unwrap();
    assert_eq!(usage.unread, vec![0..SEGMENT as i64]);
}

#[test]
fn a_segment_that_is_cut_short_under_its_reader_is_damage_from_there_on() {
    let root = tempdir().unwrap();
    let starts = three_segments(root.path());
    let reader = open(root.path());
    let whole = counted(&reader, Errors::Raise);
    let path = root.path().join(format!("commitlog/{:020}", 0));
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(8192).unwrap();
    assert!(matches!(reader.usage(&[], Errors::Raise), Err(Error::Corrupt { .. })));
    let usage = counted(&reader, Errors::Skip);
    let lost = starts
        .iter()
        .filter(|start| **start < SEGMENT as i64)
        .rfind(|start| **start <= 8192)
        .unwrap();
    assert_eq!(usage.unread, vec![*lost..SEGMENT as i64]);
    assert!(messages(&usage) < messages(&whole));
    assert_eq!(
        messages(&usage),
        starts
            .iter()
            .filter(|start| *start < lost || **start >= SEGMENT as i64)
            .count() as i64
    );
}

#[test]
fn an_empty_log_has_no_groups() {
    let root = tempdir().unwrap();
    StoreWriter::small(root.path()).finish(true);
    let reader = open(root.path());
    for by in [&[][..], &[UsageBy::Topic]] {
        let usage = reader.usage(by, Errors::Raise).unwrap();
        assert!(usage.groups.is_empty() && usage.unread.is_empty());
    }
    assert_eq!(reader.segments().unwrap(), []);
    assert!(reader.index_files().unwrap().is_empty());
}

#[test]
fn a_record_of_an_unknown_queue_to_which_another_one_leads_is_unread() {
    for (by, at) in [(UsageBy::Topic, 189), (UsageBy::QueueId, 12)] {
        let root = tempdir().unwrap();
        let starts = three_segments(root.path());
        let whole = open(root.path()).usage(&[by], Errors::Raise).unwrap();
        overwrite(root.path(), starts[7] + at, b"z");
        let reader = open(root.path());
        assert!(
            matches!(reader.usage(&[by], Errors::Raise), Err(Error::Corrupt { .. })),
            "{by:?}"
        );
        let usage = reader.usage(&[by], Errors::Skip).unwrap();
        assert_eq!(usage.unread.iter().collect::<Vec<_>>(), [&(starts[7]..starts[8])], "{by:?}");
        assert_eq!(
            (usage.groups.len(), messages(&usage)),
            (whole.groups.len(), messages(&whole) - 1),
            "{by:?}"
        );
        // Of the tags of a message its place does not decide.
        assert_eq!(
            messages(&reader.usage(&[UsageBy::Tags], Errors::Raise).unwrap()),
            messages(&whole),
            "{by:?}"
        );
    }
}
