//! Retries of a message: their times and levels, and the dead letter after them.

use std::time::Instant;

use mqstore::broker::{Start, Subscription};
use mqstore::error::Error;
use mqstore::format::{DelayLevels, MessageView, SCHEDULE_TOPIC};

use super::delay::Stepped;
use super::{Open, ack, bodies, directory, subscription};
use crate::writing::{message, with};

/// The retries of a message by RocketMQ's default.
const RETRIES: i32 = 16;
/// The delay level of the first retry.
const FIRST_LEVEL: i32 = 3;
const RETRY_TOPIC: &str = "%RETRY%billing";

/// Checks the properties that a record of the message has after a failure, and those of its producer.
fn expect_properties(view: &MessageView<'_>, origin: &str, delay: &str) {
    let properties = view.properties();
    for (name, value) in [
        ("RETRY_TOPIC", "orders"),
        ("ORIGIN_MESSAGE_ID", origin),
        ("WAIT", "false"),
        ("DELAY", delay),
        ("REAL_TOPIC", RETRY_TOPIC),
        ("REAL_QID", "0"),
        ("TAGS", "paid"),
        ("colour", "red"),
    ] {
        assert_eq!(properties.get(name).as_deref(), Some(value), "{name} of {}", view.topic());
    }
}

#[test]
fn a_message_that_fails_17_times_has_16_retries_and_is_a_dead_letter() {
    let mut open = Stepped::new();
    let sent = with(
        message("orders", 0, b"m"),
        &[("TAGS", "paid"), ("colour", "red"), ("WAIT", "true")],
    );
    open.store.append(sent).unwrap();
    open.dispatch();
    let group = Some("billing");
    let consumer = open
        .broker
        .consumer(group, subscription(&["orders"]), &Start::Earliest)
        .unwrap();
    let levels = DelayLevels::default();
    let mut given = consumer.take(9, open.now()).unwrap().remove(0);
    let (origin, born) = (given.view().message_id().to_string(), given.view().born_time());
    for failures in 1..=RETRIES {
        let level = FIRST_LEVEL + failures - 1;
        assert!(consumer.nack(&given.view(), None, open.now()).unwrap());
        open.dispatch();
        // Each level has a queue of its own.
        let waits = open.store.reader().message_in_queue(SCHEDULE_TOPIC, level - 1, 0).unwrap();
        assert_eq!((waits.view().reconsume_times(), waits.view().body()), (failures, &b"m"[..]));
        expect_properties(&waits.view(), &origin, &level.to_string());
        open.pass(levels.delay_ms(level) - 1);
        open.deliver();
        assert_eq!(bodies(&consumer.take(9, open.now()).unwrap()), [""; 0], "level {level}");
        open.pass(1);
        open.deliver();
        open.dispatch();
        given = consumer.take(9, open.now()).unwrap().remove(0);
        let view = given.view();
        assert_eq!((view.topic().as_ref(), view.queue_id()), (RETRY_TOPIC, 0));
        assert_eq!(
            (view.queue_offset(), view.reconsume_times()),
            (i64::from(failures) - 1, failures)
        );
        assert_eq!(view.born_time(), born);
        // A delivered copy names its delay still, as a broker leaves it.
        expect_properties(&view, &origin, &level.to_string());
    }
    let queues = open.store.reader().queue_ids(SCHEDULE_TOPIC).unwrap();
    assert_eq!(queues, (FIRST_LEVEL - 1..FIRST_LEVEL - 1 + RETRIES).collect::<Vec<_>>());
    assert!(consumer.nack(&given.view(), None, open.now()).unwrap());
    open.dispatch();
    let dead = open.store.reader().message_in_queue("%DLQ%billing", 0, 0).unwrap();
    assert_eq!((dead.view().reconsume_times(), dead.view().body()), (RETRIES + 1, &b"m"[..]));
    expect_properties(&dead.view(), &origin, "0");
    // Nothing waits any more, and everything is settled.
    open.pass(levels.delay_ms(levels.max_level()));
    open.deliver();
    assert_eq!(bodies(&consumer.take(9, open.now()).unwrap()), [""; 0]);
    let settled = consumer.positions().unwrap();
    assert!(
        settled.iter().all(|position| position.committed == position.queue.end),
        "{settled:?}"
    );
    open.close();
}

#[test]
fn the_tags_of_a_subscription_do_not_filter_retries() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    open.append("orders", 0, "unpaid");
    // The group had another subscription when it failed on the message.
    open.append(RETRY_TOPIC, 0, "unpaid");
    let paid = Subscription {
        tags: "paid".to_owned(),
        ..subscription(&["orders"])
    };
    let consumer = open.consumer("billing", paid);
    let got = consumer.poll(9, Some(Instant::now())).unwrap();
    assert_eq!(bodies(&got), ["unpaid"]);
    assert_eq!(got[0].view().topic(), RETRY_TOPIC);
    open.close();
}

#[test]
fn a_message_whose_retry_cannot_be_stored_stays_in_flight() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    // The properties that a retry adds do not fit.
    let large = "x".repeat(32_700);
    open.store
        .append(with(message("orders", 0, b"m"), &[("large", &large)]))
        .unwrap();
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(9, None).unwrap();
    let refused = consumer.nack(&got[0].view(), None, Instant::now());
    assert!(matches!(refused, Err(Error::IllegalMessage { .. })), "{refused:?}");
    let position = consumer.positions().unwrap().remove(0);
    assert_eq!((position.committed, position.in_flight), (0, 1));
    assert_eq!(ack(&consumer, &got), 1);
    open.close();
}
