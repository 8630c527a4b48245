//! A trim keeps what groups, delays and open transactions still need.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerController, Hold, NeededBy, NextRemoval, Start, TrimReport, TrimRequest, next_removal, trim_closed};
use mqstore::config::StoreConfig;
use mqstore::error::{Error, Result};
use mqstore::read::MessageReader;
use mqstore::services::{CleanReason, Next, Service};
use mqstore::storage::{Env, RealEnv};
use mqstore::store::{MessageStore, OpenMode, TrimTo};

use super::{Open, SEGMENT, ack, directory, subscription};
use crate::counting_env::CountingEnv;
use crate::writing::{killed_at, message, with};

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

/// Lets a group consume everything, appends a message, and fills the log after it. Returns the holds of a trim that wants all segments.
fn holds_of_a_later_message(subscribed: &[&str], topic: &str, queue_id: i32) -> Vec<Hold> {
    let (_dir, path) = directory();
    let open = filled(&path);
    let consumer = open.consumer("billing", subscription(subscribed));
    while let got = consumer.poll(100, Some(Instant::now())).unwrap()
        && ack(&consumer, &got) > 0
    {}
    consumer.close().unwrap();
    open.append(topic, queue_id, "later");
    while open.store.appended_offset() < 12 * SEGMENT {
        open.append("filler", 0, &"x".repeat(400));
    }
    open.store.catch_up(Duration::from_secs(10)).unwrap();
    let report = open.broker.trim(TrimTo::Offset(10 * SEGMENT), false, false).unwrap();
    assert!((5..7).contains(&report.trimmed.segments.len()), "{report:?}");
    let later = open.store.reader().message_in_queue(topic, queue_id, 0).unwrap();
    assert_eq!(later.view().body(), b"later");
    let lag = open.store.reader().lag().unwrap().content;
    let lags = lag
        .iter()
        .filter(|lag| (lag.topic.as_str(), lag.queue_id) == (topic, queue_id));
    assert_eq!(lags.map(|lag| (lag.offset, lag.lag())).collect::<Vec<_>>(), [(None, Some(1))]);
    let forced = open.broker.trim(TrimTo::Offset(10 * SEGMENT), true, false).unwrap();
    assert_eq!(forced.unread.iter().map(|hold| &hold.topic).collect::<Vec<_>>(), [topic]);
    open.close();
    report.holds
}

#[test]
fn a_retry_that_its_group_never_polled_is_kept() {
    let holds = holds_of_a_later_message(&["orders"], "%RETRY%billing", 0);
    let [hold] = &holds[..] else { panic!("{holds:?}") };
    assert_eq!(hold.by, NeededBy::Group("billing".to_owned()));
    assert_eq!(
        (hold.topic.as_str(), hold.queue_offset, hold.messages),
        ("%RETRY%billing", 0, 1)
    );
}

#[test]
fn a_queue_that_came_after_the_last_poll_of_a_group_is_kept() {
    let holds = holds_of_a_later_message(&["orders", "refunds"], "refunds", 2);
    let [hold] = &holds[..] else { panic!("{holds:?}") };
    assert_eq!(hold.by, NeededBy::Group("billing".to_owned()));
    assert_eq!((hold.topic.as_str(), hold.queue_id, hold.messages), ("refunds", 2, 1));
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
    let written = || fs::read(path.join("config/consumerOffset.json")).unwrap();
    let before = written();
    assert_eq!((open.broker.holds().unwrap(), written() == before), (vec![], true));
    let report = open.broker.trim(TrimTo::Offset(2 * SEGMENT), false, false).unwrap();
    assert_eq!((report.trimmed.segments.len(), written() == before), (2, false));
    open.close();
}

