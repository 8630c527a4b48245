//! Messages of every kind: what they are in the log, in their queue and in the index.

use std::fs;
use std::net::Ipv6Addr;
use std::path::Path;

use mqstore::config::StoreConfig;
use mqstore::format::{
    BatchUnit, Check, CqUnit, DelayLevels, DispatchRequest, Host, Message, MessageView, Record, SCHEDULE_TOPIC, Transaction,
    encode_unit, index_key_hash, property, read_record,
};
use mqstore::read::MessageReader;
use mqstore::store::OpenMode;

use super::{Place, append_producer_batch, append_together, bodies, message, open, record_of, small, soon, with};
use crate::queries::by_key;

const PREPARED: i32 = 0x4;
const COMMIT: i32 = 0x8;
const ROLLBACK: i32 = 0xC;

/// Physical offsets of the messages with this key.
fn query(reader: &MessageReader, topic: &str, key: &str) -> Vec<i64> {
    let request = by_key(topic, key);
    let result = reader.query(&request).unwrap();
    assert!(result.complete);
    let found = result.hits.iter();
    found.map(|hit| hit.physical_offset).collect()
}

/// The entries of a queue's only file.
fn entries(place: &Place, topic: &str, queue_id: i32) -> Vec<CqUnit> {
    let dir = place.at("consumequeue").join(topic).join(queue_id.to_string());
    let bytes = fs::read(dir.join("00000000000000000000")).unwrap();
    let units = bytes.as_chunks::<20>().0.iter().map(CqUnit::decode);
    units.take_while(|unit| unit.is_valid()).collect()
}

#[test]
fn half_and_rolled_back_messages_take_no_number_and_no_entry() {
    let place = Place::new();
    let store = place.create();
    let put = |sys_flag: i32, key: &str| {
        let keyed = with(message("t", 0, b"x"), &[("KEYS", key)]);
        store.append(Message { sys_flag, ..keyed }).unwrap().appended
    };
    let kinds = [
        (0, "none"),
        (PREPARED, "half"),
        (COMMIT, "commit"),
        (ROLLBACK, "rollback"),
        (0, "last"),
    ];
    let stored = kinds.map(|(sys_flag, key)| put(sys_flag, key));
    assert_eq!(stored.map(|appended| appended.queue_offset), [0, 0, 1, 0, 2]);
    store.wait_dispatched(stored[4].physical_offset, Some(soon())).unwrap();
    store.close().unwrap();
    let in_queue: Vec<i64> = entries(&place, "t", 0).iter().map(|unit| unit.physical_offset).collect();
    assert_eq!(in_queue, [0, 2, 4].map(|n: usize| stored[n].physical_offset));
    let reader = place.reader();
    for ((_, key), appended) in kinds.iter().zip(stored) {
        let expected = if *key == "rollback" {
            vec![]
        } else {
            vec![appended.physical_offset]
        };
        assert_eq!(query(&reader, "t", key), expected, "{key}");
        let stored = reader.message_at(appended.physical_offset).unwrap();
        assert_eq!(stored.view().queue_offset(), appended.queue_offset);
        assert_eq!(stored.view().store_time(), appended.store_time);
    }
    let half = reader.message_at(stored[1].physical_offset).unwrap();
    assert_eq!(half.view().transaction(), Transaction::Prepared);
}

#[test]
fn a_delayed_message_waits_in_the_queue_of_its_level_with_its_due_time() {
    let place = Place::new();
    let store = place.create();
    let levels = DelayLevels::default();
    for (asked, level) in [("1", 1), ("3", 3), ("18", 18), ("19", 18), ("99", 18)] {
        let delayed = with(
            message("orders", 7, b"body"),
            &[("TAGS", "paid"), (property::DELAY, asked), ("KEYS", asked)],
        );
        let done = store.append(delayed).unwrap().appended;
        store.wait_dispatched(done.physical_offset, Some(soon())).unwrap();
        let stored = store.reader().message_at(done.physical_offset).unwrap();
        let view = stored.view();
        assert_eq!((view.topic().as_ref(), view.queue_id()), (SCHEDULE_TOPIC, level - 1));
        let properties = view.properties();
        let expected = [
            (property::DELAY, level.to_string()),
            (property::REAL_TOPIC, "orders".to_owned()),
            (property::REAL_QID, "7".to_owned()),
            (property::TAGS, "paid".to_owned()),
        ];
        for (name, value) in expected {
            assert_eq!(properties.get(name).unwrap(), value);
        }
        assert!(query(store.reader(), SCHEDULE_TOPIC, asked).contains(&done.physical_offset));
        let position = store
            .reader()
            .position(SCHEDULE_TOPIC, level - 1, done.queue_offset)
            .unwrap()
            .unwrap();
        assert_eq!(position.physical_offset, done.physical_offset);
        let due = done.store_time + levels.delay_ms(level);
        assert_eq!(DispatchRequest::of(&view).tags_code(&levels), due);
    }
    // Neither prepared messages nor those that wait already are delayed.
    for (topic, sys_flag) in [("orders", PREPARED), ("orders", ROLLBACK), (SCHEDULE_TOPIC, 0)] {
        let kept = with(message(topic, 2, b"body"), &[(property::DELAY, "5")]);
        let done = store.append(Message { sys_flag, ..kept }).unwrap().appended;
        let stored = store.reader().message_at(done.physical_offset).unwrap();
        assert_eq!((stored.view().topic().as_ref(), stored.view().queue_id()), (topic, 2));
    }
    store.close().unwrap();
    for level in [1, 18] {
        let reader = place.reader();
        for (n, unit) in entries(&place, SCHEDULE_TOPIC, level - 1).iter().enumerate() {
            let stored = reader.message_in_queue(SCHEDULE_TOPIC, level - 1, n as i64).unwrap();
            assert_eq!(unit.tags_code, stored.view().store_time() + levels.delay_ms(level));
        }
    }
    assert_eq!(entries(&place, SCHEDULE_TOPIC, 17).len(), 3);
}

