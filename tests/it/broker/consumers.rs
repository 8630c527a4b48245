//! Consumers: what a group is given, what it has acknowledged, and who reads which queue.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerController, BrokerService, Start, Subscription};
use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::read::OnMissing;
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode};

use super::{CONSUME_TIMEOUT, Open, SEGMENT, ack, bodies, directory, subscription};
use crate::counting_env::CountingEnv;

#[test]
fn two_groups_each_get_every_message_in_order() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for n in 0..100 {
        open.append("orders", 0, &format!("m{n}"));
    }
    for group in ["billing", "shipping"] {
        let consumer = open.consumer(group, subscription(&["orders"]));
        let mut got = Vec::new();
        while got.len() < 100 {
            let messages = consumer.poll(7, None).unwrap();
            assert!((1..=7).contains(&messages.len()));
            got.extend(bodies(&messages));
            assert_eq!(ack(&consumer, &messages), messages.len());
        }
        assert_eq!(got, (0..100).map(|n| format!("m{n}")).collect::<Vec<_>>());
        let now = Some(Instant::now());
        assert_eq!(consumer.poll(7, now).unwrap().len(), 0);
    }
    open.close();
}

#[test]
fn progress_is_the_lowest_message_that_is_not_acknowledged() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c", "d"] {
        open.append("orders", 0, tag);
    }
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(10, None).unwrap();
    let committed = || consumer.positions().unwrap()[0].committed;
    assert_eq!(ack(&consumer, &got[1..3]), 2);
    assert_eq!((committed(), consumer.positions().unwrap()[0].in_flight), (0, 2));
    assert_eq!(ack(&consumer, &got[0..1]), 1);
    assert_eq!(committed(), 3);
    assert_eq!(ack(&consumer, &got), 1);
    assert_eq!((committed(), consumer.positions().unwrap()[0].next), (4, 4));
    open.close();
}

#[test]
fn a_group_continues_after_a_close_where_it_was() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c"] {
        open.append("orders", 0, tag);
    }
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(2, None).unwrap();
    ack(&consumer, &got[..1]);
    open.close();
    drop(consumer);
    let open = Open::at(&path);
    let consumer = open.consumer("billing", subscription(&["orders"]));
    assert_eq!(bodies(&consumer.poll(9, None).unwrap()), ["b", "c"]);
    open.close();
}

#[test]
fn a_poll_is_woken_by_an_append() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    let consumer = Arc::new(open.consumer("billing", subscription(&["orders"])));
    let polling = thread::spawn({
        let consumer = consumer.clone();
        move || bodies(&consumer.poll(9, None).unwrap())
    });
    thread::sleep(Duration::from_millis(20));
    open.append("orders", 0, "late");
    assert_eq!(polling.join().unwrap(), ["late"]);
    open.close();
}

#[test]
fn a_poll_that_waits_ends_when_the_store_is_closed() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    let consumer = Arc::new(open.consumer("billing", subscription(&["orders"])));
    let polling = thread::spawn({
        let consumer = consumer.clone();
        move || consumer.poll(9, None).map(|messages| messages.len())
    });
    thread::sleep(Duration::from_millis(20));
    open.close();
    assert!(matches!(polling.join().unwrap(), Err(Error::Closed)));
}

#[test]
fn consumers_of_a_group_divide_its_queues_at_once() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for queue_id in 0..5 {
        open.append("orders", queue_id, "x");
    }
    let queues = |consumer: &mqstore::broker::Consumer| {
        let positions = consumer.positions().unwrap();
        positions.iter().map(|position| position.queue_id).collect::<Vec<_>>()
    };
    let first = open.consumer("billing", subscription(&["orders"]));
    assert_eq!(queues(&first), [0, 1, 2, 3, 4]);
    let second = open.consumer("billing", subscription(&["orders"]));
    assert_eq!((queues(&first), queues(&second)), (vec![0, 1, 2], vec![3, 4]));
    first.close().unwrap();
    assert_eq!(queues(&second), [0, 1, 2, 3, 4]);
    assert!(matches!(first.poll(1, None), Err(Error::Closed)));
    open.close();
}

