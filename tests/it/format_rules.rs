//! Bytes that the format room refuses, those that it tolerates, and its reading of what a broker may have left.

use mqstore::format::{
    Check, FlushedMark, IndexGeometry, IndexHeader, Message, MessageView, ProducerBatch, Properties, Record, RecordLayout,
    Version, crc32, decode_body, encode_properties, parse_index_name, read_record, validate_topic,
};

use crate::later_formats::java_hash_map_order;

fn record() -> Vec<u8> {
    let message = Message {
        topic: "orders".into(),
        body: b"body".into(),
        properties: b"TAGS\x01paid\x02".to_vec().into(),
        ..Message::default()
    };
    message.encode().unwrap()
}

#[track_caller]
fn assert_corrupt(bytes: &[u8], at: usize, reason: &str) {
    match read_record(bytes, Check::Structure) {
        Record::Corrupt(malformed) => {
            assert_eq!(malformed.at, at, "{malformed}");
            assert!(malformed.reason.contains(reason), "{malformed}");
        }
        other => panic!("not corrupt: {other:?}"),
    }
}

fn with(at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = record();
    bytes[at..at + field.len()].copy_from_slice(field);
    bytes
}

const BODY_LENGTH_AT: usize = 84;
const TOPIC_LENGTH_AT: usize = 92;
const PROPERTIES_LENGTH_AT: usize = 99;

#[test]
fn zeros_and_too_few_bytes_end_the_log() {
    assert!(matches!(read_record(&[], Check::Whole), Record::End));
    assert!(matches!(read_record(&record()[..7], Check::Whole), Record::End));
    assert!(matches!(read_record(&[0; 100], Check::Whole), Record::End));
}

#[test]
fn a_size_that_cannot_be_is_corrupt() {
    let size = record().len();
    assert_corrupt(&with(0, &(-1i32).to_be_bytes()), 0, "a record of -1 bytes, at least 91");
    assert_corrupt(&with(0, &90i32.to_be_bytes()), 0, "a record of 90 bytes");
    assert_corrupt(
        &with(0, &i32::MAX.to_be_bytes()),
        0,
        &format!("2147483647 bytes, but only {size} follow"),
    );
    assert_corrupt(&with(0, &0i32.to_be_bytes()), 0, "a record of 0 bytes");
    assert_corrupt(
        &record()[..size - 1],
        0,
        &format!("{size} bytes, but only {} follow", size - 1),
    );
    let mut longer = with(0, &(size as i32 + 1).to_be_bytes());
    longer.push(0);
    assert_corrupt(
        &longer,
        0,
        &format!("a record of {} bytes, but its parts add up to {size}", size + 1),
    );
}

#[test]
fn an_unknown_magic_is_corrupt() {
    assert_corrupt(&with(4, &[1, 2, 3, 4]), 4, "magic 0x01020304");
    assert_corrupt(&with(4, &[0; 4]), 4, "magic 0x00000000");
}

#[test]
fn lengths_are_signed_and_end_inside_the_record() {
    assert_corrupt(
        &with(BODY_LENGTH_AT, &(-1i32).to_be_bytes()),
        BODY_LENGTH_AT,
        "body of -1 bytes",
    );
    assert_corrupt(
        &with(BODY_LENGTH_AT, &i32::MAX.to_be_bytes()),
        BODY_LENGTH_AT,
        "body of 2147483647 bytes",
    );
    assert_corrupt(&with(TOPIC_LENGTH_AT, &[128]), TOPIC_LENGTH_AT, "topic of -128 bytes");
    assert_corrupt(
        &with(TOPIC_LENGTH_AT, &[100]),
        TOPIC_LENGTH_AT,
        "topic of 100 bytes, but 18 of the record are left",
    );
    assert_corrupt(
        &with(PROPERTIES_LENGTH_AT, &(-1i16).to_be_bytes()),
        PROPERTIES_LENGTH_AT,
        "properties of -1 bytes",
    );
    assert_corrupt(&with(PROPERTIES_LENGTH_AT, &9i16.to_be_bytes()), 0, "add up to");
    // As long as the rest of the record, so that no length field of the topic is left.
    assert_corrupt(
        &with(BODY_LENGTH_AT, &23i32.to_be_bytes()),
        111,
        "its topic length is at byte 111",
    );
}

