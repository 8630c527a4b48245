//! Bytes made by hand from the format, and compared with what RocketMQ writes.

use mqstore::format::{
    BatchUnit, Checkpoint, CqUnit, DelayLevels, DispatchRequest, Host, IndexGeometry, IndexHeader, IndexItem, Message, MessageId,
    MessageView, ProducerBatch, Record, Version, encode_blank, encode_properties, encode_unit, ext_address, fits, index_key_hash,
    java_hash, locate, parse_segment_name, read_record, segment_name, stored_properties,
};
use mqstore::format::{Check, Transaction, UniqueKey, ms_of_month, property};
use mqstore::ha::{SlaveReport, TransferHeader};

use crate::later_formats::{BatchCqUnit, CqExtUnit, java_hash_map_order};

const STORE_TIME: i64 = 1_700_000_001_000;

const GV1: &str = "00000086daa320a73610a686000000000a0b0c0d000000000000000000000000\
    00000000000000000000018bcfe5687b7f0000010000d4310000018bcfe56be8\
    0a01020300002a9f0000000200000000000000000000000568656c6c6f06546f\
    7069634100204b455953016b31206b3202554e49515f4b455901553102544147\
    530154616741";
const GV2: &str = "00000087daa320a73610a686000000000a0b0c0d000000000000000100000000\
    00000086000000000000018bcfe5687b7f0000010000d4310000018bcfe56be8\
    0a01020300002a9f0000000200000000000000000000000568656c6c6f06546f\
    7069634100214b455953016b31206b3202554e49515f4b455901553102544147\
    53015461674102";
const GV3: &str = "00000084daa320a777065916000000030a0b0c0d000000000000000000000000\
    00000000000000300000018bcfe5687b20010db8000000000000000000000001\
    000004d20000018bcfe56be820010db800000000000000000000000200002a9f\
    00000002000000000000000000000002763606546f7069634200095441475301\
    54616741";
const GV4: &str = "000000dddaa320ab0cdc1683000000000a0b0c0d000000000000000000000000\
    00000000000000000000018bcfe5687b7f0000010000d4310000018bcfe56be8\
    0a01020300002a9f000000020000000000000000000000017800802552455452\
    5925676767676767676767676767676767676767676767676767676767676767\
    6767676767676767676767676767676767676767676767676767676767676767\
    6767676767676767676767676767676767676767676767676767676767676767\
    6767676767676767676767676767676767676767676767676767670000";
const GV5: &str = "00000084daa320a73610a686000000000a0b0c0d000000000000000000000000\
    00000000000000000000018bcfe5687b7f0000010000d4310000018bcfe56be8\
    0a01020300002a9f0000000200000000000000000000000568656c6c6f06546f\
    70696341001e544147530154616741025f5f4352433332230137353733353435\
    36383102";
const GV16A: &str = "0000002a00000000000000000000000000000002623000125741495401747275\
    6502544147530154300200000020000000000000000000000007000000026231\
    00085441475301543102";
const GV16B: &str = "00000080daa320a730cb2b760000000000000000000000000000000500000000\
    000003e8000000000000018bcfe5687b7f0000010000d4310000018bcfe56be8\
    0a01020300002a9f00000000000000000000000000000002623006546f706963\
    43001d574149540174727565025441475301543002434c555354455201633102\
    00000076daa320a747cc1be00000000000000007000000000000000600000000\
    00000468000000000000018bcfe5687b7f0000010000d4310000018bcfe56be8\
    0a01020300002a9f00000000000000000000000000000002623106546f706963\
    4300135441475301543102434c555354455201633102";

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn unhex_array<const N: usize>(text: &str) -> [u8; N] {
    unhex(text).try_into().unwrap()
}

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

