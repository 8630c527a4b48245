//! Files that a broker's retention, or the deletion of a topic, removes under an open reader.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::format::segment_name;
use mqstore::read::{GetMessageStatus, GetRequest, HitBounds, MessageReader, QueueScan, Side, TagFilter};
use mqstore::storage::Env;
use tempfile::tempdir;

use crate::counting_env::CountingEnv;
use crate::queries::by_key;
use crate::reading::open;
use crate::store_writer::StoreWriter;
use crate::verifying::copy;

/// Bytes of a segment of [`StoreWriter::small`].
const SEGMENT: i64 = 16384;
const MESSAGES: i64 = 700;

/// 700 messages in orders/0, keys k0, k1 ...; their physical offsets.
fn store(path: &Path, clean: bool) -> Vec<i64> {
    let mut writer = StoreWriter::small(path);
    let put = |n: i64| writer.put("orders", 0, format!("body {n}").as_bytes(), &[("KEYS", &format!("k{n}"))]);
    let offsets = (0..MESSAGES).map(put).collect();
    writer.finish(clean);
    offsets
}

fn remove_segments(path: &Path, count: i64) {
    for segment in 0..count {
        fs::remove_file(path.join("commitlog").join(segment_name((segment * SEGMENT) as u64))).unwrap();
    }
}

fn queue_file(path: &Path, number: u64) -> std::path::PathBuf {
    path.join("consumequeue/orders/0").join(segment_name(number * 1000))
}

fn request(offset: i64) -> GetRequest {
    GetRequest {
        topic: "orders".to_owned(),
        queue_id: 0,
        offset,
        max_messages: 8,
        tags: TagFilter::default(),
        bounded: true,
        errors: Errors::Raise,
    }
}

fn get(reader: &MessageReader, offset: i64) -> mqstore::read::GetResult {
    reader.get::<Error>(&request(offset), |_| Ok(true)).unwrap()
}

fn query(reader: &MessageReader, key: &str) -> mqstore::read::QueryResult {
    let request = by_key("orders", key);
    reader.query(&request).unwrap()
}

fn scanned(reader: &Arc<MessageReader>) -> Vec<i64> {
    let scan = QueueScan::new(reader.clone(), "orders".to_owned(), 0, 0..i64::MAX).unwrap();
    scan.map(|message| message.unwrap().view().queue_offset()).collect()
}

/// The offsets of the messages that a consumer gets from `offset` on.
fn consumed(reader: &MessageReader, mut offset: i64) -> Vec<i64> {
    let mut found = Vec::new();
    for _ in 0..2 * MESSAGES {
        let result = get(reader, offset);
        found.extend(result.messages.iter().map(|message| message.view().queue_offset()));
        if result.status == GetMessageStatus::OffsetOverflowOne {
            return found;
        }
        assert_ne!(result.next_begin_offset, offset, "{:?}", result.status);
        offset = result.next_begin_offset;
    }
    panic!("no end after {found:?}")
}

/// Returns the segments that are read once the reader knows which are removed, by number: a segment that was mapped before stays readable
/// until then.
fn segments_left(reader: &MessageReader, offsets: &[i64]) -> Vec<i64> {
    let is_read = |at: &&i64| reader.message_at(**at).is_ok();
    offsets.iter().filter(is_read).count();
    let mut left: Vec<i64> = offsets.iter().filter(is_read).map(|at| at / SEGMENT).collect();
    left.dedup();
    left
}

/// The queue files that are read then, by number.
fn queue_files_left(reader: &MessageReader) -> Vec<i64> {
    let is_read = |n: &i64| reader.message_in_queue("orders", 0, *n).is_ok();
    (0..MESSAGES).filter(is_read).count();
    let mut left: Vec<i64> = (0..MESSAGES).filter(is_read).map(|n| n / 50).collect();
    left.dedup();
    left
}

fn all() -> Vec<i64> {
    (0..MESSAGES).collect()
}

