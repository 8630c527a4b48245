//! One bit of a message's record or of its queue entry flips: a scan of the log reports as much as a scan of the queues.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use mqstore::config::{Errors, StoreConfig};
use mqstore::error::Error;
use mqstore::format::{CQ_UNIT_SIZE, Message, encode_properties};
use mqstore::log::StoredMessage;
use mqstore::read::{
    Filled, Follow, FollowFrom, GetRequest, MessageReader, OnDamage, Order, QueueScan, Scan, ScanRequest, TagFilter, Transactions,
};
use tempfile::tempdir;

use super::fields::record;
use super::image::Image;
use crate::store_writer::StoreWriter;

const ROOT: &str = "/store";
/// Of `order1` and `order3`, whose names differ in one bit.
const MESSAGES: i64 = 90;
/// The message that is damaged, in `order1/0`.
const DAMAGED: usize = 31;

/// Two of three messages in `order1`, the others in `order3`; with the physical offsets of those of `order1`.
fn two_topics() -> (Image, Vec<i64>) {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::new(dir.path(), 32768, 100, 100, 400);
    let mut offsets = Vec::new();
    for n in 0..MESSAGES {
        let topic = if n % 3 == 2 { "order3" } else { "order1" };
        let at = writer.put(topic, 0, format!("body {n}").as_bytes(), &[("TAGS", "paid")]);
        if topic == "order1" {
            offsets.push(at);
        }
    }
    writer.finish(true);
    (Image::of(dir.path()), offsets)
}

fn open(image: &Image) -> Arc<MessageReader> {
    let reader = MessageReader::open(&image.env(Path::new(ROOT)), Path::new(ROOT), StoreConfig::default());
    Arc::new(reader.unwrap())
}

/// The physical offsets that a pass gives, ascending, the errors that it gives, and how many messages it skips.
fn scanned(reader: &Arc<MessageReader>, request: &ScanRequest, errors: Errors) -> (Vec<i64>, Vec<Error>, u64) {
    let on_damage = OnDamage::new(errors);
    let (mut found, mut raised) = (Vec::new(), Vec::new());
    let mut scan = Scan::new(Arc::clone(reader), request.clone(), on_damage.clone()).unwrap();
    loop {
        let filled = scan.fill(|picked| {
            found.push(picked.view.physical_offset());
            Ok(true)
        });
        match filled.unwrap() {
            Filled::Stopped(error) => raised.push(error),
            Filled::End => break,
            Filled::Full | Filled::Paused => {}
        }
    }
    found.sort_unstable();
    (found, raised, on_damage.skipped())
}

fn of_topics(topics: &[&str]) -> ScanRequest {
    ScanRequest {
        topics: Some(topics.iter().map(|topic| (*topic).to_owned()).collect()),
        ..ScanRequest::default()
    }
}

/// Requests that go along the log: `order1` is most of it, and `gone` has no queue.
fn along_the_log() -> Vec<ScanRequest> {
    let mut requests = vec![
        of_topics(&["order1"]),
        of_topics(&["order1", "gone"]),
        of_topics(&["order1", "order3"]),
        ScanRequest::default(),
    ];
    let changed = |change: fn(&mut ScanRequest)| {
        let mut request = of_topics(&["order1"]);
        change(&mut request);
        request
    };
    requests.extend([
        changed(|request| request.queue_ids = Some(vec![0])),
        changed(|request| request.tags = TagFilter::parse("paid")),
        changed(|request| request.reverse = true),
    ]);
    requests
}

/// The positions in the only segment of a field of the record at a physical offset.
fn field(image: &Image, at: i64, name: &str) -> Range<usize> {
    let (_, bytes) = image.files().find(|(path, _)| path.starts_with("commitlog")).unwrap();
    let fields = record(bytes, at as usize).unwrap();
    let field = fields.iter().find(|field| field.name == name).unwrap();
    field.at..field.at + field.width
}

/// The image with each of these bits of the log flipped, one after the other.
fn flipped(image: &Image, bytes: Range<usize>) -> impl Iterator<Item = (String, Image)> {
    flipped_in(image, "commitlog", bytes)
}

/// The image with each of these bits of the first file in a directory flipped, one after the other.
fn flipped_in(image: &Image, dir: &str, bytes: Range<usize>) -> impl Iterator<Item = (String, Image)> {
    let file = image.files().find(|(path, _)| path.starts_with(dir)).unwrap();
    let path = file.0.to_owned();
    let bits = bytes.flat_map(|at| (0..8).map(move |bit| (at, bit)));
    bits.map(move |(at, bit)| {
        let mut image = image.clone();
        image.edit(&path, |bytes| bytes[at] ^= 1 << bit);
        (format!("bit {bit} of byte {at}"), image)
    })
}

