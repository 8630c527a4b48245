//! Missing derived files come back from the log.

use std::fs;
use std::time::Duration;

use mqstore::config::StoreConfig;
use mqstore::error::Error;
use mqstore::format::{Message, segment_name};
use mqstore::read::OffsetResolver;
use mqstore::recovery::Missing;
use mqstore::remedy::Remedy;
use mqstore::store::{MessageStore, OpenMode};

use super::{Crashed, SEGMENT, contents, copy, names, real};
use crate::store_writer::StoreWriter;
use tempfile::TempDir;

/// 400 messages over 25 files, of which a broker of 5.5.1 brings back 160.
fn written(clean: bool) -> Crashed {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let put = |n: i32| {
        let (body, key) = (format!("body {n}"), format!("k{n}"));
        let filling = "f".repeat(850);
        writer.put("orders", n % 2, body.as_bytes(), &[("KEYS", &key), ("filling", &filling)])
    };
    let offsets = (0..400).map(put).collect();
    writer.finish(clean);
    let last_store_time = writer.last_store_time;
    Crashed {
        dir,
        offsets,
        last_store_time,
    }
}

fn sizes() -> StoreConfig {
    StoreConfig {
        mapped_file_size_consume_queue: Some(1000),
        max_hash_slot_num: Some(100),
        max_index_num: Some(400),
        ..StoreConfig::default()
    }
}

#[test]
fn a_store_without_queues_index_and_checkpoint_comes_back_whole() {
    for clean in [true, false] {
        let store = written(clean);
        assert_eq!(names(&store.at("commitlog")).len(), 25);
        let queues = contents(&store.at("consumequeue"));
        let index: Vec<_> = contents(&store.at("index")).into_values().collect();
        for gone in ["consumequeue", "index"] {
            fs::remove_dir_all(store.at(gone)).unwrap();
        }
        let opened = MessageStore::open(&real(), store.path(), sizes(), OpenMode::Existing).unwrap();
        assert_eq!(opened.reader().recovery().undispatched, 400);
        opened.close().unwrap();
        store.expect_messages(400);
        assert!(contents(&store.at("consumequeue")) == queues, "clean {clean}");
        assert!(
            contents(&store.at("index")).into_values().collect::<Vec<_>>() == index,
            "clean {clean}"
        );
    }
}

#[test]
fn any_queue_file_that_is_taken_from_a_stamped_store_comes_back() {
    let store = Crashed {
        dir: TempDir::new_in("/dev/shm").unwrap(),
        offsets: Vec::new(),
        last_store_time: 0,
    };
    let config = StoreConfig {
        mapped_file_size_commit_log: Some(16384),
        checkpoint_interval: 4096,
        ..sizes()
    };
    let open = || MessageStore::open(&real(), store.path(), config.clone(), OpenMode::Append).unwrap();
    let opened = open();
    // Each topic once: the end of the log has messages of few of them.
    for topic in ["first", "second", "last"] {
        for n in 0..300 {
            let message = Message {
                topic: topic.into(),
                queue_id: n % 2,
                body: format!("body {n}").into_bytes().into(),
                ..Message::default()
            };
            let appended = opened.append(message).unwrap().appended;
            opened.wait_dispatched(appended.physical_offset, None).unwrap();
        }
    }
    // Whoever waits dispatches, and leaves it to the dispatcher's thread to write out the queues: six, each of three files.
    while contents(&store.at("consumequeue")).len() < 18 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let crashed = TempDir::new_in("/dev/shm").unwrap();
    copy(store.path(), crashed.path());
    opened.close().unwrap();
    let complete = contents(&store.at("consumequeue"));
    let after_close = TempDir::new_in("/dev/shm").unwrap();
    copy(store.path(), after_close.path());
    let mut removed = 0;
    for path in complete.keys() {
        for image in [&after_close, &crashed] {
            fs::remove_dir_all(store.path()).unwrap();
            copy(image.path(), store.path());
            removed += usize::from(fs::remove_file(store.at("consumequeue").join(path)).is_ok());
            open().close().unwrap();
            assert!(contents(&store.at("consumequeue")) == complete, "{}", path.display());
        }
    }
    assert_eq!(removed, 2 * complete.len());
}