/// Every reading call answers with the remaining messages: these by offset and key, and these by queue.
fn expect_answers(reader: &Arc<MessageReader>, offsets: &[i64], is_in_log: impl Fn(i64) -> bool, in_queue: &[i64]) {
    for n in 0..MESSAGES {
        let at = offsets[n as usize];
        match reader.message_at(at) {
            Ok(message) => assert!(is_in_log(n) && message.view().queue_offset() == n),
            Err(error) => assert!(!is_in_log(n) && matches!(error, Error::NotFound { .. }), "{n}: {error}"),
        }
        match reader.message_in_queue("orders", 0, n) {
            Ok(message) => assert!(in_queue.contains(&n) && message.view().queue_offset() == n),
            Err(error) => assert!(
                !in_queue.contains(&n) && matches!(error, Error::NotFound { .. }),
                "{n}: {error}"
            ),
        }
        let position = reader.position("orders", 0, n).unwrap();
        assert_eq!(
            position.map(|position| position.physical_offset),
            in_queue.contains(&n).then_some(at)
        );
    }
    for n in (0..MESSAGES).step_by(37) {
        let key = format!("k{n}");
        let found = query(reader, &key);
        let found: Vec<i64> = found.hits.iter().map(|hit| hit.queue_offset).collect();
        assert_eq!(found, if is_in_log(n) { vec![n] } else { vec![] }, "{key}");
        let hits = reader
            .resolve_keys(&[("orders", &key)], &HitBounds::default(), Errors::Raise)
            .unwrap();
        assert_eq!(hits.of(0).len(), usize::from(is_in_log(n)));
        let id = format!("7F00000100002A9F{:016X}", offsets[n as usize]);
        assert_eq!(reader.message(&id, true).is_ok(), is_in_log(n));
        for side in [Side::Left, Side::Right] {
            let time = 1_700_000_000_010 + 10 * n;
            let wanted = n + i64::from(side == Side::Right);
            let right = in_queue.iter().find(|offset| **offset >= wanted);
            assert_eq!(
                reader.offset_at("orders", 0, time, side).unwrap(),
                *right.unwrap_or(&MESSAGES)
            );
        }
    }
    assert_eq!(scanned(reader), in_queue);
    assert_eq!(consumed(reader, 0), in_queue);
    assert_eq!(reader.queue_ids("orders").unwrap(), [0]);
    assert_eq!(reader.topics().unwrap(), ["orders"]);
}

#[test]
fn a_store_whose_segments_expire_during_its_open_begins_with_the_rest() {
    let dir = tempdir().unwrap();
    let intact = dir.path().join("intact");
    let segments = store(&intact, false).last().unwrap() / SEGMENT + 1;
    let log_end = open(&intact).recovery().log_end;
    let segment = |root: &Path, number: i64| root.join("commitlog").join(segment_name((number * SEGMENT) as u64));
    // The log ends here, so that the later segments are searched for its rest.
    let mut emptied = fs::read(segment(&intact, segments - 3)).unwrap();
    emptied[SEGMENT as usize / 2..].fill(0);
    fs::write(segment(&intact, segments - 3), emptied).unwrap();
    let mut removed = 0;
    for look in 0..8 {
        let root = dir.path().join(look.to_string());
        copy(&intact, &root);
        let (path, first) = (root.clone(), segment(&root, 0));
        let opened = format!("open {}", segment(&root, segments - 2).display());
        let looks = AtomicUsize::new(0);
        let env = CountingEnv::new();
        env.before_looks(move |call| {
            if call == opened && looks.fetch_add(1, Ordering::Relaxed) == look {
                remove_segments(&path, segments - 1);
            }
            Ok(())
        });
        let env: Arc<dyn Env> = Arc::new(env);
        let opened = MessageReader::open(&env, &root, StoreConfig::default());
        if first.exists() {
            continue;
        }
        removed += 1;
        let reader = opened.unwrap();
        let recovery = reader.recovery();
        assert!(
            recovery.log_end == log_end && recovery.missing.is_none(),
            "look {look}: {recovery:?}"
        );
    }
    assert!(removed > 1, "{removed}");
}

#[test]
fn every_call_answers_when_the_oldest_segments_go_under_a_reader() {
    for clean in [true, false] {
        for count in [1, 2, 4] {
            let dir = tempdir().unwrap();
            let offsets = store(dir.path(), clean);
            let reader = open(dir.path());
            remove_segments(dir.path(), count);
            let left = segments_left(&reader, &offsets);
            assert!(!clean || left[0] == count);
            let is_left = |n: i64| left.contains(&(offsets[n as usize] / SEGMENT));
            let in_queue: Vec<i64> = (0..MESSAGES).filter(|n| is_left(*n)).collect();
            expect_answers(&reader, &offsets, is_left, &in_queue);
            assert_eq!(reader.queue_bounds("orders", 0).unwrap(), in_queue[0]..MESSAGES);
            assert_eq!(reader.physical_bounds().start, left[0] * SEGMENT);
        }
    }
}

/// A call of a reader, and what it must answer; the number is the first message that is left.
type Call = fn(&Arc<MessageReader>, i64);