#[test]
fn messages_of_a_consumer_that_leaves_are_given_to_another() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c", "d"] {
        open.append("orders", 0, tag);
    }
    let first = open.consumer("billing", subscription(&["orders"]));
    let got = first.poll(3, None).unwrap();
    ack(&first, &got[1..2]);
    let second = open.consumer("billing", subscription(&["orders"]));
    first.close().unwrap();
    // Not "b", which the first one has acknowledged.
    assert_eq!(bodies(&second.poll(9, None).unwrap()), ["a", "c", "d"]);
    open.close();
}

#[test]
fn another_subscription_of_the_same_group_is_refused() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    let first = open.consumer("billing", subscription(&["orders"]));
    let join = |topics: &[&str], tags: &str| {
        let other = Subscription {
            tags: tags.to_owned(),
            ..subscription(topics)
        };
        open.broker.consumer(Some("billing"), other, &Start::Earliest)
    };
    for other in [join(&["refunds"], "*"), join(&["orders"], "paid")] {
        assert!(matches!(other, Err(Error::Invalid { what }) if what.contains("same topics")));
    }
    drop(first);
    assert!(join(&["refunds"], "*").is_ok());
    open.close();
}

#[test]
fn tags_pass_over_other_messages_and_progress_follows() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for n in 0..3000 {
        open.append("orders", 0, if n % 1000 == 999 { "paid" } else { "open" });
    }
    let paid = Subscription {
        tags: "paid || refund".to_owned(),
        ..subscription(&["orders"])
    };
    let consumer = open.consumer("billing", paid);
    let got = consumer.poll(9, None).unwrap();
    assert_eq!(bodies(&got), ["paid", "paid", "paid"]);
    ack(&consumer, &got);
    assert_eq!(consumer.positions().unwrap()[0].committed, 3000);
    open.close();
}

#[test]
fn a_group_without_progress_begins_at_its_start() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c"] {
        open.append("orders", 0, tag);
    }
    let begin = |group: &str, start: Start| open.broker.consumer(Some(group), subscription(&["orders"]), &start).unwrap();
    let now = Some(Instant::now());
    let latest = begin("latest", Start::Latest);
    assert_eq!(latest.poll(9, now).unwrap().len(), 0);
    let offsets = Start::Offsets([(("orders".to_owned(), 0), 2)].into());
    assert_eq!(bodies(&begin("offsets", offsets).poll(9, now).unwrap()), ["c"]);
    assert_eq!(begin("future", Start::Time(i64::MAX)).poll(9, now).unwrap().len(), 0);
    assert_eq!(begin("past", Start::Time(0)).poll(9, now).unwrap().len(), 3);
    // The start holds although nothing was consumed, and a queue that comes later is read from its first message.
    drop(latest);
    open.append("orders", 0, "d");
    open.append("orders", 1, "e");
    let latest = begin("latest", Start::Latest);
    let got: BTreeSet<_> = bodies(&latest.poll(9, now).unwrap()).into_iter().collect();
    assert_eq!(got, BTreeSet::from(["d".to_owned(), "e".to_owned()]));
    open.close();
}

#[test]
fn a_position_outside_its_queue_is_an_error_or_the_bound_asked_for() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c"] {
        open.append("orders", 0, tag);
    }
    for (start, group) in [(-5, "before"), (77, "after")] {
        let at = Start::Offsets([(("orders".to_owned(), 0), start)].into());
        let consumer = open.broker.consumer(Some(group), subscription(&["orders"]), &at).unwrap();
        let refused = consumer.poll(9, None).unwrap_err();
        assert!(matches!(refused, Error::OffsetOutOfRange { offset, ref bounds, .. } if offset == start && *bounds == (0..3)));
        assert!(matches!(consumer.seek("orders", 0, 4), Err(Error::OffsetOutOfRange { .. })));
        drop(consumer);
        for (on_missing, rest) in [(OnMissing::Latest, 0), (OnMissing::Earliest, 3)] {
            let group = format!("{group}-{rest}");
            let lenient = Subscription {
                on_missing,
                ..subscription(&["orders"])
            };
            let consumer = open.broker.consumer(Some(&group), lenient, &at).unwrap();
            assert_eq!(consumer.poll(9, Some(Instant::now())).unwrap().len(), rest, "{group}");
        }
    }
    open.close();
}

