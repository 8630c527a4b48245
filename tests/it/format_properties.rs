//! Properties of the format code for any message and any bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mqstore::format::{
    BatchUnit, Check, Checkpoint, CqUnit, DelayLevels, DispatchRequest, GeometryGuess, Host, INDEX_HEADER_SIZE, ITEM_SIZE,
    IndexGeometry, IndexHeader, IndexItem, Message, MessageId, MessageView, ProducerBatch, Properties, Record, SLOT_SIZE,
    Version, compression, decode_body, detect_index_geometry, encode_properties, encode_unit, ext_address, index_key_hash,
    java_hash, parse_index_name, parse_segment_name, read_record, segment_name, validate_topic,
};
use mqstore::ha::{SlaveReport, TransferHeader};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::later_formats::{BatchCqUnit, CqExtUnit, java_hash_map_order};

fn any_host() -> impl Strategy<Value = Host> {
    let v4 = any::<[u8; 4]>().prop_map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    let v6 = any::<[u8; 16]>().prop_map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    (prop_oneof![v4, v6], any::<i32>()).prop_map(|(address, port)| Host { address, port })
}

fn any_topic() -> impl Strategy<Value = (Version, String)> {
    prop_oneof![
        "\\PC{0,31}".prop_map(|topic| (Version::V1, topic)),
        "\\PC{0,300}".prop_map(|topic| (Version::V2, topic)),
    ]
}

fn any_pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    let orders = "DELAY|INNER_NUM|__CRC32#|TIMER_DELIVER_MS|TIMER_DELAY_SEC|TIMER_DELAY_MS";
    let name = prop_oneof!["[^\u{1}\u{2}]{1,8}", "KEYS|TAGS|UNIQ_KEY|DELAYED|TIMER_OUT_MS", orders];
    let value = prop_oneof!["[^\u{2}]{1,20}", "[0-9]{1,3}", "k[0-9]( k[0-9]){0,3}"];
    vec((name, value), 0..6)
}

/// Property bytes as writers write them, and some that no writer writes.
fn any_properties() -> impl Strategy<Value = Vec<u8>> {
    let encoded = (any_pairs(), any::<bool>()).prop_map(|(pairs, trailing)| {
        let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        encode_properties(pairs, trailing).unwrap()
    });
    let crc = any_pairs().prop_map(|pairs| {
        let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        encode_properties(pairs.chain([("__CRC32#", "0123456789")]), true).unwrap()
    });
    prop_oneof![4 => encoded, 1 => crc, 1 => vec(any::<u8>(), 0..60)]
}

prop_compose! {
    fn any_message()(
        (version, topic) in any_topic(),
        (queue_id, flag, sys_flag, reconsume_times) in any::<(i32, i32, i32, i32)>(),
        (queue_offset, physical_offset, prepared_transaction_offset) in any::<(i64, i64, i64)>(),
        (born_time, store_time) in any::<(i64, i64)>(),
        (born_host, store_host) in (any_host(), any_host()),
        body in vec(any::<u8>(), 0..200),
        properties in any_properties(),
        crc_property in any::<bool>(),
    ) -> Message<'static> {
        Message {
            version, queue_id, flag, queue_offset, physical_offset, sys_flag, born_time, born_host, store_time, store_host,
            reconsume_times, prepared_transaction_offset, body: body.into(), topic: topic.into(), properties: properties.into(), crc_property,
        }
    }
}

/// Calls every getter.
fn read_all(view: &MessageView<'_>) {
    let _ = (
        view.bytes(),
        view.layout(),
        view.size(),
        view.version(),
        view.body_crc(),
        view.queue_id(),
        view.flag(),
    );
    let _ = (
        view.queue_offset(),
        view.physical_offset(),
        view.sys_flag(),
        view.born_time(),
        view.born_host(),
    );
    let _ = (
        view.store_time(),
        view.store_host(),
        view.reconsume_times(),
        view.prepared_transaction_offset(),
    );
    let _ = (
        view.topic_bytes(),
        view.topic(),
        view.tags(),
        view.unique_key(),
        view.keys(),
        view.transaction(),
    );
    let _ = (
        view.message_id().to_string(),
        view.is_inner_batch(),
        DispatchRequest::of(view).tags_code(&DelayLevels::default()),
    );
    let _ = (
        DispatchRequest::of(view).index_keys(true).count(),
        view.properties().to_pairs(),
        view.properties().iter().count(),
    );
    let _ = (
        decode_body(view.sys_flag(), view.body(), 1000),
        ProducerBatch::new(view.body()).count(),
    );
    let _ = view.to_message().encode();
}