#[test]
fn each_call_answers_as_the_first_one_after_a_segment_has_gone() {
    let first = |offsets: &[i64]| offsets.partition_point(|offset| *offset < 2 * SEGMENT) as i64;
    let calls: [(&str, Call); 8] = [
        ("get", |reader, first| {
            let result = get(reader, 0);
            assert_eq!(result.status, GetMessageStatus::MessageWasRemoving);
            assert_eq!(result.next_begin_offset, 50);
            let result = get(reader, 0);
            assert_eq!(result.status, GetMessageStatus::OffsetTooSmall);
            assert_eq!((result.next_begin_offset, result.min_offset), (first, first));
        }),
        ("scan", |reader, first| {
            assert_eq!(scanned(reader), (first..MESSAGES).collect::<Vec<_>>());
        }),
        ("consumer", |reader, first| {
            assert_eq!(consumed(reader, 3), (first..MESSAGES).collect::<Vec<_>>());
        }),
        ("position", |reader, _| {
            assert!(reader.position("orders", 0, 0).unwrap().is_none());
        }),
        ("message in queue", |reader, _| {
            assert!(matches!(reader.message_in_queue("orders", 0, 0), Err(Error::NotFound { .. })));
        }),
        ("query", |reader, first| {
            let result = query(reader, "k0");
            assert!(result.hits.is_empty() && !result.complete);
            assert_eq!(result.covers.start, 2 * SEGMENT);
            let result = query(reader, &format!("k{first}"));
            assert!(result.hits.len() == 1 && result.complete);
            assert_eq!(result.covers.start, 2 * SEGMENT);
        }),
        ("offset_at", |reader, first| {
            assert_eq!(reader.offset_at("orders", 0, 0, Side::Left).unwrap(), first);
        }),
        ("message", |reader, _| {
            assert!(matches!(reader.message("no such key", true), Err(Error::NotFound { .. })));
        }),
    ];
    for (name, call) in calls {
        let dir = tempdir().unwrap();
        let offsets = store(dir.path(), true);
        let reader = open(dir.path());
        remove_segments(dir.path(), 2);
        println!("{name}");
        call(&reader, first(&offsets));
    }
}

#[test]
fn every_call_answers_when_queue_files_go_under_a_reader() {
    for removed in [vec![0], vec![0, 1, 2], (0..14).collect()] {
        let dir = tempdir().unwrap();
        let offsets = store(dir.path(), true);
        let reader = open(dir.path());
        for number in &removed {
            fs::remove_file(queue_file(dir.path(), *number)).unwrap();
        }
        let left = queue_files_left(&reader);
        let in_queue: Vec<i64> = (0..MESSAGES).filter(|n| left.contains(&(n / 50))).collect();
        expect_answers(&reader, &offsets, |_| true, &in_queue);
        let bounds = reader.queue_bounds("orders", 0).unwrap();
        assert_eq!(bounds, in_queue.first().copied().unwrap_or(MESSAGES)..MESSAGES);
    }
}

#[test]
fn a_queue_file_lost_after_others_is_damage_and_not_expiry() {
    for number in [3, 13] {
        let dir = tempdir().unwrap();
        store(dir.path(), true);
        let reader = open(dir.path());
        fs::remove_file(queue_file(dir.path(), number)).unwrap();
        let lost = number as i64 * 50..number as i64 * 50 + 50;
        for n in 0..MESSAGES {
            match reader.message_in_queue("orders", 0, n) {
                Ok(message) => assert!(!lost.contains(&n) && message.view().queue_offset() == n),
                Err(error) => assert!(lost.contains(&n) && matches!(error, Error::Corrupt { .. }), "{n}: {error}"),
            }
        }
        assert_eq!(query(&reader, &format!("k{}", lost.start)).hits.len(), 1);
        assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..MESSAGES);
        let scan = QueueScan::new(reader.clone(), "orders".to_owned(), 0, 0..i64::MAX).unwrap();
        assert_eq!(
            scan.filter(Result::is_err).count(),
            1,
            "the pass passes over the file at once"
        );
    }
}

#[test]
fn messages_of_a_topic_deleted_under_a_reader_are_found_by_place_and_key() {
    let dir = tempdir().unwrap();
    let offsets = store(dir.path(), true);
    let reader = open(dir.path());
    fs::remove_dir_all(dir.path().join("consumequeue/orders")).unwrap();
    let left = queue_files_left(&reader);
    assert!(left.len() < 14, "opening maps no more than it needs");
    let in_queue: Vec<i64> = (0..MESSAGES).filter(|n| left.contains(&(n / 50))).collect();
    expect_answers(&reader, &offsets, |_| true, &in_queue);
}