/// A store of four segments, and a group that polls it while the segment with the number `removed` goes, after the bounds of the queue
/// were read. Returns the number of messages that it gets, `most` at once, or the first error.
fn poll_while_a_segment_goes(removed: i64, most: usize, subscription: Subscription) -> Result<usize, Error> {
    let (_dir, path) = directory();
    let open = Open::with_segments(&path, SEGMENT as u64);
    while open.store.appended_offset() < 4 * SEGMENT {
        open.append("orders", 0, &"x".repeat(400));
    }
    open.close();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let store = MessageStore::open(&seam, &path, StoreConfig::default(), OpenMode::Existing).unwrap();
    let store = Arc::new(store);
    let broker = BrokerController::new(&store);
    let consumer = broker.consumer(Some("billing"), subscription, &Start::Earliest).unwrap();
    let name = format!("commitlog/{:020}", removed * SEGMENT);
    let segment = path.join(&name);
    env.before_looks(move |look| {
        if look.ends_with(&name) && segment.exists() {
            fs::remove_file(&segment)?;
        }
        Ok(())
    });
    let mut got = 0;
    let polled = loop {
        match consumer.poll(most, Some(Instant::now())) {
            Ok(messages) if messages.is_empty() => break Ok(got),
            Ok(messages) => got += messages.len(),
            Err(error) => break Err(error),
        }
    };
    env.heal();
    broker.close().unwrap();
    store.close().unwrap();
    polled
}

/// A subscription to orders by its tag.
fn tagged() -> Subscription {
    Subscription {
        tags: "x".repeat(400),
        ..subscription(&["orders"])
    }
}

#[test]
fn messages_that_expire_during_a_poll_are_not_passed_over_silently() {
    for subscription in [subscription(&["orders"]), tagged()] {
        let refused = poll_while_a_segment_goes(0, 9, subscription).unwrap_err();
        assert!(
            matches!(refused, Error::OffsetOutOfRange { offset: 0, ref bounds, .. } if bounds.start > 0),
            "{refused}"
        );
    }
    let latest = Subscription {
        on_missing: OnMissing::Latest,
        ..subscription(&["orders"])
    };
    assert_eq!(poll_while_a_segment_goes(0, 9, latest).unwrap(), 0);
}

#[test]
fn messages_that_expire_while_one_is_polled_obey_on_missing() {
    let latest = Subscription {
        on_missing: OnMissing::Latest,
        ..subscription(&["orders"])
    };
    assert_eq!(poll_while_a_segment_goes(0, 1, latest).unwrap(), 0);
}

#[test]
fn messages_that_go_between_others_are_not_passed_over_silently() {
    for subscription in [subscription(&["orders"]), tagged()] {
        for on_missing in [OnMissing::Refuse, OnMissing::Earliest] {
            // Retention removes the oldest segments first, so a hole is damage.
            let refused = poll_while_a_segment_goes(
                1,
                9,
                Subscription {
                    on_missing,
                    ..subscription.clone()
                },
            );
            let refused = refused.unwrap_err();
            assert!(
                refused.is_damage() || matches!(refused, Error::OffsetOutOfRange { offset, .. } if offset > 0),
                "{refused}"
            );
        }
    }
}

#[test]
fn a_seek_gives_messages_again_and_forgets_what_is_in_flight() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c"] {
        open.append("orders", 0, tag);
    }
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(9, None).unwrap();
    consumer.seek("orders", 0, 1).unwrap();
    assert_eq!(ack(&consumer, &got[2..]), 0);
    assert_eq!(bodies(&consumer.poll(9, None).unwrap()), ["b", "c"]);
    open.close();
}

