//! Store times that fall, as after a broker's clock was set back: a query between two times and a lookup by time stay exact.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use mqstore::config::Errors;
use mqstore::format::{Checkpoint, INDEX_HEADER_SIZE, Message, encode_properties};
use mqstore::read::{MessageReader, OnDamage, QueryBy, QueryRequest, Scan, ScanRequest, Side};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use crate::queries::by_key;
use crate::reading::open;
use crate::store_writer::StoreWriter;

const START: i64 = 1_700_000_000_000;

/// A store with a message at each of these times, all with the key "hot" and in one queue.
fn store(times: &[i64]) -> (TempDir, Arc<MessageReader>) {
    let dir = tempdir().unwrap();
    let reader = write(dir.path(), times);
    (dir, reader)
}

fn write(path: &Path, times: &[i64]) -> Arc<MessageReader> {
    // Eight keys fill an index file.
    let mut writer = StoreWriter::new(path, 16384, 50, 4, 9);
    for time in times {
        writer.append(Message {
            topic: "orders".into(),
            store_time: *time,
            body: b"x".into(),
            properties: encode_properties([("KEYS", "hot")], true).unwrap().into(),
            ..Message::default()
        });
    }
    writer.finish(true);
    open(path)
}

/// Queue offsets of the answer.
fn query(reader: &MessageReader, begin: i64, end: i64, limit: Option<usize>) -> Vec<i64> {
    let request = QueryRequest {
        topic: "orders".to_owned(),
        by: QueryBy::Key("hot".to_owned()),
        times: begin..end.saturating_add(1),
        limit,
        errors: Errors::Raise,
    };
    let result = reader.query(&request).unwrap();
    let is_cut = limit.is_some_and(|limit| result.hits.len() == limit);
    assert!(result.complete || is_cut);
    result.hits.iter().map(|hit| hit.queue_offset).collect()
}

/// Queue offsets of the messages stored between two times.
fn between(times: &[i64], begin: i64, end: i64) -> Vec<i64> {
    let numbered = (0..).zip(times);
    numbered
        .filter(|(_, time)| (begin..=end).contains(*time))
        .map(|(n, _)| n)
        .collect()
}

/// Returns the queue offset of the first message that was stored at or after a time.
fn first_at(times: &[i64], time: i64) -> i64 {
    times.iter().position(|stored| *stored >= time).unwrap_or(times.len()) as i64
}

/// Messages are a second apart. The clock is set back by a minute before each message with a number in `falls`.
fn with_falls(count: usize, falls: &[usize]) -> Vec<i64> {
    let back = |n: usize| falls.iter().filter(|fall| **fall <= n).count() as i64 * 60_000;
    (0..count).map(|n| START + n as i64 * 1000 - back(n)).collect()
}

#[test]
fn a_query_since_a_time_finds_messages_from_before_the_clock_was_set_back() {
    let times = with_falls(100, &[70]);
    let (_dir, reader) = store(&times);
    for begin in (START..START + 100_000).step_by(500) {
        assert_eq!(
            query(&reader, begin, i64::MAX, None),
            between(&times, begin, i64::MAX),
            "from {begin}"
        );
        assert_eq!(
            query(&reader, i64::MIN, begin, None),
            between(&times, i64::MIN, begin),
            "to {begin}"
        );
    }
}

#[test]
fn a_lookup_by_time_finds_the_first_message_before_a_fall_and_after_it() {
    for falls in [&[70][..], &[10], &[130], &[70, 75], &[70, 100], &[61, 62, 63]] {
        let times = with_falls(200, falls);
        let (_dir, reader) = store(&times);
        for time in (START - 200_000..START + 250_000).step_by(500) {
            let found = reader.offset_at("orders", 0, time, Side::Left).unwrap();
            assert_eq!(found, first_at(&times, time), "{falls:?}, {}", time - START);
            let found = reader.offset_at("orders", 0, time, Side::Right).unwrap();
            assert_eq!(found, first_at(&times, time + 1), "{falls:?}, after {}", time - START);
        }
    }
}