/// A record's bytes with its properties in one order and ended by a separator: neither means anything, and both vary with the
/// version.
fn ordered(view: &MessageView<'_>) -> Vec<u8> {
    let mut pairs = view.properties().to_pairs();
    pairs.sort();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
    with(view.to_message(), &pairs).encode().unwrap()
}

#[test]
fn levels_3_and_99_are_stored_as_4_9_1_stores_them() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, level, asked) in [("491_basic_clean", 3, "3"), ("491_delay_delivered", 18, "99")] {
        let reader = super::reader(&golden.join(name));
        let stored = reader.message_in_queue(SCHEDULE_TOPIC, level - 1, 0).unwrap();
        let view = stored.view();
        let real = |name| view.properties().get(name).unwrap().into_owned();
        // As its producer sent it.
        let mut sent = view.properties().to_pairs();
        sent.retain(|(name, _)| name != property::REAL_TOPIC && name != property::REAL_QID && name != property::DELAY);
        sent.push((property::DELAY.into(), asked.into()));
        let sent: Vec<_> = sent.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect();
        let message = Message {
            topic: real(property::REAL_TOPIC).into(),
            queue_id: real(property::REAL_QID).parse().unwrap(),
            ..with(view.to_message(), &sent)
        };
        let place = Place::new();
        let (env, store) = place.create_counting(small());
        env.set_now(view.store_time());
        store.append(record_of(view.physical_offset() as usize)).unwrap();
        let offset = store.append(message).unwrap().appended.physical_offset;
        let ours = store.reader().message_at(offset).unwrap();
        assert_eq!(ordered(&ours.view()), ordered(&view), "{name}");
    }
}

#[test]
fn delay_levels_of_ones_own_decide() {
    let place = Place::new();
    let store = place.create_with(StoreConfig {
        message_delay_level: "7s 1d".to_owned(),
        ..small()
    });
    let delayed = with(message("orders", 0, b"body"), &[(property::DELAY, "9")]);
    let done = store.append(delayed).unwrap().appended;
    store.close().unwrap();
    let entry = entries(&place, SCHEDULE_TOPIC, 1)[0];
    assert_eq!(entry.tags_code, done.store_time + 24 * 3600 * 1000);
}

#[test]
fn every_field_of_a_record_is_stored_as_it_was_given() {
    let place = Place::new();
    let store = place.create();
    let host = |port| Host {
        address: Ipv6Addr::LOCALHOST.into(),
        port,
    };
    for (born_host, store_host) in [
        (Host::LOCAL, Host::LOCAL),
        (host(1), Host::LOCAL),
        (Host::LOCAL, host(2)),
        (host(3), host(4)),
    ] {
        let given = Message {
            queue_id: 3,
            flag: -7,
            sys_flag: 0x1 | 0x100,
            born_time: 1_234_567_890_123,
            born_host,
            store_host,
            reconsume_times: 5,
            prepared_transaction_offset: 99,
            ..with(
                message("t", 3, b"body"),
                &[("TAGS", "a"), ("KEYS", "k1 k2"), ("UNIQ_KEY", "U")],
            )
        };
        let done = store.append(given.clone()).unwrap();
        let stored = store.reader().message_at(done.appended.physical_offset).unwrap();
        let view = stored.view();
        assert_eq!(done.message_id, view.message_id());
        assert_eq!(done.appended.wrote_bytes as u32, view.size());
        let expected = Message {
            queue_offset: done.appended.queue_offset,
            physical_offset: done.appended.physical_offset,
            store_time: done.appended.store_time,
            sys_flag: view.sys_flag(),
            ..given
        };
        assert_eq!(view.to_message(), expected);
        assert_eq!(
            view.sys_flag() & 0x30,
            i32::from(born_host.address.is_ipv6()) << 4 | i32::from(store_host.address.is_ipv6()) << 5
        );
    }
    store.close().unwrap();
}

