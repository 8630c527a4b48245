//! Trimming: the oldest segments go, and what leads to them; everything else stays, at its offset.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::check::{FindingId, Severity};
use mqstore::config::Errors;
use mqstore::error::Error;
use mqstore::read::{GetMessageStatus, GetRequest, TagFilter};
use mqstore::services::Service;
use mqstore::store::{MessageStore, TrimTo};

use super::full_disk::TAKES_ROOM;
use super::services::stepped;
use super::{Place, SEGMENT, io_error, killed, message, reader, small, with};
use crate::counting_env::CountingEnv;
use crate::queries::by_key;
use crate::verifying::verified;

/// Appends messages to two queues, each with a key, until the log has this many segments.
/// The queue entries of a stepped store are in memory only.
pub(super) fn fill(store: &MessageStore, segments: i64) -> i64 {
    let (mut count, now) = (0, Instant::now());
    while store.appended_offset() < segments * SEGMENT as i64 {
        let keyed = with(
            message("orders", (count % 2) as i32, &[b'x'; 400]),
            &[("KEYS", &format!("k{count}"))],
        );
        store.append(keyed).unwrap();
        count += 1;
    }
    while store.dispatched_offset() < store.appended_offset() {
        store.step(Service::Dispatch, now).unwrap();
    }
    count
}

fn get(store: &MessageStore, queue_id: i32, offset: i64) -> (GetMessageStatus, i64) {
    let request = GetRequest {
        topic: "orders".to_owned(),
        queue_id,
        offset,
        max_messages: 1,
        tags: TagFilter::default(),
        bounded: true,
        errors: Errors::Raise,
    };
    let got = store
        .reader()
        .get(&request, |_| Ok::<_, mqstore::error::Error>(true))
        .unwrap();
    (got.status, got.next_begin_offset)
}

#[test]
fn a_trim_removes_whole_segments_and_what_leads_to_them_alone() {
    let place = Place::new();
    let store = place.create();
    let count = fill(&store, 12);
    store.close().unwrap();
    let store = place.reopen();
    let before = store.reader().queue_bounds("orders", 0).unwrap();
    let files = (place.names("consumequeue/orders/0").len(), place.names("index").len());
    // One byte less than seven segments is six segments.
    let planned = store
        .segments_to_trim(TrimTo::Offset(7 * SEGMENT as i64 - 1), i64::MAX)
        .unwrap();
    let trimmed = store.trim(TrimTo::Offset(7 * SEGMENT as i64 - 1), i64::MAX).unwrap();
    assert_eq!(trimmed.segments, planned);
    assert_eq!((trimmed.segments.len(), trimmed.bytes), (6, 6 * SEGMENT));
    assert!(trimmed.refused.is_none());
    assert_eq!(place.names("commitlog").first().unwrap(), &format!("{:020}", 6 * SEGMENT));
    let left = (place.names("consumequeue/orders/0").len(), place.names("index").len());
    assert!(trimmed.queue_files > 0 && left.0 < files.0, "{trimmed:?}");
    assert_eq!(left.1, files.1 - trimmed.index_files);
    let bounds = store.reader().queue_bounds("orders", 0).unwrap();
    assert!(bounds.start > 0 && bounds.end == before.end);
    assert_eq!(get(&store, 0, 0), (GetMessageStatus::OffsetTooSmall, bounds.start));
    assert_eq!(get(&store, 0, bounds.start).0, GetMessageStatus::Found);
    let hits = |n: i64| {
        let found = store.reader().query(&by_key("orders", &format!("k{n}"))).unwrap();
        assert!(found.complete);
        found.hits.len()
    };
    assert_eq!((hits(0), hits(count - 1), hits(2 * bounds.start)), (0, 1, 1));
    store.close().unwrap();
    let store = place.reopen();
    assert_eq!(store.reader().queue_bounds("orders", 0).unwrap(), bounds);
    assert_eq!(
        store.append(message("orders", 0, b"next")).unwrap().appended.queue_offset,
        before.end
    );
    store.close().unwrap();
    let report = verified(&place.store);
    assert!(report.is_ok(), "{:?}", report.findings);
}