fn read_at_every_check(bytes: &[u8]) {
    for check in [Check::Structure, Check::Body, Check::Whole] {
        match read_record(bytes, check) {
            Record::Message(view) => {
                assert_eq!(view.bytes(), &bytes[..view.size() as usize]);
                read_all(&view);
            }
            Record::Blank { size } => assert!(size >= 8),
            Record::End => assert!(bytes.len() < 8 || bytes.starts_with(&[0; 8])),
            Record::Corrupt(malformed) => assert!(malformed.at <= bytes.len(), "{malformed}"),
        }
    }
}

proptest! {
    #[test]
    fn any_message_reads_back_as_it_was(message in any_message(), rest in vec(any::<u8>(), 0..40)) {
        let mut bytes = message.encode().unwrap();
        let size = bytes.len();
        prop_assert_eq!(message.encoded_len(), size);
        bytes.extend(rest);
        // Properties that end in something like a CRC of the record are taken to have one.
        let check = if message.crc_property { Check::Whole } else { Check::Body };
        let Record::Message(view) = read_record(&bytes, check) else {
            return Err(TestCaseError::fail("no message"));
        };
        prop_assert_eq!(view.size() as usize, size);
        let read = view.to_message();
        prop_assert_eq!(read.sys_flag & !0x30, message.sys_flag & !0x30);
        prop_assert!(read.crc_property || !message.crc_property);
        prop_assert_eq!(read.encode().unwrap(), &bytes[..size]);
        let (sys_flag, properties) = (read.sys_flag, read.properties.clone());
        let expected = Message { sys_flag, properties, ..message.clone() };
        prop_assert_eq!(read, expected);
        if !message.crc_property {
            prop_assert_eq!(view.properties().bytes(), &message.properties[..]);
        }
        let again = MessageView::from_layout(view.bytes(), view.layout());
        prop_assert_eq!(again.to_message(), view.to_message());
    }

    #[test]
    fn a_record_that_is_cut_off_is_corrupt(message in any_message(), cut in any::<prop::sample::Index>()) {
        let bytes = message.encode().unwrap();
        let cut = 8 + cut.index(bytes.len() - 8);
        prop_assert!(matches!(read_record(&bytes[..cut], Check::Structure), Record::Corrupt(_)));
    }

    #[test]
    fn a_changed_bit_of_the_body_is_seen(message in any_message(), at in any::<prop::sample::Index>(), bit in 0..8) {
        prop_assume!(!message.body.is_empty());
        let mut bytes = message.encode().unwrap();
        let Record::Message(view) = read_record(&bytes, Check::Body) else {
            return Err(TestCaseError::fail("no message"));
        };
        let body_at = view.body().as_ptr() as usize - bytes.as_ptr() as usize;
        bytes[body_at + at.index(message.body.len())] ^= 1u8 << bit;
        prop_assert!(matches!(read_record(&bytes, Check::Body), Record::Corrupt(_)));
    }

    #[test]
    fn reading_never_panics_on_any_bytes(bytes in vec(any::<u8>(), 0..300)) {
        read_at_every_check(&bytes);
    }

    #[test]
    fn reading_never_panics_on_a_damaged_record(
        message in any_message(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        len in any::<prop::sample::Index>(),
        exact_size in any::<bool>(),
    ) {
        let mut bytes = message.encode().unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(1 + len.index(bytes.len()).max(90));
        if exact_size {
            let total = (bytes.len() as i32).to_be_bytes();
            bytes[..4].copy_from_slice(&total);
        }
        read_at_every_check(&bytes);
    }

    #[test]
    fn getters_are_total_for_the_layout_of_another_record(message in any_message(), other in vec(any::<u8>(), 0..300)) {
        let bytes = message.encode().unwrap();
        if let Record::Message(view) = read_record(&bytes, Check::Structure) {
            read_all(&MessageView::from_layout(&other, view.layout()));
        }
    }

    #[test]
    fn properties_read_back_with_or_without_the_last_separator(pairs in any_pairs(), trailing in any::<bool>()) {
        let bytes = encode_properties(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())), trailing).unwrap();
        let properties = Properties::new(&bytes);
        let read: Vec<(&[u8], &[u8])> = properties.iter().collect();
        let put: Vec<(&[u8], &[u8])> = pairs.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        prop_assert_eq!(read, put);
        for (name, value) in properties.to_pairs() {
            let last = pairs.iter().rfind(|pair| pair.0 == name).unwrap();
            prop_assert_eq!(&last.1, &value);
            prop_assert_eq!(properties.get(&name), Some(value));
        }
    }

    #[test]
    fn any_property_bytes_are_readable(bytes in vec(0u8..5, 0..40)) {
        let properties = Properties::new(&bytes);
        for (name, value) in properties.iter() {
            prop_assert!(!name.is_empty() && !value.is_empty());
            prop_assert!(!name.contains(&1) && !name.contains(&2) && !value.contains(&2));
        }
        let _ = (properties.to_pairs(), properties.keys().count());
    }

    #[test]
    fn pairs_are_split_at_the_separators(bytes in vec(prop_oneof![Just(1), Just(2), Just(3), Just(0x81), Just(0x82)], 0..60)) {
        let segments = bytes.split(|byte| *byte == 2);
        let pairs = segments.filter_map(|segment| {
            let at = segment.iter().position(|byte| *byte == 1)?;
            let (name, value) = (&segment[..at], &segment[at + 1..]);
            (!name.is_empty() && !value.is_empty()).then_some((name, value))
        });
        prop_assert!(Properties::new(&bytes).iter().eq(pairs));
    }

    #[test]
    fn the_hash_of_any_text_is_that_of_its_utf16_units(text in "[a-z0-9]{0,40}|\\PC{0,20}", topic in "[a-z]{0,9}") {
        let hash = |text: &str| text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
        prop_assert_eq!(java_hash(&text), hash(&text));
        let key = hash(&format!("{topic}#{text}"));
        prop_assert_eq!(index_key_hash(&topic, &text), key.checked_abs().unwrap_or(0));
    }

    #[test]
    fn queue_entries_read_back(bytes in any::<[u8; 20]>(), real in 0..(1u64 << 63) - (1 << 31)) {
        let unit = CqUnit::decode(&bytes);
        prop_assert_eq!(unit.encode(), bytes);
        let _ = (unit.is_valid(), unit.is_pre_blank(), unit.end(), unit.ext_address());
        let addressed = CqUnit { tags_code: ext_address(real), ..unit };
        prop_assert_eq!(addressed.ext_address(), Some(real));
        let _ = ext_address(u64::MAX - real);
    }

    #[test]
    fn batch_queue_entries_read_back(bytes in vec(any::<u8>(), 46..=46)) {
        let bytes: [u8; 46] = bytes.try_into().unwrap();
        prop_assert_eq!(BatchCqUnit::decode(&bytes).encode(), bytes);
    }

    #[test]
    fn any_bytes_are_an_extension_unit_or_an_error(size in any::<u8>(), rest in vec(any::<u8>(), 0..80)) {
        let bytes: Vec<u8> = [0, size].into_iter().chain(rest).collect();
        if let Ok(Some(unit)) = CqExtUnit::decode(&bytes) {
            prop_assert_eq!(unit.encode().unwrap(), &bytes[..unit.encoded_len()]);
        }
    }

    #[test]
    fn extension_units_read_back(tags_code in any::<i64>(), store_time in any::<i64>(), bitmap in vec(any::<u8>(), 0..64)) {
        let unit = CqExtUnit { tags_code, store_time, bitmap };
        let bytes = unit.encode().unwrap();
        prop_assert_eq!(bytes.len(), unit.encoded_len());
        prop_assert_eq!(CqExtUnit::decode(&bytes), Ok(Some(unit)));
        prop_assert!(CqExtUnit::decode(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn index_headers_items_and_checkpoints_read_back(
        header in vec(any::<u8>(), 40..=40),
        item in any::<[u8; 20]>(),
        checkpoint in vec(any::<u8>(), 0..60),
    ) {
        let header = IndexHeader::decode(&header.try_into().unwrap());
        prop_assert_eq!(IndexHeader::decode(&header.encode()), header);
        prop_assert_eq!(IndexItem::decode(&item).encode(), item);
        let checkpoint = Checkpoint::decode(&checkpoint);
        prop_assert_eq!(Checkpoint::decode(&checkpoint.encode()), checkpoint);
        let _ = (checkpoint.min_timestamp(), checkpoint.covered_until());
    }

    #[test]
    fn any_put_into_any_header_keeps_its_rules(
        header in vec(any::<u8>(), 40..=40),
        (slot, hash, phy, time) in any::<(i32, i32, i64, i64)>(),
        (slots, items) in (0u32..10, any::<u32>()),
    ) {
        let mut header = IndexHeader::decode(&header.try_into().unwrap());
        let (geometry, before) = (IndexGeometry { slots, items }, header);
        if let Some(item) = header.admit(geometry, slot, hash, phy, time) {
            prop_assert!(item.previous >= 0 && item.previous <= before.index_count && item.time_diff >= 0);
            prop_assert_eq!(header.index_count, before.index_count + 1);
        } else {
            prop_assert_eq!(header, before);
        }
        let _ = (geometry.file_len(), geometry.slot_of(hash));
    }

    #[test]
    fn replication_frames_read_back(report in any::<[u8; 8]>(), header in any::<[u8; 12]>()) {
        prop_assert_eq!(SlaveReport::decode(report).encode(), report);
        prop_assert_eq!(TransferHeader::decode(header).encode(), header);
    }

    #[test]
    fn hosts_and_ids_read_back(store_host in any_host(), physical_offset in any::<i64>()) {
        prop_assert_eq!(store_host.to_string().parse(), Ok(store_host));
        let id = MessageId { store_host, physical_offset };
        prop_assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn orders_are_the_properties_that_a_store_checks(bytes in any_properties()) {
        let properties = Properties::new(&bytes);
        let orders = properties.orders();
        let last = |wanted: &str| properties.iter().filter(|(name, _)| *name == wanted.as_bytes()).last();
        prop_assert_eq!(orders.delay, last("DELAY").map(|(_, value)| value));
        prop_assert_eq!(orders.is_inner_batch, last("INNER_NUM").is_some());
        prop_assert_eq!(orders.has_crc, last("__CRC32#").is_some());
        let timers = ["TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"];
        prop_assert_eq!(orders.has_timer, timers.into_iter().any(|name| last(name).is_some()));
    }

    #[test]
    fn a_topic_with_a_slash_or_a_control_character_is_refused(topic in "[a-zß/ \u{0}-\u{20}\u{7e}-\u{a1}]{1,20}") {
        let is_refused = topic.chars().any(|c| c == '/' || c.is_control());
        prop_assert_eq!(validate_topic(&topic, Version::V1).is_err(), is_refused);
    }

    #[test]
    fn names_read_back_and_any_text_is_refused_or_read(offset in any::<u64>(), text in "\\PC{0,60}", topic in any::<String>()) {
        prop_assert_eq!(parse_segment_name(&segment_name(offset)), Some(offset));
        let _ = (parse_segment_name(&text), parse_index_name(&text), text.parse::<Host>(), text.parse::<MessageId>());
        let _ = (DelayLevels::parse(&text), validate_topic(&text, Version::V1), validate_topic(&topic, Version::V2));
    }

    #[test]
    fn batch_units_read_back(units in vec((any::<i32>(), vec(any::<u8>(), 0..30), any_properties()), 0..6), cut in any::<prop::sample::Index>()) {
        let units: Vec<BatchUnit<'_>> =
            units.iter().map(|(flag, body, properties)| BatchUnit { flag: *flag, body, properties }).collect();
        let body: Vec<u8> = units.iter().flat_map(|unit| encode_unit(unit).unwrap()).collect();
        let read: Result<Vec<BatchUnit<'_>>, _> = ProducerBatch::new(&body).collect();
        prop_assert_eq!(read.unwrap(), units);
        let cut = &body[..cut.index(body.len() + 1)];
        prop_assert!(ProducerBatch::new(cut).take(10).count() < 10);
    }

    #[test]
    fn any_batch_body_ends(body in vec(any::<u8>(), 0..100)) {
        prop_assert!(ProducerBatch::new(&body).count() <= 5);
    }

    #[test]
    fn hash_map_order_keeps_every_key(keys in vec("[a-z]{0,3}", 0..100), capacity in any::<usize>()) {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut ordered = java_hash_map_order(&keys, capacity.min(1 << 20));
        let mut distinct = keys.clone();
        ordered.sort_unstable();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(ordered, distinct);
    }

    #[test]
    fn decompression_never_panics(kind in 0..8i32, body in vec(any::<u8>(), 0..300), limit in 0..1000usize) {
        let sys_flag = 1 | kind << 8;
        let magic: &[u8] = match kind {
            0 | 3 => &[0x78, 0x9c],
            1 => &[0x04, 0x22, 0x4d, 0x18],
            _ => &[0x28, 0xb5, 0x2f, 0xfd],
        };
        for body in [body.clone(), [magic, &body].concat()] {
            if let Ok(decoded) = decode_body(sys_flag, &body, limit) {
                prop_assert!(decoded.len() <= limit);
            }
            prop_assert_eq!(compression(sys_flag).is_ok(), kind < 4);
        }
    }

    #[test]
    fn compressed_bodies_decode(body in vec(0u8..4, 0..5000)) {
        for (kind, compressed) in [(0, zlib(&body)), (0x300, zlib(&body)), (0x100, lz4(&body)), (0x200, zstd(&body))] {
            let sys_flag = 1 | kind;
            prop_assert_eq!(&*decode_body(sys_flag, &compressed, body.len()).unwrap(), &body[..]);
            if !body.is_empty() {
                prop_assert!(decode_body(sys_flag, &compressed, body.len() - 1).is_err());
                prop_assert!(decode_body(sys_flag, &compressed[..compressed.len() / 2], body.len()).is_err());
            }
        }
        prop_assert_eq!(&*decode_body(0x200, &body, 0).unwrap(), &body[..], "the kind alone compresses nothing");
    }

    #[test]
    fn damaged_compressed_bodies_never_panic(
        body in vec(0u8..4, 0..3000),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        for (kind, mut compressed) in [(0, zlib(&body)), (0x100, lz4(&body)), (0x200, zstd(&body))] {
            for (at, byte) in &damage {
                let at = at.index(compressed.len());
                compressed[at] = *byte;
            }
            let _ = decode_body(1 | kind, &compressed, 10_000);
        }
    }
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::read::ZlibEncoder::new(body, flate2::Compression::default());
    let mut out = Vec::new();
    std::io::copy(&mut encoder, &mut out).unwrap();
    out
}

fn lz4(body: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    std::io::copy(&mut &*body, &mut encoder).unwrap();
    encoder.finish().unwrap()
}

fn zstd(body: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(body, ruzstd::encoding::CompressionLevel::Fastest)
}

/// An index file with one item for each (hash, physical offset, store time).
fn index_file(geometry: IndexGeometry, keys: &[(i32, i64, i64)]) -> Vec<u8> {
    let mut file = vec![0; geometry.file_len() as usize];
    let mut header = IndexHeader::rolled_from(None);
    for (hash, physical_offset, store_time) in keys {
        let slot_at = geometry.slot_position(geometry.slot_of(*hash)) as usize;
        let slot = &mut file[slot_at..slot_at + SLOT_SIZE];
        let previous = i32::from_be_bytes(slot.try_into().unwrap());
        let number = header.index_count;
        slot.copy_from_slice(&number.to_be_bytes());
        let item = header
            .admit(geometry, previous, *hash, *physical_offset, *store_time)
            .unwrap();
        let item_at = geometry.item_position(number as u32) as usize;
        file[item_at..item_at + ITEM_SIZE].copy_from_slice(&item.encode());
    }
    file[..INDEX_HEADER_SIZE].copy_from_slice(&header.encode());
    file
}

fn any_index() -> impl Strategy<Value = (IndexGeometry, Vec<(i32, i64, i64)>)> {
    let geometry = (1u32..3000, 2u32..4000).prop_map(|(slots, items)| IndexGeometry { slots, items });
    let key = (0..=i32::MAX, 0..1i64 << 40, 0..1i64 << 41);
    geometry.prop_flat_map(move |geometry| {
        let most = geometry.items as usize - 1;
        (Just(geometry), vec(key.clone(), 1..=most))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_geometry_of_any_index_file_is_found((geometry, keys) in any_index()) {
        let file = index_file(geometry, &keys);
        prop_assert_eq!(detect_index_geometry(&file), GeometryGuess::One(geometry));
    }

    #[test]
    fn a_damaged_index_file_gives_an_answer(
        (geometry, keys) in any_index(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut file = index_file(geometry, &keys);
        for (at, byte) in damage {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        let _ = detect_index_geometry(&file);
    }

    #[test]
    fn any_bytes_as_index_file_give_an_answer(header in vec(0u8..3, 40..=40), content in vec(any::<u8>(), 0..2000), sparse in any::<bool>()) {
        let keep = |byte: u8| if sparse && byte < 250 { 0 } else { byte };
        let file: Vec<u8> = header.into_iter().chain(content.into_iter().map(keep)).collect();
        let _ = detect_index_geometry(&file);
    }
}

#[test]
fn an_index_file_without_keys_is_empty_and_one_without_a_header_none() {
    let geometry = IndexGeometry { slots: 100, items: 50 };
    assert_eq!(detect_index_geometry(&index_file(geometry, &[])), GeometryGuess::Empty);
    assert_eq!(detect_index_geometry(&[0; 40]), GeometryGuess::Empty);
    assert_eq!(detect_index_geometry(&[0; 39]), GeometryGuess::None);
    assert_eq!(detect_index_geometry(&[1; 1440]), GeometryGuess::None);
}

#[test]
fn zeros_in_place_of_keys_leave_several_geometries() {
    let geometry = IndexGeometry { slots: 100, items: 50 };
    assert_eq!(
        detect_index_geometry(&index_file(geometry, &[(0, 0, 0)])),
        GeometryGuess::Several
    );
    assert_eq!(
        detect_index_geometry(&index_file(geometry, &[(0, 0, 0), (0, 9, 9)])),
        GeometryGuess::One(geometry)
    );
}

#[test]
fn the_default_number_of_slots_wins() {
    let default = IndexGeometry {
        items: 3,
        ..IndexGeometry::ROCKETMQ
    };
    assert_eq!(
        detect_index_geometry(&index_file(default, &[(0, 0, 0)])),
        GeometryGuess::One(default)
    );
}

#[test]
fn a_large_index_file_is_searched_once() {
    let geometry = IndexGeometry {
        slots: 125_000,
        items: 500_000,
    };
    let keys: Vec<(i32, i64, i64)> = (1..500_000i64)
        .map(|n| ((n * 48_271 % i64::from(i32::MAX)) as i32, n * 100, n))
        .collect();
    let file = index_file(geometry, &keys);
    assert_eq!(detect_index_geometry(&file), GeometryGuess::One(geometry));
    let mut hostile = vec![0; file.len()];
    hostile[39] = 2;
    hostile[35] = 1;
    hostile[43] = 1;
    assert_eq!(detect_index_geometry(&hostile), GeometryGuess::Several);
}

#[test]
fn a_value_of_any_length_and_bytes_ends_at_the_next_separator() {
    // Bytes that differ from the separator in one bit, and those that a carry could confuse with it.
    for byte in [0, 1, 3, 0x7F, 0x80, 0x82, 0xFF] {
        for length in 1..200 {
            let value = vec![byte; length];
            let mut bytes = b"K\x01".to_vec();
            bytes.extend_from_slice(&value);
            bytes.extend_from_slice(b"\x02L\x01l\x02");
            let pairs: Vec<_> = Properties::new(&bytes).iter().collect();
            assert_eq!(pairs, [(&b"K"[..], &value[..]), (b"L", b"l")], "{byte} {length}");
        }
    }
}