#[test]
fn a_whole_record_checksum_is_computed_in_place_and_again_for_a_copy() {
    let place = Place::new();
    let store = place.create();
    let mut checked = with(message("t", 0, b"body"), &[("TAGS", "a")]);
    checked.crc_property = true;
    let mut last = store.append(checked).unwrap().appended.physical_offset;
    for _ in 0..2 {
        let stored = store.reader().message_at(last).unwrap();
        let bytes = stored.view().bytes().to_vec();
        assert!(matches!(read_record(&bytes, Check::Whole), Record::Message(_)));
        assert!(stored.view().properties().get(property::CRC32).is_some());
        // A copy with the checksum of its old offset.
        let mut copy = stored.view().to_message();
        copy.crc_property = false;
        copy.properties = stored.view().properties().bytes().to_vec().into();
        last = store.append(copy).unwrap().appended.physical_offset;
    }
    store.close().unwrap();
}

#[test]
fn appends_get_a_whole_record_checksum_only_if_the_option_asks_for_it() {
    for enabled_append_prop_crc in [false, true] {
        let place = Place::new();
        let store = place.create_with(StoreConfig {
            enabled_append_prop_crc,
            ..small()
        });
        let tagged = || with(message("t", 0, b"body"), &[("TAGS", "a")]);
        let unit = encode_unit(&BatchUnit {
            flag: 0,
            body: b"body",
            properties: b"TAGS\x01a",
        });
        let batch = Message {
            body: [unit.clone().unwrap(), unit.unwrap()].concat().into(),
            ..message("t", 0, b"")
        };
        let mut done = vec![store.append(tagged()).unwrap()];
        done.push(store.append(message("t", 0, b"")).unwrap());
        done.push(store.append(with(message("t", 0, b"later"), &[("DELAY", "2")])).unwrap());
        store.appender(None).append_all(vec![tagged(), tagged()], &mut done).unwrap();
        done.extend(append_together(&store, vec![tagged(), tagged()]).unwrap());
        done.extend(append_producer_batch(&store, &batch, None).unwrap());
        assert_eq!(done.len(), 9);
        for stored in done {
            let stored = store.reader().message_at(stored.appended.physical_offset).unwrap();
            let Record::Message(view) = read_record(stored.view().bytes(), Check::Whole) else {
                panic!("the checksum is wrong")
            };
            assert_eq!(view.properties().get(property::CRC32).is_some(), enabled_append_prop_crc);
        }
        store.close().unwrap();
        assert_eq!(bodies(&place.reader(), "t", 0).len(), 8);
    }
}

#[test]
fn tags_are_keys_only_where_asked_for() {
    for index_tags in [false, true] {
        let place = Place::new();
        let config = StoreConfig { index_tags, ..small() };
        let store = place.create_with(config.clone());
        let tagged = with(message("t", 0, b"x"), &[("TAGS", "paid"), ("KEYS", "k")]);
        store.append(tagged).unwrap();
        store.close().unwrap();
        let index = fs::read(place.at("index").join(&place.names("index")[0])).unwrap();
        let count = i32::from_be_bytes(index[36..40].try_into().unwrap());
        assert_eq!(count - 1, if index_tags { 2 } else { 1 });
        // The tag comes after the keys.
        let hash_of_item = |n: usize| i32::from_be_bytes(index[440 + n * 20..444 + n * 20].try_into().unwrap());
        assert_eq!(hash_of_item(1), index_key_hash("t", "k"));
        assert_eq!(hash_of_item(2), if index_tags { index_key_hash("t", "T#paid") } else { 0 });
        let store = open(&place.store, config, OpenMode::Existing).unwrap();
        assert_eq!(query(store.reader(), "t", "k"), [0]);
    }
}

#[test]
fn tags_and_several_keys_of_unicode_read_back() {
    let place = Place::new();
    let store = place.create();
    let keyed = with(
        message("ünï-topic", 0, "körper".as_bytes()),
        &[("TAGS", "täg"), ("KEYS", "ä  Aa BB"), ("UNIQ_KEY", "U-ß")],
    );
    let offset = store.append(keyed).unwrap().appended.physical_offset;
    store.close().unwrap();
    let reader = place.reader();
    for key in ["ä", "Aa", "BB", "U-ß"] {
        assert_eq!(query(&reader, "ünï-topic", key), [offset]);
    }
    assert!(query(&reader, "ünï-topic", "").is_empty());
    assert_eq!(bodies(&reader, "ünï-topic", 0), ["körper".as_bytes()]);
}