/// The fields that the record vectors share.
fn base<'a>(topic: &'a str, body: &[u8], properties: &[(&str, &str)], trailing: bool) -> Message<'a> {
    Message {
        flag: 0x0A0B_0C0D,
        born_time: 1_700_000_000_123,
        born_host: host("127.0.0.1:54321"),
        store_time: STORE_TIME,
        store_host: host("10.1.2.3:10911"),
        reconsume_times: 2,
        topic: topic.into(),
        body: body.to_vec().into(),
        properties: encode_properties(properties.iter().copied(), trailing).unwrap().into(),
        ..Message::default()
    }
}

const GV1_PROPERTIES: [(&str, &str); 3] = [("KEYS", "k1 k2"), ("UNIQ_KEY", "U1"), ("TAGS", "TagA")];

fn gv1() -> Message<'static> {
    base("TopicA", b"hello", &GV1_PROPERTIES, false)
}

fn gv2() -> Message<'static> {
    Message {
        queue_offset: 1,
        physical_offset: 134,
        ..base("TopicA", b"hello", &GV1_PROPERTIES, true)
    }
}

fn gv3() -> Message<'static> {
    Message {
        queue_id: 3,
        sys_flag: 0x30,
        born_host: host("[2001:db8::1]:1234"),
        store_host: host("[2001:db8::2]:10911"),
        ..base("TopicB", b"v6", &[("TAGS", "TagA")], false)
    }
}

fn gv4() -> Message<'static> {
    Message {
        version: Version::V2,
        ..base(&format!("%RETRY%{}", "g".repeat(121)), b"x", &[], false).into_owned()
    }
}

fn gv5() -> Message<'static> {
    Message {
        crc_property: true,
        ..base("TopicA", b"hello", &[("TAGS", "TagA")], true)
    }
}

#[track_caller]
fn view(bytes: &[u8]) -> MessageView<'_> {
    match read_record(bytes, Check::Whole) {
        Record::Message(view) => view,
        other => panic!("no message: {other:?}"),
    }
}

#[track_caller]
fn assert_both_ways(message: &Message, vector: &str) {
    let bytes = unhex(vector);
    assert_eq!(hex(&message.encode().unwrap()), hex(&bytes));
    assert_eq!(message.encoded_len(), bytes.len());
    assert_eq!(view(&bytes).to_message(), *message);
    assert_eq!(view(&bytes).size() as usize, bytes.len());
    assert_eq!(view(&bytes).version(), message.version);
}

#[test]
fn gv1_a_v1_record_without_trailing_separator_reads_and_writes() {
    assert_both_ways(&gv1(), GV1);
    let bytes = unhex(GV1);
    let view = view(&bytes);
    assert_eq!(view.body_crc(), 0x3610_A686);
    assert_eq!((view.queue_id(), view.queue_offset(), view.physical_offset()), (0, 0, 0));
    assert_eq!((view.flag(), view.sys_flag(), view.reconsume_times()), (0x0A0B_0C0D, 0, 2));
    assert_eq!((view.born_time(), view.store_time()), (1_700_000_000_123, STORE_TIME));
    assert_eq!(view.born_host().to_string(), "127.0.0.1:54321");
    assert_eq!(view.store_host().to_string(), "10.1.2.3:10911");
    assert_eq!(
        (view.prepared_transaction_offset(), view.transaction()),
        (0, Transaction::None)
    );
    assert_eq!(
        (view.body(), view.topic_bytes(), &*view.topic()),
        (&b"hello"[..], &b"TopicA"[..], "TopicA")
    );
    assert_eq!(view.unique_key().as_deref(), Some("U1"));
    assert_eq!(view.tags().as_deref(), Some("TagA"));
    assert_eq!(view.keys(), ["k1", "k2"]);
    assert_eq!(
        view.properties().to_pairs(),
        GV1_PROPERTIES.map(|(name, value)| (name.into(), value.into()))
    );
}

#[test]
fn gv2_a_trailing_separator_is_kept() {
    assert_both_ways(&gv2(), GV2);
    assert_eq!(
        view(&unhex(GV2)).properties().to_pairs(),
        view(&unhex(GV1)).properties().to_pairs()
    );
}

