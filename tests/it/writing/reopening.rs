//! Opening a store again for writing: our own, a broker's, and stores whose files end in every possible way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{Message, encode_blank};
use mqstore::read::MessageReader;
use mqstore::store::{MessageStore, OpenMode};

use super::{Place, SEGMENT, bodies, contents, message, names, open, put, record_of, walk, with};
use crate::counting_env::CountingEnv;
use crate::queries::by_key;
use crate::store_writer::StoreWriter;

/// Bytes of log and index that each of nine openings of a store on a disk reads, after a crash or a close.
fn read_by_reopening(is_crashed: bool) -> Vec<u64> {
    // Not in memory: a disk has read-ahead.
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(64 << 20),
        max_hash_slot_num: Some(100_000),
        max_index_num: Some(3 << 20),
        ..super::small()
    };
    let path = dir.path().join("store");
    let store = open(&path, config, OpenMode::New).unwrap();
    store.append(with(message("orders", 0, b"x"), &[("KEYS", "k")])).unwrap();
    store.close().unwrap();
    let reopen = |_| {
        let env = CountingEnv::new();
        if is_crashed {
            fs::write(path.join("abort"), "").unwrap();
        }
        let store = super::open_in(&env, &path, StoreConfig::default(), OpenMode::Existing).unwrap();
        store.close().unwrap();
        env.bytes_read_below(&path)
    };
    (0..9).map(reopen).collect()
}

#[test]
fn no_opening_reads_more_of_what_was_never_written_than_the_one_before() {
    for is_crashed in [false, true] {
        let read = read_by_reopening(is_crashed);
        let grown = read[8].saturating_sub(read[2]);
        assert!(grown < 256 << 10, "crashed {is_crashed}: {read:?}");
    }
}

fn files(place: &Place, dir: &str) -> Vec<(PathBuf, Vec<u8>)> {
    contents(&place.at(dir))
}

/// A clean store of 120 messages: two queues of 60, two queue files each, several segments.
fn written(place: &Place) -> Vec<i64> {
    let mut writer = StoreWriter::small(&place.store);
    let put = |n: i32| {
        let (body, key) = (vec![n as u8; 300], format!("k{n}"));
        writer.put("orders", n % 2, &body, &[("KEYS", &key), ("TAGS", "tag")])
    };
    let offsets = (0..120).map(put).collect();
    writer.finish(true);
    offsets
}

#[test]
fn queues_of_a_clean_store_without_their_last_entries_get_all_of_them() {
    for lacking in [1, 2, 15, 59, 60] {
        let place = Place::new();
        written(&place);
        let complete = files(&place, "consumequeue");
        for queue in 0..2 {
            let dir = place.at(&format!("consumequeue/orders/{queue}"));
            let mut bytes: Vec<u8> = names(&dir)
                .iter()
                .flat_map(|name| fs::read(dir.join(name)).unwrap())
                .collect();
            bytes[(60 - lacking) * 20..].fill(0);
            for (n, file) in bytes.chunks(1000).enumerate() {
                let path = dir.join(format!("{:020}", n * 1000));
                if file.iter().all(|byte| *byte == 0) {
                    fs::remove_file(path).unwrap();
                } else {
                    fs::write(path, file).unwrap();
                }
            }
        }
        let store = open(&place.store, super::small(), OpenMode::Existing).unwrap();
        assert_eq!(bodies(store.reader(), "orders", 1).len(), 60, "{lacking} lacking");
        store.close().unwrap();
        assert!(files(&place, "consumequeue") == complete, "{lacking} lacking");
        assert_eq!(place.reader().recovery().undispatched, 0);
    }
}

#[test]
fn removed_queues_are_rebuilt_byte_for_byte() {
    let place = Place::new();
    written(&place);
    let complete = files(&place, "consumequeue");
    fs::remove_dir_all(place.at("consumequeue")).unwrap();
    open(&place.store, super::small(), OpenMode::Existing)
        .unwrap()
        .close()
        .unwrap();
    assert!(files(&place, "consumequeue") == complete);
}

#[test]
fn keys_missing_at_the_end_of_the_index_are_put_with_the_entries() {
    let place = Place::new();
    written(&place);
    let complete = files(&place, "consumequeue");
    for dir in ["consumequeue", "index"] {
        fs::remove_dir_all(place.at(dir)).unwrap();
    }
    let store = open(&place.store, super::small(), OpenMode::Existing).unwrap();
    let last = put(&store, "orders", b"last");
    store.wait_dispatched(last, Some(super::soon())).unwrap();
    store.close().unwrap();
    assert!(files(&place, "consumequeue").len() == complete.len());
    let index = fs::read(place.at("index").join(&place.names("index")[0])).unwrap();
    assert_eq!(index[36..40], 121_i32.to_be_bytes(), "120 keys, each once");
}