#[test]
fn a_scan_of_the_log_misses_no_queued_message_silently() {
    let (intact, offsets) = two_topics();
    for name in ["queue id", "queue offset", "sysFlag", "topic"] {
        for (bit, image) in flipped(&intact, field(&intact, offsets[DAMAGED], name)) {
            let reader = open(&image);
            for (n, request) in along_the_log().iter().enumerate() {
                let expected = scanned(&open(&intact), request, Errors::Raise).0;
                let (found, raised, _) = scanned(&reader, request, Errors::Raise);
                let lacks = expected.iter().any(|offset| !found.contains(offset));
                assert!(!lacks || !raised.is_empty(), "{name}, {bit}, request {n}");
                let by_queue = ScanRequest {
                    order: Order::Queue,
                    ..request.clone()
                };
                let (in_queues, _, skipped_in_queues) = scanned(&reader, &by_queue, Errors::Skip);
                let (found, _, skipped) = scanned(&reader, request, Errors::Skip);
                assert_eq!(
                    (found, skipped),
                    (in_queues, skipped_in_queues),
                    "{name}, {bit}, request {n}: as along the queues"
                );
            }
        }
    }
}

#[test]
fn a_scan_of_all_records_reports_a_record_of_another_topic_in_a_queue() {
    let (intact, offsets) = two_topics();
    let request = ScanRequest {
        transactions: Transactions::All,
        ..of_topics(&["order1"])
    };
    for (bit, image) in flipped(&intact, field(&intact, offsets[DAMAGED], "topic")) {
        let (_, raised, _) = scanned(&open(&image), &request, Errors::Raise);
        assert_eq!(raised.len(), 1, "{bit}");
    }
    let (found, raised, _) = scanned(&open(&intact), &request, Errors::Raise);
    assert_eq!((found.len(), raised.len()), (offsets.len(), 0));
}

#[test]
fn a_follow_of_a_topic_reports_a_record_of_another_topic_in_its_queue() {
    let (intact, offsets) = two_topics();
    for (bit, image) in flipped(&intact, field(&intact, offsets[DAMAGED], "topic")) {
        let reader = open(&image);
        let on_damage = OnDamage::new(Errors::Raise);
        let mut follow = Follow::of_log(Arc::clone(&reader), of_topics(&["order1"]), FollowFrom::Earliest, on_damage).unwrap();
        let (mut found, mut raised) = (0, 0);
        loop {
            match follow.next_until(reader.queued_until()) {
                Ok(Some(_)) => found += 1,
                Ok(None) => break,
                Err(_) => raised += 1,
            }
        }
        assert_eq!((found, raised), (offsets.len() - 1, 1), "{bit}");
    }
}

#[test]
fn a_message_with_other_tags_than_its_entry_is_damaged_for_tag_queries() {
    let (intact, offsets) = two_topics();
    let properties = field(&intact, offsets[DAMAGED], "properties");
    let tag = properties.start + "TAGS\u{1}".len();
    let asked = ScanRequest {
        tags: TagFilter::parse("paid"),
        ..of_topics(&["order1"])
    };
    for order in [Order::Log, Order::Queue] {
        let request = ScanRequest { order, ..asked.clone() };
        for (bit, image) in flipped(&intact, tag..tag + 4) {
            let (found, raised, _) = scanned(&open(&image), &request, Errors::Raise);
            assert_eq!((found.len(), raised.len()), (offsets.len() - 1, 1), "{bit} {order:?}");
        }
    }
}

/// The physical offsets of the messages of `order1/0` that reads one by one return, and the number of damaged ones.
fn read_alone(reader: &MessageReader, count: i64) -> (Vec<i64>, u64) {
    let (mut found, mut damaged) = (Vec::new(), 0);
    for offset in 0..count {
        match reader.message_in_queue("order1", 0, offset) {
            Ok(message) => found.push(message.view().physical_offset()),
            Err(Error::Corrupt { .. }) => damaged += 1,
            Err(error) => assert!(matches!(error, Error::NotFound { .. }), "{error}"),
        }
    }
    (found, damaged)
}

/// The physical offsets that an iteration from either end returns, and the number of messages that it skips.
fn iterated(reader: &Arc<MessageReader>, reverse: bool) -> (Vec<i64>, u64) {
    let on_damage = OnDamage::new(Errors::Skip);
    let scan = QueueScan::new(Arc::clone(reader), "order1".to_owned(), 0, 0..i64::MAX).unwrap();
    let scan = scan.on_damage(on_damage.clone());
    let place = |message: mqstore::error::Result<StoredMessage>| message.unwrap().view().physical_offset();
    let mut found: Vec<i64> = if reverse {
        scan.rev().map(place).collect()
    } else {
        scan.map(place).collect()
    };
    if reverse {
        found.reverse();
    }
    (found, on_damage.skipped())
}

