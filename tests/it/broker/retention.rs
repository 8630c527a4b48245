//! A trim keeps what groups, delays and open transactions still need.

use mqstore::broker::{Hold, NeededBy};
use mqstore::store::TrimTo;

use super::{Open, SEGMENT, ack, directory, subscription};
use crate::writing::{message, with};

/// A store of small segments with six segments of messages in two queues of `orders`.
fn filled(path: &std::path::Path) -> Open {
    let open = Open::with_segments(path, SEGMENT as u64);
    while open.store.appended_offset() < 6 * SEGMENT {
        for queue_id in 0..2 {
            open.append("orders", queue_id, &"x".repeat(400));
        }
    }
    open.store.wait_dispatched(open.store.appended_offset() - 1, None).unwrap();
    open
}

fn first(open: &Open) -> i64 {
    open.store.reader().physical_bounds().start
}

#[test]
fn a_trim_stops_at_the_first_message_that_a_group_has_not_consumed() {
    let (_dir, path) = directory();
    let open = filled(&path);
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let report = open.broker.trim(TrimTo::Offset(4 * SEGMENT), false, false).unwrap();
    assert_eq!((report.trimmed.segments.len(), first(&open)), (0, 0));
    let group = NeededBy::Group("billing".to_owned());
    let queues: Vec<_> = report
        .holds
        .iter()
        .map(|hold| (&hold.by, hold.queue_id, hold.messages > 0))
        .collect();
    assert_eq!(queues, [(&group, 0, true), (&group, 1, true)]);
    loop {
        let got = consumer.poll(4, Some(std::time::Instant::now())).unwrap();
        let Some(last) = got.last() else { break };
        if last.view().physical_offset() > 3 * SEGMENT {
            break;
        }
        ack(&consumer, &got);
    }
    let dry = open.broker.trim(TrimTo::Offset(4 * SEGMENT), false, true).unwrap();
    assert_eq!(first(&open), 0);
    let report = open.broker.trim(TrimTo::Offset(4 * SEGMENT), false, false).unwrap();
    assert_eq!(report.trimmed.segments, dry.trimmed.segments);
    assert!((SEGMENT..4 * SEGMENT).contains(&first(&open)), "{} {report:?}", first(&open));
    assert!(report.unread.is_empty() && !report.holds.is_empty());
    open.close();
}

#[test]
fn a_forced_trim_names_what_no_group_has_consumed() {
    let (_dir, path) = directory();
    let open = filled(&path);
    drop(open.consumer("billing", subscription(&["orders"])));
    let report = open.broker.trim(TrimTo::Offset(2 * SEGMENT), true, false).unwrap();
    assert_eq!((report.trimmed.segments.len(), report.unread.len()), (2, 2));
    for unread in &report.unread {
        let first = open.store.reader().queue_bounds("orders", unread.queue_id).unwrap().start;
        assert_eq!((unread.queue_offset, unread.messages), (0, first));
    }
    open.close();
}

#[test]
fn progress_is_durable_before_a_trim_and_a_look_at_holds_writes_nothing() {
    let (_dir, path) = directory();
    let open = filled(&path);
    let consumer = open.consumer("billing", subscription(&["orders"]));
    while let got = consumer.poll(100, Some(std::time::Instant::now())).unwrap()
        && !got.is_empty()
    {
        ack(&consumer, &got);
    }
    let file = path.join("config/consumerOffset.json");
    assert_eq!((open.broker.holds().unwrap(), file.exists()), (vec![], false));
    let report = open.broker.trim(TrimTo::Offset(2 * SEGMENT), false, false).unwrap();
    assert_eq!((report.trimmed.segments.len(), file.exists()), (2, true));
    open.close();
}

#[test]
fn a_message_whose_delivery_is_due_is_kept_also_by_a_forced_trim() {
    let (_dir, path) = directory();
    let open = Open::with_segments(&path, SEGMENT as u64);
    let later = with(message("orders", 0, b"later"), &[("DELAY", "18")]);
    open.store.append(later).unwrap();
    while open.store.appended_offset() < 4 * SEGMENT {
        open.append("orders", 0, &"x".repeat(400));
    }
    open.store.wait_dispatched(open.store.appended_offset() - 1, None).unwrap();
    let report = open.broker.trim(TrimTo::Offset(3 * SEGMENT), true, false).unwrap();
    let expected = Hold {
        by: NeededBy::Delay,
        topic: "SCHEDULE_TOPIC_XXXX".to_owned(),
        queue_id: 17,
        queue_offset: 0,
        messages: 1,
        physical_offset: 0,
    };
    assert_eq!((report.trimmed.segments.len(), report.holds), (0, vec![expected]));
    open.close();
}