#[test]
fn an_empty_body_has_no_crc_to_check() {
    let mut bytes = Message::default().encode().unwrap();
    bytes[8..12].copy_from_slice(&[1, 2, 3, 4]);
    assert!(matches!(read_record(&bytes, Check::Whole), Record::Message(_)));
}

#[test]
fn a_wrong_body_crc_is_seen_when_asked() {
    let bytes = with(88, b"BODY");
    assert!(matches!(read_record(&bytes, Check::Structure), Record::Message(_)));
    assert!(matches!(read_record(&bytes, Check::Body), Record::Corrupt(malformed) if malformed.at == 0));
}

#[test]
fn a_kept_layout_views_the_record_again() {
    let bytes = record();
    let Record::Message(view) = read_record(&bytes, Check::Body) else {
        panic!("no message");
    };
    let kept: (Vec<u8>, RecordLayout) = (view.bytes().to_vec(), view.layout());
    assert_eq!(MessageView::from_layout(&kept.0, kept.1).to_message(), view.to_message());
    assert_eq!(kept.1.size(), bytes.len());
}

#[test]
fn a_batch_record_without_separator_before_its_crc_is_kept_as_it_is() {
    // 5.2 and 5.3 wrote these: the CRC property fuses with the value before it.
    let with_crc = Message {
        properties: b"TAGS\x01paid\x02".to_vec().into(),
        crc_property: true,
        ..Message::default()
    };
    let mut bytes = with_crc.encode().unwrap();
    let separator = bytes.len() - 21;
    bytes.remove(separator);
    let total = (bytes.len() as i32).to_be_bytes();
    bytes[..4].copy_from_slice(&total);
    bytes[90] -= 1;
    let Record::Message(view) = read_record(&bytes, Check::Body) else {
        panic!("no message");
    };
    let message = view.to_message();
    assert!(!message.crc_property);
    assert_eq!(message.encode().unwrap(), bytes);
    assert_eq!(
        view.tags().as_deref(),
        Some("paid__CRC32#\u{1}".to_owned() + &digits(&bytes)).as_deref()
    );
}

fn digits(bytes: &[u8]) -> String {
    String::from_utf8(bytes[bytes.len() - 11..bytes.len() - 1].to_vec()).unwrap()
}

#[test]
fn what_does_not_fit_is_not_encoded() {
    let refused = |message: Message| message.encode().unwrap_err().to_string();
    let topic = "t".repeat(128);
    assert!(
        refused(Message {
            topic: topic.clone().into(),
            ..Message::default()
        })
        .contains("topic takes 128 bytes")
    );
    let long = Message {
        topic: "t".repeat(32_768).into(),
        version: Version::V2,
        ..Message::default()
    };
    assert!(refused(long).contains("at most 32767 fit into a V2 record"));
    let properties = vec![b'p'; 32_768];
    assert!(
        refused(Message {
            properties: properties.into(),
            ..Message::default()
        })
        .contains("properties takes 32768 bytes")
    );
    let properties = vec![b'p'; 32_747];
    let with_crc = Message {
        properties: properties.into(),
        crc_property: true,
        ..Message::default()
    };
    assert!(
        refused(with_crc).contains("properties takes 32768 bytes"),
        "separator and CRC count"
    );
}