#[test]
fn gv3_ipv6_hosts_widen_the_record_and_set_their_bits() {
    assert_both_ways(&gv3(), GV3);
    assert_eq!(Message { sys_flag: 0, ..gv3() }.encode().unwrap(), unhex(GV3));
    assert_eq!(view(&unhex(GV3)).body_crc(), 0x7706_5916);
}

#[test]
fn gv4_a_topic_of_128_bytes_needs_v2() {
    assert_both_ways(&gv4(), GV4);
    let refused = Message {
        version: Version::V1,
        ..gv4()
    }
    .encode()
    .unwrap_err();
    assert!(refused.reason.contains("topic takes 128 bytes, at most 127"), "{refused}");
}

#[test]
fn gv5_the_crc_property_is_appended_last_with_reversed_digits() {
    assert_both_ways(&gv5(), GV5);
    let bytes = unhex(GV5);
    assert_eq!(view(&bytes).properties().get(property::CRC32).as_deref(), Some("7573545681"));

    let unclosed = base("TopicA", b"hello", &[("TAGS", "TagA")], false);
    let unclosed = Message {
        crc_property: true,
        ..unclosed
    };
    assert_eq!(hex(&unclosed.encode().unwrap()), GV5, "a separator comes before it");
    let older = base("TopicA", b"hello", &[("__CRC32#", "0000000000"), ("TAGS", "TagA")], true);
    let older = Message {
        crc_property: true,
        ..older
    };
    assert_eq!(hex(&older.encode().unwrap()), GV5, "an older one is removed");
    assert_eq!(older.encoded_len(), bytes.len());
}

#[test]
fn gv5_a_changed_byte_outside_the_body_is_seen_by_the_whole_check_only() {
    let mut bytes = unhex(GV5);
    bytes[12] ^= 1;
    assert!(matches!(read_record(&bytes, Check::Body), Record::Message(_)));
    let Record::Corrupt(malformed) = read_record(&bytes, Check::Whole) else {
        panic!("not seen");
    };
    assert_eq!(malformed.at, 112);
}

#[test]
fn gv6_a_blank_takes_what_remains() {
    assert_eq!(hex(&encode_blank(300)), "0000012ccbd43194");
    let blank = unhex("0000012ccbd43194");
    assert!(matches!(read_record(&blank, Check::Whole), Record::Blank { size: 300 }));
    assert!(fits(292, 300));
    assert!(!fits(293, 300));
}

#[test]
fn a_blank_of_eight_bytes_still_fits() {
    assert!(fits(92, 100));
    assert!(!fits(93, 100));
    assert!(!fits(u64::MAX, u64::MAX));
    assert!(matches!(
        read_record(&encode_blank(8), Check::Structure),
        Record::Blank { size: 8 }
    ));
    assert!(matches!(read_record(&encode_blank(7), Check::Structure), Record::Corrupt(_)));
}

#[test]
fn gv7_the_tags_code_is_the_java_hash_sign_extended() {
    let hashes = [
        ("", 0),
        ("TagA", 2_598_919),
        ("TagB", 2_598_920),
        ("a||b", 3_012_833),
        ("polygenelubricants", i32::MIN),
        ("标签", 857_175),
        ("😀", 1_772_899),
        ("order-created", -392_709_271),
    ];
    for (tag, hash) in hashes {
        assert_eq!(java_hash(tag), hash, "{tag}");
        let properties = encode_properties(Some(("TAGS", tag)).filter(|_| !tag.is_empty()), true).unwrap();
        let bytes = Message {
            properties: properties.into(),
            ..Message::default()
        }
        .encode()
        .unwrap();
        assert_eq!(
            DispatchRequest::of(&view(&bytes)).tags_code(&DelayLevels::default()),
            i64::from(hash),
            "{tag}"
        );
    }
}