#[test]
fn the_last_messages_stay_whatever_a_trim_asks_for() {
    let place = Place::new();
    let store = place.create();
    assert_eq!(store.trim(TrimTo::Bytes(0), i64::MAX).unwrap().segments, []);
    fill(&store, 4);
    for to in [TrimTo::Bytes(0), TrimTo::Offset(i64::MAX), TrimTo::StoreTime(i64::MAX)] {
        store.trim(to, i64::MAX).unwrap();
        assert!(store.appended_offset() - store.reader().physical_bounds().start <= 2 * SEGMENT as i64);
        let found = (0..2).filter(|id| {
            let end = store.reader().queue_bounds("orders", *id).unwrap().end;
            get(&store, *id, end - 1).0 == GetMessageStatus::Found
        });
        assert!(found.count() > 0);
    }
    store.close().unwrap();
    assert!(verified(&place.store).is_ok());
}

#[test]
fn a_log_is_trimmed_to_a_size_and_by_store_time() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    env.set_now(1_000_000);
    fill(&store, 3);
    env.set_now(2_000_000);
    fill(&store, 6);
    // The third segment ends with a message of the second time, or is followed by one.
    let old = store.segments_to_trim(TrimTo::StoreTime(1_500_000), i64::MAX).unwrap();
    assert!((2..=3).contains(&old.len()), "{old:?}");
    assert_eq!(store.segments_to_trim(TrimTo::StoreTime(1_000_000), i64::MAX).unwrap(), []);
    store.trim(TrimTo::Bytes(3 * SEGMENT), i64::MAX).unwrap();
    let bytes = store.appended_offset() - store.reader().physical_bounds().start;
    assert!((2 * SEGMENT as i64..=3 * SEGMENT as i64).contains(&bytes), "{bytes}");
    store.close().unwrap();
    assert!(verified(&place.store).is_ok());
}

#[test]
fn a_view_of_a_trimmed_message_stays_readable_and_is_counted_as_held() {
    let place = Place::new();
    let store = place.create();
    fill(&store, 4);
    let message = store.reader().message_in_queue("orders", 0, 0).unwrap();
    let trimmed = store.trim(TrimTo::Offset(SEGMENT as i64), i64::MAX).unwrap();
    assert_eq!((trimmed.segments.len(), trimmed.held_bytes), (1, SEGMENT));
    assert_eq!(message.view().body(), &[b'x'; 400]);
    store.close().unwrap();
}

#[test]
fn a_segment_that_the_system_does_not_remove_is_reported_and_tried_again() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    fill(&store, 5);
    env.before_changes(|change| {
        let is_second = change.starts_with("unlink") && change.contains(&format!("commitlog/{SEGMENT:020}"));
        if is_second { Err(io_error()) } else { Ok(()) }
    });
    let trimmed = store.trim(TrimTo::Offset(3 * SEGMENT as i64), i64::MAX).unwrap();
    assert_eq!((trimmed.segments.len(), trimmed.refused.is_some()), (1, true));
    assert_eq!(place.names("commitlog").first().unwrap(), &format!("{SEGMENT:020}"));
    env.heal();
    let trimmed = store.trim(TrimTo::Offset(3 * SEGMENT as i64), i64::MAX).unwrap();
    assert_eq!((trimmed.segments.len(), trimmed.refused.is_some()), (2, false));
    store.close().unwrap();
    assert!(verified(&place.store).is_ok());
}

/// Fails what needs room: the mark of the flushed offset is overwritten in place.
fn fill_disk(env: &CountingEnv) {
    env.before_changes(|change| {
        let takes_room = TAKES_ROOM.iter().any(|what| change.starts_with(what)) && !change.contains("mqstore.flushed");
        if takes_room {
            Err(io::Error::from_raw_os_error(28))
        } else {
            Ok(())
        }
    });
}