#[test]
fn a_paused_queue_gives_nothing_until_it_is_resumed() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    open.append("orders", 0, "a");
    open.append("orders", 1, "b");
    let consumer = open.consumer("billing", subscription(&["orders"]));
    consumer.pause([("orders".to_owned(), 0)]);
    let now = Some(Instant::now());
    assert_eq!(bodies(&consumer.poll(9, now).unwrap()), ["b"]);
    assert_eq!(consumer.poll(9, now).unwrap().len(), 0);
    consumer.resume(consumer.paused());
    assert_eq!(bodies(&consumer.poll(9, now).unwrap()), ["a"]);
    open.close();
}

#[test]
fn a_message_that_is_sent_back_is_a_retry_record_of_rocketmq() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    open.append("orders", 3, "paid");
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(9, None).unwrap();
    let view = got[0].view();
    assert!(consumer.nack(&view, None, Instant::now()).unwrap());
    assert!(!consumer.nack(&view, None, Instant::now()).unwrap());
    assert_eq!(consumer.positions().unwrap()[0].committed, 1);
    open.store.catch_up(Duration::from_secs(5)).unwrap();
    // The first retry is delayed by level 3, whose queue has the id 2.
    let waits = open.store.reader().message_in_queue("SCHEDULE_TOPIC_XXXX", 2, 0).unwrap();
    let (sent, original) = (waits.view().to_message(), view.to_message());
    assert_eq!((sent.body, sent.reconsume_times), (original.body, 1));
    assert_eq!((sent.born_time, sent.born_host), (original.born_time, original.born_host));
    let properties = waits.view().properties();
    for (name, value) in [
        ("RETRY_TOPIC", "orders"),
        ("ORIGIN_MESSAGE_ID", &view.message_id().to_string()),
        ("DELAY", "3"),
        ("WAIT", "false"),
        ("REAL_TOPIC", "%RETRY%billing"),
        ("REAL_QID", "0"),
        ("TAGS", "paid"),
    ] {
        assert_eq!(properties.get(name).as_deref(), Some(value), "{name}");
    }
    open.close();
}

#[test]
fn a_message_that_fails_too_often_is_a_dead_letter() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    open.append("orders", 0, "a");
    open.append("orders", 0, "b");
    let impatient = Subscription {
        max_reconsume_times: Some(0),
        ..subscription(&["orders"])
    };
    let consumer = open.consumer("billing", impatient);
    let got = consumer.poll(9, None).unwrap();
    consumer.nack(&got[0].view(), None, Instant::now()).unwrap();
    consumer.nack(&got[1].view(), Some(-1), Instant::now()).unwrap();
    open.store.catch_up(Duration::from_secs(5)).unwrap();
    for (offset, body) in [(0, b"a"), (1, b"b")] {
        let dead = open.store.reader().message_in_queue("%DLQ%billing", 0, offset).unwrap();
        assert_eq!((dead.view().body(), dead.view().reconsume_times()), (&body[..], 1));
        assert_eq!(dead.view().properties().get("DELAY").as_deref(), Some("0"));
    }
    open.close();
}

#[test]
fn a_message_that_is_held_too_long_is_sent_back() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    open.append("orders", 0, "a");
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(9, None).unwrap();
    let late = Instant::now() + CONSUME_TIMEOUT;
    // The first step only sets the time of the next one.
    open.broker.step(BrokerService::Keep, Instant::now()).unwrap();
    open.broker.step(BrokerService::Keep, late).unwrap();
    assert_eq!(ack(&consumer, &got), 0);
    open.store.catch_up(Duration::from_secs(5)).unwrap();
    assert_eq!(open.store.reader().queue_bounds("SCHEDULE_TOPIC_XXXX", 2).unwrap(), 0..1);
    open.close();
}

