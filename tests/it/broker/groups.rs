//! The state of groups, a reset of their progress, and dead letters that are sent again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mqstore::broker::{BrokerController, Resent, Start};
use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::storage::Env;
use mqstore::store::{MessageStore, OpenMode, TrimTo};

use super::{Open, SEGMENT, ack, bodies, directory, subscription};
use crate::counting_env::CountingEnv;
use crate::writing::{killed_at, message, with};

fn offsets(open: &Open) -> Vec<(String, String, i32, i64)> {
    let found = open.broker.consumer_offsets().unwrap().content.into_iter();
    found
        .map(|offset| (offset.group, offset.topic, offset.queue_id, offset.offset))
        .collect()
}

fn entry(group: &str, topic: &str, offset: i64) -> (String, String, i32, i64) {
    (group.to_owned(), topic.to_owned(), 0, offset)
}

#[test]
fn states_of_groups_show_progress_that_is_not_on_disk_yet() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    assert!(matches!(open.broker.consumer_offsets(), Err(Error::NotFound { .. })));
    for tag in ["a", "b", "c"] {
        open.append("orders", 0, tag);
    }
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let got = consumer.poll(2, None).unwrap();
    assert_eq!(ack(&consumer, &got[..1]), 1);
    let on_disk = open.store.reader().consumer_offsets().unwrap().content;
    assert_eq!(on_disk.iter().map(|of| of.offset).collect::<Vec<_>>(), [0]);
    assert_eq!(offsets(&open), [entry("billing", "orders", 1)]);
    let [state] = &open.broker.group_states().unwrap().content[..] else {
        panic!("one queue")
    };
    assert_eq!(
        (state.lag.lag(), state.consumers, state.in_flight),
        (Some(2), Some(1), Some(1))
    );
    assert_eq!(state.unconsumed_since, Some(got[1].view().store_time()));
    consumer.close().unwrap();
    let all = open.consumer("billing", subscription(&["orders"]));
    let rest = all.poll(9, None).unwrap();
    assert_eq!(ack(&all, &rest), 2);
    all.close().unwrap();
    let [state] = &open.broker.group_states().unwrap().content[..] else {
        panic!("one queue")
    };
    assert_eq!((state.lag.lag(), state.unconsumed_since), (Some(0), None));
    assert_eq!((state.consumers, state.in_flight), (Some(0), Some(0)));
    open.close();
    let open = Open::at(&path);
    open.append("orders", 0, "d");
    let consumer = open.consumer("shipping", subscription(&["orders"]));
    assert_eq!(ack(&consumer, &consumer.poll(4, None).unwrap()), 4);
    assert_eq!(
        offsets(&open),
        [entry("billing", "orders", 3), entry("shipping", "orders", 4)]
    );
    open.close();
}

#[test]
fn the_backlog_of_a_group_reads_one_message_of_each_topic() {
    let (_dir, path) = directory();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let store = Arc::new(MessageStore::open(&seam, &path, StoreConfig::default(), OpenMode::Append).unwrap());
    let open = Open {
        broker: BrokerController::new(&store),
        store,
    };
    let body = "x".repeat(10_000);
    for queue_id in (0..8).rev() {
        open.append("orders", queue_id, &body);
        thread::sleep(Duration::from_millis(2));
    }
    let consumer = open.consumer("billing", subscription(&["orders"]));
    let first = consumer.poll(1, None).unwrap();
    assert_eq!(ack(&consumer, &first), 1);
    let bytes_read = || env.bytes_read_below(&path.join("commitlog"));
    let begun = bytes_read();
    let all = open.broker.group_states().unwrap().content;
    let read_for_all = bytes_read() - begun;
    let oldest = all.iter().filter_map(|state| state.unconsumed_since).min();
    let backlog = open.broker.group_backlog().unwrap().content;
    // Seven of eight queues have an unconsumed message, each of the same length.
    assert_eq!((bytes_read() - begun - read_for_all) * 7, read_for_all);
    assert_eq!(
        backlog.iter().map(|state| &state.lag).collect::<Vec<_>>(),
        all.iter().map(|state| &state.lag).collect::<Vec<_>>()
    );
    let times: Vec<_> = backlog.iter().filter_map(|state| state.unconsumed_since).collect();
    assert_eq!(times, oldest.into_iter().collect::<Vec<_>>());
    consumer.close().unwrap();
    open.close();
}

