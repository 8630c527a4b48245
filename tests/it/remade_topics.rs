//! Followers of a topic that a broker deletes and makes again between two looks: the new queue is read from its first message on.

use std::fs;
use std::sync::Arc;

use mqstore::config::Errors;
use mqstore::read::{
    Follow, FollowFrom, MessageReader, OnDamage, OnMissing, QueueOffsets, ScanRequest, StoredMessage, TagFilter,
};
use tempfile::{TempDir, tempdir};

use crate::reading::open;
use crate::store_writer::StoreWriter;

/// A store with 50 messages in `orders/0` and 5 in `bills/0`.
fn broker() -> (TempDir, StoreWriter) {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    put(&mut writer, "orders", 50);
    put(&mut writer, "bills", 5);
    writer.finish(false);
    (dir, writer)
}

fn put(writer: &mut StoreWriter, topic: &str, count: usize) {
    for number in 0..count {
        let tag = if number % 10 == 3 { "rare" } else { "common" };
        writer.put(topic, 0, b"x", &[("TAGS", tag)]);
    }
}

/// Deletes the topic `orders`, and makes it again with this number of messages. Returns the physical offset of the first one.
fn make_again(dir: &TempDir, writer: &mut StoreWriter, count: usize) -> i64 {
    let first = writer.end();
    writer.delete_topic("orders");
    fs::remove_dir_all(dir.path().join("consumequeue/orders")).unwrap();
    put(writer, "orders", count);
    writer.finish(false);
    first
}

fn starting_at(offset: i64) -> FollowFrom {
    let queues = [(("orders".to_owned(), 0), offset), (("bills".to_owned(), 0), 0)];
    FollowFrom::Offsets(QueueOffsets::from(queues), OnMissing::Refuse)
}

fn of_queue(reader: &Arc<MessageReader>, from: &FollowFrom) -> Follow {
    let (reader, on_damage) = (Arc::clone(reader), OnDamage::new(Errors::Raise));
    Follow::of_queue(reader, "orders", 0, TagFilter::parse("*"), from, on_damage).unwrap()
}

fn of_log(reader: &Arc<MessageReader>, from: FollowFrom, tags: &str) -> Follow {
    let request = ScanRequest {
        tags: TagFilter::parse(tags),
        ..ScanRequest::default()
    };
    Follow::of_log(Arc::clone(reader), request, from, OnDamage::new(Errors::Raise)).unwrap()
}

/// Both kinds of a pass over `orders/0` from this queue offset on.
fn passes(dir: &TempDir, offset: i64) -> [Follow; 2] {
    let at = FollowFrom::Offsets(QueueOffsets::from([(("orders".to_owned(), 0), offset)]), OnMissing::Refuse);
    [
        of_queue(&open(dir.path()), &at),
        of_log(&open(dir.path()), starting_at(offset), "*"),
    ]
}

/// Messages of `orders` that a pass returns without a look at the store.
fn given(follow: &mut Follow) -> Vec<StoredMessage> {
    let end = follow.reader().queued_until();
    let messages = std::iter::from_fn(|| follow.next_until(end).unwrap());
    messages.filter(|message| message.view().topic() == "orders").collect()
}

fn look(follow: &mut Follow) {
    if let Some(fresh) = follow.reader().refresh().unwrap().reopened {
        follow.move_to(fresh);
    }
}

fn offsets(messages: &[StoredMessage]) -> Vec<i64> {
    messages.iter().map(|message| message.view().queue_offset()).collect()
}

fn orders() -> Vec<(String, i32)> {
    vec![("orders".to_owned(), 0)]
}

#[test]
fn a_remade_queue_of_any_length_is_followed_from_its_beginning() {
    for count in [1, 30, 49, 50, 51, 120] {
        let (dir, mut writer) = broker();
        let mut passes = passes(&dir, 50);
        for follow in &mut passes {
            assert!(given(follow).is_empty());
            assert_eq!(follow.take_begun_again(), []);
        }
        let first = make_again(&dir, &mut writer, count);
        for follow in &mut passes {
            look(follow);
            let messages = given(follow);
            assert_eq!(offsets(&messages), (0..count as i64).collect::<Vec<_>>(), "{follow:?}");
            assert_eq!(messages[0].view().physical_offset(), first);
            assert_eq!(follow.take_begun_again(), orders());
            let orders = ("orders".to_owned(), 0);
            let later = follow.positions(Some(writer.end())).unwrap()[&orders];
            assert_eq!((follow.positions(Some(first)).unwrap()[&orders], later), (0, count as i64));
        }
        // The next messages come once, without another report.
        put(&mut writer, "orders", 7);
        writer.finish(false);
        for follow in &mut passes {
            look(follow);
            assert_eq!(offsets(&given(follow)), (count as i64..count as i64 + 7).collect::<Vec<_>>());
            assert_eq!(follow.take_begun_again(), []);
        }
    }
}

#[test]
fn a_queue_that_is_remade_twice_is_reported_twice() {
    let (dir, mut writer) = broker();
    let mut passes = passes(&dir, 20);
    for follow in &mut passes {
        assert_eq!(offsets(&given(follow)), (20..50).collect::<Vec<_>>());
    }
    for count in [60, 70] {
        make_again(&dir, &mut writer, count);
        for follow in &mut passes {
            look(follow);
            assert_eq!(offsets(&given(follow)), (0..count as i64).collect::<Vec<_>>());
            assert_eq!(follow.take_begun_again(), orders());
        }
    }
}

#[test]
fn a_queue_that_is_gone_for_a_while_is_followed_once_it_is_back() {
    let (dir, mut writer) = broker();
    let mut passes = passes(&dir, 50);
    writer.delete_topic("orders");
    fs::remove_dir_all(dir.path().join("consumequeue/orders")).unwrap();
    for follow in &mut passes {
        look(follow);
        assert!(given(follow).is_empty());
    }
    put(&mut writer, "orders", 55);
    writer.finish(false);
    for follow in &mut passes {
        look(follow);
        assert_eq!(offsets(&given(follow)), (0..55).collect::<Vec<_>>());
        assert_eq!(follow.take_begun_again(), orders());
    }
}

#[test]
fn only_wanted_messages_show_that_a_queue_begins_again() {
    let (dir, mut writer) = broker();
    let mut follow = of_log(&open(dir.path()), starting_at(50), "rare");
    make_again(&dir, &mut writer, 60);
    look(&mut follow);
    assert_eq!(offsets(&given(&mut follow)), [3, 13, 23, 33, 43, 53]);
    assert_eq!(follow.take_begun_again(), orders());
}

#[test]
fn a_queue_that_only_grows_or_expires_does_not_begin_again() {
    let (dir, mut writer) = broker();
    let mut passes = passes(&dir, 10);
    let mut next = 10;
    for grown in [0, 40, 310] {
        put(&mut writer, "orders", grown);
        writer.finish(false);
        if grown == 310 {
            fs::remove_file(dir.path().join("commitlog/00000000000000000000")).unwrap();
        }
        let end = next.max(50) + grown as i64;
        for follow in &mut passes {
            look(follow);
            let first = next.max(follow.reader().queue_bounds("orders", 0).unwrap().start);
            assert_eq!(offsets(&given(follow)), (first..end).collect::<Vec<_>>());
            assert_eq!(follow.take_begun_again(), []);
        }
        next = end;
    }
}