#[test]
fn a_queue_that_starts_in_the_middle_continues_after_its_pre_blanks() {
    let place = Place::new();
    let mut writer = StoreWriter::small(&place.store);
    for n in 70..73_u8 {
        writer.append(Message {
            queue_offset: n.into(),
            ..message("orders", 0, &[n])
        });
    }
    writer.finish(true);
    let before = files(&place, "consumequeue");
    let store = place.reopen();
    assert_eq!(store.reader().queue_bounds("orders", 0).unwrap(), 70..73);
    for n in 73..110_u8 {
        let done = store.append(message("orders", 0, &[n])).unwrap().appended;
        assert_eq!(done.queue_offset, i64::from(n));
    }
    assert_eq!(store.reader().queue_bounds("orders", 0).unwrap().start, 70);
    store.close().unwrap();
    let after = files(&place, "consumequeue");
    assert_eq!(before[0].1[..23 * 20], after[0].1[..23 * 20]);
    assert_eq!(
        place.names("consumequeue/orders/0"),
        ["00000000000000001000", "00000000000000002000"]
    );
    let reader = place.reader();
    assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 70..110);
    assert!((70..110).all(|n| reader.message_in_queue("orders", 0, n).unwrap().view().body() == [n as u8]));
}

#[test]
fn a_queue_rebuilt_from_a_log_that_lost_its_start_begins_with_pre_blanks() {
    let place = Place::new();
    let offsets = written(&place);
    let complete = files(&place, "consumequeue");
    fs::remove_file(place.at("commitlog/00000000000000000000")).unwrap();
    fs::remove_dir_all(place.at("consumequeue")).unwrap();
    fs::remove_dir_all(place.at("index")).unwrap();
    let gone = offsets.iter().filter(|offset| **offset < SEGMENT as i64).count();
    let store = open(&place.store, super::small(), OpenMode::Existing).unwrap();
    assert_eq!(store.append(message("orders", 0, b"next")).unwrap().appended.queue_offset, 60);
    store.close().unwrap();
    let reader = place.reader();
    for queue in 0..2 {
        let first = (gone + 1 - queue) as i64 / 2;
        let bounds = reader.queue_bounds("orders", queue as i32).unwrap();
        assert_eq!(bounds, first..61 - queue as i64);
        let rebuilt = fs::read(place.at(&format!("consumequeue/orders/{queue}/00000000000000000000"))).unwrap();
        let filler = mqstore::format::CqUnit::PRE_BLANK.encode().repeat(first as usize);
        assert_eq!(rebuilt[..filler.len()], filler);
        let (_, original) = &complete[2 * queue];
        assert_eq!(rebuilt[filler.len()..], original[filler.len()..]);
    }
}

#[test]
fn a_log_that_fills_its_last_segment_exactly_continues_in_the_next() {
    let place = Place::new();
    fs::create_dir_all(place.at("commitlog")).unwrap();
    let mut bytes = Vec::new();
    for len in [5000, 5000, SEGMENT as usize - 10_000] {
        let record = Message {
            physical_offset: bytes.len() as i64,
            queue_offset: bytes.len() as i64 / 5000,
            store_time: 1,
            ..record_of(len)
        };
        bytes.extend(record.encode().unwrap());
    }
    fs::write(place.at("commitlog/00000000000000000000"), &bytes).unwrap();
    let store = place_opened(&place);
    let next = store.append(record_of(100)).unwrap().appended;
    assert_eq!((next.physical_offset, next.queue_offset), (SEGMENT as i64, 3));
    store.close().unwrap();
    assert_eq!(fs::read(place.at("commitlog/00000000000000000000")).unwrap(), bytes);
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 4);
}

fn place_opened(place: &Place) -> MessageStore {
    open(&place.store, super::small(), OpenMode::Existing).unwrap()
}

#[test]
fn a_blank_without_a_next_segment_is_written_over() {
    let place = Place::new();
    fs::create_dir_all(place.at("commitlog")).unwrap();
    let mut bytes = Message {
        store_time: 1,
        ..record_of(5000)
    }
    .encode()
    .unwrap();
    bytes.extend(encode_blank(SEGMENT as u32 - 5000));
    bytes.resize(SEGMENT as usize, 0);
    fs::write(place.at("commitlog/00000000000000000000"), &bytes).unwrap();
    let store = place_opened(&place);
    assert_eq!(store.append(record_of(100)).unwrap().appended.physical_offset, 5000);
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "t", 0).len(), 2);
}