#[test]
fn a_reset_moves_live_consumers_and_groups_without_consumers() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b", "c"] {
        open.append("orders", 0, tag);
    }
    let live = open.consumer("billing", subscription(&["orders"]));
    let got = live.poll(9, None).unwrap();
    assert_eq!(ack(&live, &got[..1]), 1);
    assert_eq!(open.broker.reset("billing", "orders", &Start::Earliest).unwrap()[&0], 0);
    assert_eq!(ack(&live, &got[2..]), 0);
    assert_eq!(bodies(&live.poll(9, None).unwrap()), ["a", "b", "c"]);
    for (to, offset) in [(Start::Latest, 3), (Start::Time(0), 0), (Start::Time(i64::MAX), 3)] {
        assert_eq!(open.broker.reset("shipping", "orders", &to).unwrap()[&0], offset);
    }
    assert!(matches!(
        open.broker.reset("billing", "absent", &Start::Latest),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        open.broker.reset("a b", "orders", &Start::Latest),
        Err(Error::Invalid { .. })
    ));
    // A reset is durable when it returns.
    std::mem::forget(live);
    open.kill();
    let found = std::fs::read_to_string(path.join("config/consumerOffset.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["offsetTable"]["orders@shipping"]["0"], 3);
}

#[test]
fn a_group_that_was_left_continues_where_a_reset_moved_it() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for tag in ["a", "b"] {
        open.append("orders", 0, tag);
    }
    let consumer = open.consumer("billing", subscription(&["orders"]));
    assert_eq!(ack(&consumer, &consumer.poll(9, None).unwrap()), 2);
    consumer.close().unwrap();
    open.broker.reset("billing", "orders", &Start::Earliest).unwrap();
    let consumer = open.consumer("billing", subscription(&["orders"]));
    assert_eq!(bodies(&consumer.poll(9, None).unwrap()), ["a", "b"]);
    open.close();
}

/// Appends a message, and lets the group give it up.
fn give_up(open: &Open, body: &str) {
    let properties = [("KEYS", "k-1"), ("TAGS", "paid"), ("colour", "red"), ("WAIT", "true")];
    open.store
        .append(with(message("orders", 0, body.as_bytes()), &properties))
        .unwrap();
    let consumer = open.consumer("billing", subscription(&["orders"]));
    for message in consumer.poll(9, None).unwrap() {
        assert!(consumer.nack(&message.view(), Some(-1), Instant::now()).unwrap());
    }
    consumer.close().unwrap();
}

#[test]
fn a_dead_letter_is_sent_again_once_as_its_producer_sent_it() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    give_up(&open, "a");
    assert_eq!(open.broker.resend("billing", None, Errors::Raise).unwrap().sent, 1);
    assert_eq!(open.broker.resend("billing", None, Errors::Raise).unwrap().sent, 0);
    open.close();
    let open = Open::at(&path);
    assert_eq!(open.broker.resend("billing", None, Errors::Raise).unwrap().sent, 0);
    give_up(&open, "b");
    // The group failed on "a" a second time.
    assert_eq!(open.broker.resend("billing", None, Errors::Raise).unwrap().sent, 2);
    let reader = open.store.reader();
    MessageStore::catch_up(&open.store, Duration::from_secs(10)).unwrap();
    let first = reader.message_in_queue("orders", 0, 0).unwrap();
    let again = reader.message_in_queue("orders", 0, 1).unwrap();
    let (first, again) = (first.view(), again.view());
    assert_eq!((again.body(), again.reconsume_times()), (first.body(), 0));
    assert_eq!(again.born_time(), first.born_time());
    let kept: Vec<_> = first
        .properties()
        .to_pairs()
        .into_iter()
        .filter(|(name, _)| name != "WAIT")
        .collect();
    assert_eq!(again.properties().to_pairs(), kept);
    open.close();
}

