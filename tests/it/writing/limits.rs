//! Every limit: below it, at it and above it. A refused message leaves no byte.

use std::fs;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{Check, Message, Record, Version, encode_blank, encode_properties, property, read_record};
use mqstore::store::MessageStore;

use super::{Place, SEGMENT, bodies, message, put, record_of, small, with};

/// Expects a refusal with this status, and the log as it was.
fn refused(store: &MessageStore, message: Message<'_>, status: &str) {
    let before = store.reader().physical_bounds();
    match store.append(message) {
        Err(Error::IllegalMessage { status: found, what }) => assert_eq!(found, status, "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.reader().physical_bounds(), before);
}

fn illegal(store: &MessageStore, message: Message<'_>) {
    refused(store, message, "MESSAGE_ILLEGAL");
}

#[test]
fn a_body_may_have_max_message_size_bytes_and_no_more() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        mapped_file_size_commit_log: Some(8 << 20),
        ..small()
    });
    let limit = 4_194_304;
    let body = vec![7; limit + 1];
    put(&store, "t", &body[..limit - 1]);
    put(&store, "t", &body[..limit]);
    illegal(&store, message("t", 0, &body));
    put(&store, "t", b"");
    let many = vec![message("t", 0, b"a"), message("t", 0, &body), message("t", 0, b"b")];
    let before = store.reader().physical_bounds();
    match store.appender(None).append_all(many, &mut Vec::new()) {
        Err(Error::IllegalMessage { what, .. }) => assert!(what.starts_with("message 1: "), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        store.reader().physical_bounds(),
        before,
        "no message of several is stored if one is illegal"
    );
    store.close().unwrap();
    let lengths: Vec<_> = bodies(&place.reader(), "t", 0).iter().map(Vec::len).collect();
    assert_eq!(lengths, [limit - 1, limit, 0]);
}

#[test]
fn properties_may_hold_510_zeros_in_a_row_and_no_more() {
    let place = Place::new();
    let store = place.create_with(small());
    let zeros = |count: usize| with(message("t", 0, b"body"), &[("k", &"\0".repeat(count))]);
    store.append(zeros(510)).unwrap();
    illegal(&store, zeros(511));
}

#[test]
fn properties_may_have_32767_bytes_and_no_more() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        mapped_file_size_commit_log: Some(1 << 20),
        ..small()
    });
    let properties = |len: usize| {
        let mut message = message("t", 0, b"");
        message.properties = [b"k\x01".as_slice(), &vec![b'v'; len - 3], b"\x02"].concat().into();
        assert_eq!(message.properties.len(), len);
        message
    };
    store.append(properties(32_766)).unwrap();
    let last = store.append(properties(32_767)).unwrap().appended.physical_offset;
    refused(&store, properties(32_768), "PROPERTIES_SIZE_EXCEEDED");
    refused(&store, properties(40_000), "PROPERTIES_SIZE_EXCEEDED");
    assert_eq!(
        store.reader().message_at(last).unwrap().view().properties().bytes().len(),
        32_767
    );
    // A delayed message gets two properties more.
    let delayed = |len: usize| {
        let filler = "v".repeat(len);
        with(message("t", 0, b""), &[("DELAY", "3"), ("k", &filler)])
    };
    let added = encode_properties([("REAL_TOPIC", "t"), ("REAL_QID", "0")], true)
        .unwrap()
        .len();
    let own = delayed(1).properties.len() - 1;
    store.append(delayed(32_767 - added - own)).unwrap();
    refused(&store, delayed(32_768 - added - own), "PROPERTIES_SIZE_EXCEEDED");
    // A copy of a record with a checksum gets a checksum of its own.
    let checked = |len: usize| Message {
        crc_property: true,
        ..properties(len)
    };
    let added = checked(100).encoded_len() - properties(100).encoded_len();
    store.append(checked(32_767 - added)).unwrap();
    refused(&store, checked(32_768 - added), "PROPERTIES_SIZE_EXCEEDED");
    let refused = store
        .appender(None)
        .append_all(vec![message("t", 0, b"a"), checked(32_768 - added)], &mut Vec::new());
    assert!(matches!(refused, Err(Error::IllegalMessage { what, .. }) if what.starts_with("message 1: ")));
    store.close().unwrap();
}

#[test]
fn a_topic_has_127_bytes_in_v1_and_255_in_v2() {
    let place = Place::new();
    let store = place.create();
    for (len, version) in [
        (1, Version::V1),
        (126, Version::V1),
        (127, Version::V1),
        (128, Version::V2),
        (254, Version::V2),
        (255, Version::V2),
    ] {
        let topic = "t".repeat(len);
        let offset = put(&store, &topic, b"x");
        let stored = store.reader().message_at(offset).unwrap();
        assert_eq!((stored.view().version(), stored.view().topic().len()), (version, len));
    }
    // Bytes count, not characters: 64 two-byte ones are one too many for V1.
    let offset = put(&store, &"é".repeat(64), b"x");
    assert_eq!(store.reader().message_at(offset).unwrap().view().version(), Version::V2);
    for topic in ["", ".", "..", "a/b", "a\0b", "a\nb", &"t".repeat(256)] {
        illegal(&store, message(topic, 0, b"x"));
    }
    illegal(&store, message("t", -1, b"x"));
    // A version that the caller sets has no effect.
    let mut claimed = message("t", 0, b"x");
    claimed.version = Version::V2;
    let offset = store.append(claimed).unwrap().appended.physical_offset;
    assert_eq!(store.reader().message_at(offset).unwrap().view().version(), Version::V1);
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), &"t".repeat(255), 0), [b"x"]);
}