#[test]
fn stale_bytes_past_the_end_are_zeroed_before_anything_is_appended() {
    let place = Place::new();
    let store = place.create();
    let first = store.append(record_of(1000)).unwrap().appended;
    store.append(record_of(1000)).unwrap();
    store.append(record_of(1000)).unwrap();
    store.close().unwrap();
    // As a broker's own truncation leaves it: the second record's head is gone, the third one is whole.
    fs::write(place.at("lock"), "lock").unwrap();
    let segment = place.at("commitlog/00000000000000000000");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[1000..1008].fill(0);
    fs::write(&segment, &bytes).unwrap();
    let queue = place.at("consumequeue/t/0/00000000000000000000");
    let mut entries = fs::read(&queue).unwrap();
    entries[20..].fill(0);
    fs::write(&queue, entries).unwrap();
    fs::remove_file(place.at("checkpoint")).unwrap();
    let store = place.reopen();
    let zeroed = fs::read(&segment).unwrap();
    assert!(zeroed[1000..].iter().all(|byte| *byte == 0));
    let second = store.append(record_of(1000)).unwrap().appended;
    assert_eq!((second.physical_offset, second.queue_offset), (1000, 1));
    store.close().unwrap();
    assert_eq!(walk(&place.reader(), SEGMENT).len(), 2);
    assert_eq!(first.physical_offset, 0);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for (path, bytes) in contents(from) {
        let to = to.join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, bytes).unwrap();
    }
}

fn messages(reader: &Arc<MessageReader>, segment: u64) -> BTreeMap<i64, Vec<u8>> {
    let log = walk(reader, segment);
    let messages = log
        .iter()
        .map(|stored| (stored.view().physical_offset(), stored.view().bytes().to_vec()));
    messages.collect()
}

fn hits(reader: &MessageReader, topic: &str, key: &str) -> usize {
    let request = by_key(topic, key);
    reader.query(&request).unwrap().hits.len()
}

/// Appends to a broker's store, twice; what it held stays as it was, byte for byte, and what is new is found.
fn go_on(store: &Path, segment: u64, config: &StoreConfig) {
    let what = store.display();
    let reader = super::reader(store);
    let before = messages(&reader, segment);
    let queues: Vec<_> = readable_queues(&reader)
        .map(|(topic, id)| (topic.clone(), id, reader.queue_bounds(&topic, id).unwrap()))
        .collect();
    let end = reader.physical_bounds().end;
    for round in 0..2 {
        let writer = open(store, config.clone(), OpenMode::Existing).unwrap_or_else(|error| panic!("{what}: {error}"));
        for n in 0..100 {
            let key = format!("new-{round}-{n}");
            writer
                .append(with(message("new", 0, &vec![n; 300]), &[("KEYS", &key)]))
                .unwrap();
        }
        for (topic, id, bounds) in &queues {
            let done = writer.append(message(topic, *id, b"more")).unwrap().appended;
            assert_eq!(done.queue_offset, bounds.end + round, "{what}: {topic}/{id}");
        }
        writer.close().unwrap();
    }
    let reader = super::reader(store);
    assert!(reader.recovery().clean_exit);
    let mut after = messages(&reader, segment);
    let new = after.split_off(&end);
    assert!(before == after, "{what}: a message that was there changed");
    assert_eq!(new.len(), 2 * (100 + queues.len()), "{what}");
    assert_eq!(bodies(&reader, "new", 0).len(), 200);
    assert_eq!(
        (0..100).map(|n| hits(&reader, "new", &format!("new-1-{n}"))).sum::<usize>(),
        100
    );
    for (topic, id, bounds) in queues {
        let found = reader.queue_bounds(&topic, id).unwrap();
        assert_eq!(found, bounds.start..bounds.end + 2, "{what}: {topic}/{id}");
        assert_eq!(
            reader.message_in_queue(&topic, id, bounds.end + 1).unwrap().view().body(),
            b"more"
        );
    }
    // Every key that a message of the broker has is still found.
    for bytes in before.values() {
        let mqstore::format::Record::Message(view) = mqstore::format::read_record(bytes, mqstore::format::Check::Structure)
        else {
            panic!("{what}: no message");
        };
        for key in mqstore::format::DispatchRequest::of(&view).index_keys(false) {
            assert!(hits(&reader, &view.topic(), &key) > 0, "{what}: {key}");
        }
    }
}