fn cq_both_ways(unit: CqUnit, vector: &str) {
    assert_eq!(hex(&unit.encode()), vector);
    assert_eq!(CqUnit::decode(&unhex_array(vector)), unit);
    assert!(unit.is_valid());
}

#[test]
fn gv8_queue_entries_point_at_their_records() {
    let levels = DelayLevels::default();
    let (first, second) = (unhex(GV1), gv2());
    let second = Message {
        properties: encode_properties([("TAGS", "order-created")], true).unwrap().into(),
        ..second
    };
    let second = second.encode().unwrap();
    let entry = |bytes: &[u8], size: i32| CqUnit {
        physical_offset: view(bytes).physical_offset(),
        size,
        tags_code: DispatchRequest::of(&view(bytes)).tags_code(&levels),
    };
    cq_both_ways(entry(&first, 134), "000000000000000000000086000000000027a807");
    cq_both_ways(entry(&second, 135), "000000000000008600000087ffffffffe897bb69");
    let untagged = CqUnit {
        physical_offset: 4096,
        size: 104,
        tags_code: 0,
    };
    cq_both_ways(untagged, "0000000000001000000000680000000000000000");
    assert_eq!(untagged.end(), 4200);
}

fn delayed(topic: &str, level: &str) -> Vec<u8> {
    let message = base(topic, b"later", &[("DELAY", level), ("TAGS", "TagA")], true);
    message.encode().unwrap()
}

#[test]
fn gv8d_a_delayed_record_carries_its_due_time() {
    let levels = DelayLevels::default();
    let bytes = delayed("SCHEDULE_TOPIC_XXXX", "3");
    let tags_code = DispatchRequest::of(&view(&bytes)).tags_code(&levels);
    cq_both_ways(
        CqUnit {
            physical_offset: 879,
            size: 173,
            tags_code,
        },
        "000000000000036f000000ad0000018bcfe592f8",
    );
}

#[test]
fn delay_levels_are_clamped_and_only_count_in_the_delay_topic() {
    let levels = DelayLevels::default();
    let due = |topic, level| DispatchRequest::of(&view(&delayed(topic, level))).tags_code(&levels);
    let hash = i64::from(java_hash("TagA"));
    assert_eq!(due("SCHEDULE_TOPIC_XXXX", "18"), STORE_TIME + 7_200_000);
    assert_eq!(due("SCHEDULE_TOPIC_XXXX", "99"), STORE_TIME + 7_200_000);
    assert_eq!(due("SCHEDULE_TOPIC_XXXX", "0"), hash);
    assert_eq!(due("SCHEDULE_TOPIC_XXXX", "soon"), hash);
    assert_eq!(due("TopicA", "3"), hash);

    assert_eq!(DelayLevels::parse(DelayLevels::ROCKETMQ).unwrap(), levels);
    let own = DelayLevels::parse("2s 1d").unwrap();
    assert_eq!((own.max_level(), own.delay_ms(1), own.delay_ms(2)), (2, 2000, 86_400_000));
    assert_eq!(
        (own.delay_ms(0), own.delay_ms(3)),
        (1000, 1000),
        "unknown levels wait a second"
    );
    assert!(DelayLevels::parse("1s  5s").is_err());
    assert!(DelayLevels::parse("5x").is_err());
}

#[test]
fn gv8e_a_pre_blank_is_valid_and_has_no_message() {
    cq_both_ways(CqUnit::PRE_BLANK, "00000000000000007fffffff0000000000000000");
    assert!(CqUnit::PRE_BLANK.is_pre_blank());
    assert!(!CqUnit::decode(&[0; 20]).is_valid());
}

