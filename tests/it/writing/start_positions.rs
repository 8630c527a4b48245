//! Start positions of passes that follow a store: each near the bounds of a queue, compared with a model.

use std::fs;
use std::sync::Arc;

use mqstore::config::Errors;
use mqstore::error::Error;
use mqstore::read::{Follow, FollowFrom, MessageReader, OnDamage, OnMissing, QueueOffsets, ScanRequest, TagFilter};
use mqstore::remedy::Remedy;
use mqstore::store::MessageStore;

use super::{Place, message};

const QUEUES: [(&str, i32); 4] = [("t", 0), ("t", 1), ("u", 0), ("absent", 0)];

fn put_each(store: &MessageStore, count: usize) {
    for number in 0..count {
        for (topic, queue_id) in QUEUES.into_iter().filter(|(topic, _)| *topic != "absent") {
            // Queue 1 is shorter.
            if queue_id == 0 || number % 3 == 0 {
                store.append(message(topic, queue_id, &[7; 600])).unwrap();
            }
        }
    }
}

/// The start that the documents promise; `None` for a refusal.
fn model(bounds: &std::ops::Range<i64>, offset: i64, on_missing: OnMissing) -> Option<i64> {
    if (bounds.start..=bounds.end).contains(&offset) {
        return Some(offset);
    }
    match on_missing {
        OnMissing::Earliest => Some(bounds.start),
        OnMissing::Latest => Some(bounds.end),
        OnMissing::Refuse => (0..bounds.start).contains(&offset).then_some(bounds.start),
    }
}

fn started(reader: &Arc<MessageReader>, (topic, queue_id): (&str, i32), from: FollowFrom, by_log: bool) -> Result<Follow, Error> {
    let (reader, on_damage) = (Arc::clone(reader), OnDamage::new(Errors::Raise));
    if by_log {
        Follow::of_log(reader, ScanRequest::default(), from, on_damage)
    } else {
        Follow::of_queue(reader, topic, queue_id, TagFilter::parse("*"), &from, on_damage)
    }
}

fn offsets_given(follow: &mut Follow) -> Vec<i64> {
    let end = follow.reader().queued_until();
    std::iter::from_fn(|| follow.next_until(end).unwrap())
        .map(|message| message.view().queue_offset())
        .collect()
}

fn every_start(store: &MessageStore, reader: &Arc<MessageReader>) {
    let mut begun = Vec::new();
    for queue @ (topic, queue_id) in QUEUES {
        let bounds = reader.queue_bounds(topic, queue_id).unwrap();
        let near = (bounds.start - 3..=bounds.start + 3).chain(bounds.end - 3..=bounds.end + 3);
        for offset in near.chain([i64::MIN, -1, 0, 1, i64::MAX]) {
            for on_missing in [OnMissing::Refuse, OnMissing::Earliest, OnMissing::Latest] {
                for by_log in [true, false] {
                    let offsets = QueueOffsets::from([((topic.to_owned(), queue_id), offset)]);
                    let follow = started(reader, queue, FollowFrom::Offsets(offsets, on_missing), by_log);
                    let case = format!("{topic}/{queue_id} at {offset} of {bounds:?}, {on_missing:?}, by log: {by_log}");
                    match (follow, model(&bounds, offset, on_missing)) {
                        (Ok(follow), Some(start)) => begun.push((case, queue, start, follow)),
                        (Err(Error::NotFound { what, remedy }), None) => {
                            let is_there = reader.queue_ids(topic).unwrap().contains(&queue_id);
                            let expected = if is_there {
                                format!("valid positions are {} to {};", bounds.start, bounds.end)
                            } else {
                                format!("there is no topic {topic};")
                            };
                            assert!(what.contains(&expected), "{what}");
                            assert_eq!(remedy, is_there.then_some(Remedy::StartAtBound), "{what}");
                        }
                        (given, expected) => panic!("{case}: {expected:?} expected, got {given:?}"),
                    }
                }
            }
        }
    }
    put_each(store, 4);
    reader.refresh().unwrap();
    for (case, (topic, queue_id), start, mut follow) in begun {
        let end = reader.queue_bounds(topic, queue_id).unwrap().end;
        assert_eq!(offsets_given(&mut follow), (start..end).collect::<Vec<_>>(), "{case}");
    }
}

#[test]
fn every_start_position_is_followed_without_a_gap_or_refused() {
    let place = Place::new();
    let store = place.create();
    let reader = place.reader();
    every_start(&store, &reader);
    put_each(&store, 20);
    reader.refresh().unwrap();
    every_start(&store, &reader);
}

#[test]
fn every_start_position_of_a_store_that_expires_is_followed_or_refused() {
    let place = Place::new();
    let store = place.create();
    put_each(&store, 120);
    // The queues are in their files then.
    store.close().unwrap();
    let store = place.reopen();
    for (dir, count) in [("commitlog", 4), ("consumequeue/t/0", 1), ("consumequeue/u/0", 1)] {
        for name in place.names(dir).iter().take(count) {
            fs::remove_file(place.at(dir).join(name)).unwrap();
        }
    }
    let reader = place.reader();
    assert!(reader.queue_bounds("t", 0).unwrap().start > 0);
    every_start(&store, &reader);
}

#[test]
fn a_start_that_can_never_return_a_message_is_refused() {
    let place = Place::new();
    let store = place.create();
    put_each(&store, 3);
    let reader = place.reader();
    let at = |topic: &str, queue_id: i32| {
        let offsets = QueueOffsets::from([((topic.to_owned(), queue_id), 0)]);
        FollowFrom::Offsets(offsets, OnMissing::Latest)
    };
    let of = |topics: &[&str]| ScanRequest {
        topics: Some(topics.iter().map(ToString::to_string).collect()),
        ..ScanRequest::default()
    };
    let nothing = FollowFrom::Offsets(QueueOffsets::new(), OnMissing::Refuse);
    for (request, from, expected) in [
        (of(&["u"]), at("t", 0), "t/0, which has queue offsets from 0 to 3"),
        (of(&[]), FollowFrom::Latest, "topics names no topic"),
        (of(&["%LMQ%a"]), FollowFrom::Latest, "the light queue %LMQ%a"),
        (ScanRequest::default(), at("%LMQ%a", 0), "the light queue %LMQ%a"),
        (ScanRequest::default(), at("t", -1), "a queue id of start is -1"),
        (ScanRequest::default(), nothing, "start names no queue"),
    ] {
        match Follow::of_log(Arc::clone(&reader), request, from, OnDamage::new(Errors::Raise)) {
            Err(Error::Invalid { what }) => assert!(what.contains(expected), "{what}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
}