#[test]
fn a_record_and_eight_bytes_fit_into_a_segment_and_no_more() {
    let place = Place::new();
    let store = place.create();
    let limit = SEGMENT as usize - 8;
    store.append(record_of(limit - 1)).unwrap();
    store.append(record_of(limit)).unwrap();
    illegal(&store, record_of(limit + 1));
    illegal(&store, record_of(SEGMENT as usize));
    illegal(&store, record_of(SEGMENT as usize + 1));
    assert_eq!(
        store.append(record_of(100)).unwrap().appended.physical_offset,
        2 * SEGMENT as i64
    );
    store.close().unwrap();
    assert_eq!(place.names("commitlog").len(), 3);
}

#[test]
fn what_is_refused_before_the_first_message_makes_no_file() {
    let place = Place::new();
    let store = place.create();
    illegal(&store, record_of(SEGMENT as usize));
    illegal(&store, message("", 0, b"x"));
    store.close().unwrap();
    assert!(place.names("commitlog").is_empty() && place.names("consumequeue").is_empty());
}

#[test]
fn a_record_that_leaves_eight_bytes_fits_and_seven_bytes_roll() {
    for (leaves, rolls) in [(7, true), (8, false), (9, false)] {
        let place = Place::new();
        let store = place.create();
        let first = 5000;
        store.append(record_of(first)).unwrap();
        let second = store.append(record_of(SEGMENT as usize - first - leaves)).unwrap().appended;
        let third = store.append(record_of(100)).unwrap().appended;
        store.close().unwrap();
        let (blank_at, next) = if rolls {
            (first, second)
        } else {
            (SEGMENT as usize - leaves, third)
        };
        assert_eq!(next.physical_offset, SEGMENT as i64, "leaves {leaves}");
        let segment = fs::read(place.at("commitlog/00000000000000000000")).unwrap();
        let remaining = SEGMENT as u32 - blank_at as u32;
        assert_eq!(segment[blank_at..blank_at + 8], encode_blank(remaining));
        assert!(
            segment[blank_at + 8..].iter().all(|byte| *byte == 0),
            "only eight bytes of a BLANK are written"
        );
        assert!(matches!(read_record(&segment[blank_at..], Check::Structure), Record::Blank { size } if size == remaining));
        assert_eq!(bodies(&place.reader(), "t", 0).len(), 3);
    }
}

#[test]
fn a_number_that_a_broker_could_not_read_is_refused() {
    let place = Place::new();
    let store = place.create();
    for value in ["x", "1.5", "2147483648", "99999999999", " 3"] {
        illegal(&store, with(message("t", 0, b"x"), &[(property::DELAY, value)]));
    }
    for value in ["0", "-3", "-2147483648"] {
        let offset = store
            .append(with(message("t", 0, b"x"), &[(property::DELAY, value)]))
            .unwrap()
            .appended
            .physical_offset;
        assert_eq!(store.reader().message_at(offset).unwrap().view().topic(), "t");
    }
    store.close().unwrap();
}

#[test]
fn a_batch_stored_as_one_record_is_refused_by_flag_and_by_property() {
    let place = Place::new();
    let store = place.create();
    let mut flagged = message("t", 0, b"x");
    flagged.sys_flag = 0x80;
    illegal(&store, flagged);
    illegal(&store, with(message("t", 0, b"x"), &[(property::INNER_NUM, "2")]));
    let first = store.append(message("t", 0, b"x")).unwrap().appended;
    assert_eq!(first.queue_offset, 0);
    store.close().unwrap();
}

#[test]
fn options_that_cannot_be_right_are_refused() {
    let wrong = StoreConfig {
        flush_interval_commit_log: 0,
        ..small()
    };
    assert!(matches!(wrong.validate(), Err(Error::Invalid { what }) if what.starts_with("flush_interval_commit_log is 0")));
    let index_of = |items| StoreConfig {
        max_hash_slot_num: Some(10),
        max_index_num: Some(items),
        ..small()
    };
    // 40 bytes, 4 a slot and 20 an item: as many as a Java program can map.
    let most = (i32::MAX as u64 - 80) / 20;
    index_of(most).validate().unwrap();
    let refused = index_of(most + 1).validate();
    assert!(matches!(refused, Err(Error::Invalid { what }) if what.contains("index files of 2147483660 bytes")));
}