#[test]
fn a_crash_image_of_a_broker_is_recovered_with_all_that_its_log_holds() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/491_crash_image");
    let dir = TempDir::new_in("/dev/shm").unwrap();
    copy(&golden, dir.path());
    let read = |path: &std::path::Path| {
        let reader = std::sync::Arc::new(mqstore::read::MessageReader::open(&real(), path, StoreConfig::default()).unwrap());
        let queues: Vec<_> = reader
            .topics()
            .unwrap()
            .into_iter()
            .flat_map(|topic| {
                reader
                    .queue_ids(&topic)
                    .unwrap()
                    .into_iter()
                    .map(move |id| (topic.clone(), id))
            })
            .map(|(topic, id)| {
                let scan = mqstore::read::QueueScan::new(reader.clone(), topic.clone(), id, 0..i64::MAX).unwrap();
                let bytes: Vec<_> = scan.map(|message| message.unwrap().view().bytes().to_vec()).collect();
                (topic, id, bytes)
            })
            .collect();
        (reader.recovery().clone(), queues)
    };
    let (crashed, before) = read(dir.path());
    assert!(!crashed.clean_exit);
    let opened = MessageStore::open(&real(), dir.path(), StoreConfig::default(), OpenMode::Existing).unwrap();
    assert_eq!(opened.reader().recovery().log_end, crashed.log_end);
    opened.close().unwrap();
    let (recovered, after) = read(dir.path());
    assert!(recovered.clean_exit && recovered.undispatched == 0);
    assert_eq!(recovered.log_end, crashed.log_end);
    assert!(before == after && !before.is_empty());
}

#[test]
fn a_queue_file_of_any_bytes_opens_and_gives_the_log_s_messages() {
    let fills: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes.fill(0),
        |bytes| bytes.fill(0xff),
        |bytes| bytes[500..].fill(0),
        |bytes| bytes[500..].fill(0xff),
    ];
    for fill in fills {
        for file in [0, 1000, 2000] {
            let store = Crashed::new(300, false);
            super::edit(&store.at(&format!("consumequeue/orders/1/{file:020}")), fill);
            store.recover();
            store.expect_messages(300);
        }
    }
}

#[test]
fn a_queue_whose_messages_all_expired_has_equal_bounds_after_a_crash() {
    let store = Crashed::new(300, false);
    // Only queue 1 continues after the first segment.
    for segment in names(&store.at("commitlog")).iter().take(2) {
        fs::remove_file(store.at("commitlog").join(segment)).unwrap();
    }
    let first = *store.offsets.iter().find(|offset| **offset >= 2 * super::SEGMENT).unwrap();
    let number = store.offsets.iter().position(|offset| *offset == first).unwrap() as i64;
    store.lose_entries(0, (number as usize).div_ceil(2));
    let (path, at) = store.segment(first);
    super::edit(&path, |bytes| bytes[at..].fill(0));
    store.recover();
    let reader = store.reader();
    for queue in 0..2 {
        let bounds = reader.queue_bounds("orders", queue).unwrap();
        assert_eq!(bounds.start, bounds.end, "queue {queue}");
    }
}

#[test]
fn one_damaged_field_of_a_record_costs_no_later_message_its_place() {
    // Byte of the record, and what it becomes: queue offset, queue id and sysFlag, which no checksum covers. With these flags it is a half
    // message, a rolled-back one, and an inner batch.
    for (at, to) in [(20, 0xff), (27, 0), (27, 0xfe), (15, 7), (39, 4), (39, 12), (39, 0x80)] {
        for is_rebuilt in [false, true] {
            let store = Crashed::new(300, false);
            if is_rebuilt {
                fs::remove_dir_all(store.at("consumequeue")).unwrap();
            } else {
                store.lose_entries(0, 90);
                store.lose_entries(1, 90);
            }
            let (path, start) = store.segment(store.offsets[200]);
            super::edit(&path, |bytes| bytes[start + at] = to);
            let opened = store.open().unwrap();
            let what = format!("byte {at} is {to:#x}, rebuilt: {is_rebuilt}");
            let reader = opened.reader();
            assert_eq!(reader.queue_bounds("orders", 0).unwrap(), 0..150, "{what}");
            for n in (0..150).filter(|n| *n != 100) {
                let found = reader
                    .message_in_queue("orders", 0, n)
                    .unwrap_or_else(|error| panic!("{what}: {n}: {error}"));
                assert_eq!(found.view().body(), format!("body {}", 2 * n).as_bytes(), "{what}");
            }
            let appended = opened.append(Message {
                topic: "orders".into(),
                ..Message::default()
            });
            assert_eq!(appended.unwrap().appended.queue_offset, 150, "{what}");
        }
    }
}

#[test]
fn a_queue_whose_only_message_has_expired_keeps_its_number_over_a_crash() {
    for clean in [true, false] {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let mut writer = StoreWriter::small(dir.path());
        writer.put("once", 0, b"long ago", &[]);
        for n in 0..300 {
            writer.put("orders", n % 2, b"body", &[]);
        }
        writer.finish(clean);
        let store = Crashed {
            dir,
            offsets: Vec::new(),
            last_store_time: writer.last_store_time,
        };
        // The segment of the message in "once" has expired.
        fs::remove_file(store.segment(0).0).unwrap();
        assert_eq!(store.reader().queue_bounds("once", 0).unwrap(), 1..1, "clean {clean}");
        let opened = store.open().unwrap();
        assert_eq!(opened.reader().queue_bounds("once", 0).unwrap(), 1..1, "clean {clean}");
        let message = Message {
            topic: "once".into(),
            body: b"again".into(),
            ..Message::default()
        };
        let done = opened.append(message).unwrap().appended;
        assert_eq!(done.queue_offset, 1, "clean {clean}");
        opened.close().unwrap();
    }
}