#[test]
fn a_query_walks_the_log_where_an_index_file_has_gone_under_a_reader() {
    for clean in [true, false] {
        let dir = tempdir().unwrap();
        let offsets = store(dir.path(), clean);
        let reader = open(dir.path());
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        expect_answers(&reader, &offsets, |_| true, &all());
        assert!(query(&reader, "k1").complete);
    }
}

#[test]
fn a_store_that_is_removed_under_a_reader_answers_with_what_it_has_mapped() {
    let dir = tempdir().unwrap();
    let offsets = store(dir.path(), true);
    let reader = open(dir.path());
    for name in ["commitlog", "consumequeue", "index"] {
        fs::remove_dir_all(dir.path().join(name)).unwrap();
    }
    let segments = segments_left(&reader, &offsets);
    assert!(segments.len() <= 1, "opening maps no more than the last");
    let is_in_log = |n: i64| segments.contains(&(offsets[n as usize] / SEGMENT));
    let in_queue: Vec<i64> = (0..MESSAGES)
        .filter(|n| reader.message_in_queue("orders", 0, *n).is_ok())
        .collect();
    expect_answers(&reader, &offsets, is_in_log, &in_queue);
}

#[test]
fn a_message_that_was_read_stays_readable_when_its_segment_goes() {
    let dir = tempdir().unwrap();
    let offsets = store(dir.path(), true);
    let reader = open(dir.path());
    let message = reader.message_at(offsets[3]).unwrap();
    assert!(message.is_mapped());
    remove_segments(dir.path(), 3);
    assert_eq!(reader.message_at(offsets[5]).unwrap().view().body(), b"body 5");
    assert!(reader.message_at(offsets[250]).is_err());
    assert_eq!(message.view().body(), b"body 3");
    message.intact().unwrap();
}

#[test]
fn get_reports_messages_that_expire_between_two_of_its_messages() {
    let dir = tempdir().unwrap();
    let offsets = store(dir.path(), true);
    let reader = open(dir.path());
    let kept = offsets.iter().position(|at| *at >= 3 * SEGMENT).unwrap();
    let asked = GetRequest {
        max_messages: MESSAGES as usize,
        bounded: false,
        ..request(0)
    };
    let result = reader.get::<Error>(&asked, |message| {
        if message.view().queue_offset() == 10 {
            remove_segments(dir.path(), 3);
            assert!(reader.message_at(offsets[kept - 1]).is_err());
        }
        Ok(true)
    });
    let result = result.unwrap();
    let found: Vec<i64> = result.messages.iter().map(|message| message.view().queue_offset()).collect();
    assert_eq!(found, (0..=10).chain(kept as i64..MESSAGES).collect::<Vec<i64>>());
    assert_eq!(result.missing, 11..kept as i64);
}

#[test]
fn get_copies_no_message_of_a_closed_store() {
    let dir = tempdir().unwrap();
    for clean in [true, false] {
        let path = dir.path().join(format!("{clean}"));
        store(&path, clean);
        let last = get(&open(&path), MESSAGES - 1).messages.pop().unwrap();
        assert_eq!(last.is_mapped(), clean, "a store that is not closed may be cut by its owner");
    }
}

/// Removed files below `path` that this process still maps. Their bytes stay on the disk.
fn pinned(path: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let name = path.to_str().unwrap();
    let is_pinned = |line: &&str| line.contains(name) && line.ends_with(" (deleted)");
    maps.lines().filter(is_pinned).count()
}

#[test]
fn a_reader_keeps_removed_segments_only_for_messages_that_are_held() {
    let dir = tempdir().unwrap();
    let offsets = store(dir.path(), true);
    let reader = open(dir.path());
    let read = |segment: i64| reader.message_at(*offsets.iter().find(|at| **at >= segment * SEGMENT).unwrap());
    let held = read(0).unwrap();
    read(1).unwrap();
    remove_segments(dir.path(), 3);
    assert_eq!(pinned(dir.path()), 2);
    assert!(read(2).is_err());
    assert_eq!(pinned(dir.path()), 1);
    assert_eq!(held.view().body(), b"body 0");
    drop(held);
    assert_eq!(pinned(dir.path()), 0);
}

#[test]
fn a_file_that_cannot_be_opened_for_another_reason_stays_an_error() {
    let dir = tempdir().unwrap();
    let offsets = store(dir.path(), true);
    let reader = open(dir.path());
    let first = dir.path().join("commitlog").join(segment_name(0));
    fs::remove_file(&first).unwrap();
    fs::create_dir(&first).unwrap();
    assert!(matches!(reader.message_at(offsets[0]), Err(Error::Io { .. })));
    assert!(matches!(reader.message_in_queue("orders", 0, 0), Err(Error::Io { .. })));
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..MESSAGES);
}