#[test]
fn gv9_an_extension_unit_is_found_through_its_address() {
    let vector = "001c000000000027a8070000018bcfe56be800080102030405060708";
    let unit = CqExtUnit {
        tags_code: java_hash("TagA").into(),
        store_time: STORE_TIME,
        bitmap: (1..=8).collect(),
    };
    assert_eq!(hex(&unit.encode().unwrap()), vector);
    assert_eq!(CqExtUnit::decode(&unhex(vector)).unwrap(), Some(unit));
    assert_eq!(CqExtUnit::decode(&CqExtUnit::END_OF_FILE).unwrap(), None);

    assert_eq!(ext_address(0), i64::MIN);
    assert_eq!(format!("{:016x}", ext_address(28)), "800000000000001c");
    let at = |tags_code| {
        CqUnit {
            physical_offset: 0,
            size: 1,
            tags_code,
        }
        .ext_address()
    };
    assert_eq!(at(ext_address(28)), Some(28));
    assert_eq!(at(i32::MIN.into()), None, "the lowest hash is not an address");
    assert_eq!(at(i64::from(i32::MIN) - 1), Some((1 << 63) - (1 << 31) - 1));
}

#[test]
fn gv10_a_batch_queue_entry_counts_its_messages() {
    let vector = "00000000000004d2000001f400000000000000000000018bcfe56be800000000000000280003ffffffff00000000";
    let unit = BatchCqUnit {
        physical_offset: 1234,
        size: 500,
        tags_code: 0,
        store_time: STORE_TIME,
        base_offset: 40,
        count: 3,
        compacted_offset: -1,
        reserved: 0,
    };
    assert_eq!(hex(&unit.encode()), vector);
    assert_eq!(BatchCqUnit::decode(&unhex_array(vector)), unit);
    assert!(unit.is_valid());
    assert!(!BatchCqUnit::decode(&[0; 46]).is_valid());
}

#[test]
fn gv11_keys_hash_to_their_slots() {
    let keys = [
        ("TopicA", "U1", 1_903_241_331, 3_241_331, 12_965_364),
        ("TopicA", "k1", 1_903_240_649, 3_240_649, 12_962_636),
        ("TopicA", "k2", 1_903_240_648, 3_240_648, 12_962_632),
        ("T", "(8'+,4+", 0, 0, 40),
        ("TopicA", "polygenelubricants", 1_801_680_111, 1_680_111, 6_720_484),
        ("TopicA", "订单1", 1_163_990_957, 3_990_957, 15_963_868),
    ];
    for (topic, key, hash, slot, position) in keys {
        assert_eq!(index_key_hash(topic, key), hash, "{key}");
        assert_eq!(IndexGeometry::ROCKETMQ.slot_of(hash), slot, "{key}");
        assert_eq!(IndexGeometry::ROCKETMQ.slot_position(slot), position, "{key}");
    }
    assert_eq!(IndexGeometry::ROCKETMQ.file_len(), 420_000_040);
}

fn item_both_ways(item: IndexItem, vector: &str) {
    assert_eq!(hex(&item.encode()), vector);
    assert_eq!(IndexItem::decode(&unhex_array(vector)), item);
}

fn header_both_ways(header: IndexHeader, vector: &str) {
    assert_eq!(hex(&header.encode()), vector);
    assert_eq!(IndexHeader::decode(&unhex_array(vector)), header);
}

/// The header after the keys of GV1 and one more, with the items.
fn gv12() -> (IndexHeader, Vec<IndexItem>) {
    let geometry = IndexGeometry::ROCKETMQ;
    let record = unhex(GV1);
    let keys = DispatchRequest::of(&view(&record)).index_keys(false).collect::<Vec<_>>();
    assert_eq!(keys, ["U1", "k1", "k2"]);
    let mut header = IndexHeader::rolled_from(None);
    let hash = |key: &str| index_key_hash("TopicA", key);
    let mut items: Vec<IndexItem> = keys
        .iter()
        .map(|key| header.admit(geometry, 0, hash(key), 0, STORE_TIME).unwrap())
        .collect();
    items.push(header.admit(geometry, 2, hash("k1"), 700, STORE_TIME + 2999).unwrap());
    (header, items)
}