#[test]
fn a_trim_on_a_full_disk_removes_messages_whose_entries_are_on_disk() {
    let place = Place::new();
    let (env, store) = stepped(&place);
    let to = TrimTo::Offset(6 * SEGMENT as i64);
    let mut count = fill(&store, 4);
    fill_disk(&env);
    assert!(matches!(store.trim(to, i64::MAX), Err(Error::DiskFull { .. })));
    assert_eq!(store.reader().physical_bounds().start, 0);
    env.heal();
    store
        .step(Service::Dispatch, Instant::now() + Duration::from_secs(1))
        .unwrap();
    count += fill(&store, 8);
    fill_disk(&env);
    let trimmed = store.trim(to, i64::MAX).unwrap();
    assert_eq!(trimmed.segments.last().unwrap().end, 4 * SEGMENT as i64);
    assert!(matches!(trimmed.refused, Some(Error::DiskFull { .. })), "{trimmed:?}");
    let crashed = killed(&place);
    let ends: i64 = (0..2)
        .map(|id| reader(crashed.path()).queue_bounds("orders", id).unwrap().end)
        .sum();
    assert_eq!(ends, count);
    assert!(verified(crashed.path()).is_ok());
    env.heal();
    let trimmed = store.trim(to, i64::MAX).unwrap();
    assert_eq!((trimmed.segments.len(), trimmed.refused.is_none()), (2, true));
    store.close().unwrap();
    assert!(verified(&place.store).is_ok());
}

#[test]
fn a_trim_of_many_segments_syncs_their_directory_once() {
    let place = Place::new();
    let (env, store) = place.create_counting(small());
    fill(&store, 8);
    let before = env.changes().len();
    store.trim(TrimTo::Offset(6 * SEGMENT as i64), i64::MAX).unwrap();
    let changes = env.changes().split_off(before);
    let first = changes
        .iter()
        .position(|change| change.starts_with("unlink") && change.contains("/commitlog/"));
    let noted = changes
        .iter()
        .position(|change| change.starts_with("sync directory ConfigRenamed"));
    assert!(noted.is_some() && noted < first, "{changes:?}");
    let syncs = changes.iter().filter(|change| change.contains("LogExpired"));
    assert_eq!(syncs.count(), 1);
    store.close().unwrap();
}

#[test]
fn a_first_segment_that_no_trim_has_removed_is_missing() {
    let place = Place::new();
    let store = place.create();
    fill(&store, 6);
    for trimmed in 1..=2 {
        store.trim(TrimTo::Offset(trimmed * SEGMENT as i64), i64::MAX).unwrap();
    }
    store.close().unwrap();
    assert!(verified(&place.store).findings.is_empty());
    fs::remove_file(place.at("commitlog").join(format!("{:020}", 2 * SEGMENT))).unwrap();
    let missing = format!("the physical offsets from {} to {}", 2 * SEGMENT, 3 * SEGMENT);
    let found = |root: &Path| {
        let findings = verified(root).findings;
        let mut late = findings.iter().filter(|finding| finding.id == FindingId::LogBeginsLate);
        late.any(|finding| finding.what.contains(&missing))
    };
    assert!(found(&place.store));
    place.reopen().close().unwrap();
    assert!(found(&place.store));
    // A broker that has opened the store since removes segments by right.
    let broker = killed(&place);
    fs::write(broker.path().join("lock"), b"lock").unwrap();
    assert!(!found(broker.path()));
}