#[test]
fn a_stamp_excludes_an_index_file_written_after_the_clock_was_set_back() {
    let times: Vec<i64> = (100..108).chain(50..58).map(|time| START + time).collect();
    let (dir, reader) = store(&times);
    drop(reader);
    // The first file was stamped. Of the second, the sector with its slots is lost, so that no chain of it is broken.
    let stamps = Checkpoint {
        physic_msg_timestamp: START + 107,
        logics_msg_timestamp: START + 107,
        index_msg_timestamp: START + 107,
        ..Checkpoint::default()
    };
    fs::write(dir.path().join("checkpoint"), stamps.encode()).unwrap();
    fs::write(dir.path().join("abort"), "").unwrap();
    let mut files: Vec<_> = fs::read_dir(dir.path().join("index"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut bytes = fs::read(&files[1]).unwrap();
    bytes[INDEX_HEADER_SIZE..INDEX_HEADER_SIZE + 4 * 4].fill(0);
    fs::write(&files[1], bytes).unwrap();
    let reader = open(dir.path());
    assert_eq!(query(&reader, i64::MIN, i64::MAX, None), (0..16).collect::<Vec<_>>());
}

const HOUR: i64 = 3_600_000;

/// Messages an hour apart, which fill some segments, and the numbers of those with which a segment begins.
fn hours(count: usize) -> (Vec<i64>, Vec<usize>) {
    let times: Vec<i64> = (0..count).map(|n| START + n as i64 * HOUR).collect();
    let (_dir, reader) = store(&times);
    let hits = reader.query(&by_key("orders", "hot")).unwrap().hits;
    let is_first = |n: &usize| *n == 0 || hits[*n].physical_offset / 16384 != hits[*n - 1].physical_offset / 16384;
    let firsts: Vec<usize> = (0..count).filter(is_first).collect();
    assert!(firsts.len() > 5, "{firsts:?}");
    (times, firsts)
}

/// Expects that a scan between any two of these times finds each message of them but `wrong`, and no other one.
fn expect_scans(times: &[i64], bounds: &[i64], wrong: &[usize], what: &str) {
    let (_dir, reader) = store(times);
    for begin in bounds {
        for end in bounds.iter().filter(|end| *end > begin) {
            let request = ScanRequest {
                times: *begin..*end,
                ..ScanRequest::default()
            };
            let mut scan = Scan::new(Arc::clone(&reader), request, OnDamage::new(Errors::Raise)).unwrap();
            let mut found = Vec::new();
            scan.fill(|picked| {
                found.push(picked.view.queue_offset() as usize);
                Ok(true)
            })
            .unwrap();
            found.retain(|n| !wrong.contains(n));
            let mut expected = between(times, *begin, *end - 1)
                .into_iter()
                .map(|n| n as usize)
                .collect::<Vec<_>>();
            expected.retain(|n| !wrong.contains(n));
            let hours = |time: i64| time.saturating_sub(START) / HOUR;
            assert_eq!(found, expected, "{what}, hours {} to {}", hours(*begin), hours(*end));
        }
    }
}

#[test]
fn a_wrong_time_in_a_segment_hides_no_other_message_of_a_scan() {
    let (whole, firsts) = hours(900);
    let near = |first: usize| [first.saturating_sub(3), first.saturating_sub(1), first, first + 2];
    let bounds = firsts.iter().flat_map(|first| near(*first)).map(|n| START + n as i64 * HOUR);
    let mut bounds: Vec<i64> = bounds.chain([i64::MIN, i64::MAX]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    for first in &firsts {
        for time in [
            0,
            -1,
            START - HOUR,
            whole[first - first.min(&40)],
            whole[first + 40],
            START + 5_000 * HOUR,
        ] {
            for number in [*first, first + 1] {
                let mut times = whole.clone();
                times[number] = time;
                expect_scans(&times, &bounds, &[number], &format!("message {number} at {time}"));
            }
        }
    }
}

#[test]
fn a_clock_that_was_ahead_for_a_while_hides_no_message_of_a_scan() {
    let (whole, firsts) = hours(900);
    let bounds: Vec<i64> = firsts.iter().map(|n| whole[*n] + HOUR).chain([i64::MIN, i64::MAX]).collect();
    for first in &firsts {
        let ahead: Vec<usize> = (*first..first + 20).collect();
        let mut times = whole.clone();
        for number in &ahead {
            times[*number] += 5_000 * HOUR;
        }
        expect_scans(&times, &bounds, &ahead, &format!("from message {first} on"));
    }
}

#[test]
fn a_lookup_by_time_is_exact_with_one_wrong_time() {
    let whole: Vec<i64> = (0..200).map(|n| START + n * 1000).collect();
    for number in (0..200).step_by(7) {
        for wrong in [1, whole[number] - 60_000, whole[number] + 60_000, i64::MAX] {
            let mut times = whole.clone();
            times[number] = wrong;
            let (_dir, reader) = store(&times);
            for time in (START - 2000..START + 202_000).step_by(1500) {
                let found = reader.offset_at("orders", 0, time, Side::Left).unwrap();
                // Of the messages beside the wrong one none is missed.
                let first = (0..200).find(|n| *n != number && whole[*n] >= time).unwrap_or(200) as i64;
                let what = format!("message {number} at {wrong}, {}: {found}", time - START);
                assert!(found == first || found < first && found == first_at(&times, time), "{what}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_query_between_two_times_equals_a_full_scan_whatever_the_clock_does(
        steps in prop::collection::vec(prop_oneof![4 => 0..3_000_i64, 1 => -100_000..100_000_i64, 1 => -4_000..0_i64], 1..60),
        picks in prop::collection::vec((0..60_usize, 0..60_usize, -1..=1_i64, prop::option::of(0..20_usize)), 8),
    ) {
        let times: Vec<i64> = steps.iter().scan(START, |now, step| { *now += step; Some(*now) }).collect();
        let (_dir, reader) = store(&times);
        for (begin, end, margin, limit) in picks {
            let (begin, end) = (times[begin % times.len()] + margin, times[end % times.len()] - margin);
            let all = between(&times, begin, end);
            let newest = all.len() - limit.unwrap_or(usize::MAX).min(all.len());
            prop_assert_eq!(query(&reader, begin, end, limit), &all[newest..]);
        }
    }

    #[test]
    fn the_message_before_a_times_first_one_is_older_whatever_the_clock_does(
        steps in prop::collection::vec(prop_oneof![4 => 0..3_000_i64, 1 => -100_000..100_000_i64], 1..60),
        picks in prop::collection::vec((0..60_usize, -1..=1_i64), 8),
    ) {
        let times: Vec<i64> = steps.iter().scan(START, |now, step| { *now += step; Some(*now) }).collect();
        let (_dir, reader) = store(&times);
        for (pick, margin) in picks {
            let time = times[pick % times.len()] + margin;
            let found = reader.offset_at("orders", 0, time, Side::Left).unwrap() as usize;
            prop_assert!(times.get(found).is_none_or(|stored| *stored >= time));
            prop_assert!(found == 0 || times[found - 1] < time);
        }
    }
}