fn readable_queues(reader: &MessageReader) -> impl Iterator<Item = (String, i32)> {
    let topics = reader.topics().unwrap().into_iter();
    topics.flat_map(|topic| {
        let ids = reader.queue_ids(&topic).unwrap_or_default();
        ids.into_iter().map(move |id| (topic.clone(), id))
    })
}

#[test]
fn every_golden_store_is_continued_and_what_a_broker_wrote_stays() {
    let place = Place::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let (mut clean, mut asking, mut unclean) = (0, 0, 0);
    for name in names(&golden)
        .into_iter()
        .filter(|name| golden.join(name).join("commitlog").is_dir())
    {
        let store = place.at(&name);
        copy(&golden.join(&name), &store);
        unclean += i32::from(store.join("abort").exists());
        let mut config = StoreConfig::default();
        match open(&store, config.clone(), OpenMode::Existing) {
            Ok(store) => store.close().unwrap(),
            Err(Error::Invalid { what }) => {
                // Its index file holds no key, so that only the broker that made it knows its shape.
                assert!(what.contains("max_hash_slot_num"), "{what}");
                config.max_hash_slot_num = Some(100);
                config.max_index_num = Some(400);
                asking += 1;
            }
            Err(error) => panic!("{name}: {error}"),
        }
        go_on(&store, SEGMENT, &config);
        clean += 1;
    }
    let events = crate::golden::unpack_events(&place.at("unpacked"));
    go_on(&events, 1 << 20, &StoreConfig::default());
    assert_eq!((clean, asking, unclean), (13, 1, 2));
}

#[test]
fn a_topic_with_a_batch_queue_is_refused_and_others_of_its_store_are_not() {
    let place = Place::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/533_batchcq");
    copy(&golden, &place.store);
    let topic = place.names("batchconsumequeue").remove(0);
    let store = place.reopen();
    assert!(matches!(
        store.append(message(&topic, 0, b"x")),
        Err(Error::IllegalMessage { .. })
    ));
    put(&store, "another", b"x");
    store.close().unwrap();
    assert_eq!(bodies(&place.reader(), "another", 0), [b"x"]);
}

#[test]
fn a_record_without_a_queue_offset_makes_no_hole_in_a_rebuilt_queue() {
    let place = Place::new();
    let mut writer = StoreWriter::small(&place.store);
    for n in 0..6_u8 {
        writer.put("orders", 0, &[n], &[]);
    }
    writer.append(Message {
        queue_offset: 1000,
        ..message("orders", 0, b"stray")
    });
    writer.finish(true);
    fs::remove_dir_all(place.at("consumequeue")).unwrap();
    let store = open(&place.store, super::small(), OpenMode::Existing).unwrap();
    let next = store.append(message("orders", 0, &[6])).unwrap().appended;
    store.wait_dispatched(next.physical_offset, Some(super::soon())).unwrap();
    assert_eq!(next.queue_offset, 6);
    assert_eq!(store.reader().queue_bounds("orders", 0).unwrap(), 0..7);
    store.close().unwrap();
    assert_eq!(place.names("consumequeue/orders/0"), ["00000000000000000000"]);
    let expected: Vec<Vec<u8>> = (0..7).map(|n| vec![n]).collect();
    assert_eq!(bodies(&place.reader(), "orders", 0), expected);
}

#[test]
fn a_last_index_file_that_is_damaged_gets_no_more_keys() {
    let place = Place::new();
    let store = place.create();
    for n in 0..50 {
        store
            .append(with(message("t", 0, b"x"), &[("KEYS", &format!("k{n}"))]))
            .unwrap();
    }
    store.close().unwrap();
    let damaged = place.at("index").join(place.names("index").remove(0));
    let mut bytes = fs::read(&damaged).unwrap();
    // The slots are gone, so that no item can be reached.
    bytes[40..440].fill(0);
    fs::write(&damaged, &bytes).unwrap();
    let store = place.reopen();
    store.append(with(message("t", 0, b"x"), &[("KEYS", "new")])).unwrap();
    store.close().unwrap();
    assert_eq!(place.names("index").len(), 2);
    assert!(fs::read(&damaged).unwrap() == bytes);
    for key in ["k7", "new"] {
        assert_eq!(hits(&place.reader(), "t", key), 1);
    }
}