#[test]
fn a_hole_that_an_interrupted_trim_has_left_is_no_damage() {
    let place = Place::new();
    let store = place.create();
    fill(&store, 8);
    store.close().unwrap();
    let back = place.at("commitlog").join(format!("{SEGMENT:020}"));
    let bytes = fs::read(&back).unwrap();
    let store = place.reopen();
    store.trim(TrimTo::Offset(6 * SEGMENT as i64), i64::MAX).unwrap();
    let bounds = store.reader().queue_bounds("orders", 0).unwrap();
    store.close().unwrap();
    // A power failure brings one segment back.
    fs::write(&back, bytes).unwrap();
    let note = place.at("config/mqstore-trim.json");
    let found = place.reader();
    assert!(found.recovery().missing.is_none());
    assert_eq!(found.physical_bounds().start, 6 * SEGMENT as i64);
    assert_eq!(found.queue_bounds("orders", 0).unwrap(), bounds);
    assert!(verified(&place.store).is_ok());
    // Without the note a segment is missing, and a note about an earlier trim does not explain the hole.
    for text in ["", &format!("{{\"log_begins_at\":{}}}", 5 * SEGMENT)] {
        let kept = fs::read(&note).unwrap();
        fs::write(&note, text).unwrap();
        assert!(place.reader().recovery().missing.is_some(), "{text}");
        fs::write(&note, kept).unwrap();
    }
    place.reopen().close().unwrap();
    assert!(!back.exists());
    assert_eq!(place.reader().queue_bounds("orders", 0).unwrap(), bounds);
}

#[test]
fn a_trim_that_fails_at_any_call_leaves_a_whole_store() {
    for call in 0.. {
        let place = Place::new();
        let (env, store) = stepped(&place);
        let count = fill(&store, 5);
        let calls = Arc::new(AtomicI64::new(0));
        let counted = calls.clone();
        env.before_changes(move |_| {
            if counted.fetch_add(1, Ordering::SeqCst) == call {
                Err(io_error())
            } else {
                Ok(())
            }
        });
        let _ = store.trim(TrimTo::Offset(3 * SEGMENT as i64), i64::MAX);
        let is_past_the_last = calls.load(Ordering::SeqCst) <= call;
        env.heal();
        // As a crash leaves it, and as a close does.
        let crashed = killed(&place);
        for root in [crashed.path().to_owned(), place.store.clone()] {
            let reader = reader(&root);
            let bounds = reader.queue_bounds("orders", 0).unwrap();
            assert_eq!(bounds.end, (count + 1) / 2, "call {call}");
            for offset in bounds {
                reader.message_in_queue("orders", 0, offset).unwrap();
            }
            let findings = verified(&root).findings;
            assert!(
                findings.iter().all(|finding| finding.severity != Severity::Error),
                "call {call}: {findings:?}"
            );
        }
        let _ = store.close();
        if is_past_the_last {
            assert!(call > 5, "{call} calls");
            return;
        }
    }
}

#[test]
fn reads_beside_trims_find_each_message_or_that_it_has_expired() {
    let place = Place::new();
    let store = place.create();
    let is_over = AtomicI64::new(0);
    thread::scope(|scope| {
        let (store, is_over) = (&store, &is_over);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let mut found = 0;
                    while is_over.load(Ordering::SeqCst) == 0 {
                        let bounds = store.reader().queue_bounds("orders", 0).unwrap();
                        for offset in bounds {
                            match get(store, 0, offset) {
                                (GetMessageStatus::Found, next) => {
                                    assert!(next > offset);
                                    found += 1;
                                }
                                (status, next) => {
                                    assert!(next > offset, "{status:?} at {offset}, then {next}");
                                    // The segment goes before the queue begins later.
                                    let deadline = Instant::now() + Duration::from_secs(10);
                                    while store.reader().queue_bounds("orders", 0).unwrap().start <= offset {
                                        assert!(Instant::now() < deadline, "{status:?} at {offset}");
                                        thread::yield_now();
                                    }
                                }
                            }
                        }
                    }
                    found
                })
            })
            .collect();
        for segments in 2..40 {
            fill(store, segments);
            store.trim(TrimTo::Bytes(2 * SEGMENT), i64::MAX).unwrap();
        }
        is_over.store(1, Ordering::SeqCst);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    store.close().unwrap();
    assert!(verified(&place.store).is_ok());
}
