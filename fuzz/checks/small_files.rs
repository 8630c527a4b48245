//! Takes any bytes as one of the small structures of a store, selected by the first byte: queue entries, checkpoint, recorded
//! sizes, names, a broker's settings.

use std::path::Path;

use mqstore::config::StoreConfig;
use mqstore::format::{
    CQ_UNIT_SIZE, Checkpoint, CqUnit, DelayLevels, MessageId, decode_consumer_offsets, decode_delay_offsets,
    decode_topic_configs, index_name, parse_index_name, parse_segment_name, segment_name,
};
use mqstore::log::fill_from_record;

use super::image::Image;

pub fn check(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 6 {
        // The corpus has entries of other queue formats under 1.
        0 | 1 => entries(bytes),
        2 => checkpoint(bytes),
        3 => recorded_sizes(bytes),
        4 => names(bytes),
        _ => settings(bytes),
    }
}

fn entries(bytes: &[u8]) {
    for entry in bytes.as_chunks::<CQ_UNIT_SIZE>().0 {
        let unit = CqUnit::decode(entry);
        assert_eq!(&unit.encode(), entry);
        let _ = (unit.is_valid(), unit.is_pre_blank(), unit.end(), unit.ext_address());
    }
}

fn checkpoint(bytes: &[u8]) {
    let checkpoint = Checkpoint::decode(bytes);
    assert_eq!(Checkpoint::decode(&checkpoint.encode()), checkpoint);
    assert!(checkpoint.min_timestamp() >= 0 && checkpoint.covered_until() >= checkpoint.min_timestamp());
}

fn recorded_sizes(bytes: &[u8]) {
    let mut image = Image::default();
    image.put_file(Path::new("config/mqstore.json"), bytes.to_vec());
    let root = Path::new("/store");
    let mut config = StoreConfig::default();
    match fill_from_record(&image.env(root), root, &mut config) {
        Ok(_) => assert!(config.validate().is_ok()),
        Err(_) => assert_eq!(config, StoreConfig::default()),
    }
}

fn names(bytes: &[u8]) {
    if let Some((first, _)) = bytes.split_first_chunk() {
        let number = i64::from_be_bytes(*first);
        assert_eq!(
            parse_segment_name(&segment_name(number.cast_unsigned())),
            Some(number.cast_unsigned())
        );
        let _ = index_name(number / 1000);
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = (parse_segment_name(&text), parse_index_name(&text), text.parse::<MessageId>());
    let _ = DelayLevels::parse(&text).map(|levels| levels.delay_ms(levels.max_level()));
}

fn settings(bytes: &[u8]) {
    let offsets = decode_consumer_offsets(bytes);
    for offset in offsets.iter().flatten() {
        let (topic, group) = offset.names(|topic| topic.len() > 1).expect("a topic and a group");
        assert_eq!(format!("{topic}@{group}"), offset.topic_group);
    }
    let levels = decode_delay_offsets(bytes);
    let topics = decode_topic_configs(bytes);
    for malformed in [offsets.err(), levels.err(), topics.err()].into_iter().flatten() {
        assert!(malformed.at <= bytes.len() && !malformed.reason.is_empty());
    }
}