#[test]
fn a_reader_continues_after_a_missing_segment_with_missing_queue_files() {
    for (clean, gone) in [
        (true, "consumequeue"),
        (false, "consumequeue"),
        (false, "consumequeue/orders/0"),
        (false, "consumequeue/orders/0/00000000000000001000"),
    ] {
        let store = written(clean);
        let lost = 8 * SEGMENT..10 * SEGMENT;
        for start in lost.clone().step_by(SEGMENT as usize) {
            fs::remove_file(store.segment(start).0).unwrap();
        }
        let path = store.at(gone);
        let removed = if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        removed.unwrap();
        let reader = store.reader();
        assert!(reader.recovery().missing.is_some(), "{gone}, clean {clean}");
        let bounds = [0, 1].map(|queue| reader.queue_bounds("orders", queue).unwrap());
        assert_eq!(bounds, [0..200, 0..200], "{gone}, clean {clean}");
        for (n, offset) in store.offsets.iter().enumerate() {
            let (queue, number) = (n as i32 % 2, n as i64 / 2);
            let found = reader.message_in_queue("orders", queue, number);
            if lost.contains(offset) {
                assert!(matches!(found, Err(Error::Corrupt { .. })), "{gone}, clean {clean}: {n}");
            } else {
                assert_eq!(found.unwrap().view().body(), format!("body {n}").as_bytes());
            }
        }
        assert!(store.open().is_err(), "{gone}, clean {clean}");
    }
}

#[test]
fn a_missing_segments_messages_have_no_place_in_a_queue_that_begins_later() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let mut writer = StoreWriter::small(dir.path());
    let mut numbers = [0, 0];
    let mut places = Vec::new();
    // A segment has 14 messages.
    for n in 0..60 {
        let is_late = n >= 20 && n % 2 == 0;
        let (topic, number) = (["orders", "late"][usize::from(is_late)], &mut numbers[usize::from(is_late)]);
        places.push((topic, *number, writer.put(topic, 0, &[b'b'; 1000], &[])));
        *number += 1;
    }
    writer.finish(true);
    fs::remove_file(dir.path().join("commitlog").join(segment_name(SEGMENT as u64))).unwrap();
    fs::remove_dir_all(dir.path().join("consumequeue")).unwrap();
    let reader = crate::reading::open(dir.path());
    let mut resolver = OffsetResolver::new(&reader);
    for (topic, number, offset) in places {
        let position = resolver
            .position(topic, 0, number)
            .unwrap()
            .map(|found| found.physical_offset);
        let is_there = !(SEGMENT..2 * SEGMENT).contains(&offset);
        assert_eq!(position, is_there.then_some(offset), "{topic}, {number}");
    }
}

#[test]
fn a_closed_store_whose_last_queue_file_is_cut_short_is_not_complete() {
    // The other files of the queue give its file length, and for a single file those of the other queue.
    for (count, last) in [(300, "00000000000000002000"), (60, "00000000000000000000")] {
        let store = Crashed::new(count, true);
        store.stamp(store.last_store_time);
        assert_eq!(store.reader().recovery().missing, None);
        let path = store.at("consumequeue/orders/0").join(last);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(500).unwrap();
        let Missing { what, remedy, .. } = store.reader().recovery().missing.clone().unwrap();
        assert!(what.starts_with(&format!("{} at byte 500: ", path.display())), "{what}");
        assert_eq!(remedy, Some(Remedy::Rebuild), "{what}");
    }
}

/// Of a broker: no stamp counts the entries. Otherwise the queue offsets would be given again.
#[test]
fn a_closed_brokers_queue_without_its_only_file_is_filled_from_the_log() {
    for is_gone in [true, false] {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let mut writer = StoreWriter::small(dir.path());
        for n in 0..303 {
            writer.put(if n < 3 { "early" } else { "orders" }, 0, b"body", &[]);
        }
        writer.finish(true);
        let file = dir.path().join("consumequeue/early/0").join(format!("{:020}", 0));
        let entries = fs::read(&file).unwrap();
        if is_gone {
            fs::remove_file(&file).unwrap();
        } else {
            fs::write(&file, b"").unwrap();
        }
        let reader = crate::reading::open(dir.path());
        assert_eq!(reader.queue_bounds("early", 0).unwrap(), 0..3);
        assert_eq!(reader.recovery().missing, None);
        let store = MessageStore::open(&real(), dir.path(), StoreConfig::default(), OpenMode::Existing).unwrap();
        let message = Message {
            topic: "early".into(),
            ..Message::default()
        };
        assert_eq!(store.append(message).unwrap().appended.queue_offset, 3);
        store.close().unwrap();
        assert_eq!(fs::read(&file).unwrap()[..60], entries[..60]);
    }
}