#[test]
fn each_message_is_sent_back_after_its_own_time() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for queue_id in [0, 1, 1] {
        open.append("orders", queue_id, "a");
    }
    let first = open.consumer("billing", subscription(&["orders"]));
    first.pause([("orders".to_owned(), 0)]);
    let now = Instant::now();
    assert_eq!(first.take(1, now).unwrap().len(), 1);
    let second = open.consumer("billing", subscription(&["orders"]));
    assert_eq!(second.take(1, now).unwrap().len(), 1);
    first.close().unwrap();
    // The first message of the queue is held since later than the second one.
    second.pause([("orders".to_owned(), 0)]);
    assert_eq!(second.take(9, now + CONSUME_TIMEOUT / 2).unwrap().len(), 1);
    open.broker.step(BrokerService::Keep, now).unwrap();
    open.broker.step(BrokerService::Keep, now + CONSUME_TIMEOUT).unwrap();
    let position = &second.positions().unwrap()[1];
    assert_eq!((position.committed, position.in_flight), (0, 1));
    open.close();
}

#[test]
fn an_ordered_queue_waits_for_a_message_that_failed() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c", "d"] {
        open.append("orders", 0, tag);
    }
    let ordered = Subscription {
        is_ordered: true,
        max_reconsume_times: Some(2),
        ..subscription(&["orders"])
    };
    let consumer = open.consumer("billing", ordered.clone());
    let other = open.consumer("billing", ordered);
    let now = Instant::now();
    let got = consumer.take(3, now).unwrap();
    assert_eq!(bodies(&got), ["a", "b", "c"]);
    ack(&consumer, &got[..1]);
    consumer.nack(&got[1].view(), None, now).unwrap();
    assert_eq!(bodies(&consumer.take(9, now).unwrap()), [""; 0]);
    let (mut later, mut given) = (now, 0);
    // Given again 1 s later, and after two retries it is a dead letter.
    while given < 2 {
        later += Duration::from_secs(1);
        let again = consumer.take(9, later).unwrap();
        assert_eq!(bodies(&again), ["b", "c", "d"][..again.len().min(3)]);
        assert_eq!(bodies(&other.take(9, later).unwrap()), [""; 0]);
        consumer.nack(&again[0].view(), None, later).unwrap();
        given += 1;
    }
    open.store.catch_up(Duration::from_secs(5)).unwrap();
    assert_eq!(open.store.reader().queue_bounds("%DLQ%billing", 0).unwrap(), 0..1);
    assert_eq!(consumer.positions().unwrap()[0].committed, 2);
    open.close();
}

#[test]
fn an_ordered_queue_moves_once_its_messages_are_settled() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for queue_id in 0..2 {
        open.append("orders", queue_id, "a");
    }
    let ordered = Subscription {
        is_ordered: true,
        ..subscription(&["orders"])
    };
    let first = open.consumer("billing", ordered.clone());
    let got = first.poll(9, None).unwrap();
    assert_eq!(got.len(), 2);
    // The second queue is the second consumer's now, and the first one still has a message of it.
    let second = open.consumer("billing", ordered);
    open.append("orders", 1, "b");
    open.store.catch_up(Duration::from_secs(5)).unwrap();
    assert_eq!(second.positions().unwrap().len(), 1);
    assert_eq!(bodies(&second.take(9, Instant::now()).unwrap()), [""; 0]);
    ack(&first, &got);
    assert_eq!(bodies(&second.take(9, Instant::now()).unwrap()), ["b"]);
    open.close();
}

#[test]
fn a_consumer_without_a_group_keeps_no_progress() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    open.append("orders", 0, "a");
    for _ in 0..2 {
        let consumer = open
            .broker
            .consumer(None, subscription(&["orders"]), &Start::Earliest)
            .unwrap();
        let got = consumer.poll(9, None).unwrap();
        assert_eq!((bodies(&got), ack(&consumer, &got)), (vec!["a".to_owned()], 1));
    }
    open.close();
    assert!(!path.join("config/consumerOffset.json").exists());
}

#[test]
fn names_that_no_broker_accepts_are_refused() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for group in ["", "a@b", "a b", "ä", &"g".repeat(121)] {
        let refused = open.broker.consumer(Some(group), subscription(&["orders"]), &Start::Earliest);
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{group}");
    }
    open.close();
}