#[test]
fn gv12_puts_link_the_items_of_a_slot() {
    let (header, items) = gv12();
    header_both_ways(
        header,
        "0000018bcfe56be80000018bcfe5779f000000000000000000000000000002bc0000000300000005",
    );
    let vectors = [
        (20_000_060, "7171287300000000000000000000000000000000"),
        (20_000_080, "717125c900000000000000000000000000000000"),
        (20_000_100, "717125c800000000000000000000000000000000"),
        (20_000_120, "717125c900000000000002bc0000000200000002"),
    ];
    for (number, (item, (position, vector))) in (1..).zip(items.into_iter().zip(vectors)) {
        assert_eq!(IndexGeometry::ROCKETMQ.item_position(number), position);
        item_both_ways(item, vector);
    }
}

#[test]
fn gv13_the_first_item_of_a_rolled_file_counts_from_the_previous_end() {
    let (previous, _) = gv12();
    let mut header = IndexHeader::rolled_from(Some(&previous));
    let item = header.admit(
        IndexGeometry::ROCKETMQ,
        0,
        index_key_hash("TopicA", "U9"),
        9000,
        STORE_TIME + 62_999,
    );
    item_both_ways(item.unwrap(), "7171286b00000000000023280000003c00000000");
    header_both_ways(
        header,
        "0000018bcfe661ff0000018bcfe661ff000000000000232800000000000023280000000100000002",
    );
}

#[test]
fn a_full_index_file_admits_no_key() {
    let geometry = IndexGeometry { slots: 3, items: 2 };
    let mut header = IndexHeader::decode(&[0; 40]);
    assert_eq!(header.index_count, 1, "zeros are a file without items");
    assert!(header.admit(geometry, 0, 5, 0, 1).is_some());
    let full = header;
    assert_eq!(header.admit(geometry, 0, 5, 0, 1), None);
    assert_eq!(header, full);
}

#[test]
fn tag_keys_come_last_and_rolled_back_messages_have_no_keys() {
    let bytes = unhex(GV1);
    assert_eq!(
        DispatchRequest::of(&view(&bytes)).index_keys(true).collect::<Vec<_>>(),
        ["U1", "k1", "k2", "T#TagA"]
    );
    let bytes = Message { sys_flag: 0xC, ..gv1() }.encode().unwrap();
    assert_eq!(
        DispatchRequest::of(&view(&bytes)).index_keys(true).collect::<Vec<_>>(),
        [""; 0]
    );
    let bytes = Message { sys_flag: 0x4, ..gv1() }.encode().unwrap();
    assert_eq!(
        DispatchRequest::of(&view(&bytes)).index_keys(false).count(),
        3,
        "prepared ones have"
    );
}

#[test]
fn gv14_a_checkpoint_is_six_numbers_and_zeros() {
    let old = Checkpoint {
        physic_msg_timestamp: STORE_TIME,
        logics_msg_timestamp: STORE_TIME - 5,
        ..Checkpoint::default()
    };
    let new = Checkpoint {
        confirm_phy_offset: 555,
        ..old
    };
    assert_eq!(hex(&old.encode()[..24]), "0000018bcfe56be80000018bcfe56be30000000000000000");
    let vector = "0000018bcfe56be80000018bcfe56be300000000000000000000000000000000000000000000022b";
    assert_eq!(hex(&new.encode()[..40]), vector);
    assert!(new.encode()[40..].iter().all(|byte| *byte == 0));
    assert_eq!(Checkpoint::decode(&unhex(vector)), new);
    assert_eq!(Checkpoint::decode(&old.encode()), old);
    assert_eq!(Checkpoint::decode(&[]), Checkpoint::default());
    assert_eq!(new.min_timestamp(), 1_699_999_997_995);
    let newest = Checkpoint {
        logics_physical_offset: 7124,
        ..new
    };
    assert_eq!(newest.encode()[40..48], 7124i64.to_be_bytes());
    assert_eq!(Checkpoint::decode(&newest.encode()), newest);
    assert_eq!(Checkpoint::default().min_timestamp(), 0);
}