#[test]
fn get_and_iteration_return_what_single_reads_return_after_any_flip() {
    let (intact, offsets) = two_topics();
    let (count, entry) = (offsets.len() as i64, DAMAGED * CQ_UNIT_SIZE);
    let size = intact.files().find(|(path, _)| path.starts_with("commitlog")).unwrap().1;
    let size = u32::from_be_bytes(size[offsets[DAMAGED] as usize..][..4].try_into().unwrap()) as usize;
    let of_record = flipped(&intact, offsets[DAMAGED] as usize..offsets[DAMAGED] as usize + size);
    let of_entry = flipped_in(&intact, "consumequeue/order1", entry..entry + CQ_UNIT_SIZE);
    let mut damaged = 0;
    for (bit, image) in of_record.chain(of_entry) {
        let reader = open(&image);
        let expected = read_alone(&reader, count);
        let request = GetRequest {
            topic: "order1".to_owned(),
            queue_id: 0,
            offset: 0,
            max_messages: count as usize,
            tags: TagFilter::default(),
            bounded: false,
            errors: Errors::Skip,
        };
        let result = reader.get::<Error>(&request, |_| Ok(true)).unwrap();
        let found: Vec<i64> = result
            .messages
            .iter()
            .map(|message| message.view().physical_offset())
            .collect();
        assert_eq!((found, result.skipped), expected, "get, {bit}");
        assert_eq!(iterated(&reader, false), expected, "iteration, {bit}");
        assert_eq!(iterated(&reader, true), expected, "reverse iteration, {bit}");
        damaged += expected.1;
    }
    assert!(damaged > 300, "{damaged} flips were noticed");
}

#[test]
fn a_skipped_stretch_counts_as_the_queued_messages_in_it() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let offsets: Vec<i64> = (0..600).map(|n| writer.put("orders", n % 3, b"body", &[])).collect();
    writer.finish(true);
    std::fs::remove_file(super::log_file(dir.path(), 2 * super::SEGMENT)).unwrap();
    let lost = offsets.iter().filter(|offset| **offset / super::SEGMENT == 2).count() as u64;
    assert!(lost > 100);
    let env: Arc<dyn mqstore::storage::Env> = Arc::new(mqstore::storage::RealEnv::new());
    let reader = Arc::new(MessageReader::open(&env, dir.path(), StoreConfig::default()).unwrap());
    for (order, reverse) in [
        (Order::Log, false),
        (Order::Log, true),
        (Order::Queue, false),
        (Order::Queue, true),
    ] {
        for topics in [
            None,
            Some(vec!["orders".to_owned()]),
            Some(vec!["orders".to_owned(), "gone".to_owned()]),
        ] {
            let request = ScanRequest {
                topics,
                order,
                reverse,
                ..ScanRequest::default()
            };
            let (found, _, skipped) = scanned(&reader, &request, Errors::Skip);
            assert_eq!((found.len() as u64, skipped), (600 - lost, lost), "{request:?}");
        }
        let of_one_queue = ScanRequest {
            queue_ids: Some(vec![1]),
            order,
            reverse,
            ..ScanRequest::default()
        };
        let (found, _, skipped) = scanned(&reader, &of_one_queue, Errors::Skip);
        assert_eq!(found.len() as u64 + skipped, 200);
    }
}

#[test]
fn each_flipped_bit_of_a_record_with_crc_property_is_detected() {
    let dir = tempdir().unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let offsets: Vec<i64> = (0..4)
        .map(|n| {
            writer.append(Message {
                topic: "orders".into(),
                body: format!("body {n}").into_bytes().into(),
                properties: encode_properties([("KEYS", "k")], true).unwrap().into(),
                crc_property: true,
                ..Message::default()
            })
        })
        .collect();
    writer.finish(true);
    let intact = Image::of(dir.path());
    // Without the name of the checksum there is no checksum.
    let named = offsets[1] as usize..offsets[2] as usize - "__CRC32#\u{1}0123456789\u{2}".len();
    for (bit, image) in flipped(&intact, named) {
        let reader = open(&image);
        assert!(reader.message_at(offsets[1]).is_err(), "{bit}");
        assert!(reader.message_in_queue("orders", 0, 1).is_err(), "{bit}");
        for order in [Order::Log, Order::Queue] {
            let request = ScanRequest {
                order,
                ..of_topics(&["orders"])
            };
            let (found, raised, _) = scanned(&reader, &request, Errors::Raise);
            assert!(found.len() == 3 && raised.len() == 1, "{bit}: {found:?} {raised:?}");
        }
    }
}