#[test]
fn properties_without_a_name_or_value_are_dropped() {
    let pairs = |text: &str| -> Vec<(String, String)> {
        let pairs = Properties::new(text.as_bytes()).to_pairs();
        pairs
            .into_iter()
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(pairs("a\u{1}b\u{2}c\u{1}d"), [pair("a", "b"), pair("c", "d")]);
    assert_eq!(pairs("a\u{1}\u{2}\u{1}b\u{2}c\u{2}\u{2}d\u{1}e"), [pair("d", "e")]);
    assert_eq!(pairs("a\u{1}b\u{1}c\u{2}"), [pair("a", "b\u{1}c")], "a value may hold 0x01");
    assert_eq!(pairs("a\u{1}\u{1}\u{2}"), [pair("a", "\u{1}")]);
    assert_eq!(
        pairs("a\u{1}1\u{2}b\u{1}2\u{2}a\u{1}3"),
        [pair("a", "3"), pair("b", "2")],
        "the last duplicate wins"
    );
    assert_eq!(
        pairs("TAGS\u{1}T0CLUSTER\u{1}c"),
        [pair("TAGS", "T0CLUSTER\u{1}c")],
        "fused by 4.9.1 batches"
    );
    assert_eq!(pairs(""), []);
    let malformed = Properties::new(b"a\x01\xff");
    assert_eq!(malformed.get("a").as_deref(), Some("\u{fffd}"));
}

#[test]
fn keys_are_split_on_single_spaces() {
    let keys: Vec<String> = Properties::new(b"KEYS\x01 k1  k2\tk3 ")
        .keys()
        .map(std::borrow::Cow::into_owned)
        .collect();
    assert_eq!(keys, ["k1", "k2\tk3"]);
    assert_eq!(Properties::new(b"").keys().count(), 0);
}

#[test]
fn properties_that_would_not_read_back_are_refused() {
    for (name, value) in [("", "v"), ("n", ""), ("n\u{1}", "v"), ("n\u{2}", "v"), ("n", "v\u{2}")] {
        assert!(encode_properties([(name, value)], true).is_err(), "{name:?} {value:?}");
    }
    assert_eq!(encode_properties([("n", "\u{1}v")], true).unwrap(), b"n\x01\x01v\x02");
    assert_eq!(encode_properties([], true).unwrap(), b"");
    assert_eq!(encode_properties([], false).unwrap(), b"");
    let value = "v".repeat(32_764);
    assert_eq!(encode_properties([("n", value.as_str())], true).unwrap().len(), 32_767);
    assert!(encode_properties([("nn", value.as_str())], true).is_err());
    assert!(encode_properties([("nn", value.as_str())], false).is_ok());
}

#[test]
fn topics_are_directory_names() {
    for good in ["orders", "%RETRY%g", "Café_订单", "a b", "...", &"t".repeat(127)] {
        assert_eq!(validate_topic(good, Version::V1), Ok(()), "{good}");
    }
    for bad in ["", ".", "..", "a/b", "a\0b", "a\nb", &"t".repeat(128), &"订".repeat(43)] {
        assert!(validate_topic(bad, Version::V1).is_err(), "{bad:?}");
    }
    assert_eq!(validate_topic(&"t".repeat(255), Version::V2), Ok(()));
    assert!(validate_topic(&"t".repeat(256), Version::V2).is_err());
}

#[test]
fn index_times_never_run_backwards_or_over() {
    let geometry = IndexGeometry { slots: 7, items: 100 };
    let mut header = IndexHeader::rolled_from(None);
    let mut time_diff = |time| header.admit(geometry, 0, 1, 5, time).unwrap().time_diff;
    assert_eq!([time_diff(1_000_000), time_diff(1_001_999), time_diff(500)], [0, 1, 0]);
    assert_eq!(time_diff(i64::MAX), i32::MAX);
}

#[test]
fn index_slots_that_lead_nowhere_start_a_new_chain() {
    let geometry = IndexGeometry { slots: 7, items: 100 };
    let mut header = IndexHeader::rolled_from(None);
    for (slot, previous) in [(0, 0), (1, 1), (-1, 0), (5, 0), (4, 4)] {
        // The fourth put finds a slot that names item 5, which does not exist yet.
        assert_eq!(header.admit(geometry, slot, 1, 5, 5).unwrap().previous, previous);
    }
    assert_eq!((header.slot_count, header.index_count), (3, 6));
}

#[test]
fn index_names_are_decimal_numbers() {
    assert_eq!(parse_index_name("20261120195119755"), Some(20_261_120_195_119_755));
    for wrong in ["", "index", "20261120195119755.tmp", "99999999999999999999"] {
        assert_eq!(parse_index_name(wrong), None, "{wrong}");
    }
}

#[test]
fn a_batch_ends_at_its_first_malformed_unit() {
    let mut body = vec![0, 0, 0, 22];
    body.extend([0; 18]);
    body.extend([0, 0, 0, 23]);
    body.extend([0; 18]);
    let units: Vec<_> = ProducerBatch::new(&body).collect();
    assert_eq!(units.len(), 2);
    assert!(units[0].is_ok());
    let malformed = units[1].as_ref().unwrap_err();
    assert_eq!(malformed.at, 22);
    assert!(
        malformed.reason.contains("a batch unit of 23 bytes, where 22 are left"),
        "{malformed}"
    );
}

#[test]
fn equal_keys_count_once_in_hash_map_order() {
    assert_eq!(java_hash_map_order(&["b", "a", "b"], 16), ["a", "b"]);
    assert_eq!(
        java_hash_map_order(&["b", "a"], 0),
        ["a", "b"],
        "hashes 98 and 97 in what grew to four bins"
    );
}

/// "orders " twenty times.
const COMPRESSED: [(&str, i32, &str); 5] = [
    ("zlib, 4.9.3 and older", 0x001, "789ccb2f4a492d2a56c81f0c1400da8035ad"),
    ("zlib", 0x301, "789ccb2f4a492d2a56c81f0c1400da8035ad"),
    (
        "LZ4 frame",
        0x101,
        "04224d186440a7110000007f6f72646572732007006d506465727320000000002963de28",
    ),
    ("Zstandard", 0x201, "28b52ffd0058750000386f72646572732001000251c508"),
    (
        "Zstandard with a checksum",
        0x201,
        "28b52ffd0458750000386f72646572732001000251c508be2c8eb9",
    ),
];

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn bodies_that_other_programs_compressed_decode() {
    let body = "orders ".repeat(20);
    for (name, sys_flag, compressed) in COMPRESSED {
        let compressed = unhex(compressed);
        assert_eq!(&*decode_body(sys_flag, &compressed, 140).unwrap(), body.as_bytes(), "{name}");
        let short = decode_body(sys_flag, &compressed, 139).unwrap_err();
        assert!(short.reason.contains("more than 139 bytes"), "{name}: {short}");
        for cut in 0..compressed.len() {
            assert!(
                decode_body(sys_flag, &compressed[..cut], 140).is_err(),
                "{name} cut to {cut} bytes"
            );
        }
    }
    assert!(
        decode_body(0x401, b"", 140)
            .unwrap_err()
            .reason
            .contains("compression kind 4")
    );
}

#[test]
fn a_frame_that_states_a_huge_window_stays_within_the_limit() {
    // A window of 128 MiB, then 4,000 blocks of 128 KiB that are one repeated byte each: 16 KB for 500 MiB.
    let mut bomb = unhex("28b52ffd0088");
    bomb.extend([0x02, 0x00, 0x10, b'x'].repeat(4000));
    let refused = decode_body(0x201, &bomb, 1 << 20).unwrap_err();
    assert!(refused.reason.contains("more than 1048576 bytes"), "{refused}");
}

#[test]
fn the_mark_of_what_was_flushed_is_a_checked_sector() {
    let mark = FlushedMark {
        flushed: 0x0102_0304_0506,
        own_from: 77,
        is_sync: true,
    };
    let bytes = mark.encode();
    assert_eq!(bytes.len(), 512);
    assert_eq!(bytes[..4], crc32(&bytes[4..]).to_be_bytes());
    assert_eq!(&bytes[4..8], b"mqf1");
    assert_eq!(bytes[8..16], 0x0102_0304_0506_i64.to_be_bytes());
    assert_eq!(bytes[16..24], 77_i64.to_be_bytes());
    assert_eq!(bytes[24..28], [0, 0, 0, 1]);
    assert!(bytes[28..].iter().all(|byte| *byte == 0));
    assert_eq!(FlushedMark::decode(&bytes), Some(mark));
    for len in [0, 28, 511] {
        assert_eq!(FlushedMark::decode(&bytes[..len]), None);
    }
    for bit in 0..512 * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(FlushedMark::decode(&flipped), None, "bit {bit}");
    }
    assert_eq!(FlushedMark::decode(&[0; 512]), None);
}