#[test]
fn gv15_message_ids_are_hosts_and_offsets_in_hexadecimal() {
    let ids = [
        ("10.1.2.3:10911", 197, "0A01020300002A9F00000000000000C5"),
        (
            "[2001:db8::2]:10911",
            412,
            "20010DB800000000000000000000000200002A9F000000000000019C",
        ),
    ];
    for (store_host, physical_offset, text) in ids {
        let id = MessageId {
            store_host: host(store_host),
            physical_offset,
        };
        assert_eq!(id.to_string(), text);
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_lowercase().parse(), Ok(id));
    }
    assert!("0A01".parse::<MessageId>().is_err());
    assert!("é".repeat(16).parse::<MessageId>().is_err());
    assert_eq!(view(&unhex(GV2)).message_id().to_string(), "0A01020300002A9F0000000000000086");
}

#[test]
fn hosts_are_also_read_in_rocketmqs_form() {
    assert_eq!(host("2001:db8:0:0:0:0:0:1:1234"), host("[2001:db8::1]:1234"));
    assert_eq!(host("[2001:db8::1]:1234").to_string(), "[2001:db8::1]:1234");
    for wrong in ["", "1.2.3.4", "[1.2.3.4]:5", "1.2.3:5", "1.2.3.4:x"] {
        assert!(wrong.parse::<Host>().is_err(), "{wrong}");
    }
}

#[test]
fn gv16_a_producer_batch_becomes_a_record_a_unit() {
    let body = unhex(GV16A);
    let units: Vec<BatchUnit<'_>> = ProducerBatch::new(&body).map(Result::unwrap).collect();
    assert_eq!(units.len(), 2);
    assert_eq!(
        (units[0].flag, units[0].body, units[0].properties),
        (0, &b"b0"[..], &b"WAIT\x01true\x02TAGS\x01T0\x02"[..])
    );
    assert_eq!(
        (units[1].flag, units[1].body, units[1].properties),
        (7, &b"b1"[..], &b"TAGS\x01T1\x02"[..])
    );
    let encoded: Vec<u8> = units.iter().flat_map(|unit| encode_unit(unit).unwrap()).collect();
    assert_eq!(hex(&encoded), GV16A);

    let mut stored = Vec::new();
    for (unit, queue_offset) in units.iter().zip(5..) {
        let record = Message {
            flag: unit.flag,
            queue_offset,
            physical_offset: 1000 + stored.len() as i64,
            reconsume_times: 0,
            properties: stored_properties(unit.properties, Some(b"CLUSTER\x01c1\x02")),
            ..base("TopicC", unit.body, &[], true)
        };
        stored.extend(record.encode().unwrap());
    }
    assert_eq!(hex(&stored), GV16B);
}

#[test]
fn gv16_batch_properties_are_separated_from_those_of_the_unit() {
    assert_eq!(*stored_properties(b"a\x01b", Some(b"c\x01d")), *b"a\x01b\x02c\x01d");
    assert_eq!(*stored_properties(b"", Some(b"c\x01d")), *b"c\x01d");
    assert_eq!(*stored_properties(b"a\x01b", Some(b"")), *b"a\x01b");
    assert_eq!(*stored_properties(b"a\x01b", None), *b"a\x01b", "5.3.4 and later drop them");
}

#[test]
fn gv17_properties_are_in_hash_map_order() {
    let keys = ["UNIQ_KEY", "WAIT", "TAGS", "KEYS", "CLUSTER", "MSG_REGION", "TRACE_ON"];
    assert_eq!(
        java_hash_map_order(&keys, 16),
        ["TRACE_ON", "KEYS", "MSG_REGION", "UNIQ_KEY", "CLUSTER", "WAIT", "TAGS"]
    );
    assert_eq!(
        java_hash_map_order(&keys, 128),
        ["MSG_REGION", "UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT", "TRACE_ON"]
    );
    let delayed = ["TAGS", "DELAY", "WAIT", "REAL_TOPIC", "REAL_QID"];
    assert_eq!(
        java_hash_map_order(&delayed, 16),
        ["REAL_TOPIC", "DELAY", "WAIT", "TAGS", "REAL_QID"]
    );
}