#[test]
fn a_trim_on_a_full_disk_goes_by_the_progress_on_disk() {
    let (_dir, path) = directory();
    filled(&path).close();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let open = Open::in_env(&seam, &path, StoreConfig::default());
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let consume_until = |physical_offset| {
        while let got = consumer.poll(2, Some(Instant::now())).unwrap()
            && ack(&consumer, &got) > 0
            && got.iter().all(|message| message.view().physical_offset() < physical_offset)
        {}
    };
    consume_until(2 * SEGMENT + SEGMENT / 2);
    consumer.commit().unwrap();
    consume_until(4 * SEGMENT + SEGMENT / 2);
    env.before_changes(|change| {
        let takes_room = change.starts_with("create ") && change.contains("/config/");
        if takes_room {
            Err(std::io::Error::from_raw_os_error(28))
        } else {
            Ok(())
        }
    });
    let to = TrimTo::Offset(4 * SEGMENT);
    let report = open.broker.trim(to, false, false).unwrap();
    assert_eq!((report.trimmed.segments.len(), first(&open)), (2, 2 * SEGMENT));
    assert!(matches!(report.trimmed.refused, Some(Error::DiskFull { .. })), "{report:?}");
    let again = open.broker.trim(to, false, false);
    assert!(matches!(again, Err(Error::DiskFull { .. })), "{again:?}");
    let crashed = killed_at(&path);
    let after_crash = Open::at(crashed.path());
    let billing = after_crash.consumer("billing", subscription(&["orders"]));
    let got = billing.poll(1, Some(Instant::now())).unwrap();
    assert!(got.first().unwrap().view().physical_offset() > 2 * SEGMENT);
    drop(billing);
    after_crash.close();
    env.heal();
    let report = open.broker.trim(to, false, false).unwrap();
    assert_eq!((report.trimmed.segments.len(), report.trimmed.refused.is_none()), (2, true));
    drop(consumer);
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

#[test]
fn a_group_is_not_deleted_while_its_first_consumer_joins() {
    let (_dir, path) = directory();
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let store = Arc::new(MessageStore::open_stepped(&env, &path, StoreConfig::default(), OpenMode::Append).unwrap());
    let broker = Arc::new(BrokerController::new_stepped(&store));
    let join = || {
        broker
            .consumer(Some("billing"), subscription(&["orders"]), &Start::Earliest)
            .unwrap()
    };
    let append = |body: &[u8]| {
        store.append(message("orders", 0, body)).unwrap();
    };
    let dispatch = || while store.step(Service::Dispatch, Instant::now()).unwrap() == Next::Again {};
    append(b"a");
    dispatch();
    let consumer = join();
    assert_eq!(ack(&consumer, &consumer.poll(1, Some(Instant::now())).unwrap()), 1);
    consumer.close().unwrap();
    // Nothing dispatches these messages, so the join waits for as long as a read is patient.
    append(b"b");
    append(b"c");
    let deleter = broker.clone();
    let deletion = thread::spawn(move || {
        thread::sleep(MessageStore::PATIENCE / 3);
        deleter.delete_group("billing")
    });
    let consumer = join();
    // The group was deleted before the consumer came, or not at all.
    let deleted = deletion.join().unwrap();
    assert!(matches!(deleted, Ok(()) | Err(Error::Invalid { .. })), "{deleted:?}");
    assert!(broker.subscription_groups().get("billing").unwrap().is_some());
    dispatch();
    let messages = consumer.poll(9, Some(Instant::now())).unwrap();
    assert_eq!(ack(&consumer, &messages), messages.len());
    consumer.commit().unwrap();
    let [progress] = &store.reader().consumer_offsets().unwrap().content[..] else {
        panic!("one group")
    };
    assert_eq!((progress.group.as_str(), progress.offset), ("billing", 3));
    consumer.close().unwrap();
    broker.close().unwrap();
    store.close().unwrap();
}

#[test]
fn a_deleted_group_is_gone_from_the_progress_of_light_queues() {
    let (_dir, path) = directory();
    let open = filled(&path);
    open.close();
    let file = path.join("config/lmqConsumerOffset.json");
    let light = r#"{"offsetTable":{"orders@billing":{0:1,1:1},"orders@audit":{0:1}},"lmqOffsetTable":{"%LMQ%a@%LMQ%g":4}}"#;
    fs::write(&file, light).unwrap();
    let open = Open::at(&path);
    let groups = |open: &Open| {
        let mut groups: Vec<_> = open.broker.holds().unwrap().into_iter().map(|hold| hold.by).collect();
        groups.dedup();
        groups
    };
    let group = |name: &str| NeededBy::Group(name.to_owned());
    assert_eq!(groups(&open), [group("audit"), group("billing")]);
    open.broker.delete_group("billing").unwrap();
    assert_eq!(groups(&open), [group("audit")]);
    let rest: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let expected = serde_json::json!({"offsetTable": {"orders@audit": {"0": 1}}, "lmqOffsetTable": {"%LMQ%a@%LMQ%g": 4}});
    assert_eq!(rest, expected);
    assert!(matches!(open.broker.delete_group("billing"), Err(Error::NotFound { .. })));
    open.close();
}

/// The next removal of a writer with these options, as a reader of its store sees it.
fn removal(path: &std::path::Path, config: &StoreConfig) -> Option<NextRemoval> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let reader = MessageReader::open(&env, path, StoreConfig::default()).unwrap();
    next_removal(&Arc::new(reader), config).unwrap()
}

#[test]
fn a_reader_names_the_segment_that_goes_next_and_who_keeps_it() {
    let (_dir, path) = directory();
    let open = filled(&path);
    let consumer = open.consumer("billing", subscription(&["orders"]));
    consumer.close().unwrap();
    open.close();
    assert!(removal(&path, &StoreConfig::default()).is_none());
    let by_length = StoreConfig {
        max_log_bytes: Some(2 * SEGMENT as u64),
        ..StoreConfig::default()
    };
    let next = removal(&path, &by_length).unwrap();
    assert_eq!(
        (next.segment, next.reason, next.due),
        (Some(0..SEGMENT), Some(CleanReason::LogBytes), None)
    );
    assert!(next.holds.iter().all(|hold| hold.by == NeededBy::Group("billing".to_owned())));
    assert_eq!(next.holds.len(), 2);
    let by_age = StoreConfig {
        file_reserved_time: Some(Duration::from_secs(3600)),
        ..StoreConfig::default()
    };
    let next = removal(&path, &by_age).unwrap();
    let now = RealEnv::new().now_ms();
    assert_eq!((next.segment, next.reason), (Some(0..SEGMENT), None));
    assert!((now..=now + 3_600_000).contains(&next.due.unwrap()), "{:?}", next.due);
    // Without a message after the oldest segment nothing goes.
    let open = Open::at(&path);
    open.broker.trim(TrimTo::Offset(i64::MAX), true, false).unwrap();
    open.close();
    assert_eq!(removal(&path, &by_length).unwrap().segment, None);
}