#[test]
fn a_kill_during_a_resend_repeats_at_most_its_last_1000_letters() {
    let (_dir, path) = directory();
    let env = CountingEnv::new();
    let seam: Arc<dyn Env> = Arc::new(env.clone());
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..StoreConfig::default()
    };
    let open = Open::in_env(&seam, &path, config);
    for _ in 0..2500 {
        let letter = with(message("%DLQ%billing", 0, b"a"), &[("RETRY_TOPIC", "orders")]);
        open.store.append(letter).unwrap();
    }
    open.store.catch_up(Duration::from_secs(10)).unwrap();
    let killed = Arc::new(Mutex::new(Vec::new()));
    env.before_changes({
        let (killed, path) = (killed.clone(), path.clone());
        move |change| {
            if change.starts_with("rename") && change.ends_with("consumerOffset.json") {
                killed.lock().unwrap().push(killed_at(&path));
            }
            Ok(())
        }
    });
    assert_eq!(open.broker.resend("billing", None, Errors::Raise).unwrap().sent, 2500);
    env.heal();
    open.close();
    let killed = std::mem::take(&mut *killed.lock().unwrap());
    // Before each persist, 1000 letters were sent that the file does not pass.
    for (left, repeated) in killed.iter().zip([2500, 1500, 500]) {
        let open = Open::at(left.path());
        assert_eq!(open.broker.resend("billing", None, Errors::Raise).unwrap().sent, repeated);
        open.close();
    }
    assert!(killed.len() >= 3, "{} persists", killed.len());
}

#[test]
fn chosen_letters_are_sent_again_each_time_and_others_are_refused() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    give_up(&open, "a");
    open.append("%DLQ%billing", 0, "foreign");
    open.store.catch_up(Duration::from_secs(10)).unwrap();
    let letter = open.store.reader().message_in_queue("%DLQ%billing", 0, 0).unwrap();
    let views = [letter.view(), letter.view()];
    assert_eq!(open.broker.resend("billing", Some(&views), Errors::Raise).unwrap().sent, 2);
    assert!(matches!(
        open.broker.resend("shipping", Some(&views), Errors::Raise),
        Err(Error::Invalid { .. })
    ));
    // A message without its first topic ends a resend, after those before it.
    assert!(matches!(
        open.broker.resend("billing", None, Errors::Raise),
        Err(Error::Invalid { .. })
    ));
    open.store.catch_up(Duration::from_secs(10)).unwrap();
    assert_eq!(open.store.reader().queue_bounds("orders", 0).unwrap().end, 4);
    open.close();
}

#[test]
fn a_damaged_dead_letter_is_named_and_the_others_are_sent_again() {
    let (_dir, path) = directory();
    let open = Open::at(&path);
    for body in ["a", "b", "c"] {
        give_up(&open, body);
    }
    open.store.catch_up(Duration::from_secs(10)).unwrap();
    let damaged = open.store.reader().message_in_queue("%DLQ%billing", 0, 1).unwrap();
    let at = damaged.view().physical_offset();
    open.close();
    damage_body(&path, at);
    let open = Open::at(&path);
    let end = || {
        open.store.catch_up(Duration::from_secs(10)).unwrap();
        open.store.reader().queue_bounds("orders", 0).unwrap().end
    };
    // The letter before the damaged one is sent once, however often the call is made.
    for _ in 0..2 {
        assert!(matches!(
            open.broker.resend("billing", None, Errors::Raise),
            Err(Error::Corrupt { .. })
        ));
        assert_eq!(end(), 4);
    }
    let rest = Resent {
        sent: 1,
        skipped: vec![(0, 1)],
        expired: 0,
    };
    assert_eq!(open.broker.resend("billing", None, Errors::Skip).unwrap(), rest);
    assert_eq!(open.broker.resend("billing", None, Errors::Raise).unwrap(), Resent::default());
    assert_eq!(end(), 5);
    open.close();
}

#[test]
fn dead_letters_that_expired_before_a_resend_are_counted() {
    let (_dir, path) = directory();
    let open = Open::with_segments(&path, SEGMENT as u64);
    give_up(&open, "a");
    while open.store.appended_offset() < 2 * SEGMENT {
        open.append("filler", 0, &"x".repeat(400));
    }
    give_up(&open, "b");
    let trimmed = open.broker.trim(TrimTo::Offset(SEGMENT), true, false).unwrap();
    assert!(!trimmed.trimmed.segments.is_empty());
    let sent = open.broker.resend("billing", None, Errors::Raise).unwrap();
    assert_eq!((sent.sent, sent.expired), (1, 1));
    open.close();
}

/// Changes the body of the record at a physical offset: one byte, which lies before its topic.
fn damage_body(path: &Path, at: i64) {
    let segment = path.join("commitlog").join(format!("{:020}", 0));
    let file = File::options().read(true).write(true).open(segment).unwrap();
    // The header up to the length of the body takes 88 bytes.
    let byte = u64::try_from(at).unwrap() + 88;
    let mut body = [0];
    file.read_exact_at(&mut body, byte).unwrap();
    file.write_all_at(&[body[0] ^ 1], byte).unwrap();
}