#[test]
fn gv18_replication_frames_are_plain_numbers() {
    let report = SlaveReport {
        max_physical_offset: 1 << 30,
    };
    assert_eq!(hex(&report.encode()), "0000000040000000");
    assert_eq!(SlaveReport::decode(unhex_array("0000000040000000")), report);
    for (size, vector) in [(32768, "000000004000000000008000"), (0, "000000004000000000000000")] {
        let header = TransferHeader {
            physical_offset: 1 << 30,
            size,
        };
        assert_eq!(hex(&header.encode()), vector);
        assert_eq!(TransferHeader::decode(unhex_array(vector)), header);
        assert_eq!(header.is_heartbeat(), size == 0);
    }
}

#[test]
fn gv19_files_are_named_by_their_first_byte() {
    let names = [
        (0, "00000000000000000000"),
        (1 << 30, "00000000001073741824"),
        (3 << 30, "00000000003221225472"),
        (6_000_000, "00000000000006000000"),
        (50_331_648, "00000000000050331648"),
    ];
    for (offset, name) in names {
        assert_eq!(segment_name(offset), name);
        assert_eq!(parse_segment_name(name), Some(offset));
    }
    for wrong in [
        "",
        "0",
        "000000000000000000000",
        "+0000000000000000001",
        "99999999999999999999",
        "0000000000000000000é",
    ] {
        assert_eq!(parse_segment_name(wrong), None, "{wrong}");
    }
    assert_eq!(locate(1_073_741_825, 1 << 30), (1 << 30, 1));
    assert_eq!(locate(5, 0), (0, 5));
}

/// Made by `MessageClientIDSetter.createUniqID` of 5.5.1 and 4.9.8 in the zone of Kathmandu, and taken apart by its `getIPStrFromID`,
/// `getPidFromID` and `getNearlyTimeFromID`. The first was made at 2026-11-22T11:41:23.152Z, the second at 11:41:44.881.
#[test]
fn unique_keys_are_those_of_rocketmqs_client() {
    let address = "fd00::2".parse().unwrap();
    let kathmandu = (5 * 60 + 45) * 60_000;
    let first = UniqueKey {
        address,
        process: 13602,
        producer: 0x4E0E_2F2A,
        ms_of_month: ms_of_month(1_795_347_683_152 + kathmandu),
        counter: 0,
    };
    assert_eq!(first.to_string(), "FD00000000000000000000000000000235224E0E2F2A6FE38AB00000");
    let second = UniqueKey {
        process: 14398,
        ms_of_month: ms_of_month(1_795_347_704_881 + kathmandu),
        ..first
    };
    assert_eq!(second.to_string(), "FD000000000000000000000000000002383E4E0E2F2A6FE3DF910000");
    let v4 = UniqueKey {
        address: "192.168.0.1".parse().unwrap(),
        process: u16::MAX,
        producer: 0xDEAD_BEEF,
        ms_of_month: 0,
        counter: 255,
    };
    assert_eq!(v4.to_string(), "C0A80001FFFFDEADBEEF0000000000FF");
}

#[test]
fn the_ms_of_a_month_begin_at_its_first_midnight() {
    for (ms, expected) in [
        (0, 0),
        (-1, 31 * 86_400_000 - 1),
        (951_782_400_000 - 1, 28 * 86_400_000 - 1),
        (951_868_800_000 - 1, 29 * 86_400_000 - 1),
        (951_868_800_000, 0),
    ] {
        assert_eq!(ms_of_month(ms), expected, "{ms}");
    }
    for ms in [i64::MIN, i64::MAX] {
        assert!(ms_of_month(ms) < 31 * 86_400_000);
    }
}