/// Trims a closed store to its last segments.
fn trim(path: &std::path::Path, is_forced: bool) -> Result<TrimReport> {
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let request = TrimRequest {
        to: TrimTo::Offset(2 * SEGMENT),
        is_forced,
        is_dry_run: false,
    };
    trim_closed(&env, path, &StoreConfig::default(), request)
}

fn expect_lost(trimmed: Result<TrimReport>, group: &str) {
    let error = trimmed.unwrap_err();
    let is_named = matches!(&error, Error::Corrupt { path, reason, .. }
        if path.ends_with("config/consumerOffset.json") && reason.contains(&format!("{group:?}")));
    assert!(is_named, "{error}");
}

/// Consumes all messages of `orders` as this group, durably.
fn consume_all(open: &Open, group: &str) {
    let consumer = open.consumer(group, subscription(&["orders"]));
    while let got = consumer.poll(100, Some(Instant::now())).unwrap()
        && ack(&consumer, &got) > 0
    {}
    consumer.commit().unwrap();
    consumer.close().unwrap();
}

#[test]
fn a_group_whose_progress_is_lost_keeps_every_message_unless_forced() {
    let (_dir, path) = directory();
    let open = filled(&path);
    consume_all(&open, "billing");
    open.close();
    let file = path.join("config/consumerOffset.json");
    let kept = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    expect_lost(trim(&path, false), "billing");
    let by_length = StoreConfig {
        max_log_bytes: Some(2 * SEGMENT as u64),
        ..StoreConfig::default()
    };
    let env: Arc<dyn Env> = Arc::new(RealEnv::new());
    let reader = Arc::new(MessageReader::open(&env, &path, StoreConfig::default()).unwrap());
    assert!(matches!(next_removal(&reader, &by_length), Err(Error::Corrupt { .. })));
    // The progress of another group, in a new file, does not hide the loss, nor does the next open.
    for group in ["audit", "shipping"] {
        let open = Open::at(&path);
        expect_lost(open.broker.trim(TrimTo::Offset(2 * SEGMENT), false, false), "billing");
        consume_all(&open, group);
        assert!(file.exists());
        expect_lost(open.broker.trim(TrimTo::Offset(2 * SEGMENT), false, false), "billing");
        open.close();
        expect_lost(trim(&path, false), "billing");
    }
    let with_others = fs::read(&file).unwrap();
    fs::write(&file, kept).unwrap();
    let _ = fs::remove_file(path.join("config/consumerOffset.json.bak"));
    let removed = trim(&path, false).unwrap().trimmed.segments.len();
    assert_eq!(removed, 2);
    fs::write(&file, with_others).unwrap();
    expect_lost(trim(&path, false), "billing");
    assert!(trim(&path, true).is_ok());
    let open = Open::at(&path);
    open.broker.delete_group("billing").unwrap();
    open.close();
    assert!(trim(&path, false).is_ok());
}

#[test]
fn progress_that_is_lost_is_none_of_a_new_group_or_of_groups_of_a_broker() {
    let (_dir, path) = directory();
    let open = filled(&path);
    let consumer = open.consumer("billing", subscription(&["nothing yet"]));
    let report = open.broker.trim(TrimTo::Offset(SEGMENT), false, false).unwrap();
    assert_eq!(report.trimmed.segments.len(), 1);
    consumer.close().unwrap();
    open.broker.delete_group("billing").unwrap();
    open.close();
    let config = path.join("config");
    for name in ["consumerOffset.json", "consumerOffset.json.bak"] {
        let _ = fs::remove_file(config.join(name));
    }
    let groups = r#"{"subscriptionGroupTable":{"TOOLS_CONSUMER":{},"CID_ONSAPI_PULL":{},"CID_RMQ_SYS_TRANS":{}}}"#;
    fs::write(config.join("subscriptionGroup.json"), groups).unwrap();
    assert_eq!(trim(&path, false).unwrap().trimmed.segments.len(), 1);
}

#[test]
fn a_group_missing_from_the_previous_version_of_the_progress_keeps_all() {
    let (_dir, path) = directory();
    let open = filled(&path);
    consume_all(&open, "billing");
    open.close();
    // This open keeps the file without the second group as the previous version.
    let open = Open::at(&path);
    consume_all(&open, "audit");
    open.close();
    fs::remove_file(path.join("config/consumerOffset.json")).unwrap();
    assert!(path.join("config/consumerOffset.json.bak").exists());
    expect_lost(trim(&path, false), "audit");
}
